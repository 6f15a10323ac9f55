"""The parts of the JSON Schema: values, selectors, expectations, and one part a kind of argument.

A per-rank mapping may have any key, because a key may be an expression; what the keys mean is
checked by the language itself. JSON knows only text as a key: `{0: [1, 2]}` is `{"0": [1, 2]}`.
"""

from __future__ import annotations

from typing import Any

from runner.language.forms import LONG_FORM, TOLERANCES
from runner.vocabulary import DIAGNOSES, DTYPES, OUTCOMES, RAISE_KINDS

Schema = dict[str, Any]


def ref(name: str) -> Schema:
    """Refer to a definition."""
    return {"$ref": f"#/$defs/{name}"}


def any_of(*parts: Schema) -> Schema:
    """Allow any of some schemas."""
    return {"anyOf": list(parts)}


def per_rank(inner: Schema) -> Schema:
    """Describe a mapping from selectors to `inner`."""
    return {
        "description": "For each rank: the first key that selects it wins; `else` is the rest.",
        "type": "object",
        "minProperties": 1,
        "additionalProperties": inner,
    }


def closed(properties: dict[str, Schema], **more: Any) -> Schema:  # noqa: ANN401 -- JSON
    """Describe a mapping that has no other keys."""
    return {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        **more,
    }


def word_or_name(words: tuple[str, ...], description: str) -> Schema:
    """Describe a fixed word; the name of a parameter that holds one will do."""
    return {"description": description, "anyOf": [{"enum": list(words)}, ref("name")]}


TEXT: Schema = {"type": ["string", "number", "boolean"]}
NOTHING: Schema = {"type": "null"}
_NOT_LONG = {"not": {"enum": [*LONG_FORM, *TOLERANCES]}}


def definitions() -> dict[str, Schema]:
    """Return `$defs`: everything that the top level and the steps refer to."""
    return {**_values(), **_choices(), **_expectations()}


# ---------------------------------------------------------------------- values


def _values() -> dict[str, Schema]:
    return {
        "name": {
            "description": "A name: letters, digits and underscores.",
            "type": "string",
            "pattern": "^[A-Za-z][A-Za-z0-9_.]*$",
        },
        "expression": {
            "description": "An expression, computed on each rank, in Python's syntax.",
            "type": "string",
            "minLength": 1,
            "examples": ["full(5, rank + 1)", "x[0:2]", "range(0, world_size, 2)"],
        },
        "duration": {
            "description": "A duration; a bare number is in seconds.",
            "anyOf": [
                {"type": "number", "minimum": 0},
                {"type": "string", "examples": ["10s", "0.5s", "200ms", "2min"]},
            ],
        },
        "versions": {
            "description": "Versions of torch: bounds that all hold.",
            "type": "string",
            "pattern": r"^\s*(>=|<=|==|!=|>|<)\s*[0-9.]+(\s*,\s*(>=|<=|==|!=|>|<)\s*[0-9.]+)*\s*$",
            "examples": [">=2.7", ">=2.7, <2.14"],
        },
        "selector": {
            "description": "Which ranks: a rank, a list of ranks, a group, or an expression.",
            "anyOf": [
                {"type": "integer"},
                {"type": "boolean"},
                {"type": "array", "items": any_of({"type": "integer"}, ref("expression"))},
                ref("expression"),
            ],
            "examples": [0, [0, 3], "rank % 2 == 0", "even"],
        },
        "value": {
            "description": "A number or a nested list (float32), an expression, the long form"
            " with a dtype, or one of these for each rank.",
            "anyOf": [
                {"type": ["number", "boolean", "null"]},
                ref("expression"),
                {"type": "array", "items": ref("value")},
                ref("long_form"),
                {**per_rank(ref("value")), "propertyNames": _NOT_LONG},
            ],
            "examples": [[1, 2, 3], "full(5, rank + 1)", {"0": [1, 2], "else": [0, 0]}],
        },
        "long_form": closed(
            {
                "value": {"description": "The numbers.", **ref("value")},
                "dtype": ref("dtype"),
                "shape": {"description": "The sizes.", **ref("sizes")},
            },
            description="A value with its dtype and shape.",
            required=["value"],
            examples=[{"dtype": "bfloat16", "value": [1, 2]}],
        ),
        "object_value": {
            "description": "A plain YAML value; `{expr: ...}` in it is computed on each rank, and"
            " a mapping with `else`, or only ranks as keys, is one value for each rank.",
        },
    }


def _choices() -> dict[str, Schema]:
    dtype = word_or_name(DTYPES, "The type of each element, by torch's name.")
    return {
        "dtype": any_of(dtype, per_rank(dtype), NOTHING),
        "outcome": word_or_name(OUTCOMES, "How the whole program ends."),
        "diagnosis": word_or_name(DIAGNOSES, "What is wrong with the program."),
        "kind_of_error": word_or_name(RAISE_KINDS, "A kind of error, whatever a backend calls it."),
    }


# ---------------------------------------------------------------------- expectations


def _expectations() -> dict[str, Schema]:
    number = any_of({"type": "number", "minimum": 0}, ref("expression"))
    bounds = closed(
        {"min": ref("seconds"), "max": ref("seconds")},
        description="Seconds since the scenario began, on that rank.",
        minProperties=1,
    )
    spec = any_of(
        {"const": "none"},
        ref("kind_of_error"),
        {"type": "array", "items": ref("kind_of_error"), "minItems": 1},
        {
            **closed(dict.fromkeys((*RAISE_KINDS, "none"), TEXT), maxProperties=1),
            "description": "A kind, with a part of the backend's own message.",
            "minProperties": 1,
        },
    )
    return {
        "expected": {
            "description": "What it must be: a value, `unchanged`, only a dtype or shape, or one"
            " of these for each rank.",
            "anyOf": [
                {"const": "unchanged"},
                {"type": ["number", "boolean"]},
                ref("expression"),
                {"type": "array"},
                closed(
                    {
                        "value": ref("value"),
                        "dtype": ref("dtype"),
                        "shape": ref("sizes"),
                        "rtol": {"description": "The relative tolerance.", **number},
                        "atol": {"description": "The absolute tolerance.", **number},
                    },
                    minProperties=1,
                ),
                {**per_rank({"anyOf": [ref("expected"), NOTHING]}), "propertyNames": _NOT_LONG},
            ],
        },
        "elapsed": any_of(bounds, per_rank(bounds)),
        "raises": {
            "description": "What the step raises on the ranks that take it; `none` is nothing.",
            "anyOf": [spec, per_rank(spec)],
            "examples": ["timeout", {"0": "timeout", "else": "none"}, ["timeout", "peer_lost"]],
        },
        "expectation": {
            "description": "What holds right after the step, on every rank that took it: names,"
            " or expressions, and what each must be.",
            "type": "object",
            "properties": {"elapsed": ref("elapsed"), "raises": ref("raises")},
            "additionalProperties": ref("expected"),
        },
    }
