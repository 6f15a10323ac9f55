"""The rule book: what an operation of each shape means, and nothing about engines.

A rule is a function over who takes part, one rank or many. It looks at entries and at the state,
changes nothing, and returns a fact or effects (:mod:`torch_scenarios.reference.effects`). Above
each stands the sentence that it is, in our words, with its source and the scenario that shows it;
docs/explanation/semantics.md is written from these.

Where a new sentence belongs:

    call         holds of every call: refusals, destroyed groups, unsupported calls
    collective   all members of a group do the same: match by place, needs, agreement, results
    message      two ends name each other: tags, order, buffers, receives from anyone
    waiting      handles, second waits, tensors in use, timeouts, peers that are gone
    creation     new_group and meshes: which calls meet, and which ranks wait for which
    local        what a rank does alone
    compound     one step that is several calls: a step of training, a checkpoint
    procedure    functions that run on another rank
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from msgspec import Struct

F = TypeVar("F", bound=Callable[..., object])


class Article(Struct, frozen=True, kw_only=True):
    """One sentence of the semantics: its `source`, and the scenarios of the corpus that show it.

    `name` is the function that states it, of the module `room`. Its function runs in both engines,
    so that the page of the semantics cannot say what the analysis does not do.

    >>> from torch_scenarios.reference.rules import message
    >>> [rule.shown for rule in RULES if (rule.room, rule.name) == ("message", "deliver")]
    [('p2p/send_recv',)]
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
