"""From what a backend raises to a kind of `raises:`, one table a backend, in one place.

torch raises plain RuntimeError for nearly everything that goes wrong in a transport, so the words
decide; the type decides where the words say nothing. The first row that matches wins. Each row of
Gloo's table is produced for real in tests/torch.
"""

from __future__ import annotations

import re

from runner.problems import ScenarioError
from runner.trace import Failure

#: kept of a backend's message
LENGTH = 2000

#: raised by torch's own Python code before any backend is asked; the same for all of them
TORCH = (
    (r"Invalid process group specified|not part of the (process )?group", "not_member"),
    (r"invalid tensor type at index|same dtype|scalar type|Tensor dtypes", "dtype_mismatch"),
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
    (r"Invalid scalar type|Cannot use ReduceOp|can't be cast to the desired", "unsupported"),
    (r"not support|[Uu]nsupported|not implemented|only .* (is|are) supported", "unsupported"),
    (r"Check failed: .*(Shape|size|numel)", "shape_mismatch"),
)

NCCL = (
    (r"[Tt]imed out|[Tt]imeout|Watchdog caught collective operation timeout", "timeout"),
    (r"aborted|ncclCommAbort|communicator was aborted", "aborted"),
    (r"remote process exited|ncclRemoteError|Connection (reset|closed)", "peer_lost"),
    (r"ncclInvalidArgument|ncclInvalidUsage|Duplicate GPU", "invalid_argument"),
    (r"not support|[Uu]nsupported|Unconvertible NCCL type", "unsupported"),
)

TABLE = tuple(
    (re.compile(pattern, re.DOTALL), kind)
    for pattern, kind in (*DETAIL, *ARGUMENTS, *GLOO, *NCCL, *STORE, *TORCH)
)

#: where the words say nothing
TYPES: tuple[tuple[type[BaseException], str], ...] = (
    (NotImplementedError, "unsupported"),
    (ValueError, "invalid_argument"),
    (TypeError, "invalid_argument"),
    (IndexError, "invalid_argument"),
    (AssertionError, "invalid_argument"),
)

#: raised by the scenario itself, not by a backend
OWN = {"ProgramError", "ScenarioError", "Broken"}


def kind_of(error: BaseException) -> str:
    """Return the kind of :data:`runner.scenario.RAISE_KINDS` for what a call raised."""
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
