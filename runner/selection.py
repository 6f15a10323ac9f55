"""Which cases a command line means: a `-k` expression over their names, and tags."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from runner.scenario import Scenario


def chosen(
    scenarios: Sequence[Scenario], keyword: str | None, tags: Sequence[str]
) -> list[Scenario]:
    """Return the scenarios that a `-k` expression and all of the tags select, in order.

    Raises ValueError where the expression cannot be read.
    """
    matches = keyword_matcher(keyword) if keyword else None
    return [
        scenario
        for scenario in scenarios
        if set(tags) <= set(scenario.tags)
        and (matches is None or matches(f"{scenario.source.path} {scenario.case}".lower()))
    ]


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
