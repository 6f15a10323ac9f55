"""The grammar of expressions: which nodes of Python's syntax are allowed, and how they are guarded.

What is not in this table is refused.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, TypeAlias

from runner.language.guarded_calls import call
from runner.language.guarded_names import attribute, constant, name
from runner.language.guarded_operators import binary, boolean, compare, conditional, unary
from runner.language.guarded_parts import comprehension, sequence, subscript

if TYPE_CHECKING:
    from collections.abc import Callable

    from runner.language.guarded import Guarded
    from runner.language.guarding import Guarding

Rule: TypeAlias = "Callable[[Guarding, Any], Guarded]"

GRAMMAR: dict[type[ast.expr], Rule] = {
    ast.Constant: constant,
    ast.Name: name,
    ast.Attribute: attribute,
    ast.BinOp: binary,
    ast.UnaryOp: unary,
    ast.BoolOp: boolean,
    ast.IfExp: conditional,
    ast.Compare: compare,
    ast.Subscript: subscript,
    ast.List: sequence,
    ast.Tuple: sequence,
    ast.ListComp: comprehension,
    ast.Call: call,
}
