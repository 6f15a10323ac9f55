"""Gradients that cancel: what rounding leaves of them is no fault, however far Adam steps by it."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sampling import sampled

from torch_scenarios.language import load
from torch_scenarios.model.groups import plan
from torch_scenarios.pipeline.attempts import analyse, execute
from torch_scenarios.reference import simulate
from torch_scenarios.strategies.model import TrainStep

if TYPE_CHECKING:
    from pathlib import Path

    from torch_scenarios.execution import Launcher
    from torch_scenarios.model.scenario import Scenario
    from torch_scenarios.verdict import Verdict

PROGRAM = """\
world_size: {n}
groups: {{m: {{shape: [{n}], dims: [d]}}}}
models:
  net:
    layers: [{layers}]
    init: {init}
    loss: mse_loss
    optimizer: {{{optimizer}}}
    parallel: [{parallel}]{more}
tensors:
  x: "{x}"
  y: "{y}"
steps:
  - for: {{i: "range({steps})"}}
    steps: [train: {{model: net, input: x, target: y{batch}}}]
"""
DDP, FSDP = "DistributedDataParallel: {}", "fully_shard: {mesh: m.d}"
TP = (
    "parallelize_module: {device_mesh: m.d, "
    "parallelize_plan: {up: ColwiseParallel, down: RowwiseParallel}}"
)

#: what is odd in the input and in the target has no gradient by a bias
ODD = {
    "layers": "up: {Linear: {in_features: 1, out_features: 1}}",
    "init": '{up.bias: "zeros([1])"}',
    "x": "concat([random([6, 1], 1), -random([6, 1], 1)])",
    "y": "concat([random([6, 1], 51), -random([6, 1], 51)])",
}
#: a target whose mean is 0 has none by the bias at first, and the bias then goes either way
MEANLESS = {
    "layers": "up: {Linear: {in_features: 2, out_features: 1}}",
    "init": '{up.weight: "zeros([1, 2])", up.bias: "zeros([1])"}',
    "x": "random([6, 2], 2)",
    "y": "reshape(concat([random([3], 52), -random([3], 52)]), [6, 1])",
}
#: the softmax of attention takes no notice of what all keys have in common
KEYS = {
    "layers": "a: {CausalSelfAttention: {embed_dim: 2, num_heads: 1}}",
    "x": "random([6, 2, 2], 2)",
    "y": "random([6, 2, 2], 52)",
}
#: nor does a norm over the batch of what all rows have in common
NORM = {
    "layers": "up: {Linear: {in_features: 2, out_features: 2}}, "
    "n: {BatchNorm1d: {num_features: 2}}",
    "x": "random([6, 2], 2)",
    "y": "random([6, 2], 52)",
}
BOTH_ODD = {
    "layers": "up: {Linear: {in_features: 2, out_features: 6}}, "
    "down: {Linear: {in_features: 6, out_features: 1}}",
    "init": '{up.bias: "zeros([6])", down.bias: "zeros([1])"}',
    "x": "concat([random([6, 2], 12), -random([6, 2], 12)])",
    "y": "concat([random([6, 1], 62), -random([6, 1], 62)])",
}
MEMBERS = ", batch: m.d"

#: each is a false alarm where an update may be off by what float32 shows of it alone
PROGRAMS: dict[str, dict[str, Any]] = {
    "ddp, a bias": {"parallel": DDP, "batch": MEMBERS, **ODD},
    "fsdp, a bias": {"parallel": FSDP, "batch": MEMBERS, **ODD},
    "ddp, a target of mean 0": {"parallel": DDP, "batch": MEMBERS, "steps": 4, **MEANLESS},
    "fsdp, a target of mean 0": {"parallel": FSDP, "batch": MEMBERS, "steps": 4, **MEANLESS},
    "ddp, keys": {"parallel": DDP, "batch": MEMBERS, **KEYS},
    "fsdp, keys": {"parallel": FSDP, "batch": MEMBERS, **KEYS},
    "ddp, a norm": {"parallel": DDP, "steps": 4, **NORM},
    "tp, odd": {"parallel": TP, "steps": 4, **BOTH_ODD},
}
OPTIMIZERS = {
    "AdamW": "AdamW: {lr: 0.1}",
    "Adam": "Adam: {lr: 0.1}",
    "Adam with decay": "Adam: {lr: 0.1, weight_decay: 0.1}",
    "SGD": "SGD: {lr: 0.1, momentum: 0.9}",
}


def case(path: Path, **given: Any) -> Scenario:
    kept = {
        "n": 3,
        "init": "{}",
        "more": "",
        "steps": 1,
        "batch": "",
        "optimizer": OPTIMIZERS["AdamW"],
    }
    path.write_text(PROGRAM.format(**{**kept, **given}), encoding="utf-8")
    (scenario,) = load(path)
    return scenario


def verdict_on(path: Path, **given: Any) -> Verdict:
    return analyse(case(path, **given)).verdict


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_gradient_that_cancels_is_no_fault(name: str, optimizer: str, tmp_path: Path) -> None:
    given = PROGRAMS[name] | {"optimizer": OPTIMIZERS[optimizer]}
    verdict = verdict_on(tmp_path / "case.yaml", **given)
    assert verdict.status == "PASSED", verdict.findings


@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize("seed", range(1, 9))
def test_no_seed_makes_a_fault_of_a_bias(seed: int, steps: int, tmp_path: Path) -> None:
    drawn = {
        "x": f"random([6, 2], {seed})",
        "y": f"reshape(concat([random([3], {seed}), -random([3], {seed})]), [6, 1])",
    }
    given = MEANLESS | drawn | {"parallel": DDP, "batch": MEMBERS, "steps": steps}
    verdict = verdict_on(tmp_path / "case.yaml", **given)
    assert verdict.status == "PASSED", verdict.findings


@pytest.mark.parametrize("seed", [76, 115, 303])
def test_a_norm_of_two_features_makes_no_fault_of_rounding(seed: int, tmp_path: Path) -> None:
    """Next to nothing is left of a gradient behind it; float32 may be exact there by chance."""
    layers = (
        "up: {Linear: {in_features: 3, out_features: 4}}, act: {ReLU: {}}, "
        "down: {Linear: {in_features: 4, out_features: 2}}, "
        "norm: {LayerNorm: {normalized_shape: 2}}"
    )
    drawn = {"x": f"random([4, 3], {seed})", "y": f"random([4, 2], {seed + 50})"}
    given = {"layers": layers, "parallel": TP, "n": 2, "steps": 2, **drawn}
    verdict = verdict_on(tmp_path / "case.yaml", optimizer="SGD: {lr: 0.01}", **given)
    assert verdict.status == "PASSED", verdict.findings


@pytest.mark.parametrize("seed", [9, 42, 46, 52])
def test_whichever_way_rounding_decides_the_loss_is_within_its_tolerance(
    seed: int, tmp_path: Path
) -> None:
    """No kernel of a library that multiplies decides a verdict: every pattern of signs is right."""
    x = np.random.default_rng(seed).normal(size=(6, 2))
    y = np.random.default_rng(seed + 50).normal(size=(6, 1))
    batch = TrainStep(input=np.concatenate([x, -x]), target=np.concatenate([y, -y]))
    scenario = case(tmp_path / "case.yaml", parallel=DDP, **BOTH_ODD)
    simulate(plan(scenario))
    (first,) = scenario.models["net"].moments.values()
    later = first.after(batch)
    loss, off = later.loss(batch.input, batch.target)
    for signs in product((-0.1, 0.1), repeat=7):
        way = later.processes[0].copy()
        way.params |= {"up.bias": np.array(signs[:6]), "down.bias": np.array(signs[6:])}
        assert abs(way.loss(batch.input, batch.target) - loss) <= off


def test_how_closely_a_value_is_known_is_noted(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path / "case.yaml", **PROGRAMS["ddp, keys"])
    (note,) = verdict.notes
    assert note.startswith("net.a.k.bias is known to within 0.0")
    assert "AdamW makes a whole step" in note
    assert " after step 0: " in note
    # what all keys have in common changes nothing else: all of that is known as before
    verdict = verdict_on(tmp_path / "case.yaml", **PROGRAMS["ddp, keys"], steps=3)
    assert len(verdict.notes) == 1
    # a bias changes what comes after it
    verdict = verdict_on(tmp_path / "case.yaml", **PROGRAMS["ddp, a target of mean 0"])
    assert any(note.startswith("net.loss is known") for note in verdict.notes)
    # by SGD a step is as far off as its gradient
    sgd = PROGRAMS["ddp, a target of mean 0"] | {"optimizer": OPTIMIZERS["SGD"]}
    assert verdict_on(tmp_path / "case.yaml", **sgd).notes == ()


#: what is wrong beside a bias whose gradient cancels -> what is told
FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "never synchronised": ({"batch": MEMBERS + ", sync: false"}, "net.a.q.weight is not"),
    "another rate": ({"more": "\n    oracle: {optimizer: {AdamW: {lr: 0.2}}}"}, "is not what one"),
    "another decay": (
        {"more": "\n    oracle: {optimizer: {AdamW: {lr: 0.1, weight_decay: 0.1}}}"},
        "is not what one",
    ),
    "uneven batches": ({"batch": ", batch: {group: m.d, sizes: [3, 2, 1]}"}, "net.a"),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("strategy", [DDP, FSDP])
def test_a_fault_beside_it_is_found(fault: str, strategy: str, tmp_path: Path) -> None:
    given, words = FAULTS[fault]
    if strategy == FSDP:
        words = "net."
    program = KEYS | {"parallel": strategy, "batch": MEMBERS} | given
    predicted = verdict_on(tmp_path / "case.yaml", **program).predicted
    assert predicted is not None
    (diagnosis,) = predicted.diagnoses
    assert diagnosis.name == "not_equivalent"
    assert words in diagnosis.prose


def test_a_unit_that_is_dead_is_known_exactly(tmp_path: Path) -> None:
    """No row reaches it: its gradients have no terms, and no rounding makes anything of them."""
    scenario = case(
        tmp_path / "case.yaml",
        layers="up: {Linear: {in_features: 2, out_features: 2}}, act: {ReLU: {}}, "
        "down: {Linear: {in_features: 2, out_features: 1}}",
        init='{up.bias: "[0, -100]", down.bias: "zeros([1])"}',
        x="random([6, 2], 3)",
        y="random([6, 1], 4)",
        parallel=DDP,
        batch=MEMBERS,
        steps=2,
    )
    assert simulate(plan(scenario)).diagnoses == ()
    (first,) = scenario.models["net"].moments.values()
    rng = np.random.default_rng(3)
    batch = TrainStep(input=rng.normal(size=(6, 2)), target=rng.normal(size=(6, 1)))
    _, off = first.after(batch).after(batch).param("up.weight")
    assert np.all(np.asarray(off)[1] < 1e-6)
    assert np.all(np.asarray(off)[0] > np.asarray(off)[1])


@pytest.mark.torch
@pytest.mark.parametrize("name", sampled(["ddp, keys", "fsdp, a target of mean 0", "tp, odd"], 2))
def test_torch_agrees_within_what_is_known(name: str, tmp_path: Path, launcher: Launcher) -> None:
    result = execute(analyse(case(tmp_path / "case.yaml", **PROGRAMS[name])), launcher)
    assert result.verdict.status == "PASSED", result.verdict.findings
