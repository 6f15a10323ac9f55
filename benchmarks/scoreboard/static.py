"""The static verdict: each program loaded, planned and simulated in this process."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import runner
from runner.model.scenario import steps_of

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.scoreboard.sketch import Program
    from runner.model.plan import Plan
    from runner.model.scenario import Scenario
    from runner.model.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
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
        """Whether the first diagnosis stands at the first divergent step."""
        return self.first == self.program.first

    @property
    def outcome_agrees(self) -> bool:
        """Whether the predicted outcome is one that the program may have by construction."""
        return self.outcome in self.program.outcomes

    @property
    def right(self) -> bool:
        """Whether nothing is to be said against it."""
        if self.program.correct:
            return not self.alarmed
        return self.named and self.placed and self.outcome_agrees

    def told(self) -> str:
        """Return in a line what is said and what is so."""
        said = ", ".join(self.names) or "nothing"
        so = ", ".join(self.program.expected) or "nothing"
        return (
            f"{self.program.name}: {said} at `{self.first}`, {self.outcome}; "
            f"it is {so} at `{self.program.first}`, {' or '.join(sorted(self.program.outcomes))}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysed:
    """A program on its way to a run."""

    scenario: Scenario
    plan: Plan
    predicted: Trace
    verdict: Verdict


def analysed(program: Program, folder: Path) -> Analysed:
    """Return what the analysis says; the time is that from the file to the verdict.

    Raises ScenarioError where the program is no scenario, which would be a fault of the generator.
    """
    path = folder / "program.yaml"
    path.write_text(program.text)
    began = time.perf_counter()
    (scenario,) = runner.load(path)
    plan = runner.plan(scenario)
    predicted = runner.simulate(plan)
    took_s = time.perf_counter() - began
    named = {step.index: step.name for step in steps_of(scenario.steps)}
    diagnoses = [diagnosis for diagnosis in predicted.diagnoses if not diagnosis.optional]
    verdict = Verdict(
        program=program,
        names=tuple(diagnosis.name for diagnosis in diagnoses),
        first=named.get(diagnoses[0].index) if diagnoses else None,
        outcome=predicted.outcome,
        open=predicted.open,
        took_s=took_s,
    )
    return Analysed(scenario=scenario, plan=plan, predicted=predicted, verdict=verdict)
