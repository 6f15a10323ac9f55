"""What went between the ranks of a predicted trace, in the order in which it came about.

Kept by either engine: messages as they are posted, meet and are done with, collectives as they are
entered, and pauses. From it follow the structure of a program, which is exact and the same on any
machine, and (:mod:`torch_scenarios.cost`) forecasts of its time. Knows no operation and no value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from math import isnan
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

#: ranks, or rows of a post: an integer, an array, or None for all rows in their order
Rows = Any


class TrafficRow(Struct, frozen=True):
    """Ranks `[L]` that send to, or receive from, `peers` `[L]`: `size` bytes each, at one stroke.

    The peers of receives from anyone are -1. `step` is the index of the step that posts them. Where
    `header` is not None, a message of so many bytes goes before each, and is waited for. `group` is
    the group's name, as the file has it. `begins`: a call of torch begins with it; the others of a
    batch go with the first.

    >>> objects = TrafficRow(0, ranks=0, peers=1, size=120.0, sends=True, header=8.0)
    >>> objects.messages
    2

    Torch sends objects as two messages, the lengths of the pickles and then the pickles
    (`torch.distributed.send_object_list`). Each of them takes a latency of its own.
    """

    number: int
    ranks: Rows
    peers: Rows
    size: float
    sends: bool
    step: int = -1
    header: float | None = None
    group: str = "world"
    begins: bool = True

    @property
    def messages(self) -> int:
        """How many messages each of the ranks sends."""
        return 1 if self.header is None else 2


class Meet(Struct, frozen=True):
    """Rows of one post of sends that meet rows of one of receives.

    a ring of 3: post 0 are the sends of ranks 0 1 2 to 1 2 0, post 1 the receives
    Meet(send=0, sent=[0, 1, 2], receive=1, received=[1, 2, 0])
    """

    send: int
    sent: Rows
    receive: int
    received: Rows


class Finish(Struct, frozen=True):
    """Ranks that return from a step which completes rows of a post, or their collective.

    It is apart from :class:`Meet`, since a message that has arrived lets its rank go on only once
    that waits for it: chains of messages (`Structure.rounds`) go through returns.
    """

    ranks: Rows
    post: int
    rows: Rows


class Enter(Struct, frozen=True):
    """Ranks that enter a collective: what each sends by the ring's algorithm, in bytes.

    `size` are the bytes of its tensor in the sense of nccl-tests, `members` the ranks of its group.
    Ranks that enter at one stroke share a number. A collective of objects is made of `parts`: the
    names of collectives of tensors and their sizes; `size` and `sent` are NaN where nothing tells.

    >>> entered = Enter(0, ranks=[0, 1], sent=[4.0, 4.0], name="all_reduce", key="world", size=4.0,
    ...                 members=(0, 1))
    >>> entered.quorum
    2
    """

    number: int
    ranks: Rows
    sent: Any
    name: str
    key: str
    size: float
    members: tuple[int, ...]
    step: int = -1
    parts: tuple[tuple[str, float], ...] = ()
    group: str = "world"
    awaited: int = 0

    @property
    def quorum(self) -> int:
        """How many ranks must enter: all members, or those that are `awaited` in their place."""
        return self.awaited or len(self.members)


class EnterGroups(Struct, frozen=True):
    """Ranks `[L]` that enter a collective at one stroke, each in its own of many groups `[L]`.

    All groups have as many `members`, and each rank sends and is about as many bytes; the rest as
    in :class:`Enter`.

    >>> pairs = EnterGroups(0, np.arange(4), np.array([0, 0, 1, 1]), sent=4.0, name="all_reduce",
    ...                     size=4.0, members=((0, 1), (2, 3)), keys=("pair#0", "pair#1"))
    >>> [(each.key, each.ranks.tolist()) for each in pairs.split_groups()]
    [('pair#0', [0, 1]), ('pair#1', [2, 3])]
    """

    number: int
    ranks: Any
    groups: Any
    sent: float
    name: str
    size: float
    members: tuple[tuple[int, ...], ...]
    keys: tuple[str, ...]
    step: int = -1
    group: str = "world"

    def split_groups(self) -> Iterator[Enter]:
        """Yield the ranks of each group by themselves."""
        order = np.argsort(self.groups, kind="stable")
        numbers, firsts = np.unique(self.groups[order], return_index=True)
        parts = np.split(self.ranks[order], firsts[1:])
        for number, ranks in zip(numbers.tolist(), parts, strict=True):
            yield self.of_group(number, ranks)

    def of_group(self, number: int, ranks: Rows) -> Enter:
        """Return those of one group that enter, by themselves."""
        return Enter(
            number=self.number,
            ranks=ranks,
            sent=np.asarray([self.sent]),
            name=self.name,
            key=self.keys[number],
            size=self.size,
            members=self.members[number],
            step=self.step,
            group=self.group,
        )


class Pause(Struct, frozen=True):
    """Ranks that compute by themselves for some seconds; their hosts do for `host_s`.

    `synchronizes`: the hosts wait then until all of it is done.

        host      launch | launch | .item() waits ........ | launch
        stream           [ kernel ][ kernel ..............]        [ kernel ]

    A device works behind its host, so that the host's time is hidden until the host waits: that is
    what `.item()`, `.cpu()` and a synchronize cost.
    """

    ranks: Rows
    seconds: float = 0.0
    step: int = -1
    host_s: float = 0.0
    synchronizes: bool = False


class Structure(Struct, frozen=True, kw_only=True):
    """What a program costs on any machine.

    `rounds` is the longest chain of messages, in which b follows a if the rank that posts b has
    returned, in program order, from a step that completes with a; a send completes with its
    receive. `sent` are the bytes that each rank sends. Collectives in one call have no messages:
    `rounds` and `messages` are None where `collectives` names some, and what they send is modelled
    by the ring. `links` maps (source, destination) to messages and bytes.

        rank 0 sends to 1, 1 to 2, 2 to 3      rounds 3: a chain
        rank 0 sends to 1, 2 and 3             rounds 3 with `send`, one after the other;
                                               rounds 1 with `isend` and one wait

    >>> Structure(rounds=1, messages=2, sent=(4.0, 4.0)).modelled
    False
    """

    rounds: int | None
    messages: int | None
    sent: tuple[float, ...]
    collectives: tuple[str, ...] = ()
    links: Mapping[tuple[int, int], tuple[int, float]] = field(default_factory=dict)

    @property
    def modelled(self) -> bool:
        """Whether some of what is sent is modelled by the ring."""
        return bool(self.collectives)


class Traffic:
    """The traffic of one run of a program, in the order in which it came about.

    >>> traffic = Traffic(2)
    >>> sent = traffic.post(0, 1, 8.0, sends=True)
    >>> received = traffic.post(1, 0, 8.0, sends=False)
    >>> traffic.meet(sent, 0, received, 0)
    >>> traffic.finish(0, sent, 0)
    >>> traffic.finish(1, received, 0)
    >>> traffic.structure.rounds, traffic.structure.sent, traffic.links()
    (1, (8, 0), {(0, 1): (1, 8.0)})
    """

    def __init__(self, world_size: int) -> None:
        """Begin with none."""
        self.world_size = world_size
        self.entries: list[TrafficRow | Meet | Finish | Enter | EnterGroups | Pause] = []
        self._posts = 0
        #: collectives of objects: their number -> their place, until all members are there
        self._unweighed: dict[int, int] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the structure, where it was asked for; what came about stays where it is."""
        return _count_bytes, (self.__dict__.get("structure"),)

    @classmethod
    def count_bytes(cls, structure: Structure) -> Traffic:
        """Return the traffic of which nothing is known but its structure."""
        found = cls(len(structure.sent))
        found.__dict__["structure"] = structure
        return found

    def summary(self, *, asked: bool = False) -> Traffic | None:
        """Return the structure alone, where it is asked for or known; None where it is not."""
        return _count_bytes(self.structure if asked else self.__dict__.get("structure"))

    def copy(self) -> Traffic:
        """Return the same traffic, to be added to apart."""
        found = Traffic(self.world_size)
        found.entries, found._unweighed = list(self.entries), dict(self._unweighed)
        found._posts = self._posts
        return found

    def post(
        self,
        ranks: Rows,
        peers: Rows,
        size: float | None,
        *,
        sends: bool,
        step: int = -1,
        header: float | None = None,
        group: str = "world",
        begins: bool = True,
    ) -> int:
        """Note messages that are posted; returns the number of the post. None: nothing tells."""
        number = self.stroke()
        known = float("nan") if size is None else size
        row = TrafficRow(number, ranks, peers, known, sends, step, header, group, begins)
        self.entries.append(row)
        return number

    def meet(self, send: int, sent: Rows, receive: int, received: Rows) -> None:
        """Note that messages met."""
        self.entries.append(Meet(send, sent, receive, received))

    def finish(self, ranks: Rows, post: int, rows: Rows) -> None:
        """Note that ranks returned from a step that completes rows of a post."""
        self.entries.append(Finish(ranks, post, rows))

    def stroke(self) -> int:
        """Return the number of what ranks enter next, at one stroke."""
        self._posts += 1
        return self._posts - 1

    def enter(self, entry: Enter | EnterGroups) -> None:
        """Note that ranks entered a collective."""
        if isinstance(entry, Enter) and isinstance(entry.sent, float) and isnan(entry.sent):
            self._unweighed[entry.number] = len(self.entries)
        self.entries.append(entry)

    def weigh(self, number: int, sent: float, parts: tuple[tuple[str, float], ...]) -> None:
        """Note what a member of a collective of objects sends, once all of them are known."""
        at = self._unweighed.pop(number)
        entry = self.entries[at]
        assert isinstance(entry, Enter)
        self.entries[at] = replace(
            entry, sent=sent, size=sum(size for _, size in parts), parts=parts
        )

    def pause(self, ranks: Rows, step: int, **stated: Any) -> None:
        """Note that ranks are busy by themselves, or what their hosts do (:class:`Pause`)."""
        self.entries.append(Pause(ranks, step=step, **stated))

    def split_groups(self) -> Iterator[TrafficRow | Meet | Finish | Enter | Pause]:
        """Yield what came about, collectives of many groups as one entry for each group."""
        for each in self.entries:
            if isinstance(each, EnterGroups):
                yield from each.split_groups()
            else:
                yield each

    @cached_property
    def structure(self) -> Structure:
        """What the program costs on any machine."""
        entered = (each for each in self.entries if isinstance(each, Enter | EnterGroups))
        collectives = tuple(sorted({each.name for each in entered}))
        sent = np.zeros(self.world_size, np.float64)
        messages = 0
        for each in self.entries:
            if isinstance(each, Enter):
                np.add.at(sent, np.atleast_1d(each.ranks), each.sent)
            elif isinstance(each, EnterGroups):
                sent[each.ranks] += each.sent
            elif isinstance(each, TrafficRow) and each.sends:
                ranks = np.atleast_1d(each.ranks)
                np.add.at(sent, ranks, each.size + (each.header or 0))  # NaN: nothing tells
                messages += len(ranks) * each.messages
        return Structure(
            rounds=None if collectives else self._rounds(),
            messages=None if collectives else messages,
            sent=tuple(int(each) if each.is_integer() else each for each in sent.tolist()),
            collectives=collectives,
        )

    def links(self) -> dict[tuple[int, int], tuple[int, float]]:
        """Return the messages and bytes on each link that is used: (source, destination)."""
        found: dict[tuple[int, int], tuple[int, float]] = {}
        for each in self.entries:
            if isinstance(each, TrafficRow) and each.sends:
                ends = zip(
                    np.atleast_1d(each.ranks).tolist(),
                    np.atleast_1d(each.peers).tolist(),
                    strict=True,
                )
                for link in ends:
                    count, size = found.get(link, (0, 0))
                    found[link] = count + each.messages, size + each.size + (each.header or 0)
        return dict(sorted(found.items()))

    def _rounds(self) -> int:
        """Return the longest chain: a message is one further than what its sender returned from."""
        depth = np.zeros(self.world_size, np.int64)
        levels: dict[int, NDArray[np.int64]] = {}
        for each in self.entries:
            if isinstance(each, TrafficRow):
                ranks = np.atleast_1d(each.ranks)
                further = depth[ranks] + each.messages
                levels[each.number] = further if each.sends else np.zeros_like(ranks)
            elif isinstance(each, Meet):
                rows = _index(each.received)
                levels[each.receive][rows] = levels[each.send][_index(each.sent)]
            elif isinstance(each, Finish):
                ranks = np.atleast_1d(each.ranks)
                reached = levels[each.post][_index(each.rows)]
                depth[ranks] = np.maximum(depth[ranks], reached)
        return max((int(each.max(initial=0)) for each in levels.values()), default=0)

    @property
    def unknown(self) -> bool:
        """Whether objects are sent of which nothing tells how many bytes they have."""
        rows = (each for each in self.entries if isinstance(each, TrafficRow) and each.sends)
        return bool(self._unweighed) or any(isnan(each.size) for each in rows)


def _count_bytes(structure: Structure | None) -> Traffic | None:
    return None if structure is None else Traffic.count_bytes(structure)


def _index(rows: Rows) -> Any:
    """Return what picks rows out of a post; None are all of them."""
    return slice(None) if rows is None else np.atleast_1d(rows)


def count_payload_bytes(payloads: Iterable[Any] | Sequence[Any]) -> int | None:
    """Return the bytes of arrays together; None where one is no array."""
    total = 0
    for each in payloads:
        if isinstance(each, list):
            inner = count_payload_bytes(each)
            if inner is None:
                return None
            total += inner
        elif isinstance(each, np.ndarray):
            total += each.nbytes
        elif each is not None:
            return None
    return total
