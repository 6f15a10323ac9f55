"""Every program of the scoreboard, and samples of them."""

from __future__ import annotations

import random
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from benchmarks.scoreboard import (
    arguments,
    buffering,
    call_matching,
    communicators,
    memory,
    messages,
)
from benchmarks.scoreboard.program import CLASSES, CORRECT, Program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Each = TypeVar("Each")

#: in this order: numbers of files and samples depend on it
SOURCES = (
    call_matching.programs,
    communicators.programs,
    arguments.disagreements,
    messages.programs,
    buffering.programs,
    memory.touched,
    memory.shared,
    memory.unwaited,
    messages.from_anyone,
    arguments.refusals,
    buffering.synchrony,
    communicators.messages,
    messages.batches,
    call_matching.conditional,
    memory.undefined,
)


@cache
def programs() -> tuple[Program, ...]:
    """Return all programs, always the same ones in the same order; no two are the same."""
    found: dict[str, Program] = {}
    for source in SOURCES:
        for program in source():
            found.setdefault(repr(program.document), program)
    return tuple(found.values())


def by_label(chosen: Iterable[Each], program: Callable[[Each], Program]) -> dict[str, list[Each]]:
    """Return what is about programs by the row of the table that each counts for, in its order."""
    rows: dict[str, list[Each]] = {label: [] for label in (*CLASSES, CORRECT)}
    for each in chosen:
        rows[program(each).label].append(each)
    return {label: held for label, held in rows.items() if held}


def sample(each: int, seed: int, of: Sequence[Program] | None = None) -> tuple[Program, ...]:
    """Return `each` programs of every class, and as many correct ones, chosen by `seed`."""
    chosen: list[Program] = []
    for label, held in by_label(programs() if of is None else of, lambda each: each).items():
        # a generator of its own for every row: one class that grows does not change the others
        generator = random.Random(f"{seed}:{label}")  # noqa: S311 -- a sample is no secret
        chosen += generator.sample(held, min(each, len(held)))
    return tuple(chosen)
