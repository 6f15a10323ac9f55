"""The command line under torchrun or a cluster, in a process beside the worker of rank 0."""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import ModuleType

from msgspec import Struct

from torch_scenarios.execution import LaunchOptions
from torch_scenarios.execution.heartbeat import SILENT_S
from torch_scenarios.execution.nodes import SILENCE_S, TOLD_TO_END, Leader, end_agent
from torch_scenarios.execution.protocol import Store, Supervision
from torch_scenarios.execution.supervisor import LEAVE_S, PlanRunner, Supervisor

INCONCLUSIVE = 3
#: seconds that the other ranks get to end before the store ends with rank 0
BYE_S = 5.0
#: the same where a rank is lost
LOST_BYE_S = 1.0
#: the key at which ranks that end are counted
BYE = "bye"


class CommandLine(Struct, frozen=True, kw_only=True):
    """The command line of `python -m torch_scenarios.worker`, in a launch that others started.

    `read` gives a digest of each file that the arguments lead to, by its path. `run` does what the
    arguments say, on ranks that it asks for, and raises SystemExit with the exit code. `plugins`
    gives the modules that they name.
    """

    read: Callable[[Sequence[str]], Mapping[str, str]]
    plugins: Callable[[Sequence[str]], Sequence[str]]
    run: Callable[[Sequence[str], Callable[[LaunchOptions], PlanRunner]], None]


class Frontend:
    """Reads, judges and reports; the same way, options and exit codes as `scenario run`.

    It is a process next to the worker of rank 0. A scenario that kills rank 0 kills that worker,
    and this one reports it.
    """

    def __init__(
        self,
        torch: ModuleType,
        store: Store,
        size: int,
        leader: Leader,
        command_line: CommandLine,
        join: Callable[[], None],
    ) -> None:
        """Give orders to `size` ranks through `store`, a connection that no other thread uses.

        `leader` hears of the ranks and nodes that are lost; `join` waits for rank 0's process.
        """
        self._command_line = command_line
        self._torch = torch
        self._store = store
        self._size = size
        self._leader = leader
        self._join = join
        self._code = INCONCLUSIVE
        self._failure = ""
        #: when ranks were first known to have been told to end
        self._told_s: float | None = None

    def start(self) -> None:
        """Run the command line in a thread; the main thread takes signals."""
        threading.Thread(target=self._run, name="frontend", daemon=True).start()

    def lose(self, reason: str) -> None:
        """Learn that the store is gone: every call on it fails from now on."""
        self._failure = reason

    def find_lost(self, watch: Supervision | None = None) -> dict[int, str]:
        """Return the ranks that are lost, each with what is wrong; of a scenario's world, or all.

        Without the store no rank is in reach.
        """
        if self._failure:
            how = f"the store of this launch is out of reach: {self._failure}"
            return dict.fromkeys(range(self._size), how)
        more_s = 0.0 if watch is None else watch.silent_s - SILENT_S
        found = self._leader.nodes.find_lost(more_s)
        if watch is not None:
            found = {rank: how for rank, how in found.items() if rank < watch.world_size}
        is_end = found and all(how.startswith(TOLD_TO_END) for how in found.values())
        return {} if is_end and self.suspects() else found

    def suspects(self) -> bool:
        """Whether another node may be about to be lost: agents end ranks because of such a loss."""
        nodes = self._leader.nodes
        if not nodes.several():
            return False
        self._told_s = self._told_s or time.monotonic()
        told_s = time.monotonic() - self._told_s
        return told_s < LEAVE_S or (nodes.quiet() and told_s < SILENCE_S + LEAVE_S)

    def _run(self) -> None:
        """Do what the command line says, and end the process with its exit code."""
        supervisor = Supervisor(self._store, dict, self.find_lost, self.suspects)

        def conduct(options: LaunchOptions) -> PlanRunner:
            return PlanRunner(self._torch, supervisor, self._size, options, lost=self.find_lost)

        try:
            self._command_line.run(sys.argv[1:], conduct)
        except SystemExit as end:
            self._code = end.code if isinstance(end.code, int) else 1
        except Exception:  # noqa: BLE001 -- a fault of ours: the other ranks must end all the same
            traceback.print_exc()
        self._end(supervisor)

    def _end(self, supervisor: Supervisor) -> None:
        lost = self.find_lost()
        if lost and self._code == 0:
            rank = min(lost)
            sys.stderr.write(f"every case was run, and then rank {rank} was lost: {lost[rank]}\n")
            self._code = INCONCLUSIVE
        with suppress(RuntimeError):  # the store is gone, and with it every other node
            supervisor.dismiss(self._size, self._code)
            deadline_s = time.monotonic() + (LOST_BYE_S if lost else BYE_S)
            while time.monotonic() < deadline_s:
                lost = lost or self.find_lost()  # ranks that were told to end are gone by now
                if self._store.add(BYE, 0) >= self._size - len(lost):
                    break
                time.sleep(0.01)
        if lost:
            self._leader.tell_lost()  # they may be in a call that never returns
        sys.stdout.flush()
        sys.stderr.flush()
        if lost:
            end_agent()
        else:
            self._join()
        os._exit(self._code)
