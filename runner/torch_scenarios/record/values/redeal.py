"""The same batches, dealt to other ranks: the gradient of a data-parallel step must not change.

A first run keeps each rank's batches. A plan deals the rows of each global batch anew over the
ranks that get other rows, in parts of the same sizes; a second run follows it. In a third one the
rows of each rank only change places, which measures what rounding does.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from torch_scenarios.record.analysis import NothingRecordedError, record
from torch_scenarios.record.live import Launcher, Order
from torch_scenarios.record.values.format import LoadedBatch, ValueRecord, read_values
from torch_scenarios.record.values.invariants import ValueFinding
from torch_scenarios.record.values.parity import (
    Values,
    arrays_by_name,
    bound_of,
    read_tensor_file,
    read_tensors,
    size_of_gradients,
)
from torch_scenarios.record.values.source import frames_of_loss

Array = NDArray[Any]
Key = tuple[int, int, int]

#: how batches are dealt anew
KINDS = ("rows", "ranks")
#: times of what rounding was measured to do that a gradient may change; times the bound, from which
#: the change is a mistake
TIMES, SURE = 8.0, 10.0
#: change of a gradient by another order of the same rows that no rounding makes
ORDER_APART = 1e-3
#: relative change of a module's rows from which the module makes the difference
ROWS_APART = 1e-4


class UnsuitedError(Exception):
    """The batches of a training cannot be dealt anew; the message says why."""


class Redeal(Struct, frozen=True, kw_only=True):
    """What dealing anew shows: findings, a reason why nothing is known, or a change in bounds."""

    findings: tuple[ValueFinding, ...] = ()
    reason: str = ""
    change: float = 0.0
    compared: int = 0
    allowed: str = ""

    @property
    def words(self) -> str:
        """What was compared, in a clause."""
        if self.reason:
            return f"redeal: not known, {self.reason}"
        if self.allowed:
            return f"redeal: only `{self.allowed}` makes a difference, which is allowed"
        return (
            f"redeal: {self.compared} gradients do not depend on the dealing (largest change "
            f"{self.change:.1g})"
        )


# -------------------------------------------------------------------------------------------------
# The plan.


def write_plan(first: Path, folder: Path, kind: str) -> Path:
    """Write how the batches of a run are dealt anew; return the plan's file.

    `kind` is one of KINDS, or `order` for other places on the same rank. Raises UnsuitedError.
    """
    records = read_values(first)
    batches = {rank: _batches_before(record) for rank, record in records.items()}
    keys = sorted({key for own in batches.values() for key in own})
    if not keys:
        message = (
            "no loader gave a batch: name the line that makes it with `--batch train.py:31`, or "
            "pass it through `torch_scenarios.batch(x, y)`"
        )
        raise UnsuitedError(message)
    lines = _lines(batches)
    if len(lines) < 2:
        message = "all ranks train on the same rows, so that there is nothing to deal"
        raise UnsuitedError(message)
    folder.mkdir(parents=True, exist_ok=True)
    plan: dict[str, dict[str, Any]] = {str(rank): {} for rank in records}
    for key in keys:
        parts = [batches[ranks[0]].get(key) for ranks in lines]
        name = "-".join(map(str, key))
        if all(each is None or each.indices is not None for each in parts):
            own = [list(each.indices or ()) if each is not None else [] for each in parts]
            for ranks, was, now in zip(lines, own, _dealt(own, kind), strict=True):
                for rank in ranks:
                    plan[str(rank)][name] = {"from": was, "to": now}
        else:
            _write_tensors(first, folder, name, lines, kind)
            for ranks in lines:
                for rank in ranks:
                    plan[str(rank)][name] = {"from": None, "to": None}
    path = folder / "plan.json"
    path.write_text(json.dumps(plan), encoding="utf-8")
    return path


def _batches_before(record: ValueRecord) -> dict[Key, LoadedBatch]:
    """Return the batches of training before the last step whose values are kept."""
    steps = record.steps[: int(record.settings.get("steps", 0))]
    until = steps[-1].at if steps else 0
    found = [each for each in record.batches if each.at < until]
    return {(each.loader, each.epoch, each.number): each for each in found if each.trained}


def _lines(batches: Mapping[int, Mapping[Key, LoadedBatch]]) -> list[list[int]]:
    """Return the ranks by what rows they get: those of one model get the same."""
    groups: dict[Any, list[int]] = {}
    for rank, own in sorted(batches.items()):
        groups.setdefault(tuple((key, own[key].rows) for key in sorted(own)), []).append(rank)
    return [*groups.values()]


def _dealt(parts: Sequence[list[Any]], kind: str) -> list[list[Any]]:
    """Return the rows of each part, dealt anew: in parts of the same sizes."""
    if kind == "order":
        return [[*part[-1:], *part[:-1]] for part in parts]
    whole = [row for part in parts for row in part]
    if kind == "ranks" and len({len(part) for part in parts}) == 1:
        return [parts[-1], *parts[:-1]]
    whole = [*whole[-1:], *whole[:-1]]
    found, at = [], 0
    for part in parts:
        found.append(whole[at : at + len(part)])
        at += len(part)
    return found


def _write_tensors(
    first: Path, folder: Path, name: str, lines: Sequence[list[int]], kind: str
) -> None:
    """Deal the rows of tensors anew, and write them for each rank."""
    from safetensors.numpy import save_file

    kept = [read_tensor_file(first / _file_of(ranks[0], name)) for ranks in lines]
    if len({len(each) for each in kept}) > 1:
        message = "the batches of the ranks have another number of tensors"
        raise UnsuitedError(message)
    dealt: list[dict[str, Array]] = [{} for _ in kept]
    for at in kept[0]:
        parts = [each[at] for each in kept]
        if any(each.ndim == 0 for each in parts) or len({each.shape[1:] for each in parts}) > 1:
            message = (
                "the rows of the ranks' batches have other shapes "
                f"({', '.join(str(list(each.shape)) for each in parts[:4])})"
            )
            raise UnsuitedError(message)
        numbers = _dealt(_number_rows(parts), kind)
        whole = np.concatenate(parts)
        for own, rows in zip(dealt, numbers, strict=True):
            own[at] = np.ascontiguousarray(whole[rows])
    for ranks, own in zip(lines, dealt, strict=True):
        for rank in ranks:
            save_file(own, folder / f"dealt-{rank:05d}-{name}.safetensors")


def _number_rows(parts: Sequence[Array]) -> list[list[int]]:
    """Return the numbers of the rows of each part, in all of them."""
    starts = [sum(each.shape[0] for each in parts[:at]) for at in range(len(parts))]
    return [
        [*range(start, start + each.shape[0])] for start, each in zip(starts, parts, strict=True)
    ]


def _file_of(rank: int, name: str) -> str:
    return f"values-{rank:05d}-batch-{name}.safetensors"


def deal_again(
    order: Order, kind: str, allow: Sequence[str] = (), start: Launcher | None = None
) -> Redeal:
    """Run a recorded program twice more, its batches dealt anew, and compare the gradients.

    `order` is the first run's, whose record has its batches. Raises LaunchError where a run cannot
    be started.
    """
    folders = []
    for each in (kind, "order"):
        folder = order.folder / "redeal" / each
        shutil.rmtree(folder, ignore_errors=True)
        try:
            plan = write_plan(order.folder, folder, each)
        except UnsuitedError as error:
            return Redeal(reason=str(error))
        values = {**order.values, "plan": str(plan.absolute()), "stop": True}
        again = replace(order, folder=folder, values=values, silent=True)
        try:
            found = record(again, start=start)
        except NothingRecordedError:
            return Redeal(reason="a further run does not communicate")
        if found.ran.stuck or found.ran.timed_out:
            return Redeal(reason=f"a further run does not end: {found.reason}")
        folders.append(folder)
    return compare_dealings(order.folder, folders[0], folders[1], allow)


# -------------------------------------------------------------------------------------------------
# What it shows.


def compare_dealings(first: Path, dealt: Path, ordered: Path, allow: Sequence[str] = ()) -> Redeal:
    """Compare the gradients of a run with those of its batches dealt anew, and put in other places.

    `allow` are modules, by name or kind, that may make a difference.
    """
    records, others = read_values(first), read_values(dealt)
    if reason := _unlike(records, others):
        return Redeal(reason=reason)
    values = [
        {rank: read_tensors(folder, rank) for rank in records} for folder in (first, dealt, ordered)
    ]
    changes = [*_changes(*values)]
    if not changes:
        return Redeal(reason="no optimizer has stepped: there is nothing to compare")
    if any(each.order > ORDER_APART for each in changes):
        return Redeal(reason=_why_order_matters(records))
    wrong = [each for each in changes if each.off > SURE * each.bound]
    if not wrong:
        unsure = [each for each in changes if each.off > each.bound]
        if unsure:
            return Redeal(
                reason=f"{len(unsure)} of {len(changes)} gradients change by more than rounding "
                "should make, and by less than a mistake does"
            )
        most = max(each.off for each in changes)
        return Redeal(change=most, compared=len(changes))
    step = wrong[0].step
    most_change = max((each for each in wrong if each.step == step), key=lambda each: each.off)
    cause = _cause(records, values, step)
    if cause is not None and {cause.name.partition("#")[0], cause.kind} & {*allow}:
        return Redeal(allowed=cause.name.partition("#")[0], compared=len(changes))
    return Redeal(findings=(_make_finding(records, most_change, cause),), compared=len(changes))


def _why_order_matters(records: Mapping[int, ValueRecord]) -> str:
    if any(any(record.of_kind("rand")) for record in records.values()):
        return (
            "random numbers are drawn in the forward pass (random_in_forward): turn them off with "
            "`--no-dropout`"
        )
    return (
        "the gradient depends on the order of the rows on one and the same rank: something is "
        "drawn at random, or belongs to a place in the batch"
    )


class _Change(Struct, frozen=True, kw_only=True):
    """How far a gradient is off, relative to its largest element, and how far it may be.

    `order` is how far it is off where rows only changed places.
    """

    step: int
    rank: int
    name: str
    off: float
    bound: float
    order: float


class _Cause(Struct, frozen=True, kw_only=True):
    """The first module whose rows are not those of the other dealing."""

    name: str
    kind: str
    rank: int
    place: int


def _unlike(records: Mapping[int, ValueRecord], others: Mapping[int, ValueRecord]) -> str:
    """Return why a further run did not follow its plan, or nothing."""
    if {*records} != {*others}:
        return "the further run has other ranks"
    events = [e for record in others.values() for e in record.of_kind("dealt")]
    if any(each.details[3] == "unlike" for each in events):
        return (
            "a further run draws other rows from its samplers: seed them, so that it can be "
            "repeated"
        )
    if not events:
        return "a further run got none of the batches that were dealt"
    return ""


def _changes(
    first: Mapping[int, Values], dealt: Mapping[int, Values], ordered: Mapping[int, Values]
) -> Iterator[_Change]:
    """Yield the change of each gradient, step by step."""
    for step in sorted({step for values in first.values() for step in values}):
        largest = size_of_gradients(first.values(), step)
        for rank, values in first.items():
            others = arrays_by_name(dealt[rank], step, "gradient")
            third = arrays_by_name(ordered[rank], step, "gradient")
            for name, own in arrays_by_name(values, step, "gradient").items():
                if name not in others or not own.size:
                    continue
                size = max(_largest(own), largest) or 1.0
                off = _apart(own, others[name]) / size
                measured = _apart(own, third[name]) / size if name in third else 0.0
                bound = max(TIMES * measured, bound_of(own, step))
                yield _Change(step=step, rank=rank, name=name, off=off, bound=bound, order=measured)


def _largest(value: Array) -> float:
    return float(np.abs(value.astype(float)).max(initial=0.0))


def _apart(one: Array, other: Array) -> float:
    if one.shape != other.shape:
        return float("inf")
    return float(np.abs(one.astype(float) - other.astype(float)).max(initial=0.0))


def _cause(
    records: Mapping[int, ValueRecord], values: Sequence[Mapping[int, Values]], step: int
) -> _Cause | None:
    """Return the first module whose outputs, row by row, are others after the dealing."""
    rank, record = next(iter(records.items()))
    for event in record.of_kind("out"):
        turn, name, kind, place = event.details
        if turn != step:
            continue
        sketches = [_sketches(side, step, name) for side in values[:2]]
        if sketches[0] is None or sketches[1] is None:
            continue
        one, other = sketches
        size = max(float(np.abs(one).max(initial=0.0)), 1e-30)
        if one.shape == other.shape and float(np.abs(one - other).max()) > ROWS_APART * size:
            return _Cause(name=name, kind=kind, rank=rank, place=place)
    return None


def _sketches(side: Mapping[int, Values], step: int, name: str) -> Any:
    """Return a number for each row of an output on all ranks, in order of size."""
    found = []
    for values in side.values():
        own = arrays_by_name(values, step, "out").get(name)
        if own is None or own.ndim < 1 or not own.size:
            return None
        rows = own.reshape(own.shape[0], -1).astype(float)
        draw = np.random.default_rng(rows.shape[1]).normal(size=rows.shape[1])
        found.append(rows @ draw)
    return np.sort(np.concatenate(found))


def _make_finding(
    records: Mapping[int, ValueRecord], change: _Change, cause: _Cause | None
) -> ValueFinding:
    changed = (
        f"the gradient of `{change.name}` changes by {change.off:.2g} of its largest element when "
        f"the same batch is dealt to the ranks in another way ({change.off / change.bound:.2g} "
        "times what rounding does)"
    )
    if cause is not None:
        name, _, _ = cause.name.partition("#")
        return ValueFinding(
            code="depends_on_dealing",
            message=f"step {change.step}: {changed}: `{name}` ({cause.kind}) is the first module "
            "whose rows depend on which rows are on the same rank",
            ranks=tuple(records),
            rank=cause.rank,
            place=cause.place,
            hint="let it see the rows of all ranks (SyncBatchNorm, an all_gather with its "
            f"gradient), or accept it with `--allow {name or cause.kind}`",
            turn=change.step,
            name=change.name,
        )
    record = records[change.rank]
    backward = [e for e in record.of_kind("bw") if e.details[0] == change.step]
    place = backward[0].details[1] if backward else record.steps[0].place
    return ValueFinding(
        code="depends_on_dealing",
        message=f"step {change.step}: {changed}; the forward pass of each row is the same, so the "
        "mean of the loss, or the sum of the gradients, is not that of all rows",
        ranks=tuple(records),
        rank=change.rank,
        place=place,
        frames=frames_of_loss(record, place),
        hint="divide the sum of the loss by the rows or tokens of all ranks, times the number of "
        "ranks where DDP averages; reduce every gradient",
        turn=change.step,
        name=change.name,
    )
