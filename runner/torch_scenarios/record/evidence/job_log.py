"""What a job printed -> one verdict: watchdogs, tables of errors, barriers, stacks, RAS.

Each of these says a part::

    [rank1]: ... WorkNCCL(SeqNum=1174, OpType=BROADCAST, ...) ran for 600061 ms    how far a rank is
    ... last enqueued NCCL work: 1176, last completed NCCL work: 1173              and what it did
    Root Cause (first observed failure): rank : 2  exitcode : -9                   who died first
    Process 4711: python train.py                                                  where it is
    {"communicators": [{"ranks": [...], "missing_ranks": [...]}]}                  NCCL's own view
    Ranks 1, 3 failed to pass monitoredBarrier in 60000 ms                         who did not come
    Detected mismatch between collectives on ranks. Rank 0 is running ...          what meets
    srun: error: node12: task 5: Out Of Memory                                     who was killed
    ... Received a dump signal ... Last enqueued NCCL work: 21, last completed ...: 21    who idles
    Stack trace of the failed collective:  #0 broadcast from ...                   who called it
    The client socket has timed out ... while trying to connect to (node1, 29500)  who is not there
    {"message": {"message": "...", "extraInfo": {"py_callstack": "..."}}}      torchrun's error file
    [Gloo] Rank 3 is connected to 1 peer ranks. Expected number ... is : 3         who is alone

A log is data of a stranger: it is read with a bound, as text of any bytes, and nothing that it
names is opened.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from torch_scenarios.display import clean_line
from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.stack import (
    MOST_FRAMES,
    MOST_NAME,
    RankStack,
    StackFrame,
    find_in_stacks,
    position_lines,
    read_faults,
    read_stacks,
    value_lines,
)
from torch_scenarios.record.format import read_bounded, refusal, signal_name
from torch_scenarios.source.documents import DocumentError, decode_json
from torch_scenarios.verdict import Finding
from torch_scenarios.verdict.finding import ranks_text

#: bytes of a log
MOST_BYTES = 1 << 28
#: ranks that a log may name
MOST_RANKS = 65_536
#: lines into which a terminal may have wrapped one
MOST_WRAPS = 8
#: characters of a line that are read, and of what a system's log puts before a rank's
MOST_LINE, MOST_PREFIX = 20_000, 200
#: what a rank is in of which a log says the number alone
UNNAMED = "collective"
#: what takes or gives a part for each rank of its group
_GATHER_OR_SCATTER = {"_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE"}

_WORLD_RANK = re.compile(r"\[rank(\d+)\]:")
_GROUP = re.compile(
    r"\[(?:PG (?:ID )?(?P<id>\d+)(?: PG GUID (?P<guid>[^\s(\]]+))?(?: ?\((?P<name>[^)]*)\))? )?"
    r"Rank (?P<rank>\d+)\]"
)
_WORK = re.compile(
    r"WorkNCCL\(SeqNum=(?P<number>\d+), OpType=(?P<kind>\w+)(?:, [^)]*?NumelIn=(?P<ins>\d+), "
    r"NumelOut=(?P<outs>\d+))?[^)]*?Timeout\(ms\)=(?P<limit>\d+)\)(?: ran for (?P<ran>\d+))?"
)
_DONE = re.compile(
    r"[Ll]ast enqueued (?:NCCL )?work: (?P<begun>-?\d+), "
    r"last completed (?:NCCL )?work: (?P<done>-?\d+)"
)
_FAILED_RANK = re.compile(r"^\s*rank\s*: (\d+) \(local_rank: \d+\)")
_EXIT_CODE = re.compile(r"^\s*exitcode\s*: (-?\d+)")
_ROOT_CAUSE = re.compile(r"Root Cause \(first observed failure\)")
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):")
_PLACE = re.compile(r'^\s*File "([^"]+)", line (\d+)(?:, in (\S+))?')
_ERROR = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)\b.*)$")
#: what ended a task, as Slurm prints it, and the signal that it was; or as mpiexec does
_TASK = re.compile(r"error: \S+ tasks? (\d+)\S*: (Out Of Memory|Killed|Segmentation fault|Aborted)")
_SIGNALS = {"Out Of Memory": -9, "Killed": -9, "Segmentation fault": -11, "Aborted": -6}
_PROCESS = re.compile(r"noticed that process rank (\d+) .* exited on signal (\d+)")
#: what torchrun's agent says of the first process that ended, by its rank on the node
_LOCAL = re.compile(r"failed \(exitcode: (-?\d+)\) local_rank: (\d+)")
#: what to do about a process that a signal ended
_SIGNAL_ADVICE = {
    -6: (
        "SIGABRT is most often torch's own watchdog, after a collective has timed out: look for "
        "`Watchdog caught` in the log of each rank."
    ),
    -7: (
        "SIGBUS most often means that /dev/shm is full, where loaders and NCCL share memory: give "
        "the container more (`--shm-size`), or take fewer workers."
    ),
    -9: "SIGKILL most often comes from the kernel where memory ran out: `dmesg -T | tail`.",
}
#: errors of a rank that waited in a call of Gloo's, where others did not come
_WAITED = re.compile(r"Timed out waiting|Connection (?:closed|reset) by peer")
#: what a watchdog ended its process with
_TERMINATED = re.compile(r"Rank (\d+)\] .*watchdog thread terminated with exception: (.+)")
_BARRIER = re.compile(r"Ranks? (\d+(?:, ?\d+)*) failed to pass monitoredBarrier in (\d+) ms")
#: a watchdog that a call of CUDA or NCCL has stopped, and one that a timeout made dump
_HALTED = re.compile(r"Rank (\d+)\] ProcessGroupNCCL's watchdog got stuck for (\d+) seconds")
_DUMPS = "Received a dump signal"
#: where a rank called what has timed out, the innermost function first
_FAILED_CALL = "Stack trace of the failed collective:"
_CALL_FRAME = re.compile(r"^\s*#\d+ (\S+) from (\S+):(\d+)\s*$")
#: to how many ranks Gloo has connected one, and of how many
_CONNECTED = re.compile(
    r"\[Gloo\] Rank (\d+) is connected to (\d+) peer ranks\. Expected number of connected peer "
    r"ranks is : (\d+)"
)
#: what NCCL says last, a line behind the error; and which gradients DDP waits for
_LAST_ERROR = "Last error:"
_UNUSED = re.compile(r"Parameter indices which did not receive grad for rank (\d+): ([\d ]+)")
#: a traceback in torchrun's table, and the line that ends it
_TABLE_TRACEBACK = re.compile(r"^\s*traceback\s*: Traceback")
_RULE = re.compile(r"^(?:-{20,}|={20,})$")
#: a rank that does not reach the store, or finds its port taken
_UNREACHED = re.compile(
    r"client socket has timed out after (\d+)ms .* to \(([^,()]{1,200}), (\d+)\)"
)
_TAKEN = re.compile(r"failed to bind to \S*?:(\d+) \(errno: \d+ - Address already in use\)")
#: what TORCH_DISTRIBUTED_DEBUG=DETAIL says of two ranks that meet
_MISMATCH = re.compile(
    r"Rank (\d+) is running collective: CollectiveFingerPrint\(SequenceNumber=(\d+), "
    r"OpType=(\w+)(?:, TensorShape=(\[[\d, ]*\]))?"
)


class WatchedWork(Struct, frozen=True, kw_only=True):
    """A collective that NCCL's watchdog gave up, as one rank tells it; sizes are in elements."""

    number: int
    kind: str
    sizes: tuple[int, int] | None = None
    limit_s: float = 0.0

    @property
    def ranks(self) -> int:
        """How many ranks its group has, where the sizes say so; 0 where they do not."""
        if self.sizes is None or not all(self.sizes) or self.kind not in _GATHER_OR_SCATTER:
            return 0
        more, rest = divmod(max(self.sizes), min(self.sizes))
        return more if not rest else 0


class RankLog(Struct, kw_only=True):
    """What a log says of one rank in one group."""

    works: list[WatchedWork] = field(default_factory=list)
    begun: int | None = None
    done: int | None = None

    @property
    def is_idle(self) -> bool:
        """Whether it has completed all that it has enqueued, and waits in none."""
        return not self.works and self.begun is not None and self.begun == self.done


class JobLog(Struct, kw_only=True):
    """What a log says: of ranks in groups, of errors, ends, stacks, and NCCL's communicators."""

    groups: dict[str, dict[int, RankLog]] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
    #: where each rank raised, of those whose tracebacks are whole
    raised: dict[int, RankStack] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    first_end: int | None = None
    #: the first process of a node that ended: its local rank, and its exit code
    local_end: tuple[int, int] | None = None
    #: seconds for which the watchdog of a rank has made no progress
    halted: dict[int, int] = field(default_factory=dict)
    #: where each rank called what has timed out
    called: dict[int, RankStack] = field(default_factory=dict)
    #: the numbers of parameters whose gradient DDP has waited for
    unused: dict[int, str] = field(default_factory=dict)
    #: what the rank of torchrun's file of an error has raised
    file_error: str = ""
    #: the store that a rank has not reached: its host and port, and for how many seconds
    unreached: tuple[str, int, float] | None = None
    #: a port that another process listens on
    taken: int | None = None
    #: to how many other ranks Gloo has connected a rank, of how many
    connected: dict[int, tuple[int, int]] = field(default_factory=dict)
    stacks: dict[int, RankStack] = field(default_factory=dict)
    communicators: list[dict[str, Any]] = field(default_factory=list)
    #: ranks that did not come to a monitored barrier, with the seconds that others waited
    absent: dict[int, float] = field(default_factory=dict)
    #: the number of a collective in which ranks meet, and what each of them calls
    mismatch: dict[int, tuple[int, str]] = field(default_factory=dict)
    #: whether NCCL lost its connection to a rank: that one has left, or died
    is_peer_lost: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing that is known was in it."""
        others = (self.local_end, self.file_error, self.unreached, self.taken)
        return not (self.ranks or self.communicators or any(others))

    @property
    def ranks(self) -> list[int]:
        """The ranks that are named."""
        found = {*self.errors, *self.ends, *self.stacks, *self.absent, *self.mismatch}
        found |= {*self.halted, *self.connected}
        found |= {rank for own in self.groups.values() for rank in own}
        found |= {rank for each in self.communicators for rank in each["counts"]}
        return sorted(found)


def read_job_log(path: Path) -> JobLog:
    """Return what a log says. Raises ScenarioError where nothing that is known is in it."""
    content = read_bounded(path, MOST_BYTES)
    printed = [each[:MOST_LINE] for each in content.decode("utf-8", "replace").splitlines()]
    lines = [*_join_wrapped(printed)]
    found = JobLog(stacks={**read_faults(lines), **read_stacks(lines)})
    _read_watchdog(lines, found)
    _read_calls(lines, found)
    _read_table(lines, found)
    _read_errors(lines, found)
    _read_ends(lines, found)
    _read_words(lines, found)
    found.communicators = list(_communicators(content, lines))
    found.file_error = _read_error_file(content)
    if found.is_empty:
        words = (
            "nothing that is known is in it: no line of NCCL's watchdog, table of torchrun, stack "
            "of py-spy or faulthandler, error of a rank (`[rank0]: ...`), or JSON of NCCL's RAS"
        )
        raise refusal(path, "bad_record", words)
    return found


def _join_wrapped(lines: Sequence[str]) -> Iterator[str]:
    """Yield lines, those of a work whole that a terminal has wrapped."""
    rest = iter(lines)
    for line in rest:
        whole = line
        for _ in range(MOST_WRAPS):
            begun = whole.rfind("WorkNCCL(")
            if begun < 0 or "ran for" in whole[begun:] or len(whole) > MOST_PREFIX * 5:
                break
            if (after := next(rest, None)) is None:
                break
            if "WorkNCCL(" in after or _WORLD_RANK.search(after):
                yield whole
                whole = after
            else:
                whole += after
        yield whole


def _rank_of(text: str) -> int | None:
    number = int(text[:9])
    return number if number < MOST_RANKS else None


def _read_watchdog(lines: Sequence[str], found: JobLog) -> None:
    names: dict[int, str] = {}
    waiting: list[tuple[int, WatchedWork]] = []
    for line in lines:
        work, done = _WORK.search(line), _DONE.search(line)
        if work is None and done is None:
            continue
        group = _GROUP.search(line)
        world = _WORLD_RANK.search(line)
        rank_of = world[1] if world is not None else group["rank"] if group is not None else None
        rank = None if rank_of is None else _rank_of(rank_of)
        if rank is None:
            continue
        if done is not None and group is not None:
            name = group["name"] or (f"group {group['id']}" if group["id"] else "")
            if _DUMPS not in line:  # it is the default group's, whatever group has timed out
                names.setdefault(rank, name)
            own = found.groups.setdefault(name, {}).setdefault(rank, RankLog())
            own.begun, own.done = int(done["begun"][:12]), int(done["done"][:12])
        if work is not None:
            sizes = (int(work["ins"][:15]), int(work["outs"][:15])) if work["ins"] else None
            waiting.append(
                (
                    rank,
                    WatchedWork(
                        number=int(work["number"][:15]),
                        kind=clean_line(work["kind"][:40]),
                        sizes=sizes,
                        limit_s=int(work["limit"][:12]) / 1000,
                    ),
                )
            )
    named = set(found.groups) - {""}
    only = next(iter(named)) if len(named) == 1 else ""
    for rank, each in waiting:  # the line of a work does not name its group; one after it does
        own = found.groups.setdefault(names.get(rank, only), {}).setdefault(rank, RankLog())
        if each not in own.works:
            own.works.append(each)


def _read_calls(lines: Sequence[str], found: JobLog) -> None:
    """Read where each rank called what has timed out."""
    rank: int | None = None
    frames: list[StackFrame] = []
    for line in [*lines, ""]:
        if rank is not None and (frame := _CALL_FRAME.match(line)):
            name, file = (clean_line(each)[-MOST_NAME:] for each in frame.group(1, 2))
            frames.append(StackFrame(name, file, int(frame[3][:9])))
            continue
        if rank is not None and frames:
            found.called.setdefault(rank, RankStack(rank=rank, frames=(*frames[:MOST_FRAMES],)))
            rank, frames = None, []
        if _FAILED_CALL in line and (world := _WORLD_RANK.search(line)) is not None:
            rank, frames = _rank_of(world[1]), []


def _read_table(lines: Sequence[str], found: JobLog) -> None:
    rank, is_root = None, False
    traceback: list[str] = []
    for line in lines:
        is_root = is_root or _ROOT_CAUSE.search(line) is not None
        named, code = _FAILED_RANK.match(line), _EXIT_CODE.match(line)
        if named is not None:
            rank = _rank_of(named[1])
        elif code is not None and rank is not None:
            found.ends[rank] = int(code[1][:6])
            if is_root and found.first_end is None:
                found.first_end = rank
        elif rank is not None and _TABLE_TRACEBACK.match(line):
            traceback = [line]
        elif traceback and rank is not None and _RULE.match(line):
            if error := _tell_traceback(traceback):
                found.errors.setdefault(rank, error)
            rank, traceback = None, []
        elif traceback:
            traceback.append(line)


def _tell_own(frame: re.Match[str]) -> str:
    """Return the file and line of a frame of a traceback; nothing of one that is not the user's."""
    file, line = frame[1], frame[2]
    is_own = "/torch/" not in file and "/site-packages/" not in file
    return f"{Path(file).name}:{line}" if is_own else ""


def _tell_traceback(lines: Sequence[str]) -> str:
    """Return the error of a traceback, with the innermost line of the user's own files."""
    place = ""
    for line in lines:
        if (frame := _PLACE.match(line)) is not None and (own := _tell_own(frame)):
            place = f" ({own})"
    error = next((each.strip() for each in reversed(lines) if each.strip()), "")
    return clean_line(f"{error[:2000]}{place}") if error else ""


def _read_error_file(content: bytes) -> str:
    """Return what torchrun's file of an error says, where a log is one."""
    try:
        document = decode_json(content) if content.lstrip()[:1] == b"{" else None
    except DocumentError:
        return ""
    given = document.get("message") if isinstance(document, dict) else None
    if not isinstance(given, dict):
        return clean_line(given[:2000]) if isinstance(given, str) else ""
    extra = given.get("extraInfo")
    stack = extra.get("py_callstack") if isinstance(extra, dict) else None
    lines = stack.splitlines() if isinstance(stack, str) else [str(given.get("message", ""))]
    return _tell_traceback([each[:MOST_LINE] for each in lines])


def _read_errors(lines: Sequence[str], found: JobLog) -> None:
    """Read the tracebacks that a rank's prefix stands before; the first of each rank counts."""
    places: dict[int, str] = {}
    frames: dict[int, list[StackFrame]] = {}
    last: set[int] = set()
    for line in lines:
        world = _WORLD_RANK.search(line, 0, MOST_PREFIX)
        rank = None if world is None else _rank_of(world[1])
        if world is None or rank is None:
            continue
        text = line[world.end() :].removeprefix(" ")
        if rank in found.errors:
            _read_last(text, rank, last, found.errors)
            continue
        place = _PLACE.match(text)
        error = _ERROR.match(text)
        if _TRACEBACK.search(text):
            places[rank], frames[rank] = "", []
        elif place is not None and rank in places:
            name, file = (clean_line(each or "") for each in (place[3], place[1]))
            frames[rank].append(StackFrame(name[-MOST_NAME:], file[-MOST_NAME:], int(place[2][:9])))
            places[rank] = _tell_own(place) or places[rank]
        elif error is not None:
            where = f" ({places[rank]})" if places.get(rank) else ""
            found.errors[rank] = clean_line(f"{error[1][:2000]}{where}")
            own = tuple(frames.get(rank, ())[: -MOST_FRAMES - 1 : -1])
            if own:
                found.raised[rank] = RankStack(rank=rank, frames=own)
    if _have_all_waited(found):  # where each raised is where it waited
        found.stacks = {**found.stacks, **found.raised}


def _read_last(text: str, rank: int, last: set[int], errors: dict[int, str]) -> None:
    """Read what NCCL says last of an error: it is a line behind `Last error:`, on `last` ranks."""
    if rank in last and text.strip():
        errors[rank] = _join_last(errors[rank], text)
        last.discard(rank)
    elif text.startswith(_LAST_ERROR):
        last.add(rank)


def _join_last(error: str, text: str) -> str:
    """Return an error with what NCCL says last, before its place."""
    words, bracket, place = error.rpartition(" (")
    if not bracket or ".py:" not in place:
        words, place = error, ""
    return clean_line(f"{words}: {text.strip()[:500]}" + (f" ({place}" if place else ""))


def _have_all_waited(log: JobLog) -> bool:
    """Whether each rank of which a log says anything has waited in a call up to its timeout.

    One may have lost its connection to another, which ended before by its own timeout.
    """
    waits = [_WAITED.search(words) is not None for words in log.errors.values()]
    return (
        len(waits) > 1
        and all(waits)
        and {*log.raised} == {*log.errors}
        and {*log.ends} <= {*log.errors}
        and any("imed out" in words for words in log.errors.values())
    )


def _read_words(lines: Sequence[str], found: JobLog) -> None:
    """Read what torch, Gloo and a watchdog say in a line."""
    for line in lines:
        if (ended := _TERMINATED.search(line)) is not None:
            found.errors.setdefault(int(ended[1][:9]), clean_line(ended[2][:2000]))
        elif (barrier := _BARRIER.search(line)) is not None:
            for absent in barrier[1].split(","):
                found.absent.setdefault(int(absent[:10]), int(barrier[2][:12]) / 1000)
        elif "ncclRemoteError" in line:
            found.is_peer_lost = True
        elif "Detected mismatch between collectives" in line:
            for one, number, kind, shape in _MISMATCH.findall(line):
                words = clean_line(f"{kind[:40]} {shape[:80]}".strip())
                found.mismatch.setdefault(int(one[:9]), (int(number[:12]), words))
        elif (halted := _HALTED.search(line)) is not None:
            found.halted.setdefault(int(halted[1][:9]), int(halted[2][:9]))
        else:
            _read_connections(line, found)


def _read_connections(line: str, found: JobLog) -> None:
    """Read what Gloo, DDP and a store say of who is there."""
    if (joined := _CONNECTED.search(line)) is not None:
        found.connected[int(joined[1][:9])] = (int(joined[2][:9]), int(joined[3][:9]))
    elif (unused := _UNUSED.search(line)) is not None:
        found.unused.setdefault(int(unused[1][:9]), unused[2][:200].strip())
    elif (lost := _UNREACHED.search(line)) is not None:
        found.unreached = (clean_line(lost[2]), int(lost[3][:9]), int(lost[1][:12]) / 1000)
    elif (taken := _TAKEN.search(line)) is not None:
        found.taken = int(taken[1][:9])


def _read_ends(lines: Sequence[str], found: JobLog) -> None:
    """Read what launchers say of a process that has ended: Slurm, mpiexec, torchrun's agent."""
    for line in lines:
        if (task := _TASK.search(line)) is not None:
            rank, code = int(task[1][:9]), _SIGNALS[task[2]]
        elif (process := _PROCESS.search(line)) is not None:
            rank, code = int(process[1][:9]), -int(process[2][:3])
        else:
            local = _LOCAL.search(line)
            if local is not None and found.local_end is None:
                found.local_end = (int(local[2][:9]), int(local[1][:6]))
            continue
        found.ends.setdefault(rank, code)
        found.first_end = rank if found.first_end is None else found.first_end


def _communicators(content: bytes, lines: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield what NCCL's RAS says of each communicator: counts by rank, and who is missing."""
    texts: list[bytes | str] = [content] if content.lstrip()[:1] == b"{" else []
    texts += [each for each in lines if '"communicators"' in each and each.lstrip()[:1] == "{"]
    known = set()
    for text in texts:
        try:
            document = decode_json(text)
        except DocumentError:
            continue
        if repr(document) in known:  # the whole file is one line
            continue
        known.add(repr(document))
        given = document.get("communicators") if isinstance(document, dict) else None
        for each in given if isinstance(given, list) else ():
            if isinstance(each, dict) and isinstance(each.get("ranks"), list):
                yield _communicator(each)


def _communicator(given: Mapping[str, Any]) -> dict[str, Any]:
    counts: dict[int, dict[str, int]] = {}
    for each in given["ranks"]:
        if not isinstance(each, dict) or not _is_rank(each.get("rank")):
            continue
        told = each.get("collective_counts")
        counts[each["rank"]] = {
            clean_line(str(kind)[:40]): number
            for kind, number in (told.items() if isinstance(told, dict) else ())
            if isinstance(number, int)
        }
    missing = given.get("missing_ranks")
    lost = [each.get("rank") if isinstance(each, dict) else each for each in missing or ()]
    return {
        "hash": clean_line(str(given.get("hash", ""))[:40]),
        "counts": counts,
        "missing": [each for each in lost if _is_rank(each)],
    }


def _is_rank(number: object) -> bool:
    return isinstance(number, int) and 0 <= number < MOST_RANKS


def find_in_log(log: JobLog) -> list[Finding]:
    """Return what is wrong, the nearest to the cause first: ends, errors, works, counts, stacks."""
    found = [*_mismatch(log), *_ends(log), *_absent(log), *_works(log), *_counts(log)]
    found += [*_find_halted(log, among=found), *_find_unconnected(log)]
    found += find_in_stacks(log.stacks, parses=False)
    return found or [*_find_lost(log)]


def log_lines(log: JobLog) -> list[str]:
    """Return where the ranks are by the stacks of a log."""
    return [*position_lines(log.stacks), *value_lines(log.stacks)]


_LOST = re.compile(
    r"DistBackendError|DistNetworkError|Connection (?:closed|reset)|NCCL|timed? ?out|"
    r"monitoredBarrier|Detected mismatch between collectives",
    re.IGNORECASE,
)


#: errors, and what to do about each
_ADVICE = (
    (
        re.compile(r"clients joined"),
        (
            "a rank never came: compare WORLD_SIZE, MASTER_ADDR and MASTER_PORT on all nodes; "
            "`scenario doctor` looks at each."
        ),
    ),
    (
        re.compile(r"finished reduction in the prior iteration"),
        (
            "let every rank use all parameters in each forward pass, or pass "
            "`find_unused_parameters=True` to DDP; `scenario record` names the parameters."
        ),
    ),
    (
        re.compile(r"Duplicate GPU detected"),
        (
            "give each rank its own GPU before `init_process_group`: "
            "`torch.cuda.set_device(int(os.environ['LOCAL_RANK']))`."
        ),
    ),
    (
        re.compile(r"illegal memory access|device-side assert"),
        "a kernel of this rank failed before: run with CUDA_LAUNCH_BLOCKING=1 to see which.",
    ),
    (
        re.compile(r"out of memory", re.IGNORECASE),
        "the others wait for this rank: let no rank skip what the others call (a smaller batch).",
    ),
)


def _advice(words: str) -> str:
    """Return what to do about an error; nothing for one of the script's own."""
    return next((advice for pattern, advice in _ADVICE if pattern.search(words)), "")


def _list_places(log: JobLog) -> dict[int, str]:
    """Return the line of the script at which each rank has raised, where its traceback has one."""
    return {
        rank: words.rpartition(" (")[2].removesuffix(")")
        for rank, words in log.errors.items()
        if words.endswith(")") and ".py:" in words.rpartition(" (")[2]
    }


def _mismatch(log: JobLog) -> Iterator[Finding]:
    """Yield which calls of ranks meet in one collective, as torch's DETAIL saw it."""
    if len(log.mismatch) < 2:
        return
    places = _list_places(log)
    notes = [
        Clause(f"rank {rank} is in {words}" + (f" ({places[rank]})" if rank in places else ""))
        for rank, (_, words) in sorted(log.mismatch.items())
    ]
    number = next(iter(log.mismatch.values()))[0]
    one_line = {*log.mismatch} <= {*places} and len({places[rank] for rank in log.mismatch}) == 1
    kinds = {words.partition(" ")[0] for _, words in log.mismatch.values()}
    if len(kinds) == 1:
        code = "shape_mismatch"
        words = f"the ranks pass other shapes to {next(iter(kinds))} in collective {number}"
    else:
        code = "call_mismatch"
        words = f"the ranks meet with different calls in collective {number}"
    fix = (
        "find which way one of the two went before: `scenario record` on the script names the `if` "
        "or the loop."
    )
    if len(kinds) == 1 and one_line:
        place = places[next(iter(log.mismatch))]
        fix = (
            f"give the tensor at {place} the same shape on all ranks: print it there, and look at "
            "what it depends on (a last batch, a rank's own data)."
        )
    yield _make_finding(code, words, sorted(log.mismatch), notes, fix)


def _absent(log: JobLog) -> Iterator[Finding]:
    """Yield which ranks did not come to a monitored barrier."""
    if not log.absent:
        return
    ranks, seconds = sorted(log.absent), max(log.absent.values())
    words = f"{ranks_text(ranks)} did not come to `monitored_barrier` within {seconds:.4g} s"
    fix = (
        f"look at {ranks_text(ranks)}: still at work, in another call, or gone; `scenario hang` on "
        "the machine shows where."
    )
    yield _make_finding("missing_participant", words, ranks, fix=fix)


def _ends(log: JobLog) -> Iterator[Finding]:
    own = {rank: words for rank, words in log.errors.items() if not _LOST.search(words)}
    first = log.first_end
    if log.file_error:
        fix = _advice(log.file_error)
        yield _make_finding(
            "outcome_differs", f"the rank of this file raises {log.file_error}", [], fix=fix
        )
    for rank, words in sorted(own.items(), key=lambda each: (each[0] != first, each[0])):
        fix = _advice(words)
        notes = []
        if rank in log.unused:
            notes = [
                Clause(f"parameters {log.unused[rank]} of DDP have no gradient on rank {rank}")
            ]
        yield _make_finding("outcome_differs", f"rank {rank} raises {words}", [rank], notes, fix)
    if first is not None and first not in own and not _has_cause(log, first):
        code = log.ends[first]
        more = f"; it raised {log.errors[first]}" if first in log.errors else ""
        words = f"rank {first} {_tell_end(code)} before all others{more}"
        yield _make_finding("outcome_differs", words, [first], fix=_SIGNAL_ADVICE.get(code, ""))
    elif first is None and log.local_end is not None and not (log.errors or log.groups):
        local, code = log.local_end
        words = f"the rank with local rank {local} {_tell_end(code)} before all others"
        yield _make_finding("outcome_differs", words, [], fix=_SIGNAL_ADVICE.get(code, ""))


def _tell_end(code: int) -> str:
    return f"dies by {signal_name(-code)}" if code < 0 else f"exits with code {code}"


def _has_cause(log: JobLog, rank: int) -> bool:
    """Whether another finding says why a rank has ended: one that waited, or that torch warned."""
    words = log.errors.get(rank, "")
    return (
        (log.ends[rank] == -6 and any(rank in own for own in log.groups.values()))
        or (len(log.mismatch) > 1 and "Detected mismatch between collectives" in words)
        or (bool(log.absent) and _BARRIER.search(words) is not None)
        or (_WAITED.search(words) is not None and bool(find_in_stacks(log.stacks, parses=False)))
    )


def _find_lost(log: JobLog) -> Iterator[Finding]:
    if log.taken is not None:
        words = f"port {log.taken} is already in use by another process"
        fix = (
            f"end what `ss -ltnp 'sport = :{log.taken}'` shows (a rank of an earlier job), or take "
            "another MASTER_PORT; `torchrun --standalone` takes a free one."
        )
        yield _make_finding("outcome_differs", words, [], fix=fix)
    if log.unreached is not None and not log.errors:
        host, port, seconds = log.unreached
        words = f"a rank has not reached {host}:{port} within {seconds:.4g} s, where the store is"
        fix = (
            "let MASTER_ADDR be the node of rank 0 as the others resolve it, and its port be open; "
            "the process there may have ended: `scenario doctor` looks at each."
        )
        yield _make_finding("missing_participant", words, [], fix=fix)
    for rank, words in sorted(log.errors.items())[:1]:
        fix = _advice(words)
        yield _make_finding("outcome_differs", f"rank {rank} raises {words}", [rank], fix=fix)


def _works(log: JobLog) -> Iterator[Finding]:
    """Yield, for each group, which ranks are behind, by the first collective that each is in."""
    for group, ranks in log.groups.items():
        at = {rank: each.works[0] for rank, each in ranks.items() if each.works}
        for rank, own in ranks.items():
            if not own.is_idle:
                at.setdefault(rank, WatchedWork(number=(own.done or 0) + 1, kind=UNNAMED))
        if not at:
            continue
        where = _name_group(group)
        numbers = {each.number for each in at.values()}
        first = min(numbers)
        behind = sorted(rank for rank, each in at.items() if each.number == first)
        alike: dict[str, list[int]] = {}
        for rank, each in sorted(at.items()):
            size = (
                ""
                if each.sizes is None
                else f", {each.sizes[0]} element{'s' * (each.sizes[0] != 1)} in, "
                f"{each.sizes[1]} out"
            )
            alike.setdefault(f"{each.kind} {each.number}{size}", []).append(rank)
        notes = [
            Clause(f"{ranks_text(who)} {'is' if len(who) == 1 else 'are'} in {words}")
            for words, who in alike.items()
        ]
        places = _list_places(log)
        notes += [Clause(f"rank {r} waits at {places[r]}") for r in sorted(at) if r in places]
        notes += [*_tell_calls(log, sorted(at))]
        kinds = {
            (each.kind, each.sizes)
            for each in at.values()
            if each.number == first and each.kind != UNNAMED
        }
        ahead = at[behind[0]]
        idle = [r for r, own in ranks.items() if own.is_idle and (own.done or 0) < ahead.number]
        if len(numbers) == 1 and idle:
            yield _report_idle(idle, ranks, at, where, notes)
        elif len(numbers) > 1:
            words = (
                f"{ranks_text(behind)} {'is' if len(behind) == 1 else 'are'} behind{where}: in "
                f"{at[behind[0]].kind} {first}, which the others have passed"
            )
            fix = (
                f"find what {ranks_text(behind)} did otherwise before collective {first}{where}: a "
                "collective of its own, or one that it left out. `scenario record --attach` names "
                "the line of the next run, TORCH_FR_BUFFER_SIZE=2000 keeps what a dump needs."
            )
            yield _make_finding("call_mismatch", words, behind, notes, fix)
        elif len(kinds) > 1:
            words = f"the ranks meet with different calls in collective {first}{where}"
            fix = "let every rank make the same calls of a group, of the same sizes."
            yield _make_finding("call_mismatch", words, sorted(at), notes, fix)
        else:
            yield _report_wait(log, group, at, notes)


def _name_group(name: str) -> str:
    return f" of {name}" if name and name != "default_pg" else ""


def _tell_calls(log: JobLog, ranks: Sequence[int]) -> Iterator[Clause]:
    """Say where ranks called what has timed out: the innermost line of the user's own."""
    for rank in ranks:
        stack = log.called.get(rank)
        if stack is not None and (own := [*stack.own, *stack.frames][:1]):
            where = f"{Path(own[0].filename).name}:{own[0].line}, in {own[0].name}"
            yield Clause(f"rank {rank} called it at {where}")


def _report_idle(
    idle: Sequence[int],
    ranks: Mapping[int, RankLog],
    at: Mapping[int, WatchedWork],
    where: str,
    notes: Sequence[Clause],
) -> Finding:
    """Return that ranks have completed all of theirs, and never entered what others wait in."""
    work = next((each for each in at.values() if each.kind != UNNAMED), next(iter(at.values())))
    what = f"{work.kind} {work.number}{where}"
    who = ranks_text(sorted(idle))
    words = f"{who} never entered {what}, where {ranks_text(sorted(at))} wait{'s' * (len(at) == 1)}"
    own = [
        Clause(
            f"rank {rank} has completed all of its {ranks[rank].done} collectives, and is in none"
        )
        for rank in sorted(idle)
    ]
    fix = (
        f"look at {who}: still at work (a checkpoint, an evaluation, a slow batch), past its loop, "
        "or in another group; `scenario hang` on its machine shows where it is."
    )
    return _make_finding("missing_participant", words, sorted(idle), [*notes, *own], fix)


def _find_halted(log: JobLog, among: Sequence[Finding]) -> Iterator[Finding]:
    """Yield that watchdogs make no progress, where nothing else says what hangs."""
    if not log.halted or among:
        return
    fix = (
        "a call of CUDA or NCCL hangs on these ranks, or a thread holds the GIL inside of one: "
        "`scenario hang` on their machines shows the stacks, `py-spy dump --native` those of C++."
    )
    yield _make_finding("missing_participant", _tell_halted(log), sorted(log.halted), fix=fix)


def _tell_halted(log: JobLog) -> str:
    ranks, seconds = sorted(log.halted), max(log.halted.values())
    if len(ranks) == 1:
        return f"the watchdog of rank {ranks[0]} has made no progress for {seconds} s"
    return f"the watchdogs of {ranks_text(ranks)} have made no progress for {seconds} s"


def _find_unconnected(log: JobLog) -> Iterator[Finding]:
    """Yield the ranks that Gloo has connected to fewer others than there are."""
    few = {rank: each for rank, each in log.connected.items() if each[0] < each[1]}
    for rank, (peers, expected) in sorted(few.items())[:1]:
        words = f"rank {rank} is connected to {peers} of {expected} other ranks"
        fix = (
            "Gloo connects every rank to every other one: let each machine reach the address that "
            "the others publish (GLOO_SOCKET_IFNAME names the interface), and open its ports."
        )
        yield _make_finding("missing_participant", words, sorted(few), fix=fix)


def _report_wait(
    log: JobLog, group: str, at: Mapping[int, WatchedWork], notes: Sequence[Clause]
) -> Finding:
    """Return that ranks wait in one collective, and which of those that the log names do not."""
    where = _name_group(group)
    work = next((each for each in at.values() if each.kind != UNNAMED), next(iter(at.values())))
    what = f"{work.kind} {work.number}"
    named = max(log.ranks) + 1
    silent = [rank for rank in range(named) if rank not in at]
    words = f"{ranks_text(sorted(at))} wait{'s' * (len(at) == 1)} in {what}{where}"
    if log.halted:
        notes = [*notes, Clause(f"{_tell_halted(log)}: a call of CUDA or NCCL hangs there")]
    if work.ranks not in {0, named, len(at)}:  # which others its group has is not known
        silent = []
        words += f"; of {work.ranks - len(at)} more of its {work.ranks} ranks the watchdog says "
        words += "nothing"
        fix = (
            f"look at the other ranks of the group: one that never came to {what}, died or is "
            "slow; `scenario hang` on its machine shows where it is."
        )
    elif silent and work.ranks != len(at):
        words += f"; of {ranks_text(silent)} the watchdog says nothing"
        gone = [rank for rank in silent if rank in log.errors or rank in log.ends]
        first = gone or sorted(log.halted)
        who = ranks_text(first or silent) + " first" * bool(first)
        fix = (
            f"look at {who}: one that never came to {what}, died or is slow; `scenario hang` on "
            "its machine shows where it is."
        )
    elif log.is_peer_lost or len(at) == 1:
        lost = "NCCL lost its connection to another rank, " if log.is_peer_lost else ""
        words += f"; {lost}{'of which' if lost else 'of other ranks'} the log says nothing"
        fix = (
            f"look for a rank that left or died before {what}, or never entered "
            "it: its own log, its exit code; `scenario record --attach` names the line of the next "
            "run."
        )
    elif work.ranks:
        silent = []
        fix = (
            f"all {work.ranks} ranks of the group came to {what} with the same sizes: look at the "
            "network and the devices, or for a device that still computes what was before."
        )
    else:
        fix = (
            f"all ranks that the log names came to {what} with the same sizes: "
            "look for one that it does not name, at the network and the devices, or at a device "
            "that still computes what was before."
        )
    return _make_finding("missing_participant", words, silent or sorted(at), notes, fix)


def _counts(log: JobLog) -> Iterator[Finding]:
    for each in log.communicators:
        name = f" of communicator {each['hash']}" if each["hash"] else ""
        if each["missing"]:
            words = f"{ranks_text(each['missing'])} of NCCL's communicator cannot be reached"
            fix = "look at their processes and machines: NCCL's RAS lost its connection to them."
            yield _make_finding("missing_participant", words, each["missing"], fix=fix)
        kinds = sorted({kind for own in each["counts"].values() for kind in own})
        for kind in kinds:
            alike: dict[int, list[int]] = {}
            for rank, own in sorted(each["counts"].items()):
                alike.setdefault(own.get(kind, 0), []).append(rank)
            if len(alike) < 2:
                continue
            behind = alike[min(alike)]
            notes = [Clause(f"{ranks_text(who)}: {n} times") for n, who in sorted(alike.items())]
            words = f"{ranks_text(behind)} called {kind}{name} less often than the others"
            fix = f"find the {kind} that is missing on {ranks_text(behind)}."
            yield _make_finding("call_mismatch", words, behind, notes, fix)


def _make_finding(
    code: str, words: str, ranks: Sequence[int], notes: Sequence[Clause] = (), fix: str = ""
) -> Finding:
    return Finding(
        witness="program",
        code=code,
        prose=words,
        notes=tuple(notes),
        ranks=tuple(ranks),
        fix=fix or None,
    )
