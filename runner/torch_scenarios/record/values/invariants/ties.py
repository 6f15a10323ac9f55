"""One weight that two stages of a pipeline share.

The embedding of the first stage and the head of the last may be one weight: both begin alike, and
are equal after each step. Without a sum of their two gradients over these stages each rank trains
a weight of its own. A pair counts where one of the two is the weight of an `nn.Embedding`, and not
a constant. Ranks that train mostly the same weights are no stages, but hold a model each and may
pass on what they like.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product

from torch_scenarios.record.values.format.event import EmbeddingWeight
from torch_scenarios.record.values.format.record import ValueRecord
from torch_scenarios.record.values.invariants.finding import Records, ValueFinding
from torch_scenarios.record.values.roles import Roles, find_stages


def find_ties_apart(records: Records, roles: Roles) -> Iterator[ValueFinding]:
    """Yield an embedding that two stages of a pipeline begin with, and that is not one any more."""
    del roles
    for one, other in combinations(find_stages(records), 2):
        if _trains_alike(records[one], records[other]):
            continue  # each has a whole model: they pass on something else than a pipeline does
        for mine, theirs in _ties(records[one], records[other]):
            for step, another in zip(records[one].steps, records[other].steps, strict=False):
                if step.after.get(mine) == another.after.get(theirs):
                    continue
                if mine not in step.after or theirs not in another.after:
                    break
                names = [records[one].parameters[mine].name, records[other].parameters[theirs].name]
                yield ValueFinding(
                    code="replicas_differ",
                    message=f"`{names[0]}` of rank {one} and `{names[1]}` of rank {other} are one "
                    f"weight of two stages, and are not equal any more after step {step.turn}",
                    ranks=(one, other),
                    rank=one,
                    place=step.place,
                    hint="sum the gradients of a weight that two stages share over these stages, "
                    "before the optimizer steps",
                    turn=step.turn,
                    name=names[0],
                )
                return


def _ties(one: ValueRecord, other: ValueRecord) -> Iterator[tuple[int, int]]:
    """Yield the parameters of two stages that begin alike, and of which one is an embedding."""
    embeddings = {e.parameter for e in one.of(EmbeddingWeight)}
    others = {e.parameter for e in other.of(EmbeddingWeight)}
    for mine, theirs in product(_trained_weights(one), _trained_weights(other)):
        about, alike = one.parameters[mine], other.parameters[theirs]
        is_one = about.first == alike.first and about.shape == alike.shape
        if is_one and not about.constant and (mine in embeddings or theirs in others):
            yield mine, theirs


def _trains_alike(one: ValueRecord, other: ValueRecord) -> bool:
    """Whether most of what two ranks train began alike."""
    firsts = [{each.parameters[n].first for n in _trained_weights(each)} for each in (one, other)]
    return len(firsts[0] & firsts[1]) * 2 > max(map(len, firsts))


def _trained_weights(record: ValueRecord) -> list[int]:
    """Return the parameters that have a gradient at the first step."""
    return [n for step in record.steps[:1] for n, each in step.gradients.items() if each]
