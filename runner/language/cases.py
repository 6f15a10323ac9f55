"""Parameters, the matrix and `--set`: which constants each case of a file has."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

from runner.display import short
from runner.language import choosing, durations
from runner.language.context import Context, Names
from runner.language.expressing import constant_value
from runner.language.limits import beyond
from runner.language.making import Later, unmade
from runner.language.reader import parse
from runner.language.tree import Mapping, Node, Scalar, Sequence, key_text, plain, source_text
from runner.problems import ScenarioError, Source, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Mapping as Mapping_

    from runner.language.namespace import Definition

#: words that a parameter cannot hold as words: each rank has a number under them
NUMBERS = frozenset({"rank", "world_size"})

_WORLD_IS_COMPUTED = Later(
    "is itself computed from the parameters",
    "state `world_size` as a number, or compute this where it is used",
)

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?")


def cases(
    tree: Mapping, context: Context, sets: Mapping_[str, str], found: list[Definition]
) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the constants of each case and its suffix: `[dtype=int64]`, or nothing.

    `found` is what the whole file defines.
    """
    replaced = {name: _set_value(name, text, context) for name, text in sets.items()}
    parameters = _section(tree, "parameters", context)
    matrix = _matrix(tree, context, replaced)
    _police_sets(replaced, {**parameters, **matrix}, context)
    count = prod(len(values) for values in matrix.values())
    if count > context.limits.max_matrix_cases:
        context.faults.add(
            "too_many_cases",
            f"the matrix has {count} cases; {beyond('max_matrix_cases', context.limits)}",
            _mark_of(tree, "matrix"),
        )
        return
    world = _literal_world(tree)
    parameters |= {name: node for name, node in replaced.items() if name in parameters}
    suffixes: set[str] = set()
    told = any(len({_identity(node) for node in each}) < len(each) for each in matrix.values())
    for combination in itertools.product(*matrix.values()):
        constants: dict[str, Any] = {}
        later = unmade("parameters", found)
        if not world:
            later["world_size"] = _WORLD_IS_COMPUTED
        for name, node in (*zip(matrix, combination, strict=True), *parameters.items()):
            there = replace(
                context,
                names=Names(constants=constants),
                world=world,
                unmade=later,
                making=name,
            )
            constants[name] = constant(name, node, there)
            later.pop(name, None)
        shown = ",".join(f"{name}={_shown(constants[name])}" for name in matrix)
        if shown in suffixes and not told:
            context.faults.add(
                "duplicate_case",
                f"two cases of the matrix are called `[{shown}]`",
                _mark_of(tree, "matrix"),
                "let their values differ in more than how they are written",
            )
        suffixes.add(shown)
        yield constants, f"[{shown}]" if shown else ""


def constant(name: str, node: Node, context: Context) -> Any:  # noqa: ANN401 -- YAML data
    """Return the value of a parameter: data, a word, or an expression over those before it."""
    if isinstance(node, Sequence):
        return [constant(name, item, context) for item in node.items]
    if isinstance(node, Mapping):
        choosing.wrong_type(node, context, f"the parameter `{name}`", "a number, a list or a word")
        return None
    if not isinstance(node.value, str):
        return node.value
    known = context.names.constants
    if node.value in known:
        return known[node.value]
    if node.value in context.world:
        return context.world[node.value]
    if (node.value not in NUMBERS and _WORD.fullmatch(node.value)) or durations.duration_s(
        node.value
    ) is not None:
        return node.value
    value = constant_value(node, context, what=f"the parameter `{name}`", extra=context.world)
    if isinstance(value, range | tuple):
        value = list(value)
    if value is not None and not _is_data(value):
        context.faults.add(
            "not_constant", f"the parameter `{name}` is no number, list or word", node.mark
        )
        return None
    return value


def _literal_world(tree: Mapping) -> dict[str, Any]:
    """Return `world_size` where it is a plain number, so that parameters may depend on it."""
    node = tree.get("world_size")
    if isinstance(node, Scalar) and isinstance(node.value, int):
        return {"world_size": node.value}
    return {}


def _is_data(value: object) -> bool:
    if isinstance(value, list):
        return all(_is_data(item) for item in value)
    return isinstance(value, bool | int | float | complex | str)


def _shown(value: Any) -> str:  # noqa: ANN401
    if isinstance(value, bool):
        return str(value).lower()
    return short(str(value).replace(" ", "")).replace(" ", "")


def _section(tree: Mapping, name: str, context: Context) -> dict[str, Node]:
    node = tree.get(name)
    if node is None or (isinstance(node, Scalar) and node.value is None):
        return {}
    if not isinstance(node, Mapping):
        choosing.wrong_type(node, context, f"`{name}`", "a mapping from names to values")
        return {}
    return {key_text(key): value for key, value in node.entries}


def _matrix(
    tree: Mapping, context: Context, replaced: Mapping_[str, Node]
) -> dict[str, list[Node]]:
    found: dict[str, list[Node]] = {}
    for name, node in _section(tree, "matrix", context).items():
        if name in replaced:
            found[name] = [replaced[name]]
        elif not isinstance(node, Sequence):
            wanted = f"a list of values: `{name}: [{source_text(node)}]`"
            choosing.wrong_type(node, context, f"the matrix key `{name}`", wanted)
        elif not node.items:
            context.faults.add(
                "bad_value",
                f"the matrix key `{name}` has no values, so there is no case",
                node.mark,
                "list at least one value",
            )
        else:
            _police_repeats(name, node, context)
            found[name] = list(node.items)
    return found


def _police_repeats(name: str, node: Sequence, context: Context) -> None:
    seen: set[str] = set()
    for item in node.items:
        identity = _identity(item)
        if identity in seen:
            context.faults.add(
                "duplicate_case", f"the matrix key `{name}` lists this value twice", item.mark
            )
        seen.add(identity)


def _identity(node: Node) -> str:
    return repr(plain(node))


def _set_value(name: str, text: str, context: Context) -> Node:
    """Return the value of `--set name=text`, typed by reading it as YAML."""
    source = Source(path=f"--set {name}", text=text)
    if not text.strip():
        message = f"--set {name}= states no value"
        context.faults.add("missing_value", message, None, f"write `--set {name}=null` for nothing")
        text = "null"
        source = Source(path=f"--set {name}", text=text)
    try:
        return parse(source, limits=context.limits)
    except ScenarioError as error:
        context.faults.keep(error.problems)
        from runner.problems import Mark  # noqa: PLC0415 -- only once something is wrong

        return Scalar(Mark(source=source, line=1, column=1), None, "")


def _police_sets(
    replaced: Mapping_[str, Node], known: Mapping_[str, object], context: Context
) -> None:
    for name in replaced:
        if name not in known:
            close = nearest(name, known)
            listed = f"it has: {', '.join(sorted(known))}" if known else "it has none"
            context.faults.add(
                "unknown_parameter",
                f"--set {name}: {context.path.name} has no parameter or matrix key `{name}`",
                None,
                f"did you mean `{close}`?" if close else listed,
            )


def _mark_of(tree: Mapping, name: str) -> Any:  # noqa: ANN401 -- a Mark
    return next((key.mark for key, _ in tree.entries if key_text(key) == name), tree.mark)
