"""Expression -> a function that gives its value on all active ranks at once.

The text was checked and compiled by the language already. Here it is parsed once more, into
closures: what is the same on every rank goes through the language's own guarded functions, what
differs through :mod:`runner.reference.vector.rules`. What has no closure raises Beyond when called.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.reference.vector import rules
from runner.reference.vector.calling import called
from runner.reference.vector.indexing import part
from runner.reference.vector.leaves import Leaves
from runner.reference.vector.numbers import contained
from runner.reference.vector.values import Lanes, Value, leave, varies
from runner.symbols import BINARY, COMPARISONS

if TYPE_CHECKING:
    from runner.reference.vector.leaves import Closure, Scene


class Compiler(Leaves):
    """Compiles the expressions of one plan."""

    def compile(self, text: str) -> Closure:
        """Return the closure of an expression that the language has accepted."""
        return self._visit(ast.parse(text.strip().replace("\n", " "), mode="eval").body)

    def _visit(self, node: ast.expr) -> Closure:
        visitor = _VISITORS.get(type(node))
        return visitor(self, node) if visitor else _beyond(type(node).__name__)

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
            return contained(first, second)
        if symbol == "not in":
            return Lanes(~contained(first, second).values, 0, 1)
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
            return self.group_call(node, name)
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
            return called(self._functions, name, given, named, scene.active.size)

        return apply


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
