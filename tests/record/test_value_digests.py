"""Hashes of what tensors hold: equal for equal bytes, and cheap for large ones."""

from __future__ import annotations

import pytest
import torch

from torch_scenarios.record.values.digest import LARGE, digest
from torch_scenarios.record.values.parameters import version_of


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
