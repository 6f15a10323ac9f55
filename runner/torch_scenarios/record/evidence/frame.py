"""The frame that makes a call, and the line that handed it over to a thread, a pool or an exit.

What such a function calls has no frame of the line that decided on it::

    if rank == 0:
        pool.submit(evaluate)        the metric in `evaluate` communicates on rank 0 alone

So the frames of that line are kept, and follow those of the call. This runs in the user's own
process: it imports the standard library alone.
"""

from __future__ import annotations

import ast
import atexit
import functools
import linecache
import sys
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from enum import StrEnum
from typing import Any, TypeAlias

#: frames of the user's own, the innermost first: their file and line
Places: TypeAlias = tuple[tuple[str, int], ...]

#: frames that are looked through, and those that are kept
DEEPEST, MOST_PLACES = 60, 4


def frame_of(calls: int) -> Any:
    """Return the frame that is so many calls above that of the caller, or the outermost one.

    torch runs the hooks of a device's backward pass on another thread, where no more frames
    are than those of the hook.
    """
    try:
        return sys._getframe(calls + 1)
    except ValueError:
        frame: Any = sys._getframe(1)
        while frame.f_back is not None:
            frame = frame.f_back
        return frame


class Maker(StrEnum):
    """What makes a call that communicates, as its frames say and a record writes it."""

    #: a line of the script, or of a package that is not torch: the work returns to Python
    PYTHON = "py"
    #: torch's own Python, by a function of `torch.distributed`
    TORCH = "to"
    #: a functional collective, as DTensor, tensor parallelism and compiled code make them
    FUNCTIONAL = "fn"
    #: a backward pass: the reducer of DDP, hooks of FSDP
    BACKWARD = "bw"
    #: C++ of torch, which waits for it at once, as the constructor of DDP does
    CPP = "cc"


class _Here(threading.local):
    """Where the script handed over what this thread runs now; nothing where it did not."""

    places: Places = ()
    since_ns: int = 0


_HERE = _Here()
#: where the script started its threads
_STARTED: weakref.WeakKeyDictionary[threading.Thread, Places] = weakref.WeakKeyDictionary()

#: files in which a main thread is while it waits for another one
_WAITING = ("/threading.py", "/queue.py", "/concurrent/futures/_base.py", "/selectors.py")


def handover_places() -> Places:
    """Return where the script handed over what this thread runs now."""
    return _HERE.places


def handover_ns() -> int:
    """Return when the script handed over what this thread runs now, by the performance counter."""
    return _HERE.since_ns


def started_at(thread: threading.Thread) -> Places:
    """Return where the script started a thread; nothing where it is not the script's."""
    return _STARTED.get(thread, ())


def is_main_waiting() -> bool:
    """Whether the main thread waits in a lock, a queue or a future, such as this thread's end."""
    frame: Any = sys._current_frames().get(threading.main_thread().ident or 0)
    if frame is None:
        return False
    file = frame.f_code.co_filename
    return file.endswith(_WAITING) or is_asking("".join(linecache.getlines(file)), frame.f_lineno)


def is_asking(source: str, line: int) -> bool:
    """Whether a line is in a loop that only sleeps until this process's own threads end it.

    A loop that asks for the time, or for a file, ends without them.
    """
    with suppress(SyntaxError, ValueError, RecursionError):
        for node in ast.walk(ast.parse(source)):
            is_here = isinstance(node, ast.While) and node.lineno <= line <= (node.end_lineno or 0)
            if is_here and isinstance(node, ast.While) and all(map(_sleeps, node.body)):
                called = {_called(each) for each in ast.walk(node.test)} - {""}
                return called <= _OF_THREADS and not isinstance(node.test, ast.Constant)
    return False


#: what a loop calls between two questions
_PAUSES = frozenset({"sleep"})
#: what a loop asks of the threads of its own process
_OF_THREADS = frozenset({"is_set", "is_alive", "done", "running", "empty", "qsize", "len", "all"})


def _sleeps(node: ast.stmt) -> bool:
    return isinstance(node, ast.Pass) or (
        isinstance(node, ast.Expr) and _called(node.value) in _PAUSES
    )


def _called(node: ast.AST) -> str:
    """Return the name of what a call calls; nothing of what is no call."""
    if not isinstance(node, ast.Call):
        return ""
    return str(getattr(node.func, "attr", getattr(node.func, "id", "?")))


class Handover:
    """A function that is run later, with the places that handed it over; equal to the function."""

    def __init__(self, function: Callable[..., Any], places: Places) -> None:
        """Keep the function and the places."""
        self._function, self._places = function, places
        self.since_ns = time.perf_counter_ns()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function; its calls have the places behind their own frames."""
        before, since_ns = _HERE.places, _HERE.since_ns
        _HERE.places, _HERE.since_ns = self._places, self.since_ns
        try:
            return self._function(*args, **kwargs)
        except BaseException as error:
            _leave_out(error)
            raise
        finally:
            _HERE.places, _HERE.since_ns = before, since_ns

    def __eq__(self, other: object) -> bool:
        """Whether it is the same function, as `atexit.unregister` asks."""
        return self._function == getattr(other, "_function", other)

    def __hash__(self) -> int:
        """Return the hash of the function."""
        return hash(self._function)


def _leave_out(error: BaseException) -> None:
    """Take the frame that caught an error out of its traceback; to raise it again adds none."""
    if error.__traceback__ is not None:
        error.__traceback__ = error.__traceback__.tb_next


def _let_run_from(thread: threading.Thread, places: Places) -> None:
    """Let a thread know the places that start it, once it runs."""
    own = vars(thread).get("run")  # what the script has set on this thread alone

    since_ns = time.perf_counter_ns()

    def run() -> None:
        del thread.run  # that of its class again: no thread refers to itself once it runs
        if own is not None:
            thread.run = own  # type: ignore[method-assign]
        handover = Handover(thread.run, places)
        handover.since_ns = since_ns
        try:
            handover()
        except BaseException as error:
            _leave_out(error)
            raise

    thread.run = run  # type: ignore[method-assign]


def watch_handovers(is_foreign: Callable[[str], bool]) -> None:
    """Keep from now on where the script starts threads, submits tasks and registers exits."""

    def find_places() -> Places:
        found: list[tuple[str, int]] = []
        frame: Any = sys._getframe(2)
        deep = 0
        while frame is not None and len(found) < MOST_PLACES and deep < DEEPEST:
            if not is_foreign(frame.f_code.co_filename):
                found.append((frame.f_code.co_filename, frame.f_lineno))
            frame, deep = frame.f_back, deep + 1
        return (*found, *_HERE.places)[:MOST_PLACES]

    start: Any = threading.Thread.start
    submit: Any = ThreadPoolExecutor.submit
    register: Any = atexit.register

    @functools.wraps(start)
    def start_thread(thread: threading.Thread) -> None:
        if places := find_places():
            _STARTED[thread] = places
            _let_run_from(thread, places)
        start(thread)

    @functools.wraps(submit)
    def submit_task(pool: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        places = find_places()
        return submit(pool, Handover(function, places) if places else function, *args, **kwargs)

    @functools.wraps(register)
    def register_exit(function: Any, *args: Any, **kwargs: Any) -> Any:
        places = find_places()
        register(Handover(function, places) if places else function, *args, **kwargs)
        return function

    for holder, name, function in (
        (threading.Thread, "start", start_thread),
        (ThreadPoolExecutor, "submit", submit_task),
        (atexit, "register", register_exit),
    ):
        setattr(holder, name, function)
