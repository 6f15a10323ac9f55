"""What is kept of a verdict once its reports are written: no tensor outlives its case."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runner.trace import Trace
    from runner.verdict import Verdict


def slimmed(verdict: Verdict) -> Verdict:
    """Return a verdict whose traces tell who ended where, and hold no value."""
    return replace(verdict, predicted=_slim(verdict.predicted), observed=_slim(verdict.observed))


def _slim(trace: Trace | None) -> Trace | None:
    """Return a trace without its values: who ended where remains."""
    if trace is None:
        return None
    ranks = tuple(
        replace(
            rank,
            initial={},
            links={},
            events=tuple(replace(e, writes={}, slack={}, observed={}) for e in rank.events[-1:]),
        )
        for rank in trace.ranks
    )
    return replace(trace, ranks=ranks, forecasts={}, drift=None, orders=())
