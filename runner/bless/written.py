"""Which names a place of a file writes, by the reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from runner.operations.entries import Undefined
from runner.scenario import steps_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runner.bless.places import Place
    from runner.plan import Plan
    from runner.scenario import Scenario, Step
    from runner.trace import Trace, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysed:
    """One case with its plan and what the reference predicts."""

    scenario: Scenario
    plan: Plan
    predicted: Trace


def written(case: Analysed, place: Place) -> list[str]:
    """Return the names that a step, a loop, a used part or the whole file gives a value.

    Only names that the file itself knows, in the order in which they are first written.
    """
    path = case.scenario.source.path
    steps = steps_of(case.scenario.steps)
    known = {*case.scenario.tensors, *case.scenario.objects}
    for step in steps:
        if step.operation is not None and _from(step, path):
            known.update(step.operation.introduces(step))
    indexes = _indexes(steps, place, path)
    return [name for name in dict.fromkeys(_names(case.predicted, indexes)) if name in known]


def _indexes(steps: tuple[Step, ...], place: Place, path: str) -> set[int]:
    """Return the steps that a place stands for."""
    if place.step is None:
        return {step.index for step in steps}
    here = [step for step in steps if step.mark is not None and _at(step, place, path)]
    if not here:
        return set()
    first, last = here[0], here[-1]
    if last.operation is not None:
        return {last.index}
    if first is not last:  # a loop, and the expectation after it
        return set(range(first.index, last.index))
    found: set[int] = set()  # a part, and the expectation after it
    for index in range(last.index - 1, -1, -1):
        if _from(steps[index], path):
            break
        found.add(index)
    return found


def _at(step: Step, place: Place, path: str) -> bool:
    mark = step.mark
    assert mark is not None  # noqa: S101 -- asked by the caller
    assert place.step is not None  # noqa: S101 -- the same
    return mark.source.path == path and (mark.line, mark.column) == place.step.place


def _from(step: Step, path: str) -> bool:
    return step.mark is not None and step.mark.source.path == path


def _names(predicted: Trace, indexes: set[int]) -> Iterator[str]:
    for rank in predicted.ranks:
        for event in rank.events:
            if event.index in indexes and event.state == "done":
                yield from (name for name, value in event.writes.items() if _says(value))


def _says(value: Value) -> bool:
    """Whether something can be said about a value: it exists, and is defined."""
    if isinstance(value, list | tuple):
        return all(_says(item) for item in value)
    return value is not None and not isinstance(value, Undefined)
