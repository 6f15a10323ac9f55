"""How a call ends: what it brought is stored, and the step is noted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from runner.operations.entries import Undefined
from runner.reference import flying, raising
from runner.reference.drifting import moved
from runner.reference.looks import look
from runner.reference.posts import Posted
from runner.reference.snapshots import NOTHING
from runner.reference.values import store

if TYPE_CHECKING:
    from runner.call import Call
    from runner.reference.posts import Post, Work
    from runner.reference.simulation import Simulation
    from runner.reference.state import RankState


def complete(simulation: Simulation, state: RankState) -> bool:
    """Finish the call that the rank stood in; False if it raised and the rank has ended."""
    call = state.call
    assert call is not None  # noqa: S101 -- a blocked rank stands in a call
    works, state.waiting = state.waiting, ()
    start_s = state.clock_s
    late = raising.too_late(works)
    state.clock_s = max([state.clock_s, *(work.done_s for work in works)])
    if late is not None:
        state.clock_s = max(start_s, late.at_s)
        raising.fail(state, call, late.failure, start_s)
        return state.state == "ready"
    slack: dict[str, Any] = {}
    written = {name for work in works for name in work.call.written}
    for work in works:
        slack.update(_apply(simulation, state, work))
    flying.spoil_raced(state)
    record(simulation, state, call, start_s=start_s, written=tuple(sorted(written)), slack=slack)
    return True


def _apply(simulation: Simulation, state: RankState, work: Work) -> dict[str, Any]:
    """Store what the work brought; returns the slack by tensor name."""
    slack: dict[str, Any] = {}
    flying.give_back(state, work)
    for post in work.posts:
        for argument, value, bound in post.outcome:
            target = (
                post.message.buffer if argument is None else work.call.entry.arguments.get(argument)
            )
            _note_filled(simulation, state, work, post, argument)
            if target is not None:
                brought = _off(simulation, value, bound, post)
                store(state.process, work.call.written, target, brought)
            for name in work.call.roots.get(argument or "", ()):
                if bound is not None and state.process.scope.get(name) is target:
                    slack[name] = bound
        post.outcome = []
    return slack


def _note_filled(
    simulation: Simulation, state: RankState, work: Work, post: Post, argument: str | None
) -> None:
    """Note which names a receive fills, whole or in part, and that anyone may have sent it."""
    names, scope = work.call.written, state.process.scope
    if argument is not None or not isinstance(post, Posted):
        simulation.brought.difference_update((state.rank, name) for name in names)
        return
    buffer, anyone = post.message.buffer, post.message.peer is None
    for name in names:
        place, whole = (state.rank, name), scope.get(name) is buffer
        if whole and simulation.reads is not None:
            simulation.accesses.append((NOTHING, frozenset({place})))
        if anyone and (whole or len(names) == 1):
            simulation.brought.add(place)
        elif whole:
            simulation.brought.discard(place)


def _off(simulation: Simulation, value: Any, bound: Any, post: Post) -> Any:  # noqa: ANN401
    """Return what a post brought; off by its slack, where the run is one that tries that out."""
    if simulation.way is None or bound is None or isinstance(value, Undefined):
        return value
    simulation.moved = simulation.moved or _any(bound)
    return moved(value, bound, simulation.way, post.link)


def _any(bound: Any) -> bool:  # noqa: ANN401 -- an array, or a list of such
    return any(map(_any, bound)) if isinstance(bound, list) else bool(np.any(bound))


def record(
    simulation: Simulation,
    state: RankState,
    call: Call,
    *,
    start_s: float,
    written: tuple[str, ...] | None = None,
    slack: dict[str, Any] | None = None,
) -> None:
    """Note that a rank took a step, and what its expectations look at."""
    observed = state.process.observe(call.step)
    state.process.undefined_reads.clear()  # only the keys that this rank is asked for count
    raced = look(simulation, state, call, observed)
    if simulation.reads is not None and call.step.expect is not None:
        simulation.accesses.append(simulation.reads.stated(state.rank, call.step))
    state.add_event(
        call,
        start_s,
        end_s=state.clock_s,
        written=call.written if written is None else written,
        slack=slack or {},
        observed=observed,
        raced=raced,
    )
