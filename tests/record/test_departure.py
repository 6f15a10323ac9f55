"""What a rank waits for that is in no call: by its stack, and the line that it is in."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import time
import types
from pathlib import Path

import pytest
from msgspec.structs import replace

from torch_scenarios.record.evidence.divergence import Parting
from torch_scenarios.record.evidence.procedure import watch_workers_of_ray
from torch_scenarios.record.evidence.process import ENDED, FILLS, read_program
from torch_scenarios.record.evidence.reasons import (
    explain_idle,
    explain_parent,
    explain_parting,
    find_endless,
    waits_for_items,
)
from torch_scenarios.record.evidence.stack import put_main_first
from torch_scenarios.record.format import (
    BranchTaken,
    Decision,
    FileChange,
    LostThread,
    RankRecord,
    RecordedCall,
    ScriptPlace,
    StayingThread,
)

LIB = sysconfig.get_path("stdlib")
SCRIPT = """\
class Writer:
    def add(self):
        with self.lock:
            self.flush()

    def flush(self):
        with self.lock:
            self.rows.clear()


lock.acquire()
lock.acquire()
"""


def stack(*frames: tuple[str, int, str]) -> str:
    lines = [f'  File "{file}", line {line} in {name}' for file, line, name in frames]
    return "\n".join(["Current thread 0x1 (most recent call first):", *lines])


@pytest.mark.parametrize(
    ("file", "name", "words"),
    [
        (f"{LIB}/subprocess.py", "_wait", "for a program that it has started"),
        (f"{LIB}/multiprocessing/popen_fork.py", "poll", "for a process that it has started"),
        (f"{LIB}/multiprocessing/queues.py", "get", "for another process to put something"),
        (f"{LIB}/queue.py", "get", "for something to come into its queue"),
        (f"{LIB}/queue.py", "put", "for room in a queue that is full"),
        (f"{LIB}/socket.py", "readinto", "for another machine, or server"),
        (f"{LIB}/threading.py", "join", "for a thread of its own to end"),
        (f"{LIB}/threading.py", "wait", "for another thread of its own to wake it"),
        (
            "/x/site-packages/torch/_inductor/cpu_vec_isa.py",
            "_probe_load",
            "for `torch.compile`, whose",
        ),
        ("/x/site-packages/torch/utils/file_baton.py", "wait", "for another process to build"),
        ("/x/site-packages/torch/utils/data/dataloader.py", "_try_get_data", "for a worker of"),
    ],
)
def test_where_a_stack_ends_says_what_a_rank_waits_for(
    tmp_path: Path, file: str, name: str, words: str
) -> None:
    text = stack((file, 7, name), (str(tmp_path / "train.py"), 3, "main"))
    line, fix = explain_idle({}, {1: text}, {1: "`upload.sh`"}, str(tmp_path))
    assert line.startswith(f"rank 1 waits at train.py:3 {words}")
    assert line.endswith(": `upload.sh`") is ("program" in words)
    assert fix.startswith("fix: ")


@pytest.mark.parametrize(
    ("frames", "held"),
    [
        (((7, "flush"), (4, "add")), "self.lock`, which it holds itself since train.py:3"),
        (((12, "<module>"),), "lock`, which it holds itself since train.py:11"),
        (((7, "flush"),), "the lock `self.lock`, which another thread holds"),
    ],
)
def test_a_lock_is_told_with_the_line_that_took_it(
    tmp_path: Path, frames: tuple[tuple[int, str], ...], held: str
) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    text = stack(*((str(script), line, name) for line, name in frames))
    (line, _) = explain_idle({}, {0: text}, {}, str(tmp_path))
    assert held in line


def test_a_barrier_of_processes_is_told_with_the_line_that_makes_it(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("def work(line):\n    line.wait()\n\n\nline = ctx.Barrier(3)\n")
    text = stack(
        (f"{LIB}/multiprocessing/synchronize.py", 268, "wait"),
        (f"{LIB}/threading.py", 732, "_wait"),
        (f"{LIB}/threading.py", 697, "wait"),
        (str(script), 2, "work"),
    )
    line, fix = explain_idle({}, {0: text, 1: text}, {}, str(tmp_path))
    assert line == (
        "ranks 0 and 1 wait at train.py:2 for more processes at a barrier, made by "
        "`line = ctx.Barrier(3)` (train.py:5)"
    )
    assert "let n be the number" in fix


def test_a_parent_is_told_that_takes_nothing_out_of_a_queue(tmp_path: Path) -> None:
    own = (str(tmp_path / "train.py"), 9, "main")
    joins = stack((f"{LIB}/multiprocessing/popen_fork.py", 27, "poll"), own)
    ends = stack((f"{LIB}/multiprocessing/queues.py", 199, "_finalize_join"))
    words, fix = explain_parent(joins, {0: ends, 1: ends}, str(tmp_path))
    assert words.startswith("ranks 0 and 1 are at their end, and stay until the items of its")
    assert "is at train.py:9" in words
    assert "(train.py:9)" in fix
    assert not explain_parent(joins, {0: stack(own)}, str(tmp_path))
    takes = stack((f"{LIB}/multiprocessing/queues.py", 103, "get"), own)
    words, _ = explain_parent(takes, {}, str(tmp_path))
    assert words.startswith("the program that starts the ranks waits at train.py:9 for another")
    assert not explain_parent("", {0: ends}, str(tmp_path))


def test_of_a_thread_that_has_died_its_error_comes_first_and_helps(tmp_path: Path) -> None:
    raised_at = ScriptPlace(frames=((str(tmp_path / "saver.py"), 9, ""),))
    lost = LostThread(
        before=1, name="Thread-1", words="FileNotFoundError: gone", raised_at=raised_at
    )
    record = RankRecord(rank=0, world_size=2, lost=[lost])
    text = stack((f"{LIB}/threading.py", 7, "wait"), (str(tmp_path / "train.py"), 3, "main"))
    died, fix, waits = explain_idle({0: record}, {0: text}, {}, str(tmp_path))
    assert "has died by FileNotFoundError: gone (saver.py:9)" in died
    assert fix.startswith("fix: look at what raises at saver.py:9")
    assert waits == "rank 0 waits at train.py:3 for another thread of its own to wake it"


@pytest.mark.parametrize("error", [None, "KeyError: 7"])
def test_a_rank_at_its_end_that_stays_for_a_thread_is_told_with_it(
    tmp_path: Path, error: str | None
) -> None:
    """With an error it never communicates again; without one its thread may."""
    place = ScriptPlace(frames=((str(tmp_path / "writer.py"), 9, ""),))
    stays = [StayingThread(name="Thread-1", started_at=place)]
    records = {0: RankRecord(rank=0, world_size=2, staying=stays, error=error)}
    stacks = {0: stack((f"{LIB}/threading.py", 7, "_shutdown"))}
    words, fix = explain_idle(records, stacks, {}, str(tmp_path))
    assert "its process stays for its thread `Thread-1` (started at writer.py:9)" in words
    assert "`daemon=True`" in fix
    assert find_endless(records, stacks, {}, str(tmp_path)) == ([] if error is None else [0])
    assert not explain_idle(records, {0: stack((f"{LIB}/threading.py", 7, "wait"))}, {}, "")


@pytest.mark.parametrize(
    ("test", "words"),
    [
        ("time.time() < until", "rank 0 waits in `while time.time() < until` (train.py:1), which"),
        ("not done() or time.time() < until", "rank 0 asks again and again in `while not done()"),
    ],
)
def test_a_loop_that_asks_for_the_time_alone_ends_by_itself(
    tmp_path: Path, test: str, words: str
) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"while {test}:\n    time.sleep(1)\n", encoding="utf-8")
    lines = explain_idle({}, {0: stack((str(script), 2, "<module>"))}, {}, str(tmp_path))
    assert lines[-1].startswith(words)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the kernel shows no open files")
@pytest.mark.parametrize(("size", "is_full"), [(1 << 20, True), (1, False)])
def test_a_program_that_prints_into_a_full_pipe_is_seen(size: int, *, is_full: bool) -> None:
    code = f"import os, time; os.write(1, b'x' * {size}); os.write(2, b'.'); time.sleep(60)"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdout=pipe, stderr=pipe) as program:
        if not is_full:
            assert program.stderr is not None
            assert program.stderr.read(1) == b"."
        until = time.monotonic() + 60
        while is_full and FILLS not in read_program(os.getpid()) and time.monotonic() < until:
            time.sleep(0.05)
        found = read_program(os.getpid())
        program.kill()
    assert (FILLS in found) is is_full


def test_a_pipe_that_is_full_has_its_own_advice(tmp_path: Path) -> None:
    text = stack((f"{LIB}/subprocess.py", 7, "_wait"), (str(tmp_path / "train.py"), 3, "main"))
    line, fix = explain_idle({}, {1: text}, {1: f"`convert`; {FILLS}"}, str(tmp_path))
    assert line.endswith(f"`convert`; {FILLS}")
    assert "`communicate()` in place of `wait()`" in fix


@pytest.mark.parametrize(
    ("file", "name", "is_queue"),
    [("multiprocessing/queues.py", "get", True), ("subprocess.py", "_wait", False)],
)
def test_the_advice_for_a_queue_is_given_at_a_queue_alone(
    tmp_path: Path, file: str, name: str, *, is_queue: bool
) -> None:
    text = stack((f"{LIB}/{file}", 7, name), (str(tmp_path / "train.py"), 3, "main"))
    program = f"{ENDED}, with exit code 0"
    line, fix = explain_idle({}, {1: text}, {1: program}, str(tmp_path))
    assert line.endswith(program)
    assert ("`get(timeout=)`" in fix) is is_queue


@pytest.mark.parametrize(
    ("line", "program", "is_told"),
    [
        ("text = process.stdout.read()", f"`convert`; {FILLS}", True),
        ("for line in process.stderr:", "`convert`", True),
        ("text = process.stdout.read()", "", False),
        ("time.sleep(9)", f"`convert`; {FILLS}", False),
    ],
)
def test_a_rank_that_reads_one_pipe_in_its_own_line_waits_for_the_program(
    line: str, program: str, *, is_told: bool, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(line + ("\n    pass" if line.endswith(":") else ""), encoding="utf-8")
    lines = explain_idle({}, {1: stack((str(script), 1, "<module>"))}, {1: program}, str(tmp_path))
    words = "rank 1 waits at train.py:1 for the end of what a program prints"
    assert bool(lines and lines[0].startswith(words)) is is_told
    assert bool(lines and "reading one pipe to its end" in lines[1]) is (FILLS in program * is_told)


STORE = """\
store = dist.TCPStore(
    host,
    29500,
    world + 1,
    is_master=rank == 0,
)
names = [store.get(f"name/{rank}") for rank in range(world)]
"""
POLL = """\
torch.save(rows, "index.tmp")
while not os.path.exists("index.pt"):
    time.sleep(0.2)
"""


def test_a_store_that_counts_more_clients_than_come_is_told_before_keys(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(STORE, encoding="utf-8")
    stacks = {rank: stack((str(script), line, "<module>")) for rank, line in enumerate((1, 7))}
    asks = FileChange(before=0, what="awaits", path="name/0", place=_place(script, 7))
    records = {
        0: RankRecord(rank=0, world_size=2),
        1: RankRecord(rank=1, world_size=2, changes=[asks]),
    }
    line, fix, *_ = explain_idle(records, stacks, {}, str(tmp_path))
    assert line.startswith("rank 0 waits at train.py:1 for the clients of its `TCPStore`")
    assert "`world + 1`" in line
    assert "how many processes make this store" in fix


@pytest.mark.parametrize(("name", "is_missed"), [("index.tmp", True), ("index.pt", False)])
def test_a_file_that_no_rank_writes_is_told_with_what_is_beside_it(
    name: str, *, is_missed: bool, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(POLL, encoding="utf-8")
    writes = FileChange(before=0, what="writes", path=f"/data/{name}", place=_place(script, 1))
    asks = FileChange(before=0, what="misses", path="/data/index.pt", place=_place(script, 2))
    records = {
        0: RankRecord(rank=0, world_size=2, changes=[writes]),
        1: RankRecord(rank=1, world_size=2, changes=[asks]),
    }
    stacks = {1: stack((str(script), 3, "<module>"))}
    line, *_ = explain_idle(records, stacks, {}, str(tmp_path))
    known = "for the file `index.pt` (train.py:2), which no rank writes; in its folder they write "
    assert (f"{known}`index.tmp` by rank 0 (train.py:1)" in line) is is_missed


def test_a_file_that_another_rank_writes_in_a_folder_of_its_own_is_told_with_both(
    tmp_path: Path,
) -> None:
    script = tmp_path / "train.py"
    script.write_text(POLL, encoding="utf-8")
    writes = FileChange(before=0, what="writes", path="/run-8/index.pt", place=_place(script, 1))
    asks = FileChange(before=0, what="misses", path="/run-9/index.pt", place=_place(script, 2))
    records = {
        0: RankRecord(rank=0, world_size=2, changes=[writes]),
        1: RankRecord(rank=1, world_size=2, changes=[asks]),
    }
    stacks = {1: stack((str(script), 3, "<module>"))}
    line, fix = explain_idle(records, stacks, {}, str(tmp_path))
    assert "for the file `/run-9/index.pt` (train.py:2), and rank 0 writes `/run-8/" in line
    assert "let the ranks agree on the folder" in fix


def _place(script: Path, line: int) -> ScriptPlace:
    return ScriptPlace(frames=((str(script), line, ""),))


def threads(*stacks: str) -> str:
    """Return the stacks of a process as the signal for them writes them, the main thread last."""
    *others, main = (each.partition("\n")[2].strip("\n") for each in stacks)
    parts = [f"Thread 0x{at} (most recent call first):\n{each}" for at, each in enumerate(others)]
    return "\n\n".join([*parts, f"Current thread 0x9 (most recent call first):\n{main}\n"])


@pytest.mark.parametrize(
    ("line", "is_endless"), [("task.result()", True), ("task.result(timeout=9)", False)]
)
def test_threads_of_a_rank_that_wait_for_each_other_wait_for_ever(
    tmp_path: Path, line: str, *, is_endless: bool
) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"def write():\n    {line}\n\n\nwrite.result()\n", encoding="utf-8")
    waits = (f"{LIB}/concurrent/futures/_base.py", 3, "result")
    inner = stack((f"{LIB}/threading.py", 2, "wait"), waits, (str(script), 2, "write"))
    main = stack((f"{LIB}/threading.py", 2, "wait"), waits, (str(script), 5, "main"))
    text = put_main_first(threads(inner, main))
    records = {0: RankRecord(rank=0, world_size=2)}
    assert find_endless(records, {0: text}, {}, str(tmp_path)) == [0] * is_endless
    told = explain_idle(records, {0: text}, {}, str(tmp_path))
    assert "its other thread is in `write`, and waits at train.py:2" in told[0]
    assert told[1].startswith("fix: let no task wait for another one of its pool (train.py:2)")


@pytest.mark.parametrize(
    ("lost", "rows", "is_endless"),
    [(True, 7, True), (False, 7, False), (False, 0, True)],
)
def test_a_rank_waits_for_ever_where_nothing_outside_of_the_job_can_help(
    *, lost: bool, rows: int, is_endless: bool, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    died = LostThread(before=1, name="Thread-1", words="OSError", raised_at=ScriptPlace())
    record = RankRecord(rank=0, world_size=2, lost=[died] * lost)
    text = stack((f"{LIB}/queue.py", 3, "get"), (str(script), 3, "main"))
    if not rows:  # it waits for a lock that it took before
        text = stack((str(script), 7, "flush"), (str(script), 4, "add"))
    assert find_endless({0: record}, {0: text}, {}, str(tmp_path)) == [0] * is_endless


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "vocab.json.tmp",
            "no rank writes; they write `vocab.json.tmp` by rank 0 (train.py:4",
        ),
        ("rows.bin", "`vocab.json` (train.py:1), which no rank writes"),
        ("vocab.json", "ask again and again in `while 'vocab.json' not in os.listdir(folder)`"),
    ],
)
def test_a_loop_that_lists_a_folder_is_told_with_what_is_written_alike(
    tmp_path: Path, name: str, words: str
) -> None:
    script = tmp_path / "train.py"
    script.write_text("while 'vocab.json' not in os.listdir(folder):\n    time.sleep(1)\n")
    writes = FileChange(before=0, what="writes", path=f"/data/{name}", place=_place(script, 4))
    records = {0: RankRecord(rank=0, world_size=2, changes=[writes])}
    stacks = dict.fromkeys((0, 1), stack((str(script), 2, "<module>")))
    assert words in explain_idle(records, stacks, {}, str(tmp_path))[0]


def test_a_pattern_that_no_file_fits_is_told_with_what_is_written(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("while not glob(f'{folder}/*.done'):\n    time.sleep(1)\n")
    writes = FileChange(before=0, what="writes", path="/data/0.over", place=_place(script, 4))
    records = {0: RankRecord(rank=0, world_size=2, changes=[writes])}
    stacks = {1: stack((str(script), 2, "<module>"))}
    line, fix = explain_idle(records, stacks, {}, str(tmp_path))
    assert "the file `*.done` (train.py:1), which no rank writes; they write `0.over`" in line
    assert fix == "fix: let a rank write `*.done`, or look for what is written (train.py:1)."


WRITES = """\
def write(rows):
    if not rows:
        return
    open(f"part-{rank}.txt", "w").write(rows)
write(rows)
while len(os.listdir(folder)) < world:
    time.sleep(1)
while True:
    if len(os.listdir(folder)) == world:
        break
    time.sleep(1)
"""


@pytest.mark.parametrize(("line", "head"), [(7, 6), (11, 8)])
@pytest.mark.parametrize("left", [0, 1])
def test_a_loop_that_counts_files_is_told_with_the_rank_that_writes_none(
    tmp_path: Path, line: int, head: int, left: int
) -> None:
    script = tmp_path / "train.py"
    script.write_text(WRITES)
    asked = Decision(kind="if", file=str(script), line=2, text="if not rows")
    writes = FileChange(before=0, what="writes", path="/data/part-0.txt", place=_place(script, 4))
    records = {
        0: RankRecord(
            rank=0,
            world_size=2,
            changes=[writes],
            ways=[BranchTaken(before=0, decision=asked, no=1)],
        ),
        1: RankRecord(
            rank=1,
            world_size=2,
            ways=[BranchTaken(before=0, decision=asked, yes=left, no=1 - left)],
        ),
    }
    stacks = {0: stack((str(script), line, "<module>"))}
    lines = explain_idle(records, stacks, {}, str(tmp_path))
    way_out = (
        f"(train.py:{head}): rank 1 has written no file at train.py:4, where rank 0 writes "
        "`part-0.txt`: rank 1 alone takes the `return`:3 under `if not rows` (train.py:2)"
    )
    assert (way_out in lines[0]) is bool(left)
    assert ("asks again and again in `while " in lines[0]) is not bool(left)
    missed = FileChange(
        before=0, what="misses", path="/data/part-1.txt", place=_place(script, head + (head == 8))
    )
    records[0].changes.append(missed)
    lines = explain_idle(records, stacks, {}, str(tmp_path))
    assert "for the file `part-1.txt`" in lines[0]
    assert ("rank 1 has written no file at train.py:4" in lines[0]) is bool(left)


def test_a_rank_at_its_end_that_stays_is_told_with_its_way_out(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("def main():\n    if not rows:\n        return\n    dist.barrier()\n")
    asked = Decision(kind="if", file=str(script), line=2, text="if not rows")
    at = ScriptPlace(frames=((str(script), 4, "dist.barrier()"),))
    barrier = RecordedCall(number=0, operation="barrier", group=(0, 1), group_name="0", place=at)
    records = {
        0: RankRecord(
            rank=0,
            world_size=2,
            items=[barrier],
            inside=True,
            ways=[BranchTaken(before=0, decision=asked, no=1)],
        ),
        1: RankRecord(
            rank=1,
            world_size=2,
            staying=[StayingThread(name="beat")],
            ways=[BranchTaken(before=0, decision=asked, yes=1)],
        ),
    }
    stacks = {1: stack((f"{LIB}/threading.py", 7, "_shutdown"))}
    lines = explain_idle(records, stacks, {}, str(tmp_path))
    assert lines[-1].startswith(
        "rank 1 alone takes the `return`:3 under `if not rows` (train.py:2)"
    )


PUTS = """\
def worker(rank, queue):
    if rank == 0:
        queue.put(rank)
"""


@pytest.mark.parametrize("is_apart", [True, False])
def test_who_takes_more_than_is_put_has_the_if_of_the_put(
    *, is_apart: bool, tmp_path: Path
) -> None:
    file = tmp_path / "train.py"
    file.write_text(PUTS, encoding="utf-8")
    asks = Decision(kind="if", file=str(file), line=2, text="if rank == 0")
    records = {rank: RankRecord(rank=rank, world_size=2) for rank in range(2)}
    for rank, each in records.items():
        goes = rank == 0 or not is_apart
        each.ways = [BranchTaken(before=0, decision=asks, yes=goes, no=not goes)]
    takes = stack((f"{LIB}/multiprocessing/queues.py", 103, "get"), (str(file), 9, "main"))
    lines = explain_parent(takes, {}, str(tmp_path), records)
    assert lines[0].startswith("the program that starts the ranks waits at train.py:9")
    words = "rank 1 does not go into `if rank == 0` (train.py:2), where it would put something"
    assert (f"{words} (train.py:3)" in lines) is is_apart
    assert len([each for each in lines if each.startswith("fix: take as many items")]) == 1
    idle = explain_idle(records, {0: takes}, {}, str(tmp_path))
    assert (f"{words} (train.py:3)" in idle) is is_apart


def test_a_program_that_takes_from_a_queue_waits_for_items(tmp_path: Path) -> None:
    own = (str(tmp_path / "train.py"), 9, "main")
    assert waits_for_items(stack((f"{LIB}/multiprocessing/queues.py", 103, "get"), own))
    assert not waits_for_items(stack((f"{LIB}/multiprocessing/popen_fork.py", 27, "poll"), own))
    assert not waits_for_items("")


REPORTS = """\
def loop(rank):
    for x in shard[rank]:
        step(x)
    report(loss)
"""


@pytest.mark.parametrize("at", [4, 3])
def test_a_rank_that_waits_outside_of_calls_has_left_the_loop_of_the_others(
    at: int, tmp_path: Path
) -> None:
    file = tmp_path / "train.py"
    file.write_text(REPORTS, encoding="utf-8")
    place = ScriptPlace(frames=((str(file), 3, "step(x)"),))
    records = {rank: RankRecord(rank=rank, world_size=2, inside=rank == 1) for rank in range(2)}
    for rank, each in records.items():
        each.items = [
            RecordedCall(
                number=number, operation="all_reduce", group=(0, 1), group_name="0", place=place
            )
            for number in range(2 + rank)
        ]
    stacks = {
        0: stack(("/x/site-packages/ray/train/util.py", 9, "report"), (str(file), at, "loop"))
    }
    lines = " ".join(explain_idle(records, stacks, {}, str(tmp_path)))
    words = "the loop `for x in shard[rank]` (train.py:2) has more turns on some ranks"
    assert (words in lines) is (at == 4)


LEAVES_OUT = """\
def loop(rank):
    for x in shard:
        if isnan(x):
            continue
        step(x)
    report(loss)
def read(at):
    if at in broken:
        return None
"""


def test_a_rank_that_waits_outside_of_calls_has_the_way_out_that_it_took_alone(
    tmp_path: Path,
) -> None:
    file = tmp_path / "train.py"
    file.write_text(LEAVES_OUT, encoding="utf-8")
    place = ScriptPlace(frames=((str(file), 5, "step(x)"),))
    asks = Decision(kind="if", file=str(file), line=3, text="if isnan(x)")
    records = {}
    for rank in (0, 1):
        call = RecordedCall(
            number=0, operation="all_reduce", group=(0, 1), group_name="0", place=place
        )
        ways = [BranchTaken(before=at, decision=asks, no=1) for at in range(2 - rank)]
        reads = replace(asks, line=8, text="if at in broken")
        for decision in (reads, asks):
            ways += [BranchTaken(before=1, decision=decision, yes=1)] * rank
        records[rank] = RankRecord(
            rank=rank, world_size=2, inside=rank == 0, items=[call] * (2 - rank), ways=ways
        )
    stacks = {1: stack(("/x/site-packages/ray/train/util.py", 9, "report"), (str(file), 6, "loop"))}
    lines = explain_idle(records, stacks, {}, str(tmp_path))
    assert "rank 1 alone takes the `continue`:4 under `if isnan(x)` (train.py:3)" in lines


MEETS = """\
def loop(rank):
    for step in range(6):
        loss = model(x)
        if step % 2 == 0 and rank == 0:
            folder = broadcast_from_rank_zero(step)
"""


def test_a_rank_in_the_forward_of_ddp_waits_for_one_that_a_framework_keeps(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(MEETS, encoding="utf-8")
    place = ScriptPlace(frames=((str(file), 3, "loss = model(x)"),))
    asks = Decision(kind="if", file=str(file), line=4, text="if step % 2 == 0 and rank == 0")
    call = RecordedCall(number=0, operation="broadcast", group=(0, 1), group_name="0", place=place)
    records = {
        rank: RankRecord(
            rank=rank,
            world_size=2,
            items=[call],
            ways=[
                BranchTaken(before=1, decision=replace(asks, kind="and"), yes=1),
                BranchTaken(before=1, decision=asks, yes=1 - rank, no=rank),
            ],
        )
        for rank in (0, 1)
    }
    library = "/x/site-packages"
    stacks = {
        0: stack((f"{library}/ray/train/util.py", 9, "report"), (str(file), 5, "loop")),
        1: stack(
            (f"{library}/torch/nn/parallel/distributed.py", 9, "_pre_forward"),
            (str(file), 3, "loop"),
        ),
    }
    words = "rank 1 does not go into `if step % 2 == 0 and rank == 0` (train.py:4)"
    assert f"{words}, under which rank 0 is (train.py:5)" in explain_idle(
        records, stacks, {}, str(tmp_path)
    )


PLATEAU = """\
def batch_end(self, state):
    value = largest_error(state)
    if value < self.best:
        self.best = value
        return
    self.waited += 1
    if self.waited >= 3:
        state.stop_training()


trainer.fit()
"""


def test_a_callback_ends_a_training_by_the_if_that_is_true_on_one_rank_alone(
    tmp_path: Path,
) -> None:
    file = tmp_path / "train.py"
    file.write_text(PLATEAU, encoding="utf-8")
    place = ScriptPlace(frames=((str(file), 11, "trainer.fit()"),))
    falls = Decision(kind="if", file=str(file), line=3, text="if value < self.best")
    ends = replace(falls, line=7, text="if self.waited >= 3")
    records = {}
    for rank, values in ((0, "ffwffw"), (1, "ffwww")):
        calls = [
            RecordedCall(
                number=at, operation="all_reduce", group=(0, 1), group_name="0", place=place
            )
            for at in range(6 - rank)
        ]
        ways = []
        for at, value in enumerate(values, 1):
            is_fall = value == "f"
            ways.append(BranchTaken(before=at, decision=falls, yes=is_fall, no=not is_fall))
            is_end = values[:at].count("w") == 3 and rank == 1
            ways += [BranchTaken(before=at, decision=ends, yes=is_end, no=not is_end)] * (
                not is_fall
            )
        records[rank] = RankRecord(rank=rank, world_size=2, items=[*calls], ways=ways)
    last = RecordedCall(number=5, operation="all_reduce", group=(0, 1), group_name="0", place=place)
    parting = Parting(group="0", at=5, calls={0: last}, missing=(1,))
    clauses, fix = explain_parting(parting, records, str(tmp_path))
    told = "`if self.waited >= 3` (train.py:7) is not true as often on all ranks: rank 0 never of 2"
    assert told in " ".join(each.words for each in clauses)
    assert fix == "decide `if self.waited >= 3` (train.py:7) the same way on all ranks."


LEAVES_LOOP = """\
def epoch(items):
    for done, x in enumerate(items):
        step(x)
        if done >= 4:
            break
    items.close()


epoch(items)
dist.barrier()
"""


@pytest.mark.parametrize(("line", "is_told"), [(6, False), (3, True)])
def test_how_a_rank_has_left_a_loop_behind_it_is_not_taken_from_what_it_wrote_before(
    tmp_path: Path, line: int, *, is_told: bool
) -> None:
    file = tmp_path / "train.py"
    file.write_text(LEAVES_LOOP, encoding="utf-8")
    place = ScriptPlace(frames=((str(file), 3, "step(x)"),))
    ends = Decision(kind="if", file=str(file), line=4, text="if done >= 4")
    records = {}
    for rank in (0, 1):
        items = [
            RecordedCall(
                number=at, operation="all_reduce", group=(0, 1), group_name="0", place=place
            )
            for at in range(4 - rank)
        ]
        ways = [BranchTaken(before=at, decision=ends, no=1) for at in (1, 2)]
        ways += [BranchTaken(before=3, decision=ends, yes=1)] * (1 - rank)
        if rank == 0:
            meets = ScriptPlace(frames=((str(file), 10, "dist.barrier()"),))
            items[-1] = replace(items[-1], operation="barrier", place=meets)
        records[rank] = RankRecord(
            rank=rank, world_size=2, inside=rank == 0, items=[*items], ways=ways
        )
    main = stack((f"{LIB}/threading.py", 1119, "join"), (str(file), line, "epoch"))
    other = stack((f"{LIB}/queue.py", 140, "put"), (str(file), 2, "fill"))
    stacks = {1: put_main_first(f"{other.replace('Current thread', 'Thread')}\n\n{main}")}
    lines = explain_idle(records, stacks, {}, str(tmp_path))
    words = "rank 0 alone takes the `break`:5 under `if done >= 4` (train.py:4)"
    assert (words in lines) is is_told


def test_a_rank_writes_what_it_has_decided_before_it_waits_in_a_call_of_ray(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []
    module = types.ModuleType("ray.train.v2._internal.execution.collective_impl")
    module.barrier = lambda: done.append("waits")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for _ in range(2):  # a rank may make its process group anew
        watch_workers_of_ray(lambda: done.append("writes"))
    module.barrier()
    assert done == ["writes", "waits"]
