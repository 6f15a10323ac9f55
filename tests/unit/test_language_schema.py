"""The JSON Schema: fresh, complete, and of one mind with `load`."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from torch_scenarios.cli import cli
from torch_scenarios.errors import ScenarioError
from torch_scenarios.expressions.params import KINDS
from torch_scenarios.files import schema_file
from torch_scenarios.language.document import load_content
from torch_scenarios.language.schema import scenario_schema, scenario_schema_text
from torch_scenarios.language.validation import CompiledSchema, compiled_schema, require_all
from torch_scenarios.limits import DEFAULT
from torch_scenarios.operations import OPERATIONS
from torch_scenarios.source.tree import plain, read_tree

ROOT = Path(__file__).parents[2]
WRONG = ROOT / "tests" / "problems"

#: mistakes that are mistakes of form, so that an editor must underline them too
FORM = (
    "top_misspelt_key",
    "top_no_world_size",
    "top_no_steps",
    "top_empty_steps",
    "top_newer_version",
    "top_steps_is_a_mapping",
    "top_plugins_are_not_named_here",
    "matrix_is_no_list",
    "matrix_empty",
    "value_long_form_misspelt",
    "group_no_form",
    "group_two_forms",
    "group_misspelt_key",
    "group_mesh_without_dims",
    "step_misspelt_operation",
    "step_misspelt_argument",
    "step_missing_argument",
    "step_root_is_text",
    "step_two_actions",
    "step_two_keys_beside",
    "step_nothing",
    "step_is_a_word",
    "step_arguments_are_a_word",
    "step_for_without_steps",
    "step_message_misspelt",
    "expect_elapsed_misspelt",
    "expect_blocked_is_a_list",
    "use_no_file",
    "use_library_misspelt",
)


@cache
def validator() -> Draft202012Validator:
    return Draft202012Validator(scenario_schema())


def as_json(value: Any) -> Any:
    """Return YAML data as JSON has it: every key is text."""
    if isinstance(value, dict):
        return {str(key): as_json(item) for key, item in value.items()}
    return [as_json(item) for item in value] if isinstance(value, list) else value


def faults(path: Path) -> list[str]:
    tree = read_tree(str(path), path.read_bytes(), limits=DEFAULT)
    return [error.message for error in validator().iter_errors(as_json(plain(tree)))]


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(scenario_schema())


def test_the_schema_in_the_repository_is_fresh() -> None:
    written = (ROOT / "schemas" / "scenario.schema.json").read_text(encoding="utf-8")
    assert written == scenario_schema_text(), (
        "run: python -m torch_scenarios.language.schema > schemas/scenario.schema.json"
    )


@pytest.mark.parametrize("name", FORM)
def test_a_mistake_of_form_is_one_for_the_schema_too(name: str) -> None:
    assert faults(WRONG / f"{name}.yaml")


def test_every_operation_and_argument_is_explained() -> None:
    steps = scenario_schema()["$defs"]["step"]["properties"]
    for operation in OPERATIONS:
        for name in (operation.name, *operation.aliases):
            assert steps[name]["description"]
    keys = scenario_schema()["properties"]
    assert all(entry.get("description") for entry in keys.values())


def test_every_kind_of_argument_has_a_schema() -> None:
    defined = scenario_schema()["$defs"].keys() | {"name", "word", "p2p_ops"}
    assert set(KINDS) <= defined


def test_every_example_of_an_operation_validates() -> None:
    for operation in OPERATIONS:
        tree = read_tree(operation.name, operation.example.encode(), limits=DEFAULT)
        errors = [error.message for error in validator().iter_errors(as_json(plain(tree)))]
        assert not errors, operation.name


# ---------------------------------------------------------------------- the compiled schema


def test_a_schema_without_an_operation_says_how_it_is_made() -> None:
    with pytest.raises(
        LookupError,
        match=r"no `all_new`; write it anew: `python -m torch_scenarios.language.schema",
    ):
        require_all(law_steps(), (*(operation.name for operation in OPERATIONS), "all_new"))


def law_steps() -> dict[str, Any]:
    steps: dict[str, Any] = scenario_schema()["$defs"]["step"]["properties"]
    return steps


def test_a_keyword_that_is_not_compiled_is_refused() -> None:
    with pytest.raises(KeyError, match="contains"):
        CompiledSchema({"contains": {}, "$defs": {}})


def test_a_large_value_with_one_mistake_is_looked_at_where_the_mistake_is(tmp_path: Path) -> None:
    """Jsonschema passes over what is known to fit, so that a large file costs no more."""
    numbers = ", ".join(["1"] * 50_000)
    text = (
        f"world_size: 2\ntensors: {{x: [{numbers}], y: {{vlaue: [1], dtype: int8}}}}\nsteps: []\n"
    )
    with pytest.raises(ScenarioError) as caught:
        load_content(tmp_path / "it.yaml", text.encode())
    assert [problem.code for problem in caught.value.problems] == ["unknown_key", "empty_steps"]


def test_what_is_given_for_an_input_is_held_against_the_place_where_its_name_stands(
    tmp_path: Path,
) -> None:
    (tmp_path / "part.yaml").write_text(
        "inputs: [x, root]\nsteps:\n  - broadcast: {tensor: x, src: root}\n", encoding="utf-8"
    )
    text = (
        "world_size: 2\ntensors: {x: [1]}\n"
        "steps:\n  - use: {file: part.yaml, with: {x: x, root: [0]}}\n"
    )
    with pytest.raises(ScenarioError) as caught:
        load_content(tmp_path / "it.yaml", text.encode())
    (problem,) = caught.value.problems
    assert problem.code == "wrong_type"
    assert problem.message == "what is given for `root` cannot be a list"
    assert problem.hint == "write an integer or an expression"
    assert problem.mark is not None
    assert problem.mark.line == 4


def test_a_schema_without_an_operation_says_what_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who adds an operation, and has not written the schema anew, has found no bug of ours."""
    stale = tmp_path / "scenario.schema.json"
    schema = json.loads(schema_file(stale.name).read_text(encoding="utf-8"))
    del schema["$defs"]["step"]["properties"]["recv"]
    stale.write_text(json.dumps(schema), encoding="utf-8")
    (tmp_path / "one.yaml").write_text("world_size: 1\nsteps: []\n", encoding="utf-8")
    monkeypatch.setattr("torch_scenarios.language.validation.schema_file", lambda _: stale)
    compiled_schema.cache_clear()
    try:
        told = CliRunner().invoke(cli, ["check", str(tmp_path / "one.yaml")]).output
    finally:
        compiled_schema.cache_clear()
    assert "has no `recv`; write it anew: `python -m torch_scenarios.language.schema" in told
    assert "bug" not in told
