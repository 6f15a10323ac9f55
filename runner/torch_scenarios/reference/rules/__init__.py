"""The rule book: what an operation of each shape means, and nothing about engines.

A rule is a function over who takes part, one rank or many. It looks at entries and at the state,
changes nothing, and returns a fact or effects (:mod:`torch_scenarios.reference.effects`). Above
each stands the sentence that it is, in our words, with its source and the scenario that shows it;
docs/explanation/semantics.md is written from these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from msgspec import Struct

F = TypeVar("F", bound=Callable[..., object])


class Article(Struct, frozen=True, kw_only=True):
    """One sentence of the semantics: its `source`, and the scenarios of the corpus that show it.

    `name` is the function that states it, of the module `room`.
    """

    room: str
    name: str
    sentence: str
    source: str
    shown: tuple[str, ...]


#: every rule whose module is imported, in the order of the modules' text
RULES: list[Article] = []


def rule(sentence: str, *, source: str, shown: str) -> Callable[[F], F]:
    """Declare that a function is a rule; `shown` are names of scenarios, parted by spaces."""

    def declare(function: F) -> F:
        room = function.__module__.rpartition(".")[2]
        RULES.append(
            Article(
                room=room,
                name=function.__name__,
                sentence=sentence,
                source=source,
                shown=tuple(shown.split()),
            )
        )
        return function

    return declare
