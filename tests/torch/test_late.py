"""A rank that comes after another gave up on it: `check` and `run` say the same of every call.

On Gloo each rank counts its timeout from its own entry. Who waited raises, which closes its
connections, and who comes late raises at once, or times out where it has to connect first. Seen
with a plain script of torch's as well: nobody is blocked, the outcome is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sampling import sampled

from torch_scenarios.verdict import judge

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.torch.conftest import AnalysedCase
    from torch_scenarios.execution import Launcher

pytestmark = pytest.mark.torch

BEGIN = """\
world_size: 2
timeout: 0.6s
tensors: {x: [1, 2], y: [0, 0], ys: "[zeros(2) for r in range(2)]"}
steps:
"""
LATE = "  - {ranks: 0, sleep: 1.4s}\n"
CALLS = {
    "barrier": "- barrier: {}",
    "all_reduce": "- all_reduce: {tensor: x}",
    "broadcast to it": "- broadcast: {tensor: x, src: 1}",
    "broadcast from it": "- broadcast: {tensor: x, src: 0}",
    "reduce from it": "- reduce: {tensor: x, dst: 1}",
    "gather from it": '- gather: {tensor: x, gather_list: {1: "ys"}, dst: 1}',
    "scatter to it": '- scatter: {tensor: y, scatter_list: {1: "ys"}, src: 1}',
    "all_gather": "- all_gather: {tensor: x, tensor_list: ys}",
    "all_to_all_single": "- all_to_all_single: {input: x, output: y}",
    "a message from it": (
        "- {ranks: 0, send: {tensor: x, dst: 1}}\n- {ranks: 1, recv: {tensor: y, src: 0}}"
    ),
    "a message to it": (
        "- {ranks: 1, send: {tensor: x, dst: 0}}\n- {ranks: 0, recv: {tensor: y, src: 1}}"
    ),
    "a message from anyone": (
        "- {ranks: 0, send: {tensor: x, dst: 1}}\n- {ranks: 1, recv: {tensor: y}}"
    ),
    "a wait for its message": (
        "- {ranks: 1, irecv: {tensor: y, src: 0}, as: h}\n"
        "- {ranks: 0, send: {tensor: x, dst: 1}}\n- {ranks: 1, wait: h}"
    ),
    "a wait for a collective": "- {all_reduce: {tensor: x, async_op: true}, as: h}\n- wait: h",
    "a call with a timeout of its own": (
        "- {ranks: 0, sleep: 1s}\n- monitored_barrier: {timeout: 1s}"
    ),
    "monitored_barrier": "- monitored_barrier: {}",
    "new_group": "- new_group: {name: g, group_ranks: [0, 1]}",
    "new_group with a timeout of its own": (
        "- {ranks: 0, sleep: 1s}\n- new_group: {name: g, timeout: 1s}\n"
        "- all_reduce: {tensor: x, group: g}"
    ),
}


@pytest.mark.parametrize("before", ["", "  - barrier: {}\n"], ids=["first met", "met before"])
@pytest.mark.parametrize("call", sampled(list(CALLS), 6))
def test_check_and_run_agree_on_who_comes_late(
    call: str, before: str, launcher: Launcher, analysed: Callable[[str], AnalysedCase]
) -> None:
    steps = "".join(f"  {line}\n" for line in CALLS[call].splitlines())
    case = analysed(f"{BEGIN}{before}{LATE}{steps}expect: {{outcome: error}}\n")
    static = judge(case.plan, case.predicted)
    assert (static.status, case.predicted.outcome) == ("PASSED", "error"), static.findings
    observed = case.run_on(launcher)
    verdict = judge(case.plan, case.predicted, observed)
    assert (verdict.status, observed.outcome) == ("PASSED", "error"), verdict.findings
