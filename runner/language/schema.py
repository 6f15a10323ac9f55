"""The JSON Schema of scenario files, derived from the operations and the keys."""

from __future__ import annotations

import inspect
import json
import sys
from typing import Any

import yaml

from runner.expressions.params import KINDS, Param
from runner.language.expectations import FINAL_KEYS
from runner.language.keys import BESIDE, INSERT, REPEAT
from runner.language.use import LIBRARY_KEYS
from runner.language.values import LONG_FORM, TOLERANCES
from runner.model.traits import KNOWN_BACKENDS
from runner.operations import OPERATIONS
from runner.operations.base import Operation
from runner.vocabulary import DIAGNOSES, DTYPES, OUTCOMES, RAISE_KINDS, REDUCE_OPS

# -------------------------------------------------------------------------------------------------
# The parts of the JSON Schema: values, selectors, expectations, and one part a kind of argument.
#
# A per-rank mapping may have any key, because a key may be an expression; what the keys mean is
# checked by the language itself. JSON knows only text as a key: `{0: [1, 2]}` is `{"0": [1, 2]}`.

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


def closed(properties: dict[str, Schema], **more: Any) -> Schema:
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
        "number_value": {
            "description": "A number, a list of numbers, an expression, or one for each rank.",
            "anyOf": [
                {"type": ["number", "boolean"]},
                ref("expression"),
                {
                    "type": "array",
                    "items": any_of({"type": ["number", "boolean"]}, ref("expression")),
                },
                per_rank(ref("number_value")),
            ],
        },
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


# -------------------------------------------------------------------------------------------------
# The JSON Schema of each kind of argument, and of a group.


def kinds() -> dict[str, Schema]:
    """Return `$defs` for every kind of argument, and for an entry of `groups:`."""
    return {**_arguments(), "group_spec": _group()}


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
    handle = any_of(ref("name"), {"type": "string", "pattern": r"^[A-Za-z_][A-Za-z0-9_]*\[.+\]$"})
    names = any_of(handle, {"type": "array", "items": handle})
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
        "held": any_of(ref("name"), per_rank(ref("name"))),
        "mesh": any_of(ref("name"), per_rank(ref("name"))),
        "placements": any_of(
            ref("expression"),
            {"type": "array", "items": ref("expression")},
            per_rank(ref("placements")),
        ),
        "numbers": {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": ref("number_value"),
            "examples": [{"up": "rank // 2", "kids": "[2 * rank + 1, 2 * rank + 2]"}],
        },
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
            words = dict.fromkeys(param.worded, TEXT)
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
    beside: dict[str, Schema] = {
        "ranks": {"description": "On which ranks it is there.", **ref("selector")},
        "for": {
            "description": "Repeats it; several variables nest in their order.",
            "type": "object",
            "minProperties": 1,
            "additionalProperties": ref("ranks"),
        },
    }
    required = [field.name for field in param.fields if field.required]
    long = closed({**fields, **beside}, required=required)
    short: list[Schema] = []
    for word, role in (("isend", "dst"), ("irecv", "src")):
        renamed = {"peer": role, "group_peer": f"group_{role}"}
        inner = {renamed.get(name, name): schema for name, schema in fields.items() if name != "op"}
        short.append(closed({word: closed(inner), **beside}, required=[word]))
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


# -------------------------------------------------------------------------------------------------
# The JSON Schema of a step, made from what the operations declare.


def step() -> Schema:
    """Return the schema of one step: at most one action, and what stands beside it."""
    actions = {
        **{
            name: _action(operation, name)
            for operation in OPERATIONS
            for name in (operation.name, *operation.aliases)
        },
        REPEAT: {
            "description": "Repeats `steps`; the variable is known inside. Several variables nest"
            " in their order.",
            "type": "object",
            "minProperties": 1,
            "additionalProperties": ref("ranks"),
            "examples": [{"i": "range(world_size - 1)"}, {"i": "range(2)", "j": "range(i)"}],
        },
        INSERT: _use(),
    }
    beside: dict[str, Schema] = {
        "name": {"description": "How reports and `blocked:` refer to the step; unique.", **TEXT},
        "ranks": {
            "description": "Who takes the step; every member of its group if left out.",
            **ref("selector"),
        },
        "as": {
            "description": "Names the work handle of an asynchronous step.",
            "type": "string",
            "examples": ["up", "up[t]"],
        },
        "at": {
            "description": "Where the step stands in the program that it was recorded from.",
            **any_of(TEXT, per_rank(TEXT)),
            "examples": ["train.py:19"],
        },
        "expect": ref("expectation"),
        "steps": {
            "description": "What `for` repeats.",
            "type": "array",
            "items": ref("step"),
            "minItems": 1,
        },
    }
    assert beside.keys() == {*BESIDE, "steps"}
    one = [{"required": [name]} for name in actions]
    return {
        "description": "At most one action, and what stands beside it.",
        **closed({**beside, **actions}),
        "oneOf": [*one, {"required": ["expect"], "not": {"anyOf": one}}],
        "dependentRequired": {"steps": [REPEAT], REPEAT: ["steps"]},
    }


def _use() -> Schema:
    return {
        "description": "Inserts the steps of another file, whose top says `inputs:`.",
        "anyOf": [
            closed(
                {
                    "file": {"description": "Relative to this file.", "type": "string"},
                    "with": {
                        "description": "A value for each of its inputs.",
                        "type": ["object", "null"],
                    },
                },
                required=["file"],
            ),
            {"type": "string"},
        ],
        "examples": [{"file": "ring_all_reduce.yaml", "with": {"tensor": "x"}}],
    }


def _action(operation: Operation, name: str) -> Schema:
    """Return the schema of an operation's arguments, under one of its names."""
    described: Schema = {"description": _described(operation, name)}
    properties = {
        spelling: argument(param)
        for param in operation.params
        for spelling in (param.name, *param.aliases)
    }
    demanded = [
        any_of(*({"required": [spelling]} for spelling in (param.name, *param.aliases)))
        for param in operation.params
        if param.required
    ]
    arguments = closed(properties, **({"allOf": demanded} if demanded else {}))
    whole = next((p for p in operation.params if p.name == operation.bare), None) or next(
        (p for p in operation.params if p.kind == "p2p_ops"), None
    )
    if whole is not None:
        return {**described, "anyOf": [argument(whole), arguments]}
    if demanded:
        return {**described, **arguments, "examples": _examples(operation)}
    return {**described, "anyOf": [arguments, NOTHING]}


def _described(operation: Operation, name: str) -> str:
    text = inspect.getdoc(type(operation)) or operation.name
    other = "" if name == operation.name else f"\n\nThe older name of `{operation.name}`."
    return f"{text}{other}\n\nSee {operation.source}."


def _examples(operation: Operation) -> list[Schema]:
    """Return the operation's arguments as its own example has them."""
    steps = yaml.safe_load(operation.example)["steps"]
    return [step[operation.name] for step in steps if operation.name in step][:1]


# -------------------------------------------------------------------------------------------------
# The JSON Schema of a scenario file, made from the operations' own declarations.
#
# An editor's YAML language server completes and explains every key from it. `load` does not
# validate against it: its own messages name the fault, where a schema can only say that none of
# forty alternatives fits. That both accept the same files is tested.
#
#     python -m runner.language.schema > schemas/scenario.schema.json


def scenario_schema() -> Schema:
    """Return the schema of a scenario file, and of a file with `inputs:`."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Scenario",
        "description": "A small distributed program, and what must come of it.",
        **closed(_top_level()),
        "required": ["steps"],
        "if": {"required": ["inputs"]},
        "then": {"propertyNames": {"enum": list(LIBRARY_KEYS)}},
        "else": {"required": ["world_size"]},
        "$defs": {
            **definitions(),
            **kinds(),
            "step": step(),
            "final": _final(),
            "constant": {
                "description": "A number, a list, a word, or an expression over parameters.",
                "type": ["number", "boolean", "string", "array", "null"],
            },
        },
    }


def scenario_schema_text() -> str:
    """Return the schema as the text of schemas/scenario.schema.json."""
    return json.dumps(scenario_schema(), indent=2, ensure_ascii=False) + "\n"


# ---------------------------------------------------------------------- the top level


def _top_level() -> dict[str, Schema]:
    return {**_about(), **_world(), **_program()}


def _about() -> dict[str, Schema]:
    return {
        "version": {
            "description": "The version of the language.",
            "const": 1,
            "default": 1,
        },
        "name": {
            "description": "The name in reports; the file's stem if left out.",
            **TEXT,
        },
        "description": {
            "description": "What a reader should learn from it.",
            "type": "string",
        },
        "tags": {
            "description": "Words to select by: `scenario run --tag tutorial`.",
            "anyOf": [{"type": "array", "items": TEXT}, {"type": "string"}],
            "examples": [["groups", "tutorial"]],
        },
        "backends": {
            "description": "Where the scenario is meaningful; every backend if left out.",
            "anyOf": [
                {"type": "array", "items": {"type": "string"}, "minItems": 1},
                {"type": "string"},
            ],
            "examples": [["gloo", "nccl"]],
        },
        "torch": {
            "description": "Versions of torch in which it is meaningful; UNSUPPORTED elsewhere.",
            **ref("versions"),
        },
    }


def _world() -> dict[str, Schema]:
    return {
        "world_size": {
            "description": "The number of ranks; an expression may use parameters.",
            "anyOf": [{"type": "integer", "minimum": 1}, {"type": "string"}],
            "examples": [2, 8, "2 * pairs"],
        },
        "parameters": {
            "description": "Named constants; `--set width=9` overrides one.",
            "anyOf": [{"type": "object", "additionalProperties": ref("constant")}, NOTHING],
            "examples": [{"width": 5}],
        },
        "matrix": {
            "description": "One case for each combination of these values.",
            "anyOf": [
                {
                    "type": "object",
                    "additionalProperties": {
                        "type": "array",
                        "items": ref("constant"),
                        "minItems": 1,
                    },
                },
                NOTHING,
            ],
            "examples": [{"dtype": ["float32", "int64"]}],
        },
        "timeout": {
            "description": "The process groups' timeout: what a blocked operation gets.",
            "default": "10s",
            **ref("duration"),
        },
        "debug": {
            "description": "TORCH_DISTRIBUTED_DEBUG for this scenario.",
            "anyOf": [{"enum": ["off", "info", "detail"]}, ref("name"), {"const": False}],
            "default": "off",
        },
    }


def _program() -> dict[str, Schema]:
    return {
        "groups": {
            "description": "Process groups, created in this order by every rank before step 1.",
            "anyOf": [{"type": "object", "additionalProperties": ref("group_spec")}, NOTHING],
            "examples": [{"even": "range(0, world_size, 2)"}],
        },
        "tensors": {
            "description": "What each rank holds before step 1.",
            "anyOf": [{"type": "object", "additionalProperties": ref("value")}, NOTHING],
            "examples": [{"x": "full(5, rank + 1)"}],
        },
        "objects": {
            "description": "Plain values for the object collectives; a string is a string.",
            "anyOf": [{"type": "object", "additionalProperties": ref("object_value")}, NOTHING],
            "examples": [{"names": ["ada", {"expr": "rank"}]}],
        },
        "inputs": {
            "description": "What a file that others `use` needs, in place of `world_size`.",
            "anyOf": [
                {"type": "array", "items": ref("name")},
                {
                    "type": "object",
                    "additionalProperties": any_of(
                        {"type": ["string", "null"]},
                        closed({"description": {"type": "string"}, "default": {}}),
                    ),
                },
            ],
            "examples": [["tensor", "group"]],
        },
        "steps": {
            "description": "The program: each rank takes, in order, the steps that select it.",
            "type": "array",
            "items": ref("step"),
            "minItems": 1,
        },
        "truncated": {
            "description": "Ranks whose program goes on beyond what is written; `all` of them.",
            **any_of(
                {"type": "integer", "minimum": 0},
                {
                    "type": "array",
                    "items": any_of({"type": "integer", "minimum": 0}, {"type": "string"}),
                },
                {"type": "string"},
            ),
            "examples": ["all", [1, 3]],
        },
        "expect": {
            "description": "What must come of the whole program.",
            **ref("final"),
        },
    }


def _final() -> Schema:
    texts = per_rank(TEXT)
    own: dict[str, Schema] = {
        "outcome": {
            "description": "How the whole program ends; of a list, any will do.",
            "anyOf": [ref("outcome"), {"type": "array", "items": ref("outcome")}],
            "default": "completes",
        },
        "blocked": {
            **texts,
            "description": "Which ranks are stuck for sure, each at which step.",
            "examples": [{"0": "send to 1", "1": "send to 0"}],
        },
        "diagnosis": {
            "description": "What the analysis must call it.",
            "anyOf": [ref("diagnosis"), {"type": "array", "items": ref("diagnosis")}],
        },
        "dies": {
            **texts,
            "description": "Which ranks' processes end, and how: a signal, or `exit 1`.",
            "examples": [{"1": "SIGABRT"}],
        },
        "within": {
            "description": "completes: for the whole scenario; deadlock: for the verdict.",
            **ref("duration"),
        },
        "elapsed": ref("elapsed"),
        "raises": ref("raises"),
    }
    assert own.keys() == set(FINAL_KEYS)
    backends = {
        name: {"description": f"What differs on {name}.", **ref("final")}
        for name in sorted(KNOWN_BACKENDS)
    }
    return {
        "description": "Outcome, diagnosis, values at the end, and what differs on a backend.",
        "type": "object",
        "properties": {**own, **backends},
        "patternProperties": {
            r"^(\S+ )?torch ?[<>=!]": {
                "description": "What differs on versions of torch; `gloo torch>=2.14`: both hold.",
                **ref("final"),
            }
        },
        "additionalProperties": any_of(ref("expected"), ref("final")),
    }


if __name__ == "__main__":
    sys.stdout.write(scenario_schema_text())
