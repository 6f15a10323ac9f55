"""The ranks of jobs that run on this machine, and what can be asked of them; it ends nothing.

A launcher tells each rank what it is by its environment, which `/proc` shows to the same user. Its
stack is what py-spy reads from outside; a dump of the flight recorder comes through torch's pipe.
"""

from __future__ import annotations

import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from torch_scenarios.display import clean_line
from torch_scenarios.record.evidence.stack import PrintedThread, RankStack, main_thread
from torch_scenarios.record.evidence.standstill import list_family
from torch_scenarios.source.documents import DocumentError, decode_json, read_document

#: bytes of an environment that are read
MOST_ENVIRONMENT = 1 << 20
#: bytes of a script
MOST_SOURCE = 1 << 22
#: seconds that py-spy gets for one process, and torch for its dumps
PY_SPY_S, DUMP_S = 30.0, 15.0

#: names of rank and world size, by launcher
_RANKS = (
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)
#: what torchrun sets for its ranks; Slurm or an operator may have numbered torchrun itself
_ELASTIC = "TORCHELASTIC_RUN_ID"
#: variables that are the same on the ranks of one job, and others in another one
_JOB = (_ELASTIC, "SLURM_JOB_ID", "MASTER_ADDR", "MASTER_PORT")
#: how many nodes a job of Slurm has
_NODES = ("SLURM_NNODES", "SLURM_JOB_NUM_NODES")
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
#: how the job is called whose ranks a process has started itself
_BY_PID = "--pid"
#: names of the pipe by which torch is asked for a dump, and of the files that it writes
_PIPES = ("TORCH_FR_DEBUG_INFO_PIPE_FILE", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE")
#: what lets torch answer such a question
PIPED = "TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_DEBUG_INFO_PIPE_FILE=/tmp/fr_"
_DUMPS = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")


class RunningRank(Struct, frozen=True, kw_only=True):
    """A process that is a rank of a job; `job` tells one job from another."""

    rank: int
    world_size: int
    pid: int
    job: str
    environment: Mapping[str, str]

    @property
    def record(self) -> str:
        """The folder in which it records itself; empty where it does not."""
        return self.environment.get("SCENARIO_RECORD", "")

    @property
    def is_of_one_machine(self) -> bool:
        """Whether all ranks of its job run on this machine, as far as its environment says."""
        given = self.environment
        local = given.get("LOCAL_WORLD_SIZE", "")
        if local.isdigit():  # torchrun's
            return int(local) == self.world_size
        if any(given.get(name, "1") != "1" for name in _NODES):
            return False
        return self.job.startswith(_BY_PID) or given.get("MASTER_ADDR") in _LOOPBACK


def find_ranks(proc: Path = Path("/proc")) -> list[RunningRank]:
    """Return the ranks of all jobs of this machine that may be looked at, in order."""
    numbered = []
    for folder in sorted(proc.glob("[0-9]*"), key=lambda each: int(each.name)):
        environment = _environment(folder)
        about = _rank(environment)
        if about is not None and _is_python(folder) and int(folder.name) != os.getpid():
            numbered.append((folder, *about, environment))
    launchers = {
        parent
        for folder, _, _, environment in numbered
        if _ELASTIC in environment
        and (parent := _find_parent(folder)) is not None
        and _ELASTIC not in _environment(parent)
    }
    found: dict[tuple[str, int], RunningRank] = {}
    for folder, rank, world, environment in numbered:
        job = _name_job(environment)
        if folder not in launchers and not _is_child_of_rank(folder, rank, job):
            running = RunningRank(
                rank=rank,
                world_size=world,
                pid=int(folder.name),
                job=job,
                environment=environment,
            )
            found.setdefault((job, rank), running)
    return sorted(found.values(), key=lambda each: (each.job, each.rank))


def find_children(program: str | None, pid: int) -> list[RunningRank]:
    """Return the ranks that a script has started itself: by the numbers that they were given.

    Without stacks, or numbers in them, they count in the order of their start.
    """
    children = [
        child
        for child in list_workers(pid)
        if "resource_tracker" not in " ".join(_command_of(child))
    ]
    found = [
        RunningRank(
            rank=number,
            world_size=len(children),
            pid=child,
            job=f"{_BY_PID} {pid}",
            environment=_environment(Path(f"/proc/{child}")),
        )
        for number, child in enumerate(children)
    ]
    stacks = [read_stack(program, each)[0] for each in found] if program is not None else []
    numbers = [stack.number for stack in stacks if stack is not None]
    if len({*numbers}) == len(found) and min(numbers, default=-1) >= 0:
        world = max(len(found), max(numbers) + 1)  # the last ones may have ended
        pairs = zip(found, numbers, strict=True)
        found = [replace(each, rank=own, world_size=world) for each, own in pairs]
    return sorted(found, key=lambda each: each.rank)


def _name_job(environment: Mapping[str, str]) -> str:
    return " ".join(f"{key}={environment[key]}" for key in _JOB if key in environment)


def _environment(folder: Path) -> dict[str, str]:
    try:
        with (folder / "environ").open("rb") as file:
            text = file.read(MOST_ENVIRONMENT).decode("utf-8", "replace")
    except OSError:
        return {}
    pairs = (each.partition("=") for each in text.split("\0"))
    return {name: value for name, equals, value in pairs if equals}


def _rank(environment: Mapping[str, str]) -> tuple[int, int] | None:
    for rank, world in _RANKS:
        try:
            found = int(environment[rank]), int(environment[world])
        except (KeyError, ValueError):
            continue
        return found if 0 <= found[0] < found[1] else None
    return None


def _is_python(folder: Path) -> bool:
    try:
        return (folder / "exe").readlink().name.startswith(("python", "pypy"))
    except OSError:
        return False


def _find_parent(folder: Path) -> Path | None:
    try:
        text = (folder / "stat").read_text(encoding="utf-8", errors="replace")
        return folder.parent / text.rpartition(")")[2].split()[1]
    except (OSError, IndexError):
        return None


def _is_child_of_rank(folder: Path, rank: int, job: str) -> bool:
    """Whether the process was started by one that is the same rank: a loader's worker."""
    parent = _find_parent(folder)
    if parent is None:
        return False
    environment = _environment(parent)
    about = _rank(environment)
    is_same = about is not None and about[0] == rank and _name_job(environment) == job
    return is_same and _is_python(parent)


def py_spy() -> str | None:
    """Return the program that reads stacks; None where it is not installed."""
    beside = Path(sys.executable).parent / "py-spy"
    return str(beside) if beside.exists() else shutil.which("py-spy")


def read_stack(program: str, rank: RunningRank) -> tuple[RankStack | None, str]:
    """Return the stack of a rank, or why there is none."""
    command = [program, "dump", "--json", "--locals", "--pid", str(rank.pid)]
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=PY_SPY_S, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, f"py-spy: {error}"
    if done.returncode:
        words = done.stderr.decode("utf-8", "replace").strip().splitlines()
        return None, f"py-spy: {words[-1] if words else f'exit code {done.returncode}'}"
    try:
        threads = decode_json(done.stdout, tuple[PrintedThread, ...])
    except DocumentError as error:
        return None, f"py-spy: {error}"
    main = main_thread(threads)
    if main is None:
        return None, "py-spy: the process has no thread of Python"
    found = RankStack(
        rank=rank.rank,
        frames=tuple(each.frame for each in main.frames),
        world_size=rank.world_size,
        host=socket.gethostname(),
        pid=rank.pid,
        is_active=main.active,
    )
    return replace(found, text=_text_of(found)), ""


def list_workers(pid: int) -> list[int]:
    """Return the processes of Python that a process has started, such as a loader's workers."""
    found = []
    for path in sorted(Path(f"/proc/{pid}/task").glob("*/children")):
        with suppress(OSError, ValueError):
            found += [*map(int, path.read_text(encoding="ascii").split())]
    return [child for child in found if _is_python(Path(f"/proc/{child}"))]


def _text_of(stack: RankStack) -> str:
    """Return the innermost line of the script, as it is in its file now; or nothing."""
    for frame in stack.own[:1]:
        with suppress(OSError, ValueError, IndexError):
            content = read_document(frame.filename, most=MOST_SOURCE).decode("utf-8", "replace")
            return content.splitlines()[frame.line - 1]
    return ""


def kernel_word(pid: int) -> str:
    """Return what a process does as far as the kernel says it: where it waits, or that it runs."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        state = text.rpartition(")")[2].split()[0]
        waits = Path(f"/proc/{pid}/wchan").read_text(encoding="ascii", errors="replace")
    except (OSError, IndexError):
        return "ended"
    if state == "R":
        return "runs"
    return f"waits in the kernel ({waits})" if waits not in {"", "0"} else "waits"


def has_pipe(rank: RunningRank) -> bool:
    """Whether torch is asked for the dump of a rank by a pipe."""
    return any(map(rank.environment.get, _PIPES))


def ask_for_dumps(ranks: Sequence[RunningRank]) -> Iterator[tuple[int, Path]]:
    """Yield the dump of each rank that has torch's pipe, once it is written anew."""
    asked: dict[int, tuple[list[Path], float]] = {}
    for each in ranks:
        pipe = next(filter(None, map(each.environment.get, _PIPES)), "")
        if pipe and _write_to(Path(f"{pipe}{each.rank}.pipe")):
            files = [Path(f"{name}{each.rank}") for name in _names_of_dumps(each.environment)]
            asked[each.rank] = (files, time.time())
    until = time.monotonic() + DUMP_S
    while asked and time.monotonic() < until:
        for rank, (files, since) in [*asked.items()]:
            written = [each for each in files if each.exists()]
            fresh = [each for each in written if each.stat().st_mtime >= since - 1]
            if fresh:
                del asked[rank]
                yield rank, fresh[0]
        time.sleep(0.1)


def _names_of_dumps(environment: Mapping[str, str]) -> list[str]:
    """Return what the files of dumps may be called, without the rank.

    Without a name torch takes a folder of caches (torch 2.11 and 2.14), and before /tmp (2.6).
    """
    if named := next(filter(None, map(environment.get, _DUMPS)), ""):
        return [named]
    home = f"{environment.get('HOME', '')}/.cache"
    caches = environment.get("XDG_CACHE_HOME") or home
    return [
        f"{caches}/torch/comm_lib_trace_rank_",
        f"{home}/torch/comm_lib_trace_rank_",
        f"{tempfile.gettempdir()}/nccl_trace_rank_",
    ]


def _write_to(pipe: Path) -> bool:
    """Write to a pipe that is read; whether it was."""
    try:
        if not pipe.is_fifo():
            return False
        opened = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        os.write(opened, b"1\n")
    finally:
        os.close(opened)
    return True


#: characters of a program's command, and what is said of one that takes a rank's place, and of one
#: that waits for its rank in turn
MOST_COMMAND = 80
JOINS = "it uses torch with the rank's own RANK"
FILLS = "what it prints has filled a pipe, from which the rank reads nothing"
#: how the words for a process begin whose children have all ended
ENDED = "what it has started has ended"
#: where a rank has started nothing, and each other process of its job waits for it
ALONE = "every other process of the job waits in a call"


def read_program(pid: int) -> str:
    """Return the command of the last program that a process has started and that runs; or nothing.

    A process that it forked, and that runs the same program, does not count. Where all of its
    children have ended, and it has not waited for them, the words say so, with their exit codes.
    """
    own, found = _command_of(pid), ""
    ended = _list_ended(pid)
    if ended:
        codes = ", ".join(map(str, ended))
        return f"{ENDED}, with exit code{'s' * (len(ended) > 1)} {codes}"
    for path in sorted(Path(f"/proc/{pid}/task").glob("*/children")):
        with suppress(OSError, ValueError):
            for child in map(int, path.read_text(encoding="ascii").split()):
                command = _command_of(child)
                if command and command != own:
                    shown = " ".join(" ".join(command).split())[:MOST_COMMAND]
                    found = f"`{clean_line(shown)}`"
                    found += f"; {JOINS}" if _is_rank(child) else ""
                    found += f"; {FILLS}" if _fills_pipe(child, pid) else ""
    return found


def _list_ended(pid: int) -> list[int]:
    """Return the exit codes of the children of a process; nothing where one of them runs.

    The tracker that Python itself starts for shared memory and semaphores does not count.
    """
    codes = []
    for path in sorted(Path(f"/proc/{pid}/task").glob("*/children")):
        with suppress(OSError, ValueError, IndexError):
            for child in map(int, path.read_text(encoding="ascii").split()):
                stat = Path(f"/proc/{child}/stat").read_text(encoding="utf-8", errors="replace")
                fields = stat.rpartition(")")[2].split()
                if fields[0] == "Z":
                    codes.append(os.waitstatus_to_exitcode(int(fields[-1])))
                elif not any("resource_tracker" in word for word in _command_of(child)):
                    return []
    return codes


def list_helpers(pid: int, ranks: Collection[int]) -> list[int]:
    """Return the processes that come from one, are no ranks, and run; without Python's tracker."""
    found = []
    for each in list_family(pid):
        command = _command_of(each)  # nothing of a process that has ended
        is_tracker = any("resource_tracker" in word for word in command)
        if each != pid and each not in ranks and command and not is_tracker:
            found.append(each)
    return found


def tell_command(pid: int) -> str:
    """Return the command of a process in words, with its number and for how long it runs."""
    words = clean_line(" ".join(" ".join(_command_of(pid)).split())[-MOST_COMMAND:])
    try:
        began = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        ticks = int(began.rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        uptime = float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return f"`{words}` (process {pid})"
    minutes, seconds = divmod(int(uptime - ticks), 60)
    return f"`{words}` (process {pid}, for {minutes} min {seconds} s)"


def _fills_pipe(pid: int, reader: int) -> bool:
    """Whether a process prints into a pipe that is full, and that another one has to read."""
    with suppress(OSError):
        held = {_target(each) for each in Path(f"/proc/{reader}/fd").iterdir()}
        for number in (1, 2):
            path = Path(f"/proc/{pid}/fd/{number}")
            if (target := _target(path)).startswith("pipe:") and target in held:
                end = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
                try:
                    if not select.select([], [end], [], 0)[1]:
                        return True
                finally:
                    os.close(end)
    return False


def _target(path: Path) -> str:
    """Return what a link of `/proc` names; nothing where it is gone."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _command_of(pid: int) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace")
    except OSError:
        return []
    return text.rstrip("\0").split("\0") if text else []


def _is_rank(pid: int) -> bool:
    """Whether a process has loaded torch and finds a rank in its environment."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        maps = Path(f"/proc/{pid}/maps").read_bytes()
    except OSError:
        return False
    return b"libtorch" in maps and any(each.startswith(b"RANK=") for each in variables)
