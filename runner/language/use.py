"""`use`: the steps of another file, inserted in the names of the file that uses it.

A used file says `inputs:` instead of `world_size:`. What it computes, creates and starts itself
gets a name that nothing else has, so that two files never meet by accident. Files are read only
below the project's root: a scenario cannot reach into the rest of the machine.
"""

from __future__ import annotations

from dataclasses import replace

from runner.language import choosing
from runner.language.budget import account
from runner.language.context import Context, Inlined, Names
from runner.language.handing import all_definitions
from runner.language.inputs import bindings_of, declared_inputs
from runner.language.limits import beyond
from runner.language.namespace import HANDLES, named
from runner.language.tree import Mapping, Node, Scalar, key_text
from runner.language.used_files import permitted, tree_of

#: units of work of a step that is read, once for each case (measured: some 10 us)
STEP_WORK = 5_000


def inline(
    key: Node, node: Node, context: Context, label: str | None
) -> tuple[Node | None, Context] | None:
    """Return the steps of a used file and the context to read them in; None where it fails."""
    police_number(next(context.uses), key, context)
    asked = _asked(node, key, context)
    if asked is None:
        return None
    named_file, given = asked
    path = permitted(named_file, context)
    if path is None:
        return None
    tree = tree_of(path, named_file, context)
    if tree is None:
        return None
    inputs = declared_inputs(tree, context)
    bindings = bindings_of(inputs, given, named_file, context)
    found = all_definitions(tree, replace(context, path=path, chain=(*context.chain, path)))
    own = named(found, "computed name", *HANDLES, "new group", "loop variable")
    fresh = {name: context.fresh(f"{path.stem}_{name}") for name in sorted(own - inputs.keys())}
    names = context.names
    there = replace(
        context,
        path=path,
        chain=(*context.chain, path),
        loops={},
        names=replace_names(
            names,
            computed=names.computed
            | {fresh[n] for n in named(found, "computed name") & set(fresh)},
            handles=names.handles | {fresh[n] for n in named(found, *HANDLES) & set(fresh)},
            groups=names.groups | {fresh[n] for n in named(found, "new group") & set(fresh)},
        ),
        inlined=Inlined(
            stem=label or path.stem,
            bindings=bindings,
            renamed={
                name: final
                for name, final in fresh.items()
                if name not in named(found, "loop variable")
            },
            variables={
                name: final
                for name, final in fresh.items()
                if name in named(found, "loop variable")
            },
        ),
    )
    return tree.get("steps"), there


def police_number(count: int, node: Node, context: Context) -> None:
    """Stop where there are more steps, or more uses, than allowed; `count` counts from 0."""
    found = account()
    if found is not None:
        found.spend(STEP_WORK, node.mark)
    if count >= context.limits.max_file_steps:
        context.faults.add(
            "too_many_steps",
            f"more steps than allowed: {beyond('max_file_steps', context.limits)}",
            node.mark,
        )
        context.faults.raise_any()


def replace_names(
    names: Names, *, computed: frozenset[str], handles: frozenset[str], groups: frozenset[str]
) -> Names:
    """Return the names with further ones; `readable` is made anew."""
    return Names(
        constants=names.constants,
        tensors=names.tensors,
        objects=names.objects,
        computed=frozenset(computed),
        handles=frozenset(handles),
        groups=frozenset(groups),
    )


# ---------------------------------------------------------------------- what is asked for


def _asked(node: Node, key: Node, context: Context) -> tuple[Scalar, Mapping | None] | None:
    if isinstance(node, Scalar) and isinstance(node.value, str):
        return node, None
    if not isinstance(node, Mapping):
        choosing.wrong_type(node, context, "`use`", "`{file: other.yaml, with: {x: x}}`")
        return None
    strangers = [word for word, _ in node.entries if key_text(word) not in {"file", "with"}]
    for word in strangers:
        context.faults.unknown(
            "unknown_key",
            f"unknown key `{key_text(word)}` of `use`",
            key_text(word),
            ("file", "with"),
            word.mark,
            listed="its keys are",
        )
    file, given = node.get("file"), node.get("with")
    if not isinstance(file, Scalar) or not isinstance(file.value, str):
        if file is not None or not strangers:
            context.faults.add(
                "missing_key", "this `use` names no `file`", key.mark, "write `{file: part.yaml}`"
            )
        return None
    if isinstance(given, Scalar) and given.value is None:
        given = None
    if given is not None and not isinstance(given, Mapping):
        choosing.wrong_type(given, context, "`with`", "a mapping from inputs to values")
        return None
    return file, given
