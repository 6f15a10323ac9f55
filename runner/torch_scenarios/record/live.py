"""A user's program, run and watched: started, judged while it runs, ended where it is stuck.

The ranks write their records; here they are read. A rank that computes, sleeps or writes a
checkpoint is never taken for stuck: a run is ended only where every rank that lives is inside of a
call, nothing moves, and the analysis of what was recorded so far proves that a rank is blocked
whatever comes later.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct, field

from torch_scenarios.errors import LaunchError, ScenarioError
from torch_scenarios.record.evidence.claim import make_environment
from torch_scenarios.record.evidence.frame import Maker
from torch_scenarios.record.evidence.initialization import (
    PARENT_ERROR,
    find_waiting,
    read_claims,
    tell_nodes,
)
from torch_scenarios.record.evidence.process import ALONE, list_helpers, read_program
from torch_scenarios.record.evidence.reasons.remote_call import find_endless_remote
from torch_scenarios.record.evidence.stack import has_own_threads, put_main_first, take_main
from torch_scenarios.record.evidence.standstill import read_demand_s
from torch_scenarios.record.findings import find_locked
from torch_scenarios.record.format import (
    LAUNCH,
    LaunchRecord,
    RankRecord,
    RecordedCall,
    is_record,
    know_exits,
    lines_of,
    ranks_of_processes,
    read,
    read_launch,
    wait_in_backward,
)
from torch_scenarios.record.mapped_file import EARLIER, count_written, is_written
from torch_scenarios.record.recorder import STACKS, VALUES, append_line, is_foreign
from torch_scenarios.record.scratch import SCRATCH

#: how values are seen: steps of an optimizer whose values are kept, and bytes of a rank's
SEEN: Mapping[str, Any] = {"steps": 3, "bytes": 1 << 26}
KEPT_FOR_PARITY: Mapping[str, Any] = {"steps": 3, "bytes": 1 << 32, "outputs": True}
#: seconds between two looks at the ranks
LOOK_S = 0.1
#: seconds without a movement after which the record is analysed
QUIET_S = 0.8
#: seconds that a rank gets to end after SIGTERM
TERM_S = 10.0
#: seconds that ranks get to write their Python stacks, and to begin with that on a busy machine
STACK_S, MOST_STACK_S = 0.3, 3.0
#: the file of a record in which the program that starts the ranks writes its stack
PARENT = "parent.stack"
#: the folder in that of a stuck record in which its script ran once more, with fake ranks
JOINED = "fake"
#: seconds that it gets for that
JOIN_S = 120.0
#: seconds in which a launcher that says nothing of its ranks is looked at
IDLE_S = 1.5
#: seconds without a movement after which the ranks outside of any call are named, live
OUTSIDE_S = 20.0
#: seconds of a run with fake ranks after which it says how far it is, again and again
PROGRESS_S = 30.0
#: seconds without a movement after which a run is ended whose ranks wait for what never comes
ENDLESS_S = 20.0
#: seconds between two looks at what such ranks wait for: a thread may die later
ENDLESS_AGAIN_S = 10.0
#: seconds without a movement after which a program is ended that waits for ranks which have ended
LEFT_S = 60.0
#: characters of the stacks of a process
MOST_STACK = 16_000
#: seconds between two analyses of one and the same standstill
AGAIN_S = 5.0


class RunOrder(Struct, frozen=True, kw_only=True):
    """What is to be run: a script, a module, or a launcher of the user's own.

    `ranks` of the world of `world_size` are started, all of them where it is no fake world.
    `folder` is where ranks write their records; `max_seconds` 0 is without a limit.
    """

    command: tuple[str, ...]
    folder: Path
    world_size: int
    ranks: tuple[int, ...]
    module: bool = False
    #: a function of the script that is called in place of the whole of it
    function: str = ""
    fake: bool = False
    jobs: int = 2
    cuda_as_cpu: bool = False
    max_seconds: float = 0.0
    keep: bool = False
    #: let what the program prints go to standard error
    aside: bool = False
    #: where it is stuck, run it once more with fake ranks, and join what both came to
    join: bool = False
    #: let all that the program prints go to a file of the record
    silent: bool = False
    #: let fake ranks write where the script says
    writes_allowed: bool = False
    #: the GPU that kernels of fake ranks are reckoned for, as the recorder reads it
    gpu: Mapping[str, Any] = field(default_factory=dict)
    #: where the user wants the scenario written, too
    written: str | None = None
    #: how values are seen, as the recorder reads it; empty where they are not
    values: Mapping[str, Any] = field(default_factory=dict)
    #: the call at which a rank raises, dies or is late, as its process reads it
    strike: Mapping[str, Any] = field(default_factory=dict)
    #: how often the ranks have been started before, as torchrun counts it
    restarts: int = 0
    #: let a fake rank wait in each collective for all of its members, as a real one does
    meets: bool = False

    @property
    def own_launcher(self) -> bool:
        """Whether the command starts the ranks itself: torchrun, accelerate, a shell script."""
        return not self.module and not self.command[0].endswith((".py", ".pyw"))


class RunEnd(Struct, kw_only=True):
    """How a run ended: what its parent saw, why it was ended by us, the stacks of ranks."""

    launch: LaunchRecord = field(default_factory=LaunchRecord)
    stuck: bool = False
    timed_out: bool = False
    interrupted: bool = False
    stacks: dict[int, str] = field(default_factory=dict)
    #: the Python stack of the program that starts the ranks itself; empty if the launcher does
    parent: str = ""
    #: ranks that wait for a lock on a file: which rank holds it, and which file that is
    locks: dict[int, tuple[int, str]] = field(default_factory=dict)
    #: programs that ranks have started, and that still run
    programs: dict[int, str] = field(default_factory=dict)
    #: ranks outside of any call that wait for what never comes, so that the run was ended
    endless: tuple[int, ...] = ()
    #: whether all ranks have ended, and the program that starts them waits for what none can give
    left: bool = False
    duration_s: float = 0.0
    code: int = 0


class StandstillCheck(Protocol):
    """Asked at a standstill, of what is recorded so far."""

    def blocks(self, records: Mapping[int, RankRecord]) -> bool:
        """Whether a rank is surely blocked."""

    def explain(
        self,
        records: Mapping[int, RankRecord],
        stacks: Mapping[int, str],
        programs: Mapping[int, str],
    ) -> Sequence[str]:
        """Return what ranks outside of any call wait for, by their stacks."""

    def endless(
        self,
        records: Mapping[int, RankRecord],
        stacks: Mapping[int, str],
        programs: Mapping[int, str],
    ) -> Sequence[int]:
        """Return which of these ranks wait for what nothing outside of the job gives them."""

    def leaves(self, stack: str) -> bool:
        """Whether the program that has started the ranks waits for what they would put there."""

    def never_meets(self, launch: LaunchRecord, *, is_whole: bool) -> bool:
        """Whether the ranks can never meet in `init_process_group`.

        `is_whole` says that no process can be there that is not known.
        """


def prepare(folder: Path, *, is_again: bool = False) -> None:
    """Make the folder of a record, and empty it of one that was there before.

    Ranks that are started once more (`is_again`) find what they have written before.
    Raises LaunchError where it cannot be made, or holds what no record wrote.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"{folder} cannot be made: {error.strerror or error}"
        raise LaunchError(message) from error
    if not (folder / LAUNCH).exists() and not is_record(folder):
        own = [name for name in ("scenario.yaml", "output.log") if (folder / name).exists()]
        if own:
            message = f"{folder / own[0]} is not of a record: name another folder with -o"
            raise LaunchError(message)
    if any(map(is_written, folder.glob("rank-*.jsonl"))):
        message = f"a run that goes on writes its record in {folder}: name another folder with -o"
        raise LaunchError(message)
    written = ("rank-*.jsonl", "*.stack", "values-*", LAUNCH, "scenario.yaml", "output.log")
    for pattern in (*written, f"{EARLIER}*.jsonl", PARENT_ERROR):
        for path in folder.glob(pattern):
            path.unlink()
    for name in ("mailbox", JOINED, *((SCRATCH,) if not is_again else ())):
        if (folder / name).is_dir():
            shutil.rmtree(folder / name)


class RunProcess(Protocol):
    """A process of a run: the parent of its ranks, or a launcher of the user's own."""

    @property
    def pid(self) -> int:
        """Its id, which is that of its process group as well."""

    @property
    def returncode(self) -> int | None:
        """Its exit code; None while it runs."""

    def poll(self) -> int | None:
        """Return the exit code; None while it runs."""

    def wait(self, timeout: float | None = None) -> int | None:
        """Return the exit code once it has ended."""


#: an order -> the process that does it
Launcher = Callable[[RunOrder], RunProcess]


def run(
    order: RunOrder,
    asked: StandstillCheck,
    notice: Callable[[str], None],
    start: Launcher | None = None,
) -> RunEnd:
    """Run a program to its end, or to where it is stuck. Raises LaunchError where it cannot."""
    began = time.monotonic()
    process = (start or start_ranks)(order)
    watch = _Watch(order, process, asked, notice)
    try:
        ran = watch.wait()
    finally:
        watch.end_all(gently=False)
    ran.duration_s = time.monotonic() - began
    return ran


def start_ranks(order: RunOrder) -> subprocess.Popen[bytes]:
    """Start the ranks, or the launcher of the user's own that does.

    The order goes to the process that forks them by standard input: a command line would show the
    names of scripts and folders to every user of the machine, and has an end. A launcher of the
    user's own (torchrun, srun) gets variables alone, by which each Python that it starts records
    itself.
    """
    environment = dict(os.environ) | make_value_environment(order.values)
    if order.own_launcher:
        environment |= make_environment(order.folder, os.environ.get("PYTHONPATH", ""))
        environment[STACKS] = "1"
        try:
            return subprocess.Popen(
                order.command, env=environment, start_new_session=True, stdout=_output(order)
            )
        except OSError as error:
            message = f"`{order.command[0]}` cannot be started: {error.strerror or error}"
            raise LaunchError(message) from error
    sent = _write_order(order)
    output = _output(order)
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "torch_scenarios.record.launch"],
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=subprocess.STDOUT if order.silent else None,
        env=environment,
        start_new_session=True,
    )
    if order.silent and output is not None:
        os.close(output)
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        process.stdin.write(json.dumps(sent).encode() + b"\n")
        process.stdin.close()
    return process


def _output(order: RunOrder) -> int | None:
    if order.silent:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        return os.open(order.folder / "output.log", flags, 0o644)
    return sys.stderr.fileno() if order.aside else None


def _write_order(order: RunOrder) -> dict[str, Any]:
    """Return an order in the form that its process reads."""
    return {
        "folder": str(order.folder.resolve()),
        "ranks": list(order.ranks),
        "world_size": order.world_size,
        "fake": order.fake,
        "jobs": order.jobs,
        "cuda_as_cpu": order.cuda_as_cpu,
        "module": order.module,
        "function": order.function,
        "writes_allowed": order.writes_allowed,
        "gpu": dict(order.gpu),
        "parent": os.getpid(),
        "command": list(order.command),
        "imports": [] if order.module else _find_likely_imports(Path(order.command[0])),
        "values": bool(order.values),
        "strike": dict(order.strike),
        "restarts": order.restarts,
        "meets": order.meets,
    }


class WarmLaunch:
    """A process that has imported torch once, from which run after run is forked.

    It is begun anew where it has ended, and where a run was left before its end was known. A run
    then starts without the 2 s that the import of torch takes.
    """

    def __init__(self) -> None:
        """Start nothing yet."""
        self._process: subprocess.Popen[bytes] | None = None
        self._reply = -1
        self._run: _Forked | None = None

    def start(self, order: RunOrder) -> RunProcess:
        """Start a run; the one before has to be over."""
        if self._process is not None and (self._process.poll() is not None or not self._rests()):
            self._drop()
        if self._process is None:
            self._process, self._reply = self._begin()
        sent = {
            **_write_order(order),
            "cwd": str(Path.cwd()),
            "path": [each or str(Path.cwd()) for each in sys.path],
            "environment": dict(os.environ) | make_value_environment(order.values),
            "output": str(order.folder.resolve() / "output.log"),
        }
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(sent).encode() + b"\n")
            self._process.stdin.flush()
            self._run = _Forked(self._process, self._reply)
        except OSError as error:
            raise LaunchError(_words_of_end(self._process)) from error
        except BaseException:  # interrupted: whose its next words are cannot be known
            self._drop()
            raise
        return self._run

    def _begin(self) -> tuple[subprocess.Popen[bytes], int]:
        reply, given = os.pipe()
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "torch_scenarios.record.launch", str(given)],
            stdin=subprocess.PIPE,
            pass_fds=[given],
            start_new_session=True,
        )
        os.close(given)
        return process, reply

    def _rests(self) -> bool:
        """Whether the run before is over, and all that was said of it is read."""
        try:
            return self._run is None or self._run.poll() is not None
        except LaunchError:
            return False

    def close(self) -> None:
        """End it."""
        if self._process is not None:
            assert self._process.stdin is not None
            with suppress(OSError):
                self._process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=TERM_S)
            self._drop()

    def _drop(self) -> None:
        """End it at once, with the run that it waits for, and read nothing more of it."""
        if self._process is not None:
            self._process.kill()
            with suppress(OSError):
                self._process.communicate()
            os.close(self._reply)
        self._process = self._run = None


def _words_of_end(process: subprocess.Popen[bytes]) -> str:
    """Return how the process ended that imports torch."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=1.0)
    code = process.returncode
    how = f"signal {-code} has ended" if code is not None and code < 0 else "an error has ended"
    return f"{how} the process that imports torch; the next run starts another one"


class _Forked:
    """A run that a warm process has forked: its id and its exit code come through a pipe.

    It has the few methods of :class:`subprocess.Popen` that a watch needs (:class:`RunProcess`).
    """

    def __init__(self, process: subprocess.Popen[bytes], reply: int) -> None:
        self._process, self._reply = process, reply
        self._rest = b""
        self.returncode: int | None = None
        self.pid = int(self._line(None) or b"")

    def poll(self) -> int | None:
        """Return the exit code; None while it runs."""
        return self.wait(0) if self.returncode is None else self.returncode

    def wait(self, timeout: float | None = None) -> int | None:
        """Return the exit code once it has ended; None where it has not in time."""
        if self.returncode is None:
            line = self._line(timeout)
            self.returncode = None if line is None else int(line)
        return self.returncode

    def _line(self, timeout: float | None) -> bytes | None:
        """Return the next line of the reply; None where there is none in time."""
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._reply], [], [], timeout)
            if not ready:
                return None
            read = os.read(self._reply, 64)
            if not read:
                raise LaunchError(_words_of_end(self._process))
            self._rest += read
        line, _, self._rest = self._rest.partition(b"\n")
        return line


#: a word of a training script -> modules that it is likely to import
LIKELY = {
    "device_mesh": ("torch.distributed.device_mesh",),
    "distributed.tensor": ("torch.distributed.tensor.parallel", "torch._dynamo"),
    "distributed.fsdp": ("torch.distributed.fsdp", "torch._dynamo"),
    "pipelining": ("torch.distributed.pipelining", "torch._dynamo"),
    "DistributedDataParallel": ("torch.nn.parallel", "torch._dynamo"),
    "optim": ("torch._dynamo",),
}


def _find_likely_imports(script: Path) -> list[str]:
    """Return the modules that a script is likely to import: that is done once, before the forks."""
    try:
        text = script.read_text(encoding="utf-8", errors="replace")[:1_000_000]
    except OSError as error:
        message = f"`{script}` cannot be read: {error.strerror or error}"
        raise LaunchError(message) from error
    return [name for word, names in LIKELY.items() if word in text for name in names]


def make_value_environment(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment variable under which every rank sees its values."""
    return {VALUES: json.dumps(dict(values))} if values else {}


class _Watch:
    """Looks at the ranks until they have ended, or are ended.

    Three clocks run since a rank's record grew last: after `QUIET_S` the record is analysed, after
    `OUTSIDE_S` ranks outside of any call are named, after `ENDLESS_S` a run is ended in which these
    wait for what never comes. A record that grows sets all of them back.
    """

    def __init__(
        self,
        order: RunOrder,
        process: RunProcess,
        asked: StandstillCheck,
        notice: Callable[[str], None],
    ) -> None:
        self._order, self._process = order, process
        self._asked, self._notice = asked, notice
        self._sizes: dict[Path, int] = {}
        self._moved = time.monotonic()
        self._analysed: tuple[float, float] = (0.0, 0.0)
        self._said = self._named = False
        self._progress_at = time.monotonic() + PROGRESS_S
        self._endless_at = self._left_at = 0.0
        self._launch = LaunchRecord()
        self._ended = False

    def wait(self) -> RunEnd:
        """Return how the run ended. Who interrupts it ends it; twice, and nothing more is said."""
        try:
            return self._wait_for_end()
        except KeyboardInterrupt:
            if self._order.fake:
                raise
            self._look()
            return self._end(RunEnd(interrupted=True))

    def _wait_for_end(self) -> RunEnd:
        """Wait until the job ends, and say meanwhile what its ranks wait for.

        Ends a job that surely hangs, unless it is to be kept.
        """
        began = time.monotonic()
        while self._process.poll() is None:
            time.sleep(LOOK_S)
            self._look()
            now = time.monotonic()
            if self._order.fake and not self._order.silent and now > self._progress_at:
                self._tell_progress(now, now - began)
            over = self._judge_end(now, began)
            if over is not None:
                return self._end(over)
            if now - self._moved < QUIET_S:
                continue
            if now - self._moved > OUTSIDE_S:
                self._tell_outside()
            moved, asked = self._analysed
            if moved == self._moved and now - asked < AGAIN_S:
                continue
            self._analysed = (self._moved, now)
            verdict = self._word_state()
            if verdict == "stuck" and not self._order.keep:
                return self._end(RunEnd(stuck=True))
            if verdict != "going" and not self._said:
                self._said = True
                self._notice(verdict)
        self._look()
        launch = self._launch
        code = self._process.poll() or 0
        if not self._order.own_launcher:  # ours: it is the ranks that have a code
            code = next(filter(None, launch.exits.values()), code)
        return RunEnd(launch=launch, code=code if code >= 0 else 128 - code)

    def _judge_end(self, now: float, began: float) -> RunEnd | None:
        """Return how the run is to be ended where its time is over, or its ranks move no more.

        None where it goes on. In the order of how sure it is: a limit that the user gave, a process
        that is in the way, ranks that wait for a thread or program that has ended.
        """
        limit = self._order.max_seconds
        if limit and now - began > limit:
            return RunEnd(timed_out=True)
        if self._is_over_outside(now) and not self._order.keep:
            return RunEnd(stuck=True)
        if now - self._moved > ENDLESS_S and (endless := self._find_endless()):
            return RunEnd(endless=endless)
        if now - self._moved > ENDLESS_S and self._is_abandoned():
            return RunEnd(left=True)
        return None

    def _is_over_outside(self, now: float) -> bool:
        """Whether a rank waits outside of any call for what never comes.

        That is a process that it forked and that communicates, a program that joins the job in its
        place, or a lock of a rank that waits for it.
        """
        if self._launch.outside or now - self._moved <= OUTSIDE_S:
            return bool(self._launch.outside)
        return bool(self._launch.forked or self._launch.joined) or self._is_locked()

    def _find_endless(self) -> tuple[int, ...]:
        """Return the ranks outside of any call where all of them wait for what never comes.

        The others are in calls, and wait for these.
        """
        now = time.monotonic()
        if now < self._endless_at or self._order.fake or self._order.keep:
            return ()
        self._endless_at = now + ENDLESS_AGAIN_S
        records = self._read()
        if not records:
            return ()
        names = ranks_of_processes(records, self._launch)
        pids = {names[rank]: self._launch.pids[rank] for rank in self._live()}
        if any(rank not in records for rank in pids):
            return ()
        outside = [rank for rank in pids if not _is_inside(records[rank], pids[rank])]
        found = self._stacks({names[rank]: rank for rank in self._live()})
        stacks = {rank: found.get(rank, "") for rank in outside}
        programs = self._read_programs(pids, outside, found)
        endless = self._asked.endless(records, stacks, programs)
        if not outside:  # the agents of RPC look for messages without a pause: none is ever idle
            remote = find_endless_remote(records, found)
            is_still = bool(remote) and self._stay_there(found, names)
            return tuple(remote) if is_still else ()
        is_whole = bool(outside) and {*endless} == {*outside}
        return tuple(sorted(endless)) if is_whole and self._is_idle() else ()

    def _stay_there(self, stacks: Mapping[int, str], names: Mapping[int, int]) -> bool:
        """Whether each thread of the ranks is where it was, a while later."""
        time.sleep(IDLE_S)
        return self._stacks({names[rank]: rank for rank in self._live()}) == stacks

    def _read_programs(
        self, pids: Mapping[int, int], outside: Sequence[int], stacks: Mapping[int, str]
    ) -> dict[int, str]:
        """Return what ranks outside of any call have started, or that no other process works."""
        programs = {rank: read_program(pids[rank]) for rank in outside}
        helpers = list_helpers(self._process.pid, [*pids.values()])
        is_alone = not helpers and not any(map(has_own_threads, stacks.values()))
        return {rank: each or (ALONE if is_alone else "") for rank, each in programs.items()}

    def _is_locked(self) -> bool:
        locks = read_locks({self._launch.pids[rank]: rank for rank in self._live()})
        return bool(locks) and find_locked(self._read(), locks, "") is not None

    def _read(self) -> dict[int, RankRecord]:
        """Return what is recorded so far; nothing where it is half, or no world of all ranks."""
        if not is_record(self._order.folder):
            return {}
        try:
            return read(self._order.folder)
        except ScenarioError:
            return {}

    def _look(self) -> None:
        """Note what moved, which ranks there are, and which have ended.

        By the sizes of their files.
        """
        for path in self._order.folder.glob("rank-*.jsonl"):
            with suppress(OSError):
                before = self._sizes.get(path, 0)
                written = count_written(path, before)
                if written != before:
                    if not before:
                        self._know(path)
                    self._sizes[path] = written
                    self._moved, self._named = time.monotonic(), False
        path = self._order.folder / LAUNCH
        if path.exists() and self._sizes.get(path) != path.stat().st_size:
            self._sizes[path] = path.stat().st_size
            self._moved = time.monotonic()
            known = self._launch.pids
            self._launch = read_launch(self._order.folder)
            self._launch.pids = {**known, **self._launch.pids}

    def _know(self, path: Path) -> None:
        if not self._order.own_launcher:
            return
        about: Any = next(lines_of(path), {})
        with suppress(KeyError, TypeError):
            rank = int(about["rank"])
            while self._launch.pids.get(rank, about["pid"]) != about["pid"]:
                rank += int(about["world_size"])  # two processes say that they are this rank
            self._launch.pids[rank] = int(about["pid"])

    def _live(self) -> list[int]:
        """Return the ranks whose process is there, and has not ended."""
        exits = self._launch.exits
        return [
            rank for rank, pid in self._launch.pids.items() if rank not in exits and _lives(pid)
        ]

    def _waits_for_world(self) -> bool:
        """Whether ranks are in an `init_process_group` that can never end, and all others in calls.

        A rank of a smaller world leaves it where all that it knows of are there, and waits for
        them in its first collective.
        """
        claims = read_claims(self._order.folder)
        waiting = {each.pid for each in find_waiting(claims) if _lives(each.pid)}
        pids, exits = self._launch.pids, self._launch.exits
        live = {pid for rank, pid in pids.items() if rank not in exits and _lives(pid)}
        if not waiting or not self._wait_in_calls(live - waiting):
            return False
        launched = self._launch.launcher or not self._order.own_launcher
        if not launched and not self._is_idle():
            return False
        return self._asked.never_meets(self._launch, is_whole=True)

    def _wait_in_calls(self, processes: set[int]) -> bool:
        """Whether each of these processes waits inside of a call."""
        if not processes:
            return True
        records = self._read()
        if not records:
            return False
        names = ranks_of_processes(records, self._launch)
        ranks = {self._launch.pids[rank]: names[rank] for rank in self._live() if rank in names}
        return all(
            ranks.get(pid) in records and _is_inside(records[ranks[pid]], pid) for pid in processes
        )

    def _is_idle(self) -> bool:
        """Whether the launcher, and all that comes from it, want no processor for a while."""
        before = read_demand_s(self._process.pid)
        time.sleep(IDLE_S)
        after = read_demand_s(self._process.pid)
        return before is not None and after is not None and 0 <= after - before < IDLE_S / 10

    def _word_state(self) -> str:
        """Return `stuck`, `going`, or a word on a rank that is surely blocked.

        That is a run in which every rank that lives is inside of a call and the analysis proves one
        of them blocked. A rank that computes may still do something else: then the proof is a
        notice alone.
        """
        if not self._order.own_launcher and len(self._launch.pids) < len(self._order.ranks):
            return "going"  # the others are not forked yet
        if not self._order.fake and self._waits_for_world():
            return "stuck"
        records = {} if self._order.fake else self._read()
        if not records:
            return "going"
        names = ranks_of_processes(records, self._launch)
        pids = {names[rank]: self._launch.pids[rank] for rank in self._live()}
        live = [*pids]
        if not live:
            return "stuck" if self._is_left(records) else "going"
        if any(rank not in records for rank in live):
            return "going"
        know_exits(records, self._launch)
        outside = [rank for rank in live if not _is_inside(records[rank], pids[rank])]
        outside = [r for r in outside if not _waits_in_reducer(records[r], pids[r])]
        is_still = self._wait_for_devices(records, outside)
        if len(outside) == len(live) and not is_still:
            return "going"
        if not (is_still and self._has_failed()) and not self._asked.blocks(records):
            is_known = self._know_backward(records, pids)
            if not is_known or not self._asked.blocks(records):
                return "going"
        if outside and not is_still:
            words = ", ".join(map(str, outside[:4]))
            return (
                f"a rank is surely blocked already; rank {words} is not inside of a call and goes "
                "on until it is"
            )
        return "stuck"

    def _know_backward(self, records: Mapping[int, RankRecord], pids: Mapping[int, int]) -> bool:
        """Let ranks wait for what their backward pass has begun, if they do nothing for long.

        Until then the pass may begin more, which others wait for.
        """
        begun = [rank for rank in pids if records[rank].backward]
        if not begun or time.monotonic() - self._moved <= OUTSIDE_S:
            return False
        idle = [rank for rank in begun if _wants_nothing(pids[rank])]
        return bool([rank for rank in idle if wait_in_backward(records[rank])])

    def _is_abandoned(self) -> bool:
        """Whether the program that started the ranks takes from a queue that no process fills.

        All ranks have ended, and no other process of it lives.
        """
        now = time.monotonic()
        if now < self._left_at or not self._order.own_launcher or self._order.fake:
            return False
        if self._order.keep or not self._launch.pids or self._live():
            return False
        self._left_at = now + ENDLESS_AGAIN_S
        parent = self._find_parent()
        if not parent or [each for each in list_helpers(parent, ()) if each != parent]:
            return False
        return self._asked.leaves(self._take_parent()) and self._is_idle()

    def _is_left(self, records: Mapping[int, RankRecord]) -> bool:
        """Whether a program of the user's waits for ranks of which none lives, and one was blocked.

        It has started them (`mp.spawn`), and asks for what the one that came to nothing owes it.
        """
        is_long = time.monotonic() - self._moved > LEFT_S
        waits = self._order.own_launcher and is_long and self._is_idle()
        return waits and self._asked.blocks(records)

    def _wait_for_devices(self, records: Mapping[int, RankRecord], outside: Sequence[int]) -> bool:
        """Whether ranks outside of any call have not moved for long, and use NCCL or its like.

        Such a call returns at once. What never comes is waited for by the device, and by the host
        where it asks for a number next: in `loss.item()`, a copy, `torch.cuda.synchronize()`.
        """
        is_long = time.monotonic() - self._moved > OUTSIDE_S
        return is_long and all(records[rank].on_device for rank in outside)

    def _has_failed(self) -> bool:
        """Whether a rank has ended by an error, of which NCCL tells no other rank."""
        return any(self._launch.exits.values())

    def _tell_progress(self, now: float, since_s: float) -> None:
        """Say how many fake ranks have ended: each computes what its script does, on this machine.

        The first time it is said what takes less, where it is not asked for already.
        """
        first = since_s < 2 * PROGRESS_S
        self._progress_at = now + PROGRESS_S
        words = (
            f"{len(self._launch.exits)} of {len(self._order.ranks)} fake ranks have ended after "
            f"{since_s:.0f} s"
        )
        fewer = "fewer ranks (`--ranks 0,1`)" if len(self._order.ranks) > 1 else ""
        light = "" if self._order.gpu else "tensors without memory (`--times-on`)"
        less = " and ".join(filter(None, (fewer, light)))
        self._notice(words + (f"; quicker with {less}" if less and first else ""))

    def _tell_outside(self) -> None:
        """Say once where the ranks are that are outside of any call while nothing moves."""
        if self._named or self._order.fake:
            return
        if not is_record(self._order.folder):
            words = tell_nodes(self._order.command) if self._order.own_launcher else ""
            self._named = bool(words) and not self._launch.pids
            if self._named:
                self._notice(f"{words} (Ctrl-C ends the run)")
            return
        self._named = True
        records = self._read()
        names = ranks_of_processes(records, self._launch)
        pids = {names[rank]: self._launch.pids[rank] for rank in self._live()}
        outside = [r for r in pids if r in records and not _is_inside(records[r], pids[r])]
        if not outside or len(outside) == len(pids):
            return
        stacks = self._stacks({names[rank]: rank for rank in self._live()})
        lines = [
            f"rank {rank} is outside of any call"
            + (f", at {place}" if (place := place_of(stacks.get(rank, ""))) else "")
            for rank in outside[:4]
        ]
        self._notice(
            f"nothing has moved for {OUTSIDE_S:.0f} s: {'; '.join(lines)}; the others wait in "
            "calls (Ctrl-C ends the run with its verdict)"
        )
        found = {rank: stacks.get(rank, "") for rank in outside}
        programs = {rank: read_program(pids[rank]) for rank in outside}
        for line in self._asked.explain(records, found, programs):
            self._notice(line)

    def _stacks(self, started: Mapping[int, int]) -> dict[int, str]:
        """Return the Python stacks of ranks that live, by the rank that they are recorded as."""
        folder = self._order.folder
        paths = {r: folder / f"rank-{at:05d}.stack" for r, at in started.items()}
        asked = {r: path for r, path in paths.items() if path.exists()}
        return take_stacks({r: (self._launch.pids[started[r]], path) for r, path in asked.items()})

    def _take_parent(self) -> str:
        """Return the Python stack of the program that starts the ranks; nothing where none does."""
        pid, path = self._find_parent(), self._order.folder / PARENT
        return take_stacks({0: (pid, path)}).get(0, "") if pid else ""

    def _find_parent(self) -> int:
        """Return the process that has started the ranks and lives; 0 where the launcher has."""
        try:
            text = (self._order.folder / PARENT).read_text(encoding="utf-8")
            pid = int(text.partition("\n")[0])
        except (OSError, ValueError):
            return 0
        return 0 if pid in self._launch.pids.values() or not _lives(pid) else pid

    def _end(self, ran: RunEnd) -> RunEnd:
        """Write the stacks down, end every rank, and return how it was."""
        ran.stacks.update(self._stacks({rank: rank for rank in self._live()}))
        ran.parent = self._take_parent()
        ran.locks = read_locks({self._launch.pids[rank]: rank for rank in self._live()})
        pids = {rank: self._launch.pids[rank] for rank in self._live()}
        programs = self._read_programs(pids, [*pids], ran.stacks)
        ran.programs = {rank: program for rank, program in programs.items() if program}
        ran.launch = self._launch
        self.end_all(gently=not ran.interrupted)
        return ran

    def end_all(self, *, gently: bool) -> None:
        """End every process of the run: SIGTERM, and what is left by SIGKILL."""
        if self._ended:
            return
        self._ended = True
        if self._process.poll() is None or self._live():
            self._write_end()
            self._signal(signal.SIGTERM)
            until = time.monotonic() + (TERM_S if gently else 2.0)
            while time.monotonic() < until and self._anybody():
                self._process.poll()
                time.sleep(0.02)
            self._kill_ranks()
            self._signal(signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=10)
        # whatever a rank started and left behind
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _write_end(self) -> None:
        """Write down that what ends from now on is ended by us."""
        with suppress(OSError):
            append_line(str(self._order.folder / LAUNCH), {"ended": True})

    def _kill_ranks(self) -> None:
        """End the ranks of the user's launcher: under torchrun each has a session of its own."""
        if self._order.own_launcher:
            for rank in self._live():
                pid = self._launch.pids[rank]
                with suppress(ProcessLookupError, PermissionError):
                    own = os.getpgid(pid) == pid
                    (os.killpg if own else os.kill)(pid, signal.SIGKILL)

    def _anybody(self) -> bool:
        return self._process.poll() is None or bool(self._live())

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def _is_inside(record: RankRecord, pid: int) -> bool:
    """Whether a rank is inside of a call, or, of several threads, its first waits for another.

    A loop that it never leaves is as good as a call.
    """
    if record.turns_at.frames and not record.turns_by_chance:
        return True
    if not record.inside or not record.threaded or record.main_inside:
        return record.inside
    try:
        waits = Path(f"/proc/{pid}/task/{pid}/wchan").read_text(encoding="ascii")
    except (OSError, ValueError):
        return True
    return waits.startswith("futex") or waits in {"", "0"}


#: seconds in which a rank is looked at that may wait in C++
REDUCER_S = 0.3


def _waits_in_reducer(record: RankRecord, pid: int) -> bool:
    """Whether a rank waits in C++ for a call that C++ made: it wants no processor since then.

    DDP broadcasts its buffers and the order of its buckets so: such a call returns before it is
    over, and nothing of Python's is written until it is.
    """
    last = record.items[-1] if record.items else None
    return isinstance(last, RecordedCall) and last.maker == Maker.CPP and _wants_nothing(pid)


def _wants_nothing(pid: int) -> bool:
    """Whether a process wants no processor for a while."""
    before = read_demand_s(pid)
    time.sleep(REDUCER_S)
    after = read_demand_s(pid)
    return before is not None and after is not None and after - before < REDUCER_S / 20


def _lives(pid: int) -> bool:
    """Whether a process is there and has not ended.

    `Z` in /proc/PID/stat is one that has ended and was not waited for, `X` one that is being taken
    away (proc(5)).
    """
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return state.rpartition(")")[2].split()[:1] not in (["Z"], ["X"])


def _listens(pid: int) -> bool:
    """Whether a process catches the signal that asks for its stack.

    At its end Python takes faulthandler's handler away, and the signal would end the process.
    `SigCgt` in /proc/PID/status has a bit for each signal that is caught (proc(5)).
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return not Path("/proc/self/status").exists()
    caught = re.search(r"^SigCgt:\s*([0-9a-f]+)$", lines, re.MULTILINE)
    return caught is None or bool(int(caught[1], 16) >> (signal.SIGUSR1 - 1) & 1)


def take_stacks(ranks: Mapping[int, tuple[int, Path]]) -> dict[int, str]:
    """Ask processes for their Python stacks, by the rank: which process, and where it writes them.

    One that has not begun to write after some seconds has none. `faulthandler.register` writes from
    the signal handler itself, in C: also where Python's lock is held by a call that never returns.
    """
    before = {rank: path.stat().st_size for rank, (_, path) in ranks.items()}
    waiting = {rank: (pid, path) for rank, (pid, path) in ranks.items() if _listens(pid)}
    for pid, _ in waiting.values():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGUSR1)
    until = time.monotonic() + MOST_STACK_S
    while waiting and time.monotonic() < until:
        time.sleep(STACK_S)
        waiting = {
            rank: (pid, path)
            for rank, (pid, path) in waiting.items()
            if path.stat().st_size == before[rank] and _lives(pid)
        }
    found = {}
    for rank, (_, path) in ranks.items():
        with suppress(OSError):
            text = path.read_bytes()[before[rank] :].decode("utf-8", "replace")
            found[rank] = put_main_first(text)[:MOST_STACK]
    return found


def read_locks(ranks: Mapping[int, int]) -> dict[int, tuple[int, str]]:
    """Return which of some ranks wait for a lock on a file: who holds it, and which file that is.

    `ranks` are ranks by their process. `flock(2)` and `fcntl(2)` wait in the kernel, which says so
    in /proc/locks; a process that tries again and again waits in no lock::

        7: FLOCK  ADVISORY  WRITE 4242 08:01:131077 0 EOF
        7: -> FLOCK  ADVISORY  WRITE 4243 08:01:131077 0 EOF
    """
    try:
        lines = Path("/proc/locks").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return {}
    holders: dict[str, tuple[int, str]] = {}
    found: dict[int, tuple[int, str]] = {}
    for line in lines:
        number, *words = line.split()
        waits = words[:1] == ["->"]
        fields = words[waits:]
        if len(fields) < 5 or not fields[3].isdecimal():
            continue
        pid, inode = int(fields[3]), fields[4].rpartition(":")[2]
        if not waits:
            holders[number] = pid, inode
        elif pid in ranks and number in holders and holders[number][0] in ranks:
            holder = holders[number][0]
            found[ranks[pid]] = ranks[holder], _path_of(holder, inode)
    return found


def _path_of(pid: int, inode: str) -> str:
    """Return the file of an inode that a process has open."""
    for each in Path(f"/proc/{pid}/fd").glob("*"):
        with suppress(OSError):
            if str(each.stat().st_ino) == inode:
                return str(each.readlink())
    return "a file"


_FRAME = re.compile(r'File "(.+)", line (\d+) in (.+)')


def place_of(stack: str) -> str:
    """Return where a rank's own code is: `train.py:19`, with what it waits in; empty if nowhere."""
    frames = [found.groups() for each in stack_of(stack, 100) if (found := _FRAME.match(each))]
    for at, (file, line, _) in enumerate(frames):
        if not is_foreign(file):
            words = f"{Path(file).name}:{line}"
            called, place, name = frames[at - 1]
            return f"{words} (in `{name}`, {Path(called).name}:{place})" if at else words
    return ""


def stack_of(text: str, most: int = 8) -> Sequence[str]:
    r"""Return the lines of a Python stack, the innermost first, without those of the recorder.

    >>> stack_of('Thread 1:\n  File "t.py", line 3 in wait\n  File "t.py", line 9 in <module>')
    ['File "t.py", line 3 in wait', 'File "t.py", line 9 in <module>']
    """
    own_lines = take_main(text).splitlines()
    lines = [line.strip() for line in own_lines if line.strip().startswith("File ")]
    own = [line for line in lines if "torch_scenarios/record" not in line and "<frozen" not in line]
    return own[:most]
