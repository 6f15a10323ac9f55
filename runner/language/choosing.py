"""Who: selectors, mappings from ranks to anything, and the integers that ranks are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from runner.forms import Constant, ListForm, PerRank, Selector
from runner.language.expressing import FAILED, expression
from runner.language.tree import Mapping, Node, Scalar, Sequence, key_text, kind_of, source_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from runner.forms import Form
    from runner.language.context import Context


T = TypeVar("T")


ELSE = "else"


def selector(node: Node, context: Context) -> Selector:
    """Return which ranks a node selects: an integer, a list of integers or an expression."""
    text = source_text(node)
    node, context = context.resolve(node)
    match node:
        case Scalar(value=bool() | int()):
            form: Form = Constant(value=node.value, mark=node.mark)
            _police_rank(node, context)
        case Scalar(value="else"):
            message = "`else` is the rest of a mapping by rank, and no selector"
            hint = "write a condition such as `rank > 0`; left out, `ranks` is everyone"
            context.faults.add("bad_selector", message, node.mark, hint)
            form = FAILED
        case Scalar(value=str()):
            form = expression(node, context)
        case Sequence():
            form = integers(node, context, what="a selector")
            for item in node.items:
                _police_rank(item, context)
        case _:
            wrong_type(node, context, "a selector", "a rank, a list of ranks or an expression")
            form = FAILED
    return Selector(form=form, text=text, mark=node.mark)


def _police_rank(node: Node, context: Context) -> None:
    """Note a number that is no rank of the world: a negative one is none of any world.

    A number beyond the world is passed over where the file has cases of several sizes, and in a
    used part, which is written for any world.
    """
    if not isinstance(node, Scalar) or node.value.__class__ is not int:
        return
    if node.value < 0:
        context.faults.add(
            "bad_selector",
            f"{node.value} is no rank, so it selects no rank",
            node.mark,
            "ranks count from 0; the last one is `world_size - 1`",
        )
    elif context.ranks is not None and context.inlined is None and node.value >= context.ranks:
        number = f"{context.ranks} rank{'' if context.ranks == 1 else 's'}"
        context.faults.add(
            "rank_out_of_range",
            f"{node.value} is no rank of this world of {number}",
            node.mark,
            f"ranks count from 0; the last one is {context.ranks - 1}",
        )


def per_rank(node: Mapping, context: Context, build: Callable[[Node, Context], T]) -> PerRank[T]:
    """Return a mapping from selectors to what `build` makes of its values."""
    branches: list[tuple[Selector, T]] = []
    otherwise: T | None = None
    for key, value in node.entries:
        if key_text(key) == ELSE:
            otherwise = build(value, context)
        else:
            branches.append((selector(key, context), build(value, context)))
    if not node.entries:
        context.faults.add(
            "empty_mapping",
            "a mapping from ranks to values is empty",
            node.mark,
            "write `{0: ..., else: ...}`",
        )
    return PerRank(branches=tuple(branches), otherwise=otherwise, mark=node.mark)


def integer(node: Node, context: Context, *, what: str = "this") -> Form:
    """Return an integer, an expression, or a mapping from ranks to these."""
    node, context = context.resolve(node)
    match node:
        case Scalar(value=bool() | float()) | Sequence():
            return wrong_type(node, context, what, "an integer or an expression")
        case Scalar(value=str()):
            return expression(node, context)
        case Scalar():
            return Constant(value=node.value, mark=node.mark)
        case Mapping():
            return per_rank(node, context, lambda item, there: integer(item, there, what=what))


def integers(node: Node, context: Context, *, what: str = "this") -> Form:
    """Return a list of integers, an expression that yields one, or a mapping from ranks to it."""
    node, context = context.resolve(node)
    match node:
        case Sequence():
            for item in node.items:
                if isinstance(item, Scalar) and isinstance(item.value, bool | float):
                    wrong_type(item, context, f"an item of {what}", "an integer or an expression")
            return listing(
                node, context, lambda item, there: integer(item, there, what=f"an item of {what}")
            )
        case Scalar(value=str()):
            return expression(node, context)
        case Scalar(value=None):
            return Constant(value=None, mark=node.mark)
        case Scalar():
            return wrong_type(node, context, what, "a list of integers or an expression")
        case Mapping():
            return per_rank(node, context, lambda item, there: integers(item, there, what=what))


def listing(node: Sequence, context: Context, build: Callable[[Node, Context], Form]) -> Form:
    """Return a list: data where every item is, otherwise a list of forms."""
    if all(isinstance(item, Scalar) and not isinstance(item.value, str) for item in node.items):
        for item in node.items:
            if isinstance(item, Scalar) and item.value is None:
                context.faults.add("bad_value", "a list of numbers has an empty item", item.mark)
        plain = [item.value for item in node.items if isinstance(item, Scalar)]
        return Constant(value=plain, mark=node.mark)
    items = tuple(build(item, context) for item in node.items)
    if all(isinstance(item, Constant) for item in items):
        return Constant(value=[_constant(item) for item in items], mark=node.mark)
    return ListForm(items=items, mark=node.mark)


def _constant(form: Form) -> Any:  # noqa: ANN401 -- a value has any type
    return form.value if isinstance(form, Constant) else None


def wrong_type(node: Node, context: Context, what: str, wanted: str) -> Constant:
    """Note that a node is of the wrong sort."""
    context.faults.add(
        "wrong_type", f"{what} cannot be {kind_of(node)}", node.mark, f"write {wanted}"
    )
    return FAILED
