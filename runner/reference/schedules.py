"""Receives from anyone: every matching that can really happen, one after the other.

Messages to a named receiver meet as soon as both sides are there; a receive from anyone waits
until nothing else moves, and then has before it every message that could ever reach it. Taking
each in turn, depth first, visits one schedule of each class that differs in a matching (the
persistent sets of Vakkalanka, Gopalakrishnan and Kirby, ISP, CAV 2008).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.language.budget import account
from runner.operations.entries import Undefined
from runner.reference.faults import faults
from runner.reference.findings import Finding
from runner.reference.simulation import Simulation
from runner.reference.telling import place
from runner.reference.values import measured
from runner.reference.waits import Futures

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from runner.arrays import Arrays
    from runner.language.limits import Limits
    from runner.plan import Plan
    from runner.reference.posts import Posted
    from runner.reference.reading import Reading
    from runner.reference.waits import Need
    from runner.trace import Event


#: part of the work and of the bytes of a case after which no further schedule is tried
EXPLORING = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """A run that has come to rest, with everything that is to be said of it."""

    simulation: Simulation
    findings: tuple[Finding, ...]
    needs: tuple[Need, ...]
    futures: Futures

    @property
    def outcome(self) -> str:
        """One of :data:`runner.vocabulary.OUTCOMES`."""
        states = {state.state for state in self.simulation.ranks}
        if "died" in states:
            return "crash"
        if "raised" in states:
            return "error"
        return "deadlock" if "blocked" in states else "completes"


def rest(
    plan: Plan,
    arrays: Arrays,
    reading: Reading,
    schedule: tuple[int, ...] = (),
    *,
    limits: Limits,
) -> Rest:
    """Run one schedule to its end. Raises ScenarioError where a value cannot be computed."""
    simulation = Simulation(plan, arrays, reading=reading, schedule=schedule, limits=limits).run()
    futures = Futures(simulation)
    found, needs = faults(simulation, futures)
    return Rest(simulation=simulation, findings=tuple(found), needs=tuple(needs), futures=futures)


def explored(
    plan: Plan, arrays: Arrays, reading: Reading, *, limits: Limits
) -> tuple[list[Rest], str | None]:
    """Return the run of every schedule, the default one first, and the bound that was hit, if any.

    Other schedules take a part of the work and of the bytes of a case, and leave it the rest.
    """
    runs: list[Rest] = []
    for schedule in _schedules(runs):
        if len(runs) == limits.max_schedules:
            return runs, "max_schedules"
        found = account()
        if runs and found is not None:
            if found.work_left < limits.max_work * (1 - EXPLORING):
                return runs, "max_work"
            if found.bytes_left < limits.max_bytes * (1 - EXPLORING):
                return runs, "max_bytes"
        runs.append(rest(plan, arrays, reading, schedule, limits=limits))
    return runs, None


def _schedules(runs: list[Rest]) -> Iterator[tuple[int, ...]]:
    """Yield each schedule after the one before it was run: an odometer over its choices."""
    schedule: tuple[int, ...] | None = ()
    while schedule is not None:
        yield schedule
        widths = [len(candidates) for _, candidates in runs[-1].simulation.choices]
        taken = [*schedule, *[0] * (len(widths) - len(schedule))]
        schedule = None
        for at in reversed(range(len(widths))):
            if taken[at] + 1 < widths[at]:
                schedule = (*taken[:at], taken[at] + 1)
                break


def race(runs: list[Rest]) -> Finding | None:
    """Return the finding that what ranks hold or do depends on the schedule, or None.

    It is placed at the earliest receive at which schedules with different results part.
    """
    first = runs[0]
    apart = [
        (_parting(first, other), text)
        for other in runs[1:]
        if (text := _divergence(first, other)) is not None
    ]
    if not apart:
        return None
    (receive, candidates), text = min(apart, key=lambda each: each[0][0].order)
    told = [f"rank {send.rank} (`{send.call.label}`{_at(send)})" for send in candidates]
    senders = " or ".join(dict.fromkeys(told))
    return Finding(
        name="message_race",
        prose=(
            f"rank {receive.rank} in `{receive.call.label}`{place(receive)} takes whichever "
            f"message comes first, from {senders}: {text}"
        ),
        kind="message_race",
        index=receive.call.step.index,
        iteration=receive.call.iteration,
        ranks=(receive.rank,),
    )


def _at(posted: Posted) -> str:
    mark = posted.call.step.mark
    return f", {mark.short}" if mark else ""


def _parting(one: Rest, two: Rest) -> tuple[Posted, tuple[Posted, ...]]:
    """Return the choice at which two schedules part: both took the same ones before it."""
    mine, theirs = one.simulation, two.simulation
    for at, choice in enumerate(mine.choices):
        taken = mine.schedule[at] if at < len(mine.schedule) else 0
        other = theirs.schedule[at] if at < len(theirs.schedule) else 0
        if taken != other:
            return choice
    return mine.choices[-1]


def _divergence(one: Rest, two: Rest) -> str | None:
    """Return in words what differs between two schedules, or None."""
    ended = [
        f"rank {left.rank} is {left.state} in one schedule and {right.state} in another"
        for left, right in zip(one.simulation.ranks, two.simulation.ranks, strict=True)
        if left.state != right.state
    ]
    if ended:
        return ended[0]
    for left, right in zip(one.simulation.ranks, two.simulation.ranks, strict=True):
        for mine, theirs in zip(left.events, right.events, strict=False):
            if (mine.index, mine.iteration) != (theirs.index, theirs.iteration):
                return f"rank {left.rank} goes on to another step"
            for name in mine.writes:
                if not same(mine.writes[name], theirs.writes.get(name)):
                    return (
                        f"{name} on rank {left.rank} is {_brief(mine.writes[name])} in one "
                        f"schedule and {_brief(theirs.writes.get(name))} in another"
                    )
    return None


def _brief(value: Any) -> str:  # noqa: ANN401 -- any value of a trace
    text = str(value.tolist() if isinstance(value, np.ndarray) else value)
    return text if len(text) <= 40 else f"{text[:37]}..."  # noqa: PLR2004 -- one line of prose


def same(one: Any, two: Any) -> bool:  # noqa: ANN401 -- any value of a trace
    """Return whether two values of a trace are the same to the bit (NaN equals NaN)."""
    if isinstance(one, np.ndarray) and isinstance(two, np.ndarray):
        return one.dtype == two.dtype and one.shape == two.shape and one.tobytes() == two.tobytes()
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, np.ndarray) or isinstance(two, np.ndarray):
        return False
    return bool(one == two)


def agreed(runs: list[Rest]) -> list[list[Event]]:
    """Return each rank's events of the first run; what another run differs in is undefined.

    Where a rank goes another way in another schedule, all that it writes from there on is.
    """
    merged = [list(state.events) for state in runs[0].simulation.ranks]
    for other in runs[1:]:
        for events, state in zip(merged, other.simulation.ranks, strict=True):
            parted = False
            for at, mine in enumerate(events):
                theirs = state.events[at] if at < len(state.events) else None
                parted = parted or theirs is None or _instance(mine) != _instance(theirs)
                events[at] = _merged(mine, None if parted else theirs)
    return merged


def _instance(event: Event) -> tuple[int, tuple[int, ...]]:
    return event.index, event.iteration


def _merged(mine: Event, theirs: Event | None) -> Event:
    raced = Undefined(cause="a race of messages", diagnosis="message_race")
    writes = theirs.writes if theirs else {}
    observed = theirs.observed if theirs else {}
    changed = {
        name: _alike(raced, value, writes.get(name))
        for name, value in mine.writes.items()
        if not _kept(name, value, writes)
    }
    seen = {key: raced for key, value in mine.observed.items() if not _kept(key, value, observed)}
    if not changed and not seen:
        return mine
    return replace(mine, writes={**mine.writes, **changed}, observed={**mine.observed, **seen})


def _alike(raced: Undefined, one: Any, other: Any) -> Undefined:  # noqa: ANN401
    """Keep the shape and dtype, where two schedules agree on these at least."""
    arrays = isinstance(one, np.ndarray) and isinstance(other, np.ndarray)
    if arrays and (one.shape, one.dtype) == (other.shape, other.dtype):
        return measured(raced, one)
    return raced


def _kept(name: str, value: Any, others: Mapping[str, Any]) -> bool:  # noqa: ANN401
    return name in others and same(value, others[name])
