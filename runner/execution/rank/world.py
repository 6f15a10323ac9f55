"""One scenario's process groups on one rank: made, named, broken, dropped.

Making a world costs milliseconds, destroying one 10 ms a rank (each connection waits for a tick of
Gloo's loop). So an old world is kept by reference and dropped by a background thread, while the
next scenario runs in a fresh one, under a store prefix of its own.
"""

from __future__ import annotations

import queue
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from runner.plan import WORLD

if TYPE_CHECKING:
    from types import ModuleType

    from runner.plan import Creation, Group, Plan

#: a tag that no scenario uses: the largest that Gloo takes
POISON_TAG = 2**31 - 1


class World:
    """The process groups of one scenario, by the names that an author uses."""

    def __init__(self, torch: ModuleType, plan: Plan, rank: int, device: Any) -> None:  # noqa: ANN401 -- torch.device
        """Know nothing yet; :meth:`start` and :meth:`create` make the groups."""
        self.torch = torch
        self.dist: Any = torch.distributed
        self.plan = plan
        self.rank = rank
        self.device = device
        self._handles: dict[str, Any] = {}
        self._made: list[Any] = []

    # ------------------------------------------------------------------ making

    def start(self, store: Any, backend: str) -> None:  # noqa: ANN401 -- torch's Store
        """Make the world's own group. Raises what torch raises."""
        dist = self.dist
        dist.set_debug_level(getattr(dist.DebugLevel, self.plan.scenario.debug.upper()))
        # on a GPU the communicator is made here, and not in the first call that happens to need it
        more = {"device_id": self.device} if self.device.type == "cuda" else {}
        dist.init_process_group(
            backend,
            store=store,
            rank=self.rank,
            world_size=self.plan.world_size,
            timeout=timedelta(seconds=self.plan.world.timeout_s),
            **more,
        )
        self._keep(WORLD, dist.group.WORLD)

    def create(self, creation: Creation) -> None:
        """Make the groups of one entry of `groups:`. Raises what torch raises."""
        CREATORS[creation.kind](self, creation)

    def _keep(self, name: str, handle: Any) -> None:  # noqa: ANN401 -- a ProcessGroup
        self._handles[name] = handle
        if handle is not None and not isinstance(handle, int):
            self._made.append(handle)

    def adopt(self, group: Group, handle: Any) -> None:  # noqa: ANN401 -- a ProcessGroup
        """Learn a group that a step created."""
        self._keep(group.name, handle)

    def new_group(self, creation: Creation) -> None:
        """Create one group; its author's order of ranks is kept only where asked for."""
        spec = creation.spec
        group = creation.groups[0]
        more: dict[str, Any] = {} if spec.sort_ranks else {"sort_ranks": False}
        handle = self.dist.new_group(
            list(group.ranks), timeout=_timeout(group), backend=spec.backend, **more
        )
        self._keep(spec.name, handle)

    def new_subgroups(self, creation: Creation) -> None:
        """Create groups of equal size."""
        spec = creation.spec
        timeout = timedelta(seconds=self._seconds(creation))
        own, every = self.dist.new_subgroups(
            creation.shape[0], timeout=timeout, backend=spec.backend
        )
        self._made.extend(group for group in every if not isinstance(group, int))
        self._keep(spec.name, own)

    def new_subgroups_by_enumeration(self, creation: Creation) -> None:
        """Create the parts of a partition."""
        spec = creation.spec
        own, every = self.dist.new_subgroups_by_enumeration(
            [list(group.ranks) for group in creation.groups],
            timeout=timedelta(seconds=self._seconds(creation)),
            backend=spec.backend,
        )
        self._made.extend(group for group in every if not isinstance(group, int))
        self._keep(spec.name, self.outside if own is None else own)

    def init_device_mesh(self, creation: Creation) -> None:
        """Create a device mesh and name its dimensions' groups.

        It takes no timeout, and the groups' default is 30 minutes whatever the world's is; the
        options of a Gloo group, or torch's own setter, carry the scenario's.
        """
        from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415 -- costs 0.3 s

        spec = creation.spec
        mesh = init_device_mesh(self.device.type, creation.shape, mesh_dim_names=spec.dims)
        timeout = timedelta(seconds=self._seconds(creation))
        for dim in spec.dims:
            group = mesh.get_group(dim)
            if group is not self.dist.group.WORLD:
                self.dist.distributed_c10d._set_pg_timeout(timeout, group)  # noqa: SLF001 -- no public setter
            self._keep(f"{spec.name}.{dim}", group)

    def _seconds(self, creation: Creation) -> float:
        groups = creation.groups
        return groups[0].timeout_s if groups else self.plan.scenario.timeout_s

    # ------------------------------------------------------------------ asking

    @property
    def outside(self) -> Any:  # noqa: ANN401 -- torch's own marker, an integer
        """What torch hands to a rank that is not a member of a group."""
        return self.dist.GroupMember.NON_GROUP_MEMBER

    def handle(self, name: str) -> Any:  # noqa: ANN401 -- a ProcessGroup
        """Return the process group that a name means on this rank."""
        return self._handles.get(name, self.outside)

    def group_rank(self, name: str) -> int:
        """`get_rank`, as torch answers it; -1 for a non-member."""
        handle = self.handle(name)
        return -1 if isinstance(handle, int) else int(self.dist.get_rank(handle))

    def group_size(self, name: str) -> int:
        """`get_world_size`, as torch answers it; 0 for a non-member (torch says -1)."""
        handle = self.handle(name)
        return 0 if isinstance(handle, int) else int(self.dist.get_world_size(handle))

    def group_ranks(self, name: str) -> list[int]:
        """`get_process_group_ranks`, as torch answers it; empty for a non-member.

        torch itself would answer a non-member with the ranks of the last group created.
        """
        handle = self.handle(name)
        return [] if isinstance(handle, int) else list(self.dist.get_process_group_ranks(handle))

    # ------------------------------------------------------------------ ending

    def poison(self) -> None:
        """Break every operation that is stuck on a Gloo group of this rank, from another thread.

        A receive that times out closes all connections of its group at once, and whatever is
        blocked on them raises. `abort` does nothing on Gloo, and `destroy` waits for the timeout.
        """
        for handle in self._made:
            try:
                self._poison_one(handle)
            except (RuntimeError, ValueError, TypeError):
                continue  # its connections are closed already, or it has none

    def _poison_one(self, handle: Any) -> None:  # noqa: ANN401 -- a ProcessGroup
        size, own = handle.size(), handle.rank()
        if size < 2 or "gloo" not in str(handle.name()).lower():  # noqa: PLR2004 -- no peer
            return
        peer = (own + 1) % size
        work = handle.recv([self.torch.zeros(1)], peer, POISON_TAG)
        work.wait(timedelta(milliseconds=1))

    def drop(self, reaper: Reaper, works: list[Any], *, poison: bool) -> None:
        """Let go of the groups; the reaper pays for the end of their connections."""
        dist = self.dist
        kept = [*self._made, *dist.distributed_c10d._world.pg_map]  # noqa: SLF001 -- mesh groups too
        if dist.is_initialized():
            dist.destroy_process_group()
        if not poison:
            self.forget()
        reaper.take(self if poison else None, kept, works)

    def forget(self) -> None:
        """Let go of every group."""
        self._made.clear()
        self._handles.clear()


def _timeout(group: Group) -> timedelta:
    return timedelta(seconds=group.timeout_s)


CREATORS = {
    "new_group": World.new_group,
    "new_subgroups": World.new_subgroups,
    "new_subgroups_by_enumeration": World.new_subgroups_by_enumeration,
    "init_device_mesh": World.init_device_mesh,
}


class Reaper:
    """A thread that holds the last reference to old worlds, and lets it go."""

    def __init__(self) -> None:
        """Start the thread."""
        self._queue: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="reaper", daemon=True).start()

    def take(self, poisoned: World | None, groups: list[Any], works: list[Any]) -> None:
        """Take over groups and the work handles on them."""
        self._queue.put([poisoned, groups, works])

    def _run(self) -> None:
        while True:
            batch = self._queue.get()
            world, groups, works = batch
            batch.clear()
            if world is not None:
                world.poison()
                world.forget()
            works.clear()
            groups.clear()
            del world, groups, works
