"""The functions and operators of the expression language: names, symbols, parameters."""

from __future__ import annotations

import ast

from msgspec import Struct

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


# The functions of the expression language: their names and parameters, nothing else.
#
# Read by the compiler of expressions (who may be called how), by the schema and by the step
# reference. What the functions do stands in :mod:`torch_scenarios.expressions.functions`.

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


class Signature(Struct, frozen=True, kw_only=True):
    """How a function is called. `most` positional arguments at most; None: any number.

        zeros(shape, dtype=float32)
        required ("shape",), positional ("shape", "dtype"), most 2

    It is what a message shows of a call that is wrong.
    """

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

#: what the examples of the reference use, on rank 2 of 4
EXAMPLE_NAMES = """\
world_size: 4
groups:
  even: [0, 2]
tensors:
  x: [1, -2, 3]
  m: [[1, 2], [3, 4]]
"""

#: name of a function -> an expression that calls it, and its value on rank 2
EXAMPLES = {
    "full": ("full(3, rank)", "[2, 2, 2]"),
    "zeros": ("zeros(2)", "[0, 0]"),
    "ones": ("ones([2, 2], int64)", "[[1, 1], [1, 1]]"),
    "arange": ("arange(4)", "[0, 1, 2, 3]"),
    "linspace": ("linspace(0, 1, 3)", "[0, 0.5, 1]"),
    "eye": ("eye(2)", "[[1, 0], [0, 1]]"),
    "random": ("random(2, 7) == random(2, 7)", "[true, true]"),
    "exp": ("exp(zeros(2))", "[1, 1]"),
    "log": ("log(ones(2))", "[0, 0]"),
    "sqrt": ("sqrt(full(2, 9))", "[3, 3]"),
    "tanh": ("tanh(zeros(2))", "[0, 0]"),
    "log1p": ("log1p(zeros(2))", "[0, 0]"),
    "expm1": ("expm1(zeros(2))", "[0, 0]"),
    "log2": ("log2(full(2, 8))", "[3, 3]"),
    "abs": ("abs(x)", "[1, 2, 3]"),
    "floor": ("floor(x / 2)", "[0, -1, 1]"),
    "ceil": ("ceil(x / 2)", "[1, -1, 2]"),
    "round": ("round(x * 0.6)", "[1, -1, 2]"),
    "sign": ("sign(x)", "[1, -1, 1]"),
    "square": ("square(x)", "[1, 4, 9]"),
    "isfinite": ("isfinite(x)", "[true, true, true]"),
    "isnan": ("isnan(x)", "[false, false, false]"),
    "minimum": ("minimum(x, 2)", "[1, -2, 2]"),
    "maximum": ("maximum(x, 0)", "[1, 0, 3]"),
    "where": ("where(x > 0, x, 10)", "[1, 10, 3]"),
    "sum": ("sum(m, axis=0)", "[4, 6]"),
    "prod": ("prod(x)", "-6"),
    "min": ("min(x)", "-2"),
    "max": ("max(1, rank)", "2"),
    "mean": ("mean(m, axis=1)", "[1.5, 3.5]"),
    "any": ("any(x < 0)", "true"),
    "all": ("all(x < 0)", "false"),
    "argmax": ("argmax(x)", "2"),
    "argmin": ("argmin(x)", "1"),
    "cumulative_sum": ("cumulative_sum(x)", "[1, -1, 2]"),
    "matmul": ("matmul(m, m)", "[[7, 10], [15, 22]]"),
    "matrix_transpose": ("matrix_transpose(m)", "[[1, 3], [2, 4]]"),
    "concat": ("concat([x, x])", "[1, -2, 3, 1, -2, 3]"),
    "stack": ("stack([x, x])", "[[1, -2, 3], [1, -2, 3]]"),
    "reshape": ("reshape(m, 4)", "[1, 2, 3, 4]"),
    "permute_dims": ("permute_dims(m, [1, 0])", "[[1, 3], [2, 4]]"),
    "flip": ("flip(x)", "[3, -2, 1]"),
    "roll": ("roll(x, 1)", "[3, 1, -2]"),
    "astype": ("astype(x, int32)", "[1, -2, 3]"),
    "len": ("len(x)", "3"),
    "range": ("[2 * i for i in range(3)]", "[0, 2, 4]"),
    "int": ("int(2.7)", "2"),
    "float": ("float(rank)", "2.0"),
    "bool": ("bool(rank)", "true"),
    "shape": ("shape(m)", "[2, 2]"),
    "numel": ("numel(m)", "4"),
    "bit_length": ("bit_length(rank)", "2"),
    "bit_count": ("bit_count(rank)", "1"),
    "node_rank": ("node_rank()", "0"),
    "local_rank": ("local_rank()", "2"),
    "Shard": ("[Shard(0)]", "cut along dimension 0, in `distribute_tensor`"),
    "Replicate": ("[Replicate()]", "whole on every rank, in `distribute_tensor`"),
    "Partial": ("[Partial(sum)]", "a part of a sum, in `from_local`"),
    "group_rank": ("group_rank(even)", "1"),
    "group_size": ("group_size(even)", "2"),
    "group_ranks": ("group_ranks(even)", "[0, 2]"),
    "before": ("before(x, 0) + 1", "[2, -1, 4]"),
}
