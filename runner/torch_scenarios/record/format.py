"""The record of a program: a folder with a file a rank, append-only, a JSON document a line.

A line is complete or the last one; a torn last line is not wrong, because a rank may be killed at
any moment. So may zeros behind the last line: room that a rank which was killed had for more.
Version 2, in microseconds since the file was opened::

    {"scenario_record": 2, "rank": 0, "world_size": 4, "mode": "live", ...}     the first line
    ["s", number, api, [[file, line, text], ...]]      a place in the user's own files
    ["s", number, api, [...], "accelerate/x.py:7"]     the same, with the line of a framework
    ["g", number, name, ranks, description, backend]   a process group, at first sight
    ["k", kind, operation, group, place, thread, maker, [in], [out], {...}, 0 or 1]
                                                       what calls have in common
    ["c", number, kind, us]                            a call begins
    ["c", number, kind, us, batch, place]              a message of a `batch_isend_irecv` begins,
                                                       which a `P2POp` of that place is
    ["n", number, name]                                what it carries: a unit, a parameter
    ["r", number, us]                                  it has returned
    ["e", number, us, words]                           it, or its wait, has raised
    ["w", number, us]  ["x", number, us]               its work is waited for; the wait is over
    ["w", number, us, ms, place]                       that wait passes a timeout
    ["f", number, us]                                  its work was asked for in another way
    ["d", number]                                      its work was dropped
    ["p", number, group rank]                          who sent what a receive from anyone took
    ["bw", us]                                         a backward pass has returned
    ["b", number, what, place, us, {...}]              another call that may block begins
    ["be", number, us, {...}, words or null]           and ends
    ["v", number, kind, file, line, text, [names]]     a place that decides: if, while, for, except;
                                                       or that gives a call a number (given), or
                                                       logs by names (logs), or sets a value (value)
    ["t", [[number, yes, no, [values]], ...]]          which ways were gone since the last call
    ["y", number, words, [[file, line, text], ...]]    an error that a place caught since then
    ["a", what, path, place]                           it writes, removes, renames or makes a file,
                                                       finds, misses or reads one; or it sets, or
                                                       awaits, a key of the job's store, or it
                                                       kills a process: `SIGKILL to 4711`
    ["a", "removes", path, place, us]                  a file is removed, and when
    ["l", name, words, [[file, line, text], ...]]      an error ended a thread, or a pool's task
    ["share", words, [[file, line, text], ...]]        an error that torch's checkpoints catch, and
                                                       raise on every rank
    ["j", thread, us, 0 or 1]                          when it was handed what it runs, before a new
                                                       kind; 1: the main thread waits then
    ["i", place, {argument: value}]                    it wraps a model by DDP
    ["q", us]                                          kernels since the last line, on a GPU
    ["kernel", kind]                                   the first kernel of a kind of which no step
                                                       was compared: `convolution`
    ["o", stream]                                      the stream that is current from here on
    ["m", event, stream]  ["u", stream, event]         an event is on a stream; one waits for it
    ["h", place, 0 or 1]                               the host waits for its current stream; 1: all
    ["h"]                                              the same, of older records
    ["z", {kind: bytes}, 0 or 1]                       the most that was held; 1: a step ended
    ["raise", words, [[file, line, text], ...], us]    what ended the program
    ["exit", [[file, line, text], ...]]                where it left by `sys.exit`
    ["stay", name, [[file, line, text], ...]]          a thread that it waits for at its end, and
                                                       where that was started
    ["turns", [[file, line, text], ...], 0 or 1]       a loop that it is in, and never leaves; 1:
                                                       unless what it draws at random ends it
    ["back"]                                           what is run in place of `mp.spawn` is over:
                                                       what follows is the parent's
    ["end", code, us]                                  its end

The first `init_process_group` says what it is called with (`"init": {"rank": 0, ...}`): a rank is
recorded as what it says there.

A kind that ends with 1 is waited for at once: such a call has `c`, and `x` once that wait is over.
Any other one has `r` where it returns, and `w` and `x` around a wait.

A tensor is `[dtype, shape, address, bytes]`, with how many there are where a list has many alike.
Messages of one `batch_isend_irecv` have the number of that batch on their rank, and the place of
their `P2POp` where it is known. A call that is made while an error is handled, as in a `finally`,
has its words and places (`"handled": [words, [[file, line, text], ...]]`).

In version 1 a call says all of itself, the number of a batch too, and has always `r`::

    ["c", number, operation, group, place, us, thread, maker, [in], [out], {..., "batch": 3}]

Nothing in a record is opened or evaluated.

Beside the ranks, `launch.jsonl` holds what the parent of their processes saw: ours, or torchrun::

    {"launch": 1, "pid": ..., "launcher": "torchrun", ...}     who starts them; ours has no name
    {"rank": 0, "pid": ...}                            a rank starts
    {"rank": 0, "pid": ..., "stopped": true}           the launcher ends it
    {"rank": 0, "pid": ..., "exit": -9}                it has ended: its code, or minus its signal
    {"outside": [1, ...]}                              fake ranks that wait outside of any call
    {"forked": 1, "at": [[file, line, text], ...]}     a process that a rank forked makes a call
    {"joined": 1, "program": "a.py", "at": [...]}      a program that a rank started joins as it
    {"ended": true}                                    from here on, it is we who end them
"""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from math import inf
from pathlib import Path
from typing import Any, BinaryIO

from msgspec import Struct, field
from msgspec.structs import replace

from torch_scenarios.display import clean_line
from torch_scenarios.errors import Problem, ScenarioError
from torch_scenarios.files import open_regular, read_open
from torch_scenarios.operations import C10D
from torch_scenarios.record.evidence.frame import Maker
from torch_scenarios.record.evidence.notes.assignment import SETS
from torch_scenarios.record.mapped_file import EARLIER
from torch_scenarios.source.documents import DocumentError, decode_json, police, read_document

VERSION = 2
#: kernels of which no step was compared with a measurement: torch's names have this in them
CONVOLUTION = "convolution"
#: bytes of a record's file that are read
MOST_BYTES = 1 << 30
#: ranks of a record, and tensors of a list
MOST_RANKS = 65_536
#: calls of all ranks together, and of one
MOST_CALLS = 4_000_000
#: ways and caught errors of a rank that are kept, the latest
MOST_WAYS, MOST_CAUGHT = 1_000_000, 10_000
#: lines of streams and kernels
MOST_LANES = 4_000_000
#: characters of a file's name, of a word or a line of a script
MOST_CHARACTERS = 512
#: characters of an error, whose end may say which parameters it is about
MOST_OF_AN_ERROR = 5000
#: callers that a place is shown with; more of them are known
MOST_CALLERS = 2
#: dimensions of a tensor, elements of one
MOST_DIMENSIONS, MOST_ELEMENTS = 64, 1 << 62

#: what a line that is not one of a record makes of its reader
BROKEN = (
    TypeError,
    ValueError,
    KeyError,
    IndexError,
    AttributeError,
    OverflowError,
    RecursionError,
)

#: the call of Python's that creates a group
CREATION = "new_group"
#: the call of Python's that waits until every rank has come
RENDEZVOUS = "init_process_group"
#: several messages that a rank begins together
BATCH = "batch_isend_irecv"
#: what a backend raises on a rank because another one has gone
_PEER_GONE = re.compile(
    r"gloo/transport/|ncclRemoteError|Connection (closed|reset) by peer|Broken pipe|Socket Timeout"
)
#: what a signal's handler of a DataLoader raises, wherever its rank is, and also within a call
_WORKER_DIED = re.compile(r"DataLoader worker .*(?:killed by signal|exited unexpectedly)")
#: what DDP raises because of the model that a rank has, or the part of it that has a gradient
_MODEL = re.compile(
    r"to have finished reduction in the prior iteration|expects same model across|"
    r"appears not to match|marked as ready twice|training graph has changed in this iteration"
)
#: where Gloo's words about a lost rank name no place of the user's: an address, and advice
_ADDRESS = re.compile(r" \[[^\]\s]*\]:\d+")
_ADVICE = re.compile(r"[.:]? This is typically caused by .*")
#: messages that a rank sends
_SENDS = frozenset({"send"})
#: operations whose work may be waited for once
MESSAGES = frozenset({"send", "recv"})


class Tensor(Struct, frozen=True, kw_only=True):
    """A tensor that a call passes: its place in memory and its size are in bytes."""

    dtype: str
    shape: tuple[int, ...]
    address: int = 0
    size: int = 0
    #: how many alike a list has
    count: int = 1

    @property
    def elements(self) -> int:
        """The number of elements of one."""
        found = 1
        for each in self.shape:
            found *= each
        return found


#: a line that gives a value a name, as a variable or an attribute
_ASSIGNED = re.compile(r"(?:self\.|cls\.)?([A-Za-z_]\w*)\s*(?::[^=]+)?=[^=]")


class ScriptPlace(Struct, frozen=True, kw_only=True):
    """Where a call stands in the user's own files: the innermost frame first."""

    frames: tuple[tuple[str, int, str], ...] = ()
    api: str = ""
    #: the innermost line of a framework between it and the call: `accelerate/accelerator.py:2410`
    via: str = ""

    @property
    def variable(self) -> str:
        """The variable or attribute that its line assigns to; empty where it assigns to none."""
        found = _ASSIGNED.match(self.frames[0][2]) if self.frames else None
        return found[1] if found is not None else ""

    def short(self, folder: str = "") -> str:
        """Return `train.py:19`, with the function of torch and the callers where they say more."""
        if not self.frames:
            return ""
        file, line, _ = self.frames[0]
        words = f"{_relative(file, folder)}:{line}"
        if "object" in self.api or "batch" in self.api:
            words += f" in {self.api}"
        if self.via:
            words += f" in {self.via}"
        callers = [
            f":{at}" if each == file else f"{_relative(each, folder)}:{at}"
            for each, at, _ in self.frames[1:]
            if (each, at) != (file, line)
        ]
        shown = [*dict.fromkeys(callers)][:MOST_CALLERS]
        return f"{words} called from {', '.join(shown)}" if shown else words


def _relative(file: str, folder: str) -> str:
    path = Path(file)
    if folder and path.is_relative_to(folder):
        inside = path.relative_to(folder)
        return str(inside) if len(inside.parts) <= 2 else path.name
    return path.name


class RecordedCall(Struct, kw_only=True):
    """One call that communicates, as a rank made it.

    `operation` is torch's public name, `group` the ranks of its group in order. `peer` and `root`
    are global ranks; None where the call has no peer, and for a receive from anyone. `completes`
    says that the call itself, or the wait right after it, is complete when it returns.
    """

    number: int
    operation: str
    group: tuple[int, ...]
    group_name: str
    place: ScriptPlace
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    op: str | None = None
    root: int | None = None
    peer: int | None = None
    tag: int = 0
    splits: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    maker: str = Maker.PYTHON
    coalesced: bool = False
    completes: bool = False
    began_us: int = 0
    returned_us: int | None = None
    ended_us: int | None = None
    waited: bool = False
    #: waited for at an unknown place: by torch's own code, or by another thread
    loose: bool = False
    thread: int = 0
    dropped: bool = False
    failed: str | None = None
    #: the error that is handled while it is made, and where that was raised
    handled: tuple[str, ScriptPlace] | None = None
    #: what it carries, by the model's names: `the unit layers.3`, `the gradient of head.weight`
    carries: str = ""
    #: the timeout that it passes, in seconds; None where its group's counts
    timeout_s: float | None = None
    #: where a wait for it passes that timeout, and not the call
    limited_at: ScriptPlace = ScriptPlace()
    #: the number on its rank of the `batch_isend_irecv` that it is in, where the script calls that
    batch: int | None = None
    #: where the `P2POp` is made that such a message is
    made_at: ScriptPlace = ScriptPlace()

    @property
    def choice_frames(self) -> tuple[tuple[str, int, str], ...]:
        """The frames of the line that decides on it: of a batch, where its message is made."""
        return self.made_at.frames or self.place.frames

    @property
    def dtype(self) -> str | None:
        """The dtype of what it moves; None for a barrier."""
        tensors = self.inputs or self.outputs
        return tensors[0].dtype if tensors else None

    @property
    def elements(self) -> int:
        """How many elements it passes in, or takes."""
        return sum(each.elements * each.count for each in self.inputs or self.outputs)


class RecordedWait(Struct, frozen=True, kw_only=True):
    """A rank waits for the work of calls, by their numbers."""

    numbers: tuple[int, ...]
    place: ScriptPlace = ScriptPlace()
    began_us: int = 0


class BlockingCall(Struct, kw_only=True):
    """Another call that may block: `new_group`, `init_process_group`, `destroy_process_group`."""

    number: int
    what: str
    place: ScriptPlace
    ranks: tuple[int, ...] | None = None
    local: bool = False
    group: int | None = None
    thread: int = 0
    began_us: int = 0
    over: bool = False
    failed: str | None = None
    #: the timeout that it passes, in seconds
    timeout_s: float | None = None


class Decision(Struct, frozen=True, kw_only=True):
    """A place of the script that decides: an `if`, a loop, an `except`."""

    kind: str
    file: str
    line: int
    text: str
    names: tuple[str, ...] = ()


class BranchTaken(Struct, frozen=True, kw_only=True):
    """Which way a rank went at a place before it came to an item of its record.

    `yes` and `no` say how often, `values` what the place read last, as Python writes it.
    """

    before: int
    decision: Decision
    yes: int = 0
    no: int = 0
    values: tuple[str | None, ...] = ()


class SetValue(Struct, frozen=True, kw_only=True):
    """What a line of the script set a name or an attribute to, before an item of its record.

    The place has the name and the function, or class, that it is of. A value that stays the same
    is there once.
    """

    before: int
    #: it is behind as many decisions and values of its rank
    order: int
    place: Decision
    words: tuple[str, ...]


class CaughtError(Struct, frozen=True, kw_only=True):
    """An error that the script caught before an item of its record, and where it was raised."""

    before: int
    decision: Decision
    words: str
    raised_at: ScriptPlace = ScriptPlace()


class FileChange(Struct, frozen=True, kw_only=True):
    """What a rank does to a file, or to a key of the job's store, before an item of its record.

    It `writes`, `removes`, `renames` or `makes` a file, it `finds`, `misses` or `reads` one; it
    `sets` or `awaits` a key. It `kills` a process: `SIGKILL to 4711`.
    """

    before: int
    what: str
    path: str
    place: ScriptPlace = ScriptPlace()


class LostThread(Struct, frozen=True, kw_only=True):
    """A thread of a rank that died of an error before an item of its record, and where."""

    before: int
    name: str
    words: str
    raised_at: ScriptPlace = ScriptPlace()


class SharedError(Struct, frozen=True, kw_only=True):
    """An error of a rank that `torch.distributed.checkpoint` raises on every rank, and where."""

    words: str
    raised_at: ScriptPlace = ScriptPlace()


class StayingThread(Struct, frozen=True, kw_only=True):
    """A thread that is no daemon, for which a rank waits when its program is over."""

    name: str
    started_at: ScriptPlace = ScriptPlace()


class JoinedProgram(Struct, frozen=True, kw_only=True):
    """A program that a rank started, and where it joins the job in the rank's place."""

    command: str
    place: ScriptPlace = ScriptPlace()


class WrappedModel(Struct, frozen=True, kw_only=True):
    """A model that a rank wraps by DDP, with the arguments that are numbers or flags."""

    options: Mapping[str, float]
    place: ScriptPlace = ScriptPlace()


class StrayMessage(Struct, frozen=True, kw_only=True):
    """A call that names a number which no rank of its group has: of a message, or as the root."""

    operation: str
    peer: int
    group: tuple[int, ...]
    place: ScriptPlace = ScriptPlace()

    @property
    def is_sent(self) -> bool:
        """Whether the rank sends it."""
        return self.operation in _SENDS

    @property
    def is_message(self) -> bool:
        """Whether it is a message, and no collective whose root is named."""
        return self.operation in MESSAGES


class RecordedKernels(Struct, frozen=True, kw_only=True):
    """Kernels of a rank that take so many microseconds together, as they are reckoned.

    `host_us` is what its host takes to start them. It waits for them then where it `synchronizes`.
    """

    us: float
    host_us: float = 0.0
    place: ScriptPlace = ScriptPlace()
    synchronizes: bool = False


class LaneEvent(Struct, frozen=True, kw_only=True):
    """What became of the streams of a rank before an item of its record.

    `kind` is `kernels` (of `us`, which its host takes `host_us` to start), `on` (`lane` is
    current), `mark` and `await` (an event), `host` (it waits at a `place`, for `all` streams or
    the current one), `step` (of an optimizer, which ends).
    """

    before: int
    kind: str
    us: float = 0.0
    host_us: float = 0.0
    lane: int = 0
    mark: int = 0
    place: ScriptPlace = ScriptPlace()
    all: bool = False


class RankRecord(Struct, kw_only=True):
    """What one rank did, in order, and how it ended.

    `ending` is `ended` (with its exit `code`), `raised`, or `stopped`: the record ends, and the
    program went on, or was killed. `inside` tells whether the rank is inside of a call at the end.
    """

    rank: int
    world_size: int
    about: Mapping[str, Any] = field(default_factory=dict)
    items: list[RecordedCall | RecordedWait | RecordedKernels | BlockingCall] = field(
        default_factory=list
    )
    #: what became of its streams, where its kernels were reckoned
    lanes: list[LaneEvent] = field(default_factory=list)
    #: the most bytes that it held at once in its last steps, by kind
    held: dict[str, int] = field(default_factory=dict)
    #: the kinds of its kernels of which no forecast was compared with a measurement
    kernel_kinds: list[str] = field(default_factory=list)
    groups: dict[int, tuple[str, tuple[int, ...], str]] = field(default_factory=dict)
    ending: str = "stopped"
    code: int | None = None
    error: str | None = None
    #: the signal that ended its process, where it was not ended by us
    died: str | None = None
    raised_at: ScriptPlace = ScriptPlace()
    #: where its Python was when a signal killed it, as far as it could write that down
    killed_at: ScriptPlace = ScriptPlace()
    #: where its Python was when its launcher ended it, with its innermost line of any code
    ended_at: ScriptPlace = ScriptPlace()
    #: where it left by `sys.exit`
    left_at: ScriptPlace = ScriptPlace()
    #: whether it says at its first group which rank it is
    claimed: bool = False
    #: the timeout that it passes there, in seconds; None for torch's own
    timeout_s: float | None = None
    #: the error that is handled while its last call is made, and where it was raised
    handled: tuple[str, ScriptPlace] | None = None
    inside: bool = False
    #: what C++ has begun in a backward pass that has not returned, and waits for at its end
    backward: list[RecordedCall] = field(default_factory=list)
    #: whether a group of it has a backend like NCCL: a call returns at once, and the device waits
    on_device: bool = False
    #: which ways its script went, and the errors that it caught, in order
    ways: list[BranchTaken] = field(default_factory=list)
    #: what its lines set, in order
    values: list[SetValue] = field(default_factory=list)
    caught: list[CaughtError] = field(default_factory=list)
    #: what it did to files, the threads that it lost, its messages to ranks that are not there
    changes: list[FileChange] = field(default_factory=list)
    lost: list[LostThread] = field(default_factory=list)
    shared: list[SharedError] = field(default_factory=list)
    staying: list[StayingThread] = field(default_factory=list)
    #: where it is in a loop that it never leaves
    turns_at: ScriptPlace = ScriptPlace()
    #: whether what it draws at random there may end it
    turns_by_chance: bool = False
    strays: list[StrayMessage] = field(default_factory=list)
    #: the models that it wraps by DDP, in order
    wrapped_models: list[WrappedModel] = field(default_factory=list)
    #: the buffers of the models that it wraps by DDP, by name, before they are broadcast
    buffers: list[tuple[ScriptPlace, dict[str, tuple[int, ...]]]] = field(default_factory=list)
    #: the arguments by which it shards each unit of FSDP, in words
    units: dict[str, dict[str, str]] = field(default_factory=dict)
    #: the timeouts of groups that it made with one, in seconds
    timeouts: dict[int, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    #: two lines of one group whose threads do not wait for each other, in words
    racing: str = ""
    #: the group of these, or of threads of which the main one waits for the other later
    racing_group: str = ""
    #: whether calls before the first one that is known are missing
    wrapped: bool = False
    #: whether several threads call, and whether the one that made the first group is inside of one
    threaded: bool = False
    main_inside: bool = False
    #: whether it is in `destroy_process_group` of the world: it calls nothing more in its groups
    leaving: bool = False
    #: whether a fake rank is past what the script has started as a rank, and does its parent's part
    returned: bool = False
    last_us: int = 0

    @property
    def calls(self) -> list[RecordedCall]:
        """The calls that communicate, in order."""
        return [each for each in self.items if isinstance(each, RecordedCall)]

    @property
    def truncated(self) -> bool:
        """Whether the program goes on beyond the record."""
        return self.ending == "stopped" and not (self.leaving or self.returned)


class LaunchRecord(Struct, kw_only=True):
    """What the parent of the ranks saw: their processes, and how those ended, by rank.

    `exits` has the exit code, or minus the signal; `stopped` the ranks that the launcher ended.
    What ends because we end the run is in neither. `outside` has the fake ranks that wait outside
    of any call for what never comes. `launcher` is empty where we started the ranks.
    """

    pids: dict[int, int] = field(default_factory=dict)
    exits: dict[int, int] = field(default_factory=dict)
    stopped: set[int] = field(default_factory=set)
    outside: tuple[int, ...] = ()
    launcher: str = ""
    #: where processes that ranks forked made calls of their own, by rank
    forked: dict[int, ScriptPlace] = field(default_factory=dict)
    #: programs that ranks started and that joined the job in their place, by rank
    joined: dict[int, JoinedProgram] = field(default_factory=dict)


#: the file of what the parent of the ranks saw
LAUNCH = "launch.jsonl"


def read_launch(folder: Path) -> LaunchRecord:
    """Return what the parent of the ranks saw; nothing where none wrote it down.

    Raises ScenarioError where the file is not of a record.
    """
    found = LaunchRecord()
    path = folder / LAUNCH
    if not path.exists():
        return found
    over = False
    for number, entry in enumerate(lines_of(path), 1):
        try:
            over = "ended" in entry or (over and "launch" not in entry)
            found.launcher = _show(entry.get("launcher", found.launcher))
            _take_process(found, entry)
            if "outside" in entry:
                found.outside = tuple(map(_read_count, entry["outside"][:MOST_RANKS]))
            if "rank" not in entry:
                continue
            rank, pid = _read_count(entry["rank"]), _read_count(entry.get("pid", 0))
            if found.pids.get(rank) != pid:  # torchrun starts a rank again
                found.exits.pop(rank, None)
                found.stopped.discard(rank)
            found.pids[rank] = pid
            if "exit" in entry and not over:
                found.exits[rank] = _number(entry["exit"])
            if entry.get("stopped") and not over:
                found.stopped.add(rank)
        except BROKEN:
            raise refusal(path, "bad_record", f"line {number} is not a line of a launch") from None
    return found


def _take_process(found: LaunchRecord, entry: dict[str, Any]) -> None:
    """Take what a process says that is no rank, and that a rank has forked or started."""
    if "forked" in entry:
        place = ScriptPlace(frames=script_frames(entry["at"]))
        found.forked.setdefault(_read_count(entry["forked"]), place)
    if "joined" in entry:
        program = JoinedProgram(
            command=_show(entry["program"]),
            place=ScriptPlace(frames=script_frames(entry["at"])),
        )
        found.joined.setdefault(_read_count(entry["joined"]), program)


def know_exits(records: Mapping[int, RankRecord], launch: LaunchRecord) -> None:
    """Let the records of ranks know how their processes ended, where no launcher ended them."""
    by_process = {each.about.get("pid"): each for each in records.values()}
    for rank, code in launch.exits.items():
        record = by_process.get(launch.pids[rank])
        if record is None:
            continue
        if not code or rank in launch.stopped or record.error is not None:
            continue
        if code < 0:
            record.died = signal_name(-code)
        elif record.ending == "ended" or not record.inside:
            record.ending, record.code = "ended", code
        else:
            record.died = f"exit code {code}"


def ranks_of_processes(records: Mapping[int, RankRecord], launch: LaunchRecord) -> dict[int, int]:
    """Return, for each rank that was started, the rank as which its process is recorded."""
    by_process = {each.about.get("pid"): rank for rank, each in records.items()}
    return {rank: by_process.get(pid, rank) for rank, pid in launch.pids.items()}


def signal_name(number: int) -> str:
    """Return `SIGKILL` for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def names_lost_peer(words: str) -> bool:
    """Whether an error is a backend's about a rank that is gone."""
    return _PEER_GONE.search(words) is not None


def names_dead_worker(words: str) -> bool:
    """Whether an error is a DataLoader's about a worker that has died."""
    return _WORKER_DIED.search(words) is not None


def names_model(words: str) -> bool:
    """Whether an error is one of DDP's about a model that differs between ranks or steps."""
    return _MODEL.search(words) is not None


def normalise_lost_peer(words: str) -> str:
    """Return a backend's error about a rank that is gone, the same on all ranks that saw it."""
    if not names_lost_peer(words):
        return words
    return _ADDRESS.sub("", _ADVICE.sub("", words))


def refusal(path: Path, code: str, words: str) -> ScenarioError:
    """Return the error that a file is no record, or none that this program reads."""
    return ScenarioError([Problem(code=code, message=f"{path}: {words}")])


def read_bounded(path: Path, most: int) -> bytes:
    """Return the bytes of a file beside a record, at most `most`. Raises ScenarioError."""
    try:
        return read_document(path, most=most)
    except OSError as error:
        raise refusal(path, "bad_record", f"it cannot be read: {error.strerror}") from None
    except DocumentError as error:
        raise refusal(path, "bad_record", f"it cannot be read: {error}") from None


def is_record(folder: Path) -> bool:
    """Whether a folder holds a record of ours."""
    return any(folder.glob("rank-*.jsonl"))


def read_starts(folder: Path) -> dict[int, RankRecord]:
    """Return the records of ranks that never met, by the rank that they were started as.

    They may be of different worlds; of two processes that say they are one rank, one is returned.
    """
    found: dict[int, RankRecord] = {}
    for path in sorted(folder.glob("rank-*.jsonl")):
        if _has_begun(path):
            record = read_file(path)
            record.rank = int(record.about["rank"])
            found.setdefault(record.rank, record)
    size = max((*(each.world_size for each in found.values()), *(rank + 1 for rank in found)))
    for record in found.values():
        record.world_size = size
    return found


def set_earlier_aside(folder: Path) -> None:
    """Rename the records of earlier launches of a job that was started anew, and keep the newest.

    A rank that has not come so far as to write its own again is unknown in that launch.
    """
    begun = {
        path: read_file(path).about for path in folder.glob("rank-*.jsonl") if _has_begun(path)
    }
    newest = max(begun.values(), key=lambda about: float(about.get("time", 0.0)), default={})
    for path, about in begun.items():
        if about.get("launch") != newest.get("launch"):
            path.rename(path.with_name(f"{EARLIER}{path.name}"))


def read(folder: Path) -> dict[int, RankRecord]:
    """Return the records of a folder by rank. Raises ScenarioError where a file is not a record.

    A file whose first line is not whole yet is passed over: nothing is known of that rank.
    """
    found: dict[int, RankRecord] = {}
    files: dict[int, Path] = {}
    calls = 0
    for path in sorted(folder.glob("rank-*.jsonl")):
        if not _has_begun(path):
            continue
        record = read_file(path)
        _require_same_launch(record, path, found, files)
        found[record.rank], files[record.rank] = record, path
        calls += len(record.items)
        if calls > MOST_CALLS:
            raise refusal(folder, "bad_record", f"it has more than {MOST_CALLS} calls")
    if not found:
        raise refusal(folder, "bad_record", "no record of a rank is in this folder")
    _know_shared(found)
    return found


#: how the error begins that `torch.distributed.checkpoint` raises on every rank
_SHARED = "CheckpointException"
#: and what ranks raise whose own error it is not
NOT_OWN = f"{_SHARED}: the error of rank "


def _know_shared(records: Mapping[int, RankRecord]) -> None:
    """Let a rank whose error was raised on every rank have that, and the others tell whose it is.

    The words of what they raise hold a traceback of another process, and not where it came from.
    """
    own = {rank: record.shared[-1] for rank, record in records.items() if record.shared}
    for rank, record in records.items() if own else ():
        if not (record.error or "").startswith(_SHARED):
            continue
        if rank in own:
            record.error, record.raised_at = own[rank].words, own[rank].raised_at
        else:
            ranks = " and ".join(map(str, own))
            record.error = f"{NOT_OWN}{ranks}, which a checkpoint raises on every rank"


def _has_begun(path: Path) -> bool:
    """Whether the first line of a file is there. Raises ScenarioError where it cannot be read."""
    try:
        opened = open_regular(path)
        try:
            return b"\n" in read_open(opened, 1 << 16)
        finally:
            os.close(opened)
    except OSError as error:
        raise refusal(path, "bad_record", f"it cannot be read: {error.strerror}") from None


def _require_same_launch(
    record: RankRecord, path: Path, found: Mapping[int, RankRecord], files: Mapping[int, Path]
) -> None:
    """Raise ScenarioError where two files are of different launches."""
    other = next(iter(found), None)
    if record.rank in found:
        words = f"rank {record.rank} is recorded twice, in {path.name} and in "
        words += f"{files[record.rank].name}: they are of two launches; keep the files of one"
        raise refusal(path.parent, "bad_record", words)
    if other is None:
        return
    for key, what in (("world_size", "ranks"), ("launch", "")):
        mine, theirs = record.about.get(key), found[other].about.get(key)
        if mine != theirs:
            words = f"{path.name} and {files[other].name} are of two launches"
            words += f" ({mine} and {theirs} {what})" if what else ""
            raise refusal(path.parent, "bad_record", f"{words}; keep the files of one")


def wait_in_backward(record: RankRecord) -> bool:
    """Let a rank wait for what its backward pass has begun; returns whether there is any of it.

    C++ waits at the end of the pass. What it does there is written down when that is over.
    """
    waiting, record.backward = record.backward, []
    _put_wait(record, waiting, record.last_us)
    return bool(waiting)


def _put_wait(record: RankRecord, waiting: Sequence[RecordedCall], us: int) -> None:
    """Let a rank wait for the calls of a backward pass, behind its last item."""
    for call in waiting:
        call.waited = True
    if len(waiting) == 1 and record.items[-1] is waiting[0]:
        waiting[0].completes = True
    elif waiting:
        numbers = tuple(call.number for call in waiting)
        record.items.append(RecordedWait(numbers=numbers, place=waiting[-1].place, began_us=us))


#: lines that are read together
_TOGETHER = 500


def lines_of(path: Path) -> Iterator[Any]:
    """Yield the documents of a file; the last line may be torn, or room for more."""
    try:
        opened = open_regular(path)
    except OSError as error:
        raise refusal(path, "bad_record", f"it cannot be read: {error.strerror}") from None
    number = 0
    with os.fdopen(opened, "rb") as file:
        if os.fstat(opened).st_size > MOST_BYTES:
            raise refusal(path, "bad_record", f"the record is larger than {MOST_BYTES} bytes")
        while lines := list(itertools.islice(_lines(file, path), _TOGETHER)):
            whole = list(itertools.takewhile(_is_whole, lines))
            try:
                yield from decode_json(b"[%b]" % b",".join(whole))
            except DocumentError:
                yield from _read_documents(path, whole, number)
            if len(whole) < len(lines):
                return
            number += len(whole)


#: bits of an integer in a line: as many as Python reads without a warning
MOST_BITS = 1 << 14
#: bytes of a line: the longest has the groups of a world, or the lines of a script around a call
MOST_OF_A_LINE = 1 << 24


def _lines(file: BinaryIO, path: Path) -> Iterator[bytes]:
    """Yield the lines of a file; the rest of a torn one has none. Raises ScenarioError."""
    while line := file.readline(MOST_OF_A_LINE):
        if len(line) == MOST_OF_A_LINE:
            raise refusal(path, "bad_record", f"a line is longer than {MOST_OF_A_LINE} bytes")
        yield line


def _is_whole(line: bytes) -> bool:
    return line.endswith(b"\n") and b"\0" not in line


def _read_documents(path: Path, lines: list[bytes], before: int) -> Iterator[Any]:
    """Yield the documents of lines behind others, and refuse the first that holds none."""
    for number, line in enumerate(lines, before + 1):
        try:
            found = json.loads(line)  # which reads what Python writes: NaN, half a surrogate
            police(found, bits=MOST_BITS)  # what reads a count refuses it by name
            yield found
        except (ValueError, RecursionError):
            raise refusal(path, "bad_record", f"line {number} is not a line of a record") from None


def read_file(path: Path) -> RankRecord:
    """Return the record of one rank. Raises ScenarioError where the file is not a record."""
    lines = lines_of(path)
    about = next(lines, None)
    if not isinstance(about, dict) or "scenario_record" not in about:
        raise refusal(path, "bad_record", "this is not a record of torch-scenarios")
    version = about["scenario_record"]
    if not isinstance(version, int) or version > VERSION:
        raise refusal(
            path,
            "newer_record",
            f"the record is in version {str(version)[:40]}; this program reads {VERSION}",
        )
    reader = _read(about, lines, path, threaded=False)
    if len(reader.threads) > 1:  # their calls overlap: it is read for what returned when
        reader = _read(about, itertools.islice(lines_of(path), 1, None), path, threaded=True)
    return reader.finish()


def _read(about: dict[str, Any], lines: Iterator[Any], path: Path, *, threaded: bool) -> _Reader:
    """Return what has taken all lines but the first. Raises ScenarioError at one that is wrong."""
    taken = 1
    try:
        reader = _Reader(about, threaded=threaded)
        for line in lines:
            taken += 1
            reader.take(line)
    except BROKEN as error:
        more = f": {error}" if isinstance(error, ImpossibleError) else ""
        words = f"line {taken} is not a line of a record{more}"
        raise refusal(path, "bad_record", words) from None
    return reader


class ImpossibleError(ValueError):
    """What a line of a record says, no program does; the message says why."""


#: what a line says, by the word that it begins with: most are a letter, as there are millions
_LINES = {
    "s": "place",
    "g": "group",
    "k": "call_kind",
    "c": "call",
    "n": "carried_name",
    "r": "return",
    "e": "error",
    "w": "wait",
    "x": "wait_end",
    "f": "inquiry",
    "d": "drop",
    "p": "source",
    "bw": "backward_pass",
    "b": "blocking_call",
    "be": "blocking_call_end",
    "v": "decision",
    "t": "branches",
    "y": "caught_error",
    "a": "file_change",
    "l": "lost_thread",
    "j": "handover",
    "i": "wrapped_model",
    "buffers": "buffers",
    "unit": "unit",
    "q": "kernels",
    "kernel": "kernel_kind",
    "o": "stream",
    "m": "stream_event",
    "u": "stream_wait",
    "h": "host_wait",
    "z": "memory",
    "raise": "uncaught_error",
    "exit": "exit_place",
    "stay": "staying_thread",
    "turns": "endless_loop",
    "share": "shared_error",
    "back": "spawn_end",
    "end": "end",
}
#: what happens in a rank's program: where no such line is between two, they follow one another
_IN_ORDER = frozenset(
    {
        *("call", "return", "error", "wait", "wait_end", "inquiry", "backward_pass"),
        *("blocking_call", "blocking_call_end", "file_change", "lost_thread", "kernel_kind"),
        *("uncaught_error", "exit_place", "staying_thread", "end"),
    }
)


def _tell_threads(record: RankRecord, main: int, handed: Mapping[int, tuple[int, bool]]) -> str:
    """Return that several threads of a rank communicate, with two of their lines in one group.

    They race where the main thread makes a call there after the other one was handed over what it
    runs and before its own call, and does not wait for it then.
    """
    last: dict[str, RecordedCall] = {}
    races: dict[str, list[bool]] = {}
    for call in record.calls:
        if call.maker == Maker.BACKWARD:
            continue
        before = last.setdefault(call.group_name, call)
        last[call.group_name] = call
        one, two = before.place.short(), call.place.short()
        if before.thread != call.thread and one and two:
            lines = " and ".join(
                f"{Path(file).name}:{line}"
                for file, line, _ in (before.place.frames[0], call.place.frames[0])
            )
            if call.group_name not in races:
                races[call.group_name] = _list_races(record, call.group_name, main, handed)
            if found := races[call.group_name]:
                record.racing_group = call.group_name
                record.racing = "" if all(found) else lines
            elif _has_racing_tasks(record, call.group_name, main, handed):
                record.racing_group = call.group_name
            elif before.maker != Maker.PYTHON or call.maker != Maker.PYTHON:
                continue
            return (
                f"several threads of a rank communicate in one group ({lines}): their order is the "
                "one of this run, and a matter of time unless one waits for the other; give each "
                "thread a group of its own"
            )
    return "several threads of a rank communicate: their order is the one of this run"


def _list_races(
    record: RankRecord, group: str, main: int, handed: Mapping[int, tuple[int, bool]]
) -> list[bool]:
    """Return of each call of another thread that the main one overtook whether it waits then."""
    calls = [
        each for each in record.calls if each.group_name == group and each.maker != Maker.BACKWARD
    ]
    own = sorted(each.began_us for each in calls if each.thread == main)
    return [
        waits
        for call in calls
        if call.thread != main and call.number in handed
        for since_us, waits in [handed[call.number]]
        for at in [bisect_right(own, since_us)]
        if at < len(own) and own[at] < call.began_us
    ]


def _has_racing_tasks(
    record: RankRecord, group: str, main: int, handed: Mapping[int, tuple[int, bool]]
) -> bool:
    """Whether a thread was handed its call before the one of another thread began: none is main."""
    calls = sorted(
        (call.began_us, handed[call.number][0], call.thread)
        for call in record.calls
        if call.group_name == group and call.thread != main and call.number in handed
    )
    return any(one[2] != other[2] and other[1] < one[0] for one, other in itertools.pairwise(calls))


class _Reader:
    """Takes the lines of a file one by one."""

    def __init__(self, about: dict[str, Any], *, threaded: bool = False) -> None:
        rank, world = int(about["rank"]), int(about["world_size"])
        self.record = RankRecord(rank=rank, world_size=world, about=about, threaded=threaded)
        self.threads: set[int] = set()
        self._main = 0
        self._threaded = threaded
        self._waiting: dict[int, int] = {}
        #: when threads were handed over what they run, and whether the main one waits: by thread
        #: before a kind, by kind, and by call
        self._handed: dict[int, tuple[int, bool]] = {}
        self._handed_kinds: dict[int, tuple[int, bool]] = {}
        self._handed_calls: dict[int, tuple[int, bool]] = {}
        if not 0 <= rank < world <= MOST_RANKS:
            message = f"rank {rank} of {world} is not a rank"
            raise ImpossibleError(message)
        self._places: dict[int, ScriptPlace] = {}
        self._kinds: dict[int, dict[str, Any]] = {}
        self._calls: dict[int, RecordedCall] = {}
        #: whether the script asks for NCCL: what it is recorded on may be another backend
        self._asks_nccl = False
        #: those that are messages to a rank that there is not: the program is without them
        self._stray: set[int] = set()
        self._blocking: dict[int, BlockingCall] = {}
        self._decisions: dict[int, Decision] = {}
        self._noted = 0
        self._backward: list[RecordedCall] = []
        self._before: tuple[Any, ...] = ()
        self._open: set[tuple[str, int]] = set()
        #: steps of an optimizer that have ended
        self._steps = 0
        #: calls that were asked whether they are over, and were
        self._asked: set[int] = set()
        self._takes: dict[str, tuple[Callable[..., None], str]] = {
            word: (getattr(self, f"_take_{what}"), what) for word, what in _LINES.items()
        }

    def take(self, line: Any) -> None:
        """Take a line."""
        take, what = self._takes[line[0]]
        take(*line[1:])
        if what in _IN_ORDER:
            self._before = (what, line[1])
            if self.record.turns_at.frames:  # it has left the loop
                self.record.turns_at = ScriptPlace()

    def _take_place(self, number: int, api: str, frames: list[Any], via: str = "") -> None:
        self._places[number] = ScriptPlace(
            frames=script_frames(frames), api=_show(api), via=_show(via)
        )

    def _take_group(
        self, number: int, name: str, ranks: list[int], described: str, backend: str
    ) -> None:
        members, world = tuple(map(int, ranks)), self.record.world_size
        if not members or len(set(members)) < len(members) or not 0 <= min(members) <= max(members):
            message = "a group has no members, or one twice"
            raise ImpossibleError(message)
        if max(members) >= world:
            message = f"rank {max(members)} is in a group, and the world has {world} ranks"
            raise ImpossibleError(message)
        self.record.groups[int(number)] = (_show(name), members, _show(described))
        kinds = {each.rpartition(":")[2] for each in str(backend).lower().split(",")}
        self._asks_nccl |= "nccl" in kinds
        self.record.on_device |= not kinds <= _ON_HOST

    def _take_decision(
        self, number: int, kind: str, file: str, line: int, text: str, names: list[str]
    ) -> None:
        ((file, line, text),) = script_frames([[file, line, text]])
        self._decisions[_read_count(number)] = Decision(
            kind=_show(kind), file=file, line=line, text=text, names=tuple(map(_show, names))
        )

    def _take_branches(self, ways: list[list[Any]]) -> None:
        record = self.record
        before = len(record.items)
        for number, yes, no, *values in ways:
            decision, self._noted = self._decisions[number], self._noted + 1
            words = [None if each is None else _show(each) for each in chain.from_iterable(values)]
            if decision.kind == SETS:
                held = tuple(filter(None, words))
                record.values.append(
                    SetValue(before=before, order=self._noted, place=decision, words=held)
                )
                continue
            record.ways.append(
                BranchTaken(
                    before=before,
                    decision=decision,
                    yes=_read_count(yes),
                    no=_read_count(no),
                    values=tuple(words),
                )
            )
        if len(record.ways) > MOST_WAYS:
            del record.ways[: MOST_WAYS // 2]
        if len(record.values) > MOST_WAYS:
            del record.values[: MOST_WAYS // 2]

    def _take_caught_error(self, number: int, words: str, frames: list[Any]) -> None:
        record = self.record
        record.caught.append(
            CaughtError(
                before=len(record.items),
                decision=self._decisions[number],
                words=_show(words),
                raised_at=ScriptPlace(frames=script_frames(frames)),
            )
        )
        del record.caught[:-MOST_CAUGHT]

    def _take_file_change(self, what: str, path: str, place: int, us: int = 0) -> None:
        record = self.record
        self.record.last_us = max(self.record.last_us, us)
        change = FileChange(
            before=len(record.items), what=_show(what), path=_show(path), place=self._places[place]
        )
        record.changes.append(change)
        del record.changes[:-MOST_CAUGHT]

    def _take_lost_thread(self, name: str, words: str, frames: list[Any]) -> None:
        raised_at = ScriptPlace(frames=script_frames(frames))
        self.record.lost.append(
            LostThread(
                before=len(self.record.items),
                name=_show(name),
                words=_show(words),
                raised_at=raised_at,
            )
        )
        del self.record.lost[:-MOST_CAUGHT]

    def _take_shared_error(self, words: str, frames: list[Any]) -> None:
        raised_at = ScriptPlace(frames=script_frames(frames))
        self.record.shared.append(SharedError(words=_show(words), raised_at=raised_at))
        del self.record.shared[:-MOST_CAUGHT]

    def _take_staying_thread(self, name: str, frames: list[Any]) -> None:
        started_at = ScriptPlace(frames=script_frames(frames))
        self.record.staying.append(StayingThread(name=_show(name), started_at=started_at))
        del self.record.staying[:-MOST_CAUGHT]

    def _take_endless_loop(self, frames: list[Any], draws: int = 0) -> None:
        self.record.turns_at = ScriptPlace(frames=script_frames(frames))
        self.record.turns_by_chance = bool(draws)

    def _take_handover(self, thread: int, us: int, waits: int) -> None:
        self._handed[int(thread)] = _read_count(us), bool(waits)

    def _take_wrapped_model(self, place: int, options: dict[str, Any]) -> None:
        self.record.wrapped_models.append(
            WrappedModel(
                options={_show(name): float(value) for name, value in options.items()},
                place=self._places[place],
            )
        )
        del self.record.wrapped_models[:-MOST_CAUGHT]

    def _take_buffers(self, place: int, shapes: dict[str, list[int]]) -> None:
        if len(self.record.buffers) < MOST_CAUGHT:
            shown = {_show(name): tuple(map(int, shape)) for name, shape in shapes.items()}
            self.record.buffers.append((self._places[place], shown))

    def _take_unit(self, name: str, options: dict[str, str]) -> None:
        if len(self.record.units) < MOST_CAUGHT:
            shown = {_show(option): _show(value) for option, value in options.items()}
            self.record.units.setdefault(_show(name), shown)

    def _take_call_kind(self, number: int, *fields: Any) -> None:
        self._kinds[number] = found = self._kind(*fields)
        handed = self._handed.pop(found["thread"], None)
        if handed is not None:
            self._handed_kinds[number] = handed

    def _take_call(self, number: int, kind: int | str, us: int, *more: Any) -> None:
        """Take a line that begins a call: `["c", number, kind, us, ...]`.

        Version 2 writes each kind of call once, with all that is the same of it, and then its
        number alone: a loop of a million all_reduces has one kind. A message to a rank that there
        is not (`stray`) is no call that could meet another one, and is kept apart.
        """
        made_at = ScriptPlace()
        if isinstance(kind, str):  # version 1: it says all of itself
            operation, group, (place, us, *rest) = kind, us, more
            found, batch = self._kind(operation, group, place, *rest, 0), rest[-1].get("batch")
        else:
            found, (batch, *places) = self._kinds[kind], more or (None,)
            made_at = self._places[places[0]] if places else made_at
        found = dict(found)
        stray = found.pop("stray", None)
        if stray is not None:
            self.record.strays.append(stray)
            del self.record.strays[:-MOST_CAUGHT]
            self._calls[number] = RecordedCall(
                number=_read_count(number), began_us=int(us), **found
            )
            self._stray.add(number)
            self._open.add(("call", number))
            return
        if batch is not None and found["place"].api != BATCH:
            batch = None  # that of `send_object_list` is its own affair
        call = RecordedCall(
            number=_read_count(number),
            began_us=int(us),
            batch=None if batch is None else _read_count(batch),
            made_at=made_at,
            **found,
        )
        if isinstance(kind, int) and kind in self._handed_kinds:
            self._handed_calls[call.number] = self._handed_kinds[kind]
        if call.waited and self._threaded:  # its place is where its wait ends
            call.completes = call.waited = False
            self._waiting[number] = us
        record, maker = self.record, call.maker
        record.handled = call.handled
        if maker != Maker.BACKWARD:
            self.threads.add(call.thread)
        record.items.append(call)
        if len(record.items) > MOST_CALLS:
            message = f"it has more than {MOST_CALLS} calls"
            raise ImpossibleError(message)
        self._calls[number] = call
        self._open.add(("call", number))
        if maker == Maker.BACKWARD:
            self._backward.append(call)
        record.last_us = us

    def _kind(self, *fields: Any) -> dict[str, Any]:
        """Return what calls of a kind have in common, by field, from what its line says."""
        operation, group, place, thread, maker, inputs, outputs, more, awaited = fields
        _, ranks, _ = self.record.groups[group]
        op = more.get("op")
        ins, outs = tuple(map(_tensor, inputs)), tuple(map(_tensor, outputs))
        _require_tensors(operation, ins, outs)
        if self._asks_nccl:
            outs = _concatenate(ins, outs, len(ranks))
        peer, root = more.get("peer"), more.get("root")
        stray = {}
        beyond = [e for e in (peer, root) if isinstance(e, int) and not 0 <= e < len(ranks)]
        if beyond:
            stray["stray"] = StrayMessage(
                operation=C10D[operation],
                peer=_number(beyond[0]),
                group=ranks,
                place=self._places[place],
            )
            peer = root = None
        return {
            **stray,
            "operation": C10D[operation],
            "group": ranks,
            "group_name": str(group),
            "place": self._places[place],
            "inputs": ins,
            "outputs": outs,
            "op": None if op is None else str(op),
            "root": _member(ranks, root),
            "peer": _member(ranks, peer),
            "tag": _number(more.get("tag", 0)),
            "splits": (
                tuple(map(_number, more.get("out", ()))),
                tuple(map(_number, more.get("in", ()))),
            ),
            "maker": str(maker),
            "coalesced": "coalesced" in operation,
            "completes": bool(awaited) or maker == Maker.CPP or operation == "monitored_barrier_",
            "waited": bool(awaited),
            "thread": int(thread),
            "handled": self._read_handled(more),
            "timeout_s": _number(more["timeout_ms"]) / 1000 if "timeout_ms" in more else None,
        }

    def _read_handled(self, more: dict[str, Any]) -> tuple[str, ScriptPlace] | None:
        words, frames = more.get("handled", (None, ()))
        return None if words is None else (_show(words), ScriptPlace(frames=script_frames(frames)))

    def _take_carried_name(self, number: int, name: str) -> None:
        self._calls[number].carries = _show(name)

    def _take_return(self, number: int, us: int) -> None:
        call = self._calls[number]
        call.returned_us = us
        self._open.discard(("call", number))
        if call.completes:
            call.ended_us = us
        self.record.last_us = us

    def _take_error(self, number: int, us: int, words: str) -> None:
        call = self._calls[number]
        call.failed = _show(words)
        self._open -= {("call", number), ("wait", number)}
        self.record.last_us = us

    def _take_wait(self, number: int, us: int, ms: float = -1, place: int = -1) -> None:
        call = self._calls[number]
        if ms >= 0:
            call.timeout_s, call.limited_at = float(ms) / 1000, self._places[place]
        self._open.add(("wait", number))
        self.record.last_us = us
        if self._threaded and not call.completes:
            self._waiting[number] = us
        else:
            self._await(call, us)

    def _await(self, call: RecordedCall, us: int) -> None:
        if call.completes or call.number in self._stray:
            return
        if call.number in self._asked:  # whether it is over; then its wait is no second one
            self._asked.remove(call.number)
            return
        if not call.waited and self._before == ("return", call.number) and call.batch is None:
            call.completes = call.waited = True
            return
        if not call.waited or call.operation in MESSAGES:
            self.record.items.append(
                RecordedWait(numbers=(call.number,), place=call.place, began_us=us)
            )
        call.waited = True

    def _take_wait_end(self, number: int, us: int) -> None:
        call = self._calls[number]
        self._open.discard(("wait", number))
        if call.returned_us is None:  # of a kind that is waited for at once
            self._open.discard(("call", number))
            call.returned_us = us
        if self._waiting.pop(number, None) is not None:
            self._end_overlap(call, us)
        call.ended_us = us
        self.record.last_us = us

    def _end_overlap(self, call: RecordedCall, us: int) -> None:
        """Take the end of a wait where threads overlap: other calls may lie before it."""
        if self.record.items[-1] is call and not call.waited and call.batch is None:
            call.completes = call.waited = True
        elif not call.waited or call.operation in MESSAGES:
            call.waited = True
            self.record.items.append(
                RecordedWait(numbers=(call.number,), place=call.place, began_us=us)
            )

    def _take_source(self, number: int, source: int) -> None:
        call = self._calls[number]
        call.peer = _member(call.group, source)

    def _take_inquiry(self, number: int, us: int) -> None:
        call = self._calls[number]
        if not call.waited:
            self._await(call, us)
            self._asked.add(number)
        self.record.last_us = us

    def _take_drop(self, number: int) -> None:
        self._calls[number].dropped = True

    def _take_backward_pass(self, us: int) -> None:
        waiting = [call for call in self._backward if not call.waited]
        self._backward.clear()
        for call in waiting:
            call.ended_us = us
        _put_wait(self.record, waiting, us)
        self.record.last_us = us

    def _take_blocking_call(
        self, number: int, what: str, place: int, us: int, more: dict[str, Any]
    ) -> None:
        ranks = more.get("ranks")
        found = BlockingCall(
            number=number,
            what=what,
            place=self._places[place],
            ranks=None if ranks is None else tuple(map(int, ranks)),
            local=bool(more.get("local")),
            began_us=us,
            thread=int(more.get("thread", 0)),
            timeout_s=float(more["timeout_s"]) if "timeout_s" in more else None,
        )
        self.record.handled = self._read_handled(more)
        if "init" in more and not self.record.claimed:
            self._claim(more["init"])
        self._main = self._main or found.thread
        self.record.leaving = bool(more.get("whole"))
        self.record.returned = False
        self._blocking[number] = found
        self._open.add(("blocking_call", number))
        self.record.items.append(found)
        self.record.last_us = us

    def _claim(self, claim: dict[str, Any]) -> None:
        """Know the rank by what it says of itself at its first `init_process_group`."""
        record = self.record
        rank, world = int(claim["rank"]), int(claim["world_size"])
        record.claimed = True
        self._asks_nccl = "nccl" in str(claim.get("backend", "")).lower()
        if "timeout_s" in claim:
            record.timeout_s = float(claim["timeout_s"])
        if 0 <= rank < world <= MOST_RANKS:
            record.rank, record.world_size = rank, world

    def _take_spawn_end(self) -> None:
        self.record.returned = True

    def _take_exit_place(self, frames: list[Any]) -> None:
        self.record.left_at = ScriptPlace(frames=script_frames(frames))

    def _take_blocking_call_end(
        self, number: int, us: int, done: dict[str, Any], words: str | None
    ) -> None:
        found = self._blocking[number]
        found.over, found.failed = words is None, None if words is None else _show(words)
        found.group = done.get("group")
        if isinstance(found.group, int) and found.timeout_s is not None:
            self.record.timeouts[found.group] = found.timeout_s
        self.record.leaving = False
        self._open.discard(("blocking_call", number))
        self.record.last_us = us

    def _lane(self, kind: str, **fields: Any) -> None:
        record = self.record
        record.lanes.append(LaneEvent(before=len(record.items), kind=kind, **fields))
        if len(record.lanes) > MOST_LANES:
            message = f"it has more than {MOST_LANES} lines of streams"
            raise ImpossibleError(message)

    def _take_kernels(self, us: float, host_us: float = 0.0) -> None:
        if not (0 <= float(us) < inf and 0 <= float(host_us) < inf):
            message = "kernels take a time that is not one"
            raise ImpossibleError(message)
        self._lane("kernels", us=float(us), host_us=float(host_us))

    def _take_stream(self, lane: int) -> None:
        self._lane("on", lane=_read_count(lane))

    def _take_stream_event(self, mark: int, lane: int) -> None:
        self._lane("mark", mark=_read_count(mark), lane=_read_count(lane))

    def _take_stream_wait(self, lane: int, mark: int) -> None:
        self._lane("await", mark=_read_count(mark), lane=_read_count(lane))

    def _take_host_wait(self, place: int | None = None, is_all: int = 0) -> None:
        known = ScriptPlace() if place is None else self._places[place]
        self._lane("host", place=known, all=is_all == 1)

    def _take_kernel_kind(self, kind: str) -> None:
        if kind != CONVOLUTION:
            message = f"a kind of kernels is `{CONVOLUTION}`"
            raise ImpossibleError(message)
        if kind not in self.record.kernel_kinds:
            self.record.kernel_kinds.append(kind)

    def _take_memory(self, held: dict[str, int], is_step: int) -> None:
        found = {_show(kind): _read_count(size) for kind, size in held.items()}
        # the first step has no state of an optimizer before its end
        is_more = self._steps < 2 or sum(found.values()) > sum(self.record.held.values())
        if is_more and (is_step or not self._steps):
            self.record.held = found
        if is_step:
            self._steps += 1
            self._lane("step")

    def _take_uncaught_error(self, words: str, frames: list[Any], us: int) -> None:
        # C++ that waits, as in the constructor of DDP, raises where no call is
        failed = names_lost_peer(str(words)[:MOST_CHARACTERS])
        is_own = names_dead_worker(str(words)[:MOST_CHARACTERS])
        failed = failed or (not is_own and any(call.failed for call in self._calls.values()))
        self.record.error = _show(words, MOST_OF_AN_ERROR)
        self.record.raised_at = ScriptPlace(frames=script_frames(frames))
        self.record.ending = "stopped" if failed else "raised"
        self.record.last_us = us

    def _take_end(self, code: int, us: int) -> None:
        self.record.code = int(code)
        if self.record.error is None:
            self.record.ending = "ended"
        self.record.last_us = us

    def finish(self) -> RankRecord:
        """Return the record, with whether the rank is inside of a call."""
        record = self.record
        # what C++ makes in a backward pass that has not returned, it waits for there
        record.inside = bool(self._open) or bool(self._backward)
        record.backward = [call for call in self._backward if not call.waited]
        record.main_inside = any(
            (self._blocking[number] if kind == "blocking_call" else self._calls[number]).thread
            == self._main
            for kind, number in self._open
        )
        for number, us in list(self._waiting.items()):
            self._end_overlap(self._calls[number], us)
        if record.threaded:
            record.notes.append(_tell_threads(record, self._main, self._handed_calls))
        alone = record.threaded and record.about.get("mode") == "fake"
        loosened = set()
        for call in self._calls.values():
            if alone and call.thread != self._main and call.maker in {Maker.PYTHON, Maker.TORCH}:
                call.completes, call.loose = False, True
                loosened.add(call.number)
            elif call.maker == Maker.TORCH and not call.waited and not call.completes:
                call.loose = True
            if call.maker == Maker.FUNCTIONAL and not call.waited:
                call.completes = True
        if loosened:  # another thread waits for them, at a place that says nothing
            record.items = [
                item
                for item in record.items
                if not (isinstance(item, RecordedWait) and loosened.issuperset(item.numbers))
            ]
        return record


#: backends in whose calls a host waits
_ON_HOST = frozenset({"gloo", "mpi", "ucc", "fake", "undefined", ""})
#: where in its own source a backend raised
_BACKEND_SOURCE = re.compile(r"\[/[^\]\s]*(?:gloo|nccl)[^\]\s]*\.(?:cc|cpp|h):\d+\] ")
#: what Python calls an object that has no other name
_OBJECT = re.compile(r"<(?:\w+\.)*(\w+) object at 0x[0-9a-f]+>")


def _show(words: object, most: int = MOST_CHARACTERS) -> str:
    """Return words of a record as they may be shown, and no more of them than a person reads."""
    return clean_line(_OBJECT.sub(r"\1", _BACKEND_SOURCE.sub("", str(words)[:most])))


def script_frames(told: list[Any]) -> tuple[tuple[str, int, str], ...]:
    """Return frames; of a long name of a file its end. Raises ValueError where it is none."""
    return tuple(
        (clean_line(str(file)[-MOST_CHARACTERS:]), _read_count(line), _show(text))
        for file, line, text in told
    )


def _read_count(number: object) -> int:
    """Return a count. Raises ImpossibleError where it is none, or a negative or endless one."""
    if not isinstance(number, int) or not 0 <= number <= MOST_ELEMENTS:
        message = f"{str(number)[:40]} is not a count"
        raise ImpossibleError(message)
    return number


def _number(number: object) -> int:
    """Return what a script passes as a number, a wrong one too."""
    return -_read_count(-number) if isinstance(number, int) and number < 0 else _read_count(number)


def _member(ranks: tuple[int, ...], at: object) -> int | None:
    """Return the rank at a place of a group; None for no place. Raises IndexError beyond it."""
    return None if at is None else ranks[_read_count(at)]


def _concatenate(
    inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...], members: int
) -> tuple[Tensor, ...]:
    """Return an output of another shape as what its members' inputs make, end to end.

    NCCL gathers into any shape with as many elements (torch 2.13, ProcessGroupNCCL.cpp,
    `_allgather_base`), and torch's own SyncBatchNorm asks for one of `[1, members * size]`.
    """
    if members < 2 or len(inputs) != 1 or len(outputs) != 1:
        return outputs
    ((given,), (made,)) = inputs, outputs
    if not given.shape or made.elements != members * given.elements or made.shape[0] != 1:
        return outputs
    return (replace(made, shape=(members * given.shape[0], *given.shape[1:])),)


def _require_tensors(
    operation: str, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]
) -> None:
    """Raise ImpossibleError where a call lacks the tensors without which it is none."""
    name = C10D[operation]
    both = "coalesced" in operation and name.endswith("single")
    if both and len(inputs) != len(outputs):
        message = f"{operation} has {len(inputs)} tensors in, and {len(outputs)} out"
        raise ImpossibleError(message)
    needed = {"send": inputs, "all_reduce": inputs, "broadcast": inputs}
    needed |= {"reduce": inputs, "gather": inputs, "all_gather": inputs}
    needed |= {"recv": outputs, "scatter": outputs, "reduce_scatter": outputs}
    if name.endswith("_single"):
        needed[name] = inputs and outputs
    if not needed.get(name, True):
        message = f"{operation} has no tensor"
        raise ImpossibleError(message)


def _tensor(told: list[Any]) -> Tensor:
    dtype, shape, address, size = told[:4]
    count = _read_count(told[4]) if len(told) > 4 else 1
    found = Tensor(
        dtype=_show(dtype),
        shape=tuple(map(_read_count, shape)),
        address=int(address),
        size=_read_count(size),
        count=count,
    )
    if len(found.shape) > MOST_DIMENSIONS or not 0 < count <= MOST_RANKS:
        message = f"a tensor of {len(found.shape)} dimensions, {count} times"
        raise ImpossibleError(message)
    _read_count(found.elements * count)
    return found
