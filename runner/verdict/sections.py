"""Which of the author's final expectations are judged, and what each asks of which backend.

What is right does not depend on a backend. An author who states a fault, and how the program ends
because of it, states how the semantics end it; where a backend is known to end it otherwise, the
statement holds on this backend of the fault alone, and the rest is asked of the forecast.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from runner.scenario import Expectation

if TYPE_CHECKING:
    from runner.scenario import FinalExpectation, Scenario
    from runner.trace import Trace


def sections(
    scenario: Scenario, predicted: Trace, observed: Trace | None, backend: str | None
) -> list[tuple[str | None, FinalExpectation]]:
    """Return the author's final expectations that are to be judged, each with its backend."""
    final = scenario.expect
    if backend is not None:
        if backend in final.backends:
            return [(backend, final.backends[backend])]
        return [(backend, _stated_on(final, predicted, predicted.on(backend), observed))]
    everywhere = scenario.backends or ()
    general = not everywhere or any(name not in final.backends for name in everywhere)
    own = [(name, final.backends[name]) for name in sorted(final.backends)]
    return [*([(None, final)] if general else []), *own]


def _stated_on(
    general: FinalExpectation,
    predicted: Trace,
    forecast: Trace,
    observed: Trace | None,
) -> FinalExpectation:
    """Return what the author's words for every backend ask of one about which they say nothing.

    `predicted` is what the semantics make of the program, `forecast` what the backend does.
    """
    wrong = bool(predicted.diagnoses) and predicted.outcome in general.ends
    ends = forecast.outcome if observed is None else observed.outcome
    if forecast is predicted or not wrong or ends not in {forecast.outcome, *forecast.open}:
        return general
    if ends in general.ends:
        unsure = {*forecast.open} - {*predicted.open}
        moved = bool(unsure) or _stands(forecast) != _stands(predicted)
        return replace(general, blocked=None) if moved else general
    return replace(
        general,
        outcomes=(ends,),
        blocked=None,
        dies=None,
        within_s=None,
        at_end=Expectation(),
    )


def _stands(trace: Trace) -> list[tuple[str, int]]:
    """Return how each rank ends, and at which step."""
    return [
        (rank.ending, rank.events[-1].index if len(rank.events) else -1) for rank in trace.ranks
    ]
