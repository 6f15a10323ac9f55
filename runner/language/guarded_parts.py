"""Indexing, lists and comprehensions."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from runner.language.guarded import (
    EACH,
    HERE,
    INDEX,
    LOAD,
    NOTHING,
    SLICE,
    Guarded,
    Variable,
    call_node,
    constant_node,
)
from runner.language.guarded_names import DTYPE_NAMES
from runner.language.signatures import FUNCTION_NAMES

if TYPE_CHECKING:
    from runner.language.guarding import Guarding

_COPYING = (ast.List, ast.ListComp, ast.Compare)
_INTEGER_SEQUENCES = frozenset({"range", "group_ranks", "shape"})


def subscript(guarding: Guarding, node: ast.Subscript) -> Guarded:
    """Guard indexing: a view of a tensor, an item of a list; by a list or a mask it is a copy."""
    value = guarding.visit(node.value)
    index = _index(guarding, node.slice)
    roots = NOTHING if isinstance(node.slice, _COPYING) else value.roots
    return Guarded(guarding.guarded_call(INDEX, value.node, index), roots=roots)


def _index(guarding: Guarding, node: ast.expr) -> ast.expr:
    if isinstance(node, ast.Tuple):
        parts = [_index(guarding, part) for part in node.elts]
        return ast.Tuple(elts=parts, ctx=LOAD, **HERE)
    if isinstance(node, ast.Slice):
        given = (node.lower, node.upper, node.step)
        parts = [
            constant_node(None) if each is None else guarding.visit(each).node for each in given
        ]
        return call_node(SLICE, *parts)
    return guarding.visit(node).node


def sequence(guarding: Guarding, node: ast.List | ast.Tuple) -> Guarded:
    """Allow a list; a tuple is one, too."""
    parts = guarding.visit_all(node.elts)
    made = ast.List(elts=[part.node for part in parts], ctx=LOAD, **HERE)
    return Guarded(made, roots=NOTHING.union(*(part.roots for part in parts)))


def comprehension(guarding: Guarding, node: ast.ListComp) -> Guarded:
    """Allow a list comprehension: each of its iterables is charged, times what it contains."""
    outer, before = guarding.bound, guarding.nodes
    guarding.bound = dict(outer)
    weight = constant_node(1)
    generators = [_generator(guarding, generator, weight) for generator in node.generators]
    element = guarding.visit(node.elt)
    guarding.bound = outer
    weight.value = guarding.nodes - before
    made = ast.ListComp(elt=element.node, generators=generators, **HERE)
    return Guarded(made, roots=element.roots)


def _generator(
    guarding: Guarding, generator: ast.comprehension, weight: ast.Constant
) -> ast.comprehension:
    iterable = guarding.visit(generator.iter)
    source = generator.iter
    integers = (
        isinstance(source, ast.Call)
        and isinstance(source.func, ast.Name)
        and source.func.id in _INTEGER_SEQUENCES
    )
    if generator.is_async:
        guarding.refuse(source, "expression_not_allowed", "a comprehension cannot be asynchronous")
    unpacks = not isinstance(generator.target, ast.Name)
    for target in _targets(generator.target):
        _bind(guarding, target, Variable(integers and not unpacks, iterable.roots))
    each = guarding.guarded_call(EACH, iterable.node, weight, constant_node(unpacks))
    tests = [guarding.visit(test).node for test in generator.ifs]
    return ast.comprehension(target=generator.target, iter=each, ifs=tests, is_async=0)


def _bind(guarding: Guarding, target: ast.expr, variable: Variable) -> None:
    if not isinstance(target, ast.Name):
        message = "a comprehension assigns to a name, or to names with commas between"
        guarding.refuse(target, "expression_not_allowed", message)
    elif target.id.startswith("__") or target.id in DTYPE_NAMES or target.id in FUNCTION_NAMES:
        message = f"`{target.id}` cannot name a variable of a comprehension"
        guarding.refuse(target, "expression_not_allowed", message)
    else:
        guarding.bound[target.id] = variable


def _targets(target: ast.expr) -> list[ast.expr]:
    return target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
