"""Python stacks of ranks that hang -> which call each is in, and who is not where the others wait.

A stack says where a rank is now, and nothing of what it did before. So what is found is about
places: ranks of one job that wait in different calls, or a rank that is in none::

    rank 0   barrier (train.py:21)
    rank 1   all_reduce (train.py:14)   <- still in the loop at train.py:12
    rank 2   time.sleep (data.py:88)    <- in no call of torch.distributed

Stacks are read as py-spy writes them, as text or JSON, and as Python's faulthandler does. They are
data of a stranger.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path, PurePath

from msgspec import Struct
from msgspec.structs import replace

from torch_scenarios.display import clean_line
from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.script import closed_scripts
from torch_scenarios.record.format import MESSAGES, RankRecord, ScriptPlace, read_bounded
from torch_scenarios.record.recorder import is_foreign
from torch_scenarios.verdict import Finding
from torch_scenarios.verdict.finding import ranks_text

#: frames of a stack that are kept, characters of a name
MOST_FRAMES, MOST_NAME = 200, 300
#: stacks of one reading
MOST_STACKS = 65_536

#: functions of torch that stand around a call, and are not it
_WRAPPERS = re.compile(r"<module>|wrapper|_exception_logger|_time_logger|<lambda>|inner")
#: where DDP communicates by C++: its constructor, and its forward, which makes its buckets anew
_DDP = "torch/nn/parallel/distributed.py"
#: what a line of the script waits in where no frame of torch is above it
_WAITS = (
    (re.compile(r"\.wait\("), "wait"),
    (re.compile(r"\.backward\("), "backward"),
    (re.compile(r"\.(?:item|cpu|tolist|numpy)\(|synchronize\("), "a wait for the device"),
)


class StackFrame(Struct, frozen=True):
    """A function, its file and its line; the innermost of a stack comes first."""

    name: str
    filename: str
    line: int = 0


class PrintedThread(Struct, frozen=True):
    """A thread as py-spy prints it in JSON."""

    frames: tuple[StackFrame, ...] = ()
    thread_name: str | None = None
    pid: int = 0
    active: bool = False


class RankStack(Struct, frozen=True, kw_only=True):
    """Where a rank is: the frames of its main thread, the innermost first."""

    rank: int
    frames: tuple[StackFrame, ...]
    world_size: int = 0
    host: str = ""
    pid: int = 0
    is_active: bool = False
    #: the text of its innermost line of the user's own, where that file is of this machine
    text: str = ""

    @property
    def own(self) -> tuple[StackFrame, ...]:
        """The frames of the user's own files."""
        return tuple(each for each in self.frames if not _is_foreign(each.filename))

    @property
    def place(self) -> ScriptPlace:
        """Where the user's own code is."""
        return ScriptPlace(frames=tuple((each.filename, each.line, "") for each in self.own[:3]))

    @property
    def call(self) -> str:
        """The call of torch.distributed that it is in, in a word; empty where it is in none."""
        found, last = "", ""
        for each in self.frames:
            if not _is_foreign(each.filename):
                break
            last = each.filename
            name = each.name.rpartition(".")[2]
            if "torch/distributed/" in last and not _WRAPPERS.search(name):
                found = name
            if name == "_engine_run_backward":
                return "backward"
            if name == "_pre_forward" and last.endswith(_DDP):
                return "the forward of DDP"
        if found or last.endswith(_DDP):
            return found or "the constructor of DDP"
        return next(
            (what for pattern, what in _WAITS if not last and pattern.search(self.text)), ""
        )


def _is_foreign(file: str) -> bool:
    """Whether a file is not the user's own; py-spy may show a short name of it."""
    if is_foreign(file) or file.startswith("torch/"):
        return True
    head = PurePath(file).parts[0] if file else ""
    return not file.startswith("/") and head.removesuffix(".py") in sys.stdlib_module_names


def main_thread(threads: Sequence[PrintedThread]) -> PrintedThread | None:
    """Return the main thread of a process; the first where none says that it is."""
    named = (each for each in threads if each.thread_name == "MainThread")
    return next(named, threads[0] if threads else None)


#: the head of a stack as `scenario hang -o` writes it; then that of py-spy's
_RANK = re.compile(r"rank (\d+) of (\d+) on (\S+), process (\d+)")
_PROCESS = re.compile(r"Process (\d+): ")
_THREAD = re.compile(r'Thread (?:0x)?[0-9A-Fa-f]+ \(([^)]*)\)(?:: "(.*)")?')
_FRAME = re.compile(r"\s{2,}(\S.*?) \(([^()]+):(\d+)\)\s*$")
#: what a launcher puts before each line of a rank: `[rank1]:`, `[default1]:`, `1: `
_PREFIX = re.compile(r"^(?:.{0,200}?\[(?:rank|default)(\d+)\]:|(\d+): )\s?")
#: frames of processes that start ranks, or work for them, and are none
_NO_RANK = re.compile(
    r"torch/distributed/elastic/agent/|deepspeed/launcher/|torch/utils/data/_utils/worker\.py:|"
    r"torch/_inductor/compile_worker/|multiprocessing/resource_tracker\.py:|"
    r"torch/multiprocessing/spawn\.py:.*join"
)


def _is_no_rank(frames: Sequence[StackFrame]) -> bool:
    return any(_NO_RANK.search(f"{each.filename}:{each.name}") for each in frames)


def read_stacks(lines: Iterable[str]) -> dict[int, RankStack]:
    """Return the stacks in a text by rank; a process without a rank counts as the next one.

    It does not where its frames are those of a launcher, or of a loader's worker.
    """
    found: dict[int, RankStack] = {}
    head: tuple[int, int, str, int] | None = None
    frames: list[StackFrame] = []
    rank, is_main, active, pid, has_rank = -1, False, False, 0, False

    def keep() -> None:
        is_new = rank >= 0 and rank not in found and len(found) < MOST_STACKS
        if frames and is_new and (has_rank or not _is_no_rank(frames)):
            world, host = (head[1], head[2]) if head is not None else (0, "")
            found[rank] = RankStack(
                rank=rank,
                frames=tuple(frames[:MOST_FRAMES]),
                world_size=world,
                host=host,
                pid=pid,
                is_active=active,
            )
        frames.clear()

    for raw in lines:
        prefix = _PREFIX.match(raw)
        line = raw[prefix.end() :] if prefix is not None else raw
        named = _RANK.search(line)
        if named is not None:
            keep()
            head = (int(named[1]), int(named[2]), clean_line(named[3]), int(named[4]))
            continue
        process = _PROCESS.match(line)
        if process is not None:
            keep()
            pid, is_main = int(process[1]), False
            if head is not None and head[3] == pid:
                rank, has_rank = head[0], True
            else:
                head = None
                own = prefix[1] or prefix[2] if prefix is not None else None
                has_rank = own is not None
                rank = int(own) if own else max(found, default=-1) + 1
            continue
        thread = _THREAD.match(line)
        if thread is not None:
            keep()
            is_main = thread[2] in {None, "MainThread"}
            active = thread[1].startswith("active")
            continue
        frame = _FRAME.match(line)
        if frame is not None and is_main:
            name, file = (clean_line(each[-MOST_NAME:]) for each in (frame[1], frame[2]))
            frames.append(StackFrame(name, file, int(frame[3][:9])))
        elif line.strip():
            keep()
            is_main = False
    keep()
    return found


#: what `faulthandler.dump_traceback_later` prints before the threads of a process
_TIMEOUT = re.compile(r"Timeout \(\d+:\d\d:\d\d(?:\.\d+)?\)!")
#: a thread as faulthandler prints it, and one of its frames
_FAULT = re.compile(
    r"(?:(?:Current thread|Thread) (0x[0-9A-Fa-f]+).*|Stack )\(most recent call first\):"
)
_FAULT_FRAME = re.compile(r'^\s+File "([^"]+)", line (\d+) in (.+)$')


def read_faults(lines: Sequence[str]) -> dict[int, RankStack]:
    """Return the stacks that faulthandler wrote, by the rank before their lines.

    Without ranks, a `Timeout` begins the dump of a process, which may dump again and again.
    """
    starts = [at for at, line in enumerate(lines) if _TIMEOUT.match(line)]
    if len(starts) < 2:
        return _read_threads(lines)
    processes: dict[str, RankStack] = {}
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        dump = [line for line in lines[start:end] if _PREFIX.match(line) is None]
        heads = [found[1] for line in dump if (found := _FAULT.search(line)) is not None]
        main = next(iter(_read_threads(dump).values()), None)
        if heads and main is not None:
            processes[heads[-1]] = main
    return {rank: replace(each, rank=rank) for rank, each in enumerate(processes.values())}


def _read_threads(lines: Iterable[str]) -> dict[int, RankStack]:
    """Return the main threads that faulthandler wrote, by the rank before their lines.

    Of several threads the last counts: the main thread is the oldest, and written last. Lines
    without a rank are of one process up to its `Current thread`, and then of the next one: what
    comes last and has none is of the process before it.
    """
    found: dict[int, list[StackFrame]] = {}
    number, is_over, unfinished = 0, False, 0
    for raw in lines:
        prefix = _PREFIX.match(raw)
        line = raw[prefix.end() :] if prefix is not None else raw
        is_head = _FAULT.search(line) is not None
        if prefix is None and is_head:
            number += is_over
            is_over = line.startswith("Current thread")
            unfinished = 0 if is_over else number
        rank = int((prefix[1] or prefix[2])[:9]) if prefix is not None else number
        if is_head and (rank in found or len(found) < MOST_STACKS):
            found[rank] = []
        elif rank in found and (
            frame := _FAULT_FRAME.match(line if prefix is None else f" {line}")
        ):
            file, name = (clean_line(each[-MOST_NAME:]) for each in (frame[1], frame[3]))
            found[rank].append(StackFrame(name, file, int(frame[2][:9])))
    if unfinished:
        found[unfinished - 1] = found.pop(unfinished)
    return {
        rank: RankStack(rank=rank, frames=tuple(frames[:MOST_FRAMES]))
        for rank, frames in found.items()
        if frames
    }


#: what stands before each thread but the main one, where that comes first
_NEXT_THREAD = "\n\nThread 0x"
#: what begins a stack of all threads of a process
_ALL = "All threads:\n"


def put_main_first(text: str) -> str:
    r"""Return the threads of a process, that which took the signal first: the main one.

    >>> put_main_first("Thread 0x1 (...):\n  A\n\nCurrent thread 0x2 (...):\n  B")
    'All threads:\nCurrent thread 0x2 (...):\n  B\n\nThread 0x1 (...):\n  A'
    """
    threads = [each.strip("\n") for each in text.split("\n\n")]
    main = next((each for each in threads if each.startswith("Current thread ")), None)
    if main is None:
        return text
    return _ALL + "\n\n".join([main, *(each for each in threads if each and each is not main)])


def has_all_threads(text: str) -> bool:
    """Whether a stack has all threads of its process, and not one alone."""
    return text.startswith(_ALL)


def take_main(text: str) -> str:
    """Return the stack of the main thread alone, of one that `put_main_first` has written."""
    return text.partition(_NEXT_THREAD)[0]


def read_threads(text: str) -> list[tuple[StackFrame, ...]]:
    """Return the frames of the other threads of a process."""
    _, *others = text.split(_NEXT_THREAD)
    head = "Stack (most recent call first):\n"
    return [read_stack(head + each.partition("\n")[2]) for each in others]


def has_own_threads(text: str) -> bool:
    """Whether a thread of a process but its main one runs the user's own code."""
    return any(not is_foreign(each.filename) for frames in read_threads(text) for each in frames)


def read_stack(text: str) -> tuple[StackFrame, ...]:
    """Return the frames of one stack that faulthandler wrote, without those of the recorder.

    It is that of the main thread where several are there.
    """
    found = read_faults(take_main(text).splitlines()).get(0)
    return tuple(
        each
        for each in (found.frames if found is not None else ())
        if "torch_scenarios/record" not in each.filename and "<frozen" not in each.filename
    )


def printed_place(text: str) -> ScriptPlace:
    """Return where the user's own code is by one stack that faulthandler wrote."""
    found = read_faults(text.splitlines()).get(0)
    return found.place if found is not None else ScriptPlace()


#: bytes of what faulthandler wrote of one rank
MOST_KILLED = 1 << 20


def know_killed(records: Mapping[int, RankRecord], folder: Path) -> None:
    """Let the records of ranks that a signal killed know the line that each was in."""
    for rank, record in records.items():
        if record.died is None:
            continue
        path = folder / f"rank-{rank:05d}.stack"
        written = read_bounded(path, MOST_KILLED) if path.is_file() else b""
        text = written.decode("utf-8", "replace")
        _, fatal, last = text.rpartition("Fatal Python error: ")
        record.killed_at = printed_place(last) if fatal else record.killed_at


def write_stack(stack: RankStack) -> Iterator[str]:
    """Yield a stack as it is read again."""
    host = stack.host or "this-machine"
    yield f"rank {stack.rank} of {stack.world_size} on {host}, process {stack.pid}"
    yield f"Process {stack.pid}: python"
    yield f'Thread {stack.pid} ({"active" if stack.is_active else "idle"}): "MainThread"'
    for each in stack.frames:
        yield f"    {each.name} ({each.filename}:{each.line})"


def position_lines(stacks: Mapping[int, RankStack], folder: str = "") -> list[str]:
    """Return where the ranks are; ranks at one place are one line."""
    alike: dict[str, list[int]] = {}
    for rank, stack in sorted(stacks.items()):
        alike.setdefault(position_of(stack, folder), []).append(rank)
    return [f"{ranks_text(ranks)}: {words}" for words, ranks in alike.items()]


def position_of(stack: RankStack, folder: str = "") -> str:
    """Return where a rank is, in words: its call and line, or that it is in none."""
    where = stack.place.short(folder) or "no line of the script"
    if stack.call:
        return f"in {stack.call} ({where})"
    inner = stack.frames[0]
    if inner in stack.own:
        return f"in no call of torch.distributed, at {where}"
    name = f"{inner.name}, {PurePath(inner.filename).name}:{inner.line}"
    return f"in no call of torch.distributed, at {where} (in {name})"


def find_in_stacks(
    stacks: Mapping[int, RankStack], folder: str = "", *, parses: bool = True
) -> list[Finding]:
    """Return what is wrong by where ranks are: one is in no call, or they are in different ones.

    `parses` says whether the files that they name are of this machine and may be read.
    """
    waiting = {rank: each for rank, each in stacks.items() if each.call}
    outside = [rank for rank in stacks if rank not in waiting]
    if waiting and outside:
        return [_report_outside(stacks, waiting, outside, folder, parses=parses)]
    places = {(each.call, each.place.frames[:1]) for each in waiting.values()}
    if len(places) < 2 or any(each.call in MESSAGES for each in waiting.values()):
        return []
    return [_report_apart(waiting, folder, parses=parses)]


def _report_outside(
    stacks: Mapping[int, RankStack],
    waiting: Mapping[int, RankStack],
    outside: Sequence[int],
    folder: str,
    *,
    parses: bool,
) -> Finding:
    from torch_scenarios.record.evidence.reasons import explain_wait, find_polls

    notes = [
        Clause(f"{ranks_text([rank])} is {position_of(stacks[rank], folder)}")
        for rank in outside[:8]
    ]
    with nullcontext() if parses else closed_scripts():
        waits = {
            rank: found
            for rank in outside[:8]
            if (found := explain_wait(stacks[rank].frames, "", folder)) is not None
        }
        others = {rank: stacks[rank].place.frames for rank in outside[:8] if rank not in waits}
        polls = find_polls(others, {}, folder)
    notes += [Clause(f"rank {rank} waits {words}") for rank, (words, _) in waits.items()]
    notes += map(Clause, polls)
    fixes = list(dict.fromkeys(fix for _, fix in waits.values()))
    notes += [Clause(f"others wait: {line}") for line in position_lines(waiting, folder)[:8]]
    verb = "is" if len(outside) == 1 else "are"
    return Finding(
        witness="program",
        code="missing_participant",
        prose=f"{ranks_text(list(outside))} {verb} in no call, and the others wait",
        notes=tuple(notes),
        ranks=tuple(outside),
        fix=fixes[0]
        if fixes
        else (
            f"look at what {ranks_text(list(outside))} does there: the others go on after it "
            "enters the same call."
        ),
    )


def _report_apart(waiting: Mapping[int, RankStack], folder: str, *, parses: bool) -> Finding:
    from torch_scenarios.record.evidence.reasons import explain_places

    sides: dict[tuple[tuple[str, int, str], ...], list[int]] = {}
    for rank, each in sorted(waiting.items()):
        sides.setdefault(each.place.frames, []).append(rank)
    ordered = sorted(((who, at) for at, who in sides.items()), key=lambda each: len(each[0]))
    reason = explain_places(ordered, folder) if parses else None
    notes = [Clause(line) for line in position_lines(waiting, folder)[:8]]
    return Finding(
        witness="program",
        code="call_mismatch",
        prose="ranks wait in different calls, and none of them can go on",
        notes=(*((reason[0],) if reason is not None else ()), *notes),
        ranks=tuple(sorted(waiting)),
        fix=reason[1]
        if reason is not None
        else "let every rank make the same calls of a group in the same order.",
    )
