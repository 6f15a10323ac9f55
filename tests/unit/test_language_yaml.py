"""Reading YAML: the core schema of version 1.2, places, and nothing a stranger could abuse."""

from __future__ import annotations

import math

import pytest

from torch_scenarios.errors import ScenarioError
from torch_scenarios.limits import DEFAULT
from torch_scenarios.source.tree import Mapping, Scalar, Sequence, plain, read_tree


def read(text: str) -> object:
    return plain(read_tree("it.yaml", text.encode(), limits=DEFAULT))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("off", "off"),
        ("Yes", "Yes"),
        ("12:30", "12:30"),
        ("2024-01-01", "2024-01-01"),
        ("012", 12),
        ("-07", -7),
        ("+1", 1),
        ("0o17", 15),
        ("0x1F", 31),
        ("0b11", "0b11"),
        ("1_000", "1_000"),
        ("1e-5", 1e-5),
        ("1.", 1.0),
        (".5", 0.5),
        ("-1.5E+3", -1500.0),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("~", None),
        ("null", None),
        ("Null", None),
        ("nULL", "nULL"),
        ("", None),
        ("true", True),
        ("True", True),
        ("FALSE", False),
        ("tRUE", "tRUE"),
        ("'1'", "1"),
        ('"true"', "true"),
        ("!!str 1", "1"),
        ("!!float 1", 1.0),
        ("! 1", "1"),
        ("=", "="),
    ],
)
def test_scalars_follow_the_core_schema(text: str, value: object) -> None:
    found = read(f"a: {text}\n")
    assert isinstance(found, dict)
    assert found["a"] == value
    assert type(found["a"]) is type(value)


def test_not_a_number_is_one() -> None:
    found = read("a: .nan\n")
    assert isinstance(found, dict)
    assert math.isnan(found["a"])


@pytest.mark.parametrize("text", ["!!int 1.5", "!!bool 1", "!!null x", "!!int true"])
def test_a_tag_that_the_scalar_does_not_fit_is_refused(text: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        read(f"a: {text}\n")
    assert [problem.code for problem in caught.value.problems] == ["bad_scalar"]


def test_keys_of_different_types_are_different_keys() -> None:
    tree = read_tree("it.yaml", b"{1: a, '1': b, true: c}", limits=DEFAULT)
    assert isinstance(tree, Mapping)
    assert len(tree.entries) == 3


def test_a_byte_order_mark_is_skipped() -> None:
    assert plain(read_tree("it.yaml", b"\xef\xbb\xbfa: 1\n", limits=DEFAULT)) == {"a": 1}


def test_every_value_knows_its_place() -> None:
    tree = read_tree("it.yaml", b"steps:\n  - send: {tensor: x}\n", limits=DEFAULT)
    assert isinstance(tree, Mapping)
    steps = tree.get("steps")
    assert isinstance(steps, Sequence)
    (step,) = steps.items
    assert (step.mark.line, step.mark.column) == (2, 5)
    assert isinstance(step, Mapping)
    arguments = step.get("send")
    assert isinstance(arguments, Mapping)
    assert (arguments.mark.column, arguments.mark.end_column) == (11, 22)
    tensor = arguments.get("tensor")
    assert isinstance(tensor, Scalar)
    assert (tensor.mark.line, tensor.mark.column, tensor.mark.end_column) == (2, 20, 21)


def test_columns_count_characters_not_bytes() -> None:
    tree = read_tree("it.yaml", "{é: 1, ü: x}\n".encode(), limits=DEFAULT)
    assert isinstance(tree, Mapping)
    assert [value.mark.column for _, value in tree.entries] == [5, 11]


def test_lists_may_be_keys() -> None:
    assert read("{[0, 3]: 1}") == {(0, 3): 1}


def test_windows_line_ends_are_line_ends() -> None:
    assert read("a: 1\r\nb: 2\r\n") == {"a": 1, "b": 2}


@pytest.mark.parametrize("key", ["{a: 1}", "[{a: 1}]"])
def test_a_mapping_cannot_be_a_key(key: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        read(f"? {key}\n: 1\n")
    assert [problem.code for problem in caught.value.problems] == ["bad_key"]
