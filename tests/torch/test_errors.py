"""Every row of the table from what torch raises to a kind, produced for real on Gloo."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from torch_scenarios.execution.backends import kind_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.torch.conftest import AnalysedCase
    from torch_scenarios.execution import Launcher

pytestmark = pytest.mark.torch

#: name -> (the kind, words of the backend's own message, the scenario; `raises` is filled in)
CASES = {
    "a_receive_that_never_comes": (
        "timeout",
        "Timed out waiting",
        """\
timeout: 0.2s
steps: [{ranks: 0, recv: {tensor: x, src: 1}, expect: {raises: KIND}}]
""",
    ),
    "a_wait_on_work_that_never_ends": (
        "timeout",
        "Timed out waiting",
        """\
timeout: 0.2s
steps:
  - {ranks: 0, irecv: {tensor: x, src: 1}, as: work}
  - {wait: work, expect: {raises: KIND}}
""",
    ),
    "a_group_that_one_does_not_create": (
        "timeout",
        "timeout",
        """\
timeout: 0.3s
steps: [{ranks: 0, new_group: {name: g, group_ranks: [0, 1]}, expect: {raises: KIND}}]
""",
    ),
    "a_monitored_barrier_without_all": (
        "timeout",
        "failed to pass monitoredBarrier",
        """\
timeout: 0.3s
steps: [{ranks: 0, monitored_barrier: {}, expect: {raises: KIND}}]
""",
    ),
    "a_group_that_a_timeout_closed": (
        "aborted",
        "Application timeout caused pair closure",
        """\
timeout: 0.2s
steps:
  - {ranks: 0, recv: {tensor: x, src: 1}, expect: {raises: timeout}}
  - {ranks: 0, recv: {tensor: x, src: 1}, expect: {raises: KIND}}
""",
    ),
    "a_peer_that_raised": (
        "peer_lost",
        "Connection closed by peer",
        """\
steps:
  - {ranks: 1, fault: {raise: gone}, expect: {raises: timeout}}
  - {ranks: 0, recv: {tensor: x, src: 1}, expect: {raises: KIND}}
""",
    ),
    "a_dtype_that_gloo_cannot_reduce": (
        "unsupported",
        "Invalid scalar type",
        """\
tensors: {x: {dtype: int16, value: [1]}}
steps: [{all_reduce: {tensor: x}, expect: {raises: KIND}}]
""",
    ),
    "bits_of_floats": (
        "invalid_argument",
        "Cannot use ReduceOp.BAND",
        "steps: [{all_reduce: {tensor: x, op: band}, expect: {raises: KIND}}]\n",
    ),
    "a_scaled_sum": (
        "unsupported",
        "Cannot use ReduceOp.PREMUL_SUM",
        "steps: [{all_reduce: {tensor: x, op: {premul_sum: 2}}, expect: {raises: KIND}}]\n",
    ),
    "an_average_of_integers": (
        "unsupported",
        "can't be cast",
        """\
tensors: {x: {dtype: int32, value: [1]}}
steps: [{all_reduce: {tensor: x, op: avg}, expect: {raises: KIND}}]
""",
    ),
    "the_largest_of_complex_numbers": (
        "invalid_argument",
        "complex",
        """\
tensors: {x: {dtype: complex64, value: [1]}}
steps: [{all_reduce: {tensor: x, op: max}, expect: {raises: KIND}}]
""",
    ),
    "an_output_of_another_size": (
        "shape_mismatch",
        "invalid tensor size",
        """\
tensors: {x: [1], y: [0, 0, 0]}
steps: [{all_gather_single: {output: y, input: x}, expect: {raises: KIND}}]
""",
    ),
    "splits_that_do_not_add_up": (
        "shape_mismatch",
        "Split sizes",
        """\
tensors: {x: [1, 2], y: [0, 0]}
steps:
  - all_to_all_single: {output: y, input: x, input_split_sizes: [1, 3], output_split_sizes: [1, 1]}
    expect: {raises: KIND}
""",
    ),
    "a_list_of_the_wrong_length": (
        "invalid_argument",
        "",
        """\
tensors: {x: [1], y: "[zeros(1)]"}
steps: [{all_gather: {tensor_list: y, tensor: x}, expect: {raises: KIND}}]
""",
    ),
    "a_message_to_oneself": (
        "invalid_argument",
        "Invalid destination rank",
        "steps: [{send: {tensor: x, dst: rank}, expect: {raises: KIND}}]\n",
    ),
    "a_negative_tag": (
        "invalid_argument",
        "Tag must be nonnegative",
        "steps: [{ranks: 0, send: {tensor: x, dst: 1, tag: -1}, expect: {raises: KIND}}]\n",
    ),
    "a_root_outside_the_group": (
        "invalid_argument",
        "not part of group",
        """\
groups: {g: [0]}
steps: [{ranks: 0, broadcast: {tensor: x, src: 1, group: g}, expect: {raises: KIND}}]
""",
    ),
    "a_message_on_a_group_of_others": (
        "not_member",
        "Invalid process group specified",
        """\
groups: {g: [0]}
steps: [{ranks: 1, send: {tensor: x, dst: 0, group: g}, expect: {raises: KIND}}]
""",
    ),
    "two_roots": (
        "invalid_argument",
        "Can't specify both",
        "steps: [{broadcast: {tensor: x, src: 0, group_src: 0}, expect: {raises: KIND}}]\n",
    ),
    "detail_finds_other_shapes": (
        "shape_mismatch",
        "Detected mismatch between collectives",
        """\
debug: detail
tensors: {x: {0: [1, 2], 1: [1]}}
steps: [{all_reduce: {tensor: x}, expect: {raises: KIND}}]
""",
    ),
    "detail_finds_other_dtypes": (
        "dtype_mismatch",
        "Detected mismatch between collectives",
        """\
debug: detail
tensors: {x: {0: {dtype: int32, value: [1]}, 1: [1]}}
steps: [{all_reduce: {tensor: x}, expect: {raises: KIND}}]
""",
    ),
    "detail_finds_another_operation": (
        "other",
        "Detected mismatch between collectives",
        """\
debug: detail
steps:
  - {ranks: 0, all_reduce: {tensor: x}, expect: {raises: KIND}}
  - {ranks: 1, broadcast: {tensor: x, src: 0}, expect: {raises: KIND}}
""",
    ),
    "an_exception_of_the_program": (
        "other",
        "out of luck",
        "steps: [{fault: {raise: out of luck}, expect: {raises: KIND}}]\n",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_torch_raises_has_its_kind(
    name: str, launcher: Launcher, analysed: Callable[[str], AnalysedCase]
) -> None:
    kind, words, body = CASES[name]
    tensors = "" if "tensors:" in body else "tensors: {x: [1]}\n"
    text = f"world_size: 2\n{tensors}{body}".replace("KIND", kind)
    trace = analysed(text).run_on(launcher)
    failures = [event.failure for rank in trace.ranks for event in rank.events if event.failure]
    found = [(failure.kinds, failure.message) for failure in failures]
    assert any(kinds == (kind,) and words in message for kinds, message in found), found


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RuntimeError("NCCL communicator was aborted on rank 0."), "aborted"),
        (
            RuntimeError("ncclRemoteError: A call failed possibly due to a network error"),
            "peer_lost",
        ),
        (RuntimeError("[Rank 1] Watchdog caught collective operation timeout: ..."), "timeout"),
        (NotImplementedError("no"), "unsupported"),
        (ValueError("a value"), "invalid_argument"),
        (KeyError("what"), "other"),
    ],
)
def test_a_kind_follows_from_words_first_and_types_last(error: Exception, kind: str) -> None:
    assert kind_of(error) == kind
