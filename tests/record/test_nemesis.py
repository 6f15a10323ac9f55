"""Runs in which one rank raises, is killed or late at each of its calls: which of them hang."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from recordings import SCRIPTS

from torch_scenarios.cli import cli

if TYPE_CHECKING:
    from recordings import Recording

pytestmark = [pytest.mark.torch, pytest.mark.slow]


@pytest.mark.nightly
def test_a_job_that_waits_for_all_ranks_behind_an_error_hangs(recording: Recording) -> None:
    ran = recording.of("nemesis/tells_all_ranks.py", "-n", "2", "--nemesis")
    assert ran.code == 1, ran.output + ran.errors
    words = "the job hangs where rank 0 or rank 1 raises before all_reduce (tells_all_ranks.py:9)"
    assert words in ran.messages
    assert "in `except RuntimeError` (tells_all_ranks.py:10)" in ran.output
    assert "nemesis: of 4 more runs 2 hang, 2 end as they should" in ran.output


def test_an_error_that_no_launcher_sees_is_told(recording: Recording) -> None:
    ran = recording.of("nemesis/swallows.py", "-n", "2", "--nemesis")
    assert ran.code == 0, ran.output + ran.errors
    assert "nemesis: of 2 more runs 2 end with 0 all the same" in ran.output
    assert "before all_reduce (swallows.py:8), the job ends with 0" in ran.output


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["raise", "die"])
def test_a_job_that_catches_nothing_ends_with_its_rank(recording: Recording, kind: str) -> None:
    ran = recording.of("nemesis/ends.py", "-n", "2", "--nemesis", kind)
    assert ran.code == 0, ran.output + ran.errors
    assert "nemesis: of 4 more runs 4 end as they should" in ran.output


@pytest.mark.nightly
def test_a_rank_that_is_late_ends_a_job_with_a_short_timeout(recording: Recording) -> None:
    ran = recording.of("nemesis/short_timeout.py", "-n", "2", "--nemesis", "late")
    assert ran.code == 1, ran.output + ran.errors
    words = "ends with an error where rank 1 is late by 10 s before monitored_barrier"
    assert words in ran.messages


def test_a_run_that_does_not_end_well_is_not_repeated(recording: Recording) -> None:
    ran = recording.of("wrong/raise_on_one_rank.py", "-n", "4", "--nemesis")
    assert ran.code == 1
    assert "nemesis: no more runs, as this one does not end well" in ran.output


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("`--nemesis` needs ranks that wait for each other", ("--fake", "--", "ends.py")),
        ("`--nemesis` starts the ranks itself", ("--", "torchrun", "ends.py")),
    ],
)
def test_ranks_that_do_not_wait_are_refused(words: str, command: tuple[str, ...]) -> None:
    own = [each.replace("ends.py", str(SCRIPTS / "nemesis" / "ends.py")) for each in command]
    said = CliRunner().invoke(cli, ["record", "--nemesis", "raise", *own])
    assert said.exit_code == 2
    assert words in said.output
