"""The names of a text, by sort: where each is defined, and where it occurs."""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml
from msgspec import Struct, field

from torch_scenarios.language.keys import (
    ACTIONS,
    BESIDE,
    FINAL_EXPECT,
    GROUP,
    LONG_FORM,
    STEP_EXPECT,
    TOP,
)
from torch_scenarios.operations import BY_NAME
from torch_scenarios.operations.base import GroupCreation
from torch_scenarios.source.edit import Span, spans

#: a section of the top -> the sort of the names that it defines
SECTIONS = {
    "tensors": "tensor",
    "objects": "object",
    "groups": "group",
    "parameters": "parameter",
    "matrix": "matrix key",
    "functions": "function",
    "models": "model",
}
#: kind of an argument that names values -> the sort of what it names
_NAMING = {"assignments": "tensor", "numbers": "number"}
#: keys whose values are prose, or words of others
_PROSE = frozenset({"name", "description", "tags", "at", "file", "raise"})
_FIXED = frozenset({*TOP, *BESIDE, *ACTIONS, *FINAL_EXPECT, *STEP_EXPECT, *BY_NAME})
_SECTION = re.compile(r"^(?P<name>\w+):", re.MULTILINE)


class NamedPlace(Struct, frozen=True, kw_only=True):
    r"""A name where it is defined: characters `start` to `end` of the text.

    >>> text = "world_size: 2\ntensors: {x: [1, 2]}\n"
    >>> place = names_in(text).places["x"]
    >>> place.sort, text[place.start : place.end]
    ('tensor', 'x')
    """

    sort: str
    name: str
    start: int
    end: int


class TextNames(Struct, kw_only=True):
    """What a text defines; of a text that is no YAML, what its lines show.

    A text is broken most of the time while it is written. A completion that worked only on whole
    files would never work where it is asked for.
    """

    places: dict[str, NamedPlace] = field(default_factory=dict)

    def of(self, *sorts: str) -> list[str]:
        """Return the names of some sorts, in the order of the text."""
        return [each.name for each in self.places.values() if each.sort in sorts]


def names_in(text: str) -> TextNames:
    """Return the names that a text defines."""
    try:
        found = dict(_definitions(spans(text), text))
    except (yaml.YAMLError, AssertionError):
        found = dict(_scan_lines(text))
    return TextNames(places=found)


def _list_sections(root: Span) -> Iterator[tuple[str, Span]]:
    for section, value in root.entries:
        for key, _ in value.entries if section.text in SECTIONS else ():
            yield key.text, key


def _definitions(root: Span, text: str) -> Iterator[tuple[str, NamedPlace]]:
    """Yield each name that the tree of a text defines, with its place.

    Names come from the sections at the top, from `as:` (a handle, `w[rank]` under the name `w`),
    from steps that assign (`compute`), and from those that make a group (`name:` of `new_group`).
    """
    for section, value in root.entries:
        for key, _ in value.entries if section.text in SECTIONS else ():
            yield key.text, _place(SECTIONS[section.text], key.text, key.start, text)
    top = {name for name, _ in _list_sections(root)}
    for _, key, value in _entries(root, ""):
        if key.text == "as" and value.kind == "scalar":
            name = value.text.partition("[")[0]
            yield name, _place("handle", name, value.start, text)
        operation = BY_NAME.get(key.text)
        kinds = set() if operation is None else {param.kind for param in operation.params}
        for entry, _ in value.entries if kinds & _NAMING.keys() else ():
            if entry.text.isidentifier() and entry.text not in top:
                sort = next(_NAMING[kind] for kind in kinds if kind in _NAMING)
                yield entry.text, _place(sort, entry.text, entry.start, text)
        given = value.get("name")
        if isinstance(operation, GroupCreation) and given is not None:
            yield given.text, _place("group", given.text, given.start, text)


def _place(sort: str, name: str, start: int, text: str) -> NamedPlace:
    start += text[start : start + 1] in {'"', "'"}
    return NamedPlace(sort=sort, name=name, start=start, end=start + len(name))


def _entries(span: Span, parent: str) -> Iterator[tuple[str, Span, Span]]:
    """Yield every entry below a node, with the key around its mapping."""
    for key, value in span.entries:
        yield parent, key, value
        yield from _entries(value, key.text)
    for item in span.items:
        yield from _entries(item, parent)


def _scan_lines(text: str) -> Iterator[tuple[str, NamedPlace]]:
    """Yield what the lines of a text define that cannot be read.

    It goes by indentation and by braces of the first level, as people write: what is one level
    below `tensors:`, and the keys of `tensors: {x: ..., y: ...}` on one line.
    """
    section, at = "", 0
    for line in text.splitlines(keepends=True):
        top = _SECTION.match(line)
        if top is not None:
            section = top["name"]
        sort = SECTIONS.get(section)
        inner = re.match(r"\s+(\w+)\s*:", line)
        if sort is not None and inner is not None and len(line) - len(line.lstrip()) <= 4:
            yield inner[1], _place_of(inner, sort, at)
        if sort is not None and top is not None:
            for found in re.finditer(r"[{,]\s*(\w+)\s*:", line):
                if line[: found.start() + 1].count("{") - line[: found.start() + 1].count("}") == 1:
                    yield found[1], _place_of(found, sort, at)
        handle = re.search(r"\bas:\s*(\w+)", line)
        if handle is not None:
            yield handle[1], _place_of(handle, "handle", at)
        at += len(line)


def _place_of(found: re.Match[str], sort: str, at: int) -> NamedPlace:
    """Return the place of the name that a match has, in a line that begins at a character."""
    start, end = found.span(1)
    return NamedPlace(sort=sort, name=found[1], start=at + start, end=at + end)


def occurrences(text: str, name: str) -> list[tuple[int, int]]:
    """Return where a name is written, in keys and expressions; not in prose, not as a keyword.

    Raises yaml.YAMLError where the text is no YAML.
    """
    word = re.compile(rf"(?<![\w.]){re.escape(name)}(?!\w)")
    found: set[tuple[int, int]] = set()
    for span in _scalars(spans(text), "", key=""):
        found |= {match.span() for match in word.finditer(text, span.start, span.end)}
    return sorted(found)


def _scalars(span: Span, parent: str, *, key: str) -> Iterator[Span]:
    """Yield the scalars that may name something; `parent` is the key around the mapping."""
    if span.kind == "scalar":
        if key not in _PROSE:
            yield span
        return
    for item in span.items:
        yield from _scalars(item, parent, key=key)
    for name, value in span.entries:
        if not _is_keyword(name.text, key):
            yield name
        yield from _scalars(value, key, key=name.text)


def _is_keyword(word: str, inside: str) -> bool:
    """Whether a key is one of the language, inside of the value of the key `inside`.

    A tensor may be called `op`: in `tensors: {op: 1}` it is a name, in `all_reduce: {op: sum}` a
    parameter, and in `compute: {y: op + 1}` a name again. A rename must tell them apart.
    """
    operation = BY_NAME.get(inside)
    naming = operation is not None and any(param.kind in _NAMING for param in operation.params)
    if naming or inside in SECTIONS or inside in {"sets", "with"}:
        return False
    if operation is not None:
        return word in {param.name for param in operation.params}
    if inside in {"", "steps"}:
        return word in _FIXED
    if inside == "expect":
        return word in FINAL_EXPECT or word in STEP_EXPECT
    return word in LONG_FORM or word in GROUP
