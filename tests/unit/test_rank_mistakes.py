"""One rank's own mistake in a strategy: another learning rate, another norm to clip to."""

from __future__ import annotations

from pathlib import Path

import pytest

import torch_scenarios
from torch_scenarios.errors import ScenarioError
from torch_scenarios.verdict import Verdict

FILE = """
world_size: 3
groups: {mesh: {shape: [3], dims: [dp]}}
models:
  net:
    layers: [fc: {Linear: {in_features: 2, out_features: 3}}]
    loss: mse_loss
    optimizer: OPTIMIZER
    parallel: [STRATEGY]
tensors: {x: "random([6, 2], 1)", y: "random([6, 3], 2) + 10"}
steps:
  - train: {model: net, input: x, target: y, batch: world, clip_grad_norm: CLIP}
"""
DDP, FSDP = "DistributedDataParallel: {}", "fully_shard: {mesh: mesh.dp}"


def judged(tmp_path: Path, optimizer: str, clip: str = "null", strategy: str = DDP) -> Verdict:
    file = tmp_path / "it.yaml"
    text = FILE.replace("OPTIMIZER", optimizer).replace("CLIP", clip)
    file.write_text(text.replace("STRATEGY", strategy), encoding="utf-8")
    (scenario,) = torch_scenarios.load(file)
    plan = torch_scenarios.plan(scenario)
    return torch_scenarios.judge(plan, torch_scenarios.simulate(plan))


@pytest.mark.parametrize(
    ("optimizer", "clip", "strategy", "status"),
    [
        ("{SGD: {lr: 0.1}}", "null", DDP, "PASSED"),
        ('{SGD: {lr: "0.1 + 0 * rank"}}', "null", DDP, "PASSED"),
        ('{SGD: {lr: "0.1 * world_size"}}', "null", DDP, "PASSED"),
        ('{Adam: {lr: "0.1 / world_size * (rank + 1)"}}', "null", DDP, "FAILED"),
        ('{SGD: {lr: "0.1 if rank else 0.2"}}', "null", DDP, "FAILED"),
        ('{SGD: {lr: "0.1 * (rank + 1)"}}', "null", FSDP, "FAILED"),
        ('{SGD: {lr: 0.1, weight_decay: "0.5 * (rank == 2)"}}', "null", DDP, "FAILED"),
        ("{SGD: {lr: 0.1}}", "1.0", DDP, "PASSED"),
        ("{SGD: {lr: 0.1}}", "1.0 / world_size", FSDP, "PASSED"),
        ("{SGD: {lr: 0.1}}", "1.0", FSDP, "PASSED"),
        ("{SGD: {lr: 0.1}}", "1.0 if rank else 2.0", DDP, "FAILED"),
        ("{SGD: {lr: 0.1}}", "{max: 1.0, over: local}", FSDP, "FAILED"),
        ("{SGD: {lr: 0.1}}", "{max: 1.0, over: local}", DDP, "PASSED"),
        ("{SGD: {lr: 0.1}}", "{max: 1.0}", FSDP, "PASSED"),
    ],
)
def test_a_rank_that_does_otherwise_is_not_one_process(
    tmp_path: Path, optimizer: str, clip: str, strategy: str, status: str
) -> None:
    verdict = judged(tmp_path, optimizer, clip, strategy)
    assert verdict.status == status
    if status == "FAILED":
        assert verdict.predicted is not None
        assert [each.name for each in verdict.predicted.diagnoses] == ["not_equivalent"]


def test_momentum_of_one_rank_shows_in_the_second_step(tmp_path: Path) -> None:
    text = FILE.replace("STRATEGY", DDP).replace("CLIP", "null")
    text = text.replace("OPTIMIZER", '{SGD: {lr: 0.1, momentum: "0.5 + 0.1 * (rank == 1)"}}')
    head, _, step = text.partition("  - train")
    file = tmp_path / "it.yaml"
    file.write_text(f"{head}  - train{step}  - train{step}", encoding="utf-8")
    (scenario,) = torch_scenarios.load(file)
    plan = torch_scenarios.plan(scenario)
    verdict = torch_scenarios.judge(plan, torch_scenarios.simulate(plan))
    assert verdict.status == "FAILED"
    assert verdict.predicted is not None
    assert "step 1" in str(verdict.predicted.diagnoses)


@pytest.mark.parametrize(
    "argument",
    ["overlap_with_ddp: true", "parameters_as_bucket_view: true", "optimizer_class: SGD", "lr: 1"],
)
def test_an_argument_of_torchs_that_is_not_modelled_is_unsupported(
    tmp_path: Path, argument: str
) -> None:
    file = tmp_path / "it.yaml"
    strategy = f"{DDP}, ZeroRedundancyOptimizer: {{{argument}}}"
    text = FILE.replace("STRATEGY", strategy).replace("CLIP", "null")
    file.write_text(text.replace("OPTIMIZER", "{SGD: {lr: 0.1}}"), encoding="utf-8")
    (scenario,) = torch_scenarios.load(file)
    assert scenario.lacking is not None
    assert scenario.lacking.startswith(f"`{argument.partition(':')[0]}` of ZeroRedundancyOptimizer")


@pytest.mark.parametrize(
    ("optimizer", "lacks"),
    [
        ("{Adam: {lr: 0.1, amsgrad: true}}", "`amsgrad` of Adam"),
        ('{AdamW: {lr: "0.1 * rank", foreach: false}}', "`foreach` of AdamW"),
        ("{SGD: {lr: 0.1, maximize: true}}", "`maximize` of SGD"),
    ],
)
def test_an_argument_of_an_optimizer_that_is_not_modelled_is_unsupported(
    tmp_path: Path, optimizer: str, lacks: str
) -> None:
    file = tmp_path / "it.yaml"
    text = FILE.replace("STRATEGY", DDP).replace("CLIP", "null")
    file.write_text(text.replace("OPTIMIZER", optimizer), encoding="utf-8")
    (scenario,) = torch_scenarios.load(file)
    assert scenario.lacking is not None
    assert scenario.lacking.startswith(lacks)
    with pytest.raises(ScenarioError, match="unknown argument `amsgrat`"):
        judged(tmp_path, "{Adam: {amsgrat: true}}")
