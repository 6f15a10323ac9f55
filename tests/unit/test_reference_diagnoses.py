"""The reference accepts what is right and names what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from programs import CORRECT, WRONG, Program

import torch_scenarios
from torch_scenarios.pipeline.attempts import analyse

if TYPE_CHECKING:
    from pathlib import Path

    from torch_scenarios.model.trace import Trace


def analysed(program: Program, folder: Path) -> Trace:
    path = folder / f"{program.name}.yaml"
    path.write_text(program.text)
    (scenario,) = torch_scenarios.load(path)
    return torch_scenarios.simulate(torch_scenarios.plan(scenario))


@pytest.mark.parametrize("program", CORRECT, ids=lambda program: program.name)
def test_a_correct_program_completes_without_a_diagnosis(program: Program, tmp_path: Path) -> None:
    trace = analysed(program, tmp_path)
    assert [diagnosis.name for diagnosis in trace.diagnoses] == []
    assert trace.outcome == "completes"
    assert trace.open == ()


@pytest.mark.parametrize("program", WRONG, ids=lambda program: program.name)
def test_a_wrong_program_is_called_by_its_name(program: Program, tmp_path: Path) -> None:
    trace = analysed(program, tmp_path)
    assert tuple(diagnosis.name for diagnosis in trace.diagnoses) == program.diagnoses
    assert trace.outcome == program.outcome
    blocked = tuple(rank.rank for rank in trace.ranks if rank.ending == "blocked")
    assert blocked == program.blocked


#: a call of each on a group, by its root; only these collectives have one, but for the last
ROOTED = {
    "broadcast": "{broadcast: {tensor: x, src: ROOT, group: GROUP}",
    "scatter": "{scatter: {tensor: y, scatter_list: {ROOT: [x, z]}, src: ROOT, group: GROUP}",
    "reduce": "{reduce: {tensor: w, dst: ROOT, group: GROUP}",
    "gather": "{gather: {tensor: x, gather_list: {ROOT: [y, z]}, dst: ROOT, group: GROUP}",
    "all_reduce": "{all_reduce: {tensor: x, group: GROUP}",
}


@pytest.mark.parametrize("second", ROOTED)
@pytest.mark.parametrize("first", ROOTED)
@pytest.mark.parametrize("roots", ["00", "01", "10", "11"])
def test_two_groups_entered_in_crossed_order_are_group_order(
    first: str, second: str, roots: str, tmp_path: Path
) -> None:
    one = ROOTED[first].replace("ROOT", roots[0]).replace("GROUP", "a")
    other = ROOTED[second].replace("ROOT", roots[1]).replace("GROUP", "b").replace("w", "v")
    text = (
        "world_size: 2\ngroups: {a: [0, 1], b: [0, 1]}\n"
        "tensors: {v: [1], w: [1], x: [1], y: [1], z: [1]}\n"
        f"steps:\n- {one}, ranks: 0}}\n- {other}}}\n- {one}, ranks: 1}}\n"
    )
    trace = analysed(Program(name="crossed", text=text), tmp_path)
    names = [diagnosis.name for diagnosis in trace.diagnoses]
    early = ["buffering_hazard"] if trace.outcome == "completes" else []
    assert names == ["group_order", *early]
    assert {trace.outcome, *trace.open} >= {"deadlock"}


def test_what_a_stuck_rank_would_raise_ends_no_analysis(tmp_path: Path) -> None:
    """What rank 0 stores behind the call in which it is stuck does not fit."""
    path = tmp_path / "stuck.yaml"
    path.write_text(
        "world_size: 2\n"
        "tensors: {x: [1], y: [1, 2, 3]}\n"
        "steps:\n"
        "  - {ranks: 0, all_reduce: {tensor: x}}\n"
        '  - {ranks: 0, compute: {"y[0:2]": y}}\n'
    )
    found = torch_scenarios.simulate(torch_scenarios.plan(torch_scenarios.load(path)[0]))
    assert [each.name for each in found.diagnoses] == ["missing_participant"]


REFUSED = {
    "a collective": ("all_reduce: {tensor: x, op: band}", "all_reduce: {tensor: x}"),
    "a message": ("send: {tensor: x, dst: 7}", "recv: {tensor: x, src: 0}"),
}


@pytest.mark.parametrize(("refused", "waits"), REFUSED.values(), ids=REFUSED)
def test_a_rank_whose_call_is_refused_as_expected_is_not_missing(
    refused: str, waits: str, tmp_path: Path
) -> None:
    path = tmp_path / "refused.yaml"
    path.write_text(
        "world_size: 2\n"
        "timeout: 2s\n"
        'tensors: {x: "ones(2)"}\n'
        "steps:\n"
        f"  - {{ranks: 0, {refused}, expect: {{raises: invalid_argument}}}}\n"
        f"  - {{ranks: 1, {waits}, expect: {{raises: [timeout, peer_lost, aborted]}}}}\n"
        "expect: {diagnosis: invalid_argument}\n"
    )
    (scenario,) = torch_scenarios.load(path)
    assert analyse(scenario).verdict.status == "PASSED"


def test_a_scatter_of_objects_of_which_no_rank_is_the_source_is_a_root_mismatch(
    tmp_path: Path,
) -> None:
    """Rank 0 takes rank 1 for the source, and rank 1 rank 0: neither passes a list."""
    program = Program(
        name="no_source",
        text="world_size: 2\n"
        "objects: {mine: [null]}\n"
        "steps:\n"
        "  - scatter_object_list:\n"
        "      {scatter_object_output_list: mine, src: {0: 1, 1: 0}}\n",
    )
    assert [each.name for each in analysed(program, tmp_path).diagnoses] == ["root_mismatch"]
