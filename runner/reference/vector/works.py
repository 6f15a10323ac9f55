"""What calls have started, and who stands waiting for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from runner.reference.vector.record import Said
    from runner.reference.vector.unrolled import Instance
    from runner.reference.vector.values import Active, View

#: rows of a work; None is all of them
Rows = Any


@dataclass(slots=True, kw_only=True, eq=False)
class Post:
    """One thing that the same call of many ranks waits for; row by row it is `done`.

    `target` is where what arrives is stored, `arrived` `[L, *shape]` what did.
    """

    active: Active
    work: Work | None = None
    target: View | None = None
    arrived: NDArray[Any] | None = None
    slack: NDArray[Any] | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class Work:
    """What one call of many ranks started.

    `left` `[L]` counts the posts that are not done, `open` the rows that have such; `waited` tells
    which ranks have waited for it, `awaited` which stand and wait, `stored` where what it brought
    is in place. `flown` are the names of the tensors that it uses until then.
    """

    instance: Instance
    active: Active
    posts: list[Post]
    names: tuple[str, ...]
    left: NDArray[np.int8] = field(init=False)
    open: int = field(init=False)
    waited: NDArray[np.bool_] = field(init=False)
    awaited: NDArray[np.bool_] = field(init=False)
    stored: NDArray[np.bool_] = field(init=False)
    flown: tuple[str, ...] = ()
    number: int = -1

    def __post_init__(self) -> None:
        """Begin with nothing done."""
        size = self.active.size
        self.left = np.full(size, len(self.posts), np.int8)
        self.open = size if self.posts else 0
        self.waited = np.zeros(size, np.bool_)
        self.awaited = np.zeros(size, np.bool_)
        self.stored = np.zeros(size, np.bool_)
        for post in self.posts:
            post.work = self

    def advance(self, rows: Rows) -> Rows:
        """Count one post of these rows as done; return the rows that have none left."""
        if rows is None:
            self.left -= 1
            if len(self.posts) == 1:
                self.open = 0
                return None
            finished = np.flatnonzero(self.left == 0)
        else:
            self.left[rows] -= 1
            finished = rows if len(self.posts) == 1 else rows[self.left[rows] == 0]
        self.open -= len(finished)
        return finished


@dataclass(slots=True, kw_only=True, eq=False)
class Stand:
    """Ranks that stand in one step, and the works that they wait for; the same ones for all."""

    instance: Instance
    active: Active
    works: tuple[Work, ...]
    said: Said
