"""How far a value may be off: the error of a reduction, and what later steps make of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from runner.errors import ScenarioError
from runner.expressions.functions import numpy_arrays
from runner.limits import BoundError, Limits
from runner.model.plan import Plan
from runner.operations.base import Collective, Entry
from runner.operations.checks import epsilon, is_inexact, wide
from runner.reference.semantics import Reading
from runner.reference.state import RankState

if TYPE_CHECKING:
    from runner.reference.engine import Simulation


# -------------------------------------------------------------------------------------------------
# How far the result of a reduction may be off, because the order of its terms is open.

#: reduce ops whose floating-point result depends on the order
ORDER_MATTERS = frozenset({"sum", "avg", "product"})


def slack_of(operation: Collective, entries: list[Entry]) -> list[dict[str, Any]]:
    """Return how far each result may be off because the order of its reduction is open.

    The bound for n terms in any order is (n - 1) roundings of the sum of their absolute values
    (Higham, Accuracy and Stability of Numerical Algorithms, 4.2); that sum is the operation's own
    result on the absolute values. Empty where every order gives the same.
    """
    op = entries[0].arguments.get("op")
    if op is None or (isinstance(op, str) and op not in ORDER_MATTERS) or len(entries) < 2:
        return []
    exact = [_integral(entry) for entry in entries]
    dtypes = [each.dtype for entry in entries for each in _arrays(entry) if is_inexact(each)]
    if not dtypes:
        return []
    sizes = operation.reference(
        [
            replace(
                entry, arguments={name: _size(value) for name, value in entry.arguments.items()}
            )
            for entry in entries
        ]
    )
    eps = epsilon(dtypes[0])
    found = []
    for result in sizes:
        bounds = {name: _bound(value, eps, len(entries)) for name, value in result.items()}
        if all(exact) and op != "avg":
            bounds = {name: _unless_exact(value, len(entries)) for name, value in bounds.items()}
        found.append(bounds)
    return found


def common_slack(operation: Collective, arguments: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Return what :func:`slack_of` gives each of `count` members whose results are the same.

    The tensors among `arguments` are those of all members, stacked `[n, *shape]`.
    """
    op = arguments.get("op")
    if op is None or (isinstance(op, str) and op not in ORDER_MATTERS) or count < 2:
        return {}
    stacks = [each for each in arguments.values() if isinstance(each, np.ndarray)]
    inexact = [each for each in stacks if is_inexact(each)]
    sizes = {name: _size(value) for name, value in arguments.items()}
    result = operation.common(sizes) if inexact else None
    if result is None:
        return {}
    eps = epsilon(inexact[0].dtype)
    bounds = {name: _bound(value, eps, count) for name, value in result.items()}
    if op != "avg" and all(_whole(each) for each in inexact):
        return {name: _unless_exact(value, count) for name, value in bounds.items()}
    return bounds


def _arrays(entry: Entry) -> list[Any]:
    found: list[Any] = []
    for value in entry.arguments.values():
        found += [value] if isinstance(value, np.ndarray) else []
        found += [v for v in value if isinstance(v, np.ndarray)] if isinstance(value, list) else []
    return found


def _integral(entry: Entry) -> bool:
    return all(_whole(each) for each in _arrays(entry) if is_inexact(each))


def _whole(array: NDArray[Any]) -> bool:
    """Whether every element is an integer."""
    wider = wide(array)
    with np.errstate(all="ignore"):
        return bool((wider == np.rint(wider.real)).all())


def _size(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return np.abs(wide(value)) if is_inexact(value) else value
    if isinstance(value, list):
        return [_size(item) for item in value]
    return value


def _bound(value: Any, eps: float, count: int) -> Any:
    if isinstance(value, list):
        return [_bound(item, eps, count) for item in value]
    if isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.size:
        return np.nan_to_num(value * (eps * count), nan=0.0, posinf=0.0, neginf=0.0)
    return None


def _unless_exact(value: Any, count: int) -> Any:
    """Integers whose sum of sizes the dtype still represents add up exactly in any order."""
    if isinstance(value, list):
        return [_unless_exact(item, count) for item in value]
    if value is None:
        return None
    return np.where(value <= count, 0.0, value)


# -------------------------------------------------------------------------------------------------
# How far a value may be off because reductions before it are: tried out, not derived.
#
# The order of a reduction is open, so that its result may be off by some roundings, its slack
# (:func:`runner.reference.tolerance.slack_of`). What later steps make of that depends on them:
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


def moved(value: Any, slack: Any, way: int, link: str) -> Any:
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
    if way < 2:
        return np.full(count, 1.0 - 2.0 * way)
    if way == 2:
        return np.where(np.arange(count) % 2, -1.0, 1.0)
    return np.random.default_rng([way, crc32(link.encode())]).choice([-1.0, 1.0], count)


def _value(state: RankState, place: Place | None, key: str) -> Any:
    """Return what a rank held, or saw, right after a step; None where it did not get there."""
    found = state.initial.get(key)
    for event in state.events:
        found = event.writes.get(key, found)
        if place == (event.index, event.iteration):
            return event.observed.get(key, found)
    return found if place is None else None


def _apart(one: Any, two: Any) -> Any:
    if isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        parts = [_apart(mine, other) for mine, other in zip(one, two, strict=True)]
        return None if any(part is None for part in parts) else parts
    arrays = isinstance(one, np.ndarray) and isinstance(two, np.ndarray)
    if not arrays or one.shape != two.shape or one.dtype != two.dtype or not is_inexact(one):
        return None
    with np.errstate(all="ignore"):
        return np.nan_to_num(np.abs(wide(one) - wide(two)), nan=0.0, posinf=0.0)


def _most(apart: list[Any]) -> Any:
    if isinstance(apart[0], list):
        return [_most(list(parts)) for parts in zip(*apart, strict=True)]
    return 2 * np.max(np.stack(apart), axis=0)
