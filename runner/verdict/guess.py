"""A guess at the mistake where the numbers show one.

For a value that differs at a step, the members' values before it are combined in all the ways in
which such a step goes wrong; where one of them gives exactly the wrong numbers on every rank that
differs, that is the guess. It changes no verdict.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from runner.evaluation import CANNOT_COMPUTE
from runner.forms import roots_of
from runner.operations.reduction import reduced
from runner.problems import ScenarioError
from runner.scenario import steps_of
from runner.verdict.comparison import Wanted, differences
from runner.verdict.numbers import as_numbers
from runner.vocabulary import REDUCE_OPS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from runner.plan import Group
    from runner.scenario import Step
    from runner.verdict.case import Case
    from runner.verdict.finding import Finding

MOST_MEMBERS = 64
MOST_ELEMENTS = 1 << 16


def guess(case: Case, finding: Finding) -> str | None:
    """Return what the wrong numbers of a finding look like, in a phrase; None where like nothing.

    The wrong numbers are the author's where the expectation stands alone, else the run's.
    """
    found = [d for d in finding.differences if d.code == "value_differs" and not d.item]
    if not found or len(found) != len(finding.differences):
        return None
    numbers = [
        (d, as_numbers(d.expected if finding.witness == "expectation" else d.got)) for d in found
    ]
    rights = [
        (d, as_numbers(d.got if finding.witness == "expectation" else d.expected)) for d in found
    ]
    if any(value is None or value.size > MOST_ELEMENTS for _, value in (*numbers, *rights)):
        return None
    wrong = {d.rank: value for d, value in numbers if value is not None}
    right = {d.rank: value for d, value in rights if value is not None}
    try:
        return next(_candidates(case, finding, wrong, right), None)
    except (ScenarioError, *CANNOT_COMPUTE):
        return None


def _candidates(
    case: Case,
    finding: Finding,
    wrong: dict[int, NDArray[Any]],
    right: dict[int, NDArray[Any]],
) -> Iterator[str]:
    subject = "you expect" if finding.witness == "expectation" else "the run shows"
    step = next((s for s in steps_of(case.scenario.steps) if s.index == finding.index), None)
    inputs = _inputs(case, finding, step) if step is not None else None
    if inputs is not None:
        yield from (f"{subject} {text}" for text in _from_inputs(*inputs, wrong))
    swapped = _swapped(wrong, _all_right(case, finding, right))
    if swapped:
        yield f"{subject} {swapped}"
    if len(wrong) > 0:
        factor = _factor(wrong, right)
        size = inputs[0].size if inputs else case.scenario.world_size
        if factor is not None and size > 1:
            for value, text in ((size, "times"), (1 / size, "one part in")):
                if np.isclose(factor, value, rtol=1e-9):
                    yield f"{subject} {text} {size}: off by a factor of the group's size"


def _inputs(
    case: Case, finding: Finding, step: Step
) -> tuple[Group, str, list[NDArray[Any]]] | None:
    """Return the group, the step's own reduce op, and each member's contribution before it."""
    if step.operation is None:
        return None
    moment = case.order.moment(finding.index, finding.iteration)
    rank = finding.differences[0].rank
    process = case.predicted.process(rank, case.predicted.final(rank), None, None)
    group = process.group(step.operation.group_of(process, step))
    if not 1 < group.size <= MOST_MEMBERS:
        return None
    numbers = as_numbers(finding.differences[0].got)
    shape = () if numbers is None else numbers.shape
    form = step.arguments.get("op")
    operation = "sum" if form is None else process.evaluate(form)
    for name in _names_read(step, finding.name):
        parts = [case.predicted.before(name, member, moment) for member in group.ranks]
        if all(isinstance(part, np.ndarray) and part.shape == shape for part in parts):
            return group, str(operation), parts
    return None


def _names_read(step: Step, name: str | None) -> list[str]:
    names = [name] if name else []
    for param in step.operation.params if step.operation else ():
        names += sorted(roots_of(step.arguments.get(param.name)))
    return list(dict.fromkeys(names))


def _from_inputs(
    group: Group, operation: str, parts: list[NDArray[Any]], wrong: dict[int, NDArray[Any]]
) -> Iterator[str]:
    """Yield what the wrong numbers are, made of the members' contributions."""
    own = dict(zip(group.ranks, parts, strict=True))
    if all(rank in own and _equal(value, own[rank]) for rank, value in wrong.items()):
        yield "the unreduced input: what each rank held before"
    for text, op, used in _reductions(group, operation, parts):
        if _gives(op, used, wrong):
            yield text


def _reductions(
    group: Group, operation: str, parts: list[NDArray[Any]]
) -> Iterator[tuple[str, str, list[NDArray[Any]]]]:
    """Yield each way to reduce wrongly: its description, the op, and what it is applied to."""
    for other in REDUCE_OPS:
        if other != operation:
            yield f"what `op: {other}` gives", other, parts
    for rank, part in zip(group.ranks, parts, strict=True):
        yield f"what rank {rank} held before", "sum", [part]
    if operation not in REDUCE_OPS:
        return
    for at, rank in enumerate(group.ranks):
        rest = [*parts[:at], *parts[at + 1 :]]
        yield f"the result without rank {rank}'s contribution", operation, rest
    if operation == "sum":
        for rank, part in zip(group.ranks, parts, strict=True):
            text = f"the result with rank {rank}'s contribution counted twice"
            yield text, "sum", [*parts, part]


def _gives(op: str, parts: list[NDArray[Any]], wrong: dict[int, NDArray[Any]]) -> bool:
    try:
        value = reduced(op, parts)
    except (TypeError, ValueError, ArithmeticError):
        return False
    return isinstance(value, np.ndarray) and all(_equal(found, value) for found in wrong.values())


def _equal(left: NDArray[Any], right: NDArray[Any]) -> bool:
    return left.shape == right.shape and not differences(0, Wanted(value=left), right)


def _all_right(
    case: Case, finding: Finding, right: dict[int, NDArray[Any]]
) -> dict[int, NDArray[Any]]:
    """Return the right value on every rank: of those that differ, and of the others."""
    found = dict(right)
    for rank in range(case.scenario.world_size):
        if rank in found or finding.name is None:
            continue
        trace = case.predicted.rank(rank)
        for event in trace.events if trace else ():
            if (event.index, event.iteration) == (finding.index, finding.iteration):
                value = event.writes.get(finding.name)
                if isinstance(value, np.ndarray):
                    found[rank] = value
    return found


def _swapped(wrong: dict[int, NDArray[Any]], right: dict[int, NDArray[Any]]) -> str | None:
    """Say so where every rank has what another should have."""
    places: dict[int, int] = {}
    for rank, value in wrong.items():
        match = [r for r, other in right.items() if r != rank and _equal(value, other)]
        if not match:
            return None
        taken = [r for r in match if r not in places.values()]
        places[rank] = taken[0] if taken else match[0]
    if len(places) == 1:
        rank, other = next(iter(places.items()))
        return f"on rank {rank} what belongs on rank {other}"
    pairs = ", ".join(
        f"rank {rank} has rank {other}'s" for rank, other in sorted(places.items())[:4]
    )
    return f"the right values on the wrong ranks ({pairs})"


def _factor(wrong: dict[int, NDArray[Any]], right: dict[int, NDArray[Any]]) -> float | None:
    """Return the one factor between wrong and right numbers, over all elements that are not 0."""
    factors: list[float] = []
    for rank, value in wrong.items():
        if value.dtype.kind not in "iuf" or right[rank].dtype.kind not in "iuf":
            return None
        left, base = value.astype(np.float64).ravel(), right[rank].astype(np.float64).ravel()
        if not np.array_equal(left == 0, base == 0):
            return None
        chosen = base != 0
        factors += (left[chosen] / base[chosen]).tolist()
    if not factors or not np.allclose(factors, factors[0], rtol=1e-6, atol=0.0):
        return None
    return factors[0]
