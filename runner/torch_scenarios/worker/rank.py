"""One rank of a run without torch: it takes orders from the launcher, one after the other.

A framework next to torch says what its world is; everything else is the same for all of them. A
launcher of :mod:`torch_scenarios.execution.frameworks` starts the rank, and no other process.
"""

from __future__ import annotations

import os
import socket
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

from torch_scenarios.execution import protocol
from torch_scenarios.execution.frameworks.launch import BEATS, find_local_store
from torch_scenarios.execution.heartbeat import Beats
from torch_scenarios.execution.local_store import LocalStoreClient
from torch_scenarios.expressions.functions import NumpyArrays
from torch_scenarios.model.plan import Creation, Plan
from torch_scenarios.worker import watcher
from torch_scenarios.worker.board import Board
from torch_scenarios.worker.device import HostCompletion
from torch_scenarios.worker.framework import BROKEN
from torch_scenarios.worker.program import BrokenCallError, Program
from torch_scenarios.worker.world import Start, World

#: seconds for which a rank that has come to its end keeps its framework going
FINISH_S = 1.0
#: seconds between two looks for the next order while it does
LOOK_S = 0.01
#: exit code of a rank whose launcher is gone
ALONE = 3


class FrameworkWorld(World, ABC):
    """The process groups of one scenario, in a framework next to torch.

    A plan's groups are made in its order by all ranks, as on torch; what differs is how a framework
    splits the world.
    """

    @abstractmethod
    def begin(self, number: int) -> None:
        """Make the group of all ranks, for the scenario of a number. Raises `Framework.errors`."""

    def new_subgroups(self, creation: Creation) -> None:
        """Split the world into groups of equal size."""
        self._split_one(creation.spec.name, creation)

    def new_subgroups_by_enumeration(self, creation: Creation) -> None:
        """Split the world into the parts of a partition."""
        self._split_one(creation.spec.name, creation)

    def init_device_mesh(self, creation: Creation) -> None:
        """Split the world along each dimension of a mesh."""
        for dim in creation.spec.dims:
            self._split_one(f"{creation.spec.name}.{dim}", creation)

    def _split_one(self, name: str, creation: Creation) -> None:
        parts = [group.ranks for group in creation.groups if group.name == name]
        self._keep(name, self.split(parts))

    @abstractmethod
    def split(self, parts: Sequence[Sequence[int]]) -> Any:
        """Return what this rank holds of groups of parts of the world."""

    def poison(self) -> None:
        """Break off what waits, from another thread."""
        BROKEN.set()

    def finish(self) -> None:
        """Be done with the last step; sets `spoilt` where the process is of no more use."""

    @abstractmethod
    def free(self) -> bool:
        """Let go of the groups; False where something is still under way on one of them."""


class Framework(ABC):
    """What a rank runs on.

    MPI and JAX each have one: its world, how to join the launch, and what it raises. To add a
    framework is to write this class and a launcher (:mod:`torch_scenarios.execution.frameworks`).
    """

    #: whose section of `expect` holds
    carrier: str
    #: worlds that may be left with something under way before the process is replaced
    most_left: int
    #: what a world raises that cannot be made
    errors: type[Exception]

    @abstractmethod
    def join(self) -> int:
        """Meet the other ranks of the launch; returns which rank this is."""

    @abstractmethod
    def find_versions(self) -> dict[str, str]:
        """Return what the ranks run on, for the results."""

    @abstractmethod
    def progress(self) -> None:
        """Let what is under way go on, between two scenarios."""

    @abstractmethod
    def make_world(self, plan: Plan, rank: int) -> FrameworkWorld:
        """Return the world of a scenario."""


class Rank:
    """One rank of a launch, from its first scenario to its last.

    It takes an order, makes a world, walks the plan, reports, and waits for the next order. The
    steps are those of the :class:`torch_scenarios.model.process.Process` that the analysis has.
    """

    def __init__(
        self, connect: Callable[[], LocalStoreClient], framework: Framework, rank: int
    ) -> None:
        """Connect to the local store: for orders, for the thread beside this one, to hear its end.

        Raises RuntimeError where it is gone.
        """
        store, beside, self._lifeline = connect(), connect(), connect()
        self._store = store
        self._beside = beside
        self._framework = framework
        self.rank = rank
        self._watcher = watcher.Watcher(
            beside, self.rank, lifeline=self._lifeline.descriptor, alone=_leave, told=lambda: None
        )
        self._stderr = watcher.StandardError()
        self._turn = 0
        self._left = 0
        self._world: FrameworkWorld | None = None

    def serve(self) -> None:
        """Take orders until told to stop. Raises RuntimeError where the local store is gone."""
        warnings.simplefilter("ignore")
        self._watcher.listen()
        hello = protocol.WorkerReady(
            rank=self.rank,
            pid=os.getpid(),
            host=socket.gethostname(),
            versions=self._framework.find_versions(),
        )
        protocol.Outbox(self._store, "mail").post(hello)
        while (number := self._await_number()) != protocol.STOP:
            letter = protocol.fetch(self._store, f"order/{number}", keep=True)
            self._obey(protocol.open_parts(letter, protocol.Assignment))

    def _await_number(self) -> int:
        """Wait for the number of the next scenario, and let what is under way go on meanwhile."""
        self._turn += 1
        key = f"turn/{self.rank}/{self._turn}"
        for _ in range(int(FINISH_S / LOOK_S)):
            if protocol.arrives(self._store, key, LOOK_S):
                break
            self._framework.progress()
        return int(protocol.await_key(self._store, key))

    def _obey(self, order: protocol.Assignment) -> None:
        """Do what an order asks in a framework other than torch, and post what came of it."""
        name, plan = order.place, order.plan
        self._stderr.clear()
        mail = protocol.Outbox(self._store, f"{name}/mail")
        start = Start(self._store, name, 1, plan.world_size)
        if self._world is not None and not self._world.free():
            self._left += 1
        self._world = world = self._framework.make_world(plan, self.rank)
        world.spoilt = self._left > self._framework.most_left
        try:
            world.begin(order.number)
        except self._framework.errors as error:
            reason = f"{self._framework.carrier}: {error}"
            mail.post(protocol.WorldFailed(rank=self.rank, reason=reason))
            return
        board = Board(self.rank, lambda value: value)
        running = watcher.WatchedScenario(
            self._beside,
            name,
            board,
            backend=self._framework.carrier,
            world=world,
            cut=lambda: None,
        )
        program = Program(
            plan,
            world,
            NumpyArrays(),
            board=board,
            completion=HostCompletion(),
            broken=lambda: running.broken or protocol.holds(self._store, running.key("break")),
        )
        self._watcher.begin(running)
        self._run(program, world, running, mail, start)

    def _run(
        self,
        program: Program,
        world: FrameworkWorld,
        running: watcher.WatchedScenario,
        mail: protocol.Outbox,
        start: Start,
    ) -> None:
        """Run a program to its end, no matter which that is."""
        try:
            ending = program.prepare()
            if ending is None:
                start.meet()
                ending = program.run()
            else:
                start.arrive()
        except BrokenCallError:
            ending = "blocked"
            program.pending.clear()
        world.finish()
        running.came_back()
        running.tell(ending, via=mail)
        if running.broken:
            running.free(mail)


def _leave(_reason: str) -> NoReturn:
    """End a rank whose launcher is gone."""
    os._exit(ALONE)


def serve(framework: Framework) -> None:
    """Be a rank until the launcher is gone."""
    connect = partial(LocalStoreClient, find_local_store(os.environ))
    shared = os.dup(2)
    try:
        beats = Beats(os.open(os.environ.pop(BEATS), os.O_RDWR))
        rank = framework.join()
        beats.keep(rank)
        Rank(connect, framework, rank).serve()
    except Exception as error:
        os.write(shared, f"{type(error).__name__}: {error}\n".encode())
        os._exit(1)
    os._exit(0)
