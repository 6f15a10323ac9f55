"""Python stacks of ranks: the frames of each, and which call of torch.distributed it is in.

They are read as py-spy writes them, as text or JSON, and as Python's faulthandler does, and are
data of a stranger. What is wrong by them is in `position`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath

from msgspec import Struct
from msgspec.structs import replace

from torch_scenarios.display import clean_line
from torch_scenarios.record.format import RankRecord, ScriptPlace, read_bounded
from torch_scenarios.record.recorder import is_foreign

#: frames of a stack that are kept, characters of a name
MOST_FRAMES, MOST_NAME = 200, 300
#: stacks of one reading
MOST_STACKS = 65_536

#: variables of a frame that are kept, and what of them is: what decides a branch, and no data
MOST_VALUES = 40
_NUMBER = re.compile(r"-?\d{1,18}|True|False|None")

#: functions of torch that stand around a call, and are not it
_WRAPPERS = re.compile(r"<module>|wrapper|_exception_logger|_time_logger|<lambda>|inner")
#: where DDP communicates by C++: its constructor, and its forward, which makes its buckets anew
_DDP = "torch/nn/parallel/distributed.py"
#: for a message: the argument that names its other end, how that is said, and what answers it
ENDS = {"send": ("dst", "to", "recv"), "recv": ("src", "from", "send")}
#: hooks by which FSDP communicates, in words
_PHASES = {
    "_pre_forward": "the forward of FSDP",
    "_post_forward": "the forward of FSDP",
    "_pre_backward": "the backward of FSDP",
}
#: what a line of the script waits in where no frame of torch is above it
_WAITS = (
    (re.compile(r"\.wait\("), "wait"),
    (re.compile(r"\.backward\("), "backward"),
    (re.compile(r"\.(?:item|cpu|tolist|numpy)\(|synchronize\("), "a wait for the device"),
)


def _keep_numbers(printed: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    kept = [
        (clean_line(name[:MOST_NAME]), value)
        for name, value in printed
        if _NUMBER.fullmatch(value) is not None
    ]
    return tuple(kept[:MOST_VALUES])


class StackFrame(Struct, frozen=True):
    """A function, its file and its line; the innermost of a stack comes first."""

    name: str
    filename: str
    line: int = 0
    #: its variables that are whole numbers, bools or None, with their values as Python prints them
    values: tuple[tuple[str, str], ...] = ()


class PrintedValue(Struct, frozen=True):
    """A variable as py-spy prints it in JSON."""

    name: str = ""
    repr: str | None = None


class PrintedFrame(Struct, frozen=True):
    """A frame as py-spy prints it in JSON; `locals` where it was asked for them."""

    name: str
    filename: str
    line: int = 0
    locals: tuple[PrintedValue, ...] | None = None

    @property
    def frame(self) -> StackFrame:
        """What is kept of it: of its variables the numbers alone."""
        printed = [(each.name, each.repr or "") for each in self.locals or ()]
        return StackFrame(self.name, self.filename, self.line, _keep_numbers(printed))


class PrintedThread(Struct, frozen=True):
    """A thread as py-spy prints it in JSON."""

    frames: tuple[PrintedFrame, ...] = ()
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
            return _PHASES.get(found, found) or "the constructor of DDP"
        return next(
            (what for pattern, what in _WAITS if not last and pattern.search(self.text)), ""
        )

    @property
    def number(self) -> int:
        """The number that the process was given where a script started it; -1 where none is seen.

        `mp.spawn` calls it `i` in its own frame; the first function of the script has it as `rank`.
        """
        for each in reversed(self.frames):
            is_spawn = each.filename.endswith("torch/multiprocessing/spawn.py")
            name = "i" if is_spawn else "rank" if not _is_foreign(each.filename) else ""
            if (value := dict(each.values).get(name, "")).isdigit():
                return int(value)
        return -1

    @property
    def peer(self) -> int | None:
        """The rank that it sends to or receives from; None where that is not known, or any."""
        name = ENDS.get(self.call, ("",))[0]
        found = (dict(each.values).get(name) for each in self.frames if each.name == self.call)
        value = next(found, None)
        return int(value) if value is not None and value.isdigit() else None


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
#: the variables of the frame above, which py-spy prints with `--locals`
_VALUES = re.compile(r"\s{6,}(?:Arguments|Locals):\s*$")
_VALUE = re.compile(r"\s{8,}(\w+): (.*)$")
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
        elif line.strip() and not _reads_value(line, frames):
            keep()
            is_main = False
    keep()
    return found


def _reads_value(line: str, frames: list[StackFrame]) -> bool:
    """Whether a line is of the variables of the frame above it; the frame has its number then."""
    value = _VALUE.match(line)
    if value is not None and frames:
        values = (*frames[-1].values, *_keep_numbers([(value[1], value[2].strip())]))
        frames[-1] = replace(frames[-1], values=values[:MOST_VALUES])
    return value is not None or _VALUES.match(line) is not None


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


def put_own_first(text: str) -> str:
    """Return a stack of all threads with that first, as the main one, which runs the user's code.

    A worker of Ray runs it in a thread, and its main thread waits for orders. One whose program is
    over stays first: it waits for the others.
    """
    main = read_stack(text)
    if is_at_end(main) or any(not is_foreign(each.filename) for each in main):
        return text
    sections = text.split(_NEXT_THREAD)[1:]
    own = [
        each
        for each, frames in zip(sections, read_threads(text), strict=True)
        if any(not is_foreign(frame.filename) for frame in frames)
    ]
    if len(own) != 1:
        return text
    return "Stack (most recent call first):\n" + own[0].partition("\n")[2]


def is_at_end(main: Sequence[StackFrame]) -> bool:
    """Whether the program of a main thread is over, and Python waits for its other threads."""
    return any(each.name == "_shutdown" and each.filename.endswith("threading.py") for each in main)


def printed_place(text: str) -> ScriptPlace:
    """Return where the user's own code is by one stack that faulthandler wrote."""
    found = read_faults(text.splitlines()).get(0)
    return found.place if found is not None else ScriptPlace()


#: how a stack begins that faulthandler writes of the one thread that a signal has met
_OF_ONE_THREAD = "Stack (most recent call first):"
#: frames of the user's own that are kept of a rank which its launcher ended
MOST_ENDED = 12
#: bytes of what faulthandler wrote of one rank
MOST_KILLED = 1 << 20


def know_killed(records: Mapping[int, RankRecord], folder: Path) -> None:
    """Let the records of ranks that a signal killed know the line that each was in.

    So do those of ranks that their launcher ended by SIGTERM: theirs is the last stack that is not
    one of several threads.
    """
    for rank, record in records.items():
        if record.died is None and record.ending != "stopped":
            continue
        path = folder / f"rank-{rank:05d}.stack"
        written = read_bounded(path, MOST_KILLED) if path.is_file() else b""
        text = written.decode("utf-8", "replace")
        _, fatal, last = text.rpartition("Fatal Python error: ")
        record.killed_at = printed_place(last) if fatal else record.killed_at
        if record.died is None:
            _, is_ended, last = text.rpartition(_OF_ONE_THREAD)
            own = read_faults((is_ended + last).splitlines()).get(0) if is_ended else None
            frames = own.own[:MOST_ENDED] if own is not None else ()
            record.ended_at = ScriptPlace(
                frames=tuple((each.filename, each.line, "") for each in frames)
            )


def write_stack(stack: RankStack) -> Iterator[str]:
    """Yield a stack as it is read again."""
    host = stack.host or "this-machine"
    yield f"rank {stack.rank} of {stack.world_size} on {host}, process {stack.pid}"
    yield f"Process {stack.pid}: python"
    yield f'Thread {stack.pid} ({"active" if stack.is_active else "idle"}): "MainThread"'
    for each in stack.frames:
        yield f"    {each.name} ({each.filename}:{each.line})"
        if each.values:
            yield "        Locals:"
            yield from (f"            {name}: {value}" for name, value in each.values)
