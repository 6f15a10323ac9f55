"""Result -> what the page knows of it: a head for the list, and a body, read once it is opened."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from runner.display import clean
from runner.report.pictures import timeline
from runner.report.prose import MOST_FINDINGS, details, warning_lines
from runner.timeline import packed

if TYPE_CHECKING:
    from runner.problems import Mark, Problem
    from runner.report.prose import Line
    from runner.results import Result
    from runner.verdict.finding import Finding, Verdict

#: steps of all ranks, predicted and observed, of which a page can hold a picture
MOST_STEPS = 200_000


def head(result: Result) -> dict[str, Any]:
    """Return what the list of cases shows: verdict, names, time, and the cause in a few words."""
    return {
        "verdict": result.verdict.status,
        "file": result.file,
        "case": result.case,
        "took": round(result.duration_s * 1e6),
        "runs": len(result.attempts),
        "cause": _cause(result.verdict),
        "tags": list(result.tags),
    }


def body(result: Result) -> dict[str, Any]:
    """Return everything else: what the terminal says, the file, the run as a picture."""
    verdict = result.verdict
    return {
        "description": result.description,
        "lines": [[line.printable, line.style] for line in _lines(result)],
        "places": _places(result),
        "text": _text(result),
        "diagnoses": _diagnoses(verdict),
        "notes": list(verdict.notes),
        "silent": verdict.silently_wrong,
        **_timelines(result),
    }


def _lines(result: Result) -> list[Line]:
    warned = [line for each in result.verdict.warnings for line in warning_lines(each)]
    return [*warned, *details(result)]


def text(part: dict[str, Any]) -> str:
    """Return plain data as one line of JSON."""
    return clean(json.dumps(part, ensure_ascii=False, separators=(",", ":")))


def _cause(verdict: Verdict) -> str:
    if verdict.problems:
        more = len(verdict.problems) - 1
        return verdict.problems[0].message + (f" (and {more} more)" if more else "")
    if verdict.reason:
        return verdict.reason
    if verdict.findings:
        return verdict.findings[0].prose
    return f"warning: {verdict.warnings[0].message}" if verdict.warnings else ""


def _places(result: Result) -> list[dict[str, Any]]:
    """Return where in the file, and in the run, something is wrong; the whole file is no place."""
    verdict = result.verdict
    problems = [_problem(problem) for problem in verdict.problems]
    whole = result.scenario.mark if result.scenario is not None else None
    found = verdict.findings[:MOST_FINDINGS]
    return problems + [_finding(each, None if each.mark == whole else each.mark) for each in found]


def _problem(problem: Problem) -> dict[str, Any]:
    return {"says": problem.message, **_mark(problem.mark)}


def _finding(finding: Finding, mark: Mark | None) -> dict[str, Any]:
    return {
        "says": finding.prose,
        **_mark(mark),
        "index": finding.index,
        "iteration": list(finding.iteration),
        "ranks": list(finding.ranks),
        "name": finding.name,
    }


def _mark(mark: Mark | None) -> dict[str, Any]:
    """Return the columns that are wrong, from 0; the end is exclusive, None at the line's end."""
    if mark is None:
        return {}
    same = mark.end_line in {None, mark.line}
    end = mark.end_column - 1 if same and mark.end_column is not None else None
    return {"file": mark.source.path, "line": mark.line, "from": mark.column - 1, "to": end}


def _text(result: Result) -> str:
    """Return the text of the file; of an INVALID one what was read before it was refused."""
    if result.scenario is not None:
        return result.scenario.source.text
    marks = [problem.mark for problem in result.verdict.problems if problem.mark is not None]
    return next((mark.source.text for mark in marks if mark.source.path == result.file), "")


def _diagnoses(verdict: Verdict) -> list[dict[str, Any]]:
    if verdict.predicted is None:
        return []
    return [
        {"name": each.name, "prose": each.prose, "ranks": list(each.ranks)}
        for each in verdict.predicted.diagnoses
    ]


def _timelines(result: Result) -> dict[str, Any]:
    """Return the run as a picture, twice; of what was observed only where it differs.

    A run of more steps than a browser could hold is told without one.
    """
    scenario, predicted = result.scenario, result.verdict.predicted
    if scenario is None or predicted is None:
        return {}
    observed = result.verdict.observed
    steps = sum(
        len(rank.events) for trace in (predicted, observed) if trace for rank in trace.ranks
    )
    if steps > MOST_STEPS:
        return {"undrawn": steps}
    first = packed(timeline(scenario, predicted, predicted))
    if observed is None:
        return {"predicted": first}
    second = packed(timeline(scenario, observed, predicted))
    changed = {key: value for key, value in second.items() if value != first[key]}
    return {"predicted": first, "observed": changed}
