"""The lines of a YAML text: what the scanner finds on each, and where each should begin.

PyYAML's scanner says where tokens stand; nothing here knows what a scenario is, and nothing here
writes: that is :mod:`runner.language.layout_lines`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

STEP = 2

_Scanner: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_OPENING = (yaml.FlowMappingStartToken, yaml.FlowSequenceStartToken)
_CLOSING = (yaml.FlowMappingEndToken, yaml.FlowSequenceEndToken)
_MARKING = (yaml.AnchorToken, yaml.AliasToken)
_FOREIGN = (yaml.DirectiveToken, yaml.DocumentStartToken, yaml.DocumentEndToken)
_STARTING = (yaml.BlockMappingStartToken, yaml.BlockSequenceStartToken)
_SILENT = (yaml.StreamStartToken, yaml.StreamEndToken, yaml.ValueToken)
_HEADER = re.compile(r"[|>][+-]?([1-9]?)[+-]?")


class ExoticLayoutError(Exception):
    """A layout that is valid YAML and too rare to be touched."""


@dataclass(slots=True)
class _Block:
    """An open block collection: the column where it begins, and where it should."""

    sequence: bool
    old: int
    new: int
    #: a list whose dashes stand in the column of the key above: it has no tokens of its own
    indentless: bool = False


@dataclass(slots=True)
class Row:
    """A line that begins with a token: `new` spaces, `dashes`, then the text from column `rest`."""

    old: int
    new: int
    dashes: int = 0
    rest: int = 0
    waiting: bool = False

    @property
    def shift(self) -> int:
        """By how many columns the text after the dashes moves."""
        return self.new + STEP * self.dashes - self.rest


@dataclass(slots=True)
class Inside:
    """A line inside a value: it moves by `shift`, but not left of `floor`."""

    shift: int
    floor: int


@dataclass(slots=True)
class Literal:
    """A line of a block scalar, whose text begins in column `old` and should in column `new`."""

    old: int
    new: int
    limit: int


@dataclass(slots=True)
class Lines:
    """A text by its lines (from 0): what the scanner found on each."""

    lines: list[str]
    rows: dict[int, Row] = field(default_factory=dict)
    inside: dict[int, Inside | Literal] = field(default_factory=dict)
    #: lines whose last blanks belong to a string that goes on
    open_ended: set[int] = field(default_factory=set)
    #: after the last token of a line: the blocks that are open there, as (old, new) columns
    levels: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    anchors: bool = False
    _blocks: list[_Block] = field(default_factory=list)
    _flow: list[int] = field(default_factory=list)

    def comments(self) -> Iterator[int]:
        """Yield the lines that hold a comment and nothing else."""
        for number, line in enumerate(self.lines):
            if number not in self.rows and number not in self.inside and line.strip():
                yield number

    # ------------------------------------------------------------------ tokens

    def take(self, token: Any) -> None:  # noqa: ANN401 -- PyYAML's stubs do not type tokens
        """Take the next token of the text; raises ExoticLayoutError."""
        line, column = token.start_mark.line, token.start_mark.column
        self.anchors = self.anchors or isinstance(token, _MARKING)
        if isinstance(token, _FOREIGN):
            raise ExoticLayoutError
        if self._flow:
            self._in_flow(token)
        elif isinstance(token, _STARTING):
            sequence = isinstance(token, yaml.BlockSequenceStartToken)
            self._blocks.append(_Block(sequence, column, self._below()))
        elif isinstance(token, yaml.BlockEndToken):
            self._leave_indentless()
            self._blocks.pop()
            return
        elif isinstance(token, yaml.BlockEntryToken):
            self._dash(line, column)
        elif isinstance(token, yaml.KeyToken):
            self._key(line, column)
        elif not isinstance(token, _SILENT):
            self._value(token)
        at = token.end_mark.line if token.end_mark.column else line
        self.levels[at] = [(block.old, block.new) for block in self._blocks]

    def _below(self) -> int:
        return self._blocks[-1].new + STEP if self._blocks else 0

    def _leave_indentless(self) -> None:
        if self._blocks[-1].indentless:
            self._blocks.pop()

    def _key(self, line: int, column: int) -> None:
        self._leave_indentless()
        if self.lines[line].startswith("?", column):
            raise ExoticLayoutError
        self._place(line, column, self._blocks[-1].new)

    def _dash(self, line: int, column: int) -> None:
        if not self._blocks[-1].sequence:
            self._blocks.append(_Block(True, column, self._below(), indentless=True))  # noqa: FBT003
        self._place(line, column, self._blocks[-1].new)
        row = self.rows[line]
        row.dashes += 1
        row.rest = column + 1
        row.waiting = True

    def _place(self, line: int, column: int, new: int) -> None:
        """Note the first token of a line, or of what follows its dashes."""
        row = self.rows.get(line)
        if line in self.inside:
            raise ExoticLayoutError
        if row is None:
            self.rows[line] = Row(column, new, rest=column)
        elif row.waiting:
            row.rest = column
            row.waiting = False

    def _in_flow(self, token: Any) -> None:  # noqa: ANN401
        if isinstance(token, _OPENING):
            self._flow.append(token.start_mark.line)
        elif isinstance(token, _CLOSING):
            first = self._flow.pop()
            if not self._flow:
                floor = self._blocks[-1].new if self._blocks else 0
                self._span(first, token.end_mark.line, floor)
        elif isinstance(token, yaml.ScalarToken):
            self.open_ended.update(range(token.start_mark.line, token.end_mark.line))

    def _value(self, token: Any) -> None:  # noqa: ANN401
        first = token.start_mark.line
        self._place(first, token.start_mark.column, self._below())
        if isinstance(token, _OPENING):
            self._flow.append(first)
        if not isinstance(token, yaml.ScalarToken):
            return
        if token.style in {"|", ">"}:
            self._block_scalar(first, token.start_mark.column)
            return
        self.open_ended.update(range(first, token.end_mark.line))
        plain = token.style is None or token.style == ""
        floor = self._below() if plain or not self._blocks else self._blocks[-1].new
        self._span(first, token.end_mark.line, floor)

    def _span(self, first: int, last: int, floor: int) -> None:
        shift = self.rows[first].shift if first in self.rows else 0
        for line in range(first + 1, last + 1):
            self.inside[line] = Inside(shift, floor)

    def _block_scalar(self, header: int, column: int) -> None:
        found = _HEADER.match(self.lines[header], column)
        outer = self._blocks[-1] if self._blocks else _Block(False, 0, -STEP)  # noqa: FBT003
        given = int(found.group(1) or 0) if found else 0
        old, new = outer.old + given, max(outer.new, 0) + given
        last = header
        for line in range(header + 1, len(self.lines)):
            text = self.lines[line]
            if not text.strip(" ") and (last == header or len(text) <= old):
                continue
            if not given and last == header:
                old, new = blanks_before(text), self._below()
            if blanks_before(text) < max(old, outer.old + 1 if self._blocks else 0):
                break
            last = line
        if found and "+" in found.group():
            while last + 1 < len(self.lines) and not self.lines[last + 1].strip(" "):
                last += 1
        for line in range(header + 1, last + 1):
            self.inside[line] = Literal(old, new, max(outer.new, 0))


def scanned(text: str) -> Lines:
    """Return the lines of a text; raises ExoticLayoutError, or yaml.YAMLError."""
    found = Lines(text.split("\n"))
    scanner = _Scanner(text)
    while scanner.check_token():
        found.take(scanner.get_token())
    return found


def blanks_before(line: str) -> int:
    """Return the column where a line's text begins."""
    return len(line) - len(line.lstrip(" "))
