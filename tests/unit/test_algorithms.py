"""The algorithms of the corpus are their collectives, in the rounds and bytes of their formulas."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from sampling import sampled

from torch_scenarios.expressions.compile import compile_expression
from torch_scenarios.expressions.functions import numpy_arrays
from torch_scenarios.expressions.values import Record
from torch_scenarios.language.document import load
from torch_scenarios.limits import DEFAULT
from torch_scenarios.model.groups import plan
from torch_scenarios.model.scenario import steps_of
from torch_scenarios.pipeline.attempts import analyse
from torch_scenarios.reference import simulate

CORPUS = Path(__file__).parents[2] / "scenarios"
FILES = sorted((CORPUS / "algorithms").glob("*.yaml"))
#: those that are made of two numbers, by their parameters
TWO = {"ring_2d_all_reduce": ("rows", "columns"), "hierarchical_all_reduce": ("nodes", "local")}
#: those that are made for powers of two
POWERS = {"swing_all_reduce", "halving_reduce_scatter"}
TREE = CORPUS / "algorithms" / "double_binary_tree_all_reduce.yaml"
WIDE = replace(DEFAULT, max_ranks=2048, max_seconds=600, max_total_seconds=3600)


def sizes(name: str, every: Iterator[int] | range | list[int]) -> Iterator[dict[str, str]]:
    """Yield what `--set` says of each size that an algorithm is made for."""
    for n in every:
        if name in TWO:
            for rows in (rows for rows in range(2, 9) if n % rows == 0 and 2 <= n // rows <= 8):
                yield dict(zip(TWO[name], (str(rows), str(n // rows)), strict=True))
        elif name not in POWERS or n & (n - 1) == 0:
            yield {"n": str(n)}


def proved(file: Path, sets: dict[str, str]) -> list[str]:
    """Return what is wrong with the cases of an algorithm."""
    found = []
    for case in load(file, sets=sets, limits=WIDE):
        verdict = analyse(case, WIDE).verdict
        if verdict.status != "PASSED":
            found += [f"{case.case}: {verdict.status}", *(each.prose for each in verdict.findings)]
    return found


@pytest.mark.parametrize("file", sampled(FILES, 4), ids=lambda file: file.stem)
def test_an_algorithm_is_its_collective_in_its_rounds(file: Path) -> None:
    assert [each for sets in sizes(file.stem, [6, 16, 20]) for each in proved(file, sets)] == []


@pytest.mark.nightly
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_an_algorithm_holds_for_every_size(file: Path) -> None:
    assert [each for sets in sizes(file.stem, range(2, 65)) for each in proved(file, sets)] == []


@pytest.mark.nightly
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_an_algorithm_holds_for_a_thousand_ranks(file: Path) -> None:
    two = dict.fromkeys(TWO.get(file.stem, ()), "32")
    assert proved(file, two or {"n": "1024"}) == []


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "seconds"),
    [("recursive_doubling_all_reduce", 1.0), ("halving_doubling_all_reduce", 3.0)],
)
def test_a_thousand_ranks_take_seconds_of_one_core(name: str, seconds: float) -> None:
    began = time.process_time()
    assert proved(CORPUS / "algorithms" / f"{name}.yaml", {"n": "1024"}) == []
    assert time.process_time() - began < 3 * seconds  # on any machine


def test_trees_one_after_the_other_take_too_many_rounds() -> None:
    for case in load(CORPUS / "wrong" / "serialised_double_tree.yaml"):
        traffic = simulate(plan(case)).traffic
        assert traffic is not None
        rounds = traffic.structure.rounds
        assert rounds is not None
        assert rounds > 2 * (case.world_size - 1).bit_length() + 2
    (right,) = load(TREE, sets={"n": "8"})
    (wrong,) = load(CORPUS / "wrong" / "serialised_double_tree.yaml", sets={"n": "8"})
    stated = replace(wrong, expect=right.expect)
    assert [each.code for each in analyse(stated).verdict.findings] == ["cost_differs"]


# -------------------------------------------------------------------------------------------------
# NCCL's own trees: `ncclGetBtree` and `ncclGetDtree` of src/graph/trees.cc.


def btree(n: int, rank: int) -> tuple[int, list[int]]:
    """Return the parent (-1: none) and the children of a rank."""
    bit = 1
    while bit < n and not bit & rank:
        bit <<= 1
    if rank == 0:
        return -1, [bit >> 1] if n > 1 else []
    up = (rank ^ bit) | (bit << 1)
    if up >= n:
        up = rank ^ bit
    low = bit >> 1
    if low == 0:
        return up, []
    down = rank + low
    while down >= n:
        down = rank + low if low else -1
        low >>= 1
    return up, [rank - (bit >> 1), *([down] if down not in {-1, rank} else [])]


def dtree(n: int, rank: int) -> tuple[int, list[int]]:
    """Return the parent and the children in the second tree: mirrored, or shifted where odd."""
    if n % 2:
        up, down = btree(n, (rank - 1) % n)
        return (-1 if up < 0 else (up + 1) % n), [(each + 1) % n for each in down]
    up, down = btree(n, n - 1 - rank)
    return (-1 if up < 0 else n - 1 - up), [n - 1 - each for each in down]


@pytest.mark.parametrize("n", [2, 3, 4, 5, 7, 8, 13, 16, 33, 64, 1024])
def test_the_trees_are_those_of_nccl(n: int) -> None:
    (case,) = load(TREE, sets={"n": str(n)}, limits=WIDE)
    step = next(step for step in steps_of(case.steps) if "numbers" in step.arguments)
    record = step.arguments["numbers"]
    assert isinstance(record, Record)
    forms = {
        name: compile_expression(str(getattr(form, "text", "")), None)
        for name, form in record.fields.items()
    }
    for rank in range(n):
        scope = {**numpy_arrays().functions(), "__builtins__": {}, "n": n, "rank": rank}
        for name, form in forms.items():
            scope[name] = form.evaluate(scope)
        assert (scope["up0"], scope["kids0"]) == btree(n, rank)
        assert (scope["up1"], scope["kids1"]) == dtree(n, rank)
