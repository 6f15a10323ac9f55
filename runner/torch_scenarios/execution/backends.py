"""Which backend a scenario runs on, whether it can, what it needs, and what its errors mean."""

from __future__ import annotations

import ctypes
import os
import re
import resource
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from torch_scenarios.errors import LaunchError, ScenarioError, UnsupportedError, nearest
from torch_scenarios.execution.lacks import read_lacks
from torch_scenarios.expressions.values import Constant
from torch_scenarios.model.needs import Lacks, word_lacks
from torch_scenarios.model.plan import Plan
from torch_scenarios.model.scenario import Scenario, Step, steps_of
from torch_scenarios.model.trace import Failure, Trace
from torch_scenarios.model.traits import (
    KNOWN_BACKENDS,
    carrier,
    device_type,
    names_in,
    split_backend,
    traits_of,
)
from torch_scenarios.operations import C10D
from torch_scenarios.operations.base import Compound, Operation
from torch_scenarios.vocabulary import BACKEND, WORLD

# -------------------------------------------------------------------------------------------------
# How scenarios are executed: what the command line chose, and no scenario can.


class LaunchOptions(Struct, frozen=True, kw_only=True):
    """The choices that hold for a whole run.

    `backend` is `auto` (NCCL where no two ranks share a GPU, else Gloo), a backend that
    torch knows, one that a plugin registers, or torch's long spelling (`cpu:gloo,cuda:nccl`).
    `plugins` are modules that every worker imports before it makes a process group. `timeout_s`
    replaces the scenario's own process-group timeout. `isolate` gives each scenario processes of
    its own. `confirm` is `prediction` (a predicted deadlock is confirmed as soon as every rank
    stands where it must) or `timeout` (it is left to the backend's timeout). `share_gpu` allows
    more NCCL ranks than GPUs. `max_ranks` bounds the processes that are ever started,
    `max_seconds` what one scenario may take, unless it states longer timeouts and sleeps itself.
    """

    backend: str = "auto"
    plugins: tuple[str, ...] = ()
    timeout_s: float | None = None
    isolate: bool = False
    confirm: str = "prediction"
    share_gpu: bool = False
    max_ranks: int = 64
    max_seconds: float = 120.0

    def lacks(self, backends: Collection[str]) -> Lacks:
        """Return what the plugins say that they lack, and what is known of some backends.

        Raises ScenarioError where a plugin declares what is not a capability.
        """
        return Lacks(
            declared={word: each for each in self.plugins for word in read_lacks(each)},
            backends=tuple(backends),
        )


# -------------------------------------------------------------------------------------------------
# How many GPUs there are, asked without touching CUDA in the process that workers fork from.
#
# A process that has asked CUDA itself forks children that cannot use it. torch asks the driver's
# library (NVML) first, and CUDA where that does not answer: in a container without it. With MIG it
# counts GPUs, of which CUDA shows one slice. There another process is asked, which ends.

#: one of these is there wherever CUDA or ROCm can find a GPU (the second: WSL)
DEVICES = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
#: what is here of each slice of a GPU (NVIDIA's guide to MIG, Device Nodes and Capabilities)
SLICES = Path("/proc/driver/nvidia/capabilities")
ASK = "import torch; torch.cuda.init(); print(torch._C._cuda_getDeviceCount())"
#: seconds that the process gets: it imports torch
ASK_S = 60.0


@cache
def count(torch: ModuleType) -> int:
    """Return how many GPUs torch sees, as CUDA_VISIBLE_DEVICES lets it."""
    cuda: Any = torch.cuda
    if not cuda._is_compiled():
        return 0
    by_the_driver: int = cuda._device_count_nvml()
    if by_the_driver >= 0 and not is_sliced():
        return by_the_driver
    return count_gpus() if may_be_here() else 0


def is_sliced() -> bool:
    """Return whether a GPU of this machine is in slices (MIG), which the driver does not count."""
    return any(SLICES.glob("gpu*/mig/gi*"))


def count_for(torch: ModuleType, tasks: int, around: Mapping[str, str]) -> int:
    """Return how many GPUs some tasks of this machine have, of which this process may see its own.

    Slurm can give each task other GPUs (`--gpus-per-task`, `--gpu-bind`; srun(1)): then one
    task sees no other's, and counts its own.
    """
    return count(torch) * (tasks if is_bound(around) else 1)


def is_bound(around: Mapping[str, str]) -> bool:
    """Return whether Slurm gives no two tasks of this step one GPU.

    A step of one task on each node, or one whose tasks are torchrun's agents, starts no ranks.
    """
    tasks, nodes = (around.get(f"SLURM_STEP_NUM_{each}", "1") for each in ("TASKS", "NODES"))
    if "TORCHELASTIC_RUN_ID" in around or tasks == nodes:
        return False
    bound = around.get("SLURM_GPU_BIND", "").removeprefix("verbose,")
    if bound and bound != "none":
        return bound.startswith(("single", "per_task", "map_gpu", "mask_gpu"))
    return around.get("SLURM_GPUS_PER_TASK", "") not in {"", "0"} and bound != "none"


def split_devices(visible: Sequence[str], nodes: int) -> list[str]:
    """Return what CUDA_VISIBLE_DEVICES is on each of some hosts that one machine simulates.

    None of them has a GPU of another's; those that come too late have none.

    >>> split_devices(["0", "1", "2", "3"], nodes=2)
    ['0,1', '2,3']
    """
    each = max(1, len(visible) // nodes)
    return [",".join(visible[at * each : (at + 1) * each]) for at in range(nodes)]


def list_visible(torch: ModuleType, around: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the GPUs that this process sees, as CUDA_VISIBLE_DEVICES has them."""
    named = tuple(filter(None, around.get("CUDA_VISIBLE_DEVICES", "").split(",")))
    return named or tuple(map(str, range(count(torch))))


def may_be_here() -> bool:
    """Return whether there may be a GPU, without asking anybody."""
    return any(Path(device).exists() for device in DEVICES)


def count_gpus() -> int:
    """Return how many GPUs another process sees; none where it cannot say."""
    done = subprocess.run(
        [sys.executable, "-c", ASK], capture_output=True, text=True, timeout=ASK_S, check=False
    )
    words = done.stdout.split()
    return int(words[-1]) if words and words[-1].isdigit() else 0


# -------------------------------------------------------------------------------------------------
# NCCL's surroundings: what must stand in a worker's environment before it is first used.
#
# Everything here is a function of versions and counts. Nothing imports torch, and nothing needs a
# GPU to be tested.

#: what workers find unless the user set it (torch's ProcessGroupNCCL.cpp reads all of it). The
#: supervisor judges a hang by positions; nothing of torch's may end the process before it did
ENVIRONMENT = {
    # the watchdog reports a timeout and leaves the process and the communicator alone
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    "TORCH_NCCL_RETHROW_CUDA_ERRORS": "0",
    # the monitor of the watchdog's heartbeat would end the process after 8 minutes
    "TORCH_NCCL_ENABLE_MONITORING": "0",
    # no dump is written to a file that would be left behind: it is read from memory
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
    "TORCH_FR_BUFFER_SIZE": "2000",
    "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
    # `debug: detail` turns the watchdog's teardown on again: four times this many ms after a
    # timeout, which leaves the supervisor time to be first
    "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "5000",
    "TORCH_NCCL_SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING": "0",
    # NCCL's own status service listens on a port of the machine
    "NCCL_RAS_ENABLE": "0",
    # from NCCL 2.22 on (src/init.cc, `ncclParamRuntimeConnect`) rings and trees are connected in
    # the first collective of each communicator, where the host waits for its neighbours: a rank
    # whose peer never comes would stand in the call, and not at the wait behind it
    "NCCL_RUNTIME_CONNECT": "0",
    # torch 2.6.0 and 2.7.0 make communicators nonblocking where `device_id` is given
    # (ProcessGroupNCCL.cpp, `useNonblocking`; pytorch#154055 ends that, pytorch#173758 wants it
    # back): the world would not be made when its call returns
    "TORCH_NCCL_USE_COMM_NONBLOCKING": "0",
}

#: what the verdict rests on, whatever the user's shell has: here a rank would raise in its wait
OVERRULED = {"TORCH_NCCL_BLOCKING_WAIT": "0"}
#: what a process finds of the user's settings that are not used, for the results
NOT_USED = "SCENARIO_NOT_USED"
#: variables that steer NCCL, and torch's use of it
STEERS = ("NCCL_", "TORCH_NCCL_", "TORCH_FR_", "CUDA_")


def make_environment(around: Mapping[str, str]) -> dict[str, str]:
    """Return an environment for workers: the user's own, ours where it says nothing, and OVERRULED.

    What is overruled stays in NOT_USED, so that the results can say so.
    """
    ignored = [
        f"{name}={around[name]}"
        for name, value in OVERRULED.items()
        if around.get(name, value) != value
    ]
    more = {NOT_USED: " ".join(ignored)} if ignored else {}
    return {**ENVIRONMENT, **around, **OVERRULED, **more}


def describe_settings(around: Mapping[str, str]) -> str:
    """Return what the user's shell says to NCCL, in one line; empty where it says nothing."""
    ours = ENVIRONMENT | OVERRULED
    found = [
        f"{name}={value}"
        for name, value in sorted(around.items())
        if name.startswith(STEERS) and ours.get(name) != value
    ]
    if around.get(NOT_USED):
        found.append(f"not used: {around[NOT_USED]}")
    return " ".join(found)


Version = tuple[int, int, int]

#: from here on NCCL lets ranks share a GPU if told to; before, it takes equal hosts for equal GPUs
SHARES: Version = (2, 30, 3)
#: from here on a rank's host can be named (`NCCL_HOSTID`)
NAMES_HOSTS: Version = (2, 5, 6)
#: from here on the channels of a rank are bounded by `NCCL_MAX_CTAS`
BOUNDS_CTAS: Version = (2, 17, 0)
#: ranks on one GPU beyond which their kernels surely have not room to spin side by side
MOST_ON_A_GPU = 32


class Sharing(Struct, frozen=True, kw_only=True):
    """How the ranks of a launch share its GPUs: one environment, and what differs by rank.

    `means` says in a phrase which of NCCL's ways it is.

    >>> two = Sharing(ranks=2, gpus=1, means="as hosts of their own", own_host=True)
    >>> two.environment(1)
    {'NCCL_HOSTID': 'rank-1'}

    NCCL refuses two ranks of one host on one GPU. With a host id of its own each rank counts as a
    machine, and they talk over sockets: semantics are the same, and times mean nothing.
    """

    ranks: int
    gpus: int
    means: str
    common: Mapping[str, str] = field(default_factory=dict)
    own_host: bool = False

    def environment(self, rank: int) -> dict[str, str]:
        """Return what a rank must find in its environment before NCCL is first used."""
        own = {"NCCL_HOSTID": f"rank-{rank}"} if self.own_host else {}
        return {**self.common, **own}

    def note(self, ranks: int) -> str:
        """Say to a person that `ranks` ranks of one scenario shared the GPUs."""
        return f"{_ranks(ranks)} shared {_gpus(self.gpus)} ({self.means}): its times mean nothing"


def find_sharing(version: Version | None, ranks: int, gpus: int) -> Sharing | str | None:
    """Return how `ranks` share `gpus`; None where each has its own, or the reason why they cannot.

    A GPU runs the kernels of several processes in turns, so that ranks which wait for each other in
    a kernel need few blocks each (NCCL's documentation of `NCCL_MULTI_RANK_GPU_ENABLE`).
    """
    if gpus < 1:
        return "there is no GPU to share"
    if ranks <= gpus:
        return None
    if version is None:
        return "the version of NCCL is not known, and how ranks share a GPU depends on it"
    crowd = -(-ranks // gpus)
    if crowd > MOST_ON_A_GPU:
        return f"{crowd} ranks would share a GPU; more than {MOST_ON_A_GPU} would block each other"
    if version < NAMES_HOSTS:
        return f"NCCL {_join(version)} takes one rank a GPU; {_join(SHARES)} and newer take more"
    channels = str(4 if crowd <= 2 else 2 if crowd <= 4 else 1)
    bound = "NCCL_MAX_CTAS" if version >= BOUNDS_CTAS else "NCCL_MAX_NCHANNELS"
    common = {"NCCL_NVLS_ENABLE": "0", bound: channels}
    if version >= SHARES:
        common["NCCL_MULTI_RANK_GPU_ENABLE"] = "1"
        means = "NCCL_MULTI_RANK_GPU_ENABLE"
        return Sharing(ranks=ranks, gpus=gpus, means=means, common=common)
    common |= {"NCCL_NET": "Socket", "NCCL_IB_DISABLE": "1", "NCCL_SOCKET_IFNAME": "lo"}
    common["NCCL_MNNVL_ENABLE"] = "0"  # simulated hosts have no NVLink between them
    means = f"a host name for each rank and sockets, as NCCL {_join(version)} takes one rank a GPU"
    return Sharing(ranks=ranks, gpus=gpus, means=means, common=common, own_host=True)


def offer(ranks: int, gpus: int) -> str:
    """Say that NCCL could run what `auto` gave to Gloo."""
    return (
        f"it ran on Gloo: it has {_ranks(ranks)} and this machine {_gpus(gpus)}. "
        "--share-gpu runs it on NCCL, with several ranks on a GPU"
    )


def _ranks(count: int) -> str:
    return f"{count} rank{'s'[: count != 1]}"


def _gpus(count: int) -> str:
    return f"{count} GPU{'s'[: count != 1]}"


# ---------------------------------------------------------------------------- versions


def version_of(torch: ModuleType) -> Version | None:
    """Return the version of the NCCL that is loaded; None where there is none.

    A newer NCCL may be installed than torch was built with, and torch tells only the latter: so the
    library itself is asked, where it is a shared one.
    """
    if not torch.distributed.is_nccl_available():
        return None
    return _find_library_version() or _find_build_version(torch)


def _find_library_version() -> Version | None:
    found = ctypes.c_int()
    try:
        failed = library().ncclGetVersion(ctypes.byref(found))
    except (OSError, AttributeError):
        return None
    return None if failed else decode_version(found.value)


def library() -> ctypes.CDLL:
    """Return the NCCL that torch has loaded. Raises OSError where there is none that is shared."""
    return ctypes.CDLL("libnccl.so.2", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)


def _find_build_version(torch: Any) -> Version | None:
    try:
        major, minor, patch, *_ = torch.cuda.nccl.version()
    except (AttributeError, RuntimeError, TypeError, ValueError):
        return None
    return int(major), int(minor), int(patch)


def decode_version(code: int) -> Version | None:
    """Return the version that NCCL's `NCCL_VERSION_CODE` says: 22907 is 2.29.7, 2804 is 2.8.4."""
    if code <= 0:
        return None
    base = 1000 if code < 10_000 else 10_000
    return code // base, code % base // 100, code % 100


def _join(version: Version) -> str:
    return ".".join(map(str, version))


def tell_version(version: Version | None) -> str:
    """Return a version as text."""
    return "unknown" if version is None else _join(version)


# -------------------------------------------------------------------------------------------------
# From what a backend raises to a kind of `raises:`, one table a backend, in one place.
#
# torch raises plain RuntimeError for nearly everything that goes wrong in a transport, so the
# words decide; the type decides where the words say nothing. The first row that matches wins. Each
# row of Gloo's table is produced for real in tests/torch; NCCL's rows are held against messages as
# its and torch's sources compose them.

#: kept of a backend's message
LENGTH = 2000

#: raised by torch's own Python code before any backend is asked; the same for all of them
TORCH = (
    (r"Invalid process group specified|not part of the (process )?group", "not_member"),
    (r"invalid tensor type at index|same dtype|scalar type|Tensor dtypes", "dtype_mismatch"),
    (r"unexpected keyword argument|has no attribute '(all|reduce|new)_", "unsupported"),
    (r"Mesh should not be bigger than", "invalid_argument"),
    (r"monitored_barrier is only implemented for GLOO", "unsupported"),
    (r"Split sizes|invalid tensor size|incorrect size|must have the same size", "shape_mismatch"),
)

#: refused at the call by a backend's front, alike in Gloo and NCCL
ARGUMENTS = (
    # of torch's own kernels, where memory overlaps: a mistake, and nothing that a backend lacks
    (r"unsupported operation: (some|more than one) element", "other"),
    (r"does not divide equally|invalid size of output tensor|sizes\(\)\.vec\(\)", "shape_mismatch"),
    (r"is not a multiple of required number of blocks", "shape_mismatch"),
    (r"Check failed: .*dtype", "dtype_mismatch"),
    (r"expected length \d|Incorrect (in|out)put list size|splits not equal", "invalid_argument"),
    (r"(must be|equal to|does not match) world size", "invalid_argument"),
    (r"invalid root rank|no tensor arguments to this function", "invalid_argument"),
    (r"does not support.* on complex tensors|does not support.on complex", "invalid_argument"),
    (r"redistributing to Partial is for internal use only", "invalid_argument"),
    (r"Missing key in checkpoint|Size mismatch between saved", "invalid_argument"),
    (r"No such file or directory: .*\.metadata", "invalid_argument"),
    (r"Mixed Partial reduce types are not supported", "invalid_argument"),
    (r"a and b must have same reduction dim", "invalid_argument"),
    (r"Expected more than 1 value per channel when training", "invalid_argument"),
    (r"would remove or reshape sharded dimension", "invalid_argument"),
    (r"shapes cannot be multiplied|Given normalized_shape=", "invalid_argument"),
    (r"The size of tensor a .* must match the size of tensor b", "invalid_argument"),
    (r"index out of range in self|Target -?\d+ is out of bounds", "invalid_argument"),
)

#: what `TORCH_DISTRIBUTED_DEBUG=DETAIL` finds: the aspects that differ stand at the message's end
DETAIL = (
    (r"Detected mismatch between collectives.*differ in.*Op type", "other"),
    (r"Detected mismatch between collectives.*differ in.*Tensor dtypes", "dtype_mismatch"),
    (r"Detected mismatch between collectives.*differ in.*Tensor shapes", "shape_mismatch"),
    (r"Detected mismatch between collectives", "other"),
)

#: words of torch's RPC and of TensorPipe
RPC = (
    (r"RPC ran for more than set timeout|RRef creation via rpc\.remote timed out", "timeout"),
    (r"could not find destination|Unknown destination worker", "invalid_argument"),
    (r"originated at tensorpipe/.*|RPCErr:\d+:.*(EOF|eof|closed|reset)", "peer_lost"),
)

STORE = (
    (r"[Ww]ait timeout after|Timed out after|Socket Timeout", "timeout"),
    (r"Broken pipe|Connection reset|failed to (send|recv)|Connection refused", "peer_lost"),
)

GLOO = (
    (r"successfully reached monitoredBarrier, but received errors", "aborted"),
    (r"failed to pass monitoredBarrier|Timed out waiting|Operation timed out", "timeout"),
    (r"Application timeout caused pair closure", "aborted"),
    (r"Connection closed by peer|Connection reset by peer|Broken pipe", "peer_lost"),
    (r"Connect timeout|connect.*timed out", "timeout"),
    (r"Pair is not connected|Tag must be nonnegative|has to be contiguous", "invalid_argument"),
    (r"Expected to have finished reduction in the prior iteration", "invalid_argument"),
    (r"expect_autograd_hooks_ INTERNAL ASSERT FAILED", "invalid_argument"),
    (r"got mixed torch\.Tensor and DTensor|must have the same mesh", "invalid_argument"),
    (r"Cannot use ReduceOp\.\w+ with non-integral dtype", "invalid_argument"),
    (r"Invalid scalar type|Cannot use ReduceOp|can't be cast to the desired", "unsupported"),
    (r"not support|[Uu]nsupported|not implemented|only .* (is|are) supported", "unsupported"),
    (r"Check failed: .*(Shape|size|numel)", "shape_mismatch"),
)

#: words of ProcessGroupNCCL.cpp, NCCLUtils.cpp (torch 2.6 to 2.13) and of NCCL's own last error.
#: Asked before Gloo's rows: they name their origin, and quote other errors as their reason
NCCL = (
    (r"NCCL communicator was aborted|ncclCommAbort|communicator was aborted", "aborted"),
    (r"Process [Gg]roup destroyed|ProcessGroup abort", "aborted"),
    (r"Watchdog caught collective operation timeout|timed out in blocking wait", "timeout"),
    (r"NCCL timeout in communicator initialization|NCCL operation timed out", "timeout"),
    (r"ncclRemoteError|remote process exited or there was a network error", "peer_lost"),
    (r"ncclSystemError.*(Connection (reset|closed|refused)|Broken pipe)", "peer_lost"),
    (r"ncclInvalidArgument|ncclInvalidUsage|Duplicate GPU", "invalid_argument"),
    (r"Multiple Ranks are using the same GPU", "invalid_argument"),
    (r"NCCL \w+ failed: invalid (argument|usage)", "invalid_argument"),  # torch 2.15 and newer
    (r"Unconvertible NCCL type|[Uu]nsupported Float8", "unsupported"),
    (r"PreMulSum (Data type|requires)", "unsupported"),
    (r"built with(out)? NCCL|doesn't have NCCL|No backend type associated", "unsupported"),
    (r"only supported with GPUs, no GPUs found", "unsupported"),
    (r"must be equal to world_size times|same size as output size times", "shape_mismatch"),
    (r"must have the same number of elements|have identical size", "shape_mismatch"),
    (r"must (be|have) the same type (as|of)|have identical type", "dtype_mismatch"),
    (r"must be (CUDA and dense|non-overlapping and dense)", "invalid_argument"),
)

#: of a device or of the machine: no property of the program
MEMORY = (
    (r"CUDA out of memory|CUDA error: out of memory", "out_of_memory"),
    (r"[Cc]uda failure.{0,40}out of memory|[Cc]annot allocate memory", "out_of_memory"),
    (r"can't allocate memory|std::bad_alloc", "out_of_memory"),
)

TABLE = tuple(
    (re.compile(pattern, re.DOTALL), kind)
    for pattern, kind in (*DETAIL, *MEMORY, *RPC, *NCCL, *ARGUMENTS, *GLOO, *STORE, *TORCH)
)

#: what a process says that a machine cannot start, and what that means
MACHINE = (
    (
        r"Errno 24\b|Too many open files|EMFILE|Failed to init uv loop",
        "a process may have {files} files open, and has (`ulimit -n` raises that)",
    ),
    (r"Errno 23\b|Too many open files in system", "the machine has no file descriptor left"),
    (
        r"Errno 11\b|Resource temporarily unavailable|can't start new thread|pthread_create",
        (
            "no more processes or threads can be started (`ulimit -u` is {processes}, and a "
            "container may have another limit)"
        ),
    ),
    (
        r"Errno 27\b|File too large",
        "a process may not write files as large as it needs (`ulimit -f unlimited` raises that)",
    ),
    (r"Errno 12\b|Cannot allocate memory", "there is not enough memory for another process"),
    (
        (
            r"Errno (98|99|101|110|111|113)\b|EADDRINUSE|Address already in use"
            r"|Cannot assign requested address|Network is unreachable"
        ),
        (
            "no connection can be made on 127.0.0.1: the loopback interface is down "
            "(`ip link set lo up`), or no port is free"
        ),
    ),
)


def lack_of(words: str) -> str | None:
    """Return what the machine lacks where a process could not start; None where it says not."""
    for pattern, lack in MACHINE:
        if re.search(pattern, words):
            files, processes = (
                "any number of" if soft == resource.RLIM_INFINITY else str(soft)
                for soft, _ in map(
                    resource.getrlimit, (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC)
                )
            )
            return lack.format(files=files, processes=processes)
    return None


#: where the words say nothing
TYPES: tuple[tuple[type[BaseException], str], ...] = (
    (MemoryError, "out_of_memory"),
    (NotImplementedError, "unsupported"),
    (ValueError, "invalid_argument"),
    (TypeError, "invalid_argument"),
    (IndexError, "invalid_argument"),
    (AssertionError, "invalid_argument"),
)

#: raised by the scenario itself, not by a backend
OWN = {"ProgramError", "ScenarioError", "BrokenCallError", "FunctionFailedError"}


def kind_of(error: BaseException) -> str:
    """Return the kind of :data:`torch_scenarios.vocabulary.RAISE_KINDS` for what a call raised.

    Where its words and its type say nothing, those of what caused it decide: a pipeline's stage
    raises what failed in it as another error.
    """
    return _kind(error)[0]


def _kind(error: BaseException) -> tuple[str, BaseException]:
    """Return the kind, and the error in the chain of causes that decides it."""
    if isinstance(error, ScenarioError) or type(error).__name__ in OWN or _is_mistake(error):
        return "other", error
    words = str(error)
    for pattern, kind in TABLE:
        if pattern.search(words):
            return kind, error
    kind = next((kind for base, kind in TYPES if isinstance(error, base)), "other")
    if kind == "other" and error.__cause__ is not None:
        found, cause = _kind(error.__cause__)
        if found != "other":
            return found, cause
    return kind, error


def failure_of(error: BaseException) -> Failure:
    """Return what a call raised, for the trace: its kind, and the backend's own words."""
    kind, cause = _kind(error)
    words = str(error).strip() or type(error).__name__
    if cause is not error:
        words = f"{words.partition(chr(10))[0]} {str(cause).strip()}"
    return Failure(kinds=(kind,), message=words[:LENGTH])


#: what Python itself says of a call, a name or an operator that is wrong
_PYTHON = re.compile(
    r"positional argument|keyword argument|multiple values for argument|has no attribute '"
    r"|unsupported operand type|object is not (callable|iterable|subscriptable)|is not defined"
)
#: the packages from which a process group is called
_CALLERS = frozenset({"torch", "torch_scenarios", "typing_extensions"})


def _is_mistake(error: BaseException) -> bool:
    """Return whether Python itself raised an error, in code that is neither torch's nor ours.

    `helper() got an unexpected keyword argument 'three'` inside a plugin's method is a bug of the
    plugin. From a frame of torch, the same words say that what torch calls is not there.
    """
    python = isinstance(error, TypeError | AttributeError | NameError)
    return python and _PYTHON.search(str(error)) is not None and not _is_raised_by_caller(error)


def _is_raised_by_caller(error: BaseException) -> bool:
    """Return whether the innermost frame is torch's or ours: then the call itself failed."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    module = trace.tb_frame.f_globals.get("__name__", "") if trace is not None else "torch"
    return str(module).partition(".")[0] in _CALLERS


#: what torch says where a process group that is written in Python lacks the method of a call
_NO_METHOD = "No backend type associated with device type"
#: what Python says where a method takes other arguments: `Group.allreduce() takes 2 positional ...`
_ARGUMENTS = re.compile(
    r"(?:[\w<>]+\.)+(\w+)\(\) (?:takes|missing|got an unexpected keyword|got multiple values)"
)


def name_lack(failure: Failure, error: BaseException, function: str, group: type) -> Failure:
    """Say which method a plugin's process group lacks, where a call failed because of that.

    torch calls a method of c10d. Where the class has none, the method of torch's base class looks
    for a backend of the tensor's device, and says that there is none. A method that does not take
    the arguments that torch passes counts as lacking, too. `group` is the class of the process
    group; torch's own have each method.
    """
    if group.__module__.startswith("torch."):
        return failure
    name = f"{group.__module__}.{group.__qualname__}"
    found = _ARGUMENTS.match(failure.message)
    if found and hasattr(group, found[1]) and _is_raised_by_caller(error):
        message = (
            f"torch calls the method `{found[1]}` of the process group {name} with arguments that "
            f"it does not take: {failure.message}"
        )
        return replace(failure, kinds=("unsupported",), message=message)
    absent = _absent_methods(function, group) if _NO_METHOD in failure.message else []
    if not absent:
        return failure
    message = (
        f"the process group {name} has no method `{absent[0]}`, which torch calls for {function}"
    )
    return replace(failure, message=message)


def _absent_methods(function: str, group: type) -> list[str]:
    """Return the methods that torch may call for a function, and that a class only inherits.

    A newer torch calls some by the name of the function: `all_gather_single`.
    """
    of_torch = next(
        (each for each in group.__mro__ if each.__module__.startswith("torch.")), object
    )
    wanted = [name.removesuffix("_") for name, public in C10D.items() if public == function]
    return [
        name
        for name in (function, *wanted)
        if hasattr(of_torch, name) and getattr(group, name) is getattr(of_torch, name)
    ]


# -------------------------------------------------------------------------------------------------
# Which backend a scenario runs on, and why it cannot run on one.
#
# Handed `torch` by its callers; imports nothing of it.


class BackendChoice(Struct, frozen=True, kw_only=True):
    """What a scenario runs on. `sharing` is how the ranks of its launch share GPUs, if they do.

    `notes` is what the report must say of it, `environment` what the results keep.

        --backend auto, 4 ranks, 4 GPUs      nccl
        --backend auto, 4 ranks, 2 GPUs      gloo: no two ranks share a GPU unasked
        --backend nccl, 4 ranks, 2 GPUs      with `--share-gpu` nccl; else UNSUPPORTED
    """

    backend: str
    sharing: Sharing | None = None
    notes: tuple[str, ...] = ()
    environment: dict[str, str]


def choose_backend(
    torch: ModuleType,
    requested: str,
    plan: Plan,
    *,
    share_gpu: bool,
    here: int,
    needs: Collection[str] = (),
) -> BackendChoice:
    """Return what a scenario runs on: `auto` is NCCL where each rank has a GPU, else Gloo.

    `here` is how many processes of the launch are on this machine, `needs` what the scenario uses
    that a backend may lack. Raises UnsupportedError where the scenario excludes the backend,
    LaunchError where the machine cannot run it.
    """
    scenario = plan.scenario
    ranks = min(here, scenario.world_size)
    backend = requested.lower()
    offered: tuple[str, ...] = ()
    if backend == "auto":
        backend, offered = _automatic(torch, scenario, ranks, share_gpu=share_gpu)
    other_version = scenario.not_for(str(torch.__version__))
    if other_version is not None:
        raise UnsupportedError(other_version)
    require_fit(backend, plan, needs)
    _require_read(backend, scenario)
    environment = {"torch": str(torch.__version__), "backend": backend}
    if device_type(backend) == "cpu":
        return BackendChoice(backend=backend, notes=offered, environment=environment)
    _require_gpus(torch, backend, ranks, share_gpu=share_gpu)
    environment |= describe_machine(torch, backend)
    shared = _share_gpus(torch, ranks, here) if share_gpu else None
    if shared is None or ranks <= shared.gpus:
        return BackendChoice(backend=backend, sharing=shared, environment=environment)
    environment["gpus"] = f"{shared.gpus}, shared by {ranks} ranks"
    return BackendChoice(
        backend=backend, sharing=shared, notes=(shared.note(ranks),), environment=environment
    )


def _automatic(
    torch: Any,
    scenario: Scenario,
    ranks: int,
    *,
    share_gpu: bool,
) -> tuple[str, tuple[str, ...]]:
    """Return the backend, and what `auto` has to say about it."""
    dist = torch.distributed
    gpus = count_for(torch, ranks, os.environ) if dist.is_nccl_available() else 0
    able = gpus >= ranks or bool(gpus and share_gpu)
    spelled = _spell_out(scenario.backends or (), able=able)
    if spelled is not None:
        return spelled, ()
    if able:
        return "nccl", ()
    return "gloo", (offer(ranks, gpus),) if gpus else ()


def _spell_out(meant: tuple[str, ...], *, able: bool) -> str | None:
    """Return the long spelling that a scenario's own `backends` make, as far as there are GPUs."""
    if not meant or not all(device for name in meant for device, _ in split_backend(name)):
        return None
    usable = [name for name in meant if able or device_type(name) == "cpu"]
    return ",".join(usable) or None


def require_fit(backend: str, plan: Plan, needs: Collection[str]) -> None:
    """Raise UnsupportedError where a backend is not to run a scenario, or lacks what it needs.

    Whatever runs it asks here: torch's own launch, the one that torchrun made, other frameworks.
    """
    _require_meant(backend, plan.scenario)
    lacked = [word for word in needs if word in traits_of(carrier(backend)).lacks]
    if lacked:
        raise UnsupportedError(word_lacks(carrier(backend), lacked))


def _require_meant(backend: str, scenario: Scenario) -> None:
    """Raise UnsupportedError where a scenario names other backends than this one."""
    meant = scenario.backends
    if meant is None:
        return
    wanted = {part for name in meant for part in split_backend(name)}
    # a kind of device that one side leaves open fits every kind
    fits = any(
        name == other and (not device or not kind or device == kind)
        for device, name in split_backend(backend)
        for kind, other in wanted
    )
    if not fits:
        message = f"it is meant for {', '.join(meant)}; this run is on {backend}"
        raise UnsupportedError(message)


def _require_read(backend: str, scenario: Scenario) -> None:
    """Refuse another backend than the one that expressions have read."""
    read = scenario.constants.get(BACKEND)
    if scenario.reads_backend and carrier(backend) != read:
        message = (
            f"an expression reads `backend`, which was {read} when it was analysed, and `auto` is "
            f"{backend} here: say `--backend {backend}`"
        )
        raise UnsupportedError(message)


def _require_gpus(
    torch: Any,
    backend: str,
    ranks: int,
    *,
    share_gpu: bool,
) -> None:
    """Raise where a backend on GPUs has not what it needs here."""
    if "nccl" in names_in(backend) and not torch.distributed.is_nccl_available():
        message = (
            f"the installed torch {torch.__version__} is built without NCCL. Install a CUDA build "
            "of torch, or run with --backend gloo."
        )
        raise LaunchError(message)
    gpus = count_for(torch, ranks, os.environ)
    if gpus == 0:
        what = "NCCL" if "nccl" in names_in(backend) else f"the backend {backend}"
        message = f"{what} needs a GPU, and torch sees none here. Run with --backend gloo."
        raise LaunchError(message)
    if gpus < ranks and not share_gpu:
        message = (
            f"it has {ranks} ranks and this machine {gpus} GPU{'s'[: gpus != 1]}; NCCL takes "
            "one rank a GPU. Run it with --share-gpu, or with --backend gloo."
        )
        raise UnsupportedError(message)


def _share_gpus(torch: Any, ranks: int, here: int) -> Sharing | None:
    """Return how the launch shares the GPUs. Raises UnsupportedError where the ranks cannot.

    It is the same for every scenario of a launch: NCCL reads its environment once.
    """
    version, gpus = version_of(torch), count_for(torch, ranks, os.environ)
    shared = find_sharing(version, here, gpus)
    if not isinstance(shared, str):
        return shared
    if ranks <= gpus:
        return None
    message = f"{shared}. Run it with --backend gloo."
    raise UnsupportedError(message)


def describe_machine(torch: Any, backend: str) -> dict[str, str]:
    """Return what the results keep of a machine with GPUs; CUDA need not be initialised."""
    found = {"cuda": str(torch.version.cuda), "gpus": str(count(torch))}
    if said := describe_settings(os.environ):
        found["settings"] = said
    if "nccl" in names_in(backend):
        found["nccl"] = tell_version(version_of(torch))
    return found


def unknown(backend: str, plugins: Collection[str] = ()) -> str | None:
    """Return why no torch has a backend of that name, without importing torch; None where one may.

    A module among `plugins`, or an installed extension that torch loads by itself (the entry points
    `torch.backends`), may register any name: the worker asks torch then.
    """
    if "fake" in names_in(backend):
        return (
            "the backend 'fake' exchanges nothing, so that no value of a run could be right; "
            "`scenario check` needs no backend, and `scenario record --fake` records on fake ranks"
        )
    if "jax" in names_in(backend) and not plugins:
        return "torch has no backend 'jax'; `--framework jax` runs scenarios on JAX, without torch"
    strange = [name for name in names_in(backend) if name not in KNOWN_BACKENDS]
    if not strange or plugins or entry_points(group="torch.backends"):
        return None
    close = nearest(strange[0], KNOWN_BACKENDS)
    guess = f" Did you mean {close!r}?" if close else ""
    return (
        f"there is no backend {strange[0]!r}; there are {', '.join(sorted(KNOWN_BACKENDS))}.{guess}"
        " A backend of your own is registered by a module named with --plugin."
    )


def require_known(torch: ModuleType, backend: str) -> None:
    """Raise LaunchError where torch knows no backend of that name, plugins being imported."""
    dist = torch.distributed
    known = [str(name) for name in dist.Backend.backend_list if name != "undefined"]
    for name in names_in(backend):
        if name not in known:
            message = (
                f"torch {torch.__version__} has no backend {name!r}; it knows {', '.join(known)}. "
                "A backend of your own is registered by a module named with --plugin."
            )
            raise LaunchError(message)
        if name in {"gloo", "nccl", "mpi", "ucc", "xccl"} and not dist.is_backend_available(name):
            message = f"the installed torch {torch.__version__} is built without {name}."
            raise LaunchError(message)


# ---------------------------------------------------------------------------- a stranger's bytes


def require_no_foreign_object(plan: Plan, predicted: Trace, names: tuple[str, ...]) -> None:
    """Raise UnsupportedError where an object operation may unpickle what a tensor operation sent.

    torch's object collectives are a size and some bytes, sent as tensors; where ranks disagree, the
    bytes of any tensor may arrive in their place. A program that the analysis finds right has no
    such meeting. In any other, how far each rank gets is not known for certain, and so it is
    asked whether the program has two such operations, on one group, that `names` (the backends
    that may run it) carry alike. One whose operations can only wait for each other is run.

    `save` and `load` exchange plans as objects, too: with each other as torch means it, and with
    training where nothing but a refused argument is wrong.
    """
    taking = [step for step in _steps(plan) if _takes_objects(step)]
    if not taking:
        return
    traces = (predicted, *map(predicted.on, names))
    if all(_is_right(trace) for trace in traces):
        return
    refused = all(each.name == "invalid_argument" for trace in traces for each in trace.diagnoses)
    for step in _steps(plan):
        operation = step.operation
        if operation is None or operation.takes_objects or not operation.exchanges:
            continue
        for other in taking:
            if _plans(other) and (_plans(step) or (refused and isinstance(operation, Compound))):
                continue
            if _share_group(step, other) and may_meet(operation, other.operation, names):
                raise UnsupportedError(_foreign(step, other))


def _steps(plan: Plan) -> tuple[Step, ...]:
    return steps_of(plan.scenario.steps)


def _is_right(trace: Trace) -> bool:
    wrong = trace.diagnoses or trace.open or trace.limits or trace.outcome != "completes"
    return not wrong


def _takes_objects(step: Step) -> bool:
    operation = step.operation
    return _plans(step) or (
        operation is not None
        and any(param.kind == "objects" and param.writes for param in operation.params)
    )


def _plans(step: Step) -> bool:
    """Return whether torch's ranks tell each other there what a checkpoint is made of."""
    return isinstance(step.operation, Compound) and step.operation.checkpoints


def _share_group(step: Step, other: Step) -> bool:
    """Return whether two steps may be on the same group."""
    groups = {_group(each) for each in (step, other)}
    return None in groups or len(groups) == 1


def _group(step: Step) -> str | None:
    """Return the name of a step's group; None where only a run can tell."""
    form = step.arguments.get("group")
    if form is None:
        known = step.operation and any(param.name == "group" for param in step.operation.params)
        return WORLD if known else None
    return str(form.value or WORLD) if isinstance(form, Constant) else None


def may_meet(operation: Operation, other: Operation | None, backends: tuple[str, ...]) -> bool:
    """Return whether what one operation carries may arrive in another.

    Of a compound operation each call may: which ones it makes is up to torch.
    """
    assert other is not None
    if isinstance(operation, Compound) or isinstance(other, Compound):
        return True
    return any(traits_of(name).meet(operation.name, other.name) for name in backends)


def _foreign(step: Step, taking: Step) -> str:
    assert step.operation is not None
    assert taking.operation is not None
    places = [f" ({each.mark.short})" if each.mark else "" for each in (step, taking)]
    return (
        f"`{taking.operation.name}`{places[1]} may take the bytes of `{step.operation.name}`"
        f"{places[0]} and unpickle them, which can run any code: `check` analyses it, and no "
        "process runs it"
    )
