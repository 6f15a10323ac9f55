"""Which groups one rank is in: those of the plan, those made and given up while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.plan import WORLD, Group
from runner.typed_values import TypedEvaluator

if TYPE_CHECKING:
    from runner.arrays import Arrays
    from runner.plan import Plan
    from runner.problems import Mark


class Membership(TypedEvaluator):
    """An evaluator that knows its rank's groups, and answers what expressions ask of them."""

    def __init__(self, plan: Plan, rank: int, arrays: Arrays) -> None:
        """Begin in no group: :meth:`found` enters those of the plan."""
        super().__init__(rank, arrays)
        self.plan = plan
        self.groups: dict[str, Group] = {}
        #: the names of the groups that this rank gave up, and the step that did it
        self.destroyed: dict[str, Mark | None] = {}
        #: counts the changes of both: what was found out about a group holds until the next
        self.regrouped = 0
        #: the place of the step that this rank is at
        self._at: Mark | None = None

    def found(self) -> None:
        """Enter the groups of the plan that this rank is in, and name them all in the scope."""
        for name in self.plan.names:
            group = self.plan.group(name, self.rank)
            if group is not None:
                self.groups[name] = group
            self.scope[name] = group.listed if group else []

    def group(self, name: str | None) -> Group:
        """Return the group that a name means here; a group of others where this rank has none."""
        name = WORLD if name is None else name
        if name in self.groups:
            return self.groups[name]
        others = self.plan.names.get(name, ())
        if others:
            return others[0]
        return Group(key=name, name=name, ranks=(), timeout_s=self.plan.scenario.timeout_s)

    def join(self, group: Group) -> None:
        """Learn a group that was created while the program ran; its name means no other now."""
        self.regrouped += 1
        self.groups.pop(group.name, None)
        self.destroyed.pop(group.name, None)
        self.scope[group.name] = []
        if self.rank in group.ranks:
            self.groups[group.name] = group
            self.scope[group.name] = list(group.ranks)

    def destroy(self, name: str) -> None:
        """Give a group up, or with the world every group: its members keep a handle of no use."""
        self.regrouped += 1
        for given_up in list(self.groups) if name == WORLD else [name]:
            if given_up in self.groups:
                self.destroyed[given_up] = self._at

    def group_rank(self, name: str) -> int:
        """Return `group_rank(name)`: -1 outside."""
        self._require_alive(name)
        return self.group(name).group_rank(self.rank)

    def group_size(self, name: str) -> int:
        """Return `group_size(name)`: 0 outside."""
        self._require_alive(name)
        return self.group(name).size if name in self.groups else 0

    def group_ranks(self, name: str) -> list[int]:
        """Return `group_ranks(name)`: world ranks in group order; empty outside."""
        self._require_alive(name)
        return list(self.groups[name].ranks) if name in self.groups else []

    def _require_alive(self, name: str) -> None:
        """Raise ValueError, as torch does, where this rank is asked about a group it destroyed."""
        if name in self.destroyed:
            message = f"rank {self.rank} destroyed the group {name}"
            raise ValueError(message)
