"""The keys of a file and of a step: which there are, and what may appear with what."""

from __future__ import annotations

from runner.language import values
from runner.language.context import STEPS, Context, likely
from runner.operations import BY_NAME
from runner.source.tree import Mapping, Node, Scalar, Sequence, key_text

# -------------------------------------------------------------------------------------------------
# A file as a whole: a mapping, in a version that is known, with the keys of the top level.

VERSION = 1

TOP_KEYS = (
    "version",
    "name",
    "description",
    "tags",
    "world_size",
    "parameters",
    "matrix",
    "backends",
    "torch",
    "timeout",
    "debug",
    "groups",
    "tensors",
    "objects",
    "steps",
    "truncated",
    "expect",
)


def the_mapping(tree: Node, context: Context) -> Mapping:
    """Return the file's mapping, in a version that is known; raises ScenarioError otherwise."""
    if not isinstance(tree, Mapping):
        values.wrong_type(tree, context, "the file", "a mapping with keys such as `steps:`")
        context.faults.raise_any()
    assert isinstance(tree, Mapping)
    _police_version(tree, context)
    return tree


def is_library(tree: Mapping) -> bool:
    """Whether a file is there for others to use."""
    return tree.get("inputs") is not None and tree.get("world_size") is None


def _police_version(tree: Mapping, context: Context) -> None:
    node = tree.get("version")
    if node is None:
        return
    given = node.value if isinstance(node, Scalar) else None
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        values.wrong_type(node, context, "`version`", f"a number such as {VERSION}")
    elif given > VERSION:
        context.faults.add(
            "newer_version",
            f"the file is in version {given} of the language; this program knows {VERSION}",
            node.mark,
            "install a newer scenario-runner",
        )
        context.faults.raise_any()


def police_scenario(tree: Mapping, context: Context) -> None:
    """Note keys at the top level that no scenario has, and those that are missing."""
    meant: set[str | None] = set()
    for key, _ in tree.entries:
        name = key_text(key)
        if name == "inputs":
            context.faults.add(
                "inputs_with_world_size",
                "a file has either `inputs`, to be used by others, or `world_size`, to be run",
                key.mark,
            )
        elif name not in TOP_KEYS:
            meant.add(likely(name, TOP_KEYS, "key of the file"))
            context.faults.unknown(
                "unknown_key",
                f"unknown key `{name}` at the top level",
                name,
                TOP_KEYS,
                key.mark,
                listed="its keys are",
                sort="key of the file",
            )
    for name, example in (("world_size", "world_size: 2"), ("steps", "steps: [...]")):
        if tree.get(name) is None and name not in meant:
            context.faults.add(
                "missing_key", f"the file has no `{name}`", tree.mark, f"add `{example}`"
            )
    steps = tree.get("steps")
    if isinstance(steps, Sequence) and not steps.items:
        context.faults.add("empty_steps", "there are no steps, so nothing is tested", steps.mark)


# -------------------------------------------------------------------------------------------------
# Which action a step has, and what may stand beside it.

#: what may stand beside an action
BESIDE = ("name", "ranks", "as", "at", "expect")


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
