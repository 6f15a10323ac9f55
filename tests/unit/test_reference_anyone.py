"""A receive from anyone beside one that names the sender: torch promises no order between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from judging import checked

if TYPE_CHECKING:
    from pathlib import Path

    from runner.verdict import Verdict

BOTH = """\
world_size: 2
tensors: {a: [-1], b: [-1], x: [7], z: [8]}
steps:
  - {ranks: 0, FIRST, as: h}
  - {ranks: 0, SECOND, as: k}
  - {ranks: 1, isend: {tensor: x, dst: 0}, as: s}
  - {ranks: 1, isend: {tensor: z, dst: 0}, as: t}
  - {ranks: 0, wait: [h, k]}
  - {ranks: 1, wait: [s, t]}
"""
ANYONE, NAMED = "irecv: {tensor: a}", "irecv: {tensor: b, src: 1}"


def judged(folder: Path, first: str, second: str, *, tail: str = "") -> Verdict:
    return checked(BOTH.replace("FIRST", first).replace("SECOND", second) + tail, folder)


def names(verdict: Verdict) -> set[str]:
    assert verdict.predicted is not None
    return {diagnosis.name for diagnosis in verdict.predicted.diagnoses}


def test_a_named_receive_may_overtake_one_from_anyone(tmp_path: Path) -> None:
    assert "message_race" in names(judged(tmp_path, ANYONE, NAMED))


def test_one_that_was_posted_before_it_takes_its_message(tmp_path: Path) -> None:
    verdict = judged(tmp_path, NAMED, ANYONE, tail="expect: {a: {0: [8]}, b: {0: [7]}}\n")
    assert names(verdict) == set()
    assert verdict.status == "PASSED"


@pytest.mark.parametrize("other", ["src: 1, tag: 3", "src: 1"])
def test_what_comes_to_the_same_is_no_race(tmp_path: Path, other: str) -> None:
    second = NAMED.replace("src: 1", other)
    text = BOTH.replace("FIRST", ANYONE).replace("SECOND", second).replace("z: [8]", "z: [7]")
    if "tag" in other:
        text = text.replace("tensor: z, dst: 0", "tensor: z, dst: 0, tag: 3")
    assert names(checked(text, tmp_path)) == set()
