"""Dumps of torch's flight recorder -> the records of ranks; pickles and JSON, of NCCL and of Gloo.

A dump is data of a stranger: its pickle is read without classes, and sizes are bounded. What it
lacks is not invented: it has no reduce op, no root, and of Gloo no messages; it ends where the
ring that holds it ended, and may begin in the middle of the program.
"""

from __future__ import annotations

import io
import json
import pickle
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch_scenarios.display import clean_line
from torch_scenarios.execution.pickles import PlainUnpickler
from torch_scenarios.record.format import (
    BROKEN,
    MOST_CHARACTERS,
    MOST_DIMENSIONS,
    MOST_RANKS,
    ImpossibleError,
    RankRecord,
    RecordedCall,
    ScriptPlace,
    Tensor,
    refusal,
)
from torch_scenarios.record.recorder import is_foreign

#: bytes of a dump, entries of one, tensors of all of them
MOST_BYTES, MOST_ENTRIES, MOST_TENSORS = 1 << 28, 1_000_000, 4_000_000

#: what a dump calls an operation -> torch's public name
NAMES = {
    "all_reduce": "all_reduce",
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "all_reduce_barrier": "barrier",
    "barrier": "barrier",
    "broadcast": "broadcast",
    "_broadcast_oop": "broadcast",
    "reduce": "reduce",
    "_reduce_oop": "reduce",
    "all_gather": "all_gather",
    "allgather": "all_gather",
    "_all_gather_base": "all_gather_single",
    "all_gather_into_tensor_coalesced": "all_gather_single",
    "gather": "gather",
    "scatter": "scatter",
    "reduce_scatter": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter_single",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_single",
    "all_to_all": "all_to_all_single",
    "alltoall": "all_to_all_single",
    "alltoall_base": "all_to_all_single",
    "send": "send",
    "recv": "recv",
}
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
#: operations that a dump shows without the rank that they name
ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter"})
#: operations that reduce: a dump has no reduce op
REDUCTIONS = frozenset(
    {"all_reduce", "all_reduce_coalesced", "reduce", "reduce_scatter", "reduce_scatter_single"}
)
#: operations of one message
MESSAGES = frozenset({"send", "recv"})

_RANK = re.compile(r"(\d+)(?:\.[A-Za-z]+)*$")
_NAME = re.compile(r"^(?:\w+:)?(?P<name>\w+)(?: (?P<one>\d+)(?P<way>->|<-)(?P<two>\d+))?")


def read_dumps(path: Path) -> dict[int, RankRecord]:
    """Return the records of dumps, of a folder or one file, by rank.

    Raises ScenarioError where a file is no dump, or its name ends in no rank.
    """
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    dumps: dict[int, dict[str, Any]] = {}
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


def _dump(path: Path) -> dict[str, Any]:
    if path.stat().st_size > MOST_BYTES:
        raise refusal(path, "bad_record", f"the dump is larger than {MOST_BYTES} bytes")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise refusal(path, "bad_record", f"it cannot be read: {error.strerror}") from None
    try:
        if content.lstrip()[:1] == b"{":
            found = json.loads(content)
        else:
            found = PlainUnpickler(io.BytesIO(content)).load()
    except (pickle.UnpicklingError, ValueError, EOFError, RecursionError, MemoryError) as error:
        words = f"this is not a dump of the flight recorder: {error}"
        raise refusal(path, "bad_record", words) from None
    except Exception as error:
        words = f"this is not a dump of the flight recorder ({type(error).__name__})"
        raise refusal(path, "bad_record", words) from None
    entries = found.get("entries") if isinstance(found, dict) else None
    if not isinstance(entries, list) or not isinstance(found.get("pg_config", {}), dict):
        raise refusal(path, "bad_record", "this is not a dump of the flight recorder")
    if len(entries) > MOST_ENTRIES:
        raise refusal(path, "bad_record", f"the dump has more than {MOST_ENTRIES} entries")
    return dict(found)


def _records(dumps: Mapping[int, dict[str, Any]], path: Path) -> dict[int, RankRecord]:
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
        if world > MOST_RANKS:
            message = f"a group names rank {world - 1}"
            raise ImpossibleError(message)
        whole = tuple(range(world))
        found = {
            rank: _record(rank, world, dump, whole, frozenset(dumps))
            for rank, dump in sorted(dumps.items())
        }
    except BROKEN as error:
        more = f": {error}" if isinstance(error, ImpossibleError) else ""
        words = f"an entry of a dump does not have torch's form{more}"
        raise refusal(path, "bad_record", words) from None
    _aligned(found)
    return found


def _groups(dump: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    found = {}
    for key, told in dump.get("pg_config", {}).items():
        ranks = told.get("ranks", [])
        if isinstance(ranks, str):
            ranks = json.loads(ranks) if ranks.strip() else []
        found[str(key)] = tuple(int(each) for each in ranks)
        found.setdefault(str(told.get("name", key)), found[str(key)])
    return found


def _record(
    rank: int,
    world: int,
    dump: Mapping[str, Any],
    whole: tuple[int, ...],
    known: frozenset[int],
) -> RankRecord:
    groups = _groups(dump)
    record = RankRecord(rank=rank, world_size=world, about={"mode": "flight recorder"})
    numbers: dict[str, int] = {}
    tensors = 0
    entries = sorted(dump["entries"], key=lambda each: int(each.get("record_id", 0)))
    for entry in entries:
        told = _NAME.match(str(entry["profiling_name"]))
        operation = NAMES.get(told["name"]) if told else None
        if told is None or operation is None:
            record.notes.append(f"`{str(entry['profiling_name'])[:60]}` is not read")
            continue
        group = entry.get("process_group") or ("0", "")
        name = str(group[0])
        ranks = groups.get(name) or whole
        number = numbers.setdefault(name, len(numbers))
        described = "default_pg" if ranks == whole else str(group[1])
        record.groups[number] = (name, ranks, described)
        record.items.append(_call(entry, operation, told, ranks, number))
        tensors += len(entry.get("input_sizes") or []) + len(entry.get("output_sizes") or [])
        if tensors > MOST_TENSORS:
            message = f"there are more than {MOST_TENSORS} tensors"
            raise ImpossibleError(message)
    last = record.calls[-1] if record.calls else None
    record.inside = last is not None and not last.completes
    if not entries:
        record.notes.append(
            "a dump has no entry: the recorder was off, or the program used only messages on Gloo, "
            "which it does not see"
        )
    if any(each.operation in ROOTED for each in record.calls):
        record.notes.append("dumps name no root: it is assumed to be the same on all ranks")
    missing = sorted(set(whole) - known)
    if missing:
        record.notes.append(f"rank {', '.join(map(str, missing[:8]))} unknown: there is no dump")
    return record


def _call(
    entry: Mapping[str, Any],
    operation: str,
    told: re.Match[str],
    ranks: tuple[int, ...],
    number: int,
) -> RecordedCall:
    peer = None
    if operation in MESSAGES and told["two"] is not None:
        peer = ranks[int(told["two"])]
    frames = tuple(
        (clean_line(str(each["filename"])[-MOST_CHARACTERS:]), int(each["line"]), "")
        for each in (entry.get("frames") or [])[:200]
        if not is_foreign(str(each["filename"]))
    )
    done = bool(entry.get("retired")) or entry.get("state") == "completed"
    return RecordedCall(
        number=int(entry.get("record_id", 0)),
        operation=operation,
        group=ranks,
        group_name=str(number),
        place=ScriptPlace(frames=frames[:3]),
        inputs=_tensors(entry, "input"),
        outputs=_tensors(entry, "output"),
        op="sum" if operation in REDUCTIONS else None,
        root=ranks[0] if operation in ROOTED else None,
        peer=peer,
        completes=done,
        ended_us=0 if done else None,
        began_us=int(entry.get("collective_seq_id", 0)),
    )


def _tensors(entry: Mapping[str, Any], side: str) -> tuple[Tensor, ...]:
    sizes, dtypes = entry.get(f"{side}_sizes") or [], entry.get(f"{side}_dtypes") or []
    found = []
    for at, size in enumerate(sizes[:MOST_RANKS]):
        shape = tuple(map(int, size[: MOST_DIMENSIONS + 1]))
        if len(shape) > MOST_DIMENSIONS or any(not 0 <= each < 1 << 62 for each in shape):
            message = f"{list(shape)[:8]} is not a shape"
            raise ImpossibleError(message)
        dtype = DTYPES.get(str(dtypes[at]) if at < len(dtypes) else "", "float32")
        found.append(Tensor(dtype=dtype, shape=shape))
    return tuple(found)


def _aligned(records: Mapping[int, RankRecord]) -> None:
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
        kept = []
        for call in record.calls:
            first = max(firsts[call.group], default=0)
            if call.operation in MESSAGES or call.began_us >= first:
                kept.append(call)
        if len(kept) < len(record.items):
            record.wrapped = True
            record.notes.append("the dumps begin in the middle of the program: the ring was full")
        record.items = list(kept)
