"""Remote procedure calls: when a function runs, what it may touch, and what its caller gets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct

from torch_scenarios.errors import ScenarioError
from torch_scenarios.expressions.values import Undefined
from torch_scenarios.model.process import Call
from torch_scenarios.model.trace import Failure
from torch_scenarios.operations.base import RefusedError, RemoteCall, Waiting
from torch_scenarios.reference.buffers import RACED, uses
from torch_scenarios.reference.effects import Ask, Effect, Open, Raise
from torch_scenarios.reference.matching import FunctionCall, Work
from torch_scenarios.reference.rules import rule, waiting
from torch_scenarios.reference.state import InFlightAccess as Access
from torch_scenarios.reference.state import RankState, Run, arrays_of, overlap

#: what a call raises that waits longer than its timeout
OVERDUE = ("timeout",)


@rule(
    "A call of a function arrives as soon as it is made, with copies of its arguments. `rpc_sync` "
    "waits until the function has run; `rpc_async` and `remote` return at once.",
    source="torch.distributed.rpc.rpc_sync, rpc_async and remote",
    shown="rpc/parameter_server rpc/futures rpc/kept_there",
)
def ask(_: Run, __: RankState, call: Call) -> list[Effect]:
    """Let a rank call a function on another one."""
    assert isinstance(call.operation, RemoteCall)
    to, name = call.operation.callee(call.entry)
    return [Ask(to, name)]


class FunctionResult(Struct, frozen=True):
    """What came of a function: its value, or in words what it raised; `refused`: what torch would.

    `failure` has the kind `other` at the caller: which class torch raises there depends on what the
    function raised, so that no scenario can state it more closely.

    >>> FunctionResult(failure="division by zero").value is None
    True
    """

    value: Any = None
    failure: str | None = None
    refused: bool = False


@rule(
    "A function runs as one, at any time between the arrival of its call and its return, next to "
    "the steps of its rank. It sees what that rank holds then. What it returns is a copy, computed "
    "after what it sets.",
    source="torch.distributed.rpc, RPC: functions run on threads of the callee",
    shown="rpc/parameter_server wrong/message_race/read_while_pushed",
)
def perform(state: RankState, asked: FunctionCall) -> FunctionResult:
    """Run a function on its rank, as it is now."""
    cause: Undefined | None = RACED if asked.raced else asked.tainted
    try:
        value = state.process.perform(asked.function, asked.given, cause)
    except RefusedError as error:
        return FunctionResult(failure=str(error), refused=True)
    except ScenarioError as error:
        return FunctionResult(failure=error.problems[0].message)
    return FunctionResult(RACED if asked.raced else value)


@rule(
    "From the start of a step until it has returned, or its work is waited for, the tensors of the "
    "step belong to it: a function that others call there may read what it reads, and no more.",
    source="torch.distributed.isend: modifying the tensor is undefined; functions run on threads",
    shown="wrong/buffer_race/pushed_while_reduced",
)
def collide(state: RankState, asked: FunctionCall) -> Iterator[Access]:
    """Yield what steps of the called rank have in use that the function touches."""
    in_use = list(state.open_accesses)
    if state.state in {"blocked", "lingering"}:
        in_use += [each for work in state.waiting for each in uses(state, work)]
    yield from touches(state, asked, in_use)


def touches(state: RankState, asked: FunctionCall, in_use: Iterable[Access]) -> Iterator[Access]:
    """Yield what of what is in use a function touches, in a way that clashes."""
    scope, function, in_use = state.process.scope, asked.function, list(in_use)
    for name in sorted(function.reads | function.writes):
        memory = arrays_of(scope.get(name))
        for each in in_use:
            if waiting.clash(name in function.writes, each.writes) and overlap(each.memory, memory):
                yield each


@rule(
    "A call that is not answered within its timeout raises at its caller. The function runs all "
    "the same, so that when its effect shows is open.",
    source="torch.distributed.rpc.rpc_sync, `timeout`; measured on torch 2.13",
    shown="rpc/slower_than_the_timeout",
)
def overdue(work: Work, call: Call, start_s: float) -> Raise | None:
    """Return what a rank raises that waits for a call in `call`, since `start_s`; None: nothing."""
    asked = work.posts[0]
    assert isinstance(asked, FunctionCall)
    fetches = isinstance(call.operation, Waiting) and "timeout" in call.entry.arguments
    began_s, limit_s = (
        (start_s, timeout_of(call)) if fetches else (asked.time_s, _limit_call(asked))
    )
    if asked.done_s is not None and asked.done_s - began_s > limit_s:
        return Raise(Failure(kinds=OVERDUE), began_s + limit_s)
    return fail(asked)


def _limit_call(asked: FunctionCall) -> float:
    """Return how long a call may take; what `remote` started is not timed where it is fetched."""
    return float("inf") if asked.keeps else timeout_of(asked.call)


def timeout_of(call: Call) -> float:
    """Return the seconds that a call gets: its own, or the scenario's; torch takes 0 for no end."""
    return waiting.timeout_of(call) or float("inf")


def is_late(asked: FunctionCall) -> bool:
    """Whether a function takes longer than its caller waits."""
    return asked.function.takes_s > _limit_call(asked)


def doubt(asked: FunctionCall) -> list[Effect]:
    """Return what is open of a function that takes longer than `remote` allows.

    torch notes such errors at some time, and a `to_here` before that gets the value.
    """
    return [Open(frozenset({"error"}))] if asked.function.takes_s > timeout_of(asked.call) else []


@rule(
    "What a function raises, its caller raises: at the call, at the wait, or where the value is "
    "fetched. A function that touches a tensor which its rank lacks raises.",
    source="torch.distributed.rpc.internal, `RemoteException`",
    shown="rpc/function_that_fails wrong/invalid_argument/pushed_to_a_rank_without_it",
)
def fail(asked: FunctionCall) -> Raise | None:
    """Return what a caller raises whose function failed; None where it did not."""
    if asked.failure is None:
        return None
    return Raise(Failure(kinds=("other",), message=asked.failure), asked.done_s)
