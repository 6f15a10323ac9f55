"""A file as a whole: a mapping, in a version that is known, with the keys of the top level."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.language import choosing
from runner.language.foreign import likely
from runner.language.tree import Mapping, Node, Scalar, Sequence, key_text

if TYPE_CHECKING:
    from runner.language.context import Context

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
    "expect",
)


def the_mapping(tree: Node, context: Context) -> Mapping:
    """Return the file's mapping, in a version that is known; raises ScenarioError otherwise."""
    if not isinstance(tree, Mapping):
        choosing.wrong_type(tree, context, "the file", "a mapping with keys such as `steps:`")
        context.faults.raise_any()
    assert isinstance(tree, Mapping)  # noqa: S101 -- otherwise a fault was raised
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
        choosing.wrong_type(node, context, "`version`", f"a number such as {VERSION}")
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
