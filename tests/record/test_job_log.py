"""`scenario import job.log`: what people paste, in one verdict."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from torch_scenarios.cli import cli

if TYPE_CHECKING:
    from pathlib import Path


def judged(folder: Path, text: str | bytes, name: str = "job.log") -> Result:
    """Import a log."""
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return CliRunner().invoke(cli, ["import", str(path)])


def watchdog(rank: int, number: int, kind: str, elements: int = 4, *, prefix: bool = True) -> str:
    """Return a line of NCCL's watchdog as torch 2.5 prints it; older ones have no prefix."""
    head = f"[rank{rank}]:[E321 02:07:08.408271257 ProcessGroupNCCL.cpp:607] " if prefix else ""
    return (
        f"{head}[Rank {rank}] Watchdog caught collective operation timeout: "
        f"WorkNCCL(SeqNum={number}, OpType={kind}, NumelIn={elements}, NumelOut={elements}, "
        "Timeout(ms)=600000) ran for 600060 milliseconds before timing out.\n"
    )


def exception(rank: int, number: int, done: int, group: str) -> str:
    """Return the line behind it, which names the group."""
    return (
        f"[rank{rank}]:[E321 02:07:08 ProcessGroupNCCL.cpp:1785] [{group} Rank {rank}] Exception "
        f"(either an error or timeout) detected by watchdog at work: {number}, last enqueued NCCL "
        f"work: {number + 2}, last completed NCCL work: {done}.\n"
    )


def test_the_rank_that_is_behind_is_named(tmp_path: Path) -> None:
    log = watchdog(0, 1173, "ALLREDUCE", 466)
    log += "".join(watchdog(rank, 1174, "BROADCAST") for rank in (1, 2, 3))
    found = judged(tmp_path, log)
    assert found.exit_code == 1
    assert "rank 0 is behind: in ALLREDUCE 1173, which the others have passed" in found.output
    assert "ranks 1, 2 and 3 are in BROADCAST 1174" in found.output


def test_lines_without_a_prefix_and_without_sizes_are_read(tmp_path: Path) -> None:
    log = "".join(
        f"[E ProcessGroupNCCL.cpp:458] [Rank {rank}] Watchdog caught collective operation timeout:"
        f" WorkNCCL(SeqNum={number}, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 25624887 "
        "milliseconds before timing out.\n"
        for rank, number in ((0, 96117), (7, 64088))
    )
    assert "rank 7 is behind: in ALLREDUCE 64088" in judged(tmp_path, log).output


def test_groups_are_told_apart(tmp_path: Path) -> None:
    log = ""
    for rank, number, group in ((0, 7, "0"), (1, 7, "0"), (2, 9, "1"), (3, 8, "1")):
        pg = f"PG ID {group} PG GUID {group}(mesh_{group})"
        log += watchdog(rank, number, "ALLREDUCE") + exception(rank, number, number - 1, pg)
    found = judged(tmp_path, log).output
    assert "rank 3 is behind of mesh_1: in ALLREDUCE 8" in found
    assert "ranks 0 and 1 wait in ALLREDUCE 7 of mesh_0" in found


def test_sizes_that_differ_in_one_collective(tmp_path: Path) -> None:
    found = judged(tmp_path, watchdog(0, 5, "ALLREDUCE", 4) + watchdog(1, 5, "ALLREDUCE", 8))
    assert "the ranks meet with different calls in collective 5" in found.output
    assert "rank 1 is in ALLREDUCE 5, 8 elements in, 8 out" in found.output


@pytest.mark.parametrize(
    ("calls", "said", "mended"),
    [
        (
            [("_ALLGATHER_BASE", 8, 64), ("_REDUCE_SCATTER_BASE", 64, 8)],
            "one unit of a model sharded over 8 ranks: rank 0 gathers its parameters, rank 1",
            "as many forward and backward passes",
        ),
        (
            [("_ALLGATHER_BASE", 8, 64), ("_ALLGATHER_BASE", 6, 48)],
            "collective 5 these are the sizes of different units of a model sharded over 8 ranks",
            "use the same layers in the same order",
        ),
        (
            [("ALLREDUCE", 1, 1), ("ALLREDUCE", 25, 25)],
            "collective 5 rank 0 sums one number (a loss, a norm, a flag), where the others sum",
            "give every rank as many batches",
        ),
        (
            [("ALLREDUCE", 4, 4), ("ALLREDUCE", 25, 25)],
            "collective 5 rank 0 is in",
            "of the same sizes.",
        ),
        (
            [("_ALLGATHER_BASE", 8, 64), ("ALLREDUCE", 8, 8)],
            "collective 5 rank 0 is in",
            "of the same sizes.",
        ),
        (
            [("ALLREDUCE", 1, 1), ("BROADCAST", 1, 1)],
            "collective 5 rank 0 is in",
            "of the same sizes.",
        ),
        (
            [("_ALLGATHER_BASE", 8, 64), ("_REDUCE_SCATTER_BASE", 64, 16)],
            "collective 5 rank 0 is in",
            "of the same sizes.",
        ),
    ],
)
def test_sizes_say_what_a_collective_is_to_each_rank(
    tmp_path: Path, calls: list[tuple[str, int, int]], said: str, mended: str
) -> None:
    log = "".join(
        watchdog(rank, 5, kind).replace("NumelIn=4, NumelOut=4", f"NumelIn={ins}, NumelOut={outs}")
        for rank, (kind, ins, outs) in enumerate(calls)
    )
    found = " ".join(judged(tmp_path, log).output.split())
    assert said in found
    assert mended in found


def test_a_rank_of_which_the_watchdog_says_nothing(tmp_path: Path) -> None:
    log = "".join(watchdog(rank, 5, "ALLREDUCE") for rank in (0, 1, 3))
    found = judged(tmp_path, log).output
    assert "ranks 0, 1 and 3 wait in ALLREDUCE 5; of rank 2 the watchdog says nothing" in found


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("", "rank 0 waits in ALLREDUCE 5; of other ranks the log says nothing"),
        (
            "ncclRemoteError: A call failed possibly due to a network error\n",
            "; NCCL lost its connection to another rank, of which the log says nothing",
        ),
    ],
)
def test_one_rank_alone_does_not_say_that_all_have_come(
    tmp_path: Path, more: str, said: str
) -> None:
    found = judged(tmp_path, watchdog(0, 5, "ALLREDUCE") + more).output
    assert said in found
    assert "look for a rank that left or died before ALLREDUCE 5" in found


TABLE = """\
[rank1]: Traceback (most recent call last):
[rank1]:   File "/home/u/train.py", line 88, in main
[rank1]:     loss = model(batch)
[rank1]:   File "/opt/site-packages/torch/nn/modules/module.py", line 1532, in _call
[rank1]: {error}
[rank0]: Traceback (most recent call last):
[rank0]:   File "/home/u/train.py", line 90, in main
[rank0]: torch.distributed.DistBackendError: NCCL error in: remote process exited
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 4711)
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-02_09:59:59
  rank      : {first} (local_rank: 1)
  exitcode  : {code} (pid: 4712)
============================================================
"""


def test_the_error_of_the_script_comes_before_those_that_it_caused(tmp_path: Path) -> None:
    log = TABLE.format(error="ValueError: empty batch", first=1, code=1)
    found = judged(tmp_path, log)
    assert found.exit_code == 1
    assert "rank 1 raises ValueError: empty batch (train.py:88)" in found.output
    assert "DistBackendError" not in found.output


def test_a_traceback_without_a_rank_is_read(tmp_path: Path) -> None:
    torch = "/opt/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
    log = "epoch 3\nTraceback (most recent call last):\n"
    log += '  File "/job/train.py", line 41, in main\n    dist.all_reduce(loss)\n'
    log += f'  File "{torch}", line 2806, in all_reduce\n    work.wait()\n'
    log += "RuntimeError: Connection closed by peer [10.0.0.1]:20911\n"
    found = judged(tmp_path, log)
    assert found.exit_code == 1
    assert "the rank of this log raises RuntimeError: Connection closed by peer" in found.output
    assert "(train.py:41)" in found.output
    assert "fix: it waited in `all_reduce` for another rank" in found.output


FAILED_ONE = """\
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  rank      : {rank} (local_rank: {rank})
  exitcode  : {code} (pid: 15447)
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""


def test_a_bare_traceback_is_of_the_one_rank_that_failed(tmp_path: Path) -> None:
    log = "Traceback (most recent call last):\n"
    log += '  File "/job/train.py", line 2, in <module>\n    dist.init_process_group("gloo")\n'
    log += "torch.distributed.DistStoreError: wait timeout after 6000ms, keys: /default_pg/0//0\n"
    log += 'Traceback (most recent call last):\n  File "/usr/bin/torchrun", line 8, in <module>\n'
    log += "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
    found = judged(tmp_path, log + FAILED_ONE.format(rank=1, code=1)).output
    assert "rank 1 exits with code 1 before all others; it raised" in found
    assert "DistStoreError: wait timeout after 6000ms, keys: /default_pg/0//0 (train.py:2)" in found
    assert "a rank did not come to `init_process_group` in that time" in found


def test_bytes_that_gloo_does_not_expect_are_tensors_of_other_sizes(tmp_path: Path) -> None:
    log = "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n"
    log += "  what():  [enforce fail at pair.cc:456] op.preamble.length <= op.nbytes. 8 vs 4. \n"
    log += "[rank1]: Traceback (most recent call last):\n"
    log += '[rank1]:   File "/job/train.py", line 21, in main\n'
    log += "[rank1]: RuntimeError: Read error [127.0.0.1]:9123: Connection reset by peer\n"
    found = judged(tmp_path, log + FAILED_ONE.format(rank=0, code=-6)).output
    assert "ranks meet in one call of Gloo with tensors of other sizes: 8 bytes came where" in found
    assert "rank 1 waited at train.py:21" in found
    assert "SIGABRT" not in found


def test_the_error_of_a_loader_s_worker_is_told_with_its_own_line(tmp_path: Path) -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "/job/train.py", line 9, in <module>',
        "OSError: Caught OSError in DataLoader worker process 0.",
        "Original Traceback (most recent call last):",
        '  File "/job/data.py", line 6, in __getitem__',
        "OSError: cannot read shard 2",
    ]
    log = "".join(f"[rank1]: {line}\n" for line in lines)
    found = judged(tmp_path, log).output
    assert "rank 1 raises OSError: cannot read shard 2 (data.py:6)" in found
    cut = "".join(f"[rank1]: {line}\n" for line in lines[:3])
    assert "rank 1 raises OSError: Caught OSError in DataLoader" in judged(tmp_path, cut).output


def test_the_traceback_of_a_launcher_is_no_error_of_a_rank(tmp_path: Path) -> None:
    log = watchdog(0, 7, "ALLREDUCE") + "Traceback (most recent call last):\n"
    log += '  File "/usr/bin/torchrun", line 8, in <module>\n'
    log += "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
    assert "ChildFailedError" not in judged(tmp_path, log).output


def test_the_name_of_a_file_is_no_loss_of_another_rank(tmp_path: Path) -> None:
    log = "[rank0]: Traceback (most recent call last):\n"
    log += '[rank0]:   File "/job/train.py", line 9, in main\n'
    log += "[rank0]: RuntimeError: Connection closed by peer [127.0.0.1]:3456\n"
    log += "[rank1]: Traceback (most recent call last):\n"
    log += '[rank1]:   File "/job/timeouts.py", line 5, in read\n'
    log += "[rank1]: ValueError: 30s is no number\n"
    found = judged(tmp_path, log).output
    assert "rank 1 raises ValueError: 30s is no number (timeouts.py:5)" in found
    assert "rank 0 raises" not in found


def test_a_rank_that_is_killed_is_the_root_cause(tmp_path: Path) -> None:
    log = TABLE.format(error="RuntimeError: NCCL timed out", first=3, code=-9)
    found = judged(tmp_path, log).output
    assert "rank 3 dies by SIGKILL before all others" in found
    assert "dmesg" in found


STACKS = """\
rank {rank} of 2 on n1, process {pid}
Process {pid}: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread {pid} (idle): "MainThread"
{frames}
Thread 0x7F (idle): "QueueFeeder"
    wait (threading.py:320)
"""
WAITS = """\
    barrier (torch/distributed/distributed_c10d.py:4635)
    _exception_logger.<locals>.wrapper (torch/distributed/c10d_logger.py:83)
    main (train.py:21)
"""
READS = """\
    read (codecs.py:320)
    load (data.py:9)
    main (train.py:12)
"""


def test_the_rank_that_is_in_no_call_keeps_the_others_waiting(tmp_path: Path) -> None:
    log = STACKS.format(rank=0, pid=10, frames=WAITS) + STACKS.format(rank=1, pid=11, frames=READS)
    found = judged(tmp_path, log)
    assert found.exit_code == 1
    assert "rank 1 is in no call, and the others wait" in found.output
    assert "at data.py:9 called from train.py:12 (in read, codecs.py:320)" in found.output
    assert "rank 0: in barrier (train.py:21)" in found.output


def test_ranks_in_different_calls(tmp_path: Path) -> None:
    other = WAITS.replace("barrier", "all_reduce").replace("train.py:21", "train.py:14")
    log = STACKS.format(rank=0, pid=10, frames=WAITS) + STACKS.format(rank=1, pid=11, frames=other)
    found = judged(tmp_path, log)
    assert found.exit_code == 1
    assert "rank 1: in all_reduce (train.py:14)" in found.output


def test_a_rank_that_imports_torch_is_in_no_call(tmp_path: Path) -> None:
    imports = (
        "    <module> (torch/distributed/__init__.py:21)\n    <module> (train.py:2)\n",
        "    _find_spec (<frozen importlib._bootstrap>:940)\n    <module> (train.py:2)\n",
    )
    log = "".join(STACKS.format(rank=k, pid=9 + k, frames=each) for k, each in enumerate(imports))
    found = judged(tmp_path, log)
    assert found.exit_code == 3, found.output
    assert "rank 0: in no call of torch.distributed, at train.py:2" in found.output


AGENT = """\
    SimpleElasticAgent._invoke_run (torch/distributed/elastic/agent/server/api.py:923)
    main (torch/distributed/run.py:1028)
    <module> (torchrun:8)
"""
LOADER = """\
    Queue.get (multiprocessing/queues.py:113)
    _worker_loop (torch/utils/data/_utils/worker.py:334)
    Popen._launch (multiprocessing/popen_fork.py:71)
    main (train.py:6)
"""
TRACKER = """\
    main (multiprocessing/resource_tracker.py:227)
    <module> (<string>:1)
"""
STARTS = """\
    wait (multiprocessing/connection.py:947)
    ProcessContext.join (torch/multiprocessing/spawn.py:131)
    start_processes (torch/multiprocessing/spawn.py:300)
    main (train.py:40)
"""
SPAWNED = "    _wrap (torch/multiprocessing/spawn.py:87)\n"


@pytest.mark.parametrize("other", [AGENT, LOADER, TRACKER, STARTS])
def test_processes_that_start_ranks_or_load_for_them_are_none(tmp_path: Path, other: str) -> None:
    stacks = (other, WAITS + SPAWNED, WAITS.replace("train.py:21", "train.py:14"), other)
    log = "".join(
        STACKS.format(rank=0, pid=pid, frames=frames).partition("\n")[2]  # as py-spy prints it
        for pid, frames in enumerate(stacks, 10)
    )
    found = judged(tmp_path, log)
    assert found.exit_code == 1
    assert "of 2 ranks" in found.output
    assert "rank 0: in barrier (train.py:21)" in found.output
    assert "rank 1: in barrier (train.py:14)" in found.output
    assert "in no call" not in found.output


def test_what_nccl_itself_counts(tmp_path: Path) -> None:
    counts = ((0, 200), (1, 199), (2, 200))
    ranks = [{"rank": rank, "collective_counts": {"AllReduce": n}} for rank, n in counts]
    missing = [{"rank": 3, "host": "n2", "pid": 7}]
    document = {"communicators": [{"hash": "0xab", "ranks": ranks, "missing_ranks": missing}]}
    found = judged(tmp_path, json.dumps(document), "ras.json")
    assert found.exit_code == 1
    assert "rank 3 of NCCL's communicator cannot be reached" in found.output
    assert "rank 1 called AllReduce of communicator 0xab less often" in found.output


HOSTILE = {
    "nothing": b"epoch 1 loss 0.3\n",
    "bytes": bytes(range(256)) * 40,
    "numbers": watchdog(0, 10**60, "ALLREDUCE").encode() + b"[rank999999999999]: x\n",
    "nested": b'{"communicators": ' + b"[" * 5000,
    "wrong": b'{"communicators": [{"ranks": [{"rank": -1}, 7, {"rank": "x"}]}, 3]}',
    "endless": b"[rank0]: " + b"Traceback (most recent call last):" * 100_000,
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_foreign_bytes_end_in_one_line(tmp_path: Path, kind: str) -> None:
    found = judged(tmp_path, HOSTILE[kind])
    assert found.exit_code in {1, 2, 3}, found.output
    assert found.exception is None or isinstance(found.exception, SystemExit)
    assert all(ord(each) >= 32 or each == "\n" for each in found.output)


def test_no_file_that_a_log_names_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret.py"
    secret.write_text("for each in 'secret':\n    wait()\nstop()\n")
    frames = WAITS.replace("train.py:21", f"{secret}:2")
    other = WAITS.replace("barrier", "all_reduce").replace("train.py:21", f"{secret}:3")
    log = STACKS.format(rank=0, pid=10, frames=frames) + STACKS.format(rank=1, pid=11, frames=other)
    monkeypatch.chdir(tmp_path)
    assert "for each" not in judged(tmp_path, log).output


MISMATCH = (
    "[rank0]: RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running "
    "collective: CollectiveFingerPrint(SequenceNumber=19, OpType=ALLREDUCE, TensorShape=[1], "
    "TensorDtypes=Float), but Rank 1 is running collective: CollectiveFingerPrint("
    "SequenceNumber=19, OpType=BARRIER).Collectives differ in the following aspects: Op type\n"
)
FAULTS = """\
[rank0]: Timeout (0:05:00)!
[rank0]: Thread 0x00007f10 (most recent call first):
[rank0]:   File "/opt/lib/python3.11/threading.py", line 331 in wait
[rank0]: Thread 0x00007f11 (most recent call first):
[rank0]:   File "/opt/site-packages/torch/distributed/distributed_c10d.py", line 9 in all_reduce
[rank0]:   File "/home/me/train.py", line 40 in log_loss
[rank1]: Thread 0x00007f22 (most recent call first):
[rank1]:   File "/opt/site-packages/torch/distributed/distributed_c10d.py", line 8 in barrier
[rank1]:   File "/home/me/train.py", line 79 in main
"""
TERMINATED = (
    "[rank3]:[E1122 ProcessGroupNCCL.cpp:2063] [PG ID 0 Rank 3] Process group watchdog thread "
    "terminated with exception: CUDA error: an illegal memory access was encountered\n"
    "[rank0]: torch.distributed.DistBackendError: NCCL error, remote process exited\n"
)
PASTED = {
    "two calls that DETAIL saw": (MISMATCH, ("rank 0 is in ALLREDUCE [1]", "rank 1 is in BARRIER")),
    "a monitored barrier": (
        "[rank0]: RuntimeError: [Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 60000 ms\n",
        ("ranks 1 and 3 did not come to `monitored_barrier` within 60 s",),
    ),
    "a monitored barrier in which a rank was lost": (
        (
            "RuntimeError: Rank 1 successfully reached monitoredBarrier, but received errors while "
            "waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank.\n"
        ),
        ("rank 0 did not come to `monitored_barrier` in time, or ended before",),
    ),
    "several collectives of one rank, mixed": (
        (
            "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=120, OpType="
            "ALLREDUCE, Timeout(ms)=1800000) ran for 25624887 milliseconds before timing out.\n"
            "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=117, OpType="
            "ALLREDUCE, Timeout(ms)=1800000) ran for 25625613 milliseconds before timing out.\n"
            "[Rank 7] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=88, OpType="
            "ALLREDUCE, Timeout(ms)=1800000) ran for 25625251 milliseconds before timing out.\n"
        ),
        ("rank 0 is in ALLREDUCE 117", "rank 7 is in ALLREDUCE 88"),
    ),
    "a task that Slurm lost": (
        "srun: error: node12: task 5: Out Of Memory\n[rank2]: RuntimeError: Connection closed\n",
        ("rank 5 dies by SIGKILL before all others",),
    ),
    "stacks of faulthandler": (
        FAULTS,
        ("rank 0: in all_reduce (train.py:40)", "rank 1: in barrier (train.py:79)"),
    ),
    "an error without its traceback": (
        "[rank1]: torch.distributed.DistStoreError: Timed out. 3/4 clients joined.\n",
        ("rank 1 raises torch.distributed.DistStoreError", "compare WORLD_SIZE"),
    ),
    "a watchdog that ended its process": (
        TERMINATED,
        ("rank 3 raises CUDA error: an illegal memory access", "CUDA_LAUNCH_BLOCKING=1"),
    ),
}


@pytest.mark.parametrize("name", PASTED)
def test_what_people_paste_is_read(tmp_path: Path, name: str) -> None:
    log, said = PASTED[name]
    found = judged(tmp_path, log)
    assert found.exit_code == 1, found.output
    for words in said:
        assert words in found.output


FAULTS = """\
Thread 0x00007f10 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait
Current thread 0x00007f2b (most recent call first):
  File "/opt/site-packages/torch/distributed/distributed_c10d.py", line 3937 in barrier
  File "/app/ckpt.py", line 44 in save

Thread 0x00007f11 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait
Current thread 0x00007f2b (most recent call first):
  File "/opt/site-packages/torch/distributed/distributed_c10d.py", line 2806 in all_gather_object
  File "/app/eval.py", line 12 in gather
"""
MIDDLE = """\
Current thread 0x00007f10 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait
Thread 0x00007f2b (most recent call first):
  File "/opt/site-packages/torch/distributed/distributed_c10d.py", line 3937 in barrier
  File "/app/ckpt.py", line 44 in save
"""


def test_dumps_of_faulthandler_without_a_rank_are_of_one_process_each(tmp_path: Path) -> None:
    found = judged(tmp_path, FAULTS)
    assert found.exit_code == 1, found.output
    assert "rank 0: in barrier (ckpt.py:44)" in found.output
    assert "rank 1: in all_gather_object (eval.py:12)" in found.output
    alone = judged(tmp_path, MIDDLE)
    assert "of 1 rank\n" in alone.output
    assert "rank 0: in barrier (ckpt.py:44)" in alone.output


UNNAMED = """\
[rank0]:[W1127 14:02 ProcessGroupNCCL.cpp:1538] [PG ID 0 PG GUID 0 Rank 0] Timeout at NCCL work: \
55, last enqueued NCCL work: 57, last completed NCCL work: 54.
[rank2]:[E1127 14:02 ProcessGroupNCCL.cpp:629] [Rank 2] Watchdog caught collective operation \
timeout: WorkNCCL(SeqNum=55, OpType=ALLREDUCE, NumelIn=9, NumelOut=9, Timeout(ms)=600000) ran for \
600003 milliseconds before timing out.
"""


def test_a_collective_of_which_a_log_says_the_number_alone_is_no_other_one(tmp_path: Path) -> None:
    found = judged(tmp_path, UNNAMED)
    assert "meet with different calls" not in found.output
    assert "ranks 0 and 2 wait in ALLREDUCE 55" in found.output
    assert "of rank 1 the watchdog says nothing" in found.output


def test_the_line_of_a_traceback_stands_beside_the_collective_of_its_rank(tmp_path: Path) -> None:
    lines = TABLE.format(error="RuntimeError: NCCL timed out", first=1, code=1).splitlines()[:5]
    found = judged(tmp_path, UNNAMED + "\n".join(lines).replace("[rank1]", "[rank2]") + "\n")
    assert "rank 2 waits at train.py:88" in found.output


def test_lines_of_ranks_are_read_behind_what_a_system_s_log_puts_before_them(
    tmp_path: Path,
) -> None:
    before = "2026-11-27T03:12:46 node2 train[119]: "
    lines = TABLE.format(error="ValueError: empty batch", first=1, code=1).splitlines()
    found = judged(tmp_path, "\n".join(f"{before}{line}" for line in lines[:5]))
    assert "rank 1 raises ValueError: empty batch (train.py:88)" in found.output


RAISED = """\
[rank{rank}]: Traceback (most recent call last):
[rank{rank}]:   File "/app/train.py", line 14, in <module>
[rank{rank}]:     train()
[rank{rank}]:   File "/app/train.py", line {line}, in train
[rank{rank}]:     dist.{call}(x)
[rank{rank}]:   File "/opt/site-packages/torch/distributed/c10d_logger.py", line 83, in wrapper
[rank{rank}]:     return func(*args, **kwargs)
[rank{rank}]:   File "/opt/site-packages/torch/distributed/distributed_c10d.py", line 53, in {call}
[rank{rank}]:     work.wait()
[rank{rank}]: RuntimeError: [/gloo/transport/tcp/{error}
"""
TIMED_OUT = "unbound_buffer.cc:78] Timed out waiting 20000ms for recv operation to complete"
CLOSED = "pair.cc:537] Read error [127.0.0.1]:28871: Connection reset by peer"
ENDED = """\
Failures:
[1]:
  rank      : 1 (local_rank: 1)
  exitcode  : {code} (pid: 12)
Root Cause (first observed failure):
[0]:
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 11)
"""


def test_ranks_that_time_out_in_different_calls_are_told_by_their_tracebacks(
    tmp_path: Path,
) -> None:
    late = RAISED.format(rank=0, line=10, call="all_reduce", error=TIMED_OUT)
    other = RAISED.format(rank=1, line=13, call="barrier", error=CLOSED)
    found = judged(tmp_path, late + other + ENDED.format(code=1)).output
    assert "call_mismatch: ranks wait in different calls" in found
    assert "rank 0: in all_reduce (train.py:10 called from :14)" in found
    assert "rank 1: in barrier (train.py:13 called from :14)" in found
    assert "before all others" not in found


def test_a_rank_that_a_signal_ended_is_no_rank_that_waited_elsewhere(tmp_path: Path) -> None:
    late = RAISED.format(rank=0, line=10, call="all_reduce", error=TIMED_OUT)
    other = RAISED.format(rank=2, line=13, call="barrier", error=CLOSED)
    found = judged(tmp_path, late + other + ENDED.format(code=-9)).output
    assert "call_mismatch" not in found


LATER = """\
Timeout (0:00:12)!
Thread 0x00007f355fe01b80 (most recent call first):
  File "/opt/site-packages/torch/distributed/distributed_c10d.py", line 5356 in barrier
  File "/app/train.py", line 13 in <module>
Timeout (0:00:12)!
Thread 0x00007fd19fc1bb80 (most recent call first):
  File "/app/train.py", line 7 in <module>
Timeout (0:00:12)!
Thread 0x00007f355fe01b80 (most recent call first):
  File "/opt/site-packages/torch/distributed/distributed_c10d.py", line 5356 in barrier
  File "/app/train.py", line 13 in <module>
"""


def test_each_process_that_dumps_its_traceback_later_is_a_rank_also_where_it_repeats(
    tmp_path: Path,
) -> None:
    timed_out = RAISED.format(rank=0, line=13, call="barrier", error=TIMED_OUT)
    found = judged(tmp_path, LATER + timed_out + ENDED.format(code=-15)).output
    assert "of 2 ranks" in found
    assert "rank 1 is in no call of torch.distributed, at train.py:7" in found
    assert "before all others" not in found


def test_other_shapes_that_detail_saw_at_one_line_are_told_with_it(tmp_path: Path) -> None:
    words = MISMATCH.replace("OpType=BARRIER", "OpType=ALLREDUCE, TensorShape=[6]")
    error = words.removeprefix("[rank0]: ").rstrip()
    log = "".join(
        RAISED.format(rank=rank, line=6, call="all_reduce", error="").rpartition("[rank")[0]
        + f"[rank{rank}]: {error}\n"
        for rank in (0, 1)
    )
    found = judged(tmp_path, log + ENDED.format(code=1)).output
    assert "shape_mismatch: the ranks pass other shapes to ALLREDUCE in collective 19" in found
    assert "give the tensor at train.py:6 the same shape on all ranks" in found
    assert "before all others" not in found


def test_who_did_not_come_to_a_monitored_barrier_is_one_finding(tmp_path: Path) -> None:
    error = "[Rank 0]: Ranks 1 failed to pass monitoredBarrier in 6000 ms"
    log = f"[rank0]: RuntimeError: {error}\n" + ENDED.format(code=-15)
    found = judged(tmp_path, log).output
    assert "rank 1 did not come to `monitored_barrier` within 6 s" in found
    assert "before all others" not in found


def dumps(rank: int, begun: int, done: int, by: str = "this local rank") -> str:
    """Return what the watchdog of the default group says when a timeout makes it dump."""
    return (
        f"[rank{rank}]:[E901 05:20:03.118859045 ProcessGroupNCCL.cpp:1746] [PG ID 0 PG GUID "
        f"0(default_pg) Rank {rank}] Received a dump signal due to a collective timeout from {by} "
        "and we will try our best to dump the debug info. Last enqueued NCCL work: "
        f"{begun}, last completed NCCL work: {done}.This is most likely caused by incorrect usages "
        "of collectives.\n"
    )


def test_a_rank_that_has_not_enqueued_what_the_others_wait_in_is_named(tmp_path: Path) -> None:
    log = "".join(watchdog(rank, 22, "ALLREDUCE") + dumps(rank, 22, 21) for rank in (1, 2, 3))
    found = judged(tmp_path, log + dumps(0, 21, 21, " rank 1")).output
    assert "rank 0 never entered ALLREDUCE 22, where ranks 1, 2 and 3 wait" in found
    assert "rank 0 has completed all of its 21 collectives, and is in none" in found
    assert "look at rank 0" in found


def test_a_group_without_a_call_does_not_take_the_call_of_another_group(tmp_path: Path) -> None:
    log = dumps(6, -1, -1) + dumps(7, -1, -1)
    log += watchdog(6, 40, "ALLTOALL_BASE") + exception(6, 40, 39, "PG ID 2 PG GUID 9(ep)")
    found = judged(tmp_path, log).output
    assert "rank 6 waits in ALLTOALL_BASE 40 of ep" in found
    assert "default_pg" not in found
    assert "collective 0" not in found


def test_a_watchdog_without_progress_is_a_call_that_hangs(tmp_path: Path) -> None:
    log = "".join(
        f"[rank{rank}]:[E626 05:14:36 ProcessGroupNCCL.cpp:1743] [PG ID 0 PG GUID 0(default_pg) "
        f"Rank {rank}] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making "
        "progress in monitoring enqueued collectives.\n"
        for rank in (5, 7)
    )
    found = judged(tmp_path, watchdog(2, 9, "ALLREDUCE") + log).output
    assert "the watchdogs of ranks 5 and 7 have made no progress for 480 s" in found
    assert "of ranks 0, 1, 3, 4, 5, 6 and 7 the watchdog says nothing" in found
    found = judged(tmp_path, log).output
    assert "the watchdogs of ranks 5 and 7 have made no progress for 480 s" in found
    assert "the GIL" in found


def test_the_stack_of_the_failed_collective_names_the_line(tmp_path: Path) -> None:
    log = watchdog(3, 7, "BROADCAST") + watchdog(2, 7, "BROADCAST")
    log += (
        "[rank3]:[E508 07:35:59 ProcessGroupNCCL.cpp:733] Stack trace of the failed collective: \n"
        "#0 broadcast from /usr/lib/python3/dist-packages/torch/distributed/distributed_c10d.py:9\n"
        "#1 wrapper from /usr/lib/python3/dist-packages/torch/distributed/c10d_logger.py:83\n"
        "#2 send_ids from /home/u/runner/pipeline.py:448\n"
        "#3 main from /home/u/train.py:86\n"
        "\n"
        "#4 other from /home/u/other.py:1\n"
    )
    found = judged(tmp_path, log).output
    assert "rank 3 called it at pipeline.py:448, in send_ids" in found
    assert "other.py" not in found


def test_a_line_that_a_terminal_has_wrapped_is_read_whole(tmp_path: Path) -> None:
    lines = [watchdog(rank, 4, "BROADCAST", 112) for rank in (1, 2, 3)]
    log = "".join(each[:130] + "\n" + each[130:] for each in lines)
    assert "ranks 1, 2 and 3 wait in BROADCAST 4" in judged(tmp_path, log).output


def test_sizes_say_how_many_ranks_a_group_has(tmp_path: Path) -> None:
    def scatters(rank: int) -> str:
        words = watchdog(rank, 15, "_REDUCE_SCATTER_BASE", 960)
        return words.replace("NumelOut=960", "NumelOut=10")

    found = judged(tmp_path, "".join(map(scatters, (64, 65, 66)))).output
    assert "of 93 more of its 96 ranks the watchdog says nothing" in found
    found = judged(tmp_path, "".join(map(scatters, range(96)))).output
    assert "all 96 ranks of the group came to" in found


MPIEXEC = "prterun noticed that process rank 7 with PID 0 on node a4 exited on signal 9 (Killed)."
AGENT = "ERROR:torch.distributed.elastic:failed (exitcode: -7) local_rank: 0 (pid: 37) of binary: x"


@pytest.mark.parametrize(
    ("line", "words", "fix"),
    [
        (MPIEXEC, "rank 7 dies by SIGKILL before all others", "dmesg"),
        (AGENT, "the rank with local rank 0 dies by SIGBUS before all others", "--shm-size"),
        (AGENT.replace("-7", "1"), "the rank with local rank 0 exits with code 1 before all", ""),
    ],
)
def test_what_a_launcher_says_of_an_end_is_read(
    tmp_path: Path, line: str, words: str, fix: str
) -> None:
    found = judged(tmp_path, line + "\n").output
    assert words in found
    assert fix in found


def test_ranks_that_gloo_cannot_connect_are_named(tmp_path: Path) -> None:
    log = "".join(
        f"[Gloo] Rank {rank} is connected to {peers} peer ranks. Expected number of connected peer "
        "ranks is : 3\n"
        for rank, peers in ((0, 3), (1, 3), (3, 1))
    )
    found = judged(tmp_path, log).output
    assert "rank 3 is connected to 1 of 3 other ranks" in found
    assert "GLOO_SOCKET_IFNAME" in found
    all_there = log.replace("to 1 peer", "to 3 peer")
    assert "connected to" not in judged(tmp_path, all_there).output


ERROR_FILE = """\
{"message": {"message": "RuntimeError: no rows", "extraInfo": {"py_callstack": "Traceback (most \
recent call last):\\n  File \\"/a/site-packages/torch/x.py\\", line 3, in f\\n  File \
\\"/app/train.py\\", line 40, in main\\nRuntimeError: no rows\\n", "timestamp": "17"}}}
"""
ROOT_CAUSE = """\
Failures:
[1]:
  rank      : 5 (local_rank: 1)
  exitcode  : -15 (pid: 142)
  traceback : Signal 15 (SIGTERM) received by PID 142
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  rank      : 7 (local_rank: 3)
  exitcode  : 1 (pid: 144)
  error_file: /tmp/x/error.json
  traceback : Traceback (most recent call last):
    File "/app/train.py", line 88, in main
      batch = next(rows)
  StopIteration

============================================================
"""
DUPLICATE = """\
[rank0]: Traceback (most recent call last):
[rank0]:   File "/app/train.py", line 150, in main
[rank0]: torch.distributed.DistBackendError: NCCL error in: x.cpp:3690, internal error
[rank0]: ncclInternalError: Internal check failed.
[rank0]: Last error:
[rank0]: Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000
"""
UNREACHED = (
    "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while "
    "trying to connect to (node1, 29500).\n"
)
TAKEN = (
    "[W socket.cpp:464] [c10d] The server socket has failed to bind to [::]:29500 (errno: 98 - "
    "Address already in use).\n"
)
UNUSED = (
    "[rank1]: RuntimeError: Expected to have finished reduction in the prior iteration\n"
    "[rank1]: Parameter indices which did not receive grad for rank 1: 4 5\n"
)


@pytest.mark.parametrize(
    ("log", "name", "said"),
    [
        (
            ERROR_FILE,
            "error.json",
            ["the rank of this log raises RuntimeError: no rows (train.py"],
        ),
        (ROOT_CAUSE, "job.log", ["rank 7 raises StopIteration (train.py:88)"]),
        (
            DUPLICATE,
            "job.log",
            ["rank 0 and rank 1 both on CUDA device 1000 (train.py:150)", "set_"],
        ),
        (UNREACHED, "job.log", ["a rank has not reached node1:29500 within 600 s", "MASTER_ADDR"]),
        (TAKEN, "job.log", ["port 29500 is already in use", "ss -ltnp 'sport = :29500'"]),
        (UNUSED, "job.log", ["parameters 4 5 of DDP have no gradient on rank 1"]),
    ],
)
def test_what_torch_writes_of_an_error_is_read(
    tmp_path: Path, log: str, name: str, said: list[str]
) -> None:
    found = judged(tmp_path, log, name)
    assert found.exit_code == 1, found.output
    assert [words for words in said if words not in found.output] == []


def test_the_rank_that_has_raised_is_looked_at_first(tmp_path: Path) -> None:
    log = "[rank3]: torch.OutOfMemoryError: CUDA out of memory.\n" + watchdog(0, 9, "ALLREDUCE")
    found = judged(tmp_path, log).output
    assert found.index("rank 3 raises torch.OutOfMemoryError") < found.index("rank 0 waits in")
    assert "look at rank 3 first" in found
