"""Who is stuck where, and who dies: left out while a program shrinks, stated anew in the end.

`blocked` and `dies` name ranks and steps, and so change with every rank and step that goes. The
outcome and the diagnosis stay, for they are what is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.bless.selectors import Stated, selector, stated
from runner.bless.wording import plain
from runner.language.loading import load_content
from runner.language.spans import spans
from runner.language.splice import Edit, filled, splice, without
from runner.minimize.tree import RESTATED
from runner.plan import plan
from runner.problems import ScenarioError
from runner.reference import simulate

if TYPE_CHECKING:
    from pathlib import Path

    from runner.language.limits import Limits
    from runner.trace import RankTrace


def bare(text: str, *, keep: bool = False) -> str:
    """Return a text that does not say who is blocked or dies; `keep` leaves it as it is."""
    root = spans(text)
    expect = root.get("expect")
    if keep or expect is None:
        return text
    gone = {number for number, (key, _) in enumerate(expect.entries) if key.text in RESTATED}
    if not gone:
        return text
    if len(gone) < len(expect.entries):
        return splice(text, without(text, expect, gone))
    number = root.entry("expect")
    return splice(text, without(text, root, {number} if number is not None else set()))


def restated(text: str, path: Path, limits: Limits) -> str:
    """Return a text in which `blocked` and `dies`, where it has them, are those of its program."""
    root = spans(text)
    expect = root.get("expect")
    if expect is None or not any(expect.get(word) for word in RESTATED):
        return text
    try:
        (scenario,) = load_content(path, bare(text).encode(), limits=limits)
        ranks = simulate(plan(scenario, limits=limits), limits=limits).ranks
    except (ScenarioError, ValueError):
        return bare(text)
    edits: list[Edit] = []
    gone: set[int] = set()
    for number, (key, value) in enumerate(expect.entries):
        if key.text in RESTATED:
            found = {rank.rank: _told(key.text, rank) for rank in ranks}
            if any(found.values()):
                edits.append(filled(text, value, _mapping(stated(found, {}), len(ranks))))
            else:
                gone.add(number)
    return splice(text, [*edits, *(without(text, expect, gone) if gone else [])])


def _told(word: str, rank: RankTrace) -> str | None:
    if word == "dies":
        return plain(rank.died) if rank.died else None
    stuck = rank.ending == "blocked" and rank.events
    return plain(rank.events[-1].label) if stuck else None


def _mapping(made: Stated, count: int) -> str:
    if made.alone is None:
        return made.line
    return "{" + f"{selector(tuple(range(count)), {})}: {made.alone}" + "}"
