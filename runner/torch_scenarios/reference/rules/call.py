"""What holds of every call, whatever its shape: what torch refuses, and which failures may come."""

from __future__ import annotations

from typing import Any

from torch_scenarios.expressions.values import PerRank, Undefined
from torch_scenarios.model.process import Call
from torch_scenarios.model.scenario import Expectation, RaiseSpec
from torch_scenarios.model.trace import Failure
from torch_scenarios.operations.base import Operation, Refusal
from torch_scenarios.reference.effects import Begin, Effect, Open, Raise
from torch_scenarios.reference.rules import rule
from torch_scenarios.reference.rules.words import name_destroyed, name_refusal
from torch_scenarios.reference.state import RankState, Run
from torch_scenarios.vocabulary import WORLD

#: kinds that a call may raise which waits for what never comes
WAITING_KINDS = ("timeout", "peer_lost", "aborted")

#: kinds that a call may raise whose peers gave up before it came
LOST_KINDS = ("peer_lost", "timeout", "aborted", "other")

#: kinds that a stuck call may raise at all; a mismatch that a debug level detects among them
STUCK_KINDS = frozenset({*WAITING_KINDS, "other", "shape_mismatch", "dtype_mismatch"})


def expect(state: RankState, expectation: Expectation | None) -> tuple[str, ...]:
    """Return the kinds that `raises` allows on this rank; empty: none."""
    raises = expectation.raises if expectation else None
    if isinstance(raises, PerRank):
        raises = state.process.choose(raises)
    return raises.kinds if isinstance(raises, RaiseSpec) else ()


def check(run: Run, state: RankState, call: Call, operation: Operation) -> list[Effect]:
    """Return what comes of a call that torch refuses, or may; nothing of one that it does not.

    With a Raise or a Begin among the effects, the call does nothing else.
    """
    on_destroyed = look_up(state, call, operation) if state.process.destroyed else []
    if on_destroyed and on_destroyed[-1].__class__ is Raise:
        return on_destroyed
    refusal = operation.refuse(call.entry)
    if refusal is not None:
        return [*on_destroyed, *refuse(run, state, call, refusal)]
    if call.step.expect is None:
        return on_destroyed
    return [*on_destroyed, *fail_unsupported(state, call, operation)]


@rule(
    "A call that torch refuses raises at once, on its rank alone, before anything is sent. The "
    "others then miss that rank. An asynchronous call may return, and raise at the wait.",
    source="torch.distributed.distributed_c10d, the checks of each function",
    shown="wrong/invalid_argument/two_roots wrong/invalid_argument/source_outside_the_group",
)
def refuse(run: Run, state: RankState, call: Call, refusal: Refusal, *written: str) -> list[Effect]:
    """Let a call raise, or its wait; it may have stored into `written` by then."""
    symptom = name_refusal(run, state, call, refusal)
    if refusal.late and call.asynchronous:
        return [symptom, Begin(refusal=refusal)]
    failure = Failure(kinds=(refusal.kind,), message=refusal.message)
    return [symptom, Raise(failure, spoilt=dict.fromkeys(written))]


@rule(
    "A destroyed group is gone on the rank that destroyed it. A call raises where torch looks the "
    "group up; where a program kept the group itself, Gloo may still carry the call out.",
    source="torch.distributed.destroy_process_group; measured on torch 2.13",
    shown="groups/created_in_a_loop",
)
def look_up(state: RankState, call: Call, operation: Operation) -> list[Effect]:
    """Return what comes of a call on a group that its rank destroyed; nothing on any other."""
    destroyed, group = state.process.destroyed, call.entry.group
    if group.name not in destroyed:
        return []
    raises = operation.looks_up(call.entry)
    if raises is None:
        return []
    where = destroyed[group.name]
    message = f"the group {group.name} was destroyed" + (f" at {where.short}" if where else "")
    symptom = name_destroyed(state, call, message)
    if raises or group.name == WORLD:
        return [symptom, Raise(Failure(kinds=("invalid_argument",), message=message))]
    return [symptom, Open(frozenset({"error"}))]


@rule(
    "A backend need not carry out all that torch has: where the scenario says that a call raises "
    "`unsupported`, it does, and what it was to write is undefined.",
    source="torch.distributed, Backends: the table of what each of them supports",
    shown="dtypes/int16_is_refused",
)
def fail_unsupported(state: RankState, call: Call, operation: Operation) -> list[Effect]:
    """Let a call raise of which the scenario says that the backend cannot do it."""
    kinds = expect(state, call.step.expect)
    if not kinds or operation.backend_kinds(call.entry).isdisjoint(kinds):
        return []
    cause: Any = Undefined(cause="an unsupported call", origin=call.step.index)
    return [Raise(Failure(kinds=kinds), spoilt=dict.fromkeys(call.targets, cause))]
