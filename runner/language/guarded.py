"""What guarded syntax is built of: nodes, the keys that they call, and what is known of them.

The keys are no names that an author can write, so that no variable hides a function or operator.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any, NamedTuple

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

NOTHING: frozenset[str] = frozenset()
HERE: dict[str, Any] = {"lineno": 1, "col_offset": 0, "end_lineno": 1, "end_col_offset": 0}
LOAD = ast.Load()


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
    roots: frozenset[str] = NOTHING


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of a comprehension."""

    is_number: bool
    roots: frozenset[str]


def name_node(key: str) -> ast.Name:
    """Return a node that reads `key` from the scope."""
    return ast.Name(id=key, ctx=LOAD, **HERE)


def constant_node(value: Any) -> ast.Constant:  # noqa: ANN401 -- whatever a constant may be
    """Return a node of a constant."""
    return ast.Constant(value=value, **HERE)


def call_node(key: str, *arguments: ast.expr) -> ast.Call:
    """Return a node that calls what the scope holds under `key`."""
    return ast.Call(func=name_node(key), args=list(arguments), keywords=[], **HERE)


def dotted_name(node: ast.expr) -> str | None:
    """Return `a.b` of names alone, or None."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted_name(node.value)
        return f"{base}.{node.attr}" if base is not None else None
    return None
