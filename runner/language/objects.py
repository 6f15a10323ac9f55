"""Plain YAML values for the object collectives: a string is a string, `{expr: ...}` computed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runner.forms import Constant, Objects
from runner.language import choosing
from runner.language.expressing import expression
from runner.language.tree import Mapping, Node, Scalar, Sequence, key_text, plain
from runner.problems import ScenarioError

if TYPE_CHECKING:
    from runner.forms import Form
    from runner.language.context import Context
    from runner.operations.params import Param

_COMPUTED = "expr"


def object_value(node: Node, context: Context) -> Form:
    """Return an entry of `objects:`: a plain value, or a mapping from ranks to plain values."""
    if _is_per_rank(node):
        assert isinstance(node, Mapping)  # noqa: S101 -- just tested
        return choosing.per_rank(node, context, _plain)
    return _plain(node, context)


def object_argument(node: Node, context: Context, param: Param) -> Form:
    """Return an argument of an object collective: a name, an expression, or YAML data."""
    node, context = context.resolve(node)
    if isinstance(node, Scalar) and isinstance(node.value, str):
        return expression(node, context)
    if isinstance(node, Scalar) and node.value is None:
        return Constant(value=None, mark=node.mark)
    if _is_per_rank(node):
        assert isinstance(node, Mapping)  # noqa: S101 -- just tested
        return choosing.per_rank(
            node, context, lambda item, there: object_argument(item, there, param)
        )
    return _plain(node, context)


def expected_object(node: Node, context: Context) -> Form:
    """Return what a name of `objects:` must hold: plain YAML, or one expression for all of it."""
    if _is_text(node):
        assert isinstance(node, Scalar)  # noqa: S101 -- just tested
        found = _as_known_expression(node, context)
        if found is not None:
            return found
    return _plain(node, context)


def _is_text(node: Node) -> bool:
    return isinstance(node, Scalar) and isinstance(node.value, str)


def _as_known_expression(node: Scalar, context: Context) -> Form | None:
    """Return a text as an expression where it is one over known names; otherwise it is text."""
    from runner.language.expressions import compile_expression  # noqa: PLC0415 -- rarely needed

    try:
        compiled = compile_expression(
            node.text, node.mark, groups=context.names.groups, limits=context.limits
        )
    except ScenarioError:
        return None
    known = compiled.names <= frozenset(context.readable) and (compiled.names or compiled.calls)
    return expression(node, context) if known else None


def _plain(node: Node, context: Context) -> Form:
    if _is_computed(node):
        return Objects(tree=_tree(node, context), mark=node.mark)
    if isinstance(node, Scalar) and node.value is None:
        return Constant(value=None, mark=node.mark)
    return Objects(tree=_tree(node, context), mark=node.mark)


def _is_computed(node: Node) -> bool:
    return isinstance(node, Mapping) and node.words() == [_COMPUTED]


def _is_per_rank(node: Node) -> bool:
    """Whether a mapping is from ranks to values: it has `else`, or all its keys are integers."""
    if not isinstance(node, Mapping) or not node.entries:
        return False
    return choosing.ELSE in node.words() or all(_selects(key) for key, _ in node.entries)


def _selects(key: Node) -> bool:
    if isinstance(key, Sequence):
        return True
    return isinstance(key, Scalar) and isinstance(key.value, int) and key.value is not True


def _tree(node: Node, context: Context) -> Any:  # noqa: ANN401 -- a YAML value has any type
    match node:
        case Scalar():
            return node.value
        case Sequence():
            return [_tree(item, context) for item in node.items]
        case Mapping() if _is_computed(node):
            item = node.entries[0][1]
            if isinstance(item, Scalar) and isinstance(item.value, str):
                computed = expression(item, context)
                return computed.value if isinstance(computed, Constant) else computed
            choosing.wrong_type(item, context, f"`{_COMPUTED}`", "an expression")
            return None
        case Mapping():
            return {_key(key): _tree(value, context) for key, value in node.entries}


def _key(key: Node) -> Any:  # noqa: ANN401
    value = plain(key)
    return key_text(key) if isinstance(value, list | dict) else value
