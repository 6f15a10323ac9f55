"""The JSON Schema of scenario files: the keys, and what the operations declare.

It is the law: `load` validates every file against it (:mod:`torch_scenarios.language.validation`),
and an editor's YAML language server completes and explains every key from it.

    python -m torch_scenarios.language.schema > schemas/scenario.schema.json
"""

from __future__ import annotations

import inspect
import json
import sys
from typing import Any

import yaml

from torch_scenarios.expressions.params import Param
from torch_scenarios.language.keys import (
    ACTIONS,
    BESIDE,
    BESIDE_MESSAGE,
    BODY,
    BODY_PART,
    LIST,
    MAPPING,
    PEERS,
    REPEAT,
    TEXT,
    Schema,
    close,
    file,
    kind,
    lists,
    parts,
    per_rank,
    ref,
    require_any,
    when,
)
from torch_scenarios.operations import BY_NAME
from torch_scenarios.operations.base import Operation


def scenario_schema() -> Schema:
    """Return the schema of a scenario file, and of a file with `inputs:`."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **file(),
        "$defs": {**parts(), "step": step()},
    }


def scenario_schema_text() -> str:
    """Return the schema as the text of schemas/scenario.schema.json."""
    return json.dumps(scenario_schema(), indent=2, ensure_ascii=False) + "\n"


def step() -> Schema:
    """Return the part of one step: at most one action, and what stands beside it."""
    actions = {
        **{name: action(operation, name) for name, operation in BY_NAME.items()},
        **ACTIONS,
    }
    one = [{"required": [name]} for name in actions]
    return {
        "description": "At most one action, and the keys next to it.",
        "x-is": "step",
        **close({**BESIDE, BODY: BODY_PART, **actions}),
        "oneOf": [*one, {"required": ["expect"], "not": {"anyOf": one}}],
        "dependentRequired": {BODY: [REPEAT], REPEAT: [BODY]},
    }


def action(operation: Operation, name: str) -> Schema:
    """Return the part of an operation's arguments, under one of its names."""
    described: Schema = {"description": _describe(operation, name)}
    properties = {
        spelling: argument(param)
        for param in operation.params
        for spelling in (param.name, *param.aliases)
    }
    required = [param.name for param in operation.params if param.required and not param.aliases]
    any_spelling = [
        {"anyOf": [{"required": [spelling]} for spelling in (param.name, *param.aliases)]}
        for param in operation.params
        if param.required and param.aliases
    ]
    arguments = close(
        properties,
        **{"x-is": "arguments"},
        **({"required": required} if required else {}),
        **({"allOf": any_spelling} if any_spelling else {}),
    )
    whole = next((p for p in operation.params if p.name == operation.bare), None)
    if whole is not None:
        alone = require_any(whole.name, *whole.aliases)
        if whole.kind in {"assignments", "numbers"}:  # any name may be assigned to, also this one
            inside = {**MAPPING, "properties": {whole.name: MAPPING}, "maxProperties": 1}
            alone = {**alone, **inside}
        return {**described, **when((alone, arguments), otherwise=argument(whole))}
    listed = next((p for p in operation.params if p.kind == "p2p_ops"), None)
    if listed is not None:
        named = {**MAPPING, "not": {**MAPPING, "required": ["else"]}, **require_any(listed.name)}
        return {**described, **when((named, arguments), otherwise=argument(listed))}
    if required or any_spelling:
        return {**described, **arguments, "examples": _examples(operation)}
    return {**described, **when((kind("null"), {}), otherwise=arguments)}


def argument(param: Param) -> Schema:
    """Return the part of one argument: that of its kind, with its own description."""
    described: Schema = {"description": param.description}
    if param.default is not None:
        described["default"] = param.default
    match param.kind:
        case "name":
            return ref("new_name", **described)
        case "word":
            return {**described, **_words(param)}
        case "p2p_ops":
            return {**described, **_messages(param)}
        case name:
            return ref(name, **described)


def _words(param: Param) -> Schema:
    plain = ", ".join(word for word in param.words if word not in param.worded)
    one = {
        "title": f"one of {', '.join(param.words)}",
        "anyOf": [{"enum": list(param.words)}, {"type": "string"}],
    }
    if not param.worded:
        return when((MAPPING, per_rank(one)), otherwise=one)
    worded = close(
        {word: {**TEXT, "x-is": "words_of", "title": "some text"} for word in param.worded},
        **{"x-is": "worded", "title": f"`{{{param.worded[0]}: text}}`, or one word: {plain}"},
        maxProperties=1,
    )
    return when((require_any(*param.words), worded), (MAPPING, per_rank(one)), otherwise=one)


def _messages(param: Param) -> Schema:
    fields = {field.name: argument(field) for field in param.fields}
    required = [field.name for field in param.fields if field.required]
    short: list[tuple[Schema, Schema]] = []
    for word, role in PEERS.items():
        renamed = {"peer": role, "group_peer": f"group_{role}"}
        inner = {renamed.get(name, name): part for name, part in fields.items() if name != "op"}
        needed = [renamed.get(name, name) for name in required if name != "op"]
        arguments = close(inner, **{"x-is": "arguments"}, required=needed)
        message = close({word: arguments, **BESIDE_MESSAGE}, **{"x-is": "message"})
        short.append((require_any(word), message))
    item = when(
        *short,
        (MAPPING, close({**fields, **BESIDE_MESSAGE}, **{"x-is": "message"}, required=required)),
        otherwise=kind("object", title="`{op: isend, tensor: x, peer: 1}`"),
    )
    listed = lists(item)
    return when(
        (LIST, listed),
        (MAPPING, per_rank(listed)),
        otherwise=kind("array", title="a list of isend and irecv"),
    )


def _describe(operation: Operation, name: str) -> str:
    text = inspect.getdoc(type(operation)) or operation.name
    other = "" if name == operation.name else f"\n\nThe older name of `{operation.name}`."
    return f"{text}{other}\n\nSee {operation.source}."


def _examples(operation: Operation) -> list[Any]:
    """Return the operation's arguments as its own example has them, where it has one."""
    steps = (yaml.safe_load(operation.example) or {}).get("steps", ())
    return [step[operation.name] for step in steps if operation.name in step][:1]


if __name__ == "__main__":
    sys.stdout.write(scenario_schema_text())
