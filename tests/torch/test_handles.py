"""Work handles live as the variables of a script do: dropped messages are cancelled on Gloo."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.torch.conftest import AnalysedCase
    from torch_scenarios.execution import Launcher
    from torch_scenarios.model.trace import Trace

pytestmark = pytest.mark.torch

HEAD = """\
world_size: 2
timeout: 3s
tensors: {x: "full(2, rank + 1)", y: [0, 0], z: [0, 0]}
steps:
"""

#: what rank 0 starts while rank 1 sleeps, and drops before rank 1 comes
DROPPED = {
    "an_isend_without_a_name": "- {ranks: 0, isend: {tensor: x, dst: 1}}\n",
    "a_batch_without_a_name": "- {ranks: 0, batch_isend_irecv: "
    "[{op: isend, tensor: x, peer: 1}]}\n",
    "a_name_given_anew": "- {ranks: 0, isend: {tensor: x, dst: 1}, as: h}\n"
    "- {ranks: 0, isend: {tensor: x, dst: 1, tag: 5}, as: h}\n",
    "a_name_given_anew_to_a_batch": "- {ranks: 0, batch_isend_irecv: "
    "[{op: isend, tensor: x, peer: 1}], as: h}\n"
    "- {ranks: 0, all_reduce: {tensor: y, group: alone, async_op: true}, as: h}\n",
    "a_name_given_anew_in_a_loop": "- {for: {i: range(2)}, steps: ["
    "{ranks: 0, isend: {tensor: x, dst: 1, tag: 5 * i}, as: h}]}\n",
    "a_name_at_the_end": "- {ranks: 0, isend: {tensor: x, dst: 1}, as: h}\n",
}
LATE = "- {ranks: 1, sleep: 0.3s}\n- {ranks: 1, recv: {tensor: y, src: 0}}\n"


@pytest.mark.parametrize("name", DROPPED)
def test_a_message_is_taken_back_with_its_handle(
    name: str, analysed: Callable[[str], AnalysedCase], launcher: Launcher
) -> None:
    text = HEAD.replace("tensors", "groups: {alone: [0]}\ntensors") + DROPPED[name] + LATE
    case = analysed(text)
    trace = case.run_on(launcher)
    assert trace.outcome == "deadlock"
    assert [rank.ending for rank in trace.ranks] == ["finished", "blocked"]
    assert "missing_wait" in {each.name for each in case.predicted.diagnoses}
    assert (case.predicted.outcome, case.predicted.open) == ("completes", ("deadlock",))
    assert case.predicted.ranks[1].may_block


def test_a_message_that_a_name_keeps_is_not(observe: Callable[[str], Trace]) -> None:
    kept = DROPPED["a_name_at_the_end"] + "- {ranks: 0, sleep: 0.6s}\n"
    trace = observe(HEAD + kept + LATE)
    assert trace.outcome == "completes"
    assert trace.ranks[1].events[-1].writes["y"].tolist() == [1, 1]


def test_a_receive_loses_its_content_with_its_handle(observe: Callable[[str], Trace]) -> None:
    trace = observe(
        HEAD + "- {ranks: 1, irecv: {tensor: y, src: 0}}\n"
        "- {ranks: 0, sleep: 0.3s}\n- {ranks: 0, isend: {tensor: x, dst: 1}, as: h}\n"
        "- {ranks: 0, sleep: 0.3s}\n- {ranks: 1, sleep: 1s, expect: {'y[0]': 0}}\n"
    )
    assert trace.ranks[1].events[-1].observed["y[0]"] == 0


@pytest.mark.parametrize("handle", ["", ", as: h"])
def test_to_drop_the_work_of_a_collective_changes_nothing(
    handle: str, observe: Callable[[str], Trace]
) -> None:
    trace = observe(
        HEAD + f"- {{all_reduce: {{tensor: x, async_op: true}}{handle}}}\n"
        f"- {{all_reduce: {{tensor: y, async_op: true}}{handle}}}\n"
        "- {barrier: {}}\n"
    )
    assert trace.outcome == "completes"


EACH = (
    "- {for: {t: range(3)}, steps: [{ranks: 0, isend: {tensor: x, dst: 1, tag: t}, as: 'up[t]'}]}\n"
    "- {ranks: 1, sleep: 0.3s}\n"
    "- {for: {t: range(3)}, steps: [{ranks: 1, recv: {tensor: y, src: 0, tag: t}}]}\n"
)


@pytest.mark.parametrize("waits", ["- {wait: up}\n", "- {wait: 'up[1]'}\n- {wait: up}\n"])
def test_an_index_keeps_each_message(waits: str, observe: Callable[[str], Trace]) -> None:
    trace = observe(HEAD + EACH + waits)
    assert trace.outcome == "completes"
    assert trace.ranks[1].events[-1].writes["y"].tolist() == [1, 1]


def test_an_index_given_anew_drops_the_message_before(observe: Callable[[str], Trace]) -> None:
    trace = observe(HEAD + EACH.replace("up[t]", "up[0]") + "- {wait: up}\n")
    assert trace.outcome == "deadlock"


def test_a_second_wait_for_a_message_is_really_made(observe: Callable[[str], Trace]) -> None:
    sent = (
        "- {ranks: 0, isend: {tensor: x, dst: 1}, as: h}\n- {ranks: 1, recv: {tensor: y, src: 0}}\n"
    )
    trace = observe(HEAD + sent + "- {wait: h}\n- {wait: h}\n")
    assert trace.outcome == "deadlock"
    assert [rank.ending for rank in trace.ranks] == ["blocked", "finished"]
