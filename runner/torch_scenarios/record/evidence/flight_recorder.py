"""Dumps of torch's flight recorder -> the records of ranks; pickles and JSON, of NCCL and of Gloo.

A dump is data of a stranger: its pickle is read without classes, and sizes are bounded. What it
lacks is not invented: it has no reduce op, no root, and of Gloo no messages; it ends where the
ring that holds it ended, and may begin in the middle of the program.
"""

from __future__ import annotations

import pickle
import re
from collections import defaultdict
from collections.abc import Mapping
from itertools import zip_longest
from operator import attrgetter
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from torch_scenarios.display import clean_line
from torch_scenarios.execution.pickles import plain
from torch_scenarios.operations import BY_NAME, OPERATIONS
from torch_scenarios.operations.base import Collective
from torch_scenarios.record.format import (
    BROKEN,
    MESSAGES,
    MOST_CHARACTERS,
    MOST_DIMENSIONS,
    MOST_RANKS,
    ImpossibleError,
    RankRecord,
    RecordedCall,
    RecordedWait,
    ScriptPlace,
    Tensor,
    read_bounded,
    refusal,
)
from torch_scenarios.record.recorder import is_foreign
from torch_scenarios.source.documents import convert, decode_json

#: bytes of a dump
MOST_BYTES = 1 << 26

#: what a dump calls an operation -> torch's public name
NAMES = {name: each.name for each in reversed(OPERATIONS) for name in each.dumped}
DTYPES = {
    "Float": "float32",
    "Double": "float64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Long": "int64",
    "Int": "int32",
    "Short": "int16",
    "Char": "int8",
    "Byte": "uint8",
    "Bool": "bool",
}
#: what NCCL writes behind the calls that it makes in one of its groups: with it, they are over
_IN_ONE_GROUP = re.compile(r"^(?:\w+:)?(?:\w+_)?coalesced$")
#: what NCCL writes in place of a list that a rank has no use for
_NO_LIST = ((0,),)
_RANK = re.compile(r"(\d+)(?:\.[A-Za-z]+)*$")
_NAME = re.compile(r"^(?:\w+:)?(?P<name>\w+)(?: (?P<one>\d+)(?P<way>->|<-)(?P<two>\d+))?")


class DumpedFrame(Struct, frozen=True):
    """A line of the stack of a call, the innermost first."""

    filename: str
    line: int


class DumpedCall(Struct, frozen=True):
    """A call as a dump has it; `process_group` is its name and what it was described as."""

    profiling_name: str
    process_group: tuple[str, str] | None = None
    record_id: int = 0
    collective_seq_id: int = 0
    input_sizes: tuple[tuple[int, ...], ...] | None = None
    input_dtypes: tuple[str, ...] | None = None
    output_sizes: tuple[tuple[int, ...], ...] | None = None
    output_dtypes: tuple[str, ...] | None = None
    frames: tuple[DumpedFrame, ...] | None = None
    state: str | None = None
    retired: bool | None = None


class DumpedGroup(Struct, frozen=True):
    """A process group as a dump has it; `ranks` may be a text that lists them."""

    name: str = ""
    ranks: tuple[int, ...] | str = ()

    @property
    def members(self) -> tuple[int, ...]:
        """The ranks. Raises DocumentError, and ImpossibleError for what is not a rank."""
        found = self.ranks
        if isinstance(found, str):
            found = decode_json(found, tuple[int, ...]) if found.strip() else ()
        wrong = next((each for each in found if not 0 <= each < MOST_RANKS), None)
        if wrong is not None:
            message = f"a group names rank {wrong}"
            raise ImpossibleError(message)
        return found


class RankDump(Struct, frozen=True):
    """What torch writes of one rank, as far as it is read here."""

    entries: tuple[DumpedCall, ...]
    pg_config: dict[str, DumpedGroup] = {}


def read_dumps(path: Path) -> dict[int, RankRecord]:
    """Return the records of dumps, of a folder or one file, by rank.

    Raises ScenarioError where a file is no dump, or its name ends in no rank.
    """
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    dumps: dict[int, RankDump] = {}
    names: dict[int, str] = {}
    for file in files:
        if not _is_file(file):
            continue
        if file.name.startswith(".") or file.suffix in {".yaml", ".log", ".py", ".txt"}:
            continue
        rank = _RANK.search(file.name)
        if rank is None:
            raise refusal(file, "bad_record", "its name does not end in the number of a rank")
        number = int(rank[1][:9])
        if number >= MOST_RANKS:
            words = f"its name ends in {number}, and a world has at most {MOST_RANKS} ranks"
            raise refusal(file, "bad_record", words)
        if number in dumps:
            words = f"{names[number]} and {file.name} are both of rank {number}: keep one of them"
            raise refusal(path, "bad_record", words)
        dumps[number], names[number] = _dump(file), file.name
    if not dumps:
        raise refusal(
            path, "bad_record", "here is neither a record nor a dump of the flight recorder"
        )
    return _records(dumps, path)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # links that go in a circle
        return False


def _dump(path: Path) -> RankDump:
    content = read_bounded(path, MOST_BYTES)
    try:
        found = decode_json(content) if content.lstrip()[:1] == b"{" else plain(content)
        return convert(found, RankDump)
    except (pickle.UnpicklingError, ValueError, EOFError, MemoryError) as error:
        words = f"this is not a dump of the flight recorder: {error}"
        raise refusal(path, "bad_record", words) from None


def _records(dumps: Mapping[int, RankDump], path: Path) -> dict[int, RankRecord]:
    try:
        world = max(
            max(dumps) + 1,
            *(
                max(ranks, default=0) + 1
                for dump in dumps.values()
                for ranks in _groups(dump).values()
            ),
            1,
        )
        whole = tuple(range(world))
        found = {
            rank: _record(rank, world, dump, whole, frozenset(dumps))
            for rank, dump in sorted(dumps.items())
        }
    except BROKEN as error:
        more = f": {error}" if isinstance(error, ImpossibleError) else ""
        words = f"an entry of a dump does not have torch's form{more}"
        raise refusal(path, "bad_record", words) from None
    _settle_roots(found)
    _align(found)
    return found


def _groups(dump: RankDump) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for key, group in dump.pg_config.items():
        found[key] = group.members
        found.setdefault(group.name or key, found[key])
    return found


def _record(
    rank: int,
    world: int,
    dump: RankDump,
    whole: tuple[int, ...],
    known: frozenset[int],
) -> RankRecord:
    """Return a rank's record as a dump of torch's flight recorder tells it.

    `whole` are the ranks of the world, `known` those of which there is a dump. A dump says neither
    when a call returned nor what a rank decided.
    """
    groups = _groups(dump)
    record = RankRecord(rank=rank, world_size=world, about={"mode": "flight recorder"})
    numbers: dict[str, int] = {}
    pending: dict[str, list[RecordedCall]] = defaultdict(list)
    for entry in sorted(dump.entries, key=attrgetter("record_id")):
        parts = _NAME.match(entry.profiling_name)
        operation = NAMES.get(parts["name"]) if parts else None
        name, described = entry.process_group or ("0", "")
        if _IN_ONE_GROUP.match(entry.profiling_name) and pending[name]:
            _close_group(record, pending.pop(name), entry)
            continue
        if parts is None or operation is None:
            record.notes.append(f"`{entry.profiling_name[:60]}` is not read")
            continue
        ranks = groups.get(name) or whole
        number = numbers.setdefault(name, len(numbers))
        described = "default_pg" if ranks == whole else described
        record.groups[number] = (name, ranks, described)
        call = _call(entry, operation, parts, ranks, number, rank)
        record.items.append(call)
        if not call.completes:
            pending[name].append(call)
    last = record.calls[-1] if record.calls else None
    record.inside = last is not None and not last.completes and not last.waited
    if not dump.entries:
        record.notes.append(
            "a dump has no entry: the recorder was off, or the program used only messages on Gloo, "
            "which it does not see"
        )
    if any(_is_rooted(each.operation) for each in record.calls):
        record.notes.append("dumps name no root: it is assumed to be the same on all ranks")
    missing = sorted(set(whole) - known)
    if missing:
        record.notes.append(f"rank {', '.join(map(str, missing[:8]))} unknown: there is no dump")
    return record


def _close_group(record: RankRecord, calls: list[RecordedCall], entry: DumpedCall) -> None:
    """Let calls be those of one group of NCCL's, which an entry behind them closes.

    Messages are a `batch_isend_irecv` and the wait for it. Of what is over, so are the parts.
    """
    messages = [each for each in calls if each.operation in MESSAGES]
    for each in messages:
        each.batch, each.returned_us, each.waited = entry.record_id, 0, _is_over(entry)
    if messages:
        numbers = tuple(each.number for each in messages)
        record.items.append(RecordedWait(numbers=numbers, place=messages[-1].place))
    for each in calls:
        if _is_over(entry) and each.batch is None:
            each.completes, each.ended_us = True, 0


def _call(
    entry: DumpedCall,
    operation: str,
    told: re.Match[str],
    ranks: tuple[int, ...],
    number: int,
    rank: int,
) -> RecordedCall:
    """Return a call as an entry of a dump and its profiling name describe it."""
    peer = None
    if operation in MESSAGES and told["two"] is not None:
        peer = ranks[int(told["two"])]
    frames = tuple(
        (clean_line(each.filename[-MOST_CHARACTERS:]), each.line, "")
        for each in (entry.frames or ())[:200]
        if not is_foreign(each.filename)
    )
    done = _is_over(entry)
    inputs = _tensors(entry.input_sizes, entry.input_dtypes)
    outputs = _tensors(entry.output_sizes, entry.output_dtypes)
    root = ranks[0] if _is_rooted(operation) else None
    if entry.profiling_name.startswith("nccl:"):
        if len(inputs) > 1 and told["name"] == BY_NAME[operation].kind:  # both kinds of all_to_all
            operation = BY_NAME[operation].kind
        inputs, outputs = _read_tensors(operation, inputs, outputs, len(ranks))
        if _passes_list_at_root(operation):
            root = rank if inputs and outputs else None
    return RecordedCall(
        number=entry.record_id,
        operation=operation,
        group=ranks,
        group_name=str(number),
        place=ScriptPlace(frames=frames[:3]),
        inputs=inputs,
        outputs=outputs,
        op="sum" if BY_NAME[operation].reduces else None,
        root=root,
        peer=peer,
        completes=done,
        ended_us=0 if done else None,
        began_us=entry.collective_seq_id,
    )


def _read_tensors(
    operation: str, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...], count: int
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return the tensors that an operation was passed, in and out, of what NCCL writes of them.

    It stacks a list that all ranks pass, writes what ranks receive from one that passes a list as
    their input, and [0] in place of a list that a rank has not
    (torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp; seen with torch 2.11 and 2.14).
    """
    lists = {slot.of: slot.at_root for slot in BY_NAME[operation].slots or ()}
    if lists.get("ins"):
        inputs, outputs = outputs, inputs
    if "outs" in lists:
        outputs = _unstack(outputs, inputs, count)
    if "ins" in lists:
        inputs = _unstack(inputs, outputs, count)
    return _drop_no_list(inputs), _drop_no_list(outputs)


def _drop_no_list(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return () if tuple(each.shape for each in tensors) == _NO_LIST else tensors


def _passes_list_at_root(operation: str) -> bool:
    """Whether one rank alone passes a list, as the destination of a `gather` does."""
    return any(slot.at_root for slot in BY_NAME[operation].slots or ())


def _unstack(
    stacked: tuple[Tensor, ...], parts: tuple[Tensor, ...], count: int
) -> tuple[Tensor, ...]:
    """Return the tensors of a list that are stacked along a new first dimension."""
    if len(stacked) != 1 or not parts or stacked[0].shape != (count, *parts[0].shape):
        return stacked
    return (replace(stacked[0], shape=parts[0].shape),) * count


def _is_over(entry: DumpedCall) -> bool:
    return bool(entry.retired) or entry.state == "completed"


def _settle_roots(records: Mapping[int, RankRecord]) -> None:
    """Let ranks without the list of a call have the root of the rank that passes one.

    Where no dump has it, the root is taken to be a rank without a dump, or else the first.
    """
    known: dict[tuple[object, ...], int] = {}
    for record in records.values():
        for call in record.calls:
            if _passes_list_at_root(call.operation) and call.root is not None:
                known[call.operation, call.group, call.began_us] = call.root
    for record in records.values():
        for call in record.calls:
            if _passes_list_at_root(call.operation) and call.root is None:
                absent = next((r for r in call.group if r not in records), call.group[0])
                call.root = known.get((call.operation, call.group, call.began_us), absent)


def _is_rooted(operation: str) -> bool:
    """Whether a dump shows an operation without the rank that it names."""
    found = BY_NAME[operation]
    return isinstance(found, Collective) and found.rooted is not None


def _tensors(
    sizes: tuple[tuple[int, ...], ...] | None, dtypes: tuple[str, ...] | None
) -> tuple[Tensor, ...]:
    found = []
    for shape, named in zip_longest((sizes or ())[:MOST_RANKS], dtypes or ()):
        if shape is None:
            break
        if len(shape) > MOST_DIMENSIONS or any(not 0 <= each < 1 << 62 for each in shape):
            message = f"{list(shape)[:8]} is not a shape"
            raise ImpossibleError(message)
        found.append(Tensor(dtype=DTYPES.get(named, "float32"), shape=shape))
    return tuple(found)


def _align(records: Mapping[int, RankRecord]) -> None:
    """Let all ranks begin at one operation of each group: a ring keeps the last ones only."""
    firsts: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for record in records.values():
        seen: dict[tuple[int, ...], int] = {}
        for call in record.calls:
            if call.operation not in MESSAGES:
                seen.setdefault(call.group, call.began_us)
        for group, first in seen.items():
            firsts[group].append(first)
    for record in records.values():
        early = {
            call.number
            for call in record.calls
            if call.operation not in MESSAGES and call.began_us < max(firsts[call.group], default=0)
        }
        if early:
            record.wrapped = True
            record.notes.append("the dumps begin in the middle of the program: the ring was full")
            record.items = [
                each
                for each in record.items
                if not isinstance(each, RecordedCall) or each.number not in early
            ]
