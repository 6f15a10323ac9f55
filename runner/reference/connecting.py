"""Which ranks stand on the host for good: the first message between two ranks connects them.

Where a backend connects ranks late, a call that sends to a rank for the first time, or receives
from one, returns to the host only once that rank's host has made the opposite call, however small
the message is (NCCL, `ncclTransportP2pSetup`). Beside that hosts wait in a barrier; otherwise they
run ahead of their devices.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from runner.operations.base import Collective, GroupCreation, PointToPoint
from runner.reference.waits import messages_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runner.call import Call
    from runner.plan import Group
    from runner.reference.schedules import Rest
    from runner.traits import Traits

#: a connection: the group, the rank that sends, the rank that receives
Connection: TypeAlias = tuple[str, int, int]

#: where hosts meet: in a connection, or all members of a group in the n-th barrier
Place: TypeAlias = Connection | tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """Where hosts stand: rank -> the number of its work, and the connections that none completes.

    `garbled`: two ranks half a ring apart whose calls are not each other's counterpart (both send
    first; a batch meets a plain receive) take each other's offer for an answer, or one of another
    length. What comes of it nobody knows.
    """

    standing: dict[int, int]
    missing: tuple[Connection, ...]
    garbled: bool


def hosts_of(run: Rest, traits: Traits) -> Hosts:
    """Return where the hosts of a run stand that connect late."""
    return _Connecting(run, traits).hosts()


class _Connecting:
    """The hosts of all ranks, each before the first call whose connections are not complete."""

    def __init__(self, run: Rest, traits: Traits) -> None:
        self._reading = run.simulation.reading
        self._traits = traits
        self._groups: dict[str, Group] = {}
        self._calls = {
            state.rank: deque(self._places(run, state.rank)) for state in run.simulation.ranks
        }
        self._arrived: dict[Place, set[int]] = defaultdict(set)
        #: what a rank connected with one half a ring away, call by call
        self._offers: dict[tuple[str, int, int], list[set[Connection]]] = defaultdict(list)

    def _places(self, run: Rest, rank: int) -> Iterator[tuple[int, set[Place]]]:
        """Yield the rank's works by number, each with where its host must meet others."""
        works = [work.call for work in run.simulation.ranks[rank].works]
        shapes = (Collective, PointToPoint, GroupCreation)
        coming = (call for call in run.futures.beyond(rank) if isinstance(call.operation, shapes))
        joined: Counter[str] = Counter()
        for number, call in enumerate((*works, *coming)):
            group = call.entry.group
            if self._reading.on(group) is not self._reading:
                continue
            self._groups[group.key] = group
            needed: set[Place] = set(self._connections(call))
            if call.operation is not None and call.operation.name in self._traits.join_hosts:
                joined[group.key] += 1
                needed.add((group.key, joined[group.key]))
            if needed:
                yield number, needed

    def _connections(self, call: Call) -> Iterator[Connection]:
        """Yield the connections that a call uses, of which either end makes its own half."""
        group, rank = call.entry.group, call.entry.rank
        for message in messages_of(call):
            if message.peer is not None:
                ends = (rank, message.peer) if message.sends else (message.peer, rank)
                yield group.key, *ends
        operation = call.operation
        if not isinstance(operation, Collective) or operation.name not in self._traits.by_messages:
            return
        root = group.ranks[operation.root(call.entry)] if operation.rooted else None
        for peer in group.ranks:
            if peer != rank and (root is None or root in {rank, peer}):
                if root is None or (operation.rooted == "src") == (root == rank):
                    yield group.key, rank, peer
                if root is None or (operation.rooted == "src") == (root == peer):
                    yield group.key, peer, rank

    def hosts(self) -> Hosts:
        """Let every host go as far as it gets."""
        ready = deque(self._calls)
        while ready:
            rank = ready.popleft()
            calls = self._calls[rank]
            if not calls:
                continue
            _, needed = calls[0]
            self._offer(rank, needed)
            for place in needed:
                ready += self._arrive(rank, place)
            if not self._missing(rank):
                calls.popleft()
                ready.append(rank)
        return self._at_rest()

    def _offer(self, rank: int, needed: set[Place]) -> None:
        """Note what a call connects for the first time with the rank half a ring away.

        Ranks tell each other of a connection by their distance; half way round, the rank that one
        sends to is the one that it receives from, and both halves go in one message.
        """
        offered: dict[tuple[str, int, int], set[Connection]] = defaultdict(set)
        for place in needed:
            if len(place) == 2 or rank in self._arrived[place]:  # noqa: PLR2004 -- a barrier
                continue
            key, source, target = place
            group = self._groups[key]
            distance = group.group_rank(target) - group.group_rank(source)
            if 2 * distance % group.size == 0:
                offered[key, rank, target if source == rank else source].add(place)
        for pair, connections in offered.items():
            self._offers[pair].append(connections)

    def _arrive(self, rank: int, place: Place) -> list[int]:
        """Let a host come to a place; returns the others there if it was the last to come."""
        here = self._arrived[place]
        if rank in here:
            return []
        here.add(rank)
        whom = self._whom(place)
        return [other for other in whom if other != rank] if len(here) == len(whom) else []

    def _whom(self, place: Place) -> tuple[int, ...]:
        """Return the ranks whose hosts meet there."""
        key, *ends = place
        return tuple(ends) if len(ends) > 1 else self._groups[key].ranks

    def _missing(self, rank: int) -> list[Place]:
        """Return where a rank's host stands and others have not come."""
        _, needed = self._calls[rank][0]
        return [each for each in needed if len(self._arrived[each]) < len(self._whom(each))]

    def _at_rest(self) -> Hosts:
        standing = {rank: calls[0][0] for rank, calls in self._calls.items() if calls}
        places = (place for rank in standing for place in self._missing(rank))
        missing = {each for each in places if len(each) > 2}  # noqa: PLR2004 -- no barrier
        return Hosts(
            standing=standing,
            missing=tuple(sorted(missing)),
            garbled=any(map(self._garbled, self._offers)),
        )

    def _garbled(self, pair: tuple[str, int, int]) -> bool:
        """Whether what a rank offers another is not what that one offers it."""
        key, rank, peer = pair
        theirs = self._offers.get((key, peer, rank), [])
        return any(one != other for one, other in zip(self._offers[pair], theirs, strict=False))
