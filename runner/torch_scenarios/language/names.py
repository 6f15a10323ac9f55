"""The names that a file defines: which, of what sort, and which no one may take.

They are gathered before anything is read, because a step may name what a later one defines: `wait:
up` in the first turn of a loop whose `as: up` comes below it.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator
from typing import TypeGuard

from torch_scenarios.errors import Mark
from torch_scenarios.expressions.params import Param
from torch_scenarios.expressions.signatures import FUNCTION_NAMES
from torch_scenarios.language.context import Context, Definition, Problems
from torch_scenarios.language.keys import HANDLE
from torch_scenarios.operations import BY_NAME
from torch_scenarios.operations.base import GroupCreation, Operation
from torch_scenarios.source.tree import Mapping, Node, Scalar, Sequence, key_text, kind_of
from torch_scenarios.vocabulary import BACKEND, DTYPES, REDUCE_OPS

#: words that mean something wherever a name may stand
RESERVED = frozenset(
    {
        "rank",
        "world_size",
        "world",
        BACKEND,
        "else",
        "unchanged",
        "elapsed",
        "raises",
        "outcome",
        "blocked",
        "diagnosis",
        "dies",
        "within",
        "cost",
        "before",
        "group_rank",
        "group_size",
        "group_ranks",
        "true",
        "false",
        "null",
    }
)

#: characters of a name: it stands in every report
MOST_NAME = 200

_NAME = re.compile(r"(?!__)[A-Za-z_][A-Za-z0-9_]*")

#: `up[t]`: another handle for each value of the index
INDEXED = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)\[(?P<index>.+)\]")
#: the sorts of handles; one name is not of both
HANDLES = ("work handle", "indexed work handle")

_NAME_HINT = "a name is ASCII letters, digits and underscores, and does not begin with a digit"

#: what `let` names: another at each place, and none of any other sort
NUMBER = "number"

#: sorts of which the same name may be defined twice, and together
_SHARED = (
    {"computed name", "tensor", "object"},
    {"work handle"},
    {"new group", "group"},
    {"loop variable"},
)
#: sorts of which one name may be defined only once, whatever else it is
_ONCE = {"tensor", "object", "group"}


def refusal_of(name: str, *, fixed: bool = False) -> tuple[str, str] | None:
    """Return the code and the reason why a name cannot be taken, or None where it can.

    `fixed` asks for a name that may stand where a fixed name is wanted: a parameter's.

    >>> refusal_of("rank")
    ('reserved_name', '`rank` means something in every scenario')
    >>> refusal_of("sum") is None, refusal_of("sum", fixed=True)
    (True, ('reserved_name', '`sum` is a function'))

    A tensor may be called `sum`; a parameter may not, since `op: sum` would then mean its value.
    """
    if len(name) > MOST_NAME:
        return "bad_name", f"`{name}` is longer than {MOST_NAME} characters"
    if name in RESERVED:
        return "reserved_name", f"`{name}` means something in every scenario"
    if name in DTYPES:
        return "reserved_name", f"`{name}` is a dtype"
    if fixed and name in FUNCTION_NAMES:
        return "reserved_name", f"`{name}` is a function"
    if fixed and name in REDUCE_OPS:
        return "reserved_name", f"`{name}` is a reduce op"
    if keyword.iskeyword(name):
        return "reserved_name", f"`{name}` is a word of the expression language"
    if not _NAME.fullmatch(name):
        return "bad_name", f"`{name}` is not a name"
    return None


def is_name(text: str) -> bool:
    """Whether a text could be a name."""
    return _NAME.fullmatch(text) is not None


def is_text(key: Node, problems: Problems, *, of: str) -> TypeGuard[Scalar]:
    """Whether a key is a text, as each name is; what is no text is noted.

    `of` says what is called so: "a variable", "a group".
    """
    if isinstance(key, Scalar) and isinstance(key.value, str):
        return True
    problems.add("bad_name", f"{kind_of(key)} cannot name {of}", key.mark, _NAME_HINT)
    return False


def police_new_name(node: Scalar, context: Context, *, what: str) -> None:
    """Note where a name cannot be taken."""
    police_name(context.problems, node.text, node.mark, what=what)


def police_name(
    problems: Problems, name: str, mark: Mark, *, what: str, fixed: bool = False
) -> None:
    """Note where `name` cannot be taken."""
    refused = refusal_of(name, fixed=fixed)
    if refused is None:
        return
    code, reason = refused
    hint = (
        _NAME_HINT if code == "bad_name" else f"choose another name for {what}, such as `my_{name}`"
    )
    problems.add(code, reason, mark, hint)


def police_length(text: str, mark: Mark, problems: Problems, *, what: str) -> None:
    """Note where words that name a case or a step in every report are too long for that."""
    if len(text) > MOST_NAME:
        problems.add(
            "bad_name",
            f"{what} is longer than {MOST_NAME} characters",
            mark,
            "say more in the `description`",
        )


def definitions(tree: Mapping) -> list[Definition]:
    """Return every name that a file defines, in the order of the file; faulty parts are skipped.

    A mesh defines a group for each of its dimensions (`mesh.dp`), and none of its own name.
    """
    return list(_definitions(tree))


def _definitions(tree: Mapping) -> Iterator[Definition]:
    sections = {
        "parameters": "parameter",
        "matrix": "matrix key",
        "tensors": "tensor",
        "objects": "object",
        "models": "model",
    }
    for section, sort in sections.items():
        for key, _ in _entries(tree.get(section)):
            yield from _define(sort, key)
    for each in _items(tree.get("cases"))[:1]:  # all have the same keys
        for key, _ in _entries(each):
            yield from _define("case key", key)
    for key, group in _entries(tree.get("groups")):
        dims = _items(group.get("dims")) if isinstance(group, Mapping) else []
        if dims and isinstance(key, Scalar):
            named_dims = {dim.text: dim for dim in reversed(dims) if isinstance(dim, Scalar)}
            for name, dim in named_dims.items():
                yield Definition("group", f"{key.text}.{name}", dim)
        else:
            yield from _define("group", key)
    yield from _find_in_steps(tree.get("steps"))


def _find_in_steps(steps: Node | None) -> Iterator[Definition]:
    for step in _items(steps):
        for key, value in _entries(step):
            match key_text(key):
                case "as":
                    yield from _handle(value)
                case "for":
                    for variable, _ in _entries(value):
                        yield from _define("loop variable", variable)
                case "steps":
                    yield from _find_in_steps(value)
                case action if action in BY_NAME:
                    yield from _find_in_action(action, value)


def find_distributed(steps: Node | None) -> frozenset[str]:
    """Return the names of tensors that steps may distribute; used parts are passed over.

    Only these may be expected with `placements`: any other tensor is a plain one.
    """
    found: set[str] = set()
    for step in _items(steps):
        for key, value in _entries(step):
            word = key_text(key)
            if word == "steps":
                found |= find_distributed(value)
            elif word == "use" and isinstance(value, Mapping):
                given = value.get("with")
                found |= {each.text for _, each in _entries(given) if isinstance(each, Scalar)}
            elif isinstance(value, Mapping) and word in BY_NAME and BY_NAME[word].distributes:
                tensor = value.get("tensor")
                listed: list[Node | None] = [each for _, each in _entries(tensor)] or [
                    tensor
                ]  # one for each rank
                found |= {each.text for each in listed if isinstance(each, Scalar)}
    return frozenset(found)


def handles_of(action: str, steps: Node | None) -> frozenset[str]:
    """Return the names of the handles of all steps with an action; used parts are passed over."""
    found: set[str] = set()
    for step in _items(steps):
        entries = {key_text(key): value for key, value in _entries(step)}
        found |= handles_of(action, entries.get("steps"))
        name = entries.get("as")
        if action in entries and isinstance(name, Scalar):
            found.add(name.text.partition("[")[0])
    return frozenset(found)


def _handle(node: Node) -> Iterator[Definition]:
    for definition in _define("work handle", node):
        indexed = INDEXED.fullmatch(definition.name)
        if indexed is None:
            yield definition
        else:
            yield Definition("indexed work handle", indexed["name"], definition.node)


def _find_in_action(action: str, value: Node) -> Iterator[Definition]:
    operation = BY_NAME[action]
    if isinstance(value, Mapping) and HANDLE in value.words():
        yield from _define("computed name", value.get("output"))
    for param in operation.params:
        yield from _find_in_argument(operation, param, value)


def _find_in_argument(operation: Operation, param: Param, value: Node) -> Iterator[Definition]:
    if param.fields:
        listed = value.get(param.name) if isinstance(value, Mapping) else value
        for item in _items(listed):
            for variable, _ in _entries(item.get("for") if isinstance(item, Mapping) else None):
                yield from _define("loop variable", variable)
    if param.kind in {"assignments", "numbers"}:
        inner = value.get(param.name) if isinstance(value, Mapping) else None
        whole = isinstance(inner, Mapping) and len(_entries(value)) == 1
        sort = NUMBER if param.kind == "numbers" else "computed name"
        for key, _ in _entries(inner if whole else value):
            if "[" not in key_text(key):  # a part of what there is
                yield from _define(sort, key)
    elif param.kind == "name" and isinstance(value, Mapping):
        sort = "new group" if isinstance(operation, GroupCreation) else "computed name"
        for spelling in (param.name, *param.aliases):
            yield from _define(sort, value.get(spelling))


def _define(sort: str, node: Node | None) -> Iterator[Definition]:
    if isinstance(node, Scalar) and isinstance(node.value, str):
        yield Definition(sort, node.value, node)


def _entries(node: Node | None) -> list[tuple[Node, Node]]:
    return node.entries if isinstance(node, Mapping) else []


def _items(node: Node | None) -> list[Node]:
    return node.items if isinstance(node, Sequence) else []


def police_definitions(found: list[Definition], problems: Problems) -> None:
    """Note names that cannot be taken, and names that mean two things.

    A name may be defined twice where both are one thing: a tensor that `compute` assigns to again,
    a handle that the next turn of a loop gives anew, `new_group` in two branches of one group.
    """
    first: dict[str, Definition] = {}
    for definition in found:
        name = definition.name
        if definition.sort == NUMBER:
            if name not in FUNCTION_NAMES:
                police_name(problems, name, definition.node.mark, what="this number")
            continue
        if definition.sort in HANDLES:
            if not _NAME.fullmatch(name):
                problems.add(
                    "bad_name", f"`{name}` is not a name", definition.node.mark, _NAME_HINT
                )
        elif definition.sort != "group" or definition.node.text == name:
            police_name(
                problems,
                name,
                definition.node.mark,
                what=f"this {definition.sort}",
                fixed=definition.sort in {"parameter", "matrix key", "case key"},
            )
        known = first.setdefault(name, definition)
        if known is definition or _compatible(known.sort, definition.sort):
            continue
        problems.add(
            "duplicate_name",
            f"`{name}` is {_article(definition.sort)} here, and {_article(known.sort)} in line"
            f" {known.node.mark.line}",
            definition.node.mark,
            "give one of them another name",
        )


def _article(sort: str) -> str:
    return f"an {sort}" if sort[0] in "aeio" else f"a {sort}"


def _compatible(one: str, other: str) -> bool:
    """Whether one name may be defined as both sorts.

    >>> _compatible("tensor", "computed name"), _compatible("tensor", "group")
    (True, False)
    >>> _compatible("tensor", "tensor"), _compatible("work handle", "work handle")
    (False, True)
    """
    if one == other:
        return one not in _ONCE
    if {one, other} <= {"tensor", "object"}:
        return False
    return any({one, other} <= shared for shared in _SHARED)


def list_names(found: list[Definition], *sorts: str) -> frozenset[str]:
    """Return the names of some sorts."""
    return frozenset(each.name for each in found if each.sort in sorts)
