"""Traces compared field by field, down to the bit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from torch_scenarios.reference.vector import CohortError, CohortRun, take_together

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch_scenarios.limits import Limits
    from torch_scenarios.model.plan import Plan
    from torch_scenarios.model.trace import Event, RankTrace, Trace

_OF_TRACE = (
    "backend",
    "outcome",
    "open",
    "diagnoses",
    "waits",
    "limits",
    "warnings",
    "duration_s",
    "notes",
    "environment",
)
_OF_EVENT = (
    "index",
    "label",
    "iteration",
    "state",
    "start_s",
    "end_s",
    "complete_s",
    "failure",
)


def run_together(plan: Plan, limits: Limits) -> Trace:
    """Return what cohorts make of a plan; raises CohortError where ranks do not end together."""
    found = take_together(plan, limits)
    if not isinstance(found, CohortRun):
        message = "ranks walk on by themselves"
        raise CohortError(message)
    return found.trace


def departures(one: Trace, two: Trace) -> list[str]:
    """Return in what two traces differ."""
    found = list(_of_fields(_OF_TRACE, one, two))
    if len(one.ranks) != len(two.ranks):
        found.append("the number of ranks")
    for first, second in zip(one.ranks, two.ranks, strict=False):
        found += [f"rank {first.rank}: {each}" for each in _of_rank(first, second)]
    return found


def _of_fields(names: tuple[str, ...], one: object, two: object) -> Iterator[str]:
    for name in names:
        if getattr(one, name) != getattr(two, name):
            yield f"{name}: {getattr(one, name)!r} and {getattr(two, name)!r}"


def _of_rank(one: RankTrace, two: RankTrace) -> Iterator[str]:
    yield from _of_fields(("rank", "ending", "died", "may_block"), one, two)
    if dict(one.links) != dict(two.links):
        yield f"links: {dict(one.links)} and {dict(two.links)}"
    yield from _of_values("initial", one.initial, two.initial)
    if len(one.events) != len(two.events):
        yield f"{len(one.events)} and {len(two.events)} events"
    for at, (first, second) in enumerate(zip(one.events, two.events, strict=False)):
        for found in _of_event(first, second):
            yield f"event {at}: {found}"
    if one.events and two.events:
        for found in _of_event(one.events[-1], two.events[-1]):
            yield f"last event: {found}"


def _of_event(one: Event, two: Event) -> Iterator[str]:
    yield from _of_fields(_OF_EVENT, one, two)
    for name in ("writes", "slack", "observed"):
        yield from _of_values(name, getattr(one, name), getattr(two, name))


def _of_values(what: str, one: Mapping[str, Any], two: Mapping[str, Any]) -> Iterator[str]:
    if sorted(one) != sorted(two):
        yield f"{what}: {sorted(one)} and {sorted(two)}"
        return
    for name in one:
        if not identical(one[name], two[name]):
            yield f"{what} of {name}: {one[name]!r} and {two[name]!r}"


def identical(one: Any, two: Any) -> bool:
    """Return whether two values are of one type, shape and dtype, and the same to the bit."""
    if isinstance(one, np.ndarray | np.generic) and isinstance(two, np.ndarray | np.generic):
        same = one.dtype == two.dtype and one.shape == two.shape
        return bool(same and one.tobytes() == two.tobytes())
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(map(identical, one, two))
    return type(one) is type(two) and bool(one == two)
