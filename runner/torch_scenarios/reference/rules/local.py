"""Local steps: what a rank does by itself, without waiting for any other."""

from __future__ import annotations

from torch_scenarios.model.process import Call
from torch_scenarios.model.trace import Failure
from torch_scenarios.operations.base import (
    Compound,
    Local,
    ProcessExit,
    ProgramError,
    Refusal,
    RefusedError,
)
from torch_scenarios.reference.effects import Effect, End, Go, Raise
from torch_scenarios.reference.rules import rule
from torch_scenarios.reference.rules.call import refuse
from torch_scenarios.reference.state import RankState, Run


@rule(
    "A local step is done at once. It computes from what its rank holds then, in the order of its "
    "assignments, and `sleep` alone takes time.",
    source="the Python array API standard; time.sleep",
    shown="compute/prefix_sum compute/store_into_parts",
)
def act(run: Run, state: RankState, call: Call, operation: Local | Compound) -> list[Effect]:
    """Let the rank do it: its process stores what it computes, as a program does."""
    scope = state.process.scope
    before = {name: scope.get(name) for name in operation.introduces(call.step.arguments)}
    try:
        operation.run(state.process, call.entry)
    except (ProcessExit, RefusedError, ProgramError) as error:
        return stop(run, state, call, error)
    return [Go(operation.duration_s(call.entry), before)]


@rule(
    "A process that is killed or exits does no further step. An exception is raised at once. Torch "
    "raises in the middle of a store that does not fit: what was stored before stays.",
    source="signal(7), sys.exit, raise; torch.Tensor.copy_",
    shown="faults/exits_early faults/raises wrong/store_of_another_size",
)
def stop(
    run: Run, state: RankState, call: Call, error: ProcessExit | RefusedError | ProgramError
) -> list[Effect]:
    """Return what comes of a local step that does not end well."""
    if isinstance(error, ProcessExit):
        return [End(error.how)]
    if isinstance(error, ProgramError):
        return [Raise(Failure(kinds=("other",), message=str(error), own=True))]
    written = (name for name in call.targets if name in state.process.held)
    refusal = Refusal(kind="invalid_argument", message=str(error))
    return refuse(run, state, call, refusal, *written)
