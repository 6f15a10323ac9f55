"""Arguments that are numbers, names, words or flags, by the kind that declares them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from runner.forms import Constant, ListForm, Record
from runner.language import choosing, durations, words
from runner.language.expressing import FAILED, constant_value, expression
from runner.language.foreign import likely
from runner.language.namespace import INDEXED, police_new_name
from runner.language.tree import Mapping, Node, Scalar, Sequence, key_text
from runner.operations.entries import PremulSum
from runner.vocabulary import REDUCE_OPS

if TYPE_CHECKING:
    from runner.forms import Form
    from runner.language.context import Context
    from runner.operations.params import Param


#: the reduce op that has a factor
PREMUL_SUM = "premul_sum"


def integer_argument(node: Node, context: Context, param: Param) -> Form:
    """Return a rank, a tag or the like."""
    return choosing.integer(node, context, what=f"`{param.name}`")


def integers_argument(node: Node, context: Context, param: Param) -> Form:
    """Return sizes or ranks."""
    return choosing.integers(node, context, what=f"`{param.name}`")


def seconds_argument(node: Node, context: Context, param: Param) -> Form:
    """Return a duration in seconds."""
    return durations.seconds(node, context, what=f"`{param.name}`")


def flag(node: Node, context: Context, param: Param) -> Form:
    """Return true, false, or what is one of them on each rank."""
    node, context = context.resolve(node)
    match node:
        case Scalar(value=bool()):
            return Constant(value=node.value, mark=node.mark)
        case Scalar(value=str()):
            if node.text in {"no", "off", "yes", "on", "No", "Off", "Yes", "On"}:
                context.faults.add(
                    "wrong_type",
                    f"`{node.text}` is a text in YAML 1.2, not a boolean",
                    node.mark,
                    "write true or false",
                )
                return FAILED
            return expression(node, context)
        case Mapping():
            return choosing.per_rank(node, context, lambda item, there: flag(item, there, param))
        case _:
            return choosing.wrong_type(node, context, f"`{param.name}`", "true or false")


def group(node: Node, context: Context, param: Param) -> Form:  # noqa: ARG001
    """Return a group's name; None is the world."""
    known = context.names.groups | {"world"}
    if isinstance(node, Sequence):
        message = "a step names its group, and does not list its ranks"
        hint = "make the group under `groups:`, or in a `new_group` step"
        context.faults.add("wrong_type", message, node.mark, hint)
        return FAILED
    return words.fixed_form(node, context, known, code="unknown_group", what="group")


def reduce_op(node: Node, context: Context, param: Param) -> Form:
    """Return the name of a reduce op, or `{premul_sum: factor}`."""
    node, context = context.resolve(node)
    if isinstance(node, Scalar) and node.value == PREMUL_SUM:
        message = f"`{PREMUL_SUM}` is stated without its factor"
        context.faults.add("unknown_op", message, node.mark, f"write `{{{PREMUL_SUM}: 0.5}}`")
        return FAILED
    if isinstance(node, Mapping):
        if node.words() == [PREMUL_SUM]:
            factor = constant_value(node.entries[0][1], context, what="the factor of premul_sum")
            if isinstance(factor, int | float):
                return Constant(value=PremulSum(factor=float(factor)), mark=node.mark)
            return FAILED
        stranger = node.words()[0] if len(node.entries) == 1 else ""
        if stranger not in context.readable and likely(stranger, (PREMUL_SUM,)):
            message = f"unknown reduce op `{stranger}`"
            hint = f"did you mean `{PREMUL_SUM}`?"
            context.faults.add("unknown_op", message, node.entries[0][0].mark, hint)
            return FAILED
        return choosing.per_rank(node, context, lambda item, there: reduce_op(item, there, param))
    return words.fixed_form(node, context, REDUCE_OPS, code="unknown_op", what="reduce op")


def handles(node: Node, context: Context, param: Param) -> Form:
    """Return the name of a work handle, or a list of names; by rank, nobody else waits."""
    node, context = context.resolve(node)
    if isinstance(node, Mapping):
        found = choosing.per_rank(node, context, lambda item, there: handles(item, there, param))
        nothing = Constant(value=[], mark=node.mark)
        return found if found.otherwise is not None else replace(found, otherwise=nothing)
    named = node.items if isinstance(node, Sequence) else [node]
    items = [item for each in named if (item := _handle(each, context)) is not None]
    if any(isinstance(item, ListForm) for item in items):
        return ListForm(items=tuple(items), mark=node.mark)
    kept = [item.value for item in items if isinstance(item, Constant)]
    return Constant(value=kept if isinstance(node, Sequence) else (kept or [""])[0], mark=node.mark)


def _handle(node: Node, context: Context) -> Form | None:
    """Return the name of a handle; with an index, a list of the name and the index."""
    node, context = context.resolve(node)
    handles = context.names.handles
    text = node.value if isinstance(node, Scalar) else None
    indexed = INDEXED.fullmatch(text) if isinstance(text, str) else None
    if indexed is not None:
        name = _handle(Scalar(mark=node.mark, value=indexed["name"], text=indexed["name"]), context)
        index = Scalar(mark=node.mark, value=indexed["index"], text=indexed["index"])
        if not isinstance(name, Constant):
            return None
        if context.inlined is None and name.value not in context.names.indexed:
            context.faults.add(
                "unknown_handle",
                f"`{name.value}` is one work handle, and has no index",
                node.mark,
                f"wait for `{name.value}`, or give each work a handle of its own: `as: {text}`",
            )
            return None
        return ListForm(items=(name, expression(index, context)), mark=node.mark)
    if isinstance(text, str) and text not in handles and context.final(text) in context.names.held:
        context.faults.add(
            "unknown_handle",
            f"`{text}` is a tensor, not a work handle",
            node.mark,
            "name the handle with `as` beside the asynchronous step, and wait for that name",
        )
        return None
    found = words.fixed(node, context, handles, code="unknown_handle", what="work handle")
    return None if found is None else Constant(value=found, mark=node.mark)


def new_name(node: Node, context: Context, param: Param) -> Form:
    """Return a name that the operation makes."""
    node, context = context.resolve(node)
    if not isinstance(node, Scalar) or not isinstance(node.value, str):
        return choosing.wrong_type(node, context, f"`{param.name}`", "a name")
    police_new_name(node, context, what=f"`{param.name}`")
    return Constant(value=context.final(node.value), mark=node.mark)


def word(node: Node, context: Context, param: Param) -> Form:
    """Return one of the words that the parameter declares, or `{word: text}`."""
    node, context = context.resolve(node)
    what = f"`{param.name}`"
    if isinstance(node, Scalar) and node.value is None:
        return choosing.wrong_type(node, context, what, f"one of {', '.join(param.words)}")
    if not isinstance(node, Mapping):
        return words.fixed_form(node, context, param.words, code="unknown_word", what=what)
    if set(node.words()).isdisjoint(param.words):
        return choosing.per_rank(node, context, lambda item, there: word(item, there, param))
    said, given = node.entries[0]
    if len(node.entries) > 1 or key_text(said) not in param.worded:
        takes = " or ".join(f"`{{{name}: text}}`" for name in param.worded)
        plain = ", ".join(name for name in param.words if name not in param.worded)
        return choosing.wrong_type(node, context, what, f"{takes}, or one word: {plain}")
    if isinstance(given, Scalar) and given.value is None:
        return choosing.wrong_type(given, context, f"the text of `{key_text(said)}`", "some text")
    return Record(fields={key_text(said): text(given, context, param)}, mark=node.mark)


def text(node: Node, context: Context, param: Param) -> Form:
    """Return free text."""
    node, context = context.resolve(node)
    if isinstance(node, Scalar):
        return Constant(value=None if node.value is None else node.text, mark=node.mark)
    return choosing.wrong_type(node, context, f"`{param.name}`", "text")
