"""The inputs of a file that others use: declared there, given by `with:`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from runner.language import choosing
from runner.language.context import Binding, Context
from runner.language.namespace import definitions, police_definitions, police_name
from runner.language.tree import Mapping, Node, Scalar, Sequence, key_text, kind_of

if TYPE_CHECKING:
    from collections.abc import Mapping as Mapping_


#: keys that a used file may have
LIBRARY_KEYS = ("version", "name", "description", "tags", "inputs", "steps")


@dataclass(frozen=True, slots=True)
class Input:
    """One input of a used file; without a default it must be given."""

    name: str
    default: Node | None = None


def police_library(tree: Mapping, context: Context) -> None:
    """Note what is wrong with the top level of a used file, and with its names."""
    for key, _ in tree.entries:
        if key_text(key) not in LIBRARY_KEYS:
            context.faults.unknown(
                "unknown_key",
                f"unknown key `{key_text(key)}` of a file with `inputs:`",
                key_text(key),
                LIBRARY_KEYS,
                key.mark,
                listed="its keys are",
            )
    if tree.get("steps") is None:
        context.faults.add("missing_key", "the file has no `steps`", tree.mark)
    inputs = declared_inputs(tree, context)
    police_definitions(
        [each for each in definitions(tree) if each.name not in inputs], context.faults
    )


def declared_inputs(tree: Mapping, context: Context) -> dict[str, Input]:
    """Return the inputs of a file: a list of names, or names with a description or default."""
    node = tree.get("inputs")
    found: dict[str, Input] = {}
    match node:
        case Sequence():
            named_inputs: list[tuple[Node, Node | None]] = [(item, None) for item in node.items]
        case Mapping():
            named_inputs = list(node.entries)
        case _:
            if node is not None:
                choosing.wrong_type(node, context, "`inputs`", "a list of names, or a mapping")
            return {}
    for name, about in named_inputs:
        if not isinstance(name, Scalar) or not isinstance(name.value, str):
            context.faults.add("bad_name", f"{kind_of(name)} is no name of an input", name.mark)
            continue
        police_name(context.faults, name.text, name.mark, what="this input", fixed=True)
        if name.text in found:
            context.faults.add("duplicate_name", f"`{name.text}` stands twice", name.mark)
        found[name.text] = Input(name.text, _default(about, context))
    return found


def _default(about: Node | None, context: Context) -> Node | None:
    if not isinstance(about, Mapping):
        return None
    for key, _ in about.entries:
        if key_text(key) not in {"description", "default"}:
            context.faults.unknown(
                "unknown_key",
                f"unknown key `{key_text(key)}` of an input",
                key_text(key),
                ("description", "default"),
                key.mark,
                listed="its keys are",
            )
    return about.get("default")


def bindings_of(
    inputs: Mapping_[str, Input], given: Mapping | None, file: Scalar, context: Context
) -> dict[str, Binding]:
    """Return what stands for each input; notes those that are missing, or unknown."""
    found: dict[str, Binding] = {}
    for key, value in given.entries if given else []:
        name = key_text(key)
        if name in inputs:
            found[name] = Binding(node=value, context=context)
        else:
            context.faults.unknown(
                "unknown_input",
                f"`{file.text}` has no input `{name}`",
                name,
                inputs,
                key.mark,
                listed="its inputs are",
            )
    missing = [name for name in inputs if name not in found]
    for name in missing:
        default = inputs[name].default
        if default is None:
            context.faults.add(
                "missing_input",
                f"the input `{name}` of `{file.text}` is not given",
                (given or file).mark,
                f"add `{name}:` under `with:`",
            )
        # a missing input still stands for something, so that one fault is told once
        node = default if default is not None else Scalar(file.mark, None, "")
        found[name] = Binding(node=node, context=context)
    return found
