"""What depends on how much a backend lets pass: hazards, and where else a rank may stand.

A program is a hazard if it finishes under one reading of the semantics and not under another that
is just as correct. Where the semantics leave open who is stuck, the analysis says where a backend
may leave a rank, so that a run which stands there is recognised.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from runner.operations.base import Local
from runner.reference.posts import Posted
from runner.reference.reading import Buffer, Reading
from runner.reference.schedules import Rest, rest
from runner.reference.state import stands_at
from runner.scenario import steps_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runner.arrays import Arrays
    from runner.language.limits import Limits
    from runner.plan import Plan
    from runner.reference.findings import Finding
    from runner.reference.state import Place

#: places of one rank that a trace lists
LISTED = 1_000


def unbuffered(plan: Plan, arrays: Arrays, main: Rest, limits: Limits) -> list[Finding]:
    """Find rings that only a backend which buffers sends would not be caught in."""
    rings = [finding for finding in main.findings if finding.name == "circular_wait"]
    if not rings or not main.simulation.mailbox.sends:
        return []
    buffered = rest(plan, arrays, Reading(buffer=Buffer()), limits=limits)
    stuck = {state.rank for state in buffered.simulation.ranks if state.state == "blocked"}
    return [
        replace(
            ring,
            name="buffering_hazard",
            prose="it finishes only where the backend buffers what is sent, which none need do",
        )
        for ring in rings
        if not stuck & set(ring.ranks)
    ]


def early_leavers(strict: Rest) -> list[Finding]:
    """Find rings that only a backend is caught in whose collectives wait for every member.

    A program must not rely on a broadcast's source leaving before its leaves have come, nor on
    the opposite: any collective may synchronise, and need not (MPI 4.1, 6.14). A ring over several
    groups is `group_order` before it is a hazard.
    """
    rings = [ring for ring in strict.findings if ring.path]
    crossed = [
        replace(ring, kind=f"early:{ring.kind}") for ring in rings if ring.name == "group_order"
    ]
    return [*crossed, *map(_early, rings)]


def _early(ring: Finding) -> Finding:
    return replace(
        ring,
        name="buffering_hazard",
        prose=(
            "it finishes only where a rank leaves a collective before all members have "
            f"entered, which none need let it: {ring.prose}"
        ),
        kind=f"early:{ring.kind}",
        also=("circular_wait", *ring.also),
    )


def disputes(main: Rest) -> bool:
    """Whether somebody may stand in the creation of a group on which ranks disagree, or after it.

    Who meets whom there depends on how a backend names groups.
    """
    creations = main.simulation.creations
    return any(
        creations.disputed(creating.series, creating.ordinal)
        for here in creations.all()
        for creating in here.values()
    )


def may_stand(runs: list[Rest], strict: Rest | None) -> dict[int, set[Place]]:
    """Return, by rank, where a correct backend may leave it although nothing need hold it.

    That is: in a collective that is incomplete, or whose members disagree; where it meets a message
    whose handle was dropped (:func:`_cancelled`), or waits for one again; where another schedule or
    the strict reading leaves it; and, after the first such place, wherever it communicates, because
    who stands there may be missed later.
    """
    main = runs[0]
    found: dict[int, set[Place]] = {}
    for rank, opening in _open_places(main):
        found.setdefault(rank, set()).add(opening)
    others = [*runs[1:], *([strict] if strict else [])]
    for other in others:
        for mine, theirs in zip(main.simulation.ranks, other.simulation.ranks, strict=True):
            place = stands_at(theirs)
            if place is not None and place != stands_at(mine):
                found.setdefault(mine.rank, set()).add(place)
    if found:
        first = min(index for places in found.values() for index, _ in places)
        for rank, later in _later(main, first, {rank for rank, _ in _open_places(main)}):
            found.setdefault(rank, set()).add(later)
    return found


def _open_places(main: Rest) -> Iterator[tuple[int, Place]]:
    for meeting in main.simulation.meetings.all():
        if meeting.complete and not meeting.spoiled:
            continue
        for joining in meeting.joined.values():
            call = joining.call
            yield joining.rank, (call.step.index, call.iteration)
            if joining.work is not None and joining.work.waited_at is not None:
                yield joining.rank, joining.work.waited_at
    yield from _cancelled(main)
    yield from main.simulation.again
    for here in main.simulation.creations.all():
        if len({creating.group.ranks for creating in here.values()}) > 1:
            for rank, creating in here.items():
                yield rank, (creating.call.step.index, creating.call.iteration)


def _cancelled(main: Rest) -> Iterator[tuple[int, Place]]:
    """Yield where ranks met a message whose handle was dropped, and where that was.

    A backend may take such a message back that has not met its other side (Gloo does), and the one
    after it on the same way with it: whoever met it, and all that follows, may stand for ever.
    """
    for state in main.simulation.ranks:
        for work in state.works:
            if not state.gave_up(work):
                continue
            for post in work.posts:
                partner = post.partner if isinstance(post, Posted) else None
                if partner is not None and partner.work is not None and partner.work.waited:
                    yield state.rank, (work.call.step.index, work.call.iteration)
                    yield partner.rank, (partner.call.step.index, partner.call.iteration)
                    if partner.work.waited_at is not None:
                        yield partner.rank, partner.work.waited_at


def _later(main: Rest, first: int, open_ranks: set[int]) -> Iterator[tuple[int, Place]]:
    """Yield where the ranks communicate from step `first` on, `open_ranks` if they pass too."""
    steps = steps_of(main.simulation.plan.scenario.steps)
    communicates = {
        step.index
        for step in steps
        if step.operation is not None and not isinstance(step.operation, Local)
    }
    for state in main.simulation.ranks:
        begun = False
        places = []
        for event in state.events:
            begun = begun or event.index >= first
            if begun and event.index in communicates:
                places.append((event.index, event.iteration))
        place = stands_at(state)
        if place is not None and place[0] >= first:
            places.append(place)
            # a backend may let it pass what spoils the program, and leave it at a later step
            coming = main.futures.of(state.rank) if state.rank in open_ranks else ()
            places += [(call.step.index, call.iteration) for call in coming]
        yield from ((state.rank, each) for each in places[:LISTED])
