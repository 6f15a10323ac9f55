"""One scenario on one rank, under watch: where the rank stands is published once that is still.

What cannot wait for the main thread, which may be deep in a call that never returns, is done here:
a stuck call is broken when the supervisor says so, a device that is overdue is given up, and the
account is given, once.
"""

from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING, Any

from runner.execution.mailbox import Outbox
from runner.execution.orders import Alive, Free, Moved, Stuck, Told
from runner.execution.rank.draining import why_lost

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
#: seconds beyond a call's own timeout after which a device is given up from beside the main thread
LATE_S = 3.0
#: seconds that a poisoned call gets to return before it is looked for in the store
CUT_S = 0.05
#: seconds that an account may take which another thread gives; it may be a large one
ACCOUNT_S = 10.0


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

    @property
    def on_device(self) -> bool:
        """Whether the calls of its world return before they are done."""
        return self._world.on_device

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
        if inside is not None and self._overdue(inside, now_s):
            self._give_up(inside)
            return
        if self._published is not None:
            if not self.broken and store.check([self.key("break")]):
                self._break(store)
            return
        if inside is not None and now_s - self._since_s >= STILL_S:
            self._published = inside
            self.outbox.post(Stuck(rank=board.rank, position=inside.position))

    def _overdue(self, record: Record, now_s: float) -> bool:
        """Whether a device stands at a call for longer than the main thread would let it.

        It asks for itself after its last step. A step that waits for the device keeps it from that.
        """
        if self.told or not self._world.on_device or record.event is None:
            return False
        allowed_s = record.timeout_s
        return allowed_s is not None and now_s - self._since_s > allowed_s + LATE_S

    def _give_up(self, record: Record) -> None:
        self._board.fail(record, why_lost(record, self._board, self._world))
        self.tell("raised", then=self._world.poison)

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
            began_s=self._board.begin_s,
            host=socket.gethostname(),
            spoilt=self._board.fault is not None or self._world.spoilt,
        )

    def free(self, outbox: Outbox) -> None:
        """Say that the main thread came back from the call that was broken."""
        outbox.post(Free(rank=self._board.rank))
