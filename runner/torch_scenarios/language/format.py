"""The one layout of scenario files: columns, blanks, flow collections, the order of keys."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct, field

from torch_scenarios.errors import ScenarioError, Source
from torch_scenarios.language.document import police_top
from torch_scenarios.language.keys import ACTION, BODY, STEP_ORDER, TOP
from torch_scenarios.limits import Limits
from torch_scenarios.source.tree import Mapping, Node, Scalar, Sequence, decode, key_text, parse

# -------------------------------------------------------------------------------------------------
# The lines of a YAML text: what the scanner finds on each, and where each should begin.
#
# PyYAML's scanner says where tokens stand; nothing here knows what a scenario is, and nothing here
# writes: that is :mod:`torch_scenarios.language.format`.

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
    """A layout that is valid YAML and too rare to be touched.

    A formatter that edits lines must know what it moves. What it does not know stays as it is
    (decision 17).
    """


class _Block(Struct, kw_only=True):
    """An open block collection: the column where it begins, and where it should."""

    sequence: bool
    old: int
    new: int
    #: a list whose dashes stand in the column of the key above: it has no tokens
    indentless: bool = False


class TokenLine(Struct):
    """A line that begins with a token: `new` spaces, `dashes`, then the text from column `rest`.

    >>> TokenLine(old=4, new=2, dashes=1, rest=6).shift
    -2
    """

    old: int
    new: int
    dashes: int = 0
    rest: int = 0
    waiting: bool = False

    @property
    def shift(self) -> int:
        """By how many columns the text after the dashes moves."""
        return self.new + STEP * self.dashes - self.rest


class InnerLine(Struct):
    """A line inside a value: it moves by `shift`, but not left of `floor`.

    description: >        a folded text goes with its key, and keeps its own indentation
      two
        lines
    """

    shift: int
    floor: int


class Literal(Struct):
    """A line of a block scalar, whose text begins in column `old` and should in column `new`."""

    old: int
    new: int
    limit: int


class Lines(Struct):
    """A text by its lines (from 0): what the scanner found on each."""

    lines: list[str]
    rows: dict[int, TokenLine] = field(default_factory=dict)
    inside: dict[int, InnerLine | Literal] = field(default_factory=dict)
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

    def take(self, token: Any) -> None:
        """Take the next token of the text; raises ExoticLayoutError.

        A stack of open blocks, each with the column where it begins and where it should:

            steps:              block of keys   0 -> 0
                - set: ...      list            4 -> 2     the items' keys   6 -> 4
        """
        line, column = token.start_mark.line, token.start_mark.column
        self.anchors = self.anchors or isinstance(token, _MARKING)
        if isinstance(token, _FOREIGN):
            raise ExoticLayoutError
        if self._flow:
            self._place_in_flow(token)
        elif isinstance(token, _STARTING):
            sequence = isinstance(token, yaml.BlockSequenceStartToken)
            self._blocks.append(
                _Block(sequence=sequence, old=column, new=self._find_inner_column())
            )
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

    def _find_inner_column(self) -> int:
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
        """Note the dash of an item.

        YAML lets the dashes of a list lie in the column of the key above. For such a list the
        scanner sends no token that opens it, and none that closes it: its block is opened by the
        first dash, and closed by the next key or the end of the block around it.
        """
        if not self._blocks[-1].sequence:
            self._blocks.append(
                _Block(sequence=True, old=column, new=self._find_inner_column(), indentless=True)
            )
        self._place(line, column, self._blocks[-1].new)
        row = self.rows[line]
        row.dashes += 1
        row.rest = column + 1
        row.waiting = True

    def _place(self, line: int, column: int, new: int) -> None:
        """Note the first token of a line, or of what follows its dashes.

        `- - x` has two dashes on one line. What follows them is placed by how many there are, with
        any blanks between.
        """
        row = self.rows.get(line)
        if line in self.inside:
            raise ExoticLayoutError
        if row is None:
            self.rows[line] = TokenLine(column, new, rest=column)
        elif row.waiting:
            row.rest = column
            row.waiting = False

    def _place_in_flow(self, token: Any) -> None:
        if isinstance(token, _OPENING):
            self._flow.append(token.start_mark.line)
        elif isinstance(token, _CLOSING):
            first = self._flow.pop()
            if not self._flow:
                floor = self._blocks[-1].new if self._blocks else 0
                self._span(first, token.end_mark.line, floor)
        elif isinstance(token, yaml.ScalarToken):
            self.open_ended.update(range(token.start_mark.line, token.end_mark.line))

    def _value(self, token: Any) -> None:
        first = token.start_mark.line
        self._place(first, token.start_mark.column, self._find_inner_column())
        if isinstance(token, _OPENING):
            self._flow.append(first)
        if not isinstance(token, yaml.ScalarToken):
            return
        if token.style in {"|", ">"}:
            self._block_scalar(first, token.start_mark.column)
            return
        self.open_ended.update(range(first, token.end_mark.line))
        plain = token.style is None or token.style == ""
        floor = self._find_inner_column() if plain or not self._blocks else self._blocks[-1].new
        self._span(first, token.end_mark.line, floor)

    def _span(self, first: int, last: int, floor: int) -> None:
        shift = self.rows[first].shift if first in self.rows else 0
        for line in range(first + 1, last + 1):
            self.inside[line] = InnerLine(shift, floor)

    def _block_scalar(self, header: int, column: int) -> None:
        """Note the lines of a text behind `|` or `>`.

        No token says where it ends. Its own column is that of its first line that is not blank, or
        what a digit states (`|2`); it ends before the first line that begins left of it. Blank
        lines at its end belong to it only with `|+`.
        """
        found = _HEADER.match(self.lines[header], column)
        outer = self._blocks[-1] if self._blocks else _Block(sequence=False, old=0, new=-STEP)
        given = int(found.group(1) or 0) if found else 0
        old, new = outer.old + given, max(outer.new, 0) + given
        last = header
        for line in range(header + 1, len(self.lines)):
            text = self.lines[line]
            if not text.strip(" ") and (last == header or len(text) <= old):
                continue
            if not given and last == header:
                old, new = blanks_before(text), self._find_inner_column()
            if blanks_before(text) < max(old, outer.old + 1 if self._blocks else 0):
                break
            last = line
        if found and "+" in found.group():
            while last + 1 < len(self.lines) and not self.lines[last + 1].strip(" "):
                last += 1
        for line in range(header + 1, last + 1):
            self.inside[line] = Literal(old, new, max(outer.new, 0))


def scan(text: str) -> Lines:
    """Return the lines of a text; raises ExoticLayoutError, or yaml.YAMLError."""
    found = Lines(text.split("\n"))
    scanner = _Scanner(text)
    while scanner.check_token():
        found.take(scanner.get_token())
    return found


def blanks_before(line: str) -> int:
    """Return the column where a line's text begins."""
    return len(line) - len(line.lstrip(" "))


# -------------------------------------------------------------------------------------------------
# The lines of a YAML text, written where each should begin.
#
# Takes a text that the reader accepts; gives it back with two spaces for each level, one space
# after a dash, no blank at a line's end and at most one blank line in a row. What is inside a
# value that spans lines (a folded text, a flow mapping, a long string) only moves as a whole here.


def indent(text: str) -> str:
    r"""Return a text with the columns where its structure should begin.

    >>> print(indent("steps:\n    -   barrier:\n        # of all\n        expect: {}\n"), end="")
    steps:
      - barrier:
        # of all
        expect: {}

    `text` has line feeds only. Raises ExoticLayoutError where it had better be left alone.
    """
    found = scan(text)
    shown: list[str] = []
    columns = _comment_columns(found)
    for number, line in enumerate(found.lines):
        row, inside = found.rows.get(number), found.inside.get(number)
        if row is not None:
            made = _row(line, row)
        elif inside is not None:
            made = _shift_inner(line, inside)
        elif not line.strip():
            if shown and shown[-1]:
                shown.append("")
            continue
        else:
            made = " " * columns[number] + line.strip()
        literal = isinstance(inside, Literal)
        shown.append(made if literal or number in found.open_ended else made.rstrip())
    return _end(shown, found)


def _end(shown: list[str], found: Lines) -> str:
    """Join the lines with one line feed at the end, unless a block scalar's end is stated by it."""
    if isinstance(found.inside.get(len(found.lines) - 1), Literal):
        return "\n".join(shown)
    while shown and not shown[-1]:
        shown.pop()
    return "\n".join(shown) + "\n"


def _row(line: str, row: TokenLine) -> str:
    rest = line[row.rest :]
    if row.dashes and row.waiting:
        return " " * row.new + "- " * (row.dashes - 1) + "-" + rest.rstrip()
    return " " * row.new + "- " * row.dashes + rest


def _shift_inner(line: str, inside: InnerLine | Literal) -> str:
    if isinstance(inside, Literal):
        return " " * inside.new + line[inside.old :] if len(line) > inside.old else ""
    blanks = line[: len(line) - len(line.lstrip())]
    if not line.strip() or "\t" in blanks:
        return line
    return " " * max(blanks_before(line) + inside.shift, inside.floor) + line.lstrip()


def _comment_columns(found: Lines) -> dict[int, int]:
    """Return where each comment belongs: in the column of what follows, or of what is open.

    A comment in the column of the next token is about that, and moves with it. Another one keeps
    its distance to the innermost open block that begins left of it: so does one at the end of a
    list, which is about the items above.
    """
    columns: dict[int, int] = {}
    comments = set(found.comments())
    levels: list[tuple[int, int]] = []
    limit: int | None = None
    waiting: list[int] = []
    for number in range(len(found.lines)):
        if number in comments:
            columns[number] = _column(blanks_before(found.lines[number]), levels, limit)
            waiting.append(number)
        elif number in found.rows:
            row = found.rows[number]
            columns.update((each, row.new) for each in waiting if _is_at(found, each, row))
            waiting.clear()
        if number in found.rows or number in found.inside:
            inside = found.inside.get(number)
            limit = inside.limit if isinstance(inside, Literal) else None
        levels = found.levels.get(number, levels)
    return columns


def _is_at(found: Lines, comment: int, row: TokenLine) -> bool:
    return blanks_before(found.lines[comment]) == row.old


def _column(column: int, levels: list[tuple[int, int]], limit: int | None) -> int:
    """Return the new column of a comment: it keeps its distance to the block around it."""
    fitting = [level for level in levels if level[0] <= column]
    if fitting:
        old, new = fitting[-1]
        column += new - old
    elif levels:
        column = levels[0][1]
    # a comment that stood in the column of a block scalar's text would become a part of it
    return column if limit is None else min(column, limit)


# -------------------------------------------------------------------------------------------------
# Flow collections and the blanks around colons: one spelling each.
#
# Takes a text that :func:`indent` made. A collection is written on one line where it fits, as
# `{a: 1, b: [1, 2]}`; one that does not, or that holds a comment, is broken after a comma: as many
# entries on a line as fit, the next line begins below the first entry. What is inside of quotes
# stays as it is written, and so does a collection with an anchor, a tag, an explicit key or a text
# of several lines.

#: columns that a flow collection may reach; a comment behind it does not count
WIDTH = 100
_NOTE = re.compile(r"#[^\n]*")


class _UnusualFlowError(Exception):
    """A flow collection that is valid YAML and too rare to be laid out anew."""


class _Entry(Struct):
    """An entry of a flow collection: `above` are comments on lines of their own, `note` behind it.

    `key` is None in a list, and for a key without a value.
    """

    key: _Flow | None
    value: _Flow | None
    above: list[str]
    note: str = ""

    def flat(self) -> str | None:
        """Return it on one line; None where it holds a comment."""
        if self.above or self.note:
            return None
        value = "" if self.value is None else self.value.flat()
        return None if value is None else f"{self.head}{value}"

    @property
    def head(self) -> str:
        """What comes before its value."""
        if self.key is None:
            return ""
        key = self.key.flat()
        if key is None:
            raise _UnusualFlowError
        return f"{key}: "

    def lay(self, column: int, behind: int) -> list[str]:
        """Return its lines, the first without its blanks; `behind` columns follow the last."""
        if self.value is None:
            return [self.head]
        lines = self.value.lay(column + len(self.head), behind)
        return [self.head + lines[0], *lines[1:]]


class _Flow(Struct):
    """A scalar as it is written, or a collection: its brackets, its entries.

    `note` is a comment behind the opening bracket, `below` those before the closing one.
    """

    text: str
    entries: list[_Entry] = field(default_factory=list)
    note: str = ""
    below: list[str] = field(default_factory=list)

    @property
    def _is_collection(self) -> bool:
        """Whether it has brackets."""
        return self.text in {"{}", "[]"}

    def flat(self) -> str | None:
        """Return it on one line; None where it holds a comment."""
        if not self._is_collection:
            return self.text
        parts = [entry.flat() for entry in self.entries]
        if self.note or self.below or None in parts:
            return None
        return self.text[0] + ", ".join(str(part) for part in parts) + self.text[1]

    def lay(self, column: int, behind: int) -> list[str]:
        """Return its lines from a column on, as :meth:`_Entry.lay`.

        On one line if it fits, with the `behind` columns that follow it on its last line. Else each
        entry goes on the line before it as long as there is room, and a collection within is laid
        out by itself, from the column where it comes. With a WIDTH of 30:

            compute: {y: x + 1,
                      z: [1, 2000, 30000,
                          40000], abc: 2}

        A comment ends its line: the next entry begins a new one, and so does the closing bracket.
        """
        flat = self.flat()
        if flat is not None and (
            column + len(flat) + behind <= WIDTH or not self._is_collection or not self.entries
        ):
            return [flat]
        lines = [self.text[0]]
        full = bool(self.note)
        if self.note:
            lines[-1] += f"  {self.note}"
        inner = column + 1
        for number, entry in enumerate(self.entries):
            lines += [" " * inner + each for each in entry.above]
            full = full or bool(entry.above)
            last = number == len(self.entries) - 1
            after = 1 + behind if last and not entry.note and not self.below else 1
            # the first line begins at `column`, every other one with its own blanks
            used = len(lines[-1]) + (column if len(lines) == 1 else 0)
            flat = entry.flat()
            if full or (number and (flat is None or used + 1 + len(flat) + after > WIDTH)):
                lines.append(" " * inner)
                used = inner
            elif number:
                lines[-1] += " "
                used += 1
            made = entry.lay(used, after)
            lines[-1] += made[0]
            lines += made[1:]
            lines[-1] += "" if last else ","
            full = bool(entry.note)
            if entry.note:
                lines[-1] += f"  {entry.note}"
        lines += [" " * inner + each for each in self.below]
        if full or self.below:
            lines.append(" " * column)
        lines[-1] += self.text[1]
        return lines


class _FlowReader:
    """Reads the tokens of one flow collection; raises _UnusualFlowError."""

    def __init__(self, tokens: Iterator[Any], text: str, starts: list[int]) -> None:
        """Begin before its opening bracket; `starts` are where the lines of `text` begin."""
        self._tokens = tokens
        self._text = text
        self._starts = starts
        self._end = 0
        self._next: Any = None
        self._comments: list[str] = []
        #: whether the first of the comments is on the line of the token before
        self._beside = False
        self._step()
        self._comments = []

    def _step(self) -> Any:
        """Take a token; the comments between it and the one after it are kept."""
        taken, self._next = self._next, next(self._tokens, None)
        if self._next is not None:
            begin = offset(self._next.start_mark, self._starts)
            between = self._text[self._end : begin] if taken is not None else ""
            self._comments = [each.rstrip() for each in _NOTE.findall(between)]
            self._beside = bool(self._comments) and "\n" not in between.partition("#")[0]
            self._end = max(begin, offset(self._next.end_mark, self._starts))
        return taken

    def _bare(self) -> None:
        if self._comments:
            raise _UnusualFlowError

    def _split(self, note: str) -> tuple[str, list[str]]:
        """Return the comment that is behind what was taken, and those on lines of their own."""
        if self._beside and not note:
            return self._comments[0], self._comments[1:]
        return note, self._comments

    def node(self) -> _Flow:
        """Read a scalar or a collection."""
        token = self._next
        if isinstance(token, yaml.ScalarToken):
            begin, end = (offset(mark, self._starts) for mark in (token.start_mark, token.end_mark))
            text = self._text[begin:end].rstrip()
            if "\n" in text:
                raise _UnusualFlowError
            self._step()
            return _Flow(text)
        if not isinstance(token, _OPENING):
            raise _UnusualFlowError
        return self._collection("{}" if isinstance(token, yaml.FlowMappingStartToken) else "[]")

    def _collection(self, brackets: str) -> _Flow:
        made = _Flow(brackets)
        self._step()
        made.note, above = self._split("")
        while not isinstance(self._next, _CLOSING):
            entry = self._entry(above)
            made.entries.append(entry)
            entry.note, above = self._split("")
            if isinstance(self._next, yaml.FlowEntryToken):
                self._step()
                entry.note, more = self._split(entry.note)
                above = [*above, *more]
        made.below = above
        self._step()
        return made

    def _entry(self, above: list[str]) -> _Entry:
        if not isinstance(self._next, yaml.KeyToken):
            return _Entry(None, self.node(), above)
        if self._text.startswith("?", offset(self._next.start_mark, self._starts)):
            raise _UnusualFlowError
        self._step()
        key = self.node()
        self._bare()
        if not isinstance(self._next, yaml.ValueToken):
            raise _UnusualFlowError
        self._step()
        if isinstance(self._next, (yaml.FlowEntryToken, *_CLOSING)):
            return _Entry(key, None, above)
        self._bare()
        return _Entry(key, self.node(), above)


def offset(mark: Any, starts: list[int]) -> int:
    """Return where in a text a mark of the scanner is."""
    line, column = int(mark.line), int(mark.column)
    return starts[line] + column


def space(text: str) -> str:
    r"""Return a text with its flow collections laid out, and one blank after a key's colon.

    >>> space("tensors:   {x: [1,2],   y : 3}\n")
    'tensors: {x: [1, 2], y: 3}\n'

    `text` has line feeds only. Raises yaml.YAMLError where it is no YAML.
    """
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    tokens = list(yaml.scan(text, Loader=_Scanner))
    shown: list[str] = []
    at = column = 0
    for begin, end, made in _edits(tokens, text, starts):
        before = text[at:begin]
        column = _column_after(before, column)
        written = made if isinstance(made, str) else "\n".join(made.lay(column, 0))
        shown += [before, written]
        column = _column_after(written, column)
        at = end
    return "".join([*shown, text[at:]])


def _column_after(text: str, column: int) -> int:
    _, feed, last = text.rpartition("\n")
    return len(last) if feed else column + len(text)


def _edits(
    tokens: list[Any], text: str, starts: list[int]
) -> Iterator[tuple[int, int, str | _Flow]]:
    """Yield the pieces of a text that are written anew: from, to, and what stands there then."""
    depth = first = 0
    for number, token in enumerate(tokens):
        if isinstance(token, _OPENING):
            first = first if depth else number
            depth += 1
        elif isinstance(token, _CLOSING):
            depth -= 1
            if not depth:
                is_key = isinstance(tokens[number + 1], yaml.ValueToken)
                yield from _collection_edits(tokens[first : number + 1], text, starts, is_key)
        elif isinstance(token, yaml.ValueToken) and not depth:
            before, behind = tokens[number - 1].end_mark, tokens[number + 1].start_mark
            colon, after = (offset(mark, starts) for mark in (token.start_mark, token.end_mark))
            blanks = offset(before, starts), colon
            if before.line == token.start_mark.line and not text[slice(*blanks)].strip(" \t"):
                yield *blanks, ""
            blanks = after, offset(behind, starts)
            if behind.line == token.end_mark.line and not text[slice(*blanks)].strip(" \t"):
                yield *blanks, " "


def _collection_edits(
    tokens: list[Any],
    text: str,
    starts: list[int],
    is_key: bool,  # noqa: FBT001 -- of the one caller
) -> Iterator[tuple[int, int, _Flow]]:
    try:
        made = _FlowReader(iter(tokens), text, starts).node()
        flat = made.flat()
    except _UnusualFlowError:
        return
    if is_key and flat is None:
        return
    begin, end = offset(tokens[0].start_mark, starts), offset(tokens[-1].end_mark, starts)
    yield begin, end, _Flow(str(flat)) if is_key else made


# -------------------------------------------------------------------------------------------------
# The order of keys: at the top of a file and in a step, where they can be moved safely.
#
# Takes a text that :func:`torch_scenarios.language.format.indent` made. An entry moves with all
# its lines and with the comments right above it. Where it is not certain what a comment belongs to,
# and where anchors make the order matter, the keys stay as they are.

#: comments that are about the file, not about the key below
_HEADERS = ("# yaml-language-server:", "#!")


_TOP_ORDER = tuple(TOP)


class _Text(Struct, frozen=True, kw_only=True):
    """The lines of a text, which change, and those that hold no token: `gaps`, of them `comments`.

    A gap stays a gap although entries move, because a whole mapping is ordered at once, the inner
    one first, and an entry begins and ends with a line that is none.
    """

    lines: list[str]
    gaps: frozenset[int]
    comments: frozenset[int]


def order(text: str, tree: Node) -> str:
    r"""Return a text with the keys of its top and of its steps in their order.

    >>> from torch_scenarios.errors import Source
    >>> text = "steps:\n  - expect: {}\n    barrier:\nworld_size: 2\n"
    >>> print(order(text, parse(Source(path="a.yaml", text=text), limits=Limits())), end="")
    world_size: 2
    steps:
      - barrier:
        expect: {}

    `tree` is the tree of `text`. Raises ExoticLayoutError where the text cannot be understood.
    """
    found = scan(text)
    if found.anchors or not isinstance(tree, Mapping):
        return text
    held = found.rows.keys() | found.inside.keys()
    whole = _Text(
        lines=list(found.lines),
        gaps=frozenset(line for line in range(len(found.lines)) if line not in held),
        comments=frozenset(found.comments()),
    )
    end = len(whole.lines)
    _steps(tree, end, whole)
    _sort(_entries(tree), end, whole, _top_rank)
    return "\n".join(whole.lines)


def is_step_list(key: str) -> bool:
    """Whether the value of a key is a list of steps."""
    return key == BODY


def _steps(mapping: Mapping, end: int, whole: _Text) -> None:
    """Order the keys of the steps in a mapping that ends before line `end`, innermost first."""
    entries = _entries(mapping)
    for number, (key, value) in enumerate(mapping.entries):
        if not is_step_list(key_text(key)) or not isinstance(value, Sequence):
            continue
        last = entries[number + 1][1] if entries and number + 1 < len(entries) else end
        starts = [*(_dash(item, whole.lines) for item in value.items), last]
        for item, following in zip(value.items, starts[1:], strict=True):
            if isinstance(item, Mapping):
                _steps(item, following, whole)
                _sort(_entries(item), following, whole, _step_rank)


def _entries(mapping: Mapping) -> list[tuple[str, int, int]]:
    """Return key, line and column of each entry of a block mapping; nothing of a flow mapping."""
    if not mapping.entries or mapping.mark is not mapping.entries[0][0].mark:
        return []
    return [(key_text(key), key.mark.line - 1, key.mark.column - 1) for key, _ in mapping.entries]


def _dash(item: Node, lines: list[str]) -> int:
    """Return the line of an item's dash, which may stand alone above the item."""
    line = item.mark.line - 1
    if lines[line][: item.mark.column - 1].strip():
        return line
    above = (each for each in range(line - 1, -1, -1) if lines[each].lstrip().startswith("-"))
    return next(above, line)


def _top_rank(key: str) -> int:
    return _TOP_ORDER.index(key) if key in _TOP_ORDER else len(_TOP_ORDER)


def _step_rank(key: str) -> int:
    return STEP_ORDER.index(key if key in STEP_ORDER else ACTION)


def _sort(
    entries: list[tuple[str, int, int]], end: int, whole: _Text, rank: Callable[[str], int]
) -> None:
    """Put the lines of one mapping's entries in order, in place; the number of lines stays.

    The first entry of a step has the dash in its first line. The dash stays where it is: it is cut
    off before the entries move, and put before the one that is first then. If that one has a
    comment above, nothing moves, for the comment would come behind the dash.
    """
    order = sorted(range(len(entries)), key=lambda number: rank(entries[number][0]))
    if order == list(range(len(entries))):
        return
    column = entries[0][2]
    chunks = _chunks(entries, end, whole)
    if chunks is None:
        return
    first, after = chunks[0][0], chunks[-1][1]
    texts = [whole.lines[begin:stop] for begin, stop in chunks]
    prefix = texts[0][0][:column]
    if prefix.strip() not in {"", "-"}:
        return
    texts[0][0] = " " * column + texts[0][0][column:]
    made = _join_entries([texts[number] for number in order], texts[0])
    if prefix.strip() and made[0].lstrip().startswith("#"):
        return
    made[0] = prefix + made[0][column:]
    whole.lines[first:after] = made


def _join_entries(moved: list[list[str]], was_first: list[str]) -> list[str]:
    """Join entries; blank lines above the one that is first now go above the one that was."""
    blanks = []
    while not moved[0][0].strip():
        blanks.append(moved[0].pop(0))
    return [
        line for chunk in moved for line in ([*blanks, *chunk] if chunk is was_first else chunk)
    ]


def _chunks(
    entries: list[tuple[str, int, int]], end: int, whole: _Text
) -> list[tuple[int, int]] | None:
    """Return the lines of each entry, its comments above included; None where that is unsafe.

    Unsafe are two keys on one line; a comment with a blank line below it, which may be about
    several keys; one in another column; and one above the first key of the file, which may be about
    the file.
    """
    starts = [line for _, line, _ in entries]
    column = entries[0][2]
    if len(set(starts)) < len(starts):
        return None
    bounds = [
        _content_end(start, following, whole.gaps)
        for start, following in zip(starts, [*starts[1:], end], strict=True)
    ]
    below = [line for line in range(bounds[-1], end) if line in whole.comments]
    if any(_indent(whole.lines[line]) >= column for line in below):
        return None
    for previous, start in zip(bounds, starts[1:], strict=False):
        above = [line for line in range(previous, start) if line in whole.comments]
        attached = list(range(start - len(above), start))
        if above != attached or any(_indent(whole.lines[line]) != column for line in above):
            return None
    if column == 0 and not _is_header(starts[0], whole):
        return None
    return list(zip([starts[0], *bounds[:-1]], bounds, strict=True))


def _content_end(start: int, end: int, gaps: frozenset[int]) -> int:
    """Return the line after the last one before `end` that belongs to the entry at `start`."""
    while end > start + 1 and end - 1 in gaps:
        end -= 1
    return end


def _is_header(start: int, whole: _Text) -> bool:
    """Whether what stands above the first key is certainly about the file."""
    above = start - 1
    return above not in whole.comments or whole.lines[above].startswith(_HEADERS)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


# -------------------------------------------------------------------------------------------------
# The one layout of scenario files: nothing but columns, blanks, line breaks in flow collections and
# the order of keys is touched.
#
# Takes the text of a file, gives back the text as it should be laid out. What the result says is
# compared with what the text said, node by node and comment by comment: a layout that would change
# either is not taken. So a formatted file loads to an equal scenario, because the loader sees an
# equal tree.

#: PyYAML breaks lines at these as well; a text that holds one is left alone
_RARE_BREAKS = ("\x85", "\u2028", "\u2029")


def format_file(path: Path | str, content: bytes, limits: Limits) -> bytes:
    """Return the content of a scenario file in its layout; that of a file which is so already.

    `path` is what messages call the file. The line ends of its first line are used throughout.
    Raises ScenarioError where the file is no YAML, where its top is no scenario's, or where it is
    in a newer version of the language: what is wrong inside the steps does not matter here.
    """
    source = decode(str(path), content, limits)
    tree = parse(source, limits=limits)
    police_top(tree)
    ends = "\r\n" if source.text.partition("\n")[0].endswith("\r") else "\n"
    text = source.text.replace("\r\n", "\n")
    if "\r" in text or any(each in text for each in _RARE_BREAKS):
        return content
    # The first that leaves the meaning as it is: all three steps, else without the order of keys,
    # else columns alone. A file with an anchor keeps the order of its keys so, and is laid out
    # nevertheless.
    for lay in (_order_text, _space_text, _indent_text):
        made = _try(lay, text, source.path, limits)
        if made is not None and _says_the_same(text, made, tree, source.path, limits):
            return made.replace("\n", ends).encode()
    return content


def _indent_text(text: str, path: str, limits: Limits) -> str:
    return indent(text)


def _space_text(text: str, path: str, limits: Limits) -> str:
    return space(indent(text))


def _order_text(text: str, path: str, limits: Limits) -> str:
    made = space(indent(text))
    return order(made, parse(Source(path=path, text=made), limits=limits))


def _try(
    lay: Callable[[str, str, Limits], str], text: str, path: str, limits: Limits
) -> str | None:
    try:
        return lay(text, path, limits)
    except (ExoticLayoutError, _UnusualFlowError, ScenarioError, yaml.YAMLError):
        return None


def _says_the_same(text: str, made: str, tree: Node, path: str, limits: Limits) -> bool:
    try:
        after = parse(Source(path=path, text=made), limits=limits)
    except ScenarioError:
        return False
    return read_meaning(after) == read_meaning(tree) and comments(made) == comments(text)


def read_meaning(tree: Node) -> Any:
    """Return what the loader sees of a tree: all but places, and the order of keys that may move.

    The order of the entries matters everywhere but at the top and in a step: a matrix names its
    cases by it, `compute` assigns by it, a mapping by rank is searched by it.
    """
    return _read_meaning(tree, movable=True)


def _read_meaning(node: Node, *, movable: bool) -> Any:
    match node:
        case Scalar():
            return type(node.value).__name__, repr(node.value), node.text
        case Sequence():
            return tuple(_read_meaning(item, movable=False) for item in node.items)
        case Mapping():
            entries = [
                (_read_meaning(key, movable=False), _entry(key_text(key), value, movable=movable))
                for key, value in node.entries
            ]
            return ("mapping", *(sorted(entries, key=repr) if movable else entries))


def _entry(key: str, value: Node, *, movable: bool) -> Any:
    if movable and is_step_list(key) and isinstance(value, Sequence):
        return tuple(_read_meaning(item, movable=True) for item in value.items)
    return _read_meaning(value, movable=False)


def comments(text: str) -> Counter[str]:
    """Return every comment of a text, and how often it stands there."""
    return Counter(_comments(text))


def _comments(text: str) -> Iterator[str]:
    """Yield what follows each `#` that the scanner passes over between two tokens.

    A `#` inside of a value is no comment, and is never between tokens. Behind the head of a block
    scalar (`|  # note`) is one that belongs to the token itself: it is looked for on its own.
    """
    lines = text.split("\n")
    line = column = 0
    for token in yaml.scan(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        end = token.start_mark
        for number in range(line, min(end.line + 1, len(lines))):
            begin = column if number == line else 0
            stop = end.column if number == end.line else len(lines[number])
            _, hash_, rest = lines[number][begin:stop].partition("#")
            if hash_:
                yield rest.rstrip()
        if isinstance(token, yaml.ScalarToken) and token.style in {"|", ">"}:
            yield from lines[end.line][end.column :].partition("#")[2:]
        line, column = token.end_mark.line, token.end_mark.column
