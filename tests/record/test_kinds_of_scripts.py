"""Scripts of every kind that people write, right ones and wrong ones, on real ranks and fake ones.

A wrong script says in its docstring what is found, and what words of the report say it, and marks
the lines that a report must name.
"""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from recordings import SCRIPTS

from torch_scenarios.language.document import load
from torch_scenarios.pipeline.attempts import analyse
from torch_scenarios.record.format import lines_of, read

if TYPE_CHECKING:
    from recordings import Recording

pytestmark = [pytest.mark.torch, pytest.mark.slow]

HOW = {"live": ("-n", "4"), "fake": ("-n", "4", "--fake")}

#: right scripts that every run records, and how; all others are for the night
ALWAYS = {
    ("message_chain", "fake"),
    ("subgroups", "live"),
    ("threads_of_own_groups", "live"),
    ("parameter_server", "fake"),
    ("cuda_ddp", "live"),
    ("joined_ddp", "live"),
    ("thread_outlives_main", "fake"),
    ("receives_begin_first", "fake"),
}
#: wrong scripts that every run records on real ranks, and one in how many on fake ones
ALWAYS_LIVE = {"never_joins", "collective_in_finally"}
FAKE_STRIDE = 16


def right_scripts() -> list[object]:
    return [
        pytest.param(
            path,
            how,
            id=f"{path.stem}-{how}",
            marks=[] if (path.stem, how) in ALWAYS else [pytest.mark.nightly],
        )
        for path in sorted((SCRIPTS / "right").glob("*.py"))
        for how in HOW
    ]


def wrong_scripts() -> list[object]:
    return [
        pytest.param(
            path,
            how,
            id=f"{path.stem}-{how}",
            marks=[] if is_always else [pytest.mark.nightly],
        )
        for number, path in enumerate(sorted((SCRIPTS / "wrong").glob("*.py")))
        for how, is_always in (
            ("live", path.stem in ALWAYS_LIVE),
            ("fake", number % FAKE_STRIDE == 0),
        )
    ]


@pytest.mark.parametrize(("path", "how"), right_scripts())
def test_nothing_is_found_in_a_right_script(recording: Recording, path: Path, how: str) -> None:
    more = ("--cuda-as-cpu",) if path.stem.startswith("cuda") else ()
    ran = recording.of(f"right/{path.name}", *HOW[how], *more)
    assert ran.code == 0, ran.output + ran.errors
    assert ran.diagnoses == []
    (scenario,) = load(ran.folder / "scenario.yaml")
    assert analyse(scenario).verdict.status == "PASSED"
    ran.is_projected()


def test_batch_norm_over_all_ranks_is_done_on_the_cpu(recording: Recording) -> None:
    ran = recording.of("cuda_sync_batch_norm.py", "-n", "2", "--cuda-as-cpu")
    assert ran.code == 0, ran.output + ran.errors
    assert ran.diagnoses == []


def test_a_thread_that_is_no_daemon_is_waited_for_as_python_does(recording: Recording) -> None:
    ran = recording.of("right/thread_outlives_main.py", *HOW["fake"])
    made = [[call.operation for call in each.calls] for each in read(ran.folder).values()]
    assert made == [["barrier", "all_reduce"]] * 4


@pytest.mark.parametrize(("path", "how"), wrong_scripts())
def test_what_is_wrong_is_named_with_its_lines(recording: Recording, path: Path, how: str) -> None:
    text = path.read_text(encoding="utf-8")
    wanted = re.search("^Finds: (.+)$", text, re.MULTILINE)
    ran = recording.of(f"wrong/{path.name}", *HOW[how])
    assert ran.code == 1, ran.output + ran.errors
    if wanted is not None:
        assert wanted[1] in ran.diagnoses, ran.output
    told = re.search("^Told: (.+)$", text, re.MULTILINE)
    assert told is None or told[1] in ran.output, ran.output
    lines = [at for at, line in enumerate(text.splitlines(), 1) if line.endswith("# here")]
    named = {int(at) for at in re.findall(rf"{path.name}:(\d+)", ran.messages)}
    assert named & set(lines), ran.messages
    if "\nNever starts.\n" not in text:  # then there is no program to be projected
        ran.is_projected()


def test_what_is_fake_hangs_as_what_is_real(recording: Recording) -> None:
    live = recording.of("wrong/collective_in_finally.py", *HOW["live"])
    fake = recording.of("wrong/collective_in_finally.py", *HOW["fake"])
    assert set(live.diagnoses) == set(fake.diagnoses)


def test_an_error_that_a_rank_handles_while_it_waits_is_told(recording: Recording) -> None:
    live = recording.of("wrong/collective_in_finally.py", *HOW["live"])
    told = "while it handles RuntimeError: bad batch (collective_in_finally.py:17)"
    assert f"rank 1: in barrier (collective_in_finally.py:19), {told}" in live.output


def test_a_call_that_waits_for_its_work_at_once_is_two_lines(recording: Recording) -> None:
    ran = recording.of("right/calls_past_the_kernel.py", *HOW["live"])
    lines = [*lines_of(ran.folder / "rank-00000.jsonl")][1:]
    kinds = {line[1]: line for line in lines if line[0] == "k"}
    at_once = {number for number, line in kinds.items() if line[-1]}
    called = {kinds[number][2] for number in at_once}
    known = {"broadcast_", "send", "recv_"}
    if not version("torch").startswith("2.6."):  # its reductions do not say that they are
        known |= {"allreduce_", "reduce_"}
    assert called == known
    calls = {line[1]: line[2] in at_once for line in lines if line[0] == "c"}
    of_call: dict[int, list[str]] = {number: [] for number in calls}
    for line in lines:
        if line[0] in {"c", "r", "w", "x"}:
            of_call[line[1]].append(line[0])
    assert len(calls) == 60 * 10
    for number, is_at_once in calls.items():
        assert of_call[number] == (["c", "x"] if is_at_once else ["c", "r", "w", "x"])
