"""Every program of the scoreboard, and samples of them."""

from __future__ import annotations

import random
from functools import cache
from typing import TYPE_CHECKING

from benchmarks.scoreboard import (
    arguments,
    buffering,
    calls,
    communicators,
    concurrent,
    conditions,
    envelopes,
    messages,
    races,
    refused,
    synchrony,
    touching,
    unwaited,
)
from benchmarks.scoreboard.sketch import CLASSES, CORRECT, Program

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SOURCES = (
    calls.programs,
    communicators.programs,
    arguments.programs,
    messages.programs,
    buffering.programs,
    touching.programs,
    concurrent.programs,
    unwaited.programs,
    races.programs,
    refused.programs,
    synchrony.programs,
    envelopes.programs,
    conditions.programs,
)


@cache
def programs() -> tuple[Program, ...]:
    """Return all programs, always the same ones in the same order; no two are the same."""
    found: dict[str, Program] = {}
    for source in SOURCES:
        for program in source():
            found.setdefault(repr(program.document), program)
    return tuple(found.values())


def by_label(chosen: Iterable[Program]) -> dict[str, list[Program]]:
    """Return programs by the row of the table that they count for, in the table's order."""
    rows: dict[str, list[Program]] = {label: [] for label in (*CLASSES, CORRECT)}
    for program in chosen:
        rows[program.label].append(program)
    return {label: held for label, held in rows.items() if held}


def sample(each: int, seed: int, of: Sequence[Program] | None = None) -> tuple[Program, ...]:
    """Return `each` programs of every class, and as many correct ones, chosen by `seed`."""
    chosen: list[Program] = []
    for label, held in by_label(programs() if of is None else of).items():
        # a generator of its own for every row: one class that grows does not change the others
        generator = random.Random(f"{seed}:{label}")  # noqa: S311 -- a sample is no secret
        chosen += generator.sample(held, min(each, len(held)))
    return tuple(chosen)
