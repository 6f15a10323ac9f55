"""Forms that no closure knows: evaluated rank by rank, as the other engine would, and joined."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from runner.evaluation import CANNOT_COMPUTE
from runner.problems import ScenarioError
from runner.program import Process
from runner.reference.ledger import size_of
from runner.reference.vector.forms import calls_of, names_of
from runner.reference.vector.values import EXACT, LARGEST, Lanes, Stack, Value, leave

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from runner.forms import Form
    from runner.language.functions import NumpyArrays
    from runner.plan import Plan
    from runner.reference.vector.leaves import Scene
    from runner.reference.vector.memory import Memory


class RankByRank:
    """Evaluates forms in a process that becomes one rank after the other."""

    def __init__(self, plan: Plan, arrays: NumpyArrays, memory: Memory) -> None:
        """Hold nothing yet."""
        self._plan = plan
        self._memory = memory
        self.process = Process(plan, 0, arrays, initialise=False)

    def values(self, form: Form, scene: Scene, evaluate: Callable[[], Any]) -> Iterator[Any]:
        """Yield what `evaluate` gives on each active rank. Raises Beyond where it gives nothing."""
        process, names = self.process, names_of(form)
        tensors = [self._memory.columns[name] for name in names & self._memory.columns.keys()]
        missing = (names & self._names_held()) - self._memory.columns.keys()
        groups = names & self._plan.names.keys() or calls_of(form)
        process.scope.update(dict.fromkeys(missing))
        for name, value in scene.variables.items():
            process.scope[name] = value
        for column in tensors:
            here = scene.active.among(column.held[scene.active.index])
            if self._memory.view(column.name, here).guard is not None:
                leave(f"a part of {column.name} is still being written")
        made = 0
        for rank in scene.active.ranks.tolist():
            process.rank = process.scope["rank"] = rank
            if groups:
                self._enter_groups(rank)
            for column in tensors:
                held = column.held[rank]
                process.scope[column.name] = column.values[rank, ...] if held else None
            try:
                value = evaluate()
            except (ScenarioError, *CANNOT_COMPUTE):
                leave("a value that cannot be computed")
            made += size_of(value)
            if made > LARGEST:
                leave("large tensors")
            yield value

    def _names_held(self) -> set[str]:
        return {*self._plan.scenario.tensors, *self._plan.introduced}

    def _enter_groups(self, rank: int) -> None:
        process = self.process
        process.groups.clear()
        for name in self._plan.names:
            group = self._plan.group(name, rank)
            if group is not None:
                process.groups[name] = group
            process.scope[name] = group.listed if group else []


def together(found: Iterator[Any]) -> Value:
    """Return the values of all ranks as one; raises Beyond where they differ in type or shape."""
    values = list(found)
    first = values[0]
    if all(value is None for value in values):
        return None
    if any(value.__class__ is not first.__class__ for value in values):
        leave("values of several types")
    if first.__class__ in {bool, int, float}:
        low, high = min(values), max(values)
        if first.__class__ is int and not -EXACT <= low <= high <= EXACT:
            leave("large integers")
        dtype = {bool: np.bool_, int: np.int64, float: np.float64}[first.__class__]
        return Lanes(np.asarray(values, dtype), low, high)
    if isinstance(first, np.ndarray | np.generic):
        kinds = {(value.shape, value.dtype) for value in values}
        if len(kinds) > 1 or not all(_dense(value) for value in values):
            leave("tensors of several shapes")
        return Stack(np.stack(values))
    if isinstance(first, list) and any(
        each.__class__ is not int for value in values for each in value
    ):
        leave("a list")
    if isinstance(first, str | list | range) and all(value == first for value in values):
        return first
    return leave("values of another type")


def _dense(value: Any) -> bool:  # noqa: ANN401 -- an array or one element of one
    return not isinstance(value, np.ndarray) or value.flags.c_contiguous or value.ndim < 2  # noqa: PLR2004
