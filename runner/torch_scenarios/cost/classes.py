"""Traffic + topology -> the traffic of a few ranks in place of all: equal ranks are one class.

Two ranks are equal that make the same calls in the same order, of the same sizes, in groups that
are as large and as spread over nodes, with members and peers that are equal in turn: nothing tells
their times apart. Classes are found by colours that are refined until they stay. One rank of each
class is kept, with all ranks that it exchanges messages with, so that routes are what they were.

This is colour refinement (the 1-dimensional Weisfeiler-Leman algorithm): two vertices keep one
colour as long as their neighbours have the same colours. Where a program has data and tensor
parallel groups within the stages of a pipeline, the ranks of one stage are one class.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from torch_scenarios.cost.topology import NIC, PORT, SPINE, Network, Topology
from torch_scenarios.model.traffic import (
    Enter,
    EnterGroups,
    Finish,
    Meet,
    Pause,
    Traffic,
    TrafficRow,
)

#: ranks from which on it pays to look for classes
MANY = 16
#: rounds of refinement, and of joining what exchanges messages, before all ranks are kept
ROUNDS = 64
#: what a rank's hash is multiplied by for each of its calls (Knuth's factor for 64 bits)
OF_CALLS = np.uint64(6364136223846793005)

_Colours = NDArray[np.uint64]


class ReducedTraffic(Struct, frozen=True):
    """The traffic of the ranks that are kept; `twins` `[W]` names the kept one of each rank."""

    traffic: Traffic
    twins: NDArray[np.int64]


def reduce_ranks(traffic: Traffic, topology: Topology) -> ReducedTraffic | None:
    """Return the traffic of one rank of each class; None where that is no less.

    It is not tried where ranks share links (a spine, a NIC of several ranks, a lost NIC): messages
    of a rank that is left out would then have held what those of its twin wait for.
    """
    world = traffic.world_size
    if world < MANY or not any(isinstance(each, EnterGroups) for each in traffic.entries):
        return None
    links = topology.links
    ends = list(_ends(traffic))
    is_shared = topology.lost or SPINE in links or (NIC in links and links[NIC].count)
    if ends and (PORT not in links or is_shared):
        return None
    colours = _refine(traffic, topology, ends)
    if colours is None:
        return None
    kept = _keep(colours, ends)
    if kept is None or len(kept) * 2 > world:
        return None
    _, first = np.unique(colours[kept], return_index=True)
    chosen = kept[first]
    twins = chosen[np.searchsorted(colours[chosen], colours)]
    twins[kept] = kept
    return ReducedTraffic(_Kept(traffic, topology, colours, kept).traffic(), twins)


def _mix(one: Any, other: Any) -> Any:
    """Return a hash of two hashes, element by element (the finaliser of splitmix64)."""
    with np.errstate(over="ignore"):
        found = np.asarray(one, np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.asarray(
            other, np.uint64
        )
        found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return found ^ (found >> np.uint64(31))


def _code(*parts: Any) -> np.uint64:
    """Return a hash of what ranks do: equal for equal parts."""
    return np.uint64(hash(parts) & (2**64 - 1))


def _ends(traffic: Traffic) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield who sends to whom, each pair of columns once."""
    posts = {each.number: each for each in traffic.entries if isinstance(each, TrafficRow)}
    known = set()
    for each in traffic.entries:
        if isinstance(each, Meet):
            out = np.atleast_1d(posts[each.send].ranks)[_rows(each.sent)]
            into = np.atleast_1d(posts[each.receive].ranks)[_rows(each.received)]
            key = (out.tobytes(), into.tobytes())
            if key not in known:
                known.add(key)
                yield out, into


def _rows(rows: Any) -> Any:
    return slice(None) if rows is None else np.atleast_1d(rows)


def _spread(topology: Topology, members: Sequence[int], world: int) -> Any:
    """Return how a group is spread over nodes: which members share one, and have lost a NIC.

    Members on nodes 5 5 9 9 are spread as those on nodes 0 0 1 1.
    """
    ranks = np.asarray(members, np.int64)
    nodes = topology.nodes_of(ranks, world)
    _, inverse = np.unique(nodes, return_inverse=True)
    part = topology.part_of_nodes(ranks, world) if topology.lost else 1.0
    return len(members), inverse.astype(np.int32).tobytes(), part


class _Groups(Struct):
    """The groups of one name: which one each rank is in `[W]` (-1: none), and how it is spread."""

    number: NDArray[np.int64]
    spread: _Colours

    def colour(self, colours: _Colours) -> _Colours:
        """Return, for each group, a hash of how it is spread and of which colours its members are.

        The last one is for ranks in no group.
        """
        inside = self.number >= 0
        sums = np.zeros(len(self.spread) + 1, np.uint64)
        with np.errstate(over="ignore"):
            np.add.at(sums, self.number[inside], _mix(colours[inside], np.uint64(7)))
        sums[:-1] = _mix(sums[:-1], self.spread)
        return sums


def _groups_of(traffic: Traffic, topology: Topology) -> dict[int, _Groups]:
    """Return the groups of each entry, by the identity of their members."""
    found: dict[int, _Groups] = {}
    world = traffic.world_size
    for each in traffic.entries:
        if isinstance(each, Enter | EnterGroups) and id(each.members) not in found:
            groups = each.members if isinstance(each, EnterGroups) else (each.members,)
            number = np.full(world, -1, np.int64)
            for at, members in enumerate(groups):
                number[np.asarray(members)] = at
            spread = [_code(_spread(topology, members, world)) for members in groups]
            found[id(each.members)] = _Groups(number, np.array(spread, np.uint64))
    return found


def _refine(
    traffic: Traffic,
    topology: Topology,
    ends: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]],
) -> _Colours | None:
    """Return a colour for each rank `[W]`, one for all that are equal; None where rounds end.

    A round mixes into each colour those of the members of its groups and of its peers. Colours only
    part, so that it is done once a round makes no new ones. Sums over the members of a group do not
    depend on their order.
    """
    groups = _groups_of(traffic, topology)
    colours = _calls(traffic)
    routes = []
    if ends:
        network = Network(topology, traffic.world_size)
        for src, dst in ends:
            found = network.routes(src, dst)
            code = np.ascontiguousarray(found.latency).view(np.uint64)
            routes.append(_mix(code, np.ascontiguousarray(found.slowest).view(np.uint64)))
    count = 0
    for _ in range(ROUNDS):
        new = len(np.unique(colours))
        if new == count:
            return colours
        count = new
        found_colours = colours.copy()
        for at, each in enumerate(groups.values()):
            mine = each.colour(colours)[each.number]
            found_colours = _mix(found_colours, _mix(mine, np.uint64(at)))
        for (src, dst), route in zip(ends, routes, strict=True):
            found_colours[src] = _mix(found_colours[src], _mix(colours[dst], route))
            found_colours[dst] = _mix(found_colours[dst], _mix(colours[src], ~route))
        colours = found_colours
    return None


def _calls(traffic: Traffic) -> _Colours:
    """Return a hash of what each rank does, in order, but for its peers and members."""
    colours = np.zeros(traffic.world_size, np.uint64)
    for at, each in enumerate(traffic.entries):
        if isinstance(each, Meet):
            continue
        ranks = np.atleast_1d(each.ranks)
        if isinstance(each, Enter):  # each group has an entry of its own
            sent = np.broadcast_to(np.asarray(each.sent, np.float64), ranks.shape)
            code = _code("enter", each.step, each.name, each.size, each.group)
            colours[ranks] = _mix(colours[ranks], _mix(sent.copy().view(np.uint64), code))
            continue
        code = _code(at)
        if isinstance(each, Pause):
            code = _code("pause", each.step, each.seconds, each.host_s, each.synchronizes)
        elif isinstance(each, Finish):
            code = _code("finish", each.post)
        # one product and one sum, as there is an entry for each call of each stage
        colours[ranks] = colours[ranks] * OF_CALLS + _mix(code, 0)
    found: _Colours = _mix(colours, 0)
    return found


def _keep(
    colours: _Colours, ends: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]]
) -> NDArray[np.int64] | None:
    """Return one rank of each colour, with all that it exchanges messages with.

    Ranks that exchange messages, also by way of others, are joined by the least of their numbers
    (label propagation, with the labels of labels taken at each round). Of such parts those are kept
    that have a colour which no part before has.
    """
    labels = np.arange(len(colours))
    for _ in range(ROUNDS if ends else 0):
        before = labels.copy()
        for src, dst in ends:
            least = np.minimum(labels[src], labels[dst])
            np.minimum.at(labels, src, least)
            np.minimum.at(labels, dst, least)
        labels = np.minimum(labels, labels[labels])
        if (labels == before).all():
            break
    else:
        if ends:
            return None
    order = np.argsort(labels, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)
    covered: set[int] = set()
    kept = []
    for part in parts:
        mine = set(colours[part].tolist())
        if not mine <= covered:
            covered |= mine
            kept.append(part)
    return np.sort(np.concatenate(kept))


class _Kept:
    """The traffic of the ranks that are kept.

    A collective needs no longer all members of its group, but those that are kept (`awaited`); its
    size and its members stay, so that its time is that of the whole group.
    """

    def __init__(
        self, traffic: Traffic, topology: Topology, colours: _Colours, kept: NDArray[np.int64]
    ) -> None:
        self.whole = traffic
        self.kept = kept
        self.inside = np.zeros(traffic.world_size, np.bool_)
        self.inside[kept] = True
        self.classes = {
            key: (groups, groups.colour(colours))
            for key, groups in _groups_of(traffic, topology).items()
        }
        #: (post) -> the new row of each old one, -1 for what is not kept
        self.rows: dict[int, NDArray[np.int64]] = {}

    def traffic(self) -> Traffic:
        found = Traffic(self.whole.world_size)
        for each in self.whole.entries:
            found.entries += self.entries(each)
        return found

    def entries(self, each: Any) -> list[Any]:
        if isinstance(each, Enter | EnterGroups):
            return list(self._enter_each(each))
        if isinstance(each, Meet):
            sent, got = self.pair(each)
            return [replace(each, sent=sent, received=got)] if len(sent) else []
        ranks = np.atleast_1d(each.ranks)
        mine = self.inside[ranks]
        if isinstance(each, TrafficRow):
            new = np.full(len(ranks), -1, np.int64)
            new[mine] = np.arange(int(mine.sum()))
            self.rows[each.number] = new
            if not mine.any():
                return []
            return [replace(each, ranks=ranks[mine], peers=np.atleast_1d(each.peers)[mine])]
        if not mine.any():
            return []
        if isinstance(each, Finish) and each.post in self.rows:
            new = self.rows[each.post]
            rows = new if each.rows is None else new[np.atleast_1d(each.rows)]
            return [replace(each, ranks=ranks[mine], rows=rows[mine])]
        return [replace(each, ranks=ranks[mine])]

    def pair(self, each: Meet) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the rows of both posts, as they are numbered among what is kept."""
        sent = self.rows[each.send][_rows(each.sent)]
        got = self.rows[each.receive][_rows(each.received)]
        both = (sent >= 0) & (got >= 0)
        return sent[both], got[both]

    def _enter_each(self, each: Enter | EnterGroups) -> Iterator[Enter]:
        """Yield who of those that are kept enters, for each class of groups."""
        groups, classes = self.classes[id(each.members)]
        ranks = np.atleast_1d(each.ranks)
        mine = ranks[self.inside[ranks]]
        of_kept = classes[groups.number[self.kept]]
        of_mine = classes[groups.number[mine]]
        for kind in np.unique(of_mine).tolist():
            here = mine[of_mine == kind]
            number = int(groups.number[here[0]])
            members = each.members[number] if isinstance(each, EnterGroups) else each.members
            yield Enter(
                number=each.number,
                ranks=here,
                sent=np.asarray([0.0]),
                name=each.name,
                key=f"{each.group} {kind}",
                size=each.size,
                members=members,
                step=each.step,
                parts=() if isinstance(each, EnterGroups) else each.parts,
                group=each.group,
                awaited=int(((of_kept == kind) & (groups.number[self.kept] >= 0)).sum()),
            )
