"""What must stay while a scenario shrinks: its verdict, what it is called, how it ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from runner.language.loading import load_content
from runner.pipeline import analyse, execute
from runner.problems import ScenarioError
from runner.scenario import steps_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from runner.language.limits import Limits
    from runner.results import Analysis, Executor
    from runner.scenario import Scenario
    from runner.verdict import Finding, Verdict

#: findings about a value: there the operation that gave it stays, too
_VALUES = frozenset(
    {"value_differs", "shape_differs", "dtype_differs", "value_missing", "undefined_read"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """The fault of a scenario, whatever its size.

    `findings` are (code, witness, operation); the operation is named where a value is concerned.
    `open` are the outcomes that the semantics leave to a backend, `observed` is that of a run, None
    where nothing ran.
    """

    status: str
    outcome: str
    diagnoses: frozenset[str]
    findings: frozenset[tuple[str, str, str]]
    open: frozenset[str] = frozenset()
    observed: str | None = None

    @property
    def shows_a_fault(self) -> bool:
        """Whether there is anything to keep: a diagnosis, a finding, an ending before the end."""
        ends = {self.outcome, self.observed or "completes"}
        return bool(self.diagnoses or self.findings) or ends != {"completes"}

    def __str__(self) -> str:
        """Name the fault."""
        codes = sorted({code for code, _, _ in self.findings} - {"diagnosis_undeclared"})
        names = [*sorted(self.diagnoses), *codes]
        return f"{self.status}, {self.outcome}" + (f": {', '.join(names)}" if names else "")


#: a text -> its signature; None where it is no valid scenario of one case
Oracle: TypeAlias = "Callable[[str], Signature | None]"


def signature_of(scenario: Scenario, verdict: Verdict) -> Signature | None:
    """Return the signature of a verdict; None where it is INVALID."""
    if verdict.status == "INVALID" or verdict.predicted is None:
        return None
    return Signature(
        status=verdict.status,
        outcome=verdict.predicted.outcome,
        open=frozenset(verdict.predicted.open),
        diagnoses=frozenset(each.name for each in verdict.predicted.diagnoses),
        findings=frozenset(_findings(scenario, verdict)),
        observed=verdict.observed.outcome if verdict.observed is not None else None,
    )


def _findings(scenario: Scenario, verdict: Verdict) -> Iterator[tuple[str, str, str]]:
    """Yield each kind of finding once, about a value with the first operation that gave one.

    What is computed from a wrong value is wrong for the same reason.
    """
    told: set[tuple[str, str]] = set()
    # what stands at the end is a consequence of a step, where one is found as well
    for finding in sorted(verdict.findings, key=lambda each: (each.index < 0, each.index)):
        kind = (finding.code, finding.witness)
        if kind not in told:
            told.add(kind)
            yield (*kind, _operation(scenario, finding))


def _operation(scenario: Scenario, finding: Finding) -> str:
    if finding.code not in _VALUES:
        return ""
    steps = steps_of(scenario.steps)
    step = steps[finding.index] if 0 <= finding.index < len(steps) else None
    return step.operation.name if step is not None and step.operation is not None else ""


def analysis_oracle(path: Path, limits: Limits) -> Oracle:
    """Return the oracle that analyses a text as if it stood at `path`."""

    def asked(text: str) -> Signature | None:
        analysis = _analysed(path, text, limits)
        return None if analysis is None else signature_of(analysis.scenario, analysis.verdict)

    return asked


def run_oracle(path: Path, limits: Limits, executor: Executor) -> Oracle:
    """Return the oracle that runs a text on a backend, where the analysis lets it pass."""

    def asked(text: str) -> Signature | None:
        analysis = _analysed(path, text, limits)
        if analysis is None:
            return None
        return signature_of(analysis.scenario, execute(analysis, executor).verdict)

    return asked


def _analysed(path: Path, text: str, limits: Limits) -> Analysis | None:
    try:
        scenarios = load_content(path, text.encode(), limits=limits)
    except ScenarioError:
        return None
    return analyse(scenarios[0], limits) if len(scenarios) == 1 else None
