"""What is done beside the main thread: reports are written while the next case runs.

The main thread mostly waits for workers then, so that what a report computes costs a run next to
nothing. Things are done in the order in which they come; a few may wait, no more, so that no case's
tensors stay for long.
"""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

#: what may wait; beyond that the main thread waits
MOST_WAITING = 4


class Aside:
    """A thread that does one thing after the other, begun with the first of them.

    What is done must not raise.
    """

    def __init__(self) -> None:
        """Begin nothing yet."""
        self._waiting: queue.Queue[Callable[[], None] | None] = queue.Queue(MOST_WAITING)
        self._thread: threading.Thread | None = None

    def do(self, thing: Callable[[], None]) -> None:
        """Do a thing after all that came before it; returns at once unless too much waits."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="reports", daemon=True)
            self._thread.start()
        self._waiting.put(thing)

    def done(self) -> None:
        """Return once all is done, and end the thread."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()
            self._thread = None

    def _serve(self) -> None:
        while (thing := self._waiting.get()) is not None:
            thing()
