"""The JSON Schema of each kind of argument, and of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.language.schema_parts import NOTHING, TEXT, Schema, any_of, closed, per_rank, ref
from runner.operations.params import KINDS
from runner.vocabulary import REDUCE_OPS

if TYPE_CHECKING:
    from runner.operations.params import Param


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
