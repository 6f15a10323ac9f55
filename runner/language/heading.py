"""The keys at the top of a file that are no names: world_size, tags, timeout and so on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.forms import Expression
from runner.language import choosing, durations, words
from runner.language.expressing import constant_value, expression
from runner.language.groups import backend_name
from runner.language.limits import beyond
from runner.language.namespace import police_length
from runner.language.tree import Mapping, Node, Scalar, Sequence, kind_of
from runner.versions import VersionRange

if TYPE_CHECKING:
    from runner.language.context import Context

DEBUG = ("off", "info", "detail")


def world_size_of(tree: Mapping, context: Context) -> int:
    """Return the number of ranks; 1 where it is not known."""
    node = tree.get("world_size")
    if node is None:
        return 1
    size = constant_value(node, context, what="`world_size`")
    if size is None:
        return 1
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        context.faults.add(
            "bad_world_size", "`world_size` must be an integer, at least 1", node.mark
        )
        return 1
    if size > context.limits.max_ranks:
        context.faults.add(
            "too_many_ranks",
            f"a world of {size} ranks; {beyond('max_ranks', context.limits)}",
            node.mark,
        )
    return size


def world_varies(tree: Mapping, context: Context) -> bool:
    """Return whether the number of ranks depends on a parameter or a matrix key."""
    node = tree.get("world_size")
    if not isinstance(node, Scalar) or not isinstance(node.value, str):
        return not isinstance(node, Scalar)
    form = expression(node, context)
    return not isinstance(form, Expression) or bool(form.names & context.names.constants.keys())


def text_of(tree: Mapping, key: str, context: Context) -> str:
    """Return a text of the top level; empty where there is none."""
    node = tree.get(key)
    if node is None:
        return ""
    if isinstance(node, Scalar):
        if key == "name":
            police_length(node.text, node.mark, context.faults, what="the `name`")
        return node.text.strip()
    choosing.wrong_type(node, context, f"`{key}`", "text")
    return ""


def tags_of(node: Node | None, context: Context) -> tuple[str, ...]:
    """Return the tags."""
    if node is None:
        return ()
    items = node.items if isinstance(node, Sequence) else [node]
    for item in items:
        if not isinstance(item, Scalar) or item.value is None:
            context.faults.add(
                "wrong_type",
                f"a tag is {kind_of(item)}, not a word",
                item.mark,
                "write `[groups, tutorial]`",
            )
        else:
            police_length(item.text, item.mark, context.faults, what="a tag")
    return tuple(item.text for item in items if isinstance(item, Scalar))


def backends_of(node: Node | None, context: Context) -> tuple[str, ...] | None:
    """Return the backends, or None for every one."""
    if node is None:
        return None
    items = node.items if isinstance(node, Sequence) else [node]
    if not items:
        context.faults.add(
            "bad_value",
            "`backends` is empty, so the scenario is never run",
            node.mark,
            "leave it out for every backend",
        )
    return tuple(name for item in items if (name := backend_name(item, context)))


def torch_of(node: Node | None, context: Context) -> VersionRange | None:
    """Return the versions of torch for which a scenario is meant, or None for every one."""
    if node is None:
        return None
    text = node.text if isinstance(node, Scalar) and node.value is not None else ""
    try:
        return VersionRange.read(text)
    except ValueError:
        context.faults.add(
            "bad_version",
            f"{f'`{text}`' if text else kind_of(node)} names no versions of torch",
            node.mark,
            'versions are written as in `torch: ">=2.7"` or `torch: ">=2.7, <2.14"`',
        )
    return None


def timeout_of(tree: Mapping, context: Context) -> float:
    """Return the process groups' timeout in seconds."""
    node = tree.get("timeout")
    default = 10.0
    if node is None:
        return default
    return durations.fixed_seconds(node, context, what="`timeout`") or default


def debug_of(node: Node | None, context: Context) -> str:
    """Return `off`, `info` or `detail`."""
    if node is None:
        return "off"
    if isinstance(node, Scalar) and node.value is False:
        return "off"
    return words.fixed(node, context, DEBUG, code="unknown_word", what="`debug`") or "off"
