"""Hangs and crashes that people had: the cause and its line are named, and right twins are quiet.

A script's docstring says how many ranks it has and what a report must say (`Told: ...`); a line
that ends with `# cause` is one that it must name. What follows `# right:` is the line of its right
twin.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from recordings import SCRIPTS

from torch_scenarios.record import live

if TYPE_CHECKING:
    from pathlib import Path

    from recordings import Recording

pytestmark = [pytest.mark.torch, pytest.mark.slow]

FOLDER = SCRIPTS / "hangs"
HOW = {"live": (), "fake": ("--fake",)}
#: what every run records; all others are for the night
ALWAYS = {
    *(("bad_sample", "live"), ("unused_branch", "fake"), ("early_stopping", "fake")),
    *(("rank_0_logs", "live"), ("waits_at_exit", "live"), ("future_never_asked", "fake")),
    *(("starts_twice", "live"), ("batch_in_another_order", "fake")),
}
#: right twins that every run records
ALWAYS_RIGHT = {("bad_sample", "fake"), ("accumulation_by_loss", "live"), ("unused_branch", "live")}
#: scripts of which nothing is proved: their verdict is INCONCLUSIVE, with the place
OPEN = {
    *("waits_for_a_flag", "key_of_the_store", "prefetcher_dies"),
    *("counts_in_the_store", "counts_the_files", "lock_of_an_extension", "worker_waits_for_a_lock"),
    *("prefix_of_own", "key_in_another_form", "key_of_another_count"),
    *("child_is_waited_for", "run_folder_by_clock", "lock_in_the_store", "lock_not_reentrant"),
    *("task_waits_for_its_pool", "key_of_an_empty_shard"),
    *("locks_in_two_orders", "thread_that_announces_dies", "producer_returns_early"),
    *("thread_waits_for_a_key", "key_of_some_epochs", "pause_without_resume"),
    *("barrier_of_one_key", "key_under_an_if"),
}

_MARK = re.compile(r"\s+# (?:cause|right:).*$")
_RIGHT = re.compile(r"# right: ?(.*)$")


def scripts(always: set[tuple[str, str]]) -> list[object]:
    return [
        pytest.param(
            path,
            how,
            id=f"{path.stem}-{how}",
            marks=[] if (path.stem, how) in always else [pytest.mark.nightly],
        )
        for path in sorted(FOLDER.glob("*.py"))
        for how in HOW
    ]


def written(path: Path, folder: Path, *, right: bool) -> Path:
    """Write a script without its marks, or its right twin; returns where."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        code = _MARK.sub("", line)
        twin = _RIGHT.search(line)
        if right and twin is not None:
            code = code[: len(code) - len(code.lstrip())] + twin[1]
        lines.append(code)
    found = folder / path.name
    found.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return found


@pytest.mark.parametrize(("path", "how"), scripts(ALWAYS))
def test_the_cause_of_a_hang_is_named_with_its_line(
    recording: Recording, tmp_path: Path, path: Path, how: str
) -> None:
    text = path.read_text(encoding="utf-8")
    ranks = re.search(r"^Ranks: (\d+)$", text, re.MULTILINE)
    assert ranks is not None
    seconds = "12" if path.stem in OPEN else "240"
    script = written(path, tmp_path, right=False)
    ran = recording.record(script, "-n", ranks[1], *HOW[how], "--max-seconds", seconds)
    assert ran.code == (3 if path.stem in OPEN else 1), ran.output + ran.errors
    for words in re.findall(r"^Told: (.+)$", text, re.MULTILINE):
        assert words in ran.output, ran.output
    if path.stem in OPEN:  # what it waits for is said before stacks are shown
        first, _, rest = ran.output.partition("Python stack")
        assert "fix: " in first or "fix: " not in rest, ran.output
    causes = [at for at, line in enumerate(text.splitlines(), 1) if "  # cause" in line]
    assert any(f"{path.name}:{at}" in ran.output for at in causes), ran.output


def test_every_twin_is_a_program(tmp_path: Path) -> None:
    for path in FOLDER.glob("*.py"):
        for right in (False, True):
            twin = written(path, tmp_path, right=right)
            compile(twin.read_text(encoding="utf-8"), str(path), "exec")


@pytest.mark.parametrize(("path", "how"), scripts(ALWAYS_RIGHT))
def test_the_right_twin_of_a_hang_is_quiet(
    recording: Recording, tmp_path: Path, path: Path, how: str
) -> None:
    ranks = re.search(r"^Ranks: (\d+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert ranks is not None
    script = written(path, tmp_path, right=True)
    ran = recording.record(script, "-n", ranks[1], *HOW[how])
    assert ran.code == 0, ran.output + ran.errors


def test_a_fake_rank_that_waits_for_ever_has_not_left(recording: Recording, tmp_path: Path) -> None:
    script = written(FOLDER / "server_waits_for_one_more.py", tmp_path, right=False)
    ran = recording.record(script, "-n", "3", "--fake")
    assert "has left by" not in ran.output
    assert ran.diagnoses == ["unmatched_recv"]


@pytest.mark.nightly
def test_what_a_fake_rank_waits_for_that_never_starts_is_told(
    recording: Recording, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import os, torch.distributed as dist\n"
        "rank, world = int(os.environ['RANK']), 2\n"
        "port = int(os.environ['MASTER_PORT']) + 7\n"
        "store = dist.TCPStore('127.0.0.1', port, world + 1, is_master=rank == 0)\n"
        "dist.init_process_group('gloo', store=store, rank=rank, world_size=world)\n"
        "dist.barrier()\n"
    )
    ran = recording.record(script, "-n", "2", "--fake")
    assert "never_meets" in ran.output
    assert "waits at train.py:4 for the clients of its `TCPStore`" in ran.output
    assert "fix: pass as `world_size` how many processes make this store" in ran.output


@pytest.mark.nightly
@pytest.mark.parametrize(
    "name", ["lock_not_reentrant", "key_of_the_store", "task_waits_for_its_pool"]
)
def test_a_run_whose_rank_waits_for_what_never_comes_is_ended(
    recording: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(live, "ENDLESS_S", 2.0)
    script = written(FOLDER / f"{name}.py", tmp_path, right=False)
    ran = recording.record(script, "-n", "2", "--max-seconds", "240")
    assert ran.code == 3, ran.output + ran.errors
    assert "and the run was ended" in ran.output
    assert "--max-seconds" not in ran.output
