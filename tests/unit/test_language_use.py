"""`use`: the steps of another file, in the names of the file that uses it; and no way out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from torch_scenarios.errors import Problem, ScenarioError
from torch_scenarios.expressions.values import Constant, Expression, PerRank, Record
from torch_scenarios.language import load
from torch_scenarios.limits import Limits
from torch_scenarios.model.scenario import Scenario, Step, steps_of

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "world_size: 4\ngroups: {even: [0, 2]}\ntensors: {x: [1, 2], y: [3, 4]}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").touch()
    return tmp_path


def using(folder: Path, library: str, use: str, head: str = HEAD) -> Scenario:
    (folder / "part.yaml").write_text(library, encoding="utf-8")
    (folder / "main.yaml").write_text(f"{head}steps:\n{use}", encoding="utf-8")
    (scenario,) = load(folder / "main.yaml")
    return scenario


def problems(folder: Path, library: str, use: str) -> tuple[Problem, ...]:
    with pytest.raises(ScenarioError) as caught:
        using(folder, library, use)
    return caught.value.problems


def assigned(step: Step) -> dict[str, str]:
    record = step.arguments["assignments"]
    assert isinstance(record, Record)
    return {
        name: form.text if isinstance(form, Expression) else str(form)
        for name, form in record.fields.items()
    }


def text(form: object) -> str:
    assert isinstance(form, Expression)
    return form.text


# ---------------------------------------------------------------------- substitution


def test_inputs_are_replaced_on_the_syntax_tree(folder: Path) -> None:
    scenario = using(
        folder,
        "inputs: [a, b]\nsteps:\n  - compute: {c: a * b, d: '-a ** 2'}\n",
        "  - use: {file: part.yaml, with: {a: x + y, b: -1}}\n",
    )
    values = list(assigned(scenario.steps[0]).values())
    assert values == ["(x + y) * -1", "-(x + y) ** 2"]


def test_an_input_may_be_a_view_that_is_written_to(folder: Path) -> None:
    scenario = using(
        folder,
        "inputs: [t]\nsteps:\n  - all_reduce: {tensor: t}\n    expect: {'t': 't'}\n",
        "  - use: {file: part.yaml, with: {t: 'x[0:1]'}}\n",
    )
    (step,) = scenario.steps
    assert text(step.arguments["tensor"]) == "x[0:1]"
    assert step.expect is not None
    assert step.expect.values[0].key.text == "x[0:1]"


def test_an_input_may_be_a_fixed_name_a_mapping_or_a_list(folder: Path) -> None:
    scenario = using(
        folder,
        "inputs: [t, g, how, splits, who]\nsteps:\n"
        "  - ranks: who\n    all_reduce: {tensor: t, group: g, op: how}\n"
        "  - all_to_all_single: {output: t, input: t, input_split_sizes: splits}\n"
        "  - expect: {'group_rank(g)': {g: 0, else: -1}}\n",
        "  - use:\n      file: part.yaml\n      with:\n        t: x\n        g: even\n"
        "        how: {premul_sum: 2}\n        splits: {0: [1, 1], else: [2, 0]}\n"
        "        who: [0, 2]\n",
    )
    reduce, exchange, expect = scenario.steps
    assert reduce.arguments["group"] == Constant(value="even")
    assert isinstance(reduce.arguments["op"], Constant)
    assert reduce.ranks is not None
    assert reduce.ranks.form == Constant(value=[0, 2])
    assert isinstance(exchange.arguments["input_split_sizes"], PerRank)
    assert expect.expect is not None
    assert expect.expect.values[0].key.text == "group_rank(even)"


def test_own_names_never_meet_the_users(folder: Path) -> None:
    library = (
        "inputs: [t]\nsteps:\n  - for: {i: [0]}\n    steps:\n"
        "      - compute: {y: t + i}\n"
        "      - all_reduce: {tensor: y, async_op: true}\n        as: work\n"
        "      - wait: work\n  - new_group: {name: even, ranks: [0]}\n"
        "  - barrier: {group: even}\n"
    )
    scenario = using(
        folder,
        library,
        "  - for: {i: [0]}\n    steps:\n      - use: {file: part.yaml, with: {t: x + i}}\n"
        "  - use: {file: part.yaml, with: {t: y}}\n",
    )
    outer, loop = scenario.steps[0], scenario.steps[0].body[0]
    (name,) = assigned(loop.body[0])
    assert outer.variable == "i"
    assert loop.variable == "part_i"
    assert assigned(loop.body[0]) == {"part_y": "x + i + part_i"}
    assert name not in {"y", "x"}
    assert loop.body[1].handle == "part_work"
    assert loop.body[2].arguments["handles"] == Constant(value="part_work")
    assert outer.body[2].arguments["group"] == Constant(value="part_even")
    assert assigned(scenario.steps[1].body[0]) == {"part_y_2": "y + part_i_2"}


def test_the_variable_of_a_comprehension_captures_nothing(folder: Path) -> None:
    scenario = using(
        folder,
        "inputs: [t]\nsteps:\n  - compute: {c: '[t + r for r in range(2)]'}\n",
        "  - for: {r: [0]}\n    steps:\n      - use: {file: part.yaml, with: {t: x * r}}\n",
    )
    (value,) = assigned(scenario.steps[0].body[0]).values()
    assert value == "[x * r + r_1 for r_1 in range(2)]"


def test_used_files_use_others_relative_to_themselves(folder: Path) -> None:
    (folder / "deeper").mkdir()
    (folder / "deeper" / "leaf.yaml").write_text(
        "inputs: [u]\nsteps:\n  - all_reduce: {tensor: u}\n", encoding="utf-8"
    )
    scenario = using(
        folder,
        "inputs: [t]\nsteps:\n  - use: {file: deeper/leaf.yaml, with: {u: 't[0:1]'}}\n",
        "  - use: {file: part.yaml, with: {t: x}}\n",
    )
    (step,) = scenario.steps
    assert text(step.arguments["tensor"]) == "x[0:1]"
    assert step.mark is not None
    assert step.mark.source.path.endswith("leaf.yaml")


def test_names_of_steps_stay_unique(folder: Path) -> None:
    scenario = using(
        folder,
        "inputs: [t]\nsteps:\n  - name: sum\n    all_reduce: {tensor: t}\n",
        "  - name: sum\n    barrier: {}\n"
        "  - use: {file: part.yaml, with: {t: x}}\n"
        "  - use: {file: part.yaml, with: {t: x}}\n"
        "  - name: mine\n    use: {file: part.yaml, with: {t: x}}\n",
    )
    assert [step.name for step in scenario.steps] == [
        "sum", "part: sum", "part (2): sum", "mine: sum"
    ]  # fmt: skip
    assert [step.index for step in steps_of(scenario.steps)] == [0, 1, 2, 3]


def test_ranks_and_expect_beside_use_hold_for_all_of_it(folder: Path) -> None:
    scenario = using(
        folder,
        "inputs: [t]\nsteps:\n  - compute: {t: t + 1}\n",
        "  - use: {file: part.yaml, with: {t: x}}\n    ranks: 0\n    expect: {x: [2, 3]}\n",
    )
    block, after = scenario.steps
    assert block.ranks is not None
    assert after.ranks is not None
    assert assigned(block.body[0]) == {"x": "x + 1"}
    assert after.expect is not None


def test_an_input_with_a_default_may_be_left_out(folder: Path) -> None:
    scenario = using(
        folder,
        "inputs:\n  t: what is reduced\n  how: {description: the op, default: max}\n"
        "steps:\n  - all_reduce: {tensor: t, op: how}\n",
        "  - use: {file: part.yaml, with: {t: x}}\n",
    )
    assert scenario.steps[0].arguments["op"] == Constant(value="max")


# ---------------------------------------------------------------------- libraries


def test_a_library_is_checked_and_has_no_cases(folder: Path) -> None:
    file = folder / "library.yaml"
    file.write_text(
        "inputs: [t, g, h, d]\nsteps:\n  - all_reduce: {tensor: t, group: g, async_op: true}\n"
        "    as: w\n  - wait: [w, h]\n  - compute: {t: 'astype(t, d) + group_rank(g)', z: t}\n"
        "    expect: {t: {dtype: d, value: z}}\n",
        encoding="utf-8",
    )
    assert load(file) == ()
    file.write_text("inputs: [t]\nsteps:\n  - all_reduce: {tensor: s}\n", encoding="utf-8")
    with pytest.raises(ScenarioError) as caught:
        load(file)
    assert [problem.code for problem in caught.value.problems] == ["unknown_name"]


def test_a_fault_in_a_used_file_points_into_that_file(folder: Path) -> None:
    (problem,) = problems(
        folder,
        "inputs: [t]\nsteps:\n  - all_reduce: {tensor: t, op: add}\n",
        "  - use: {file: part.yaml, with: {t: x}}\n",
    )
    assert problem.mark is not None
    assert problem.mark.source.path.endswith("part.yaml")
    assert (problem.mark.line, problem.mark.column) == (3, 33)


def test_a_fault_in_what_is_given_points_at_what_is_given(folder: Path) -> None:
    (problem,) = problems(
        folder,
        "inputs: [t]\nsteps:\n  - all_reduce: {tensor: t}\n",
        "  - use: {file: part.yaml, with: {t: [1, 2]}}\n",
    )
    assert problem.code == "output_not_a_name"


def test_a_mapping_cannot_stand_inside_an_expression(folder: Path) -> None:
    (problem,) = problems(
        folder,
        "inputs: [t]\nsteps:\n  - compute: {c: t + 1}\n",
        "  - use: {file: part.yaml, with: {t: {0: 1, else: 2}}}\n",
    )
    assert problem.code == "input_in_expression"


# ---------------------------------------------------------------------- escapes


@pytest.mark.parametrize(
    "path",
    [
        "../outside.yaml",
        "part/../../outside.yaml",
        "/etc/hostname",
        "~/outside.yaml",
        "file:///etc/hostname",
        "http://example.org/x.yaml",
        "..\\outside.yaml",
        "link.yaml",
    ],
)
def test_no_file_outside_the_project_is_read(path: str, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").touch()
    outside = tmp_path / "outside.yaml"
    outside.write_text("inputs: []\nsteps: [{barrier: }]\n", encoding="utf-8")
    (project / "link.yaml").symlink_to(outside)
    main = project / "main.yaml"
    main.write_text(f"{HEAD}steps:\n  - use: {{file: '{path}'}}\n", encoding="utf-8")
    with pytest.raises(ScenarioError) as caught:
        load(main)
    (problem,) = caught.value.problems
    assert problem.code in {"use_outside_project", "file_not_found"}


def test_what_a_used_file_is_not_is_never_shown(folder: Path) -> None:
    (folder / "secret.txt").write_text("hunter2: [", encoding="utf-8")
    main = folder / "main.yaml"
    main.write_text(f"{HEAD}steps:\n  - use: {{file: secret.txt}}\n", encoding="utf-8")
    with pytest.raises(ScenarioError) as caught:
        load(main)
    assert "hunter2" not in str(caught.value)


def test_files_that_use_each_other_are_stopped(folder: Path) -> None:
    (folder / "back.yaml").write_text(
        "inputs: []\nsteps:\n  - use: {file: part.yaml}\n", encoding="utf-8"
    )
    (problem,) = problems(
        folder,
        "inputs: []\nsteps:\n  - use: {file: back.yaml}\n",
        "  - use: {file: part.yaml}\n",
    )
    assert problem.code == "use_cycle"


def test_a_chain_of_files_is_bounded(folder: Path) -> None:
    for n in range(5):
        (folder / f"p{n}.yaml").write_text(
            f"inputs: []\nsteps:\n  - use: {{file: p{n + 1}.yaml}}\n", encoding="utf-8"
        )
    (folder / "p5.yaml").write_text("inputs: []\nsteps: [{barrier: }]\n", encoding="utf-8")
    main = folder / "main.yaml"
    main.write_text(f"{HEAD}steps:\n  - use: {{file: p0.yaml}}\n", encoding="utf-8")
    assert len(load(main)[0].steps) == 1
    with pytest.raises(ScenarioError) as caught:
        load(main, limits=Limits(max_use_depth=3))
    assert [problem.code for problem in caught.value.problems] == ["use_too_deep"]


def test_files_that_multiply_are_stopped_at_the_number_of_steps(folder: Path) -> None:
    for n in range(8):
        twice = f"  - use: {{file: p{n + 1}.yaml}}\n" * 8
        (folder / f"p{n}.yaml").write_text(f"inputs: []\nsteps:\n{twice}", encoding="utf-8")
    (folder / "p8.yaml").write_text("inputs: []\nsteps: [{barrier: }]\n", encoding="utf-8")
    main = folder / "main.yaml"
    main.write_text(f"{HEAD}steps:\n  - use: {{file: p0.yaml}}\n", encoding="utf-8")
    with pytest.raises(ScenarioError) as caught:
        load(main, limits=Limits(max_file_steps=500))
    assert "too_many_steps" in {problem.code for problem in caught.value.problems}


@pytest.mark.parametrize(
    "line",
    [
        "plugins: [os]",
        "plugin: os",
        "import: os",
        "backends: [gloo]\nplugin_modules: {gloo: os}",
        "env: {LD_PRELOAD: evil.so}",
    ],
)
def test_a_scenario_names_no_code_to_load(line: str, folder: Path) -> None:
    file = folder / "main.yaml"
    file.write_text(f"{line}\n{HEAD}steps: [{{barrier: }}]\n", encoding="utf-8")
    with pytest.raises(ScenarioError) as caught:
        load(file)
    assert [problem.code for problem in caught.value.problems] == ["unknown_key"]


@pytest.mark.parametrize(
    "value",
    [
        "!!python/object/apply:os.system [touch hacked]",
        "!!python/name:os.system",
        "!!python/object/new:os.system [touch hacked]",
        "\"__import__('os').system('touch hacked')\"",
        '"().__class__.__bases__[0].__subclasses__()"',
        '"[c for c in ().__class__.__base__.__subclasses__()]"',
        "\"open('/etc/hostname')\"",
        "\"exec('1')\"",
        '"(x := 1)"',
        '"9 ** 9 ** 9 ** 9"',
        '"[0] * 10 ** 9"',
        "\"f'{rank}'\"",
    ],
)
def test_a_value_executes_nothing(
    value: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    file = folder / "main.yaml"
    file.write_text(
        f"world_size: 1\ntensors:\n  x: {value}\nparameters:\n  n: {value}\n"
        "steps: [{barrier: }]\n",
        encoding="utf-8",
    )
    with pytest.raises(ScenarioError):
        load(file)
    assert not (folder / "hacked").exists()


# ---------------------------------------------------------------------- names handed over

MAKER = """\
inputs: [g, members, t, h]
steps:
  - new_group: {name: g, group_ranks: members}
  - all_reduce: {tensor: t, group: g, async_op: true}
    as: h
  - compute: {t: "2 * group_size(g)"}
"""


def test_a_used_file_makes_what_it_is_handed_the_name_of(folder: Path) -> None:
    scenario = using(
        folder,
        MAKER,
        "  - compute: {mine: 1}\n"
        "  - use: {file: part.yaml, with: {g: pair, members: [1, 2], t: mine, h: work}}\n"
        "  - wait: work\n"
        "  - barrier: {group: pair}\n"
        "    expect: {mine: {pair: 4}, 'group_size(pair)': {pair: 2, else: 0}}\n",
    )
    assert scenario.steps[1].arguments["name"] == Constant(value="pair")
    assert scenario.steps[2].handle == "work"
    assert scenario.steps[4].arguments["handles"] == Constant(value="work")
    assert scenario.steps[5].arguments["group"] == Constant(value="pair")


def test_a_name_is_handed_on_through_several_files(folder: Path) -> None:
    (folder / "inner.yaml").write_text(
        "inputs: [made]\nsteps:\n  - new_group: {name: made, group_ranks: [0, 1]}\n",
        encoding="utf-8",
    )
    scenario = using(
        folder,
        "inputs: [outer]\nsteps:\n  - use: {file: inner.yaml, with: {made: outer}}\n"
        "  - use: {file: inner.yaml, with: {made: own}}\n  - barrier: {group: own}\n",
        "  - for: {i: [0]}\n    steps:\n      - use: {file: part.yaml, with: {outer: pair}}\n"
        "  - barrier: {group: pair}\n",
    )
    made = [step for step in steps_of(scenario.steps) if "name" in step.arguments]
    names = [step.arguments["name"] for step in made]
    assert names == [Constant(value="pair"), Constant(value="part_own")]


@pytest.mark.parametrize("name", ["x", "even"])
def test_a_name_that_is_handed_over_to_make_means_nothing_else(name: str, folder: Path) -> None:
    library = "inputs: [h]\nsteps:\n  - barrier: {async_op: true}\n    as: h\n"
    (problem,) = problems(folder, library, f"  - use: {{file: part.yaml, with: {{h: {name}}}}}\n")
    assert problem.code == "duplicate_name"
    assert problem.mark is not None
    assert problem.mark.line == 5
