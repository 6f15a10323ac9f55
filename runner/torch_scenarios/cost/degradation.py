"""A machine that is worse than its topology says: slow ranks, lost NICs, a narrower spine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from torch_scenarios.cost.topology import NIC, SPINE, Topology
from torch_scenarios.errors import Problem, ScenarioError
from torch_scenarios.model.traffic import Pause, Traffic

#: how a topology of one's own states what a switch asks for
_STATE_SPINE = "`scenario topology show NAME`, and `spine: {per: 32 nodes, oversubscription: 2}`"


class Degradation(Struct, frozen=True, kw_only=True):
    """What is assumed to be worse.

    `slow` is how many times as long ranks compute, `lost` how many NICs nodes have lost, `spine`
    the part of its bandwidth that each spine is left with.
    """

    slow: Mapping[int, float] = field(default_factory=dict)
    lost: Mapping[int, int] = field(default_factory=dict)
    spine: float = 1.0

    def __bool__(self) -> bool:
        """Whether anything is worse."""
        return bool(self.slow or self.lost or self.spine != 1)

    @property
    def words(self) -> str:
        """What is assumed, in words."""
        found = [f"rank {rank} takes {each:g} times as long" for rank, each in self.slow.items()]
        found += [
            f"node {node} has lost {each} NIC{'' if each == 1 else 's'}"
            for node, each in self.lost.items()
        ]
        if self.spine != 1:
            found.append(f"each spine carries {self.spine:g} of its bandwidth")
        return ", ".join(found)

    def of_traffic(self, traffic: Traffic) -> Traffic:
        """Return a program in which ranks are slow. Raises ScenarioError where that is nothing."""
        if not self.slow:
            return traffic
        alone = {int(rank) for each in _pauses(traffic) for rank in np.atleast_1d(each.ranks)}
        for rank in sorted(self.slow):
            if rank >= traffic.world_size:
                _refuse(f"--slow {rank}: the program has ranks 0 to {traffic.world_size - 1}")
            if rank not in alone:
                message = f"--slow {rank}: rank {rank} computes nothing that states a time"
                _refuse(message, "state it: `compute: {time: 12.1ms}`, or `record --times-on`")
        found = traffic.copy()
        found.entries = [made for each in traffic.entries for made in self._slower(each)]
        return found

    def _slower(self, entry: Any) -> Iterator[Any]:
        """Yield an entry, and what ranks that are slow do longer by themselves."""
        if not isinstance(entry, Pause):
            yield entry
            return
        ranks = np.atleast_1d(entry.ranks)
        factors = np.array([self.slow.get(rank, 1.0) for rank in ranks.tolist()])
        for factor in np.unique(factors).tolist():
            yield replace(
                entry,
                ranks=ranks[factors == factor],
                seconds=entry.seconds * factor,
                host_s=entry.host_s * factor,
            )

    def of_topology(self, topology: Topology, world_size: int) -> Topology:
        """Return the machine that is left. Raises ScenarioError where it has no such thing."""
        name, links = topology.name, dict(topology.links)
        if self.lost and (NIC not in links or topology.node_ranks is None):
            _refuse(f"--lost-nics: topology {name} has no `nic` that a node could lose")
        if self.spine != 1 and SPINE not in links:
            _refuse(f"--spine: topology {name} states no spine", f"state it: {_STATE_SPINE}")
        nodes = topology.node_count(np.arange(world_size), world_size)
        for node, lost in self.lost.items():
            count = topology.nics_of(world_size)[1]
            if node >= nodes:
                _refuse(f"--lost-nics {node}={lost}: the ranks are on nodes 0 to {nodes - 1}")
            if lost >= count:
                _refuse(f"--lost-nics {node}={lost}: a node of {name} has {count}, and needs one")
        if SPINE in links:
            spine = links[SPINE]
            links[SPINE] = replace(spine, oversubscription=spine.oversubscription / self.spine)
        return replace(topology, links=links, lost=self.lost)


def _pauses(traffic: Traffic) -> Iterator[Pause]:
    return (each for each in traffic.entries if isinstance(each, Pause))


def _refuse(message: str, hint: str | None = None) -> None:
    raise ScenarioError([Problem(code="no_forecast", message=message, hint=hint)])
