"""Tensors, lists of tensors and lists of such lists: the arguments that nest, told apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runner.problems import Problem

if TYPE_CHECKING:
    from runner.arrays import Arrays
    from runner.operations.params import Param
    from runner.problems import Mark

DEFAULT_DTYPE = "float32"

#: kind of argument -> how many lists stand around its tensors
DEPTHS = {"tensor": 0, "tensors": 1, "tensor_lists": 2}

_WANTED = ("a tensor", "a list of tensors", "a list of lists of tensors")


def has_depth(arrays: Arrays, value: object, depth: int) -> bool:
    """Return whether `depth` lists stand around the tensors of a value; None fits everywhere."""
    if value is None:
        return True
    if depth == 0:
        return arrays.is_array(value)
    return isinstance(value, list) and all(has_depth(arrays, item, depth - 1) for item in value)


def data_at(arrays: Arrays, depth: int, value: Any) -> Any:  # noqa: ANN401 -- data of a scenario
    """Return plain data as tensors below `depth` lists; None stays None."""
    if value is None:
        return None
    if depth == 0:
        return arrays.array(value, DEFAULT_DTYPE)
    return [data_at(arrays, depth - 1, item) for item in value]


def wrong_value(param: Param, mark: Mark | None, rank: int) -> Problem:
    """Return the problem for a tensor where a list of tensors is wanted, or the reverse."""
    return Problem(
        code="wrong_type",
        message=f"`{param.name}` is not {_WANTED[DEPTHS[param.kind]]} on rank {rank}",
        mark=mark,
        hint="a list of tensors is `[x, y]`, or an expression: `[zeros(2) for i in range(4)]`",
    )
