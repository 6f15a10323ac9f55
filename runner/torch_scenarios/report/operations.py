"""The reference of steps, as text: from the operations' own declarations, so that it cannot age."""

from __future__ import annotations

import inspect

from torch_scenarios.expressions.params import KINDS, Param
from torch_scenarios.expressions.signatures import EXAMPLE_NAMES, EXAMPLES, SIGNATURES
from torch_scenarios.operations import OPERATIONS
from torch_scenarios.operations.base import (
    Collective,
    Compound,
    GroupCreation,
    Local,
    Operation,
    PointToPoint,
    RemoteCall,
    Waiting,
)

SHAPES: tuple[tuple[type[Operation], str], ...] = (
    (Collective, "Collectives: every member of the group takes part"),
    (PointToPoint, "Messages between two ranks"),
    (Waiting, "Waiting for asynchronous work"),
    (RemoteCall, "Calls of functions on another rank"),
    (GroupCreation, "Groups"),
    (Compound, "Several calls in one: tensors on device meshes"),
    (Local, "Local steps: no other rank is concerned"),
)


def overview() -> str:
    """Return every operation with its first line, by shape."""
    width = max(len(operation.name) for operation in OPERATIONS)
    parts = []
    for shape, title in SHAPES:
        lines = [
            f"  {operation.name:<{width}}  {_describe(operation)[0]}"
            for operation in OPERATIONS
            if isinstance(operation, shape)
        ]
        if lines:
            parts.append("\n".join([title, *lines]))
    more = "`scenario ops NAME` shows one whole, with an example; --functions those of expressions."
    return "\n\n".join([*parts, more])


def functions() -> str:
    """Return every function of expressions: how it is called, an example and its value."""
    lines = [
        f"  {each.usage}\n      {EXAMPLES[name][0]}  →  {EXAMPLES[name][1]}"
        for name, each in SIGNATURES.items()
    ]
    head = "Functions of expressions, each with an example and its value on rank 2 of:"
    return "\n\n".join([head, _indent(EXAMPLE_NAMES, 2), "\n".join(lines)])


def page(operation: Operation) -> str:
    """Return one operation whole: what it does, its arguments, an example that passes."""
    names = ", ".join((operation.name, *operation.aliases))
    parts = [names, "\n".join(_describe(operation)), _arguments(operation)]
    parts.append(f"Source: {operation.source}")
    if operation.example:
        example = _indent(operation.example, 4)
        parts.append(f"Example, a whole scenario that passes:\n\n{example}")
    return "\n\n".join(part for part in parts if part).rstrip()


def page_in_markdown(operation: Operation) -> str:
    """Return one operation whole as Markdown, for an editor that draws it beside the word."""
    names = ", ".join((operation.name, *operation.aliases))
    parts = [f"**{names}**", "\n".join(_describe(operation))]
    parts.append("\n".join(f"- {_argument_in_markdown(param)}" for param in operation.params))
    parts.append(f"Source: {operation.source}")
    if operation.example:
        parts.append(f"```yaml\n{operation.example.rstrip()}\n```")
    return "\n\n".join(part for part in parts if part)


def _describe(operation: Operation) -> list[str]:
    """Return the lines of an operation's docstring: the class is where its page is written."""
    return inspect.cleandoc(type(operation).__doc__ or "").splitlines()


def _arguments(operation: Operation) -> str:
    """Return the arguments as a page has them: the name, what it is for, what it takes."""
    if not operation.params:
        return ""
    bare = operation.bare is not None
    title = f"The value of `{operation.name}:` is:" if bare else "Arguments:"
    return "\n".join([title, *(_argument(param) for param in operation.params)])


def _argument(param: Param) -> str:
    also = f" (also {', '.join(param.aliases)})" if param.aliases else ""
    facts = ", ".join(_facts(param))
    noted = f" [{facts}]" if facts else ""
    return f"  {param.name}{also}{noted}\n      {_tell_meaning(param)}\n      {KINDS[param.kind]}"


def _argument_in_markdown(param: Param) -> str:
    facts = ", ".join(_facts(param))
    return f"`{param.name}`{f' *({facts})*' if facts else ''}: {_tell_meaning(param)}"


def _facts(param: Param) -> list[str]:
    facts = ["required"] if param.required else []
    if not param.required and param.default is not None:
        facts.append(f"default {str(param.default).lower()}")
    if param.writes:
        facts.append("written")
    return facts


def _tell_meaning(param: Param) -> str:
    """Return what an argument means, and the words that it may be."""
    words = f" One of: {', '.join(param.words)}." if param.words else ""
    return f"{param.description}{words}"


def _indent(text: str, by: int) -> str:
    return "\n".join(" " * by + line if line else "" for line in text.rstrip().splitlines())
