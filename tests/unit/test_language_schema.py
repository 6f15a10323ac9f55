"""The JSON Schema: fresh, complete, and of one mind with `load`."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from runner.expressions.params import KINDS
from runner.language.schema import scenario_schema, scenario_schema_text
from runner.limits import DEFAULT
from runner.operations import OPERATIONS
from runner.source.tree import plain, read_tree

ROOT = Path(__file__).parents[2]
FILES = sorted(ROOT.glob("scenarios/**/*.yaml"))
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
    "step_for_two_variables",
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
        "run: python -m runner.language.schema > schemas/scenario.schema.json"
    )


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(ROOT)) for path in FILES])
def test_every_scenario_validates(path: Path) -> None:
    assert faults(path) == []


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
