"""What a call carries is known by the model's own names, and never at the cost of the script."""

from __future__ import annotations

import sys
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from torch_scenarios.record.evidence.tensor_names import CURRENT, TensorNames, watch_buffers

pytestmark = pytest.mark.torch


@pytest.fixture(name="torch")
def imported_torch() -> Any:
    """Return torch, which is not imported while tests are collected."""
    return pytest.importorskip("torch")


def make_net() -> Any:
    """Return a model of two layers, of which one may be left out, and a buffer."""
    from torch import nn, ones

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.Linear(3, 3, bias=False)
            self.adapter = nn.Linear(3, 3, bias=False)
            self.register_buffer("scale", ones(2))

    return Net()


def test_a_gradient_has_the_name_of_its_parameter_after_each_backward(torch: Any) -> None:
    net, names = make_net(), TensorNames()
    net.encoder(torch.ones(1, 3)).sum().backward()
    assert names.find([net.encoder.weight.grad]) == "the gradient of encoder.weight"
    assert names.find([[net.adapter.weight]]) == "adapter.weight"
    assert names.find(net.scale) == "scale"
    net.zero_grad(set_to_none=True)
    net.adapter(torch.ones(1, 3)).sum().backward()
    names.is_stale = True
    assert names.find([net.adapter.weight.grad]) == "the gradient of adapter.weight"


def test_tensors_of_no_model_have_no_name(torch: Any) -> None:
    names = TensorNames()
    assert names.find([torch.ones(5)]) == ""
    assert names.find([torch.ones(1), torch.ones(1)]) == ""
    assert names.find([[]]) == ""


def test_objects_that_answer_for_others_are_not_asked(torch: Any) -> None:
    net = make_net()
    gone = weakref.proxy(make_net())  # what it stands for is gone: each look at it raises
    lazy = torch.nn.LazyLinear(4)  # it has no shape yet
    names = TensorNames()
    assert names.find(net.encoder.weight) == "encoder.weight"
    del gone, lazy


def test_no_tensor_is_kept() -> None:
    names = TensorNames()
    net = make_net()
    names.find(net.encoder.weight)
    kept = weakref.ref(net)
    del net
    assert kept() is None


class Unit:
    """A unit of FSDP2, as far as its name and its arguments go."""

    _module_fqn = "layers.0"
    mesh_info = post_forward_mesh_info = "the mesh"
    mp_policy = None

    def unshard(self) -> str:
        """Return for which unit its calls are made."""
        return CURRENT.unit


def test_a_unit_of_fsdp_is_noted_once_with_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    module = "torch.distributed.fsdp._fully_shard._fsdp_param_group"
    monkeypatch.setitem(sys.modules, module, SimpleNamespace(FSDPParamGroup=Unit))
    noted: list[tuple[str, dict[str, str]]] = []
    TensorNames().watch_units(lambda *unit: noted.append(unit))
    unit = Unit()
    assert {unit.unshard(), unit.unshard()} == {"the unit layers.0"}
    assert CURRENT.unit == ""
    options = {"reshard_after_forward": "True", "param_dtype": "None", "reduce_dtype": "None"}
    assert noted == [("the unit layers.0", options)]


class Wrapped:
    """A model that DDP wraps, as far as its buffers go."""

    def __init__(self) -> None:
        self.module = make_net()

    @property
    def modules_buffers(self) -> list[Any]:
        """The buffers of the model, as they are now."""
        return [*self.module.buffers()]


def test_buffers_are_named_where_their_shapes_have_changed(torch: Any) -> None:
    carried = []
    method = "_sync_module_buffers"  # DDP's own, which its forward calls
    broadcast = {method: lambda _, root: carried.append(f"{CURRENT.unit} from {root}")}
    kind = type("Watched", (Wrapped,), broadcast)
    watch_buffers(kind)
    model = kind()
    for rows in (2, 3, 2):
        model.module.scale = torch.ones(rows)
        getattr(model, method)(0)
    assert carried == [" from 0", "the buffers with scale [3] from 0", " from 0"]
    assert CURRENT.unit == ""
