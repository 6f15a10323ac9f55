"""The bounds on a scenario: each has a flag of its own, and complaints name it."""

from __future__ import annotations

import gc

import click
import pytest
from msgspec.structs import replace

from torch_scenarios.cli import cli
from torch_scenarios.limits import COUNTS, FLAGS, RAISING, Limits, explain_bound, freeze_objects


def test_every_bound_has_a_flag_of_its_own() -> None:
    names = set(Limits.__struct_fields__) - {"follow_links"}
    assert set(FLAGS) == set(COUNTS) == names
    assert len(set(FLAGS.values())) == len(names)
    assert all(flag == f"--{name.replace('_', '-')}" for name, flag in FLAGS.items())


@pytest.mark.parametrize("name", sorted(FLAGS))
def test_a_complaint_names_the_option_that_raises_the_bound(name: str) -> None:
    said = explain_bound(name, replace(Limits(), **{name: 7}))
    assert said == f"at most 7 {COUNTS[name]} ({RAISING[name]} raises it)"
    short = RAISING[name].removeprefix("`--limit ").removesuffix("=N`")
    command = cli.get_command(click.Context(cli), "check")
    assert command is not None
    taken = command.make_context("check", ["--limit", f"{short}=7"]).params
    assert taken[FLAGS[name].removeprefix("--").replace("-", "_")] == 7


def test_ten_thousand_ranks_are_possible_when_asked_for() -> None:
    assert Limits().max_ranks == 64
    assert Limits(max_ranks=16_384).max_ranks == 16_384


def test_what_is_frozen_before_stays_so() -> None:
    """Such a process has a large heap, which the collector would walk again and again."""
    gc.freeze()
    before = gc.get_freeze_count()
    with freeze_objects():
        pass
    assert gc.get_freeze_count() >= before > 0
