"""Random masks and noise: alike in a tensor-parallel group, apart on data-parallel ranks.

Ranks of one tensor-parallel group that drop elements of one and the same activation must draw one
mask: with a seed of its own each rank computes with another activation, and their sum is none that
one process has (an error). Data-parallel ranks that draw one mask, noise or augmentation for other
rows train on less variety than they seem to: `torch.manual_seed(0)` on all ranks (a warning, as it
costs variance alone).

An activation that is split has other inputs on each rank, and may have any masks. Noise counts
where it has a row for each row of a loader's batch and is drawn between this batch and its
backward pass: a perturbation of weights and a sketch of gradients are drawn elsewhere, and noise
for all rows, of which each rank takes its own, has more rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from torch_scenarios.record.values.format.event import (
    BackwardPass,
    DropoutCall,
    LoadedBatch,
    LoaderDraw,
    NoiseDraw,
)
from torch_scenarios.record.values.format.record import ValueRecord
from torch_scenarios.record.values.invariants.finding import Records, ValueFinding
from torch_scenarios.record.values.roles import Ranks, Roles
from torch_scenarios.verdict.finding import ranks_text

#: steps in all of which noise must be equal on ranks with other rows
MOST_FEW = 3

SEED_EACH = (
    "seed each data-parallel rank by itself once the weights are equal: "
    "`torch.manual_seed(seed + rank)`"
)


def find_masks(records: Records, roles: Roles) -> Iterator[ValueFinding]:
    """Yield random calls that must agree and do not, or agree and should not."""
    for ranks in roles.model:
        if found := _masks(records, ranks, differ=True):
            yield found
            return
    for ranks in roles.data:
        if found := _masks(records, ranks, differ=False):
            yield found
            return


def _masks(records: Records, ranks: Ranks, *, differ: bool) -> ValueFinding | None:
    """Return the finding that dropout masks differ where they must not, or are the same.

    `differ` says which of the two is looked for.
    """
    lists = [records[rank].of(DropoutCall) for rank in ranks if rank in records]
    for together in zip(*lists, strict=False):
        states = {each.state for each in together}
        inputs = {each.input for each in together}
        turn, place = together[0].turn, together[0].place
        if differ and len(inputs) == 1 and len(states) > 1:
            return ValueFinding(
                code="masks_differ",
                message="the ranks of one tensor-parallel group drop other elements of one and the "
                f"same activation at step {turn}",
                ranks=ranks,
                rank=ranks[0],
                place=place,
                hint="draw the mask of a replicated activation from one generator on all ranks of "
                "the group: give them one seed, and another seed each only for activations that "
                "are split",
                turn=turn,
            )
        if not differ and len(inputs) == len(together) and len(states) == 1:
            return ValueFinding(
                code="same_mask",
                message="the data-parallel ranks draw one and the same mask for other rows at step "
                f"{turn}",
                ranks=ranks,
                rank=ranks[0],
                place=place,
                hint=SEED_EACH,
                turn=turn,
                error=False,
            )
    return None


def find_noise(records: Records, roles: Roles) -> Iterator[ValueFinding]:
    """Yield noise that is one and the same for other rows on data-parallel ranks.

    It has a row for each row of a loader's batch, and is drawn after that and before the backward
    pass. Noise for all rows of a step, of which each rank takes its own, has more; a sketch of
    gradients, a perturbation of weights and samples to look at are drawn elsewhere. A warning:
    one noise may be on purpose, as in antithetic pairs, or cost nothing but variance.
    """
    for ranks in roles.data:
        present = [rank for rank in ranks if rank in records]
        if len(present) < 2:
            continue
        drawn = [_noise_of_batches(records[rank]) for rank in present]
        for line in drawn[0]:
            own = [each.get(line, {}) for each in drawn]
            steps = set.intersection(*({*each} for each in own))
            if len(steps) < MOST_FEW or any(len(each) > len(steps) for each in own):
                continue
            if all(_is_one_noise([each[step] for each in own]) for step in steps):
                place = drawn[0][line][min(steps)][0]
                yield ValueFinding(
                    code="same_mask",
                    message=f"{ranks_text(present)} draw one and the same noise for other rows, in "
                    f"all of the first {len(steps)} steps",
                    ranks=tuple(present),
                    rank=present[0],
                    place=place,
                    hint=SEED_EACH,
                    turn=min(steps),
                    error=False,
                )
                return


def find_augmentations(records: Records, roles: Roles) -> Iterator[ValueFinding]:
    """Yield loaders that draw the same random numbers for other rows on data-parallel ranks."""
    for ranks in roles.data:
        present = [rank for rank in ranks if rank in records]
        drawn = [_draws_of_loaders(records[rank]) for rank in present]
        if len(present) < 2 or len(drawn[0]) < MOST_FEW or len({*map(len, drawn)}) > 1:
            continue
        if all(_is_one_noise([*own]) for own in zip(*drawn, strict=True)):
            yield ValueFinding(
                code="same_mask",
                message=f"{ranks_text(present)} draw the same random numbers for other rows where "
                f"a batch is loaded, in all of the first {len(drawn[0])} batches",
                ranks=tuple(present),
                rank=present[0],
                place=drawn[0][0][0],
                hint="seed the generators of the dataset and of its transforms by the rank, and "
                "by the worker: `worker_init_fn`",
                error=False,
            )
            return


def _draws_of_loaders(record: ValueRecord) -> list[Drawn]:
    """Return the states from which a loader drew, and the rows of the batch, for each batch."""
    found = []
    for each in record.of(LoaderDraw):
        batch = next((own for own in record.batches if own.at > each.at), None)
        if batch is not None and batch.trained:
            found.append((each.place, " ".join(each.states), frozenset(batch.rows)))
    return found


#: where noise was drawn, its hash, and the rows that it is for
Drawn = tuple[int, str, frozenset[str]]


def _noise_of_batches(record: ValueRecord) -> dict[Any, dict[int, Drawn]]:
    """Return the first noise of each step that has a row for each row of a batch, by its line."""
    found: dict[Any, dict[int, Drawn]] = defaultdict(dict)
    for each in record.of(NoiseDraw):
        batch = _batch_of(record, each.at)
        is_of_rows = batch is not None and each.shape[0] == len(batch.rows)
        if batch is not None and is_of_rows and not _is_of_weights(record, each.shape):
            line = record.places.get(each.place, ())[:1]
            drawn = each.place, each.noise, frozenset(batch.rows)
            found[line].setdefault(each.turn, drawn)
    return found


def _is_of_weights(record: ValueRecord, shape: tuple[int, ...]) -> bool:
    """Whether noise may be that of weights, by its shape: as many rows as a batch has by chance."""
    own = {each for p in record.parameters.values() for each in (p.shape, p.local)}
    return shape in own or (len(shape) == 1 and any(shape[0] in each for each in own))


def _batch_of(record: ValueRecord, at: int) -> LoadedBatch | None:
    """Return the batch that noise is drawn for: the last one, before its backward pass."""
    before = [each for each in record.batches if each.at < at]
    if not before or not before[-1].trained:
        return None
    passed = any(before[-1].at < each.at < at for each in record.of(BackwardPass))
    return None if passed else before[-1]


def _is_one_noise(drawn: list[Drawn]) -> bool:
    """Whether ranks draw the same noise, and none of their rows is on two of them."""
    rows = [own for _, _, own in drawn]
    return len({noise for _, noise, _ in drawn}) == 1 and sum(map(len, rows)) == len(
        frozenset.union(*rows)
    )
