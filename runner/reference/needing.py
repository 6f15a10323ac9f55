"""Whom a member of a collective surely misses."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from runner.reference.values import arrays_of

if TYPE_CHECKING:
    from runner.operations.base import Collective
    from runner.operations.entries import Entry

#: kinds of arguments that hold what a collective moves
TENSORS = frozenset({"tensor", "tensors", "tensor_lists", "objects", "object"})


def needs(operation: Collective, entry: Entry) -> frozenset[int]:
    """Return the group ranks without which no implementation could let a member pass.

    Whoever has nothing to contribute and nothing to get misses nobody: tensors without elements
    are carried by no message.
    """
    if moves_nothing(operation, entry):
        return _nobody(entry.group_rank)
    return operation.needs(entry)


@cache
def _nobody(group_rank: int) -> frozenset[int]:
    return frozenset({group_rank})


def moves_nothing(operation: Collective, entry: Entry) -> bool:
    """Whether a member has nothing to contribute and nothing to get: no tensor has an element."""
    tensors = False
    for name in _carried(operation):
        value = entry.arguments.get(name)
        parts = (value,) if value.__class__ is np.ndarray else arrays_of(value)
        for part in parts:
            if part.__class__ is not np.ndarray or part.size:
                return False
            tensors = True
    return tensors


@cache
def _carried(operation: Collective) -> tuple[str, ...]:
    """Return the arguments that hold what an operation moves."""
    return tuple(param.name for param in operation.params if param.kind in TENSORS)
