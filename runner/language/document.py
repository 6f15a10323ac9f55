"""The top level of a file: from its tree to one Scenario for each case."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from runner.language import choosing, forms, heading
from runner.language.cases import cases
from runner.language.context import Context, Faults, Inlined, Names
from runner.language.groups import group_specs
from runner.language.handing import all_definitions
from runner.language.inputs import declared_inputs, police_library
from runner.language.making import unmade
from runner.language.namespace import HANDLES, Definition, named, police_definitions
from runner.language.objects import object_value
from runner.language.outcomes import final_expectation
from runner.language.steps import step_list
from runner.language.tree import Mapping, Node, Scalar, kind_of
from runner.language.used_files import Library
from runner.language.whole_file import is_library, police_scenario, the_mapping
from runner.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Mapping as Mapping_
    from pathlib import Path

    from runner.forms import Form
    from runner.language.limits import Limits
    from runner.language.making import Later
    from runner.scenario import GroupSpec


def scenarios(
    tree: Node, path: Path, sets: Mapping_[str, str], limits: Limits
) -> tuple[Scenario, ...]:
    """Return the cases of a file; none for a library, which is checked all the same.

    Raises ScenarioError with every problem, sorted by place.
    """
    faults = Faults()
    context = _context(faults, limits, Names(), path)
    tree = the_mapping(tree, context)
    if is_library(tree):
        _check_library(tree, context)
        faults.raise_any()
        return ()
    police_scenario(tree, context)
    found = all_definitions(tree, context)
    police_definitions(found, faults)
    made = [
        _scenario(tree, context, found, constants, suffix)
        for constants, suffix in cases(tree, context, sets, found)
    ]
    faults.raise_any()
    return tuple(replace(each, warnings=faults.warnings) for each in made)


def police_top(tree: Node, path: Path, limits: Limits) -> None:
    """Raise ScenarioError where the top level of a file is no scenario's, nor a library's.

    What is wrong further inside is not looked at.
    """
    faults = Faults()
    context = _context(faults, limits, Names(), path)
    tree = the_mapping(tree, context)
    (police_library if is_library(tree) else police_scenario)(tree, context)
    faults.raise_any()


def _context(faults: Faults, limits: Limits, names: Names, path: Path) -> Context:
    resolved = path.resolve()
    return Context(
        faults=faults,
        limits=limits,
        names=names,
        index=itertools.count(),
        uses=itertools.count(),
        step_names=set(),
        taken=set(names.readable | names.handles),
        library=Library(path),
        path=resolved,
        chain=(resolved,),
    )


def _anew(context: Context, names: Names) -> Context:
    """Return the context of one more case of the same file: its steps are numbered from 0."""
    return replace(
        context,
        names=names,
        index=itertools.count(),
        uses=itertools.count(),
        step_names=set(),
        taken=set(names.readable | names.handles),
    )


def _scenario(
    tree: Mapping,
    context: Context,
    found: list[Definition],
    constants: dict[str, Any],
    suffix: str,
) -> Scenario:
    names = Names(
        constants=constants,
        tensors=named(found, "tensor"),
        objects=named(found, "object"),
        computed=named(found, "computed name"),
        groups=named(found, "group", "new group"),
        handles=named(found, *HANDLES),
        indexed=named(found, "indexed work handle"),
        variables=named(found, "loop variable"),
    )
    context = _anew(context, names)
    context.taken.update(each.name for each in found)
    name = heading.text_of(tree, "name", context) or context.library.path.stem
    world_size = heading.world_size_of(tree, context)
    context = replace(
        context,
        world={"world_size": world_size},
        ranks=None if heading.world_varies(tree, context) else world_size,
    )
    backends = heading.backends_of(tree.get("backends"), context)
    return Scenario(
        source=tree.mark.source,
        name=name,
        case=name + suffix,
        world_size=world_size,
        description=heading.text_of(tree, "description", context),
        tags=heading.tags_of(tree.get("tags"), context),
        constants=constants,
        backends=backends,
        torch=heading.torch_of(tree.get("torch"), context),
        timeout_s=heading.timeout_of(tree, context),
        debug=heading.debug_of(tree.get("debug"), context),
        groups=_groups(tree.get("groups"), context, unmade("groups", found)),
        objects=_values(tree, "objects", context, object_value, found),
        tensors=_values(tree, "tensors", context, forms.value, found),
        steps=step_list(tree.get("steps"), context),
        expect=final_expectation(tree.get("expect"), context, backends or ()),
        mark=tree.mark,
    )


def _check_library(tree: Mapping, context: Context) -> None:
    """Check a file that others use, its inputs standing for anything."""
    police_library(tree, context)
    found = all_definitions(tree, context)
    inputs = frozenset(declared_inputs(tree, context))
    own = named(found, "computed name", *HANDLES, "new group")
    names = Names(
        computed=named(found, "computed name") | inputs,
        groups=named(found, "new group") | inputs,
        handles=named(found, *HANDLES) | inputs,
    )
    there = _anew(context, names)
    opaque = Inlined(
        stem=context.library.path.stem,
        renamed={name: name for name in own},
        opaque=inputs,
    )
    step_list(tree.get("steps"), there.inlining(opaque))


# ---------------------------------------------------------------------- its keys


def _values(
    tree: Mapping,
    key: str,
    context: Context,
    build: Callable[[Node, Context], Form],
    found: list[Definition],
) -> dict[str, Form]:
    """Return a mapping from names to values; empty where there is none."""
    node = tree.get(key)
    if node is None or _is_empty(node):
        return {}
    if not isinstance(node, Mapping):
        choosing.wrong_type(node, context, f"`{key}`", "a mapping from names to values")
        return {}
    made: dict[str, Form] = {}
    later = unmade(key, found)
    for name, value in node.entries:
        if isinstance(name, Scalar) and isinstance(name.value, str):
            there = replace(context, unmade=later, making=name.value)
            made[name.value] = build(value, there)
            later.pop(name.value, None)
        else:
            context.faults.add("bad_name", f"{kind_of(name)} is no name", name.mark)
    return made


def _groups(node: Node | None, context: Context, later: dict[str, Later]) -> tuple[GroupSpec, ...]:
    return () if node is None or _is_empty(node) else group_specs(node, context, later)


def _is_empty(node: Node) -> bool:
    return isinstance(node, Scalar) and node.value is None
