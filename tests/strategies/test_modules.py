"""Layers, losses and optimizers against torch itself, in float64: three steps of each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from torch_scenarios.modules import LAYERS, Layer, Residual, Sequential
from torch_scenarios.modules.attention import CausalSelfAttention
from torch_scenarios.modules.batch_norm import BatchNorm1d
from torch_scenarios.modules.embedding import Embedding
from torch_scenarios.modules.gelu import GELU
from torch_scenarios.modules.layer_norm import LayerNorm
from torch_scenarios.modules.linear import Linear
from torch_scenarios.modules.loss import LOSSES
from torch_scenarios.modules.optimizer import OPTIMIZERS, SGD, Adam, AdamW
from torch_scenarios.modules.relu import ReLU
from torch_scenarios.modules.rms_norm import RMSNorm
from torch_scenarios.modules.tanh import Tanh

pytestmark = pytest.mark.torch

NETWORK = Sequential(
    layers=(
        ("up", Linear(in_features=4, out_features=8)),
        ("norm", LayerNorm(normalized_shape=8)),
        (
            "block",
            Residual(
                layers=(
                    ("act", GELU()),
                    ("fc", Linear(in_features=8, out_features=8, bias=False)),
                )
            ),
        ),
        ("root", RMSNorm(normalized_shape=8)),
        ("tanh", Tanh()),
        ("relu", ReLU()),
        ("down", Linear(in_features=8, out_features=3)),
    )
)
#: each layer, and the shape of an input
TRIALS: tuple[tuple[Layer, tuple[int, ...]], ...] = (
    (Linear(in_features=4, out_features=3), (6, 4)),
    (LayerNorm(normalized_shape=4), (6, 4)),
    (RMSNorm(normalized_shape=4), (6, 4)),
    (BatchNorm1d(num_features=3), (4, 3, 2)),
    (ReLU(), (6, 4)),
    (GELU(), (6, 4)),
    (Tanh(), (6, 4)),
    (CausalSelfAttention(embed_dim=6, num_heads=3), (2, 5, 6)),
    (CausalSelfAttention(embed_dim=6, num_heads=3, bias=False), (2, 5, 6)),
)
STEPS: tuple[tuple[str, str, Any], ...] = (
    ("mse_loss", "mean", SGD(lr=0.1)),
    ("mse_loss", "sum", SGD(lr=0.01, momentum=0.9, nesterov=True, weight_decay=0.1)),
    ("mse_loss", "sum", SGD(lr=0.01, momentum=0.9, dampening=0.3)),
    ("l1_loss", "mean", Adam(lr=0.1, weight_decay=0.1)),
    ("cross_entropy", "mean", AdamW(lr=0.1)),
    ("cross_entropy", "sum", Adam(lr=0.1, betas=(0.5, 0.9))),
)


def test_what_is_not_finite_passes_a_relu_as_in_torch() -> None:
    import torch

    x = np.array([-1.0, -1.0, 0.0, 1.0, np.nan, np.inf, -np.inf])
    dy = np.array([np.inf, np.nan, np.inf, -np.inf, 2.0, 2.0, 2.0])
    y, saved = ReLU().forward({}, x)
    given = torch.tensor(x, requires_grad=True)
    made = torch.relu(given)
    (grad,) = torch.autograd.grad(made, given, torch.tensor(dy))
    assert np.array_equal(y, made.detach().numpy(), equal_nan=True)
    assert np.array_equal(ReLU().backward({}, saved, dy)[0], grad.numpy(), equal_nan=True)


@pytest.mark.parametrize(("loss", "reduction", "optimizer"), STEPS, ids=str)
def test_three_steps_are_those_of_torch(loss: str, reduction: str, optimizer: Any) -> None:
    import torch

    random = np.random.default_rng(3)
    params: Any = {name: random.normal(size=shape) for name, shape in NETWORK.shapes().items()}
    x = random.normal(size=(6, 4))
    y = random.integers(0, 3, size=6) if loss == "cross_entropy" else random.normal(size=(6, 3))
    module: Any = NETWORK.build(torch.nn).double()
    module.load_state_dict({name: torch.tensor(value) for name, value in params.items()})
    stepper = optimizer.build(torch, module.parameters())
    counted = LOSSES[loss](reduction=reduction)
    states: dict[str, dict[str, Any]] = {name: {} for name in params}
    for _ in range(3):
        given, saved = NETWORK.forward(params, x)
        value, dy = counted.value(given, y)
        dx, grads = NETWORK.backward(params, saved, dy)
        entered: Any = torch.tensor(x, requires_grad=True)
        stepper.zero_grad()
        wanted = counted.call(torch, module(entered), torch.tensor(y))
        wanted.backward()
        assert value == pytest.approx(wanted.item(), abs=1e-12)
        np.testing.assert_allclose(dx, entered.grad.numpy(), atol=1e-12)
        for name, param in module.named_parameters():
            np.testing.assert_allclose(grads[name], param.grad.numpy(), atol=1e-11, err_msg=name)
        stepper.step()
        params = {
            name: optimizer.step(value, grads[name], states[name]) for name, value in params.items()
        }
        for name, param in module.named_parameters():
            np.testing.assert_allclose(
                params[name], param.detach().numpy(), atol=1e-10, err_msg=name
            )


@pytest.mark.parametrize(
    ("arguments", "foreach"),
    [
        ({"momentum": 0.9}, None),
        ({"momentum": 0.9, "nesterov": True}, False),
        ({"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}, None),
    ],
)
def test_a_step_that_would_store_into_gradients_is_taken_one_by_one(
    arguments: dict[str, Any], *, foreach: bool | None
) -> None:
    torch = pytest.importorskip("torch")
    built = SGD(lr=0.1, **arguments).build(torch, [torch.nn.Parameter(torch.ones(2))])
    assert built.defaults["foreach"] is foreach


@pytest.mark.parametrize("optimizer", [SGD(lr=0.1), Adam(lr=0.1)], ids=lambda each: each.name)
def test_tensors_and_dtensors_of_one_optimizer_step_one_by_one(optimizer: Any) -> None:
    """A parameter with placements is a DTensor; the words of torch that refuse both need a GPU."""
    torch: Any = pytest.importorskip("torch")
    params = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]
    assert optimizer.build(torch, params).defaults["foreach"] is None
    params[0].placements = ()
    assert optimizer.build(torch, params).defaults["foreach"] is False


def test_every_layer_is_tried() -> None:
    apart = {"Embedding"} | {name for name, each in LAYERS.items() if each.lacking}
    untried = LAYERS.keys() - apart - {layer.name for layer, _ in TRIALS}
    assert untried == set(), "give each layer a row of TRIALS: it is held against torch's own"


@pytest.mark.parametrize(("layer", "shape"), TRIALS, ids=str)
def test_a_layer_is_that_of_torch(layer: Layer, shape: tuple[int, ...]) -> None:
    """Its output and gradients are; what the terms of these amount to is no less than they are."""
    import torch

    random = np.random.default_rng(5)
    params: Any = {name: random.normal(size=size) for name, size in layer.shapes().items()}
    x, dy = random.normal(size=shape), random.normal(size=layer.output_shape(shape))
    y, saved = layer.forward(params, x)
    dx, grads, sizes, terms = layer.weigh(params, saved, dy, np.abs(dy))
    module: Any = layer.build(torch.nn).double()
    module.load_state_dict(
        {name: torch.tensor(value) for name, value in params.items()}, strict=False
    )
    entered: Any = torch.tensor(x, requires_grad=True)
    wanted = module(entered)
    wanted.backward(torch.tensor(dy))
    np.testing.assert_allclose(y, wanted.detach().numpy(), atol=1e-12)
    np.testing.assert_allclose(dx, entered.grad.numpy(), atol=1e-12)
    assert terms is None or np.all(terms >= np.abs(dx) * (1 - 1e-12))
    for name, param in module.named_parameters():
        np.testing.assert_allclose(grads[name], param.grad.numpy(), atol=1e-11, err_msg=name)
        assert np.all(sizes[name] >= np.abs(grads[name]) * (1 - 1e-12)), name


@pytest.mark.parametrize("shape", [(6, 3), (4, 3, 2)])
def test_a_norm_over_the_batch_is_that_of_torch(shape: tuple[int, ...]) -> None:
    import torch

    layer = BatchNorm1d(num_features=3, momentum=0.3, eps=1e-3)
    random = np.random.default_rng(7)
    params: Any = {name: random.normal(size=size) for name, size in layer.shapes().items()}
    module: Any = layer.build(torch.nn).double()
    module.load_state_dict(
        {name: torch.tensor(value) for name, value in params.items()}, strict=False
    )
    buffers = {
        name: value.astype(np.float64) if value.dtype.kind == "f" else value
        for name, value in layer.buffers().items()
    }
    for _ in range(3):
        x, dy = random.normal(size=shape), random.normal(size=shape)
        y, saved = layer.forward(params, x)
        dx, grads = layer.backward(params, saved, dy)
        buffers = layer.update_buffers(buffers, saved)
        entered: Any = torch.tensor(x, requires_grad=True)
        module.zero_grad()
        wanted = module(entered)
        wanted.backward(torch.tensor(dy))
        np.testing.assert_allclose(y, wanted.detach().numpy(), atol=1e-12)
        np.testing.assert_allclose(dx, entered.grad.numpy(), atol=1e-12)
        for name, param in module.named_parameters():
            np.testing.assert_allclose(grads[name], param.grad.numpy(), atol=1e-12, err_msg=name)
        for name, buffer in module.named_buffers():
            np.testing.assert_allclose(buffers[name], buffer.numpy(), atol=1e-12, err_msg=name)


def test_a_norm_over_the_batch_wants_two_values_a_feature() -> None:
    layer = BatchNorm1d(num_features=3)
    assert layer.output_shape((2, 3)) == (2, 3)
    with pytest.raises(ValueError, match="two values a feature or more"):
        layer.output_shape((1, 3))
    with pytest.raises(ValueError, match=r"takes \[rows, 3\]"):
        layer.output_shape((4, 2))


def test_heads_divide_the_features() -> None:
    with pytest.raises(ValueError, match="8 features do not divide into 3 heads"):
        CausalSelfAttention(embed_dim=8, num_heads=3)


def test_rows_of_a_table_gather_their_gradients() -> None:
    import torch

    layer = Embedding(num_embeddings=4, embedding_dim=2)
    table, index = np.arange(8.0).reshape(4, 2), np.array([1, 3, 1])
    given, saved = layer.forward({"weight": table}, index)
    _, grads = layer.backward({"weight": table}, saved, np.ones((3, 2)))
    module = layer.build(torch.nn).double()
    module.load_state_dict({"weight": torch.tensor(table)})
    looked_up = module(torch.tensor(index))
    looked_up.sum().backward()
    np.testing.assert_array_equal(given, looked_up.detach().numpy())
    np.testing.assert_array_equal(grads["weight"], module.weight.grad.numpy())


def test_gradients_are_ready_from_the_last_layer_to_the_first() -> None:
    assert NETWORK.ready()[:3] == ("down.bias", "down.weight", "root.weight")
    assert set(NETWORK.ready()) == set(NETWORK.shapes())


def test_shapes_of_outputs() -> None:
    assert NETWORK.output_shape((6, 4)) == (6, 3)
    with pytest.raises(ValueError, match="takes 4 features"):
        NETWORK.output_shape((6, 5))


def test_tables_have_their_entries_by_their_own_names() -> None:
    tables: tuple[dict[str, Any], ...] = (LAYERS, LOSSES, OPTIMIZERS)
    for table in tables:
        assert all(name == kind.name for name, kind in table.items())


def test_the_defaults_are_those_of_torch() -> None:
    import inspect

    import torch

    for name, kind in OPTIMIZERS.items():
        theirs = inspect.signature(getattr(torch.optim, name)).parameters
        for argument, default in kind().arguments().items():
            assert theirs[argument].default == default, (name, argument)
