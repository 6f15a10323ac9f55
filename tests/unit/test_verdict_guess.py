"""A guess at the mistake, where the numbers show one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from judging import checked, ran, writing

if TYPE_CHECKING:
    from pathlib import Path

SUM = """\
world_size: 4
tensors:
  x: "full(2, 10 ** rank)"
steps:
  - all_reduce: {tensor: x}
    expect: {x: WANTED}
"""

GUESSES = {
    "another op": ("[1000, 1000]", "what `op: max` gives"),
    "unreduced": ('"full(2, 10 ** rank)"', "unreduced input"),
    "one missing": ("[1101, 1101]", "without rank 1's contribution"),
    "one twice": ("[1121, 1121]", "rank 1's contribution counted twice"),
    "a factor": ("[4444, 4444]", "times 4: off by a factor of the group's size"),
    "a part": ("[277.75, 277.75]", "`op: avg`"),
    "one rank's own": ("[100, 100]", "what rank 2 held before"),
}


@pytest.mark.parametrize(("wanted", "words"), GUESSES.values(), ids=GUESSES)
def test_a_wrong_expectation_is_guessed(wanted: str, words: str, tmp_path: Path) -> None:
    (finding,) = checked(SUM.replace("WANTED", wanted), tmp_path).findings
    assert finding.guess is not None
    assert words in finding.guess
    assert finding.guess.startswith("you expect")


def test_ranks_swapped_are_guessed(tmp_path: Path) -> None:
    text = """\
world_size: 2
tensors:
  x: "full(2, rank)"
  parts: {0: [[1, 1], [2, 2]]}
steps:
  - compute: {x: "x + 5"}
    expect: {x: {0: [6, 6], 1: [5, 5]}}
"""
    text = text.replace("  parts: {0: [[1, 1], [2, 2]]}\n", "")
    (finding,) = checked(text, tmp_path).findings
    assert finding.guess is not None
    assert "wrong ranks (rank 0 has rank 1's, rank 1 has rank 0's)" in finding.guess


def test_a_wrong_run_is_guessed_too(tmp_path: Path) -> None:
    text = SUM.replace("WANTED", "[1111, 1111]")
    (finding,) = ran(text, tmp_path, writing(0, 2, "x", [111, 111])).findings
    assert finding.witness == "backend"
    assert finding.guess == "the run shows the result without rank 3's contribution"


def test_numbers_that_show_nothing_give_no_guess(tmp_path: Path) -> None:
    (finding,) = checked(SUM.replace("WANTED", "[17, 4]"), tmp_path).findings
    assert finding.guess is None
