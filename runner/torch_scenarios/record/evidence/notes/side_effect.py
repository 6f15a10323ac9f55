"""What a process does that others may miss: files, keys of the job's store, threads, signals.

A file that one rank writes while another reads it is a matter of time, unless a collective lies
between. So changes of files and questions for them, keys of the store, ports, signals and threads
that die are written down where they happen, in the user's own files alone. This runs in the
user's own process: it imports the standard library alone.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pathlib
import signal
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
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
#: what starts a program
_STARTS = frozenset({"subprocess.Popen", "os.system", "os.posix_spawn"})
#: what sends a signal to a process
_SIGNALS = frozenset({"os.kill", "os.killpg"})
#: what is written down in any case: changes, and how many batches a loader has
_CHANGED = frozenset({*_CHANGES.values(), "loads", "kills"})
_PATHS = (str, bytes, pathlib.PurePath)
_WRITING = os.O_WRONLY | os.O_RDWR
#: changes that a process writes down, what else it writes down, and characters of a path
MOST_DEEDS, MOST_ASKED, MOST_PATH = 256, 512, 400
#: deeds that are known again without a look at their path; questions that are looked at at all
MOST_SEEN, MOST_LOOKS = 4096, 10_000
#: times that one line waits for a key, before which a rank writes what it has decided
MOST_WAITS = 256
#: files that are opened to be run, and our own between a script and its store
_CODE, _BETWEEN = (".py", ".pyc", ".so"), ("record/fake.py", "record/evidence/notes/side_effect.py")
#: where a port is tried before torch takes it
_TRIES = "record/evidence/claim.py"
#: functions that ask for a file, by the module or class that has them
_ASKING = (
    (os.path, ("exists", "isfile", "isdir")),
    (pathlib.Path, ("exists", "is_file", "is_dir")),
)
#: what a script does to a key of the job's store, by the method
_OF_STORE = {
    **dict.fromkeys(("set", "add", "compare_set", "append", "multi_set"), "sets"),
    **dict.fromkeys(("get", "wait", "multi_get"), "awaits"),
}


class StorePrefixes:
    """The prefixes that a script itself gives to keys of a store (`PrefixStore`).

    Torch's own are left out: they are the same on all ranks.
    """

    def __init__(self, dist: Any, is_foreign: Callable[[str], bool]) -> None:
        """See each store with a prefix that is made from now on."""
        kind: Any = dist.PrefixStore
        begin = kind.__init__
        self._kind = kind
        self._prefixes: dict[int, str] = {}

        @functools.wraps(begin)
        def make(own: Any, prefix: Any, store: Any) -> None:
            begin(own, prefix, store)
            if not is_foreign(sys._getframe(1).f_code.co_filename):
                self._know(own, str(prefix))

        kind.__init__ = make

    def _know(self, store: Any, prefix: str) -> None:
        self._prefixes[id(store)] = prefix
        weakref.finalize(store, self._prefixes.pop, id(store), None)

    def put(self, prefix: str, store: Any) -> Any:
        """Return a store with a prefix before the keys of another one; that one for no prefix."""
        if not prefix:
            return store
        made = self._kind(prefix, store)
        self._know(made, prefix)
        return made

    def of(self, store: Any) -> str:
        """Return what stands before the keys of a store; nothing where the script says nothing."""
        found: list[str] = []
        while isinstance(store, self._kind):
            found += [self._prefixes[id(store)]] if id(store) in self._prefixes else []
            store = store.underlying_store
        return "/".join(reversed(found))


class SideEffects:
    """Writes down what a process does to files and keys, and which of its threads die."""

    def __init__(
        self, recorder: Any, is_foreign: Callable[[str], bool], site: Callable[[Any], int]
    ) -> None:
        """Know the recorder; `site` gives the number of a place that a frame is in."""
        self._recorder, self._site = recorder, site
        self._is_foreign = functools.lru_cache(MOST_SEEN)(is_foreign)
        self._pid = os.getpid()
        folder = os.path.abspath(recorder.folder)
        #: where the record is, and the copies of a fake rank's files: what they are of is below it
        self._record, self._copies = f"{folder}/", f"{folder}/scratch/copies"
        #: what is written down: of changes, and of everything else
        self._known: dict[bool, set[tuple[str, str, int]]] = {True: set(), False: set()}
        #: deeds as they were asked for: what, the path, and the line
        self._seen: set[tuple[str, Any, str, int]] = set()
        #: how often a line has waited for a key of the store
        self._waited: Counter[tuple[str, int]] = Counter()
        #: questions that are still looked at
        self._left = MOST_LOOKS

    def install(self, describe: Callable[[BaseException], tuple[str, list[list[Any]]]]) -> None:
        """See changes, questions and threads from now on."""
        sys.addaudithook(self._audit)
        self._watch_questions()
        self._watch_loaders()
        self._watch_threads(describe)
        inner: Any = self._recorder.torch._C
        writer = inner.PyTorchFileWriter

        def open_writer(name: Any, *args: Any, **kwargs: Any) -> Any:
            self._note("writes", name)
            return writer(name, *args, **kwargs)

        inner.PyTorchFileWriter = open_writer
        store = getattr(getattr(inner, "_distributed_c10d", None), "Store", None)
        for name, what in _OF_STORE.items() if store is not None else ():
            if hasattr(store, name):
                setattr(store, name, self._watch_key(getattr(store, name), what))

    def _watch_threads(
        self, describe: Callable[[BaseException], tuple[str, list[list[Any]]]]
    ) -> None:
        """Write down the errors that end a thread, or what a pool of threads does."""
        hook = threading.excepthook

        def note_thread(args: Any) -> None:
            if args.exc_value is not None and os.getpid() == self._pid:
                words, frames = describe(args.exc_value)
                name = args.thread.name if args.thread is not None else ""
                self._recorder.sink.put(json.dumps(["l", name, words, frames]))
            hook(args)

        threading.excepthook = note_thread
        fail = Future.set_exception

        def note_future(future: Any, error: BaseException | None) -> None:
            if isinstance(error, Exception) and os.getpid() == self._pid:
                words, frames = describe(error)
                if frames:
                    name = threading.current_thread().name
                    self._recorder.sink.put(json.dumps(["l", name, words, frames]))
            fail(future, error)

        Future.set_exception = note_future  # type: ignore[method-assign, assignment]
        of_python: Any = threading
        join_all = of_python._shutdown

        def join_threads() -> None:
            if os.getpid() == self._pid:
                self._recorder.note_staying()
            join_all()

        of_python._shutdown = join_threads

    def _watch_loaders(self) -> None:
        """Write down how many batches each loader has that the script makes, or lets be made."""
        data = sys.modules.get("torch.utils.data")
        loader: Any = getattr(data, "DataLoader", None)
        if loader is None:
            return
        begin = loader.__init__

        @functools.wraps(begin)
        def make(own: Any, *args: Any, **kwargs: Any) -> None:
            begin(own, *args, **kwargs)
            deals = own.batch_sampler if own.batch_sampler is not None else own.sampler
            if all(type(each).__module__.startswith("torch.") for each in (deals, own.sampler)):
                with contextlib.suppress(Exception):  # a dataset of no length, or its own mistake
                    self._put_made(self._find_own(sys._getframe(1)), str(len(deals)))
            elif (made := self._find_own(sys._getframe(1))) is not None:
                places[id(own)] = made
                weakref.finalize(own, places.pop, id(own), None)

        loader.__init__ = make
        measure = loader.__len__
        #: where loaders were made whose sampler is of the script's own
        places: dict[int, tuple[int, int]] = {}

        @functools.wraps(measure)
        def measure_and_note(own: Any) -> int:
            """Return how many batches a loader has, noted where a framework asks for it."""
            found: int = measure(own)
            self._put_made(places.pop(id(own), None), str(found))
            return found

        loader.__len__ = measure_and_note

    def _find_own(self, frame: Any) -> tuple[int, int] | None:
        """Return the line of the script that a frame was called from, and the number of its place.

        A sampler of the script's own is never asked by a note: what it does may be anything.
        """
        while frame is not None and self._is_foreign(frame.f_code.co_filename):
            frame = frame.f_back
        return (frame.f_lineno, self._site(frame)) if frame is not None else None

    def _put_made(self, place: tuple[int, int] | None, name: str) -> None:
        """Write down how many batches a loader has that was made in a line."""
        if place is not None:
            self._put_at("loads", name, *place)

    def _watch_questions(self) -> None:
        for holder, names in _ASKING:
            for name in names:
                ask = getattr(holder, name)
                watched = self._watch_question(ask)
                setattr(holder, name, watched)
                home: Any = sys.modules[ask.__module__]  # where a pickle looks for it
                for part in ask.__qualname__.split(".")[:-1]:
                    home = getattr(home, part)
                setattr(home, name, watched)

    def _watch_question(self, ask: Callable[..., bool]) -> Callable[..., bool]:
        """Return a question for a file that is written down with its answer."""

        @functools.wraps(ask)
        def ask_and_note(*args: Any, **kwargs: Any) -> bool:
            found = ask(*args, **kwargs)
            if self._left <= 0 or not args:
                return found
            self._left -= 1
            frame = sys._getframe(1)
            if not self._is_foreign(file := frame.f_code.co_filename):
                self._note_at("finds" if found else "misses", args[0], frame, file)
            return found

        return ask_and_note

    def _watch_key(self, method: Callable[..., Any], what: str) -> Callable[..., Any]:
        """Return a method of a store whose key is written down where the script itself calls it."""

        @functools.wraps(method)
        def use_key(*args: Any, **kwargs: Any) -> Any:
            frame = sys._getframe(1)
            while frame.f_code.co_filename.endswith(_BETWEEN) and frame.f_back is not None:
                frame = frame.f_back
            if not self._is_foreign(frame.f_code.co_filename):
                keys = args[1] if len(args) > 1 else ()
                prefix = self._recorder.prefixes.of(args[0])
                if what == "awaits" and os.getpid() == self._pid:
                    self._write_ways(frame)
                for key in keys if isinstance(keys, list | tuple) else (keys,):
                    self._put(what, f"{prefix}/{key}" if prefix else str(key), frame)
            return method(*args, **kwargs)

        return use_key

    def _write_ways(self, frame: Any) -> None:
        """Write the decisions that led to a line that waits: no call may follow.

        A line that asks for a key again and again writes them no more.
        """
        at = (frame.f_code.co_filename, frame.f_lineno)
        self._waited[at] += 1
        if self._waited[at] <= MOST_WAITS:
            self._recorder.write_decisions()

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "socket.bind":
            self._note_port(args[1])
        elif event in _SIGNALS:
            self._note_signal(*args[:2])
        elif event in _STARTS:
            self._note("starts", str(args[0] or "a program"))
        elif event in _CHANGES:
            if event == "open" and not (isinstance(args[2], int) and args[2] & _WRITING):
                if self._left > 0 and not str(args[0]).endswith(_CODE):
                    self._left -= 1
                    self._note("reads", args[0])
                return
            self._note(_CHANGES[event], args[0])
            if event == "os.rename":
                self._note("writes", args[1])

    def _note_signal(self, process: Any, number: Any) -> None:
        """Write down a signal that may end a rank, with the decisions that led there."""
        try:
            name = signal.Signals(number).name
        except ValueError:  # 0 asks whether a process is there
            return
        frame: Any = sys._getframe(1).f_back
        while frame is not None and self._is_foreign(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is not None:
            self._recorder.write_decisions()
            self._put("kills", f"{name} to {process or os.getpid()}", frame)

    def _note_port(self, address: Any) -> None:
        """Write down where a script itself begins to listen, for a job that meets there."""
        is_port = isinstance(address, tuple) and len(address) > 1 and isinstance(address[1], int)
        if not is_port or not address[1]:
            return
        frame: Any = sys._getframe(1).f_back
        if frame is not None and frame.f_code.co_filename.endswith(_TRIES):
            return
        while frame is not None and self._is_foreign(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is not None:
            self._put("binds", str(address[1]), frame)

    def _note(self, what: str, path: Any) -> None:
        if self._is_full(what):
            return
        # a look at a frame, or at its code, is an event itself, which comes to `_audit`
        frame: Any = sys._getframe(1).f_back
        while frame is not None and self._is_foreign(file := frame.f_code.co_filename):
            frame = frame.f_back
        if frame is not None:
            self._note_at(what, path, frame, file)

    def _note_at(self, what: str, path: Any, frame: Any, file: str) -> None:
        if self._is_full(what) or not isinstance(path, _PATHS):
            return
        deed = (what, path, file, frame.f_lineno)
        if deed in self._seen:
            return
        if len(self._seen) < MOST_SEEN:
            self._seen.add(deed)
        whole = os.path.abspath(os.fsdecode(path))
        whole = whole.removeprefix(self._copies)
        if whole.startswith((self._record, "/dev/", "/proc/", "/sys/")):
            return
        self._put(what, whole[-MOST_PATH:], frame)

    def _is_full(self, what: str) -> bool:
        is_change = what in _CHANGED
        return len(self._known[is_change]) >= (MOST_DEEDS if is_change else MOST_ASKED)

    def _put(self, what: str, name: str, frame: Any) -> None:
        """Write down what is done to a file or a key, once for each line."""
        key = (what, name, frame.f_lineno)
        if key not in self._known[what in _CHANGED]:
            self._put_at(what, name, frame.f_lineno, self._site(frame))

    def _put_at(self, what: str, name: str, line: int, place: int) -> None:
        """Write down what is done in a line, once for each line and name, by its place's number."""
        key, known = (what, name, line), self._known[what in _CHANGED]
        if key in known or self._is_full(what) or os.getpid() != self._pid:
            return
        known.add(key)
        row = ["a", what, name[-MOST_PATH:], place]
        if what == "removes":  # which another rank may have made just before
            row.append(self._recorder.sink.now_us())
        self._recorder.sink.put(json.dumps(row))
