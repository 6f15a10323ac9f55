"""The stages of the pipeline as functions: load, plan, simulate, launch and judge.

What a function needs is imported when it is called: `load` and `plan` import no NumPy, and only
`launch` starts processes that import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch_scenarios.execution.backends import LaunchOptions
    from torch_scenarios.limits import Limits
    from torch_scenarios.model.plan import Plan
    from torch_scenarios.model.scenario import Scenario
    from torch_scenarios.model.trace import Trace
    from torch_scenarios.verdict.finding import Verdict


__all__ = ["judge", "launch", "load", "plan", "simulate"]


def load(path: str | Path, *, sets: Mapping[str, str] | None = None) -> tuple[Scenario, ...]:
    """Read one file; return its scenarios, one for each combination of its matrix.

    `sets` overrides parameters, as `--set` does. Raises ScenarioError with every problem found, and
    OverdueError where that takes too long.
    """
    from torch_scenarios import language

    return language.load(path, sets=sets)


def plan(scenario: Scenario, *, limits: Limits | None = None) -> Plan:
    """Resolve the groups of a scenario. Raises ScenarioError where they cannot be computed."""
    from torch_scenarios.model import groups

    return groups.plan(scenario, limits=limits)


def simulate(plan: Plan) -> Trace:
    """Return what the plan must do, by the reference semantics; no process is started.

    Raises ScenarioError where a bound is passed, and OverdueError where it takes too long.
    """
    from torch_scenarios import reference

    return reference.simulate(plan)


def launch(
    plan: Plan, predicted: Trace | None = None, options: LaunchOptions | None = None
) -> Trace:
    """Run the plan under torchrun and return what was observed.

    Raises LaunchError where the environment cannot, UnsupportedError where the backend cannot.
    """
    from torch_scenarios import execution, reference

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
    from torch_scenarios import verdict
    from torch_scenarios.language.document import cases_as_written
    from torch_scenarios.model.plan import Plan

    resolved = case if isinstance(case, Plan) else plan(case)
    return verdict.judge(resolved, predicted, observed, backend, cases_of=cases_as_written)
