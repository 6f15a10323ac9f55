"""Coarse dtypes: what of a fault shows above their roundings, and what the calls tell of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from torch_scenarios.language import load
from torch_scenarios.pipeline.attempts import analyse, execute
from torch_scenarios.strategies.data_parallel import DataParallel
from torch_scenarios.strategies.fully_shard import FullyShard, FullySharded

if TYPE_CHECKING:
    from pathlib import Path

    from torch_scenarios.execution import Launcher
    from torch_scenarios.model.scenario import Scenario

PROGRAM = """\
world_size: 2
groups: {{m: {{shape: [2], dims: [d]}}}}
models:
  net:
    layers:
      - up: {{Linear: {{in_features: 4, out_features: 8}}}}
      - act: {{GELU: {{}}}}
      - down: {{Linear: {{in_features: 8, out_features: 2}}}}
    loss: mse_loss
    optimizer: {{SGD: {{lr: 0.1}}}}
    parallel: [{parallel}]
tensors:
  x: "random([12, 4], 1)"
  y: "random([12, 2], 2)"
steps:
  - for: {{i: "range(2)"}}
    steps: [train: {{model: net, input: x, target: y, batch: m.d{more}}}]
"""
SHARDED = "fully_shard: {{mesh: m.d, mp_policy: {{{policy}}}}}"
#: dtypes of computing and reducing -> the smallest factor of all gradients that is found
POLICIES = {
    SHARDED.format(policy="param_dtype: bfloat16, reduce_dtype: float32"): 1.06,
    SHARDED.format(policy="param_dtype: bfloat16"): 1.06,
    SHARDED.format(policy="reduce_dtype: bfloat16"): 1.06,
    SHARDED.format(policy="param_dtype: float16"): 1.01,
    "DistributedDataParallel: {comm_hook: fp16_compress_hook}": 1.01,
}


def case(folder: Path, parallel: str, more: str = "") -> Scenario:
    path = folder / "case.yaml"
    path.write_text(PROGRAM.format(parallel=parallel, more=more), encoding="utf-8")
    (scenario,) = load(path)
    return scenario


def told(scenario: Scenario) -> str:
    predicted = analyse(scenario).predicted
    assert predicted is not None
    return " ".join(f"{each.name}: {each.prose}" for each in predicted.diagnoses)


@pytest.mark.parametrize("parallel", POLICIES)
def test_roundings_of_a_coarse_dtype_are_no_fault(parallel: str, tmp_path: Path) -> None:
    assert not told(case(tmp_path, parallel))


@pytest.mark.parametrize("parallel", POLICIES)
def test_gradients_that_stay_those_of_a_rank_are_found(parallel: str, tmp_path: Path) -> None:
    assert "not_equivalent" in told(case(tmp_path, parallel, ", sync: false"))


@pytest.mark.parametrize("parallel", POLICIES)
@pytest.mark.parametrize("factor", ["two", "least"])
def test_a_factor_is_found(
    parallel: str, factor: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by = 2.0 if factor == "two" else POLICIES[parallel]

    def scaled(kind: Any, method: str) -> None:
        right = getattr(kind, method)

        def wrong(self: Any, *given: Any) -> Any:
            made = yield from right(self, *given)
            self.grads = {name: value * value.dtype.type(by) for name, value in self.grads.items()}
            return made

        monkeypatch.setattr(kind, method, wrong)

    scaled(FullySharded, "_backward")
    scaled(DataParallel, "_reduce")
    found = told(case(tmp_path, parallel))
    assert ".grad is not what one process computes" in found


@pytest.mark.torch
def test_another_dtype_to_reduce_in_is_told_by_the_calls(
    tmp_path: Path, launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its values are as far off as what is computed in bfloat16 may be anyway."""
    right = next(iter(POLICIES))
    assert execute(analyse(case(tmp_path, right)), launcher).verdict.status == "PASSED"
    monkeypatch.setattr(FullyShard, "reduce_dtype", "bfloat16")
    verdict = execute(analyse(case(tmp_path, right)), launcher).verdict
    assert verdict.status == "FAILED"
    assert any("bfloat16" in each.prose for each in verdict.findings), verdict.findings
