"""The frame that makes a call, and the line that handed it over to a thread, a pool or an exit.

What such a function calls has no frame of the line that decided on it::

    if rank == 0:
        pool.submit(evaluate)        the metric in `evaluate` communicates on rank 0 alone

So the frames of that line are kept, and follow those of the call. A frame may be in a loop, too,
that it never leaves (:class:`Repetition`). This runs in the user's own process: it imports the
standard library alone.
"""

from __future__ import annotations

import ast
import atexit
import enum
import functools
import linecache
import os
import pathlib
import random
import signal
import sys
import threading
import time
import types
import weakref
from collections import deque
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


#: turns without a call from which on a loop is looked at, and between two looks at its function
FIRST_TURN, TURN_STEP = 1 << 14, 1 << 10
#: turns that are seen one after another; then every so many, so often
TURNS_IN_A_ROW, TURNS_APART, LOOKS = 256, 64, 256
#: turns, and seconds, after which what is drawn at random has never been what ends the loop
DRAWS, DRAWS_S = 1 << 18, 20.0
#: events of a profile, objects of a look, items of a list that are looked into, and how deep
MOST_EVENTS, MOST_OBJECTS, MOST_ITEMS, MOST_DEPTH = 200_000, 4000, 32, 8

_SCALARS = (type(None), bool, int, float, complex, str, bytes)
_BUILTIN = (*_SCALARS, list, tuple, dict, set, frozenset, deque, range, type, slice)
#: modules in C whose functions give the same for the same, and change what they are passed alone
_PLAIN = frozenset(
    {
        *("builtins", "math", "_operator", "_functools", "_collections", "_bisect", "_heapq"),
        *("itertools", "_struct", "_random", "_sre", "re", "_abc"),
    }
)
_OUTSIDE = frozenset({"input", "open", "exec", "eval", "print", "__import__", "breakpoint"})
#: what reads attributes that a line does not name
_READS_ANY = frozenset({"getattr", "vars", "__dict__", "setattr", "__getattr__", "asdict"})
_RANDOM = ("rand", "bernoulli", "multinomial", "normal", "dropout", "uniform", "exponential")
#: signals by which another process may let a loop end
_SIGNALS = ("SIGALRM", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGHUP")


class _UnknownError(Exception):
    """Nothing is known of an object, or there are too many."""


class Repetition:
    """Looks at one loop, turn by turn, in the process that turns in it.

    A rank that never leaves a loop computes. From outside one cannot tell it from one at work::

        while True:                        `self.items` are of one label, and stay so:
            other = choice(self.items)     what is drawn is drawn anew in each turn, and no turn
            if other.label != label:       begins otherwise than one before
                return other

    Once it has turned often without a call, its turns are seen for a while: what they call, and
    what they read where each begins. It is never left where they call nothing that asks the world
    outside of the process, and read nothing that changes. What is not known is taken for a change:
    a file, the time, another thread, an iterator, an object of a library.
    """

    def __init__(self) -> None:
        """Know no loop."""
        self._frame: types.FrameType | None = None
        self._loop: _Loop | None = None
        self._is_open = True

    def turn(self, count: int, frame: types.FrameType) -> bool:
        """Take that a condition in a frame is asked once more; whether its loop is never left."""
        if not self._is_open:
            return False
        if self._loop is None:
            if count % TURN_STEP:
                return False
            if self._frame is not frame:  # of a function that is called again and again
                self._frame = frame
                return False
            self._loop = _Loop(frame)
        if self._frame is not frame:
            self._loop.close()
            self._frame = self._loop = None
            return False
        try:
            return self._loop.turn(count, frame)
        except _UnknownError:
            self._is_open = False
            self.close()
        except Exception:  # an object of the user's own that raises where it is looked at
            self._is_open = False
            self.close()
        return False

    @property
    def draws(self) -> bool:
        """Whether its turns draw numbers, one of which may end it."""
        return self._loop is not None and self._loop.draws

    def close(self) -> None:
        """Hold nothing of it any more."""
        if self._loop is not None:
            self._loop.close()
        self._frame = self._loop = None


class _Loop:
    """The turns of one loop, in one call of its function."""

    def __init__(self, frame: types.FrameType) -> None:
        self._names, self._read = _list_names(frame)
        self._known: set[Any] = set()
        self._looks = self._since = 0
        self._began = 0.0
        self._profile = _Profile()

    def turn(self, count: int, frame: types.FrameType) -> bool:
        if not self._looks:
            if _may_be_woken():
                raise _UnknownError
            self._since, self._began = count, time.monotonic()
            self._profile.start()
        self._looks += 1
        if self._looks <= TURNS_IN_A_ROW:
            if self._looks == TURNS_IN_A_ROW:
                self._profile.stop()
                if not self._profile.is_plain:
                    raise _UnknownError
                self._read = self._read | self._profile.read
            return False
        if self._looks <= 2 * TURNS_IN_A_ROW:
            self._known.add(self._describe(frame))
            return False
        if self._looks % TURNS_APART:
            return False
        if self._describe(frame) not in self._known or _may_be_woken():
            raise _UnknownError
        turns = count - self._since
        if self._profile.draws:
            return turns >= DRAWS and time.monotonic() - self._began >= DRAWS_S
        return turns >= TURNS_IN_A_ROW + TURNS_APART * LOOKS

    @property
    def draws(self) -> bool:
        return self._profile.draws

    def close(self) -> None:
        self._profile.stop()

    def _describe(self, frame: types.FrameType) -> Any:
        look = _Look(self._read)
        found = []
        for name in sorted(self._names):
            if name in frame.f_locals:
                found.append((name, look.describe(frame.f_locals[name])))
            elif name in frame.f_globals:
                found.append((name, look.describe(frame.f_globals[name])))
        for code, names in self._profile.functions.items():
            shared = sorted({*code.co_names} & {*names})
            found += [(name, look.describe(names[name])) for name in shared]
        return tuple(found)


def _may_be_woken() -> bool:
    """Whether another thread, or a signal, may change what the loop reads."""
    handlers = (signal.getsignal(getattr(signal, each)) for each in _SIGNALS)
    return (
        threading.active_count() > 1
        or threading.current_thread() is not threading.main_thread()
        or any(map(callable, handlers))
    )


class _Profile:
    """What the turns of a loop call."""

    def __init__(self) -> None:
        self.is_plain, self.draws = True, False
        #: attributes and globals that the code of its functions names
        self.read: frozenset[str] = frozenset()
        #: code of a function -> its globals
        self.functions: dict[types.CodeType, dict[str, Any]] = {}
        self._events = self._apart = 0
        self._is_on = False

    def start(self) -> None:
        if sys.getprofile() is not None:
            raise _UnknownError
        self._is_on = True
        sys.setprofile(self._see)

    def stop(self) -> None:
        if self._is_on:
            self._is_on = False
            sys.setprofile(None)
            of_torch = {code for code in self.functions if _TORCH in code.co_filename}
            names = {name for code in self.functions for name in code.co_names}
            read = {name for code in {*self.functions} - of_torch for name in code.co_names}
            self.read = frozenset((names - _READS_ANY) | read)

    def _see(self, frame: types.FrameType, event: str, arg: Any) -> None:
        self._events += 1
        if self._events > MOST_EVENTS:
            self.is_plain = False
            self.stop()
        elif frame.f_code.co_name == _TRACED:  # the notes ask it, and not the script
            self._apart += {"call": 1, "return": -1}.get(event, 0)
        elif self._apart or _OWN in frame.f_code.co_filename:
            return
        elif event == "call":
            self.functions[frame.f_code] = frame.f_globals
        elif event == "c_call":
            self._take(arg)

    def _take(self, function: Any) -> None:
        own, name = getattr(function, "__self__", None), function.__name__
        kind = type(own)
        if isinstance(own, types.ModuleType):
            is_plain = own.__name__ in _PLAIN and name not in _OUTSIDE
        elif isinstance(own, type):
            is_plain = own in _BUILTIN or own.__name__ == "_VariableFunctionsClass"
        elif isinstance(own, random.Random):
            is_plain = self.draws = True
        else:
            is_plain = kind in _BUILTIN or _is_tensor(own) or kind.__module__ == "re"
        self.is_plain = self.is_plain and is_plain
        self.draws = self.draws or name.startswith(_RANDOM)


#: what the notes ask of torch: whether it compiles
_TRACED = "is_compiling"
_TORCH = os.sep + "torch" + os.sep
#: where the files are whose calls are those of the notes, and not of the script
_OWN = os.sep.join(("torch_scenarios", "record", ""))


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


#: what holds nothing that changes, or what is drawn at random
_FIXED = (random.Random, type, types.BuiltinFunctionType, range, enum.Enum)


class _Look:
    """What some objects hold now, to compare; without attributes that no line reads."""

    def __init__(self, read: frozenset[str]) -> None:
        self._read = None if read & _READS_ANY else read
        self._seen: set[int] = set()
        self._count = 0

    def describe(self, value: Any, depth: int = 0) -> Any:
        """Return what can be compared. Raises _UnknownError."""
        kind = value.__class__
        if kind in _SCALARS:
            return repr(value) if kind in {float, complex} else (kind.__name__, value)
        self._count += 1
        if depth > MOST_DEPTH or self._count > MOST_OBJECTS:
            raise _UnknownError
        if id(value) in self._seen:
            return id(value)
        self._seen.add(id(value))
        return kind.__name__, id(value), self._look_into(value, kind, depth + 1)

    def _look_into(self, value: Any, kind: Any, depth: int) -> Any:
        held = _list_held(value, kind)
        if held is not None:
            return self._describe_items(held, depth)
        if kind in {set, frozenset}:
            return frozenset(map(id, value))
        if isinstance(value, types.ModuleType):
            return self._describe_module(value, depth)
        if isinstance(value, _FIXED):
            return None
        if isinstance(value, pathlib.PurePath):
            return str(value)
        if _is_tensor(value):
            if value.is_shared():
                raise _UnknownError
            return value.data_ptr(), value._version, tuple(value.shape)
        return self._describe_object(value, kind, depth)

    def _describe_items(self, items: Any, depth: int) -> Any:
        shown = [self.describe(each, depth) for each in [*items][:MOST_ITEMS]]
        return len(items), hash(tuple(map(id, items))) if len(items) > MOST_ITEMS else 0, *shown

    def _describe_module(self, module: types.ModuleType, depth: int) -> Any:
        held = {
            name: each
            for name, each in vars(module).items()
            if (self._read is None or name in self._read)
            and each.__class__ in (*_SCALARS, list, dict, set)
        }
        return tuple((name, self.describe(each, depth)) for name, each in held.items())

    def _describe_object(self, value: Any, kind: type, depth: int) -> Any:
        """Return the attributes of an object whose class is written in Python."""
        module = kind.__module__
        if module.startswith("numpy.random") or (module, kind.__name__) == _GENERATOR:
            return None
        if (module, kind.__name__) == ("numpy", "ndarray") and value.nbytes <= MOST_OBJECTS:
            return value.tobytes()
        if not all(map(_is_of_python, kind.__mro__[:-1])):
            raise _UnknownError
        own = dict(getattr(value, "__dict__", {}))
        for part in kind.__mro__:
            for name in getattr(part, "__slots__", ()):
                own[name] = getattr(value, name, None)
            for name, each in vars(part).items():
                if each.__class__ in (*_SCALARS, list, dict, set) and not name.startswith("__"):
                    own.setdefault(name, each)
        read = self._read
        if _is_module(value):
            own = {**own, **own.get("_parameters", {}), **own.get("_modules", {})}
        return tuple(
            (name, self.describe(each, depth))
            for name, each in own.items()
            if read is None or name in read
        )


def _is_of_python(kind: type) -> bool:
    """Whether a class is written in Python, and its objects are of this process alone."""
    module = sys.modules.get(kind.__module__)
    file = getattr(module, "__file__", None) or ""
    is_main = kind.__module__ == "__main__"
    return (is_main or file.endswith(".py")) and kind.__module__.partition(".")[0] not in _SHARED


#: packages whose objects other threads, processes or machines change
_SHARED = frozenset(
    {
        *("threading", "queue", "subprocess", "socket", "multiprocessing", "asyncio", "concurrent"),
        *("selectors", "io", "weakref", "tempfile", "shelve", "sqlite3", "logging"),
    }
)


def _list_held(value: Any, kind: Any) -> list[Any] | None:
    """Return what a list, a dict or a function holds; None of other objects."""
    if kind in {list, tuple, deque}:
        return [*value]
    if kind in {dict, types.MappingProxyType}:
        return [*value, *value.values()]
    if isinstance(value, types.FunctionType):
        cells = [each.cell_contents for each in value.__closure__ or ()]
        return [value.__defaults__, value.__kwdefaults__, *cells]
    if isinstance(value, types.MethodType):
        return [value.__self__, value.__func__]
    if isinstance(value, functools.partial):
        return [value.func, value.args, value.keywords]
    return None


_GENERATOR = ("torch._C", "Generator")


def _is_module(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def _list_names(frame: types.FrameType) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names that a turn of the loop reads before it sets them, and all attributes.

    Raises _UnknownError where the condition is in no `while`.
    """
    code = frame.f_code
    lines = linecache.getlines(code.co_filename)
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError, RecursionError):
        raise _UnknownError from None
    loops = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.While | ast.For | ast.AsyncFor)
        and node.lineno <= frame.f_lineno <= (node.end_lineno or 0)
        and node.lineno >= code.co_firstlineno
    ]
    loop = max(loops, key=lambda node: node.lineno, default=None)
    if not isinstance(loop, ast.While):
        raise _UnknownError
    read: set[str] = {node.id for node in ast.walk(loop.test) if isinstance(node, ast.Name)}
    fresh: set[str] = set()
    for statement in loop.body:
        names = {
            node.id
            for node in ast.walk(statement)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        }
        read |= names - fresh
        is_set = isinstance(statement, ast.Assign) and len(statement.targets) == 1
        target = statement.targets[0] if isinstance(statement, ast.Assign) and is_set else None
        if isinstance(target, ast.Name) and target.id not in read:
            fresh.add(target.id)
    attributes = {node.attr for node in ast.walk(loop) if isinstance(node, ast.Attribute)}
    return frozenset(read), frozenset(attributes | read)
