"""The command line of rank 0 under torchrun or a cluster, in a thread beside its worker."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING

from runner.execution.conductor import Conductor
from runner.execution.supervisor import Supervisor

if TYPE_CHECKING:
    from types import ModuleType

    from runner.execution.mailbox import Store
    from runner.execution.options import LaunchOptions

INCONCLUSIVE = 3
#: seconds that the other ranks get to end before the store ends with rank 0
BYE_S = 5.0
#: the key at which ranks that end are counted
BYE = "bye"


class Front:
    """Reads, judges and reports; the same way, options and exit codes as `scenario run`."""

    def __init__(self, torch: ModuleType, store: Store, size: int) -> None:
        """Give orders to `size` ranks through `store`, a connection of its own."""
        self._torch = torch
        self._store = store
        self._size = size
        self._code = INCONCLUSIVE
        self.done = threading.Event()

    def start(self) -> None:
        """Run the command line in a thread; the main thread is the worker's."""
        threading.Thread(target=self._run, name="front", daemon=True).start()

    def result(self) -> int:
        """Wait for the end, and for the other ranks' ends; returns the exit code."""
        self.done.wait()
        deadline_s = time.monotonic() + BYE_S
        while self._store.add(BYE, 0) < self._size - 1 and time.monotonic() < deadline_s:
            time.sleep(0.01)
        return self._code

    def _run(self) -> None:
        from runner.commands.spmd import command  # noqa: PLC0415 -- rank 0 only

        supervisor = Supervisor(self._store, dict)

        def conduct(options: LaunchOptions) -> Conductor:
            return Conductor(self._torch, supervisor, self._size, options)

        try:
            command.main(args=sys.argv[1:], prog_name="python -m runner.worker", obj=conduct)
        except SystemExit as end:
            self._code = end.code if isinstance(end.code, int) else 1
        finally:
            supervisor.dismiss(self._size)
            self.done.set()
