"""Rows: each is on one data-parallel rank, in another order in each epoch.

A loader without a DistributedSampler gives all data-parallel ranks the same rows, so that n ranks
compute what one does; a sampler without `set_epoch` deals each epoch in one order. Rows are
compared by their content, and by their indices too where a dataset has many that are equal.

Rows on several ranks are right where a sampler draws with replacement, where it pads an epoch to
a multiple of the ranks, and where a model without a loader is tried on one batch again and again
(on few rows that change it is a warning). Of a sampler that never ends the first pass over the
dataset alone counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, pairwise
from typing import Any

from torch_scenarios.record.values.format.event import (
    LoadedBatch,
    ModelInput,
)
from torch_scenarios.record.values.format.record import ValueRecord
from torch_scenarios.record.values.invariants.finding import Records, ValueFinding
from torch_scenarios.record.values.roles import Ranks, Roles
from torch_scenarios.verdict.finding import ranks_text

#: rows from which those of two ranks are compared
MOST_FEW = 8
#: steps and rows from which a model that is called with the same rows on all ranks is trained, and
#: not only tried
MOST_TRIALS, MOST_TRIED = 3, 64
#: part of the rows that two ranks may share where each has a row once alone
FEW_PART = 0.1
#: part of the rows of an epoch from which ranks are said to read the same
SAME_PART = 0.5


def find_same_samples(records: Records, roles: Roles) -> Iterator[ValueFinding]:
    """Yield loaders that deal the same rows to data-parallel ranks."""
    for ranks in roles.data:
        present = [rank for rank in _leave_one_of_each_model(ranks, roles) if rank in records]
        if not present:
            continue
        loaders = sorted({n for rank in present for n in records[rank].loaders})
        found = next(filter(None, (_find_shared_rows(records, present, n) for n in loaders)), None)
        found = found or _find_shared_inputs(records, present)
        if found is not None:
            yield found


def _leave_one_of_each_model(ranks: Ranks, roles: Roles) -> list[int]:
    """Return one rank of each group that computes one model together, and all other ranks.

    The ranks of such a group have the same rows, and gradients may be reduced over several groups.
    """
    left = [*ranks]
    for group in roles.model:
        if {*group} < {*ranks}:
            left = [rank for rank in left if rank not in group[1:]]
    return left


def _rows_of(record: ValueRecord, loader: int, epoch: int, *, trained: bool) -> list[LoadedBatch]:
    return [
        each
        for each in record.batches
        if each.loader == loader and each.epoch == epoch and each.trained is trained
    ]


def _find_shared_rows(records: Records, ranks: list[int], loader: int) -> ValueFinding | None:
    """Return that two ranks were dealt the same rows in one epoch of training."""
    about = {rank: records[rank].loaders.get(loader) for rank in ranks}
    if any(each is None or each["replacement"] for each in about.values()):
        return None
    epochs = sorted(
        {b.epoch for rank in ranks for b in records[rank].batches if b.loader == loader}
    )
    for epoch in epochs:
        batches = {r: _rows_of(records[r], loader, epoch, trained=True) for r in ranks}
        rows = {rank: _identities(found) for rank, found in batches.items()}
        if any(count > 1 for each in rows.values() for count in each.values()):
            batches = _keep_first_pass(batches, int((about[ranks[0]] or {}).get("rows", -1)))
            rows = {rank: _identities(found) for rank, found in batches.items()}
        best: tuple[int, int, int] = (0, 0, 0)
        for one, other in combinations(ranks, 2):
            shared = sum((rows[one] & rows[other]).values())
            if shared > best[0]:
                best = (shared, one, other)
        shared, one, other = best
        if not shared:
            continue
        total = min(sum(rows[one].values()), sum(rows[other].values()))
        padding = len(ranks) if (about[one] or {}).get("num_replicas", 0) else 0
        if (
            total >= MOST_FEW
            and shared >= _bound_shared_rows(rows, one, other)
            and shared > padding
        ):
            batch = batches[one][0]
            alike = _are_all_alike(rows)
            who = ranks_text(ranks) if alike else f"ranks {one} and {other}"
            return ValueFinding(
                code="same_samples",
                message=f"{who} train on the same rows: {shared} of {total} rows of epoch {epoch} "
                f"are on {'each of them' if alike else 'both'}",
                ranks=tuple(ranks if alike else (one, other)),
                rank=one,
                place=batch.place,
                hint=_tell_sampler(
                    [about[rank] or {} for rank in (one, other)], batches[one], batches[other]
                )
                or _dealt(about[one] or {}),
                turn=0,
            )
    return None


def _tell_sampler(
    about: Sequence[Mapping[str, Any]], own: Sequence[LoadedBatch], others: Sequence[LoadedBatch]
) -> str:
    """Return what to do where two samplers deal as two of as many ranks; nothing where not so.

    They deal other numbers of rows, and the rows are the same: the datasets are in other orders. Or
    they deal the same numbers: each is shuffled otherwise.
    """
    one, other = about
    if not one.get("num_replicas") or one.get("rank") == other.get("rank"):
        return ""
    numbers = [{index for batch in side for index in batch.indices or ()} for side in (own, others)]
    if all(numbers) and not numbers[0] & numbers[1]:
        return (
            "give every rank one and the same dataset: its samplers deal other numbers, and the "
            "rows behind them are in another order on each rank, or split otherwise. Split, "
            "shuffle and filter with one seed: `random_split(..., "
            "generator=torch.Generator().manual_seed(0))`"
        )
    return (
        "shuffle the same way on all ranks: give each DistributedSampler one `seed` and one epoch"
    )


def _keep_first_pass(
    batches: Mapping[int, list[LoadedBatch]], rows: int
) -> dict[int, list[LoadedBatch]]:
    """Return what ranks read together before they have read as many rows as there are.

    A sampler that never ends passes over its dataset again within one epoch of the loader: what is
    on one rank the first time may be on another one then. Where the rows are not counted, all stay.
    """
    dealt = 0
    steps = [*zip(*batches.values(), strict=False)]
    for at, together in enumerate(steps):
        dealt += sum(len(each.rows) for each in together)
        if 0 <= rows < dealt:
            return {rank: own[:at] for rank, own in batches.items()}
    return dict(batches)


def _bound_shared_rows(rows: Mapping[int, Counter[Any]], one: int, other: int) -> float:
    """Return how many rows of two ranks are too many: fewer where each rank has its own but once.

    Rows that are twice on one rank are drawn with replacement, or are alike in the dataset.
    """
    once = all(max(rows[rank].values()) == 1 for rank in (one, other))
    total = min(sum(rows[one].values()), sum(rows[other].values()))
    return max(FEW_PART * total, float(MOST_FEW // 2)) if once else SAME_PART * total


def _find_shared_inputs(records: Records, ranks: list[int]) -> ValueFinding | None:
    """Return that data-parallel ranks call their model with the same new rows at every step.

    For programs without a loader. A batch that is the same at each step is a trial, no data; those
    of an epoch come again in the next one.
    """
    inputs = {
        rank: [(e.turn, e.rows, e.place) for e in record.of(ModelInput)]
        for rank, record in records.items()
        if rank in ranks
    }
    first, *others = (inputs[rank] for rank in ranks)
    called = [rows for _, rows, _ in first]
    batches = _keep_first_epoch(called)
    if any(records[rank].batches for rank in ranks) or not batches:
        return None
    is_data = len({turn for turn, *_ in first[: len(batches)]}) > 1
    count = sum(map(len, batches))
    if not is_data or count < MOST_FEW or len({r for rows in batches for r in rows}) < count / 2:
        return None
    alike = [
        rank
        for rank, each in zip(ranks[1:], others, strict=True)
        if [rows for _, rows, _ in each] == called
    ]
    if not alike:
        return None
    return ValueFinding(
        code="same_samples",
        message=f"{ranks_text([ranks[0], *alike])} train on the same rows: the model is called "
        f"with the same {count} rows on each of them",
        ranks=(ranks[0], *alike),
        rank=ranks[0],
        place=first[0][2],
        hint="give each data-parallel rank its own rows: draw them from a generator that is seeded "
        "by the rank, or take the rank's part of the batch",
        error=len(batches) >= MOST_TRIALS and count >= MOST_TRIED,
    )


def _keep_first_epoch(batches: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the batches before the first one that is there again, if they come in one order."""
    seen = dict.fromkeys(batches)
    epoch = [*seen]
    turns = [epoch[at % len(epoch)] for at in range(len(batches))]
    return epoch if turns == [*batches] else []


def _dealt(about: Mapping[str, Any]) -> str:
    if about.get("num_replicas"):
        return (
            f"its DistributedSampler has num_replicas={about['num_replicas']} and "
            f"rank={about.get('rank')} on this rank: give each rank its own number"
        )
    if about.get("rows", -1) < 0:
        return (
            "let each rank yield its own rows: skip those whose number modulo the world size is "
            "another one, in each worker of the loader too"
        )
    return (
        "give the loader `sampler=DistributedSampler(dataset)`, so that each rank has its own rows"
    )


def _are_all_alike(rows: Mapping[int, Counter[Any]]) -> bool:
    first = next(iter(rows.values()))
    return len(rows) > 2 and all(each == first for each in rows.values())


def _identities(batches: Sequence[LoadedBatch]) -> Counter[Any]:
    """Return what tells rows apart: their content; the index too where some are alike."""
    content = [row for batch in batches for row in batch.rows]
    if len(set(content)) >= 0.9 * len(content):
        return Counter(content)
    if any(each.indices is None or len(each.indices) != len(each.rows) for each in batches):
        return Counter()
    pairs = [pair for each in batches for pair in zip(each.rows, each.indices or (), strict=True)]
    return Counter(pairs)


def find_same_order(records: Records, roles: Roles) -> Iterator[ValueFinding]:
    """Yield samplers that shuffle and deal every epoch in one and the same order."""
    del roles
    for rank, record in records.items():
        for loader, about in record.loaders.items():
            if not about.get("num_replicas") or not about.get("shuffle"):
                continue
            epochs = sorted({b.epoch for b in record.batches if b.loader == loader and b.trained})
            orders = [
                [row for b in _rows_of(record, loader, e, trained=True) for row in b.rows]
                for e in epochs
            ]
            for (one, first), (other, second) in pairwise(zip(epochs, orders, strict=True)):
                if len(first) > 4 and first == second and len(set(first)) > 4:
                    yield ValueFinding(
                        code="same_order_each_epoch",
                        message=f"epochs {one} and {other} deal their rows in one and the same "
                        "order, though the sampler shuffles",
                        ranks=tuple(sorted(records)),
                        rank=rank,
                        place=next(b.place for b in record.batches if b.loader == loader),
                        hint="call `sampler.set_epoch(epoch)` at the beginning of each epoch",
                    )
                    return
