"""The picture on a stream: with colours on a terminal, in ASCII where it has nothing else."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from runner.display import clean_line
from runner.report.spacetime.glyphs import OURS, in_ascii

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TextIO

    from runner.report.spacetime.glyphs import Piece, Style

#: the width where there is no terminal, and COLUMNS says nothing
WIDTH = 100

STYLES: dict[Style, str] = {
    "plain": "",
    "strong": "bold",
    "dim": "dim",
    "lane": "dim",
    "bar": "cyan",
    "arrow": "green",
    "step": "bold",
    "stuck": "bold red",
    "open": "bold yellow",
    "raised": "bold magenta",
    "value": "cyan",
}

#: control characters, which could make a terminal do something


class Printer:
    """Prints lines to a stream. Colours follow NO_COLOR and FORCE_COLOR, as `rich` does."""

    def __init__(self, file: TextIO) -> None:
        """Learn what the stream can show."""
        self._console = Console(file=file, highlight=False, soft_wrap=True, markup=False)
        self._ascii = not _encodes(file)

    @property
    def width(self) -> int:
        """The characters of a line."""
        known = self._console.is_terminal or os.environ.get("COLUMNS", "").isdecimal()
        return self._console.width if known else WIDTH

    def print(self, lines: Iterable[Iterable[Piece]]) -> None:
        """Print each line; nothing stands at the end of one that cannot be seen."""
        for line in lines:
            text = Text()
            for piece in line:
                plain = in_ascii(piece.text) if self._ascii else piece.text
                text.append(clean_line(plain).replace("\t", " "), style=STYLES[piece.style])
            text.rstrip()
            self._console.print(text)


def _encodes(file: TextIO) -> bool:
    """Return whether a stream can show the characters that lanes are made of."""
    try:
        OURS.encode(file.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
