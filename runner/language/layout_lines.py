"""The lines of a YAML text, written where each should begin.

Takes a text that the reader accepts; gives it back with two spaces for each level, one space after
a dash, no blank at a line's end and at most one blank line in a row. What is inside a value that
spans lines (a folded text, a flow mapping, a long string) only moves as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.language.layout_scan import Literal, blanks_before, scanned

if TYPE_CHECKING:
    from runner.language.layout_scan import Inside, Lines, Row


def indented(text: str) -> str:
    """Return a text with the columns where its structure should begin.

    `text` has line feeds only. Raises ExoticLayoutError where it had better be left alone.
    """
    found = scanned(text)
    shown: list[str] = []
    columns = _comment_columns(found)
    for number, line in enumerate(found.lines):
        row, inside = found.rows.get(number), found.inside.get(number)
        if row is not None:
            made = _row(line, row)
        elif inside is not None:
            made = _inside(line, inside)
        elif not line.strip():
            if shown and shown[-1]:
                shown.append("")
            continue
        else:
            made = " " * columns[number] + line.strip()
        literal = isinstance(inside, Literal)
        shown.append(made if literal or number in found.open_ended else made.rstrip())
    return _ended(shown, found)


def _ended(shown: list[str], found: Lines) -> str:
    """Join the lines with one line feed at the end, unless a block scalar's end is stated by it."""
    if isinstance(found.inside.get(len(found.lines) - 1), Literal):
        return "\n".join(shown)
    while shown and not shown[-1]:
        shown.pop()
    return "\n".join(shown) + "\n"


def _row(line: str, row: Row) -> str:
    rest = line[row.rest :]
    if row.dashes and row.waiting:
        return " " * row.new + "- " * (row.dashes - 1) + "-" + rest.rstrip()
    return " " * row.new + "- " * row.dashes + rest


def _inside(line: str, inside: Inside | Literal) -> str:
    if isinstance(inside, Literal):
        return " " * inside.new + line[inside.old :] if len(line) > inside.old else ""
    blanks = line[: len(line) - len(line.lstrip())]
    if not line.strip() or "\t" in blanks:
        return line
    return " " * max(blanks_before(line) + inside.shift, inside.floor) + line.lstrip()


def _comment_columns(found: Lines) -> dict[int, int]:
    """Return where each comment belongs: in the column of what follows, or of what is open."""
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


def _is_at(found: Lines, comment: int, row: Row) -> bool:
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
