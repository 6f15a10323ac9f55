"""A batch that uses one tensor twice races with itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from judging import checked

if TYPE_CHECKING:
    from pathlib import Path

BATCH = """\
world_size: SIZE
tensors: {a: "full([4], rank)", b: "zeros([4])"}
steps:
  - batch_isend_irecv:
      p2p_op_list:
        - {op: FIRST, tensor: "ONE", peer: "(rank + 1) % world_size"}
        - {op: SECOND, tensor: "TWO", peer: "(rank - 1) % world_size"}
    as: h
  - wait: h
"""
FORTH, BACK = ("isend", "irecv"), ("irecv", "irecv")


def diagnoses(folder: Path, size: int, ops: tuple[str, str], one: str, two: str) -> set[str]:
    text = BATCH.replace("SIZE", str(size)).replace("FIRST", ops[0]).replace("SECOND", ops[1])
    verdict = checked(text.replace("ONE", one).replace("TWO", two), folder)
    assert verdict.predicted is not None
    return {diagnosis.name for diagnosis in verdict.predicted.diagnoses}


@pytest.mark.parametrize("size", [2, 20])
@pytest.mark.parametrize(
    ("one", "two"), [("a", "a"), ("a[:2]", "a[1:3]"), ("a[1:3]", "a[:2]"), ("a[::2]", "a[:2]")]
)
def test_to_send_and_receive_in_one_place_is_a_race(
    tmp_path: Path, size: int, one: str, two: str
) -> None:
    assert diagnoses(tmp_path, size, FORTH, one, two) == {"buffer_race"}


@pytest.mark.parametrize("size", [2, 20])
@pytest.mark.parametrize(("one", "two"), [("a", "b"), ("a[:2]", "a[2:]"), ("a[::2]", "a[1::2]")])
def test_to_send_and_receive_in_two_places_is_none(
    tmp_path: Path, size: int, one: str, two: str
) -> None:
    assert diagnoses(tmp_path, size, FORTH, one, two) == set()


def test_to_receive_twice_into_one_place_is_a_race(tmp_path: Path) -> None:
    assert "buffer_race" in diagnoses(tmp_path, 2, BACK, "b", "b")
    assert "buffer_race" not in diagnoses(tmp_path, 2, BACK, "a", "b")


def test_to_send_one_place_twice_is_none(tmp_path: Path) -> None:
    assert "buffer_race" not in diagnoses(tmp_path, 2, ("isend", "isend"), "a", "a")
