"""What a wrong program computes is held to its own roundings, and not to those of the right one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from torch_scenarios.language import load
from torch_scenarios.model.groups import plan
from torch_scenarios.reference import simulate
from torch_scenarios.verdict import judge

if TYPE_CHECKING:
    from pathlib import Path

    from torch_scenarios.execution import Launcher

#: behind a norm over two features next to no gradient is left, and rounding in what is
PROGRAM = """\
world_size: 2
groups: {{mesh: {{shape: [2], dims: [a]}}}}
tensors:
  x: "random([8, 5], 1)"
  y: "random([8, 4], 2)"
models:
  net:
    layers:
      - up: {{Linear: {{in_features: 5, out_features: 6}}}}
      - act: {{ReLU: {{}}}}
      - down: {{Linear: {{in_features: 6, out_features: 2}}}}
      - norm: {{LayerNorm: {{normalized_shape: 2}}}}
      - last: {{Linear: {{in_features: 2, out_features: 4}}}}
    loss: {loss}
    optimizer: {{SGD: {{lr: {rate}}}}}
    parallel: [{parallel}]
{oracle}
steps:
  - for: {{i: "range(3)"}}
    steps: [train: {{model: net, input: x, target: y{batch}}}]
"""
TP = (
    "parallelize_module: {device_mesh: mesh.a,"
    " parallelize_plan: {up: ColwiseParallel, down: RowwiseParallel}}"
)
SUM, MEAN = "{mse_loss: {reduction: sum}}", "mse_loss"
DDP, UNEVEN = "DistributedDataParallel: {}", ", batch: {group: world, sizes: [5, 3]}"


def planned(folder: Path, **given: Any) -> Any:
    parts = {"loss": MEAN, "rate": 0.001, "parallel": TP, "oracle": "", "batch": ""} | given
    if parts["oracle"]:
        parts["oracle"] = f"    oracle: {parts['oracle']}"
    path = folder / "case.yaml"
    path.write_text(PROGRAM.format(**parts), encoding="utf-8")
    (case,) = load(path)
    return plan(case)


def slack(prepared: Any, name: str) -> float:
    """Return how far a value of rank 0 may be off after its first step."""
    found = simulate(prepared)
    return float(np.max(found.ranks[0].events[0].slack[f"net.{name}"]))


@pytest.mark.parametrize("name", ["loss", "down.weight.grad", "last.bias.grad"])
def test_another_loss_than_that_of_one_process_rounds_by_itself(name: str, tmp_path: Path) -> None:
    alone = slack(planned(tmp_path, loss=SUM), name)
    wrong = slack(planned(tmp_path, loss=SUM, oracle=f"{{loss: {MEAN}}}"), name)
    right = slack(planned(tmp_path), name)
    assert wrong == alone
    assert wrong > right * 8


def test_a_rate_that_is_too_large_rounds_by_itself(tmp_path: Path) -> None:
    right = "{optimizer: {SGD: {lr: 0.001}}}"
    alone, wrong = (
        slack(planned(tmp_path, rate=0.9, oracle=oracle), "last.weight") for oracle in ("", right)
    )
    assert wrong == alone


def test_who_trains_as_no_process_does_is_moved_by_its_rounding(tmp_path: Path) -> None:
    """Weights and gradients of its own, and not reductions alone."""
    for batch, wrong in ((", batch: world", False), (UNEVEN, True)):
        found = simulate(planned(tmp_path, parallel=DDP, rate=0.1, batch=batch))
        assert bool(found.diagnoses) is wrong
        assert found.drift is not None
        event = found.ranks[0].events[0]
        place = (event.index, event.iteration)
        loss = found.drift(0, place, "net.loss")
        assert bool(np.any(loss)) is wrong
    assert found.drift is not None
    writes: Any = dict(event.writes)
    grad: Any = found.drift(0, place, "net.last.weight.grad")
    assert np.all(grad < 1e-5 * np.abs(writes["net.last.weight.grad"]).max())
    assert np.all(grad > 0)


@pytest.mark.torch
@pytest.mark.parametrize(
    "wrong",
    [
        {"loss": SUM, "oracle": f"{{loss: {MEAN}}}"},
        {"rate": 0.9, "oracle": "{optimizer: {SGD: {lr: 0.1}}}"},
        {"parallel": DDP, "rate": 0.9, "batch": UNEVEN},
    ],
    ids=["loss", "rate", "batch"],
)
def test_torch_computes_a_wrong_program_as_it_is(
    wrong: dict[str, Any], launcher: Launcher, tmp_path: Path
) -> None:
    prepared = planned(tmp_path, **wrong)
    predicted = simulate(prepared)
    found = judge(prepared, predicted, launcher.run(prepared, predicted), "gloo")
    assert [each.code for each in found.findings] == ["diagnosis_undeclared"], found.findings
