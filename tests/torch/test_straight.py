"""Arithmetic by its shortest way is arithmetic by the general one, to the bit and to the word."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from torch_scenarios.expressions.arrays import ArrayLibrary, NumpyLibrary, TorchLibrary
from torch_scenarios.expressions.operators import RULES, Operators, Rule
from torch_scenarios.limits import Budget
from torch_scenarios.vocabulary import DTYPES

pytestmark = pytest.mark.torch

NUMBERS = (0, 1, -1, 3, 200, 2**40, 2**70, True, 1.5, float("nan"), float("inf"), 1e300, 2j)


def over(library: ArrayLibrary) -> Operators:
    budget = Budget()
    host = None if isinstance(library, NumpyLibrary) else Operators(NumpyLibrary(), budget)
    return Operators(library, budget, host)


@cache
def libraries() -> dict[str, Operators]:
    torch = pytest.importorskip("torch")
    return {"numpy": over(NumpyLibrary()), "torch": over(TorchLibrary(torch))}


def told(operators: Operators, apply: Any, *operands: Any) -> tuple[Any, ...]:
    """Return all that can be seen of a computation: its dtype, shape and bits, or its complaint."""
    operators.budget.begin(1000, 1000)
    try:
        made = apply(*operands)
    except (ArithmeticError, TypeError, ValueError, RuntimeError) as error:
        return type(error), str(error)
    assert operators.library.is_array(made)
    numbers = np.asarray(operators.library.to_numpy(made))
    left = operators.budget.work_left
    return operators.library.name(made), numbers.shape, numbers.tobytes(), left


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.symbol)
def test_the_straight_way_gives_what_the_rules_give(rule: Rule, library: str) -> None:
    operators = libraries()[library]
    straight = operators.table()[rule.symbol]

    def general(first: Any, second: Any) -> Any:
        return operators.arithmetic(rule, first, second)

    for dtype in DTYPES:
        line, other, point, rows = (
            operators.library.cast(operators.library.from_numpy(np.asarray(data)), dtype)
            for data in ([0.0, 1.0, 3.0], [5.0, 1.0, 2.0], 3.0, [[1.0, 2.0, 3.0], [0.0, 1.0, 1.0]])
        )
        pairs = [(line, other), (point, point), (line, point), (rows, line), (line, [1, 2, 3])]
        for number in NUMBERS:
            pairs += [(line, number), (number, line), (point, number)]
        # the second time, the way is known
        for first, second in [*pairs, *pairs]:
            wanted = told(operators, general, first, second)
            assert told(operators, straight, first, second) == wanted, (dtype, first, second)


def test_a_tensor_too_large_is_refused_on_the_straight_way_too() -> None:
    for operators in libraries().values():
        tensor = operators.library.from_numpy(np.zeros(8, np.float32))
        operators.budget.begin(4, 1000)
        with pytest.raises(ValueError, match="a tensor of 8 elements is too large"):
            operators.table()["+"](tensor, 1)
