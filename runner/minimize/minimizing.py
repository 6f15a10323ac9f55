"""The whole way: a file's text and one of its cases -> the smallest text with the same fault."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from runner.language.limits import DEFAULT, Limits
from runner.language.spans import spans
from runner.minimize.conclusions import bare, restated
from runner.minimize.constants import inline_constants, one_case
from runner.minimize.layout import tidy
from runner.minimize.loops import reduce_loops
from runner.minimize.meshes import reduce_meshes
from runner.minimize.ranks import reduce_ranks
from runner.minimize.search import ExhaustedError, Progress, Search
from runner.minimize.sizes import reduce_sizes
from runner.minimize.tree import reduce_alike, reduce_coarse, reduce_tree

if TYPE_CHECKING:
    from runner.language.spans import Span
    from runner.minimize.signature import Oracle, Signature
    from runner.scenario import Scenario

#: coarse reductions first: what they take away, the fine ones need not look at
PASSES = (
    reduce_coarse,
    reduce_sizes,
    reduce_tree,
    reduce_alike,
    inline_constants,
    reduce_meshes,
    reduce_ranks,
    reduce_loops,
)


class NothingToMinimizeError(Exception):
    """The scenario shows no fault that could be kept; the message says what it shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Minimized:
    """What came of a search. `minimal` is False where the budget, or a person, ended it."""

    text: str
    signature: Signature
    attempts: int
    minimal: bool
    interrupted: bool = False


def minimize(
    scenario: Scenario,
    number: int,
    oracle: Oracle,
    *,
    limits: Limits = DEFAULT,
    most: int = 10_000,
    progress: Progress | None = None,
) -> Minimized:
    """Return the smallest text with the fault of `scenario`, case `number` of its file.

    `most` bounds the attempts; Ctrl-C (KeyboardInterrupt) ends the search with the smallest text so
    far. Raises NothingToMinimizeError where no fault is seen.
    """
    text = one_case(scenario.source.text, number)
    whole = oracle(text)
    if whole is None or not whole.shows_a_fault:
        raise NothingToMinimizeError(str(whole) if whole is not None else "INVALID")
    stripped = partial(bare, keep=_stated_wrongly(whole))
    target = oracle(stripped(text))
    search = Search(
        text=text,
        holds=lambda candidate: oracle(stripped(candidate)) == target,
        most=most,
        progress=progress,
    )
    minimal, interrupted = False, False
    try:
        _reduce(search)
        minimal = True
    except ExhaustedError:
        pass
    except KeyboardInterrupt:
        interrupted = True
    final = tidy(search.text)
    if not _stated_wrongly(whole):
        final = restated(final, Path(scenario.source.path), limits)
        # where what is stuck cannot be said in the end, it is left out; who is in a hurry is not
        # made to wait for an oracle that may have been interrupted itself
        if not interrupted and oracle(final) != whole:
            final = stripped(final)
    return Minimized(
        text=final,
        signature=whole,
        attempts=search.attempts,
        minimal=minimal,
        interrupted=interrupted,
    )


def _reduce(search: Search) -> None:
    before = ""
    while before != search.text:
        before = search.text
        for each in PASSES:
            each(search)


def _stated_wrongly(whole: Signature) -> bool:
    """Whether it is part of the fault where the author says that ranks are blocked, or die."""
    codes = {code for code, _, _ in whole.findings}
    return bool(codes & {"blocked_differs", "dies_differs"})


def size_of(text: str) -> str:
    """Return in words how large a program is: its world as written, its steps, its lines."""
    root = spans(text)
    world, steps = root.get("world_size"), root.get("steps")
    count = _steps(steps) if steps is not None else 0
    ranks = world.text if world is not None else "?"
    return f"{ranks} ranks, {count} steps, {len(text.splitlines())} lines"


def _steps(steps: Span) -> int:
    inner = (step.get("steps") for step in steps.items)
    return len(steps.items) + sum(_steps(each) for each in inner if each is not None)
