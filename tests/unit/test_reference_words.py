"""What a diagnosis says is true: who skips what, on which group, under which tag."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from judging import checked

if TYPE_CHECKING:
    from pathlib import Path

SKIPS = """\
world_size: 3
tensors: {x: [1], y: [2]}
steps:
  - {name: first, ranks: rank != 1, all_reduce: {tensor: x}}
  - {name: second, all_reduce: {tensor: y}}
"""


def told(text: str, folder: Path) -> dict[str, str]:
    """Return the words of each diagnosis of a program."""
    predicted = checked(text, folder).predicted
    assert predicted is not None
    return {diagnosis.name: diagnosis.prose for diagnosis in predicted.diagnoses}


def test_a_rank_that_skips_a_step_is_not_said_to_miss_the_last_one(tmp_path: Path) -> None:
    assert told(SKIPS, tmp_path)["missing_participant"] == (
        "rank 1 skips `first` (judged.yaml:4), and so never makes operation 2 on world; "
        "ranks 0, 2 wait for it in `second` (judged.yaml:5)"
    )


def test_who_waits_for_a_rank_that_was_there_waits_for_its_next_operation(tmp_path: Path) -> None:
    predicted = checked(SKIPS, tmp_path).predicted
    assert predicted is not None
    assert {wait.because for wait in predicted.waits} == {"to make operation 2 on world"}


def test_a_rank_that_never_takes_the_step_is_said_to_miss_it(tmp_path: Path) -> None:
    text = SKIPS.replace("name: second,", "name: second, ranks: rank != 1,")
    prose = told(text, tmp_path)["missing_participant"]
    assert prose.startswith("rank 1 never enters `first` (judged.yaml:4), where")


def test_a_turn_that_is_skipped_is_the_step_that_is_named(tmp_path: Path) -> None:
    text = """\
world_size: 2
tensors: {x: [1]}
steps:
  - for: {i: "range(3)"}
    steps:
      - {name: sum, ranks: rank == 0 or i != 1, all_reduce: {tensor: x}}
"""
    prose = told(text, tmp_path)["missing_participant"]
    assert prose.startswith("rank 1 skips `sum` (judged.yaml:6), and so never makes operation 3")


@pytest.mark.parametrize("source", ["", ", src: 0"])
def test_a_receive_from_anyone_hides_no_tag(source: str, tmp_path: Path) -> None:
    text = """\
world_size: 3
tensors: {x: [1], y: [2]}
steps:
  - {ranks: 0, send: {tensor: x, dst: 1, tag: 5}}
  - {ranks: 1, recv: {tensor: x, tag: 4SOURCE}}
""".replace("SOURCE", source)
    found = told(text, tmp_path)
    assert found == {
        "tag_mismatch": "rank 0 sends with tag 5 in `send to 1` (judged.yaml:4), rank 1 receives "
        "with tag 4 (judged.yaml:5)"
    }


def test_a_message_names_its_group_where_its_peer_is_on_another(tmp_path: Path) -> None:
    text = """\
world_size: 2
groups: {low: [0, 1]}
tensors: {x: [1], y: [2]}
steps:
  - {ranks: 0, send: {tensor: x, dst: 1, group: low}}
  - {ranks: 1, recv: {tensor: x, src: 0}}
"""
    found = told(text, tmp_path)
    assert found["unmatched_send"] == (
        "rank 0 sends to rank 1 on low in `send to 1` (judged.yaml:5), and rank 1 receives from "
        "rank 0 on world only (judged.yaml:6); messages of two groups never meet"
    )
    assert found["unmatched_recv"] == (
        "rank 1 receives from rank 0 on world in `recv from 0` (judged.yaml:6), and rank 0 sends "
        "to rank 1 on low only (judged.yaml:5); messages of two groups never meet"
    )


def test_a_wait_for_a_message_names_its_group(tmp_path: Path) -> None:
    text = """\
world_size: 2
groups: {low: [0, 1]}
tensors: {x: [1], y: [2]}
steps:
  - {ranks: 0, send: {tensor: x, dst: 1, group: low}}
  - {ranks: 0, recv: {tensor: y, src: 1}}
  - {ranks: 1, send: {tensor: x, dst: 0}}
  - {ranks: 1, recv: {tensor: y, src: 0, group: low}}
"""
    prose = told(text, tmp_path)["circular_wait"]
    assert "waits in `send to 1` (judged.yaml:5) for rank 1 to receive on low" in prose
    assert "waits in `send to 0` (judged.yaml:7) for rank 0 to receive on world" in prose


LACKING = {
    "a tensor of other ranks": (
        "tensors: {x: {0: [1], 2: [3]}}\nsteps:\n  - all_reduce: {tensor: x}\n",
        (
            "rank 1 in `all_reduce` (judged.yaml:4): `x` has no value on this rank, so that its "
            "`tensor` is None; `x` (judged.yaml:2) is defined here, and only ranks 0, 2 have it"
        ),
    ),
    "a step of other ranks": (
        (
            "tensors: {x: [1]}\nsteps:\n  - {ranks: [0, 2], compute: {y: x + 1}}\n"
            "  - all_reduce: {tensor: y}\n"
        ),
        (
            "rank 1 in `all_reduce` (judged.yaml:5): `y` has no value on this rank, so that its "
            "`tensor` is None; `y` (judged.yaml:4) gets its value in this step, which rank 1 does "
            "not take"
        ),
    ),
    "an argument of other ranks": (
        "tensors: {x: [1]}\nsteps:\n  - all_reduce: {tensor: {0: x, 2: x}}\n",
        (
            "rank 1 in `all_reduce` (judged.yaml:4): its `tensor` is None, because no value is "
            "given for this rank"
        ),
    ),
}


@pytest.mark.parametrize("case", LACKING)
def test_a_tensor_that_a_rank_lacks_is_named_with_the_place_that_defines_it(
    case: str, tmp_path: Path
) -> None:
    text, says = LACKING[case]
    assert told(f"world_size: 3\n{text}", tmp_path)["invalid_argument"] == says
