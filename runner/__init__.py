"""Executable statements about the semantics of collective communication.

The pipeline, one stage a function, for a notebook, a test or another tool::

    for scenario in runner.load("groups_even.yaml"):
        prepared = runner.plan(scenario)
        predicted = runner.simulate(prepared)
        observed = runner.launch(prepared, predicted)
        print(runner.judge(prepared, predicted, observed).status)

Importing this package imports neither NumPy nor torch; the functions do when they are called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

# Every command imports this package first, also one that only prints its help: what a function
# needs is imported when it is called.
if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from runner.execution.backends import LaunchOptions
    from runner.limits import Limits
    from runner.model.plan import Plan
    from runner.model.scenario import Scenario
    from runner.model.trace import Trace
    from runner.verdict.finding import Verdict


__all__ = ["judge", "launch", "load", "plan", "simulate"]


def load(path: str | Path, *, sets: Mapping[str, str] | None = None) -> tuple[Scenario, ...]:
    """Read one file; return its scenarios, one for each combination of its matrix.

    `sets` overrides parameters, as `--set` does. Raises ScenarioError with every problem found.
    """
    from runner import language

    return language.load(path, sets=sets)


def plan(scenario: Scenario, *, limits: Limits | None = None) -> Plan:
    """Resolve the groups of a scenario. Raises ScenarioError where they cannot be computed."""
    from runner.model import groups

    return groups.plan(scenario, limits=limits)


def simulate(plan: Plan) -> Trace:
    """Return what the plan must do, by the reference semantics; no process is started."""
    from runner import reference

    return reference.simulate(plan)


def launch(
    plan: Plan, predicted: Trace | None = None, options: LaunchOptions | None = None
) -> Trace:
    """Run the plan under torchrun and return what was observed.

    Raises LaunchError where the environment cannot, UnsupportedError where the backend cannot.
    """
    from runner import execution, reference

    with execution.Launcher(options or execution.LaunchOptions()) as launcher:
        return launcher.run(plan, predicted or reference.simulate(plan))


def judge(
    case: Plan | Scenario,
    predicted: Trace,
    observed: Trace | None = None,
    backend: str | None = None,
) -> Verdict:
    """Compare the three witnesses: what the author states, what is predicted, what was observed.

    Of a scenario the plan is made anew.
    """
    from runner import verdict
    from runner.language.document import cases_as_written
    from runner.model.plan import Plan

    resolved = case if isinstance(case, Plan) else plan(case)
    return verdict.judge(resolved, predicted, observed, backend, cases_of=cases_as_written)
