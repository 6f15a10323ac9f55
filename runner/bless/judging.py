"""Whether a program may be blessed at all, and whether a new text holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.bless.refusal import CODES, Refusal, RefusedError, refuse
from runner.bless.written import Analysed
from runner.language.loading import load_content
from runner.pipeline import analyse
from runner.plan import plan
from runner.reference import simulate
from runner.verdict import judge

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from runner.language.limits import Limits
    from runner.results import Analysis
    from runner.verdict import Finding

#: findings about values: where those are stated anew it is seen what is undefined, and what no rank
#: reaches (until then what is open has a key that selects no rank)
VALUES = frozenset(
    {
        "value_differs",
        "shape_differs",
        "dtype_differs",
        "value_missing",
        "undefined_read",
        "expectation_unreached",
    }
)
#: how a program ends otherwise than stated -> why that is never blessed
_ENDINGS = {
    "deadlock": "program_hangs",
    "crash": "program_crashes",
    "error": "program_raises",
}


def analysed(path: Path, text: str, limits: Limits) -> list[Analysed]:
    """Return the cases of a text, simulated. Raises ScenarioError."""
    found = []
    for scenario in load_content(path, text.encode(), limits=limits):
        resolved = plan(scenario, limits=limits)
        predicted = simulate(resolved, limits=limits)
        found.append(Analysed(scenario=scenario, plan=resolved, predicted=predicted))
    return found


def police(cases: Sequence[Analysed], limits: Limits) -> None:
    """Raise RefusedError where something else than a value is wrong with a program."""
    for case in cases:
        verdict = judge(case.scenario, case.predicted, limits=limits)
        for finding in verdict.findings:
            if finding.code not in VALUES:
                raise RefusedError(_refusal(case, finding))
        if case.predicted.limits:
            refuse("left_open", "; ".join(case.predicted.limits))


def _refusal(case: Analysed, finding: Finding) -> Refusal:
    line = finding.mark.line if finding.mark is not None else None
    code = "wrong_program"
    if finding.code in {"diagnosis_undeclared", "outcome_differs"}:
        code = _ENDINGS.get(case.predicted.outcome, code)
        if code in {_ENDINGS.get(end) for end in case.scenario.expect.ends}:
            code = "wrong_program"  # it ends as stated, for a reason that is not
    return Refusal(code=code, message=f"{CODES[code]}: {_told(finding)}", line=line)


def _told(finding: Finding) -> str:
    return "; ".join((finding.prose, *finding.because))


def proved(path: Path, text: str, limits: Limits) -> tuple[Analysis, ...]:
    """Return the analyses of a new text, all of which pass. Raises RefusedError where one fails."""
    found = tuple(
        analyse(scenario, limits) for scenario in load_content(path, text.encode(), limits=limits)
    )
    for analysis in found:
        verdict = analysis.verdict
        if verdict.status == "INCONCLUSIVE":
            refuse("left_open", verdict.reason or "the analysis left it open")
        if verdict.status != "PASSED":
            told = [_told(finding) for finding in verdict.findings]
            told += [problem.message for problem in verdict.problems]
            refuse("not_proved", f"what would be written does not hold: {told[0]}")
    return found
