"""The programs of all ranks -> one list of steps: loops found, ranks merged, peers as expressions.

A rank's program is a list of steps that are equal where they are written alike. It is folded first:
a part that is repeated becomes a loop, the one that saves most first (the repeats of Noeth et al.,
ScalaTrace, 2009, found over all periods up to :data:`WINDOW`). Ranks with the same program are one
class. The trees of the classes are merged into a common supersequence: projected on a rank it is
that rank's program again, whatever was merged, because a list of steps is projected per rank.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct, field

#: steps of the longest part that is looked for as a loop's body
WINDOW = 2000
#: nodes of two lists that are aligned exactly; longer ones are aligned greedily
EXACT = 1500
#: how much of two loops' bodies must be alike, so that they become one loop
ALIKE = 0.5


class Leaf(Struct, kw_only=True):
    """A step: what it has in common on its ranks, and by rank where it stands and what differs.

    `key` is compared, and `ranks` has for each rank its place in the script and what is its own, as
    how far away the other end of a message is.
    """

    key: Hashable
    ranks: dict[int, tuple[Hashable, Any]] = field(default_factory=dict)
    #: what makes it like others besides: where a message goes to, seen from its rank
    like: Hashable = None

    @property
    def places(self) -> frozenset[Hashable]:
        """Where it stands, on any rank."""
        return frozenset(place for place, _ in self.ranks.values())


class Loop(Struct, kw_only=True):
    """A part that ranks repeat, each as often as it says: `ranks` is rank -> turns."""

    body: list[Node]
    ranks: dict[int, int] = field(default_factory=dict)


Node: TypeAlias = Leaf | Loop

#: (what is common, (where it stands, what is the rank's own))
Item: TypeAlias = tuple[Hashable, tuple[Hashable, Hashable]]
#: an item, or how often a body is repeated
Folded: TypeAlias = tuple[Any, ...]


def fold(items: Sequence[Hashable]) -> list[Folded]:
    """Return a list with its repeats: `("item", item)` or `("loop", count, body)`.

    >>> fold("xababaty")[1:3]
    [('loop', 2, (('item', 'a'), ('item', 'b'))), ('item', 'a')]

    Written out again, it is the list that it was: the third `a` has no `b` after it.
    """
    numbers: dict[Hashable, int] = {}
    known: list[Hashable] = []
    ids = np.empty(len(items), np.int64)
    for at, item in enumerate(items):
        number = numbers.get(item)
        if number is None:
            number = numbers[item] = len(known)
            known.append(item)
        ids[at] = number
    found: list[Folded] = []
    _fold(ids, known, found)
    return found


def _fold(ids: Any, known: list[Hashable], found: list[Folded]) -> None:
    """Fold a stretch of items: what saves most becomes a loop, then what is around it."""
    work: list[tuple[Any, bool]] = [(ids, False)]
    while work:
        stretch, is_plain = work.pop()
        best = None if is_plain else _find_best_repeat(stretch)
        if best is None:
            found += [("item", known[at]) for at in stretch.tolist()]
            continue
        start, period, count = best
        body: list[Folded] = []
        _fold(stretch[start : start + period], known, body)
        work.append((stretch[start + period * count :], False))
        work.append((np.empty(0, np.int64), True))
        head: list[Folded] = []
        if start:
            _fold(stretch[:start], known, head)
        found += head
        found.append(("loop", count, tuple(body)))


def _find_best_repeat(ids: Any) -> tuple[int, int, int] | None:
    """Return start, period and count of the repeat that saves most; None without one.

    A part of `period` items that is repeated is a run of `items[i] == items[i + period]`, whose
    length is found by one comparison of two arrays. A repeat of n turns saves n - 1 bodies.

    >>> _find_best_repeat(np.array([0, 1, 2, 1, 2, 1, 2, 3]))
    (1, 2, 3)
    """
    size = len(ids)
    best: tuple[int, int, int] | None = None
    gain = 0
    period = 1
    while period <= min(size // 2, WINDOW) and gain < size - period:
        same = ids[:-period] == ids[period:]
        start, length = _longest(same)
        count = length // period + 1
        if count > 1 and (count - 1) * period > gain:
            gain = (count - 1) * period
            best = start, period, count
        period += 1
    return best


def _longest(same: Any) -> tuple[int, int]:
    """Return where the longest run of what is true begins, and how long it is."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], same.view(np.int8), [0]))))
    if not len(edges):
        return 0, 0
    starts, ends = edges[::2], edges[1::2]
    at = int(np.argmax(ends - starts))
    return int(starts[at]), int(ends[at] - starts[at])


# -------------------------------------------------------------------------------------------------
# Classes of ranks -> one tree.


def merge(
    programs: Mapping[int, Sequence[Item]],
    like: Callable[[int, Any], Hashable],
    *,
    is_folded: bool = True,
) -> list[Node]:
    """Return one list of nodes for the programs of all ranks; without loops if not `is_folded`.

    `like` tells of what is a rank's own in a step what makes it like the steps of other ranks.

    Rank 0 logs what the others do not:

    >>> log, send = ("barrier", ("t.py:3", None)), ("all_reduce", ("t.py:5", None))
    >>> nodes = merge({0: [log, send], 1: [send], 2: [send]}, lambda rank, own: own)
    >>> [(node.key, sorted(node.ranks)) for node in nodes]
    [('barrier', [0]), ('all_reduce', [0, 1, 2])]

    :func:`project` gives each rank its program again.
    """
    classes: dict[tuple[Item, ...], list[int]] = {}
    same: dict[int, list[int]] = {}  # one and the same list, without a look at what is in it
    for rank, items in programs.items():
        ranks = same.get(id(items))
        if ranks is None:
            ranks = same[id(items)] = classes.setdefault(tuple(items), [])
        ranks.append(rank)
    trees = [
        _tree(fold(items) if is_folded else [("item", each) for each in items], ranks, like)
        for items, ranks in sorted(classes.items(), key=lambda each: (-len(each[0]), each[1]))
    ]
    if not trees:
        return []
    found = trees[0]
    for tree in trees[1:]:
        found = _merge(found, tree)
    return found


def _tree(
    parts: Iterable[Folded], ranks: Sequence[int], like: Callable[[int, Any], Hashable]
) -> list[Node]:
    """Return the nodes of a class of ranks, whose programs are equal: one is folded for all."""
    nodes: list[Node] = []
    for part in parts:
        if part[0] == "item":
            key, own = part[1]
            found = Leaf(key=key, ranks=dict.fromkeys(ranks, own), like=like(ranks[0], own[1]))
            nodes.append(found)
        else:
            counts = {rank: int(part[1]) for rank in ranks}
            nodes.append(Loop(body=_tree(part[2], ranks, like), ranks=counts))
    return nodes


#: what two steps have in common that become one, besides what they do: the narrowest first
_LIKENESS = (("place", "like"), ("place",), ("like",), ())


def _sign(node: Node, alike: tuple[str, ...] = ()) -> Hashable:
    """Return what two nodes have in common that become one.

    `alike` names what is compared besides what they do: at first the place in the script, and where
    a message goes; at last nothing more.
    """
    if isinstance(node, Loop):
        return ("loop", tuple(_sign(each, alike) for each in node.body))
    place = min(node.places, key=str) if "place" in alike else None
    return (node.key, place, node.like if "like" in alike else None)


def _merge(one: list[Node], two: list[Node], level: int = 0) -> list[Node]:
    """Return a common supersequence of two lists whose ranks are not the same.

    What stands at the same place and is the same on its rank comes together first; then, in
    between, what is less alike.
    """
    mine = [_sign(each, _LIKENESS[level]) for each in one]
    theirs = [_sign(each, _LIKENESS[level]) for each in two]
    found: list[Node] = []
    at_one = at_two = 0
    for left, right in [*_align(mine, theirs), (len(one), len(two))]:
        gap = one[at_one:left], two[at_two:right]
        if not all(gap):
            found += [*gap[0], *gap[1]]
        else:
            found += _merge_between(*gap, level)
        if left < len(one):
            found.append(_join(one[left], two[right]))
        at_one, at_two = left + 1, right + 1
    return found


def _join(one: Node, two: Node) -> Node:
    """Return the node that two are; the bodies of loops are merged in turn."""
    if isinstance(one, Leaf):
        assert isinstance(two, Leaf)
        return Leaf(key=one.key, ranks={**one.ranks, **two.ranks}, like=one.like)
    assert isinstance(two, Loop)
    return Loop(body=_merge(one.body, two.body), ranks={**one.ranks, **two.ranks})


def _merge_between(one: list[Node], two: list[Node], level: int) -> list[Node]:
    """Merge what lies between two nodes that are alike, of what is alike by less than `level`."""
    last = len(_LIKENESS) - 1
    if level + 1 < last:
        return _merge(one, two, level + 1)
    if level < last:
        return _merge_loops(one, two, narrow=True)
    # what one repeats and the other does once is a loop of one turn there
    turned = _turn_into_loop(one, two), _turn_into_loop(two, one)
    if any(turned):
        return _merge(turned[0] or one, turned[1] or two, last)
    return _merge_loops(one, two, narrow=False)


def _merge_loops(one: list[Node], two: list[Node], *, narrow: bool) -> list[Node]:
    """Merge loops that are alike for the most part; with `narrow` in what differs by rank, too.

    Rank 0 writes a checkpoint in every tenth turn: its loop's body has a barrier more.
    """
    found: list[Node] = []
    before: list[Node] = []
    rest = two
    for node in [*one, None]:
        at = None
        if node is not None:
            alike = (_similar(node, each, narrow=narrow) for each in rest)
            at = next((at for at, is_alike in enumerate(alike) if is_alike), None)
        if node is not None and at is None:
            before.append(node)
            continue
        gap = before, rest[:at]
        is_over = not narrow or not all(gap)
        found += [*gap[0], *gap[1]] if is_over else _merge(*gap, len(_LIKENESS) - 1)
        if node is not None and at is not None:
            found.append(_join(node, rest[at]))
            before, rest = [], rest[at + 1 :]
    return found


def _turn_into_loop(nodes: list[Node], others: list[Node]) -> list[Node] | None:
    """Return nodes with what another list repeats as a loop of one turn; None without any."""
    bodies = [each.body for each in others if isinstance(each, Loop)]
    for body in bodies:
        keys = [_sign(each) for each in body]
        if len(keys) < 2:
            continue
        for at in range(len(nodes) - len(keys) + 1):
            part = nodes[at : at + len(keys)]
            if [_sign(each) for each in part] != keys:
                continue
            ranks = {rank for each in part for rank in each.ranks}
            if all(each.ranks.keys() == ranks for each in part):
                loop = Loop(body=part, ranks=dict.fromkeys(sorted(ranks), 1))
                return [*nodes[:at], loop, *nodes[at + len(keys) :]]
    return None


def _similar(one: Node, two: Node, *, narrow: bool) -> bool:
    """Whether two nodes are loops of which more than half of the shorter body's steps are alike."""
    if not isinstance(one, Loop) or not isinstance(two, Loop):
        return False
    mine, theirs = (Counter(_keys(each.body, narrow=narrow)) for each in (one, two))
    both = sum((mine & theirs).values())
    return both > ALIKE * min(sum(mine.values()), sum(theirs.values()))


def _keys(nodes: Sequence[Node], *, narrow: bool) -> Iterator[Hashable]:
    for node in nodes:
        if isinstance(node, Leaf):
            yield (node.key, node.like) if narrow else node.key
        else:
            yield from _keys(node.body, narrow=narrow)


def _align(one: list[Hashable], two: list[Hashable]) -> list[tuple[int, int]]:
    """Return the positions of a longest common subsequence of two lists.

    >>> _align(list("abxcd"), list("abcyd"))
    [(0, 0), (1, 1), (3, 2), (4, 4)]
    """
    head = 0
    while head < min(len(one), len(two)) and one[head] == two[head]:
        head += 1
    tail = 0
    while tail < min(len(one), len(two)) - head and one[-1 - tail] == two[-1 - tail]:
        tail += 1
    middle = _match_ends(one[head : len(one) - tail], two[head : len(two) - tail])
    return [
        *((at, at) for at in range(head)),
        *((head + left, head + right) for left, right in middle),
        *((len(one) - at, len(two) - at) for at in range(tail, 0, -1)),
    ]


def _match_ends(one: list[Hashable], two: list[Hashable]) -> list[tuple[int, int]]:
    """Return the same for two lists whose ends differ.

    `table[i, j]` is how many items `one[i:]` and `two[j:]` have in common, filled in from the last
    row; a row is one expression of NumPy. Lists whose table were too large are matched greedily.
    """
    if not one or not two:
        return []
    if len(one) * len(two) > EXACT * EXACT:
        return _greedy(one, two)
    numbers: dict[Hashable, int] = {}
    left = np.array([numbers.setdefault(each, len(numbers)) for each in one])
    right = np.array([numbers.setdefault(each, len(numbers)) for each in two])
    table = np.zeros((len(one) + 1, len(two) + 1), np.int32)
    for at in range(len(one) - 1, -1, -1):
        row = np.where(right == left[at], table[at + 1, 1:] + 1, table[at + 1, :-1])
        # the longest of what is taken here or further right
        table[at, :-1] = np.maximum.accumulate(row[::-1])[::-1]
    found = []
    i = j = 0
    while i < len(one) and j < len(two):
        if left[i] == right[j] and table[i, j] == table[i + 1, j + 1] + 1:
            found.append((i, j))
            i, j = i + 1, j + 1
        elif table[i + 1, j] >= table[i, j + 1]:
            i += 1
        else:
            j += 1
    return found


def _greedy(one: list[Hashable], two: list[Hashable]) -> list[tuple[int, int]]:
    """Return a common subsequence of two long lists: each item with the next like it, if near."""
    places: dict[Hashable, list[int]] = {}
    for at, key in enumerate(two):
        places.setdefault(key, []).append(at)
    found: list[tuple[int, int]] = []
    after = -1
    for at, key in enumerate(one):
        place = next((each for each in places.get(key, ()) if each > after), None)
        if place is not None and place - after < EXACT:
            found.append((at, place))
            after = place
    return found


def project(nodes: Sequence[Node], rank: int) -> Iterator[Item]:
    """Yield the program of one rank again.

    It is what tests hold the whole module to: whatever is merged, each rank takes the steps it
    took.
    """
    for node in nodes:
        if rank not in node.ranks:
            continue
        if isinstance(node, Leaf):
            yield node.key, node.ranks[rank]
        else:
            for _ in range(node.ranks[rank]):
                yield from project(node.body, rank)


# -------------------------------------------------------------------------------------------------
# What differs by rank, as an expression of `rank`.

#: the largest divisor that is looked for in `rank % 8` and `rank // 8`
MOST_PERIOD = 64


class Coordinate(Struct, frozen=True, kw_only=True):
    """Where a rank is along one dimension of a mesh: `text` is 0 to `extent` - 1 as an expression.

    Ranks that follow each other along it are `stride` apart. `group` has the ranks along it.
    """

    text: str
    group: str
    stride: int
    extent: int

    def of(self, rank: int) -> int:
        """Return where a rank is."""
        return rank // self.stride % self.extent


def selector(
    ranks: Iterable[int],
    everyone: Sequence[int],
    world_size: int,
    coordinates: Sequence[Coordinate] = (),
) -> str | None:
    """Return what selects some of `everyone`, as YAML; None where that is all of them.

    `coordinates` are those that every rank of `everyone` has.

    >>> selector([1, 3, 5, 7], range(8), 8), selector([0, 1, 2], range(8), 8)
    ('"rank % 2 == 1"', '"rank < 3"')
    >>> selector([2, 5], range(8), 8), selector([0], range(8), 8)
    ('[2, 5]', '0')
    """
    chosen, among = sorted(ranks), sorted(everyone)
    if chosen == among:
        return None
    if len(chosen) == 1:
        return str(chosen[0])
    taken = set(chosen)
    found = _relation("rank", chosen, [each for each in among if each not in taken])
    along: list[tuple[str, Callable[[int], int]]] = [(each.text, each.of) for each in coordinates]
    if len(chosen) > 2 or world_size < 2 * len(chosen) + 1:
        steps = (step for step in range(2, world_size // 2 + 1) if world_size % step == 0)
        along += [
            (f"rank % {step}", partial(_modulo, step)) for step in steps if step <= MOST_PERIOD
        ]
    for text, of in along:
        found = found or _relation_of(text, of, chosen, among)
    return f'"{found}"' if found else ranks_text(chosen, longest=3)


def ranks_text(ranks: Sequence[int], *, longest: int = 8) -> str:
    """Return a list of ranks as YAML: as it is, or as a range where it is longer than `longest`.

    >>> ranks_text([0, 3]), ranks_text(range(0, 64, 2))
    ('[0, 3]', '"range(0, 63, 2)"')
    """
    if len(ranks) > longest:
        step, end = ranks[1] - ranks[0], ranks[-1] + 1
        if step > 0 and list(ranks) == list(range(ranks[0], end, step)):
            return f'"range({ranks[0]}, {end}{f", {step}" if step > 1 else ""})"'
    return f"[{', '.join(map(str, ranks))}]"


def _modulo(step: int, rank: int) -> int:
    return rank % step


def _relation_of(
    text: str, of: Callable[[int], int], chosen: Sequence[int], among: Sequence[int]
) -> str | None:
    """Return what holds of a coordinate on the chosen ranks only, or None."""
    values = sorted({of(rank) for rank in chosen})
    taken = set(chosen)
    others = sorted({of(rank) for rank in among if rank not in taken})
    if set(values) & set(others):
        return None
    if len(values) == 1:
        return f"{text} == {values[0]}"
    return _relation(text, values, others) or (
        f"{text} in {values}" if len(values) * 4 <= len(chosen) else None
    )


def _relation(text: str, values: Sequence[int], others: Sequence[int]) -> str | None:
    """Return what holds of all values and of no other: `rank < 3`; None where that is long."""
    if values[-1] < others[0]:
        return f"{text} < {values[-1] + 1}"
    if values[0] > others[-1]:
        return f"{text} > {values[0] - 1}"
    if len(values) > 2 and len(others) == 1:
        return f"{text} != {others[0]}"
    below, above = [each for each in others if each < values[0]], values[-1]
    if len(values) > 3 and all(each > above for each in others[len(below) :]):
        return f"{values[0] - 1} < {text} < {above + 1}"
    return None


def number(
    values: Mapping[int, int],
    world_size: int,
    coordinates: Sequence[Coordinate] = (),
) -> str:
    """Return an integer by rank as YAML: a number, an expression of the rank, or a mapping.

    A ring, pairs, and two ranks of which no rule says more than they do:

    >>> number({0: 1, 1: 2, 2: 3, 3: 0}, world_size=4)
    '"(rank + 1) % world_size"'
    >>> number({0: 1, 1: 0, 2: 3, 3: 2}, world_size=4)
    '"rank + 1 - 2 * (rank % 2)"'
    >>> number({0: 5, 1: 7}, world_size=8)
    '{0: 5, 1: 7}'
    """
    if len(set(values.values())) == 1:
        return str(next(iter(values.values())))
    found = expression(values, world_size, coordinates)
    if found is not None:
        return f'"{found}"'
    rows_ = _rows(values, world_size, coordinates)
    rows_ = rows_ or [f"{rank}: {value}" for rank, value in sorted(values.items())]
    return f"{{{', '.join(rows_)}}}"


def _rows(
    values: Mapping[int, int], world_size: int, coordinates: Sequence[Coordinate]
) -> list[str]:
    """Return the rows of a mapping by rank where most ranks are alike; none where they are not."""
    deltas: dict[int, dict[int, int]] = {}
    for rank, value in sorted(values.items()):
        deltas.setdefault(value - rank, {})[rank] = value
    by_size = sorted(deltas.values(), key=lambda part: (-len(part), min(part)))
    if len(values) < 4 or len(by_size) > 4 or len(by_size[0]) < 2:
        return []
    found = []
    for part in by_size[1:]:
        key = selector(part, sorted(values), world_size, coordinates)
        found.append(f"{write_key(str(key))}: {number(part, world_size)}")
    return [*found, f"else: {number(by_size[0], world_size)}"]


def write_key(selected: str) -> str:
    """Return what selects ranks as the key of a mapping."""
    return f'"{selected}"' if selected.startswith("[") else selected


def count(
    values: Mapping[int, int], world_size: int, coordinates: Sequence[Coordinate] = ()
) -> str:
    """Return an integer by rank as one expression: how often a loop turns, on each rank.

    >>> count({0: 3, 1: 2, 2: 1, 3: 0}, world_size=4), count({0: 5, 1: 5, 2: 5, 3: 1}, world_size=4)
    ('3 - rank', '1 if rank == 3 else 5')
    """
    if len(set(values.values())) == 1:
        return str(next(iter(values.values())))
    found = expression(values, world_size)
    if found is not None:
        return found
    if len(sums := {value + rank for rank, value in values.items()}) == 1:
        return f"{next(iter(sums))} - rank"
    found = _word_exception(values, world_size, coordinates)
    if found is not None:
        return found
    for each in coordinates:
        along = {each.of(rank): value for rank, value in values.items()}
        if all(along[each.of(rank)] == value for rank, value in values.items()):
            found = expression(along, each.extent)
            if found is not None and "world_size" not in found:
                return found.replace("rank", each.text)
            return f"{[along.get(at, 0) for at in range(each.extent)]}[{each.text}]"
    return f"{[values.get(rank, 0) for rank in range(world_size)]}[rank]"


def _word_exception(
    values: Mapping[int, int], world_size: int, coordinates: Sequence[Coordinate]
) -> str | None:
    """Return an expression of which the first or last rank is an exception, or all of one value."""
    for end in (min(values), max(values)):
        rest = {rank: value for rank, value in values.items() if rank != end}
        found = expression(rest, world_size) if len(rest) > 2 else None
        if found is not None:
            return f"{values[end]} if rank == {end} else {found}"
    by_value: dict[int, list[int]] = {}
    for rank, value in sorted(values.items()):
        by_value.setdefault(value, []).append(rank)
    if len(by_value) != 2:
        return None
    few, most = sorted(by_value, key=lambda value: (len(by_value[value]), value))
    chosen = str(selector(by_value[few], sorted(values), world_size, coordinates))
    if chosen.startswith(("[", '"range')):
        return None
    chosen = f"rank == {chosen}" if chosen.isdigit() else chosen.strip('"')
    return f"{few} if {chosen} else {most}"


def expression(
    values: Mapping[int, int], world_size: int, coordinates: Sequence[Coordinate] = ()
) -> str | None:
    """Return an expression of `rank` for an integer by rank, or None.

    Tried from the plain to the rare: `rank + 1`, a ring, a ring along one dimension of a mesh, a
    mirror (`7 - rank`), pairs and blocks. Of two ranks almost anything fits, so that only the first
    are tried.
    """
    deltas = {value - rank for rank, value in values.items()}
    if len(deltas) == 1:
        return _plus("rank", next(iter(deltas)))
    found = _find_wrap("rank", values, world_size)
    if found is not None:
        return found
    for each in coordinates:
        along = {rank: each.of(value) - each.of(rank) for rank, value in values.items()}
        if all(
            value == rank + along[rank] * each.stride and value < world_size
            for rank, value in values.items()
        ):
            shifts = {shift % each.extent for shift in along.values()}
            if len(shifts) == 1:
                shift = _nearest(next(iter(shifts)), each.extent)
                place = f"({_plus(each.text, shift)}) % {each.extent}"
                return f"group_ranks({each.group})[{place}]"
    if len(values) < 3:
        return None
    sums = {value + rank for rank, value in values.items()}
    if len(sums) == 1:
        return f"{next(iter(sums))} - rank"
    return _periodic(values, world_size)


def _find_wrap(text: str, values: Mapping[int, int], size: int) -> str | None:
    """Return a shift around a ring of `size`, as an expression; None where it is no such shift."""
    wrapped = {(value - rank) % size for rank, value in values.items()}
    if len(wrapped) != 1 or not all(0 <= value < size for value in values.values()):
        return None
    return f"({_plus(text, _nearest(next(iter(wrapped)), size))}) % world_size"


def _nearest(shift: int, size: int) -> int:
    """Return a shift in a ring by the shorter way."""
    return shift if shift <= size // 2 else shift - size


def _periodic(values: Mapping[int, int], world_size: int) -> str | None:
    """Return an expression for partners at a power of two, or for blocks of ranks; or None."""
    step = 1
    while step < world_size:
        if all(value == rank ^ step for rank, value in values.items()):
            among = f"rank // {step}" if step > 1 else "rank"
            return f"rank + {step} - {2 * step} * ({among} % 2)"
        step *= 2
    for step in range(2, min(world_size, MOST_PERIOD + 1)):
        if all(value == rank // step for rank, value in values.items()):
            return f"rank // {step}"
        if all(value == rank // step * step for rank, value in values.items()):
            return f"rank // {step} * {step}"
        if all(value == rank % step for rank, value in values.items()):
            return f"rank % {step}"
    return None


def _plus(text: str, delta: int) -> str:
    if delta == 0:
        return text
    return f"{text} {'+' if delta > 0 else '-'} {abs(delta)}"
