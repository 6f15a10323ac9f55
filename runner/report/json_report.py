"""Results as JSON, for other programs; schemas/result.schema.json describes them.

One document at the end (`--json`), or a line for each result as it comes (`--jsonl`). What
:mod:`runner.report.reading` reads back is what is written here.
"""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from runner.display import clean_json
from runner.report.at_end import AtEnd
from runner.report.prose import blocked_of, details

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TextIO

    from runner.problems import Mark, Problem
    from runner.results import Outcome, Result
    from runner.scenario import Scenario
    from runner.trace import Trace
    from runner.verdict.finding import Finding

VERSION = 1
DOCUMENT = "scenario-results"
LINES = "scenario-results-lines"
TOOL = "scenario-runner"
#: ranks that are listed one by one; of more, those in a row are told by the first and the last
LISTED = 64
#: what a trace tells of its own case; all else in its environment is the same for a whole run
_OF_ONE_CASE = frozenset({"world_s", "gpus"})


#: made once: `json.dumps` makes an encoder for each call that is not as by default
_encoded = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


class JsonReport(AtEnd):
    """The whole of a run as one document."""

    def __init__(self, file: TextIO) -> None:
        """Write to `file`."""
        self._file = file

    def end(self, outcome: Outcome) -> None:
        """Write the document."""
        self._file.write(text(outcome))


class JsonLinesReport:
    """A line for each result as it comes, between one that begins and one that ends."""

    def __init__(self, file: TextIO) -> None:
        """Write to `file`; each line is there for a reader at once."""
        self._file = file

    def begin(self, total: int) -> None:
        """Write the first line."""
        self._write({"kind": "begin", **_origin(LINES), "total": total})

    def running(self, scenario: Scenario) -> None:
        """Write nothing."""

    def finish(self, result: Result) -> None:
        """Write the result."""
        self._write({"kind": "result", "result": entry(result)})

    def end(self, outcome: Outcome) -> None:
        """Write the last line."""
        self._write({"kind": "end", "summary": _summary(outcome)})

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(clean_json(_encoded(line)) + "\n")
        self._file.flush()


def document(outcome: Outcome) -> dict[str, Any]:
    """Return the whole of the results as plain data."""
    return {
        **_origin(DOCUMENT, outcome.release),
        **_summary(outcome),
        "results": [entry(result) for result in outcome.results],
    }


def text(outcome: Outcome) -> str:
    """Return the document as JSON text that ends in a line break."""
    written = json.dumps(document(outcome), indent=2, ensure_ascii=False, allow_nan=False)
    return clean_json(written) + "\n"


def environment(outcome: Outcome) -> dict[str, str]:
    """Return what the run knows of torch and the backend; empty where nothing ran."""
    for result in outcome.results:
        observed = result.verdict.observed
        if observed is not None:
            facts = {k: v for k, v in observed.environment.items() if k not in _OF_ONE_CASE}
            return {**facts, "backend": observed.backend}
    return {}


def place_of(result: Result) -> Mark | None:
    """Return the place in a file where a result is best shown: that of its first fault."""
    verdict = result.verdict
    marks = [*(each.mark for each in verdict.problems), *(each.mark for each in verdict.findings)]
    return next((mark for mark in marks if mark is not None), None)


def _origin(kind: str, release: str = "") -> dict[str, Any]:
    tool = {"name": TOOL, "version": release or _release()}
    return {"format": kind, "version": VERSION, "tool": tool}


def _release() -> str:
    try:
        return version(TOOL)
    except PackageNotFoundError:  # run from a folder, not installed
        return "unknown"


def _summary(outcome: Outcome) -> dict[str, Any]:
    return {
        "environment": environment(outcome),
        "exit_code": outcome.exit_code,
        "interrupted": outcome.interrupted,
        "duration_s": round(outcome.duration_s, 6),
        "counts": outcome.counts,
        "warning_count": len(outcome.all_warnings),
        "selection": {
            "cases": outcome.cases,
            "selected": outcome.selected,
            "shard": None if outcome.shard is None else str(outcome.shard),
            "seed": outcome.seed,
            "repeat": outcome.repeat,
            "strict": outcome.strict,
        },
        "notes": list(outcome.notes),
        "warnings": [_problem(each) for each in outcome.warnings],
    }


def entry(result: Result) -> dict[str, Any]:
    """Return one result as plain data."""
    verdict = result.verdict
    return {
        "file": result.file,
        "case": result.case,
        "description": result.description,
        "tags": list(result.tags),
        "world_size": result.world_size,
        "verdict": verdict.status,
        "attempts": list(result.attempts),
        "duration_s": round(result.duration_s, 6),
        "predicted": None if verdict.predicted is None else _predicted(verdict.predicted),
        "observed": None if verdict.observed is None else _observed(verdict.observed),
        "problems": [
            *(_problem(problem) for problem in verdict.problems),
            *(_finding(finding) for finding in verdict.findings),
        ],
        "warnings": [_problem(each) for each in verdict.warnings],
        "reason": verdict.reason,
        "notes": list(verdict.notes),
        "silently_wrong": verdict.silently_wrong,
        "compared": verdict.compared,
        "text": [line.printable for line in details(result)],
    }


def _predicted(trace: Trace) -> dict[str, Any]:
    return {
        "outcome": trace.outcome,
        "sure": not trace.open,
        "open": list(trace.open),
        "diagnoses": [diagnosis.name for diagnosis in trace.diagnoses],
        "explanations": [
            {
                "diagnosis": diagnosis.name,
                "prose": diagnosis.prose,
                "ranks": ranges(diagnosis.ranks),
                "odd": ranges(diagnosis.odd),
            }
            for diagnosis in trace.diagnoses
        ],
        "blocked": _blocked(trace),
        "limits": list(trace.limits),
    }


def _observed(trace: Trace) -> dict[str, Any]:
    return {
        "outcome": trace.outcome,
        "blocked": _blocked(trace),
        "backend": trace.backend,
        "duration_s": round(trace.duration_s, 6),
        "died": {str(rank.rank): rank.died for rank in trace.ranks if rank.died is not None},
        "raised": {
            str(rank.rank): list(event.failure.kinds)
            for rank in trace.ranks
            for event in rank.events[-1:]
            if rank.ending == "raised" and event.failure is not None
        },
        "notes": list(trace.notes),
    }


def _blocked(trace: Trace) -> dict[str, str]:
    blocked = blocked_of(trace)
    if len(blocked) <= LISTED:
        return {str(rank): label for rank, label in blocked.items()}
    by_label: dict[str, list[int]] = {}
    for rank, label in blocked.items():
        by_label.setdefault(label, []).append(rank)
    return {
        str(part) if isinstance(part, int) else f"{part[0]}-{part[1]}": label
        for label, ranks in by_label.items()
        for part in ranges(ranks, listed=0)
    }


def ranges(ranks: Sequence[int], *, listed: int = LISTED) -> list[int | list[int]]:
    """Return ranks as plain data: one by one, or of many those in a row as `[first, last]`."""
    if len(ranks) <= listed:
        return list(ranks)
    found: list[int | list[int]] = []
    row: list[int] = []
    for rank in (*sorted(set(ranks)), None):
        if row and rank != row[-1] + 1:
            found.append([row[0], row[-1]] if len(row) > 1 else row[0])
            row = []
        if rank is not None:
            row = [row[0], rank] if row else [rank]
    return found


def _problem(problem: Problem) -> dict[str, Any]:
    return {
        "code": problem.code,
        **_place(problem.mark),
        "message": problem.message,
        "hint": problem.hint,
    }


def _finding(finding: Finding) -> dict[str, Any]:
    absolute = [d.max_abs for d in finding.differences if d.max_abs is not None]
    relative = [d.max_rel for d in finding.differences if d.max_rel is not None]
    return {
        "code": finding.code,
        **_place(finding.mark),
        "message": ": ".join(filter(None, (finding.prose, "; ".join(finding.because)))),
        "hint": finding.guess,
        "alone": finding.witness,
        "ranks": ranges(finding.ranks),
        "step": finding.label,
        "iteration": list(finding.iteration),
        "name": finding.name,
        "max_abs": max(absolute) if absolute else None,
        "max_rel": max(relative) if relative else None,
    }


def _place(mark: Mark | None) -> dict[str, Any]:
    if mark is None:
        return {"file": None, "line": None, "column": None}
    return {"file": mark.source.path, "line": mark.line, "column": mark.column}
