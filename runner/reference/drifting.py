"""How far a value may be off because reductions before it are: tried out, not derived.

The order of a reduction is open, so that its result may be off by some roundings, its slack
(:func:`runner.reference.slack.slack_of`). What later steps make of that depends on them: they
may double it, carry it to another rank, or subtract what is nearly equal. The program is run again
with every such result moved by its slack, to one side, to the other, and to either in turn; a value
that moves may be off by twice as far as it moved most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from runner.language.budget import BoundError
from runner.language.functions import numpy_arrays
from runner.operations.reduction import is_inexact, wide
from runner.problems import ScenarioError
from runner.reference.reading import Reading

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from runner.language.limits import Limits
    from runner.plan import Plan
    from runner.reference.simulation import Simulation
    from runner.reference.state import RankState

#: ways in which every reduction is moved: up, down, up and down in turn, and three at random
WAYS = 6

Place = tuple[int, tuple[int, ...]]


class Drifts:
    """How far the values of one program may drift; nothing is computed before somebody asks."""

    def __init__(self, plan: Plan, limits: Limits) -> None:
        """Run nothing yet."""
        self._asked = plan, limits
        self._runs: list[Simulation] | None = None

    def __call__(self, rank: int, place: Place | None, key: str) -> Any:  # noqa: ANN401
        """Return how far each element of a value may be off, on one rank right after a step.

        `place` is the step's index and iteration, None for the end; `key` a name, or an expression
        that the step's expectation asks about. None where nothing is known to move it.
        """
        if self._runs is None:
            self._runs = self._run()
        found = [_value(run.ranks[rank], place, key) for run in self._runs]
        if not found or any(each is None for each in found):
            return None
        apart = [_apart(found[0], each) for each in found[1:]]
        return None if any(each is None for each in apart) else _most(apart)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle nothing: whoever asks has the plan."""
        return type(None), ()

    def _run(self) -> list[Simulation]:
        """Return the program's run, and those in which reductions are moved; none if none is."""
        from runner.reference.simulation import Simulation  # noqa: PLC0415 -- which moves by `moved`

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


def moved(value: Any, slack: Any, way: int, link: str) -> Any:  # noqa: ANN401 -- arrays, or lists
    """Return a result that is off by its slack; `link` names the meeting that it is from."""
    if isinstance(value, list) and isinstance(slack, list):
        pairs = zip(value, slack, strict=True)
        return [moved(each, bound, way, f"{link}.{at}") for at, (each, bound) in enumerate(pairs)]
    if not isinstance(value, np.ndarray) or slack is None or not is_inexact(value):
        return value
    signs = _signs(value.size, way, link).reshape(value.shape)
    with np.errstate(all="ignore"):
        return (wide(value) + signs * np.asarray(slack)).astype(value.dtype)


def _signs(count: int, way: int, link: str) -> NDArray[np.floating[Any]]:
    if way < 2:  # noqa: PLR2004 -- all up, all down
        return np.full(count, 1.0 - 2.0 * way)
    if way == 2:  # noqa: PLR2004 -- in turn
        return np.where(np.arange(count) % 2, -1.0, 1.0)
    return np.random.default_rng([way, crc32(link.encode())]).choice([-1.0, 1.0], count)


def _value(state: RankState, place: Place | None, key: str) -> Any:  # noqa: ANN401
    """Return what a rank held, or saw, right after a step; None where it did not get there."""
    found = state.initial.get(key)
    for event in state.events:
        found = event.writes.get(key, found)
        if place == (event.index, event.iteration):
            return event.observed.get(key, found)
    return found if place is None else None


def _apart(one: Any, two: Any) -> Any:  # noqa: ANN401 -- arrays, or lists of such
    if isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        parts = [_apart(mine, other) for mine, other in zip(one, two, strict=True)]
        return None if any(part is None for part in parts) else parts
    arrays = isinstance(one, np.ndarray) and isinstance(two, np.ndarray)
    if not arrays or one.shape != two.shape or one.dtype != two.dtype or not is_inexact(one):
        return None
    with np.errstate(all="ignore"):
        return np.nan_to_num(np.abs(wide(one) - wide(two)), nan=0.0, posinf=0.0)


def _most(apart: list[Any]) -> Any:  # noqa: ANN401 -- arrays, or lists of such
    if isinstance(apart[0], list):
        return [_most(list(parts)) for parts in zip(*apart, strict=True)]
    return 2 * np.max(np.stack(apart), axis=0)
