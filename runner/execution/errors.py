"""From what a backend raises to a kind of `raises:`, one table a backend, in one place.

torch raises plain RuntimeError for nearly everything that goes wrong in a transport, so the words
decide; the type decides where the words say nothing. The first row that matches wins. Each row of
Gloo's table is produced for real in tests/torch; NCCL's rows are held against messages as its and
torch's sources compose them.
"""

from __future__ import annotations

import re
import resource

from runner.problems import ScenarioError
from runner.trace import Failure

#: kept of a backend's message
LENGTH = 2000

#: raised by torch's own Python code before any backend is asked; the same for all of them
TORCH = (
    (r"Invalid process group specified|not part of the (process )?group", "not_member"),
    (r"invalid tensor type at index|same dtype|scalar type|Tensor dtypes", "dtype_mismatch"),
    (r"unexpected keyword argument|has no attribute '(all|reduce|new)_", "unsupported"),
    (r"Mesh should not be bigger than", "invalid_argument"),
    (r"Split sizes|invalid tensor size|incorrect size|must have the same size", "shape_mismatch"),
)

#: refused at the call by a backend's front, alike in Gloo and NCCL
ARGUMENTS = (
    (r"does not divide equally|invalid size of output tensor|sizes\(\)\.vec\(\)", "shape_mismatch"),
    (r"Check failed: .*dtype", "dtype_mismatch"),
    (r"expected length \d|Incorrect (in|out)put list size|splits not equal", "invalid_argument"),
    (r"(must be|equal to|does not match) world size", "invalid_argument"),
    (r"invalid root rank|no tensor arguments to this function", "invalid_argument"),
    (r"does not support.* on complex tensors|does not support.on complex", "invalid_argument"),
)

#: what `TORCH_DISTRIBUTED_DEBUG=DETAIL` finds: the aspects that differ stand at the message's end
DETAIL = (
    (r"Detected mismatch between collectives.*differ in.*Op type", "other"),
    (r"Detected mismatch between collectives.*differ in.*Tensor dtypes", "dtype_mismatch"),
    (r"Detected mismatch between collectives.*differ in.*Tensor shapes", "shape_mismatch"),
    (r"Detected mismatch between collectives", "other"),
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
    (r"NCCL timeout in communicator initialization", "timeout"),
    (r"ncclRemoteError|remote process exited or there was a network error", "peer_lost"),
    (r"ncclSystemError.*(Connection (reset|closed|refused)|Broken pipe)", "peer_lost"),
    (r"ncclInvalidArgument|ncclInvalidUsage|Duplicate GPU", "invalid_argument"),
    (r"Multiple Ranks are using the same GPU", "invalid_argument"),
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
    for pattern, kind in (*DETAIL, *MEMORY, *NCCL, *ARGUMENTS, *GLOO, *STORE, *TORCH)
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
            "container may have a limit of its own)"
        ),
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
OWN = {"ProgramError", "ScenarioError", "Broken"}


def kind_of(error: BaseException) -> str:
    """Return the kind of :data:`runner.vocabulary.RAISE_KINDS` for what a call raised."""
    if isinstance(error, ScenarioError) or type(error).__name__ in OWN:
        return "other"
    words = str(error)
    for pattern, kind in TABLE:
        if pattern.search(words):
            return kind
    return next((kind for base, kind in TYPES if isinstance(error, base)), "other")


def failure_of(error: BaseException) -> Failure:
    """Return what a call raised, for the trace: its kind, and the backend's own words."""
    words = str(error).strip() or type(error).__name__
    return Failure(kinds=(kind_of(error),), message=words[:LENGTH])
