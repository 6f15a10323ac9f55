"""A path of the command line that means less than a file: `sum.yaml::case`, `sum.yaml:42`.

A case is named as the headline of every report prints it; without its matrix keys all cases of that
name are meant. A line means all cases of the file, and the step that stands there, whose values are
then shown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from runner.problems import Problem, nearest
from runner.scenario import steps_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runner.scenario import Scenario, Step

#: `sum.yaml:42`, `sum.yaml:42:7` as findings print it, `sum.yaml::case`
_NARROWED = re.compile(r"(?P<path>.+?)(?:::(?P<case>.+)|:(?P<line>\d+)(?::\d+)?:?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A path, and the case or the line in it that is meant; neither means all of it."""

    text: str
    path: str
    case: str | None = None
    line: int | None = None

    @property
    def whole(self) -> bool:
        """Whether nothing narrows it."""
        return self.case is None and self.line is None


def place_of(text: str) -> Place:
    """Read a path of the command line; a file that has such a name is that file."""
    found = _NARROWED.fullmatch(text)
    if found is None or Path(text).exists():
        return Place(text=text, path=text)
    line = found["line"]
    return Place(
        text=text, path=found["path"], case=found["case"], line=None if line is None else int(line)
    )


def narrowed(
    scenarios: Sequence[Scenario], places: Sequence[Place], problems: list[Problem]
) -> list[Scenario]:
    """Return the cases of one file that its places mean; add what they name in vain."""
    kept: set[str] = set()
    for place in places:
        found = [each.case for each in scenarios if _means(place, each)]
        if not found:
            problems.append(_in_vain(place, scenarios))
        kept.update(found)
    return [scenario for scenario in scenarios if scenario.case in kept]


def step_at(scenario: Scenario, line: int) -> Step | None:
    """Return the innermost step whose text covers a line of the scenario's own file."""
    found: Step | None = None
    for step in steps_of(scenario.steps):
        mark = step.mark
        if mark is None or mark.source.path != scenario.source.path or mark.line > line:
            continue
        if line <= _last_line(step):
            found = step
    return found


def _last_line(step: Step) -> int:
    """Return the last line with text of a step: a block ends where the next one begins."""
    mark = step.mark
    assert mark is not None  # noqa: S101 -- asked only of steps with a place
    lines = mark.source.text.splitlines()
    indent = mark.column - 1
    last = mark.line
    for number in range(mark.line + 1, len(lines) + 1):
        text = lines[number - 1]
        if text.strip() and not text.lstrip().startswith("#"):
            if len(text) - len(text.lstrip()) < indent:
                break
            last = number
    return max(last, mark.end_line or last) if _flow(step, lines) else last


def _flow(step: Step, lines: Sequence[str]) -> bool:
    mark = step.mark
    return mark is not None and lines[mark.line - 1][mark.column - 1 : mark.column] == "{"


def _means(place: Place, scenario: Scenario) -> bool:
    if place.case is not None:
        return place.case in {scenario.case, scenario.name}
    if place.line is None:
        return True
    return 0 < place.line <= len(scenario.source.text.splitlines())


def _in_vain(place: Place, scenarios: Sequence[Scenario]) -> Problem:
    if not scenarios:
        message = f"{place.text}: the file has no case, it is there to be used by others"
        return Problem(code="unknown_place", message=message)
    if place.case is None:
        count = len(scenarios[0].source.text.splitlines())
        message = f"{place.text}: the file has {count} lines"
        return Problem(code="unknown_place", message=message)
    cases = [scenario.case for scenario in scenarios]
    close = nearest(place.case, cases)
    hint = f"did you mean {place.path}::{close}?" if close else f"it has {_listed(cases)}"
    return Problem(
        code="unknown_place", message=f"{place.text}: the file has no such case", hint=hint
    )


def _listed(cases: Sequence[str], most: int = 5) -> str:
    shown = ", ".join(cases[:most])
    return f"{shown} and {len(cases) - most} more" if len(cases) > most else shown
