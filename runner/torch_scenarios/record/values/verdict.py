"""What the witness found, as part of the verdict on a record.

A finding that is an error makes the verdict on the communication FAILED; warnings leave it as it
is. What could not be judged is said, too: what the witness failed at, and invariants of which the
record has no event. Each finding becomes a problem at the innermost line of the user's own files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from torch_scenarios.errors import Mark, Problem, Source
from torch_scenarios.record.values.format.event import WitnessFailure
from torch_scenarios.record.values.format.record import ValueRecord, has_values, read_values
from torch_scenarios.record.values.invariants import Judgement, judge_values
from torch_scenarios.record.values.invariants.finding import ValueFinding
from torch_scenarios.record.values.roles import find_roles
from torch_scenarios.verdict import Finding, Verdict

#: bytes of a script that is shown
MOST_TEXT = 1 << 21

#: failures of the witness that a report lists
MOST_FAILURES = 3

#: what a verdict on a record says of values that were not looked at
NOT_COMPARED = "nothing is wrong in how the ranks communicate; values were not compared"


class ValueVerdict(Struct, frozen=True, kw_only=True):
    """What a record of values says: the verdict with it, and its problems in words."""

    verdict: Verdict
    errors: tuple[Problem, ...]
    warnings: tuple[Problem, ...]
    judged: int
    open: tuple[str, ...]
    #: what the witness could not see, because of a failure of its own
    failures: tuple[str, ...] = ()
    #: what further runs compared, in words
    further: str = ""
    #: what may be a mistake, and need not be one
    hints: tuple[str, ...] = ()

    @property
    def scope(self) -> str:
        """What was judged, in a line."""
        if self.errors:
            return ""
        details = f"communication: nothing wrong; values: {self.judged} invariants judged, "
        details += "nothing wrong" if not self.warnings else "only warnings"
        details += f"; {self.further}" if self.further else ""
        return details + ("; not all could be seen" if self.failures else "")

    @property
    def remarks(self) -> tuple[str, ...]:
        """What may be a mistake, and which invariants could not be judged: a line each."""
        codes = ", ".join(dict.fromkeys(self.open))
        left = f"not judged, as nothing of the kind was seen: {codes}"
        return (*self.hints, left) if codes else self.hints


def judge_folder(
    folder: Path,
    verdict: Verdict,
    home: str,
    *,
    more: Sequence[ValueFinding] = (),
    scope: str = "",
    reason: str = "",
) -> ValueVerdict | None:
    """Return a verdict with what the values of a record say; None where it has none.

    `more` are findings of further runs, `scope` says what these compared, and `reason` why that is
    not known: then a verdict without an error is INCONCLUSIVE.
    """
    if not has_values(folder):
        return None
    records = read_values(folder)
    judgement = judge_values(records, find_roles(records))
    judgement = replace(judgement, findings=(*judgement.findings, *more))
    places = {rank: record.places for rank, record in records.items()}
    details = [
        (each, problem_of(each, places[each.rank].get(each.place, ()), home))
        for each in judgement.findings
    ]
    failures = tuple(dict.fromkeys(_failures(records)))
    found = replace(_join(verdict, judgement, details, failures), further=scope)
    if scope:
        found = replace(found, hints=())  # a further run has compared what they ask about
    if reason and found.verdict.status == "PASSED":
        unknown = replace(found.verdict, status="INCONCLUSIVE", reason=reason)
        return replace(found, verdict=unknown)
    return found


def _failures(records: Mapping[int, ValueRecord]) -> Iterator[str]:
    """Yield what the witness failed at, in words: its own failures never raise in a script."""
    for rank, record in records.items():
        for each in record.of(WitnessFailure):
            yield f"the witness failed on rank {rank} in {each.where}: {each.error}"


def _join(
    verdict: Verdict,
    judgement: Judgement,
    details: Sequence[tuple[ValueFinding, Problem]],
    failures: tuple[str, ...],
) -> ValueVerdict:
    errors = tuple(problem for each, problem in details if each.error)
    warnings = tuple(problem for each, problem in details if not each.error)
    findings = tuple(_findings(details))
    status = "FAILED" if findings else verdict.status
    return ValueVerdict(
        verdict=replace(
            verdict,
            status=status,
            findings=(*verdict.findings, *findings),
            warnings=(*verdict.warnings, *warnings),
        ),
        errors=errors,
        warnings=warnings,
        judged=len(judgement.judged),
        open=tuple(each for each in judgement.open if each not in judgement.judged),
        failures=failures,
        hints=judgement.hints,
    )


def _findings(details: Sequence[tuple[ValueFinding, Problem]]) -> Iterator[Finding]:
    for each, problem in details:
        if each.error:
            yield Finding(
                witness="program",
                code=each.code,
                diagnosis=each.code,
                prose=each.message,
                mark=problem.mark,
                ranks=each.ranks,
                iteration=(each.turn,),
                name=each.name or None,
                fix=each.hint,
            )


def problems_of(findings: Sequence[ValueFinding], folder: Path) -> list[Problem]:
    """Return findings on a record as problems, at lines of its script."""
    places = {rank: record.places for rank, record in read_values(folder).items()}
    return [
        problem_of(each, places[each.rank].get(each.place, ()), str(Path.cwd()))
        for each in findings
    ]


def problem_of(finding: ValueFinding, frames: Sequence[tuple[str, int, str]], home: str) -> Problem:
    """Return a finding as a problem: at the line of the script that is to blame."""
    return Problem(
        code=finding.code,
        message=finding.message,
        mark=mark_of(finding.frames or frames, home),
        hint=finding.hint,
    )


def mark_of(frames: Sequence[tuple[str, int, str]], home: str) -> Mark | None:
    """Return the place of the innermost frame of the user's own, with the line as it was."""
    if not frames:
        return None
    file, line, text = frames[0]
    path = Path(file)
    shown = str(path.relative_to(home)) if home and path.is_relative_to(home) else path.name
    content = _text(path, line, text)
    whole = content.splitlines()[line - 1] if line <= len(content.splitlines()) else text
    code = whole.split("  #")[0].rstrip()
    start = len(whole) - len(whole.lstrip())
    return Mark(
        source=Source(path=shown, text=content),
        line=line,
        column=start + 1,
        end_line=line,
        end_column=max(len(code), start + 1) + 1,
        at=f"{shown}:{line}",
    )


def _text(path: Path, line: int, text: str) -> str:
    """Return a script's text; where it is not there, or another by now, the line that was kept."""
    try:
        if path.stat().st_size <= MOST_TEXT:
            content = path.read_text(encoding="utf-8", errors="replace")
            lines = content.splitlines()
            if line <= len(lines) and lines[line - 1].strip().startswith(text[:100]):
                return content
    except OSError:
        pass
    return "\n" * (line - 1) + text


def lines_of_values(values: ValueVerdict) -> list[str]:
    """Return the findings as a person reads them: errors before warnings."""
    found: list[str] = []
    for kind, problems in (("error", values.errors), ("warning", values.warnings)):
        for problem in problems:
            lines = problem.lines(kind)
            found += ["  " + line.replace("= help: ", "fix: ", 1) for line in lines]
    shown = [f"  note: {each}" for each in values.failures[:MOST_FAILURES]]
    if len(values.failures) > MOST_FAILURES:
        shown.append(
            f"  note: and {len(values.failures) - MOST_FAILURES} more failures of the witness"
        )
    if values.verdict.status != "FAILED":
        shown += [f"  values: {each}" for each in values.remarks]
    return [*found, *shown]
