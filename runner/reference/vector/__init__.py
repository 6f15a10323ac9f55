"""The second engine of the reference: one step for all ranks at a time, on stacked arrays.

The engine of :mod:`runner.reference.engine` walks rank by rank, and takes some 50 us a step.
Most programs of many ranks are one program that all of them take together; here a step is taken
once for all ranks that stand before it, with `rank` a vector and every tensor a stack of tensors:

    step          rank 0   rank 1   rank 2        one engine takes 9 steps, this one takes 3
    isend         x -> 1   x -> 2   x -> 0
    recv          y <- 2   y <- 0   y <- 1
    wait            .        .        .

It knows right programs only. Whatever it does not know (:class:`Beyond`), or is wrong in any way,
is left to the other engine, from the beginning. What this one returns, that one would return.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.limits import Limits
from runner.model.plan import Plan
from runner.model.scenario import steps_of
from runner.model.trace import Trace
from runner.operations.base import Collective, Local, PointToPoint, Waiting
from runner.reference.vector.cohort import Beyond, leave
from runner.reference.vector.engine import Sweep
from runner.reference.vector.record import Record, trace_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


__all__ = ["Beyond", "swept"]


def swept(plan: Plan, limits: Limits) -> Trace:
    """Return what the plan must do. Raises Beyond where this engine does not know.

    Raises ScenarioError where the program is larger than the limits.
    """
    _police(plan)

    def again(watched: NDArray[np.bool_]) -> Record:
        return Sweep(plan, limits, watched).run()

    return trace_of(Sweep(plan, limits).run(), again)


def _police(plan: Plan) -> None:
    """Raise Beyond for what can be told from the text: it costs nothing to look."""
    scenario = plan.scenario
    if scenario.objects or any(creation.refused is not None for creation in plan.creations):
        leave("objects, or a group that is refused")
    if scenario.expect.ends != ("completes",) or scenario.expect.diagnoses:
        leave("a program that is stated to be wrong")
    steps = steps_of(scenario.steps)
    if any(step.handle_index is not None for step in steps_of(scenario.steps)):
        leave("a handle for each value of an index")
    if any(step.expect is not None and step.expect.raises is not None for step in steps):
        leave("a step that raises")
    shapes = (Collective, Local, PointToPoint, Waiting)
    if any(step.operation is not None and not isinstance(step.operation, shapes) for step in steps):
        leave("a group that is created on the way")
    variables = [step.variable for step in steps if step.variable is not None]
    names = {*scenario.tensors, *plan.introduced}
    if names & {*variables, *scenario.constants, *plan.names, "rank", "world_size"}:
        leave("a name with two meanings")
    if {*variables} & {*scenario.constants, *plan.names, "rank", "world_size"}:
        leave("a name with two meanings")
