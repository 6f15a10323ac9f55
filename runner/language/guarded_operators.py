"""Operators: guarded, except where they can only meet plain numbers."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from runner.language.guarded import CHAIN, HERE, NOTHING, Guarded, constant_node
from runner.symbols import BINARY, COMPARISONS

if TYPE_CHECKING:
    from runner.language.guarding import Guarding

_UNARY = {ast.UAdd: "u+", ast.USub: "u-", ast.Invert: "~"}

#: between plain numbers these can neither grow without bound nor mean anything else
_PLAIN = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.BitAnd, ast.BitOr)


def binary(guarding: Guarding, node: ast.BinOp) -> Guarded:
    """Guard arithmetic, but between plain numbers."""
    left, right = guarding.visit(node.left), guarding.visit(node.right)
    numbers = left.is_number and right.is_number
    if numbers and isinstance(node.op, _PLAIN):
        plain = ast.BinOp(left=left.node, op=node.op, right=right.node, **HERE)
        return Guarded(plain, is_number=True)
    symbol = BINARY[type(node.op)]
    return Guarded(guarding.guarded_call(symbol, left.node, right.node), is_number=numbers)


def unary(guarding: Guarding, node: ast.UnaryOp) -> Guarded:
    """Guard a sign or `~`; `not` is Python's own."""
    operand = guarding.visit(node.operand)
    if isinstance(node.op, ast.Not):
        return Guarded(ast.UnaryOp(op=node.op, operand=operand.node, **HERE), is_number=True)
    if operand.is_number and not isinstance(node.op, ast.Invert):
        plain = ast.UnaryOp(op=node.op, operand=operand.node, **HERE)
        return Guarded(plain, is_number=True)
    key = _UNARY[type(node.op)]
    return Guarded(guarding.guarded_call(key, operand.node), is_number=operand.is_number)


def boolean(guarding: Guarding, node: ast.BoolOp) -> Guarded:
    """Allow `and` and `or`: Python's own, which give one of their operands."""
    parts = guarding.visit_all(node.values)
    return Guarded(
        ast.BoolOp(op=node.op, values=[part.node for part in parts], **HERE),
        all(part.is_number for part in parts),
        NOTHING.union(*(part.roots for part in parts)),
    )


def conditional(guarding: Guarding, node: ast.IfExp) -> Guarded:
    """Allow `x if c else y`: the branch not taken is not computed."""
    test, body, orelse = (guarding.visit(part) for part in (node.test, node.body, node.orelse))
    return Guarded(
        ast.IfExp(test=test.node, body=body.node, orelse=orelse.node, **HERE),
        body.is_number and orelse.is_number,
        body.roots | orelse.roots,
    )


def compare(guarding: Guarding, node: ast.Compare) -> Guarded:
    """Guard comparisons, but between plain numbers; a chain compares left to right."""
    if any(isinstance(op, ast.Is | ast.IsNot) for op in node.ops):
        return _compare_identity(guarding, node)
    parts = guarding.visit_all([node.left, *node.comparators])
    looks_inside = isinstance(node.ops[-1], ast.In | ast.NotIn)
    last_may_be_any = looks_inside and len(node.ops) == 1 and not guarding.bound
    if all(part.is_number for part in (parts[:-1] if last_may_be_any else parts)):
        return Guarded(
            ast.Compare(
                left=parts[0].node,
                ops=node.ops,
                comparators=[part.node for part in parts[1:]],
                **HERE,
            ),
            is_number=True,
        )
    symbols = [COMPARISONS[type(op)] for op in node.ops]
    nodes = [part.node for part in parts]
    if len(symbols) == 1:
        return Guarded(guarding.guarded_call(symbols[0], *nodes))
    return Guarded(guarding.guarded_call(CHAIN, constant_node(tuple(symbols)), *nodes))


def _compare_identity(guarding: Guarding, node: ast.Compare) -> Guarded:
    against = node.comparators[0]
    if len(node.ops) > 1 or not (isinstance(against, ast.Constant) and against.value is None):
        message = "`is` compares with None only"
        return guarding.refuse(node, "expression_not_allowed", message, "write `==`")
    left = guarding.visit(node.left)
    plain = ast.Compare(left=left.node, ops=node.ops, comparators=[constant_node(None)], **HERE)
    return Guarded(plain, is_number=True)
