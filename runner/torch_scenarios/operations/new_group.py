"""`new_group`: creates a process group while the program runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

from torch_scenarios.expressions.params import TIMEOUT, Param
from torch_scenarios.operations.base import Entry, Group, GroupCreation, Refusal
from torch_scenarios.operations.checks import refuse_argument


class NewGroup(GroupCreation):
    """Create a process group. Every rank of the world calls it, members or not, in one order.

    As in torch the ranks are sorted unless `sort_ranks` is false. torch's own default timeout is
    30 minutes; a scenario that gives none means its own.
    """

    name = "new_group"
    params = (
        Param(name="name", kind="name", required=True, description="How later steps refer to it."),
        Param(
            name="group_ranks",
            kind="ranks",
            aliases=("ranks",),
            description="The members, as global ranks; all of the world if left out.",
        ),
        TIMEOUT,
        Param(name="backend", kind="text", description="Another backend than the world's."),
        Param(
            name="sort_ranks",
            kind="flag",
            default=True,
            description="Whether group ranks follow the order of world ranks.",
        ),
        Param(
            name="use_local_synchronization",
            kind="flag",
            default=False,
            description="Whether only the members need call it.",
        ),
        Param(name="group_desc", kind="text", description="A description for logs."),
    )
    example = """\
world_size: 3
tensors:
  x: "full(2, rank + 1)"
steps:
  - new_group: {name: outer, group_ranks: [0, 2]}
  - all_reduce: {tensor: x, group: outer}
    expect:
      x: [4, 4]
"""

    def label(self, entry: Entry) -> str:
        """`new_group outer`."""
        return f"{self.name} {entry['name']}"

    def refuse(self, entry: Entry) -> Refusal | None:
        """Refuse no ranks, a rank twice, and a rank outside the world."""
        ranks = entry["group_ranks"]
        if ranks is None:
            return None
        if not ranks:
            return refuse_argument("group_ranks is empty", "group_ranks")
        if len(set(ranks)) != len(ranks):
            return refuse_argument(f"group_ranks {ranks} names a rank twice", "group_ranks")
        outside = sorted(rank for rank in ranks if entry.group.group_rank(rank) < 0)
        if outside:
            message = f"group_ranks names {outside[0]}, the world has {entry.size} ranks"
            return refuse_argument(message, "group_ranks")
        return None

    def local(self, entry: Entry) -> bool:
        """As `use_local_synchronization` says."""
        return bool(entry["use_local_synchronization"])

    def group(self, entry: Entry, timeout_s: float) -> Group:
        """Return the group, its ranks in the order of the group ranks."""
        ranks = entry["group_ranks"]
        ranks = list(entry.group.ranks) if ranks is None else ranks
        given = entry["timeout"]
        return Group(
            key=entry["name"],
            name=entry["name"],
            ranks=tuple(sorted(ranks) if entry["sort_ranks"] else ranks),
            timeout_s=timeout_s if given is None else float(given),
            backend=entry["backend"],
        )

    def bound(self, dist: ModuleType, arguments: dict[str, Any]) -> Callable[[], Any]:
        """Create it; `sort_ranks` is left out where it is torch's default: older torch lacks it."""
        given = {**arguments}
        given.pop("name", None)
        ranks = given.pop("group_ranks", None)
        if given.get("sort_ranks", True):
            given.pop("sort_ranks", None)
        return partial(dist.new_group, ranks, **given)
