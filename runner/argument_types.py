"""What an expression yields, as an operation takes it: whole numbers, flags, seconds, lists.

A tensor of one element stands for its number. Nothing is rounded: a rank of 0.7 is a mistake, and
no rank 0.
"""

from __future__ import annotations

from math import isinf, isnan, prod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


#: the longest sleep, or timeout, in seconds: a file must not keep a machine busy for days
LONGEST_S = 3600.0


def whole(value: Any) -> int:  # noqa: ANN401 -- a number, or an array of one element
    """Return an integer; TypeError or ValueError where the value is none."""
    if value.__class__ is int:
        return int(value)
    number = _number(value)
    if number.__class__ is float and not number.is_integer():
        message = f"{number:g} is no integer; `//` divides integers"
        raise ValueError(message)
    return int(number)


def wholes(values: Any) -> list[int]:  # noqa: ANN401 -- a list, a range, a tensor of one dimension
    """Return a list of integers; TypeError or ValueError where one is none."""
    return [whole(value) for value in values]


def flag(value: Any) -> bool:  # noqa: ANN401 -- a boolean, a number, or an array of one element
    """Return true or false; TypeError or ValueError for what is neither."""
    if value.__class__ is bool:
        return bool(value)
    number = _number(value)
    if number not in {0, 1}:
        message = f"{number} is neither true nor false"
        raise ValueError(message)
    return bool(number)


def seconds(value: Any) -> float:  # noqa: ANN401 -- a number, or an array of one element
    """Return a duration; ValueError where no time can last so long."""
    number = float(_number(value))
    if isnan(number) or isinf(number) or number < 0:
        message = f"a duration is zero or more seconds, not {number:g}"
        raise ValueError(message)
    if number > LONGEST_S:
        message = f"a duration is at most an hour, not {number:g} s"
        raise ValueError(message)
    return number


def listed(value: Any) -> list[Any]:  # noqa: ANN401 -- a list
    """Return a list itself, for an operation may store into it; TypeError for anything else."""
    if not isinstance(value, list):
        message = f"{value!r} is no list"
        raise TypeError(message)
    return value


def _number(value: Any) -> Any:  # noqa: ANN401 -- an int, a float, a bool
    found = value
    if hasattr(value, "item"):
        count = prod(value.shape)
        if count != 1:
            message = f"a tensor of {count} elements is no number"
            raise TypeError(message)
        found = value.item()
        if not isinstance(found, bool | int | complex):
            found = float(found)  # bfloat16 and float8 are types of their own
    if not isinstance(found, bool | int | float):
        shown = "a list" if isinstance(found, list | tuple | range) else repr(found)
        message = f"{shown} is no number"
        raise TypeError(message)
    return found


#: kind of argument (see :data:`runner.operations.params.KINDS`) -> how its value is read
READ: dict[str, Callable[[Any], Any]] = {
    "rank": whole,
    "group_rank": whole,
    "tag": whole,
    "sizes": wholes,
    "ranks": wholes,
    "flag": flag,
    "seconds": seconds,
    "objects": listed,
}
