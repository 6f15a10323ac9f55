"""The steps of a scenario, as the spans of a timeline name them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from runner.operations.base import Collective, GroupCreation, PointToPoint, Waiting
from runner.scenario import steps_of

if TYPE_CHECKING:
    from runner.operations.base import Operation
    from runner.scenario import Scenario, Step
    from runner.timeline.model import Kind

_KINDS: tuple[tuple[type[Operation], Kind], ...] = (
    (Collective, "collective"),
    (PointToPoint, "message"),
    (Waiting, "wait"),
    (GroupCreation, "creation"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What the spans of one step have in common; `line` is of the scenario's own file."""

    kind: Kind
    operation: str | None
    line: int | None
    place: str | None
    step: Step | None


#: of the groups that a scenario declares: their creation is refused before step 1
_UNKNOWN = Place(kind="creation", operation=None, line=None, place=None, step=None)


class Places:
    """The steps of a scenario by their index, as spans name them."""

    def __init__(self, scenario: Scenario) -> None:
        """Name every step, also those inside of loops."""
        self._path = scenario.source.path
        self._known = {step.index: self._of(step) for step in steps_of(scenario.steps)}

    def __getitem__(self, index: int) -> Place:
        """Return what the spans of a step have in common."""
        return self._known.get(index, _UNKNOWN)

    def lines(self) -> dict[int, int | None]:
        """Return each step's line in the scenario's own file."""
        return {index: place.line for index, place in self._known.items()}

    def _of(self, step: Step) -> Place:
        mark, operation = step.mark, step.operation
        shape = (kind for shape, kind in _KINDS if isinstance(operation, shape))
        own = mark is not None and mark.source.path == self._path
        return Place(
            kind=next(shape, "expect" if operation is None else "local"),
            operation=operation.name if operation else None,
            line=mark.line if mark and own else None,
            place=mark.short if mark else None,
            step=step,
        )
