"""A value that is further off than a dtype rounds, because reductions before it were off."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from runner.verdict.comparison import differences

if TYPE_CHECKING:
    from runner.trace import Event, Trace, Value
    from runner.verdict.comparison import Wanted
    from runner.verdict.finding import Difference


def differences_beyond(
    predicted: Trace,
    place: tuple[int, Event | None, str],
    wanted: Wanted,
    got: Value,
    slack: Value,
) -> list[Difference]:
    """Compare a value of a run; `place` is the rank, the step (None: the end), and the name.

    Only where it is further off than its own step allows is it asked how far what came before may
    move it.
    """
    rank, event, name = place
    off = differences(rank, wanted, got, slack)
    if not off or predicted.drift is None or any(each.code != "value_differs" for each in off):
        return off
    at = None if event is None else (event.index, event.iteration)
    drift = predicted.drift(rank, at, name)
    return off if drift is None else differences(rank, wanted, got, _allowed(slack, drift))


def _allowed(slack: Value, drift: Value) -> Value:
    """Return how far a value may be off; the drift has the slack of its own step in it, twice."""
    if isinstance(drift, list):
        own = slack if isinstance(slack, list) else [None] * len(drift)
        return [_allowed(one, two) for one, two in zip(own, drift, strict=True)]
    return drift if slack is None else np.maximum(slack, drift - np.asarray(slack))
