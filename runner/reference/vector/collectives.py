"""Collectives of many ranks at once: counted in, and computed once a group is complete.

Without tensors (a barrier) nothing is made for a single rank. With them the operation's own
reference gets the entries of all members, as the other engine gives them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.operations.base import Collective
from runner.operations.entries import Entry, Undefined
from runner.reference.slack import slack_of
from runner.reference.vector.rows import own
from runner.reference.vector.values import Active, Stack, Value, View, leave
from runner.reference.vector.works import Post

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from runner.operations.base import Operation
    from runner.plan import Group, Plan
    from runner.reference.vector.memory import Memory


@dataclass(slots=True, kw_only=True, eq=False)
class Entering(Post):
    """Members of groups of one name that enter their next collective.

    `numbers` `[L]` say which of the groups each is in; `arguments` are tensors and plain values.
    `results` has, for each group that is complete, what its members hold afterwards.
    """

    operation: Collective
    numbers: NDArray[np.int64]
    arguments: Mapping[str, Value]
    results: dict[str, Any] = field(default_factory=dict)
    bounds: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Position:
    """The n-th collectives of all groups of one name: who has entered, and who must."""

    operation: Collective
    arrived: NDArray[np.int64]
    posts: list[Entering] = field(default_factory=list)


class Collectives:
    """The collectives of a run, by the name of the groups and the position."""

    def __init__(self, plan: Plan, memory: Memory) -> None:
        """Begin with none."""
        self._plan = plan
        self._memory = memory
        self._open: dict[tuple[str, int], _Position] = {}
        self._entered: dict[str, NDArray[np.int64]] = {}
        self._sizes: dict[str, NDArray[np.int64]] = {}

    @property
    def empty(self) -> bool:
        """Whether every collective that was entered is complete."""
        return not self._open

    def position(self, name: str, active: Active) -> int:
        """Return how many collectives these ranks have entered on their groups of that name."""
        entered = self._entered.get(name)
        if entered is None:
            entered = self._entered[name] = np.zeros(active.world_size, np.int64)
            self._sizes[name] = np.asarray([group.size for group in self._plan.names[name]])
        mine = entered[active.index]
        first = int(mine[0])
        if (mine != first).any():
            leave("members that are at different collectives")
        return first

    def enter(self, name: str, post: Entering) -> Iterator[tuple[Entering, Any]]:
        """Let ranks enter; yield every post of which rows are done by that, with these rows."""
        position = self.position(name, post.active)
        self._entered[name][post.active.index] += 1
        key = (name, position)
        here = self._open.get(key)
        if here is None:
            here = _Position(post.operation, np.zeros(len(self._sizes[name]), np.int64))
            self._open[key] = here
        if here.operation is not post.operation:
            leave("different collectives")
        counts = np.bincount(post.numbers, minlength=len(here.arrived))
        here.arrived += counts
        here.posts.append(post)
        whole = (here.arrived == self._sizes[name]) & (counts > 0)
        if whole.any():
            yield from self._complete(name, here, whole)
        if (here.arrived[here.arrived > 0] == self._sizes[name][here.arrived > 0]).all():
            del self._open[key]

    def _complete(
        self, name: str, here: _Position, whole: NDArray[np.bool_]
    ) -> Iterator[tuple[Entering, Any]]:
        if _says_something(here.operation, here.posts):
            for number in np.flatnonzero(whole).tolist():
                self._settle(self._plan.names[name][number], here.posts)
        for post in here.posts:
            done = whole[post.numbers]
            if done.all():
                yield post, None
            elif done.any():
                yield post, np.flatnonzero(done)

    def _settle(self, group: Group, posts: list[Entering]) -> None:
        """Compute what the members of one group hold afterwards."""
        placed: dict[int, tuple[Entering, int]] = {}
        for post in posts:
            rows, there = post.active.find(np.asarray(group.ranks, np.int64))
            for at in np.flatnonzero(there).tolist():
                placed[at] = post, int(rows[at])
        entries = [
            _entry(group, rank, *placed[at], placed[at][0].operation)
            for at, rank in enumerate(group.ranks)
        ]
        operation = posts[0].operation
        if any(operation.refuse(entry) is not None for entry in entries):
            leave("a call that is refused")
        if operation.disagreements(entries):
            leave("members that disagree")
        results = operation.reference(entries)
        slack = slack_of(operation, entries)
        for at, result in enumerate(results):
            post, row = placed[at]
            for argument, value in result.items():
                _put(post, post.results, argument, row, value)
                if slack and slack[at].get(argument) is not None:
                    _put(post, post.bounds, argument, row, slack[at][argument])


def _says_something(operation: Collective, posts: list[Entering]) -> bool:
    """Return whether a collective stores anything, or its members could disagree."""
    plain = type(operation).refuse is Collective.refuse and not operation.rooted
    tensors = any(isinstance(value, Stack | View) for value in posts[0].arguments.values())
    return tensors or not plain or bool(operation.agree)


def storing(
    operation: Collective, group: Group, rank: int, arguments: Mapping[str, Value], row: int
) -> tuple[str, ...]:
    """Return the arguments that a collective stores into on one rank."""
    plain = {param.name: param.default for param in operation.params}
    for name, value in arguments.items():
        plain[name] = None if isinstance(value, Stack | View) else own(value, row)
    entry = Entry(rank=rank, group=group, arguments=plain)
    return tuple(param.name for param in operation.params if operation.writes(param, entry))


def _entry(group: Group, rank: int, post: Entering, row: int, operation: Operation) -> Entry:
    arguments = {param.name: param.default for param in operation.params}
    for name, value in post.arguments.items():
        if isinstance(value, Stack | View):
            arguments[name] = value.take(np.asarray([row]))[0, ...]
        else:
            arguments[name] = own(value, row)
    return Entry(rank=rank, group=group, arguments=arguments)


def _put(post: Entering, into: dict[str, Any], argument: str, row: int, value: Any) -> None:  # noqa: ANN401
    """Keep what one rank holds afterwards in an argument; of all ranks in one array."""
    given = post.arguments.get(argument)
    if isinstance(value, Undefined) or not isinstance(given, Stack | View):
        leave("a result that is undefined")
    found = np.asarray(value)
    if found.size != np.prod(given.shape):
        leave("a result of another size")
    if argument not in into:
        dtype = given.dtype if into is post.results else np.dtype(np.float64)
        into[argument] = np.zeros((post.active.size, *given.shape), dtype)
    np.copyto(into[argument][row, ...], found.reshape(given.shape), casting="unsafe")
