"""The functions and operators of the expression language: names, symbols, parameters."""

from __future__ import annotations

import ast
from dataclasses import dataclass

# -------------------------------------------------------------------------------------------------
# The operators of expressions: Python's syntax tree to the symbol that people read.

BINARY = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.MatMult: "@",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
}
COMPARISONS = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.In: "in",
    ast.NotIn: "not in",
}


# -------------------------------------------------------------------------------------------------
# Keys of guarded calls; no author can write them as names.

#: what opens the budget of an evaluation
BEGIN = "{"


#: what counts the items that a comprehension goes over
EACH = "for"


INDEX = "[]"


SLICE = "[:]"


#: what compares more than two operands in a row
CHAIN = "<=>"


#: bits of the largest plain integer
MAX_INT_BITS = 1024


# -------------------------------------------------------------------------------------------------
# The functions of the expression language: their names and parameters, nothing else.
#
# Read by the compiler of expressions (who may be called how), by the schema and by the step
# reference. What the functions do stands in :mod:`runner.expressions.functions`.

_USAGES = {
    "full": "shape, fill_value, dtype=float32",
    "zeros": "shape, dtype=float32",
    "ones": "shape, dtype=float32",
    "arange": "start, stop=None, step=1, dtype=float32",
    "linspace": "start, stop, num, dtype=float32, endpoint=True",
    "eye": "n_rows, n_cols=None, k=0, dtype=float32",
    "random": "shape, seed, dtype=float32",
    "exp": "x",
    "log": "x",
    "sqrt": "x",
    "tanh": "x",
    "log1p": "x",
    "expm1": "x",
    "log2": "x",
    "abs": "x",
    "floor": "x",
    "ceil": "x",
    "round": "x",
    "sign": "x",
    "square": "x",
    "isfinite": "x",
    "isnan": "x",
    "minimum": "x1, x2",
    "maximum": "x1, x2",
    "where": "condition, x1, x2",
    "sum": "x, axis=None, keepdims=False, dtype=None",
    "prod": "x, axis=None, keepdims=False, dtype=None",
    "min": "x, *more, axis=None, keepdims=False",
    "max": "x, *more, axis=None, keepdims=False",
    "mean": "x, axis=None, keepdims=False",
    "any": "x, axis=None, keepdims=False",
    "all": "x, axis=None, keepdims=False",
    "argmax": "x, axis=None, keepdims=False",
    "argmin": "x, axis=None, keepdims=False",
    "cumulative_sum": "x, axis=None, dtype=None, include_initial=False",
    "matmul": "x1, x2",
    "matrix_transpose": "x",
    "concat": "arrays, axis=0",
    "stack": "arrays, axis=0",
    "reshape": "x, shape",
    "permute_dims": "x, axes",
    "flip": "x, axis=None",
    "roll": "x, shift, axis=None",
    "astype": "x, dtype",
    "len": "x",
    "range": "start, stop=None, step=1",
    "int": "x",
    "float": "x",
    "bool": "x",
    "shape": "x",
    "numel": "x",
    "bit_length": "n",
    "bit_count": "n",
    "node_rank": "",
    "local_rank": "",
    "Shard": "dim",
    "Replicate": "",
    "Partial": "op=sum",
    "group_rank": "group",
    "group_size": "group",
    "group_ranks": "group",
    "before": "x, rank",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """How a function is called. `most` positional arguments at most; None: any number."""

    usage: str
    required: tuple[str, ...]
    positional: tuple[str, ...]
    most: int | None
    keywords: frozenset[str]


def _signature(name: str, parameters: str) -> Signature:
    words = [word.strip() for word in parameters.split(",") if word.strip()]
    starred = next((at for at, word in enumerate(words) if word.startswith("*")), None)
    before_star = words[:starred]
    names = [word.partition("=")[0] for word in words if not word.startswith("*")]
    return Signature(
        usage=f"{name}({parameters})",
        required=tuple(word for word in before_star if "=" not in word),
        positional=tuple(word.partition("=")[0] for word in before_star),
        most=len(before_star) if starred is None else None,
        keywords=frozenset(names),
    )


#: name -> how it is called
SIGNATURES = {name: _signature(name, parameters) for name, parameters in _USAGES.items()}

FUNCTION_NAMES = frozenset(SIGNATURES)
