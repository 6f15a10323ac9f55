"""What a backend is known to make of a program, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runner.trace import Trace
    from runner.verdict.case import Case

#: facts of a backend that one note names
TOLD = 3

ENDS = {
    "completes": "complete",
    "deadlock": "end in a deadlock",
    "error": "end in an error",
    "crash": "end in a crash",
}


def note_of(case: Case) -> str | None:
    """Return what a report says of a forecast that is not what is predicted anyway, or None."""
    forecast, general = case.prediction, case.general
    if forecast is general:
        return None
    because = "; ".join(forecast.because[:TOLD])
    because = f", because {because}" if because else ""
    where = f"on {forecast.backend}"
    run = case.run
    if run is None or run.outcome == general.outcome != forecast.outcome:
        was = "it is" if run is None else "it was"
        return f"{where} {was} predicted to {_ends(forecast, general)}{because}"
    came = "as predicted" if run.outcome == forecast.outcome else "not as predicted"
    came = "as it may" if run.outcome in {*forecast.open} - {*general.open} else came
    return f"{where}, {came}: {run.outcome}{because}"


def _ends(forecast: Trace, general: Trace) -> str:
    """Say how a forecast ends, and whether that is how the program ends everywhere."""
    end = ENDS[forecast.outcome]
    if forecast.outcome != general.outcome:
        return end
    more = sorted({*forecast.open} - {*general.open})
    return f"{end}, or in {' or '.join(more)}" if more else f"{end} in another way"


def explaining(case: Case) -> tuple[str, ...]:
    """Return the facts of a backend that explain an outcome which is none of the semantics'."""
    forecast, general = case.prediction, case.general
    outcome = case.run.outcome if case.run is not None else forecast.outcome
    explains = {forecast.outcome, *({*forecast.open} - {*general.open})}
    return forecast.because if forecast is not general and outcome in explains else ()
