"""Kinds of errors from the words of NCCL, CUDA and torch, as their sources compose them.

None of these was seen: no GPU was at hand. The texts follow `ProcessGroupNCCL.cpp` and
`NCCLUtils.cpp` of torch 2.6 to 2.13, NCCL 2.21 to 2.30, and the caching allocators.
"""

from __future__ import annotations

import pytest

from torch_scenarios.execution.backends import failure_of, kind_of
from torch_scenarios.vocabulary import RAISE_KINDS

#: torch's frame around an error of NCCL's
FRAME = "NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:94, "

MESSAGES = [
    (
        FRAME + "invalid usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.29.7\n"
        "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\nLast error:\n"
        "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000",
        "invalid_argument",
    ),
    (
        FRAME + "invalid usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.30.4\n"
        "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\nLast error:\n"
        "Multiple Ranks are using the same GPU/Partition. Set NCCL_MULTI_RANK_GPU_ENABLE=1 to "
        "enable this configuration.",
        "invalid_argument",
    ),
    (
        FRAME + "invalid argument (run with NCCL_DEBUG=WARN for details), NCCL version 2.29.7\n"
        "ncclInvalidArgument: Invalid value for an argument.\nLast error:\n"
        "Send : invalid root 4 (root should be in the 0..2 range)",
        "invalid_argument",
    ),
    (
        FRAME + "remote process exited or there was a network error, NCCL version 2.29.7\n"
        "ncclRemoteError: A call failed possibly due to a network error or a remote process "
        "exiting prematurely.\nLast error:\nsocketProgress: Connection closed by remote peer "
        "localhost<51234>",
        "peer_lost",
    ),
    (
        FRAME + "unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version "
        "2.21.5\nncclSystemError: System call (e.g. socket, malloc) or external library call "
        "failed or device error. \nLast error:\nsocketStartConnect: Connect to 127.0.0.1<43211> "
        "failed : Connection refused",
        "peer_lost",
    ),
    (
        FRAME + "unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.29.7"
        "\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\n"
        "Cuda failure 2 'out of memory'",
        "out_of_memory",
    ),
    (
        FRAME + "internal error - please report this issue to the NCCL developers, NCCL version "
        "2.29.7\nncclInternalError: Internal check failed.\nLast error:\nUnknown NCCL Error\n",
        "other",
    ),
    (
        (
            "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3, "
            "OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=2000) ran for 2087 milliseconds "
            "before timing out."
        ),
        "timeout",
    ),
    (
        (
            "[Rank 1] Work WorkNCCL(SeqNum=3, OpType=RECV, NumelIn=4, NumelOut=4, Timeout(ms)=2000)"
            " timed out in blocking wait."
        ),
        "timeout",
    ),
    ("NCCL timeout in communicator initialization.", "timeout"),
    ("NCCL communicator was aborted on rank 0. ", "aborted"),
    (
        (
            "NCCL communicator was aborted on rank 1.  Original reason for failure was: [Rank 1] "
            "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3, ...) ran for 2087 "
            "milliseconds before timing out."
        ),
        "aborted",
    ),
    ("Input tensor data type is not supported for NCCL process group: Short", "unsupported"),
    (
        "NCCL Broadcast failed: invalid argument (run with NCCL_DEBUG=WARN for details)",
        "invalid_argument",
    ),
    ("NCCL operation timed out", "timeout"),
    ("Unconvertible NCCL type Half", "unsupported"),
    ("unsupported operation: some elements of the input tensor and the written-to tensor", "other"),
    ("unsupported operation: more than one element of the written-to tensor refers to", "other"),
    ("Unsupported Float8 type for NCCL reduction", "unsupported"),
    ("Cannot use ReduceOp.BAND with NCCL", "unsupported"),
    ("PreMulSum Data type must be half, float, bfloat16 or double", "unsupported"),
    ("ProcessGroupNCCL does not support recvAnysource", "unsupported"),
    ("ProcessGroupNCCL does not support allgather_coalesced", "unsupported"),
    ("Distributed package doesn't have NCCL built in", "unsupported"),
    ("ProcessGroupNCCL is only supported with GPUs, no GPUs found!", "unsupported"),
    ("No backend type associated with device type cpu", "unsupported"),
    ("barrier() got an unexpected keyword argument 'timeout'", "unsupported"),
    ("module 'torch.distributed' has no attribute 'all_gather_single'", "unsupported"),
    (
        "output tensor size must be equal to world_size times input tensor size",
        "shape_mismatch",
    ),
    ("input tensor must be the same size as output size times world size", "shape_mismatch"),
    ("output tensor must have the same type as input tensor", "dtype_mismatch"),
    ("Tensors must have identical type", "dtype_mismatch"),
    (
        (
            "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 139.80 "
            "GiB of which 3.12 GiB is free. Process 71 has 136.66 GiB memory in use. If reserved "
            "but unallocated memory is large try setting PYTORCH_ALLOC_CONF="
            "expandable_segments:True to avoid fragmentation."
        ),
        "out_of_memory",
    ),
    (
        (
            "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate "
            "memory: you tried to allocate 439804651 bytes. Error code 12 (Cannot allocate memory)"
        ),
        "out_of_memory",
    ),
    ("CUDA error: an illegal memory access was encountered", "other"),
    ("CUDA error: device-side assert triggered", "other"),
]


@pytest.mark.parametrize(("words", "kind"), MESSAGES)
def test_the_words_of_nccl_and_cuda_have_their_kind(words: str, kind: str) -> None:
    assert kind_of(RuntimeError(words)) == kind


def test_every_kind_but_the_programs_own_is_met_by_some_message() -> None:
    assert {kind for _, kind in MESSAGES} == {*RAISE_KINDS} - {"not_member"}


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("Tensors must be contiguous"), "invalid_argument"),
        (ValueError("Tensors must be CUDA and dense"), "invalid_argument"),
        (
            RuntimeError("Mesh should not be bigger than default world size 2, but found 4 ranks!"),
            "invalid_argument",
        ),
        (TypeError("Cannot use ReduceOp.AVG with boolean inputs"), "unsupported"),
        (NotImplementedError("ProcessGroupNCCL does not support recvAnysource"), "unsupported"),
        (MemoryError(), "out_of_memory"),
    ],
)
def test_a_kind_comes_of_words_before_types(error: Exception, kind: str) -> None:
    assert kind_of(error) == kind


def test_a_failure_keeps_the_backends_words() -> None:
    failure = failure_of(RuntimeError("NCCL communicator was aborted on rank 0. "))
    assert failure.kinds == ("aborted",)
    assert failure.message == "NCCL communicator was aborted on rank 0."


def test_an_error_that_says_nothing_is_of_the_kind_of_its_cause() -> None:
    error = RuntimeError("[Stage 1] failed to run forward:\n  args: (1,)")
    error.__cause__ = RuntimeError("CUDA error: operation not supported")
    failure = failure_of(error)
    assert failure.kinds == ("unsupported",)
    assert failure.message == (
        "[Stage 1] failed to run forward: CUDA error: operation not supported"
    )


#: what a line of Python raises in a plugin, or in torch; what Python says of a wrong program is
#: nothing that a backend lacks, unless torch made the call
LINES = [
    ("int(three=3)", "other"),
    ("(lambda one: one)()", "other"),
    ("(1).all_peers", "other"),
    ("None + 1", "other"),
    ("int.all_gather_single", "other"),
    ("fail(TypeError('Got unsupported ScalarType BFloat16'))", "unsupported"),
    ("fail(NotImplementedError('there are no tags'))", "unsupported"),
    ("fail(ValueError('the root is 7'))", "invalid_argument"),
]


def raised_in(module: str, line: str) -> Exception:
    """Return what a line raises in a module of that name."""

    def fail(error: Exception) -> None:
        raise error

    try:
        exec(line, {"__name__": module, "fail": fail})  # noqa: S102 -- a line of this file
    except Exception as error:  # noqa: BLE001 -- whatever it is
        return error
    raise AssertionError(line)


@pytest.mark.parametrize(("line", "kind"), LINES)
def test_a_mistake_in_a_plugin_is_nothing_that_it_lacks(line: str, kind: str) -> None:
    assert kind_of(raised_in("my_backend", line)) == kind


@pytest.mark.parametrize(
    ("line", "kind"),
    [("int.all_gather_single", "unsupported"), ("(lambda x: x)(y=1)", "unsupported")],
)
def test_what_torch_calls_and_is_not_there_is_lacking(line: str, kind: str) -> None:
    assert kind_of(raised_in("torch.distributed.distributed_c10d", line)) == kind
