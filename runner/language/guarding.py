"""Python's syntax tree -> the tree that is compiled: what the language allows, and guarded.

An allow-list: a node that :mod:`runner.language.grammar` does not list is refused. Operators become
calls of guarded functions (`x * n` reads `*` from the scope and calls it), because only those know
dtypes and bounds; operators between plain numbers stay as they are, since nothing can go wrong.
An expression in which something is guarded begins with a call of `{`, which opens its budget:

    x * 2 + rank      ->      ({(elements, items), +(*(x, 2), rank))[1]
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from runner.language.grammar import GRAMMAR
from runner.language.guarded import (
    BEGIN,
    HERE,
    LOAD,
    NOTHING,
    Guarded,
    Refusal,
    Variable,
    call_node,
    constant_node,
)
from runner.language.limits import COUNTS, FLAGS
from runner.language.refusals import NOT_ALLOWED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from runner.language.limits import Limits

#: operators may nest this much deeper than brackets: `1 + 1 + 1` is a level for each sign
_LEVELS_PER_BRACKET = 4


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
            flag = FLAGS["max_expression_nodes"]
            message = f"the expression has {counted}; at most {most} ({flag} raises it)"
            self.refusals = [Refusal("expression_too_large", message)]
        if self._begins:
            elements, items = self.limits.max_elements, self.limits.max_items
            opened = call_node(BEGIN, constant_node(elements), constant_node(items))
            pair = ast.Tuple(elts=[opened, body], ctx=LOAD, **HERE)
            body = ast.Subscript(value=pair, slice=constant_node(1), ctx=LOAD, **HERE)
        return ast.Expression(body=body)

    def visit(self, node: ast.expr) -> Guarded:
        """Return a node guarded, by the rule of its type."""
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

    def visit_all(self, nodes: Sequence[ast.expr]) -> list[Guarded]:
        """Return nodes guarded."""
        return [self.visit(node) for node in nodes]

    def guarded_call(self, key: str, *arguments: ast.expr) -> ast.Call:
        """Return a call of a guarded function; the expression then needs a budget."""
        self._begins = True
        return call_node(key, *arguments)

    def refuse(
        self, node: ast.expr | ast.keyword, code: str, message: str, hint: str | None = None
    ) -> Guarded:
        """Note what is wrong; return a node that stands for the refused one."""
        self.refusals.append(Refusal(code, message, hint, self._spans(node)))
        return Guarded(constant_node(None))
