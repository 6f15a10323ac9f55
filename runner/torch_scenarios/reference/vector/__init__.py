"""The second engine of the reference: one step for all ranks at a time, on stacked arrays.

The engine of :mod:`torch_scenarios.reference.walk` walks rank by rank, and takes some 50 us a
step. Most programs of many ranks are one program that all of them take together; here a step is
taken once for all ranks that stand before it, with `rank` a vector and every tensor a stack of
tensors:

    step          rank 0   rank 1   rank 2        one engine takes 9 steps, this one takes 3
    isend         x -> 1   x -> 2   x -> 0
    recv          y <- 2   y <- 0   y <- 1
    wait            .        .        .

Where nothing moves any more, or a step comes that it does not know, each rank is walked on by the
other engine (:class:`Remainder`). Only a program of which it knows nothing
(:class:`CohortError`) is left to that one from the beginning. What this one returns, that one
would return.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from torch_scenarios.errors import ScenarioError
from torch_scenarios.limits import BoundError, Limits, account
from torch_scenarios.model.plan import Plan
from torch_scenarios.model.scenario import steps_of
from torch_scenarios.model.trace import Trace
from torch_scenarios.model.traits import Traits
from torch_scenarios.operations.base import RemoteCall
from torch_scenarios.reference.backends import StartedCall
from torch_scenarios.reference.vector.cohort import CohortError, leave
from torch_scenarios.reference.vector.engine import CohortState, Turns
from torch_scenarios.reference.vector.record import ColumnRecord, trace_of
from torch_scenarios.reference.vector.remainder import Remainder

__all__ = ["CohortError", "CohortRun", "Turns", "police", "take_together"]

#: how often what one cohort cannot do is left out and the sweep begun again; then all are left
PARKED = 3


class CohortRun(Struct, frozen=True):
    """What all ranks did together, to the end.

    The trace is made of the `record`: events and values lie in columns until a caller looks at one
    rank. `turns` knows whether calls overlapped, which is what a backend's streams could change.
    """

    trace: Trace
    record: ColumnRecord
    turns: Turns

    def is_untouched_by(self, traits: Traits) -> bool:
        """Whether a backend makes of it just what the semantics say."""
        return self.turns.is_untouched_by(traits)

    def list_starts(self, rank: int) -> Iterator[StartedCall]:
        """Yield the calls of a rank that start work, in order."""
        memory = self.record.memory
        assert memory is not None
        for batch in self.record.batches:
            operation, links = batch.instance.step.operation, batch.description.links
            if operation is None or not links or not batch.active.has(rank):
                continue
            entry = batch.entry(memory, rank)
            ends = [found for link in links if (found := link.ends(batch, rank)) is not None]
            yield StartedCall.of(operation, entry, ((sends, peer) for _, sends, peer, _ in ends))


def take_together(plan: Plan, limits: Limits) -> CohortRun | Remainder:
    """Take the plan's ranks together as far as they go: to the end, or to where each walks on.

    Raises CohortError where they cannot be taken together at all, ScenarioError where the
    program is larger than the limits.
    """
    leave_by_text(plan)
    # What cohorts cannot do shows only while they do it, and columns are half changed by then. So
    # all begin again without that turn, which is *parked*: its ranks are left before it, and
    # the others go on for as long as they do not need them.
    #
    #     turn    1   2   3   4   5      the third raises CohortError
    #     again   1   2   -   4   5      its ranks are walked on from there (`Remainder`)
    #
    # A program in which that happens again and again is not of one piece. After PARKED times the
    # run ends at the next such turn (`stop`), and every rank is walked on.
    opened = account()
    left = opened.bytes_left if opened else 0
    parked: set[int] = set()
    stop = -1
    while True:
        cohort_state = CohortState(plan, limits, parked=frozenset(parked), stop=stop)
        try:
            cohort_state.run()
            break
        except BoundError:
            raise
        except (CohortError, ScenarioError):
            if not cohort_state.turn or stop >= 0:
                raise
            if opened:
                opened.bytes_left = left  # what was held is there no more
            if len(parked) == PARKED:
                stop = cohort_state.turn
            else:
                parked.add(cohort_state.turn)

    def again(watched: NDArray[np.bool_]) -> ColumnRecord:
        return CohortState(plan, limits, watched, parked=frozenset(parked), stop=stop).run()

    if cohort_state.whole and not plan.scenario.models:
        return CohortRun(
            trace_of(cohort_state.record, again), cohort_state.record, cohort_state.turns
        )
    return Remainder(plan, cohort_state, again)


def leave_by_text(plan: Plan) -> None:
    """Raise CohortError for what the text alone shows: it costs nothing to look."""
    scenario = plan.scenario
    calls = any(isinstance(step.operation, RemoteCall) for step in steps_of(scenario.steps))
    refused = any(creation.refused is not None for creation in plan.creations)
    steps = steps_of(scenario.steps)
    variables = {step.variable for step in steps if step.variable is not None}
    names = {*scenario.tensors, *scenario.objects, *plan.introduced}
    others = {*scenario.constants, *plan.names, "rank", "world_size"}
    twice = names & variables or (names | variables) & others
    if calls or refused or twice:
        leave("calls of functions, a group that is refused, or a name with two meanings")
