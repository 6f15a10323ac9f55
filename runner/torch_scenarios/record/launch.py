"""Ranks of a user's script, forked from a process that has imported torch: `python -m` this module.

Each rank has torchrun's environment and a recorder. The parent waits for them, and writes how each
ended to `launch.jsonl`. One JSON document on its standard input says what to do. With the number of
a descriptor as its argument it stays warm: each line is one run, forked from it, and the run's
process id and its exit code are written to that descriptor.

    scenario record -- train.py
      `- python -m torch_scenarios.record.launch      imports torch, once: 2 s
           |- rank 0                                  forked: some ms, no second import
           `- rank 1
"""

from __future__ import annotations

import atexit
import builtins
import ctypes
import faulthandler
import gc
import importlib
import inspect
import itertools
import json
import os
import runpy
import signal
import socket
import sys
import threading
import time
import traceback
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from operator import attrgetter
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed

from torch_scenarios.record import shim
from torch_scenarios.record.evidence.claim import (
    claim_of,
    make_environment,
    tell_programs,
    watch_claims,
)
from torch_scenarios.record.evidence.standstill import RankStates, Standstill
from torch_scenarios.record.recorder import VALUES, Recorder, is_foreign
from torch_scenarios.record.scratch import SCRATCH, Scratch
from torch_scenarios.record.values import deal

#: where the ranks of a run meet: no other host reaches it
ADDRESS = "127.0.0.1"
#: connections of ranks that wait until the store serves them
BACKLOG = 512
#: what fake ranks are told of a port, which none of them listens at: torchrun's own
FAKE_PORT = 29500
#: what a rank raises at a call where that is asked for
STRUCK = "this rank raises here, for --nemesis"

#: modules that the witness of values imports
WITNESSED = ("torch._dynamo", "torch.distributed.fsdp", "torch.distributed.algorithms.join")


#: `PR_SET_PDEATHSIG` of Linux: which signal a process gets when its parent ends
_PARENT_DEATH = 1


def end_with(parent: int) -> None:
    """Let this process be killed when its parent is, also by SIGKILL; now, where that has ended.

    prctl(2), Linux alone: elsewhere a parent that is killed leaves its ranks to their own end.
    """
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_PARENT_DEATH, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def main() -> int:
    """Do the run that standard input tells of; or, warm, one after the other."""
    if len(sys.argv) > 1:
        return _warm(int(sys.argv[1]))
    line = sys.stdin.readline()
    if not line:  # the command has ended before it asked for a run, as by Ctrl-C
        return 0
    order = json.loads(line)
    end_with(order["parent"])
    _import(order)
    _launch(order)
    return 0


def _warm(descriptor: int) -> int:
    """Fork a process for each run that is asked for, until there is no more to do.

    The run is forked, too, and not done here: what a script leaves behind in its parent (threads,
    an imported module, an environment variable) would be found by the next run.
    """
    with os.fdopen(descriptor, "w", encoding="ascii") as reply:
        for line in sys.stdin:
            order = json.loads(line)
            _import(order)
            own = os.getpid()
            pid = fork()
            if pid == 0:
                _child(partial(_parent_of_run, order, own))
            print(pid, file=reply, flush=True)
            _, status = os.waitpid(pid, 0)
            print(os.waitstatus_to_exitcode(status), file=reply, flush=True)
    return 0


def fork() -> int:
    """Fork without the warning of Python 3.12 about the threads that torch's import starts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _child(work: Callable[[], int]) -> NoReturn:
    """Do the work of a forked process, and end it with the code that the work returns."""
    code = 1
    try:
        code = work()
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _parent_of_run(order: dict[str, Any], parent: int) -> int:
    """Be the parent of one run, with the environment of who asked for it."""
    end_with(parent)
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.path[:] = order["path"]
    output = os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(output, 1)
    os.dup2(output, 2)
    _launch(order)
    return 0


def _import(order: dict[str, Any]) -> None:
    """Import once, before the forks, what a script is likely to import.

    One thread each: OpenMP's threads do not survive a fork, and a child that waits for them hangs.
    """
    torch.set_num_threads(1)
    names = list(order["imports"])
    if order["values"]:
        names += WITNESSED
    if order["fake"]:
        names.append("torch.testing._internal.distributed.fake_pg")
    for name in dict.fromkeys(names):
        with suppress(Exception):  # the script that needs it is shown why it cannot be imported
            importlib.import_module(name)
    # ranks look for models among what is made after this, and their collector walks no more
    gc.freeze()


def _launch(order: dict[str, Any]) -> None:
    """Fork the ranks and wait for all of them.

    Real ranks meet in a TCPStore that this process serves, as torchrun's agent does for its workers
    (`TORCHELASTIC_USE_AGENT_STORE`): no rank has to serve it, and none takes it along when it ends.
    Its thread begins once all ranks are forked: a lock that it held at a fork would stay locked in
    that rank, which then never comes out of `init_process_group`. Until then the ranks' connections
    wait at the socket.
    """
    folder, ranks, world = order["folder"], order["ranks"], order["world_size"]
    fake = bool(order["fake"])
    listener = None if fake else socket.create_server((ADDRESS, 0), backlog=BACKLOG)
    log = os.open(
        str(Path(folder) / "launch.jsonl"), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_TRUNC
    )

    def put(entry: dict[str, Any]) -> None:
        os.write(log, f"{json.dumps(entry)}\n".encode())

    put({"launch": 1, "pid": os.getpid(), "world_size": world, "ranks": ranks, "fake": fake})
    _fork(order, listener, put)
    put({"over": True})


def _serve_store(listener: socket.socket) -> Any:
    """Return a store of torch's that serves at a socket, which it takes.

    It is at the loopback interface alone: all ranks are on this machine.
    """
    dist: Any = torch.distributed
    make = partial(
        dist.TCPStore,
        ADDRESS,
        listener.getsockname()[1],
        is_master=True,
        wait_for_workers=False,
        multi_tenant=True,
        master_listen_fd=listener.detach(),
    )
    try:
        return make()
    except NotImplementedError:  # up to torch 2.6 only the older of its two servers takes a socket
        return make(use_libuv=False)


def _fork(
    order: dict[str, Any], listener: socket.socket | None, put: Callable[[dict[str, Any]], None]
) -> None:
    """Fork the ranks, serve the store that real ones meet in, and wait for all of them."""
    store = None
    board, standstill = fake_board(order)
    own = os.getpid()
    waiting = list(order["ranks"])
    running: dict[int, int] = {}
    is_told = False
    while waiting or running:
        while waiting and _may_start(order, board, standstill, running):
            rank = waiting.pop(0)
            sys.stdout.flush()
            sys.stderr.flush()
            if board is not None:
                board.become(rank, 1)
            pid = fork()
            if pid == 0:
                _child(partial(_run, order, rank, listener, board, own))
            running[pid] = rank
            put({"rank": rank, "pid": pid})
        if listener is not None and store is None:  # all real ranks are forked
            store = _serve_store(listener)
        pid, status = os.waitpid(-1, os.WNOHANG if order["fake"] else 0)
        if pid == 0:
            time.sleep(0.005)
            standstill.look(running)
            if not waiting and not is_told and (outside := standstill.ranks()):
                is_told = True
                put({"outside": outside})
        elif pid in running:
            rank = running.pop(pid)
            if board is not None:
                board.become(rank, 3)
            put({"rank": rank, "pid": pid, "exit": os.waitstatus_to_exitcode(status)})


def fake_board(order: dict[str, Any]) -> tuple[Any, Any]:
    """Return what ranks of a fake world share, and what sees them stand; None in a real one."""
    if not order["fake"]:
        return None, None
    board = RankStates(order["world_size"])
    return board, Standstill(board)


def _may_start(order: dict[str, Any], board: Any, standstill: Any, running: dict[int, int]) -> bool:
    """Whether one more rank may start: those of a fake world do not all run at once.

    1,024 fake ranks are run by as many processes as there are `jobs`: a rank that waits for a file
    of another one counts as resting, or the one that writes it would never start.
    """
    if board is None:
        return True
    busy = sum(board.state(rank) == 1 and not standstill.rests(rank) for rank in running.values())
    return bool(busy < order["jobs"])


def environment(order: dict[str, Any], rank: int, port: int) -> dict[str, str]:
    """Return what torchrun tells a rank (https://docs.pytorch.org/docs/stable/elastic/run.html).

    One node has them all: `LOCAL_RANK` is `RANK`.
    """
    world = str(order["world_size"])
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": world,
        "LOCAL_WORLD_SIZE": world,
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "ROLE_RANK": str(rank),
        "ROLE_NAME": "default",
        "ROLE_WORLD_SIZE": world,
        "MASTER_ADDR": ADDRESS,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RESTART_COUNT": str(order.get("restarts", 0)),
        "TORCHELASTIC_MAX_RESTARTS": str(order.get("restarts", 0)),
        "TORCHELASTIC_RUN_ID": "scenario",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }


def _leave(listener: socket.socket | None) -> int:
    """Close what the launcher listens at, in a rank; return its port, or one for fake ranks."""
    if listener is None:
        return FAKE_PORT
    port: int = listener.getsockname()[1]
    listener.close()
    return port


def _run(
    order: dict[str, Any], rank: int, listener: socket.socket | None, board: Any, parent: int
) -> int:
    """Be a rank: set its environment, install the recorder, run the script, and write how it ended.

    Python's own end (threads, atexit) is run before the recorder's, and `os._exit` skips what
    torch's parent process would clean up a second time.
    """
    end_with(parent)
    port = _leave(listener)
    os.environ.update(environment(order, rank, port))
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    folder, strike = order["folder"], order["strike"]
    stack = (Path(folder) / f"rank-{rank:05d}.stack").open("w", encoding="utf-8")  # it stays open
    faulthandler.register(signal.SIGUSR1, file=stack, all_threads=True)
    faulthandler.enable(file=stack, all_threads=False)
    recorder = Recorder(
        folder,
        {
            "rank": rank,
            "world_size": order["world_size"],
            "argv": order["command"],
            "cwd": os.getcwd(),
            "pid": os.getpid(),
            "mode": "fake" if order["fake"] else "live",
            "shim": order["cuda_as_cpu"],
        },
        _InjectionNumbers(strike) if strike and strike["rank"] == rank else None,
    )
    if order["cuda_as_cpu"]:
        shim.install()
    if order["fake"]:
        from torch_scenarios.record import fake

        fake.install(recorder, order, rank, board)
        if not order["writes_allowed"]:
            _keep_files(order)
    elif not torch.cuda.is_available():
        shim.map_backends()
    dist: Any = torch.distributed
    watch_claims(recorder, dist.distributed_c10d, dist, partial(_serve_itself, port))
    recorder.watch_side_effects()
    _watch_programs(order, rank)
    if rank and os.environ.get("PYTHONHASHSEED", "random") == "random":
        recorder.decisions.salt = rank  # hashes of strings are those of the process it is forked of
    recorder.decisions.install(_is_own(order), recorder.torch.compiler.is_compiling)
    code = _run_on_gpu(order, recorder) if order.get("gpu") else _script(order, recorder)
    with suppress(BaseException):
        threading._shutdown()  # type: ignore[attr-defined] # Python waits for threads first
    with suppress(BaseException):
        atexit._run_exitfuncs()
    recorder.end(code)
    return code


def _watch_programs(order: dict[str, Any], rank: int) -> None:
    """Let programs that the script starts say so where they join the job as its rank."""
    if order["world_size"] > 1:
        known = os.environ.get("PYTHONPATH", "")
        os.environ.update(make_environment(order["folder"], known))
        tell_programs(rank, claim_of((), {}))


class _InjectionNumbers:
    """The numbers of a rank's calls; at one of them it raises, dies or is late instead."""

    def __init__(self, strike: dict[str, Any]) -> None:
        self._strike = strike
        self._numbers = itertools.count()

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        number = next(self._numbers)
        if number == self._strike["number"]:
            if self._strike["kind"] == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            elif self._strike["kind"] == "late":
                time.sleep(self._strike["seconds"])
            else:
                raise RuntimeError(STRUCK)
        return number


def _run_on_gpu(order: dict[str, Any], recorder: Recorder) -> int:
    """Run the script on tensors without memory, as if on the GPU of a machine."""
    from torch_scenarios.record.kernels.clock import KernelClock

    clock = KernelClock(recorder, order["gpu"], cuda=order["cuda_as_cpu"])
    with clock.mode:
        code = _script(order, recorder)
    clock.end()
    return code


def _is_own(order: dict[str, Any]) -> Callable[[str], bool]:
    """Return what says whether a file that is imported is of the user's own program."""
    homes = [os.getcwd()]
    if not order["module"]:
        homes.append(str(Path(order["command"][0]).absolute().parent))
    within = tuple(f"{os.path.abspath(each)}{os.sep}" for each in homes)

    def is_own(file: str) -> bool:
        return os.path.abspath(file).startswith(within) and not is_foreign(file)

    return is_own


def _serve_itself(port: int, claim: dict[str, Any]) -> None:
    """Let rank 0 serve the store of a script that names a place of its own to meet at."""
    if claim["method"] in {"env", "tcp"} and claim["port"] != port:
        os.environ["TORCHELASTIC_USE_AGENT_STORE"] = str(False)


def _keep_files(order: dict[str, Any]) -> None:
    """Keep what the script writes aside: its ranks are fake, and so are its results."""
    folder = order["folder"]
    own = [os.getcwd()]
    if not order["module"]:
        own.append(str(Path(order["command"][0]).absolute().parent))
    Scratch(str(Path(folder) / SCRATCH), free=(folder,), own=tuple(own)).install()


def _script(order: dict[str, Any], recorder: Recorder) -> int:
    """Run the script or module as `python` does; returns its exit code."""
    command = order["command"]
    # as for `python`: what the script holds stays alive until the process ends. Were it dropped
    # before, a group of Gloo could wait for a thread that waits for the lock of Python's
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = main
    try:
        if order["function"]:
            _call(order)
        elif order["module"]:
            sys.argv = list(command)
            sys.path.insert(0, "")
            runpy._run_module_as_main(command[0], alter_argv=True)  # type: ignore[attr-defined]
        else:
            path = str(Path(command[0]).absolute())
            sys.argv = [command[0], *command[1:]]
            sys.path.insert(0, str(Path(path).parent))
            main.__dict__["__file__"] = path
            program = _program(path, main, recorder)
            exec(program, main.__dict__)
    except SystemExit as exiting:
        code = exiting.code
        if code is not None and not isinstance(code, int):
            print(code, file=sys.stderr)
        recorder.note_exit(exiting)
        return code if isinstance(code, int) else 0 if code is None else 1
    except BaseException as error:
        recorder.note_error(error)
        try:
            _print_error(error)
        except Exception as struck:  # by a handler of a signal
            _print_error(struck)
        return 1
    return 0


def _program(path: str, main: types.ModuleType, recorder: Recorder) -> types.CodeType:
    """Return a script as code; where one of its lines is named as a batch, with that in it."""
    named = json.loads(os.environ.get(VALUES) or "{}").get("batch")
    if not named:
        code: types.CodeType = recorder.decisions.compile(Path(path).read_bytes(), path)
        return code
    main.__dict__[deal.CALLED] = deal.batch
    text = Path(path).read_text(encoding="utf-8")
    return compile(deal.insert_batch(text, path, int(named)), path, "exec")


def _print_error(error: BaseException) -> None:
    """Print an error as Python does, without the frames of the recorder."""
    shown = traceback.TracebackException.from_exception(error)
    waiting: list[traceback.TracebackException | None] = [shown]
    own = os.path.dirname(os.path.abspath(__file__))
    while waiting:
        each = waiting.pop()
        if each is not None:
            kept = [frame for frame in each.stack if not frame.filename.startswith(own)]
            each.stack = traceback.StackSummary.from_list(kept)
            waiting += (each.__cause__, each.__context__)
    for line in shown.format():
        print(line, end="", file=sys.stderr)


def _call(order: dict[str, Any]) -> None:
    """Call a function of a module, with the default process group made before.

    As `torch.multiprocessing` tests do: the function takes `rank` and `world_size` where it asks
    for them.
    """
    dist: Any = torch.distributed
    begin = dist.init_process_group

    def init_process_group(*args: Any, **kwargs: Any) -> None:
        if not dist.is_initialized():
            begin(*args, **kwargs)

    for holder in (dist, dist.distributed_c10d):
        holder.init_process_group = init_process_group
    init_process_group("gloo")
    module, _, name = order["function"].partition(":")
    function = attrgetter(name)(_module(module, order["command"][0]))
    known = {"rank": dist.get_rank(), "world_size": dist.get_world_size()}
    wanted = inspect.signature(function).parameters
    function(**{key: value for key, value in known.items() if key in wanted})
    if dist.is_initialized():
        dist.destroy_process_group()


def _module(name: str, file: str) -> Any:
    """Import a module by its name, or, where that finds another one, from its file."""
    with suppress(ImportError):
        found = importlib.import_module(name)
        if getattr(found, "__file__", None) == file:
            return found
    spec = spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    raise SystemExit(main())
