"""What each rank holds after the step at a line: for `scenario run sum.yaml:42`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.places import step_at
from runner.report.at_end import AtEnd
from runner.report.pictures import timeline
from runner.report.prose import Line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from runner.results import Outcome, Result
    from runner.scenario import Scenario, Step
    from runner.timeline import Lane, Span
    from runner.trace import Trace

#: passes of a loop that are shown: the first ones
MOST_PASSES = 4


class StepValues(AtEnd):
    """Prints, below the result of each case, the values of the steps that were asked for."""

    def __init__(
        self, show: Callable[[Iterable[Line]], None], lines: Mapping[str, list[int]]
    ) -> None:
        """Print by `show`; `lines` are those asked for, by the file's path as results name it."""
        self._show = show
        self._lines = lines

    def finish(self, result: Result) -> None:
        """Print the values."""
        if result.scenario is None:
            return
        for line in self._lines.get(result.file, ()):
            step = _last(step_at(result.scenario, line))
            if step is None:
                place = f"{result.file}:{line}"
                self._show([Line(f"    {place} is in no step: the whole case is meant", "dim")])
            else:
                self._show(_values(result, result.scenario, step))

    def end(self, outcome: Outcome) -> None:
        """Print nothing."""


def _last(step: Step | None) -> Step | None:
    """Return the step itself, or the last one in the body of a loop."""
    while step is not None and step.body:
        step = step.body[-1]
    return step


def _values(result: Result, scenario: Scenario, step: Step) -> list[Line]:
    verdict = result.verdict
    trace = verdict.observed or verdict.predicted
    if trace is None or verdict.predicted is None:
        return []
    held = _held(scenario, trace, verdict.predicted, step)
    should = held if trace is verdict.predicted else None
    if should is None:
        should = _held(scenario, verdict.predicted, verdict.predicted, step)
    place = f"{step.mark.short}" if step.mark is not None else scenario.case
    told = "held" if verdict.observed is not None else "must hold, by the analysis"
    passes = sorted({iteration for iteration, _ in should} | {iteration for iteration, _ in held})
    lines: list[Line] = []
    for iteration in passes[:MOST_PASSES]:
        turn = f", iteration {', '.join(map(str, iteration))}" if iteration else ""
        lines.append(Line(f"    after {place}{turn} each rank {told}:", "dim"))
        ranks = sorted({rank for at, rank in (*held, *should) if at == iteration})
        for rank in ranks:
            key = iteration, rank
            lines.append(Line(f"      rank {rank}: {_told(held.get(key), should.get(key))}"))
    if not passes:
        return [Line(f"    no rank took the step at {place}", "dim")]
    if len(passes) > MOST_PASSES:
        lines.append(Line(f"    ... and {len(passes) - MOST_PASSES} more iterations", "dim"))
    return lines


def _held(
    scenario: Scenario, trace: Trace, predicted: Trace, step: Step
) -> dict[tuple[tuple[int, ...], int], dict[str, str]]:
    """Return what each rank held after each pass of a step, as text, by iteration and rank."""
    return {
        (span.iteration, lane.rank): values
        for lane in timeline(scenario, trace, predicted).lanes
        for span, values in _after_each(lane)
        if span.index == step.index
    }


def _after_each(lane: Lane) -> Iterable[tuple[Span, dict[str, str]]]:
    """Yield each step of a rank with what it stored into, or with all that the rank then holds."""
    held = dict(lane.initial)
    for span in lane.spans:
        held.update(span.values)
        if span.stuck:
            yield span, {"": f"{span.state.replace('_', ' ')} in `{span.label}`"}
        elif span.raised:
            yield span, {"": f"raised {span.raised}"}
        else:
            yield span, dict(span.values) or dict(held)


def _told(held: Mapping[str, str] | None, should: Mapping[str, str] | None) -> str:
    if held is None:
        return "did not come to it"
    should = should or {}
    parts = []
    for name, text in held.items():
        value = f"{name} = {text}" if name else text
        wanted = should.get(name)
        wrong = name and wanted is not None and wanted != text
        parts.append(f"{value} (should be {wanted})" if wrong else value)
    return ", ".join(parts) or "nothing"
