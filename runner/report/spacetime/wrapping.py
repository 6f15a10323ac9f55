"""Pieces of text on lines of a certain width."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from runner.report.spacetime.glyphs import Piece

if TYPE_CHECKING:
    from collections.abc import Sequence

#: a width below which lines are left as they are
LEAST = 16

_WORDS = re.compile(r"\s*\S+\s*?")


def wrapped(pieces: Sequence[Piece], width: int) -> list[list[Piece]]:
    """Return the pieces on lines of at most `width` characters; a longer word stands alone."""
    if width < LEAST or sum(len(piece.text) for piece in pieces) <= width:
        return [list(pieces)]
    lines: list[list[Piece]] = [[]]
    left = width
    for piece in pieces:
        if left < len(piece.text) <= width and lines[-1]:
            lines.append([])
            left = width
        for word in _WORDS.findall(piece.text):
            if len(word) > left and lines[-1]:
                lines.append([])
                left = width
            own = word if lines[-1] else word.lstrip()
            lines[-1].append(Piece(own, piece.style))
            left -= len(own)
    return lines
