"""A proposal, run: every case, several times, and every time it must pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from runner.bless.refusal import refuse
from runner.pipeline import execute

if TYPE_CHECKING:
    from runner.bless.proposing import Proposal
    from runner.results import Analysis, Executor
    from runner.verdict import Verdict


def confirm(proposal: Proposal, executor: Executor, *, runs: int = 2) -> None:
    """Run each case of a proposal `runs` times. Raises RefusedError unless it always passes."""
    for analysis in proposal.analyses:
        verdicts = [execute(analysis, executor).verdict for _ in range(runs)]
        failed = [verdict for verdict in verdicts if verdict.status != "PASSED"]
        if failed:
            _refuse(analysis, verdicts, failed[0])


def _refuse(analysis: Analysis, verdicts: list[Verdict], failed: Verdict) -> NoReturn:
    case = analysis.scenario.case
    told = _told(failed)
    line = next((each.mark.line for each in failed.findings if each.mark is not None), None)
    if failed.status == "UNSUPPORTED":
        refuse("cannot_run", f"{case} cannot run here: {told}")
    if failed.status == "INCONCLUSIVE":
        refuse("left_open", f"{case}: {told}")
    if any(verdict.status == "PASSED" for verdict in verdicts):
        message = f"{case} passes in one run and fails in another: {told}"
        refuse("runs_differ", message, line)
    refuse("reference_disagrees", f"{case}: {told}", line)


def _told(verdict: Verdict) -> str:
    if verdict.findings:
        return verdict.findings[0].prose
    return verdict.reason or verdict.status
