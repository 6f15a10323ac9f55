"""What of a stranger's words is shown: nothing that steers what shows it, and not all of it.

A scenario's names, texts and values, and the name of its file, come from its author. Wherever
they are printed or written for another program, they go through here.
"""

from __future__ import annotations

import re

#: control characters but a tab and a line break, those that turn the direction of a text, line
#: breaks that not every program takes for one, halves of a character (a file name that is not
#: UTF-8), and what Unicode keeps for no character
UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"
    "\u00ad\u061c\u200b-\u200f\u2028\u2029\u202a-\u202e\u2060-\u2069\ufeff\ufffe\uffff\ud800-\udfff\U000e0000-\U000e007f]"
)
#: characters of a value that a message quotes, of a word, of a message, of a line of a report
MOST_QUOTED, MOST_WORD, MOST_MESSAGE, MOST_LINE = 80, 160, 1_000, 4_000
#: characters of a source line beside the fault that are shown with it
MOST_BEFORE, MOST_AFTER = 40, 60

#: each pair of quotes in turn, so that what stands between two of them is no quotation
_QUOTED = re.compile(r"`[^`\n]*`|(?<!\w)'[^'\n]*'(?!\w)|\"[^\"\n]*\"")
#: a word, or one that holds quotations, which people paste
_UNIT = re.compile(r"[^`\s]*(?:`[^`\n]*`[^`\s]*)+|\S+")
_WORD = re.compile(rf"\S{{{MOST_WORD + 1},}}")


def clean(text: str) -> str:
    r"""Return a text of any number of lines without characters that could steer what shows it.

    Each is shown by one U+FFFD in its place, so that what stands beside it stays where it is.

    >>> clean("red \x1b[31m text").isprintable()
    True
    """
    if text.isascii() and text.isprintable():
        return text
    return UNSAFE.sub("\N{REPLACEMENT CHARACTER}", text)


def clean_line(text: str) -> str:
    """Return a text as one line: a line break in it is no break of the line that shows it."""
    return clean(text).replace("\n", "\N{REPLACEMENT CHARACTER}")


def clean_json(text: str) -> str:
    """Return JSON in which unsafe characters are escaped, so that it says the same."""
    if text.isascii():
        return text.replace("\x7f", "\\u007f")
    return UNSAFE.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def short(text: str, most: int = MOST_QUOTED) -> str:
    """Return a text of at most so many characters whole, a longer one by its beginning and end.

    >>> short("abcdefghijklmnopqrstuvwxyz", most=20)
    'abcdefghijk ... wxyz'
    """
    if len(text) <= most:
        return text
    end = most // 5
    return f"{text[: most - end - 5]} ... {text[-end:]}"


def brief(message: str, most: int = MOST_MESSAGE) -> str:
    """Return a message that quotes no more of a value than a person reads, and is no longer."""
    if len(message) <= MOST_QUOTED:
        return message
    message = _QUOTED.sub(_shorten, message)
    message = _WORD.sub(lambda found: short(found.group(), MOST_WORD), message)
    return short(message, most)


def wrap(text: str, columns: int, first: str, rest: str) -> list[str]:
    """Return words as lines with these indents; neither a word nor a quotation in `…` is cut.

    >>> wrap("rank 1 waits in `recv from 0`", 16, "", "  ")
    ['rank 1 waits in', '  `recv from 0`']
    """
    lines = [first]
    for word in _UNIT.findall(text):
        if lines[-1].strip() and len(lines[-1]) + 1 + len(word) > columns:
            lines.append(f"{rest}{word}")
        else:
            lines[-1] += f" {word}" if lines[-1].strip() else word
    return lines


def _shorten(found: re.Match[str]) -> str:
    whole = found.group()
    return f"{whole[0]}{short(whole[1:-1])}{whole[-1]}"


def excerpt(line: str, start: int, width: int, columns: int | None = None) -> tuple[str, str]:
    """Return what is shown of a source line around a fault, and the carets under it.

    `start` counts from 0; of a line that is longer than `columns`, or very long, only what is near
    the fault is shown.
    """
    before, after = "... ", " ..."
    most, ahead, room = MOST_WORD, MOST_BEFORE, MOST_AFTER
    if columns is not None and columns < MOST_WORD:
        most = columns
        ahead = min(start, MOST_BEFORE, columns // 3)
        room = max(1, columns - ahead - len(before) - len(after))
    begin = max(0, start - ahead) if len(line) > most else 0
    end = min(len(line), max(start, begin) + room) if len(line) > most else len(line)
    before, after = before if begin else "", after if end < len(line) else ""
    shown = f"{before}{clean_line(line[begin:end])}{after}"
    indent = len(before) + start - begin
    return shown, " " * indent + "^" * max(1, min(width, end - start))
