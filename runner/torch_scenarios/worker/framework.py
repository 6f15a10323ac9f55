"""What calls on NumPy's arrays need in any framework next to torch.

Elements in a row, ranks in a group, and work that is polled: so that a call that hangs can be
broken off, and ranks that wait leave the processors to others.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

#: seconds between two tests of a call: soon at first, then seldom
FIRST_LOOK_S, LOOK_S = 0.00002, 0.0005
#: set where every call that waits is to be broken off, from another thread
BROKEN = threading.Event()


class PolledWork(ABC):
    """A call under way.

    `wait` tests, sleeps a little, and tests again, for longer each time: a call that blocks inside
    a library could not be broken off, and would keep a processor from the ranks that it waits for.
    """

    @abstractmethod
    def is_completed(self) -> bool:
        """Test once, and store what came. Raises what the call raises."""

    def wait(self, *limit: float) -> bool:
        """Test until it is done. Raises RuntimeError where that is broken off."""
        if limit:
            message = "to wait has no timeout here"
            raise NotImplementedError(message)
        pause_s = FIRST_LOOK_S
        while not self.is_completed():
            if BROKEN.is_set():
                message = "the call was broken off"
                raise RuntimeError(message)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LOOK_S)
        return True

    def finish(self, *, async_op: bool) -> PolledWork | None:
        """Wait for it, unless it is asynchronous: then return it."""
        if async_op:
            return self
        self.wait()
        return None


def do_nothing() -> None:
    """Be what follows where nothing does."""


class group:
    """Where torch keeps the group of all ranks.

    A program says `dist.group.WORLD`; a framework next to torch answers to the same name.
    """

    WORLD: Any = None


class GroupMember:
    """What a rank holds of a group without it.

    torch's `new_group` returns this where the rank is not a member, and its collectives do nothing
    with it but warn.
    """

    NON_GROUP_MEMBER = -100


def flatten(array: Array) -> Array:
    """Return the elements in a row: the array's own memory if it lies so, else a copy."""
    return np.ascontiguousarray(array).reshape(-1)


def join(arrays: Sequence[Array]) -> Array:
    """Return the elements of some arrays in a row, copied."""
    return np.concatenate([each.reshape(-1) for each in arrays])


def store(array: Array, row: Array) -> None:
    """Store what came into an array that did not lie in a row."""
    if not np.shares_memory(array, row):
        array[...] = row.reshape(array.shape)


def deal(arrays: Sequence[Array], row: Array) -> None:
    """Store what came in a row into some arrays, one after the other."""
    start = 0
    for each in arrays:
        each[...] = row[start : start + each.size].reshape(each.shape)
        start += each.size


def rank_in(ranks: Sequence[int], world: int | None, inside: int | None) -> int | None:
    """Return the rank of a group that a program means by one spelling or the other.

    `ranks` are the group's, by their ranks in the world. None where one of the world is not in it.
    """
    if inside is not None and world is not None:
        message = "a rank is given twice: of the world, and of the group"
        raise ValueError(message)
    if inside is not None:
        return inside
    return list(ranks).index(world) if world is not None and world in ranks else None


class P2POp(Struct):
    """One message of several that start together: torch's `P2POp`, whose `op` starts it.

    batch_isend_irecv([P2POp(isend, x, 1), P2POp(irecv, y, 1)])
    """

    op: Callable[..., Any]
    tensor: Any
    peer: int | None = None
    group: Any = None
    tag: int = 0
    group_peer: int | None = None

    def start(self) -> Any:
        """Start it."""
        *_, place = signature(self.op).parameters  # the peer in the group: `group_dst`, `group_src`
        inside = {place: self.group_peer}
        return self.op(self.tensor, self.peer, group=self.group, tag=self.tag, **inside)


def batch_isend_irecv(p2p_op_list: Sequence[P2POp]) -> list[Any]:
    """Start each message, in order."""
    return [each.start() for each in p2p_op_list]
