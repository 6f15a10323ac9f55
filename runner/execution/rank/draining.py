"""After the last step: the device is asked, never waited for, until it has done each of them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from runner.execution.errors import failure_of
from runner.execution.rank import polling
from runner.execution.rank.failing import Broken
from runner.trace import Failure

if TYPE_CHECKING:
    from runner.execution.rank.board import Board, Record
    from runner.execution.rank.failing import Failures
    from runner.execution.rank.world import World

#: seconds beyond a call's own timeout that a device gets; torch's watchdog looks ten times a second
GRACE_S = 0.5
#: seconds between two looks at what is not on the device: the supervisor's word, the backend's
ASK_S = 0.01


def drain(board: Board, world: World, failures: Failures) -> str | None:
    """Wait, after the last step, until the device has done each of them, in order.

    Returns `raised` where the device did not come to the end: an error of the backend's that no
    call could raise, its own timeout, a lost context. Raises Broken as a stuck call does.
    """
    while (record := board.advance()) is not None:
        end = _done(record, board, world, failures)
        if end == "happened":
            continue
        if end == "left" and failures.broken():
            raise Broken
        board.fail(record, why_lost(record, board, world))
        failures.lost = True
        return "raised"
    return None


def _done(record: Record, board: Board, world: World, failures: Failures) -> polling.End:
    """Wait until the device is past a step, for as long as the backend itself would."""
    if board.fault is not None:
        return "left"
    return polling.wait(
        lambda: board.advance() is not record,
        deadline_s=time.monotonic() + _allowed_s(record, world) + GRACE_S,
        leave=polling.seldom(lambda: failures.broken() or _fault(board, world) is not None, ASK_S),
    )


def _fault(board: Board, world: World) -> Exception | None:
    """Return what went wrong on the device, as far as anything there says so."""
    return board.fault or world.error()


def why_lost(record: Record, board: Board, world: World) -> Failure:
    """Return why the device is not done with a step."""
    fault = _fault(board, world)
    if fault is not None:
        return failure_of(fault)
    allowed_s = _allowed_s(record, world)
    return Failure(
        kinds=("timeout",),
        message=f"the device had not done it after the {allowed_s:g} s that the group allows",
    )


def _allowed_s(record: Record, world: World) -> float:
    return record.timeout_s or world.plan.world.timeout_s
