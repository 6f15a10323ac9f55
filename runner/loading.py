"""The files of a command line, read: which cases are meant, and what is wrong with the others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from runner.attempts import our_fault
from runner.collector import uncollected
from runner.language import discover, load
from runner.places import narrowed, place_of
from runner.problems import Problem, ScenarioError
from runner.results import Loaded, Result, Selection
from runner.selection import arranged, chosen
from runner.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from runner.places import Place
    from runner.scenario import Scenario


@uncollected()
def load_all(selection: Selection) -> Loaded:
    """Read every file; nothing is evaluated yet.

    Raises ScenarioError where the command line itself is wrong: a `-k` that cannot be read, a case
    or a line that is not there.
    """
    invalid: list[Result] = []
    problems: list[Problem] = []
    scenarios: list[Scenario] = []
    for path, places in _files(selection, invalid).items():
        try:
            read = load(path, sets=selection.sets, limits=selection.limits)
            cases = with_timeout(read, selection.timeout_s)
        except ScenarioError as error:
            invalid.append(_invalid(str(path), error.problems))
            continue
        except Exception as error:  # noqa: BLE001 -- a fault of ours is told as one
            verdict = our_fault("reading", error)
            invalid.append(Result(file=str(path), case=str(path), verdict=verdict))
            continue
        whole = any(place.whole for place in places)
        scenarios += cases if whole else narrowed(cases, places, problems)
    if problems:
        raise ScenarioError(problems)
    try:
        kept = chosen(scenarios, selection.keyword, selection.tags)
    except ValueError as error:
        text = f"-k {selection.keyword!r} cannot be read: {error}"
        raise ScenarioError([Problem(code="bad_keyword", message=text)]) from error
    ordered, notes = arranged(kept, selection)
    return Loaded(
        scenarios=tuple(ordered), invalid=tuple(invalid), selected=len(kept), notes=tuple(notes)
    )


def with_timeout(scenarios: tuple[Scenario, ...], timeout_s: float | None) -> tuple[Scenario, ...]:
    """Return the scenarios with another process-group timeout, in seconds; None keeps their own.

    It is replaced before the analysis, which must know when a blocked call gives up.
    """
    if timeout_s is None:
        return scenarios
    return tuple(replace(scenario, timeout_s=timeout_s) for scenario in scenarios)


def _files(selection: Selection, invalid: list[Result]) -> dict[Path, list[Place]]:
    """Return every file that is named or below what is named, once, and the places that name it."""
    paths: dict[Path, Path] = {}
    places: dict[Path, list[Place]] = {}
    for named in selection.paths:
        place = place_of(named)
        try:
            found = discover([place.path])
        except ScenarioError as error:
            invalid.append(_invalid(named, error.problems))
            continue
        for path in found:
            key = paths.setdefault(path.resolve(), path)
            places.setdefault(key, []).append(place)
    return places


def _invalid(path: str, problems: tuple[Problem, ...]) -> Result:
    return Result(file=path, case=path, verdict=Verdict(status="INVALID", problems=problems))
