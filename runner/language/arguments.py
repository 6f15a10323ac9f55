"""The arguments of an operation, read by the kinds that its parameters declare."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

from runner.forms import Constant, Expression, ListForm, PerRank, Record
from runner.language import choosing, forms, kinds
from runner.language.expressing import expression
from runner.language.foreign import likely
from runner.language.namespace import police_new_name
from runner.language.objects import object_argument
from runner.language.tree import Mapping, Node, Scalar, Sequence, key_text, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Mapping as Mapping_
    from collections.abc import Sequence as Sequence_

    from runner.forms import Form
    from runner.language.context import Context
    from runner.operations.params import Param


Reader: TypeAlias = "Callable[[Node, Context, Param], Form]"


def argument(node: Node, context: Context, param: Param) -> Form:
    """Return the form of one argument."""
    form = READERS[param.kind](node, context, param)
    if param.writes:
        _police_output(form, node, context, param)
    return form


# ---------------------------------------------------------------------- tensors


def _tensor(node: Node, context: Context, param: Param) -> Form:  # noqa: ARG001 -- one signature
    return forms.value(node, context)


def _tensors(node: Node, context: Context, param: Param) -> Form:
    node, context = context.resolve(node)
    if isinstance(node, Sequence):
        return _list_of(node, context, lambda item, there: _tensor(item, there, param))
    return _named_or_per_rank(node, context, param, _tensors)


def _tensor_lists(node: Node, context: Context, param: Param) -> Form:
    node, context = context.resolve(node)
    if isinstance(node, Sequence):
        return _list_of(node, context, lambda item, there: _tensors(item, there, param))
    return _named_or_per_rank(node, context, param, _tensor_lists)


def _list_of(node: Sequence, context: Context, build: Callable[[Node, Context], Form]) -> Form:
    items = tuple(build(item, context) for item in node.items)
    if items and all(isinstance(item, Constant) for item in items):
        values = [item.value for item in items if isinstance(item, Constant)]
        return Constant(value=values, mark=node.mark)
    return ListForm(items=items, mark=node.mark)


def _named_or_per_rank(node: Node, context: Context, param: Param, again: Reader) -> Form:
    match node:
        case Mapping():
            return choosing.per_rank(node, context, lambda item, there: again(item, there, param))
        case Scalar(value=str()):
            return expression(node, context)
        case Scalar(value=None):
            return Constant(value=None, mark=node.mark)
        case _:
            return choosing.wrong_type(node, context, f"`{param.name}`", "a list")


def _police_output(form: Form, node: Node, context: Context, param: Param) -> None:
    """Refuse an output that could keep nothing: data, or an expression that makes a new tensor."""
    if _keeps(form):
        return
    wanted = "the name of a tensor or a view of one"
    hint = "define it under `tensors:`, then name it here: `x`, `x[0:2]`"
    if param.kind == "objects":
        wanted = "the name of a list under `objects:`"
        hint = "define it there, `items: [1, two]`, then name it here"
    elif isinstance(form, Expression) and re.search(r"\w\[", form.text):
        hint = "a list or a mask in brackets makes a copy; a slice, `x[0:2]`, is a view"
    message = f"`{param.name}` is written to, so it must be {wanted}"
    context.faults.add("output_not_a_name", message, node.mark, hint)


def _keeps(form: Form) -> bool:
    match form:
        case Expression():
            return bool(form.roots)
        case ListForm():
            return all(_keeps(item) for item in form.items)
        case PerRank():
            branches = [item for _, item in form.branches]
            if form.otherwise is not None:
                branches.append(form.otherwise)
            return any(_keeps(item) for item in branches)
        case Constant():
            return form.value is None
        case _:
            return False


# ---------------------------------------------------------------------- lists of operations


_PEERS = {"isend": "dst", "irecv": "src"}


def _p2p_ops(node: Node, context: Context, param: Param) -> Form:
    node, context = context.resolve(node)
    match node:
        case Sequence():
            items = tuple(_p2p_op(item, context, param) for item in node.items)
            return ListForm(items=items, mark=node.mark)
        case Mapping():
            return choosing.per_rank(
                node, context, lambda item, there: _p2p_ops(item, there, param)
            )
        case _:
            return choosing.wrong_type(
                node, context, f"`{param.name}`", "a list of isend and irecv"
            )


def _p2p_op(node: Node, context: Context, param: Param) -> Form:
    """Return one message; `{isend: {tensor: x, dst: 1}}` is short for its P2POp."""
    if not isinstance(node, Mapping):
        return choosing.wrong_type(node, context, "an item", "`{op: isend, tensor: x, peer: 1}`")
    fields: dict[str, Form] = {}
    inner, role = node, None
    if len(node.entries) == 1 and node.words()[0] in _PEERS:
        key, value = node.entries[0]
        role = _PEERS[key_text(key)]
        fields["op"] = Constant(value=key_text(key), mark=key.mark)
        if not isinstance(value, Mapping):
            return choosing.wrong_type(
                value, context, f"`{key_text(key)}`", "a mapping of arguments"
            )
        inner = value
    fields |= named_arguments(
        inner,
        context,
        tuple(field for field in param.fields if field.name not in fields),
        of="a message" if role is None else node.words()[0],
        renamed={} if role is None else {role: "peer", f"group_{role}": "group_peer"},
    )
    return Record(fields=fields, mark=node.mark)


def named_arguments(
    node: Mapping,
    context: Context,
    params: Sequence_[Param],
    *,
    of: str,
    renamed: Mapping_[str, str] | None = None,
) -> dict[str, Form]:
    """Return the arguments in a mapping by their declared names; every fault is noted.

    `of` names what takes them; `renamed` maps further spellings to declared names.
    """
    spelt = {name: param for param in params for name in (param.name, *param.aliases)}
    spelt |= {word: spelt[name] for word, name in (renamed or {}).items()}
    found: dict[str, Form] = {}
    meant: set[str | None] = set()
    for key, value in node.entries:
        name = key_text(key)
        param = spelt.get(name)
        if param is None:
            close = likely(name, spelt, "argument")
            meant.add(spelt[close].name if close else None)
            context.faults.unknown(
                "unknown_argument",
                f"unknown argument `{name}` of {of}",
                name,
                tuple(spelt),
                key.mark,
                listed="its arguments are",
                sort="argument",
            )
        elif param.name in found:
            message = f"`{name}` and `{param.name}` are the same argument of {of}"
            context.faults.add("duplicate_argument", message, key.mark)
        else:
            found[param.name] = argument(value, context, param)
    for param in params:
        if param.required and param.name not in found and param.name not in meant:
            context.faults.add(
                "missing_argument",
                f"{of} has no `{param.name}`",
                node.mark,
                f"{param.name}: {param.description}",
            )
    return found


def _assignments(node: Node, context: Context, param: Param) -> Form:  # noqa: ARG001
    if not isinstance(node, Mapping):
        return choosing.wrong_type(node, context, "`compute`", "a mapping from names to values")
    fields: dict[str, Form] = {}
    for key, item in node.entries:
        if not isinstance(key, Scalar) or not isinstance(key.value, str):
            context.faults.add("bad_name", f"{kind_of(key)} is no name", key.mark)
            continue
        police_new_name(key, context, what="the name")
        target, there = context.resolve(key)
        name = there.final(target.text if isinstance(target, Scalar) else key.value)
        _police_target(name, key, context)
        fields[name] = forms.value(item, context)
    return Record(fields=fields, mark=node.mark)


def _police_target(name: str, key: Scalar, context: Context) -> None:
    if context.inlined is None or context.is_opaque(name):
        return  # what a file itself defines twice is told once, for the whole file
    names = context.names
    taken = {"a parameter": names.constants, "a group": names.groups}
    sort = next((sort for sort, known in taken.items() if name in known), None)
    if sort:
        context.faults.add(
            "duplicate_name", f"`{name}` is {sort}; nothing can be assigned to it", key.mark
        )


READERS: dict[str, Reader] = {
    "tensor": _tensor,
    "tensors": _tensors,
    "tensor_lists": _tensor_lists,
    "rank": kinds.integer_argument,
    "group_rank": kinds.integer_argument,
    "tag": kinds.integer_argument,
    "group": kinds.group,
    "reduce_op": kinds.reduce_op,
    "sizes": kinds.integers_argument,
    "ranks": kinds.integers_argument,
    "flag": kinds.flag,
    "seconds": kinds.seconds_argument,
    "objects": object_argument,
    "object": object_argument,
    "handles": kinds.handles,
    "name": kinds.new_name,
    "word": kinds.word,
    "text": kinds.text,
    "p2p_ops": _p2p_ops,
    "assignments": _assignments,
}
