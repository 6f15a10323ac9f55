"""The files of a command line, read: which cases are meant, and what is wrong with the others."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from runner.attempts import our_fault, overdue
from runner.collector import uncollected
from runner.language import discover, load
from runner.language.budget import OverdueError
from runner.places import narrowed, place_of
from runner.problems import Problem, ScenarioError
from runner.results import Loaded, Result, Selection
from runner.selection import arranged, chooser
from runner.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from runner.places import Place
    from runner.scenario import Scenario


@uncollected()
def load_all(
    selection: Selection, ahead: Callable[[Sequence[Scenario]], None] | None = None
) -> Loaded:
    """Read every file; nothing is evaluated yet.

    `ahead` is told of selected cases while others are still read, where that is surely known.
    Raises ScenarioError where the command line itself is wrong: a `-k` that cannot be read, a case
    or a line that is not there.
    """
    meant = _meant(selection)
    # a shard, and what failed before, are known once all is read
    sure = ahead if selection.shard is None and not selection.only_failed else None
    invalid: list[Result] = []
    problems: list[Problem] = []
    warnings: list[Problem] = []  # of files that are passed over
    kept: list[Scenario] = []
    for path, places in _files(selection, invalid, warnings).items():
        try:
            read = load(path, sets=selection.sets, limits=selection.limits)
            cases = with_timeout(read, selection.timeout_s)
        except OverdueError as error:
            invalid.append(Result(file=str(path), case=str(path), verdict=overdue(error)))
            continue
        except ScenarioError as error:
            invalid.append(_invalid(str(path), error.problems))
            continue
        except Exception as error:  # noqa: BLE001 -- a fault of ours is told as one
            verdict = our_fault("reading", error)
            invalid.append(Result(file=str(path), case=str(path), verdict=verdict))
            continue
        whole = any(place.whole for place in places)
        found = meant(cases if whole else narrowed(cases, places, problems))
        kept += found
        if sure is not None:
            sure(found)
    if problems:
        raise ScenarioError(problems)
    ordered, notes = arranged(kept, selection)
    return Loaded(
        scenarios=tuple(ordered),
        invalid=tuple(invalid),
        selected=len(kept),
        notes=tuple(notes),
        warnings=tuple(warnings),
    )


def _meant(selection: Selection) -> Callable[[Sequence[Scenario]], list[Scenario]]:
    """Return what keeps of some cases those that the words of a selection mean."""
    try:
        return chooser(selection.keyword, selection.tags)
    except ValueError as error:
        text = f"-k {selection.keyword!r} cannot be read: {error}"
        raise ScenarioError([Problem(code="bad_keyword", message=text)]) from error


def with_timeout(scenarios: tuple[Scenario, ...], timeout_s: float | None) -> tuple[Scenario, ...]:
    """Return the scenarios with another process-group timeout, in seconds; None keeps their own.

    It is replaced before the analysis, which must know when a blocked call gives up.
    """
    if timeout_s is None:
        return scenarios
    return tuple(replace(scenario, timeout_s=timeout_s) for scenario in scenarios)


def _files(
    selection: Selection, invalid: list[Result], warnings: list[Problem]
) -> dict[Path, list[Place]]:
    """Return every file that is named or below what is named, once, and the places that name it."""
    paths: dict[Path, Path] = {}
    places: dict[Path, list[Place]] = {}
    once = len(selection.paths) == 1  # then nothing is found twice
    for named in selection.paths:
        place = place_of(named)
        try:
            found = discover([place.path], selection.limits, warnings)
        except ScenarioError as error:
            invalid.append(_invalid(named, error.problems))
            continue
        for path in found:
            key = path if once else paths.setdefault(Path(os.path.realpath(path)), path)
            places.setdefault(key, []).append(place)
    return places


def _invalid(path: str, problems: tuple[Problem, ...]) -> Result:
    return Result(file=path, case=path, verdict=Verdict(status="INVALID", problems=problems))
