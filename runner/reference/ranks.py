"""Runs that have come to rest -> the trace of one rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.reference.state import stands_at
from runner.trace import Event, RankTrace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runner.reference.schedules import Rest
    from runner.reference.state import Place


def rank_trace(
    rank: int, runs: Sequence[Rest], events: Sequence[Event], may_block: set[Place]
) -> RankTrace:
    """Return one rank's trace; it is blocked for sure only if no schedule lets it go on."""
    state = runs[0].simulation.ranks[rank]
    ending = state.state
    if ending == "blocked":
        call = state.call
        assert call is not None  # noqa: S101 -- a blocked rank stands in a call
        places = {stands_at(run.simulation.ranks[rank]) for run in runs}
        ending = "blocked" if len(places) == 1 else "possibly_blocked"
        stuck = Event(
            index=call.step.index,
            label=call.label,
            iteration=call.iteration,
            state=ending,
            start_s=state.clock_s,
        )
        events = [*events, stuck]
    return RankTrace(
        rank=rank,
        initial=state.initial,
        events=tuple(events),
        ending=ending,
        died=state.died,
        may_block=tuple(sorted(may_block)),
        links={work.at: tuple(post.link for post in work.posts) for work in state.works},
    )
