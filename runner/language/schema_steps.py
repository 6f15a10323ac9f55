"""The JSON Schema of a step, made from what the operations declare."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import yaml

from runner.language.actions import BESIDE, INSERT, REPEAT
from runner.language.schema_kinds import argument
from runner.language.schema_parts import (
    NOTHING,
    TEXT,
    Schema,
    any_of,
    closed,
    ref,
)
from runner.operations import OPERATIONS

if TYPE_CHECKING:
    from runner.operations.base import Operation


def step() -> Schema:
    """Return the schema of one step: at most one action, and what stands beside it."""
    actions = {
        **{
            name: _action(operation, name)
            for operation in OPERATIONS
            for name in (operation.name, *operation.aliases)
        },
        REPEAT: {
            "description": "Repeats `steps`; the variable is known inside.",
            "type": "object",
            "minProperties": 1,
            "maxProperties": 1,
            "additionalProperties": ref("ranks"),
            "examples": [{"i": "range(world_size - 1)"}],
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
        "expect": ref("expectation"),
        "steps": {
            "description": "What `for` repeats.",
            "type": "array",
            "items": ref("step"),
            "minItems": 1,
        },
    }
    assert beside.keys() == {*BESIDE, "steps"}  # noqa: S101 -- a fault of this module
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
