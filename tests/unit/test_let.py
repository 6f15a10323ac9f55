"""`let` names numbers on each rank: scoping as in Python, in both engines and in used files."""

from __future__ import annotations

from pathlib import Path

import pytest

from torch_scenarios.errors import ScenarioError
from torch_scenarios.language.document import load
from torch_scenarios.pipeline.attempts import analyse


def judged(folder: Path, text: str, world_size: int = 3) -> tuple[str, list[str]]:
    """Return the verdict on a program over the tensor `x`, and the codes of its problems."""
    file = folder / "shown.yaml"
    top = f'world_size: {world_size}\ntensors: {{x: "full(2, rank)"}}\n'
    file.write_text(top + text, encoding="utf-8")
    try:
        (case,) = load(file)
    except ScenarioError as error:
        return "INVALID", [problem.code for problem in error.problems]
    verdict = analyse(case).verdict
    problems = [problem.code for problem in verdict.problems]
    return verdict.status, problems or [each.code for each in verdict.findings]


RIGHT = {
    "each_reads_the_one_before": """
steps:
  - let: {v: "rank + 1", w: "v * 10", both: "[v, w]", data: [1, "v"]}
  - expect: {both: {0: [1, 10], 1: [2, 20], else: unchanged}, "sum(data)": "2 + rank"}
""",
    "an_enclosing_name_is_assigned": """
steps:
  - let: {v: 1}
  - for: {i: "range(3)"}
    steps:
      - let: {v: "v * 2"}
expect: {v: 8}
""",
    "a_loop_has_other_turns_on_each_rank": """
steps:
  - let: {turns: "rank + 1", n: 0}
  - for: {i: "range(turns)"}
    steps:
      - let: {n: "n + i + 1"}
expect: {n: "(rank + 1) * (rank + 2) // 2"}
""",
    "a_name_of_a_loop_may_come_again_behind_it": """
steps:
  - for: {i: [1, 2]}
    steps:
      - let: {v: "i"}
      - compute: {x: "x + v"}
  - let: {v: 5}
expect: {x: "full(2, rank + 3)", v: 5}
""",
    "it_reads_tensors": """
steps:
  - let: {v: "x[0]", w: "sum(x)"}
  - compute: {x: "full(2, v + w)"}
    expect: {x: "full(2, 3 * rank)"}
""",
    "it_selects_ranks": """
steps:
  - let: {leaf: "rank > 0", root: 0}
  - send: {tensor: x, dst: root}
    ranks: leaf
  - for: {child: "range(1, world_size)"}
    steps:
      - recv: {tensor: x, src: child}
        ranks: not leaf
""",
    "a_rank_that_lacks_it_does_not_read_it": """
steps:
  - let: {v: 3}
    ranks: 1
  - compute: {x: "full(2, v) if rank == 1 else x"}
    expect: {x: {1: [3, 3], else: unchanged}}
expect: {"v + 1": {1: 4}}
""",
    "a_value_is_one_for_each_rank": """
steps:
  - let: {v: {0: 7, else: "rank"}}
expect: {v: {0: 7, 1: 1, else: "world_size - 1 if rank == world_size - 1 else rank"}}
""",
}


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("world_size", [3, 20])
def test_what_is_right_passes(name: str, world_size: int, tmp_path: Path) -> None:
    assert judged(tmp_path, RIGHT[name], world_size) == ("PASSED", [])


WRONG = {
    "unknown_on_rank": [
        'steps: [{let: {v: 1}, ranks: 0}, {compute: {x: "x + v"}}]',
        'steps: [{let: {v: 1}, ranks: 0}]\nexpect: {x: "full(2, v)"}',
        "steps: [{let: {v: 1}, ranks: 0}, {expect: {v: 1}}]",
        'steps: [{let: {v: {0: 1}}}, {compute: {x: "x + v"}}]',
        """steps:
  - for: {i: [0, 1]}
    steps:
      - let: {v: 1}
        ranks: "i == 0"
      - compute: {x: "x + v"}
""",
        """steps:
  - for: {i: [0, 1]}
    steps: [{let: {v: 1}}]
  - let: {v: 1}
    ranks: 1
  - compute: {x: "x + v"}
""",
    ],
    "unknown_name": [
        'steps: [{compute: {x: "x + v"}}, {let: {v: 1}}]',
        'steps: [{let: {v: "v + 1"}}]',
        'steps: [{for: {i: [0]}, steps: [{let: {v: 1}}]}, {compute: {x: "x + v"}}]',
        'steps: [{for: {i: [0]}, steps: [{let: {v: 1}}]}]\nexpect: {x: "full(2, v)"}',
        """steps:
  - for: {i: [0, 1]}
    steps:
      - compute: {x: "x + v"}
      - let: {v: 1}
""",
    ],
    "name_taken": [
        "steps: [{let: {x: 1}}]",
        "steps: [{let: {y: 1}}, {compute: {y: x}}]",
        "parameters: {p: 1}\nsteps: [{let: {p: 1}}]",
        "matrix: {p: [1]}\nsteps: [{let: {p: 1}}]",
        "groups: {g: [0]}\nsteps: [{let: {g: 1}}]",
        "steps: [{let: {bit_length: 1}}]",
        "steps: [{let: {group_size: 1}}]",
        "steps: [{for: {i: [0]}, steps: [{let: {i: 1}}]}]",
        "steps: [{let: {i: 1}}, {for: {i: [0]}, steps: [{barrier: {}}]}]",
    ],
    "wrong_type": [
        "steps: [{let: {v: x}}]",
        "steps: [{let: {v: null}}]",
        "steps: [{let: {v: [[1], [2]]}}]",
        'steps: [{let: {v: "[[1], [2]]"}}]',
        "steps: [{let: [v]}]",
        "steps: [{let: {v: 1}}, {all_reduce: {tensor: v}}]",
        'steps: [{let: {v: [1, 2]}}, {send: {tensor: "v[0:1]", dst: 1}, ranks: 0}]',
    ],
    "reserved_name": ["steps: [{let: {rank: 1}}]"],
    "bad_name": ["steps: [{let: {v-w: 1}}]"],
}


@pytest.mark.parametrize(
    ("code", "text"), [(code, text) for code, texts in WRONG.items() for text in texts]
)
@pytest.mark.parametrize("world_size", [3, 20])
def test_what_is_wrong_is_invalid(code: str, text: str, world_size: int, tmp_path: Path) -> None:
    status, codes = judged(tmp_path, text, world_size)
    assert status == "INVALID"
    assert code in codes


def test_names_of_a_used_file_are_its_own(tmp_path: Path) -> None:
    part = 'inputs: [t, n]\nsteps:\n  - let: {v: "n + 1"}\n  - compute: {t: "t + v"}\n'
    (tmp_path / "part.yaml").write_text(part, encoding="utf-8")
    text = """
steps:
  - let: {v: 100}
  - use: {file: part.yaml, with: {t: x, n: v}}
  - use: {file: part.yaml, with: {t: x, n: 0}}
expect: {x: "full(2, rank + 102)", v: 100}
"""
    assert judged(tmp_path, text) == ("PASSED", [])
    assert judged(tmp_path, text.replace("v: 100}\n", "w: 100}\n", 1))[0] == "INVALID"


@pytest.mark.parametrize("name", ["n", "i"])
def test_a_used_file_cannot_name_its_own_inputs(name: str, tmp_path: Path) -> None:
    loop = "  - for: {i: [0]}\n    steps:\n"
    part = f"inputs: [t, n]\nsteps:\n{loop}      - let: {{{name}: 1}}\n"
    (tmp_path / "part.yaml").write_text(part, encoding="utf-8")
    with pytest.raises(ScenarioError) as caught:
        load(tmp_path / "part.yaml")
    assert [problem.code for problem in caught.value.problems] == ["name_taken"]
    text = "steps:\n  - use: {file: part.yaml, with: {t: x, n: 0}}\n"
    assert judged(tmp_path, text) == ("INVALID", ["name_taken"])


def test_variables_of_one_loop_nest_in_their_order(tmp_path: Path) -> None:
    text = """
steps:
  - compute: {y: [0]}
  - for: {i: "range(3)", j: "range(i)"}
    steps:
      - compute: {y: "y * 10 + i * 3 + j"}
    expect: {y: [367]}
"""
    assert judged(tmp_path, text) == ("PASSED", [])
    assert judged(tmp_path, text.replace("j:", "i:"))[1] == ["duplicate_key"]
    assert judged(tmp_path, text.replace('i: "range(3)", j: "range(i)"', ""))[1] == [
        "bad_loop",
        "unknown_name",
        "unknown_name",
    ]
