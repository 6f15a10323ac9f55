"""Data that a model cannot take: refused where torch refuses it, and never a fault of ours.

Broadcast losses are compared with torch's own gradients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from runner.language import load
from runner.modules.loss import LOSSES, summed_to
from runner.pipeline.attempts import analyse, execute

if TYPE_CHECKING:
    from pathlib import Path

    from runner.execution import Launcher

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
    assert summed_to(grad, (2, 3)) is grad
