"""Every operation's example is a scenario that passes: in the analysis, and on real Gloo."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from torch_scenarios.language import load
from torch_scenarios.model.groups import plan
from torch_scenarios.operations import OPERATIONS
from torch_scenarios.operations.base import Collective
from torch_scenarios.reference import simulate
from torch_scenarios.verdict import judge

if TYPE_CHECKING:
    from pathlib import Path

    from torch_scenarios.execution import Launcher
    from torch_scenarios.model.scenario import Scenario
    from torch_scenarios.operations.base import Operation

every_operation = pytest.mark.parametrize(
    "operation", OPERATIONS, ids=[operation.name for operation in OPERATIONS]
)


def example(operation: Operation, folder: Path) -> Scenario:
    path = folder / f"{operation.name}.yaml"
    path.write_text(operation.example, encoding="utf-8")
    (scenario,) = load(path)
    return scenario


@every_operation
def test_an_example_passes_in_the_analysis(operation: Operation, tmp_path: Path) -> None:
    scenario = example(operation, tmp_path)
    verdict = judge(plan(scenario), simulate(plan(scenario)), None, None)
    assert verdict.status == "PASSED", verdict.problems


def _elements(value: Any) -> list[float]:
    if isinstance(value, list | tuple):
        return [each for item in value for each in _elements(item)]
    return np.ravel(value).tolist() if isinstance(value, np.ndarray) else []


@pytest.mark.parametrize(
    "operation",
    [each for each in OPERATIONS if isinstance(each, Collective)],
    ids=lambda each: each.name,
)
def test_what_a_collective_computes_is_a_reduction(
    operation: Collective, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A result that no member passed is computed, and its order is open: `reduction` says so."""
    met: list[tuple[Any, list[float], list[float]]] = []
    reference = operation.reference

    def watched(_: Collective, entries: Any) -> Any:
        found = reference(entries)
        passed = [each for entry in entries for each in _elements([*entry.arguments.values()])]
        held = [each for result in found for each in _elements([*result.values()])]
        met.append((operation.reduction(entries[0].arguments), passed, held))
        return found

    monkeypatch.setattr(type(operation), "reference", watched)
    monkeypatch.setattr(type(operation), "common", lambda *_: None)
    simulate(plan(example(operation, tmp_path)))
    assert met
    for reduction, passed, held in met:
        assert reduction is not None or set(held) <= set(passed), (
            f"{operation.name} computes what it leaves: override `reduction` of `Collective`, so "
            "that its results have a bound for the order in which a backend adds"
        )


@pytest.mark.torch
def test_the_examples_pass_on_gloo(tmp_path: Path, launcher: Launcher) -> None:
    seen = {}
    for operation in OPERATIONS:
        scenario = example(operation, tmp_path)
        planned = plan(scenario)
        predicted = simulate(planned)
        observed = launcher.run(planned, predicted)
        verdict = judge(plan(scenario), predicted, observed, observed.backend)
        seen[operation.name] = (verdict.status, verdict.problems)
    assert {name: seen[name] for name in seen if seen[name][0] != "PASSED"} == {}


UNABLE = {
    "a_dtype": "{dtype: int16, value: [1]}|{tensor: x}",
    "a_reduce_op": "[1]|{tensor: x, op: {premul_sum: 0.5}}",
    "the_mean_of_integers": "{dtype: int32, value: [2]}|{tensor: x, op: avg}",
}


@pytest.mark.torch
def test_what_gloo_cannot_do_is_unsupported_not_failed(tmp_path: Path, launcher: Launcher) -> None:
    seen = {}
    for name, text in UNABLE.items():
        value, arguments = text.split("|")
        path = tmp_path / f"{name}.yaml"
        path.write_text(
            f"world_size: 2\ntensors: {{x: {value}}}\nsteps: [all_reduce: {arguments}]\n",
            encoding="utf-8",
        )
        (scenario,) = load(path)
        predicted = simulate(plan(scenario))
        observed = launcher.run(plan(scenario), predicted)
        verdict = judge(plan(scenario), predicted, observed, observed.backend)
        seen[name] = verdict.status
        assert verdict.reason, name
    assert seen == dict.fromkeys(UNABLE, "UNSUPPORTED")
