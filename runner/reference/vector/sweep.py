"""The engine: the ranks that are furthest behind take their next step, all at once.

Ranks that a step blocks stand until what they wait for is done; the others go on. Who is released
is behind, and comes first, so that ranks part and join again (as the lanes of a GPU do).

There is no clock: nothing in these programs takes time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from runner.forms import PerRank
from runner.language.functions import numpy_arrays
from runner.reference.ledger import PASSED_TOGETHER, Ledger
from runner.reference.vector.beginning import Beginning
from runner.reference.vector.calls import Calls
from runner.reference.vector.evaluating import Evaluation
from runner.reference.vector.flights import Flights
from runner.reference.vector.memory import Memory
from runner.reference.vector.noting import Notes
from runner.reference.vector.record import Record
from runner.reference.vector.standing import Standing
from runner.reference.vector.unrolled import Instance, Unrolled
from runner.reference.vector.values import Active, Column, leave

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from runner.language.limits import Limits
    from runner.plan import Plan

#: bytes of values that are kept for events; beyond, they are computed again where one is looked at
KEPT = 2**28


class Sweep:
    """The state of all ranks."""

    def __init__(
        self, plan: Plan, limits: Limits, watched: NDArray[np.bool_] | None = None
    ) -> None:
        """Bind the initial values; `watched` `[W]` are the ranks whose values are kept."""
        self._plan = plan
        self._again = watched is not None
        self._ledger = Ledger(limits)
        flights = Flights(plan.world_size)
        self._memory = Memory(plan, self._ledger, flights)
        self._evaluation = Evaluation(plan, numpy_arrays(limits), self._memory, limits)
        self._calls = Calls(plan, self._evaluation, self._memory)
        self._world = Active(np.arange(plan.world_size), plan.world_size)
        self._steps = Unrolled(plan.scenario.steps, self._evaluation, self._world, self._ledger)
        self.record = Record(plan, KEPT, watched)
        self._ready: dict[int, list[Active]] = {}
        notes = Notes(self._memory, flights, self._calls, self.record, self._ledger)
        self._standing = Standing(plan, self._evaluation, flights, notes, self._go)
        self._beginning = Beginning(
            plan,
            ledger=self._ledger,
            flights=flights,
            memory=self._memory,
            evaluation=self._evaluation,
            calls=self._calls,
            notes=notes,
            standing=self._standing,
        )

    def run(self) -> Record:
        """Take every step. Raises Beyond where the program is none for this engine."""
        self._initialise()
        self._go(0, self._world)
        finished = 0
        while self._ready:
            number = min(self._ready)
            active = _merged(self._ready.pop(number))
            instance = self._steps.at(number)
            if instance is None:
                finished += active.size
                self._ledger.step(None, active.size)
                continue
            staying = self._take(instance, active)
            if staying is None:
                self._go(number + 1, active)
            elif not staying.all():
                self._go(number + 1, active.among(~staying))
            self._standing.release()
        if finished < self._plan.world_size:
            leave("ranks that are blocked")
        if not (self._beginning.empty and self._standing.empty):
            leave("work that is left over")
        self.record.memory = self._memory
        if self._again:
            self._ledger.release()  # `KEPT` bounds what is left of it
        return self.record

    def _initialise(self) -> None:
        scene = self._evaluation.scene(self._world, {})
        for name, form in self._plan.scenario.tensors.items():
            parts = (
                list(self._evaluation.branches(form, scene))
                if isinstance(form, PerRank)
                else [(self._world, form)]
            )
            for active, part in parts:
                if part is None:
                    continue
                inner = self._evaluation.scene(active, {})
                value = self._evaluation.tensor(part, inner, "float32")
                if value is not None:
                    self._memory.hold(name, active, value, form.mark)
        for name, column in self._memory.columns.items():
            self._ledger.keep_bytes(column.values.nbytes, None)
            self._ledger.hold(2 * column.values.nbytes)
            column.shared = True
            kept = Column(name, column.values, column.held.copy(), column.whole)
            self.record.initial[name] = kept

    def _go(self, number: int, active: Active) -> None:
        self._ready.setdefault(number, []).append(active)

    def _take(self, instance: Instance, active: Active) -> NDArray[np.bool_] | None:
        """Let ranks take a step; returns which of them `[L]` it blocks, None for none of them."""
        if instance.mask is not None:
            mask = instance.mask[active.index]
            if not mask.any():
                self._ledger.passed(instance.step, PASSED_TOGETHER)
                return None
            chosen: Active | None = active.among(mask)
        else:
            chosen = active
        assert chosen is not None  # noqa: S101 -- some rank is left
        scene = self._evaluation.scene(chosen, instance.variables)
        chosen = self._calls.taking(instance.step, scene)
        if chosen is None:
            self._ledger.passed(instance.step, PASSED_TOGETHER)
            return None
        self._ledger.step(instance.step.mark, chosen.size)
        scene.active = chosen
        blocked = self._beginning.begin(instance, scene)
        if blocked is None:
            return None
        staying = np.zeros(active.size, np.bool_)
        staying[active.rows(blocked)] = True
        return staying


def _merged(parts: list[Active]) -> Active:
    if len(parts) == 1:
        return parts[0]
    ranks = np.concatenate([part.ranks for part in parts])
    return Active(np.sort(ranks), parts[0].world_size)
