"""One step as many ranks take it: which ranks, what it starts, what names it, what it stores."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from torch_scenarios.expressions.lanes import Stack, Value
from torch_scenarios.model.scenario import Step
from torch_scenarios.operations.base import Collective
from torch_scenarios.reference.vector.cohort import ActiveRanks, LetBindings, View, arguments_of
from torch_scenarios.vocabulary import WORLD


class Instance(Struct, frozen=True, eq=False):
    """One step in one round of its loops; `mask` `[W]` are the ranks that the loops select.

        for i in 0..2:                    instances, in the order in which they are taken
          all_reduce x                    number 0, iteration (0,)
          ranks: rank > i, barrier        number 1, iteration (0,)
                                          number 2, iteration (1,)
                                          number 3, iteration (1,)

    `mask` is None where loops select every rank. What the step's own `ranks:` selects is computed
    when it is taken, for it may depend on values.
    """

    number: int
    step: Step
    iteration: tuple[int, ...]
    variables: Mapping[str, int | LetBindings]
    mask: NDArray[np.bool_] | None


# What names a call, and what it stores.


class Link(Struct, eq=False):
    """Which matches the ranks of a step take part in: a collective, or messages with `peers`.

    `keys` are the keys of the groups, by the number that a rank's group has in `numbers` `[W]`.

        group "pair" of 4 ranks is (0, 1) and (2, 3)
        keys     ("pair#0", "pair#1")
        numbers  [0, 0, 1, 1]                     int64; -1 outside
        peers    [1, 0, 3, 2]                     int64, by row; None for a collective

    A link of 1,024 ranks is these few arrays; as objects it would be 1,024 texts a step.
    """

    keys: tuple[str, ...]
    numbers: NDArray[np.int64]
    position: int = 0
    sends: bool = False
    peers: NDArray[np.int64] | None = None
    tags: Any = 0

    def ends(self, of: Any, rank: int) -> tuple[str, bool, int, int] | None:
        """Return group, side, peer and tag of a rank's message; None where it is a collective.

        `of` has the ranks that the link is of.
        """
        if self.peers is None:
            return None
        row = of.active.row(rank)
        tag = self.tags if isinstance(self.tags, int) else int(self.tags[row])
        return self.keys[int(self.numbers[rank])], self.sends, int(self.peers[row]), tag

    def among(self, rows: NDArray[np.int64]) -> Link:
        """Return the link of some of the ranks."""
        if self.peers is None:
            return self
        tags = self.tags[rows] if isinstance(self.tags, np.ndarray) else self.tags
        return Link(self.keys, self.numbers, 0, self.sends, self.peers[rows], tags)


class CallDescription(Struct, eq=False):
    """What names a call: its arguments as far as its label shows them, its group, its matches.

    An argument is plain where all ranks have the same, and an array `[L]` where it depends on the
    rank. The label `isend(x, to=3)` of one rank is made from its row when someone asks for it.
    """

    arguments: Mapping[str, Any] = field(default_factory=dict)
    group: str = WORLD
    links: tuple[Link, ...] = ()

    def among(self, rows: NDArray[np.int64]) -> CallDescription:
        """Return the same of some of the ranks."""
        arguments = arguments_of(self.arguments, rows)
        return CallDescription(
            arguments, self.group, tuple(link.among(rows) for link in self.links)
        )


class Change(Struct, eq=False):
    """Elements that a step stored on its ranks: flat `offsets` `[L or 1, *shape]`; None is all.

    `listed` says that what is stored is a list on each rank.

        x[rank] = 7, on ranks 0, 1, 2      offsets [[0], [1], [2]], values [[7], [7], [7]]
        x[1:3] = 0                            offsets [[1, 2]]: the same on every rank
        x = zeros                             offsets None

    What a name held at some event is its last whole store, with the changes after it put on top.
    """

    name: str
    active: ActiveRanks
    offsets: NDArray[np.int64] | None
    values: NDArray[Any]
    listed: bool = False


# What calls have started, and who stands waiting for it.

#: rows of a work; None is all of them
Rows = Any


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class PostColumn:
    """One thing that the same call of many ranks waits for; row by row it is `done`.

    `target` is where what arrives is stored, `arrived` `[L, *shape]` what did. It is
    `matching.Post` for many ranks: row 2 of the column is the post of `active.ranks[2]`.
    """

    active: ActiveRanks
    work: WorkColumn | None = None
    target: View | None = None
    arrived: NDArray[Any] | None = None
    #: which of the posts of the run it is
    number: int = -1
    slack: NDArray[Any] | None = None


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class WorkColumn:
    """What one call of many ranks started.

    `left` `[L]` counts the posts that are not done, `open` the rows that have such; `waited` tells
    which ranks have waited for it, `awaited` which stand and wait, `stored` where what it brought
    is in place. `flown` are the names of the tensors that it uses until then, `handles` its own.

        batch of 2 messages on ranks 0 1 2      rank 2's receive has arrived, and all of rank 0
        left      [0, 2, 1]    int8
        open      2            rows 1 and 2
        awaited   [T, T, F]    rank 2 has not come to its wait yet
    """

    instance: Instance
    active: ActiveRanks
    posts: list[PostColumn]
    names: tuple[str, ...]
    left: NDArray[np.int8] = dataclasses.field(init=False)
    open: int = dataclasses.field(init=False)
    waited: NDArray[np.bool_] = dataclasses.field(init=False)
    awaited: NDArray[np.bool_] = dataclasses.field(init=False)
    stored: NDArray[np.bool_] = dataclasses.field(init=False)
    flown: tuple[str, ...] = ()
    handles: tuple[str, ...] = ()
    number: int = -1

    def __post_init__(self) -> None:
        """Begin with nothing done."""
        size = self.active.size
        self.left = np.full(size, len(self.posts), np.int8)
        self.open = size if self.posts else 0
        self.waited = np.zeros(size, np.bool_)
        self.awaited = np.zeros(size, np.bool_)
        self.stored = np.zeros(size, np.bool_)
        for post in self.posts:
            post.work = self

    def advance(self, rows: Rows) -> Rows:
        """Count one post of these rows as done; return the rows that have none left."""
        if rows is None:
            self.left -= 1
            if len(self.posts) == 1:
                self.open = 0
                return None
            finished = np.flatnonzero(self.left == 0)
        else:
            self.left[rows] -= 1
            finished = rows if len(self.posts) == 1 else rows[self.left[rows] == 0]
        self.open -= len(finished)
        return finished


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class Messages(PostColumn):
    """One message of each rank, out or in: its peer, its tag, and which have not met `[L]`.

        ring of 4: isend x to (rank + 1) % 4        irecv y from (rank - 1) % 4
        active.ranks   [0, 1, 2, 3]                 [0, 1, 2, 3]
        peers          [1, 2, 3, 0]                 [3, 0, 1, 2]

    Both columns meet at once: row r of the one names row `peers[r]` of the other, and that one
    names r back. Where only some do, `unmet` keeps the rest.
    """

    peers: NDArray[np.int64]
    tags: Any
    payload: Stack
    sends: bool = False
    unmet: NDArray[np.bool_] = dataclasses.field(init=False)
    left: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        """Begin with none met."""
        self.left = self.active.size
        self.unmet = np.ones(self.left, np.bool_)

    def meet(self, rows: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """Note that these rows have met; return them, or None where these are all there are."""
        self.left -= len(rows)
        if not self.left and len(rows) == self.active.size:
            return None
        self.unmet[rows] = False
        return rows


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class CollectiveColumn(PostColumn):
    """Members of groups of one name that enter their next collective.

    `numbers` `[L]` say which of the groups each is in; `arguments` are tensors and plain values.
    `results` has, for each group that is complete, what its members hold afterwards.

        8 ranks in 2 groups of 4, all_reduce x [3]
        numbers     [0, 0, 0, 0, 1, 1, 1, 1]
        arguments   x [8, 3], as [2, 4, 3]: the sum over dimension 1 is the result of both groups
    """

    operation: Collective
    numbers: NDArray[np.int64]
    arguments: Mapping[str, Value]
    position: int = 0
    results: dict[str, Any] = dataclasses.field(default_factory=dict)
    bounds: dict[str, Any] = dataclasses.field(default_factory=dict)


class WaitingRanks(Struct, kw_only=True, eq=False):
    """Ranks that stand in one step, and the works that they wait for; the same ones for all.

    When the ranks of a stand do not go on together, it is split: those whose works are done leave,
    and the stand keeps the others. They are one cohort again as soon as they come to one instance.
    """

    instance: Instance
    active: ActiveRanks
    works: tuple[WorkColumn, ...]
    description: CallDescription
