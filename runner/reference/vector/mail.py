"""Messages of many ranks at once: who meets whom, in the order of posting.

A post holds at most one message of each rank, so that within two posts the ends decide. Between
the same ends with the same tag, the first message posted meets the first receive.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.reference.vector.values import Stack, View, leave
from runner.reference.vector.works import Post

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

#: posts of one side that wait in one group; to look through more takes longer than the other engine
MOST = 4_096


@dataclass(slots=True, kw_only=True, eq=False)
class Messages(Post):
    """One message of each rank, out or in: its peer, its tag, and which have not met `[L]`."""

    peers: NDArray[np.int64]
    tags: Any
    payload: Stack | View
    sends: bool = False
    unmet: NDArray[np.bool_] = field(init=False)
    left: int = field(init=False)

    def __post_init__(self) -> None:
        """Begin with none met."""
        self.left = self.active.size
        self.unmet = np.ones(self.left, np.bool_)

    def met(self, rows: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """Note that these rows have met; return them, or None where these are all there are."""
        self.left -= len(rows)
        if not self.left and len(rows) == self.active.size:
            return None
        self.unmet[rows] = False
        return rows


class Mail:
    """Messages that were posted and have not met, by group."""

    def __init__(self) -> None:
        """Begin with none."""
        self._waiting: dict[tuple[str, bool], list[Messages]] = {}

    @property
    def empty(self) -> bool:
        """Whether every message has met its other side."""
        return not any(self._waiting.values())

    def post(self, group: str, post: Messages) -> Iterator[tuple[Messages, Any]]:
        """Post messages; yield every post of which rows are done by that, with these rows.

        None are all rows. What a receive gets is in its `arrived` before.
        """
        others = self._waiting.setdefault((group, not post.sends), [])
        for other in list(others):
            pairs = _pairs(post, other)
            if pairs is None:
                continue
            mine, theirs = pairs
            _deliver(*((post, mine, other, theirs) if post.sends else (other, theirs, post, mine)))
            yield other, other.met(theirs)
            yield post, post.met(mine)
            if not other.left:
                others.remove(other)
            if not post.left:
                return
        own = self._waiting.setdefault((group, post.sends), [])
        own.append(post)
        if len(own) > MOST:
            leave("messages that wait")


def _pairs(one: Messages, two: Messages) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Return the rows of two posts, the one of sends and the other of receives, that meet."""
    same_tag: Any = one.tags == two.tags if _single(one.tags) and _single(two.tags) else None
    if same_tag is False:
        return None
    if two.active.size < one.active.size:
        turned = _pairs(two, one)
        return None if turned is None else (turned[1], turned[0])
    rows, there = two.active.find(one.peers)
    there = there & (two.peers[rows] == one.active.ranks)
    if one.left < one.active.size:
        there &= one.unmet
    if two.left < two.active.size:
        there &= two.unmet[rows]
    if same_tag is None:
        tags = two.tags if _single(two.tags) else two.tags[rows]
        there &= one.tags == tags
    if there.all():
        return np.arange(one.active.size), rows
    mine = np.flatnonzero(there)
    return (mine, rows[mine]) if len(mine) else None


def _single(tags: Any) -> bool:  # noqa: ANN401 -- an integer or many
    return tags.__class__ is int


def _deliver(
    send: Messages, sent: NDArray[np.int64], receive: Messages, got: NDArray[np.int64]
) -> None:
    """Put what was sent before those who receive it; raises Beyond where it does not fit."""
    shape = receive.payload.shape
    if send.payload.dtype != receive.payload.dtype or _size(send) != _size(receive):
        leave("a message that does not fit")
    found = send.payload.take(sent).reshape(len(sent), *shape)
    if len(got) == receive.active.size and receive.arrived is None and _ascending(got):
        receive.arrived = found
        return
    if receive.arrived is None:
        receive.arrived = np.zeros((receive.active.size, *shape), found.dtype)
    receive.arrived[got] = found


def _size(messages: Messages) -> int:
    return int(np.prod(messages.payload.shape))


def _ascending(rows: NDArray[np.int64]) -> bool:
    return bool((rows[1:] > rows[:-1]).all())
