"""Where a file states values or leaves them open, and a draft of it that loads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NoReturn

from msgspec import Struct

from torch_scenarios.errors import Edit
from torch_scenarios.expressions.values import Undefined
from torch_scenarios.language.expectations import is_section
from torch_scenarios.language.keys import FINAL_EXPECT, LONG_FORM, STEP_EXPECT, TOLERANCES
from torch_scenarios.model.plan import Plan
from torch_scenarios.model.scenario import Scenario, Step, steps_of
from torch_scenarios.model.trace import Trace, Value
from torch_scenarios.operations.placement import is_layout
from torch_scenarios.source.edit import (
    Span,
    fill,
    indentation,
    line_end,
    newline,
    put_below,
    spans,
    splice_edits,
)

# -------------------------------------------------------------------------------------------------
# Why a file is not blessed: a stable code, a sentence, and the place where there is one.

#: code -> what it says in general
CODES = {
    "program_hangs": "the program hangs, and the file does not say so",
    "program_crashes": "a process ends, and the file does not say so",
    "program_raises": "a rank raises what no step expects",
    "wrong_program": "the analysis finds something wrong with the program",
    "value_undefined": "no value may be relied on there",
    "cases_differ": "one text serves several cases of the matrix, and they differ",
    "rounds_differ": "one text serves all rounds of a loop, and they differ",
    "value_too_large": "the value is too large to be written out",
    "used_part": "the expectation is written in a part that several scenarios use",
    "backend_section": "the expectation is written in the section of one backend",
    "shared_value": "the value has an anchor, an alias or a tag",
    "nothing_written": "the step writes nothing that could be expected",
    "reference_disagrees": "the reference and the run disagree",
    "runs_differ": "two runs differ",
    "not_proved": "the expectations would not hold",
    "cannot_run": "the backend at hand cannot run the scenario",
    "left_open": "the environment, or a bound of the analysis, left it open",
    "unresolved_conflict": "the file holds the marks of a conflict that was not resolved",
    "file_changed": "the file changed meanwhile",
}


class Objection(Struct, frozen=True, kw_only=True):
    """One reason not to bless a file; `code` is a key of :data:`CODES`, `line` counts from 1.

    a tensor that is undefined on a rank cannot be stated: no run would hold it again
    """

    code: str
    message: str
    line: int | None = None


class NotBlessedError(Exception):
    """A file is not blessed. Carries the reasons.

    >>> error = NotBlessedError(Objection(code="undefined", message="x is undefined", line=3))
    >>> str(error), error.refusals[0].line
    ('x is undefined', 3)
    """

    def __init__(self, *refusals: Objection) -> None:
        """Keep the reasons."""
        self.refusals = refusals
        super().__init__("; ".join(refusal.message for refusal in refusals))


def refuse(code: str, message: str, line: int | None = None) -> NoReturn:
    """Raise RefusedError for one reason."""
    raise NotBlessedError(Objection(code=code, message=message, line=line))


# -------------------------------------------------------------------------------------------------
# Where a file states values, and where it leaves them open, by its text alone.

#: written in place of a value that is to be filled in, besides nothing at all and `null`
PLACEHOLDER = "..."
#: what stands in for a value while the file is read for the first time: it asks nothing of any rank
STAND_IN, STAND_IN_TYPED = '{"rank < 0": 0}', "0"


class ExpectPlace(Struct, frozen=True, kw_only=True):
    """A step, or the whole file (`step` None), and its `expect`, None where it has none.

    `inside` tells that the step stands in the body of a `for`.

        - all_reduce: {tensor: x}       step: these two lines; expect: what is behind the colon
          expect: {x: [3, 3]}
    """

    step: Span | None
    expect: Span | None
    inside: bool = False

    @property
    def is_open(self) -> bool:
        """Whether there is an `expect:` that says nothing yet."""
        found = self.expect
        return found is not None and (
            is_open(found) or (found.kind == "mapping" and not found.entries)
        )

    @property
    def acts(self) -> bool:
        """Whether this is a step that does something: no `expect` alone."""
        keys = {key.text for key, _ in self.step.entries} if self.step is not None else set()
        return bool(keys - {"name", "ranks", "expect"})

    def values_of(self) -> list[tuple[Span, Span]]:
        """Return the entries of an `expect` that state values; a backend's section does not."""
        expect = self.expect
        if expect is None or expect.kind != "mapping":
            return []
        known = FINAL_EXPECT if self.step is None else STEP_EXPECT
        return [
            (key, value)
            for key, value in expect.entries
            if key.text not in known and not (self.step is None and is_section(key, value))
        ]

    def _sections_of(self) -> list[Span]:
        """Return the sections of single backends and of versions of torch."""
        if self.step is not None or self.expect is None:
            return []
        return [value for key, value in self.expect.entries if is_section(key, value)]

    def holes(self, objects: frozenset[str]) -> Iterator[Hole]:
        """Yield the values that an `expect` leaves open."""
        for key, value in self.values_of():
            yield from _holes(value, of_object=key.text in objects)
        for section in self._sections_of():
            for key, value in section.entries:
                if key.text not in FINAL_EXPECT and is_open(value):
                    message = (
                        f"`{key.text}` is written in the section of a backend: what one backend "
                        "does otherwise than the semantics is for you to state"
                    )
                    refuse("backend_section", message, key.line)

    def may_be_opened(self) -> bool:
        """Whether expectations may be added to what is there."""
        return self.expect is None or (
            self.expect.kind == "mapping" and self.expect.get("raises") is None
        )


class Hole(Struct, frozen=True, kw_only=True):
    """A value that is to be filled in, and what stands in for it until it is known.

    expect: {x: }        with nothing there the file does not load: `0` is put in its place
    """

    span: Span
    stand_in: str


def places(root: Span) -> list[ExpectPlace]:
    """Return the file itself and every step of it, always in the same order."""
    return [ExpectPlace(step=None, expect=root.get("expect")), *_steps(root, inside=False)]


def _steps(parent: Span, *, inside: bool) -> Iterator[ExpectPlace]:
    steps = parent.get("steps")
    for step in steps.items if steps is not None else ():
        if step.kind == "mapping":
            yield ExpectPlace(step=step, expect=step.get("expect"), inside=inside)
            yield from _steps(step, inside=True)


def is_open(span: Span, *, of_object: bool = False) -> bool:
    """Whether a value is left open. An object may be null: there only an empty place is open."""
    if span.kind != "scalar" or not span.plain or span.dressed:
        return False
    return span.text in {"", PLACEHOLDER} or (span.is_null and not of_object)


def _holes(value: Span, *, of_object: bool) -> Iterator[Hole]:
    if is_open(value, of_object=of_object):
        yield Hole(span=value, stand_in=STAND_IN)
    elif is_long_form(value) and not of_object:
        for key, part in value.entries:
            if is_open(part):
                stand_in = STAND_IN_TYPED if key.text == "value" else "null"
                yield Hole(span=part, stand_in=stand_in)
    elif value.kind == "mapping" and (not of_object or has_selectors(value)):
        for _, part in value.entries:
            yield from _holes(part, of_object=of_object)


def is_long_form(span: Span) -> bool:
    """Whether a value is `{value: ..., dtype: ...}` rather than a mapping from ranks."""
    return any(key.text in (*LONG_FORM, *TOLERANCES) for key, _ in span.entries)


def has_selectors(span: Span) -> bool:
    """Whether a mapping is from ranks, where it might be an object."""
    return any(key.text == "else" for key, _ in span.entries) or all(
        key.kind == "sequence" or key.text.lstrip("-").isdigit() for key, _ in span.entries
    )


# -------------------------------------------------------------------------------------------------
# Which names a place of a file writes, by the reference.


class AnalysedCase(Struct, frozen=True, kw_only=True):
    """One case with its plan and what the reference predicts.

    A file with a matrix has several, and one text must be right in all of them: a value that
    differs from case to case has no literal.
    """

    scenario: Scenario
    plan: Plan
    predicted: Trace


def find_written(case: AnalysedCase, place: ExpectPlace) -> list[str]:
    """Return the names that a step, a loop, a used part or the whole file gives a value.

    Only names that the file itself knows, in the order in which they are first written.
    """
    path = case.scenario.source.path
    steps = steps_of(case.scenario.steps)
    known = {*case.scenario.tensors, *case.scenario.objects}
    for step in steps:
        if step.operation is not None and _is_from(step, path):
            known.update(step.operation.introduces(step.arguments))
    indexes = _indexes(steps, place, path)
    return [name for name in dict.fromkeys(_names(case.predicted, indexes)) if name in known]


def _indexes(steps: tuple[Step, ...], place: ExpectPlace, path: str) -> set[int]:
    """Return the steps that a place stands for."""
    if place.step is None:
        return {step.index for step in steps}
    here = [step for step in steps if step.mark is not None and _is_at(step, place, path)]
    if not here:
        return set()
    first, last = here[0], here[-1]
    if last.operation is not None:
        return {last.index}
    if first is not last:  # a loop, and the expectation after it
        return set(range(first.index, last.index))
    found: set[int] = set()  # a part, and the expectation after it
    for index in range(last.index - 1, -1, -1):
        if _is_from(steps[index], path):
            break
        found.add(index)
    return found


def _is_at(step: Step, place: ExpectPlace, path: str) -> bool:
    mark = step.mark
    assert mark is not None
    assert place.step is not None
    keys = {(key.line, key.column) for key, _ in place.step.entries}
    return mark.source.path == path and (mark.line, mark.column) in keys


def _is_from(step: Step, path: str) -> bool:
    return step.mark is not None and step.mark.source.path == path


def _names(predicted: Trace, indexes: set[int]) -> Iterator[str]:
    for rank in predicted.ranks:
        for event in rank.events:
            if event.index in indexes and event.state == "done":
                yield from (
                    name
                    for name, value in event.writes.items()
                    if _says(value) and not is_layout(name)
                )


def _says(value: Value) -> bool:
    """Whether something can be said about a value: it exists, and is defined."""
    if isinstance(value, list | tuple):
        return all(_says(item) for item in value)
    return value is not None and not isinstance(value, Undefined)


# -------------------------------------------------------------------------------------------------
# From a file's text to a draft of it: every open place filled with a stand-in, so that it loads.
#
# What is open: a value that is left out (`x:`, `x: null`, `x: ...`), an `expect:` that says
# nothing, and, in a file in which no `expect` stands at all, every step at the top that writes.
# The names that an empty `expect:` is about are those that the step writes, by the reference.


class Draft(Struct, frozen=True, kw_only=True):
    """A text that loads; `open` are the offsets at which a stand-in begins.

    To bless is to edit a text and not to print a tree: comments, quotes and layout stay as they are
    (decision 22).
    """

    text: str
    open: frozenset[int]


def draft(text: str, analysed: Callable[[str], Sequence[AnalysedCase]], *, every: bool) -> Draft:
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
    gaps = [hole for place in found for hole in place.holes(names)]
    filling = [(fill(text, hole.span, hole.stand_in), hole.stand_in) for hole in gaps]
    wanted = _find_open(found, every=every)
    adding = []
    if wanted:
        trial = [edit for edit, _ in filling]
        trial += [_open_expect(text, found[number], []) for number in wanted]
        missing = _names_of(splice_edits(text, trial)[0], wanted, analysed)
        adding = [
            (_open_expect(text, found[number], missing[number]), STAND_IN)
            for number in wanted
            if missing[number]
        ]
        _police_empty(found, missing)
    edits = [edit for edit, _ in (*filling, *adding)]
    whole, starts = splice_edits(text, edits)
    opened: set[int] = set()
    for (edit, stand_in), start in zip((*filling, *adding), starts, strict=True):
        at = edit.text.find(stand_in)
        while at >= 0:
            opened.add(start + at)
            at = edit.text.find(stand_in, at + 1)
    return Draft(text=whole, open=frozenset(opened))


def _find_open(found: Sequence[ExpectPlace], *, every: bool) -> list[int]:
    """Return the numbers of the places whose names are still to be found."""
    silent = all(place.expect is None for place in found)
    return [
        number
        for number, place in enumerate(found)
        if place.is_open
        or ((every or silent) and place.acts and not place.inside and place.may_be_opened())
    ]


def _names_of(
    text: str, wanted: Sequence[int], analysed: Callable[[str], Sequence[AnalysedCase]]
) -> Mapping[int, list[str]]:
    """Return, for each wanted place, the names that are written there and not yet stated."""
    cases = analysed(text)
    found = places(spans(text))
    names = {}
    for number in wanted:
        stated = {key.text for key, _ in found[number].values_of()}
        there = [name for case in cases for name in find_written(case, found[number])]
        names[number] = [name for name in dict.fromkeys(there) if name not in stated]
    return names


def _police_empty(found: Sequence[ExpectPlace], missing: Mapping[int, list[str]]) -> None:
    for number, names in missing.items():
        place = found[number]
        if place.is_open and not names and place.expect is not None and not place.expect.entries:
            message = "`expect:` is empty, and nothing is written there that it could be about"
            refuse("nothing_written", message, place.expect.line)


# ---------------------------------------------------------------------------- layout


def _open_expect(text: str, place: ExpectPlace, names: Sequence[str]) -> Edit:
    """Return the edit that lets an `expect` be about some names, all open; none: an empty one."""
    if place.expect is None:
        assert place.step is not None
        return _add_expect(text, place.step, names)
    if place.expect.kind == "mapping" and place.expect.entries:
        return _add_names(text, place.expect, names)
    flow = place.expect.flow or (place.step is not None and place.step.flow)
    if flow or not names:
        return fill(text, place.expect, _flow(names))
    column = 0 if place.step is None else indentation(text, place.step)
    after_colon = text.rindex(":", 0, place.expect.start + 1) + 1
    return put_below(text, after_colon, place.expect, _block(text, names, column + 2))


def _flow(names: Sequence[str]) -> str:
    return "{" + ", ".join(f"{name}: {STAND_IN}" for name in names) + "}"


def _block(text: str, names: Sequence[str], column: int) -> str:
    return "".join(f"{newline(text)}{' ' * column}{name}: {STAND_IN}" for name in names)


def _add_expect(text: str, step: Span, names: Sequence[str]) -> Edit:
    """Return the edit that puts an `expect` beside a step."""
    if step.flow:
        return Edit(start=step.end - 1, end=step.end - 1, text=f", expect: {_flow(names)}")
    column = indentation(text, step)
    value = _block(text, names, column + 2) if names else " {}"
    at = line_end(text, step.end)
    return Edit(start=at, end=at, text=f"{newline(text)}{' ' * column}expect:{value}")


def _add_names(text: str, expect: Span, names: Sequence[str]) -> Edit:
    """Return the edit that adds names to an `expect` that states others."""
    if not names:
        return Edit(start=expect.start, end=expect.start)
    if expect.flow:
        entries = "".join(f", {name}: {STAND_IN}" for name in names)
        return Edit(start=expect.entries[-1][1].end, end=expect.entries[-1][1].end, text=entries)
    at = line_end(text, expect.end)
    return Edit(start=at, end=at, text=_block(text, names, indentation(text, expect)))
