"""The parts of the JSON Schema: values, selectors, expectations, and one part a kind of argument.

A per-rank mapping may have any key, because a key may be an expression; what the keys mean is
checked by the language itself. JSON knows only text as a key: `{0: [1, 2]}` is `{"0": [1, 2]}`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runner.language.forms import LONG_FORM, TOLERANCES
from runner.operations.params import KINDS
from runner.scenario import DIAGNOSES, DTYPES, OUTCOMES, RAISE_KINDS, REDUCE_OPS

if TYPE_CHECKING:
    from runner.operations.params import Param

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
    return {**_values(), **_choices(), **_expectations(), **_arguments(), "group_spec": _group()}


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


# ---------------------------------------------------------------------- arguments and groups


def _arguments() -> dict[str, Schema]:
    """Return the schema of each kind of argument, under the kind's name."""
    integer = any_of({"type": "integer"}, ref("expression"), NOTHING)
    integers = any_of(
        {"type": "array", "items": any_of({"type": "integer"}, ref("expression"))},
        ref("expression"),
        NOTHING,
    )
    objects = any_of(ref("object_value"))
    listed = any_of(
        ref("expression"), NOTHING, {"type": "array", "items": any_of(ref("value"), NOTHING)}
    )
    operator = any_of(
        {"enum": list(REDUCE_OPS)},
        ref("name"),
        closed({"premul_sum": {"type": ["number", "string"]}}, required=["premul_sum"]),
    )
    names = any_of(ref("name"), {"type": "array", "items": ref("name")})
    kinds: dict[str, Schema] = {
        "tensor": ref("value"),
        "tensors": any_of(listed, per_rank(listed)),
        "tensor_lists": any_of(
            ref("expression"), NOTHING, {"type": "array", "items": listed}, per_rank(listed)
        ),
        "rank": any_of(integer, per_rank(integer)),
        "group_rank": any_of(integer, per_rank(integer)),
        "tag": any_of(integer, per_rank(integer)),
        "group": any_of(ref("name"), NOTHING, per_rank(ref("name"))),
        "reduce_op": any_of(operator, per_rank(operator)),
        "sizes": any_of({"type": "integer"}, integers, per_rank(integers)),
        "ranks": any_of(integers, per_rank(integers)),
        "flag": any_of({"type": "boolean"}, ref("expression"), per_rank(ref("flag"))),
        "seconds": any_of(ref("duration"), ref("expression"), per_rank(ref("seconds"))),
        "objects": objects,
        "object": objects,
        "handles": any_of(names, per_rank(names)),
        "text": TEXT,
        "assignments": {
            "type": "object",
            "additionalProperties": ref("value"),
            "examples": [{"y": "exp(x - m)"}],
        },
    }
    return {
        name: {"description": f"{KINDS[name][0].upper()}{KINDS[name][1:]}.", **schema}
        for name, schema in kinds.items()
    }


def argument(param: Param) -> Schema:
    """Return the schema of one argument: that of its kind, with its own description."""
    described: Schema = {"description": param.description}
    if param.default is not None:
        described["default"] = param.default
    match param.kind:
        case "name":
            return {**ref("name"), **described}
        case "word":
            words = dict.fromkeys(param.words, TEXT)
            return {
                **described,
                "anyOf": [
                    {"enum": list(param.words)},
                    ref("name"),
                    closed(words, minProperties=1, maxProperties=1),
                    per_rank({"enum": list(param.words)}),
                ],
            }
        case "p2p_ops":
            return {**described, **_messages(param)}
        case kind:
            return {**ref(kind), **described}


def _messages(param: Param) -> Schema:
    fields = {field.name: argument(field) for field in param.fields}
    long = closed(fields, required=[field.name for field in param.fields if field.required])
    short: list[Schema] = []
    for word, role in (("isend", "dst"), ("irecv", "src")):
        renamed = {"peer": role, "group_peer": f"group_{role}"}
        inner = {renamed.get(name, name): schema for name, schema in fields.items() if name != "op"}
        short.append(closed({word: closed(inner)}, required=[word]))
    listed: Schema = {"type": "array", "items": any_of(long, *short)}
    return {"anyOf": [listed, per_rank(listed)]}


def _group() -> Schema:
    common = {
        "timeout": {"description": "What a blocked operation on the group gets.", **ref("seconds")},
        "backend": {"description": "The backend, if another than the world's.", "type": "string"},
    }
    return {
        "description": "A list of ranks, an expression, or one of the long forms.",
        "anyOf": [
            {"type": "array", "items": any_of({"type": "integer"}, ref("expression"))},
            ref("expression"),
            closed(
                {
                    "ranks": {"description": "The members.", **ref("ranks")},
                    "sort_ranks": {
                        "description": "Sort the ranks, as torch does; true if left out.",
                        "type": "boolean",
                    },
                    **common,
                },
                required=["ranks"],
            ),
            closed(
                {
                    "partition": {
                        "description": "Lists of ranks; a rank's group is the one that holds it.",
                        "anyOf": [
                            {"type": "array", "items": ref("ranks")},
                            ref("expression"),
                        ],
                    },
                    **common,
                },
                required=["partition"],
            ),
            closed(
                {"size": {"description": "new_subgroups: ranks a group.", **ref("rank")}, **common},
                required=["size"],
            ),
            closed(
                {
                    "shape": {"description": "init_device_mesh: its sizes.", **ref("ranks")},
                    "dims": {
                        "description": "A name for each dimension: groups `mesh.dp`, `mesh.tp`.",
                        "type": "array",
                        "items": ref("name"),
                    },
                    **common,
                },
                required=["shape", "dims"],
            ),
        ],
    }
