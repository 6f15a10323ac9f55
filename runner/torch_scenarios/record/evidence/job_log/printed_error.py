"""An error as Python prints it -> its words, and the frames that it went through.

A rank prints it to a log, torchrun to its table and its file, `mp.spawn` in the parent's own::

    Traceback (most recent call last):
      File "/job/train.py", line 8, in work
        port = os.environ["WORLD"]
    KeyError: 'WORLD'
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from torch_scenarios.display import clean_line
from torch_scenarios.record.evidence.stack import MOST_FRAMES, MOST_NAME, RankStack, StackFrame

#: characters of an error's words that are kept
MOST_WORDS = 2000
#: what begins a traceback
HEAD = re.compile(r"Traceback \(most recent call last\):")
_FRAME = re.compile(r'^\s+File "([^"]+)", line (\d+)(?:, in (\S+))?')


class PrintedError(Struct, frozen=True):
    """An error: its type and message in one line, and its frames, the innermost first."""

    words: str
    frames: tuple[StackFrame, ...] = ()

    @property
    def own(self) -> tuple[StackFrame, ...]:
        """The frames of the user's own files."""
        return RankStack(rank=0, frames=self.frames).own

    @property
    def place(self) -> str:
        """The innermost line of the user's own: `train.py:8`; empty where none is printed."""
        return next((f"{Path(each.filename).name}:{each.line}" for each in self.own), "")

    def __str__(self) -> str:
        """Return the words and the place: `KeyError: 'WORLD' (train.py:8)`."""
        return f"{self.words} ({self.place})" if self.place else self.words


def read_error(lines: Iterable[str]) -> PrintedError | None:
    """Return the error of the last traceback in some lines; None where none is whole."""
    return next(iter([*read_errors(lines)][::-1]), None)


def read_errors(lines: Iterable[str]) -> Iterator[PrintedError]:
    """Yield the errors of the tracebacks in some lines.

    An error begins at the left edge, below the frames, which do not.
    """
    frames: list[StackFrame] | None = None
    for line in lines:
        if HEAD.search(line):
            frames = []
        elif frames is not None and (frame := read_frame(line)) is not None:
            frames.append(frame)
        elif frames is not None and line.strip() and not line[0].isspace():
            yield make_error(line, frames)
            frames = None


def read_frame(line: str) -> StackFrame | None:
    """Return the frame that a line of a traceback names; None where it names none."""
    found = _FRAME.match(line)
    if found is None:
        return None
    name, file = (clean_line(each or "")[-MOST_NAME:] for each in (found[3], found[1]))
    return StackFrame(name, file, int(found[2][:9]))


def make_error(words: str, frames: Iterable[StackFrame] = ()) -> PrintedError:
    """Return an error of frames that were printed, the outermost first."""
    innermost = tuple(frames)[: -MOST_FRAMES - 1 : -1]
    return PrintedError(clean_line(words.strip()[:MOST_WORDS]), innermost)
