"""What a call carries is known by the model's own names, and never at the cost of the script."""

from __future__ import annotations

import weakref

import pytest

from torch_scenarios.record.evidence.tensor_names import TensorNames

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.torch


class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Two layers, of which one may be left out, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = torch.nn.Linear(3, 3, bias=False)
        self.adapter = torch.nn.Linear(3, 3, bias=False)
        self.register_buffer("scale", torch.ones(2))


def test_a_gradient_has_the_name_of_its_parameter_after_each_backward() -> None:
    net, names = Net(), TensorNames()
    net.encoder(torch.ones(1, 3)).sum().backward()
    assert names.find([net.encoder.weight.grad]) == "the gradient of encoder.weight"
    assert names.find([[net.adapter.weight]]) == "adapter.weight"
    assert names.find(net.scale) == "scale"
    net.zero_grad(set_to_none=True)
    net.adapter(torch.ones(1, 3)).sum().backward()
    names.is_stale = True
    assert names.find([net.adapter.weight.grad]) == "the gradient of adapter.weight"


def test_tensors_of_no_model_have_no_name() -> None:
    names = TensorNames()
    assert names.find([torch.ones(5)]) == ""
    assert names.find([torch.ones(1), torch.ones(1)]) == ""
    assert names.find([[]]) == ""


def test_objects_that_answer_for_others_are_not_asked() -> None:
    net = Net()
    gone = weakref.proxy(Net())  # what it stands for is gone: each look at it raises
    lazy = torch.nn.LazyLinear(4)  # it has no shape yet
    names = TensorNames()
    assert names.find(net.encoder.weight) == "encoder.weight"
    del gone, lazy


def test_no_tensor_is_kept() -> None:
    names = TensorNames()
    net = Net()
    names.find(net.encoder.weight)
    kept = weakref.ref(net)
    del net
    assert kept() is None
