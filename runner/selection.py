"""Which cases a command line means, and in which order they run.

First what the words say: a `-k` expression over names, and tags. Then, in this order, a shard, what
did not pass the last time, and the order: so that the shards of one command line are disjoint
whatever each machine remembers.
"""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from runner.results import Key, Selection, Shard
    from runner.scenario import Scenario


def chooser(
    keyword: str | None, tags: Sequence[str]
) -> Callable[[Iterable[Scenario]], list[Scenario]]:
    """Return what keeps the scenarios that a `-k` expression and all of the tags select, in order.

    Raises ValueError where the expression cannot be read.
    """
    matches = keyword_matcher(keyword) if keyword else None

    def chosen(scenarios: Iterable[Scenario]) -> list[Scenario]:
        return [
            scenario
            for scenario in scenarios
            if set(tags) <= set(scenario.tags)
            and (matches is None or matches(f"{scenario.source.path} {scenario.case}".lower()))
        ]

    return chosen


def arranged(
    scenarios: Sequence[Scenario], selection: Selection
) -> tuple[list[Scenario], list[str]]:
    """Return the part that is to run, in its order, and what a person should know of that."""
    notes: list[str] = []
    kept = list(scenarios) if selection.shard is None else part(scenarios, selection.shard)
    if selection.seed is not None:
        notes.append(f"in the order of --shuffle {selection.seed}")
        kept = shuffled(kept, selection.seed)
    if selection.only_failed or selection.failed_first:
        failed = [scenario for scenario in kept if _failed(scenario, selection)]
        others = [scenario for scenario in kept if not _failed(scenario, selection)]
        if not failed:
            notes.append(_no_failures(selection))
        elif selection.only_failed:
            notes.append(f"only what did not pass the last time: {len(failed)} of {len(kept)}")
            others = []
        kept = [*failed, *others]
    return kept, notes


def _no_failures(selection: Selection) -> str:
    if not selection.failed:
        return "nothing is known to have failed: all are run"
    count = len(selection.failed)
    return f"the last failures ({count}) are none of the selected cases: all of these are run"


def _failed(scenario: Scenario, selection: Selection) -> bool:
    """Return whether a case failed, or its whole file was invalid."""
    path, case = key_of(scenario)
    return not {(path, case), (path, "")}.isdisjoint(selection.failed)


def key_of(scenario: Scenario) -> Key:
    """Return what names a case wherever the command is given."""
    return str(Path(scenario.source.path).resolve()), scenario.case


def part(scenarios: Sequence[Scenario], shard: Shard) -> list[Scenario]:
    """Return one shard: every `of`-th case, so that the cases of a matrix are spread over all."""
    return list(scenarios[shard.number - 1 :: shard.of])


def shuffled(scenarios: Sequence[Scenario], seed: int) -> list[Scenario]:
    """Return the cases in an order that depends on the seed and their names alone."""
    found = sorted(scenarios, key=lambda scenario: (scenario.source.path, scenario.case))
    random.Random(seed).shuffle(found)  # noqa: S311 -- an order, no secret
    return found


def keyword_matcher(text: str) -> Callable[[str], bool]:
    """Compile a `-k` expression: words that must occur, with `and`, `or`, `not`, parentheses.

    As in pytest. Raises ValueError, saying what is wrong.
    """
    tokens = re.findall(r"\(|\)|[^\s()]+", text.lower())
    return _Keyword(tokens).whole()


class _Keyword:
    """Recursive descent over the tokens: or_ := and_ {or and_}; and_ := not_ {and not_}."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.at = 0

    def peek(self) -> str | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def take(self) -> str:
        token = self.peek()
        if token is None:
            message = "a word is missing at the end"
            raise ValueError(message)
        self.at += 1
        return token

    def whole(self) -> Callable[[str], bool]:
        found = self.either()
        if self.peek() is not None:
            message = f"{self.peek()!r} is not expected there; join words with `and` or `or`"
            raise ValueError(message)
        return found

    def either(self) -> Callable[[str], bool]:
        parts = [self.both()]
        while self.peek() == "or":
            self.take()
            parts.append(self.both())
        return lambda text: any(part(text) for part in parts)

    def both(self) -> Callable[[str], bool]:
        parts = [self.negated()]
        while self.peek() == "and":
            self.take()
            parts.append(self.negated())
        return lambda text: all(part(text) for part in parts)

    def negated(self) -> Callable[[str], bool]:
        word = self.take()
        if word == "not":
            inner = self.negated()
            return lambda text: not inner(text)
        if word == "(":
            inner = self.either()
            if self.peek() != ")":
                message = "a parenthesis is not closed"
                raise ValueError(message)
            self.take()
            return inner
        if word in {")", "and", "or"}:
            message = f"a word is missing before {word!r}"
            raise ValueError(message)
        return lambda text: word in text
