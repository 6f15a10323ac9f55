"""Why ranks part: the loop, the `if`, the error, the way out, the time; live and fake."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from recordings import SCRIPTS, install
from sampling import sampled

from torch_scenarios.cli import cli

if TYPE_CHECKING:
    from pathlib import Path

    from recordings import Recording

pytestmark = [pytest.mark.torch, pytest.mark.slow]

SCRIPT = (SCRIPTS / "parts.py").read_text(encoding="utf-8").splitlines()

KINDS = {
    "batches": ("rank 0 4 times, rank 1 3 times", "with Join([model]):"),
    "branch": ('rank 0 alone goes into `if kind == "branch" and rank == 0', "move them out of"),
    "error": ("in `except OSError` (parts.py:", "let no error be caught"),
    "way_out": ("rank 1 alone takes the `return`", "let every rank come to parts.py:"),
    "late": ("whose timeout is 2 s", "give the group a longer `timeout=`"),
}


@pytest.mark.parametrize("how", [(), ("--fake",)], ids=["live", "fake"])
@pytest.mark.parametrize("kind", sampled(list(KINDS), 4))
def test_why_ranks_part_is_told_with_the_line(
    recording: Recording, kind: str, how: tuple[str, ...]
) -> None:
    ran = recording.of("parts.py", "-n", "2", *how, KIND=kind)
    assert ran.code == 1, ran.output
    why, fix = KINDS[kind]
    assert why in ran.output, ran.output
    assert fix in ran.output, ran.output
    (line,) = (at for at, text in enumerate(SCRIPT, 1) if text.endswith(f"# {kind}"))
    assert f"parts.py:{line}" in ran.output, ran.output


BOTH_SEND = """\
import datetime

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=2))
x, peer = torch.ones(1 << 20), 1 - dist.get_rank()
dist.send(x, peer)
dist.recv(x, peer)
"""
BARRIER = "if peer == 1:\n    dist.send(x, 1)\n    dist.barrier()\nelse:\n    dist.barrier()\n"


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        (BOTH_SEND, "let one of the two receive before it sends, or begin the sends by `isend`"),
        (
            f"{BOTH_SEND.partition('dist.send')[0]}{BARRIER}    dist.recv(x, 0)\n",
            "let rank 1 receive it from rank 0 before its `barrier`, or leave that message out",
        ),
    ],
    ids=["two messages", "a message and a barrier"],
)
def test_a_ring_of_two_is_told_with_what_breaks_it(
    recording: Recording, tmp_path: Path, text: str, fix: str
) -> None:
    script = tmp_path / "train.py"
    script.write_text(text, encoding="utf-8")
    ran = recording.record(script, "-n", "2", "--fake")
    assert fix in " ".join(ran.output.split()), ran.output


def test_an_import_says_why_by_the_record_alone_and_opens_no_script(
    recording: Recording, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text((SCRIPTS / "hangs" / "early_stopping.py").read_text(encoding="utf-8"))
    recorded = recording.record(script, "-n", "3")
    assert recorded.code == 1
    script.write_text("raise SystemExit\n")
    said = CliRunner().invoke(cli, ["import", str(recorded.folder)])
    assert said.exit_code == 1
    assert "`if stopper.should_stop(loss)` (train.py:" in said.output
    assert "is true on rank 1 alone" in said.output


KIT = """\
import torch
import torch.distributed as dist


def fit(callback):
    x = torch.ones(3)
    if callback():
        dist.all_gather([torch.empty(3) for _ in range(2)], x)
    dist.all_reduce(x)
"""
USER = """\
import sys

sys.path.insert(0, {folder!r})
import torch.distributed as dist
from kit import fit

dist.init_process_group("gloo")


def evaluates():
    if dist.get_rank() == 0:
        return True
    return False


fit(evaluates)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("how", [(), ("--fake",)], ids=["live", "fake"])
def test_calls_of_a_framework_are_told_apart_by_its_lines(
    recording: Recording, tmp_path: Path, how: tuple[str, ...]
) -> None:
    kit = install(tmp_path, "kit", {"__init__": KIT})
    script = tmp_path / "train.py"
    script.write_text(USER.format(folder=kit), encoding="utf-8")
    ran = recording.record(script, "-n", "2", *how)
    assert ran.code == 1, ran.output
    for line in (8, 9):
        assert f"train.py:16 in kit/__init__.py:{line}" in ran.output, ran.output
    assert "`if dist.get_rank() == 0` (train.py:11)" in ran.output


@pytest.mark.parametrize("how", [(), ("--fake",)], ids=["live", "fake"])
def test_ranks_that_do_not_part_have_no_reason(recording: Recording, how: tuple[str, ...]) -> None:
    ran = recording.of("parts.py", "-n", "2", *how, KIND="right")
    assert ran.code == 0, ran.output
    assert "part" not in ran.messages


@pytest.mark.parametrize("how", [(), ("--fake",)], ids=["live", "fake"])
def test_the_first_line_says_that_ranks_raised(
    recording: Recording, tmp_path: Path, how: tuple[str, ...]
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "dist.barrier()\n"
        "raise ValueError('no data')\n"
    )
    ran = recording.record(script, "-n", "2", *how)
    assert ran.code == 1, ran.output
    assert ran.output.startswith("FAILED"), ran.output
    assert "  2 ranks, raised, " in ran.output.splitlines()[0]
