"""From a file's text to a draft of it: every open place filled with a stand-in, so that it loads.

What is open: a value that is left out (`x:`, `x: null`, `x: ...`), an `expect:` that says nothing,
and, in a file in which no `expect` stands at all, every step at the top that writes. The names
that an empty `expect:` is about are those that the step writes, by the reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from runner.bless.places import STAND_IN, Place, holes, places, values_of
from runner.bless.refusal import refuse
from runner.bless.written import Analysed, written
from runner.language.spans import spans
from runner.language.splice import Edit, below, filled, indentation, line_end, newline, spliced

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from runner.language.spans import Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A text that loads; `open` are the offsets at which a stand-in begins."""

    text: str
    open: frozenset[int]


def draft(text: str, analysed: Callable[[str], Sequence[Analysed]], *, every: bool) -> Draft:
    """Return the draft of a text; `analysed` loads and simulates one.

    `every` opens each step at the top that writes, whatever the file states already. Raises
    RefusedError, and ScenarioError where the file is invalid.
    """
    root = spans(text)
    found = places(root)
    objects = root.get("objects")
    names = (
        frozenset(key.text for key, _ in objects.entries) if objects is not None else frozenset()
    )
    gaps = [hole for place in found for hole in holes(place, names)]
    filling = [(filled(text, hole.span, hole.stand_in), hole.stand_in) for hole in gaps]
    wanted = _wanted(found, every=every)
    adding = []
    if wanted:
        trial = [edit for edit, _ in filling]
        trial += [_opened(text, found[number], []) for number in wanted]
        missing = _names(spliced(text, trial)[0], wanted, analysed)
        adding = [
            (_opened(text, found[number], missing[number]), STAND_IN)
            for number in wanted
            if missing[number]
        ]
        _police_empty(found, missing)
    edits = [edit for edit, _ in (*filling, *adding)]
    whole, starts = spliced(text, edits)
    opened: set[int] = set()
    for (edit, stand_in), start in zip((*filling, *adding), starts, strict=True):
        at = edit.text.find(stand_in)
        while at >= 0:
            opened.add(start + at)
            at = edit.text.find(stand_in, at + 1)
    return Draft(text=whole, open=frozenset(opened))


def _wanted(found: Sequence[Place], *, every: bool) -> list[int]:
    """Return the numbers of the places whose names are still to be found."""
    silent = all(place.expect is None for place in found)
    return [
        number
        for number, place in enumerate(found)
        if place.is_open
        or ((every or silent) and place.acts and not place.inside and _may_be_opened(place))
    ]


def _may_be_opened(place: Place) -> bool:
    return place.expect is None or (
        place.expect.kind == "mapping" and place.expect.get("raises") is None
    )


def _names(
    text: str, wanted: Sequence[int], analysed: Callable[[str], Sequence[Analysed]]
) -> Mapping[int, list[str]]:
    """Return, for each wanted place, the names that are written there and not yet stated."""
    cases = analysed(text)
    found = places(spans(text))
    names = {}
    for number in wanted:
        stated = {key.text for key, _ in values_of(found[number])}
        there = [name for case in cases for name in written(case, found[number])]
        names[number] = [name for name in dict.fromkeys(there) if name not in stated]
    return names


def _police_empty(found: Sequence[Place], missing: Mapping[int, list[str]]) -> None:
    for number, names in missing.items():
        place = found[number]
        if place.is_open and not names and place.expect is not None and not place.expect.entries:
            message = "`expect:` is empty, and nothing is written there that it could be about"
            refuse("nothing_written", message, place.expect.line)


# ---------------------------------------------------------------------------- layout


def _opened(text: str, place: Place, names: Sequence[str]) -> Edit:
    """Return the edit that lets an `expect` be about some names, all open; none: an empty one."""
    if place.expect is None:
        assert place.step is not None  # noqa: S101 -- the file's own `expect` is only ever filled
        return _beside(text, place.step, names)
    if place.expect.kind == "mapping" and place.expect.entries:
        return _added(text, place.expect, names)
    flow = place.expect.flow or (place.step is not None and place.step.flow)
    if flow or not names:
        return filled(text, place.expect, _flow(names))
    column = 0 if place.step is None else indentation(text, place.step)
    after_colon = text.rindex(":", 0, place.expect.start + 1) + 1
    return below(text, after_colon, place.expect, _block(text, names, column + 2))


def _flow(names: Sequence[str]) -> str:
    return "{" + ", ".join(f"{name}: {STAND_IN}" for name in names) + "}"


def _block(text: str, names: Sequence[str], column: int) -> str:
    return "".join(f"{newline(text)}{' ' * column}{name}: {STAND_IN}" for name in names)


def _beside(text: str, step: Span, names: Sequence[str]) -> Edit:
    """Return the edit that puts an `expect` beside a step."""
    if step.flow:
        return Edit(start=step.end - 1, end=step.end - 1, text=f", expect: {_flow(names)}")
    column = indentation(text, step)
    value = _block(text, names, column + 2) if names else " {}"
    at = line_end(text, step.end)
    return Edit(start=at, end=at, text=f"{newline(text)}{' ' * column}expect:{value}")


def _added(text: str, expect: Span, names: Sequence[str]) -> Edit:
    """Return the edit that adds names to an `expect` that states others."""
    if not names:
        return Edit(start=expect.start, end=expect.start)
    if expect.flow:
        entries = "".join(f", {name}: {STAND_IN}" for name in names)
        return Edit(start=expect.entries[-1][1].end, end=expect.entries[-1][1].end, text=entries)
    at = line_end(text, expect.end)
    return Edit(start=at, end=at, text=_block(text, names, indentation(text, expect)))
