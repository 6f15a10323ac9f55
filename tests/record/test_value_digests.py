"""Hashes of what tensors hold: equal for equal bytes, and cheap for large ones."""

from __future__ import annotations

import pytest
import torch

from torch_scenarios.record.values.carriage import work_of
from torch_scenarios.record.values.digest import LARGE, digest, is_captured, is_held
from torch_scenarios.record.values.parameters import peek_on_device, version_of


@pytest.mark.parametrize("size", [3, LARGE // 4 + 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_equal_bytes_have_one_hash_wherever_they_are(size: int, dtype: torch.dtype) -> None:
    values = torch.randn(size).to(dtype)
    elsewhere = torch.empty(size + 1, dtype=dtype)[1:]
    elsewhere.copy_(values)
    assert digest(elsewhere) == digest(values)
    assert digest(values.expand(2, size)[0]) == digest(values)


@pytest.mark.parametrize("size", [64, LARGE // 4 + 5])
def test_another_element_or_another_order_has_another_hash(size: int) -> None:
    values = torch.randn(size)
    first = digest(values)
    changed = values.clone()
    changed[size - 1] = torch.nextafter(changed[size - 1], torch.tensor(9.0))
    assert digest(changed) != first
    order = values.clone()
    order[[5, 40]] = order[[40, 5]]
    assert digest(order) != first


def test_memory_that_was_given_back_is_not_looked_at() -> None:
    view = torch.zeros(64)[16:48]
    assert version_of(view)[2] == bytes(24)
    view.untyped_storage().resize_(0)
    assert version_of(view)[2] == b""


@pytest.mark.parametrize("turned", [False, True])
def test_a_hash_of_memory_that_was_given_back_ends_no_process(*, turned: bool) -> None:
    view = torch.zeros(1 << 20)[16:].view(-1, 16)
    view = view.t() if turned else view
    assert is_held(view)
    view.untyped_storage().resize_(0)
    assert not is_held(view)
    assert digest(view) == digest(torch.zeros(0))


def test_nothing_is_captured_where_torch_is_built_for_cpus() -> None:
    assert not is_captured()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_device_s_weight_that_is_written_through_data_is_seen(dtype: torch.dtype) -> None:
    weight = torch.nn.Parameter(torch.zeros(5, 3, dtype=dtype))
    before = peek_on_device(weight)
    weight.data.add_(1e-3)
    assert peek_on_device(weight) != before


def test_a_call_that_nccl_has_waited_for_gives_back_no_work() -> None:
    boxed, work = object(), object()
    assert work_of(([torch.ones(2)], boxed), {boxed: work}.get) is work
    assert work_of(([torch.ones(2)], boxed), lambda _: None) is None
    assert work_of(None, lambda _: work) is None
