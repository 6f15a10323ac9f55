"""The JSON Schema of a scenario file, made from the operations' own declarations.

An editor's YAML language server completes and explains every key from it. `load` does not
validate against it: its own messages name the fault, where a schema can only say that none of
forty alternatives fits. That both accept the same files is tested.

    python -m runner.language.schema > schemas/scenario.schema.json
"""

from __future__ import annotations

import json
import sys

from runner.language.expectations import FINAL_KEYS
from runner.language.inputs import LIBRARY_KEYS
from runner.language.schema_kinds import kinds
from runner.language.schema_parts import (
    NOTHING,
    TEXT,
    Schema,
    any_of,
    closed,
    definitions,
    per_rank,
    ref,
)
from runner.language.schema_steps import step
from runner.traits import KNOWN_BACKENDS


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
    assert own.keys() == set(FINAL_KEYS)  # noqa: S101 -- a fault of this module
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
