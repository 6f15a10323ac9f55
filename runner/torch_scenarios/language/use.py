"""Other files' steps, in the names of the file that uses them.

A used file is a macro with hygiene: its steps are inserted where the `use` is, its inputs read what
`with:` gives in the names of the using file, and its own tensors, handles and groups get names that
nothing else has. Two uses of a ring in one scenario do not share a buffer.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from collections.abc import Mapping as Mapping_
from pathlib import Path, PurePosixPath

from msgspec import Struct

from torch_scenarios.errors import ScenarioError, nearest
from torch_scenarios.files import SUFFIXES, read_file
from torch_scenarios.language.context import (
    Binding,
    Context,
    DefinedNames,
    Definition,
    InlinedNames,
    correct,
)
from torch_scenarios.language.names import (
    HANDLES,
    NUMBER,
    definitions,
    is_name,
    is_text,
    list_names,
    police_definitions,
    police_name,
)
from torch_scenarios.language.validation import validate
from torch_scenarios.limits import account, explain_bound
from torch_scenarios.source.tree import (
    Mapping,
    Node,
    Scalar,
    Sequence,
    key_text,
    read_tree,
)

# The inputs of a file that others use: declared there, given by `with:`.


class Input(Struct, frozen=True):
    """One input of a used file; without a default it must be given.

    inputs: {size: , op: sum}        `size` has none, `op` has `sum`
    """

    name: str
    default: Node | None = None


def police_library(tree: Mapping, context: Context) -> None:
    """Note what is wrong with the names of a used file."""
    inputs = read_inputs(tree, context)
    police_definitions(
        [each for each in definitions(tree) if each.name not in inputs], context.problems
    )


def read_inputs(tree: Mapping, context: Context) -> dict[str, Input]:
    """Return the inputs of a file: a list of names, or names with a description or default."""
    node = tree.get("inputs")
    found: dict[str, Input] = {}
    match node:
        case Sequence():
            named_inputs: list[tuple[Node, Node | None]] = [(item, None) for item in node.items]
        case Mapping():
            named_inputs = list(node.entries)
        case _:
            return {}
    for name, about in named_inputs:
        if not is_text(name, context.problems, of="an input"):
            continue
        police_name(context.problems, name.text, name.mark, what="this input", fixed=True)
        if name.text in found:
            context.problems.add("duplicate_name", f"`{name.text}` is given twice", name.mark)
        found[name.text] = Input(name.text, _default(about))
    return found


def _default(about: Node | None) -> Node | None:
    return about.get("default") if isinstance(about, Mapping) else None


def bindings_of(
    inputs: Mapping_[str, Input], given: Mapping | None, file: Scalar, context: Context
) -> dict[str, Binding]:
    """Return what stands for each input; notes those that are missing, or unknown.

    What is given is bound with its context, and read where the input is: `with: {x: "y[i]"}` in a
    loop over `i` is the `i` of that loop, at each turn.
    """
    found: dict[str, Binding] = {}
    for key, value in given.entries if given else []:
        name = key_text(key)
        if name in inputs:
            found[name] = Binding(node=value, context=context)
        else:
            context.problems.unknown(
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
            context.problems.add(
                "missing_input",
                f"the input `{name}` of `{file.text}` is not given",
                (given or file).mark,
                f"add `{name}:` under `with:`",
            )
        # a missing input still stands for something, so that one fault is reported once
        node = default if default is not None else Scalar(file.mark, None, "")
        found[name] = Binding(node=node, context=context)
    return found


# Which file a `use` means, and whether it may be read.


def permit(file: Scalar, context: Context) -> Path | None:
    """Return the file's path, if it may be read from here.

    Links are resolved first: a link inside the project to `/etc/passwd` leads out of it. None, with
    the problem noted, for a path that is absolute, leads out of the project, uses itself, or is
    nested too deep.
    """
    text = str(file.value)
    if PurePosixPath(text).is_absolute() or "\\" in text or ":" in text or "\0" in text:
        context.problems.add(
            "use_outside_project",
            f"`{text}` is not a relative path",
            file.mark,
            "a used file is named relative to the file that uses it",
        )
        return None
    path = Path(os.path.realpath(context.path.parent / text))
    root = context.library.root
    if not context.limits.follow_links and not path.is_relative_to(root):
        context.problems.add(
            "use_outside_project",
            f"`{text}` lies outside the project",
            file.mark,
            "used files lie below the folder that holds pyproject.toml or .git",
        )
        return None
    if path in context.chain:
        context.problems.add(
            "use_cycle", f"`{text}` uses itself, directly or through others", file.mark
        )
        return None
    if len(context.chain) > context.limits.max_use_depth:
        context.problems.add(
            "use_too_deep",
            f"`use` is nested too deep: {explain_bound('max_use_depth', context.limits)}",
            file.mark,
        )
        return None
    return path


def tree_of(path: Path, file: Scalar, context: Context) -> Mapping | None:
    """Return the tree of a used file, read once; None where it cannot be used.

    `read` holds None while a file is read and where it fails, so that its problems are reported
    once, however many steps use it.
    """
    library = context.library
    if path not in library.read:
        library.read[path] = None
        try:
            if path.suffix not in SUFFIXES or not path.exists():
                _note_missing(path, file, context)
                return None
            text = _text_of(path, file, context)
            if text is None:
                return None
            tree = read_tree(str(_show(path)), text, limits=context.limits)
        except ScenarioError as error:
            context.problems.keep(error.problems)
        except OSError as error:
            reason = error.strerror or "it cannot be read"
            context.problems.add("unreadable_file", f"`{file.text}`: {reason}", file.mark)
        else:
            library.read[path] = _library(tree, file, context)
    return library.read[path]


def _text_of(path: Path, file: Scalar, context: Context) -> bytes | None:
    """Return the bytes of a used file; None, told where it is used, for what may not be read."""
    try:
        return read_file(path, context.limits, context.library.root)
    except ScenarioError as error:
        for problem in error.problems:
            context.problems.add(
                problem.code, f"`{file.text}`: {problem.message}", file.mark, problem.hint
            )
        return None


def _note_missing(path: Path, file: Scalar, context: Context) -> None:
    siblings = (
        [each.name for each in path.parent.iterdir() if each.suffix in {".yaml", ".yml"}]
        if path.parent.is_dir()
        else []
    )
    close = nearest(path.name, siblings)
    context.problems.add(
        "file_not_found",
        f"there is no file `{file.text}` next to this one",
        file.mark,
        f"did you mean `{close}`?" if close else "the path is relative to this file",
        correct(path.name, close, siblings, file.mark),
    )


def _show(path: Path) -> Path:
    """Return a path as messages show it: relative where it is below the working folder."""
    working = Path.cwd()
    return path.relative_to(working) if path.is_relative_to(working) else path


def _library(tree: Node, file: Scalar, context: Context) -> Mapping | None:
    if isinstance(tree, Mapping) and tree.get("inputs") is not None:
        tree = validate(tree, context.problems)
        assert isinstance(tree, Mapping)
        police_library(tree, context)
        return tree
    context.problems.add(
        "not_a_library",
        f"`{file.text}` has no `inputs:`, so it cannot be used",
        file.mark,
        "a used file says `inputs: [...]` instead of `world_size:`",
    )
    return None


# Names that used files define because they were handed them.
#
# `new_group: {name: g}` in a file with the input `g` makes the group `pair` of a file that says
# `with: {g: pair}`.

#: what a step may make under a name that it was handed
_MADE = frozenset({"computed name", "new group", *HANDLES})


def list_definitions(tree: Mapping, context: Context) -> list[Definition]:
    """Return every name that a file defines, or has others define, in the order of the file.

    `context` is the file's own, for what it uses is named relative to it.
    """
    return [*definitions(tree), *_find_handed(tree.get("steps"), context, {})]


def _find_handed(
    steps: Node | None, context: Context, known: dict[Path, dict[str, set[str]]]
) -> Iterator[Definition]:
    """Yield the names that used files make because they were handed them, from the innermost out.

    `known` holds what each file makes under which of its inputs, so that a file that is used in 100
    places is looked through once.
    """
    for file, given in _uses(steps):
        path = permit(file, context)
        tree = tree_of(path, file, context) if path is not None else None
        if path is None or tree is None:
            continue
        if path not in known:
            known[path] = {}
            inner = context.change(path=path, chain=(*context.chain, path))
            inputs = read_inputs(tree, inner)
            for each in (*definitions(tree), *_find_handed(tree.get("steps"), inner, known)):
                if each.name in inputs and each.sort in _MADE:
                    known[path].setdefault(each.name, set()).add(each.sort)
        for name, sorts in known[path].items():
            node = given.get(name) if given is not None else None
            if isinstance(node, Scalar) and isinstance(node.value, str) and is_name(node.value):
                yield from (Definition(sort, node.value, node) for sort in sorted(sorts))


def _uses(steps: Node | None) -> Iterator[tuple[Scalar, Mapping | None]]:
    """Yield the file and the `with` of each `use`, also inside of loops; no faulty one."""
    for step in steps.items if isinstance(steps, Sequence) else []:
        if not isinstance(step, Mapping):
            continue
        yield from _uses(step.get("steps"))
        use = step.get("use")
        file = use.get("file") if isinstance(use, Mapping) else use
        given = use.get("with") if isinstance(use, Mapping) else None
        if isinstance(file, Scalar) and isinstance(file.value, str):
            yield file, given if isinstance(given, Mapping) else None


# `use`: the steps of another file, inserted in the names of the file that uses it.
#
# A used file says `inputs:` instead of `world_size:`. What it computes, creates and starts itself
# gets a name that nothing else has, so that two files never meet by accident. Files are read only
# below the project's root: a scenario cannot reach into the rest of the machine.

#: units of work of a step that is read, once for each case (measured: some 10 us)
STEP_WORK = 5_000


def inline(
    key: Node, node: Node, context: Context, label: str | None
) -> tuple[Node | None, Context] | None:
    """Return the steps of a used file and the context to read them in; None where it fails.

    Within, `context.names` has what the file defines under its final name, and `inlined` says which
    name of the file that is.
    """
    police_number(next(context.uses), key, context)
    asked = _read_use(node)
    if asked is None:
        return None
    named_file, given = asked
    path = permit(named_file, context)
    if path is None:
        return None
    tree = tree_of(path, named_file, context)
    if tree is None:
        return None
    inputs = read_inputs(tree, context)
    bindings = bindings_of(inputs, given, named_file, context)
    found = list_definitions(tree, context.change(path=path, chain=(*context.chain, path)))
    own = list_names(found, "computed name", *HANDLES, "new group", "loop variable", NUMBER)
    local = list_names(found, "loop variable", NUMBER)
    fresh = {name: context.fresh(f"{path.stem}_{name}") for name in sorted(own - inputs.keys())}
    names = context.names
    there = context.change(
        path=path,
        chain=(*context.chain, path),
        loops={},
        lets=({},),
        names=replace_names(
            names,
            computed=names.computed
            | {fresh[n] for n in list_names(found, "computed name") & set(fresh)},
            handles=names.handles | {fresh[n] for n in list_names(found, *HANDLES) & set(fresh)},
            groups=names.groups | {fresh[n] for n in list_names(found, "new group") & set(fresh)},
        ),
        inlined=InlinedNames(
            stem=label or path.stem,
            bindings=bindings,
            renamed={name: final for name, final in fresh.items() if name not in local},
            variables={
                name: final
                for name, final in fresh.items()
                if name in list_names(found, "loop variable")
            },
            numbers={
                name: final for name, final in fresh.items() if name in list_names(found, NUMBER)
            },
        ),
    )
    return tree.get("steps"), there


def police_number(count: int, node: Node, context: Context) -> None:
    """Stop where there are more steps, or more uses, than allowed; `count` counts from 0.

    Ten files that each use the next one ten times would be 10^10 steps: it stops at the limit.
    """
    found = account()
    if found is not None:
        found.spend(STEP_WORK, node.mark)
    if count >= context.limits.max_file_steps:
        context.problems.add(
            "too_many_steps",
            f"more steps than allowed: {explain_bound('max_file_steps', context.limits)}",
            node.mark,
        )
        context.problems.raise_any()


def replace_names(
    names: DefinedNames,
    *,
    computed: frozenset[str],
    handles: frozenset[str],
    groups: frozenset[str],
) -> DefinedNames:
    """Return the names with further ones; `readable` is made anew.

    Functions, models and indexed handles stay behind: a used part reaches them by its inputs alone.
    """
    return DefinedNames(
        constants=names.constants,
        tensors=names.tensors,
        objects=names.objects,
        computed=frozenset(computed),
        handles=frozenset(handles),
        groups=frozenset(groups),
    )


def _read_use(node: Node) -> tuple[Scalar, Mapping | None] | None:
    if isinstance(node, Scalar) and isinstance(node.value, str):
        return node, None
    if not isinstance(node, Mapping):
        return None
    file, given = node.get("file"), node.get("with")
    if not isinstance(file, Scalar):
        return None
    return file, given if isinstance(given, Mapping) else None
