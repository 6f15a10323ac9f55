"""Plan -> traffic, by shapes alone: how many bytes each rank sends to which; no value is computed.

The engine for many ranks (:mod:`torch_scenarios.reference.vector`) on tensors of which only shape
and dtype are known. Order, groups, sizes and dtypes are proved as there; values, and parts of
tensors that two calls use at once, are not looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from msgspec import Struct

from torch_scenarios.errors import ScenarioError
from torch_scenarios.expressions.hollow import ValueNeeded, boundless
from torch_scenarios.limits import Limits, pause_collector
from torch_scenarios.model.plan import Plan
from torch_scenarios.model.traffic import Traffic
from torch_scenarios.reference.matching import HistoryMissingError
from torch_scenarios.reference.vector import CohortError, leave_by_text
from torch_scenarios.reference.vector.engine import CohortState


class Footprint(Struct, frozen=True):
    """What goes between the ranks of a program that completes.

    `sizes` are the bytes that each name holds on a rank that holds anything.

    It is how `scenario cost` forecasts programs whose tensors fit no machine: with 1,024 ranks and
    1 GiB a tensor no value is computed, but each shape is. Where a value decides what is sent (an
    `all_to_all_single` with splits that were received), there is no footprint.
    """

    traffic: Traffic
    sizes: Mapping[str, float]

    @property
    def bytes_held(self) -> float:
        """The bytes that a rank holds in tensors."""
        return sum(self.sizes.values())


@pause_collector()
def footprint(plan: Plan, *, limits: Limits) -> Footprint | None:
    """Return what goes between the ranks, by shapes alone.

    None where shapes do not tell: a value decides what is sent, the program does not complete, or
    it has what only the reference knows, as models and objects.
    """
    try:
        leave_by_text(plan)
        if plan.scenario.objects or plan.scenario.models:
            return None  # values decide how many bytes they are, or what a strategy sends
        cohort_state = CohortState(plan, boundless(limits), hollow=True)
        cohort_state.run()
    except (CohortError, HistoryMissingError, ValueNeeded, ScenarioError):
        return None
    if not cohort_state.whole:
        return None
    return Footprint(
        cohort_state.record.traffic,
        {
            name: float(prod(column.shape) * column.values.dtype.itemsize)
            for name, column in cohort_state.memory.columns.items()
        },
    )
