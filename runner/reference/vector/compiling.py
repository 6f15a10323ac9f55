"""Expression -> a function that gives its value on all active ranks at once.

The text was checked and compiled by the language already. Here it is parsed once more, into
closures: what is the same on every rank goes through the language's own guarded functions, what
differs through :mod:`runner.reference.vector.rules`. What has no closure raises Beyond when called.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.reference.vector import rules
from runner.reference.vector.indexing import part
from runner.reference.vector.values import Active, Lanes, Stack, Value, View, leave, varies
from runner.symbols import BINARY, COMPARISONS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from runner.plan import Plan
    from runner.reference.vector.memory import Memory

#: functions that work element by element and round nowhere but at the end
_ELEMENTWISE = {"abs", "sqrt", "minimum", "maximum", "where"}


@dataclass(slots=True, eq=False)
class Scene:
    """Where an expression is evaluated: which ranks, the loops' variables, and what names hold."""

    active: Active
    variables: Mapping[str, int]
    memory: Memory


if TYPE_CHECKING:
    Closure = Callable[[Scene], Value]


class Compiler:
    """Compiles the expressions of one plan."""

    def __init__(self, plan: Plan, functions: Mapping[str, Callable[..., Any]]) -> None:
        """Share the language's functions, by the keys that compiled expressions use."""
        self._plan = plan
        self._functions = functions
        self._constants = plan.scenario.constants

    def compile(self, text: str) -> Closure:
        """Return the closure of an expression that the language has accepted."""
        return self._visit(ast.parse(text.strip().replace("\n", " "), mode="eval").body)

    def _visit(self, node: ast.expr) -> Closure:
        visitor = _VISITORS.get(type(node))
        return visitor(self, node) if visitor else _beyond(type(node).__name__)

    # ------------------------------------------------------------------ leaves

    def constant(self, node: ast.Constant) -> Closure:
        """A number, True, False or None."""
        value = node.value
        return lambda _: value

    def name(self, node: ast.Name) -> Closure:
        """A constant, the variable of a loop, a tensor, a group."""
        name = node.id
        if name == "rank":
            return lambda scene: scene.active.rank
        if name == "world_size":
            size = self._plan.world_size
            return lambda _: size
        if name in self._constants:
            value = self._constants[name]
            return lambda _: value
        if name in self._plan.names:
            return lambda scene: self._group_ranks(name, scene)

        def held(scene: Scene) -> Value:
            if name in scene.variables:
                return scene.variables[name]
            return scene.memory.view(name, scene.active)

        if name not in self._plan.scenario.tensors and name not in self._plan.introduced:
            return self._variable_or_dtype(name)
        return held

    def _variable_or_dtype(self, name: str) -> Closure:
        def found(scene: Scene) -> Value:
            if name in scene.variables:
                return scene.variables[name]
            if _is_dtype(self._functions, name):
                return name
            return leave(name)

        return found

    def attribute(self, node: ast.Attribute) -> Closure:
        """The dotted name of a group."""
        dotted = ast.unparse(node)
        return lambda scene: self._group_ranks(dotted, scene)

    # ------------------------------------------------------------------ groups

    def _group_ranks(self, name: str, scene: Scene) -> list[int]:
        """Return a group's ranks where all active ranks are its members."""
        groups = self._plan.names.get(name, ())
        if len(groups) != 1 or groups[0].size < scene.active.size:
            leave("the ranks of several groups")
        if scene.memory.group_ranks(name)[scene.active.index].min(initial=0) < 0:
            leave("the ranks of a group of others")
        return groups[0].listed

    def _group_call(self, node: ast.Call, name: str) -> Closure:
        given = node.args[0] if node.args else node.keywords[0].value
        group = ast.unparse(given)
        if group not in self._plan.names:
            group = str(self._constants.get(group, group))
        if name == "group_ranks":
            return lambda scene: list(self._group_ranks(group, scene))

        def group_rank(scene: Scene) -> Value:
            values = scene.memory.group_ranks(group)[scene.active.index]
            return Lanes(values, -1, self._plan.world_size - 1)

        def group_size(scene: Scene) -> Value:
            values = scene.memory.group_sizes(group)[scene.active.index]
            low, high = int(values.min()), int(values.max())
            return low if low == high else Lanes(values, low, high)

        return group_rank if name == "group_rank" else group_size

    # ------------------------------------------------------------------ operators

    def binary(self, node: ast.BinOp) -> Closure:
        """Arithmetic."""
        symbol = BINARY[type(node.op)]
        functions, plain = self._functions, self._functions[symbol]
        left, right = self._visit(node.left), self._visit(node.right)

        def apply(scene: Scene) -> Value:
            first, second = left(scene), right(scene)
            if varies(first) or varies(second):
                return rules.combined(functions, symbol, first, second)
            return plain(first, second)

        return apply

    def unary(self, node: ast.UnaryOp) -> Closure:
        """A sign, or `not`."""
        operand, functions = self._visit(node.operand), self._functions

        def refused(_: Scene) -> Value:
            leave("~")

        def negation(scene: Scene) -> Value:
            value = operand(scene)
            return Lanes(~rules.truth(value), 0, 1) if varies(value) else not value

        def negative(scene: Scene) -> Value:
            value = operand(scene)
            return rules.negated(functions, value) if varies(value) else functions["u-"](value)

        return {ast.Not: negation, ast.USub: negative}.get(type(node.op), refused)

    def boolean(self, node: ast.BoolOp) -> Closure:
        """`and`, `or`: of plain truth values, or where the first decides alone."""
        parts = [self._visit(value) for value in node.values]
        decides = isinstance(node.op, ast.Or)
        join = np.logical_or if decides else np.logical_and

        def apply(scene: Scene) -> Value:
            result = parts[0](scene)
            for each in parts[1:]:
                if not varies(result):
                    if bool(result) == decides:
                        return result
                    result = each(scene)
                    continue
                other = each(scene)
                if not (_is_truth(result) and _is_truth(other)):
                    leave("a choice of values")
                values = other.values if isinstance(other, Lanes) else other
                result = Lanes(np.asarray(join(result.values, values)), 0, 1)
            return result

        return apply

    def conditional(self, node: ast.IfExp) -> Closure:
        """`x if c else y`."""
        test, first, second = (self._visit(each) for each in (node.test, node.body, node.orelse))

        def apply(scene: Scene) -> Value:
            found = test(scene)
            if not varies(found):
                return first(scene) if found else second(scene)
            return rules.chosen(found, first(scene), second(scene))

        return apply

    def compare(self, node: ast.Compare) -> Closure:
        """Comparisons, of two operands or in a chain."""
        if any(type(op) not in COMPARISONS for op in node.ops):
            return _beyond("is")
        symbols = [COMPARISONS[type(op)] for op in node.ops]
        parts = [self._visit(each) for each in (node.left, *node.comparators)]

        def apply(scene: Scene) -> Value:
            first, result = parts[0](scene), None
            for symbol, each in zip(symbols, parts[1:], strict=True):
                second = each(scene)
                found = self._compared(symbol, first, second)
                result = found if result is None else _both(result, found)
                first = second
            return result

        return apply

    def _compared(self, symbol: str, first: Value, second: Value) -> Value:
        if not varies(first) and not varies(second):
            return self._functions[symbol](first, second)
        if symbol == "in":
            return rules.contained(first, second)
        if symbol == "not in":
            return Lanes(~rules.contained(first, second).values, 0, 1)
        return rules.combined(self._functions, symbol, first, second)

    # ------------------------------------------------------------------ parts and lists

    def subscript(self, node: ast.Subscript) -> Closure:
        """A part of a tensor, an item of a list."""
        value, index, plain = (
            self._visit(node.value),
            self._index(node.slice),
            self._functions["[]"],
        )

        def apply(scene: Scene) -> Value:
            found, at = value(scene), index(scene)
            if not varies(found) and not _index_varies(at):
                return plain(found, at)
            return part(found, at)

        return apply

    def _index(self, node: ast.expr) -> Closure:
        if isinstance(node, ast.Tuple):
            parts = [self._index(each) for each in node.elts]
            return lambda scene: tuple(each(scene) for each in parts)
        if isinstance(node, ast.Slice):
            bounds = [
                self._visit(each or ast.Constant(value=None))
                for each in (node.lower, node.upper, node.step)
            ]
            return lambda scene: slice(*(each(scene) for each in bounds))
        return self._visit(node)

    def sequence(self, node: ast.List | ast.Tuple) -> Closure:
        """A list."""
        parts = [self._visit(each) for each in node.elts]
        return lambda scene: [each(scene) for each in parts]

    def call(self, node: ast.Call) -> Closure:
        """A call of one of the language's functions."""
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in {"group_rank", "group_size", "group_ranks"}:
            return self._group_call(node, name)
        function = self._functions.get(f"{name}()")
        if function is None:
            return _beyond(name)
        arguments = [self._visit(each) for each in node.args]
        keywords = {str(each.arg): self._visit(each.value) for each in node.keywords}

        def apply(scene: Scene) -> Value:
            given = [each(scene) for each in arguments]
            named = {key: each(scene) for key, each in keywords.items()}
            if not any(map(varies, given)) and not any(map(varies, named.values())):
                return function(*given, **named)
            return self._called(name, given, named, scene)

        return apply

    def _called(
        self, name: str, given: list[Value], named: dict[str, Value], scene: Scene
    ) -> Value:
        functions = self._functions
        if name in _ELEMENTWISE and not named:
            return rules.elementwise(functions, f"{name}()", *given)
        if name == "astype" and not named and not varies(given[1]):
            return Stack(functions["astype()"](rules.tensor_of(given[0]), given[1]))
        if name in {"concat", "stack"}:
            axis = given[1] if len(given) > 1 else named.pop("axis", 0)
            if not named:
                return rules.joined(functions, f"{name}()", given[0], axis, scene.active.size)
        if name == "full" and not named and not varies(given[0]):
            dtype = given[2] if len(given) > 2 else "float32"  # noqa: PLR2004 -- its third argument
            return rules.filled(functions, given[0], given[1], dtype)
        if name == "reshape" and not named and not varies(given[1]):
            return rules.reshaped(*given)
        if name == "int":
            return rules.whole_number(given[0])
        if name in {"len", "shape", "numel"} and isinstance(given[0], Stack | View):
            return functions[f"{name}()"](np.broadcast_to(np.zeros(()), given[0].shape))
        return leave(name)


def _index_varies(index: Value) -> bool:
    if isinstance(index, tuple):
        return any(_index_varies(each) for each in index)
    if index.__class__ is slice:
        return varies(index.start) or varies(index.stop) or varies(index.step)
    return varies(index)


def _is_truth(value: Value) -> bool:
    return value.__class__ is bool or (isinstance(value, Lanes) and value.kind == "b")


def _both(first: Value, second: Value) -> Value:
    """Return `first and second`, both truth values."""
    if not varies(first):
        return second if first else first
    if not _is_truth(first) or not _is_truth(second):
        leave("a chain of comparisons")
    values = second.values if isinstance(second, Lanes) else second
    return Lanes(np.asarray(np.logical_and(rules.truth(first), values)), 0, 1)


def _is_dtype(functions: Mapping[str, Callable[..., Any]], name: str) -> bool:
    try:
        functions["zeros()"](0, name)
    except TypeError:
        return False
    return True


def _beyond(what: str) -> Closure:
    def refused(_: Scene) -> Value:
        leave(what)

    return refused


_VISITORS: dict[type[ast.expr], Any] = {
    ast.Constant: Compiler.constant,
    ast.Name: Compiler.name,
    ast.Attribute: Compiler.attribute,
    ast.BinOp: Compiler.binary,
    ast.UnaryOp: Compiler.unary,
    ast.BoolOp: Compiler.boolean,
    ast.IfExp: Compiler.conditional,
    ast.Compare: Compiler.compare,
    ast.Subscript: Compiler.subscript,
    ast.List: Compiler.sequence,
    ast.Tuple: Compiler.sequence,
    ast.Call: Compiler.call,
}
