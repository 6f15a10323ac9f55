"""NCCL's own forecast of a collective: `ncclTopoTuneModel` and `ncclTopoGetAlgoTime`, rebuilt.

From NVIDIA/nccl src/graph/tuning.cc, of each release that changed it, with the commit of that
release. NCCL makes these times to *choose* an algorithm, not to forecast: docs/explanation says how
far off they are. Left out are CollNet and PAT, which need hardware or a size of node that no
topology describes. In one node the network bounds nothing: `bwInter` counts for several alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

#: by protocol: LL, LL128, Simple
Three: TypeAlias = tuple[float, float, float]
PROTOCOLS = ("LL", "LL128", "Simple")
LL, LL128, SIMPLE = range(3)
ALL = "all"

GPUS = ("volta", "ampere", "hopper", "blackwell")
#: what joins the GPUs of a node
NVLINK, PCIE = "nvlink", "pcie"
RING, TREE, NVLS, NVLS_TREE = "ring", "tree", "nvls", "nvls_tree"

#: for one, two, and more nodes; a row for each GPU
PerNodes: TypeAlias = tuple[Three, ...]

_LL_MAX_OLD = ((39.0, 39.0, 20.4), (87.7, 22.5, 19.0), (87.7, 22.5, 19.0))
_LL_MAX = ((39.0, 39.0, 20.4), (87.7, 22.5, 19.0), (141.0, 45.0, 35.0), (282.0, 90.0, 70.0))
_RING_LL128 = ((20.0,) * 3, (20.0,) * 3, (36.7,) * 3)
_TREE_LL128 = ((20.0,) * 3, (20.0,) * 3, (36.7, 36.7, 29.0))
_TREE = ((26.5, 18.5, 10.0), (24.0, 23.6, 17.8), (38.7, 41.4, 36.0))
_NVLS_TREE = ((26.5, 18.5, 10.0), (24.0, 23.6, 17.8), (0.0, 57.7, 45.5))
#: of what NVLink can do, in NVLS, since 2.28
_NVLS_EFFICIENCY = {"hopper": 0.85, "blackwell": 0.74}

_CORRECTION = tuple(
    tuple(map(float, row.split()))
    for row in (
        "1 1 1 1 .9 .8 .7 .7 .7 .7 .6 .5 .4 .4 .5 .6 .7 .8 .9 1 1 1 1",
        "1 1 1 1 1 .9 .8 .8 .8 .7 .6 .6 .6 .6 .6 .6 .8 .9 .9 .9 .9 1 1",
        ".9 .9 .9 .9 .9 .9 .9 .8 .7 .6 .6 .5 .5 .5 .5 .6 .7 .8 .7 .7 .8 .9 .9",
    )
)


class Constants(Struct, frozen=True, kw_only=True):
    """What one release of NCCL has: latencies in microseconds, bandwidths in GB/s (1e9).

    `base`, `nvlink` and `net` are the tables `baseLat` and `hwLat` of tuning.cc, by algorithm: what
    a call takes before its first hop, what a hop takes over NVLink, and over the network. `ll_max`
    is `llMaxBws`, the others `perChMax...` for a channel.
    """

    released: str
    commit: str
    base: Mapping[str, Three]
    nvlink: Mapping[str, Three]
    net: Mapping[str, Three]
    ll_max: PerNodes
    #: the tree's Simple in a node without NVLink; the other latencies of PCIe never changed
    pcie_tree: float = 4.0
    ring_ll128: PerNodes = _RING_LL128
    tree_ll128: PerNodes = _TREE_LL128
    tree: PerNodes = _TREE
    nvls_tree: PerNodes = _NVLS_TREE
    #: how formulas are written: 218, 219, 221, 223, 227 or 228
    form: int = 223
    #: whether NVLS trees are corrected as trees are, on Blackwell
    corrects_nvls_tree: bool = False

    def inside(self, joined_by: str) -> Mapping[str, Three]:
        """Return the latencies in a node whose GPUs are joined by `nvlink`, or by `pcie`."""
        if joined_by != PCIE:
            return self.nvlink
        none = _zeros(0.0)
        ring, tree = (1.0, 2.5, 5.7), (1.0, 1.9, self.pcie_tree)
        return {RING: ring, TREE: tree, NVLS: none, NVLS_TREE: none}


def _zeros(simple: float) -> Three:
    return (0.0, 0.0, simple)


_NET = {RING: (2.7, 4.0, 14.0), NVLS: _zeros(18.0)}
_2_18 = Constants(
    released="2023-06-13",
    commit="ea383122",
    base={RING: (6.6, 14.0, 8.4), TREE: (6.8, 14.0, 0.0), NVLS: _zeros(23), NVLS_TREE: _zeros(23)},
    nvlink={RING: (0.6, 1.9, 3.4), TREE: (0.6, 1.25, 4.0), NVLS: _zeros(0), NVLS_TREE: _zeros(0)},
    net={**_NET, TREE: (5.0, 8.5, 14.0), NVLS_TREE: _zeros(19.0)},
    ll_max=_LL_MAX_OLD,
    pcie_tree=6.0,
    form=218,
)
_2_19 = replace(
    _2_18,
    pcie_tree=28.0,
    released="2023-09-26",
    commit="f9c3dc25",
    base={RING: (6.6, 14.0, 8.4), TREE: (6.8, 14.0, 0.0), NVLS: _zeros(0), NVLS_TREE: _zeros(0)},
    nvlink={
        RING: (0.6, 1.9, 3.4),
        TREE: (0.6, 1.25, 28.0),
        NVLS: _zeros(23),
        NVLS_TREE: _zeros(23),
    },
    net={**_NET, TREE: (5.0, 8.5, 28.0), NVLS_TREE: _zeros(14.0)},
    form=219,
)
_2_21 = replace(
    _2_19,
    released="2024-03-26",
    commit="ab2b89c4",
    nvlink={**_2_19.nvlink, NVLS: _zeros(25), NVLS_TREE: _zeros(25)},
    ll_max=_LL_MAX,
    form=221,
)
_2_23 = replace(
    _2_21,
    pcie_tree=4.0,
    released="2024-09-10",
    commit="68b54236",
    base={**_2_21.base, TREE: (6.8, 14.0, 8.4)},
    nvlink={**_2_21.nvlink, TREE: (0.6, 1.25, 4.0)},
    net={**_2_21.net, TREE: (5.0, 8.5, 14.0)},
    form=223,
)
_2_25 = replace(
    _2_23,
    released="2025-01-27",
    commit="80f6bda4",
    ring_ll128=(*_RING_LL128, (73.4,) * 3),
    tree_ll128=(*_TREE_LL128, (73.4, 73.4, 58.0)),
    tree=(*_TREE, (77.4, 82.8, 72.0)),
)
_2_27 = replace(_2_25, released="2025-05-29", commit="72d24320", form=227)
_2_28 = replace(
    _2_27,
    released="2025-09-02",
    commit="f1308997",
    tree_ll128=(*_TREE_LL128, (55.6, 31.67, 20.0)),
    tree=(*_TREE, (70.0, 42.8, 24.0)),
    nvls_tree=(*_NVLS_TREE, (0.0, 96.0, 43.1)),
    form=228,
)
_2_28_7 = replace(
    _2_28,
    released="2025-10-17",
    commit="ae7aed19",
    ring_ll128=(*_RING_LL128, (73.4, 34.6, 73.4)),
)
_2_28_9 = replace(
    _2_28_7,
    released="2025-11-10",
    commit="dbc86fd0",
    net={**_2_28.net, NVLS_TREE: _zeros(20.9)},
    nvls_tree=(*_NVLS_TREE, (0.0, 96.0, 43.8)),
)
_2_29 = replace(
    _2_28_9,
    released="2025-12-23",
    commit="ebd1e929",
    ring_ll128=(*_RING_LL128, (34.5, 34.6, 34.5)),
    corrects_nvls_tree=True,
)
_2_29_7 = replace(
    _2_29, released="2026-02-27", commit="56a0c229", ring_ll128=(*_RING_LL128, (40.0,) * 3)
)
_2_30 = replace(
    _2_29_7,
    released="2026-03-24",
    commit="b3aeda4a",
    nvls_tree=(*_NVLS_TREE, (0.0, 96.0, 80.0)),
)

#: release -> its constants; a release between two has those of the earlier one
VERSIONS: Mapping[str, Constants] = {
    "2.18.3": _2_18,
    "2.19.1": _2_19,
    "2.21.5": _2_21,
    "2.23.4": _2_23,
    "2.25.1": _2_25,
    "2.27.3": _2_27,
    "2.28.3": _2_28,
    "2.28.7": _2_28_7,
    "2.28.9": _2_28_9,
    "2.29.2": _2_29,
    "2.29.7": _2_29_7,
    "2.30.3": _2_30,
}


def _parts(version: str) -> tuple[int, ...] | None:
    parts = version.removeprefix("v").partition("-")[0].partition("+")[0].split(".")
    return tuple(map(int, parts)) if parts and all(part.isdigit() for part in parts) else None


def constants_of(version: str) -> Constants | None:
    """Return the constants of a release; None for one before 2.18.1, or that is no version.

    Of two numbers, as 2.30, they are those of the last release that begins so.

    >>> constants_of("2.21.5").released, constants_of("2.22.3").released
    ('2024-03-26', '2024-03-26')
    >>> constants_of("2.17.1") is None
    True
    """
    asked = _parts(version)
    if asked is not None and len(asked) == 2:
        asked = (*asked, sys.maxsize)
    if asked is None or asked < (2, 18, 1):
        return None
    known = [each for name, each in VERSIONS.items() if (_parts(name) or ()) <= asked]
    return known[-1] if known else _2_18


#: GPUs of a node up to which NCCL leaves NVLS alone (`ncclNvlsInit`, src/transport/nvls.cc)
FEW_FOR_NVLS = 2


class Channels(Struct, frozen=True):
    """How many channels NCCL's search found, and the GB/s of each, in a node and between nodes.

    A channel is a ring or a tree of its own, run by its own thread blocks; a tensor is cut over
    them. `NCCL_DEBUG=INFO` with `NCCL_DEBUG_SUBSYS=GRAPH` prints what the search found.
    """

    count: int
    inside: float
    between: float

    def take_part(self, part: float, nics: int, reach: float) -> float:
        """Return which part of these channels has a group with a part of a node's NICs."""
        if nics <= self.count:
            return part
        return min(1.0, part * reach / (self.count * self.between))


class TunerChoice(Struct, frozen=True):
    """What NCCL would take, and the time it forecasts, in microseconds."""

    algorithm: str
    protocol: str
    time: float

    @property
    def way(self) -> tuple[str, str]:
        """The algorithm and the protocol."""
        return self.algorithm, self.protocol


#: NCCL's collectives, by torch's names
ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = "all_reduce", "all_gather", "reduce_scatter"
BROADCAST, REDUCE = "broadcast", "reduce"

COLLECTIVES = frozenset({ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, REDUCE})
_HALVES = frozenset({ALL_GATHER, REDUCE_SCATTER})
_ROOTED = frozenset({BROADCAST, REDUCE})


#: bytes of a chunk of NVLS (`nvlsChunkSize`), and of its tree from four nodes on
CHUNK, CHUNK_OF_MANY, MANY_NODES = 128 * 1024, 64 * 1024, 4
#: smaller chunks, where a call has fewer bytes than so many chunks of all that are under way at
#: once (`calcCollChunking` in src/enqueue.cc)
SMALLER_CHUNKS = {
    NVLS: ((64, 64 * 1024), (8, 32 * 1024), (2, 16 * 1024)),
    NVLS_TREE: ((4, 64 * 1024), (1, 32 * 1024)),
}
#: what the pipeline of chunks takes to fill, in chunks: in a node, and between nodes; and the
#: microseconds that a chunk takes to be handed on. Read off sums of 8 H100, and of 16
FILL_IN_NODE, FILL_BETWEEN, HAND_ON = 1.5, 2.0, 2.0


#: channels of messages in a node, and the bytes of a message up to which one channel more is not
#: taken (`addP2pToPlan` in src/enqueue.cc: 32 chunks of 512 KiB); GB/s of a channel that sends and
#: receives at once: read off rings of messages of 64 MiB on 8 B200, B300 and H100, and on two A100
P2P_CHANNELS, MOST_OF_CHANNEL = 32, 16 * 2**20
P2P_SPEEDS = {"ampere": 13.8, "hopper": 20.5, "blackwell": 21.0}


def count_p2p_channels(size: float, ranks: int) -> int:
    """Return how many channels carry a message between two of so many ranks of one node.

    All peers of a rank have as many at first, so that few are left for each of many. A message of
    more than 16 MiB a channel gets twice as many, and so on: in a node of 8, 64 MiB go by four.

    >>> [count_p2p_channels(mib * 2.0**20, 8) for mib in (1, 64, 65, 1024)]
    [4, 4, 8, 32]
    """
    channels = P2P_CHANNELS
    while channels * ranks > P2P_CHANNELS and channels > 1:
        channels //= 2
    while size > MOST_OF_CHANNEL * channels and channels < P2P_CHANNELS:
        channels *= 2
    return channels


class Tuner(Struct, frozen=True):
    """NCCL's model on one machine. `cpu` is intel, amd or other; `tree` NCCL's tree pattern.

    `inside` is what joins the GPUs of a node: over PCIe NCCL takes other latencies, and no LL128.
    `protocol` is the one that NCCL_PROTO leaves, as plugins of networks set it, or ALL.

    LL sends 4 bytes of data with 4 of a flag, so that a receiver polls memory and needs no barrier:
    half of the bandwidth, least latency. LL128 has 120 bytes of data in 128, where NVLink keeps
    such stores whole. Simple fences once a chunk: all of the bandwidth, most latency.
    """

    version: str
    constants: Constants
    gpu: str
    cpu: str
    tree: str
    channels: Mapping[str, Channels]
    inside: str = NVLINK
    protocol: str = ALL

    def cut_inside(self, part: float) -> Tuner:
        """Return the tuner of a group that has a part of the wires of its node.

        Where each GPU has a wire to each other one, as on MI300X and on boards of four A100, three
        of eight have two wires of seven each, and rings over these alone.
        """
        if part == 1:
            return self
        cut = {
            name: replace(each, inside=each.inside * part) for name, each in self.channels.items()
        }
        return replace(self, channels=cut)

    def cut_to_part(self, part: float, nics: int = 0, reach: float = 0.0) -> Tuner:
        """Return the tuner of a group over nodes that has a part of the NICs of each.

        NCCL's search (`ncclTopoCompute` in src/graph/search.cc) raises the bandwidth of a ring in a
        node and between nodes together, so that a ring has the channels of these NICs alone. That
        of a tree in a node it raises on, up to twice that of the NICs, and that of NVLS has nothing
        to do with them: two GPUs of each of two nodes are joined by NVLink as they were.

        A channel leaves a node by one NIC. Where a node has more NICs than channels, as a rack of
        72 GPUs, NVLink bounds them, and not the NICs: a part has then what its own NICs carry.
        `nics` are the NICs of a node, and `reach` the GB/s of all of them.
        """
        if part == 1:
            return self
        return replace(self, channels=dict(self._cut_channels(part, nics, reach)))

    def _cut_channels(self, part: float, nics: int, reach: float) -> Iterator[tuple[str, Channels]]:
        for name, each in self.channels.items():
            own = each.take_part(part, nics, reach)
            if name in {NVLS, NVLS_TREE}:
                yield name, Channels(each.count, each.inside, each.between * own)
            else:
                count = max(1, round(each.count * own))
                speed = each.count * own / count
                yield name, Channels(count, each.inside * speed, each.between * speed)
        trees = self._find_channels(TREE)
        assert trees is not None
        own = trees.take_part(part, nics, reach)
        count = max(1, round(trees.count * own))
        between = trees.between * trees.count * own / count
        inside = min(trees.inside * trees.count / count, 2 * between)
        yield TREE, Channels(count, inside, between)

    def choices(
        self, collective: str, size: float, ranks: int, nodes: int
    ) -> Iterator[TunerChoice]:
        """Yield every algorithm and protocol that NCCL would weigh, each with its time."""
        if ranks < 2:
            yield TunerChoice(RING, PROTOCOLS[LL], 0.0)
            return
        for algorithm in (RING, TREE, NVLS, NVLS_TREE):
            for protocol in (LL, LL128, SIMPLE):
                if self.protocol not in (ALL, PROTOCOLS[protocol]):
                    continue
                speed = self._speed(collective, algorithm, protocol, ranks, nodes)
                if speed > 0:
                    late = self._latency(collective, algorithm, protocol, ranks, nodes)
                    asked = (collective, algorithm, protocol, size)
                    time = self._time(*asked, speed, late, ranks=ranks, nodes=nodes)
                    yield TunerChoice(algorithm, PROTOCOLS[protocol], time)

    def best(self, collective: str, size: float, ranks: int, nodes: int) -> TunerChoice:
        """Return what NCCL takes: the first of the quickest.

        collective   as torch calls it: all_reduce, all_gather, ...
        size         bytes, as nccl-tests counts them: of the output for all_gather
        ranks, nodes how many ranks on how many nodes
        """
        return min(self.choices(collective, size, ranks, nodes), key=lambda each: each.time)

    def pipeline_us(
        self, algorithm: str, collective: str, size: float, ranks: int, nodes: int
    ) -> float:
        """Return what a call's pipeline takes of which NCCL's tuner does not know, in microseconds.

        NVLS sends its bytes in chunks, one for each GPU of a node and channel at once: NVLink sums
        a chunk, the tree hands it to other nodes and back, and all get it. So the last chunk comes
        through all stages when the first have long been done. A call of few bytes has few chunks,
        however small: its pipeline hardly fills, and it takes up to three times as long.
        """
        found = self._find_channels(algorithm)
        if algorithm not in SMALLER_CHUNKS or found is None:
            return 0.0
        is_tree = algorithm == NVLS_TREE
        at_once = found.count * ranks / nodes
        chunk = CHUNK_OF_MANY if is_tree and nodes >= MANY_NODES else CHUNK
        for times, smaller in SMALLER_CHUNKS[algorithm]:
            if size < times * at_once * chunk:
                chunk = min(chunk, smaller)
        count = max(1.0, size / (at_once * chunk))
        speed = self._speed(collective, algorithm, SIMPLE, ranks, nodes)
        stages = FILL_BETWEEN if is_tree else FILL_IN_NODE
        return stages * size / (1000 * speed) / count + HAND_ON * count

    def count_channels(self, algorithm: str, nodes: int, nics: int) -> int:
        """Return how many channels an algorithm has, each of which takes an SM.

        Between nodes NCCL has two for each NIC of a node at the most: on two p5 it logs 16 of the
        24 that it has in a node ("16 coll channels, 16 nvls channels").
        """
        found = self._find_channels(algorithm)
        count = found.count if found else 0
        return min(count, 2 * nics) if nodes > 1 and nics else count

    # ------------------------------------------------------------------ ncclTopoTuneModel

    def _find_channels(self, algorithm: str) -> Channels | None:
        """Return the channels of an algorithm; a tree has those of the ring where none are said."""
        if algorithm == TREE:
            return self.channels.get(TREE) or self.channels[RING]
        if algorithm == NVLS_TREE:
            return self.channels.get(NVLS_TREE) or self.channels.get(NVLS)
        return self.channels.get(algorithm)

    def _applies(self, collective: str, algorithm: str, protocol: int, nodes: int) -> bool:
        """Whether NCCL has a collective in an algorithm and a protocol at all."""
        if algorithm == NVLS:  # between nodes NVLS needs SHARP
            since = 218 if collective == ALL_REDUCE else 219
            return (
                protocol == SIMPLE
                and nodes == 1
                and collective not in _ROOTED
                and self.constants.form >= since
            )
        if algorithm == NVLS_TREE:
            return protocol == SIMPLE and nodes > 1 and collective == ALL_REDUCE
        return algorithm == RING or collective == ALL_REDUCE

    def _speed(
        self, collective: str, algorithm: str, protocol: int, ranks: int, nodes: int
    ) -> float:
        """Return GB/s of the bytes of a collective; 0 where it cannot be taken."""
        found, form = self._find_channels(algorithm), self.constants.form
        if protocol == LL128 and self.inside == PCIE:
            return 0.0
        if found is None or not self._applies(collective, algorithm, protocol, nodes):
            return 0.0
        gpu = GPUS.index(self.gpu)
        at = min(nodes, 3) - 1
        per_node = ranks / nodes
        # What follows is `ncclTopoTuneModel` in NCCL's src/graph/tuning.cc: the bandwidth of a
        # channel times their number, less what the protocol costs (LL sends 4 bytes of flags with 4
        # of data, LL128 8 with 120), at most what a kernel of that GPU can move. A ring sends its
        # bytes in `steps` of 1 / ranks.
        steps = ring_steps(collective, ranks)
        if algorithm in {NVLS, NVLS_TREE}:
            bus = found.count * self._multicast(collective, algorithm, found, per_node, nodes)
            return bus * self._multicast_share(collective, algorithm, ranks, nodes)
        bus = found.count * self._channel(algorithm, found, nodes)
        row = gpu if nodes == 1 else int(self.cpu == "amd")
        ll_max = _find_row(self.constants.ll_max, row)[at]
        if algorithm == RING and protocol == LL:
            return min(ll_max, bus * self._scale_for_ll(collective, nodes)) * ranks / steps
        if algorithm == RING and protocol == LL128:
            share = 0.7 if form < 223 and per_node < 2 else 0.92
            most = found.count * _find_row(self.constants.ring_ll128, gpu)[at]
            return min(bus * share, most) * ranks / steps
        if algorithm == RING:
            return bus * ranks / steps
        bus = min(bus * 0.92, found.count * _find_row(self.constants.tree, gpu)[at])
        if protocol == LL:
            bus = min(bus / 3.8, ll_max)
        elif protocol == LL128:
            share = 7 / 9 if nodes == 1 else 120 / 128
            bus = min(bus * share, found.count * _find_row(self.constants.tree_ll128, gpu)[at])
        if self.tree == "tree":
            bus *= 0.85
        return bus * 0.5

    def _channel(self, algorithm: str, found: Channels, nodes: int) -> float:
        """Return GB/s of a channel of a ring or a tree, as NCCL's search finds it.

        Over two nodes it is that in a node, which is at most that of the NICs in a ring, and
        than twice that in a tree (`ncclTopoCompute` in src/graph/search.cc).
        """
        if nodes == 1:
            return found.inside
        if nodes == 2:
            return min(found.inside, found.between * (2 if algorithm == TREE else 1))
        return found.between

    def _scale_for_ll(self, collective: str, nodes: int) -> float:
        """Return what LL leaves of a ring's bandwidth."""
        if self.constants.form >= 221:
            return 0.5
        return 1 / 4 if nodes > 1 or collective in {ALL_REDUCE, REDUCE} else 1 / 3

    def _multicast_share(self, collective: str, algorithm: str, ranks: int, nodes: int) -> float:
        """Return bandwidth of the bytes of a collective for that of the bus, with NVLS."""
        form, all_reduce = self.constants.form, collective == ALL_REDUCE
        if form == 218 and algorithm == NVLS_TREE:
            return 0.70 * nodes / (2 * (nodes - 1))
        if not all_reduce and form >= 223:
            return 1.0
        return ranks / ring_steps(collective, ranks) if form >= 228 else 5 / 6

    def _multicast(
        self, collective: str, algorithm: str, found: Channels, per_node: float, nodes: int
    ) -> float:
        """Return GB/s of a channel of NVLS or its tree; 0 where a node has too few GPUs."""
        if per_node <= FEW_FOR_NVLS:
            return 0.0
        form, inside = self.constants.form, found.inside
        between = found.between if nodes > 1 else float("inf")
        if form >= 228:
            if found.count < 2:
                return 0.0
            inside *= _NVLS_EFFICIENCY.get(self.gpu, 0.0) * (found.count - 1) / found.count
            inside *= 2 if collective == ALL_REDUCE else (per_node - 1) / per_node
            if algorithm == NVLS:
                return min(inside, between)
            most = _find_row(self.constants.nvls_tree, GPUS.index(self.gpu))[min(nodes, 3) - 1]
            return min(inside, between * (2 if nodes <= 2 else 1), most)
        if form == 218:
            return inside if nodes <= 2 else between
        if algorithm == NVLS_TREE:
            return min(inside, between if nodes <= 2 else between / 2)
        if form >= 227 and collective != ALL_REDUCE:
            return min(inside * (per_node - 1) / per_node, between * 0.9)
        return min(inside, between)

    def _latency(
        self, collective: str, algorithm: str, protocol: int, ranks: int, nodes: int
    ) -> float:
        """Return the latency of a collective, in microseconds: base, hops in nodes, hops between.

        A ring over 2 nodes of 8 has 14 hops in a node and 2 between; an all_reduce goes round
        twice.
        """
        constants, form = self.constants, self.constants.form
        base = constants.base[algorithm][protocol]
        in_a_node = constants.inside(self.inside)
        inside = in_a_node[algorithm][protocol]
        between = constants.net[algorithm][protocol]
        if form >= 223 and ranks == nodes:
            between = constants.net[TREE][protocol]
        depth = nodes.bit_length() - 1
        if algorithm == TREE:
            return base + 2 * ((ranks // nodes - 1) * inside + depth * between)
        if algorithm == NVLS:
            begun = base if form == 218 else inside
            return begun + (between if nodes > 1 else 0.0)
        if algorithm == NVLS_TREE and form == 218:
            return base + 2 * (nodes - 1) * between
        if algorithm == NVLS_TREE:
            return base + inside + 2 * depth * between
        steps = ring_steps(collective, ranks)
        if collective in _ROOTED:
            where = in_a_node if nodes == 1 else constants.net
            return base + steps * where[TREE if protocol == SIMPLE else RING][protocol]
        across = 0
        if nodes > 1:
            # what the host takes to post to the network
            overhead = 2.0 if self.cpu == "amd" else 1.0
            inside = max(inside, overhead * (3 if protocol == SIMPLE else 1))
            across = nodes - 1
            if collective == ALL_REDUCE:
                across = 2 * (nodes - 1) if form >= 223 else 2 * nodes
        return base + (steps - across) * inside + across * between

    # ------------------------------------------------------------------ ncclTopoGetAlgoTime

    def _time(
        self,
        collective: str,
        algorithm: str,
        protocol: int,
        size: float,
        speed: float,
        late: float,
        *,
        ranks: int,
        nodes: int,
    ) -> float:
        """Return the time of a collective in microseconds: latency, and bytes at the speed in GB/s.

        1 GB/s is 1000 bytes a microsecond. A tree's bandwidth is corrected by a table over sizes
        from 64 bytes, a row of it for each protocol and a column for each doubling.
        """
        log_size = (int(size) >> 6).bit_length() - 1
        corrected = algorithm == TREE or (
            algorithm == NVLS_TREE and self.constants.corrects_nvls_tree and self.gpu == "blackwell"
        )
        if corrected and 0 <= log_size < 23:
            speed *= _CORRECTION[protocol][log_size]
        ring = self.channels[RING]
        plateau = algorithm == RING and protocol == SIMPLE and collective == ALL_REDUCE
        if plateau and nodes > 1 and size // (ring.count * ranks) >= 64:
            late *= 1.9 if self.gpu == "volta" else 1.4
        return late + size / (1000 * speed)


def ring_steps(collective: str, ranks: int) -> int:
    """Return how many steps a ring of so many ranks takes.

    >>> ring_steps("all_reduce", 8), ring_steps("all_gather", 8), ring_steps("broadcast", 8)
    (14, 7, 8)
    """
    if collective == ALL_REDUCE:
        return 2 * (ranks - 1)
    return ranks - 1 if collective in _HALVES else ranks


def _find_row(rows: PerNodes, at: int) -> Three:
    """Return the row of a GPU; one that a release did not know counts as the newest that it did."""
    return rows[min(at, len(rows) - 1)]
