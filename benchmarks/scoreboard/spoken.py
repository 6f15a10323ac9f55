"""What torch itself says of a program, and whether a confirmed run agrees with the prediction."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import runner
from runner.errors import LaunchError, ScenarioError, UnsupportedError, WorkerError
from runner.model.scenario import FinalExpectation

if TYPE_CHECKING:
    from benchmarks.scoreboard.sketch import Program
    from benchmarks.scoreboard.static import Analysed
    from runner.execution import Launcher
    from runner.model.trace import Trace

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
#: said by the runner's worker in torch's place, which would die or wait for the peer instead
NOT_TORCH = re.compile(r"is out of range for a (group|world) of")
#: kinds of what torch raises when it refuses a call, which names that cause
REFUSED = frozenset({"invalid_argument", "not_member", "shape_mismatch", "dtype_mismatch"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """What came of one program on torch alone. `unable` says why it could not be run."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmed:
    """Whether a run agrees with the prediction; `said` is what stands against it."""

    program: Program
    outcome: str = ""
    status: str = "INCONCLUSIVE"
    said: tuple[str, ...] = ()
    took_s: float = 0.0


def spoken(each: Analysed, launcher: Launcher, debug: str) -> Spoken:
    """Run a program with torch's own timeout and debug level, and read what it says.

    `launcher` must leave a hang to the backend's timeout.
    """
    program = each.verdict.program
    plan = runner.plan(replace(each.scenario, debug=debug))
    began = time.perf_counter()
    try:
        observed = launcher.run(plan, each.predicted)
    except (LaunchError, UnsupportedError, WorkerError) as error:
        took_s = time.perf_counter() - began
        # a process group that cannot be made is a failure too, and torch's own
        return Spoken(program=program, unable=str(error), took_s=took_s)
    failures = [event.failure for rank in observed.ranks for event in rank.events if event.failure]
    return Spoken(
        program=program,
        outcome=observed.outcome,
        messages=tuple(dict.fromkeys(failure.message for failure in failures)),
        named=_named(program, observed),
        took_s=time.perf_counter() - began,
    )


def _named(program: Program, observed: Trace) -> bool:
    """Return whether any rank was told the cause in words."""
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


def confirmed(each: Analysed, launcher: Launcher) -> Confirmed:
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
        observed = launcher.run(runner.plan(scenario), each.predicted)
        took_s = time.perf_counter() - began
        if observed.outcome in each.predicted.open:
            scenario = replace(scenario, expect=replace(stated, outcomes=(observed.outcome,)))
        verdict = runner.judge(scenario, each.predicted, observed)
    except (LaunchError, UnsupportedError, WorkerError, ScenarioError) as error:
        return Confirmed(program=program, said=(str(error),), took_s=time.perf_counter() - began)
    return Confirmed(
        program=program,
        outcome=observed.outcome,
        status=verdict.status,
        said=tuple(finding.prose for finding in verdict.findings),
        took_s=took_s,
    )
