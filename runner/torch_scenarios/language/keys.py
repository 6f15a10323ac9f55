"""Every key of the language, once: what it is for, which values it takes, an example.

The parts are JSON Schema. What a key may hold is read from here alone: by the schema of an editor
(:mod:`torch_scenarios.language.schema`), by the check of a file
(:mod:`torch_scenarios.language.validation`), by the formatter (the order of a mapping's keys is
their order here) and by the pages of the reference. So a new key is one entry here, and the code
that reads its value.

Two annotations serve messages. `title` is what is wanted: "cannot be a list; write *an integer or
an expression*". `x-is` names what stands at this place; the table of
`torch_scenarios.language.validation` says by it what is wrong, where the words for every place
would say too little.

JSON knows only text as a key: `{0: [1, 2]}` is `{"0": [1, 2]}`. A per-rank mapping may have any
key, because a key may be an expression; what it selects is for the readers.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from torch_scenarios.expressions.params import KINDS
from torch_scenarios.model.needs import CAPABILITIES
from torch_scenarios.model.traits import KNOWN_BACKENDS
from torch_scenarios.vocabulary import (
    BACKENDS,
    DIAGNOSES,
    DTYPES,
    OUTCOMES,
    RAISE_KINDS,
    REDUCE_OPS,
    WORLD,
)

Schema = dict[str, Any]

VERSION = 1

#: the rest of a mapping by rank
ELSE = "else"
#: in `expect`: what a rank held before
UNCHANGED = "unchanged"
#: in `raises`: nothing
NO_ERROR = "none"
#: actions of a step that are no operations, and the key that goes with the first
REPEAT, INSERT, BODY = "for", "use", "steps"
#: `{isend: {tensor: x, dst: 1}}` is short for a P2POp: the operation, and how it calls its peer
PEERS = {"isend": "dst", "irecv": "src"}
#: in `objects:`, what is computed on each rank
COMPUTED = "expr"
#: `wait: {handle: f, output: x}` of what `rpc_async` started
HANDLE = "handle"
#: the reduce op that has a factor
PREMUL_SUM = "premul_sum"

# -------------------------------------------------------------------------------------------------
# How parts are put together. A value of several forms is recognised by what it is (`when`),
# not tried in turn (`anyOf`): what is wrong is then wrong with the one form that was meant.


def ref(name: str, **more: Any) -> Schema:
    """Refer to a part by its name: JSON Schema's `$ref` into `$defs`.

    What is written beside `$ref` (a description, an `x-is`) is of this place alone. Since draft
    2019-09 that is allowed; in draft 7 and before, neighbours of `$ref` were ignored.

    >>> ref("integer", description="The members.")
    {'description': 'The members.', '$ref': '#/$defs/integer'}
    """
    return {**more, "$ref": f"#/$defs/{name}"}


def choose_case(*cases: tuple[Schema, Schema], otherwise: Schema) -> Schema:
    """Describe a value by the first case that it is: nested `if`, `then`, `else`.

    With `anyOf` a misspelt key of a long form would be reported once for each form, as not a
    number, not a list and not a mapping by rank. With `if` the form is chosen first, and only what
    is wrong with that form is reported.

    >>> choose_case((MAPPING, ref("bounds")), otherwise=kind("number"))
    {'if': {'type': 'object'}, 'then': {'$ref': '#/$defs/bounds'}, 'else': {'type': 'number'}}
    """
    made = otherwise
    for test, part in reversed(cases):
        made = {"if": test, "then": part, "else": made}
    return made


def require_any(*keys: str) -> Schema:
    """Test for a mapping with one of some keys: what tells a long form from a mapping by rank.

    >>> require_any("inputs")
    {'type': 'object', 'required': ['inputs']}
    """
    one = [{"required": [key]} for key in keys]
    return {"type": "object", **(one[0] if len(one) == 1 else {"anyOf": one})}


def close(properties: dict[str, Schema], **more: Any) -> Schema:
    """Describe a mapping that has no other keys, so that a misspelt key never passes.

    `additionalProperties` sees only the `properties` that stand in the same object of the schema,
    not those behind a `$ref` or an `allOf`. So all keys of a mapping are given here at once.
    """
    return {**more, "type": "object", "properties": properties, "additionalProperties": False}


def describe_per_rank(inner: Schema) -> Schema:
    """Describe a mapping from selectors to `inner`: `{0: [1, 2], "rank > 3": [3, 4], else: 0}`.

    Any key fits: whether it selects ranks is known only where the names of the file are.
    """
    return {
        "description": "For each rank: the first key that selects it wins; `else` is the rest.",
        "x-is": "per_rank",
        "type": "object",
        "minProperties": 1,
        "additionalProperties": inner,
    }


def or_per_rank(name: str, part: Schema, title: str) -> Schema:
    """Describe a value, or one for each rank: `name` is what the whole is called.

    The values of the mapping are `name` again, so that mappings by rank may nest: an input of a
    used file may itself be given by rank, and stand below a rank there.
    """
    return choose_case((MAPPING, describe_per_rank(ref(name))), otherwise={"title": title, **part})


def lists(part: Schema, **more: Any) -> Schema:
    """Describe a list."""
    return {**more, "type": "array", "items": part}


def kind(*types: str, **more: Any) -> Schema:
    """Describe a value of one of JSON's types, or of several.

    >>> kind("number", "string", title="a number or an expression")
    {'title': 'a number or an expression', 'type': ['number', 'string']}
    """
    return {**more, "type": types[0] if len(types) == 1 else list(types)}


MAPPING = kind("object")
LIST = kind("array")
TEXT = kind("string", "number", "boolean", title="text")
WORD = kind("string", title="a name")


def word(words: Collection[str], title: str) -> Schema:
    """Describe a fixed word; the name of a parameter that holds one will do.

    So any text fits, and `enum` is there for editors, which complete it. A word that is neither is
    found by :func:`torch_scenarios.language.values.read_fixed`, which knows the parameters.

    >>> word(("sum", "max"), "a reduce op")["anyOf"]
    [{'enum': ['sum', 'max']}, {'type': 'string'}]
    """
    return {"title": title, "anyOf": [{"enum": list(words)}, {"type": "string"}]}


def or_listed(part: Schema) -> Schema:
    """Describe a value, or a list of some: `outcome: [completes, deadlock]`."""
    return choose_case((LIST, lists(part, minItems=1)), otherwise=part)


# -------------------------------------------------------------------------------------------------
# Values, selectors and words: what stands below keys of many sorts.

#: the keys of a value's long form; a mapping with one of them is no mapping by rank
LONG_FORM: dict[str, Schema] = {
    "value": ref("value", description="The numbers."),
    "dtype": ref("dtype"),
    "shape": ref("shape", description="The sizes."),
}
#: keys that the long form has besides in `expect`
TOLERANCES: dict[str, Schema] = {
    "rtol": ref("tolerance", description="The relative tolerance."),
    "atol": ref("tolerance", description="The absolute tolerance."),
}
#: and how a distributed tensor lies: the value is then what the rank itself holds
LOCAL: dict[str, Schema] = {
    "placements": ref(
        "placements",
        description="How it lies on its mesh; the rest is what the rank itself holds.",
        examples=[["Shard(0)"]],
    ),
}
_LONG = require_any(*LONG_FORM, *TOLERANCES)
_LONG_EXPECTED = require_any(*LONG_FORM, *TOLERANCES, *LOCAL)


def values() -> dict[str, Schema]:
    """Return the parts of values: what a rank holds, of which dtype and shape, and which ranks do.

    A string is an expression wherever a number or a list may be. Lists of numbers are not described
    item by item: a literal of 10,000 numbers would be looked at 10,000 times by the schema, and its
    reader counts and checks them anyway.
    """
    numbers = "a number, a list, an expression, or one of these for each rank"
    return {
        "expression": kind(
            "string",
            title="an expression",
            description="An expression, computed on each rank, in Python's syntax.",
            examples=["full(5, rank + 1)", "x[0:2]", "range(0, world_size, 2)"],
        ),
        "value": {
            "description": "A number or a nested list (float32), an expression, the long form"
            " with a dtype, or one of these for each rank.",
            **choose_case(
                (_LONG, ref("long_form")),
                (MAPPING, describe_per_rank(ref("value"))),
                otherwise=kind(
                    *("number", "boolean", "null", "string", "array"),
                    title=numbers,
                    items=ref("value"),
                ),
            ),
            "examples": [[1, 2, 3], "full(5, rank + 1)", {"0": [1, 2], ELSE: [0, 0]}],
        },
        "long_form": close(
            LONG_FORM,
            **{"description": "A value with its dtype and shape.", "x-is": "long_form"},
            required=["value"],
            examples=[{"dtype": "bfloat16", "value": [1, 2]}],
        ),
        "number_value": or_per_rank(
            "number_value",
            kind(
                *("number", "boolean", "string", "array"),
                items=kind("number", "boolean", "string", title="a number or an expression"),
            ),
            "a number, a list of numbers or an expression",
        ),
        "object_value": {
            "description": "A plain YAML value; `{expr: ...}` in it is computed on each rank, and"
            " a mapping with `else`, or only ranks as keys, is one value for each rank.",
            "if": {**require_any(COMPUTED), "maxProperties": 1},
            "then": {"properties": {COMPUTED: kind("string", title="an expression")}},
            "else": {"items": ref("object_value"), "additionalProperties": ref("object_value")},
        },
        "dtype": {
            "description": "The type of each element, by torch's name.",
            **or_per_rank(
                "dtype",
                {"anyOf": [{"enum": [*DTYPES, None]}, {"type": "string"}]},
                "a dtype such as int64",
            ),
        },
        "tolerance": choose_case(
            (kind("number"), {"minimum": 0, "x-is": "tolerance"}),
            otherwise=kind("string", title="a number such as 1e-3"),
        ),
        "duration": {
            "description": "A duration; a bare number is in seconds.",
            "examples": ["10s", "0.5s", "200ms", "2min"],
            **choose_case(
                (kind("number"), {"minimum": 0, "x-is": "duration"}),
                otherwise=kind("string", title="a duration such as 1.5s or 200ms"),
            ),
        },
        "selector": kind(
            *("integer", "boolean", "string", "array"),
            description="Which ranks: a rank, a list of ranks, a group, or an expression.",
            title="a rank, a list of ranks or an expression",
            items=ref("integer"),
            examples=[0, [0, 3], "rank % 2 == 0", "even"],
        ),
        "integer": or_per_rank(
            "integer", kind("integer", "string", "null"), "an integer or an expression"
        ),
        "integers": or_per_rank(
            "integers",
            kind("array", "string", "null", items=ref("integer")),
            "a list of integers or an expression",
        ),
        "shape": or_per_rank(
            "shape",
            kind("array", "integer", "string", "null", items=ref("integer")),
            "a list of integers or an expression",
        ),
        "constant": kind(
            *("number", "boolean", "string", "array", "null"),
            description="A number, a list, a word, or an expression over parameters.",
            title="a number, a list or a word",
            items=ref("constant"),
        ),
    }


def arguments() -> dict[str, Schema]:
    """Return the part of each kind of argument that an operation declares.

    The keys are those of :data:`torch_scenarios.expressions.params.KINDS`: an operation says `kind:
    "rank"` of its parameter `dst`, and the schema of its step follows from here. `null` fits where
    torch takes None: `scatter_list` off the source, `group` for the world.
    """
    tensors = kind("array", "string", "null", title="a list", items=ref("value"))
    lists_ = kind("array", "string", "null", title="a list", items=ref("tensors"))
    parts: dict[str, Schema] = {
        "tensor": ref("value"),
        "tensors": or_per_rank("tensors", tensors, "a list"),
        "tensor_lists": or_per_rank("tensor_lists", lists_, "a list"),
        "rank": ref("integer"),
        "group_rank": ref("integer"),
        "tag": ref("integer"),
        "group": {
            "x-is": "group_name",
            "x-words": [WORLD],
            **or_per_rank("group", kind("string", "null"), "the name of a group"),
        },
        "reduce_op": choose_case(
            (
                require_any(PREMUL_SUM),
                close(
                    {PREMUL_SUM: kind("number", "string", title="a factor")},
                    maxProperties=1,
                ),
            ),
            (MAPPING, describe_per_rank(ref("reduce_op"))),
            otherwise={
                "title": f"one of {', '.join(REDUCE_OPS)}",
                "x-is": "reduce_op",
                "anyOf": [{"enum": [*REDUCE_OPS, None]}, {"type": "string"}],
            },
        ),
        "sizes": ref("integers"),
        "ranks": ref("integers"),
        "flag": or_per_rank("flag", kind("boolean", "string"), "true or false"),
        "seconds": choose_case(
            (MAPPING, describe_per_rank(ref("seconds"))),
            (kind("null"), {}),
            otherwise=ref("duration"),
        ),
        "objects": ref("object_value"),
        "object": ref("object_value"),
        "handles": choose_case(
            (
                require_any(HANDLE),
                close(
                    {HANDLE: ref("handle"), "output": kind("string", title="a name")},
                    required=[HANDLE],
                ),
            ),
            otherwise=or_per_rank(
                "handles", or_listed(ref("handle")), "the name of a work handle, or a list of them"
            ),
        ),
        "reference": ref("handle"),
        "function": {
            **kind("string", title="the name of a function in `functions:`"),
        },
        "text": kind("string", "number", "boolean", "null", title="text"),
        "held": or_per_rank("held", kind("string"), "the name of a tensor"),
        "mesh": or_per_rank("mesh", kind("string"), "the name of a device mesh"),
        "model": kind("string", title="the name of a model"),
        "checkpoint": kind("string", title="the name of a checkpoint"),
        "batch": kind("string", "object", title="a group, or a mapping with `group`"),
        "labels": or_per_rank(
            "labels", kind("array", "string", items=kind("string")), "a list of labels"
        ),
        "number": kind("number", "string", title="a number"),
        "clip": choose_case(
            (
                MAPPING,
                close(
                    {
                        "max": kind("number", "string", title="a number"),
                        "over": {"title": "`local`", "enum": ["local"]},
                    },
                    title="`{max: 1.0, over: local}`",
                    required=["max"],
                ),
            ),
            otherwise=kind("number", "string", "null", title="a number"),
        ),
        "placements": or_per_rank(
            "placements",
            kind(
                *("array", "string"),
                items=kind("string", title="`Shard(0)`, `Replicate()` or another"),
            ),
            "a list such as `[Shard(0), Replicate()]`",
        ),
        "numbers": {
            **kind("object", title="a mapping from names to numbers"),
            "x-is": "numbers",
            "minProperties": 1,
            "additionalProperties": {"x-is": "number", **ref("number_value")},
            "examples": [{"up": "rank // 2", "kids": "[2 * rank + 1, 2 * rank + 2]"}],
        },
        "assignments": {
            **kind("object", title="a mapping from names to values"),
            "additionalProperties": ref("value"),
            "examples": [{"y": "exp(x - m)"}],
        },
    }
    return {
        name: {**part, "description": f"{KINDS[name][0].upper()}{KINDS[name][1:]}."}
        for name, part in parts.items()
    }


# -------------------------------------------------------------------------------------------------
# Expectations.

#: what a rank holds of a model, in the order in which it is counted
MEMORY = ("parameters", "gradients", "optimizer")

#: keys of `expect` beside a step that are no names
STEP_EXPECT: dict[str, Schema] = {
    "elapsed": ref("elapsed"),
    "raises": ref("raises"),
}

#: keys of the `expect` at the top level that are no names
FINAL_EXPECT: dict[str, Schema] = {
    "outcome": {
        "description": "How the whole program ends; of a list, any will do.",
        **or_listed(ref("outcome")),
        "default": "completes",
    },
    "blocked": {
        "description": "Which ranks are stuck for sure, each at which step.",
        "examples": [{"0": "send to 1", "1": "send to 0"}],
        **choose_case(
            (MAPPING, describe_per_rank(ref("step_name", **{"x-is": "blocked_at"}))),
            otherwise=kind("object", title="a mapping from ranks, such as {0: send to 1}"),
        ),
    },
    "diagnosis": {
        "description": "What the analysis must call it.",
        **or_listed(ref("diagnosis")),
    },
    "dies": {
        "description": "Which ranks' processes end, and how: a signal, or `exit 1`.",
        "examples": [{"1": "SIGABRT"}],
        **choose_case(
            (
                MAPPING,
                describe_per_rank({**TEXT, "x-words": ["SIGABRT", "SIGKILL", "SIGSEGV", "exit 1"]}),
            ),
            otherwise=kind("object", title="a mapping from ranks, such as {1: SIGABRT}"),
        ),
    },
    "within": {
        "description": "completes: for the whole scenario; deadlock: for the verdict.",
        **ref("duration"),
    },
    "communicates": {
        "description": "The calls of a model's steps, `[call, dtype, numel]`, in order.",
        **kind("object", title="a mapping from the names of models"),
        "examples": [{"net": [["all_reduce", "float32", 58]]}],
    },
    "memory": {
        "description": "The bytes that a rank holds of a model, at rest.",
        **kind("object", title="a mapping from the names of models"),
        "additionalProperties": close({word: ref("expected") for word in MEMORY}, minProperties=1),
        "examples": [{"net": {"parameters": 232, "gradients": 232, "optimizer": 480}}],
    },
    "cost": ref("cost"),
    **STEP_EXPECT,
}


def _count_parts() -> dict[str, Schema]:
    """Return the parts of what a program costs on any machine: numbers, and bounds of them."""
    return {
        "amount": {
            "description": "A number, an expression over parameters, or bounds.",
            **choose_case(
                (
                    MAPPING,
                    close(
                        {"min": ref("count_of"), "max": ref("count_of")},
                        title="`{min: 3, max: 5}`",
                        minProperties=1,
                    ),
                ),
                otherwise=ref("count_of"),
            ),
        },
        "count_of": kind("number", "string", title="a number or an expression", minimum=0),
        "cost": close(
            {
                "rounds": ref("amount", description="The longest chain of messages."),
                "messages": ref("amount", description="How many messages there are."),
                "sent": {
                    "description": "The most bytes that one rank sends, or those of each rank.",
                    **choose_case(
                        (require_any("min", "max"), ref("amount")),
                        (MAPPING, describe_per_rank(ref("amount"))),
                        otherwise=ref("amount"),
                    ),
                },
                "time": close(
                    {
                        "min": ref("duration"),
                        "max": ref("duration"),
                        "on": {"description": "The name of a topology.", **TEXT},
                    },
                    description="A forecast of time on a topology.",
                    title="`{max: 60us, on: TOPOLOGY}`",
                    required=["on"],
                    minProperties=2,
                ),
            },
            description="What the program costs on any machine: its structure.",
            title='`{rounds: "2 * (n - 1)"}`',
            minProperties=1,
            examples=[{"rounds": "2 * (n - 1)", "messages": "2 * n * (n - 1)"}],
        ),
    }


def _time_parts() -> dict[str, Schema]:
    """Return the parts of when a step is done."""
    return {
        "elapsed": {
            "description": "Seconds since the scenario began, on that rank.",
            **choose_case(
                ({**MAPPING, "additionalProperties": {"not": MAPPING}}, ref("bounds")),
                (MAPPING, describe_per_rank(ref("bounds"))),
                otherwise=kind("object", title="`{min: 0.3s, max: 2s}`"),
            ),
        },
        "bounds": close(
            {"min": ref("bound"), "max": ref("bound")},
            **{"x-is": "bounds", "title": "`{min: 0.3s, max: 2s}`"},
        ),
        "bound": {"x-is": "bound", "not": {"type": "null"}, **ref("seconds")},
    }


def expectations() -> dict[str, Schema]:
    """Return the parts of what `expect` says, beside a step and at the end.

    What differs on a backend is a mapping below its name, `nccl: {outcome: completes}`. A name of a
    tensor may have a mapping below it as well, by rank: so a mapping below an unknown name is such
    a section only where it has one of the keys of an expectation at the end.
    """
    kinds = (*RAISE_KINDS, NO_ERROR)
    of_kinds = {**MAPPING, "propertyNames": {"enum": list(kinds)}, "minProperties": 1}
    with_words = close(
        {name: {"x-is": "message_part", **TEXT} for name in kinds},
        **{"description": "A kind, with a part of the backend's own message.", "x-is": "raised"},
        minProperties=1,
        maxProperties=1,
    )
    spec = choose_case(
        (MAPPING, with_words),
        (LIST, lists(ref("kind_of_error"), minItems=1, **{"x-is": "raised"})),
        otherwise=ref("kind_of_error"),
    )
    section = choose_case((MAPPING, ref("section")), otherwise=ref("expected"))
    backends = {
        name: {"description": f"What differs on {name}.", **section}
        for name in sorted(KNOWN_BACKENDS)
    }
    by_version = {
        "description": "What differs on versions of torch; `gloo torch>=2.14`: both hold.",
        **section,
    }
    return {
        "outcome": {"description": "How a program ends.", **word(OUTCOMES, "an outcome")},
        "diagnosis": {
            "description": "What is wrong with a program.",
            **word(DIAGNOSES, "a diagnosis"),
        },
        "kind_of_error": {
            "description": "A kind of error, under any backend.",
            **word(RAISE_KINDS, "a kind of error"),
        },
        "expected": {
            "description": "What it must be: a value, `unchanged`, only a dtype or shape, or one"
            " of these for each rank.",
            **choose_case(
                (_LONG_EXPECTED, ref("expected_long_form")),
                (MAPPING, describe_per_rank(ref("expected"))),
                otherwise=kind(
                    *("number", "boolean", "string", "array"),
                    title=f"a value, or `{UNCHANGED}`",
                    **{"x-is": "expected"},
                ),
            ),
        },
        "expected_long_form": close({**LOCAL, **LONG_FORM, **TOLERANCES}, **{"x-is": "long_form"}),
        **_count_parts(),
        **_time_parts(),
        "raises": {
            "description": "What the step raises on the ranks that take it; `none` is nothing.",
            **choose_case((of_kinds, spec), (MAPPING, describe_per_rank(spec)), otherwise=spec),
            "examples": ["timeout", {"0": "timeout", ELSE: "none"}, ["timeout", "peer_lost"]],
        },
        "expectation": {
            "description": "What holds right after the step, on every rank that took it: names,"
            " or expressions, and what each must be.",
            **kind("object", title="a mapping from names to values"),
            "properties": STEP_EXPECT,
            "additionalProperties": ref("expected"),
        },
        "section": {
            "description": "What differs on a backend, or on versions of torch.",
            **kind("object", title="a mapping"),
            "x-is": "section",
            "properties": FINAL_EXPECT,
            "additionalProperties": ref("expected"),
        },
        "final": {
            "description": "Outcome, diagnosis, values at the end, and what differs on a backend.",
            **kind("object", title="a mapping"),
            "properties": {**FINAL_EXPECT, **backends},
            "patternProperties": {r"^(\S+ )?torch ?[<>=!]": by_version},
            "additionalProperties": choose_case(
                (require_any(*FINAL_EXPECT), ref("section")), otherwise=ref("expected")
            ),
        },
    }


# -------------------------------------------------------------------------------------------------
# A step: what stands beside its action. The actions follow from the operations.

BESIDE: dict[str, Schema] = {
    "name": ref("step_name", description="How reports and `blocked:` refer to the step; unique."),
    "ranks": ref(
        "selector", description="Who takes the step; every member of its group if left out."
    ),
    "as": ref(
        "handle",
        description="Names the work handle of an asynchronous step.",
        examples=["up", "up[t]"],
    ),
    "at": {
        "description": "Where the step is in the program that it was recorded from.",
        **choose_case(
            (MAPPING, describe_per_rank(ref("recorded_at"))), otherwise=ref("recorded_at")
        ),
        "examples": ["train.py:19"],
    },
    "expect": ref("expectation"),
}

#: stands for any action in the order of a step's keys
ACTION = ""
#: the order of the keys of a step
STEP_ORDER = ("name", REPEAT, "ranks", ACTION, BODY, "as", "at", "expect")

#: what a part says of its place
_ABOUT = {"description", "examples"}

#: what `for` repeats
BODY_PART = lists(
    ref("step"),
    **{"description": "What `for` repeats.", "x-is": "body", "title": "a list of steps"},
    minItems=1,
)

#: actions that are no operations
ACTIONS: dict[str, Schema] = {
    REPEAT: {
        "description": "Repeats `steps`; the variable is known inside. Several variables nest in"
        " their order.",
        **kind("object", title='`for: {i: "range(3)"}`'),
        "x-is": "loop",
        "minProperties": 1,
        "additionalProperties": {"x-is": "loop_values", **ref("loop_values")},
        "examples": [{"i": "range(world_size - 1)"}, {"i": "range(2)", "j": "range(i)"}],
    },
    INSERT: {
        "description": "Inserts the steps of another file, whose top says `inputs:`.",
        **choose_case(
            (
                MAPPING,
                close(
                    {
                        "file": kind("string", description="Relative to this file.", title="text"),
                        "with": kind(
                            "object",
                            "null",
                            description="A value for each of its inputs.",
                            title="a mapping from inputs to values",
                        ),
                    },
                    required=["file"],
                    **{"x-is": "use"},
                ),
            ),
            otherwise=kind("string", title="`{file: other.yaml, with: {x: x}}`"),
        ),
        "examples": [{"file": "ring_all_reduce.yaml", "with": {"tensor": "x"}}],
    },
}


#: keys beside the arguments of one message of a batch
BESIDE_MESSAGE: dict[str, Schema] = {
    "ranks": ref("selector", description="On which ranks it is there."),
    REPEAT: {
        "description": "Repeats it; several variables nest in their order.",
        **{name: part for name, part in ACTIONS[REPEAT].items() if name not in _ABOUT},
    },
}


def step_parts() -> dict[str, Schema]:
    """Return the parts that only steps refer to.

    A step's name may be any text, a number too: `name: 1` is the name `1`.
    """
    return {
        "step_name": {
            **kind("string", "number", "boolean", title="text"),
            "pattern": r"\S",
        },
        "recorded_at": kind(
            "string", pattern=r"\S", title="a place of that program, as `train.py:19`"
        ),
        "loop_values": or_per_rank(
            "loop_values",
            kind("array", "string", items=ref("integer")),
            "a list of integers or an expression",
        ),
    }


# -------------------------------------------------------------------------------------------------
# An entry of `groups:`.

#: which key decides the form of a group, and which may stand beside it
GROUP_FORMS = ("ranks", "partition", "size", "shape")

GROUP: dict[str, Schema] = {
    "ranks": ref("integers", description="The members."),
    "sort_ranks": kind(
        "boolean",
        title="true or false",
        description="Sort the ranks, as torch does; true if left out.",
    ),
    "partition": kind(
        *("array", "string"),
        title="a list of lists of ranks",
        description="Lists of ranks; a rank's group is the one that holds it.",
        items=ref("integers"),
    ),
    "size": ref("integer", description="new_subgroups: ranks a group."),
    "shape": ref("integers", description="init_device_mesh: its sizes."),
    "dims": {
        "description": "A name for each dimension: groups `mesh.dp`, `mesh.tp`.",
        "x-is": "dimensions",
        **or_listed(kind("string", title="a name")),
    },
    "flatten": kind(
        "string",
        title="a name",
        description="`mesh._flatten(name)`: torch knows all dimensions as one as well.",
        minLength=1,
    ),
    "timeout": ref("duration", description="What a blocked operation on the group gets."),
    "backend": kind(
        "string",
        title="a name such as gloo",
        description="The backend, if another than the world's.",
        minLength=1,
        **{"x-words": list(BACKENDS)},
    ),
}


#: the keys of an entry of `functions:`
FUNCTION: dict[str, Schema] = {
    "arguments": lists(WORD, description="The names of what it is given.", title="a list of names"),
    "sets": {
        "description": "What it stores into tensors of the rank that is called, in order.",
        **ref("assignments"),
    },
    "returns": ref("value", description="What the caller gets, computed after `sets`: a copy."),
    "takes": ref("duration", description="How long it sleeps before `sets`."),
}


def group() -> Schema:
    """Return the part of an entry of `groups:`.

    A list or an expression is `dist.new_group(ranks)`. The long forms are torch's other ways to
    make groups: `partition` is `new_subgroups_by_enumeration`, `size` is
    `new_subgroups(group_size)`, `shape` with `dims` is `init_device_mesh(device, shape,
    mesh_dim_names=dims)`.
    """
    long_form = close(
        GROUP,
        **{"x-is": "group"},
        oneOf=[{"required": [form]} for form in GROUP_FORMS],
        dependentRequired={
            "shape": ["dims"],
            "dims": ["shape"],
            "sort_ranks": ["ranks"],
            "flatten": ["shape"],
        },
    )
    return {
        "description": "A list of ranks, an expression, or one of the long forms.",
        "x-is": "group",
        **choose_case(
            (MAPPING, long_form),
            otherwise=kind(
                *("array", "string"),
                title="a list of integers or an expression",
                items=ref("integer"),
                **{"x-is": "group"},
            ),
        ),
    }


# -------------------------------------------------------------------------------------------------
# The top of a file.


def _name_values(description: str, part: Schema, examples: list[Any]) -> Schema:
    """Describe a section of the file that gives names to values; it may be empty."""
    return {
        "description": description,
        **kind("object", "null", title="a mapping from names to values"),
        "additionalProperties": part,
        "examples": examples,
    }


#: a name of a table with its arguments, or the name alone
_NAMED = kind(
    *("string", "object"),
    title="a name with its arguments: `{SGD: {lr: 0.1}}`",
    minProperties=1,
    maxProperties=1,
)

#: the keys of a model
MODEL: dict[str, Schema] = {
    "layers": lists(
        kind("object", title="`label: {Class: {arguments}}`", minProperties=1, maxProperties=1),
        description="`label: {Class: {arguments}}`, in order.",
        title="a list of layers",
        minItems=1,
    ),
    "init": {
        "description": "Weights, by the names of parameters; small random numbers else.",
        **kind("object", title="a mapping from parameters to values"),
        "additionalProperties": ref("value"),
    },
    "loss": {"description": "A function of torch.nn.functional.", **_NAMED},
    "optimizer": {"description": "A class of torch.optim.", **_NAMED},
    "parallel": {
        "description": "Strategies, applied in order, or the name of a list of them.",
        **kind("string", "array", "null", title="a list of strategies", items=_NAMED),
    },
    "oracle": close(
        {"loss": _NAMED, "optimizer": _NAMED},
        description="What one process uses in place of the model's own.",
    ),
}


TOP: dict[str, Schema] = {
    "version": {
        "description": "The version of the language.",
        "title": f"a number such as {VERSION}",
        "const": VERSION,
        "default": VERSION,
    },
    "name": ref("words", description="The name in reports; the file's stem if left out."),
    "description": ref("words", description="What a reader should learn from it."),
    "tags": {
        "description": "Words to select by: `scenario run --tag tutorial`.",
        **choose_case(
            (LIST, lists({"x-is": "tag", **TEXT})),
            otherwise={"x-is": "tag", **TEXT},
        ),
        "examples": [["groups", "tutorial"]],
    },
    "inputs": {
        "description": "What a file that others `use` needs, in place of `world_size`.",
        "title": "a list of names, or a mapping",
        **choose_case(
            (
                MAPPING,
                {
                    "additionalProperties": choose_case(
                        (
                            MAPPING,
                            close({"description": {}, "default": {}}, **{"x-is": "input"}),
                        ),
                        otherwise={},
                    )
                },
            ),
            otherwise={"type": "array", "title": "a list of names, or a mapping"},
        ),
        "examples": [["tensor", "group"]],
    },
    "world_size": {
        "description": "The number of ranks; an expression may use parameters.",
        "x-is": "world_size",
        **choose_case(
            (kind("integer"), {"minimum": 1, "x-is": "world_size"}),
            otherwise=kind("string", title="a number", **{"x-is": "world_size"}),
        ),
        "examples": [2, 8, "2 * pairs"],
    },
    "parameters": _name_values(
        "Named constants; `--set width=9` overrides one.",
        {"x-is": "parameter", **ref("constant")},
        [{"width": 5}],
    ),
    "matrix": _name_values(
        "One case for each combination of these values.",
        lists(ref("constant"), minItems=1, **{"x-is": "matrix_key", "title": "a list of values"}),
        [{"dtype": ["float32", "int64"]}],
    ),
    "cases": lists(
        {
            **kind("object", title="`{op: sum, want: 6}`"),
            "x-is": "case",
            "minProperties": 1,
            "additionalProperties": {"x-is": "parameter", **ref("constant")},
        },
        description="One case for each mapping: parameters that belong together.",
        **{"title": "a list of mappings", "x-is": "cases"},
        examples=[[{"op": "sum", "want": 6}, {"op": "max", "want": 3}]],
        minItems=1,
    ),
    "backends": {
        "description": "Where the scenario is meaningful; every backend if left out.",
        "x-is": "backends",
        **choose_case(
            (LIST, lists(ref("backend"), minItems=1, **{"x-is": "backends"})),
            otherwise=ref("backend"),
        ),
        "examples": [["gloo", "nccl"]],
    },
    "needs": {
        "description": "What of torch's semantics it uses, where the analysis cannot tell.",
        **lists(ref("need"), minItems=1, **{"x-is": "needs"}),
        "examples": [["timeouts"]],
    },
    "torch": {
        "description": "Versions of torch in which it is meaningful; UNSUPPORTED elsewhere.",
        "x-is": "versions",
        "type": "string",
        "pattern": r"^\s*(>=|<=|==|!=|>|<)\s*[0-9.]+(\s*,\s*(>=|<=|==|!=|>|<)\s*[0-9.]+)*\s*$",
        "examples": [">=2.7", ">=2.7, <2.14"],
    },
    "timeout": {
        "description": "The process groups' timeout: what a blocked operation gets.",
        "default": "10s",
        **ref("duration"),
    },
    "debug": {
        "description": "TORCH_DISTRIBUTED_DEBUG for this scenario.",
        "title": "off, info or detail",
        "anyOf": [{"enum": ["off", "info", "detail", False]}, {"type": "string"}],
        "default": "off",
    },
    "groups": {
        **_name_values(
            "Process groups, created in this order by every rank before step 1.",
            ref("group_spec"),
            [{"even": "range(0, world_size, 2)"}],
        ),
        "title": "a mapping from names to groups",
    },
    "tensors": _name_values(
        "What each rank holds before step 1.", ref("value"), [{"x": "full(5, rank + 1)"}]
    ),
    "objects": _name_values(
        "Plain values for the object collectives; a string is a string.",
        ref("object_value"),
        [{"names": ["ada", {"expr": "rank"}]}],
    ),
    "models": {
        "description": "Small models as data, and the strategies that train them.",
        **kind("object", "null", title="a mapping from names to models"),
        "additionalProperties": ref("model_spec"),
    },
    "strategies": {
        "description": "Lists of strategies, so that a matrix key may choose one.",
        **kind("object", title="a mapping from names to lists"),
        "additionalProperties": lists(_NAMED, title="a list of strategies"),
        "examples": [{"ddp": [{"DistributedDataParallel": {}}]}],
    },
    "functions": {
        "description": "What one rank may ask of another by `rpc_sync`, `rpc_async`, `remote`.",
        **kind("object", title="a mapping from names to functions"),
        "additionalProperties": ref("function_spec"),
        "examples": [
            {"push": {"arguments": ["g"], "sets": {"w": "w - 0.1 * g"}, "returns": "w"}},
        ],
    },
    "steps": lists(
        ref("step"),
        description="The program: each rank takes, in order, the steps that select it.",
        title="a list of steps",
        **{"x-is": "program"},
        minItems=1,
    ),
    "truncated": {
        "description": "Ranks whose program goes on beyond what is written; `all` of them.",
        **ref("selector"),
        "examples": ["all", [1, 3]],
    },
    "expect": ref("final", description="What the whole program must do and hold at its end."),
}

#: the keys of a file that others use
LIBRARY_KEYS = ("version", "name", "description", "tags", "inputs", "steps")
#: the keys of a file that is run
SCENARIO_KEYS = tuple(name for name in TOP if name != "inputs")


def top_parts() -> dict[str, Schema]:
    """Return the parts that only the top of a file, and the names that it defines, refer to."""
    return {
        "handle": kind("string", title="the name of a work handle"),
        "new_name": kind("string", title="a name"),
        "words": kind("string", "number", "boolean", "null", title="text"),
        "backend": {
            "x-words": list(BACKENDS),
            **kind("string", title="a name such as gloo", minLength=1),
        },
        "function_spec": close(
            FUNCTION,
            description="A function that runs on the rank that is called.",
            title="a mapping with `arguments`, `sets`, `returns` or `takes`",
            minProperties=1,
        ),
        "need": {
            "description": "A capability of backends.",
            "title": "a capability such as any_source",
            "x-is": "need",
            "enum": list(CAPABILITIES),
        },
    }


def file() -> Schema:
    """Return the part of a whole file: a scenario, or a file with `inputs:` for others to use.

    Which of the two it is decides `inputs` without `world_size`. A file with both is taken for a
    scenario, to which `inputs` is forbidden (the schema `false`): that has a message of its own.
    """
    library = {"required": ["inputs"], "not": {"required": ["world_size"]}}
    return {
        "title": "Scenario",
        "description": "A small distributed program and its expected results.",
        "x-is": "file",
        "if": library,
        "then": {"propertyNames": {"enum": list(LIBRARY_KEYS)}, "x-is": "library"},
        "else": {
            "required": ["world_size"],
            "properties": {"inputs": False},
            "x-is": "scenario",
        },
        **close(TOP, required=["steps"]),
    }


def parts() -> dict[str, Schema]:
    """Return every part but those that follow from the operations: the `$defs` of the schema."""
    return {
        **values(),
        **arguments(),
        **expectations(),
        **step_parts(),
        **top_parts(),
        "group_spec": group(),
        "model_spec": close(
            MODEL, required=["layers", "loss", "optimizer"], title="a mapping with `layers`"
        ),
    }
