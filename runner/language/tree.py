"""The tree that a YAML file is read into: values and the place of every one of them.

Made by :mod:`runner.language.reader`; nothing here knows what a scenario is. Aliases are already
resolved: an aliased node occurs in several places and keeps the mark of its anchor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from runner.problems import Mark


@dataclass(slots=True, eq=False)
class Scalar:
    """One value of the core schema: None, a boolean, an integer, a float or a string.

    `text` is what the author wrote, without quotes.
    """

    mark: Mark
    value: Any
    text: str


@dataclass(slots=True, eq=False)
class Sequence:
    """A YAML list."""

    mark: Mark
    items: list[Node]


@dataclass(slots=True, eq=False)
class Mapping:
    """A YAML mapping in the order of the file; keys are unique, and may be lists."""

    mark: Mark
    entries: list[tuple[Node, Node]]
    _index: dict[str, Node] | None = None

    def get(self, name: str) -> Node | None:
        """Return the value of the key `name`, or None; call only once the mapping is complete."""
        if self._index is None:
            self._index = {}
            for key, value in self.entries:
                self._index.setdefault(key_text(key), value)
        return self._index.get(name)

    def words(self) -> list[str]:
        """Return the text of every key."""
        return [key_text(key) for key, _ in self.entries]


Node: TypeAlias = "Scalar | Sequence | Mapping"


def key_text(key: Node) -> str:
    """Return a key as the author may write it."""
    return key.text if isinstance(key, Scalar) else source_text(key)


def source_text(node: Node) -> str:
    """Return a node as one line of flow YAML, for messages."""
    match node:
        case Scalar():
            return node.text
        case Sequence():
            return "[" + ", ".join(source_text(item) for item in node.items) + "]"
        case Mapping():
            parts = (f"{source_text(key)}: {source_text(value)}" for key, value in node.entries)
            return "{" + ", ".join(parts) + "}"


def kind_of(node: Node) -> str:
    """Return what a node is, as messages call it."""
    if isinstance(node, Sequence):
        return "a list"
    if isinstance(node, Mapping):
        return "a mapping"
    match node.value:
        case None:
            return "empty"
        case bool():
            return f"the boolean {node.text}"
        case int() | float():
            return f"the number {node.text}"
        case _:
            return f"the text {node.text!r}"


def plain(node: Node) -> Any:  # noqa: ANN401 -- a YAML value has any type
    """Return the value of a node without marks: dicts, lists and scalars."""
    match node:
        case Scalar():
            return node.value
        case Sequence():
            return [plain(item) for item in node.items]
        case Mapping():
            return {_hashable(plain(key)): plain(value) for key, value in node.entries}


def _hashable(value: Any) -> Any:  # noqa: ANN401
    return tuple(_hashable(item) for item in value) if isinstance(value, list) else value
