"""A collective in one call -> its time on a topology, in microseconds, and where that comes from.

By steps (an algorithm's messages, each step taken by all ranks at once), by NCCL's tuner, by a
table of measurements, or by torch's own model of DTensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from math import isnan
from typing import TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from torch_scenarios.cost.intervals import PART_OF_NODES, TABLE, Interval, interval
from torch_scenarios.cost.measurements import Tables, Taken, time_in
from torch_scenarios.cost.nccl import (
    ALL_GATHER,
    ALL_REDUCE,
    COLLECTIVES,
    NVLS_TREE,
    REDUCE_SCATTER,
    RING,
    TREE,
    Tuner,
    ring_steps,
)
from torch_scenarios.cost.topology import BY_ALL_NICS, NIC, NcclNetwork, Network, Topology
from torch_scenarios.errors import Problem, ScenarioError
from torch_scenarios.model.traffic import Enter, EnterGroups, Traffic
from torch_scenarios.operations import kind_of

Ranks: TypeAlias = NDArray[np.int64]


class Stroke(Struct, frozen=True):
    """Messages that ranks send at once: their targets and bytes; `times` in a row.

    A ring's all_gather of 4 ranks is one stroke, three times:

    >>> (step,) = ALGORITHMS["all_gather"]["ring"](np.arange(4), 16.0)
    >>> step.src.tolist(), step.dst.tolist(), step.size, step.times
    ([0, 1, 2, 3], [1, 2, 3, 0], 4.0, 3)
    """

    src: Ranks
    dst: Ranks
    size: float
    times: int = 1


# -------------------------------------------------------------------------------------------------
# The algorithms, as steps; `ranks` are the members in the order of the group.


#: the steps of a collective among ranks, of so many bytes as nccl-tests counts them
Algorithm: TypeAlias = Callable[[Ranks, float], Iterator[Stroke]]


def _ring(rounds: int) -> Algorithm:
    """Return a ring in which each of n parts goes round `rounds` times, less the last hop."""

    def steps(ranks: Ranks, size: float) -> Iterator[Stroke]:
        n = len(ranks)
        yield Stroke(ranks, np.roll(ranks, -1), size / n, rounds * (n - 1))

    return steps


def _chain(ranks: Ranks, size: float) -> Iterator[Stroke]:
    """Hand the whole on, in so many pieces that its bytes pass each link once."""
    n = len(ranks)
    if n > 1:
        yield Stroke(ranks[:-1], ranks[1:], 0.0, n - 2)
        yield Stroke(ranks[:-1], ranks[1:], size)


def _exchange_whole(ranks: Ranks, size: float) -> Iterator[Stroke]:
    """Exchange the whole with the partner at distance 1, 2, 4, ...; the rest is folded in.

    Recursive doubling takes log2 n latencies, and sends the whole each time: for small tensors. Of
    6 ranks the last two hand theirs to the first two, and get the result back at the end.
    """
    whole = 1 << (len(ranks).bit_length() - 1)
    rest = ranks[whole:]
    if len(rest):
        yield Stroke(rest, ranks[: len(rest)], size)
    for bit in range(whole.bit_length() - 1):
        partner = np.arange(whole) ^ (1 << bit)
        yield Stroke(ranks[:whole], ranks[partner], size)
    if len(rest):
        yield Stroke(ranks[: len(rest)], rest, size)


def _exchange_halves(ranks: Ranks, size: float) -> Iterator[Stroke]:
    """Exchange halves, quarters, ... and gather them again.

    Rabenseifner's algorithm: a reduce_scatter by recursive halving, then an all_gather by recursive
    doubling, so that each rank sends 2 (n - 1) / n of the bytes as in a ring, in 2 log2 n latencies
    and not 2 (n - 1) (R. Thakur, R. Rabenseifner, W. Gropp: Optimization of Collective
    Communication Operations in MPICH, 2005). Each stroke is both of its exchanges.
    """
    whole = 1 << (len(ranks).bit_length() - 1)
    rest = ranks[whole:]
    if len(rest):
        yield Stroke(rest, ranks[: len(rest)], size)
    for bit in reversed(range(whole.bit_length() - 1)):
        partner = np.arange(whole) ^ (1 << bit)
        yield Stroke(ranks[:whole], ranks[partner], size * (1 << bit) / whole, 2)
    if len(rest):
        yield Stroke(ranks[: len(rest)], rest, size)


def _binomial(passes: int) -> Algorithm:
    """Return a binomial tree over which the whole goes `passes` times: 2 to reduce and broadcast.

    >>> [(step.src.tolist(), step.dst.tolist()) for step in _binomial(1)(np.arange(4), 16.0)]
    [([0], [1]), ([0, 1], [2, 3])]
    """

    def steps(ranks: Ranks, size: float) -> Iterator[Stroke]:
        reach = 1
        while reach < len(ranks):
            count = min(reach, len(ranks) - reach)
            yield Stroke(ranks[:count], ranks[reach : reach + count], size, passes)
            reach *= 2

    return steps


def _pairwise(ranks: Ranks, size: float) -> Iterator[Stroke]:
    """Let each rank send its part for the rank at distance 1, then 2, ..., n - 1."""
    n = len(ranks)
    for shift in range(1, n):
        yield Stroke(ranks, np.roll(ranks, -shift), size / n)


def _gather_at_root(ranks: Ranks, size: float) -> Iterator[Stroke]:
    """Let all others send their parts to the first, at once."""
    if len(ranks) > 1:
        yield Stroke(ranks[1:], np.repeat(ranks[:1], len(ranks) - 1), size / len(ranks))


def _send_from_root(ranks: Ranks, size: float) -> Iterator[Stroke]:
    """Let the first send their parts to all others, at once."""
    for step in _gather_at_root(ranks, size):
        yield Stroke(step.dst, step.src, step.size)


def _dissemination(ranks: Ranks, _size: float) -> Iterator[Stroke]:
    """Let each rank tell the one at distance 1, 2, 4, ... that it has come.

    After log2 n rounds each has heard of all, without a root (Hensgen, Finkel and Manber, 1988).
    """
    reach = 1
    while reach < len(ranks):
        yield Stroke(ranks, np.roll(ranks, -reach), 0.0)
        reach *= 2


_PARTS: Mapping[str, Algorithm] = {"ring": _ring(1)}
_WHOLE: Mapping[str, Algorithm] = {"ring": _chain, "tree": _binomial(1)}

#: the tensor groups of a plan
TENSOR_GROUP = "mesh.tensor"
#: collectives that torch makes of NCCL's messages, in one batch
_MESSAGES: Mapping[str, Algorithm] = {
    "all_to_all": _pairwise,
    "gather": _gather_at_root,
    "scatter": _send_from_root,
}
#: of these, those whose messages leave a node by all of its NICs at once
_BY_ALL_NICS = frozenset({"all_to_all", "scatter"})

#: kind of operation -> its algorithms; the first one is taken where none is asked for
ALGORITHMS: Mapping[str, Mapping[str, Algorithm]] = {
    "all_reduce": {
        "ring": _ring(2),
        "tree": _binomial(2),
        "doubling": _exchange_whole,
        "halving_doubling": _exchange_halves,
    },
    "all_gather": _PARTS,
    "reduce_scatter": _PARTS,
    "broadcast": _WHOLE,
    "reduce": _WHOLE,
    "gather": {"direct": _gather_at_root},
    "scatter": {"direct": _send_from_root},
    "all_to_all": {"pairwise": _pairwise},
    "barrier": {"dissemination": _dissemination},
    "monitored_barrier": {"direct": _gather_at_root},
}
NAMES = ("ring", "tree", "doubling", "halving_doubling", "best")


def step_time(network: Network, step: Stroke) -> float:
    """Return how long a step takes that all its ranks take at once, in microseconds.

    That is the latency of its longest route, and the bytes on its busiest link.
    """
    return step.times * together_time(network, [replace(step, times=1)])


def together_time(network: Network, steps: Iterable[Stroke], ranks: int = 0) -> float:
    """Return how long messages take that are all posted at once, in microseconds.

    No order is assumed among them: the busiest link carries its bytes without a gap, and the
    longest latency is paid once. It is a bound from below, that a good schedule comes close to.
    Where they are of so many `ranks` of one node, the channels of a message bound it too, if ranks
    send and receive.
    """
    load = np.zeros(max(1, network.count))
    latency = alone = 0.0
    for step in steps:
        if ranks and np.isin(step.dst, step.src).any():
            alone = max(alone, network.time_on_channels(step.size, ranks))
        routes, carried = (
            network.routes(step.src, step.dst),
            float(network.count_link_bytes(step.size)),
        )
        used = routes.links >= 0
        held = routes.per_byte * carried
        load += np.bincount(routes.links[used], weights=held[used], minlength=len(load))
        late = routes.quick if step.size <= network.small else routes.latency
        latency = max(latency, float(late.max(initial=0.0)))
        alone = max(alone, float((routes.slowest * carried).max(initial=0.0)))
    return latency + max(alone, float(load.max()))


def _ring_time(network: Network, step: Stroke) -> float:
    """Return the time of a ring whose sends are buffered: latencies add up along one path.

    Where sends are not waited for, a slow hop does not slow down the others at the same step. What
    counts is the sum of latencies along the ring, as often as the ring goes round, and for the rest
    the slowest arc of as many hops. With a wait at each step it would be the slowest hop at each of
    them.
    """
    n = len(step.src)
    latency = network.routes(step.src, step.dst).latency
    rounds, rest = divmod(step.times, n)
    around = np.concatenate([latency, latency])
    sums = np.concatenate([[0.0], np.cumsum(around)])
    longest = float((sums[rest : rest + n] - sums[:n]).max()) if rest else 0.0
    whole = float(latency.sum()) * rounds + longest
    without = step_time(network, Stroke(step.src, step.dst, step.size, 1)) - float(latency.max())
    return whole + without * step.times


# -------------------------------------------------------------------------------------------------
# torch's own model, by which DTensor chooses: torch.distributed.tensor._collective_utils (2.13).

#: GB/s, its share between hosts, microseconds before the first hop, in a host, between hosts
TORCH_BANDWIDTH, TORCH_BETWEEN, TORCH_BASE = 87.7, 0.22, 6.6
TORCH_LATENCIES = (0.6, 2.7)


def torch_time(collective: str, gib: float, ranks: int, host_ranks: int) -> float:
    """Return what torch reckons with for all ranks as one dimension of a mesh, in microseconds.

    `gib` are GiB, which torch divides by GB/s; a ring is assumed. Raises ScenarioError where torch
    has no such model.

    >>> round(torch_time("all_reduce", 1.0, ranks=8, host_ranks=8))
    19969
    """
    hops = {ALL_REDUCE: 2 * (ranks - 1)}.get(collective, ranks - 1)
    if collective not in {ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER}:
        message = f"torch's model of DTensor has no {collective}"
        raise ScenarioError(
            [Problem(code="no_forecast", message=message, hint="take `--model steps`")]
        )
    far = ranks > host_ranks
    speed = TORCH_BANDWIDTH * (TORCH_BETWEEN if far else 1)
    latency = TORCH_BASE + hops * TORCH_LATENCIES[far]
    seconds = (gib * hops / ranks) / speed
    return latency + seconds * 1e6


# -------------------------------------------------------------------------------------------------
# One collective, by the model that is asked for.


class Timing(Struct, frozen=True):
    """A time of a collective: microseconds, by which model, and by which algorithm.

    `model` is steps, nccl, nccl fitted, nccl messages, table, table and tuner, or torch;
    `algorithm` as in "ring, LL128". `interval` is where measurements of such a case were; None
    where there is none.
    """

    time: float
    model: str
    algorithm: str = ""
    interval: Interval | None = None


Calls: TypeAlias = tuple[str, float]


def _kind_of_call(name: str, size: float) -> Calls:
    return kind_of(name), round(size, 3)


def find_senders(traffic: Traffic) -> dict[Calls, NDArray[np.int64]]:
    """Return which ranks make the same call, in any group: such calls are made at the same time.

    So are those of the groups along a dimension of a mesh, and those of groups that a file names
    one by one. A group that makes its call alone has the NICs of its nodes for itself.
    """
    found: dict[Calls, dict[int, Sequence[Sequence[int]]]] = {}
    for each in traffic.entries:
        if isinstance(each, Enter | EnterGroups):
            groups = each.members if isinstance(each, EnterGroups) else (each.members,)
            for name, size in getattr(each, "parts", ()) or ((each.name, each.size),):
                if not isnan(size):
                    found.setdefault(_kind_of_call(name, size), {})[id(each.members)] = groups
    return {
        call: np.unique([rank for groups in known.values() for one in groups for rank in one])
        for call, known in found.items()
    }


def hops(collective: str, algorithm: str, nodes: int, ranks: int) -> int:
    """Return how often the bytes of a collective go from node to node, one after the other.

    What a rank sends goes through all links of a ring but one, so that with several ranks on a node
    it comes back to its own node at the end.

    >>> hops("all_reduce", "ring", nodes=8, ranks=64), hops("all_reduce", "tree", nodes=8, ranks=64)
    (16, 6)
    >>> hops("all_gather", "ring", nodes=8, ranks=8)
    7
    """
    if algorithm in {TREE, NVLS_TREE}:
        return 2 * (nodes - 1).bit_length()
    if nodes == 1:
        return 0
    return (nodes if ranks > nodes else nodes - 1) * (2 if collective == ALL_REDUCE else 1)


class CollectiveTimes:
    """Forecasts collectives on one topology, by one model.

        steps    the messages of an algorithm, over the links of the topology
        nccl     what NCCL's tuner reckons with, times what was fitted to the machine
        table    times that were measured there, by nccl-tests or `scenario bench`
        torch    what DTensor chooses placements by

    A time is remembered by name, bytes and members: a training step makes few different calls.
    """

    def __init__(
        self,
        topology: Topology,
        world_size: int,
        *,
        model: str | None = None,
        algorithm: str | None = None,
        scale: float = 1.0,
        traffic: Traffic | None = None,
    ) -> None:
        """Take the topology's own model where none is asked for.

        `traffic` says which ranks send at the same time: all where it is left out.

        Raises ScenarioError where the topology does not have what the model needs.
        """
        self.topology, self.world_size, self.scale = topology, world_size, scale
        self.model = model or topology.model
        self.algorithm = algorithm
        lacks = {
            "nccl": (topology.tuner is None, "no `collectives` with `model: nccl`"),
            "table": (not topology.tables, "no `collectives` with `model: table`"),
        }.get(self.model)
        if lacks is not None and lacks[0]:
            message = f"topology {topology.name} has {lacks[1]}"
            hint = "take one that has, as h100-8x400g or azure-nd-h100-v5, or add it to a copy"
            raise ScenarioError([Problem(code="bad_topology", message=message, hint=hint)])
        self._senders = {} if traffic is None else find_senders(traffic)
        self._network: Network | None = None
        self._known: dict[tuple[str, float, tuple[int, ...]], Timing] = {}
        self._parts: dict[tuple[str, float, tuple[int, ...]], float] = {}

    @property
    def launch(self) -> float:
        """What a call takes its host, in microseconds: with NCCL, if the topology says so."""
        return self.topology.launch if self.model == "nccl" else 0.0

    @property
    def network(self) -> Network:
        """The links, numbered. Raises ScenarioError where the topology has none."""
        if self._network is None:
            self._network = Network(self.topology, self.world_size)
        return self._network

    @cached_property
    def messages(self) -> Network:
        """The links as messages use them: as NCCL sends where its model is asked for."""
        if self.model != "nccl":
            return self.network
        return NcclNetwork(self.topology, self.world_size)

    def time_slowly(self, entry: Enter) -> float:
        """Return the time of a collective that is as slow as 80 % of such calls were at most."""
        found = self.of(entry)
        return found.time * (1.0 if found.interval is None else found.interval.high)

    def of(self, entry: Enter) -> Timing:
        """Return the time of a collective from when its last member has entered it.

        What the call takes its host comes before (:class:`torch_scenarios.cost.replay.HostTimes`).
        """
        if entry.parts:
            return self._add_times(entry)
        size = 0.0 if isnan(entry.size) else entry.size * self.scale
        asked = (entry.name, size, entry.members)
        if asked not in self._known:
            members = np.array(entry.members)
            found = self._time(entry.name, size, members)
            self._known[asked] = replace(
                found, interval=self._find_error(found, *asked[:2], members)
            )
        return self._known[asked]

    def count_part(self, entry: Enter) -> float:
        """Return the part of a GPU's SMs that a collective takes while it runs.

        Each channel of NCCL is a thread block that keeps an SM. Messages are not counted, nor what
        a tensor group exchanges while products run: that is the work of copy engines, as Megatron
        and torch's async TP have it.
        """
        gpu, tuner = self.topology.gpu, self.topology.tuner
        if gpu is None or not gpu.sms or tuner is None or entry.parts:
            return 0.0
        if len(entry.members) == 1 or entry.group == TENSOR_GROUP:
            return 0.0
        size = 0.0 if isnan(entry.size) else entry.size * self.scale
        asked = (entry.name, size, entry.members)
        if asked not in self._parts:
            ranks = np.array(entry.members)
            nodes = self.topology.node_count(ranks, self.world_size)
            algorithm = self.of(entry).algorithm.partition(", ")[0]
            own = self._cut_tuner(tuner, kind_of(entry.name), size, ranks)
            self._parts[asked] = own.count_channels(algorithm, nodes, self._nics[0]) / gpu.sms
        return self._parts[asked]

    def _find_error(self, found: Timing, name: str, size: float, ranks: Ranks) -> Interval | None:
        """Return how far off such times were, of this collective on such a machine.

        A group that has only some of the ranks of its nodes shares their NICs with others, so that
        it is compared with its like, and not with groups that have whole nodes.
        """
        plain = "all_to_all" if kind_of(name) in _MESSAGES else kind_of(name)
        nodes = self.topology.node_count(ranks, self.world_size)
        is_whole = self.topology.fills_its_nodes(ranks, self.world_size)
        kind = {"table": TABLE, "table and tuner": TABLE, "steps": "", "torch": ""}.get(
            found.model, self.topology.kind if is_whole else PART_OF_NODES
        )
        return interval(kind, plain, nodes, size) if kind and size > 0 else None

    def _add_times(self, entry: Enter) -> Timing:
        """Return the time of collectives one after the other, as one of objects makes them.

        The host reads what the first one gathers before it calls the next.
        """
        found = [
            self.of(replace(entry, name=name, size=size, parts=())) for name, size in entry.parts
        ]
        total = sum(each.time for each in found) + (len(found) - 1) * self.launch
        return Timing(total, found[0].model, found[0].algorithm, found[-1].interval)

    def _time(self, name: str, size: float, ranks: Ranks) -> Timing:
        if len(ranks) < 2:
            return Timing(0.0, "steps")
        plain = kind_of(name)
        ways: Mapping[str, Callable[[str, float, Ranks], Timing | None]] = {
            "table": self._time_by_table,
            "nccl": self._time_by_nccl,
            "torch": self._time_by_torch,
        }
        way = ways.get(self.model)
        found = None if way is None else way(plain, size, ranks)
        return found or self._time_by_steps(name, size, ranks)

    def _time_by_table(self, name: str, size: float, ranks: Ranks) -> Timing | None:
        tables: Tables = self.topology.tables
        known = tables.get(name) or {}
        if size == 0 and name not in tables:
            return None
        if not known:
            message = f"topology {self.topology.name} has no table of {name}"
            hint = f"it has {', '.join(sorted(tables))}"
            raise ScenarioError([Problem(code="no_forecast", message=message, hint=hint)])
        tuner = self.topology.tuner

        def take(count: int) -> Taken | None:
            nodes = -(-count // (self.topology.node_ranks or count))
            if tuner is None or name not in COLLECTIVES:
                return None
            return lambda each: tuner.best(name, each, count, nodes).way

        model = "table" if take(len(ranks)) is None else "table and tuner"
        return Timing(time_in(known, len(ranks), size, take), model)

    def _time_by_nccl(self, name: str, size: float, ranks: Ranks) -> Timing | None:
        """Return the time by NCCL's tuner; None for what NCCL has no model of.

        torch makes `all_to_all`, `gather` and `scatter` of sends and receives in one NCCL group
        (torch/csrc/cuda/nccl.cpp), so that they are timed as messages.
        """
        tuner = self.topology.tuner
        if name in _MESSAGES and self.topology.links:
            is_in_node = self.topology.node_count(ranks, self.world_size) == 1
            count = len(ranks) if is_in_node else 0
            time = together_time(self.messages, _MESSAGES[name](ranks, size), count)
            if name in _BY_ALL_NICS and not is_in_node:
                time *= self.topology.factors.get(BY_ALL_NICS, 1.0)
            near = self._count_near(ranks)
            time += self.topology.peer * (len(ranks) - near)
            time += self.topology.node_peer * (near - 1)
            return Timing(time, "nccl messages", "one batch")
        if tuner is None or name not in COLLECTIVES:
            return None
        own = self._cut_tuner(tuner, name, size, ranks)
        nodes = self.topology.node_count(ranks, self.world_size)
        choices = list(own.choices(name, size, len(ranks), nodes))
        asked = [each for each in choices if each.algorithm == self.algorithm]
        best = min(asked or choices, key=lambda each: each.time)
        fitted = self.topology.launch != 0 or self.topology.factor != 1 or self.topology.factors
        time = best.time + own.pipeline_us(best.algorithm, name, size, len(ranks), nodes)
        time *= self.topology.factor_of(best.algorithm)
        if best.algorithm == RING and nodes > 1:
            time = max(time, self._time_on_nics(name, size, ranks))
        each = self.topology.hop_of(best.algorithm)
        time += each * hops(name, best.algorithm, nodes, len(ranks))
        taken = f"{best.algorithm}, {best.protocol}"
        return Timing(time, "nccl fitted" if fitted else "nccl", taken)

    def _count_near(self, ranks: Ranks) -> int:
        """Return how many of some ranks are on one node, of the node that has fewest of them.

        A host posts messages to other nodes to the network; those within a node its GPU writes.
        """
        counts = np.unique(self.topology.nodes_of(ranks, self.world_size), return_counts=True)[1]
        return int(counts.min())

    def _time_on_nics(self, name: str, size: float, ranks: Ranks) -> float:
        """Return what a ring's bytes take on the NICs of a node at the least.

        NCCL's tuner takes two nodes for one in which all GPUs reach each other as NVLink lets them.
        """
        count, speed = self._nics
        if not count:
            return 0.0
        part = self._part_of_nodes(name, size, ranks)
        return size * ring_steps(name, len(ranks)) / len(ranks) / (part * count * speed)

    @cached_property
    def _nics(self) -> tuple[int, float]:
        """How many NICs a node has, and the bytes of each in a microsecond; 0 where unknown."""
        nic, count = self.topology.links.get(NIC), self.topology.node_ranks
        return (0, 0.0) if nic is None or count is None else (nic.count or count, nic.bandwidth)

    def _part_of_nodes(self, name: str, size: float, ranks: Ranks) -> float:
        senders = self._senders.get(_kind_of_call(name, size / self.scale))
        return self.topology.part_of_nodes(ranks, self.world_size, senders)

    def _cut_tuner(self, tuner: Tuner, name: str, size: float, ranks: Ranks) -> Tuner:
        """Return the tuner of a group, which may have a part of the NICs and wires of its nodes."""
        part = self._part_of_nodes(name, size, ranks)
        count, speed = self._nics
        wires = self.topology.wires
        if wires > 1:
            near = self._count_near(ranks)
            tuner = tuner.cut_inside((near - 1) / wires if near > 1 else 1.0)
        return tuner.cut_to_part(part, count, count * speed / 1000)

    def algorithms_of(self, entry: Enter) -> tuple[str, ...]:
        """Return the algorithms that a collective may be asked to take, by their names."""
        tuner, plain = self.topology.tuner, kind_of(entry.name)
        if self.model in {"table", "torch"}:
            return ()
        if self.model == "nccl" and tuner is not None and plain in COLLECTIVES:
            ranks = np.array(entry.members)
            own = self._cut_tuner(tuner, plain, 1.0, ranks)
            nodes = self.topology.node_count(ranks, self.world_size)
            choices = own.choices(plain, 1.0, len(ranks), nodes)
            return tuple(dict.fromkeys(each.algorithm for each in choices))
        return tuple(ALGORITHMS.get(plain, ()))

    def _time_by_torch(self, name: str, size: float, ranks: Ranks) -> Timing:
        hosts = self.topology.node_ranks or self.world_size
        return Timing(torch_time(name, size / 2**30, len(ranks), hosts), "torch", "ring")

    def _time_by_steps(self, name: str, size: float, ranks: Ranks) -> Timing:
        known = ALGORITHMS.get(kind_of(name))
        if known is None:
            message = f"no algorithm of {name} is known"
            raise ScenarioError([Problem(code="no_forecast", message=message)])
        asked = self.algorithm or ""
        names = list(known) if asked == "best" else [asked if asked in known else next(iter(known))]
        times = [(self._steps_time(known[each], size, ranks), each) for each in names]
        time, algorithm = min(times)
        return Timing(time, "steps", algorithm)

    def _steps_time(self, algorithm: Algorithm, size: float, ranks: Ranks) -> float:
        total = 0.0
        for step in algorithm(ranks, size):
            buffered = step.size <= self.topology.eager
            ring = (
                len(step.src) == len(ranks) and step.times > 1 and algorithm is not _exchange_whole
            )
            if buffered and ring and (step.dst == np.roll(step.src, -1)).all():
                total += _ring_time(self.network, step)
            else:
                total += step_time(self.network, step)
        return total
