"""What a process does beside its calls that other ranks, or it itself, may wait for in vain.

A file that one rank removes while another one has yet to read it, a folder that two ranks make, and
a thread that dies while the main one waits for its queue: the place where a rank waits or raises
says nothing of these. So they are written down where they happen, in the user's own files alone.
This runs in the user's own process: it imports the standard library alone.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

#: what a process does to files, by the event that Python tells of it
_CHANGES = {
    "open": "writes",
    "os.remove": "removes",
    "os.rmdir": "removes",
    "shutil.rmtree": "removes",
    "os.rename": "renames",
    "os.mkdir": "makes",
}
_WRITING = os.O_WRONLY | os.O_RDWR
#: changes that a process writes down, and characters of a path
MOST_CHANGES, MOST_PATH = 256, 400


class SideEffects:
    """Writes down which files a process changes, and which of its threads die."""

    def __init__(
        self, recorder: Any, is_foreign: Callable[[str], bool], site: Callable[[Any], int]
    ) -> None:
        """Know the recorder; `site` gives the number of a place that a frame is in."""
        self._recorder, self._is_foreign, self._site = recorder, is_foreign, site
        self._pid = os.getpid()
        folder = os.path.abspath(recorder.folder)
        #: where the record is, and the copies of a fake rank's files: what they are of is below it
        self._record, self._copies = f"{folder}/", f"{folder}/scratch/copies"
        self._known: set[tuple[str, str, int]] = set()

    def install(self, describe: Callable[[BaseException], tuple[str, list[list[Any]]]]) -> None:
        """See changes and threads from now on."""
        sys.addaudithook(self._audit)
        inner: Any = self._recorder.torch._C
        writer = inner.PyTorchFileWriter

        def open_writer(name: Any, *args: Any, **kwargs: Any) -> Any:
            self._note("writes", name)
            return writer(name, *args, **kwargs)

        inner.PyTorchFileWriter = open_writer
        hook = threading.excepthook

        def note_thread(args: Any) -> None:
            if args.exc_value is not None and os.getpid() == self._pid:
                words, frames = describe(args.exc_value)
                name = args.thread.name if args.thread is not None else ""
                self._recorder.sink.put(json.dumps(["l", name, words, frames]))
            hook(args)

        threading.excepthook = note_thread

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event in _CHANGES:
            if event == "open" and not (isinstance(args[2], int) and args[2] & _WRITING):
                return
            self._note(_CHANGES[event], args[0])
            if event == "os.rename":
                self._note("writes", args[1])

    def _note(self, what: str, path: Any) -> None:
        if len(self._known) >= MOST_CHANGES or not isinstance(path, str | bytes | os.PathLike):
            return
        frame = sys._getframe(1)
        while frame is not None and self._is_foreign(frame.f_code.co_filename):
            frame = frame.f_back  # type: ignore[assignment]
        whole = os.path.abspath(os.fsdecode(path))
        whole = whole.removeprefix(self._copies)
        if whole.startswith(self._record):
            return
        if frame is None or os.getpid() != self._pid or whole.startswith("/dev/"):
            return
        key = (what, whole, frame.f_lineno)
        if key not in self._known:
            self._known.add(key)
            row = ["a", what, whole[-MOST_PATH:], self._site(frame)]
            self._recorder.sink.put(json.dumps(row))
