"""Expression text -> a compiled expression: parsed, allow-listed, guarded."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from msgspec import Struct

from torch_scenarios.errors import Mark, Problem, ScenarioError, find_near, nearest
from torch_scenarios.expressions import signatures
from torch_scenarios.expressions.values import Expression
from torch_scenarios.limits import COUNTS, DEFAULT, RAISING, Limits
from torch_scenarios.vocabulary import BACKEND, DTYPES, FIXED_WORDS, REDUCE_OPS, WORLD

# -------------------------------------------------------------------------------------------------
# What people try in an expression that has no place there, and what to write instead.

#: a node of Python's syntax -> what is wrong with it, and a hint
NOT_ALLOWED: dict[str, tuple[str, str | None]] = {
    "Lambda": ("an expression defines no functions", None),
    "NamedExpr": ("an expression assigns nothing", "`compute:` gives a value a name"),
    "GeneratorExp": ("only list comprehensions are allowed", "put it in brackets: sum([…])"),
    "SetComp": ("only list comprehensions are allowed", "write […] for {…}"),
    "DictComp": ("only list comprehensions are allowed", "write […] for {…}"),
    "Set": (
        "an expression has no sets",
        "write […] for {…}; there is no template syntax, write the name alone",
    ),
    "Dict": ("an expression has no mappings", "differ by rank with a YAML mapping, or `x if c`"),
    "JoinedStr": ("an expression cannot hold text", None),
    "Starred": ("nothing is unpacked with `*`", "add lists with `+`"),
    "Await": ("an expression awaits nothing", None),
    "Yield": ("an expression yields nothing", None),
    "YieldFrom": ("an expression yields nothing", None),
    "Slice": ("a slice is written in brackets only", "x[0:2]"),
}

#: an attribute of a tensor -> what to write instead
ATTRIBUTE_HINTS = {
    "T": "transpose with matrix_transpose(x)",
    "transpose": "transpose with matrix_transpose(x)",
    "permute": "permute_dims(x, axes)",
    "size": "shape(x), or numel(x)",
    "ndim": "len(shape(x))",
    "item": "float(x), or int(x)",
    "tolist": "a tensor is a value already",
    "view": "reshape(x, shape)",
    "to": "astype(x, dtype)",
    "dtype": "state the dtype next to the value: {dtype: …}",
    "clone": "`compute:` never shares memory",
    "contiguous": "`compute:` makes a copy",
    "rank": "group_rank(g)",
    "ranks": "group_ranks(g)",
    **dict.fromkeys(
        ("real", "imag", "conj", "angle"),
        "the parts of complex numbers cannot be taken; compare whole values",
    ),
    **dict.fromkeys(
        ("device", "cuda", "cpu", "grad", "requires_grad", "detach", "is_contiguous", "stride"),
        "an expression knows a tensor's values, dtype and shape, and nothing else of it",
    ),
    **dict.fromkeys(
        ("append", "keys", "values", "items", "get", "split", "join", "format"),
        "an expression has no methods; a list comprehension makes lists: [... for i in range(n)]",
    ),
    "pi": "write it as a number: 3.141592653589793",
    "e": "exp(1)",
    "inf": "1e999",
    "nan": "`.nan` in YAML",
    "mT": "permute_dims(x, [1, 0])",
    "t": "permute_dims(x, [1, 0])",
    "flatten": "reshape(x, numel(x))",
    "ravel": "reshape(x, numel(x))",
    "numpy": "a tensor is a value already",
    "type": "astype(x, dtype)",
    "norm": "sqrt(sum(x * x))",
    "dim": "len(shape(x))",
    "pow": "x ** y",
    "mul": "x * y",
    "add": "x + y",
    "sub": "x - y",
    "div": "x / y",
    **dict.fromkeys(("half", "float", "double", "int", "long", "bool"), "astype(x, dtype)"),
}

#: a function of Python or of an array library -> what to write instead
PYTHON_FUNCTION_HINTS = {
    "tensor": "a YAML list is a tensor; full, zeros, arange make others",
    "array": "a YAML list is a tensor; full, zeros, arange make others",
    "asarray": "a YAML list is a tensor; full, zeros, arange make others",
    "cat": "concat(arrays, axis=0)",
    "concatenate": "concat(arrays, axis=0)",
    "vstack": "stack(arrays, axis=0)",
    "transpose": "permute_dims(x, [1, 0])",
    "rand": "random(shape, seed)",
    "randn": "random(shape, seed)",
    "pow": "x ** y",
    "dot": "matmul(x1, x2)",
    "size": "numel(x)",
    "list": "a range is a list already",
    "enumerate": "[… for i in range(len(x))]",
    "zip": "[… for i in range(len(x))]",
    "get_rank": "rank, or group_rank(g)",
    "get_world_size": "world_size, or group_size(g)",
    **dict.fromkeys(
        ("real", "imag", "conj", "angle"),
        "the parts of complex numbers cannot be taken; compare whole values",
    ),
    "norm": "sqrt(sum(x * x))",
    "std": "sqrt(mean((x - mean(x)) ** 2))",
    "var": "mean((x - mean(x)) ** 2)",
    "average": "mean(x)",
    "cumsum": "cumulative_sum(x)",
    "cumprod": "[prod(x[0:i + 1]) for i in range(len(x))]",
    "sorted": "there is no sorting; state the values",
    "sort": "there is no sorting; state the values",
    "clip": "minimum(maximum(x, low), high)",
    "clamp": "minimum(maximum(x, low), high)",
    "relu": "maximum(x, 0)",
    "sigmoid": "1 / (1 + exp(-x))",
    "softmax": "exp(x) / sum(exp(x))",
    "empty": "zeros(shape)",
    "zeros_like": "zeros(shape(x))",
    "ones_like": "ones(shape(x))",
    "full_like": "full(shape(x), value)",
    "fill": "full(shape, value)",
    "randint": "random(shape, seed)",
    "complex": "1 + 2j",
    "mod": "x % y",
    "divmod": "x // y, and x % y",
    "print": "`expect:` states what must hold, and `scenario show --values` shows what does",
    "str": "an expression cannot hold text",
    "type": "astype(x, dtype)",
    "get_process_group_ranks": "group_ranks(g)",
    "get_group_rank": "group_rank(g)",
    "get_global_rank": "group_ranks(g)[i]",
}


# -------------------------------------------------------------------------------------------------
# What guarded syntax is built of: nodes, the keys that they call, and what is known of them.
#
# The keys are no names that an author can write, so that no variable hides a function or operator.

NOTHING: frozenset[str] = frozenset()
HERE: dict[str, Any] = {"lineno": 1, "col_offset": 0, "end_lineno": 1, "end_col_offset": 0}
LOAD = ast.Load()


class ExpressionProblem(NamedTuple):
    """What is wrong with an expression; `span` is its part of the text, in characters.

    `quoted` is a name in quotes: it is right without them where something defines it.

    >>> ExpressionProblem("bad_expression", "unknown name `rnak`", hint="rank", span=(0, 4)).quoted
    """

    code: str
    message: str
    hint: str | None = None
    span: tuple[int, int] | None = None
    quoted: str | None = None


class GuardedNode(NamedTuple):
    """A guarded node; `is_number`: surely a plain number; `roots`: whose storage it may share.

    Whose storage a value may share is asked of its parts: of `x[0:2]` it is that of x, and of `x +
    1` none, for an operator makes a tensor of its own.
    """

    node: ast.expr
    is_number: bool = False
    roots: frozenset[str] = NOTHING


class Variable(Struct, frozen=True):
    """A variable of a comprehension.

    In `[x[i] for i in range(2)]` the variable `i` is a number and has no roots. In `[part for part
    in parts]` it may be any part: it has the roots of what it goes through.
    """

    is_number: bool
    roots: frozenset[str]


def name_node(key: str) -> ast.Name:
    """Return a node that reads `key` from the scope."""
    return ast.Name(id=key, ctx=LOAD, **HERE)


def constant_node(value: Any) -> ast.Constant:
    """Return a node of a constant."""
    return ast.Constant(value=value, **HERE)


def call_node(key: str, *arguments: ast.expr) -> ast.Call:
    """Return a node that calls what the scope holds under `key`."""
    return ast.Call(func=name_node(key), args=list(arguments), keywords=[], **HERE)


def read_name(node: ast.expr) -> str | None:
    """Return `a.b` of names alone, or None."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = read_name(node.value)
        return f"{base}.{node.attr}" if base is not None else None
    return None


# -------------------------------------------------------------------------------------------------
# Numbers, names, and the dotted names of groups: the leaves of an expression.

DTYPE_NAMES = frozenset(DTYPES)

_NUMBER_NAMES = frozenset({"rank", "world_size"})


# -------------------------------------------------------------------------------------------------
# Fixed words: dtypes, reduce ops and backends, known where a parameter that holds one is compared.

#: what to do with a fixed word where a value is wanted
COMPARE = "compare it with a parameter that holds a word"

#: modules and classes of torch that have such words: `torch.float32`, `ReduceOp.SUM`
_TORCHS = frozenset({"torch", "dist", "ReduceOp"})


def explain_lone_word(word: str) -> str:
    """Return the message about a fixed word where a value is wanted."""
    return f"`{word}` is a word, and has no value here"


def _read_word(node: ast.expr) -> str | None:
    """Return the fixed word that a text, or an attribute of torch's, spells; else None."""
    if isinstance(node, ast.Constant):
        word = node.value if isinstance(node.value, str) else ""
    else:
        base, _, last = (read_name(node) or "").rpartition(".")
        word = last.lower() if base.rpartition(".")[2] in _TORCHS else ""
    return word if word in FIXED_WORDS else None


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


# -------------------------------------------------------------------------------------------------
# Operators: guarded, except where they can only meet plain numbers.

_UNARY = {ast.UAdd: "u+", ast.USub: "u-", ast.Invert: "~"}

#: between plain numbers these can neither grow without bound nor mean anything else
_PLAIN = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.BitAnd, ast.BitOr)


# -------------------------------------------------------------------------------------------------
# Calls of the functions of the language.

_LAUNCH_CALLS = frozenset({"node_rank", "local_rank"})
_NUMBER_CALLS = _LAUNCH_CALLS | {
    *("len", "numel", "int", "float", "bool"),
    *("bit_length", "bit_count", "group_rank", "group_size"),
}
#: calls of a group, another on each rank
GROUP_CALLS = frozenset({"group_rank", "group_size", "group_ranks"})
_VIEWS = frozenset({"reshape", "permute_dims", "matrix_transpose"})
#: the placement whose argument is a reduce op
PARTIAL = "Partial"
_MEASURES = frozenset({"shape", "numel", "len"})
#: the argument that is the name of a dtype
DTYPE = "dtype"


def _is_part(node: ast.expr) -> bool:
    """Whether an argument is a name, or a part of what it holds that no other name chooses."""
    while isinstance(node, ast.Subscript):
        names = {each.id for each in ast.walk(node.slice) if isinstance(each, ast.Name)}
        if not names <= {"rank", "world_size"}:
            return False
        node = node.value
    return isinstance(node, ast.Name)


# -------------------------------------------------------------------------------------------------
# Indexing, lists and comprehensions.

_COPYING = (ast.List, ast.ListComp, ast.Compare)
_INTEGER_SEQUENCES = frozenset({"range", "group_ranks", "shape"})


def _targets(target: ast.expr) -> list[ast.expr]:
    return target.elts if isinstance(target, ast.Tuple | ast.List) else [target]


# -------------------------------------------------------------------------------------------------
# Python's syntax tree -> the tree that is compiled: what the language allows, and guarded.
#
# An allow-list: a node that :mod:`torch_scenarios.expressions.compile` does not list is refused.
# Operators become calls of guarded functions (`x * n` reads `*` from the scope and calls it),
# because only those know dtypes and bounds; operators between plain numbers stay as they are, since
# nothing can go wrong. An expression in which something is guarded begins with a call of `{`, which
# opens its budget:
#
#     x * 2 + rank      ->      ({(elements, items), +(*(x, 2), rank))[1]

#: operators may nest this much deeper than brackets: `1 + 1 + 1` is a level for each sign
_LEVELS_PER_BRACKET = 4


class ExpressionGuard:
    """Guards one expression; gathers what it reads, and everything that is wrong with it.

        x ** n      ->   scope["**"](x, n)        it charges the budget before it computes

    A file comes from a stranger, and an expression is Python's syntax. So nothing of the text is
    run as it is: each node is one of a list of allowed kinds, each operator a call of one of ours,
    each name looked up in a scope without builtins. A dot is allowed in the name of a group
    (`mesh.dp`) and nowhere else; there are no lambdas and no texts to format.
    """

    def __init__(
        self,
        *,
        groups: frozenset[str],
        words: frozenset[str],
        listed: frozenset[str],
        limits: Limits,
        spans: Callable[[ast.expr | ast.keyword], tuple[int, int]],
    ) -> None:
        """Begin; `spans` gives a node's part of the text."""
        self.groups = groups
        self.words = words
        self.listed = listed
        self.limits = limits
        #: whether what is visited is the dtype that a function takes
        self.wants_dtype = False
        self.refusals: list[ExpressionProblem] = []
        self.names: set[str] = set()
        self.reads: set[str] = set()
        self.roots: frozenset[str] = NOTHING
        self.calls: set[str] = set()
        self.before: set[str] = set()
        self._spans = spans
        self.bound: dict[str, Variable] = {}
        self._begins = False
        self.nodes = 0
        self._depth = 0
        self._deepest = _LEVELS_PER_BRACKET * limits.max_nesting

    def guard(self, tree: ast.expr) -> ast.Expression:
        """Return the whole guarded expression; nothing of use where something was refused.

        RecursionError where it is nested too deeply.
        """
        body, _, self.roots = self.visit(tree)
        if self.nodes > self.limits.max_expression_nodes:
            counted = f"{self.nodes} {COUNTS['max_expression_nodes']}"
            most = f"{self.limits.max_expression_nodes} are allowed"
            flag = RAISING["max_expression_nodes"]
            message = f"the expression has {counted}; at most {most} ({flag} raises it)"
            self.refusals = [ExpressionProblem("expression_too_large", message)]
        if self._begins:
            elements, items = self.limits.max_elements, self.limits.max_items
            opened = call_node(signatures.BEGIN, constant_node(elements), constant_node(items))
            pair = ast.Tuple(elts=[opened, body], ctx=LOAD, **HERE)
            body = ast.Subscript(value=pair, slice=constant_node(1), ctx=LOAD, **HERE)
        return ast.Expression(body=body)

    def visit(self, node: ast.expr) -> GuardedNode:
        """Return a node guarded, by the rule of its type.

        What no rule is for is refused, so that syntax of a later Python is refused too until
        someone has thought about it. The depth is counted here, and not left to Python: how deep
        its own stack may go differs by version.
        """
        self.nodes += 1
        visitor = GRAMMAR.get(type(node))
        if visitor is None:
            kind = type(node).__name__
            message, hint = NOT_ALLOWED.get(kind, (f"{kind} has no place in an expression", None))
            return self.refuse(node, "expression_not_allowed", message, hint)
        self._depth += 1
        if self._depth > self._deepest:
            raise RecursionError
        guarded = visitor(self, node)
        self._depth -= 1
        return guarded

    def _visit_argument(self, node: ast.expr, *, wants_dtype: bool) -> GuardedNode:
        """Return an argument of a function guarded; one that is a dtype may name it."""
        outer, self.wants_dtype = self.wants_dtype, wants_dtype
        guarded = self.visit(node)
        self.wants_dtype = outer
        return guarded

    def _visit_all(self, nodes: Sequence[ast.expr]) -> list[GuardedNode]:
        """Return nodes guarded."""
        return [self.visit(node) for node in nodes]

    def _call_guarded(self, key: str, *arguments: ast.expr) -> ast.Call:
        """Return a call of a guarded function; the expression then needs a budget."""
        self._begins = True
        return call_node(key, *arguments)

    def refuse(
        self,
        node: ast.expr | ast.keyword,
        code: str,
        message: str,
        hint: str | None = None,
        quoted: str | None = None,
    ) -> GuardedNode:
        """Note what is wrong; return a node that stands for the refused one."""
        self.refusals.append(ExpressionProblem(code, message, hint, self._spans(node), quoted))
        return GuardedNode(constant_node(None))

    def constant(self, node: ast.Constant) -> GuardedNode:
        """Allow numbers, True, False and None.

        A number has at most as many bits as a computed one may have: `10 ** 999` is refused when it
        is computed, and written out it would be computed by Python's parser. Text is refused, with
        the word to write in its place where it spells one: `"sum"` is the reduce op sum,
        `"float32"` a dtype.
        """
        value = node.value
        if value is None or value.__class__ is bool:
            return GuardedNode(node, value is not None)
        if value.__class__ is int and value.bit_length() > signatures.MAX_INT_BITS:
            bits, most = value.bit_length(), signatures.MAX_INT_BITS
            message = f"a number of {bits} bits; at most {most} are allowed"
            return self.refuse(node, "expression_too_large", message)
        if isinstance(value, int | float | complex):
            return GuardedNode(node, is_number=True)
        kind = "text" if isinstance(value, str | bytes) else "`...`"
        message = f"an expression cannot hold {kind}"
        word = _read_word(node)
        if word in DTYPE_NAMES and self.wants_dtype:
            hint: str | None = f"write a dtype without quotes: {word}"
        else:
            hint = COMPARE if word is not None else None
        quoted = value if isinstance(value, str) and value.isidentifier() else None
        return self.refuse(node, "expression_not_allowed", message, hint, quoted)

    def name(self, node: ast.Name) -> GuardedNode:
        """Allow a variable; the name of a dtype is that name itself where a function takes one."""
        name = node.id
        if name in self.bound:
            bound = self.bound[name]
            return GuardedNode(node, bound.is_number, bound.roots)
        if name in DTYPE_NAMES:
            if not self.wants_dtype:
                return self.refuse(node, "fixed_word", explain_lone_word(name), COMPARE)
            return GuardedNode(constant_node(name))
        if name.startswith("__"):
            message = f"`{name}`: a name may not begin with two underscores"
            return self.refuse(node, "expression_not_allowed", message)
        self.names.add(name)
        if name in _NUMBER_NAMES:
            return GuardedNode(node, is_number=True)
        self.reads.add(name)
        return GuardedNode(node, roots=frozenset((name,)))

    def attribute(self, node: ast.Attribute) -> GuardedNode:
        """Allow the dotted name of a group and no attribute at all."""
        dotted = read_name(node)
        if dotted is not None and dotted in self.groups:
            self.names.add(dotted)
            return GuardedNode(name_node(dotted), roots=frozenset((dotted,)))
        return self._refuse_attribute(node, dotted)

    def _refuse_attribute(self, node: ast.Attribute, dotted: str | None) -> GuardedNode:
        """Refuse an attribute, with what to write instead where that is known."""
        shown = dotted or f".{node.attr}"
        message = f"`{shown}`: an expression has no attributes"
        hint = ATTRIBUTE_HINTS.get(node.attr)
        word = _read_word(node)
        if word is not None:
            wanted = word in DTYPE_NAMES and self.wants_dtype
            hint = f"write a dtype by its name alone: {word}" if wanted else COMPARE
        groups = [group for group in self.groups if "." in group]
        close = nearest(dotted, groups) if dotted and groups else None
        if close:
            hint = f"did you mean the group `{close}`?"
        elif hint is None and node.attr in signatures.FUNCTION_NAMES:
            usage = signatures.SIGNATURES[node.attr].usage
            hint = f"functions are called by their names alone: {usage}"
        return self.refuse(node, "expression_not_allowed", message, hint)

    def _guard_comparison(self, node: ast.Compare) -> list[GuardedNode]:
        """Return the operands of a comparison; a word next to a parameter with one is itself.

        `op == sum` compares the reduce op that a call holds with the word; `sum` is a function too,
        and elsewhere that is what is meant. In `op in [sum, max]` each item may be a word.
        """
        operands = [node.left, *node.comparators]
        meet: set[int] = set()
        for at, operator in enumerate(node.ops):
            one, other = operands[at : at + 2]
            if isinstance(operator, ast.Eq | ast.NotEq):
                meet |= {at + 1} if self._holds_a_word(one) else set()
                meet |= {at} if self._holds_a_word(other) else set()
            elif isinstance(operator, ast.In | ast.NotIn) and self._holds_a_word(one):
                meet |= {at + 1} if isinstance(other, ast.List | ast.Tuple) else set()
        return [
            self._guard_words(operand) if at in meet else self.visit(operand)
            for at, operand in enumerate(operands)
        ]

    def _holds_a_word(self, node: ast.expr) -> bool:
        """Whether a node is a name that holds a word: no variable of a comprehension hides it."""
        return isinstance(node, ast.Name) and node.id in self.words and node.id not in self.bound

    def _guard_words(self, node: ast.expr) -> GuardedNode:
        """Return an operand that meets a word; of a list each item may be one."""
        if isinstance(node, ast.List | ast.Tuple):
            self.nodes += 1
            parts = [self._guard_words(item) for item in node.elts]
            made = ast.List(elts=[part.node for part in parts], ctx=LOAD, **HERE)
            return GuardedNode(made, roots=NOTHING.union(*(part.roots for part in parts)))
        if isinstance(node, ast.Name) and node.id not in self.bound:
            if node.id in FIXED_WORDS or node.id in self.listed:
                self.nodes += 1
                return GuardedNode(constant_node(node.id))
            return self.visit(node)
        word = _read_word(node)
        if word is None and not _is_text(node):
            return self.visit(node)
        known = FIXED_WORDS | self.listed
        text = node.value if isinstance(node, ast.Constant) else ""
        written = word or (text if isinstance(text, str) else "")
        if written in known:
            hint: str | None = f"write the word alone: {written}"
        else:
            close = nearest(written, known)
            hint = f"did you mean `{close}`?" if close else None
        message = (
            f"a word has no quotes: '{written}'" if _is_text(node) else "a word is written alone"
        )
        return self.refuse(node, "expression_not_allowed", message, hint)

    def binary(self, node: ast.BinOp) -> GuardedNode:
        """Guard arithmetic, but between plain numbers.

        `rank + 1` stays Python's: both are ints, and nothing can go wrong but a division by 0. `x +
        1` calls the guarded `+`, since x may be a tensor, whose dtype and size decide. `2 ** rank`
        is guarded always: it grows without bound.
        """
        left, right = self.visit(node.left), self.visit(node.right)
        numbers = left.is_number and right.is_number
        if numbers and isinstance(node.op, _PLAIN):
            plain = ast.BinOp(left=left.node, op=node.op, right=right.node, **HERE)
            return GuardedNode(plain, is_number=True)
        symbol = signatures.BINARY[type(node.op)]
        return GuardedNode(self._call_guarded(symbol, left.node, right.node), is_number=numbers)

    def unary(self, node: ast.UnaryOp) -> GuardedNode:
        """Guard a sign or `~`; `not` is Python's own."""
        operand = self.visit(node.operand)
        if isinstance(node.op, ast.Not):
            return GuardedNode(
                ast.UnaryOp(op=node.op, operand=operand.node, **HERE), is_number=True
            )
        if operand.is_number and not isinstance(node.op, ast.Invert):
            plain = ast.UnaryOp(op=node.op, operand=operand.node, **HERE)
            return GuardedNode(plain, is_number=True)
        key = _UNARY[type(node.op)]
        return GuardedNode(self._call_guarded(key, operand.node), is_number=operand.is_number)

    def boolean(self, node: ast.BoolOp) -> GuardedNode:
        """Allow `and` and `or`: Python's own, which give one of their operands."""
        parts = self._visit_all(node.values)
        return GuardedNode(
            ast.BoolOp(op=node.op, values=[part.node for part in parts], **HERE),
            all(part.is_number for part in parts),
            NOTHING.union(*(part.roots for part in parts)),
        )

    def conditional(self, node: ast.IfExp) -> GuardedNode:
        """Allow `x if c else y`: the branch not taken is not computed.

        So `x / n if n else 0` never divides by 0. The value may share the storage of either branch,
        and is a number only if both are.
        """
        test, body, orelse = (self.visit(part) for part in (node.test, node.body, node.orelse))
        return GuardedNode(
            ast.IfExp(test=test.node, body=body.node, orelse=orelse.node, **HERE),
            body.is_number and orelse.is_number,
            body.roots | orelse.roots,
        )

    def compare(self, node: ast.Compare) -> GuardedNode:
        """Guard comparisons, but between plain numbers; a chain compares left to right.

        `in` is guarded always: Python's own makes one truth value of it, and asks the items for it.
        """
        if any(isinstance(op, ast.Is | ast.IsNot) for op in node.ops):
            return self._compare_identity(node)
        parts = self._guard_comparison(node)
        looks_inside = any(isinstance(op, ast.In | ast.NotIn) for op in node.ops)
        if not looks_inside and all(part.is_number for part in parts):
            return GuardedNode(
                ast.Compare(
                    left=parts[0].node,
                    ops=node.ops,
                    comparators=[part.node for part in parts[1:]],
                    **HERE,
                ),
                is_number=True,
            )
        symbols = [signatures.COMPARISONS[type(op)] for op in node.ops]
        nodes = [part.node for part in parts]
        if len(symbols) == 1:
            return GuardedNode(self._call_guarded(symbols[0], *nodes), is_number=looks_inside)
        return GuardedNode(
            self._call_guarded(signatures.CHAIN, constant_node(tuple(symbols)), *nodes)
        )

    def _compare_identity(self, node: ast.Compare) -> GuardedNode:
        """Guard `is` and `is not`: with None alone."""
        against = node.comparators[0]
        if len(node.ops) > 1 or not (isinstance(against, ast.Constant) and against.value is None):
            message = "`is` compares with None only"
            return self.refuse(node, "expression_not_allowed", message, "write `==`")
        left = self.visit(node.left)
        plain = ast.Compare(left=left.node, ops=node.ops, comparators=[constant_node(None)], **HERE)
        return GuardedNode(plain, is_number=True)

    def call(self, node: ast.Call) -> GuardedNode:
        """Allow a call of a function of the language, with as many arguments as it takes."""
        function = node.func
        if isinstance(function, ast.Attribute):
            return self._refuse_attribute(function, read_name(function))
        if not isinstance(function, ast.Name):
            message = "only a function of the language can be called"
            return self.refuse(function, "expression_not_allowed", message)
        name = function.id
        if name not in signatures.SIGNATURES:
            return self._refuse_function(function)
        if not self._arguments_fit(node, name):
            return GuardedNode(constant_node(None))
        self.calls.add(name)
        if name in GROUP_CALLS:
            made = call_node(f"{name}()", self._guard_group(node))
            return GuardedNode(made, is_number=name in _NUMBER_CALLS)
        if name in _LAUNCH_CALLS:
            self.names.add("rank")  # another on each rank
            return GuardedNode(call_node(f"{name}()"), is_number=True)
        if name == PARTIAL:
            return self._guard_partial(node)
        return (
            self._guard_before(node) if name == "before" else self._guard_ordinary_call(node, name)
        )

    def _guard_partial(self, node: ast.Call) -> GuardedNode:
        """Take the reduce op of a `Partial` for the word that it is.

        `Partial(sum)` is a placement of a DTensor whose parts are to be summed
        (torch.distributed.tensor.Partial). `sum` is a word there, and not the function of that
        name.
        """
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        words = [each.id for each in given if isinstance(each, ast.Name)]
        if len(words) < len(given) or not set(words) <= set(REDUCE_OPS):
            message = f"`{PARTIAL}` takes a reduce op"
            hint = f"one of {', '.join(REDUCE_OPS)}"
            return self.refuse(node, "wrong_arguments", message, hint)
        return GuardedNode(call_node(f"{PARTIAL}()", *map(constant_node, words)))

    def _guard_ordinary_call(self, node: ast.Call, name: str) -> GuardedNode:
        """Guard a call of a function of the table.

        `shape(x)`, `numel(x)` and `len(x)` do not count as reading x: what a shape is is known even
        where the values are undefined, or belong to a transfer. That holds for a name and its parts
        (`len(x[0])`), not for what is computed of it.

        The roots of what `reshape` and its like return are those of their argument: they are views,
        as in torch wherever the strides allow it.
        """
        read = set(self.reads)
        takes = signatures.SIGNATURES[name].positional
        dtype = takes.index(DTYPE) if DTYPE in takes else None
        arguments = [
            self._visit_argument(argument, wants_dtype=at == dtype)
            for at, argument in enumerate(node.args)
        ]
        if name in _MEASURES and all(_is_part(argument) for argument in node.args):
            self.reads = read
        made = self._call_guarded(f"{name}()", *(argument.node for argument in arguments))
        made.keywords = [
            ast.keyword(
                arg=keyword.arg,
                value=self._visit_argument(keyword.value, wants_dtype=keyword.arg == DTYPE).node,
                **HERE,
            )
            for keyword in node.keywords
        ]
        roots = arguments[0].roots if name in _VIEWS and arguments else NOTHING
        return GuardedNode(made, name in _NUMBER_CALLS, roots)

    def _refuse_function(self, node: ast.Name) -> GuardedNode:
        """Refuse a call of what is not a function of the table."""
        name = node.id
        hint = PYTHON_FUNCTION_HINTS.get(name)
        if hint is None:
            close = find_near(name, signatures.FUNCTION_NAMES)
            shown = " or ".join(f"`{each}`" for each in close)
            hint = f"did you mean {shown}?" if close else None
        return self.refuse(node, "unknown_function", f"there is no function `{name}`", hint)

    def _arguments_fit(self, node: ast.Call, name: str) -> bool:
        """Whether a call has the arguments of its function; says what does not fit.

        Nearly every call gives just what its function requires, in order, and is done with by one
        comparison.
        """
        signature = signatures.SIGNATURES[name]
        plain = not node.keywords and len(node.args) == len(signature.required)
        if plain and not any(isinstance(argument, ast.Starred) for argument in node.args):
            return True
        return self._police_arguments(node, name, signature)

    def _police_arguments(self, node: ast.Call, name: str, signature: signatures.Signature) -> bool:
        """Refuse what does not fit the signature; return whether all does."""
        said = len(self.refusals)
        given = [keyword.arg for keyword in node.keywords]
        unpacked: list[ast.expr | ast.keyword] = [
            *(each for each in node.args if isinstance(each, ast.Starred)),
            *(each for each in node.keywords if each.arg is None),
        ]
        for argument in unpacked:
            message = "arguments are written out, not unpacked with `*`"
            self.refuse(argument, "expression_not_allowed", message)
        for keyword in node.keywords:
            if keyword.arg is not None and keyword.arg not in signature.keywords:
                close = nearest(keyword.arg, signature.keywords)
                message = f"`{name}` has no argument `{keyword.arg}`"
                hint = f"did you mean `{close}`? {signature.usage}" if close else signature.usage
                self.refuse(keyword, "wrong_arguments", message, hint)
        if len(self.refusals) > said:
            return False
        missing = [each for each in signature.required[len(node.args) :] if each not in given]
        twice = [each for each in signature.positional[: len(node.args)] if each in given]
        wrong = None
        if missing:
            wrong = f"`{name}` needs `{missing[0]}`"
        elif twice:
            wrong = f"`{name}` gets `{twice[0]}` twice"
        elif signature.most is not None and len(node.args) > signature.most:
            wrong = f"`{name}` takes at most {signature.most} arguments, not {len(node.args)}"
        if wrong is not None:
            self.refuse(node, "wrong_arguments", wrong, signature.usage)
        return wrong is None

    def _guard_group(self, node: ast.Call) -> ast.expr:
        """Return a group's name as a constant; a parameter may hold one, too.

        `group_size(mesh.dp)` is not an attribute of `mesh`: the dotted name as a whole is the
        group's. A plain name that is no group is looked up when it is evaluated, since a parameter
        of the file may hold the name of one.
        """
        group = node.args[0] if node.args else node.keywords[0].value
        dotted = read_name(group)
        if dotted is not None and (dotted in self.groups or dotted == WORLD):
            self.nodes += 1
            return constant_node(dotted)
        if isinstance(group, ast.Name):
            return self.visit(group).node
        if isinstance(group, ast.Attribute):
            return self._refuse_attribute(group, dotted).node
        message = "this takes the name of a group"
        hint = "`world` is every rank"
        text = group.value if isinstance(group, ast.Constant) else None
        if isinstance(text, str) and text in {*self.groups, WORLD}:
            hint = f"write a name without quotes: {text}"
        return self.refuse(group, "wrong_arguments", message, hint).node

    def _guard_before(self, node: ast.Call) -> GuardedNode:
        """Guard `before(x, rank)`: what a rank held before the step.

        The name is handed over as such, for it is looked up in what another rank held. So only a
        name will do; `before(x[0], r)` would compute x[0] of this rank.
        """
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        tensor = node.args[0] if node.args else given["x"]
        rank = node.args[1] if len(node.args) > 1 else given["rank"]
        if not isinstance(tensor, ast.Name) or tensor.id in self.bound:
            message = "`before` takes the name of a tensor"
            hint = "index what it returns: before(x, r)[0]"
            return self.refuse(tensor, "wrong_arguments", message, hint)
        self.nodes += 1
        self.before.add(tensor.id)
        return GuardedNode(call_node("before()", constant_node(tensor.id), self.visit(rank).node))

    def subscript(self, node: ast.Subscript) -> GuardedNode:
        """Guard indexing: a view of a tensor, an item of a list; by a list or a mask a copy."""
        value = self.visit(node.value)
        index = self._guard_index(node.slice)
        roots = NOTHING if isinstance(node.slice, _COPYING) else value.roots
        return GuardedNode(self._call_guarded(signatures.INDEX, value.node, index), roots=roots)

    def _guard_index(self, node: ast.expr) -> ast.expr:
        """Guard an index: a number, a slice, or several.

        A slice is made by a call, with None for what is left out. What its parts are is looked at
        where it is applied: a list takes other slices than a tensor.
        """
        if isinstance(node, ast.Tuple):
            parts = [self._guard_index(part) for part in node.elts]
            return ast.Tuple(elts=parts, ctx=LOAD, **HERE)
        if isinstance(node, ast.Slice):
            given = (node.lower, node.upper, node.step)
            parts = [
                constant_node(None) if each is None else self.visit(each).node for each in given
            ]
            return call_node(signatures.SLICE, *parts)
        return self.visit(node).node

    def sequence(self, node: ast.List | ast.Tuple) -> GuardedNode:
        """Allow a list; a tuple is one, too."""
        parts = self._visit_all(node.elts)
        made = ast.List(elts=[part.node for part in parts], ctx=LOAD, **HERE)
        return GuardedNode(made, roots=NOTHING.union(*(part.roots for part in parts)))

    def comprehension(self, node: ast.ListComp) -> GuardedNode:
        """Allow a list comprehension: each of its iterables is charged, times what it contains.

            [x[i] * 2 for i in range(1000)]      4 nodes or so, a thousand times

        The weight of a turn is the number of nodes of the whole comprehension; it is known only
        when these have been visited, and the node that holds it is filled in at the end. Nested
        ones multiply, since the inner iterable is charged anew in each turn of the outer one.
        """
        outer, before = self.bound, self.nodes
        self.bound = dict(outer)
        weight = constant_node(1)
        generators = [self._guard_generator(generator, weight) for generator in node.generators]
        element = self.visit(node.elt)
        self.bound = outer
        weight.value = self.nodes - before
        made = ast.ListComp(elt=element.node, generators=generators, **HERE)
        return GuardedNode(made, roots=element.roots)

    def _guard_generator(
        self, generator: ast.comprehension, weight: ast.Constant
    ) -> ast.comprehension:
        """Guard one `for` of a comprehension, with its conditions.

        The iterable is visited before the name is bound: in `[i for i in i]` the last `i` is the
        outer one. A variable is a plain number where it goes through a `range`, a `shape` or a
        group's ranks.
        """
        iterable = self.visit(generator.iter)
        source = generator.iter
        integers = (
            isinstance(source, ast.Call)
            and isinstance(source.func, ast.Name)
            and source.func.id in _INTEGER_SEQUENCES
        )
        if generator.is_async:
            self.refuse(source, "expression_not_allowed", "a comprehension cannot be asynchronous")
        unpacks = not isinstance(generator.target, ast.Name)
        for target in _targets(generator.target):
            self.bind(target, Variable(integers and not unpacks, iterable.roots))
        each = self._call_guarded(signatures.EACH, iterable.node, weight, constant_node(unpacks))
        tests = [self.visit(test).node for test in generator.ifs]
        return ast.comprehension(target=generator.target, iter=each, ifs=tests, is_async=0)

    def bind(self, target: ast.expr, variable: Variable) -> None:
        """Let a comprehension bind a name, or names."""
        if not isinstance(target, ast.Name):
            message = "a comprehension assigns to a name, or to names with commas between"
            self.refuse(target, "expression_not_allowed", message)
        elif (
            target.id.startswith("__")
            or target.id in DTYPE_NAMES
            or target.id in signatures.FUNCTION_NAMES
        ):
            message = f"`{target.id}` cannot name a variable of a comprehension"
            self.refuse(target, "expression_not_allowed", message)
        else:
            self.bound[target.id] = variable


# -------------------------------------------------------------------------------------------------
# The grammar of expressions: which nodes of Python's syntax are allowed, and how they are guarded.
#
# What is not in this table is refused.

Rule: TypeAlias = "Callable[[ExpressionGuard, Any], GuardedNode]"

GRAMMAR: dict[type[ast.expr], Rule] = {
    ast.Constant: ExpressionGuard.constant,
    ast.Name: ExpressionGuard.name,
    ast.Attribute: ExpressionGuard.attribute,
    ast.BinOp: ExpressionGuard.binary,
    ast.UnaryOp: ExpressionGuard.unary,
    ast.BoolOp: ExpressionGuard.boolean,
    ast.IfExp: ExpressionGuard.conditional,
    ast.Compare: ExpressionGuard.compare,
    ast.Subscript: ExpressionGuard.subscript,
    ast.List: ExpressionGuard.sequence,
    ast.Tuple: ExpressionGuard.sequence,
    ast.ListComp: ExpressionGuard.comprehension,
    ast.Call: ExpressionGuard.call,
}


# -------------------------------------------------------------------------------------------------
# Expression text -> :class:`torch_scenarios.expressions.values.Expression`: parsed, allow-listed,
# compiled.
#
# The language is a part of Python's own syntax. What :mod:`torch_scenarios.expressions.compile`
# does not list is refused, with its place inside the expression. The compiled code reads variables
# under their own names, and functions and guarded operators under names that no author can write
# (`sum()`, `**`). It is ordinary code, evaluated at ordinary speed.
#
# Knows neither which variables exist nor what they hold: `names` lists what the code reads, and
# the caller knows the scope.

_OPENING = "([{"
_CLOSING = ")]}"


def compile_expression(
    text: str,
    mark: Mark | None,
    *,
    groups: Collection[str] = (),
    words: Collection[str] = (),
    listed: Collection[str] = (),
    known: Collection[str] = (),
    limits: Limits = DEFAULT,
) -> Expression:
    """Compile an expression; `groups` are the names of all groups, dotted ones included.

    `words` are the names that hold a word, with which a fixed word is compared; `listed` are words
    that they may hold and that mean nothing else. `known` are the names that a hint may suggest.

    >>> text = "x[0:2] if rank < group_size(dp) else y * 2"
    >>> found = compile_expression(text, None, groups={"dp"})
    >>> sorted(found.names), sorted(found.reads), sorted(found.roots)
    (['rank', 'x', 'y'], ['x', 'y'], ['x'])

    `names` is all that the code looks up, `reads` what of that are tensors, and `roots` those whose
    storage the value may share: the product has one of its own.

    Raises ScenarioError with every problem found, each at its place inside the expression where the
    source shows the text as it is:

    >>> try:
    ...     compile_expression("summ(x) + x.T", None)
    ... except ScenarioError as error:
    ...     [(problem.message, problem.hint) for problem in error.problems][0]
    ('there is no function `summ`', 'did you mean `sum`?')
    """
    try:
        held = frozenset((*words, BACKEND))
        parts = _compile(text, frozenset(groups), held, frozenset(listed), limits)
    except _RefusedError as refused:
        problems = [_problem(refusal, text, mark, known) for refusal in refused.refusals]
        raise ScenarioError(problems) from None
    return Expression(
        text=text,
        code=parts.code,
        names=parts.names,
        reads=parts.reads,
        roots=parts.roots,
        calls=parts.calls,
        before=parts.before,
        mark=mark,
    )


class _RefusedError(Exception):
    """The text is no expression of the language."""

    def __init__(self, *refusals: ExpressionProblem) -> None:
        super().__init__()
        self.refusals = refusals


@lru_cache(maxsize=4096)
def _compile(
    text: str,
    groups: frozenset[str],
    words: frozenset[str],
    listed: frozenset[str],
    limits: Limits,
) -> Expression:
    """Return the compiled expression of a text; the place of it is not part of that.

    Cached, since a file has the same text in many places (`rank == 0`).
    """
    _police_text(text, limits)
    source = _flatten_spaces(text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python's advice on `1 is 2` is not for this language
        guarding = ExpressionGuard(
            groups=groups,
            words=words,
            listed=listed,
            limits=limits,
            spans=lambda node: _span(node, source),
        )
        try:
            tree = _parse(source, limits)
            guarded = guarding.guard(tree)
            if guarding.refusals:
                raise _RefusedError(*guarding.refusals)
            code = compile(guarded, "<expression>", "eval", dont_inherit=True)
        except (RecursionError, MemoryError):
            raise _RefusedError(_refuse_depth(limits)) from None
    return Expression(
        text=text,
        code=code,
        names=frozenset(guarding.names),
        reads=frozenset(guarding.reads),
        roots=frozenset(guarding.roots),
        calls=frozenset(guarding.calls),
        before=frozenset(guarding.before),
    )


def _police_text(text: str, limits: Limits) -> None:
    """Refuse what Python's own parser would choke on, before it sees it.

    Python 3.11 takes 1.8 s for a list of 300 kB, and from 200 brackets within each other on it says
    "too many nested parentheses", with a place and no bound that can be raised. A `#` would hide
    the rest of the text.
    """
    if len(text) > limits.max_expression_chars:
        words = f"{len(text)} characters; {_name_bound('max_expression_chars', limits)}"
        raise _RefusedError(
            ExpressionProblem("expression_too_large", f"the expression has {words}")
        )
    if not text.strip():
        raise _RefusedError(ExpressionProblem("expression_syntax", "the expression is empty"))
    if "#" not in text and sum(map(text.count, _OPENING)) <= limits.max_nesting:
        return
    depth = 0
    for at, character in enumerate(text):
        if character in _OPENING:
            depth += 1
            if depth > limits.max_nesting:
                raise _RefusedError(_refuse_depth(limits, (at, at + 1)))
        elif character in _CLOSING:
            depth -= 1
        elif character == "#":
            message = "an expression has no comments"
            raise _RefusedError(ExpressionProblem("expression_syntax", message, span=(at, at + 1)))


def _refuse_depth(limits: Limits, span: tuple[int, int] | None = None) -> ExpressionProblem:
    message = f"the expression is nested too deeply; {_name_bound('max_nesting', limits)}"
    return ExpressionProblem("expression_too_large", message, span=span)


def _name_bound(name: str, limits: Limits) -> str:
    return f"at most {getattr(limits, name)} {COUNTS[name]} are allowed ({RAISING[name]} raises it)"


def _flatten_spaces(text: str) -> str:
    """Return the text with every space a blank, so that offsets in it are offsets in the line.

    A block of YAML (`|`) may hold line ends. Python would end the expression there, and count the
    columns of a problem from the second line's beginning.
    """
    if text.isprintable():
        return text
    return "".join(" " if character.isspace() else character for character in text)


def _parse(source: str, limits: Limits) -> ast.expr:
    body = source.lstrip()
    indent = len(source) - len(body)
    try:
        return ast.parse(body, mode="eval").body
    except SyntaxError as error:
        start = indent + error.offset - 1 if error.offset else len(source)
        end = start + 1
        if error.end_offset is not None and error.end_lineno == error.lineno:
            end = max(indent + error.end_offset - 1, end)
        raise _RefusedError(_syntax(error, source, (start, end))) from None
    except ValueError as error:  # a NUL byte
        raise _RefusedError(
            ExpressionProblem("expression_syntax", f"not an expression: {error}")
        ) from None
    except (RecursionError, MemoryError):
        raise _RefusedError(_refuse_depth(limits)) from None


def _syntax(error: SyntaxError, source: str, span: tuple[int, int]) -> ExpressionProblem:
    """Return what is wrong with the syntax, in the language's words rather than Python's."""
    start = min(span[0], max(len(source.rstrip()) - 1, 0))
    inside = (start, max(min(span[1], len(source)), start + 1))
    if source[inside[0] : inside[1]] == "=":
        return ExpressionProblem(
            "expression_syntax", "an expression assigns nothing", "compare with `==`", inside
        )
    hint = "there is no template syntax: write the name alone" if "$" in source else None
    for symbol, word in (("&&", "and"), ("||", "or"), ("!", "not")):
        if symbol in source.replace("!=", ""):
            hint = f"write `{word}` for `{symbol}`"
            break
    message, meant, inside = _explain_missing(error.msg or "", source, span[0], inside)
    return ExpressionProblem("expression_syntax", message, hint or meant, inside)


#: a part of what Python says -> what is wrong, and what would be right; HERE is what stands there
_SAID = {
    "was never closed": ("this HERE is never closed", "write its closing bracket"),
    "unmatched": ("HERE closes a bracket that is not open", "leave it out, or open it before"),
    "does not match": ("HERE closes a bracket of another kind", "close it as it is opened"),
    "unterminated string": ("this quote is never closed", "a name needs no quotes here"),
    "expected 'else'": ("this `if` has no `else`", "write `a if condition else b`"),
    "invalid decimal": ("a name cannot begin with a digit", "a product is written `2 * x`"),
    "leading zeros": ("a number cannot begin with a zero", "leave the zero out"),
    "non-printable": ("a character here cannot be printed", "leave it out"),
    "positional argument follows": (
        "an argument without a name follows one that has a name",
        "write the arguments without names first",
    ),
    "must be parenthesized": ("this comprehension has no brackets", "put it in brackets: sum([…])"),
}
#: characters that are not Python's -> what they are here
_TYPED = {
    "\N{MULTIPLICATION SIGN}": "*",
    "\N{MIDDLE DOT}": "*",
    "\N{DIVISION SIGN}": "/",
    "\N{MINUS SIGN}": "-",
    "\N{EN DASH}": "-",
    "\N{LESS-THAN OR EQUAL TO}": "<=",
    "\N{GREATER-THAN OR EQUAL TO}": ">=",
    "\N{NOT EQUAL TO}": "!=",
}
#: what a value begins or ends with, and a token of an expression
_TOKEN = re.compile(r"\s*(?:([\w.]+|\"[^\"]*\"|'[^']*')|(\*\*|//|<<|>>|[<>=!]=|.))")
_WORDS = frozenset({"and", "or", "not", "in", "is", "if", "else", "for"})


def _explain_missing(
    said: str, source: str, at: int, inside: tuple[int, int]
) -> tuple[str, str | None, tuple[int, int]]:
    """Return what is wrong at a place where Python reads no further, what would be right, where.

    Python says `invalid syntax` for most. What is before the place and what is at it say more:

    >>> _explain_missing("invalid syntax", "2 x", 2, (2, 3))[:2]
    ('an operator or a comma is missing between `2` and `x`', 'a product is written `2 * x`')
    >>> _explain_missing("invalid syntax", "x + * y", 4, (4, 5))[:2]
    ('a value is missing between `+` and `*`', 'write a value between them, or leave the `+` out')
    """
    here = source[inside[0] : inside[1]].strip()
    if said.startswith("invalid character"):
        typed = _TYPED.get(here[:1])
        hint = f"write `{typed}`" if typed else "leave it out; quotes are straight"
        return f"the character `{here[:1]}` is not known in an expression", hint, inside
    for part, (message, hint) in _SAID.items():
        if part in said:
            return message.replace("HERE", f"`{here}`"), hint, inside
    if "forgot a comma" in said:  # its place is all that may be meant as one list
        at = _find_second_value(source, at)
        inside = (at, at + 1)
    before, after = _find_tokens(source, at)
    if before is None and after is None:
        return "this is not an expression", None, inside
    if after is None:
        message = f"the expression ends where a value must follow `{before}`"
        end = len(source.rstrip())
        return message, f"write a value after `{before}`, or leave it out", (end - 1, end)
    if before is None:
        return f"an expression cannot begin with `{after}`", "begin with a value", inside
    if _ends(before) and _begins(after):
        message = f"an operator or a comma is missing between `{before}` and `{after}`"
        return message, f"a product is written `{before} * {after}`", inside
    if not _ends(before) and not _begins(after):
        message = f"a value is missing between `{before}` and `{after}`"
        return message, f"write a value between them, or leave the `{before}` out", inside
    choice = "a choice is written `a if condition else b`" if after == "?" else None
    return f"`{after}` cannot follow `{before}`", choice, inside


def _find_tokens(source: str, at: int) -> tuple[str | None, str | None]:
    """Return the tokens before a place and at it; None where there is none.

    >>> _find_tokens("rank ++ 1 2", 10)
    ('1', '2')
    """
    before = None
    for token in _TOKEN.finditer(source.rstrip()):
        if token.end() > at:
            return before, token.group().strip() or None
        before = token.group().strip()
    return before, None


def _find_second_value(source: str, at: int) -> int:
    """Return where, from a place on, a value follows another one with nothing between them.

    >>> _find_second_value("max(a b)", 4)
    6
    """
    before = "("
    for token in _TOKEN.finditer(source, at):
        text = token.group().strip()
        if _ends(before) and _begins(text) and text not in _OPENING:
            return token.end() - len(text)
        before = text
    return at


def _ends(token: str) -> bool:
    """Whether a value may end with a token."""
    return token in _CLOSING or (token[0] not in "+-*/%<>=!&|^~@,:([{?;$" and token not in _WORDS)


def _begins(token: str) -> bool:
    """Whether a value may begin with a token."""
    return token in _OPENING or (token[0].isalnum() and token not in _WORDS) or token[0] in "_\"'"


def _span(node: ast.expr | ast.keyword, source: str) -> tuple[int, int]:
    """Return the node's start and end in characters; `ast` counts bytes of UTF-8."""
    indent = len(source) - len(source.lstrip())
    start, end = node.col_offset, node.end_col_offset or node.col_offset + 1
    if source.isascii():
        return indent + start, indent + end
    encoded = source.lstrip().encode()
    return (
        indent + len(encoded[:start].decode(errors="ignore")),
        indent + len(encoded[:end].decode(errors="ignore")),
    )


def _problem(
    refusal: ExpressionProblem, text: str, mark: Mark | None, known: Collection[str]
) -> Problem:
    quoted = refusal.quoted
    hint = f"write a name without quotes: {quoted}" if quoted in known else refusal.hint
    return Problem(
        code=refusal.code,
        message=refusal.message,
        mark=_narrow_mark(mark, text, refusal.span),
        hint=hint,
    )


def _narrow_mark(mark: Mark | None, text: str, span: tuple[int, int] | None) -> Mark | None:
    """Return the part of a scalar's place that `span` covers; the whole where it is not on a line.

    A scalar with escapes, or folded over lines, does not show its text as it is.
    """
    if mark is None or span is None:
        return mark
    line = mark.source.line(mark.line)
    start = mark.column - 1
    if line[start : start + 1] in {'"', "'"}:
        start += 1
    if line[start : start + len(text)] != text:
        return mark
    return Mark(
        source=mark.source,
        line=mark.line,
        column=start + span[0] + 1,
        end_line=mark.line,
        end_column=start + span[1] + 1,
    )
