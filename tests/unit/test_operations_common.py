"""What all members hold alike, computed from a stack, is what the entries of all give."""

from __future__ import annotations

import numpy as np
import pytest
from traces import identical

from torch_scenarios.model.tolerance import common_slack, slack_of
from torch_scenarios.operations import BY_NAME
from torch_scenarios.operations.base import Collective, Entry, Group, PremulSum

OPS = ["sum", "avg", "product", "min", "max", "band", "bor", "bxor", PremulSum(factor=3)]
DTYPES = ["float32", "float64", "float16", "complex64", "int8", "int64", "uint8", "bool"]


def test_some_operation_gives_one_result_to_all() -> None:
    assert isinstance(BY_NAME["all_reduce"], Collective)
    assert BY_NAME["all_reduce"].common({"op": "sum", "tensor": np.ones((2, 1))}) is not None


@pytest.mark.parametrize("op", OPS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (5,), (2, 3)], ids=str)
def test_a_reduction_of_a_stack_is_that_of_its_parts(
    op: str | PremulSum, dtype: str, shape: tuple[int, ...]
) -> None:
    operation = BY_NAME["all_reduce"]
    assert isinstance(operation, Collective)
    group = Group(key="world", name="world", ranks=tuple(range(7)), timeout_s=1.0)
    random = np.random.default_rng(len(shape))
    for scale in (1, 1.7):
        stack = (random.integers(-4, 5, (7, *shape)) * scale).astype(dtype)
        plain = {param.name: param.default for param in operation.params} | {"op": op}
        entries = [
            Entry(rank=rank, group=group, arguments=plain | {"tensor": stack[rank, ...]})
            for rank in range(7)
        ]
        if operation.refuse(entries[0]) is not None:
            return
        arguments = plain | {"tensor": stack}
        each, together = operation.reference(entries), operation.common(arguments)
        assert together is not None
        assert all(identical(result["tensor"], together["tensor"]) for result in each)
        slack, bound = slack_of(operation, entries), common_slack(operation, arguments, 7)
        assert bool(slack) == bool(bound)
        for one in slack:
            assert identical(one["tensor"], bound["tensor"])
