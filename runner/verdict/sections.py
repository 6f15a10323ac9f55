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
    scenario: Scenario,
    predicted: Trace,
    observed: Trace | None,
    backend: str | None,
    torch: str | None,
) -> list[tuple[str | None, FinalExpectation]]:
    """Return the author's final expectations that are to be judged, each with its backend.

    With no run, what is stated for every backend and every version of torch is judged, whatever is
    installed; `backend` and `torch` ask for one.
    """
    final = scenario.expect
    if backend is not None:
        versions = _versions(scenario, torch)
        found = [(final.holding(backend, each), final.on(backend, each)) for each in versions]
        return [
            (backend, stated)
            if any(final.sections[number].backend for number in holding)
            else (backend, _stated_on(stated, predicted, predicted.on(backend), observed))
            for holding, stated in dict(found).items()
        ]
    everywhere = scenario.backends or ()
    general = not everywhere or any(name not in final.backends for name in everywhere)
    names = [*([None] if general else []), *final.backends]
    holding = {
        (name, final.holding(name, each)): (name, final.on(name, each))
        for name in names
        for each in _versions(scenario, torch)
        if name is None or any(final.sections[at].backend for at in final.holding(name, each))
    }
    return list(holding.values()) or [(None, final)]


def _versions(scenario: Scenario, torch: str | None) -> tuple[str | None, ...]:
    """Return the version that is asked for, or one for each set of sections that may hold."""
    if torch is not None:
        return (torch,)
    meant = scenario.torch
    found = scenario.expect.versions
    if meant is None:
        return found
    # a version for which the scenario is not meant holds nothing against it
    return tuple(each for each in found if each is None or meant.holds(each)) or (None,)


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
