"""Where a file states values, and where it leaves them open, by its text alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from runner.bless.refusal import refuse
from runner.language.expectations import FINAL_KEYS, version_key
from runner.language.forms import LONG_FORM, TOLERANCES
from runner.traits import KNOWN_BACKENDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runner.language.spans import Span

#: written in place of a value that is to be filled in, besides nothing at all and `null`
PLACEHOLDER = "..."
#: what stands in for a value while the file is read for the first time: it asks nothing of any rank
STAND_IN, STAND_IN_TYPED = '{"rank < 0": 0}', "0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A step, or the whole file (`step` None), and its `expect`, None where it has none.

    `inside` tells that the step stands in the body of a `for`.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Hole:
    """A value that is to be filled in, and what stands in for it until it is known."""

    span: Span
    stand_in: str


def places(root: Span) -> list[Place]:
    """Return the file itself and every step of it, always in the same order."""
    return [Place(step=None, expect=root.get("expect")), *_steps(root, inside=False)]


def _steps(parent: Span, *, inside: bool) -> Iterator[Place]:
    steps = parent.get("steps")
    for step in steps.items if steps is not None else ():
        if step.kind == "mapping":
            yield Place(step=step, expect=step.get("expect"), inside=inside)
            yield from _steps(step, inside=True)


def is_open(span: Span, *, of_object: bool = False) -> bool:
    """Whether a value is left open. An object may be null: there only an empty place is open."""
    if span.kind != "scalar" or not span.plain or span.dressed:
        return False
    return span.text in {"", PLACEHOLDER} or (span.is_null and not of_object)


def values_of(place: Place) -> list[tuple[Span, Span]]:
    """Return the entries of an `expect` that state values; a backend's section is none."""
    expect = place.expect
    if expect is None or expect.kind != "mapping":
        return []
    known = FINAL_KEYS if place.step is None else ("elapsed", "raises")
    return [
        (key, value)
        for key, value in expect.entries
        if key.text not in known and not (place.step is None and is_section(key, value))
    ]


def sections_of(place: Place) -> list[Span]:
    """Return the sections of single backends and of versions of torch."""
    if place.step is not None or place.expect is None:
        return []
    return [value for key, value in place.expect.entries if is_section(key, value)]


def is_section(key: Span, value: Span) -> bool:
    """Whether an entry of the top-level `expect` says what differs on a backend or a version."""
    if value.kind != "mapping" or key.text in FINAL_KEYS:
        return False
    if version_key(key.text) is not None:
        return True
    return key.text in KNOWN_BACKENDS or any(word.text in FINAL_KEYS for word, _ in value.entries)


def holes(place: Place, objects: frozenset[str]) -> Iterator[Hole]:
    """Yield the values that an `expect` leaves open."""
    for key, value in values_of(place):
        yield from _holes(value, of_object=key.text in objects)
    for section in sections_of(place):
        for key, value in section.entries:
            if key.text not in FINAL_KEYS and is_open(value):
                message = f"`{key.text}` stands in the section of a backend: what one backend does "
                message += "otherwise than the semantics is for you to state"
                refuse("backend_section", message, key.line)


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
