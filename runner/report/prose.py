"""What a result says to a person, line by line: plain text with the style that a terminal gives it.

Every reporter of text takes its lines from here, so that a terminal, a log in CI and an error in
pytest say the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from runner.display import MOST_LINE, brief, clean_line, short
from runner.problems import Problem
from runner.verdict.wording import ranks_text

if TYPE_CHECKING:
    from runner.problems import Mark
    from runner.results import Result
    from runner.trace import Trace
    from runner.verdict.finding import Finding, Verdict

Style: TypeAlias = Literal[
    "plain",
    "strong",
    "dim",
    "caret",
    "PASSED",
    "FAILED",
    "FLAKY",
    "INCONCLUSIVE",
    "UNSUPPORTED",
    "INVALID",
]

#: how a difference's two numbers are told apart, by who stands alone
SIDES = {
    "expectation": "yours≠what the semantics give",
    "backend": "expected≠what the run gave",
    "reference": "yours and the run's≠the reference's",
}

#: findings shown whole for one case, and problems of one file; the rest is counted
MOST_FINDINGS, MOST_PROBLEMS = 10, 100
#: blocked ranks that `-v` tells in one line, and steps that it tells of more
MOST_BLOCKED = 8


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a report."""

    text: str
    style: Style = "plain"

    @property
    def printable(self) -> str:
        """The text as one line that is safe to show, and not longer than a person reads."""
        return clean_line(short(self.text, MOST_LINE))


def headline(result: Result) -> Line:
    """Return the line that names a case and its verdict."""
    status = result.verdict.status
    took = f"  {milliseconds(result.duration_s)}" if result.duration_s else ""
    times = f"  {len(result.attempts)} runs" if result.attempts else ""
    return Line(f"{status:<12} {result.name}{took}{times}", status)


def milliseconds(duration_s: float) -> str:
    """Return a duration as a person reads it."""
    return f"{duration_s * 1000:.0f} ms" if duration_s < 1 else f"{duration_s:.2f} s"


def details(result: Result) -> list[Line]:
    """Return everything below the headline: problems, findings, the reason; nothing for a pass."""
    if result.text is not None:  # read back from a file
        return [Line(text) for text in result.text]
    verdict = result.verdict
    lines: list[Line] = []
    if verdict.reason and verdict.status == "FLAKY":
        lines.append(Line(f"  {_brief(verdict.reason)}"))
    for problem in verdict.problems[:MOST_PROBLEMS]:
        lines += problem_lines(problem)
    if len(verdict.problems) > MOST_PROBLEMS:
        lines.append(
            Line(f"  ... and {len(verdict.problems) - MOST_PROBLEMS} more problems", "dim")
        )
    for finding in verdict.findings[:MOST_FINDINGS]:
        lines += finding_lines(finding)
    left_out = len(verdict.findings) - MOST_FINDINGS
    if left_out > 0:
        lines.append(Line(f"  ... and {left_out} more findings", "dim"))
    if verdict.reason and verdict.status != "FLAKY":
        lines.append(Line(f"  {_brief(verdict.reason)}"))
    if verdict.status == "FAILED" and verdict.observed is None:
        lines.append(Line("  found by the analysis; no process was started", "dim"))
    return lines


def problem_lines(problem: Problem) -> list[Line]:
    """Return a problem: place, message, code, the line with a caret, the hint."""
    place = f"{problem.mark}: " if problem.mark else ""
    lines = [Line(f"{place}{problem.message} [{problem.code}]", "strong")]
    lines += _excerpt(problem.mark, "    ")
    if problem.hint:
        lines.append(Line(f"  hint: {problem.hint}"))
    return lines


def warning_lines(warning: Problem) -> list[Line]:
    """Return a warning as a problem is told, below the case that has it."""
    first, *rest = problem_lines(warning)
    return [
        Line(f"  warning: {first.text}", "INCONCLUSIVE"),
        *(replace(e, text=f"  {e.text}") for e in rest),
    ]


def counted(number: int) -> str:
    """Return how many warnings there are, in words."""
    return f"{number} warning{'' if number == 1 else 's'}"


def finding_lines(finding: Finding) -> list[Line]:
    """Return a finding: who stands alone, what, where in the file, the numbers, the guess."""
    lines = [Line(f"  {finding.headline}: {_brief(finding.prose)} [{finding.code}]", "strong")]
    if finding.mark is not None:
        lines.append(Line(f"    {finding.mark}", "dim"))
        lines += _excerpt(finding.mark, "        ")
    last = len(finding.because) - 1
    lines += [
        Line(f"    {_brief(clause)}{';' if at < last else ''}")
        for at, clause in enumerate(finding.because)
    ]
    if finding.label is not None:
        lines.append(Line(f"    at step `{finding.label}`{_iterations(finding)}"))
    lines += _numbers(finding)
    if finding.guess:
        lines.append(Line(f"    perhaps: {finding.guess}"))
    return lines


def _brief(words: str) -> str:
    """Return words that quote no more of a value than a person reads."""
    return brief(words, MOST_LINE)


def _iterations(finding: Finding) -> str:
    at = f", iteration {', '.join(map(str, finding.iteration))}" if finding.iteration else ""
    return f"{at} (and {finding.more} more)" if finding.more else at


def _numbers(finding: Finding) -> list[Line]:
    from runner.report.grid import grid_lines  # noqa: PLC0415 -- NumPy only where numbers differ

    grid = grid_lines(finding.differences)
    if not grid:
        return []
    sides = SIDES[finding.witness]
    if finding.witness == "expectation" and finding.against == "run":
        sides = "yours≠what the run gave"
    lines = [Line(f"    by rank and index, {sides}:", "dim")]
    lines += [Line(f"      {line}") for line in grid]
    absolute = [d.max_abs for d in finding.differences if d.max_abs is not None]
    relative = [d.max_rel for d in finding.differences if d.max_rel is not None]
    if absolute:
        text = f"    largest error: {max(absolute):.6g} absolute"
        lines.append(Line(f"{text}, {max(relative):.6g} relative" if relative else text))
    return lines


def _excerpt(mark: Mark | None, indent: str) -> list[Line]:
    shown = Problem(code="", message="", mark=mark).excerpt()
    if shown is None or not shown[0].strip():
        return []
    return [Line(f"{indent}{shown[0]}"), Line(f"{indent}{shown[1]}", "caret")]


# ---------------------------------------------------------------------------- what a trace says


def blocked_of(trace: Trace) -> dict[int, str]:
    """Return which ranks a trace leaves blocked (for sure, or as observed), each in which step."""
    return {
        rank.rank: rank.events[-1].label
        for rank in trace.ranks
        if rank.ending == "blocked" and rank.events
    }


def _many_blocked(blocked: dict[int, str]) -> list[Line]:
    """Return who is blocked where, a line for each of the first steps."""
    by_step: dict[str, list[int]] = {}
    for rank, step in blocked.items():
        by_step.setdefault(step, []).append(rank)
    lines = [
        Line(f"      blocked: {ranks_text(ranks)} in `{step}`", "dim")
        for step, ranks in list(by_step.items())[:MOST_BLOCKED]
    ]
    left = len(by_step) - MOST_BLOCKED
    if left > 0:
        lines.append(Line(f"      ... and in {left} more steps", "dim"))
    return lines


def more(verdict: Verdict) -> list[Line]:
    """Return what `-v` adds: prediction and observation, the diagnoses' prose, the notes."""
    lines: list[Line] = []
    for title, trace in (("predicted", verdict.predicted), ("observed", verdict.observed)):
        if trace is not None:
            text = f"    {title}: {trace.outcome}"
            blocked = blocked_of(trace)
            if 0 < len(blocked) <= MOST_BLOCKED:
                text += "; blocked: " + ", ".join(f"{r} in `{s}`" for r, s in blocked.items())
            lines.append(Line(text, "dim"))
            if len(blocked) > MOST_BLOCKED:
                lines += _many_blocked(blocked)
    if verdict.predicted is not None:
        lines += [
            Line(f"    {diagnosis.name}: {_brief(diagnosis.prose)}", "dim")
            for diagnosis in verdict.predicted.diagnoses
        ]
    for note in verdict.notes:
        first, *rest = note.splitlines() or [""]
        lines.append(Line(f"    note: {first}", "dim"))
        lines += [Line(f"      {line}", "dim") for line in rest]
    return lines
