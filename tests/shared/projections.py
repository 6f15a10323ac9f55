"""What a rank communicates, event by event: of its record, and of the scenario of all ranks."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from torch_scenarios.expressions.functions import numpy_arrays
from torch_scenarios.language.document import load_content
from torch_scenarios.limits import DEFAULT
from torch_scenarios.model.groups import plan
from torch_scenarios.model.process import Call, Process
from torch_scenarios.operations.base import GroupCreation, Local, Waiting
from torch_scenarios.record.format import BlockingCall, RankRecord, RecordedCall, RecordedWait
from torch_scenarios.record.program import RecordedProgram, quote
from torch_scenarios.vocabulary import DTYPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

#: an operation, its group, whom it names, and what it passes
Told = tuple[Any, ...]


def of_record(record: RankRecord, home: str, *, sizes: bool) -> Iterator[Told]:
    """Yield the calls of one rank, and the waits for those that are awaited in one place."""
    places: dict[int, list[int]] = {}
    count = 0
    loose = {call.number for call in record.calls if call.loose}
    for item in record.items:
        at = _without_batch(quote(item.place.short(home))[1:-1])
        if isinstance(item, RecordedWait):
            waited = [each for each in item.numbers if each not in loose]
            yield from (("wait", at, each) for number in waited for each in places[number])
        elif isinstance(item, RecordedCall):
            parts = 1
            if item.coalesced and item.operation.endswith("single"):
                parts = len(item.inputs)
            places[item.number] = list(range(count, count + parts))
            count += parts
            for part in range(parts):
                yield _of_call(item, part, at, sizes=sizes)
        elif isinstance(item, BlockingCall) and item.what == "init_process_group" and not item.over:
            return
    for call in _rest_of_batch(record):
        at = _without_batch(quote(call.place.short(home))[1:-1])
        yield from (("wait", at, each) for each in places[call.number])


def _without_batch(at: str) -> str:
    """Return a place without the function that a batch is, and its messages are not."""
    return at.replace(" in batch_isend_irecv", "")


def _rest_of_batch(record: RankRecord) -> list[RecordedCall]:
    """Return what a rank waits for beside what it waits for last: a batch has one handle."""
    last: set[int] = set()
    before: set[int] = set()
    for item in record.items if record.truncated else ():
        if isinstance(item, RecordedWait):
            last |= set(item.numbers)
        else:
            before, last = before | last, set()
    batches = {call.batch for call in record.calls if call.number in last}
    batches.discard(None)
    batches -= {call.batch for call in record.calls if call.number in before}
    return [x for x in record.calls if x.batch in batches and x.number not in last]


def in_order(told: Iterable[Told]) -> list[Told]:
    """Return the events with waits that follow each other at one place sorted: one step."""
    found: list[Told] = []
    for _, events in groupby(told, key=lambda each: each[:2] if each[0] == "wait" else None):
        some = list(events)
        found += sorted(some) if some[0][0] == "wait" else some
    return found


def _of_call(call: RecordedCall, part: int, at: str, *, sizes: bool) -> Told:
    tensor = None
    first = call.inputs[part : part + 1] or call.outputs[part : part + 1]
    if call.operation not in {"gather", "scatter"}:
        tensor = [
            (each.dtype if each.dtype in DTYPES else "uint8", each.shape if sizes else None)
            for each in first
        ]
    async_message = not call.completes and call.operation in {"send", "recv"}
    name = f"i{call.operation}" if async_message else call.operation
    op = call.op if call.op not in {None, "sum"} else None
    return (name, call.group, call.peer, call.root, call.tag, op, not call.completes, tensor, at)


def of_program(
    program: RecordedProgram, path: Path, *, sizes: bool, world: int
) -> Mapping[int, list[Told]]:
    """Return the calls of every rank, from the text of the scenario alone."""
    limits = replace(DEFAULT, max_ranks=max(DEFAULT.max_ranks, world))
    (scenario,) = load_content(path, program.text.encode(), limits=limits)
    resolved = plan(scenario, limits=limits)
    return {
        rank: in_order(_walked(Process(resolved, rank, numpy_arrays()), scenario.timeout_s, sizes))
        for rank in range(scenario.world_size)
    }


def _walked(process: Process, timeout_s: float, sizes: bool) -> Iterator[Told]:  # noqa: FBT001
    handles: dict[str, list[int]] = {}
    count = 0
    for call in process.walk():
        operation = call.operation
        if isinstance(operation, GroupCreation):
            process.join(operation.group(call.entry, timeout_s))
        elif isinstance(operation, Local):
            if operation.ends(call.entry):
                return
            operation.run(process, call.entry)
        elif isinstance(operation, Waiting):
            # that of torch's own code is at no place
            place = _place(call)
            names = operation.handles(call.entry) if place else ()
            for name in names:
                turns = [each for each in handles if each.startswith(f"{name}[")]
                yield from (("wait", place, one) for each in turns for one in handles.pop(each))
                yield from (("wait", place, one) for one in handles.get(name, ()))
        elif not (call.step.name or "").startswith("init_process_group"):
            assert operation is not None
            parts = list(_messages(call))
            if call.handle is not None:
                handles[call.handle] = list(range(count, count + len(parts)))
                process.keep(call)
            count += len(parts)
            yield from (_of_step(call, *each, sizes=sizes) for each in parts)


def _messages(call: Call) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the name and the arguments of a call, or of each message of a batch."""
    assert call.operation is not None
    if call.operation.name != "batch_isend_irecv":
        yield call.operation.name, call.entry.arguments
        return
    for each in call.entry["p2p_op_list"]:
        yield each["op"], {"src": each["peer"], "tag": each["tag"], "tensor": each["tensor"]}


def _of_step(call: Call, name: str, given: Mapping[str, Any], *, sizes: bool) -> Told:
    group = call.entry.group
    peer = next((given[key] for key in ("dst", "src") if key in given), None)
    root = next((given[key] for key in ("group_dst", "group_src") if key in given), None)
    if name in {"send", "isend", "recv", "irecv"}:
        root = None
    elif root is None:
        root, peer = peer, None
    else:
        root, peer = group.ranks[root], None
    tensor = None
    if name not in {"gather", "scatter"}:
        words = ("tensor", "input", "input_list", "input_tensor_list", "tensors")
        value = next((given[each] for each in words if each in given), None)
        while isinstance(value, list):
            value = value[0]
        tensor = [] if value is None else [_array(value, sizes=sizes)]
    asynchronous = bool(given.get("async_op")) or name in {"isend", "irecv"}
    op = given.get("op")
    return (
        *(name, tuple(group.ranks), peer, root, given.get("tag", 0)),
        *(None if op == "sum" else op, asynchronous, tensor, _place(call)),
    )


def _array(value: Any, *, sizes: bool) -> tuple[str, tuple[int, ...] | None]:
    assert isinstance(value, np.ndarray)
    return str(value.dtype), tuple(value.shape) if sizes else None


def _place(call: Call) -> str:
    mark = call.mark or call.step.mark
    assert mark is not None
    return _without_batch(mark.at or "")
