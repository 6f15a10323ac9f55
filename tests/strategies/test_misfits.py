"""Data that a model cannot take: refused where torch refuses it, and never a fault of ours.

Broadcast losses are compared with torch's own gradients.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from torch_scenarios.errors import ScenarioError
from torch_scenarios.language import load
from torch_scenarios.modules import LAYERS, Sequential
from torch_scenarios.modules.attention import CausalSelfAttention
from torch_scenarios.modules.linear import Linear
from torch_scenarios.modules.loss import LOSSES, sum_to
from torch_scenarios.pipeline.attempts import analyse, execute
from torch_scenarios.strategies import LeftOutError
from torch_scenarios.strategies.data_parallel import DataParallel
from torch_scenarios.strategies.tensor_parallel import PARTED, ParallelizeModule

if TYPE_CHECKING:
    from torch_scenarios.execution import Launcher

CORPUS = Path(__file__).parents[2] / "scenarios"
LINEAR = "fc: {Linear: {in_features: 2, out_features: 3}}"
TABLE = "e: {Embedding: {num_embeddings: 3, embedding_dim: 2}}"

#: layers, loss, input, target
REFUSED = {
    "features": (LINEAR, "mse_loss", "random([4, 5], 1)", "random([4, 3], 2)"),
    "target": (LINEAR, "mse_loss", "random([4, 2], 1)", "random([4, 2], 2)"),
    "a normalised shape": (
        "n: {LayerNorm: {normalized_shape: 3}}",
        "mse_loss",
        "random([4, 2], 1)",
        "random([4, 2], 2)",
    ),
    "one row for a norm over the batch": (
        "n: {BatchNorm1d: {num_features: 2}}",
        "mse_loss",
        "random([2, 2], 1)",
        "random([2, 2], 2)",
    ),
    "a scalar": (LINEAR, "l1_loss", "random([4, 2], 1)", "1 + rank"),
}
NOT_COMPUTED = {
    "a row of the table": (TABLE, "mse_loss", "[0, 3, 1, 2]", "random([4, 2], 2)"),
    "a row below the table": (TABLE, "mse_loss", "[0, -1, 1, 2]", "random([4, 2], 2)"),
    "a class": (LINEAR, "cross_entropy", "random([4, 2], 1)", "[0, 1, 2, 3]"),
    "a class below": (LINEAR, "cross_entropy", "random([4, 2], 1)", "[0, 1, 2, -100]"),
    "rows": (LINEAR, "mse_loss", "random([4, 2], 1)", "random([5, 3], 2)"),
}


def program(layers: str, loss: str, x: str, y: str) -> str:
    dtypes = [", dtype: int64" if text.startswith("[") else "" for text in (x, y)]
    return f"""\
world_size: 2
timeout: 5s
models:
  net:
    layers: [{layers}]
    loss: {loss}
    optimizer: {{SGD: {{lr: 0.1}}}}
    parallel: [DistributedDataParallel: {{}}]
tensors:
  x: {{value: "{x}"{dtypes[0]}}}
  y: {{value: "{y}"{dtypes[1]}}}
steps:
  - train: {{model: net, input: x, target: y, batch: world}}
"""


REFUSAL = "    expect: {raises: invalid_argument}\nexpect: {diagnosis: invalid_argument}\n"


@pytest.mark.parametrize("name", REFUSED)
def test_what_torch_refuses_is_an_invalid_argument(name: str, tmp_path: Path) -> None:
    path = tmp_path / "case.yaml"
    path.write_text(program(*REFUSED[name]) + REFUSAL, encoding="utf-8")
    (scenario,) = load(path)
    assert analyse(scenario).verdict.status == "PASSED"


@pytest.mark.parametrize("name", NOT_COMPUTED)
def test_what_one_process_cannot_compute_is_told_at_its_step(name: str, tmp_path: Path) -> None:
    path = tmp_path / "case.yaml"
    path.write_text(program(*NOT_COMPUTED[name]), encoding="utf-8")
    (scenario,) = load(path)
    verdict = analyse(scenario).verdict
    assert verdict.status == "INVALID"
    (problem,) = verdict.problems
    assert (problem.code, problem.mark and problem.mark.line) == ("cannot_compute", 13)


#: more of a model, and of its step -> what becomes of it
ODD: dict[str, tuple[dict[str, str], str]] = {
    "a target broadcast over rows": (
        {"layers": TABLE, "x": "zeros([1, 4])", "y": "zeros([1, 2])"},
        "invalid_argument",
    ),
    "no such dimension": ({"batch": "{group: world, dim: -3}"}, "invalid_argument"),
    "the last but one": ({"batch": "{group: world, dim: -2}"}, ""),
    "a sampler for no rank": (
        {"batch": "{DistributedSampler: {num_replicas: 0}}"},
        "invalid_argument",
    ),
    "a rank that is not dealt to": (
        {"batch": "{DistributedSampler: {rank: 7}}"},
        "invalid_argument",
    ),
    "a scalar to a pipeline": ({"parallel": "pipeline", "x": "3", "y": "3"}, "invalid_argument"),
    "a target without rows": ({"parallel": "pipeline", "y": "1"}, "cannot_compute"),
    "rows that do not divide": (
        {"parallel": "pipeline", "x": "zeros([5, 2])", "y": "zeros([5, 3])"},
        "cannot_compute",
    ),
    "a whole to a layer that takes parts": (
        {"parallel": "sequence", "x": "zeros([2, 4, 2])", "y": "zeros([2, 4, 3])"},
        "cannot_compute",
    ),
    "a norm of parts": ({"parallel": "norm of parts"}, "cannot_compute"),
    "a whole layer of parts": ({"parallel": "whole layer of parts"}, "cannot_compute"),
    "two cuts of columns": ({"parallel": "two cuts of columns"}, "cannot_compute"),
    "a loss that float32 cannot hold": ({"x": "full([4, 2], 1e30)"}, ""),
    "a rate below zero": ({"optimizer": "SGD: {lr: -1}"}, "bad_value"),
    "one beta": ({"optimizer": "Adam: {betas: [0.9]}"}, "bad_value"),
    "a momentum that lacks": ({"optimizer": "SGD: {lr: 0.1, nesterov: true}"}, "bad_value"),
}
PLAN = "{norm: SequenceParallel, fc: {RowwiseParallel: {input_layouts: Shard(1)}}}"
PARALLEL = {
    "ddp": ("DistributedDataParallel: {}", ""),
    "pipeline": (
        "pipeline: {mesh: m.pp, stages: [[one], [fc]], schedule: ScheduleGPipe, n_microbatches: 2}",
        "one: {Linear: {in_features: 2, out_features: 2}}, ",
    ),
    "sequence": (
        f"parallelize_module: {{device_mesh: m.pp, parallelize_plan: {PLAN}}}",
        "norm: {LayerNorm: {normalized_shape: 2}}, ",
    ),
}
#: two layers that are cut, with one between them that takes a whole
UP, DOWN = (
    "up: {Linear: {in_features: 2, out_features: 4}}, ",
    "fc: {Linear: {in_features: 4, out_features: 3}}",
)
MIDDLE = "n: {Linear: {in_features: 4, out_features: 4}}, "
BETWEEN = {
    "norm of parts": ("n: {RMSNorm: {normalized_shape: 4}}, ", ""),
    "whole layer of parts": (MIDDLE, ""),
    "two cuts of columns": (MIDDLE, "n: ColwiseParallel, "),
}
STYLES = "{up: ColwiseParallel, STYLEfc: RowwiseParallel}"
CUT = f"parallelize_module: {{device_mesh: m.pp, parallelize_plan: {STYLES}}}"
PARALLEL |= {
    name: (CUT.replace("STYLE", style), UP + layer) for name, (layer, style) in BETWEEN.items()
}


def _odd(
    layers: str = LINEAR,
    x: str = "random([4, 2], 1)",
    y: str = "random([4, 3], 2)",
    parallel: str = "ddp",
    batch: str = "",
    optimizer: str = "SGD: {lr: 0.1}",
) -> str:
    strategy, before = PARALLEL[parallel]
    layers = DOWN if parallel in BETWEEN else layers
    cut = f", batch: {batch or 'world'}" if parallel == "ddp" else ""
    return f"""\
world_size: 2
groups: {{m: {{shape: [2], dims: [pp]}}}}
models:
  net:
    layers: [{before}{layers}]
    loss: mse_loss
    optimizer: {{{optimizer}}}
    parallel: [{strategy}]
tensors: {{x: "{x}", y: "{y}"}}
steps:
  - train: {{model: net, input: x, target: y{cut}}}
"""


@pytest.mark.parametrize("name", ODD)
def test_odd_data_is_no_fault_of_ours(name: str, tmp_path: Path) -> None:
    given, code = ODD[name]
    path = tmp_path / "case.yaml"
    path.write_text(_odd(**given), encoding="utf-8")
    try:
        (scenario,) = load(path)
    except ScenarioError as error:
        found = {problem.code for problem in error.problems}
    else:
        verdict = analyse(scenario).verdict
        assert verdict.reason is None
        found = {each.code for each in verdict.problems} | {each.kind for each in verdict.findings}
        assert (verdict.status == "PASSED") == (not code)
    assert found == ({code} if code else set())


@pytest.mark.parametrize("fault", [ValueError("rows differ"), IndexError("no such row")])
def test_a_fault_of_a_strategy_is_ours(
    fault: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that no data explains is never told as a fault of the file."""

    def fails(*_: object) -> None:
        raise fault

    monkeypatch.setattr(DataParallel, "_reduce", fails)
    path = tmp_path / "case.yaml"
    path.write_text(_odd(), encoding="utf-8")
    (scenario,) = load(path)
    verdict = analyse(scenario).verdict
    assert verdict.status == "INCONCLUSIVE"
    assert f"{type(fault).__name__}: {fault}" in (verdict.reason or "")


@pytest.mark.torch
@pytest.mark.parametrize("name", REFUSED)
def test_torch_refuses_it(name: str, tmp_path: Path, launcher: Launcher) -> None:
    path = tmp_path / "case.yaml"
    path.write_text(program(*REFUSED[name]) + REFUSAL, encoding="utf-8")
    (scenario,) = load(path)
    result = execute(analyse(scenario), launcher)
    assert result.verdict.status == "PASSED", result.verdict.findings


@pytest.mark.parametrize("shapes", [((4, 1), (4, 3)), ((3,), (2, 3)), ((2, 3), (1, 3)), ((2,), ())])
@pytest.mark.parametrize("name", ["mse_loss", "l1_loss"])
def test_the_gradient_by_what_was_broadcast_is_summed(
    name: str, shapes: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(7)
    given, target = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
    value, grad = LOSSES[name]().value(given, target)
    with_grad = torch.tensor(given, requires_grad=True)
    with pytest.warns(UserWarning, match="Using a target size"):
        loss = LOSSES[name]().call(torch, with_grad, torch.tensor(target))
    loss.backward()
    np.testing.assert_allclose(value, loss.detach().numpy(), rtol=1e-5)
    np.testing.assert_allclose(grad, with_grad.grad.numpy(), rtol=1e-5)


def test_a_gradient_of_the_same_shape_is_left_alone() -> None:
    grad = np.ones((2, 3), np.float32)
    assert sum_to(grad, (2, 3)) is grad


def test_parts_of_a_layer_that_is_not_followed_are_not_cut() -> None:
    """Ranks that cut them would each compute with their parts alone, and never add up."""

    class Gated(CausalSelfAttention, frozen=True, kw_only=True):
        name = "Gated"

    class Other(Linear, frozen=True, kw_only=True):
        name = "Other"

        @property
        def layers(self) -> tuple[tuple[str, Linear], ...]:
            return (("up", Linear(in_features=4, out_features=4)),)

    known = Gated(embed_dim=4, num_heads=2)
    unknown = Other(in_features=4, out_features=4)
    network = Sequential(layers=(("known", known), ("unknown", unknown)))
    cut = ParallelizeModule.read_parallelize_plan
    strange = {"unknown.up": "ColwiseParallel"}
    one = ParallelizeModule(device_mesh="m", parallelize_plan=cut({"known.q": "ColwiseParallel"}))
    assert one.find_mismatch(network) is None
    other = ParallelizeModule(device_mesh="m", parallelize_plan=cut(strange))
    with pytest.raises(LeftOutError, match="is a part of Other, which is not cut here"):
        other.find_mismatch(network)


def test_layers_with_parts_can_be_cut() -> None:
    parted = {each for each in LAYERS.values() if hasattr(each, "layers")}
    assert all(issubclass(each, PARTED) for each in parted), (
        "let `TensorParallel` of strategies/tensor_parallel.py go through the parts of the layer "
        "forward and back, and add it to PARTED there"
    )


def test_a_whole_output_and_a_part_of_a_target_are_told(tmp_path: Path) -> None:
    """Torch raises in the loss: a plan without `output_layouts` leaves the output whole."""
    folder = CORPUS / "wrong" / "not_equivalent"
    text = (folder / "mean_of_local_positions_fixed.yaml").read_text(encoding="utf-8")
    path = tmp_path / "case.yaml"
    path.write_text(text.replace("output_layouts: Shard(1), ", ""), encoding="utf-8")
    (scenario,) = load(path)
    (found,) = analyse(scenario).verdict.problems
    assert found.code == "cannot_compute"
    assert "of an output of [3, 4, 2] and a target of [3, 2, 2]" in found.message
