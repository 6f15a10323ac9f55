"""The watching thread of a worker: it publishes where the rank stands once that has not changed.

It also carries out what cannot wait for the main thread, which may be deep in a call that never
returns: it breaks a stuck call when the supervisor says so, gives the account when the process is
told to end, and ends the process when nobody is left who would.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

from runner.execution.mailbox import Outbox
from runner.execution.orders import Alive, Free, Leaving, Moved, Stuck, Told

if TYPE_CHECKING:
    from collections.abc import Callable

    from runner.execution.mailbox import Store
    from runner.execution.rank.board import Board, Record
    from runner.execution.rank.world import World

#: seconds without a move after which a rank counts as stuck
STILL_S = 0.03
#: seconds between two looks at the board
LOOK_S = 0.01
#: seconds between two signs of life of a rank on a device
ALIVE_S = 1.0
#: seconds between two looks at the parent process while there is nothing to do
IDLE_S = 0.5
#: seconds that a poisoned call gets to return before it is looked for in the store
CUT_S = 0.05
#: seconds that an account may take which another thread gives; it may be a large one
ACCOUNT_S = 10.0
#: seconds that a worker which was told to end waits for the others' accounts
LAST_S = 25.0


class Watcher:
    """What one worker has going on, seen from beside it."""

    def __init__(
        self, store: Store, rank: int, *, lifeline: int | None, may_end: Callable[[], bool]
    ) -> None:
        """Watch nothing yet. `store` is this thread's own connection.

        `may_end` tells whether the process may be ended as far as its other threads are concerned.
        """
        self._store = store
        self._rank = rank
        self._lifeline = lifeline
        self._may_end = may_end
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
            if self._ears in ready and signal.SIGTERM in os.read(self._ears, 64):
                self._told_to_end(running)
            try:
                if running is not None:
                    running.look(self._store)
                self._perhaps_end()
            except RuntimeError:
                # the store is gone, and with it whoever would want to know
                os.kill(os.getpid(), signal.SIGKILL)

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
        if (released and self._may_end()) or time.monotonic() - self._told_to_end_s > LAST_S:
            os._exit(0)


class Running:
    """One scenario under watch on one rank."""

    def __init__(
        self,
        store: Store,
        name: str,
        board: Board,
        *,
        backend: str,
        world: World,
        cut: Callable[[], None],
    ) -> None:
        """Publish into the mailbox of the scenario `name`.

        Poisoning the world breaks what is stuck between ranks, `cut` what is stuck in the store.
        """
        self._name = name
        self.outbox = Outbox(store, self.key("mail"))
        self._board = board
        self._backend = backend
        self._world = world
        self._cut = cut
        self.told = False
        self._lock = threading.Lock()
        self._moves = -1
        self._since_s = 0.0
        self._alive_s = time.monotonic()
        self._published: Record | None = None
        self.broken = False
        self._back = threading.Event()
        self._accounted = threading.Event()
        self._was_cut = False

    def key(self, what: str) -> str:
        """Name a key of this scenario in the store."""
        return f"{self._name}/{what}"

    def look(self, store: Store) -> None:
        """Publish a position that has not changed for a while, and its change after that."""
        board = self._board
        inside = board.standing
        now_s = time.monotonic()
        self._show_life(now_s)
        if board.moves != self._moves:
            self._moves, self._since_s = board.moves, now_s
            if self._published is not None:
                self._published = None
                self.outbox.post(Moved(rank=board.rank))
            return
        if self._published is not None:
            if not self.broken and store.check([self.key("break")]):
                self._break(store)
            return
        if inside is not None and now_s - self._since_s >= STILL_S:
            self._published = inside
            self.outbox.post(Stuck(rank=board.rank, position=inside.position))

    def _show_life(self, now_s: float) -> None:
        """Tell that this thread runs: calls on a device may stand without letting go of Python."""
        if self._world.on_device and not self.told and now_s - self._alive_s >= ALIVE_S:
            self._alive_s = now_s
            self.outbox.post(Alive(rank=self._board.rank))

    def _break(self, store: Store) -> None:
        self.broken = True
        self.tell("blocked")
        self.settle(store)
        # a main thread that only looks at a device leaves by itself, and aborts what hangs there
        if self._world.on_device and self._back.wait(CUT_S):
            return
        self._world.poison()
        if not self._back.wait(CUT_S):
            with self._lock:
                if not self._back.is_set():
                    self._was_cut = True
                    self._cut()

    def settle(self, store: Store) -> None:
        """Wait until the account is given, and on a device until that of every rank is.

        A communicator that one rank aborts lets its device go on, and what it does next may let a
        peer's device go on that has not been looked at yet.
        """
        until_s = time.monotonic() + ACCOUNT_S
        self._accounted.wait(ACCOUNT_S)
        while self._world.on_device and time.monotonic() < until_s:
            if store.check([self.key("over")]):
                return
            time.sleep(LOOK_S)

    def came_back(self) -> bool:
        """Say that the main thread came back from a broken call.

        Returns whether its line to the store was cut for that, so that it needs another.
        """
        with self._lock:
            self._back.set()
        return self._was_cut

    def tell(
        self,
        ending: str,
        died: str | None = None,
        notes: tuple[str, ...] = (),
        via: Any = None,  # noqa: ANN401 -- an Outbox
        then: Callable[[], None] | None = None,
    ) -> None:
        """Give the account, once: whoever comes first, the main thread or a watching one.

        `then` is done between the account and the word of it, whoever gives it: what lets go of the
        groups. A device whose calls are aborted is done with all of them, and an account taken
        after that would be of a program that never hung.
        """
        with self._lock:
            first, self.told = not self.told, True
        message = None
        if first:
            try:
                message = self._told(ending, died, notes)
            finally:
                self._accounted.set()
        if then is not None:
            self._accounted.wait(ACCOUNT_S)
            then()
        if message is not None:
            (via or self.outbox).post(message)

    def _told(self, ending: str, died: str | None, notes: tuple[str, ...]) -> Told:
        if ending == "blocked":
            notes = (*notes, *self._world.witness())
        return Told(
            rank=self._board.rank,
            trace=self._board.account(ending, died),
            backend=self._backend,
            notes=notes,
            world_s=self._world.made_s,
            spoilt=self._board.fault is not None or self._world.spoilt,
        )

    def free(self, outbox: Outbox) -> None:
        """Say that the main thread came back from the call that was broken."""
        outbox.post(Free(rank=self._board.rank))
