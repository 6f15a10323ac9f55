"""The kernel in the user's processes: every call that communicates, written down as it is made.

A Python kernel at dispatch key BackendSelect for each operation of `c10d` sees every call, whatever
makes it: `torch.distributed`, the reducer of DDP, FSDP, DTensor, functional collectives, compiled
code, any thread (measured on torch 2.6 and 2.13). Waits are seen at `Work.wait` and
`_c10d_functional::wait_tensor`; the C++ waits of the reducer at the end of `backward`.

A kernel in Python makes torch box every argument, which takes longer than all that is written. So
what Python itself calls most on Gloo (:data:`_STRAIGHT`) is recorded where Python calls the group,
and goes past the kernel::

    dist.all_reduce ── ProcessGroup.allreduce ──┬── straight, recorded ──────────┬── Gloo
    DDP, FSDP, compiled code ───────────────────┴── the kernel, recorded ────────┘

The record is a file a rank, a line an event (:mod:`torch_scenarios.record.format`), written through
memory before and after the call: it is whole after SIGKILL. No value of a tensor is in it. Nothing
here keeps a tensor alive after its wait, catches a signal or prints. It runs in the user's own
environment, which may have nothing but torch: it imports the standard library alone.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import functools
import gc
import hashlib
import itertools
import json
import linecache
import multiprocessing
import os
import re
import signal
import socket
import sys
import sysconfig
import threading
import time
import traceback
import types
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from operator import attrgetter, call
from typing import Any, NoReturn

from torch_scenarios.record.evidence import procedure, tensor_names
from torch_scenarios.record.evidence.claim import (
    claim_of,
    rank_joined,
    release_programs,
    tell_programs,
    watch_claims,
)
from torch_scenarios.record.evidence.frame import (
    Maker,
    frame_of,
    handover_ns,
    handover_places,
    is_main_waiting,
    started_at,
    watch_handovers,
)
from torch_scenarios.record.evidence.notes import decision, side_effect
from torch_scenarios.record.import_hook import ImportHook
from torch_scenarios.record.mapped_file import EARLIER, MappedFile, is_written

VERSION = 2

#: frames of the user's own that name a call, the innermost first
FRAMES = 6
#: frames that are looked through for them
DEEPEST = 200
#: tensors of a list that are recorded one by one
LISTED = 4
#: characters of a line of a script that the record carries
MOST_LINE = 200

REDUCE_OPS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum")

_STDLIB = os.path.dirname(os.__file__)
_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_PREFIXES = tuple(
    {
        sysconfig.get_paths()["stdlib"],
        sysconfig.get_paths()["platstdlib"],
        _STDLIB,
        _OWN,
    }
)


#: seconds in which a thread of a backend comes to drop what it holds of Python's; tries
LET_GO_S, MOST_LET_GO = 0.02, 25

#: the module of torch whose functions catch the errors of ranks that save or load together
_CHECKPOINTS = "torch.distributed.checkpoint.utils"
#: files between a call of `torch.distributed` and its kernel
_ENTRIES = ("distributed_c10d.py", "c10d_logger.py", "typing_extensions.py", "contextlib.py")


class Sink:
    """The file of one rank: lines are appended whole, by any thread."""

    def __init__(self, folder: str, about: dict[str, Any]) -> None:
        """Open the file and say whose it is."""
        host = about.get("host", "")
        name = f"rank-{about['rank']:05d}" + (f"-{host}" if host else "")
        path = os.path.join(folder, f"{name}.jsonl")
        if host and is_written(path):  # another process says that it is this rank
            path = os.path.join(folder, f"{name}-{os.getpid()}.jsonl")
        elif host:  # a launcher has started the ranks again
            with contextlib.suppress(OSError):
                os.replace(path, os.path.join(folder, f"{EARLIER}{name}.jsonl"))
        self._file = MappedFile(path)
        self.append = self._file.append
        self.close = self._file.close
        self.began = time.perf_counter_ns()
        self.put(json.dumps({"scenario_record": VERSION, **about, "time": time.time()}))

    def put(self, line: str) -> None:
        """Append a line."""
        self.append(f"{line}\n".encode())

    def now_us(self) -> int:
        """Return the microseconds since the file was opened."""
        return (time.perf_counter_ns() - self.began) // 1000


class CallSite:
    """A place that calls: its number, what makes the call, and the function of torch's Python.

    `function` is empty where no function of `torch.distributed` makes the call. `is_own` says
    whether a file of the user's own is among the frames, `is_of_model` whether its line speaks of
    parameters or gradients.
    """

    __slots__ = ("function", "is_of_model", "is_own", "maker", "number")

    def __init__(
        self, number: int, maker: Maker, function: str, *, is_own: bool, is_of_model: bool = False
    ) -> None:
        """Keep what is known of the place."""
        self.is_of_model = is_of_model
        self.number = number
        self.maker = maker
        self.function = function
        self.is_own = is_own


class Sites:
    """Where calls stand in the user's own files, each place written once."""

    def __init__(self, sink: Sink) -> None:
        """Know no place."""
        self._sink = sink
        self._known: dict[Any, int] = {}
        self._foreign: dict[str, bool] = {}
        #: code objects that were seen, alive so that no other one gets their ids: are they foreign,
        #: and of a framework?
        self._codes: dict[int, tuple[types.CodeType, bool, bool]] = {}
        #: what was found for frames: their code objects, and where the user's own stand in theirs
        self._found: dict[tuple[Any, ...], CallSite] = {}
        #: the place of the backward pass that runs now, by its number; -1 for none
        self.backward = -1
        self._of_backward: dict[tuple[CallSite, int], CallSite] = {}
        self._lock = threading.Lock()

    def of(self, frame: Any) -> CallSite:
        """Return the place of a call that the frame makes."""
        inner, codes = frame, self._codes
        passed: list[int] = []
        own = 0
        is_through = False
        while frame is not None and own < FRAMES and len(passed) < DEEPEST:
            code = frame.f_code
            at = id(code)
            known = codes.get(at)
            if known is None:
                file = code.co_filename
                known = codes[at] = (code, self._is_foreign(file), is_framework(file))
            passed.append(at)
            _, is_foreign, of_framework = known
            if not is_foreign:
                own += 1
                passed.append(frame.f_lasti)
            elif of_framework and not is_through and not own:
                is_through = True
                passed.append(frame.f_lasti)
            frame = frame.f_back
        key = (*passed, handover_places())
        site = self._found.get(key)
        if site is None:
            site = self._found[key] = self._look(inner)
        if not site.is_own and self.backward >= 0:
            return self._find_caller(site)
        return site

    def _find_caller(self, site: CallSite) -> CallSite:
        """Return the place of the backward pass that a thread without one of its own works for."""
        known = site, self.backward
        found = self._of_backward.get(known)
        if found is None:
            found = CallSite(self.backward, site.maker, site.function, is_own=False)
            self._of_backward[known] = found
        return found

    def _is_foreign(self, file: str) -> bool:
        found = self._foreign.get(file)
        if found is None:
            found = self._foreign[file] = is_foreign(file)
        return found

    def _look(self, frame: Any) -> CallSite:
        """Return the place of a call, by the files and names of the frames."""
        inner = frame
        found: list[tuple[str, int]] = []
        api = via = ""
        deep = 0
        while frame is not None and len(found) < FRAMES and deep < DEEPEST:
            deep += 1
            code = frame.f_code
            file = code.co_filename
            if not self._is_foreign(file):
                found.append((file, frame.f_lineno))
            elif not found and not via and is_framework(file):
                via = f"{_name_in_package(file)}:{frame.f_lineno}"
            elif not found and file.endswith("distributed_c10d.py"):
                name = code.co_name
                if name != "wrapper":
                    api = name
            frame = frame.f_back
        found = [*found, *handover_places()][:FRAMES]
        key = (api, via, *found)
        number = self._known.get(key)
        if number is None:
            number = self._write(key, api, found, via)
        maker = _maker(inner, self._foreign)
        line = linecache.getline(*found[0]) if found and maker == Maker.PYTHON else ""
        return CallSite(
            number,
            maker,
            _function(_find_caller(inner)),
            is_own=bool(found),
            is_of_model=tensor_names.OF_MODEL.search(line) is not None,
        )

    def _write(self, key: Any, api: str, found: list[tuple[str, int]], via: str) -> int:
        with self._lock:
            number = self._known.get(key)
            if number is None:
                number = len(self._known)
                places = [
                    [file, line, linecache.getline(file, line).strip()[:MOST_LINE]]
                    for file, line in found
                ]
                more = [via] if via else []
                self._sink.put(json.dumps(["s", number, api, places, *more]))
                self._known[key] = number
        return number


def is_foreign(file: str) -> bool:
    """Whether a file is not the user's own: torch, another package, the standard library."""
    return (
        file.startswith(("<", *_PREFIXES))
        or "torchinductor" in file
        or "/torch/" in file
        or bool(find_installed(file))
    )


@functools.cache
def find_installed(file: str) -> str:
    """Return the folder of installed packages that a file is in; nothing where it is the user's.

    It is one of Python's own, or one that `pip install --target` has filled: what it has installed
    there lies next to the package.
    """
    head, found, _ = file.rpartition("-packages/")
    if found:
        return head + found
    at = os.path.dirname(file)
    while os.path.isfile(os.path.join(at, "__init__.py")):
        at = os.path.dirname(at)
    if at == os.path.dirname(file):
        return ""
    for folder in (at, os.path.dirname(at)):  # the second where the package is of a namespace
        with contextlib.suppress(OSError):
            if any(each.endswith(".dist-info") for each in os.listdir(folder)):
                return os.path.join(folder, "")
    return ""


def is_framework(file: str) -> bool:
    """Whether a file is of an installed package that is not torch: accelerate, lightning.

    torch wraps what it deprecates by `typing_extensions`, which makes no call.
    """
    return (
        "/torch/" not in file
        and not file.startswith(("<", _OWN))
        and not file.endswith(_ENTRIES)
        and bool(find_installed(file))
    )


def _name_in_package(file: str) -> str:
    """Return `accelerate/accelerator.py` for a file of an installed package."""
    return file.removeprefix(find_installed(file))


def _find_caller(frame: Any) -> Any:
    """Return the frame that calls a method of a process group that the recorder stands before."""
    while frame is not None and frame.f_code.co_filename == _BATCHING_CODE.co_filename:
        frame = frame.f_back
    return frame


def _function(frame: Any) -> str:
    """Return the function of `torch.distributed` that calls a group; `recv`, not its `irecv`."""
    found = ""
    while frame is not None and _is_entry(frame):
        name = frame.f_code.co_name
        if frame.f_code.co_filename.endswith("distributed_c10d.py"):
            if found and name not in _WAITING:
                break
            found = name if not found or found in _STARTING else found
        elif not found:
            break
        frame = frame.f_back
    return found


def _is_entry(frame: Any) -> bool:
    """Whether a frame lies between a call of `torch.distributed` and its kernel."""
    return frame.f_code is _BATCHING_CODE or frame.f_code.co_filename.endswith(_ENTRIES)


def _maker(frame: Any, foreign: dict[str, bool]) -> Maker:
    frame = _find_caller(frame)
    if frame is None:
        return Maker.BACKWARD
    file, name = frame.f_code.co_filename, frame.f_code.co_name
    if file.endswith("distributed_c10d.py"):
        while frame is not None and _is_entry(frame):
            frame = frame.f_back
        by_torch = frame is not None and "/torch/" in frame.f_code.co_filename
        return Maker.TORCH if by_torch else Maker.PYTHON
    if name == "_engine_run_backward":
        return Maker.BACKWARD
    if file.endswith(("_functional_collectives.py", "_ops.py")) or "torchinductor" in file:
        return Maker.FUNCTIONAL
    if file.startswith("<") or not foreign.get(file, False):
        return Maker.PYTHON
    return Maker.CPP if "/torch/" in file else Maker.PYTHON


def leave_untraced(*modules: types.ModuleType) -> None:
    """Keep `torch.compile` from compiling what stands in modules: it is called below its frames."""
    frames = sys.modules["torch"]._C._dynamo.eval_frame
    if hasattr(frames, "skip_code"):  # torch 2.6
        skip = frames.skip_code
    else:
        action = frames._FrameAction
        strategy = frames._FrameExecStrategy(action.SKIP, action.DEFAULT)

        def skip(code: types.CodeType) -> None:
            frames.set_code_exec_strategy(code, strategy)

    waiting: list[Any] = []
    for module in modules:
        for each in vars(module).values():
            parts = each.values() if isinstance(each, dict) else (each,)
            own = [x for x in parts if getattr(x, "__module__", None) == module.__name__]
            for part in own:
                waiting += vars(part).values() if isinstance(part, type) else (part,)
    known: set[types.CodeType] = set()
    while waiting:
        each = waiting.pop()
        code = getattr(each, "__code__", each)
        if isinstance(code, types.CodeType) and code not in known:
            known.add(code)
            skip(code)
            waiting += code.co_consts


#: what an operation returns where it returns more than its work
_SEVERAL = (tuple, list)
#: what makes calls whose work returns to Python
_RETURNING = frozenset({Maker.PYTHON, Maker.TORCH})
#: functions of torch.distributed that wait for their work at once, whatever they pass
_WAITING = frozenset({"send", "recv"})
#: arguments by which a call says whether its work is returned, by version of torch
_ASYNC = ("asyncOp", "async_op")
#: operations that may be of a batch
_MESSAGES = frozenset({"send", "recv_"})
#: functions that these begin their work by
_STARTING = frozenset({"isend", "irecv"})
#: whose wait is asked afterwards who has sent
_ASKED = "recv_any_source_"


class _Held(threading.local):
    """What is kept for each thread: its id, and its last work with its call's number.

    The number is that of a call that waits for its work at once, or none (-1).
    """

    def __init__(self) -> None:
        self.thread = threading.get_native_id()
        self.work: Any = None
        self.number = -1


#: kinds of calls that are known at once
MOST_KINDS = 1 << 14
#: seconds in which a main thread comes to where it waits for another one
MAIN_S = 0.002


class _Kinds:
    """What calls have in common with others, each written once."""

    def __init__(self, sink: Sink, note: Callable[[], None]) -> None:
        self._put, self._note = sink.put, note
        self._numbers = itertools.count()
        #: what tells a kind -> its number
        self.known: dict[Any, int] = {}

    def write(self, key: Any, words: str) -> int:
        """Write a kind down, and return its number."""
        number = next(self._numbers)
        if len(self.known) >= MOST_KINDS:
            self.known.clear()
        self._note()
        self._put(f'["k",{number},{words}]')
        self.known[key] = number
        return number


class _TrackedWork(weakref.ref[Any]):
    """A work that returned to Python, for as long as it lives: its id, and its call's number."""

    __slots__ = ("at", "is_over", "number")
    at: int
    number: int
    is_over: bool


#: what ends a process that Python's multiprocessing has forked, by `os._exit`
_ENDS_OF_FORKS = tuple(
    os.path.join("multiprocessing", each) for each in ("popen_fork.py", "forkserver.py")
)


class Recorder:
    """What one process records; one a process."""

    def __init__(
        self, folder: str, about: dict[str, Any], numbers: Iterator[int] | None = None
    ) -> None:
        """Open the rank's file and put the kernels in their place; `numbers` are those of calls."""
        import torch
        import torch.distributed as dist

        self.dist: Any = dist
        self.torch: Any = torch
        self.folder, self.about = folder, about
        self.sink = Sink(folder, {**about, "torch": torch.__version__})
        self.sites = Sites(self.sink)
        self._kinds = _Kinds(self.sink, self._note_thread)
        self.numbers = itertools.count() if numbers is None else numbers
        self._groups: dict[str, int] = {}
        #: those of Gloo, whose calls may go past the kernel
        self._straight: dict[str, int] = {}
        self._works: dict[int, _TrackedWork] = {}
        self._storages: dict[int, int] = {}
        self._held = _Held()
        self._names = tensor_names.TensorNames()
        self._on_drop = self._note_drop
        self._backward: set[int] = set()
        self._ended = False
        self._pid = os.getpid()
        self._put = self.sink.put
        self._now = self.sink.now_us
        #: may answer a call in place of the backend: (number, operation, group, arguments, go on,
        #: whether it is waited for at once) -> result
        self.answer: Callable[..., Any] | None = None
        #: what has to be done before the work of a call that was answered is over
        self.late: dict[int, Callable[[], None]] = {}
        #: where an answer was a receive from anyone: its number -> the group rank that sent
        self.sources: dict[int, int] = {}
        #: operation of c10d -> what makes a kernel that records its calls
        self.makers: dict[Any, Callable[..., Any]] = {}
        #: called before the end of a backward pass is written
        self.settle: Callable[[], None] = lambda: None
        #: which way the script goes; it is written before each call
        self.decisions = decision.of_script or decision.Decisions(describe_error)
        if decision.of_script is not None:
            decision.follow_tracing(self.torch.compiler.is_compiling)
        #: what the `init_process_group` that is made now says of this rank
        self.claim: dict[str, Any] | None = None
        #: whether it runs in place what the script would have started as a rank
        self.is_spawned = False
        self.decisions.end_in = self.note_endless_loop
        self.prefixes = side_effect.StorePrefixes(self.dist, is_foreign)
        #: what a spawned fake rank is passed, from which it may know where ranks meet
        self.given: Sequence[Any] = ()
        #: and what its parent passed to the first of them
        self.given_first: Sequence[Any] = ()
        self._libraries: list[Any] = []
        leave_untraced(sys.modules[__name__], tensor_names)
        self._install()
        #: what sees the values of this process, where they are asked for
        self.witness: Any = None
        if settings := os.environ.get(VALUES):
            from torch_scenarios.record.values.witness import ValueWitness

            self.witness = ValueWitness(self, is_foreign, json.loads(settings))

    def _note_thread(self) -> None:
        """Write down at the first call of a kind when its thread was handed over what it runs.

        The main thread may be on its way to where it waits: it is looked at twice.
        """
        since = handover_ns()
        if not since:
            return
        waits = is_main_waiting()
        if not waits:
            time.sleep(MAIN_S)
            waits = is_main_waiting()
        us = max(since - self.sink.began, 0) // 1000
        self.sink.put(json.dumps(["j", self._held.thread, us, int(waits)]))

    # ------------------------------------------------------------------ kernels

    def _install(self) -> None:
        """Put a kernel before each operation of torch's `c10d` library that takes a process group.

        Kernels of `BackendSelect` run before those of any backend, so that all calls pass,
        whichever function of torch or of a framework makes them.
        """
        torch = self.torch
        library = torch.library.Library("c10d", "IMPL")
        key = torch._C.DispatchKey.BackendSelect
        after = torch._C._dispatch_keyset_full_after(key)
        for full_name in torch._C._dispatch_get_all_op_names():
            if not full_name.startswith("c10d::"):
                continue
            name, _, overload = full_name.partition(".")
            schema = torch._C._get_schema(name, overload)
            arguments = [each.name for each in schema.arguments]
            if "process_group" not in arguments:
                continue
            short = name.partition("::")[2]
            operation = getattr(torch.ops.c10d, short)
            operation = getattr(operation, schema.overload_name or "default")
            make = functools.partial(self._kernel, short, operation, arguments, after)
            self.makers[operation] = make
            library.impl(short, make(), "BackendSelect", with_keyset=True)
        functional = torch.library.Library("_c10d_functional", "IMPL")
        waiting = torch.ops._c10d_functional.wait_tensor.default
        functional.impl(
            "wait_tensor", self._tensor_wait(waiting, after), "BackendSelect", with_keyset=True
        )
        self._libraries = [library, functional]
        self._watch_methods()
        self._watch_works()
        self._watch_backward()
        self._watch_groups()
        self._watch_models()
        ImportHook({_CHECKPOINTS: self._watch_checkpoints}).install()
        watch_handovers(is_foreign)
        os.register_at_fork(after_in_child=self._note_fork)

    def _note_fork(self) -> None:
        """Let the next call of this process, which is a fork of the rank, be written down once.

        Its record is the rank's alone. A group that it asks for is none that it knows.
        """
        self._groups.clear()
        self._straight.clear()
        self._group = self._note_forked_call  # type: ignore[method-assign]

    def _note_forked_call(self, group: Any) -> int:
        with contextlib.suppress(OSError):
            entry = {"forked": self.about["rank"], "at": _list_frames(frame_of(1))}
            append_line(os.path.join(self.folder, "launch.jsonl"), entry)
        self._groups[group.group_name] = 0
        return 0

    # All that can be known beforehand is bound here, once: `kernel` runs in the user's job at each
    # call, and is written for pace. `after` are the dispatch keys to which the call goes on.
    def _kernel(
        self,
        name: str,
        operation: Any,
        arguments: list[str],
        after: Any,
        *,
        frame_of: Callable[[int], Any] = frame_of,
    ) -> Any:
        group_at = arguments.index("process_group")
        named = [at for at, each in enumerate(arguments) if each in _ASYNC]
        async_at = named[0] if named and name != _ASKED else len(arguments)
        describe = _DESCRIBED.get(name, _describe_nothing)
        redispatch = operation._handle.redispatch_boxed
        unbox = self.dist.distributed_c10d.Work.unbox
        group_of = self.dist.ProcessGroup.unbox
        numbers, sites, append, held = self.numbers, self.sites.of, self.sink.append, self._held
        groups, clock, began = self._groups, time.perf_counter_ns, self.sink.began
        kinds, handled = self._kinds, sys.exc_info
        is_message = name in _MESSAGES
        decided, write_decisions = self.decisions.pending, self.write_decisions
        current, write_name = tensor_names.CURRENT, self._write_name

        def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
            if decided:
                write_decisions()
            number = next(numbers)
            group = group_of(args[group_at])
            gid = groups.get(group.group_name)
            if gid is None:
                gid = self._group(group)
            site = sites(frame_of(1))
            maker, function = site.maker, site.function
            ins, outs, more = describe(args)
            if handled()[1] is not None:
                more = _add_handled(more)
            is_awaited = maker in _RETURNING and (
                (len(args) > async_at and args[async_at] is False and function != "")
                or (function in _WAITING and name != _ASKED)
            )
            words = (
                f'"{name}",{gid},{site.number},{held.thread},"{maker}",{ins},{outs},{more},'
                f"{is_awaited:d}"
            )
            kind = kinds.known.get(words)
            if kind is None:
                kind = kinds.write(words, words)
            batch = _BATCH.next_words() if is_message and _BATCH.number >= 0 else ""
            append(f'["c",{number},{kind},{(clock() - began) // 1000}{batch}]\n'.encode())
            (current.unit or site.is_of_model) and write_name(number, args[0])
            try:
                answer = self.answer
                if answer is None:
                    result = redispatch(keyset & after, *args, **kwargs)
                else:
                    go_on = functools.partial(redispatch, keyset & after, *args, **kwargs)
                    result = answer(number, name, group, args, go_on, is_awaited=is_awaited)
            except BaseException as error:
                self._put(json.dumps(["e", number, self._now(), _words(error)]))
                raise
            if maker in _RETURNING:
                work = result[-1] if isinstance(result, _SEVERAL) and result else result
                self._note_return(
                    None if work is None else unbox(work), number, is_awaited=is_awaited
                )
            else:
                append(f'["r",{number},{(clock() - began) // 1000}]\n'.encode())
                self._await_elsewhere(number, maker, args)
            return result

        return kernel

    def _note_return(self, work: Any, number: int, *, is_awaited: bool) -> None:
        """Write down that a call has returned to Python, or know its work until its wait is over.

        What is waited for at once is written then. The work is held here until the next call of
        the thread, so that what Python is given is it.
        """
        held = self._held
        held.work = work
        held.number = number if is_awaited and work is not None else -1
        if held.number >= 0:
            return
        self._put(f'["{"x" if is_awaited else "r"}",{number},{self._now()}]')
        if work is not None:
            self._track(work, number)

    # ------------------------------------------------------------------ past the kernel

    def _watch_methods(self) -> None:
        """Stand before the methods of a process group that Python calls."""
        group = self.dist.ProcessGroup
        own = {name: getattr(group, name) for name in _REDUCTIONS if hasattr(group, name)}
        own |= {way.method: getattr(group, way.method) for way in _STRAIGHT}
        for name in _REDUCTIONS:
            if name in own:
                setattr(group, name, _note_op(own[name]))
        if self.dist.get_debug_level() == self.dist.DebugLevel.DETAIL:  # it makes tensors
            return
        if os.environ.get(VALUES):  # what a call carries is seen in its kernel
            return
        for way in _STRAIGHT:
            past = getattr(group, way.method)
            setattr(group, way.method, self._make_direct_method(way, own[way.method], past))

    def _make_direct_method(self, way: _DirectMethod, method: Any, otherwise: Any) -> Any:
        """Return a method of a process group that records its call and goes past the kernel.

        It is past while its key is excluded on this thread. Meanwhile no tensor can be made without
        another one, because torch chooses where by that key. So from the exclusion to its end no
        Python runs, not even a handler of a signal, and Gloo makes none in these calls. What does
        not fit goes `otherwise`.
        """
        torch, dist = self.torch, self.dist
        options = getattr(dist, way.options) if way.options else None
        fields = [each for each in (*way.fields, *_ASYNC) if hasattr(options and options(), each)]
        ask = attrgetter(*fields) if len(fields) > 1 else None
        whole = len(fields) > len(way.fields)  # torch 2.6 does not say whether it waits at once
        if options is not None and not (whole and ask and _has_value(ask(options()))):
            return otherwise
        length = 2 if options is not None else 3
        exclude, selection = (
            torch._C._dispatch_tls_set_dispatch_key_excluded,
            torch._C.DispatchKey.BackendSelect,
        )
        leave, enter = (functools.partial(exclude, selection, each) for each in (True, False))
        plain, strided = (torch.Tensor, torch.nn.Parameter), torch.strided
        modes, partial = torch._C._len_torch_dispatch_stack, functools.partial
        numbers, sites, append, held = self.numbers, self.sites.of, self.sink.append, self._held
        groups, clock, began = self._straight, time.perf_counter_ns, self.sink.began
        known, handled = self._kinds.known, sys.exc_info
        decided, write_decisions = self.decisions.pending, self.write_decisions
        write_name = self._write_name

        def straight(group: Any, *args: Any, **named: Any) -> Any:
            gid = groups.get(group.group_name)
            if gid is None or named or len(args) != length or modes() or handled()[1] is not None:
                return otherwise(group, *args, **named)
            tensors = args[0]
            if type(tensors) is not list or len(tensors) != 1:
                return otherwise(group, *args)
            tensor = tensors[0]
            if (
                type(tensor) not in plain
                or not tensor.is_cpu
                or tensor.layout is not strided
                or (options is not None and type(args[1]) is not options)
            ):
                return otherwise(group, *args)
            passed = args[1:] if ask is None else ask(args[1])
            site, place = sites(frame_of(1)), tensor.data_ptr()
            key = (way, gid, site, held.thread, tensor.dtype, tensor.shape, place, passed)
            found = known.get(key)
            if found is None:
                found = self._straight_kind(key, tensor)
            if found < 0:
                return otherwise(group, *args)
            decided and write_decisions()
            number = next(numbers)
            batch = _BATCH.next_words() if options is None and _BATCH.number >= 0 else ""
            us = (clock() - began) // 1000
            append(f'["c",{number},{found >> 1},{us}{batch}]\n'.encode())
            site.is_of_model and write_name(number, tensor)
            try:
                _, work, _ = map(call, (leave, partial(method, group, *args), enter))
            except BaseException as error:
                enter()
                self._put(json.dumps(["e", number, self._now(), _words(error)]))
                raise
            if found & 1 and work is not None:
                held.work, held.number = work, number
            else:
                self._note_return(work, number, is_awaited=bool(found & 1))
            return work

        return straight

    def write_decisions(self) -> None:
        """Write what was decided since the last call."""
        self.decisions.write(self._put)

    def _write_name(self, number: int, tensors: Any) -> None:
        """Write down which part of a model a call carries, where that has a name."""
        name = tensor_names.CURRENT.unit or self._names.find(tensors)
        if name:
            self._put(json.dumps(["n", number, name]))

    def _straight_kind(self, key: tuple[Any, ...], tensor: Any) -> int:
        """Return twice the number of a kind, one more where it is waited for at once.

        Or -1, for a call whose work may make tensors, or does not return to Python.
        """
        way, gid, site, thread, *_, passed = key
        if len(self._kinds.known) >= MOST_KINDS:
            self._kinds.known.clear()
        more = way.tell(*passed)
        if more is None or site.maker not in _RETURNING:
            self._kinds.known[key] = -1
            return -1
        if way.options:
            is_awaited = site.function != "" and passed[-1] is False
        else:
            is_awaited = site.function in _WAITING
        tensors = _tensors([tensor])
        ins, outs = ("[]", tensors) if way.takes else (tensors, "[]")
        words = (
            f'"{way.operation}",{gid},{site.number},{thread},"{site.maker}",{ins},{outs},{more},'
            f"{is_awaited:d}"
        )
        kind = self._kinds.known.get(words)
        if kind is None:
            kind = self._kinds.write(words, words)
        self._kinds.known[key] = found = 2 * kind + is_awaited
        return found

    def _await_elsewhere(self, number: int, maker: Maker, args: tuple[Any, ...]) -> None:
        """Know a call by its tensors, because its work does not return to Python."""
        if maker == Maker.BACKWARD:
            self._backward.add(number)
        for storage in _storages(args):
            self._storages[storage] = number

    def _track(self, work: Any, number: int) -> None:
        """Know a work by its Python object, which lives as long as it is referenced.

        It is held here until the next call of the thread, so that what Python is given is it.
        """
        tracked = _TrackedWork(work, self._on_drop)
        tracked.at = at = id(work)
        tracked.number, tracked.is_over = number, False
        self._works[at] = tracked
        self._held.work = work

    def _note_drop(self, tracked: _TrackedWork) -> None:
        """Write down that no one has a work any more, where it was never waited for."""
        if self._works.get(tracked.at) is tracked:
            del self._works[tracked.at]
        if not tracked.is_over and not self._ended:
            self._put(f'["d",{tracked.number}]')

    def _tensor_wait(self, operation: Any, after: Any) -> Any:
        def kernel(keyset: Any, tensor: Any) -> Any:
            go_on = functools.partial(operation.redispatch, keyset & after)
            return self.wait_tensor(tensor, go_on)

        return kernel

    def wait_tensor(self, tensor: Any, go_on: Callable[[Any], Any]) -> Any:
        """Wait for the call that a tensor comes from, as `go_on` does, and write it down."""
        number = self._storages.pop(_storage(tensor), None)
        if number is None:
            return go_on(tensor)
        self._put(f'["w",{number},{self._now()}]')
        result = go_on(tensor)
        self._put(f'["x",{number},{self._now()}]')
        self._backward.discard(number)
        return result

    # ------------------------------------------------------------------ waits

    def _watch_works(self) -> None:
        kind = self.dist.distributed_c10d.Work
        wait, future, completed = kind.wait, kind.get_future, kind.is_completed
        works, put, now = self._works, self._put, self._now

        def get(work: Any) -> Any:
            note_done(work)
            return future(work)

        def ask(work: Any) -> Any:
            done = completed(work)
            if done:
                note_done(work)
            return done

        def note_done(work: Any) -> None:
            tracked = works.get(id(work))
            if tracked is not None:
                put(f'["f",{tracked.number},{now()}]')
                self.late.pop(tracked.number, lambda: None)()
                tracked.is_over = True

        kind.wait, kind.get_future, kind.is_completed = self._wrap_wait(wait), get, ask
        self._watch_sources()

    def _wrap_wait(self, wait: Callable[..., Any]) -> Callable[..., Any]:
        """Return a wait for a work that is written when it begins and ends."""
        works, put, now, held, late = self._works, self._put, self._now, self._held, self.late
        append, clock, began = self.sink.append, time.perf_counter_ns, self.sink.began
        sites = self.sites

        def wait_and_write(work: Any, *args: Any, **kwargs: Any) -> Any:
            if held.work is work and held.number >= 0:
                number = held.number
                try:
                    result = wait(work, *args, **kwargs)
                except BaseException as error:
                    put(json.dumps(["e", number, now(), _words(error)]))
                    raise
                finally:
                    held.work, held.number = None, -1
                append(f'["x",{number},{(clock() - began) // 1000}]\n'.encode())
                return result
            tracked = works.get(id(work))
            if tracked is None:
                return wait(work, *args, **kwargs)
            number = tracked.number
            us, limit = (clock() - began) // 1000, _find_timeout(args, kwargs)
            if limit is None:
                append(f'["w",{number},{us}]\n'.encode())
            else:
                ms, site = limit.total_seconds() * 1000, sites.of(frame_of(1))
                append(f'["w",{number},{us},{ms},{site.number}]\n'.encode())
                if self.answer is not None:  # the works of a fake group take no timeout
                    args, kwargs = (), {}
            if number in late:
                late.pop(number)()
            try:
                result = wait(work, *args, **kwargs)
            except BaseException as error:
                put(json.dumps(["e", number, now(), _words(error)]))
                raise
            append(f'["x",{number},{(clock() - began) // 1000}]\n'.encode())
            tracked.is_over = True
            held.work = None
            return result

        return wait_and_write

    def _watch_sources(self) -> None:
        """See who sent what a receive from anyone took."""
        kind, works, put = self.dist.distributed_c10d.Work, self._works, self._put
        source = kind._source_rank

        def find_source(work: Any) -> Any:
            tracked = works.get(id(work))
            if tracked is None:
                return source(work)
            number = tracked.number
            answered = self.sources.get(number)
            found = source(work) if answered is None else answered
            put(f'["p",{number},{int(found)}]')
            return found

        kind._source_rank = find_source

    def _watch_backward(self) -> None:
        graph, sites = self.torch.autograd.graph, self.sites
        run = graph._engine_run_backward

        def backward(*args: Any, **kwargs: Any) -> Any:
            before = sites.backward
            sites.backward = sites.of(frame_of(1)).number
            try:
                result = run(*args, **kwargs)
            except BaseException as error:
                if self._backward:
                    last = max(self._backward)
                    self._backward.clear()
                    self._put(json.dumps(["e", last, self._now(), _words(error)]))
                raise
            finally:
                sites.backward = before
                self._names.is_stale = True
            self.settle()
            if self._backward:
                self._backward.clear()
                self._put(f'["bw",{self._now()}]')
            return result

        graph._engine_run_backward = backward
        self.torch.autograd._engine_run_backward = backward

    # ------------------------------------------------------------------ groups

    def _group(self, group: Any) -> int:
        """Write down a group at first sight."""
        name = group.group_name
        ranks = list(self.dist.get_process_group_ranks(group))
        described = getattr(group, "group_desc", "") or ""
        number = len(self._groups)
        while number in self._groups.values():
            number += 1
        try:
            backend = str(self.dist.get_backend(group))
        except (RuntimeError, ValueError):
            backend = ""
        self._put(json.dumps(["g", number, name, ranks, described, backend]))
        self._names.watch_units(
            lambda unit, options: self._put(json.dumps(["unit", unit, options]))
        )
        self._groups[name] = number
        if backend == "gloo" and type(group) is self.dist.ProcessGroup:
            self._straight[name] = number
        return number

    def _watch_groups(self) -> None:
        module = self.dist.distributed_c10d
        make = module._new_group_with_tag

        def make_group(ranks: Any = None, *args: Any, **kwargs: Any) -> Any:
            local = bool(kwargs.get("use_local_synchronization"))
            listed = None if ranks is None else [int(each) for each in ranks]
            about: dict[str, Any] = {"ranks": listed, "local": local}
            timeout: Any = args[0] if args else kwargs.get("timeout")
            if hasattr(timeout, "total_seconds"):
                about["timeout_s"] = timeout.total_seconds()
            with self._inside("new_group", about) as done:
                group = make(ranks, *args, **kwargs)
                is_member = isinstance(group, self.dist.ProcessGroup)
                done["group"] = self._group(group) if is_member else None
                return group

        module._new_group_with_tag = make_group
        for name in ("init_process_group", "destroy_process_group"):
            self._watch(module, name)
        rpc = sys.modules.get("torch.distributed.rpc")
        if rpc is not None and rpc.is_available():
            procedure.watch_calls(rpc, self.inside)
        batch = _number_batch(module.batch_isend_irecv)
        module.batch_isend_irecv = self.dist.batch_isend_irecv = batch
        self._watch_messages(module.P2POp)

    def _watch_messages(self, kind: Any) -> None:
        """See in which line each message of a batch is made: the `if` around that decides on it."""
        begin = kind.__init__

        @functools.wraps(begin)
        def make_message(message: Any, *args: Any, **kwargs: Any) -> None:
            begin(message, *args, **kwargs)
            setattr(message, _MADE_AT, self.sites.of(frame_of(1)).number)

        kind.__init__ = make_message

    def _watch_models(self) -> None:
        """See with which arguments DDP wraps a model, and the buffers of it that change."""
        kind = self.torch.nn.parallel.DistributedDataParallel
        tensor_names.watch_buffers(kind)
        begin = kind.__init__

        @functools.wraps(begin)
        def wrap_model(model: Any, *args: Any, **kwargs: Any) -> None:
            module: Any = args[0] if args else kwargs.get("module")
            buffers = module.named_buffers() if hasattr(module, "named_buffers") else ()
            is_lazy = self.torch.nn.parameter.is_lazy
            unsent = {*getattr(module, "_ddp_params_and_buffers_to_ignore", ())}
            shapes = {
                name: [*each.shape]
                for name, each in buffers
                if name not in unsent and not is_lazy(each)
            }
            # before DDP broadcasts them: another shape may end the process there
            if shapes and kwargs.get("init_sync", True):
                named = dict([*shapes.items()][:MOST_BUFFERS])
                self._put(json.dumps(["buffers", self.sites.of(frame_of(1)).number, named]))
            begin(model, *args, **kwargs)
            options = {
                name: value
                for name, value in kwargs.items()
                if isinstance(value, bool | int | float)
            }
            self._put(json.dumps(["i", self.sites.of(frame_of(1)).number, options]))

        kind.__init__ = wrap_model

    def _watch_checkpoints(self, module: Any) -> None:
        """See the errors of this rank that torch's checkpoints catch, and raise on every rank."""
        wrap = module._wrap_exception

        def wrap_and_note(error: BaseException) -> Any:
            words, places = describe_error(error)
            self.write_decisions()
            places = [*places, *_list_frames(frame_of(1))][:FRAMES]
            self._put(json.dumps(["share", words, places]))
            return wrap(error)

        module._wrap_exception = wrap_and_note

    def _watch(self, module: Any, name: str) -> None:
        """Record a function of `torch.distributed` that makes, or destroys, a process group."""
        function = getattr(module, name)

        def watch_call(*args: Any, **kwargs: Any) -> Any:
            group = args[0] if args else kwargs.get("group")
            # of the world, after which a rank is in none of its groups
            whole = name.startswith("destroy") and group in (None, self.dist.GroupMember.WORLD)
            more: dict[str, Any] = {"whole": True} if whole else {}
            if self.claim is not None and not name.startswith("destroy"):
                more["init"] = self.claim
            with self._inside(name, more):
                if not name.startswith("destroy"):
                    procedure.watch_workers_of_ray(self.write_decisions)
                    return function(*args, **kwargs)
                # dropped at the end: torch 2.6 drops them in its call, and would wait there
                kept = [*module._world.pg_map]
                try:
                    return function(*args, **kwargs)
                finally:
                    if whole:
                        release_programs()
                    self._groups.clear()
                    self._straight.clear()
                    let_go()
                    del kept

        watch_call.__name__, watch_call.__doc__ = name, function.__doc__
        watch_call.__wrapped__ = function  # type: ignore[attr-defined]
        for holder in (module, self.dist):
            if getattr(holder, name, None) is function:
                setattr(holder, name, watch_call)

    def inside(self, what: str) -> _Blocking:
        """Return what a call is in that may block: it is written when it begins and ends."""
        return self._inside(what, {})

    def _inside(self, what: str, more: dict[str, Any]) -> _Blocking:
        return _Blocking(self, what, more)

    # ------------------------------------------------------------------ its end

    def watch_side_effects(self) -> None:
        """See which files the process changes, which of its threads die, where it leaves at once.

        `os._exit` runs nothing at the end: no `atexit`, and no `finally`. What is not the user's
        own calls it too, where a fake rank waits for ever.
        """
        leave = os._exit

        def leave_at_once(code: Any = 0) -> NoReturn:
            caller = frame_of(1)
            file = caller.f_code.co_filename
            is_own = not is_foreign(file)
            is_forked = file.endswith(_ENDS_OF_FORKS)  # its program is over
            if (is_own or is_forked) and not self._ended and os.getpid() == self._pid:
                self.write_decisions()
                if is_own:
                    self._put(json.dumps(["exit", _list_frames(caller)]))
                self.end(int(code))
            leave(code)

        os._exit = leave_at_once  # type: ignore[assignment]
        side_effect.SideEffects(
            self, is_foreign, lambda frame: self.sites.of(frame).number
        ).install(describe_error)

    def note_error(self, error: BaseException) -> None:
        """Write down what ended the program.

        A handler of a signal may raise while an error is looked at: a loader's worker is killed,
        its pipe breaks, and then torch's handler says which worker it was. That one is told.
        """
        try:
            self._write_error(error, error)
        except Exception as struck:
            self._write_error(struck, error)

    def _write_error(self, error: BaseException, ended: BaseException) -> None:
        self.write_decisions()
        words = _words(error)
        words += _name_parameters(words)
        self._put(json.dumps(["raise", words, _find_places(ended), self._now()]))

    def note_staying(self) -> None:
        """Write down which threads keep the process when its program is over: no daemons."""
        self.write_decisions()
        for thread in threading.enumerate():
            if thread is not threading.main_thread() and not thread.daemon:
                frames = [[file, line, ""] for file, line in started_at(thread)]
                self._put(json.dumps(["stay", thread.name, frames]))

    def note_endless_loop(self, frame: Any, *, draws: bool) -> None:
        """Write down where this rank is in a loop that it never leaves, unless by what it draws."""
        self.write_decisions()
        self._put(json.dumps(["turns", _list_frames(frame), int(draws)]))

    def note_return(self) -> None:
        """Write down that what a script started as this fake rank has returned in its place.

        What follows is the part of the script that starts the ranks, and waits for them.
        """
        self.write_decisions()
        self._put('["back"]')

    def note_exit(self, error: BaseException) -> None:
        """Write down where the program leaves by `sys.exit`."""
        self.write_decisions()
        self._put(json.dumps(["exit", _find_places(error)]))

    def end(self, code: int) -> None:
        """Write down that the program came to its end; a process that it forked is not it."""
        if not self._ended and os.getpid() == self._pid:
            self._ended = True
            self.write_decisions()
            self._put(f'["end",{int(code)},{self._now()}]')
            self.sink.close()
            if self.witness is not None:
                self.witness.end()


def let_go() -> None:
    """Let threads of a backend drop what they hold of Python's, until none wants a processor.

    Such a thread needs the lock of Python's. What drops a group of Gloo's holds that lock and waits
    for the group's threads; and a thread that asks for it once Python ends aborts the process.
    """
    before = -1
    for _ in range(MOST_LET_GO):
        time.sleep(LET_GO_S)
        wanted = _read_others_demand()
        if wanted == before:
            return
        before = wanted


def _read_others_demand() -> int:
    """Return for how long other threads of the process ran, or waited for a processor.

    In nanoseconds; always the same where the system does not say it.
    """
    own, total = threading.get_native_id(), 0
    try:
        for task in os.listdir("/proc/self/task"):
            if int(task) != own:
                with open(f"/proc/self/task/{task}/schedstat", encoding="ascii") as file:
                    ran, waited, _ = file.read().split()
                total += int(ran) + int(waited)
    except (OSError, ValueError):
        return -1
    return total


class _Blocking:
    """A call of Python's that may block and is no operation: written when it begins and ends."""

    def __init__(self, recorder: Recorder, what: str, more: dict[str, Any]) -> None:
        self._recorder, self._what, self._more = recorder, what, more
        self._number = -1
        self._done: dict[str, Any] = {}

    def __enter__(self) -> dict[str, Any]:
        recorder = self._recorder
        recorder.decisions.write(recorder.sink.put)
        self._number = next(recorder.numbers)
        site = recorder.sites.of(frame_of(2)).number
        more = {**self._more, **_find_handled(), "thread": threading.get_native_id()}
        row = ["b", self._number, self._what, site, recorder.sink.now_us(), more]
        recorder.sink.put(json.dumps(row))
        return self._done

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        words = None if error is None else _words(error)
        now = self._recorder.sink.now_us()
        self._recorder.sink.put(json.dumps(["be", self._number, now, self._done, words]))


# -------------------------------------------------------------------------------------------------
# What a call passes: its tensors by dtype, shape and place in memory, and what else tells it.


#: characters of an error: torch's longest says at its end which parameters it is about
MOST_WORDS = 4000


#: how the traceback of another process, or thread, begins in an error that is raised again here:
#: by a DataLoader for its worker, by `mp.spawn` for a process, by a pool for a task
_ELSEWHERE = "Traceback (most recent call last):\n"
_FRAME_ELSEWHERE = re.compile(r'^ *File "(.+)", line (\d+), in ', re.MULTILINE)


def _words(error: BaseException) -> str:
    before, begins, trace = str(error).rpartition(_ELSEWHERE)
    own = [line for line in trace.splitlines() if line and not line.startswith(" ")]
    if begins and own:
        where = next(iter(before.strip().splitlines()), "").strip(" -.:")
        words = " ".join(" ".join(own).split())
        return f"{words}{f' ({where})' if where else ''}"[:MOST_WORDS]
    words = " ".join(str(error).split()) or _find_raising(error)
    return f"{type(error).__name__}{': ' * bool(words)}{words}"[:MOST_WORDS]


def _find_raising(error: BaseException) -> str:
    """Return where an installed package raises an error that has no words; nothing for others."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or not isinstance(error, Exception):
        return ""
    code = trace.tb_frame.f_code
    if not find_installed(code.co_filename):
        return ""
    return f"raised by `{code.co_name}` ({_name_in_package(code.co_filename)}:{trace.tb_lineno})"


def _find_timeout(args: tuple[Any, ...], kwargs: dict[str, Any]) -> timedelta | None:
    """Return the timeout that a wait is passed; None where it takes that of its group."""
    found = args[0] if args else kwargs.get("timeout")
    return found if isinstance(found, timedelta) and found.total_seconds() > 0 else None


#: buffers of a model that are written down with their shapes
MOST_BUFFERS = 200
#: characters of the names of the parameters that a rank trains
MOST_TRAINED = 2000


def describe_error(error: BaseException) -> tuple[str, list[list[Any]]]:
    """Return an error in words, and the places of the user's own files that it went through."""
    return _words(error), _find_places(error)


#: where DDP names parameters by their numbers
_NUMBERED = re.compile(
    r"params\[(\d+)\]|Parameter at index (\d+)|did not receive grad for rank \d+: ([\d ]+)"
)


def _name_parameters(words: str) -> str:
    """Return which parameters an error of DDP is about, by their names in the model; or nothing."""
    numbers = [int(each) for found in _NUMBERED.findall(words) for each in " ".join(found).split()]
    if not numbers and "expects same model" not in words:
        return ""
    for model in gc.get_objects():
        if type(model).__name__ == "DistributedDataParallel" and hasattr(model, "module"):
            left_out = set(getattr(model, "parameters_to_ignore", ()))
            names = [
                name
                for name, each in model.module.named_parameters()
                if each.requires_grad and name not in left_out
            ]
            if not numbers:
                return f" [of the model it trains {', '.join(names)[:MOST_TRAINED]}]"
            known = {at: names[at] for at in numbers if at < len(names)}
            text = ", ".join(f"{at} is {name}" for at, name in known.items())
            return f" [of the model's parameters, {text}]" if text else ""
    return ""


def _trace_of(error: BaseException) -> str:
    """Return the traceback of another process that an error has in its words; or nothing."""
    try:
        _, begins, trace = str(error).rpartition(_ELSEWHERE)
    except Exception:  # a handler of a signal may raise while an error is looked at
        return ""
    return trace if begins else ""


def _find_places(error: BaseException) -> list[list[Any]]:
    """Return the places in the user's own files that an error went through, the innermost first.

    What another process wrote of it comes before the line that raises it again here.
    """
    through = [error, *filter(None, [_find_end_within(error)])]
    places = [
        [frame.filename, frame.lineno, (frame.line or "")[:MOST_LINE]]
        for each in through
        for frame in traceback.extract_tb(each.__traceback__)
        if not is_foreign(frame.filename)
    ]
    texts = (_trace_of(each) for each in (error.__cause__, error) if each is not None)
    elsewhere = [
        [file, int(line), linecache.getline(file, int(line)).strip()[:MOST_LINE]]
        for text in texts
        for file, line in _FRAME_ELSEWHERE.findall(text)
        if not is_foreign(file)
    ]
    return [*elsewhere[::-1], *places[::-1]][:FRAMES]


def _find_end_within(error: BaseException) -> BaseException | None:
    """Return the end of an iterator that a generator has met in itself; None for other errors.

    Python raises RuntimeError in its place, whose traceback begins outside of the generator.
    """
    cause = error.__cause__
    is_end = isinstance(cause, StopIteration | StopAsyncIteration)
    return cause if is_end and isinstance(error, RuntimeError) else None


def _list_frames(frame: Any) -> list[list[Any]]:
    """Return where a frame is in the user's own files, and what calls it from them."""
    found: list[list[Any]] = []
    while frame is not None and len(found) < FRAMES:
        file, line = frame.f_code.co_filename, frame.f_lineno
        if not is_foreign(file):
            found.append([file, line, linecache.getline(file, line).strip()[:MOST_LINE]])
        frame = frame.f_back
    return found


def _find_handled() -> dict[str, Any]:
    """Return the error that is handled while a call is made, as in a `finally`; or nothing."""
    error = sys.exc_info()[1]
    return {} if error is None else {"handled": [_words(error), _find_places(error)]}


def _add_handled(more: str) -> str:
    """Return what a call says of itself, with the error that is handled meanwhile."""
    return json.dumps({**json.loads(more), **_find_handled()})


#: kinds of tensors without memory
PLACELESS: tuple[type, ...] = ()
#: what a dtype and a shape are in a record: a program has few
_DTYPES: dict[Any, str] = {}
_SHAPES: dict[Any, str] = {}
#: shapes that are kept
_MOST_SHAPES = 4096


def _tensor(tensor: Any) -> str:
    dtype = _DTYPES.get(tensor.dtype) or _DTYPES.setdefault(tensor.dtype, str(tensor.dtype)[6:])
    shape = tensor.shape
    text = _SHAPES.get(shape)
    if text is None:
        if len(_SHAPES) >= _MOST_SHAPES:
            _SHAPES.clear()
        text = _SHAPES[shape] = f"{list(shape)}"
    try:
        place = 0 if isinstance(tensor, PLACELESS) else tensor.data_ptr()
        size = tensor.nbytes
    except RuntimeError:  # a sparse tensor is several, and has neither
        place, size = 0, tensor.numel() * tensor.element_size()
    return f'["{dtype}",{text},{place},{size}]'


def _tensors(tensors: Any) -> str:
    if len(tensors) == 1:
        return f"[{_tensor(tensors[0])}]"
    if len(tensors) <= LISTED:
        return f"[{','.join(map(_tensor, tensors))}]"
    kinds = {(each.dtype, tuple(each.shape)) for each in tensors}
    if len(kinds) > 1:
        return f"[{','.join(map(_tensor, tensors))}]"
    first = tensors[0]
    dtype = str(first.dtype)[6:]
    place = 0 if isinstance(first, PLACELESS) else min(each.data_ptr() for each in tensors)
    whole = sum(each.nbytes for each in tensors)
    return f'[["{dtype}",{list(first.shape)},{place},{whole},{len(tensors)}]]'


def _lists(lists: Any) -> str:
    return _tensors(lists[0]) if len(lists) else "[]"


def _storage(tensor: Any) -> int:
    return int(tensor.untyped_storage()._cdata)


def _storages(args: Any) -> list[int]:
    found: list[int] = []
    for each in args:
        if isinstance(each, list | tuple):
            found += _storages(each)
        elif hasattr(each, "untyped_storage"):
            try:
                found.append(_storage(each))
            except (RuntimeError, NotImplementedError):
                continue
    return found


#: what a call of Python's reduces with, while it is made
_REDUCING = threading.local()

#: methods of a process group that reduce
_REDUCTIONS = (
    *("allreduce", "allreduce_coalesced", "reduce", "reduce_scatter"),
    *("_reduce_scatter_base", "reduce_scatter_tensor_coalesced"),
)


def _note_op(method: Any) -> Any:
    """Return a method whose reduce op is known before its kernel runs.

    A kernel asks its reduce op by a method of TorchScript, which takes longer than all else that is
    asked; and on torch 2.6 the op has no field that can be read. What functional collectives and
    C++ reduce with is not known there: it is taken for a sum.
    """

    def reduce(*args: Any, **kwargs: Any) -> Any:
        _REDUCING.op = getattr(args[-1], "reduceOp", None) if args else None
        try:
            return method(*args, **kwargs)
        finally:
            _REDUCING.op = None

    return reduce


#: the attribute of a message of a batch that has the number of the place that made it
_MADE_AT = "_scenario_made_at"


class _Batch(threading.local):
    """The number of the `batch_isend_irecv` that a thread is in; -1 where it is in none."""

    number = -1
    #: the places that made its messages which are still to come; -1 for one that is not known
    made_at: Iterator[int] = iter(())

    def next_words(self) -> str:
        """Return what the line of its next message has: its number, and the message's place."""
        made_at = next(self.made_at, -1)
        return f",{self.number},{made_at}" if made_at >= 0 else f",{self.number}"


_BATCH = _Batch()


def _number_batch(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a `batch_isend_irecv` whose messages have its number."""
    numbers = itertools.count()

    @functools.wraps(function)
    def send_batch(*args: Any, **kwargs: Any) -> Any:
        messages = next(iter((*args, *kwargs.values())), None)
        known = messages if isinstance(messages, list) else []
        _BATCH.number = next(numbers)
        _BATCH.made_at = iter([getattr(each, _MADE_AT, -1) for each in known])
        try:
            return function(*args, **kwargs)
        finally:
            _BATCH.number = -1

    return send_batch


#: the code that stands between a call of a batch and torch's own
_BATCHING_CODE = _number_batch(len).__code__


def _op(op: Any) -> str:
    known = getattr(_REDUCING, "op", None)
    if known is not None:
        code = getattr(known, "op", known)
    else:
        try:
            code = op.op()
        except AttributeError:
            code = 0
    number = int(getattr(code, "value", code))
    return REDUCE_OPS[number] if number < len(REDUCE_OPS) else "sum"


def _describe_nothing(_: Any) -> tuple[str, str, str]:
    return "[]", "[]", "{}"


#: operation of c10d -> what its call passes: tensors in, tensors out, the rest as JSON
_DESCRIBED: dict[str, Callable[[Any], tuple[str, str, str]]] = {
    "allreduce_": lambda a: (_tensors(a[0]), "[]", f'{{"op":"{_op(a[2])}"}}'),
    "allreduce_coalesced_": lambda a: (_tensors(a[0]), "[]", f'{{"op":"{_op(a[2])}"}}'),
    "broadcast_": lambda a: (_tensors(a[0]), "[]", f'{{"root":{a[2]}}}'),
    "reduce_": lambda a: (_tensors(a[0]), "[]", f'{{"op":"{_op(a[2])}","root":{a[3]}}}'),
    "allgather_": lambda a: (_tensors(a[1]), _lists(a[0]), "{}"),
    "allgather_coalesced_": lambda a: (
        _tensors(a[1]),
        _tensors([one for each in a[0] for one in each]),
        "{}",
    ),
    "_allgather_base_": lambda a: (_tensors([a[1]]), _tensors([a[0]]), "{}"),
    "allgather_into_tensor_coalesced_": lambda a: (_word_each(a[1]), _word_each(a[0]), "{}"),
    "gather_": lambda a: (_tensors(a[1]), _lists(a[0]), f'{{"root":{a[3]}}}'),
    "scatter_": lambda a: (_lists(a[1]), _tensors(a[0]), f'{{"root":{a[3]}}}'),
    "reduce_scatter_": lambda a: (_lists(a[1]), _tensors(a[0]), f'{{"op":"{_op(a[3])}"}}'),
    "_reduce_scatter_base_": lambda a: (
        _tensors([a[1]]),
        _tensors([a[0]]),
        f'{{"op":"{_op(a[3])}"}}',
    ),
    "reduce_scatter_tensor_coalesced_": lambda a: (
        _word_each(a[1]),
        _word_each(a[0]),
        f'{{"op":"{_op(a[3])}"}}',
    ),
    "alltoall_": lambda a: (_word_each(a[1]), _word_each(a[0]), "{}"),
    "alltoall_base_": lambda a: (
        _tensors([a[1]]),
        _tensors([a[0]]),
        f'{{"out":{list(a[3])},"in":{list(a[4])}}}',
    ),
    "send": lambda a: (_tensors(a[0]), "[]", f'{{"peer":{a[2]},"tag":{a[3]}}}'),
    "recv_": lambda a: ("[]", _tensors(a[0]), f'{{"peer":{a[2]},"tag":{a[3]}}}'),
    "recv_any_source_": lambda a: ("[]", _tensors(a[0]), f'{{"tag":{a[2]}}}'),
    "monitored_barrier_": lambda a: ("[]", "[]", f'{{"timeout_ms":{a[3]}}}'),
}


def _word_each(tensors: Any) -> str:
    return f"[{','.join(map(_tensor, tensors))}]"


class _DirectMethod:
    """A method of a process group that may go past the kernel, and what its call passes.

    `options` is the class of its last argument, `fields` those that matter of that; without one the
    arguments themselves do. `tell` returns it as JSON; None of a call whose work may make
    tensors.
    """

    __slots__ = ("fields", "method", "operation", "options", "takes", "tell")

    def __init__(
        self,
        *,
        method: str,
        operation: str,
        tell: Callable[..., str | None],
        options: str = "",
        fields: tuple[str, ...] = (),
        takes: bool = False,
    ) -> None:
        self.method = method
        self.operation = operation
        self.tell = tell
        self.options = options
        self.fields = fields
        self.takes = takes


#: reduce ops that Gloo has no tensor to make for
_SIMPLE = frozenset(REDUCE_OPS) - {"avg", "premul_sum"}


def _has_value(fields: tuple[Any, ...]) -> bool:
    """Whether fields of options can be looked up by their value."""
    try:
        return hash(fields) == hash(tuple(fields))
    except TypeError:
        return False


def _reduction(op: Any, *more: Any) -> str | None:
    """Tell a reduction by its op, and its root where it has one."""
    code = getattr(op, "op", op)
    number = int(getattr(code, "value", code))
    name = REDUCE_OPS[number] if number < len(REDUCE_OPS) else ""
    root = f',"root":{more[0]}' if len(more) > 1 else ""
    return f'{{"op":"{name}"{root}}}' if name in _SIMPLE else None


def _message(peer: int, tag: int) -> str:
    return f'{{"peer":{peer},"tag":{tag}}}'


#: what goes past the kernel on Gloo: a rank asks for nothing more often
_STRAIGHT = (
    _DirectMethod(
        method="allreduce",
        operation="allreduce_",
        options="AllreduceOptions",
        fields=("reduceOp",),
        tell=_reduction,
    ),
    _DirectMethod(
        method="reduce",
        operation="reduce_",
        options="ReduceOptions",
        fields=("reduceOp", "rootRank"),
        tell=_reduction,
    ),
    _DirectMethod(
        method="broadcast",
        operation="broadcast_",
        options="BroadcastOptions",
        fields=("rootRank",),
        tell=lambda root, _: f'{{"root":{root}}}',
    ),
    _DirectMethod(method="send", operation="send", tell=_message),
    _DirectMethod(method="recv", operation="recv_", tell=_message, takes=True),
)


# -------------------------------------------------------------------------------------------------
# Under a launcher of the user's own: by the environment alone.


#: set where `scenario record` runs the launcher: it asks a rank for its stack by SIGUSR1
STACKS = "SCENARIO_RECORD_STACKS"
#: characters of the command of a program that joins a job
MOST_PROGRAM = 80

#: set where values are to be seen: how, as JSON
VALUES = "SCENARIO_RECORD_VALUES"

#: variables that are the same on all ranks of a launch, and others in another one
_LAUNCH = (
    *("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT"),
    *("SLURM_JOB_ID", "SLURM_STEP_ID"),
)


#: those of them that a rank may set for itself, where it is to meet the others
_MEETS = frozenset({"MASTER_ADDR", "MASTER_PORT"})


def launch() -> str:
    """Return what tells one launch from another; the values are not shown.

    Where ranks meet is what a process of `multiprocessing` was started with: two ranks of one
    launch that each choose a port for themselves are not of two launches. A program of its own that
    sets it starts the other ranks with it, as Lightning's rank 0 does.
    """
    is_spawned = multiprocessing.parent_process() is not None
    meeting = _read_first_environment() if is_spawned else os.environ
    text = "\n".join((meeting if name in _MEETS else os.environ).get(name, "") for name in _LAUNCH)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _read_first_environment() -> Mapping[str, str]:
    """Return the environment that this process was started with; the one it has without `/proc`."""
    try:
        with open("/proc/self/environ", encoding="utf-8", errors="surrogateescape") as file:
            pairs = [each.partition("=") for each in file.read().split("\0")]
    except OSError:
        return os.environ
    return {name: value for name, _, value in pairs}


#: files whose code runs the function of a process, and prints the error that ends it
_RUNNERS = ("multiprocessing/process.py", "torch/multiprocessing/spawn.py")


def watch_printed_errors(note: Callable[[BaseException], None]) -> None:
    """Let the error be noted by which a process ends that another one has started.

    `multiprocessing` and `torch.multiprocessing` catch it around the function of the process, and
    print it: `sys.excepthook` is not asked.
    """

    def watch(show: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(show)
        def show_and_note(*args: Any, **kwargs: Any) -> Any:
            error = sys.exc_info()[1]
            if error is not None and sys._getframe(1).f_code.co_filename.endswith(_RUNNERS):
                note(error)
            return show(*args, **kwargs)

        return show_and_note

    traceback.print_exc = watch(traceback.print_exc)
    traceback.format_exc = watch(traceback.format_exc)


def append_line(path: str, entry: Mapping[str, Any]) -> None:
    """Write one line at the end of a file, whole, also where others write to it. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
    file = os.open(path, flags, 0o644)
    try:
        os.write(file, f"{json.dumps(entry)}\n".encode())
    finally:
        os.close(file)


#: names of `torch.distributed.run` among the programs that start it
_TORCHRUN = frozenset({"run.py", "__main__.py", "-m", "-c", ""})


def watch_launcher(handlers: Any, folder: str) -> None:
    """Write down how the ranks end that this process starts by torch's `SubprocessHandler`.

    That is how torchrun starts them, and what goes on from it, as accelerate does.
    """
    kind = handlers.SubprocessHandler
    begin, close = kind._popen, kind.close
    ranks: dict[int, int] = {}
    name = os.path.basename(sys.argv[0]) if sys.argv else ""
    name = "torchrun" if name in _TORCHRUN else name
    about = {"launch": 1, "pid": os.getpid(), "launcher": name}

    def put(entry: dict[str, Any]) -> None:
        os.makedirs(folder, exist_ok=True)
        append_line(os.path.join(folder, "launch.jsonl"), entry)

    def wrap_call(process: Any, call: Callable[..., Any], entry: dict[str, Any]) -> Any:
        def call_and_note(*args: Any, **kwargs: Any) -> Any:
            before = process.returncode
            try:
                return call(*args, **kwargs)
            finally:
                if before is None and process.returncode is not None:
                    put({**entry, "exit": process.returncode})

        return call_and_note

    def popen(own: Any, args: Any, env: dict[str, str], *more: Any, **named: Any) -> Any:
        process = begin(own, args, env, *more, **named)
        if not ranks:
            put(about)
        entry = {"rank": int(env.get("RANK", 0)), "pid": process.pid}
        ranks[process.pid] = entry["rank"]
        put(entry)
        process.poll = wrap_call(process, process.poll, entry)
        process.wait = wrap_call(process, process.wait, entry)
        return process

    def close_process(own: Any, *args: Any, **kwargs: Any) -> Any:
        process = own.proc
        if process.pid in ranks and process.poll() is None:
            put({"rank": ranks[process.pid], "pid": process.pid, "stopped": True})
        return close(own, *args, **kwargs)

    kind._popen, kind.close = popen, close_process


def attach(folder: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Recorder | None:
    """Record this process from now on, as what its first `init_process_group` says that it is.

    Where that says nothing, its rank is what the launcher's environment says: spawned processes,
    actors of Ray and notebooks pass their ranks as arguments, or in a store. A program that a rank
    has started is no rank; that it takes the place of one in its world is written down.
    """
    claim = claim_of(args, kwargs)
    joined = rank_joined(claim)
    if joined is not None:
        if joined >= 0:
            program = " ".join([os.path.basename(sys.argv[0]), *sys.argv[1:]])[:MOST_PROGRAM]
            entry = {"joined": joined, "program": program, "at": _list_frames(frame_of(1))}
            append_line(os.path.join(folder, "launch.jsonl"), entry)
        return None
    rank, world = claim["rank"], claim["world_size"]
    if rank < 0:
        rank = int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")))
    if world <= rank:
        world = max(
            int(os.environ.get("WORLD_SIZE", os.environ.get("SLURM_NTASKS", "1"))), rank + 1
        )
    os.makedirs(folder, exist_ok=True)
    recorder = Recorder(
        folder,
        {
            "rank": rank,
            "world_size": world,
            "argv": sys.argv,
            "cwd": os.getcwd(),
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "launch": launch(),
            "mode": "attached",
            **(decision.of_script.program if decision.of_script is not None else {}),
        },
    )
    watch_claims(recorder, recorder.dist.distributed_c10d, recorder.dist, lambda _: None)
    if world > 1:
        tell_programs(rank, claim)
    hook = sys.excepthook

    def note_exception(kind: Any, error: BaseException, trace: Any) -> None:
        recorder.note_error(error)
        hook(kind, error, trace)

    sys.excepthook = note_exception
    watch_printed_errors(recorder.note_error)
    recorder.watch_side_effects()
    atexit.register(recorder.end, 0)
    atexit.register(let_go)
    if os.environ.get(STACKS):
        stack = open(os.path.join(folder, f"rank-{rank:05d}.stack"), "w")  # noqa: SIM115
        faulthandler.register(signal.SIGUSR1, file=stack, all_threads=True)
        faulthandler.enable(file=stack, all_threads=False)
        _write_stack_at_end(stack)
    return recorder


def _write_stack_at_end(file: Any) -> None:
    """Let a launcher's SIGTERM write where Python is, before it ends this process as ever.

    A launcher ends the ranks that are left when one has raised: where they were is why it did. A
    handler of the script's own takes the place of this one; so do those of its child processes.
    """
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return
    faulthandler.register(signal.SIGTERM, file=file, all_threads=False, chain=True)

    def leave() -> None:
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            faulthandler.unregister(signal.SIGTERM)

    os.register_at_fork(after_in_child=leave)
