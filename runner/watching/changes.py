"""Wakes whoever waits when something may have changed below some folders.

watchfiles tells of changes in threads of its own, also while nobody waits; nothing is queued, since
whoever wakes looks at the disk. Where the system cannot tell (too many folders, a file system over
a network), the wait is short instead.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

from watchfiles import DefaultFilter, watch

from runner.history import FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

#: ms without a further change after which a save counts as complete
QUIET_MS = 30
#: ms after which changes that never pause are told
LONGEST_MS = 400

#: what editors and other tools write, and we ourselves
_FILTER = DefaultFilter(ignore_dirs=(*DefaultFilter.ignore_dirs, FOLDER))


class Changes:
    """Follows folders. Use as a context manager."""

    def __init__(self) -> None:
        """Follow nothing yet."""
        self._event = threading.Event()
        self._followed: tuple[frozenset[Path], frozenset[Path]] = (frozenset(), frozenset())
        self._stop = threading.Event()
        #: why the system cannot tell of changes, if so
        self.trouble: str | None = None

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Follow nothing any more."""
        self._stop.set()

    def follow(self, deep: frozenset[Path], flat: frozenset[Path]) -> None:
        """Follow some folders with all that is below, and some by themselves, from now on.

        A change that happens meanwhile may go untold: whoever calls looks afterwards.
        """
        if (deep, flat) == self._followed:
            return
        before, self._stop = self._stop, threading.Event()
        self._followed = (deep, flat)
        for folders, recursive in ((deep, True), (flat, False)):
            if folders:
                arguments = (sorted(folders), recursive, self._stop)
                threading.Thread(target=self._tell, args=arguments, daemon=True).start()
        before.set()
        self._event.set()

    def wait(self, timeout_s: float) -> bool:
        """Wait until something may have changed since the last call; False once time is over."""
        told = self._event.wait(timeout_s)
        self._event.clear()
        return told

    def _tell(self, folders: Iterable[Path], recursive: bool, stop: threading.Event) -> None:  # noqa: FBT001 -- of a thread
        try:
            for _ in watch(
                *folders,
                recursive=recursive,
                stop_event=stop,
                watch_filter=_FILTER,
                step=QUIET_MS,
                debounce=LONGEST_MS,
                ignore_permission_denied=True,
            ):
                self._event.set()
        except (OSError, RuntimeError) as error:
            self.trouble = str(error)
            self._event.set()
