"""The stage `Plan`: a scenario with its groups resolved, ready for either executor.

A plan knows every process group that exists before step 1, in the order of creation, and which of
them a name means on which rank. What a rank does, step by step, is read from it by
:mod:`runner.model.process`; nothing here runs anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from runner.limits import Limits
from runner.model.scenario import GroupSpec, Scenario, steps_of

if TYPE_CHECKING:
    from runner.model.process import Prepared
    from runner.operations.base import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Creation:
    """One call that creates groups before step 1, made by every rank.

    `kind` is the torch function: `new_group`, `new_subgroups`, `new_subgroups_by_enumeration` or
    `init_device_mesh`. `groups` are its results in torch's order of creation. `refused` says why
    torch refuses the call, on every rank, or is None.
    """

    kind: str
    spec: GroupSpec
    groups: tuple[Group, ...]
    shape: tuple[int, ...] = ()
    refused: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A scenario, its world, and the groups that exist before step 1."""

    scenario: Scenario
    world: Group
    creations: tuple[Creation, ...] = ()
    #: name -> the groups of that name; a rank is in at most one of them
    names: Mapping[str, tuple[Group, ...]] = field(default_factory=dict)
    #: how many ranks each host of the launch has; 0: one host has all of them
    node_size: int = 0
    #: names that steps may give a value first; on a rank without one they are None
    introduced: tuple[str, ...] = field(init=False, compare=False, repr=False)
    #: names that `let` gives to numbers
    numbers: frozenset[str] = field(init=False, compare=False, repr=False)
    #: step index -> what is known of its call (see :mod:`runner.model.process`)
    prepared: dict[int, Prepared] = field(
        init=False, compare=False, repr=False, default_factory=dict
    )
    #: name -> world rank -> the group that the name means there
    _members: dict[str, dict[int, Group]] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Index the groups, and what steps introduce, once for all ranks."""
        introduced = dict.fromkeys(
            name
            for step in steps_of(self.scenario.steps)
            if step.operation is not None
            for name in step.operation.introduces(step.arguments)
        )
        object.__setattr__(self, "introduced", tuple(introduced))
        numbers = (
            step.operation.numbers(step.arguments)
            for step in steps_of(self.scenario.steps)
            if step.operation is not None
        )
        object.__setattr__(self, "numbers", frozenset().union(*numbers))
        members = {
            name: {rank: group for group in reversed(groups) for rank in group.ranks}
            for name, groups in self.names.items()
        }
        object.__setattr__(self, "_members", members)

    @property
    def world_size(self) -> int:
        """The number of ranks."""
        return self.world.size

    def placed(self, rank: int) -> tuple[int, int]:
        """Return on which host a rank is, and which process of it: what torchrun tells it."""
        return divmod(rank, self.node_size or self.world_size)

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules of torch's, beside torch itself, that the steps need."""
        found = {
            module: None
            for step in steps_of(self.scenario.steps)
            if step.operation is not None
            for module in step.operation.modules
        }
        for model in self.scenario.models.values():
            found |= dict.fromkeys(model.modules)
        return tuple(found)

    def group(self, name: str, rank: int) -> Group | None:
        """Return the group that `name` means on `rank`; None where it is in no such group."""
        return self._members.get(name, {}).get(rank)


def plan(scenario: Scenario, *, limits: Limits | None = None, node_size: int = 0) -> Plan:
    """Resolve the groups of a scenario. Raises ScenarioError where they cannot be computed.

    `node_size` is how many ranks each host of the launch has; 0: one host has all of them.
    """
    from runner.expressions.functions import numpy_arrays
    from runner.model.groups import resolve

    resolved = resolve(scenario, numpy_arrays(limits) if limits else numpy_arrays())
    return replace(resolved, node_size=node_size) if node_size else resolved
