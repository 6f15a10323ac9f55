"""Numbers, names, and the dotted names of groups: the leaves of an expression."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.language.guarded import MAX_INT_BITS, Guarded, constant_node, dotted_name, name_node
from runner.language.refusals import ATTRIBUTE_HINTS
from runner.language.signatures import FUNCTION_NAMES, SIGNATURES
from runner.problems import nearest
from runner.vocabulary import DTYPES

if TYPE_CHECKING:
    import ast

    from runner.language.guarding import Guarding

DTYPE_NAMES = frozenset(DTYPES)

_NUMBER_NAMES = frozenset({"rank", "world_size"})


def constant(guarding: Guarding, node: ast.Constant) -> Guarded:
    """Allow numbers, True, False and None."""
    value = node.value
    if value is None or value.__class__ is bool:
        return Guarded(node, value is not None)
    if value.__class__ is int and value.bit_length() > MAX_INT_BITS:
        message = f"a number of {value.bit_length()} bits; at most {MAX_INT_BITS} are allowed"
        return guarding.refuse(node, "expression_too_large", message)
    if isinstance(value, int | float | complex):
        return Guarded(node, is_number=True)
    hint = None
    if isinstance(value, str) and value in DTYPE_NAMES:
        hint = f"a dtype stands without quotes: {value}"
    elif isinstance(value, str) and value.isidentifier():
        hint = f"a name stands without quotes: {value}"
    kind = "text" if isinstance(value, str | bytes) else "`...`"
    return guarding.refuse(
        node, "expression_not_allowed", f"an expression cannot hold {kind}", hint
    )


def name(guarding: Guarding, node: ast.Name) -> Guarded:
    """Allow a variable; the name of a dtype is that name itself."""
    name = node.id
    if name in guarding.bound:
        bound = guarding.bound[name]
        return Guarded(node, bound.is_number, bound.roots)
    if name in DTYPE_NAMES:
        return Guarded(constant_node(name))
    if name.startswith("__"):
        message = f"`{name}`: a name may not begin with two underscores"
        return guarding.refuse(node, "expression_not_allowed", message)
    guarding.names.add(name)
    if name in _NUMBER_NAMES:
        return Guarded(node, is_number=True)
    guarding.reads.add(name)
    return Guarded(node, roots=frozenset((name,)))


def attribute(guarding: Guarding, node: ast.Attribute) -> Guarded:
    """Allow the dotted name of a group and no attribute at all."""
    dotted = dotted_name(node)
    if dotted is not None and dotted in guarding.groups:
        guarding.names.add(dotted)
        return Guarded(name_node(dotted), roots=frozenset((dotted,)))
    return refuse_attribute(guarding, node, dotted)


def refuse_attribute(guarding: Guarding, node: ast.Attribute, dotted: str | None) -> Guarded:
    """Refuse an attribute, with what to write instead where that is known."""
    shown = dotted or f".{node.attr}"
    message = f"`{shown}`: an expression has no attributes"
    hint = ATTRIBUTE_HINTS.get(node.attr)
    groups = [group for group in guarding.groups if "." in group]
    close = nearest(dotted, groups) if dotted and groups else None
    if close:
        hint = f"did you mean the group `{close}`?"
    elif hint is None and node.attr in FUNCTION_NAMES:
        hint = f"functions stand alone: {SIGNATURES[node.attr].usage}"
    return guarding.refuse(node, "expression_not_allowed", message, hint)
