"""Where a cursor is in a text that may be half written: the keys around it, and the word before it.

The text of a person who types is often no YAML. So this reads lines: what is indented less is
around, and braces are followed from the line in which the outermost one opens. A line that is not
indented more than that one ends what was never closed.
"""

from __future__ import annotations

import re

from msgspec import Struct

_KEY = re.compile(r"(?P<dashes>(?:\s*-\s+)*)\s*(?P<key>[\w.-]+|\"[^\"]*\"|'[^']*')\s*:(?:\s|$)")
_TOKEN = re.compile(r"[{}\[\],]|(?P<key>[\w.-]+|\"[^\"]*\"|'[^']*')\s*:(?=\s|$)")
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")
_WORD = re.compile(r"[\w.]*$")


class CursorPlace(Struct, frozen=True, kw_only=True):
    """`path` are the keys around the cursor, the outermost first.

    With `in_value` the last of them is the key whose value is written; else a key is. `prefix` is
    the part of a word before the cursor.
    """

    path: tuple[str, ...] = ()
    in_value: bool = False
    prefix: str = ""

    @property
    def key(self) -> str:
        """The innermost key; empty at the top."""
        return self.path[-1] if self.path else ""


def place_at(text: str, line: int, column: int) -> CursorPlace:
    """Return the place of a cursor; `line` and `column` count from 0, in characters."""
    lines = text.splitlines()
    last = (lines[line] if line < len(lines) else "")[:column]
    first = _find_flow([*lines[:line], last])
    written = "\n".join([*lines[first:line], last])
    prefix = _WORD.search(written)
    word = prefix[0] if prefix else ""
    lead = re.match(r"[^\S\n]*(?:-\s+)*", written)
    indent = len(lead[0]) if lead else 0
    outer = _find_keys(lines[:first], indent)
    stack: list[str | None] = [None]
    for token in _TOKEN.finditer(written):
        about = token[0]
        if about in "{[":
            stack.append(None)
        elif about in "}]":
            stack = stack[:-1] or [None]
        elif about == ",":
            stack[-1] = None
        else:
            stack[-1] = (token["key"] or "").strip("\"'")
    inner = [each for each in stack if each is not None]
    in_value = stack[-1] is not None or "[" in written.rpartition("{")[2]
    return CursorPlace(path=(*outer, *inner), in_value=in_value, prefix=word)


def _find_flow(lines: list[str]) -> int:
    """Return the line in which the outermost brace opens that is open at the end; else the last."""
    opened: list[int] = []
    for number, line in enumerate(lines):
        bare = _QUOTED.sub("", line).partition(" #")[0]
        if opened and bare.strip() and _indent(line) <= _indent(lines[opened[0]]):
            opened = []
        for sign in bare:
            if sign in "{[":
                opened.append(number)
            elif sign in "}]" and opened:
                opened.pop()
    return opened[0] if opened else len(lines) - 1


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _find_keys(lines: list[str], indent: int) -> tuple[str, ...]:
    """Return the keys of the lines above that hold what is indented by `indent`."""
    found: list[str] = []
    for line in reversed(lines):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key = _KEY.match(line)
        if key is None:
            continue
        column = key.start("key")
        dash = len(line) - len(line.lstrip())
        if column < indent:
            if line[key.end("key") :].lstrip(" :\t").split("#")[0].strip() in {"", "|", ">"}:
                found.append(key["key"].strip("\"'"))
            indent = min(column, dash) if key["dashes"].strip() else column
        if indent == 0:
            break
    return tuple(reversed(found))
