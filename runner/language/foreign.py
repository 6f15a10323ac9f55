"""Words that people bring along from torch, NumPy, Python, MPI or YAML 1.1, and what they are here.

Only messages read this: a foreign word is as wrong as any other, but its author is told the right
one instead of the whole list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.problems import nearest

if TYPE_CHECKING:
    from collections.abc import Collection

_SELECTS = 'who takes a step is said by `ranks:`, also by what it holds: `ranks: "x[0] > 3"`'
_STATED = "`expect:` beside a step states what must hold there"
_FAULT = "a rank fails by `fault: kill`, `fault: exit` or `fault: {raise: message}`"

#: what stands where a step's action or key is wanted -> what to write
STEPS = {
    "if": _SELECTS,
    "when": _SELECTS,
    "only": _SELECTS,
    "unless": _SELECTS,
    "while": "`for` repeats a fixed number of times",
    "repeat": '`for` repeats: `for: {i: "range(3)"}` with `steps: [...]`',
    "loop": '`for` repeats: `for: {i: "range(3)"}` with `steps: [...]`',
    "assert": _STATED,
    "check": _STATED,
    "print": _STATED,
    "log": _STATED,
    "let": "`compute:` gives a value a name",
    "set": "`compute:` gives a value a name",
    "assign": "`compute:` gives a value a name",
    "kill": _FAULT,
    "exit": _FAULT,
    "raise": _FAULT,
    "crash": _FAULT,
    "include": "`use: {file: part.yaml}` inserts the steps of another file",
    "import": "`use: {file: part.yaml}` inserts the steps of another file",
    "handle": "`as:` names the work that an asynchronous step starts",
    "bcast": "did you mean `broadcast`?",
    "sendrecv": "did you mean `batch_isend_irecv`?",
    "init_process_group": "the world is there before step 1, with the `timeout` at the top",
    "init_device_mesh": "a mesh is an entry of `groups:`: {shape: [2, 4], dims: [dp, tp]}",
    "new_subgroups": "these groups are an entry of `groups:`: {size: 2}",
    "new_subgroups_by_enumeration": "these groups are an entry of `groups:`: {partition: [...]}",
}

_BOOLEAN = "in YAML 1.2 this is no boolean but text: write true, false, 1 or 0"
#: what stands where the name of a value is wanted -> what to write
NAMES = {
    "unchanged": "`unchanged` stands alone as a value: `x: unchanged`",
    **dict.fromkeys(("yes", "no", "on", "off", "Yes", "No", "On", "Off"), _BOOLEAN),
    **dict.fromkeys(("null", "nil", "NULL"), "the word for nothing is `None` in an expression"),
    "true": "the boolean is `True` in an expression",
    "false": "the boolean is `False` in an expression",
    **dict.fromkeys(("all", "everyone", "every"), "every rank is `world`; `ranks` left out, too"),
    "inf": "infinity is `.inf` in YAML, and 1e999 in an expression",
    "nan": "not a number is `.nan` in YAML",
    "pi": "write it as a number: 3.141592653589793",
}

#: sort of word -> the foreign words and, for each, those of the language that it may mean
_MEANT: dict[str, dict[str, tuple[str, ...]]] = {
    "argument": {
        "root": ("src", "dst"),
        "peer": ("src", "dst"),
        "to": ("dst",),
        "dest": ("dst",),
        "destination": ("dst",),
        "from": ("src",),
        "source": ("src",),
        "reduce_op": ("op",),
        "reduction": ("op",),
        "async": ("async_op",),
        "pg": ("group",),
        "comm": ("group",),
        "process_group": ("group",),
        "data": ("tensor",),
        "buffer": ("tensor",),
        "value": ("tensor",),
        "seconds": ("duration",),
        "handle": ("handles",),
        "out": ("output",),
        "in": ("input",),
    },
    "dtype": {
        "float": ("float32",),
        "single": ("float32",),
        "double": ("float64",),
        "half": ("float16",),
        "brain": ("bfloat16",),
        "short": ("int16",),
        "int": ("int32",),
        "long": ("int64",),
        "byte": ("uint8",),
        "char": ("int8",),
        "boolean": ("bool",),
        "complex": ("complex64",),
        "cfloat": ("complex64",),
        "cdouble": ("complex128",),
        "fp8": ("float8_e4m3fn",),
        "float8": ("float8_e4m3fn",),
        "bf16": ("bfloat16",),
        **{f"{word}{bits}": (f"float{bits}",) for word in ("f", "fp") for bits in (16, 32, 64)},
        **{f"i{bits}": (f"int{bits}",) for bits in (8, 16, 32, 64)},
        **{f"u{bits}": (f"uint{bits}",) for bits in (8, 16, 32, 64)},
    },
    "reduce op": {
        "add": ("sum",),
        "plus": ("sum",),
        "mean": ("avg",),
        "average": ("avg",),
        "prod": ("product",),
        "mul": ("product",),
        "minimum": ("min",),
        "maximum": ("max",),
        "and": ("band",),
        "or": ("bor",),
        "xor": ("bxor",),
    },
    "outcome": {
        **dict.fromkeys(("hang", "hangs", "stuck", "blocked", "timeout", "blocks"), ("deadlock",)),
        **dict.fromkeys(("ok", "pass", "passes", "passed", "success", "succeeds"), ("completes",)),
        **dict.fromkeys(("finishes", "finished", "done", "fine"), ("completes",)),
        **dict.fromkeys(("fail", "fails", "failure", "raises", "exception"), ("error",)),
        **dict.fromkeys(("dies", "abort", "aborts", "kill", "killed"), ("crash",)),
    },
    "diagnosis": {
        "deadlock": ("circular_wait",),
        "cycle": ("circular_wait",),
        "race": ("message_race", "buffer_race"),
    },
    "kind of error": {
        "nothing": ("none",),
        "no": ("none",),
        "valueerror": ("invalid_argument",),
        "typeerror": ("invalid_argument",),
        "notimplementederror": ("unsupported",),
        "connection_closed": ("peer_lost",),
        "outofmemoryerror": ("out_of_memory",),
        "oom": ("out_of_memory",),
    },
    "`debug`": {"verbose": ("detail",), "debug": ("detail",), "full": ("detail",)},
    "key of the file": {
        "ranks": ("world_size",),
        "nprocs": ("world_size",),
        "nproc_per_node": ("world_size",),
        "num_ranks": ("world_size",),
        "world": ("world_size",),
        "constants": ("parameters",),
        "variables": ("parameters",),
        "vars": ("parameters",),
        "data": ("tensors",),
        "values": ("tensors",),
        "process_groups": ("groups",),
        "program": ("steps",),
        "title": ("name",),
    },
}


def likely(word: str, known: Collection[str], sort: str | None = None) -> str | None:
    """Return which of `known` the author of `word` means, or None where that cannot be told."""
    said = word.rpartition(".")[2].lower().replace("-", "_")
    for meant in _MEANT.get(sort or "", {}).get(said, ()):
        if meant in known:
            return meant
    return nearest(word, known)
