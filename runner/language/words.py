"""Fixed names: dtypes, reduce ops, groups, kinds, and parameters that hold one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.forms import Constant
from runner.language.choosing import per_rank
from runner.language.context import spelt_out
from runner.language.tree import Mapping, Node, Scalar, kind_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from runner.forms import Form
    from runner.language.context import Context


def fixed(
    node: Node, context: Context, known: Collection[str], *, code: str, what: str
) -> str | None:
    """Return a fixed name, or the one that a parameter of that name holds; None where it fails."""
    node, context = context.resolve(node)
    if not isinstance(node, Scalar) or not isinstance(node.value, str):
        context.faults.add(
            "wrong_type", f"{what} is {kind_of(node)}, not a name", node.mark, _listed(known)
        )
        return None
    name = context.final(node.value)
    if name in known or context.is_opaque(name):
        return name
    constants = context.names.constants if context.inlined is None else {}
    if name in constants:
        held = constants[name]
        if isinstance(held, str) and held in known:
            return held
        context.faults.add(
            code,
            f"the value {constants[name]!r} of `{name}` is no {what}",
            node.mark,
            _listed(known),
        )
        return None
    dims = tuple(each for each in sorted(known) if each.startswith(f"{name}."))
    if dims:
        context.faults.add(
            code,
            f"`{name}` is a mesh, not one {what}",
            node.mark,
            f"name a dimension: {', '.join(dims)}",
        )
        return None
    context.faults.unknown(
        code,
        f"unknown {what} `{node.value}`",
        name,
        known,
        node.mark,
        listed="known are",
        sort=what,
    )
    return None


def _listed(known: Collection[str]) -> str:
    return f"known are: {spelt_out(known)}"


def fixed_form(
    node: Node, context: Context, known: Collection[str], *, code: str, what: str
) -> Form:
    """Return a fixed name, or a mapping from ranks to such names."""
    node, context = context.resolve(node)
    if isinstance(node, Scalar) and node.value is None:
        return Constant(value=None, mark=node.mark)
    if isinstance(node, Mapping):
        return per_rank(
            node,
            context,
            lambda item, there: fixed_form(item, there, known, code=code, what=what),
        )
    return Constant(value=fixed(node, context, known, code=code, what=what), mark=node.mark)
