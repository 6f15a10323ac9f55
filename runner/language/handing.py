"""Names that used files define because they were handed them.

`new_group: {name: g}` in a file with the input `g` makes the group `pair` of a file that says
`with: {g: pair}`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from runner.language.inputs import declared_inputs
from runner.language.namespace import HANDLES, Definition, definitions, is_name
from runner.language.tree import Mapping, Node, Scalar, Sequence
from runner.language.used_files import permitted, tree_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from runner.language.context import Context

#: what a step may make under a name that it was handed
_MADE = frozenset({"computed name", "new group", *HANDLES})


def all_definitions(tree: Mapping, context: Context) -> list[Definition]:
    """Return every name that a file defines, or has others define, in the order of the file.

    `context` is the file's own, for what it uses is named relative to it.
    """
    return [*definitions(tree), *_handed(tree.get("steps"), context, {})]


def _handed(
    steps: Node | None, context: Context, known: dict[Path, dict[str, set[str]]]
) -> Iterator[Definition]:
    for file, given in _uses(steps):
        path = permitted(file, context)
        tree = tree_of(path, file, context) if path is not None else None
        if path is None or tree is None:
            continue
        if path not in known:
            known[path] = {}
            inner = replace(context, path=path, chain=(*context.chain, path))
            inputs = declared_inputs(tree, inner)
            for each in (*definitions(tree), *_handed(tree.get("steps"), inner, known)):
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
