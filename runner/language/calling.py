"""What stands below an action: its arguments by name, or the one value that is all it takes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from runner.language import choosing
from runner.language.arguments import argument, named_arguments
from runner.language.foreign import likely
from runner.language.tree import Mapping, Node, Scalar, Sequence, key_text, kind_of

if TYPE_CHECKING:
    from runner.forms import Form
    from runner.language.context import Context
    from runner.operations.base import Operation
    from runner.operations.params import Param


def arguments_of(operation: Operation, key: Node, value: Node, context: Context) -> dict[str, Form]:
    """Return the arguments of an action, by their declared names; every fault is noted."""
    name = key_text(key)
    whole = _whole(operation, value, context)
    if whole is not None:
        return {whole.name: argument(value, context, replace(whole, name=name))}
    if isinstance(value, Scalar) and value.value is None:
        value = Mapping(key.mark, [])
    if not isinstance(value, Mapping):
        context.faults.add(
            "wrong_type",
            f"the arguments of {name} are {kind_of(value)}, not a mapping",
            value.mark,
            f"write `{usage(operation, name, value)}`; `scenario ops {name}` shows an example",
        )
        return {}
    if value.entries:
        value = Mapping(key.mark, value.entries)
    return named_arguments(value, context, operation.params, of=name)


def usage(operation: Operation, name: str, given: Node | None = None) -> str:
    """Return how an action is written; `given` may be the value of its first argument."""
    if operation.bare is not None:
        return f"{name}: ..."
    needed = [param for param in operation.params if param.required]
    is_text = isinstance(given, Scalar) and isinstance(given.value, str)
    shown = given.text if isinstance(given, Scalar) and is_text else "..."
    if not needed:
        return f"{name}: {{group: {shown}}}" if is_text else f"{name}: {{}}"
    rest = ", ..." if len(needed) > 1 else ""
    return f"{name}: {{{needed[0].name}: {shown}{rest}}}"


def _whole(operation: Operation, value: Node, context: Context) -> Param | None:
    """Return the parameter that the action's whole value is for; None for a mapping by name."""
    if operation.bare is not None:
        param = next(param for param in operation.params if param.name == operation.bare)
        return None if _names_it(param, value, context) else param
    listed = next((each for each in operation.params if each.kind == "p2p_ops"), None)
    if isinstance(value, Sequence) or (isinstance(value, Mapping) and _has_ranks(value)):
        return listed
    return None


def _names_it(param: Param, value: Node, context: Context) -> bool:
    """Whether a value is a mapping that names the parameter, perhaps misspelt."""
    if not isinstance(value, Mapping):
        return False
    spelt = (param.name, *param.aliases)
    if param.kind == "assignments":  # any name may be assigned to, also this one
        alone = len(value.entries) == 1 and value.words()[0] in spelt
        return alone and isinstance(value.entries[0][1], Mapping)
    strangers = (key for key in value.words() if key in spelt or key not in context.readable)
    return any(likely(key, spelt, "argument") for key in strangers)


def _has_ranks(node: Mapping) -> bool:
    """Whether some key of a mapping can be no argument's name: a rank, a list of ranks, `else`."""
    return any(
        not isinstance(key, Scalar) or not isinstance(key.value, str) or key.value == choosing.ELSE
        for key, _ in node.entries
    )
