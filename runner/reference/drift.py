"""How far a value may be off because reductions before it are: tried out in runs of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runner.errors import ScenarioError
from runner.expressions.functions import numpy_arrays
from runner.limits import BoundError, Limits
from runner.model.plan import Plan
from runner.model.tolerance import drifted
from runner.reference.semantics import Reading
from runner.reference.state import RankState

if TYPE_CHECKING:
    from runner.reference.engine import Simulation


# -------------------------------------------------------------------------------------------------
# How far a value may be off because reductions before it are: tried out, not derived.
#
# The order of a reduction is open, so that its result may be off by some roundings, its slack
# (:func:`runner.model.tolerance.slack_of`). What later steps make of that depends on them:
# they may double it, carry it to another rank, or subtract what is nearly equal. The program is
# run again with every such result moved by its slack, to one side, to the other, and to either in
# turn; a value that moves may be off by twice as far as it moved most.

#: ways in which every reduction is moved: up, down, up and down in turn, and three at random
WAYS = 6

Place = tuple[int, tuple[int, ...]]


class Drifts:
    """How far the values of one program may drift; nothing is computed before somebody asks."""

    def __init__(self, plan: Plan, limits: Limits) -> None:
        """Run nothing yet."""
        self._asked = plan, limits
        self._runs: list[Simulation] | None = None

    def __call__(self, rank: int, place: Place | None, key: str) -> Any:
        """Return how far each element of a value may be off, on one rank right after a step.

        `place` is the step's index and iteration, None for the end; `key` a name, or an expression
        that the step's expectation asks about. None where nothing is known to move it.
        """
        if self._runs is None:
            self._runs = self._run()
        return drifted([_value(run.ranks[rank], place, key) for run in self._runs])

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle nothing: whoever asks has the plan."""
        return type(None), ()

    def _run(self) -> list[Simulation]:
        """Return the program's run, and those in which reductions are moved; none if none is."""
        from runner.reference.engine import Simulation

        plan, limits = self._asked
        runs = []
        for way in (None, *range(WAYS)):
            try:
                runs.append(
                    Simulation(
                        plan, numpy_arrays(limits), reading=Reading(), limits=limits, way=way
                    ).run()
                )
            except BoundError:
                raise  # a bound ends the case
            except ScenarioError:
                return []
            if way == 0 and not runs[-1].moved:
                return []
        return runs


def _value(state: RankState, place: Place | None, key: str) -> Any:
    """Return what a rank held, or saw, right after a step; None where it did not get there."""
    found = state.initial.get(key)
    for event in state.events:
        found = event.writes.get(key, found)
        if place == (event.index, event.iteration):
            return event.observed.get(key, found)
    return found if place is None else None
