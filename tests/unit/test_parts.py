"""Stores into parts of tensors, and items of a batch that are there on some ranks or repeat."""

from __future__ import annotations

from pathlib import Path

import pytest
from traces import departures

from torch_scenarios.errors import ScenarioError
from torch_scenarios.language.document import load
from torch_scenarios.limits import DEFAULT
from torch_scenarios.model.groups import plan
from torch_scenarios.pipeline.attempts import analyse
from torch_scenarios.reference import simulate
from torch_scenarios.reference.simulate import walk


def judged(folder: Path, text: str) -> tuple[str, list[str]]:
    """Return the verdict on a program, and the codes of its problems or findings."""
    file = folder / "shown.yaml"
    file.write_text(text, encoding="utf-8")
    try:
        (case,) = load(file)
    except ScenarioError as error:
        return "INVALID", [problem.code for problem in error.problems]
    verdict = analyse(case).verdict
    problems = [problem.code for problem in verdict.problems]
    return verdict.status, problems or [each.code for each in verdict.findings]


STORES = """
world_size: {n}
tensors:
  x: "arange(6) + rank"
  m: {{value: "zeros([2, 3])", dtype: int64}}
  b: {{value: "zeros(2)", dtype: bfloat16}}
steps:
  - compute: {{{stored}}}
expect: {{{wanted}}}
"""

RIGHT = {
    '"x[2:4]": 10': 'x: "concat([arange(2) + rank, [10, 10], arange(4, 6) + rank])"',
    '"x[rank % 6]": -1': '"x[rank % 6]": -1',
    '"x[rank % 4:rank % 4 + 2]": [1, 2]': '"x[rank % 4 + 1]": 2',
    '"x[-1]": "x[0]", "x[0]": "x[-1]"': '"x[0]": "rank", "x[5]": "rank"',
    '"x[::2]": "x[1::2]"': '"x[4]": "rank + 5"',
    '"x[1:6]": "x[0:5]"': 'x: "concat([full(1, rank), arange(5) + rank])"',
    '"x[:]": 3': 'x: "full(6, 3)"',
    '"x[6:]": "zeros(0)"': "x: unchanged",
    '"m[:, 1]": "x[1:3]"': 'm: {dtype: int64, value: [[0, "rank + 1", 0], [0, "rank + 2", 0]]}',
    '"m[0, 0:2]": [7.9, -7.9]': '"m[0]": {dtype: int64, value: [7, -7, 0]}',
    '"m[1]": 9007199254740993': '"m[1]": {dtype: int64, value: "full(3, 9007199254740993, int64)"}',
    '"m[0][2]": "x[0] > 0"': '"m[0, 2]": {dtype: int64, value: "rank > 0"}',
    '"b[0]": 0.1': '"b[0]": {dtype: bfloat16, value: 0.1}',
    'y: "x * 2", "y[0:2]": [0, 1], z: "y + 1"': '"z[0:3]": "[1, 2, 2 * rank + 5]"',
}


@pytest.mark.parametrize("stored", RIGHT)
@pytest.mark.parametrize("n", [3, 20])
def test_a_store_into_a_part_does_what_torch_does(stored: str, n: int, tmp_path: Path) -> None:
    text = STORES.format(n=n, stored=stored, wanted=RIGHT[stored])
    assert judged(tmp_path, text) == ("PASSED", [])
    (case,) = load(tmp_path / "shown.yaml")
    resolved = plan(case)
    assert departures(simulate(resolved), walk(resolved, DEFAULT)) == []


@pytest.mark.parametrize("value", ['"[1, 2, 3]"', '"zeros([1, 2])"', '"zeros(0)"', "x"])
def test_a_size_that_does_not_fit_is_an_invalid_argument(value: str, tmp_path: Path) -> None:
    stored = f'y: "x + 1", "x[2:4]": {value}, z: x'
    text = STORES.format(n=3, stored=stored, wanted='y: "arange(6) + rank + 1", x: unchanged')
    text = text.replace("expect:", "    expect: {raises: invalid_argument}\nexpect:")
    stated = text.replace("wanted: {", "").replace(
        "expect: {y", "expect: {diagnosis: invalid_argument, y"
    )
    assert judged(tmp_path, stated) == ("PASSED", [])
    assert judged(tmp_path, text) == ("FAILED", ["diagnosis_undeclared"])


@pytest.mark.parametrize(
    ("stored", "code"),
    [
        ('"w[0]": 1', "unknown_name"),
        ('"x[[0, 1]]": 1', "output_not_a_name"),
        ('"x[x > 2]": 1', "output_not_a_name"),
        ('"n[0]": 1', "output_not_a_name"),
        ('"(x + 1)[0]": 1', "output_not_a_name"),
        ('"x[0": 1', "expression_syntax"),
        ('"x[9]": 1', "cannot_compute"),
        ('"x[0]": {0: 1}', "cannot_compute"),
    ],
)
def test_what_is_no_part_is_invalid(stored: str, code: str, tmp_path: Path) -> None:
    text = STORES.format(n=3, stored=stored, wanted="") + "parameters: {n: [1, 2]}\n"
    assert judged(tmp_path, text) == ("INVALID", [code])


RACE = """
world_size: 2
tensors: {{x: "arange(6)", y: "zeros(2)"}}
steps:
  - {{isend: {{tensor: "x[0:2]", dst: 1}}, as: up, ranks: 0}}
  - compute: {{"{part}": 1}}
  - {{recv: {{tensor: y, src: 0}}, ranks: 1}}
  - wait: up
"""


def test_only_the_elements_written_count_as_touched(tmp_path: Path) -> None:
    assert judged(tmp_path, RACE.format(part="x[2:4]")) == ("PASSED", [])
    assert judged(tmp_path, RACE.format(part="x[1:4]")) == ("FAILED", ["diagnosis_undeclared"])


UNDEFINED = """
world_size: 2
tensors: {{x: "arange(4) + rank"}}
steps:
  - reduce: {{tensor: "x[0:2]", dst: 0}}
  - {{compute: {{"{part}": 1}}, ranks: 1}}
  - {{expect: {{"sum(x)": 7}}, ranks: 1}}
"""


def test_what_is_stored_is_defined_from_then_on(tmp_path: Path) -> None:
    text = UNDEFINED.format(part="x[0:2]").replace("7", "9")
    assert judged(tmp_path, text) == ("PASSED", [])
    assert judged(tmp_path, UNDEFINED.format(part="x[0:1]"))[0] == "FAILED"


TREE = """
world_size: {n}
tensors: {{x: "full(1, rank + 1)", heard: "zeros([2, 1])", y: [0]}}
steps:
  - let: {{kids: "[k for k in [2 * rank + 1, 2 * rank + 2] if k < world_size]"}}
  - batch_isend_irecv:
      p2p_op_list:
        - {{for: {{i: "range(len(kids))"}}, op: irecv, tensor: "heard[i]", peer: "kids[i]"}}
        - {{isend: {{tensor: x, dst: "(rank - 1) // 2"}}, ranks: rank > 0}}
    as: both
  - wait: both
  - batch_isend_irecv:
      p2p_op_list:
        - {{op: isend, tensor: x, peer: 1, ranks: 0}}
        - {{op: irecv, tensor: y, peer: 0, ranks: 1}}
    as: pair
  - wait: pair
    expect: {{y: {{1: [1], else: [0]}}}}
expect:
  "heard[0]": {{"len(kids) > 0": "full(1, kids[0] + 1)", else: [0]}}
  "heard[1]": {{"len(kids) == 2": "full(1, kids[1] + 1)", else: [0]}}
"""


@pytest.mark.parametrize("n", [2, 3, 6, 20])
def test_items_of_a_batch_select_ranks_and_repeat(n: int, tmp_path: Path) -> None:
    status, codes = judged(tmp_path, TREE.format(n=n))
    assert (status, codes) == ("PASSED", []) or (n in {2, 3} and codes == ["expectation_unreached"])
    (case,) = load(tmp_path / "shown.yaml")
    resolved = plan(case)
    predicted = simulate(resolved)
    assert predicted.outcome == "completes"
    assert not predicted.diagnoses
    assert departures(predicted, walk(resolved, DEFAULT)) == []
    calls = [sum("batch" in event.label for event in rank.events) for rank in predicted.ranks]
    assert calls == [2, 2, *([1] * (n - 2))]


def test_an_empty_list_of_messages_is_still_refused(tmp_path: Path) -> None:
    text = (
        "world_size: 2\nsteps:\n  - batch_isend_irecv: {p2p_op_list: []}\n    as: h\n  - wait: h\n"
    )
    assert judged(tmp_path, text)[1][0] == "diagnosis_undeclared"


@pytest.mark.parametrize(
    ("item", "code"),
    [
        ("{for: {x: [1]}, op: isend, tensor: x, peer: 1}", "duplicate_name"),
        ("{for: {k: [1]}, op: isend, tensor: x, peer: j}", "unknown_name"),
        ("{for: [1], op: isend, tensor: x, peer: 1}", "bad_loop"),
        ("{ranks: {0: 1}, op: isend, tensor: x, peer: 1}", "wrong_type"),
        ("{ranks: [7], op: isend, tensor: x, peer: 1}", "rank_out_of_range"),
        ("{rank: 0, op: isend, tensor: x, peer: 1}", "unknown_argument"),
    ],
)
def test_a_wrong_item_is_invalid(item: str, code: str, tmp_path: Path) -> None:
    text = (
        f"world_size: 2\ntensors: {{x: [1]}}\nsteps:\n  - batch_isend_irecv: [{item}]\n    as: h\n"
    )
    assert judged(tmp_path, text) == ("INVALID", [code])
