"""What a rule says must happen; an engine applies it, to one rank or to many at once.

A rule changes nothing. It returns effects, and the walk and the cohorts have each their own way to
carry them out: rank by rank, or in columns. What only one rank does (`Begin`, `Await`, `Create`,
`Go`, `Raise`, `End`) is meant of the rank for which the rule was asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct, field

from torch_scenarios.expressions.values import Undefined
from torch_scenarios.model.trace import Failure
from torch_scenarios.operations.base import Group, Message, Refusal
from torch_scenarios.reference.matching import (
    CollectiveMatch,
    CollectivePost,
    Creating,
    Post,
    Series,
    Work,
)
from torch_scenarios.reference.symptoms import Symptom

#: (argument, what it holds afterwards, slack); the argument is None for the buffer of a message
Outcome: TypeAlias = list[tuple[str | None, Any, Any]]


class Begin(Struct, frozen=True):
    """A call starts work: it posts `messages`, or enters the next collective where there are none.

    With a `refusal` it posts nothing, and its wait raises.
    """

    messages: Sequence[Message] = ()
    refusal: Refusal | None = None


class Ask(Struct, frozen=True):
    """The rank calls a function on another one."""

    to: int
    function: str


class Await(Struct, frozen=True):
    """The rank waits for these works; for `twice` of them, it has waited before."""

    works: tuple[Work, ...]
    twice: int = 0


class Create(Struct, frozen=True):
    """The rank enters the next creation of a series; `splits`: it splits the world for it.

    A `reused` name may find the members of an earlier group.
    """

    group: Group
    series: Series
    splits: bool = False
    reused: bool = False


class Deny(Struct, frozen=True):
    """A creation is refused, because its rank still uses a group of that name."""


class Go(Struct, frozen=True):
    """A step is done once `seconds` have passed; `before` is what the names held that it makes."""

    seconds: float
    before: Mapping[str, Any] = field(default_factory=dict)


class Raise(Struct, frozen=True):
    """The rank's call raises, at once or `at_s`.

    `spoilt` are the names that it may have stored into, each with why it is undefined then.
    """

    failure: Failure
    at_s: float | None = None
    spoilt: Mapping[str, Undefined | None] = field(default_factory=dict)


class End(Struct, frozen=True):
    """The rank's process ends: `how` is a signal's name or `exit N`."""

    how: str


class Abandon(Struct, frozen=True):
    """The rank gives these works up: they no longer count as having begun."""

    works: Sequence[Work]


class Pass(Struct, frozen=True):
    """A post is done `time_s` after the scenario began; of a column's posts, these `rows`.

    None are all rows.
    """

    post: Any
    time_s: float = 0.0
    rows: Any = None


class Late(Struct, frozen=True):
    """A creation raises `at_s`, because a member waited too long; `first`: this one waited."""

    creating: Creating
    at_s: float
    first: bool


class Leave(Struct, frozen=True):
    """What posts leave on their ranks, once each of these completes its call.

    `settles` is the collective whose result is known by that.
    """

    outcomes: Sequence[tuple[Post, Outcome]]
    settles: CollectiveMatch | None = None


class Keep(Struct, frozen=True):
    """A rank goes on without its peer: what it gave is copied, for it may change it."""

    post: Post


class Spoil(Struct, frozen=True):
    """The members of a collective disagree: its result is undefined, and `opened` may happen."""

    match: CollectiveMatch
    members: Sequence[CollectivePost]
    symptom: Symptom
    opened: frozenset[str]


class Open(Struct, frozen=True):
    """Outcomes that a run may show in place of the predicted one."""

    outcomes: frozenset[str]


Effect: TypeAlias = (
    Begin
    | Ask
    | Await
    | Create
    | Deny
    | Go
    | Raise
    | End
    | Abandon
    | Pass
    | Late
    | Leave
    | Keep
    | Spoil
    | Open
    | Symptom
)
