"""A run is ended where a rank is surely blocked, and nowhere else."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from handwritten_records import ALL_REDUCE, BARRIER, recorded

from torch_scenarios.cli.answers.record import report_lines
from torch_scenarios.limits import DEFAULT
from torch_scenarios.record import analysis, live
from torch_scenarios.record.analysis import Questions
from torch_scenarios.record.format import read
from torch_scenarios.record.live import RunEnd, RunOrder

if TYPE_CHECKING:
    from pathlib import Path

PASSED = [["float32", [4], 64, 16]]
FROM_ANYONE: tuple[Any, ...] = ("recv_any_source_", [], PASSED, {"tag": 0}, 10)
SEND: tuple[Any, ...] = ("send", PASSED, [], {"peer": 0, "tag": 0}, 11)


def cut(folder: Path) -> None:
    """Let each rank be inside of its last call."""
    for path in folder.glob("rank-*.jsonl"):
        lines = path.read_text(encoding="utf-8").splitlines()[:-2]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("programs", "is_blocked"),
    [
        (((FROM_ANYONE,), (SEND, BARRIER), (SEND, BARRIER)), False),
        (((ALL_REDUCE, ALL_REDUCE), (ALL_REDUCE, BARRIER), (ALL_REDUCE, BARRIER)), True),
        (((ALL_REDUCE,), (ALL_REDUCE,), (ALL_REDUCE,)), False),
    ],
    ids=["receives whose sender is not known yet", "two operations", "all in one"],
)
def test_a_standstill_is_a_hang_where_a_rank_is_surely_blocked(
    tmp_path: Path, programs: tuple[Any, ...], *, is_blocked: bool
) -> None:
    folder = recorded(tmp_path / "a", *programs)
    cut(folder)
    order = RunOrder(command=("train.py",), folder=folder, world_size=3, ranks=(0, 1, 2))
    questions = Questions(order, folder / "scenario.yaml", DEFAULT)
    assert questions.blocks(read(folder)) == is_blocked


@pytest.mark.parametrize(
    ("ended", "status"),
    [
        (RunEnd(timed_out=True), "INCONCLUSIVE"),
        (RunEnd(endless=(0,)), "INCONCLUSIVE"),
        (RunEnd(), "PASSED"),
    ],
)
def test_a_run_that_is_ended_at_its_limit_has_not_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: RunEnd, status: str
) -> None:
    folder = recorded(tmp_path / "a", (ALL_REDUCE,), (ALL_REDUCE,))
    monkeypatch.setattr(analysis, "prepare", lambda _, **__: None)
    monkeypatch.setattr(analysis, "run", lambda *_: ended)
    order = RunOrder(command=("train.py",), folder=folder, world_size=2, ranks=(0, 1))
    found = analysis.record(order)
    verdict = found.judged.result.verdict
    assert verdict.status == status
    assert ("the run was ended at --max-seconds" in (verdict.reason or "")) == ended.timed_out
    assert report_lines(found, 1.0)[0].startswith(status)


def test_a_run_that_is_interrupted_says_who_is_outside_of_any_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = recorded(tmp_path / "a", (ALL_REDUCE,), (ALL_REDUCE,))
    path = folder / "rank-00001.jsonl"
    path.write_text("\n".join(path.read_text("utf-8").splitlines()[:-1]) + "\n", "utf-8")
    monkeypatch.setattr(analysis, "prepare", lambda _, **__: None)
    monkeypatch.setattr(analysis, "run", lambda *_: RunEnd(interrupted=True))
    order = RunOrder(command=("train.py",), folder=folder, world_size=2, ranks=(0, 1))
    verdict = analysis.record(order).judged.result.verdict
    assert verdict.reason == "rank 1 is outside of any call; the run was interrupted"


SLEEP = "import time; time.sleep(60)"


def wait_outside(folder: Path, backend: str, *, exit_code: int, limit_s: float = 4.0) -> RunEnd:
    """Watch two ranks that wait outside of any call: rank 0 lives, rank 1 ends by a code.

    Rank 0 has begun one all_reduce more.
    """
    recorded(folder, (ALL_REDUCE, ALL_REDUCE), (ALL_REDUCE,))
    path = folder / "rank-00000.jsonl"
    lines = path.read_text(encoding="utf-8").replace('"gloo"', f'"{backend}"').splitlines()[:-1]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def start(_: RunOrder) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-c", SLEEP], start_new_session=True)
        ranks = [{"rank": 0, "pid": process.pid}, {"rank": 1, "pid": 1}]
        ended = {"rank": 1, "pid": 1, "exit": exit_code}
        text = "".join(f"{json.dumps(each)}\n" for each in ({"launch": 1}, *ranks, ended))
        (folder / "launch.jsonl").write_text(text, encoding="utf-8")
        return process

    order = RunOrder(
        command=("train.py",), folder=folder, world_size=2, ranks=(0, 1), max_seconds=limit_s
    )
    questions = Questions(order, folder / "scenario.yaml", DEFAULT)
    return live.run(order, questions, lambda _: None, start)


@pytest.mark.parametrize(
    ("backend", "exit_code", "is_stuck"),
    [("nccl", 0, True), ("cpu:gloo,cuda:nccl", 1, True), ("gloo", 0, False)],
)
def test_a_host_that_waits_for_its_device_is_outside_of_any_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, exit_code: int, *, is_stuck: bool
) -> None:
    monkeypatch.setattr(live, "OUTSIDE_S", 1.0)
    monkeypatch.setattr(live, "AGAIN_S", 0.2)
    ran = wait_outside(tmp_path / "a", backend, exit_code=exit_code)
    assert (ran.stuck, ran.timed_out) == (is_stuck, not is_stuck)


@pytest.mark.parametrize("are_started", [False, True])
def test_a_rank_that_is_not_started_yet_may_still_come_to_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, are_started: bool
) -> None:
    """On a busy machine rank 0 waits in `init_process_group` before rank 1 is forked."""
    for name in ("AGAIN_S", "QUIET_S"):
        monkeypatch.setattr(live, name, 0.2)
    folder = recorded(tmp_path / "a", (), ())
    (folder / "rank-00001.jsonl").unlink()
    path = folder / "rank-00000.jsonl"
    begin, *_ = path.read_text(encoding="utf-8").splitlines()
    init = {"backend": "gloo", "address": "127.0.0.1", "method": "env", "rank": 0}
    init |= {"world_size": 2, "port": 29500, "own": True}
    over = subprocess.Popen([sys.executable, "-c", ""])
    over.wait()

    def start(_: RunOrder) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-c", SLEEP], start_new_session=True)
        about = {**json.loads(begin), "pid": process.pid}
        site = ["s", 0, "", [["train.py", 1, "dist.init_process_group('gloo')"]]]
        waits = ["b", 0, "init_process_group", 0, 1, {"init": init, "thread": process.pid}]
        lines = "".join(f"{json.dumps(each)}\n" for each in (about, site, waits))
        path.write_text(lines, encoding="utf-8")
        ranks = [{"rank": 0, "pid": process.pid}]
        ranks += [{"rank": 1, "pid": over.pid}] * are_started
        text = "".join(f"{json.dumps(each)}\n" for each in ({"launch": 1}, *ranks))
        (folder / "launch.jsonl").write_text(text, encoding="utf-8")
        return process

    order = RunOrder(
        command=("train.py",), folder=folder, world_size=2, ranks=(0, 1), max_seconds=4.0
    )
    questions = Questions(order, folder / "scenario.yaml", DEFAULT)
    ran = live.run(order, questions, lambda _: None, start)
    assert (ran.stuck, ran.timed_out) == (are_started, not are_started)


@pytest.mark.parametrize("last", [ALL_REDUCE, BARRIER])
def test_a_program_that_waits_for_ranks_of_which_none_lives_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: tuple[Any, ...]
) -> None:
    """Where nothing is wrong in what they did, it may do something else now."""
    for name in ("LEFT_S", "AGAIN_S", "QUIET_S"):
        monkeypatch.setattr(live, name, 0.2)
    is_wrong = last == BARRIER
    folder = recorded(tmp_path / "a", (ALL_REDUCE, ALL_REDUCE), (ALL_REDUCE, last))
    over = subprocess.Popen([sys.executable, "-c", ""])
    over.wait()
    launched = [{"launch": 1}, *({"rank": rank, "pid": over.pid} for rank in (0, 1))]

    def start(_: RunOrder) -> subprocess.Popen[bytes]:
        text = "".join(f"{json.dumps(each)}\n" for each in launched)
        (folder / "launch.jsonl").write_text(text, encoding="utf-8")
        return subprocess.Popen([sys.executable, "-c", SLEEP], start_new_session=True)

    order = RunOrder(
        command=("python", "train.py"),
        folder=folder,
        world_size=2,
        ranks=(0, 1),
        max_seconds=120.0 if is_wrong else 6.0,
    )
    ran = live.run(
        order, Questions(order, folder / "scenario.yaml", DEFAULT), lambda _: None, start
    )
    assert (ran.stuck, ran.timed_out) == (is_wrong, not is_wrong)


def test_what_a_rank_waits_for_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([[], [0]])  # its thread dies after the first
    monkeypatch.setattr(live, "ENDLESS_S", 0.2)
    monkeypatch.setattr(live, "ENDLESS_AGAIN_S", 0.2)
    monkeypatch.setattr(analysis, "find_endless", lambda *_: next(answers, [0]))
    assert wait_outside(tmp_path / "a", "gloo", exit_code=0, limit_s=50.0).endless == (0,)
