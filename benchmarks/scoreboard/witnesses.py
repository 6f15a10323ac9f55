"""What each witness says of a program: the analysis, torch alone, and a confirmed run."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

import torch_scenarios
from torch_scenarios.errors import LaunchError, ScenarioError, UnsupportedError, WorkerError
from torch_scenarios.model.scenario import FinalExpectation, steps_of

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.scoreboard.program import Program
    from torch_scenarios.execution import Launcher
    from torch_scenarios.model.plan import Plan
    from torch_scenarios.model.scenario import Scenario
    from torch_scenarios.model.trace import Trace

# ---------------------------------------------------------------------------- the analysis


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticVerdict:
    """What the analysis says of one program: the diagnoses in order, and the first's step."""

    program: Program
    names: tuple[str, ...]
    first: str | None
    outcome: str
    open: tuple[str, ...]
    took_s: float

    @property
    def alarmed(self) -> bool:
        """Whether it says that anything is wrong."""
        return bool(self.names) or (self.outcome, *self.open) != ("completes",)

    @property
    def named(self) -> bool:
        """Whether it names the fault by all of its names, first, and nothing that is not there."""
        program = self.program
        return (
            self.names[:1] != ()
            and self.names[0] in program.expected
            and set(program.expected) <= set(self.names)
            and set(self.names) <= {*program.expected, *program.allowed}
        )

    @property
    def placed(self) -> bool:
        """Whether the first diagnosis is at the first divergent step."""
        return self.first == self.program.first

    @property
    def outcome_agrees(self) -> bool:
        """Whether the predicted outcome is one that the program may have by construction."""
        return self.outcome in self.program.outcomes

    @property
    def right(self) -> bool:
        """Whether nothing speaks against it."""
        if self.program.correct:
            return not self.alarmed
        return self.named and self.placed and self.outcome_agrees

    def describe(self) -> str:
        """Return in a line what is found and what is so."""
        found = ", ".join(self.names) or "nothing"
        so = ", ".join(self.program.expected) or "nothing"
        return (
            f"{self.program.name}: {found} at `{self.first}`, {self.outcome}; "
            f"it is {so} at `{self.program.first}`, {' or '.join(sorted(self.program.outcomes))}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """A program on its way to a run."""

    scenario: Scenario
    plan: Plan
    predicted: Trace
    verdict: StaticVerdict


def analyse(program: Program, folder: Path) -> Analysis:
    """Return what the analysis says; the time is that from the file to the verdict.

    Raises ScenarioError where the program is no scenario, which would be a fault of the generator.
    """
    path = folder / "program.yaml"
    path.write_text(program.text)
    began = time.perf_counter()
    (scenario,) = torch_scenarios.load(path)
    plan = torch_scenarios.plan(scenario)
    predicted = torch_scenarios.simulate(plan)
    took_s = time.perf_counter() - began
    named = {step.index: step.name for step in steps_of(scenario.steps)}
    diagnoses = [diagnosis for diagnosis in predicted.diagnoses if not diagnosis.optional]
    verdict = StaticVerdict(
        program=program,
        names=tuple(diagnosis.name for diagnosis in diagnoses),
        first=named.get(diagnoses[0].index) if diagnoses else None,
        outcome=predicted.outcome,
        open=predicted.open,
        took_s=took_s,
    )
    return Analysis(scenario=scenario, plan=plan, predicted=predicted, verdict=verdict)


# ---------------------------------------------------------------------------- torch alone

#: which words of torch name which cause; a timeout, a closed connection, an abort name none
WORDS = {
    "call_mismatch": re.compile(r"Detected mismatch between collectives"),
    "dtype_mismatch": re.compile(r"Detected mismatch.*differ in.*Tensor dtypes", re.DOTALL),
    "shape_mismatch": re.compile(r"Detected mismatch.*differ in.*Tensor shapes", re.DOTALL),
    "missing_participant": re.compile(
        r"Ranks? [\d, ]+ failed to pass monitoredBarrier"
        r"|reached monitoredBarrier, but received errors while waiting for send/recv from rank"
    ),
}
#: what the runner's worker says in torch's place, which would die or wait for the peer instead
NOT_TORCH = re.compile(r"is out of range for a (group|world) of")
#: kinds of what torch raises when it refuses a call, which names that cause
REFUSED = frozenset({"invalid_argument", "not_member", "shape_mismatch", "dtype_mismatch"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchReport:
    """What one program comes to on torch alone. `unable` says why it could not be run."""

    program: Program
    outcome: str = ""
    messages: tuple[str, ...] = ()
    named: bool = False
    took_s: float = 0.0
    unable: str | None = None

    @property
    def alarmed(self) -> bool:
        """Whether torch raised, hung until its timeout, or let a process die."""
        return self.outcome not in {"", "completes"}


def run_on_torch(each: Analysis, launcher: Launcher, debug: str) -> TorchReport:
    """Run a program with torch's own timeout and debug level, and read what it says.

    `launcher` must leave a hang to the backend's timeout.
    """
    program = each.verdict.program
    plan = torch_scenarios.plan(replace(each.scenario, debug=debug))
    began = time.perf_counter()
    try:
        observed = launcher.run(plan, each.predicted)
    except (LaunchError, UnsupportedError, WorkerError) as error:
        took_s = time.perf_counter() - began
        # a process group that cannot be made is a failure too, and torch's own
        return TorchReport(program=program, unable=str(error), took_s=took_s)
    failures = [event.failure for rank in observed.ranks for event in rank.events if event.failure]
    return TorchReport(
        program=program,
        outcome=observed.outcome,
        messages=tuple(dict.fromkeys(failure.message for failure in failures)),
        named=_named(program, observed),
        took_s=time.perf_counter() - began,
    )


def _named(program: Program, observed: Trace) -> bool:
    """Return whether what any rank raises names the cause."""
    for rank in observed.ranks:
        for event in rank.events:
            failure = event.failure
            if failure is None or NOT_TORCH.search(failure.message):
                continue
            if any(
                name in WORDS and WORDS[name].search(failure.message) for name in program.expected
            ):
                return True
            if "invalid_argument" in program.expected and REFUSED & set(failure.kinds):
                return True
    return False


# ---------------------------------------------------------------------------- a confirmed run


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """Whether a run agrees with the prediction; `findings` are what speaks against it."""

    program: Program
    outcome: str = ""
    status: str = "INCONCLUSIVE"
    findings: tuple[str, ...] = ()
    took_s: float = 0.0


def confirm(each: Analysis, launcher: Launcher) -> Confirmation:
    """Run a program as the runner does, and judge the run against the prediction.

    The prediction is the author, so that nothing but a disagreement with the run can fail; where
    the semantics leave several outcomes open, any of them agrees.
    """
    program = each.verdict.program
    names = tuple(dict.fromkeys(diagnosis.name for diagnosis in each.predicted.diagnoses))
    stated = FinalExpectation(outcomes=(each.predicted.outcome,), diagnoses=names)
    scenario = replace(each.scenario, expect=stated)
    began = time.perf_counter()
    try:
        observed = launcher.run(torch_scenarios.plan(scenario), each.predicted)
        took_s = time.perf_counter() - began
        if observed.outcome in each.predicted.open:
            scenario = replace(scenario, expect=replace(stated, outcomes=(observed.outcome,)))
        verdict = torch_scenarios.judge(scenario, each.predicted, observed)
    except (LaunchError, UnsupportedError, WorkerError, ScenarioError) as error:
        return Confirmation(
            program=program, findings=(str(error),), took_s=time.perf_counter() - began
        )
    return Confirmation(
        program=program,
        outcome=observed.outcome,
        status=verdict.status,
        findings=tuple(finding.prose for finding in verdict.findings),
        took_s=took_s,
    )
