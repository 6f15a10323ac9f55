"""The same batches, dealt to other ranks: the gradient of a data-parallel step must not change.

A first run keeps each rank's batches. A plan deals the rows of each global batch anew over the
ranks that get other rows, in parts of the same sizes; a second run follows it. In a third one the
rows of each rank only change places, which measures what rounding does.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from torch_scenarios.record.live import Launcher, RunOrder
from torch_scenarios.record.values.algorithm import (
    find_sent_precision,
    tell_another_algorithm,
)
from torch_scenarios.record.values.arrangement import (
    Values,
    arrays_by_name,
    read_tensor_file,
    read_tensors,
)
from torch_scenarios.record.values.deviation import (
    COARSE,
    COARSE_OUTPUT,
    LATER,
    SENT,
    bound_of,
    find_coarsest,
    size_of_gradients,
)
from torch_scenarios.record.values.format.event import (
    BackwardPass,
    CheckpointSave,
    DealtBatch,
    DropoutCall,
    FlatWrapper,
    LoadedBatch,
    ModelInput,
    ModuleLoad,
    ModuleOutput,
    RandomDraw,
    StepClosure,
)
from torch_scenarios.record.values.format.record import OptimizerStep, ValueRecord, read_values
from torch_scenarios.record.values.further_run import Redeal, UnsuitedError, empty_folder, run_again
from torch_scenarios.record.values.invariants.finding import ValueFinding, list_names, tell_line
from torch_scenarios.record.values.roles import find_first_use, find_scattering_groups
from torch_scenarios.record.values.source import find_batch_line, frames_of_loss
from torch_scenarios.verdict.finding import ranks_text

Array = NDArray[Any]


Key = tuple[int, int, int]


#: ranks that get one and the same batch, and which
Place = tuple[list[int], Key]


#: how batches are dealt anew
KINDS = ("rows", "ranks", "micro", "world", "resume")


#: kind -> what was done to the rows of a step
DEALT = {
    "rows": "the same batch is dealt to the ranks in another way",
    "ranks": "whole batches are passed on to other ranks",
    "micro": "the rows of a step are dealt to its microbatches in another way",
    "world": "half as many ranks train on the same rows",
}


#: times of what rounding was measured to do that a gradient may change; times the bound, from which
#: the change is a mistake
TIMES, SURE = 8.0, 10.0


#: why nothing is known of a run in which no gradient is kept
NO_STEP = "no optimizer has stepped: there is nothing to compare"


#: why gradients of half as many ranks cannot be held to those of all
SHARDS = (
    "the shards of a gradient cannot be joined along one dimension on all ranks and on half of them"
)


#: change of a gradient by another order of the same rows that no rounding makes
ORDER_APART = 1e-3


#: times the unit roundoff of a lower precision in which modules compute that it may be
COARSE_ORDER = 8.0


#: relative change of a module's rows from which the module makes the difference
ROWS_APART = 1e-4


def write_plan(first: Path, folder: Path, kind: str, *, by_number: bool = True) -> Path:
    """Write how the batches of a run are dealt anew; return the plan's file.

    `kind` is one of KINDS, or `order` for other places on the same rank. `by_number` deals rows by
    their number in the dataset, where a loader has it and all datasets are of one length. Raises
    UnsuitedError.
    """
    records = read_values(first)
    batches = {rank: _batches_before(record) for rank, record in records.items()}
    if not any(batches.values()):
        raise UnsuitedError(_say_how_to_name_batches(records))
    lines = _lines(batches)
    if len(lines) < 2 and kind != "micro":
        message = "all ranks train on the same rows, so that there is nothing to deal"
        raise UnsuitedError(message)
    folder.mkdir(parents=True, exist_ok=True)
    plan: dict[str, dict[str, Any]] = {str(rank): {} for rank in records}
    for places in _pools(records, batches, lines, kind):
        parts = [batches[ranks[0]][key] for ranks, key in places]
        lengths = {records[r].loaders.get(k[0], {}).get("rows") for own, k in places for r in own}
        if by_number and len(lengths) == 1 and all(each.indices is not None for each in parts):
            own = [list(each.indices or ()) for each in parts]
            for (ranks, key), was, now in zip(places, own, _dealt(own, kind), strict=True):
                for rank in ranks:
                    plan[str(rank)][_name_of(key)] = {"from": was, "to": now}
        else:
            _write_tensors(first, folder, places, kind)
            for ranks, key in places:
                for rank in ranks:
                    plan[str(rank)][_name_of(key)] = {"from": None, "to": None}
    path = folder / "plan.json"
    path.write_text(json.dumps(plan), encoding="utf-8")
    return path


def _say_how_to_name_batches(records: Mapping[int, ValueRecord]) -> str:
    """Say that no loader gave a batch, and what to write for the script to name its own."""
    calls = {rank: record.of(ModelInput) for rank, record in records.items()}
    rows = [tuple(each.rows for each in own) for own in calls.values()]
    if len(rows) > 1 and any(rows[0]) and len({*rows}) == 1:
        return "all ranks call the model with the same rows, so that there is nothing to deal"
    rank = min(records)
    line = "train.py:31"
    if calls[rank] and (found := find_batch_line(records[rank], calls[rank][0].place)):
        line = f"{Path(found[0]).name}:{found[1]}"
    words = (
        f"no loader gave a batch: name the line that makes it with `--batch {line}`, or pass it "
        "through `torch_scenarios.batch(x, y)`"
    )
    if _has_microbatches(records[rank]):
        words += (
            f"; a step has several microbatches: `--redeal micro --batch {line}` deals its rows "
            "among them, which shows a mean of their means"
        )
    return words


def _name_of(key: Key) -> str:
    return "-".join(map(str, key))


def _pools(
    records: Mapping[int, ValueRecord],
    batches: Mapping[int, Mapping[Key, LoadedBatch]],
    lines: Sequence[list[int]],
    kind: str,
) -> list[list[Place]]:
    """Return the batches whose rows are dealt anew among them: each with the ranks that get it.

    The batches of all lines at one turn; the microbatches of one line in one step for `micro`.
    """
    if kind != "micro":
        keys = sorted({key for own in batches.values() for key in own})
        return [[(each, key) for each in lines if key in batches[each[0]]] for key in keys]
    pools: list[list[Place]] = []
    for ranks in lines:
        own, began = batches[ranks[0]], -1
        for step in records[ranks[0]].steps:
            keys = [key for key, each in sorted(own.items()) if began < each.at < step.at]
            passes = sum(began < each.at < step.at for each in records[ranks[0]].of(BackwardPass))
            if passes < len(keys):
                message = "batches are read before the step that uses them"
                raise UnsuitedError(message)
            began = step.at
            pools.append([(ranks, key) for key in keys])
    if all(len(each) < 2 for each in pools):
        message = "each step has one microbatch, so that there is nothing to deal among several"
        raise UnsuitedError(message)
    return pools


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


def _write_tensors(first: Path, folder: Path, places: Sequence[Place], kind: str) -> None:
    """Deal the rows of tensors anew, and write them for each rank."""
    from safetensors.numpy import save_file

    kept = [read_tensor_file(first / _file_of(ranks[0], _name_of(key))) for ranks, key in places]
    if len({len(each) for each in kept}) > 1:
        message = "the batches of the ranks have another number of tensors"
        raise UnsuitedError(message)
    dealt: list[dict[str, Array]] = [{} for _ in kept]
    for at in kept[0] if kept else ():
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
    for (ranks, key), own in zip(places, dealt, strict=True):
        for rank in ranks:
            save_file(own, folder / f"dealt-{rank:05d}-{_name_of(key)}.safetensors")


def _number_rows(parts: Sequence[Array]) -> list[list[int]]:
    """Return the numbers of the rows of each part, in all of them."""
    starts = [sum(each.shape[0] for each in parts[:at]) for at in range(len(parts))]
    return [
        [*range(start, start + each.shape[0])] for start, each in zip(starts, parts, strict=True)
    ]


def _file_of(rank: int, name: str) -> str:
    return f"values-{rank:05d}-batch-{name}.safetensors"


def deal_again(
    order: RunOrder, kind: str, allow: Sequence[str] = (), start: Launcher | None = None
) -> Redeal:
    """Run a recorded program twice more, its batches dealt anew, and compare the gradients.

    `order` is the first run's, whose record has its batches. Raises LaunchError where a run cannot
    be started.
    """
    try:
        if kind == "resume":
            return check_resumption(order, start)
        if kind == "world":
            return _halve(order, allow, start)
        dealt = _follow_plan(order, kind, start)
        ordered = _follow_plan(order, "order", start)
        if _have_own_datasets(order.folder, dealt, ordered, kind):
            if found := _tell_dealt_twice(read_values(order.folder)):
                return Redeal(findings=(found,))
            dealt = _follow_plan(order, kind, start, by_number=False)
        return compare_dealings(order.folder, dealt, ordered, allow, kind)
    except UnsuitedError as error:
        return Redeal(reason=str(error))


def _follow_plan(
    order: RunOrder, kind: str, start: Launcher | None, *, by_number: bool = True
) -> Path:
    """Run the program once more by a plan; return the folder of its record."""
    folder = empty_folder(order, kind)
    plan = write_plan(order.folder, folder, kind, by_number=by_number)
    return run_again(order, folder, {"plan": str(plan.absolute()), "stop": True}, start)


def _have_own_datasets(first: Path, dealt: Path, ordered: Path, kind: str) -> bool:
    """Whether the row of one number is another one on another rank: each reads its own data.

    Rows that only change places on their rank are the same ones then, and those that come to
    another rank are not. Of rows that are padded to the longest of a batch that cannot be said.
    """
    records = read_values(first)
    batches = {rank: _batches_before(each) for rank, each in records.items()}
    keys = {rank: own.keys() for rank, own in batches.items()}
    if any(len({shape[1:] for shape in each}) > 1 for each in _shapes((first, dealt), keys)):
        return False
    one, other, third = (
        {
            rank: Counter(
                row
                for each in record.batches
                if (each.loader, each.epoch, each.number) in keys.get(rank, ())
                for row in each.rows
            )
            for rank, record in side.items()
        }
        for side in (records, read_values(dealt), read_values(ordered))
    )
    if one != third:
        return False
    if _total(one) != _total(other):
        return True
    # rows of the same numbers on each rank: no row has come to another one
    numbers = {
        frozenset(Counter(n for each in own.values() for n in each.indices or ()).items())
        for own in batches.values()
    }
    stays = kind != "micro" and one == other and len(numbers) == 1
    return stays and len({frozenset(each.items()) for each in one.values()}) == len(one)


def _total(counts: Mapping[int, Counter[str]]) -> Counter[str]:
    return sum(counts.values(), Counter())


def _shapes(
    folders: Iterable[Path], keys: Mapping[int, Iterable[Key]]
) -> Iterator[list[tuple[int, ...]]]:
    """Yield the shapes that the n-th tensor of a batch has, in all batches of some runs."""
    found: dict[str, list[tuple[int, ...]]] = {}
    for folder in folders:
        for rank, own in keys.items():
            for key in own:
                path = folder / _file_of(rank, _name_of(key))
                for at, each in read_tensor_file(path).items() if path.exists() else ():
                    found.setdefault(at, []).append(each.shape)
    yield from found.values()


def _tell_dealt_twice(records: Mapping[int, ValueRecord]) -> ValueFinding | None:
    """Return that samplers deal one dataset over the ranks, and each rank has a part of it only."""
    for rank, record in records.items():
        for number, about in record.loaders.items():
            batches = [each for each in record.batches if each.loader == number and each.trained]
            if about.get("num_replicas") != len(records) or not batches:
                continue
            return ValueFinding(
                code="same_samples",
                message=f"the sampler deals a dataset of {about['rows']} rows to {len(records)} "
                "ranks, and each rank has a dataset of its own: of these, the rows with the "
                "numbers of the other ranks are on no rank",
                ranks=tuple(records),
                rank=rank,
                place=batches[0].place,
                hint="deal the rows once: give every rank the whole dataset, in one order, or "
                "leave the DistributedSampler out",
            )
    return None


def _halve(order: RunOrder, allow: Sequence[str], start: Launcher | None) -> Redeal:
    """Run on half as many ranks, each with the rows of two, and compare the gradients."""
    world = order.world_size
    if world % 2 or order.own_launcher:
        message = (
            "half as many ranks need an even number of them, and a script that is started here"
        )
        raise UnsuitedError(message)
    folder = empty_folder(order, "world")
    values: dict[str, Any] = {"stop": True}
    if plan := _plan_of_halves(order.folder, folder):
        values["plan"] = str(plan.absolute())
    run_again(order, folder, values, start, world // 2)
    ordered = _follow_plan(order, "order", start) if plan else order.folder
    records, others = read_values(order.folder), read_values(folder)
    rows = [_rows_of_steps(each) for each in (records, others)]
    if rows[0] != rows[1]:
        fewer = "1 rank does" if world == 2 else f"{world // 2} ranks do"
        message = (
            f"{fewer} not take the rows of {world} ranks in one step: let the global batch be the "
            "same however many ranks there are"
        )
        raise UnsuitedError(message)
    return compare_dealings(order.folder, folder, ordered, allow, kind="world")


def _plan_of_halves(first: Path, folder: Path) -> Path | None:
    """Write a plan in which each of half the ranks gets the rows of two; None without a loader."""
    from safetensors.numpy import save_file

    batches = {rank: _batches_before(each) for rank, each in read_values(first).items()}
    if not any(batches.values()):
        return None
    if len(_lines(batches)) < len(batches):
        message = "several ranks get the same rows: they are of one model, which half has not"
        raise UnsuitedError(message)
    folder.mkdir(parents=True, exist_ok=True)
    plan: dict[str, dict[str, Any]] = {str(rank): {} for rank in range(len(batches) // 2)}
    for rank, own in batches.items():
        if rank % 2:
            continue
        for key, batch in own.items():
            other = batches[rank + 1].get(key)
            if other is None:
                message = "the ranks have another number of batches"
                raise UnsuitedError(message)
            entry: dict[str, Any] = {"from": None, "to": None}
            if batch.indices is not None and other.indices is not None:
                entry["to"] = [*batch.indices, *other.indices]
            else:
                files = [first / _file_of(each, _name_of(key)) for each in (rank, rank + 1)]
                one, two = map(read_tensor_file, files)
                if any(one[at].shape[1:] != two[at].shape[1:] for at in one):
                    message = "the rows of two ranks' batches have other shapes"
                    raise UnsuitedError(message)
                joined = {at: np.concatenate([one[at], two[at]]) for at in one}
                save_file(joined, folder / f"dealt-{rank // 2:05d}-{_name_of(key)}.safetensors")
            plan[str(rank // 2)][_name_of(key)] = entry
    path = folder / "plan.json"
    path.write_text(json.dumps(plan), encoding="utf-8")
    return path


def _rows_of_steps(records: Mapping[int, ValueRecord]) -> list[set[str]]:
    """Return the rows that all ranks train on, step by step, as far as values are kept."""
    found: list[set[str]] = []
    for own in records.values():
        began = -1
        for at, step in enumerate(own.steps[: int(own.settings.get("steps", 0))]):
            found += [set()] * (at + 1 - len(found))
            loaded = [e.rows for e in own.batches if began < e.at < step.at and e.trained]
            called = [e.rows for e in own.of(ModelInput) if began < e.at < step.at]
            found[at] = found[at] | {row for rows in loaded or called for row in rows}
            began = step.at
    return found


def compare_dealings(
    first: Path, dealt: Path, ordered: Path, allow: Sequence[str] = (), kind: str = "rows"
) -> Redeal:
    """Compare the gradients of a run with those of its batches dealt anew, and put in other places.

    `allow` are modules, by name or kind, that may make a difference; `kind` how they were dealt.
    """
    records, others = read_values(first), read_values(dealt)
    if kind != "world" and (reason := _explain_unlike(records, others)):
        return Redeal(reason=reason)
    values = [
        {rank: read_tensors(folder, rank) for rank in side}
        for folder, side in ((first, records), (dealt, others), (ordered, records))
    ]
    if kind == "world":
        _join_shards(values)
        records = {rank: each for rank, each in records.items() if rank in others}
        values = [{rank: own for rank, own in side.items() if rank in others} for side in values]
    one, other, third = values
    changes = [*_changes(one, other, third, find_sent_precision(records))]
    if not changes:
        is_stepped = any(each.steps for each in (*records.values(), *others.values()))
        return Redeal(reason=_tell_closure(records) or (SHARDS if is_stepped else NO_STEP))
    if any(each.order > each.order_bound for each in changes):
        return Redeal(reason=_explain_order(records))
    wrong = [each for each in changes if each.off > SURE * each.bound]
    if not wrong:
        unsure = [each for each in changes if each.off > each.bound and not each.follows]
        if unsure:
            return Redeal(
                reason=f"{len(unsure)} of {len(changes)} gradients change by more than rounding "
                "should make, and by less than a mistake does"
            )
        most = max(each.off for each in changes)
        return Redeal(change=most, compared=len(changes))
    step = wrong[0].step
    most_change = max((each for each in wrong if each.step == step), key=lambda each: each.off)
    is_left_right = _leaves_alike(one, other, most_change)
    if reason := tell_another_algorithm(
        records, step, most_change.name, is_left_right=is_left_right
    ):
        return Redeal(reason=reason)
    cause = _cause(records, values, step)
    reason = _tell_own_modules(records, others, step) or _tell_own_weights(records)
    if reason := reason or ("" if cause else _tell_padding(records, values, step)):
        return Redeal(reason=reason)
    if cause is not None and {cause.name, cause.kind} & {*allow}:
        return Redeal(allowed=cause.name, compared=len(changes))
    return Redeal(
        findings=(_make_finding(records, most_change, cause, kind),), compared=len(changes)
    )


def _tell_closure(records: Mapping[int, ValueRecord]) -> str:
    """Return that steps of an optimizer make their own backward passes, or nothing."""
    for record in records.values():
        for each in record.of(StepClosure):
            line = tell_line(record, each.place)
            return (
                f"the step of the optimizer computes gradients itself{line}, by a closure: only "
                "those from before a step are compared"
            )
    return ""


def _explain_order(records: Mapping[int, ValueRecord]) -> str:
    if reason := _tell_closure(records):
        return reason
    if any(each.of(DropoutCall) for each in records.values()):
        return (
            "random numbers are drawn in the forward pass (random_in_forward): turn them off with "
            "`--no-dropout`"
        )
    for record in records.values():
        for each in record.of(RandomDraw):
            return (
                "random numbers are drawn before the backward pass"
                f"{tell_line(record, each.place)} (random_in_forward), so that other rows get "
                "them in another order"
            )
    own = "something is drawn at random, or belongs to a place in the batch"
    if any(_has_microbatches(record) for record in records.values()):
        own += "; or microbatches count otherwise than all rows together: see `--redeal micro`"
    return f"the gradient depends on the order of the rows on one and the same rank: {own}"


def _has_microbatches(record: ValueRecord) -> bool:
    """Whether several backward passes are made for the first step."""
    until = record.steps[0].at if record.steps else 0
    return sum(each.at < until for each in record.of(BackwardPass)) > 1


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
    order_bound: float
    #: whether weights have been stepped by gradients that a lower precision has rounded
    follows: bool


class _Cause(Struct, frozen=True, kw_only=True):
    """The first module whose rows are not those of the other dealing."""

    name: str
    kind: str
    rank: int
    place: int


def _explain_unlike(records: Mapping[int, ValueRecord], others: Mapping[int, ValueRecord]) -> str:
    """Return why a further run did not follow its plan, or nothing."""
    if {*records} != {*others}:
        return "the further run has other ranks"
    events = [e for record in others.values() for e in record.of(DealtBatch)]
    if any(each.how == "unlike" for each in events):
        return (
            "a further run draws other rows from its samplers: seed them, so that it can be "
            "repeated"
        )
    if not events:
        return "a further run got none of the batches that were dealt"
    idle = tuple(rank for rank, each in records.items() if each.steps and not others[rank].steps)
    if idle and len(idle) < len(records):
        verb = "take" if len(idle) > 1 else "takes"
        return f"{ranks_text(idle)} {verb} no step in a further run, and other ranks do"
    return ""


def _join_shards(sides: Sequence[Mapping[int, Values]]) -> None:
    """Put whole gradients in the place of the first rank's, where ranks have shards of them.

    The second side has half as many ranks, whose shards are larger.
    """
    for step, own in min(sides[0].items())[1].items():
        for key in [each for each in own if each.startswith(("gradient/", "left/"))]:
            parts = [[v.get(step, {}).get(key) for _, v in sorted(side.items())] for side in sides]
            found = [[each for each in part if each is not None] for part in parts]
            if [*map(len, found)] != [*map(len, parts)] or found[0][0].shape == found[1][0].shape:
                continue
            if wholes := _join_along(found):
                for side, whole in zip(sides, wholes, strict=True):
                    side[min(side)][step][key] = whole


def _join_along(sides: Sequence[Sequence[Array]]) -> list[Array]:
    """Return the parts of each side as one whole, of one shape; none where there is none."""
    for along in range(sides[0][0].ndim):
        try:
            wholes = [np.concatenate(parts, along) for parts in sides]
        except ValueError:  # the parts differ in another dimension
            continue
        if len({whole.shape for whole in wholes}) == 1:
            return wholes
    return []


def _changes(
    first: Mapping[int, Values],
    dealt: Mapping[int, Values],
    ordered: Mapping[int, Values],
    sent: float,
) -> Iterator[_Change]:
    """Yield the change of each gradient, step by step; `sent` is the roundoff of what is sent."""
    for step in sorted({step for values in first.values() for step in values}):
        largest = size_of_gradients(first.values(), step)
        roundoff = find_coarsest(first.values(), step)
        coarse = max(SENT * sent, COARSE * roundoff) * LATER**step
        order_bound = max(ORDER_APART, COARSE_ORDER * roundoff * LATER**step)
        for rank, values in first.items():
            others = arrays_by_name(dealt[rank], step, "gradient")
            third = arrays_by_name(ordered[rank], step, "gradient")
            for name, own in arrays_by_name(values, step, "gradient").items():
                if name not in others or not own.size or others[name].shape != own.shape:
                    continue  # a shard of half as many ranks is larger
                size = max(_largest(own), largest) or 1.0
                off = _measure_distance(own, others[name]) / size
                measured = _measure_distance(own, third[name]) / size if name in third else 0.0
                bound = max(TIMES * measured, bound_of(own, step), coarse)
                yield _Change(
                    step=step,
                    rank=rank,
                    name=name,
                    off=off,
                    bound=bound,
                    order=measured,
                    order_bound=order_bound,
                    follows=bool(roundoff) and step > 0,
                )


def _tell_own_modules(
    records: Mapping[int, ValueRecord], others: Mapping[int, ValueRecord], step: int
) -> str:
    """Return that ranks call other modules whatever their rows are, or nothing.

    As where each rank has a task, and a head for it. Ranks of one line, the stages of a pipeline
    among them, call modules together. A module that no other line has is a part of the model, as
    an expert is; and where the rows choose, those that are dealt anew choose otherwise.
    """
    lines = _lines({rank: _batches_before(record) for rank, record in records.items()})
    called: list[list[set[str]]] = []
    for side in (records, others):
        names = {rank: _list_modules(each, step) for rank, each in side.items()}
        called.append([set[str]().union(*(names.get(rank, ()) for rank in own)) for own in lines])
    if called[0] != called[1] or not all(called[0]):
        return ""
    held = [
        {e.name.rpartition(".")[0] for rank in own for e in records[rank].parameters.values()}
        for own in lines
    ]
    shared = set.intersection(*held)
    common = set.intersection(*called[0])
    own = [sorted((each - common) & shared) for each in called[0]]
    if not any(own):
        return ""
    shown = "; ".join(
        f"{ranks_text(tuple(ranks))}: " + (list_names(names) if names else "none of these")
        for ranks, names in [*zip(lines, own, strict=True)][:4]
    )
    return (
        f"the ranks call different modules with their rows ({shown}): rows that are dealt to "
        "another rank are another task there, so that the gradient has to change"
    )


def _tell_own_weights(records: Mapping[int, ValueRecord]) -> str:
    """Return that lines of ranks train weights of one name that begin with other values, or none.

    As a head of one name that each rank has for its own rows. Shards are parts of one model.
    """
    lines = _lines({rank: _batches_before(record) for rank, record in records.items()})
    if find_scattering_groups(records) or any(r.of(FlatWrapper) for r in records.values()):
        return ""
    firsts = [find_first_use(records[own[0]]) for own in lines]
    held = [records[own[0]] for own in lines]
    apart = [
        name
        for name in firsts[0]
        if all(name in each for each in firsts)
        and len({each[name] for each in firsts}) > 1
        and all(_is_whole_and_trained(record, name) for record in held)
    ]
    if not apart:
        return ""
    them = "them" if len(apart) > 1 else "it"
    return (
        f"each rank trains {list_names(apart)} from values of its own: rows that are dealt to "
        f"another rank meet {them} there, so that the gradient has to change"
    )


def _is_whole_and_trained(record: ValueRecord, name: str) -> bool:
    """Whether a rank steps a parameter of which it has no part alone."""
    number = record.names[name]
    is_trained = any(each.gradients.get(number) for each in record.steps[:3])
    return is_trained and not record.parameters[number].is_part


def _list_modules(record: ValueRecord, step: int) -> set[str]:
    """Return the modules that a rank calls in a step."""
    return {each.module for each in record.of(ModuleOutput) if each.turn == step}


def _leaves_alike(
    first: Mapping[int, Values], dealt: Mapping[int, Values], change: _Change
) -> bool:
    """Whether the backward passes of all ranks leave the same mean gradient, however dealt."""
    means = []
    for side in (first, dealt):
        lefts = [arrays_by_name(each, change.step, "left") for each in side.values()]
        found = [each.get(change.name) for each in lefts]
        parts = [each.astype(float) for each in found if each is not None]
        if len(parts) < len(side) or len({each.shape for each in parts}) > 1:
            return False
        means.append(np.mean(parts, axis=0))
    size = _largest(means[0])
    return bool(size) and _measure_distance(*means) <= SURE * change.bound * size


def _largest(value: Array) -> float:
    return float(np.abs(value.astype(float)).max(initial=0.0))


def _measure_distance(one: Array, other: Array) -> float:
    if one.shape != other.shape:
        return float("inf")
    return float(np.abs(one.astype(float) - other.astype(float)).max(initial=0.0))


def _cause(
    records: Mapping[int, ValueRecord], values: Sequence[Mapping[int, Values]], step: int
) -> _Cause | None:
    """Return the first module whose outputs, row by row, are others after the dealing."""
    rank, record = next(iter(records.items()))
    apart = _rows_apart(values, step)
    seen = set()
    for event in record.of(ModuleOutput):
        name = event.module
        if event.turn != step or name in seen:
            continue
        seen.add(name)
        if (
            len(shapes := {each for side in values[:2] for each in _row_shapes(side, step, name)})
            > 1
        ):
            continue  # rows of a batch are padded to its longest
        sketches = [_sketches(side, step, name) for side in values[:2]]
        if not shapes or sketches[0] is None or sketches[1] is None:
            continue
        one, other = sketches
        size = max(float(np.abs(one).max(initial=0.0)), 1e-30)
        if one.shape == other.shape and float(np.abs(one - other).max()) > apart * size:
            return _Cause(name=name, kind=event.module_type, rank=rank, place=event.place)
    return None


def _tell_padding(
    records: Mapping[int, ValueRecord], values: Sequence[Mapping[int, Values]], step: int
) -> str:
    """Return that what a module gives back for a row depends on how far the row is padded.

    Rows come to batches of another length when they are dealt anew: what all lengths have in common
    is compared. A backward pass over a sequence reads the padding first.
    """
    record = next(iter(records.values()))
    apart = _rows_apart(values, step)
    for event in record.of(ModuleOutput):
        name = event.module
        shapes = {each for side in values[:2] for each in _row_shapes(side, step, name)}
        if event.turn != step or len(shapes) < 2 or len({len(each) for each in shapes}) > 1:
            continue
        common = tuple(map(min, zip(*shapes, strict=True)))
        one, other = (_sketches(side, step, name, common) for side in values[:2])
        if one is None or other is None or one.shape != other.shape:
            continue
        size = max(float(np.abs(one).max(initial=0.0)), 1e-30)
        if float(np.abs(one - other).max()) > apart * size:
            return (
                f"what `{name}` ({event.module_type}) gives back for a row depends on how far the "
                f"row is padded{tell_line(record, event.place)}, and rows that are dealt anew are "
                "padded otherwise: mask the padding, or pack the rows"
            )
    return ""


def _rows_apart(values: Sequence[Mapping[int, Values]], step: int) -> float:
    """Return the relative change of a module's rows that no rounding makes."""
    return max(ROWS_APART, COARSE_OUTPUT * find_coarsest(values[0].values(), step))


def _outputs(side: Mapping[int, Values], step: int, name: str) -> Iterator[list[Array]]:
    """Yield, for each rank, what a module gave back in its calls of a step."""
    for values in side.values():
        outputs = arrays_by_name(values, step, "out")
        yield [each for call, each in outputs.items() if call.partition("#")[0] == name]


def _row_shapes(side: Mapping[int, Values], step: int, name: str) -> set[tuple[int, ...]]:
    return {each.shape[1:] for calls in _outputs(side, step, name) for each in calls}


def _sketches(
    side: Mapping[int, Values], step: int, name: str, common: tuple[int, ...] = ()
) -> Any:
    """Return a number for each row of a module's outputs on all ranks, in order of size.

    Of each row, where that is asked for, what lies within a `common` shape alone.
    """
    found = []
    for calls in _outputs(side, step, name):
        if not calls or any(each.ndim < 1 or not each.size for each in calls):
            return None
        for own in calls:
            part = own[(slice(None), *map(slice, common))]
            rows = part.reshape(part.shape[0], -1).astype(float)
            draw = np.random.default_rng(rows.shape[1]).normal(size=rows.shape[1])
            found.append(rows @ draw)
    return np.sort(np.concatenate(found))


def _make_finding(
    records: Mapping[int, ValueRecord], change: _Change, cause: _Cause | None, kind: str
) -> ValueFinding:
    """Return the finding that a gradient depends on how rows are dealt to the ranks.

    `cause` is the first module that mixes rows; without one the loss is not the mean of all rows.
    """
    changed = (
        f"the gradient of `{change.name}` changes by {change.off:.2g} of its largest element when "
        f"{DEALT[kind]} ({change.off / change.bound:.2g} times what rounding does)"
    )
    if cause is not None:
        name = cause.name
        shown = f"`{name}` ({cause.kind})" if name else f"the model ({cause.kind})"
        return ValueFinding(
            code="depends_on_dealing",
            message=f"step {change.step}: {changed}: {shown} is the first module "
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
    backward = [e for e in record.of(BackwardPass) if e.turn == change.step]
    place = backward[0].place if backward else record.steps[0].place
    return ValueFinding(
        code="depends_on_dealing",
        message=f"step {change.step}: {changed}; the forward pass of each row is the same, so the "
        "mean of the loss, or the sum of the gradients, is not that of all rows",
        ranks=tuple(records),
        rank=change.rank,
        place=place,
        frames=frames_of_loss(record, place),
        hint="divide the sum of the loss by the rows or tokens of all ranks, times the number of "
        "ranks where DDP averages; reduce every gradient. A term that is not a mean of rows (a "
        "product of means, a norm, a variance) needs the sums of all ranks before",
        turn=change.step,
        name=change.name,
    )


def check_resumption(order: RunOrder, start: Launcher | None) -> Redeal:
    """Run until a checkpoint is written, run again from it, and compare with the whole run."""
    records = read_values(order.folder)
    whole = records[min(records)]
    turn = _turn_after_save(whole)
    scratch = order.folder / "redeal" / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    aside = {"scratch": str(scratch.absolute()), "redeal": False}
    half, rest = empty_folder(order, "half"), empty_folder(order, "rest")
    run_again(order, half, {**aside, "stop": True, "until": turn}, start)
    run_again(order, rest, aside, start)
    return compare_resumed(order.folder, rest)


def _turn_after_save(record: ValueRecord) -> int:
    """Return the turn before which a run can stop: a checkpoint was written by then."""
    turns = sorted({step.turn for step in record.steps})
    if len(turns) < 2:
        message = "the training has fewer than two steps"
        raise UnsuitedError(message)
    saves = [e.turn for e in record.of(CheckpointSave) if turns[0] <= e.turn < turns[-1]]
    if not saves:
        message = "no checkpoint is written between two steps (torch.save, DCP): nothing to go on"
        raise UnsuitedError(message)
    middle = turns[len(turns) // 2]
    return int(min(saves, key=lambda turn: abs(turn + 1 - middle))) + 1


def compare_resumed(whole: Path, rest: Path) -> Redeal:
    """Compare a run that went on from a checkpoint with the one that was not stopped."""
    records, others = read_values(whole), read_values(rest)
    counts = []
    for rank, own in others.items():
        if not own.steps:
            return Redeal(reason="the run that goes on takes no step")
        begin = _states(own)[0]
        states = enumerate(_states(records[rank]))
        at = next((n for n, each in states if _agree(each, begin)), None)
        if at == 0:
            return Redeal(reason="the script begins anew: it does not load its checkpoint")
        if at is None:
            return Redeal(findings=(_loads_otherwise(own),))
        pairs = [*zip(own.steps, records[rank].steps[at:], strict=False)]
        counts.append(len(pairs))
        for mine, theirs in pairs:
            if words := _difference_after_load(own, mine, records[rank], theirs):
                return Redeal(findings=(_resumes_otherwise(own, mine, theirs, words),))
    return Redeal(compared=min(counts, default=0), resumed=True)


def _states(record: ValueRecord) -> list[dict[str, str]]:
    """Return the hash of each trained parameter, by name, before each step."""
    trained = {n for step in record.steps for n in step.gradients}
    now = {n: each.first for n, each in record.parameters.items() if n in trained}
    found = []
    events: list[Any] = sorted([*record.forwards, *record.steps], key=lambda each: int(each.at))
    for event in events:
        now.update({n: each for n, each in event.changed.items() if n in now})
        if isinstance(event, OptimizerStep):
            found.append({record.parameters[n].name: each for n, each in now.items()})
            now.update({n: each for n, each in event.after.items() if n in now})
    return found


def _agree(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    common = {*one} & {*other}
    return bool(common) and all(one[name] == other[name] for name in common)


def _difference_after_load(
    record: ValueRecord, mine: OptimizerStep, whole: ValueRecord, theirs: OptimizerStep
) -> tuple[str, str] | None:
    """Return what is another at a step than without the stop, and what to do; or nothing."""
    if mine.rates != theirs.rates:
        words = f"the learning rate is {mine.rates[0]:g}, and {theirs.rates[0]:g} without the stop"
        return words, "save and load the state of the schedule, and of the optimizer"
    rows = [rows_before(*each) for each in ((record, mine), (whole, theirs))]
    if rows[0] != rows[1] and all(rows):
        same = len({*rows[0]} & {*rows[1]})
        words = f"it trains on other rows: {same} of {len(rows[1])} are the same"
        return words, (
            "save the epoch and the place in it, and begin there: the sampler's state, or a "
            "loader that skips what was read"
        )
    gradients = [_map_names(record, mine.gradients), _map_names(whole, theirs.gradients)]
    if gradients[0] != gradients[1]:
        return "the gradients are others on the same rows and weights", (
            "save and load the state of the random generators, the buffers and the scaler"
        )
    after = [_map_names(record, mine.after), _map_names(whole, theirs.after)]
    if after[0] != after[1]:
        return "the same gradients move the weights in another way", (
            "save and load the state of the optimizer (momentum, averages of squares, its step)"
        )
    return None


def _map_names(record: ValueRecord, values: Mapping[int, str | None]) -> dict[str, str | None]:
    return {record.parameters[number].name: each for number, each in values.items()}


def rows_before(record: ValueRecord, step: OptimizerStep) -> list[str]:
    """Return the rows that a step trains on: those of loaders, else those of its modules."""
    began = max((each.at for each in record.steps if each.at < step.at), default=-1)
    loaded = [e.rows for e in record.batches if began < e.at < step.at and e.trained]
    called = [e.rows for e in record.of(ModelInput) if began < e.at < step.at]
    return [row for rows in loaded or called for row in rows]


def _resumes_otherwise(
    record: ValueRecord, mine: OptimizerStep, theirs: OptimizerStep, words: tuple[str, str]
) -> ValueFinding:
    loads = [e.place for e in record.of(ModuleLoad) if e.turn == 0]
    return ValueFinding(
        code="resumes_otherwise",
        message=f"a run that goes on from its checkpoint differs at step {theirs.turn}: {words[0]}",
        ranks=(record.rank,),
        rank=record.rank,
        place=loads[-1] if loads else mine.place,
        frames=record.places.get(loads[-1] if loads else mine.place, ()),
        hint=words[1],
        turn=theirs.turn,
    )


def _loads_otherwise(record: ValueRecord) -> ValueFinding:
    step = record.steps[0]
    words = "its weights are those of no step without the stop", "load all weights and buffers"
    return _resumes_otherwise(record, step, step, words)
