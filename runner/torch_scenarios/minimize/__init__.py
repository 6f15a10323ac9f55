"""Minimise: shrink a scenario to a smallest one that has the same fault.

    text -> one case -> Signature (what is to stay) -> reductions, each kept if the signature stays
         -> MinimizeResult (the smallest text, proved once more)

The search is delta debugging (Zeller, Hildebrandt: Simplifying and isolating failure-inducing
input, 2002) level by level over the YAML tree (Misherghi, Su: HDD, 2006), with reductions of its
own for what a tree does not show: a rank, which is in many places at once, a loop, a parameter, a
size. All of them edit the text, so that comments and layout stay. Nothing here prints or writes.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from msgspec import Struct

from torch_scenarios.language.format import format_file
from torch_scenarios.limits import DEFAULT, Limits
from torch_scenarios.minimize import reductions
from torch_scenarios.minimize.reductions import removals, remove_ranks, smaller_worlds
from torch_scenarios.minimize.search import ExhaustedError, Progress, Search, ddmin
from torch_scenarios.minimize.signature import (
    FaultSignature,
    Oracle,
    analysis_oracle,
    bare,
    restate,
    run_oracle,
)
from torch_scenarios.model.scenario import Scenario
from torch_scenarios.source.edit import Span, spans

__all__ = [
    "FaultSignature",
    "MinimizeResult",
    "NothingToMinimizeError",
    "Oracle",
    "Progress",
    "analysis_oracle",
    "bare",
    "ddmin",
    "minimize",
    "removals",
    "remove_ranks",
    "run_oracle",
    "smaller_worlds",
    "tell_size",
]

#: coarse reductions first: what they take away, the fine ones need not look at
PASSES = (
    reductions.reduce_coarse,
    reductions.reduce_sizes,
    reductions.reduce_tree,
    reductions.reduce_alike,
    reductions.inline_constants,
    reductions.reduce_meshes,
    reductions.reduce_ranks,
    reductions.reduce_loops,
)


class NothingToMinimizeError(Exception):
    """The scenario shows no fault that could be kept; the message says what it shows.

    To minimize is to keep one finding while everything else goes. With none, every text would do.
    """


class MinimizeResult(Struct, frozen=True, kw_only=True):
    """What came of a search. `minimal` is False where the budget, or a person, ended it.

    Minimal means that no single reduction keeps the finding: not that no smaller program shows it.

        8 ranks, 40 steps, 3 tensors      ->      2 ranks, 2 steps, 1 tensor
    """

    text: str
    signature: FaultSignature
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
) -> MinimizeResult:
    """Return the smallest text with the fault of `scenario`, case `number` of its file.

    `most` bounds the attempts; Ctrl-C (KeyboardInterrupt) ends the search with the smallest text so
    far. Raises NothingToMinimizeError where no fault is seen.
    """
    text = reductions.one_case(scenario.source.text, number)
    if scenario.lacking is not None:
        message = f"UNSUPPORTED: {scenario.lacking}"
        raise NothingToMinimizeError(message)
    whole = oracle(text)
    if whole is None or not whole.shows_a_fault:
        words = "no verdict, `scenario check` says why" if whole is None else str(whole)
        raise NothingToMinimizeError(words)
    stripped = partial(bare, keep=_is_stated_wrongly(whole))
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
    final = reductions.tidy(search.text)
    if not _is_stated_wrongly(whole):
        final = restate(final, Path(scenario.source.path), limits)
        # where what is stuck cannot be said in the end, it is left out; who is in a hurry is not
        # made to wait for an oracle that may have been interrupted itself
        if not interrupted and oracle(final) != whole:
            final = stripped(final)
    return MinimizeResult(
        text=format_file(scenario.source.path, final.encode(), limits).decode(),
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


def _is_stated_wrongly(whole: FaultSignature) -> bool:
    """Whether it is part of the fault where the author says that ranks are blocked, or die."""
    codes = {code for code, _, _ in whole.findings}
    return bool(codes & {"blocked_differs", "dies_differs"})


def tell_size(text: str) -> str:
    """Return in words how large a program is: its world as written, its steps, its lines."""
    root = spans(text)
    world, steps = root.get("world_size"), root.get("steps")
    count = _steps(steps) if steps is not None else 0
    ranks = world.text if world is not None else "?"
    return f"{ranks} ranks, {count} steps, {len(text.splitlines())} lines"


def _steps(steps: Span) -> int:
    inner = (step.get("steps") for step in steps.items)
    return len(steps.items) + sum(_steps(each) for each in inner if each is not None)
