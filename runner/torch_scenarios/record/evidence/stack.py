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
from torch_scenarios.verdict.finding import ranks_text, values_text

#: frames of a stack that are kept, characters of a name
MOST_FRAMES, MOST_NAME = 200, 300
#: variables that are shown, and values of each
MOST_LINES = 4
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
_ENDS = {"send": ("dst", "to", "recv"), "recv": ("src", "from", "send")}
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
        name = _ENDS.get(self.call, ("",))[0]
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

    A worker of Ray runs it in a thread, and its main thread waits for orders.
    """
    if any(not is_foreign(each.filename) for each in read_stack(text)):
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
        if each.values:
            yield "        Locals:"
            yield from (f"            {name}: {value}" for name, value in each.values)


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
        return f"in {_tell_call(stack)} ({where})"
    inner = stack.frames[0]
    if inner in stack.own:
        return f"in no call of torch.distributed, at {where}"
    name = f"{inner.name}, {PurePath(inner.filename).name}:{inner.line}"
    return f"in no call of torch.distributed, at {where} (in {name})"


def _tell_call(stack: RankStack) -> str:
    """Return the call that a rank is in, with the rank that it sends to or receives from."""
    if stack.peer is None:
        return stack.call
    return f"{stack.call} {_ENDS[stack.call][1]} rank {stack.peer}"


def value_lines(stacks: Mapping[int, RankStack], folder: str = "") -> list[str]:
    """Return the numbers that differ between ranks in one function of the script, the outermost.

    A variable that has the number of its rank on each says nothing.
    """
    own = {rank: [*reversed(stack.own)] for rank, stack in sorted(stacks.items())}
    if len(own) < 2:
        return []
    for frames in zip(*own.values(), strict=False):
        if len({(each.filename, each.name) for each in frames}) > 1:
            break
        held = [dict(each.values) for each in frames]
        lines = []
        for name in held[0]:
            values = {rank: each.get(name, "") for rank, each in zip(own, held, strict=True)}
            if len({*values.values()}) < 2 or "" in values.values():
                continue
            if all(value == str(rank) for rank, value in values.items()):
                continue
            where = ScriptPlace(frames=((frames[0].filename, frames[0].line, ""),)).short(folder)
            lines.append(f"`{name}` is {values_text(values, MOST_LINES)} ({where})")
        if lines:
            return lines[:MOST_LINES]
    return []


def find_in_stacks(
    stacks: Mapping[int, RankStack], folder: str = "", *, parses: bool = True
) -> list[Finding]:
    """Return what is wrong by where ranks are: one is in no call, or they are in different ones.

    `parses` says whether the files that they name are of this machine and may be read.
    """
    waiting = {rank: each for rank, each in stacks.items() if each.call}
    outside = [rank for rank in stacks if rank not in waiting]
    if cycle := _find_cycle(waiting):
        return [_report_cycle({rank: waiting[rank] for rank in cycle}, folder)]
    if waiting and outside:
        return [_report_outside(stacks, waiting, outside, folder, parses=parses)]
    places = {(each.call, each.place.frames[:1]) for each in waiting.values()}
    if (lone := _find_lone_message(waiting)) is not None:
        return [_report_message(*lone, folder, parses=parses)]
    if len(places) < 2 or any(each.call in MESSAGES for each in waiting.values()):
        return []
    return [_report_apart(waiting, folder, parses=parses)]


def _find_cycle(waiting: Mapping[int, RankStack]) -> list[int]:
    """Return ranks each of which waits in a message for the next, which is in no answer to it."""
    for start in waiting:
        chain = [start]
        while (peer := _next_of(waiting, chain[-1])) is not None and peer not in chain:
            chain.append(peer)
        if peer is not None and len(cycle := chain[chain.index(peer) :]) > 1:
            return cycle
    return []


def _next_of(waiting: Mapping[int, RankStack], rank: int) -> int | None:
    """Return for which rank another one waits in a message that the first does not answer now."""
    own = waiting.get(rank)
    other = waiting.get(own.peer) if own is not None and own.peer is not None else None
    if own is None or other is None:
        return None
    is_answer = other.call == _ENDS[own.call][2] and other.peer in {rank, None}
    return None if is_answer else other.rank


def _report_cycle(cycle: Mapping[int, RankStack], folder: str) -> Finding:
    calls = {each.call for each in cycle.values()}
    fix = "put the calls in an order in which each `send` meets its `recv`."
    if len(calls) == 1:
        first = _ENDS[next(iter(calls))][2]
        fix = (
            f"let one of them call `{first}` first, such as every other rank; or make both calls "
            "in one `batch_isend_irecv`."
        )
    return Finding(
        witness="program",
        code="circular_wait",
        prose=f"{ranks_text(sorted(cycle))} wait for each other in messages, each for the next one",
        notes=tuple(
            Clause(f"rank {rank} is {position_of(each, folder)}") for rank, each in cycle.items()
        ),
        ranks=tuple(sorted(cycle)),
        fix=fix,
    )


def _find_lone_message(waiting: Mapping[int, RankStack]) -> tuple[RankStack, RankStack] | None:
    """Return a rank that waits in a message, and the one that it waits for, in a collective."""
    for rank, own in waiting.items():
        peer = _next_of(waiting, rank)
        if peer is not None and waiting[peer].call not in MESSAGES:
            return own, waiting[peer]
    return None


def _report_message(own: RankStack, peer: RankStack, folder: str, *, parses: bool) -> Finding:
    from torch_scenarios.record.evidence.reasons import explain_places

    sides = [([each.rank], each.place.frames) for each in (own, peer)]
    reason = explain_places(sides, folder) if parses else None
    answer = _ENDS[own.call][2]
    notes = [Clause(f"rank {each.rank} is {position_of(each, folder)}") for each in (own, peer)]
    return Finding(
        witness="program",
        code=f"unmatched_{own.call}",
        prose=f"rank {own.rank} waits in {_tell_call(own)}, which is in {_tell_call(peer)}",
        notes=(*((reason[0],) if reason is not None else ()), *notes),
        ranks=tuple(sorted((own.rank, peer.rank))),
        fix=f"let rank {peer.rank} call `{answer}` {_ENDS[answer][1]} rank {own.rank} before it "
        f"enters `{peer.call}`, or leave the `{own.call}` out.",
    )


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
