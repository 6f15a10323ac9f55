"""The reference against the run, whatever the author states: every step, every written tensor.

Each rank is followed to its first divergence; what comes after it is its consequence.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from runner.operations.entries import Undefined
from runner.trace import Event
from runner.verdict.case import Occurrences
from runner.verdict.comparison import Wanted, same
from runner.verdict.conduct import GAVE_UP
from runner.verdict.drift import differences_beyond
from runner.verdict.finding import Difference, Finding
from runner.verdict.wording import prose_of, ranks_text

if TYPE_CHECKING:
    from runner.trace import RankTrace, Trace
    from runner.verdict.case import Case

#: the moment before step 1, as an event
BEFORE = Event(index=-1, label="the initial values")

Blamed = set[tuple[int, int, tuple[int, ...], str]]


@dataclass(slots=True, kw_only=True)
class _Spot:
    """One name at one step instance, over all ranks."""

    event: Event
    name: str
    differences: list[Difference] = field(default_factory=list)


def judge_agreement(case: Case, blamed: Blamed) -> list[Finding]:
    """Return where the run departs from the reference; `blamed` names what is reported already."""
    if case.observed is None or not case.reference:
        return []
    spots: dict[tuple[int, tuple[int, ...], str], _Spot] = {}
    conduct: dict[tuple[int, tuple[int, ...], str], list[tuple[int, Event]]] = {}
    late = _late(case.prediction)
    for rank in range(case.scenario.world_size):
        predicted = (case.taken or case.predicted).rank(rank)
        observed = case.observed.rank(rank)
        if predicted is not None and observed is not None:
            _initial(case, rank, spots)
            _follow(
                case,
                predicted,
                observed,
                _Found(spots=spots, conduct=conduct, blamed=blamed, late=late),
            )
    found = [_spot_finding(case, spot) for spot in spots.values()]
    return found + [_conduct_finding(case, key, entries) for key, entries in conduct.items()]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    spots: dict[tuple[int, tuple[int, ...], str], _Spot]
    conduct: dict[tuple[int, tuple[int, ...], str], list[tuple[int, Event]]]
    blamed: Blamed
    #: where a rank gives up on another that comes too late: who need not wait there may as well
    late: frozenset[tuple[int, tuple[int, ...]]]


def _late(predicted: Trace) -> frozenset[tuple[int, tuple[int, ...]]]:
    """Return the steps at which a rank is predicted to end because it, or another, is late."""
    ended = [rank.events[-1] for rank in predicted.ranks if rank.ending == "raised" and rank.events]
    return frozenset((event.index, event.iteration) for event in ended if _gave_up(event))


def _initial(case: Case, rank: int, spots: dict[tuple[int, tuple[int, ...], str], _Spot]) -> None:
    """Compare what both executors made of the initial values, where the run states them."""
    assert case.observed is not None  # noqa: S101 -- asked by the caller
    found = case.observed.rank(rank)
    expected = case.predicted.initial(rank)
    for name, got in (found.initial if found else {}).items():
        if name in expected:
            _compare(case, rank, BEFORE, name, (expected[name], got, None), spots)


def _follow(case: Case, predicted: RankTrace, observed: RankTrace, found: _Found) -> None:
    """Follow one rank to where the run first does otherwise."""
    nth = Occurrences()
    seen = {nth(event): event for event in observed.events}
    nth = Occurrences()
    for event in predicted.events:
        other = seen.get(nth(event))
        if other is None:
            return
        forgiven = (event.index, event.iteration) in found.late and _gave_up(other)
        problem = None if forgiven else _departs(case, predicted, event, other)
        if problem is not None:
            key = (event.index, event.iteration, problem)
            found.conduct.setdefault(key, []).append((predicted.rank, other))
            return
        if event.state != "done" or other.state != "done":
            if event.state != other.state:
                return
            continue
        _written(case, predicted.rank, event, other, found)


def _written(case: Case, rank: int, event: Event, other: Event, found: _Found) -> None:
    """Compare every tensor that a step may have stored into, on one rank."""
    for name, expected in event.writes.items():
        if name not in other.writes or name in case.own_names:
            continue
        if (rank, event.index, event.iteration, name) in found.blamed:
            continue
        case.compared += 1
        got = other.writes[name]
        if not same(expected, got):
            values = (expected, got, event.slack.get(name))
            _compare(case, rank, event, name, values, found.spots)


def _compare(
    case: Case,
    rank: int,
    event: Event,
    name: str,
    values: tuple[object, object, object],
    spots: dict[tuple[int, tuple[int, ...], str], _Spot],
) -> None:
    expected, got, slack = values
    if _undefined(expected):
        return
    place, wanted = (rank, event, name), Wanted(value=expected, strict=True)
    off = differences_beyond(case.prediction, place, wanted, got, slack)
    if off:
        key = (event.index, event.iteration, name)
        spots.setdefault(key, _Spot(event=event, name=name)).differences.extend(off)


def _undefined(value: object) -> bool:
    if isinstance(value, list):
        return any(_undefined(item) for item in value)
    return isinstance(value, Undefined)


def _departs(case: Case, predicted: RankTrace, event: Event, other: Event) -> str | None:
    """Return how an observed event contradicts its prediction; None where it may be so."""
    opened = set(case.open)
    if case.own_outcome:
        opened = opened | {*case.final.ends}
    if (event.index, event.iteration) in predicted.may_block:
        opened = opened | {"deadlock"}
    if event.state == "possibly_blocked" or other.state == "running":
        return None
    if event.state == "done":
        return _departs_from_done(other, opened)
    if event.state == "blocked":
        if other.state == "done" and "completes" not in opened:
            return "finished what no correct implementation could let pass"
        return None
    if event.state == "raised":
        return _departs_from_raised(event, other, opened)
    return None


def _gave_up(other: Event) -> bool:
    return other.failure is not None and not GAVE_UP.isdisjoint(other.failure.kinds)


def _departs_from_done(other: Event, opened: set[str]) -> str | None:
    if other.state == "raised" and other.failure and not opened & {"error", "deadlock", "crash"}:
        words = other.failure.message.strip().splitlines()
        said = f": {words[0]}" if words else ""
        return f"raised {' or '.join(other.failure.kinds)}, which nothing explains{said}"
    if other.state == "blocked" and "deadlock" not in opened:
        return "hangs where nothing should block it"
    return None


def _departs_from_raised(event: Event, other: Event, opened: set[str]) -> str | None:
    kinds = set(event.failure.kinds) if event.failure else set()
    if other.state == "done" and "completes" not in opened:
        return f"returned, where it should raise {' or '.join(sorted(kinds))}"
    if other.state == "blocked" and "deadlock" not in opened and not kinds & GAVE_UP:
        return f"hangs, where it should raise {' or '.join(sorted(kinds))}"
    if other.state == "raised" and other.failure and kinds and "error" not in opened:
        raised = set(other.failure.kinds)
        if not raised & kinds:
            return f"raised {' or '.join(sorted(raised))}, expected {' or '.join(sorted(kinds))}"
    return None


def _spot_finding(case: Case, spot: _Spot) -> Finding:
    step = case.order.steps.get(spot.event.index)
    return Finding(
        witness="backend",
        code=spot.differences[0].code,
        prose=f"{prose_of(spot.name, spot.differences)} (against the reference)",
        mark=(step.mark if step else None) or case.scenario.mark,
        ranks=tuple(sorted({difference.rank for difference in spot.differences})),
        label=spot.event.label,
        index=spot.event.index,
        iteration=spot.event.iteration,
        name=spot.name,
        differences=tuple(spot.differences),
    )


def _conduct_finding(
    case: Case, key: tuple[int, tuple[int, ...], str], entries: list[tuple[int, Event]]
) -> Finding:
    index, iteration, problem = key
    step = case.order.steps.get(index)
    ranks = tuple(rank for rank, _ in entries)
    return Finding(
        witness="backend",
        code="conduct_differs",
        prose=f"{ranks_text(ranks)} {problem}",
        mark=(step.mark if step else None) or case.scenario.mark,
        ranks=ranks,
        label=entries[0][1].label,
        index=index,
        iteration=iteration,
    )
