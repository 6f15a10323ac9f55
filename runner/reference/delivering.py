"""A message that arrives: what the receiver's buffer holds afterwards, or why nobody can say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from runner.operations.entries import Undefined
from runner.reference.findings import Finding
from runner.reference.results import ALL_OUTCOMES

if TYPE_CHECKING:
    from runner.reference.posts import Posted
    from runner.reference.simulation import Simulation


def delivered(simulation: Simulation, send: Posted, receive: Posted) -> None:
    """Put a message into the receiver's buffer; a misfit leaves the buffer undefined."""
    payload, buffer = send.payload, receive.message.buffer
    value: Any = payload
    misfit = _misfit(payload, buffer)
    if misfit:
        name, what = misfit
        simulation.opened |= ALL_OUTCOMES
        value = Undefined(cause=f"a message with a {name}", diagnosis=name)
        simulation.findings.append(
            Finding(
                name=name,
                prose=(
                    f"rank {send.rank} in `{send.call.label}`{_mark(send)} and rank {receive.rank} "
                    f"in `{receive.call.label}`{_mark(receive)} disagree: {what}"
                ),
                kind=f"{name}:{send.call.step.index}:{receive.call.step.index}",
                index=min(send.call.step.index, receive.call.step.index),
                iteration=send.call.iteration,
                ranks=tuple(sorted((send.rank, receive.rank))),
            )
        )
    elif send.tainted is not None:
        value = send.tainted
    elif isinstance(payload, np.ndarray):
        value = payload.copy()
    receive.outcome = [(None, value, None)]


def _mark(posted: Posted) -> str:
    return f" ({posted.call.step.mark.short})" if posted.call.step.mark else ""


def _misfit(payload: Any, buffer: Any) -> tuple[str, str] | None:  # noqa: ANN401
    """Return how the two ends do not fit; a message has elements and no shape.

    torch moves as many bytes as the sender has, whatever the shapes: [1, 4] fills [2, 2].
    """
    if isinstance(payload, np.ndarray) and isinstance(buffer, np.ndarray):
        if payload.dtype != buffer.dtype:
            return "dtype_mismatch", f"{payload.dtype} is sent, {buffer.dtype} is received"
        if payload.size != buffer.size:
            return "shape_mismatch", f"{payload.size} elements are sent, {buffer.size} received"
        return None
    if isinstance(payload, list) and isinstance(buffer, list):
        if len(payload) != len(buffer):
            return "shape_mismatch", f"{len(payload)} objects are sent, {len(buffer)} received"
        return None
    return "dtype_mismatch", "one side passes a tensor, the other a list of objects"
