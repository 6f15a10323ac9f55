"""The watching thread of a worker: it looks after the scenario that runs, and after the process.

It ends the process when it is told to, once the account is given, and when nobody is left.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from typing import TYPE_CHECKING

from runner.execution.orders import Leaving
from runner.execution.rank.running import LOOK_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from runner.execution.mailbox import Store
    from runner.execution.rank.running import Running

#: seconds between two looks at the parent process while there is nothing to do
IDLE_S = 0.5
#: seconds that a worker which was told to end waits for the others' accounts
LAST_S = 25.0


class Watcher:
    """What one worker has going on, seen from beside it."""

    def __init__(
        self,
        store: Store,
        rank: int,
        *,
        lifeline: int | None,
        alone: Callable[[str], None],
    ) -> None:
        """Watch nothing yet. `store` is this thread's own connection.

        `alone` is called where the store is gone, with what its connection says.
        """
        self._alone = alone
        self._store = store
        self._rank = rank
        self._lifeline = lifeline
        self._parent = os.getppid()
        self._running: Running | None = None
        self._told_to_end_s: float | None = None
        self._ears, self._mouth = os.pipe()
        os.set_blocking(self._mouth, False)
        os.set_blocking(self._ears, False)

    def listen(self) -> None:
        """Take SIGTERM's way away from the main thread, and start; call in the main thread."""
        signal.signal(signal.SIGTERM, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.set_wakeup_fd(self._mouth, warn_on_full_buffer=False)
        threading.Thread(target=self._watch, name="watcher", daemon=True).start()

    # ------------------------------------------------------------------ the main thread's side

    def begin(self, running: Running) -> None:
        """Watch a scenario."""
        self._running = running
        os.write(self._mouth, b"\0")

    # ------------------------------------------------------------------ the watching side

    def _watch(self) -> None:
        watched = [self._ears] if self._lifeline is None else [self._ears, self._lifeline]
        while True:
            running = self._running
            busy = self._told_to_end_s is not None or not (running is None or running.told)
            ready, _, _ = select.select(watched, [], [], LOOK_S if busy else IDLE_S)
            if self._lifeline in ready or os.getppid() != self._parent:
                os.kill(os.getpid(), signal.SIGKILL)
            told_to_end = self._ears in ready and signal.SIGTERM in os.read(self._ears, 64)
            try:
                if told_to_end:
                    self._told_to_end(running)
                if running is not None:
                    running.look(self._store)
                self._perhaps_end()
            except RuntimeError as error:
                self._alone(str(error))
                return

    def _told_to_end(self, running: Running | None) -> None:
        if self._told_to_end_s is None:
            self._told_to_end_s = time.monotonic()
            if running is not None:
                running.outbox.post(Leaving(rank=self._rank))

    def _perhaps_end(self) -> None:
        """End a process that was told to, once the supervisor has what it wants."""
        if self._told_to_end_s is None:
            return
        running = self._running
        released = running is None or self._store.check([running.key("over")])
        if released or time.monotonic() - self._told_to_end_s > LAST_S:
            os._exit(0)
