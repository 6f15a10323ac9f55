"""One host by itself: torch and its GPUs, the environment, memory, limits.

Each function looks at one thing and gives its checks. torch is asked in another process.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct, field

from torch_scenarios.display import short
from torch_scenarios.doctor.check import Check, fine, note, report_untested, wrong
from torch_scenarios.execution.backends import DEVICES
from torch_scenarios.execution.backends import ENVIRONMENT as OURS

#: seconds that torch gets to be imported and to ask for its GPUs
ASK_S = 180.0
#: the GPUs of this machine in /dev, NVIDIA's
GPUS = "nvidia[0-9]*"

# torch, and the GPUs that it sees.


class Inventory(Struct, frozen=True):
    """What torch has on this host, as :mod:`torch_scenarios.worker.inventory` says.

    >>> Inventory(versions={"torch": "2.13.0"}, gloo=True).nccl
    ''

    It comes from a process of its own: an import of torch may fail, or end the process, and that is
    what the doctor is to say.
    """

    versions: dict[str, str] = field(default_factory=dict)
    built_for: str = ""
    gloo: bool = False
    nccl: str = ""
    gpus: list[str] = field(default_factory=list)
    complaint: str = ""


def ask_torch() -> Inventory | str:
    """Return what torch has here, or in one line why it cannot say."""
    words = [sys.executable, "-P", "-m", "torch_scenarios.worker.inventory"]
    try:
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=ASK_S,
        )
    except subprocess.TimeoutExpired:
        return f"a process did not import torch and ask for GPUs within {ASK_S:.0f} s"
    except OSError as error:
        return f"no process can start: {error.strerror or error}"
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return f"a process that imports torch ends: {last[:300]}"
    try:
        return msgspec.json.decode(done.stdout.strip().splitlines()[-1], type=Inventory)
    except (IndexError, msgspec.MsgspecError) as error:
        return f"a process that imports torch does not say what it has: {error}"


def look_at_torch(found: Inventory | str) -> list[Check]:
    """Say which versions are here, and whether torch has Gloo."""
    if isinstance(found, str):
        return [wrong("torch", found, f"`{sys.executable} -c 'import torch'` must work")]
    named = ", ".join(f"{name} {version}" for name, version in found.versions.items())
    if not found.gloo:
        return [wrong("torch", f"{named}: torch is built without Gloo", "install a build with it")]
    return [fine("torch", named)]


def look_at_gpus(found: Inventory, ranks: int, environment: Mapping[str, str]) -> list[Check]:
    """Say how many GPUs a process sees, and whether that is what the machine and its user mean."""
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    asked = [] if visible is None else [each for each in visible.split(",") if each.strip()]
    here, seen = sorted(Path("/dev").glob(GPUS)), len(found.gpus)
    slices = _slices()
    if visible is not None and 0 < len(asked) != seen and "-1" not in asked:
        message = f"CUDA_VISIBLE_DEVICES={visible} names {_gpus(len(asked))}; a process sees {seen}"
        return [wrong("gpus", message, "name those that `nvidia-smi -L` lists")]
    if not seen and not asked and visible is not None:
        return [note("gpus", "CUDA_VISIBLE_DEVICES hides every GPU: cases run on Gloo")]
    if not seen and (here or any(Path(each).exists() for each in DEVICES)):
        return [_unseen(found, slices)]
    if not seen:
        return [fine("gpus", "a process sees no GPU: cases run on Gloo")]
    checks = [fine("gpus", f"a process sees {_gpus(seen)} ({found.gpus[0]}), NCCL {found.nccl}")]
    if not found.nccl:
        fix = "install a build of torch with NCCL"
        checks = [wrong("gpus", f"a process sees {_gpus(seen)}, and torch has no NCCL", fix)]
    if ranks > seen:
        message = f"{ranks} ranks on this host and {_gpus(seen)}: `auto` is Gloo for them"
        checks.append(note("gpus", message, "--nproc-per-node, or --share-gpu"))
    if slices:
        message = f"MIG is on: {len(slices)} slices are here, and a process sees {seen}"
        fix = "a slice is named by its UUID: CUDA_VISIBLE_DEVICES=MIG-…"
        checks.append(note("gpus", message, fix))
    return checks


def _unseen(found: Inventory, slices: list[str] | None) -> Check:
    """Say why a process sees none of the GPUs that the machine has."""
    if not found.built_for:
        message = f"this machine has a GPU, and torch {found.versions.get('torch')} is for CPUs"
        return wrong("gpus", message, "install a build of torch for CUDA or ROCm")
    if slices == []:
        fix = "make some (`nvidia-smi mig -cgi … -C`) or switch MIG off"
        return wrong("gpus", "MIG is on and there are no slices: a process sees no GPU", fix)
    why = f": {found.complaint}" if found.complaint else ""
    message = f"this machine has a GPU, and a process sees none{why}"
    return wrong("gpus", message, "the driver must be as new as CUDA's (`nvidia-smi` shows both)")


def _slices() -> list[str] | None:
    """Return the slices of GPUs by MIG; None where MIG is off, or cannot be asked for."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    try:
        modes = _output(tool, "--query-gpu=mig.mode.current", "--format=csv,noheader")
        listed = _output(tool, "-L")
    except (OSError, subprocess.SubprocessError):
        return None
    if "Enabled" not in modes:
        return None
    return [line.strip() for line in listed.splitlines() if line.strip().startswith("MIG ")]


def _output(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=30)
    return done.stdout


def _gpus(count: int) -> str:
    return f"{count} GPU" + "s" * (count != 1)


# What torch, Gloo and NCCL read in the environment.

PREFIXES = ("NCCL_", "TORCH_NCCL_", "GLOO_", "TORCH_GLOO_", "TORCH_DISTRIBUTED_", "TORCH_FR_")
#: names of torch's before 2.2, and what they are called now
_OLD = {
    f"NCCL_{name}": f"TORCH_NCCL_{name}"
    for name in ("ASYNC_ERROR_HANDLING", "BLOCKING_WAIT", "DESYNC_DEBUG", "ENABLE_TIMING")
}
#: what may end a rank before its hang is judged, where it is not what this package sets
_ENDS_RANKS = (
    "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    "TORCH_NCCL_ENABLE_MONITORING",
    "TORCH_NCCL_RETHROW_CUDA_ERRORS",
)


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what the environment says to torch's backends, by name."""
    return {name: environment[name] for name in sorted(environment) if name.startswith(PREFIXES)}


def look_at_environment(environment: Mapping[str, str]) -> list[Check]:
    """Say what is set, what has another name by now, and what gets into the way of a verdict.

    A rank of a hang must stay where it is until it was looked at. With its monitor or its handling
    of asynchronous errors on, torch ends the process first.
    """
    found = variables(environment)
    checks = [
        note("environment", f"torch reads {_OLD[name]}, and not {name}", "rename it")
        for name in found
        if name in _OLD
    ]
    checks += [
        note(
            "environment",
            f"{name}={found[name]} lets torch end a rank before its hang is judged",
            f"unset it: `scenario` sets it to {OURS[name]}",
        )
        for name in _ENDS_RANKS
        if found.get(name, OURS[name]) != OURS[name]
    ]
    if found.get("TORCH_NCCL_BLOCKING_WAIT", "0") not in {"", "0"}:
        name = "TORCH_NCCL_BLOCKING_WAIT"
        message = f"{name}={found[name]}: each wait of NCCL blocks its rank, also outside of a case"
        checks.append(note("environment", message, "unset it, unless your training sets it"))
    listed = ", ".join(f"{name}={value}" for name, value in found.items())
    return checks or [fine("environment", listed or "nothing is set for NCCL, Gloo or torch")]


#: variables that may differ between nodes: what names devices of a host, or where to write
OF_A_HOST = ("IFNAME", "_HCA", "_FILE", "HOSTID", "_DEBUG", "_DEBUG_SUBSYS")


def compare_variables(own: Mapping[str, str], others: Mapping[str, str], other: str) -> list[Check]:
    """Say which variables of this host are not as on another, which is named.

    `NCCL_ALGO=Ring` here and not there lets ranks of one communicator choose algorithms that do not
    fit together. The name of a network interface may well differ.
    """
    checks = []
    for name in sorted(own.keys() | others.keys()):
        here, there = own.get(name), others.get(name)
        if here == there:
            continue
        message = f"{_tell_variable(name, here)} here, and {_tell_variable(name, there)} on {other}"
        if name.endswith(OF_A_HOST):
            checks.append(note("environment", message))
        else:
            checks.append(wrong("environment", message, "export the same on every node"))
    return checks


def _tell_variable(name: str, value: str | None) -> str:
    return f"{name} is not set" if value is None else f"{name}={short(value)}"


MIB = 1 << 20
#: where processes share memory by name
SHARED = str(Path("/dev", "shm"))
#: bytes that NCCL wants of /dev/shm for each rank (its channels between processes)
SHM_OF_RANK = 32 * MIB
#: bytes that a rank takes at least, torch imported
MEMORY_OF_RANK = 200 * MIB
#: open files and threads: of a process, and more for each rank of the launch, or of this host
FILES, FILES_OF_PEER, THREADS_OF_RANK = 256, 8, 32
#: bytes of the largest file that a report may need
LARGEST_FILE = 64 * MIB
#: bytes of address space that a process needs once torch is imported
SPACE = 8 << 30


def look_at_shared_memory(gpus: int, ranks: int, folder: str = SHARED) -> list[Check]:
    """Say whether /dev/shm is there, and large enough for NCCL and for DataLoader's workers.

    Docker gives a container 64 MB of it where `--shm-size` says nothing else. Without GPUs too
    little is a note: Gloo uses sockets.
    """
    name, needs = SHARED, SHM_OF_RANK * max(1, min(gpus, ranks))
    try:
        found = os.statvfs(folder)
        if not os.access(folder, os.W_OK):
            return [wrong(name, f"{folder} cannot be written", f"`chmod 1777 {folder}`")]
    except OSError as error:
        message = f"{folder}: {error.strerror or error}"
        return [(wrong if gpus else note)(name, message, "mount a tmpfs there")]
    free = found.f_bavail * found.f_frsize
    message = f"{free // MIB} MiB are free"
    if free >= needs:
        return [fine(name, message)]
    message += f"; NCCL takes up to {needs // MIB} MiB for {ranks} ranks"
    fix = "give it more: `docker run --shm-size=1g`, an emptyDir of medium Memory in Kubernetes"
    return [(wrong if gpus else note)(name, message, fix)]


def look_at_limits(ranks: int, world: int) -> list[Check]:
    """Say which limits of this process and its control group are too low for its ranks.

    Open files count by the world, for a rank has connections to all others; threads by the ranks of
    this host, which share the user's limit.
    """
    checks = []
    files, threads = FILES + FILES_OF_PEER * world, THREADS_OF_RANK * ranks
    for which, what, least, fix in (
        (resource.RLIMIT_NOFILE, "open files", files, f"`ulimit -n {max(4096, files)}`"),
        (resource.RLIMIT_FSIZE, "bytes of a file", LARGEST_FILE, "`ulimit -f unlimited`"),
        (resource.RLIMIT_AS, "bytes of address space", SPACE, "`ulimit -v unlimited`"),
    ):
        soft, _ = resource.getrlimit(which)
        if soft not in {resource.RLIM_INFINITY, -1} and soft < least:
            checks.append(wrong("limits", f"{soft} {what} are allowed; {least} are needed", fix))
    soft, _ = resource.getrlimit(resource.RLIMIT_CPU)
    if soft != resource.RLIM_INFINITY:
        message = f"a process is ended after {soft} s of processor time"
        checks.append(note("limits", message, "`ulimit -t unlimited` for a long run"))
    left = _threads_left()
    if left is not None and left < threads:
        message = f"{left} more processes or threads are allowed; {ranks} ranks take {threads}"
        checks.append(wrong("limits", message, "raise `ulimit -u`, or the pids limit of the group"))
    opened, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    many = "any number of" if left is None else f"{left} more"
    return checks or [fine("limits", f"{opened} open files, {many} threads")]


def _threads_left() -> int | None:
    """Return how many threads this user, or this control group, may still start; None: any.

    RLIMIT_NPROC counts threads of all processes of a user, and does not hold for root
    (setrlimit(2)); `pids.max` counts those in a container.
    """
    found = []
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if os.geteuid() != 0 and soft != resource.RLIM_INFINITY:
        found.append(soft - _threads_of(os.geteuid()))
    most, now = read_control_group("pids.max"), read_control_group("pids.current")
    if most is not None and now is not None:
        found.append(most - now)
    return max(0, min(found)) if found else None


def _threads_of(user: int) -> int:
    count = 0
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if entry.stat().st_uid == user:
                count += len(os.listdir(entry / "task"))  # noqa: PTH208 -- names, not paths
        except OSError:
            continue
    return count


def read_control_group(name: str) -> int | None:
    """Return a number of this process's control group (version 2); None where it has none.

    It is in a file below /sys/fs/cgroup, which holds `max` for no bound: that is no int, and so
    None.
    """
    try:
        rows = Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines()
        own = next(row.partition("::")[2] for row in rows if row.startswith("0::"))
        place = Path("/sys/fs/cgroup", own.lstrip("/"))
        return int((place / name).read_text(encoding="ascii"))
    except (OSError, StopIteration, ValueError):
        return None


def look_at_memory(ranks: int) -> list[Check]:
    """Say how much memory is left for the ranks of this host."""
    free = free_memory()
    if free is None:
        return [report_untested("memory", "this machine does not say how much memory is free")]
    message, needs = f"{free // MIB} MiB are free", MEMORY_OF_RANK * ranks
    if free >= needs:
        return [fine("memory", message)]
    message += f"; {ranks} ranks take {needs // MIB} MiB before they hold a tensor"
    return [wrong("memory", message, "fewer ranks on this host, or more memory")]


def free_memory() -> int | None:
    """Return the bytes that are free on this machine, and in its control group.

    MemAvailable is what can be had without swapping (proc(5)). A container sees that of the whole
    machine, and is killed at the bound of its own group.
    """
    found = []
    with suppress(OSError, ValueError, IndexError):
        text = Path("/proc/meminfo").read_text(encoding="ascii")
        found.append(int(text.partition("MemAvailable:")[2].split()[0]) << 10)
    most, now = read_control_group("memory.max"), read_control_group("memory.current")
    if most is not None and now is not None:
        found.append(most - now)
    return min(found) if found else None


def look_at_folder() -> list[Check]:
    """Say whether the folder for temporary files can be used: checkpoints and records lie there."""
    try:
        folder = tempfile.gettempdir()
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x" * 4096)
            file.flush()
        free = shutil.disk_usage(folder).free
    except OSError as error:
        message = f"no temporary file can be written: {error.strerror or error}"
        return [wrong("temporary", message, "let TMPDIR name a folder with room")]
    return [fine("temporary", f"{folder} has {free // MIB} MiB free")]
