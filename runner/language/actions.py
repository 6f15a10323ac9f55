"""Which action a step has, and what may stand beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.language.foreign import STEPS, likely
from runner.language.tree import Mapping, Node, Scalar, key_text
from runner.operations import BY_NAME

if TYPE_CHECKING:
    from runner.language.context import Context


#: what may stand beside an action
BESIDE = ("name", "ranks", "as", "expect")


REPEAT = "for"


INSERT = "use"


BODY = "steps"


def action_of(node: Mapping, context: Context) -> tuple[Node, Node] | None:
    """Return the one action of a step; None where there is none. Notes unknown keys."""
    found: list[tuple[Node, Node]] = []
    strangers: list[Node] = []
    for key, value in node.entries:
        name = key_text(key)
        if name in BY_NAME or name in {REPEAT, INSERT}:
            found.append((key, value))
        elif name not in BESIDE and name != BODY:
            strangers.append(key)
    for key in strangers:
        _note_stranger(key, [key_text(action) for action, _ in found], context)
    for key, _ in found[1:]:
        context.faults.add(
            "several_actions",
            f"`{key_text(found[0][0])}` and `{key_text(key)}` are two actions in one step",
            key.mark,
            "give each action a step of its own: a `-` in front of it",
        )
    body = next((key for key, _ in node.entries if key_text(key) == BODY), None)
    if body is not None and not any(key_text(key) == REPEAT for key, _ in found):
        context.faults.add(
            "unknown_key", "`steps` has a meaning only beside `for`", body.mark, "add a `for:`"
        )
    if not found and not strangers and node.get("expect") is None and body is None:
        context.faults.add(
            "empty_step",
            "this step does nothing and expects nothing",
            node.mark,
            "add an operation, or an `expect`; `scenario ops` lists the operations",
        )
    return found[0] if found else None


def _note_stranger(key: Node, actions: list[str], context: Context) -> None:
    """Note a key that is neither an action nor stands beside one; `actions` are the step's own."""
    name = key_text(key)
    instead = STEPS.get(name.lower().replace("-", "_"))
    if not actions:
        close = likely(name, (*BY_NAME, REPEAT, INSERT, *BESIDE))
        hint = f"did you mean `{close}`?" if close else "`scenario ops` lists the operations"
        message = f"there is no operation `{name}`"
        context.faults.add("unknown_operation", message, key.mark, instead or hint)
        return
    beside = (*BESIDE, BODY) if REPEAT in actions else BESIDE
    taker = next((action for action in actions if name in _arguments_of(action)), None)
    close = likely(name, beside) or likely(name, (*BY_NAME, REPEAT, INSERT))
    hint = f"beside an action may stand {', '.join(beside)}"
    if taker is not None:
        hint = f"`{name}` is an argument: write it inside, `{taker}: {{..., {name}: ...}}`"
    elif close and instead is None:
        hint = f"did you mean `{close}`?"
    context.faults.add("unknown_key", f"unknown key `{name}` of a step", key.mark, instead or hint)


def _arguments_of(action: str) -> list[str]:
    operation = BY_NAME.get(action)
    params = operation.params if operation is not None else ()
    return [name for param in params for name in (param.name, *param.aliases)]


def police_handle(key: Node, value: Node, beside: dict[str, Node], context: Context) -> None:
    """Note `as` beside an action that starts no asynchronous work."""
    name = beside.get("as")
    if name is None:
        return
    operation = BY_NAME.get(key_text(key))
    if operation is not None and operation.asynchronous:
        return
    can = operation is not None and any(each.name == "async_op" for each in operation.params)
    given = value.get("async_op") if isinstance(value, Mapping) else None
    if can and given is not None and not (isinstance(given, Scalar) and given.value is False):
        return
    context.faults.add(
        "handle_without_work",
        f"`as` names work that goes on, but `{key_text(key)}` is complete when it returns",
        name.mark,
        "add `async_op: true` to its arguments" if can else "leave `as` out",
    )
