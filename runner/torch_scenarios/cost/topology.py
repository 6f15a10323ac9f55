"""A machine as a forecast of time sees it: links with a latency and a bandwidth, and collectives.

A topology is a YAML file, or one of the presets of this package. Each states its `source`: a time
without one is a guess. Times are microseconds, bandwidths bytes a microsecond, sizes bytes; in a
file they carry their units (`0.6us`, `360GB/s` of 1e9 bytes, `64KiB` of 1024).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from torch_scenarios.cost.logs import choose_logs, read_logs
from torch_scenarios.cost.measurements import Table, Tables, name_table
from torch_scenarios.cost.nccl import (
    ALL,
    GPUS,
    LL,
    NVLINK,
    P2P_SPEEDS,
    PCIE,
    PROTOCOLS,
    RING,
    SIMPLE,
    VERSIONS,
    Channels,
    Tuner,
    constants_of,
    count_p2p_channels,
)
from torch_scenarios.errors import Mark, Problem, ScenarioError, nearest
from torch_scenarios.files import read_file
from torch_scenarios.limits import DEFAULT, Limits
from torch_scenarios.source.tree import Mapping as Node
from torch_scenarios.source.tree import Scalar, Sequence, key_text, read_tree

PRESETS = Path(__file__).parent / "presets"

#: what multiplies the times of messages, among the factors; and once more those of an `all_to_all`
#: and a `scatter` between nodes, which leave a node by all of its NICs at once
MESSAGES, BY_ALL_NICS = "messages", "all_to_all"
#: what a factor may be of
FACTORED = ("ring", "tree", "nvls", "nvls_tree", MESSAGES, BY_ALL_NICS)

#: dtypes that a GPU has peaks of
PEAKS = ("bfloat16", "float16", "float32", "float64", "tf32", "float8")

#: the kinds of links: those of every rank, those of a node or shared on it, those between nodes
PORT, NIC, SPINE = "port", "nic", "spine"


class Links(Struct, frozen=True, kw_only=True):
    """The links of one kind. `bandwidth` is in bytes a microsecond, for each direction.

    `latency` is that of a whole route through such a link: a route has the largest of its links'.
    `count` are those of a node (0: one for each rank); `nodes` share one link of a spine, which
    carries the bandwidth of their NICs divided by `oversubscription`. A port that is `pairwise` is
    as many wires as its node has other ranks, one to each of them, with a part of the bandwidth.

        rank 0 -- port --+-- nic --+-- spine --+-- nic --+-- port -- rank 8
        rank 1 -- port --+         |           |         +-- port -- rank 9
              node 0               other nodes of the group
    """

    bandwidth: float = 0.0
    latency: float = 0.0
    count: int = 0
    nodes: int = 0
    oversubscription: float = 1.0
    pairwise: bool = False


class ComparedSteps(Struct, frozen=True):
    """Between which factors of a forecast 80 % of so many `steps` of training were."""

    low: float
    high: float
    steps: int


class Gpu(Struct, frozen=True, kw_only=True):
    """What kernels take on a GPU of a machine.

    `tflops` are the peaks of products by dtype (`tf32` of float32 where it is allowed, `float8`),
    `bandwidth` is that of its memory in bytes a microsecond. `matmul`, `attention` (backwards
    `attention_backward`) and `memory` are the parts of these that kernels reach, of attention by
    the size of a head (0: of any), `least` is what a kernel takes at least in microseconds.
    `compared` are steps that were measured, `source` says where all of it is from. `operator` and
    `kernel` are what its host takes for each, in microseconds (:class:`HostSpeed`). Of its `sms`
    (streaming multiprocessors; 0 where none are stated) each channel of NCCL takes one.
    """

    tflops: Mapping[str, float]
    bandwidth: float
    matmul: float
    attention: tuple[tuple[int, float], ...]
    attention_backward: tuple[tuple[int, float], ...]
    memory: float
    least: float
    source: str
    compared: ComparedSteps | None = None
    operator: float = 0.0
    kernel: float = 0.0
    sms: int = 0

    def time_starts(self, operators: int, kernels: int) -> float:
        """Return what its host takes for so many operators, which start so many kernels."""
        return operators * self.operator + kernels * self.kernel

    def attention_of(self, size: int) -> float:
        """Return the part that attention reaches with heads of a size: that of the nearest."""
        return min(self.attention, key=lambda each: abs(each[0] - size))[1]

    def attention_backward_of(self, size: int) -> float:
        """Return the part that it reaches backwards."""
        return min(self.attention_backward, key=lambda each: abs(each[0] - size))[1]


class HostSpeed(Struct, frozen=True, kw_only=True):
    """What a host takes to start kernels, in microseconds, with Python and without compilation.

    `operator` is what each operator of torch takes it, which makes a view or starts a kernel,
    `kernel` what each kernel takes longer, `tensor` each tensor of an operator on a list of them.
    `source` says where all of it is from.
    """

    operator: float = 0.0
    kernel: float = 0.0
    tensor: float = 0.0
    compared: ComparedSteps | None = None
    source: str = ""


class Topology(Struct, frozen=True, kw_only=True):
    """A machine. Sends of up to `eager` bytes free their sender once their bytes are out.

    `launch` is what a call of NCCL takes its host, in microseconds. `factors` multiply what its
    tuner says, by algorithm (`messages`: of batches), `factor` where an algorithm has none of its
    own. `hop` is what each hop between nodes takes longer than the tuner says, `ring_hop` each of a
    ring where that is another, `peer` what a message to one more peer on another node takes the
    hosts, and `node_peer` to one more of the same node, which NVLink reaches without them. `kind`
    names the machines with whose measurements such forecasts were compared, `memory` are the bytes
    of one GPU. Beside tables a tuner tells where the algorithm changes. `lost` is how many NICs a
    node has lost.
    """

    name: str
    describes: str
    source: str
    node_ranks: int | None = None
    strided: bool = False
    links: Mapping[str, Links] = field(default_factory=dict)
    eager: float = 0.0
    model: str = "steps"
    tuner: Tuner | None = None
    tables: Tables = field(default_factory=dict)
    launch: float = 0.0
    factor: float = 1.0
    factors: Mapping[str, float] = field(default_factory=dict)
    hop: float = 0.0
    ring_hop: float | None = None
    peer: float = 0.0
    node_peer: float = 0.0
    kind: str = ""
    memory: float = 0.0
    gpu: Gpu | None = None
    host: HostSpeed = HostSpeed()
    lost: Mapping[int, int] = field(default_factory=dict)

    def spread(self, world_size: int) -> Topology:
        """Return the machine as a launcher takes it for so many ranks: as many of each node.

        Of racks of 72 GPUs, 256 ranks have 64 each, on four of them, and not 72, 72, 72 and 40.
        Where no more than half of a node could be had so, the last node has fewer, as before.

        >>> machine = topology("gb200-nvl72")
        >>> [machine.spread(ranks).node_ranks for ranks in (64, 144, 256, 137)]
        [72, 72, 64, 72]
        """
        full = self.node_ranks
        if full is None or world_size <= full or world_size % full == 0:
            return self
        divisors = (each for each in range(full, full // 2, -1) if world_size % each == 0)
        return replace(self, node_ranks=next(divisors, full))

    def factor_of(self, algorithm: str) -> float:
        """Return what multiplies the tuner's time of an algorithm."""
        return self.factors.get(algorithm, self.factor)

    @property
    def wires(self) -> int:
        """How many wires a port is, each to another rank of its node; 1 where a switch joins all.

        >>> topology("mi300x-8").wires, topology("h100-8x400g").wires
        (7, 1)
        """
        port, count = self.links.get(PORT), self.node_ranks
        return 1 if port is None or not port.pairwise or count is None else max(1, count - 1)

    def hop_of(self, algorithm: str) -> float:
        """Return what a hop between nodes takes longer than the tuner says."""
        return self.hop if self.ring_hop is None or algorithm != RING else self.ring_hop

    def nodes_of(self, ranks: NDArray[np.int64], world_size: int) -> NDArray[np.int64]:
        """Return the node that each rank is on: in blocks, as torchrun numbers ranks, or strided.

        8 ranks on nodes of 4 are on 0 0 0 0 1 1 1 1, strided on 0 1 0 1 0 1 0 1.
        """
        if self.node_ranks is None:
            return np.zeros_like(ranks)
        if self.strided:
            return ranks % max(1, -(-world_size // self.node_ranks))
        return ranks // self.node_ranks

    def node_count(self, ranks: NDArray[np.int64], world_size: int) -> int:
        """Return over how many nodes these ranks are spread."""
        return len(np.unique(self.nodes_of(ranks, world_size)))

    def nics_of(self, world_size: int) -> tuple[NDArray[np.int64], int]:
        """Return the NIC of its node that each rank sends by `[W]`, and how many NICs a node has.

        Ranks of a NIC that is lost send by the others: of 8 ranks on 4 NICs two share each, and on
        3 some are three.
        """
        nodes = self.nodes_of(np.arange(world_size), world_size)
        order = np.argsort(nodes, kind="stable")
        local = np.empty(world_size, np.int64)
        local[order] = np.arange(world_size) - np.searchsorted(nodes[order], nodes[order])
        own = self.node_ranks or world_size
        count = self.links.get(NIC, Links()).count or own
        rail = local * count // max(1, own)
        for node, lost in self.lost.items():
            mine = nodes == node
            rail[mine] %= max(1, count - lost)
        return rail, count

    def part_of_nodes(
        self, ranks: NDArray[np.int64], world_size: int, senders: NDArray[np.int64] | None = None
    ) -> float:
        """Return which part of the NICs of its nodes a group has, at the least; 1 in one node.

        Ranks of one NIC that are `senders` at the same time share it: all of a node if left out. A
        data-parallel group of 1 rank a node, of 8 with 8 NICs, has 1/8 of them, though the other
        groups are idle: a rank sends by its own NIC alone.
        """
        nodes = self.nodes_of(np.arange(world_size), world_size)
        if self.node_ranks is None or (nodes[ranks] == nodes[ranks[0]]).all():
            return 1.0
        rail, count = self.nics_of(world_size)
        nic = nodes * count + rail
        share = 1 / np.bincount(nic if senders is None else nic[senders])[nic[ranks]]
        sums = np.bincount(nodes[ranks], weights=share)
        return float(sums[np.unique(nodes[ranks])].min() / count)

    def fills_its_nodes(self, ranks: NDArray[np.int64], world_size: int) -> bool:
        """Return whether a group has all ranks of each of its nodes, or is in one node."""
        nodes = self.nodes_of(np.arange(world_size), world_size)
        own = np.unique(nodes[ranks])
        return len(own) == 1 or int(np.isin(nodes, own).sum()) == len(ranks)


class Routes(Struct, frozen=True):
    """The routes of messages `[L]`: latency, time for the bytes of each, and links `[L, K]`.

    `quick` is the latency of small messages (:attr:`Network.small`). `links` are numbers, -1 where
    a route has fewer; `per_byte` `[L, K]` is how long each is held. `latency` and `quick` are
    microseconds, `slowest` and `per_byte` microseconds a byte.
    """

    latency: NDArray[np.float64]
    quick: NDArray[np.float64]
    slowest: NDArray[np.float64]
    links: NDArray[np.int64]
    per_byte: NDArray[np.float64]


class Network:
    """The links of a topology for so many ranks, numbered; a route is looked up for many at once.

    Raises ScenarioError where ranks are on several nodes and nothing joins them.

    >>> network = Network(topology("h100-8x400g"), 16)
    >>> routes = network.routes(np.array([0, 0]), np.array([1, 8]))
    >>> routes.latency.tolist()
    [0.6, 2.7]
    >>> [network.name_of(link) for link in routes.links[0].tolist() if link >= 0]
    ['port out of rank 0', 'port into rank 1']
    >>> [network.name_of(link) for link in routes.links[1].tolist() if link >= 0][1:3]
    ['port into rank 8', 'nic out of node 0, rail 0']
    """

    #: bytes up to which a message is small, and has a latency of its own
    small = -1.0

    def count_link_bytes(self, size: Any) -> Any:
        """Return the bytes that pass the links for messages of so many."""
        return size

    def time_on_channels(self, size: float, _ranks: int) -> float:
        """Return what a message takes at least that its rank sends while it receives another."""
        return 0.0 * size

    def __init__(self, topology: Topology, world_size: int) -> None:
        """Number the links: those out of the ranks, into them, and likewise of nodes and spines."""
        if PORT not in topology.links:
            message = f"topology {topology.name} has no links: it forecasts collectives alone"
            raise ScenarioError([Problem(code="bad_topology", message=message, hint=_NO_LINKS)])
        self.topology, self.world_size = topology, world_size
        ranks = np.arange(world_size)
        self.node = topology.nodes_of(ranks, world_size)
        self.nodes = int(self.node.max(initial=0)) + 1
        if self.nodes > 1 and NIC not in topology.links:
            message = (
                f"{world_size} ranks are on {self.nodes} nodes of topology {topology.name}, and "
                "it has no `nic` that joins them"
            )
            raise ScenarioError([Problem(code="bad_topology", message=message, hint=_NO_NIC)])
        nic = topology.links.get(NIC, Links())
        rail, per_node = topology.nics_of(world_size)
        self._nic, self._rail, self._per_node = self.node * per_node + rail, rail, per_node
        self._nics = self.nodes * per_node
        spine = topology.links.get(SPINE)
        self._spine = None if spine is None else self.node // spine.nodes
        self._spines = 0 if self._spine is None else int(self._spine.max(initial=0)) + 1
        self._bases = np.cumsum([0, world_size, world_size, self._nics, self._nics, self._spines])
        self.count = 2 * (world_size + self._nics + self._spines)
        self._per_byte = {
            name: 1 / each.bandwidth for name, each in topology.links.items() if each.bandwidth
        }
        if spine is not None:
            shared = spine.nodes * per_node * nic.bandwidth / spine.oversubscription
            self._per_byte[SPINE] = 1 / shared

    def routes(self, src: NDArray[np.int64], dst: NDArray[np.int64]) -> Routes:
        """Return the routes of messages from ranks `src` `[L]` to ranks `dst` `[L]`.

        Within a node a route has two links, the ports; to another node the NICs besides, and to
        another group of nodes their spines.
        """
        links = self.topology.links
        _, port_in, nic_out, nic_in, spine_out, spine_in = self._bases
        port = self._per_byte[PORT]
        numbers, times = [src, port_in + dst], [port, port]
        latency = np.full(len(src), links[PORT].latency)
        if self.nodes == 1:
            held = np.broadcast_to(np.array(times), (len(src), 2))
            slowest = np.full(len(src), port)
            return Routes(latency, latency, slowest, np.stack(numbers, 1), held)
        far = self.node[src] != self.node[dst]
        numbers += [
            np.where(far, nic_out + self.nic_out(src, dst), -1),
            np.where(far, nic_in + self._nic[dst], -1),
        ]
        times += [self._per_byte[NIC]] * 2
        latency = np.where(far, np.maximum(latency, links[NIC].latency), latency)
        slowest = np.where(far, max(port, self._per_byte[NIC]), port)
        if self._spine is not None:
            across = far & (self._spine[src] != self._spine[dst])
            numbers += [
                np.where(across, spine_out + self._spine[src], -1),
                np.where(across, spine_in + self._spine[dst], -1),
            ]
            times += [self._per_byte[SPINE]] * 2
            latency = np.where(across, np.maximum(latency, links[SPINE].latency), latency)
            slowest = np.where(across, np.maximum(slowest, self._per_byte[SPINE]), slowest)
        table = np.stack(numbers, 1)
        held = np.where(table < 0, 0.0, np.array(times))
        return Routes(latency, latency, slowest, table, held)

    def nic_out(self, src: NDArray[np.int64], dst: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the NICs by which messages leave their nodes: those of the ranks that send."""
        return self._nic[src]

    def name_of(self, link: int) -> str:
        """Return what a link is called."""
        kinds = _KINDS
        place = int(np.searchsorted(self._bases, link, side="right")) - 1
        number = link - int(self._bases[place])
        if place in {2, 3}:
            per_node = self._nics // self.nodes
            rail = f", rail {number % per_node}" if per_node > 1 else ""
            return f"{kinds[place]} {number // per_node}{rail}"
        return f"{kinds[place]} {number}"


class NcclNetwork(Network):
    """The links as NCCL sends messages over them: `send`, `recv`, and batches of them.

    Nothing in NCCL forecasts these; the constants are those of a ring's steps (tuning.cc), and what
    a batch posts together is one call. A message of up to 16 KiB takes the protocol LL, whose
    flags double its bytes; a larger one takes Simple (`P2P_LL_THRESHOLD`, src/enqueue.cc).
    """

    small = 16.0 * 1024

    def __init__(self, topology: Topology, world_size: int) -> None:
        """Number the links. The topology has a tuner."""
        super().__init__(topology, world_size)
        assert topology.tuner is not None
        self._tuner = topology.tuner
        constants = topology.tuner.constants
        factor = topology.factor_of(MESSAGES)
        #: by protocol: the latency of a message in a node, and between nodes
        self._late = {
            protocol: tuple(
                factor * (constants.base[RING][protocol] + hop[RING][protocol])
                for hop in (constants.inside(topology.tuner.inside), constants.net)
            )
            for protocol in (LL, SIMPLE)
        }

    def count_link_bytes(self, size: Any) -> Any:
        """Return the bytes that pass the links for messages of so many."""
        doubled = np.where(size <= self.small, 2.0, 1.0)
        return doubled * size * self.topology.factor_of(MESSAGES)

    def time_on_channels(self, size: float, ranks: int) -> float:
        """Return what a message takes by the channels that NCCL gives it, of so many ranks.

        In a node a few channels carry it, though NVLink is as quick as all of them: between nodes
        it gets one for each 512 KiB.
        """
        speed = P2P_SPEEDS.get(self._tuner.gpu)
        if ranks < 2 or speed is None or self._tuner.inside == PCIE:
            return 0.0
        return size / (1000 * speed * count_p2p_channels(size, ranks))

    def nic_out(self, src: NDArray[np.int64], dst: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the NICs by which messages leave their nodes: those on the rail of the receivers.

        NVLink takes a message to the GPU with that NIC (PXN, since NCCL 2.12).
        """
        if self._tuner.inside == PCIE:
            return super().nic_out(src, dst)
        return self.node[src] * self._per_node + self._rail[dst]

    def routes(self, src: NDArray[np.int64], dst: NDArray[np.int64]) -> Routes:
        """Return the routes of messages; one to a rank of the same node takes its wire alone."""
        found = super().routes(src, dst)
        far = (self.node[src] != self.node[dst]).astype(np.int64)
        quick, latency = (np.array(self._late[protocol])[far] for protocol in (LL, SIMPLE))
        slowest = np.where(far, found.slowest, found.slowest * self.topology.wires)
        return replace(found, latency=latency, quick=quick, slowest=slowest)


#: what links are called, in the order of their numbers
_KINDS = (
    *("port out of rank", "port into rank", "nic out of node", "nic into node"),
    *("spine out of group", "spine into group"),
)
_NO_LINKS = "give it `links: {port: {per: rank, bandwidth: ..., latency: ...}}`"
_NO_NIC = "give it `nic: {per: rank, bandwidth: ..., latency: ...}` under `links`"


# -------------------------------------------------------------------------------------------------
# A file, or the name of a preset -> a topology; every fault with its place.

_BANDWIDTH = re.compile(r"([0-9.]+(?:e[+-]?\d+)?)\s*([kMGT]?)(B|b|bit)/s")
_TIME = re.compile(r"([0-9.]+(?:e[+-]?\d+)?)\s*(ns|us|µs|ms|s)")
_SIZE = re.compile(r"([0-9.]+(?:e[+-]?\d+)?)\s*(?:([KMGT])(?:iB|B)?|B|bytes)?", re.IGNORECASE)
_TIMES = {"ns": 1e-3, "us": 1.0, "µs": 1.0, "ms": 1e3, "s": 1e6}
_POWERS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_NODES = re.compile(r"(\d+) nodes")
#: what hosts, and hops between nodes, take that NCCL's tuner does not know
_HOSTED = ("launch", "hop", "ring_hop", "peer", "node_peer")
#: what states NCCL's tuner
_TUNER = ("version", "gpu", "channels", "cpu", "tree", "inside", "protocol")


def bandwidth(text: str) -> float | None:
    """Return bytes a microsecond; None where the text states no bandwidth.

    >>> bandwidth("360GB/s"), bandwidth("400Gb/s"), bandwidth("360")
    (360000.0, 50000.0, None)
    """
    found = _BANDWIDTH.fullmatch(text.strip())
    if found is None:
        return None
    number, power, unit = found.groups()
    bytes_per_s = _number(number) * _POWERS[power] / (1 if unit == "B" else 8)
    return bytes_per_s / 1e6


def microseconds(text: str) -> float | None:
    """Return microseconds; None where the text states no time: `0.6us`, `14 us`, `2ms`."""
    found = _TIME.fullmatch(text.strip())
    return None if found is None else _number(found[1]) * _TIMES[found[2]]


def size_in_bytes(text: str) -> float | None:
    """Return bytes, with K, M, G and T of 1024 as nccl-tests has them; None for no size.

    >>> size_in_bytes("64K"), size_in_bytes("64KiB"), size_in_bytes("8")
    (65536.0, 65536.0, 8.0)
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        return None
    unit = (found[2] or "").upper()
    return float(_number(found[1]) * 1024.0 ** " KMGT".index(unit or " "))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def presets() -> list[str]:
    """Return the names of the topologies that come with this package."""
    return sorted(path.stem for path in PRESETS.glob("*.yaml"))


def path_of(asked: str, folder: Path | None = None) -> tuple[Path, Path | None]:
    """Return the file of a topology, and the folder that it may not lead out of.

        asked    the name of a preset, or a file
        folder   the one that a scenario lies in which names it; None for a command line

    Raises ScenarioError where no topology has that name.
    """
    if asked in presets():
        return PRESETS / f"{asked}.yaml", PRESETS
    path = Path(asked) if folder is None else folder / asked
    if not path.exists():
        within = [name for name in presets() if asked in name]
        close = " or ".join(within) or nearest(asked, presets())
        named = Path(asked).suffix
        message = f"there is no file {path}" if named else f"no topology is called {asked!r}"
        known = f"{', '.join(presets())}, or a file"
        hint = f"did you mean {close}?" if close else f"known are {known}"
        raise ScenarioError([Problem(code="bad_topology", message=message, hint=hint)])
    # what a scenario names lies in its own project; a command line may name any file
    return path, path.parent.resolve() if folder is None else None


def topology(asked: str, folder: Path | None = None, limits: Limits = DEFAULT) -> Topology:
    """Return the topology of a name, or of a file, which is looked for from `folder`.

    Raises ScenarioError with every problem in it.
    """
    path, root = path_of(asked, folder)
    return read_topology(path, limits, root)


def read_topology(path: Path, limits: Limits = DEFAULT, root: Path | None = None) -> Topology:
    """Return the topology of a file. Raises ScenarioError with every problem in it."""
    tree = read_tree(str(path), read_file(path, limits, root), limits=limits)
    reader = _Reader(path, limits, root)
    found = reader.whole(tree)
    if reader.problems or found is None:
        raise ScenarioError(reader.problems)
    return found


class _Reader:
    """Reads one file, and collects what is wrong with it.

    Each method reads one key, and returns something that is harmless (a count of 1, a bandwidth of
    0) where it notes a problem: so all problems of a file are reported at once.
    """

    def __init__(self, path: Path, limits: Limits, root: Path | None) -> None:
        self.path, self.limits, self.root = path, limits, root
        self.problems: list[Problem] = []

    def wrong(self, message: str, mark: Mark | None, hint: str | None = None) -> None:
        self.problems.append(Problem(code="bad_topology", message=message, mark=mark, hint=hint))

    def whole(self, tree: Any) -> Topology | None:
        """Return the topology that a file describes, or None; what is wrong with it is noted."""
        if not isinstance(tree, Node):
            self.wrong("a topology is a mapping", tree.mark, "`scenario topology show flat`")
            return None
        known = ("version", "topology", "describes", "source", "like", "memory", "node", "links")
        keys = self.keys(tree, (*known, "gpu", "host", "eager", "collectives"), "a topology")
        version = keys.get("version")
        if version is not None and getattr(version, "value", None) != 1:
            self.wrong("`version` is 1", version.mark)
        name = self.text(keys.get("topology"), "topology", tree.mark) or self.path.stem
        describes = self.text(keys.get("describes"), "describes", tree.mark)
        source = self.text(keys.get("source"), "source", tree.mark)
        like = keys.get("like")
        kind = name if like is None else self.text(like, "like", tree.mark)
        node_ranks, strided = self.node(keys.get("node"))
        links = self.links(keys.get("links"))
        collectives = self.collectives(keys.get("collectives"))
        gpu = self.gpu(keys.get("gpu"))
        host = self.host(keys.get("host"))
        if gpu is not None:
            gpu = replace(gpu, operator=host.operator, kernel=host.kernel)
        eager = self.size(keys.get("eager"), "eager")
        if "links" not in keys and "collectives" not in keys:
            self.wrong("a topology has `links`, `collectives` or both", tree.mark, _NO_LINKS)
        if self.problems:
            return None
        return Topology(
            name=name,
            describes=describes or "",
            source=source or "",
            node_ranks=node_ranks,
            strided=strided,
            links=links,
            eager=eager,
            kind=kind or "",
            memory=self.size(keys.get("memory"), "memory"),
            gpu=gpu,
            host=host,
            **collectives,
        )

    # ------------------------------------------------------------------ pieces

    def keys(self, node: Any, known: tuple[str, ...], what: str) -> dict[str, Any]:
        """Return the values of a mapping by their keys; a key that is not known is noted."""
        if not isinstance(node, Node):
            self.wrong(f"{what} is a mapping", getattr(node, "mark", None))
            return {}
        found = {}
        for key, value in node.entries:
            name = key_text(key)
            if name in known:
                found[name] = value
                continue
            close = nearest(name, known)
            hint = f"did you mean `{close}`?" if close else f"known are {', '.join(known)}"
            self.wrong(f"{what} has no `{name}`", key.mark, hint)
        return found

    def text(self, node: Any, name: str, at: Mark) -> str | None:
        """Return a text that has to be there; None, and a problem, where it is missing."""
        value = getattr(node, "value", None)
        if isinstance(value, str) and value.strip():
            return value.strip()
        hints = {
            "source": "say where the numbers are from: a data sheet, a log, a paper",
            "describes": "say in a line which machine it is",
            "topology": "give it a name",
            "like": "name a machine of `scenario topology list`",
        }
        where = at if node is None else node.mark
        self.wrong(f"a topology without `{name}` is refused", where, hints[name])
        return None

    def _quantity(self, node: Any, name: str, read: Any, example: str, *, zero: bool) -> float:
        """Return a number with its unit; 0 and a problem where it is missing or makes no sense."""
        if not isinstance(node, Scalar):
            self.wrong(f"`{name}` is missing", getattr(node, "mark", None), f"as in {example}")
            return 0.0
        value = node.value
        if isinstance(value, int | float) and not isinstance(value, bool) and value < 0:
            self.wrong(f"`{name}` is negative", node.mark, f"as in {example}")
            return 0.0
        found = read(node.text)
        if found is None or not 0 <= found < inf:
            what = "is negative" if node.text.lstrip().startswith("-") else "has no such value"
            self.wrong(f"`{name}` {what}: {node.text!r}", node.mark, f"as in {example}")
            return 0.0
        if found == 0 and not zero:
            self.wrong(f"`{name}` is zero", node.mark, f"as in {example}")
        return float(found)

    def size(self, node: Any, name: str) -> float:
        if node is None:
            return 0.0
        return self._quantity(node, name, size_in_bytes, f"`{name}: 64KiB`", zero=True)

    def count(self, node: Any, name: str, least: int = 1) -> int:
        value = getattr(node, "value", None)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            mark = getattr(node, "mark", None)
            self.wrong(f"`{name}` is a whole number from {least} up", mark)
            return least
        return value

    def factor(self, node: Any, name: str) -> float:
        value = getattr(node, "value", None)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < inf:
            self.wrong(f"`{name}` is a number above zero", getattr(node, "mark", None))
            return 1.0
        return float(value)

    def node(self, node: Any) -> tuple[int | None, bool]:
        """Return how many ranks a node has (None: all are in one), and if they are strided."""
        if node is None:
            return None, False
        keys = self.keys(node, ("ranks", "order"), "`node`")
        ranks = self.count(keys["ranks"], "ranks") if "ranks" in keys else None
        if ranks is None:
            self.wrong("`node` says how many `ranks` it has", node.mark, "`node: {ranks: 8}`")
        order = getattr(keys.get("order"), "value", "blocks")
        if order not in {"blocks", "strided"}:
            hint = "`blocks`: 0 to 7 on the first node; `strided`: every n-th"
            self.wrong("`order` is `blocks` or `strided`", keys["order"].mark, hint)
        return ranks, order == "strided"

    def links(self, node: Any) -> dict[str, Links]:
        if node is None:
            return {}
        keys = self.keys(node, (PORT, NIC, SPINE), "`links`")
        found = {name: self.link(name, each) for name, each in keys.items()}
        if PORT not in keys:
            self.wrong("`links` has no `port`: what joins ranks of one node", node.mark, _NO_LINKS)
        if SPINE in keys and NIC not in keys:
            self.wrong("a `spine` joins nodes, and there is no `nic`", keys[SPINE].mark, _NO_NIC)
        return found

    def link(self, name: str, node: Any) -> Links:
        """Return the links of one kind: ports are one for each rank, NICs for a rank or a node."""
        known = ("per", "count", "bandwidth", "latency", "oversubscription", "pairwise")
        keys = self.keys(node, known, f"`{name}`")
        pairwise = getattr(keys.get("pairwise"), "value", False)
        if not isinstance(pairwise, bool) or (pairwise and name != PORT):
            self.wrong("`pairwise` is true or false, of a `port`", keys["pairwise"].mark)
        per = getattr(keys.get("per"), "value", None)
        mark = getattr(keys.get("per"), "mark", node.mark)
        if name == SPINE:
            groups = _NODES.fullmatch(per) if isinstance(per, str) else None
            if groups is None or int(groups[1]) < 1:
                self.wrong("`per` of a spine is as in `32 nodes`", mark)
                return Links()
            over = keys.get("oversubscription")
            late = keys.get("latency")
            return Links(
                nodes=int(groups[1]),
                oversubscription=1.0 if over is None else self.factor(over, "oversubscription"),
                latency=0.0
                if late is None
                else self._quantity(late, "latency", microseconds, "`2.7us`", zero=True),
            )
        allowed = ("rank",) if name == PORT else ("rank", "node")
        if per not in allowed:
            words = " or ".join(f"`{each}`" for each in allowed)
            self.wrong(f"`per` of `{name}` is {words}", mark)
        speed = keys.get("bandwidth") or node
        late = keys.get("latency") or node
        return Links(
            bandwidth=self._quantity(speed, "bandwidth", bandwidth, "`360GB/s`", zero=False),
            latency=self._quantity(late, "latency", microseconds, "`0.6us`", zero=True),
            count=(self.count(keys["count"], "count") if "count" in keys else 1)
            if per == "node"
            else 0,
            pairwise=pairwise is True,
        )

    def gpu(self, node: Any) -> Gpu | None:
        """Return what kernels take on a GPU: its peaks, and what parts of them kernels reach."""
        if node is None:
            return None
        reached = ("matmul", "attention", "attention_backward", "memory")
        known = ("tflops", "bandwidth", "reached", "least", "sms", "compared", "source")
        keys = self.keys(node, known, "`gpu`")
        peaks = self.keys(keys.get("tflops"), PEAKS, "`tflops`")
        parts = self.keys(keys.get("reached"), reached, "`reached`")
        parts = {"attention_backward": parts.get("attention"), **parts}
        tflops = {name: self.factor(each, name) for name, each in peaks.items()}
        if not {"bfloat16", "float32"} <= set(tflops):
            self.wrong("`tflops` has `bfloat16` and `float32`", node.mark, "`{bfloat16: 989, ...}`")
        read = self._quantity
        return Gpu(
            tflops=tflops,
            bandwidth=read(keys.get("bandwidth"), "bandwidth", bandwidth, "`3.35TB/s`", zero=False),
            least=read(keys.get("least"), "least", microseconds, "`2us`", zero=True),
            matmul=self.factor(parts.get("matmul"), "matmul"),
            attention=self.by_head(parts.get("attention"), "attention"),
            attention_backward=self.by_head(parts["attention_backward"], "attention_backward"),
            memory=self.factor(parts.get("memory"), "memory"),
            sms=self.count(keys["sms"], "sms") if "sms" in keys else 0,
            compared=self.comparison(keys.get("compared")),
            source=self.text(keys.get("source"), "source", node.mark) or "",
        )

    def comparison(self, node: Any) -> ComparedSteps | None:
        """Return with how many steps a machine's times were compared, and what most took."""
        if node is None:
            return None
        keys = self.keys(node, ("steps", "between"), "`compared`")
        items = keys["between"].items if isinstance(keys.get("between"), Sequence) else []
        low, high = ([self.factor(each, "between") for each in items] + [1.0, 1.0])[:2]
        if len(items) != 2 or low > high:
            hint = "`between: [0.93, 1.12]`: measured over forecast of 80 % of the steps"
            self.wrong("`between` of `compared` is two numbers, the lower first", node.mark, hint)
        return ComparedSteps(low, high, self.count(keys.get("steps"), "steps"))

    def by_head(self, node: Any, name: str) -> tuple[tuple[int, float], ...]:
        """Return the part that attention reaches, by the size of a head; 0 is any size."""
        if not isinstance(node, Node):
            return ((0, self.factor(node, name)),)
        found = {}
        for key, value in node.entries:
            text = key_text(key)
            if not (text.isascii() and text.isdigit()):
                self.wrong(f"`{name}` is by the size of a head", key.mark, "`{64: 0.34, 128: 0.6}`")
                continue
            found[int(text)] = self.factor(value, name)
        return tuple(sorted(found.items()))

    def host(self, node: Any) -> HostSpeed:
        if node is None:
            return HostSpeed()
        times = ("operator", "kernel", "tensor")
        keys = self.keys(node, (*times, "compared", "source"), "`host`")
        found = {
            name: self._quantity(keys[name], name, microseconds, f"`{name}: 5us`", zero=True)
            for name in times
            if name in keys
        }
        source = self.text(keys.get("source"), "source", node.mark) or ""
        compared = self.comparison(keys.get("compared"))
        return HostSpeed(source=source, compared=compared, **found)

    # ------------------------------------------------------------------ collectives

    def collectives(self, node: Any) -> dict[str, Any]:
        if node is None:
            return {}
        model = getattr(node.get("model"), "value", None) if isinstance(node, Node) else None
        if model not in {"steps", "nccl", "table"}:
            mark = getattr(node, "mark", None)
            self.wrong("`model` of `collectives` is `steps`, `nccl` or `table`", mark)
            return {}
        if model == "steps":
            self.keys(node, ("model",), "`collectives`")
            return {"model": "steps"}
        return {"model": model, **(self.nccl(node) if model == "nccl" else self.table(node))}

    def nccl(self, node: Node) -> dict[str, Any]:
        known = ("model", *_TUNER, *_HOSTED, "factor")
        keys = self.keys(node, known, "`collectives`")
        factor = keys.get("factor")
        apart = isinstance(factor, Node)
        factors = self.keys(factor, FACTORED, "`factor`") if apart else {}
        times = {
            name: self._quantity(keys[name], name, microseconds, f"`{name}: 14us`", zero=True)
            for name in _HOSTED
            if name in keys
        }
        return {
            "tuner": self.tuner(keys, node),
            "factor": 1.0 if factor is None or apart else self.factor(factor, "factor"),
            "factors": {name: self.factor(each, name) for name, each in factors.items()},
            **times,
        }

    def tuner(self, keys: Mapping[str, Any], node: Any) -> Tuner | None:
        """Return NCCL's tuner on the machine."""
        version = str(getattr(keys.get("version"), "text", ""))
        constants = constants_of(version)
        if constants is None:
            hint = f"known are {', '.join(VERSIONS)} and what came between them"
            mark = getattr(keys.get("version"), "mark", node.mark)
            self.wrong("`version` is a version of NCCL, as 2.30.7", mark, hint)
        gpu = getattr(keys.get("gpu"), "value", None)
        if gpu not in GPUS:
            mark = getattr(keys.get("gpu"), "mark", node.mark)
            self.wrong(f"`gpu` is one of {', '.join(GPUS)}", mark)
        channels = self.channels(keys.get("channels"), node)
        words: dict[str, str] = {}
        for name, allowed, default in (
            ("cpu", ("intel", "amd", "other"), "intel"),
            ("tree", ("tree", "balanced"), "tree"),
            ("inside", (NVLINK, PCIE), NVLINK),
            ("protocol", (ALL, *PROTOCOLS), ALL),
        ):
            words[name] = getattr(keys.get(name), "value", default)
            if words[name] not in allowed:
                self.wrong(f"`{name}` is one of {', '.join(allowed)}", keys[name].mark)
        if constants is None or self.problems:
            return None
        known = (version, constants, str(gpu), words["cpu"], words["tree"], channels)
        return Tuner(*known, words["inside"], words["protocol"])

    def channels(self, node: Any, whole: Any) -> dict[str, Channels]:
        """Return, by algorithm, how many channels there are and the GB/s of each."""
        if node is None:
            hint = "`channels: {ring: [24, 15]}`: how many, and GB/s of each"
            self.wrong("`channels` is missing", whole.mark, hint)
            return {}
        found = {}
        algorithms = ("ring", "tree", "nvls", "nvls_tree")
        for name, each in self.keys(node, algorithms, "`channels`").items():
            items = each.items if isinstance(each, Sequence) else []
            numbers = [getattr(item, "value", None) for item in items]
            fits = all(
                isinstance(one, int | float) and not isinstance(one, bool) and 0 < one < inf
                for one in numbers
            )
            whole_count = isinstance(next(iter(numbers), None), int)
            if len(numbers) not in {2, 3} or not fits or not whole_count:
                hint = "`[24, 15]`: how many channels, GB/s of each (a third: between nodes)"
                self.wrong(f"`{name}` of `channels` is two or three numbers", each.mark, hint)
                continue
            count, inside, between = (*numbers, numbers[1])[:3]
            found[name] = Channels(int(count), float(inside), float(between))  # type: ignore[arg-type]
        if "ring" not in found and not self.problems:
            self.wrong("`channels` has no `ring`", node.mark)
        return found

    def table(self, node: Node) -> dict[str, Any]:
        """Return the tables of measured times, by collective and number of ranks, and the tuner."""
        tables: dict[str, dict[int, Table]] = {}
        tuner = None
        for key, value in node.entries:
            name = key_text(key)
            if name == "model":
                continue
            if name in {*_HOSTED, "factor"}:
                message = f"`{name}` is of `model: nccl`: a table has it in its times"
                self.wrong(message, key.mark, "leave it out")
                continue
            if name == "tuner":
                tuner = self.tuner(self.keys(value, _TUNER, "`tuner`"), value)
                continue
            try:
                name = name_table(name)
            except ScenarioError as error:
                self.wrong(error.problems[0].message, key.mark, error.problems[0].hint)
                continue
            if not isinstance(value, Node):
                hint = "`all_reduce: {8: log.txt}` or `{8: {64M: 822us}}`"
                self.wrong(f"`{name}` has a table for each number of ranks", value.mark, hint)
                continue
            tables.setdefault(name, {}).update(self.by_ranks(value, name))
        if not any(tables.values()) and not self.problems:
            self.wrong("`collectives` has no table", node.mark)
        return {"tables": tables, "tuner": tuner}

    def by_ranks(self, node: Node, collective: str) -> dict[int, Table]:
        """Return the tables of a collective, by numbers of ranks."""
        found = {}
        for key, given in node.entries:
            text = key_text(key)
            count = int(text) if text.isascii() and text.isdigit() else 0
            if count < 2:
                self.wrong("a table is for a number of ranks, from 2 up", key.mark)
                continue
            table = self._read_table(given, collective, count)
            if table is not None:
                found[count] = table
        return found

    def _read_table(self, node: Any, collective: str, ranks: int) -> Table | None:
        """Return a table: the rows of a log, or sizes with their times."""
        if isinstance(node, Node):
            rows = []
            for key, value in node.entries:
                size = size_in_bytes(key_text(key))
                if size is None or not 0 < size < inf:
                    self.wrong("a row of a table begins with a size, as 64M", key.mark)
                    continue
                time = self._quantity(
                    value, key_text(key), microseconds, "`64M: 822us`", zero=False
                )
                rows.append((size, time))
            return Table.of(rows, "as stated") if rows and not self.problems else None
        text = getattr(node, "value", None)
        if not isinstance(text, str):
            mark = getattr(node, "mark", None)
            self.wrong("a table is the name of an nccl-tests log, or rows", mark)
            return None
        path = self.path.parent / text
        try:
            logs = read_logs(path, read_file(path, self.limits, self.root))
            (log,) = choose_logs(logs, path, collective, ranks)
            return log.table()
        except ScenarioError as error:
            self.wrong(error.problems[0].message, node.mark, error.problems[0].hint)
            return None
