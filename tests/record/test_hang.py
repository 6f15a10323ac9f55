"""`scenario hang`: the ranks of a job that hangs are found and told apart; it ends nothing."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import pytest
from click.testing import CliRunner
from flight_dumps import mismatched
from msgspec.structs import replace

from torch_scenarios.cli import cli
from torch_scenarios.record.evidence import process as processes
from torch_scenarios.record.evidence.process import RunningRank, ask_for_dumps, find_ranks
from torch_scenarios.record.evidence.reasons import explain_places
from torch_scenarios.record.evidence.stack import (
    RankStack,
    StackFrame,
    read_stacks,
    write_stack,
)
from torch_scenarios.record.evidence.stack.position import find_in_stacks, value_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch_scenarios.verdict import Finding

SCRIPT = """\
import sys, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
x = torch.ones(3)
dist.all_reduce(x)
if dist.get_rank() == 0:
    dist.all_reduce(x)
if dist.get_rank() == 1 and sys.argv[1:] == ["sleeps"]:
    time.sleep(600)
dist.barrier()
"""


def ran(*options: str) -> tuple[int, str]:
    """Look at the job, and return the exit code with what is said."""
    done = CliRunner().invoke(cli, ["hang", *options])
    return done.exit_code, done.output


@pytest.fixture(
    params=[
        pytest.param((), id="calls"),
        pytest.param(("sleeps",), id="sleeps", marks=pytest.mark.nightly),
    ]
)
def job(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """A job of two ranks under torchrun that hangs; its name."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    name = f"hangs-{os.getpid()}-{time.monotonic_ns()}"
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--rdzv-id", name]
    running = subprocess.Popen(
        [*command, str(script), *request.param],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield name
        assert running.poll() is None  # nothing was ended
        assert len(_ranks(name)) == 2
    finally:
        running.terminate()
        running.wait(60)
        until = time.monotonic() + 60
        while _ranks(name) and time.monotonic() < until:
            time.sleep(0.1)


def _ranks(name: str) -> list[int]:
    return [each.rank for each in find_ranks() if name in each.job]


@pytest.mark.torch
@pytest.mark.slow
def test_a_job_that_hangs_is_told_with_its_lines(
    job: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    until = time.monotonic() + 240
    code, said = -1, ""
    while time.monotonic() < until and not (code == 1 and "train.py:9" in said):
        code, said = ran("--job", job, "--seconds", "0.2", "-o", str(tmp_path / "stacks.txt"))
    assert code == 1, said
    assert said.startswith("FAILED       2 of 2 ranks on this machine")
    assert "rank 0: in all_reduce (train.py:9)" in said
    as_json = tmp_path / "hang.json"
    ran("--job", job, "--seconds", "0.2", "--json", str(as_json))
    seen = json.loads(as_json.read_text(encoding="utf-8"))
    assert seen["world_size"] == 2
    assert [each["rank"] for each in seen["ranks"]] == [0, 1]
    assert all(any("train.py:" in at for at in each["stack"]) for each in seen["ranks"])
    imported = CliRunner().invoke(cli, ["import", str(tmp_path / "stacks.txt")])
    if request.node.callspec.id == "sleeps":
        assert "rank 1 is in no call, and the others wait" in said
        assert "at train.py:11" in said
        assert "rank 1 is in no call, and the others wait" in imported.output
    else:
        assert "rank 1: in barrier (train.py:12)" in said
        assert "rank 0 alone goes into `if dist.get_rank() == 0` (train.py:8)" in said
        assert imported.exit_code == 1


STARTS = """\
import multiprocessing, os, sys, time

def run(name, rank):
    os.write(1, b"%d\\n" % rank)
    time.sleep(600)

context = multiprocessing.get_context("fork")
ranks = [context.Process(target=run, args=("x", rank)) for rank in (2, 0)]
for each in ranks:
    each.start()
sys.stdin.read()
for each in ranks:
    each.kill()
    each.join()
"""


def test_ranks_that_a_script_starts_itself_have_the_numbers_that_it_gave(
    tmp_path: Path,
) -> None:
    script = tmp_path / "train.py"
    script.write_text(STARTS, encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        assert sorted(running.stdout.readline() for _ in range(2)) == [b"0\n", b"2\n"]
        found = processes.find_children(processes.py_spy(), running.pid)
        without = processes.find_children(None, running.pid)
        running.communicate()
    assert [(each.rank, each.world_size) for each in found] == [(0, 3), (2, 3)]
    assert found[0].pid > found[1].pid  # rank 2 was started first
    assert [each.rank for each in without] == [0, 1]
    code, said = ran("--pid", str(running.pid))
    assert code == 5
    assert f"process {running.pid} has started no process of Python" in said


def test_no_job_is_no_finding() -> None:
    with mock.patch.object(processes, "find_ranks", return_value=[]):
        code, said = ran("--job", "no-such-job")
    assert code == 5
    assert "RANK and WORLD_SIZE" in said


def test_stacks_that_nobody_read_are_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = RunningRank(rank=0, world_size=1, pid=os.getpid(), job="mine", environment={})
    monkeypatch.setattr(processes, "find_ranks", lambda: [own])
    monkeypatch.setattr(processes, "py_spy", lambda: None)
    path = tmp_path / "stacks.txt"
    code, said = ran("--seconds", "0", "-o", str(path))
    assert code == 3
    assert f"`{path}` is not written: no stack was read" in said
    assert not path.exists()


REDUCED = StackFrame("all_reduce", "/usr/site-packages/torch/distributed/distributed_c10d.py", 3)
LOOPBACK = {"MASTER_ADDR": "127.0.0.1"}


@pytest.mark.parametrize(
    ("environment", "is_found"),
    [
        ({"LOCAL_WORLD_SIZE": "3", "MASTER_ADDR": "node-1"}, True),
        (LOOPBACK, True),
        ({"LOCAL_WORLD_SIZE": "2", **LOOPBACK}, False),
        ({"SLURM_NNODES": "2", **LOOPBACK}, False),
        ({"MASTER_ADDR": "node-1"}, False),
    ],
)
def test_a_rank_without_a_process_is_found_where_the_whole_job_is_here(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], *, is_found: bool
) -> None:
    ranks = [
        RunningRank(rank=rank, world_size=3, pid=os.getpid(), job="mine", environment=environment)
        for rank in (0, 2)
    ]

    def read(_: str, rank: RunningRank) -> tuple[RankStack, str]:
        own = StackFrame("<module>", "/x/train.py", 9)
        return RankStack(rank=rank.rank, frames=(REDUCED, own)), ""

    monkeypatch.setattr(processes, "find_ranks", lambda: ranks)
    monkeypatch.setattr(processes, "py_spy", lambda: "py-spy")
    monkeypatch.setattr(processes, "read_stack", read)
    code, said = ran("--seconds", "0")
    assert code == (1 if is_found else 3)
    assert ("rank 1 has no process, and the others wait" in said) == is_found
    assert ("look at the end of its log" in said) == is_found
    assert ("rank 1 is not on this machine: it is on another node" in said) != is_found


def process(proc: Path, pid: int, parent: int, **environment: str) -> None:
    """Write what `/proc` has of a process."""
    folder = proc / str(pid)
    folder.mkdir()
    text = "\0".join(f"{name}={value}" for name, value in environment.items())
    (folder / "environ").write_text(text)
    (folder / "stat").write_text(f"{pid} (python) S {parent} 1 1")
    (folder / "exe").symlink_to("/usr/bin/python3.11")


def test_workers_of_a_loader_are_not_ranks(tmp_path: Path) -> None:
    job = {"WORLD_SIZE": "2", "MASTER_ADDR": "n1", "MASTER_PORT": "5"}
    process(tmp_path, 10, 1, RANK="0", **job)
    process(tmp_path, 11, 1, RANK="1", **job)
    process(tmp_path, 12, 10, RANK="0", **job)
    process(tmp_path, 13, 1, SLURM_PROCID="3", SLURM_NTASKS="4", SLURM_JOB_ID="77")
    process(tmp_path, 14, 1, RANK="9", WORLD_SIZE="2")
    found = [(each.pid, each.rank, each.world_size) for each in find_ranks(tmp_path)]
    assert found == [(10, 0, 2), (11, 1, 2), (13, 3, 4)]


def test_a_launcher_that_is_numbered_itself_is_no_rank(tmp_path: Path) -> None:
    node = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "2"}
    operator = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "n1", "MASTER_PORT": "5"}
    job = {"WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "a", "MASTER_ADDR": "n1", "MASTER_PORT": "5"}
    process(tmp_path, 10, 1, **node)
    process(tmp_path, 11, 10, RANK="0", **{**node, **job})
    process(tmp_path, 12, 10, RANK="1", **{**node, **job})
    process(tmp_path, 13, 11, RANK="0", **{**node, **job})
    process(tmp_path, 20, 1, **operator)
    process(tmp_path, 21, 20, **{**operator, **job, "RANK": "2"})
    process(tmp_path, 30, 1, **operator)
    found = [(each.pid, each.rank, each.world_size) for each in find_ranks(tmp_path)]
    assert sorted(found) == [(11, 0, 4), (12, 1, 4), (21, 2, 4), (30, 1, 2)]


def test_a_job_is_meant_by_its_whole_name_where_another_one_contains_it() -> None:
    ranks = [
        RunningRank(rank=0, world_size=1, pid=1, job=job, environment={})
        for job in ("MASTER_ADDR=n1", "SLURM_JOB_ID=7 MASTER_ADDR=n1")
    ]
    with (
        mock.patch("torch_scenarios.record.evidence.process.find_ranks", return_value=ranks),
        mock.patch("torch_scenarios.record.evidence.process.py_spy", return_value=None),
    ):
        code, words = ran("--seconds", "0", "--job", "MASTER_ADDR=n1")
        assert code == 3, words
        code, words = ran("--seconds", "0")
    assert code == 2
    assert "choose one by --job" in words


def piped_rank(folder: Path, rank: int, *, answers: bool) -> RunningRank:
    """Return a rank with torch's pipe, whose thread writes its dump as NCCL's watchdog does."""
    pipe, dump = folder / f"pipe{rank}.pipe", folder / f"dump{rank}"
    os.mkfifo(pipe)
    dump.write_bytes(b"of an earlier hang")
    os.utime(dump, (1, 1))
    opened = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    def answer() -> None:
        until = time.monotonic() + 20
        while time.monotonic() < until:
            try:
                asked = os.read(opened, 16)
            except BlockingIOError:
                asked = b""
            if asked:
                dump.write_bytes(pickle.dumps(mismatched(rank)))
                break
            time.sleep(0.01)
        os.close(opened)

    if answers:
        threading.Thread(target=answer, daemon=True).start()
    else:
        os.close(opened)
    variables = {
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(folder / "pipe"),
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(folder / "dump"),
    }
    return RunningRank(rank=rank, world_size=4, pid=1, job="job", environment=variables)


def test_ranks_with_torchs_pipe_write_dumps_that_name_both_lines(tmp_path: Path) -> None:
    ranks = [piped_rank(tmp_path, rank, answers=True) for rank in range(4)]
    with (
        mock.patch("torch_scenarios.record.evidence.process.find_ranks", return_value=ranks),
        mock.patch("torch_scenarios.record.evidence.process.py_spy", return_value=None),
    ):
        code, said = ran("--seconds", "0")
    assert code == 1, said
    assert "call_mismatch" in said
    assert "train.py:8" in said
    assert "train.py:16" in said


def test_a_pipe_that_is_not_read_gives_no_dump_of_an_earlier_hang(tmp_path: Path) -> None:
    with mock.patch("torch_scenarios.record.evidence.process.DUMP_S", 0.3):
        ranks = [piped_rank(tmp_path, 0, answers=False)]
        assert list(ask_for_dumps(ranks)) == []


def test_torch_s_own_folders_of_dumps_are_looked_at(tmp_path: Path) -> None:
    rank = piped_rank(tmp_path, 0, answers=True)
    named = rank.environment["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"]
    caches = tmp_path / "caches" / "torch"
    caches.mkdir(parents=True)
    (caches / "comm_lib_trace_rank_0").symlink_to(f"{named}0")
    environment = {
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": rank.environment["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"],
        "XDG_CACHE_HOME": str(tmp_path / "caches"),
    }
    unnamed = replace(rank, environment=environment)
    assert [path.name for _, path in ask_for_dumps([unnamed])] == ["comm_lib_trace_rank_0"]


def test_several_jobs_are_told_with_the_option_that_chooses_each() -> None:
    ranks = [
        RunningRank(
            rank=0,
            world_size=1,
            pid=os.getpid(),
            job=f"MASTER_ADDR=localhost MASTER_PORT={port}",
            environment={},
        )
        for port in (29500, 29501)
    ]
    with mock.patch.object(processes, "find_ranks", return_value=ranks):
        code, said = ran()
    assert code == 2
    assert "several jobs run here: choose one by --job\n  --job MASTER_PORT=29500: " in said
    assert f"--job MASTER_PORT=29500: 1 rank, `{processes.tell_command(os.getpid())[1:9]}" in said
    assert "--job MASTER_PORT=29501: 1 rank, " in said


@pytest.mark.parametrize(
    ("waits_in", "is_told"), [("torch/utils/data/dataloader.py", True), ("app/data.py", False)]
)
def test_a_rank_in_no_call_is_told_with_what_it_waits_for(waits_in: str, *, is_told: bool) -> None:
    library = "/usr/lib/python3.11/site-packages"
    own = StackFrame("main", "/x/train.py", 9)
    stacks = {
        0: RankStack(rank=0, frames=(StackFrame("_try_get_data", f"{library}/{waits_in}", 3), own)),
        1: RankStack(
            rank=1,
            frames=(
                StackFrame("all_reduce", f"{library}/torch/distributed/distributed_c10d.py", 3),
                own,
            ),
        ),
    }
    (found,) = find_in_stacks(stacks, parses=False)
    told = " ".join(each.words for each in found.notes)
    assert ("rank 0 waits at train.py:9 for a worker of its DataLoader" in told) is is_told
    assert ("`num_workers=0`" in str(found.fix)) is is_told


def test_a_rank_in_no_call_is_told_with_the_loop_in_which_it_asks(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("while not exists():\n    time.sleep(1)\n", encoding="utf-8")
    call = StackFrame("barrier", "/usr/site-packages/torch/distributed/distributed_c10d.py", 3)
    stacks = {
        0: RankStack(rank=0, frames=(StackFrame("<module>", str(script), 2),)),
        1: RankStack(rank=1, frames=(call, StackFrame("<module>", str(script), 3))),
    }
    (found,) = find_in_stacks(stacks, str(tmp_path))
    told = " ".join(each.words for each in found.notes)
    assert "rank 0 asks again and again in `while not exists()` (train.py:1)" in told


def test_the_forward_of_ddp_is_a_call(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "def evaluate():\n    if rank == 0:\n        reduce()\nmodel(x)\nevaluate()\n",
        encoding="utf-8",
    )
    library = "/usr/site-packages/torch"
    call = StackFrame("reduce", f"{library}/distributed/distributed_c10d.py", 3)
    buckets = StackFrame("_pre_forward", f"{library}/nn/parallel/distributed.py", 1775)
    forward = StackFrame("forward", f"{library}/nn/parallel/distributed.py", 1900)
    module = StackFrame("_call_impl", f"{library}/nn/modules/module.py", 9)
    at = [StackFrame("<module>", str(script), line) for line in (4, 5)]
    stacks = {
        0: RankStack(rank=0, frames=(call, StackFrame("evaluate", str(script), 3), at[1])),
        1: RankStack(rank=1, frames=(buckets, forward, module, at[0])),
    }
    (found,) = find_in_stacks(stacks, str(tmp_path))
    assert found.code == "call_mismatch"
    assert found.notes[0].words == "rank 0 alone goes into `if rank == 0` (train.py:2)"
    assert "rank 1: in the forward of DDP (train.py:4)" in {each.words for each in found.notes}


TORCH = "/usr/site-packages/torch"


def message(rank: int, call: str, peer: int, /, line: int = 4, **values: str) -> RankStack:
    """Return the stack of a rank that waits in a message, as py-spy gives it with its variables."""
    end = "dst" if call == "send" else "src"
    frame = StackFrame(call, f"{TORCH}/distributed/distributed_c10d.py", 3, ((end, str(peer)),))
    own = StackFrame("exchange", "/x/train.py", line, (*values.items(),))
    return RankStack(rank=rank, frames=(frame, own))


@pytest.mark.parametrize(
    ("stacks", "ranks"),
    [
        ([message(0, "send", 1), message(1, "send", 0)], (0, 1)),
        ([message(0, "recv", 1), message(1, "recv", 2), message(2, "recv", 0)], (0, 1, 2)),
        ([message(0, "send", 1), message(1, "recv", 0)], None),
        ([message(0, "recv", 1), message(1, "send", 2), message(2, "recv", 1)], None),
    ],
)
def test_messages_that_wait_for_each_other_are_a_circle(
    stacks: list[RankStack], ranks: tuple[int, ...] | None
) -> None:
    found = find_in_stacks({each.rank: each for each in stacks}, parses=False)
    assert [(each.code, each.ranks) for each in found] == (
        [] if ranks is None else [("circular_wait", ranks)]
    )
    if len(stacks) == 2 and ranks:
        assert found[0].notes[0].words == "rank 0 is in send to rank 1 (train.py:4)"
        assert "`recv` first" in str(found[0].fix)


def test_a_message_whose_other_rank_is_in_a_collective_is_told() -> None:
    barrier = StackFrame("barrier", f"{TORCH}/distributed/distributed_c10d.py", 3)
    stacks = {
        0: message(0, "recv", 1),
        1: RankStack(rank=1, frames=(barrier, StackFrame("relay", "/x/train.py", 7))),
    }
    (found,) = find_in_stacks(stacks, parses=False)
    assert found.code == "unmatched_recv"
    assert found.prose == "rank 0 waits in recv from rank 1, which is in barrier"
    assert "let rank 1 call `send` to rank 0 before it enters `barrier`" in str(found.fix)


def test_numbers_that_differ_between_ranks_are_shown() -> None:
    stacks = {
        rank: message(rank, "send", 1, rank=str(rank), step=step, last=last)
        for rank, step, last in ((0, "8", "False"), (1, "9", "True"), (2, "9", "True"))
    }
    assert value_lines(stacks) == [
        "`step` is 8 on rank 0, 9 on ranks 1 and 2 (train.py:4)",
        "`last` is False on rank 0, True on ranks 1 and 2 (train.py:4)",
    ]
    read = read_stacks(
        "\n".join(line for each in stacks.values() for line in write_stack(each)).splitlines()
    )
    assert value_lines(read) == value_lines(stacks)


EPOCHS = """\
def run():
    for epoch in range(2):
        for rows in loader:
            step(rows)
        reduce(epoch)

def step(rows):
    loss(rows).backward()

for epoch in range({start}):
    run()
"""
BACKWARD = StackFrame("_engine_run_backward", f"{TORCH}/autograd/graph.py", 9)


def at_one_line(path: Path, call: StackFrame, line: int, turns: Sequence[str]) -> list[Finding]:
    """Return what is found where ranks wait at a line of EPOCHS, each in a turn of its own."""
    inner = [StackFrame("step", str(path), 8)] * (call is BACKWARD)
    stacks = {
        rank: RankStack(
            rank=rank,
            frames=(
                call,
                *inner,
                StackFrame("run", str(path), line, (("epoch", turn),)),
                StackFrame("<module>", str(path), 11, (("epoch", "0"),)),
            ),
        )
        for rank, turn in enumerate(turns)
    }
    return find_in_stacks(stacks, str(path.parent))


def test_ranks_at_one_line_in_different_turns_have_made_unlike_calls(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(EPOCHS.format(start=1), encoding="utf-8")
    (found,) = at_one_line(path, BACKWARD, 4, ["0", "1", "1"])
    assert found.prose == "ranks wait at one line in different turns of a loop, and none can go on"
    turns, why = (each.words for each in found.notes)
    assert turns.startswith("`epoch` is 0 on rank 0, 1 on ranks 1 and 2, in the loop ")
    assert turns.endswith("`for epoch in range(2)` (train.py:2)")
    assert why.startswith("ranks 1 and 2 take fewer turns of the loop `for rows in loader` ")
    assert "the same number of turns of the loop at train.py:3" in str(found.fix)
    assert "drop_last=True" in str(found.fix)
    (found,) = at_one_line(path, REDUCED, 5, ["1", "0"])
    assert found.notes[1].words == "rank 0 makes fewer calls in some turn of the loop"
    assert "the same calls in each turn of the loop at train.py:2" in str(found.fix)
    assert at_one_line(path, BACKWARD, 4, ["1", "1"]) == []
    assert at_one_line(path, BACKWARD, 4, ["1", "None"]) == []


def test_a_loop_that_adds_to_a_name_counts(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    written = EPOCHS.replace("for epoch in range(2)", "while epoch < 2")
    path.write_text(written.replace("reduce(epoch)", "reduce(epoch); epoch += 1"), encoding="utf-8")
    (found,) = at_one_line(path, REDUCED, 5, ["4", "3"])
    assert found.notes[0].words.endswith("in the loop `while epoch < 2` (train.py:2)")


@pytest.mark.parametrize("bounds", ["range(rank, 8)", "[3, 4]", "reversed(range(2))"])
def test_a_loop_that_begins_apart_counts_no_turns(tmp_path: Path, bounds: str) -> None:
    path = tmp_path / "train.py"
    path.write_text(EPOCHS.replace("range(2)", bounds).format(start=1), encoding="utf-8")
    assert at_one_line(path, BACKWARD, 4, ["0", "1"]) == []


PASTED = """\
Process 17: python train.py
Thread 17 (idle): "MainThread"
    recv (torch/distributed/distributed_c10d.py:2831)
        Arguments:
            tensor: <Tensor at 0x7fb6d2f67250>
            src: 1
            group: <ProcessGroup at 0x7fb6d2fec4b0>
        Locals:
            secret: "hunter2"
    <module> (/x/train.py:9)
"""


def test_variables_that_people_paste_end_no_stack_and_texts_are_not_kept() -> None:
    found = read_stacks(PASTED.splitlines())[0]
    assert [each.name for each in found.frames] == ["recv", "<module>"]
    assert found.peer == 1
    assert "hunter2" not in "".join(write_stack(found))


TABLE = """\
def normalize(table):
    if table.numel() == 0:
        return table
    return table / table.full_tensor()
"""
MAIN = """\
def main():
    normalize(table)
    dist.barrier()
"""


@pytest.mark.parametrize(("past", "is_told"), [(3, True), (2, False)])
def test_a_way_out_of_the_function_in_which_others_wait_is_told(
    past: int, *, is_told: bool, tmp_path: Path
) -> None:
    main, table = tmp_path / "train.py", tmp_path / "table.py"
    main.write_text(MAIN, encoding="utf-8")
    table.write_text(TABLE, encoding="utf-8")
    at = (str(main), 2, "")
    sides = [([1], ((str(main), past, ""),)), ([0], ((str(table), 4, ""), at))]
    reason = explain_places(sides, str(tmp_path))
    words = reason[0].words if reason is not None else ""
    assert (
        "rank 1 is past train.py:2, in which rank 0 waits: `if table.numel() == 0` (table.py:2)"
        in words
    ) is is_told
