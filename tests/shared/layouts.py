"""A scenario's tree written in a random layout: the same meaning, any columns, order, comments."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

from torch_scenarios.source.tree import Mapping, Scalar, Sequence, key_text, resolve_plain

if TYPE_CHECKING:
    from torch_scenarios.source.tree import Node

#: a text that a plain scalar can hold everywhere
PLAIN = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_."


class Writer:
    """Writes one tree; `style` decides what a formatter keeps, `layout` what it changes."""

    def __init__(self, style: int, layout: int, *, comments: bool) -> None:
        """Start with two sources of chance."""
        self.style = random.Random(style)  # noqa: S311 -- a layout is no secret
        self.layout = random.Random(layout)  # noqa: S311
        self.comments = comments
        self.count = 0

    def file(self, tree: Node) -> str:
        """Return the text of a file."""
        lines = self._block(tree, self._choose(0, 0, 0, 2), movable=True)
        # a text whose last line has no line feed means another text: there is always one
        return "\n".join([*self._between(0, 8), *lines]) + self.layout.choice(["\n", "\n\n\n"])

    def _choose(self, *columns: int) -> int:
        return self.layout.choice(columns)

    # ------------------------------------------------------------------ collections

    def _block(self, node: Node, column: int, *, movable: bool) -> list[str]:
        if isinstance(node, Mapping):
            return self._mapping(node, column, movable=movable)
        assert isinstance(node, Sequence)
        return self._sequence(node, column, movable=movable)

    def _mapping(self, node: Mapping, column: int, *, movable: bool) -> list[str]:
        written = []
        for key, value in node.entries:
            steps = movable and key_text(key) == "steps"
            written.append(self._entry(key, value, column, movable=steps))
        if movable:
            self.layout.shuffle(written)
        return self._joined(written, column)

    def _entry(self, key: Node, value: Node, column: int, *, movable: bool) -> list[str]:
        head = " " * column + self._inline(key, key=True) + ":"
        if self._is_block(value):
            flush = isinstance(value, Sequence) and self.layout.random() < 0.3
            below = column if flush else column + self._choose(1, 2, 3, 4, 8)
            return [head + self._note(), *self._block(value, below, movable=movable)]
        return self._led(head, value, column)

    def _sequence(self, node: Sequence, column: int, *, movable: bool) -> list[str]:
        written = []
        for item in node.items:
            gap = self._choose(1, 1, 2, 3, 7)
            if self._is_block(item):
                lines = self._block(item, column + 1 + gap, movable=movable)
                if not lines[0].lstrip().startswith("#") and lines[0].strip():
                    lines[0] = " " * column + "-" + lines[0][column + 1 :]
                else:
                    lines.insert(0, " " * column + "-")
                written.append(lines)
            else:
                written.append(self._led(" " * column + "-" + " " * (gap - 1), item, column))
        return self._joined(written, column)

    def _is_block(self, node: Node) -> bool:
        if isinstance(node, Scalar):
            return False
        size = len(node.entries) if isinstance(node, Mapping) else len(node.items)
        return size > 0 and self.style.random() < 0.6

    def _joined(self, written: list[list[str]], column: int) -> list[str]:
        lines = written[0]
        for each in written[1:]:
            lines = [*lines, *self._between(0, column), *each]
        return lines

    # ------------------------------------------------------------------ values

    def _led(self, head: str, value: Node, column: int) -> list[str]:
        """Write a value that is no block collection behind its key or dash."""
        if isinstance(value, Scalar) and isinstance(value.value, str):
            literal = self._literal(value.text, column)
            if literal is not None:
                return [head + literal[0], *literal[1:]]
        text = self._inline(value)
        if self.style.random() < 0.1:
            return [head + self._note(), " " * (column + self._choose(1, 2, 5)) + text]
        gap = " " if self.comments is False or head.endswith(" ") else " " * self._choose(1, 2)
        return [f"{head}{gap}{text}{self._note()}"]

    def _literal(self, text: str, column: int) -> list[str] | None:
        """Write a text of several lines as `|`; None where it is no such text."""
        lines = text.rstrip("\n").split("\n")
        if "\n" not in text or not lines[0] or lines[0].startswith(" ") or text != text.lstrip():
            return None
        chomp = {0: "-", 1: ""}.get(len(text) - len(text.rstrip("\n")))
        if chomp is None:
            return None
        blanks = " " * (column + self._choose(1, 2, 3, 6))
        return [f" |{chomp}", *(blanks + line if line else "" for line in lines)]

    def _inline(self, node: Node, *, key: bool = False) -> str:
        """Write it as a flow collection or a scalar; a key is on one line."""
        match node:
            case Scalar():
                return self._scalar(node)
            case Sequence():
                return self._flow("[]", [self._inline(item, key=key) for item in node.items], key)
            case Mapping():
                entries = [
                    f"{self._inline(k, key=True)}:{self._blanks(1)}{self._inline(v, key=key)}"
                    for k, v in node.entries
                ]
                return self._flow("{}", entries, key)

    def _flow(self, brackets: str, parts: list[str], key: bool) -> str:  # noqa: FBT001
        made = brackets[0] + self._blanks(0)
        for part in parts[:-1]:
            made += f"{part}{self._blanks(0)},{self._gap(key=key)}"
        return made + "".join(parts[-1:]) + self._blanks(0) + brackets[1]

    def _blanks(self, least: int) -> str:
        return " " * (least + self._choose(0, 0, 0, 0, 1, 3))

    def _gap(self, *, key: bool) -> str:
        """Write what is between a comma and the next entry."""
        chance = self.layout.random()
        if not self.comments or key or chance > 0.15:
            return self._blanks(self._choose(0, 1, 1))
        note = f"  {self._comment()}" if chance > 0.1 else ""
        own = f"\n{self._comment()}" if chance < 0.02 else ""
        return f"{note}{own}\n" + " " * 40

    def _scalar(self, node: Scalar) -> str:
        if not isinstance(node.value, str):
            return node.text or "null"
        text = node.value
        quoted = json.dumps(text, ensure_ascii=False)
        choices = [quoted, quoted]
        if "\n" not in text:
            choices.append("'" + text.replace("'", "''") + "'")
        if text and set(text) <= set(PLAIN) and resolve_plain(text) == text:
            choices.append(text)
        return self.style.choice(choices)

    # ------------------------------------------------------------------ comments

    def _comment(self) -> str:
        self.count += 1
        return f"# c{self.layout.randrange(10**9)}{self.count}"

    def _note(self) -> str:
        if not self.comments or self.layout.random() < 0.8:
            return ""
        return " " * self._choose(1, 2, 9) + self._comment()

    def _between(self, low: int, high: int) -> list[str]:
        """Write blank lines, and comments in columns up to `high`."""
        if not self.comments:
            return []
        lines = []
        while self.layout.random() < 0.15:
            blank = self.layout.random() < 0.5
            lines.append("" if blank else " " * self.layout.randint(low, high) + self._comment())
        return lines
