"""Expressions of a used file, rewritten into the names of the file that uses it.

Rewritten is the syntax tree, never the text, so that precedence holds: `x * 2` with
`x: "a + b"` is `(a + b) * 2`. The variables of comprehensions are renamed where they would
capture a name of the using file.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from runner.language.context import ALWAYS
from runner.language.tree import Mapping, Node, Scalar, Sequence
from runner.plan import WORLD
from runner.problems import ScenarioError
from runner.vocabulary import DTYPES

if TYPE_CHECKING:
    from runner.language.context import Context


def substituted(node: Scalar, context: Context) -> str | None:
    """Return the text of an expression in the names of the whole scenario.

    None where it cannot be had; the problem is noted. A text that is no Python is returned as it
    is: compiling it will say what is wrong.
    """
    if context.inlined is None:
        return str(node.value)
    tree = _parsed(str(node.value), context)
    if tree is None:
        return str(node.value)
    rewriter = _Rewriter(node, context)
    rewritten = rewriter.visit(tree)
    return None if rewriter.failed else ast.unparse(ast.fix_missing_locations(rewritten))


def with_groups(text: str, context: Context) -> str:
    """Return an expression with the group's name in place of a parameter that holds it."""
    groups = {*context.names.groups, WORLD}
    held = {
        name: value
        for name, value in context.names.constants.items()
        if isinstance(value, str) and value in groups and name in text
    }
    tree = _parsed(text, context) if held else None
    if tree is None:
        return text
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in held]
    for node in found:
        node.id = held[node.id]
    return ast.unparse(tree) if found else text


def _parsed(text: str, context: Context) -> ast.expr | None:
    if len(text) > context.limits.max_expression_chars:
        return None
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


class _Rewriter(ast.NodeTransformer):
    """Replaces the free names of one expression."""

    def __init__(self, node: Scalar, context: Context) -> None:
        self.node = node
        self.context = context
        self.failed = False
        self._bound: dict[str, str] = {}
        self._fresh = 0

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Replace an input by what `with:` gave, and a name of the file by its new name."""
        name = node.id
        context, inlined = self.context, self.context.inlined
        assert inlined is not None  # noqa: S101 -- only used files are rewritten
        if name in self._bound:
            return ast.Name(id=self._bound[name], ctx=node.ctx)
        if name in context.loops or name in inlined.renamed:
            return ast.Name(id=context.final(name), ctx=node.ctx)
        if name in inlined.bindings:
            binding = inlined.bindings[name]
            given = _as_expression(binding.node, binding.context)
            if given is None:
                self._fail_on(name)
                return node
            return given
        if name not in ALWAYS and name not in inlined.opaque and name not in DTYPES:
            from runner.language.expressing import unknown_name  # noqa: PLC0415 -- a cycle

            unknown_name(name, self.node, context)
            self.failed = True
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """Leave the name of a mesh's group as it is: `mesh.dp`."""
        if ast.unparse(node) not in self.context.names.groups:
            node.value = self.visit(node.value)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Rewrite the arguments; the function's name is no variable."""
        node.args = [self.visit(argument) for argument in node.args]
        for keyword in node.keywords:
            keyword.value = self.visit(keyword.value)
        if not isinstance(node.func, ast.Name):
            node.func = self.visit(node.func)
        return node

    def visit_ListComp(self, node: ast.ListComp) -> ast.expr:
        """Rename the comprehension's own variables, so that they capture nothing."""
        outer = dict(self._bound)
        for generator in node.generators:
            generator.iter = self.visit(generator.iter)
            for target in ast.walk(generator.target):
                if isinstance(target, ast.Name):
                    self._fresh += 1
                    self._bound[target.id] = f"{target.id}_{self._fresh}"
                    target.id = self._bound[target.id]
            generator.ifs = [self.visit(test) for test in generator.ifs]
        node.elt = self.visit(node.elt)
        self._bound = outer
        return node

    def _fail_on(self, name: str) -> None:
        self.failed = True
        self.context.faults.add(
            "input_in_expression",
            f"the input `{name}` is given as a mapping, and stands inside an expression here",
            self.node.mark,
            "give a name or an expression for it",
        )


def _as_expression(node: Node, context: Context) -> ast.expr | None:
    """Return what `with:` gave as a syntax tree in the names of the whole scenario."""
    node, context = context.resolve(node)
    match node:
        case Scalar(value=str()):
            text = substituted(node, context)
            parsed = None if text is None else _parsed(text, context)
            if text is not None and parsed is None:
                _complain(node, context)
            return parsed
        case Scalar():
            return _literal(node.value)
        case Sequence():
            items = [_as_expression(item, context) for item in node.items]
            kept = [item for item in items if item is not None]
            return ast.List(elts=kept, ctx=ast.Load()) if len(kept) == len(items) else None
        case Mapping():
            return None


def _literal(value: float | bool | None) -> ast.expr:  # noqa: FBT001 -- a YAML scalar
    if isinstance(value, float) and value in {float("inf"), float("-inf")}:
        return ast.parse("1e999" if value > 0 else "-1e999", mode="eval").body
    if isinstance(value, int | float) and not isinstance(value, bool) and value < 0:
        return ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=-value))
    return ast.Constant(value=value)


def _complain(node: Scalar, context: Context) -> None:
    from runner.language.expressions import compile_expression  # noqa: PLC0415 -- only if wrong

    try:
        compile_expression(str(node.value), node.mark, limits=context.limits)
    except ScenarioError as error:
        context.faults.keep(error.problems)
