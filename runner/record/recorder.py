"""The kernel in the user's processes: every call that communicates, written down as it is made.

A Python kernel at dispatch key BackendSelect for each operation of `c10d` sees every call, whatever
makes it: `torch.distributed`, the reducer of DDP, FSDP, DTensor, functional collectives, compiled
code, any thread (measured on torch 2.6 and 2.13). Waits are seen at `Work.wait` and
`_c10d_functional::wait_tensor`; the C++ waits of the reducer at the end of `backward`.

The record is a file a rank, a line an event (:mod:`runner.record.format`), written with one `write`
each before and after the call: it is whole after SIGKILL. No value of a tensor is in it. Nothing
here keeps a tensor alive after its wait, catches a signal or prints.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import itertools
import json
import linecache
import os
import sys
import sysconfig
import threading
import time
import traceback
import types
import weakref
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

VERSION = 1

#: frames of the user's own that name a call, the innermost first
FRAMES = 3
#: frames that are looked through for them
DEEPEST = 200
#: tensors of a list that are recorded one by one
LISTED = 4
#: characters of a line of a script that the record carries
MOST_LINE = 200

REDUCE_OPS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum")

_STDLIB = os.path.dirname(os.__file__)
_PREFIXES = tuple(
    {
        sysconfig.get_paths()["stdlib"],
        sysconfig.get_paths()["platstdlib"],
        _STDLIB,
        os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
    }
)


#: seconds in which a thread of a backend comes to drop what it holds of Python's; tries
LET_GO_S, MOST_LET_GO = 0.02, 25

#: files between a call of `torch.distributed` and its kernel
_ENTRIES = ("distributed_c10d.py", "c10d_logger.py", "typing_extensions.py", "contextlib.py")


class Sink:
    """The file of one rank: lines are appended whole, by any thread."""

    def __init__(self, folder: str, about: dict[str, Any]) -> None:
        """Open the file and say whose it is."""
        host = about.get("host", "")
        name = f"rank-{about['rank']:05d}" + (f"-{host}" if host else "") + ".jsonl"
        self.path = os.path.join(folder, name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_TRUNC
        self._file = os.open(self.path, flags | getattr(os, "O_CLOEXEC", 0), 0o644)
        self.began = time.perf_counter_ns()
        self.put(json.dumps({"scenario_record": VERSION, **about, "time": time.time()}))

    def put(self, lines: str) -> None:
        """Append a line, or several, with a line feed between them."""
        os.write(self._file, f"{lines}\n".encode())

    def now_us(self) -> int:
        """Return the microseconds since the file was opened."""
        return (time.perf_counter_ns() - self.began) // 1000


class CallSite(NamedTuple):
    """A place that calls: its number, what makes the call, and the function of torch's Python.

    `maker` is `py` for a call whose work returns to Python, `to` for one that torch's own Python
    makes, `bw` for one of a backward pass, `fn` for a functional one, `cc` for one that C++ makes
    and waits for. `function` is empty where no function of `torch.distributed` makes the call.
    """

    number: int
    maker: str
    function: str


class Sites:
    """Where calls stand in the user's own files, each place written once."""

    def __init__(self, sink: Sink) -> None:
        """Know no place."""
        self._sink = sink
        self._known: dict[Any, int] = {}
        self._foreign: dict[str, bool] = {}
        #: code objects that were seen, alive so that no other one gets their ids: is it foreign?
        self._codes: dict[int, tuple[types.CodeType, bool]] = {}
        #: what was found for frames: their code objects, and where the user's own stand in theirs
        self._found: dict[tuple[int, ...], CallSite] = {}
        self._lock = threading.Lock()

    def of(self, frame: Any) -> CallSite:
        """Return the place of a call that the frame makes."""
        inner, codes = frame, self._codes
        passed: list[int] = []
        own = 0
        while frame is not None and own < FRAMES and len(passed) < DEEPEST:
            code = frame.f_code
            at = id(code)
            known = codes.get(at)
            if known is None:
                known = codes[at] = (code, self._is_foreign(code.co_filename))
            passed.append(at)
            if not known[1]:
                own += 1
                passed.append(frame.f_lasti)
            frame = frame.f_back
        key = tuple(passed)
        site = self._found.get(key)
        if site is None:
            site = self._found[key] = self._look(inner)
        return site

    def _is_foreign(self, file: str) -> bool:
        found = self._foreign.get(file)
        if found is None:
            found = self._foreign[file] = is_foreign(file)
        return found

    def _look(self, frame: Any) -> CallSite:
        """Return the place of a call, by the files and names of the frames."""
        inner = frame
        found: list[tuple[str, int]] = []
        api = ""
        deep = 0
        while frame is not None and len(found) < FRAMES and deep < DEEPEST:
            deep += 1
            code = frame.f_code
            file = code.co_filename
            if not self._is_foreign(file):
                found.append((file, frame.f_lineno))
            elif not found and file.endswith("distributed_c10d.py"):
                name = code.co_name
                if name != "wrapper":
                    api = name
            frame = frame.f_back
        key = (api, *found)
        number = self._known.get(key)
        if number is None:
            number = self._write(key, api, found)
        maker = _maker(inner, self._foreign)
        inner = _behind_reduction(inner)
        by_torch = inner is not None and inner.f_code.co_filename.endswith("distributed_c10d.py")
        return CallSite(number, maker, inner.f_code.co_name if by_torch else "")

    def _write(self, key: Any, api: str, found: list[tuple[str, int]]) -> int:
        with self._lock:
            number = self._known.get(key)
            if number is None:
                number = len(self._known)
                places = [
                    [file, line, linecache.getline(file, line).strip()[:MOST_LINE]]
                    for file, line in found
                ]
                self._sink.put(json.dumps(["s", number, api, places]))
                self._known[key] = number
        return number


def is_foreign(file: str) -> bool:
    """Whether a file is not the user's own: torch, another package, the standard library."""
    return (
        file.startswith(("<", *_PREFIXES))
        or "/site-packages/" in file
        or "/dist-packages/" in file
        or "torchinductor" in file
        or "/torch/" in file
    )


def _behind_reduction(frame: Any) -> Any:
    """Return the frame that calls a method of a process group that the recorder stands before."""
    return frame.f_back if frame is not None and frame.f_code is _REDUCING_CODE else frame


def _is_entry(frame: Any) -> bool:
    """Whether a frame lies between a call of `torch.distributed` and its kernel."""
    return frame.f_code is _BATCHING_CODE or frame.f_code.co_filename.endswith(_ENTRIES)


def _maker(frame: Any, foreign: dict[str, bool]) -> str:
    frame = _behind_reduction(frame)
    if frame is None:
        return "bw"
    file, name = frame.f_code.co_filename, frame.f_code.co_name
    if file.endswith("distributed_c10d.py"):
        while frame is not None and _is_entry(frame):
            frame = frame.f_back
        return "to" if frame is not None and "/torch/" in frame.f_code.co_filename else "py"
    if name == "_engine_run_backward":
        return "bw"
    if file.endswith(("_functional_collectives.py", "_ops.py")) or "torchinductor" in file:
        return "fn"
    if file.startswith("<") or not foreign.get(file, False):
        return "py"
    return "cc" if "/torch/" in file else "py"


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
_RETURNING = frozenset({"py", "to"})
#: functions of torch.distributed that wait for their work at once, whatever they pass
_WAITING = frozenset({"send", "recv"})


class _Held(threading.local):
    """What is kept for each thread: its id, its last work, and a return that is not yet written."""

    def __init__(self) -> None:
        self.thread = threading.get_native_id()
        self.work: Any = None
        self.returned = ""


class _TrackedWork(weakref.ref[Any]):
    """A work that returned to Python, for as long as it lives: its id, and its call's number."""

    __slots__ = ("at", "is_over", "number")
    at: int
    number: int
    is_over: bool


class Recorder:
    """What one process records; one a process."""

    def __init__(self, folder: str, about: dict[str, Any]) -> None:
        """Open the rank's file and put the kernels in their place."""
        import torch
        import torch.distributed as dist

        self.dist: Any = dist
        self.torch: Any = torch
        self.sink = Sink(folder, {**about, "torch": torch.__version__})
        self.sites = Sites(self.sink)
        self.numbers = itertools.count()
        self._groups: dict[str, int] = {}
        self._works: dict[int, _TrackedWork] = {}
        self._storages: dict[int, int] = {}
        self._held = _Held()
        self._on_drop = self._dropped
        self._backward: set[int] = set()
        self._ended = False
        self._pid = os.getpid()
        self._put = self.sink.put
        self._now = self.sink.now_us
        #: may answer a call in place of the backend: (operation, arguments, go on) -> result
        self.answer: Callable[..., Any] | None = None
        #: where an answer was a receive from anyone: its number -> the group rank that sent
        self.sources: dict[int, int] = {}
        self._libraries: list[Any] = []
        leave_untraced(sys.modules[__name__])
        self._install()

    # ------------------------------------------------------------------ kernels

    def _install(self) -> None:
        torch = self.torch
        library = torch.library.Library("c10d", "IMPL")
        key = torch._C.DispatchKey.BackendSelect
        after = torch._C._dispatch_keyset_full_after(key)
        for schema in torch._C._jit_get_all_schemas():
            name = schema.name
            if not name.startswith("c10d::"):
                continue
            arguments = [each.name for each in schema.arguments]
            if "process_group" not in arguments:
                continue
            short = name.partition("::")[2]
            operation = getattr(torch.ops.c10d, short)
            operation = getattr(operation, schema.overload_name or "default")
            kernel = self._kernel(short, operation, arguments, after)
            library.impl(short, kernel, "BackendSelect", with_keyset=True)
        functional = torch.library.Library("_c10d_functional", "IMPL")
        waiting = torch.ops._c10d_functional.wait_tensor.default
        functional.impl(
            "wait_tensor", self._tensor_wait(waiting, after), "BackendSelect", with_keyset=True
        )
        self._libraries = [library, functional]
        _watch_reductions(self.dist.ProcessGroup)
        self._watch_works()
        self._watch_backward()
        self._watch_groups()

    def _kernel(self, name: str, operation: Any, arguments: list[str], after: Any) -> Any:
        group_at = arguments.index("process_group")
        async_at = arguments.index("asyncOp") if "asyncOp" in arguments else len(arguments)
        describe = _DESCRIBED.get(name, _describe_nothing)
        redispatch = operation._handle.redispatch_boxed
        unbox = self.dist.distributed_c10d.Work.unbox
        group_of = self.dist.ProcessGroup.unbox
        numbers, sites, put, held = self.numbers, self.sites.of, self._put, self._held
        groups, clock, began = self._groups, time.perf_counter_ns, self.sink.began
        frame_of, track, handled = sys._getframe, self._track, sys.exc_info

        def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
            number = next(numbers)
            group = group_of(args[group_at])
            gid = groups.get(group.group_name)
            if gid is None:
                gid = self._group(group)
            site, maker, function = sites(frame_of(1))
            thread = held.thread
            ins, outs, more = describe(args)
            if handled()[1] is not None:
                more = _with_handled(more)
            put(
                f'["c",{number},"{name}",{gid},{site},{(clock() - began) // 1000},{thread},'
                f'"{maker}",{ins},{outs},{more}]'
            )
            try:
                answer = self.answer
                if answer is None:
                    result = redispatch(keyset & after, *args, **kwargs)
                else:
                    go_on = functools.partial(redispatch, keyset & after, *args, **kwargs)
                    result = answer(number, name, group, args, go_on)
            except BaseException as error:
                put(json.dumps(["e", number, self._now(), _words(error)]))
                raise
            returned = f'["r",{number},{(clock() - began) // 1000}]'
            if maker in _RETURNING:
                work = result[-1] if isinstance(result, _SEVERAL) and result else result
                if work is not None and (
                    function in _WAITING
                    or (function and len(args) > async_at and args[async_at] is False)
                ):  # torch waits at once: it is written with the wait, before that begins
                    held.returned = returned
                else:
                    put(returned)
                if work is not None:
                    track(unbox(work), number)
            else:
                put(returned)
                self._await_elsewhere(number, maker, args)
            return result

        return kernel

    def _await_elsewhere(self, number: int, maker: str, args: tuple[Any, ...]) -> None:
        """Know a call by its tensors, because its work does not return to Python."""
        if maker == "bw":
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

    def _dropped(self, tracked: _TrackedWork) -> None:
        """Write down that no one has a work any more, where it was never waited for."""
        if self._works.get(tracked.at) is tracked:
            del self._works[tracked.at]
        if not tracked.is_over and not self._ended:
            self._put(f'["d",{tracked.number}]')

    def _tensor_wait(self, operation: Any, after: Any) -> Any:
        put, now = self._put, self._now

        def kernel(keyset: Any, tensor: Any) -> Any:
            number = self._storages.pop(_storage(tensor), None)
            if number is None:
                return operation.redispatch(keyset & after, tensor)
            put(f'["w",{number},{now()}]')
            result = operation.redispatch(keyset & after, tensor)
            put(f'["x",{number},{now()}]')
            self._backward.discard(number)
            return result

        return kernel

    # ------------------------------------------------------------------ waits

    def _watch_works(self) -> None:
        kind = self.dist.distributed_c10d.Work
        wait, future, completed = kind.wait, kind.get_future, kind.is_completed
        works, put, now, held = self._works, self._put, self._now, self._held

        def waiting(work: Any, *args: Any, **kwargs: Any) -> Any:
            tracked = works.get(id(work))
            if tracked is None:
                return wait(work, *args, **kwargs)
            number, returned = tracked.number, held.returned
            if returned:
                held.returned = ""
                put(f'{returned}\n["w",{number},{now()}]')
            else:
                put(f'["w",{number},{now()}]')
            try:
                result = wait(work, *args, **kwargs)
            except BaseException as error:
                put(json.dumps(["e", number, now(), _words(error)]))
                raise
            put(f'["x",{number},{now()}]')
            tracked.is_over = True
            held.work = None
            return result

        def getting(work: Any) -> Any:
            asked(work)
            return future(work)

        def asking(work: Any) -> Any:
            done = completed(work)
            if done:
                asked(work)
            return done

        def asked(work: Any) -> None:
            tracked = works.get(id(work))
            if tracked is not None:
                put(f'["f",{tracked.number},{now()}]')
                tracked.is_over = True

        kind.wait, kind.get_future, kind.is_completed = waiting, getting, asking
        self._watch_sources()

    def _watch_sources(self) -> None:
        """See who sent what a receive from anyone took."""
        kind, works, put = self.dist.distributed_c10d.Work, self._works, self._put
        source = kind._source_rank

        def sourced(work: Any) -> Any:
            tracked = works.get(id(work))
            if tracked is None:
                return source(work)
            number = tracked.number
            answered = self.sources.get(number)
            found = source(work) if answered is None else answered
            put(f'["p",{number},{int(found)}]')
            return found

        kind._source_rank = sourced

    def _watch_backward(self) -> None:
        graph = self.torch.autograd.graph
        run = graph._engine_run_backward

        def backward(*args: Any, **kwargs: Any) -> Any:
            try:
                result = run(*args, **kwargs)
            except BaseException as error:
                if self._backward:
                    last = max(self._backward)
                    self._backward.clear()
                    self._put(json.dumps(["e", last, self._now(), _words(error)]))
                raise
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
        self._groups[name] = number
        return number

    def _watch_groups(self) -> None:
        module = self.dist.distributed_c10d
        make = module._new_group_with_tag

        def made(ranks: Any = None, *args: Any, **kwargs: Any) -> Any:
            local = bool(kwargs.get("use_local_synchronization"))
            listed = None if ranks is None else [int(each) for each in ranks]
            with self._inside("new_group", {"ranks": listed, "local": local}) as done:
                group = make(ranks, *args, **kwargs)
                is_member = isinstance(group, self.dist.ProcessGroup)
                done["group"] = self._group(group) if is_member else None
                return group

        module._new_group_with_tag = made
        for name in ("init_process_group", "destroy_process_group"):
            self._watch(module, name)
        batch = _batching(module.batch_isend_irecv)
        module.batch_isend_irecv = self.dist.batch_isend_irecv = batch

    def _watch(self, module: Any, name: str) -> None:
        function = getattr(module, name)

        def watched(*args: Any, **kwargs: Any) -> Any:
            group = args[0] if args else kwargs.get("group")
            # of the world, after which a rank is in none of its groups
            whole = name.startswith("destroy") and group in (None, self.dist.GroupMember.WORLD)
            with self._inside(name, {"whole": True} if whole else {}):
                if not name.startswith("destroy"):
                    return function(*args, **kwargs)
                # dropped at the end: torch 2.6 drops them in its call, and would wait there
                kept = [*module._world.pg_map]
                try:
                    return function(*args, **kwargs)
                finally:
                    self._groups.clear()
                    let_go()
                    del kept

        watched.__name__, watched.__doc__ = name, function.__doc__
        watched.__wrapped__ = function  # type: ignore[attr-defined]
        for holder in (module, self.dist):
            if getattr(holder, name, None) is function:
                setattr(holder, name, watched)

    def _inside(self, what: str, more: dict[str, Any]) -> _Blocking:
        return _Blocking(self, what, more)

    # ------------------------------------------------------------------ its end

    def raised(self, error: BaseException) -> None:
        """Write down what ended the program."""
        self._put(json.dumps(["raise", _words(error), _raised_at(error), self._now()]))

    def end(self, code: int) -> None:
        """Write down that the program came to its end; a process that it forked is not it."""
        if not self._ended and os.getpid() == self._pid:
            self._ended = True
            self._put(f'["end",{int(code)},{self._now()}]')


def let_go() -> None:
    """Let threads of a backend drop what they hold of Python's, until none wants a processor.

    Such a thread needs the lock of Python's. What drops a group of Gloo's holds that lock and waits
    for the group's threads; and a thread that asks for it once Python ends aborts the process.
    """
    before = -1
    for _ in range(MOST_LET_GO):
        time.sleep(LET_GO_S)
        wanted = _wanted_by_others()
        if wanted == before:
            return
        before = wanted


def _wanted_by_others() -> int:
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
        self._number = next(recorder.numbers)
        site = recorder.sites.of(sys._getframe(2)).number
        more = {**self._more, **_handled(), "thread": threading.get_native_id()}
        told = ["b", self._number, self._what, site, recorder.sink.now_us(), more]
        recorder.sink.put(json.dumps(told))
        return self._done

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        words = None if error is None else _words(error)
        now = self._recorder.sink.now_us()
        self._recorder.sink.put(json.dumps(["be", self._number, now, self._done, words]))


# -------------------------------------------------------------------------------------------------
# What a call passes: its tensors by dtype, shape and place in memory, and what else tells it.


def _words(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"[:500]


def _raised_at(error: BaseException) -> list[list[Any]]:
    """Return the places in the user's own files that an error went through, the innermost first."""
    places = [
        [frame.filename, frame.lineno, (frame.line or "")[:MOST_LINE]]
        for frame in traceback.extract_tb(error.__traceback__)
        if not is_foreign(frame.filename)
    ]
    return places[::-1][:FRAMES]


def _handled() -> dict[str, Any]:
    """Return the error that is handled while a call is made, as in a `finally`; or nothing."""
    error = sys.exc_info()[1]
    return {} if error is None else {"handled": [_words(error), _raised_at(error)]}


def _with_handled(more: str) -> str:
    """Return what a call says of itself, with the error that is handled meanwhile."""
    return json.dumps({**json.loads(more), **_handled()})


#: what a dtype and a shape are in a record: a program has few
_DTYPES: dict[Any, str] = {}
_SHAPES: dict[Any, str] = {}
#: shapes that are kept
_MOST_SHAPES = 4096


def _tensor(tensor: Any) -> str:
    dtype = _DTYPES.get(tensor.dtype) or _DTYPES.setdefault(tensor.dtype, str(tensor.dtype)[6:])
    shape = tensor.shape
    told = _SHAPES.get(shape)
    if told is None:
        if len(_SHAPES) >= _MOST_SHAPES:
            _SHAPES.clear()
        told = _SHAPES[shape] = f"{list(shape)}"
    try:
        place = tensor.data_ptr()
    except RuntimeError:
        place = 0
    return f'["{dtype}",{told},{place},{tensor.nbytes}]'


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
    place = min(each.data_ptr() for each in tensors)
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


def _watch_reductions(group: Any) -> None:
    """Know what Python's calls reduce with before their kernels run.

    A kernel asks its reduce op by a method of TorchScript, which takes longer than all else that is
    asked; and on torch 2.6 the op has no field that can be read. What functional collectives and
    C++ reduce with is not known there: it is taken for a sum.
    """
    for name in _REDUCTIONS:
        method = getattr(group, name, None)
        if method is not None:
            setattr(group, name, _reducing(method))


def _reducing(method: Any) -> Any:
    def reducing(*args: Any, **kwargs: Any) -> Any:
        _REDUCING.op = getattr(args[-1], "reduceOp", None) if args else None
        try:
            return method(*args, **kwargs)
        finally:
            _REDUCING.op = None

    return reducing


#: the code that stands between a call and its kernel
_REDUCING_CODE = _reducing(None).__code__


class _Batch(threading.local):
    """The `batch_isend_irecv` that a thread is in, as the end of what its messages say; or none."""

    told = "}"


_BATCH = _Batch()


def _batching(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a `batch_isend_irecv` whose messages have its number."""
    numbers = itertools.count()

    @functools.wraps(function)
    def batching(*args: Any, **kwargs: Any) -> Any:
        _BATCH.told = f',"batch":{next(numbers)}}}'
        try:
            return function(*args, **kwargs)
        finally:
            _BATCH.told = "}"

    return batching


#: the code that stands between a call of a batch and torch's own
_BATCHING_CODE = _batching(len).__code__


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
    "allgather_into_tensor_coalesced_": lambda a: (_each(a[1]), _each(a[0]), "{}"),
    "gather_": lambda a: (_tensors(a[1]), _lists(a[0]), f'{{"root":{a[3]}}}'),
    "scatter_": lambda a: (_lists(a[1]), _tensors(a[0]), f'{{"root":{a[3]}}}'),
    "reduce_scatter_": lambda a: (_lists(a[1]), _tensors(a[0]), f'{{"op":"{_op(a[3])}"}}'),
    "_reduce_scatter_base_": lambda a: (
        _tensors([a[1]]),
        _tensors([a[0]]),
        f'{{"op":"{_op(a[3])}"}}',
    ),
    "reduce_scatter_tensor_coalesced_": lambda a: (
        _each(a[1]),
        _each(a[0]),
        f'{{"op":"{_op(a[3])}"}}',
    ),
    "alltoall_": lambda a: (_each(a[1]), _each(a[0]), "{}"),
    "alltoall_base_": lambda a: (
        _tensors([a[1]]),
        _tensors([a[0]]),
        f'{{"out":{list(a[3])},"in":{list(a[4])}}}',
    ),
    "send": lambda a: (_tensors(a[0]), "[]", f'{{"peer":{a[2]},"tag":{a[3]}{_BATCH.told}'),
    "recv_": lambda a: ("[]", _tensors(a[0]), f'{{"peer":{a[2]},"tag":{a[3]}{_BATCH.told}'),
    "recv_any_source_": lambda a: ("[]", _tensors(a[0]), f'{{"tag":{a[2]}}}'),
}


def _each(tensors: Any) -> str:
    return f"[{','.join(map(_tensor, tensors))}]"


# -------------------------------------------------------------------------------------------------
# Under a launcher of the user's own: by the environment alone.


#: set where `scenario record` runs the launcher: it asks a rank for its stack by SIGUSR1
STACKS = "SCENARIO_RECORD_STACKS"

#: variables that are the same on all ranks of a launch, and others in another one
_LAUNCH = (
    *("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT"),
    *("SLURM_JOB_ID", "SLURM_STEP_ID"),
)


def launch() -> str:
    """Return what tells one launch from another; the values are not shown."""
    text = "\n".join(os.environ.get(name, "") for name in _LAUNCH)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def append_line(path: str, entry: Mapping[str, Any]) -> None:
    """Write one line at the end of a file, whole, whoever else writes to it. Raises OSError."""
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

    def noting(process: Any, call: Callable[..., Any], entry: dict[str, Any]) -> Any:
        def noted(*args: Any, **kwargs: Any) -> Any:
            before = process.returncode
            try:
                return call(*args, **kwargs)
            finally:
                if before is None and process.returncode is not None:
                    put({**entry, "exit": process.returncode})

        return noted

    def popen(own: Any, args: Any, env: dict[str, str], *more: Any, **named: Any) -> Any:
        process = begin(own, args, env, *more, **named)
        if not ranks:
            put(about)
        entry = {"rank": int(env.get("RANK", 0)), "pid": process.pid}
        ranks[process.pid] = entry["rank"]
        put(entry)
        process.poll = noting(process, process.poll, entry)
        process.wait = noting(process, process.wait, entry)
        return process

    def closed(own: Any, *args: Any, **kwargs: Any) -> Any:
        process = own.proc
        if process.pid in ranks and process.poll() is None:
            put({"rank": ranks[process.pid], "pid": process.pid, "stopped": True})
        return close(own, *args, **kwargs)

    kind._popen, kind.close = popen, closed


def attach(folder: str) -> Recorder:
    """Record this process from now on; its rank is what the launcher's environment says."""
    import socket

    rank = int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")))
    world = int(os.environ.get("WORLD_SIZE", os.environ.get("SLURM_NTASKS", "1")))
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
        },
    )
    hook = sys.excepthook

    def excepting(kind: Any, error: BaseException, trace: Any) -> None:
        recorder.raised(error)
        hook(kind, error, trace)

    sys.excepthook = excepting
    atexit.register(recorder.end, 0)
    atexit.register(let_go)
    if os.environ.get(STACKS):
        import faulthandler
        import signal

        path = os.path.join(folder, f"rank-{rank:05d}.stack")
        faulthandler.register(signal.SIGUSR1, file=open(path, "w"), all_threads=False)  # noqa: SIM115
    return recorder
