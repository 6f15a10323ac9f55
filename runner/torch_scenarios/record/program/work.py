"""The names of work that is waited for together, and the numbers of receives that are not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count as count_from
from typing import Any, TypeAlias

from msgspec import Struct, field

from torch_scenarios.record.program.fold import (
    Coordinate,
    Leaf,
    Loop,
    Node,
    count,
)
from torch_scenarios.record.program.tensors import AHEAD

#: stands for the name of work that is waited for together with other work
TOGETHER = "*"

#: stands for the name of a receive that is waited for alone; marks its tensor
IN_ORDER = "#"

#: turns of a loop whose numbers are listed, where they do not grow by as much in each
MOST_LISTED = 6

#: names that a step waits for at most, before the work of all of them has one
MOST_NAMES = 8

#: of a rank, in order: the number of the work that a step begins, the numbers that one waits for
Links: TypeAlias = Sequence[tuple[int, ...]]


class _Site(Struct, kw_only=True):
    """A step that begins work: the loops around it, and whose work is under way beside its own.

    `turns` is how often its innermost loop turns at most; `is_indexed` whether work of an earlier
    turn is still under way when it begins the next.
    """

    loops: int
    turns: int
    is_indexed: bool = False
    beside: set[int] = field(default_factory=set)


class UnnamedWork:
    """The steps that begin work which is waited for together, and those that wait for it.

    Work of one step is beside that of another where both are in flight at once; steps that are
    beside each other have different names, given out in the order of the program, as registers
    are (Chaitin and others, Register allocation via coloring, 1981).
    """

    def __init__(self, nodes: Sequence[Node], links: Mapping[int, Links]) -> None:
        """Follow each rank once through the steps of all."""
        self._nodes, self._links = nodes, links
        #: `id` of a step -> the step that begins work, in the order of the program
        self._sites: dict[int, _Site] = {}
        #: `id` of a wait -> those of the steps that begin what it waits for
        self._waits: dict[int, set[int]] = {}
        self._named: set[str] = set()
        #: `id` of a node -> with such steps
        self._has_any: set[int] = set()
        self._look_at(nodes, 0, 1)
        for rank in links:
            self._follow(rank)

    def names(self) -> dict[int, list[str]] | None:
        """Return the name of each step's work, and those that each waits for; None if none fit.

        Three ways are tried, the shortest text first: one name for all that a step waits for at
        once, names that are used again, and a name for each step. Each is checked against what
        every rank did.
        """
        for given in (
            self._name_pools(),
            self._give_names(is_shared=True),
            self._give_names(is_shared=False),
        ):
            found = {at: [self._write(at, *each)] for at, each in given.items()}
            for wait, sites in self._waits.items():
                found[wait] = list(dict.fromkeys(given[at][0] for at in given if at in sites))
            if all(self._is_right(rank, given, found) for rank in self._links):
                return found
        return None

    def _look_at(self, nodes: Sequence[Node], loops: int, turns: int) -> bool:
        """Find the steps in some nodes; returns whether there are any."""
        before = len(self._has_any)
        for node in nodes:
            if isinstance(node, Loop):
                if self._look_at(node.body, loops + 1, max(node.ranks.values())):
                    self._has_any.add(id(node))
                continue
            step: Any = node.key
            self._named |= {step.handle, *step.handles} - {None, TOGETHER, IN_ORDER}
            if step.handle == TOGETHER:
                self._sites[id(node)] = _Site(loops=loops, turns=turns)
                self._has_any.add(id(node))
            elif TOGETHER in step.handles:
                self._waits[id(node)] = set()
                self._has_any.add(id(node))
        return len(self._has_any) > before

    def _walk(
        self, nodes: Sequence[Node], rank: int, turns: tuple[int, ...] = ()
    ) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield the steps of a rank that begin such work, or wait for it, and the turns then."""
        for node in nodes:
            if rank not in node.ranks or id(node) not in self._has_any:
                continue
            if isinstance(node, Leaf):
                yield id(node), turns
                continue
            for turn in range(node.ranks[rank]):
                yield from self._walk(node.body, rank, (*turns, turn))

    def _follow(self, rank: int) -> None:
        """Follow one rank through the steps that begin work and those that wait for it."""
        open_accesses: dict[int, int] = {}
        steps = self._walk(self._nodes, rank)
        for (at, _), numbers in zip(steps, self._links[rank], strict=True):
            site = self._sites.get(at)
            if site is None:
                self._waits[at] |= {open_accesses.pop(each) for each in numbers}
                continue
            others = set(open_accesses.values())
            site.is_indexed |= at in others
            for other in others:
                site.beside.add(other)
                self._sites[other].beside.add(at)
            open_accesses[numbers[0]] = at

    def _name_pools(self) -> dict[int, tuple[str, int | None]]:
        """Return names as :meth:`_give_names`; much work that one step waits for has one name."""
        found = self._give_names(is_shared=True)
        pools: dict[int, set[int]] = {at: {at} for at in self._sites}
        for sites in self._waits.values():
            whole = set().union(*(pools[at] for at in sites))
            for at in whole:
                pools[at] = whole
        many = [
            pool
            for pool in {id(each): each for each in pools.values()}.values()
            if len({found[at][0] for at in pool})
            > (1 if any(map(self._is_indexed, pool)) else MOST_NAMES)
        ]
        pooled = set().union(*many)
        taken = self._named | {name for at, (name, _) in found.items() if at not in pooled}
        for pool in many:
            name = next(name for name in _count_names("works") if name not in taken)
            taken.add(name)
            offset = 0
            for at in self._sites:
                if at in pool:
                    found[at] = name, offset
                    offset += self._sites[at].turns if self._is_indexed(at) else 1
        return found

    def _is_indexed(self, at: int) -> bool:
        return self._sites[at].is_indexed

    def _give_names(self, *, is_shared: bool) -> dict[int, tuple[str, int | None]]:
        """Return for each step the name of its work, and its index in the first turn, if any.

        With `is_shared` work that is not in flight at once may have one name.
        """
        found: dict[int, tuple[str, int | None]] = {}
        for at, site in self._sites.items():
            taken = set(self._named)
            for other, (name, index) in found.items():
                if not is_shared or site.is_indexed or index is not None or other in site.beside:
                    taken.add(name)
            names = _count_names("works") if site.is_indexed else count_handles()
            name = next(name for name in names if name not in taken)
            found[at] = name, 0 if site.is_indexed else None
        return found

    def _write(self, at: int, name: str, first: int | None) -> str:
        site = self._sites[at]
        if first is None:
            return name
        if not site.is_indexed:
            return f'"{name}[{first}]"'
        return f'"{name}[{f"{first} + " if first else ""}i{site.loops - 1}]"'

    def _is_right(
        self,
        rank: int,
        given: Mapping[int, tuple[str, int | None]],
        found: Mapping[int, Sequence[str]],
    ) -> bool:
        """Whether a rank waits for what its record waits for, and for nothing twice."""
        open_accesses: dict[str, dict[int, int]] = {}  # name -> turn -> number
        steps = self._walk(self._nodes, rank)
        for (at, turns), numbers in zip(steps, self._links[rank], strict=True):
            site = self._sites.get(at)
            if site is not None:
                name, first = given[at]
                own = open_accesses.setdefault(name, {})
                index = (first or 0) + (turns[-1] if site.is_indexed and turns else 0)
                if index in own:
                    return False
                own[index] = numbers[0]
                continue
            awaited = [open_accesses[name] for name in found[at] if name in open_accesses]
            if not all(awaited):
                return False
            if {each for own in awaited for each in own.values()} != set(numbers):
                return False
            for own in awaited:
                own.clear()
        return True


class NumberedParts(Struct, frozen=True, kw_only=True):
    """What such receives are called: by the `id` of a step its handle, and its tensor.

    `pools` has by the name of a tensor how many of it there are, in each pool of receives.
    """

    handles: Mapping[int, list[str]]
    tensors: Mapping[int, str]
    pools: Mapping[str, Mapping[str, int]]

    def sizes(self, name: str) -> list[tuple[str, int]]:
        """Return of a tensor the pools, and how many there are in each."""
        return sorted(self.pools.get(name, {}).items())


class NumberedWork:
    """The steps that begin receives, and those that wait for one: which, is an index.

    Receives of which one step waits for some are a pool. Those of a pool are numbered on each rank
    as they begin, from 0 when none is under way. Where the numbers of a step grow alike with each
    turn of its loop, on every rank, they are its index::

        turn           0     1     2     3
        irecv ahead    2     3     4     5      ahead[i1 + 2]
        wait           0     1     2     3      ahead[i1]
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        orders: Mapping[int, Sequence[int]],
        world: int,
        coordinates: Sequence[Coordinate],
    ) -> None:
        """Find the pools: `orders` has the numbers of each rank's receives and waits, in order."""
        self._nodes, self._world, self._coordinates = nodes, world, coordinates
        #: of each rank, in order: the step, the turns of its loops, the number of its receive
        self._events = {
            rank: [
                (node, turns, each)
                for (node, turns), each in zip(self._walk(nodes, rank), order, strict=True)
            ]
            for rank, order in orders.items()
            if order
        }
        #: `id` of a step -> that of the one which stands for its pool
        self._pools: dict[int, int] = {}
        for events in self._events.values():
            begun: dict[int, int] = {}
            for node, _, each in events:
                if each in begun:
                    self._pools[self._pool(id(node))] = self._pool(begun[each])
                else:
                    begun[each] = id(node)

    def _walk(
        self, nodes: Sequence[Node], rank: int, turns: tuple[int, ...] = ()
    ) -> Iterator[tuple[Leaf, tuple[int, ...]]]:
        for node in nodes:
            if rank not in node.ranks:
                continue
            if isinstance(node, Loop):
                for turn in range(node.ranks[rank]):
                    yield from self._walk(node.body, rank, (*turns, turn))
                continue
            step: Any = node.key
            if step.handle == IN_ORDER or IN_ORDER in step.handles:
                yield node, turns

    def _pool(self, at: int) -> int:
        while self._pools.setdefault(at, at) != at:
            at = self._pools[at]
        return at

    def parts(self) -> NumberedParts | None:
        """Return what the receives are called; None where no index says which one is meant."""
        return self._name(is_eager=True) or self._name(is_eager=False)

    def _name(self, *, is_eager: bool) -> NumberedParts | None:
        """Return names; numbers begin anew when none is under way, eagerly or in a new turn."""
        steps: dict[int, Leaf] = {}
        seen: dict[int, dict[int, list[tuple[tuple[int, ...], int]]]] = {}
        for rank, events in self._events.items():
            indices = self._indices(events, is_eager=is_eager)
            for node, turns, each in events:
                steps[id(node)] = node
                seen.setdefault(id(node), {}).setdefault(rank, []).append((turns, indices[each]))
        texts: dict[int, str] = {}
        most: Counter[int] = Counter()
        for at, by_rank in seen.items():
            text = self._index(by_rank)
            if text is None:
                return None
            texts[at] = text
            indices_of = [index for some in by_rank.values() for _, index in some]
            most[self._pool(at)] = max(most[self._pool(at)], 1 + max(indices_of))
        pools = list(dict.fromkeys(map(self._pool, steps)))
        named = {pool: f"_{at}" if at else "" for at, pool in enumerate(pools)}
        sizes: dict[str, dict[str, int]] = {}
        handles, tensors = {}, {}
        for at, node in steps.items():
            pool = self._pool(at)
            ending = named[pool] if most[pool] == 1 else f"{named[pool]}[{texts[at]}]"
            step: Any = node.key
            handles[at] = [_quote_index(f"{AHEAD}{ending}")]
            if step.tensors:
                sizes.setdefault(step.tensors[0], {})[named[pool]] = most[pool]
                tensors[at] = _quote_index(f"{step.tensors[0]}{ending}")
        return NumberedParts(handles=handles, tensors=tensors, pools=sizes)

    def _indices(
        self, events: Iterable[tuple[Leaf, tuple[int, ...], int]], *, is_eager: bool
    ) -> dict[int, int]:
        """Return the number in its pool of each receive of a rank."""
        following: Counter[int] = Counter()
        pending: Counter[int] = Counter()
        outer: dict[int, int] = {}
        found: dict[int, int] = {}
        for node, turns, each in events:
            pool = self._pool(id(node))
            if each in found:
                pending[pool] -= 1
                continue
            turn = turns[0] if turns else -1
            if not pending[pool] and (is_eager or outer.get(pool) != turn):
                following[pool] = 0
            outer[pool] = turn
            found[each] = following[pool]
            following[pool] += 1
            pending[pool] += 1
        return found

    def _index(self, by_rank: Mapping[int, list[tuple[tuple[int, ...], int]]]) -> str | None:
        """Return the index of a step as an expression of its rank and turns; None without one."""
        firsts = {rank: events[0][1] for rank, events in by_rank.items()}
        grown: dict[int, int] = {}  # turn of the innermost loop -> how much more than in the first
        for rank, events in by_rank.items():
            for turns, index in events:
                turn = turns[-1] if turns else 0
                if grown.setdefault(turn, index - firsts[rank]) != index - firsts[rank]:
                    return None
        first = count(firsts, self._world, self._coordinates)
        slope = grown.get(1, 0)
        if not any(grown.values()):
            return first
        depth = len(next(iter(by_rank.values()))[0][0])
        if all(more == slope * turn for turn, more in grown.items()) and slope > 0:
            turning = f"{f'{slope} * ' if slope > 1 else ''}i{depth - 1}"
        elif len(grown) <= MOST_LISTED:
            turning = f"{[grown[turn] for turn in range(len(grown))]}[i{depth - 1}]"
        else:
            return None
        if first == "0":
            return turning
        return f"{turning} + {f'({first})' if ' if ' in first else first}"


def _quote_index(name: str) -> str:
    """Return a name with an index as YAML."""
    return f'"{name}"' if "[" in name else name


def count_handles() -> Iterator[str]:
    """Yield the names that work has by itself."""
    return (f"work_{number}" for number in count_from())


def _count_names(word: str) -> Iterator[str]:
    yield word
    yield from (f"{word}_{number}" for number in count_from(2))
