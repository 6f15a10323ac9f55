"""Python's syntax tree -> the tree that is compiled: what the language allows, and guarded.

An allow-list: a node that no method here knows is refused. Operators become calls of guarded
functions (`x * n` reads `*` from the scope and calls it), because only those know dtypes and
bounds; operators between plain numbers stay as they are, since nothing can go wrong with them.
An expression in which something is guarded begins with a call of `{`, which opens its budget:

    x * 2 + rank      ->      ({(elements, items), +(*(x, 2), rank))[1]
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from runner.language.limits import COUNTS, FLAGS
from runner.language.refusals import ATTRIBUTE_HINTS, NOT_ALLOWED, PYTHON_FUNCTION_HINTS
from runner.language.signatures import FUNCTION_NAMES, SIGNATURES, Signature
from runner.plan import WORLD
from runner.problems import nearest
from runner.scenario import DTYPES

if TYPE_CHECKING:
    from runner.language.limits import Limits

#: scope keys that are no names an author can write
BEGIN = "{"
EACH = "for"
INDEX = "[]"
SLICE = "[:]"
CHAIN = "<=>"

MAX_INT_BITS = 1024

#: operators may nest this much deeper than brackets: `1 + 1 + 1` is a level for each sign
_LEVELS_PER_BRACKET = 4

_NOTHING: frozenset[str] = frozenset()
_HERE: dict[str, Any] = {"lineno": 1, "col_offset": 0, "end_lineno": 1, "end_col_offset": 0}
_LOAD = ast.Load()

_BINARY = {
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
_COMPARISONS = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.In: "in",
    ast.NotIn: "not in",
}
_UNARY = {ast.UAdd: "u+", ast.USub: "u-", ast.Invert: "~"}

#: between plain numbers these can neither grow without bound nor mean anything else
_PLAIN = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.BitAnd, ast.BitOr)

_NUMBER_NAMES = frozenset({"rank", "world_size"})
_NUMBER_CALLS = frozenset({"len", "numel", "int", "float", "bool", "group_rank", "group_size"})
_INTEGER_SEQUENCES = frozenset({"range", "group_ranks", "shape"})
_GROUP_CALLS = frozenset({"group_rank", "group_size", "group_ranks"})
_VIEWS = frozenset({"reshape", "permute_dims"})
_DTYPES = frozenset(DTYPES)


class Refusal(NamedTuple):
    """What is wrong with an expression; `span` is its part of the text, in characters."""

    code: str
    message: str
    hint: str | None = None
    span: tuple[int, int] | None = None


class Guarded(NamedTuple):
    """A guarded node; `is_number`: surely a plain number; `roots`: whose storage it may share."""

    node: ast.expr
    is_number: bool = False
    roots: frozenset[str] = _NOTHING


@dataclass(frozen=True, slots=True)
class _Variable:
    """A variable of a comprehension."""

    is_number: bool
    roots: frozenset[str]


def _name(key: str) -> ast.Name:
    return ast.Name(id=key, ctx=_LOAD, **_HERE)


def _constant(value: Any) -> ast.Constant:  # noqa: ANN401 -- whatever a constant may be
    return ast.Constant(value=value, **_HERE)


def _call(key: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(func=_name(key), args=list(arguments), keywords=[], **_HERE)


class Guarding:
    """Guards one expression; gathers what it reads, and everything that is wrong with it."""

    def __init__(
        self,
        *,
        groups: frozenset[str],
        limits: Limits,
        spans: Callable[[ast.expr | ast.keyword], tuple[int, int]],
    ) -> None:
        """Begin; `spans` gives a node's part of the text."""
        self.groups = groups
        self.limits = limits
        self.refusals: list[Refusal] = []
        self.names: set[str] = set()
        self.roots: frozenset[str] = _NOTHING
        self.calls: set[str] = set()
        self.before: set[str] = set()
        self._spans = spans
        self._bound: dict[str, _Variable] = {}
        self._begins = False
        self._nodes = 0
        self._depth = 0
        self._deepest = _LEVELS_PER_BRACKET * limits.max_nesting

    def guard(self, tree: ast.expr) -> ast.Expression:
        """Return the whole guarded expression; nothing of use where something was refused.

        RecursionError where it is nested too deeply.
        """
        body, _, self.roots = self._visit(tree)
        if self._nodes > self.limits.max_expression_nodes:
            counted = f"{self._nodes} {COUNTS['max_expression_nodes']}"
            most = f"{self.limits.max_expression_nodes} are allowed"
            flag = FLAGS["max_expression_nodes"]
            message = f"the expression has {counted}; at most {most} ({flag} raises it)"
            self.refusals = [Refusal("expression_too_large", message)]
        if self._begins:
            elements, items = self.limits.max_elements, self.limits.max_items
            opened = _call(BEGIN, _constant(elements), _constant(items))
            pair = ast.Tuple(elts=[opened, body], ctx=_LOAD, **_HERE)
            body = ast.Subscript(value=pair, slice=_constant(1), ctx=_LOAD, **_HERE)
        return ast.Expression(body=body)

    def _visit(self, node: ast.expr) -> Guarded:
        self._nodes += 1
        visitor = _VISITORS.get(type(node))
        if visitor is None:
            kind = type(node).__name__
            message, hint = NOT_ALLOWED.get(kind, (f"{kind} has no place in an expression", None))
            return self._refuse(node, "expression_not_allowed", message, hint)
        self._depth += 1
        if self._depth > self._deepest:
            raise RecursionError
        guarded = visitor(self, node)
        self._depth -= 1
        return guarded

    def _visit_all(self, nodes: list[ast.expr]) -> list[Guarded]:
        return [self._visit(node) for node in nodes]

    def _guarded_call(self, key: str, *arguments: ast.expr) -> ast.Call:
        self._begins = True
        return _call(key, *arguments)

    def _refuse(
        self, node: ast.expr | ast.keyword, code: str, message: str, hint: str | None = None
    ) -> Guarded:
        self.refusals.append(Refusal(code, message, hint, self._spans(node)))
        return Guarded(_constant(None))

    # ------------------------------------------------------------------ leaves

    def constant(self, node: ast.Constant) -> Guarded:
        """Allow numbers, True, False and None."""
        value = node.value
        if value is None or value.__class__ is bool:
            return Guarded(node, value is not None)
        if value.__class__ is int and value.bit_length() > MAX_INT_BITS:
            message = f"a number of {value.bit_length()} bits; at most {MAX_INT_BITS} are allowed"
            return self._refuse(node, "expression_too_large", message)
        if isinstance(value, int | float | complex):
            return Guarded(node, is_number=True)
        hint = None
        if isinstance(value, str) and value in _DTYPES:
            hint = f"a dtype stands without quotes: {value}"
        elif isinstance(value, str) and value.isidentifier():
            hint = f"a name stands without quotes: {value}"
        kind = "text" if isinstance(value, str | bytes) else "`...`"
        return self._refuse(
            node, "expression_not_allowed", f"an expression cannot hold {kind}", hint
        )

    def name(self, node: ast.Name) -> Guarded:
        """Allow a variable; the name of a dtype is that name itself."""
        name = node.id
        if name in self._bound:
            bound = self._bound[name]
            return Guarded(node, bound.is_number, bound.roots)
        if name in _DTYPES:
            return Guarded(_constant(name))
        if name.startswith("__"):
            message = f"`{name}`: a name may not begin with two underscores"
            return self._refuse(node, "expression_not_allowed", message)
        self.names.add(name)
        if name in _NUMBER_NAMES:
            return Guarded(node, is_number=True)
        return Guarded(node, roots=frozenset((name,)))

    def attribute(self, node: ast.Attribute) -> Guarded:
        """Allow the dotted name of a group and no attribute at all."""
        dotted = _dotted(node)
        if dotted is not None and dotted in self.groups:
            self.names.add(dotted)
            return Guarded(_name(dotted), roots=frozenset((dotted,)))
        return self._refuse_attribute(node, dotted)

    def _refuse_attribute(self, node: ast.Attribute, dotted: str | None) -> Guarded:
        shown = dotted or f".{node.attr}"
        message = f"`{shown}`: an expression has no attributes"
        hint = ATTRIBUTE_HINTS.get(node.attr)
        groups = [group for group in self.groups if "." in group]
        close = nearest(dotted, groups) if dotted and groups else None
        if close:
            hint = f"did you mean the group `{close}`?"
        elif hint is None and node.attr in FUNCTION_NAMES:
            hint = f"functions stand alone: {SIGNATURES[node.attr].usage}"
        return self._refuse(node, "expression_not_allowed", message, hint)

    # ------------------------------------------------------------------ operators

    def binary(self, node: ast.BinOp) -> Guarded:
        """Guard arithmetic, but between plain numbers."""
        left, right = self._visit(node.left), self._visit(node.right)
        numbers = left.is_number and right.is_number
        if numbers and isinstance(node.op, _PLAIN):
            plain = ast.BinOp(left=left.node, op=node.op, right=right.node, **_HERE)
            return Guarded(plain, is_number=True)
        symbol = _BINARY[type(node.op)]
        return Guarded(self._guarded_call(symbol, left.node, right.node), is_number=numbers)

    def unary(self, node: ast.UnaryOp) -> Guarded:
        """Guard a sign or `~`; `not` is Python's own."""
        operand = self._visit(node.operand)
        if isinstance(node.op, ast.Not):
            return Guarded(ast.UnaryOp(op=node.op, operand=operand.node, **_HERE), is_number=True)
        if operand.is_number and not isinstance(node.op, ast.Invert):
            plain = ast.UnaryOp(op=node.op, operand=operand.node, **_HERE)
            return Guarded(plain, is_number=True)
        key = _UNARY[type(node.op)]
        return Guarded(self._guarded_call(key, operand.node), is_number=operand.is_number)

    def boolean(self, node: ast.BoolOp) -> Guarded:
        """Allow `and` and `or`: Python's own, which give one of their operands."""
        parts = self._visit_all(node.values)
        return Guarded(
            ast.BoolOp(op=node.op, values=[part.node for part in parts], **_HERE),
            all(part.is_number for part in parts),
            _NOTHING.union(*(part.roots for part in parts)),
        )

    def conditional(self, node: ast.IfExp) -> Guarded:
        """Allow `x if c else y`: the branch not taken is not computed."""
        test, body, orelse = (self._visit(part) for part in (node.test, node.body, node.orelse))
        return Guarded(
            ast.IfExp(test=test.node, body=body.node, orelse=orelse.node, **_HERE),
            body.is_number and orelse.is_number,
            body.roots | orelse.roots,
        )

    def compare(self, node: ast.Compare) -> Guarded:
        """Guard comparisons, but between plain numbers; a chain compares left to right."""
        if any(isinstance(op, ast.Is | ast.IsNot) for op in node.ops):
            return self._compare_identity(node)
        parts = self._visit_all([node.left, *node.comparators])
        last_may_be_any = isinstance(node.ops[-1], ast.In | ast.NotIn) and len(node.ops) == 1
        if all(part.is_number for part in (parts[:-1] if last_may_be_any else parts)):
            return Guarded(
                ast.Compare(
                    left=parts[0].node,
                    ops=node.ops,
                    comparators=[part.node for part in parts[1:]],
                    **_HERE,
                ),
                is_number=True,
            )
        symbols = [_COMPARISONS[type(op)] for op in node.ops]
        nodes = [part.node for part in parts]
        if len(symbols) == 1:
            return Guarded(self._guarded_call(symbols[0], *nodes))
        return Guarded(self._guarded_call(CHAIN, _constant(tuple(symbols)), *nodes))

    def _compare_identity(self, node: ast.Compare) -> Guarded:
        against = node.comparators[0]
        if len(node.ops) > 1 or not (isinstance(against, ast.Constant) and against.value is None):
            message = "`is` compares with None only"
            return self._refuse(node, "expression_not_allowed", message, "write `==`")
        left = self._visit(node.left)
        plain = ast.Compare(left=left.node, ops=node.ops, comparators=[_constant(None)], **_HERE)
        return Guarded(plain, is_number=True)

    # ------------------------------------------------------------------ parts and lists

    def subscript(self, node: ast.Subscript) -> Guarded:
        """Guard indexing: a view of a tensor, an item of a list."""
        value = self._visit(node.value)
        index = self._index(node.slice)
        return Guarded(self._guarded_call(INDEX, value.node, index), roots=value.roots)

    def _index(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Tuple):
            parts = [self._index(part) for part in node.elts]
            return ast.Tuple(elts=parts, ctx=_LOAD, **_HERE)
        if isinstance(node, ast.Slice):
            given = (node.lower, node.upper, node.step)
            parts = [_constant(None) if each is None else self._visit(each).node for each in given]
            return _call(SLICE, *parts)
        return self._visit(node).node

    def sequence(self, node: ast.List | ast.Tuple) -> Guarded:
        """Allow a list; a tuple is one, too."""
        parts = self._visit_all(node.elts)
        made = ast.List(elts=[part.node for part in parts], ctx=_LOAD, **_HERE)
        return Guarded(made, roots=_NOTHING.union(*(part.roots for part in parts)))

    def comprehension(self, node: ast.ListComp) -> Guarded:
        """Allow a list comprehension, each of its iterables counted against the budget."""
        outer = self._bound
        self._bound = dict(outer)
        generators = [self._generator(generator) for generator in node.generators]
        element = self._visit(node.elt)
        self._bound = outer
        made = ast.ListComp(elt=element.node, generators=generators, **_HERE)
        return Guarded(made, roots=element.roots)

    def _generator(self, generator: ast.comprehension) -> ast.comprehension:
        iterable = self._visit(generator.iter)
        source = generator.iter
        integers = (
            isinstance(source, ast.Call)
            and isinstance(source.func, ast.Name)
            and source.func.id in _INTEGER_SEQUENCES
        )
        if generator.is_async:
            self._refuse(source, "expression_not_allowed", "a comprehension cannot be asynchronous")
        unpacks = not isinstance(generator.target, ast.Name)
        for target in _targets(generator.target):
            self._bind(target, _Variable(integers and not unpacks, iterable.roots))
        each = self._guarded_call(EACH, iterable.node, _constant(unpacks))
        tests = [self._visit(test).node for test in generator.ifs]
        return ast.comprehension(target=generator.target, iter=each, ifs=tests, is_async=0)

    def _bind(self, target: ast.expr, variable: _Variable) -> None:
        if not isinstance(target, ast.Name):
            message = "a comprehension assigns to a name, or to names with commas between"
            self._refuse(target, "expression_not_allowed", message)
        elif target.id.startswith("__") or target.id in _DTYPES or target.id in FUNCTION_NAMES:
            message = f"`{target.id}` cannot name a variable of a comprehension"
            self._refuse(target, "expression_not_allowed", message)
        else:
            self._bound[target.id] = variable

    # ------------------------------------------------------------------ calls

    def call(self, node: ast.Call) -> Guarded:
        """Allow a call of a function of the language, with as many arguments as it takes."""
        function = node.func
        if isinstance(function, ast.Attribute):
            return self._refuse_attribute(function, _dotted(function))
        if not isinstance(function, ast.Name):
            message = "only a function of the language can be called"
            return self._refuse(function, "expression_not_allowed", message)
        name = function.id
        if name not in SIGNATURES:
            return self._refuse_function(function)
        if not self._arguments_fit(node, name):
            return Guarded(_constant(None))
        self.calls.add(name)
        if name in _GROUP_CALLS:
            made = _call(f"{name}()", self._group(node))
            return Guarded(made, is_number=name in _NUMBER_CALLS)
        return self._before(node) if name == "before" else self._ordinary_call(node, name)

    def _ordinary_call(self, node: ast.Call, name: str) -> Guarded:
        arguments = self._visit_all(node.args)
        made = self._guarded_call(f"{name}()", *(argument.node for argument in arguments))
        made.keywords = [
            ast.keyword(arg=keyword.arg, value=self._visit(keyword.value).node, **_HERE)
            for keyword in node.keywords
        ]
        roots = arguments[0].roots if name in _VIEWS and arguments else _NOTHING
        return Guarded(made, name in _NUMBER_CALLS, roots)

    def _refuse_function(self, node: ast.Name) -> Guarded:
        close = nearest(node.id, FUNCTION_NAMES)
        hint = PYTHON_FUNCTION_HINTS.get(node.id) or (f"did you mean `{close}`?" if close else None)
        return self._refuse(node, "unknown_function", f"there is no function `{node.id}`", hint)

    def _arguments_fit(self, node: ast.Call, name: str) -> bool:
        signature = SIGNATURES[name]
        plain = not node.keywords and len(node.args) == len(signature.required)
        if plain and not any(isinstance(argument, ast.Starred) for argument in node.args):
            return True
        return self._police_arguments(node, name, signature)

    def _police_arguments(self, node: ast.Call, name: str, signature: Signature) -> bool:
        """Refuse what does not fit the signature; return whether all does."""
        said = len(self.refusals)
        given = [keyword.arg for keyword in node.keywords]
        unpacked: list[ast.expr | ast.keyword] = [
            *(each for each in node.args if isinstance(each, ast.Starred)),
            *(each for each in node.keywords if each.arg is None),
        ]
        for argument in unpacked:
            message = "arguments are written out, not unpacked with `*`"
            self._refuse(argument, "expression_not_allowed", message)
        for keyword in node.keywords:
            if keyword.arg is not None and keyword.arg not in signature.keywords:
                close = nearest(keyword.arg, signature.keywords)
                message = f"`{name}` has no argument `{keyword.arg}`"
                hint = f"did you mean `{close}`? {signature.usage}" if close else signature.usage
                self._refuse(keyword, "wrong_arguments", message, hint)
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
            self._refuse(node, "wrong_arguments", wrong, signature.usage)
        return wrong is None

    def _group(self, node: ast.Call) -> ast.expr:
        """Return a group's name as a constant; a parameter may hold one, too."""
        group = node.args[0] if node.args else node.keywords[0].value
        dotted = _dotted(group)
        if dotted is not None and (dotted in self.groups or dotted == WORLD):
            self._nodes += 1
            return _constant(dotted)
        if isinstance(group, ast.Name):
            return self._visit(group).node
        if isinstance(group, ast.Attribute):
            return self._refuse_attribute(group, dotted).node
        message = "this takes the name of a group"
        return self._refuse(group, "wrong_arguments", message, "`world` is every rank").node

    def _before(self, node: ast.Call) -> Guarded:
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        tensor = node.args[0] if node.args else given["x"]
        rank = node.args[1] if len(node.args) > 1 else given["rank"]
        if not isinstance(tensor, ast.Name) or tensor.id in self._bound:
            message = "`before` takes the name of a tensor"
            hint = "index what it returns: before(x, r)[0]"
            return self._refuse(tensor, "wrong_arguments", message, hint)
        self._nodes += 1
        self.before.add(tensor.id)
        return Guarded(_call("before()", _constant(tensor.id), self._visit(rank).node))


def _dotted(node: ast.expr) -> str | None:
    """Return `a.b` of names alone, or None."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = _dotted(node.value)
        return f"{base}.{node.attr}" if base is not None else None
    return None


def _targets(target: ast.expr) -> list[ast.expr]:
    return target.elts if isinstance(target, ast.Tuple | ast.List) else [target]


_Visitor: TypeAlias = Callable[[Guarding, Any], Guarded]

_VISITORS: dict[type[ast.expr], _Visitor] = {
    ast.Constant: Guarding.constant,
    ast.Name: Guarding.name,
    ast.Attribute: Guarding.attribute,
    ast.BinOp: Guarding.binary,
    ast.UnaryOp: Guarding.unary,
    ast.BoolOp: Guarding.boolean,
    ast.IfExp: Guarding.conditional,
    ast.Compare: Guarding.compare,
    ast.Subscript: Guarding.subscript,
    ast.List: Guarding.sequence,
    ast.Tuple: Guarding.sequence,
    ast.ListComp: Guarding.comprehension,
    ast.Call: Guarding.call,
}
