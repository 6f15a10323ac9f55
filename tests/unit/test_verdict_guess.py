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
  x: "10 ** rank * (1 + arange(2))"
steps:
  - all_reduce: {tensor: x}
    expect: {x: WANTED}
"""

GUESSES = {
    "another op": ("[1000, 2000]", "what `op: max` gives"),
    "unreduced": ('"10 ** rank * (1 + arange(2))"', "unreduced input"),
    "one missing": ("[1101, 2202]", "without rank 1's contribution"),
    "one twice": ("[1121, 2242]", "rank 1's contribution counted twice"),
    "a factor": ("[4444, 8888]", "times 4: off by a factor of the group's size"),
    "a part": ("[277.75, 555.5]", "`op: avg`"),
    "one rank's own": ("[100, 200]", "what rank 2 held before"),
}


@pytest.mark.parametrize(("wanted", "words"), GUESSES.values(), ids=GUESSES)
def test_a_wrong_expectation_is_guessed(wanted: str, words: str, tmp_path: Path) -> None:
    (finding,) = checked(SUM.replace("WANTED", wanted), tmp_path).findings
    assert finding.guess is not None
    assert words in finding.guess
    assert finding.guess.startswith("you expect")


ENDLESS = {
    "beside_infinities": ("[1, 3, .inf]", "[2, 6, .inf]", "times 2: off by a factor"),
    "beside_what_is_no_number": ("[1, 3, .nan]", "[2, 6, .nan]", "times 2: off by a factor"),
    "one_number_alone": ("[1, 0, 1]", "[2, 0, 2]", None),
    "another_infinity": ("[1, .inf]", "[2, -.inf]", None),
    "an_infinity_too_many": ("[1, 1]", "[2, .inf]", None),
    "a_quotient_beyond_all_numbers": ("[1.0e-300, 1]", "[1.0e+300, 2]", None),
    "infinities_alone": ("[.inf, .inf]", "[.inf, -.inf]", None),
}


@pytest.mark.parametrize(("right", "wanted", "words"), ENDLESS.values(), ids=ENDLESS)
def test_what_has_no_factor_is_guessed_around(
    right: str, wanted: str, words: str | None, tmp_path: Path
) -> None:
    text = f"""\
world_size: 2
tensors:
  x: {{dtype: float64, value: {right}}}
steps:
  - ranks: 0
    send: {{tensor: x, dst: 1}}
  - ranks: 1
    recv: {{tensor: x, src: 0}}
    expect: {{x: {{value: {wanted}, rtol: 0, atol: 0}}}}
"""
    (finding,) = checked(text, tmp_path).findings
    assert (words in finding.guess) if words and finding.guess else finding.guess is words


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
    text = SUM.replace("WANTED", "[1111, 2222]")
    (finding,) = ran(text, tmp_path, writing(0, 2, "x", [111, 222])).findings
    assert finding.witness == "backend"
    assert finding.guess == "the run shows the result without rank 3's contribution"


def test_numbers_that_show_nothing_give_no_guess(tmp_path: Path) -> None:
    (finding,) = checked(SUM.replace("WANTED", "[17, 4]"), tmp_path).findings
    assert finding.guess is None
