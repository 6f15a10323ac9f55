"""Scenarios judged without a backend: the run is the prediction, with chosen changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

import torch_scenarios
from torch_scenarios.errors import ScenarioError
from torch_scenarios.language.document import cases_as_written
from torch_scenarios.model.groups import plan
from torch_scenarios.model.trace import Event, Failure
from torch_scenarios.pipeline.attempts import analyse
from torch_scenarios.verdict import Verdict, judge

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch_scenarios.model.scenario import Scenario
    from torch_scenarios.model.trace import RankTrace, Trace


def loaded(text: str, folder: Path) -> tuple[Scenario, Trace]:
    """Return the one case of a file, and what the reference predicts for it."""
    path = folder / "judged.yaml"
    path.write_text(text, encoding="utf-8")
    (scenario,) = torch_scenarios.load(path)
    return scenario, torch_scenarios.simulate(torch_scenarios.plan(scenario))


def checked(text: str, folder: Path) -> Verdict:
    """Return the static verdict."""
    scenario, predicted = loaded(text, folder)
    return judge(plan(scenario), predicted, cases_of=cases_as_written)


def ran(text: str, folder: Path, *changes: Callable[[Trace], Trace], **options: Any) -> Verdict:
    """Return the verdict on a run on Gloo that did as predicted, but for the changes."""
    scenario, predicted = loaded(text, folder)
    observed = replace(predicted, backend="gloo", diagnoses=(), waits=(), open=())
    for change in changes:
        observed = change(observed)
    return judge(plan(scenario), predicted, observed, "gloo", cases_of=cases_as_written, **options)


def on_rank(rank: int, change: Callable[[RankTrace], RankTrace]) -> Callable[[Trace], Trace]:
    """Change what one rank did."""

    def changed(trace: Trace) -> Trace:
        return replace(
            trace,
            ranks=tuple(change(each) if each.rank == rank else each for each in trace.ranks),
        )

    return changed


def at_step(index: int, rank: int, change: Callable[[Event], Event]) -> Callable[[Trace], Trace]:
    """Change one step of one rank."""
    return on_rank(
        rank,
        lambda found: replace(
            found,
            events=tuple(change(e) if e.index == index else e for e in found.events),
        ),
    )


def writing(index: int, rank: int, name: str, value: Any) -> Callable[[Trace], Trace]:
    """Let one rank hold something else after a step."""

    def changed(event: Event) -> Event:
        made = np.asarray(value, dtype=event.writes[name].dtype)
        return replace(event, writes={**event.writes, name: made})

    return at_step(index, rank, changed)


def raising(index: int, rank: int, kind: str, words: str = "") -> Callable[[Trace], Trace]:
    """Let one rank raise at a step and end there, and the outcome be an error."""

    def changed(trace: Trace) -> Trace:
        failure = Failure(kinds=(kind,), message=words)
        after = at_step(
            index, rank, lambda event: replace(event, state="raised", failure=failure, writes={})
        )(trace)
        after = on_rank(rank, lambda found: ended(found, index, "raised"))(after)
        return replace(after, outcome="error")

    return changed


def hanging(index: int, rank: int) -> Callable[[Trace], Trace]:
    """Let one rank stay in a step for good."""

    def changed(trace: Trace) -> Trace:
        after = at_step(
            index, rank, lambda event: replace(event, state="blocked", end_s=None, writes={})
        )(trace)
        after = on_rank(rank, lambda found: ended(found, index, "blocked"))(after)
        return replace(after, outcome="deadlock")

    return changed


def ended(found: RankTrace, index: int, ending: str) -> RankTrace:
    """Cut a rank's program after a step."""
    events = tuple(event for event in found.events if event.index <= index)
    return replace(found, events=events, ending=ending)


def codes(verdict: Verdict) -> list[str]:
    """Return the codes of all findings."""
    return [finding.code for finding in verdict.findings]


def codes_of(text: str, folder: Path) -> list[str]:
    """Return the codes of all problems of the one case of a file, and of its findings."""
    path = folder / "judged.yaml"
    path.write_text(text, encoding="utf-8")
    try:
        (case,) = torch_scenarios.load(path)
    except ScenarioError as error:
        return [problem.code for problem in error.problems]
    verdict = analyse(case).verdict
    return [problem.code for problem in verdict.problems] + codes(verdict)
