"""The compiled schema and jsonschema agree, on every file of the corpus and on mutants."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from jsonschema.validators import extend
from mutants import FILES as SMALL
from mutants import Plain, mutants
from sampling import sampled, strides

from torch_scenarios.errors import ScenarioError
from torch_scenarios.language.schema import scenario_schema
from torch_scenarios.language.validation import compiled_schema, findings
from torch_scenarios.limits import DEFAULT
from torch_scenarios.source.tree import Node, plain, read_tree

ROOT = Path(__file__).parents[2]
FOLDERS = sorted(path.name for path in (ROOT / "scenarios").iterdir() if path.is_dir())
WRONG = ROOT / "tests" / "problems"


@cache
def validator() -> Draft202012Validator:
    return Draft202012Validator(scenario_schema())


def as_json(value: Any) -> Any:
    """Return YAML data as JSON has it: every key is text."""
    if isinstance(value, dict):
        return {str(key): as_json(item) for key, item in value.items()}
    return [as_json(item) for item in value] if isinstance(value, list) else value


@cache
def judge() -> Draft202012Validator:
    """Return jsonschema's own judge of a file; a number with a point is no integer, as in YAML."""
    checker = Draft202012Validator.TYPE_CHECKER.redefine(
        "integer", lambda _, value: isinstance(value, int) and not isinstance(value, bool)
    )
    made: Any = extend(Draft202012Validator, type_checker=checker)  # type: ignore[no-untyped-call]
    found: Draft202012Validator = made(scenario_schema())
    return found


@pytest.mark.parametrize("folder", sampled(list(FOLDERS), 2))
def test_every_scenario_fits_the_compiled_law_and_jsonschema(folder: str) -> None:
    for path in (ROOT / "scenarios" / folder).rglob("*.yaml"):
        tree = read_tree(str(path), path.read_bytes(), limits=DEFAULT)
        data = as_json(plain(tree))
        assert [error.message for error in validator().iter_errors(data)] == [], path
        assert compiled_schema().fits(tree), path


def test_the_compiled_law_and_jsonschema_agree_on_wrong_files() -> None:
    refused = 0
    for path in WRONG.glob("*.yaml"):
        try:
            tree = read_tree(str(path), path.read_bytes(), limits=DEFAULT)
        except ScenarioError:
            continue  # it is no YAML
        fits = compiled_schema().fits(tree)
        refused += not fits
        assert fits == judge().is_valid(as_json(plain(tree))), path
    assert refused > 20


@pytest.mark.parametrize("stride", strides(83, 7))
@pytest.mark.parametrize("name", SMALL)
def test_the_compiled_law_and_jsonschema_agree_on_mutants(name: str, stride: int) -> None:
    """Of every mutant that does not fit jsonschema finds something, and of no other."""
    fitting = 0
    every = list(mutants(yaml.safe_load(SMALL[name])))[::stride]
    for mutant in every:
        content: bytes = yaml.dump(mutant, Dumper=Plain, sort_keys=False, encoding="utf-8")
        try:
            tree: Node = read_tree("it.yaml", content, limits=DEFAULT)
        except ScenarioError:
            continue
        fits = compiled_schema().fits(tree)
        fitting += fits
        assert fits == judge().is_valid(as_json(plain(tree))), content
        assert fits == (not list(findings(tree))), content
    assert 0 < fitting < len(every)
