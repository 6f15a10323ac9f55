"""What a simulated rank holds: copies for the trace, results put in place, undefined marks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.language.budget import account
from runner.operations.entries import Undefined

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from runner.call import Call
    from runner.operations.entries import Entry
    from runner.program import Process


#: units of work of a look at one item of a list
ITEM_WORK = 100

#: candidates that are tried to tell whether two strided arrays share an element: in general that is
#: as hard as an equation in integers (`numpy.shares_memory`)
_MOST_TRIED = 100_000


def frozen(value: Any) -> Any:  # noqa: ANN401 -- an array, a list of arrays, plain objects
    """Return a copy that later steps cannot change."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, list):
        return [frozen(item) for item in value]
    if isinstance(value, dict):
        return {key: frozen(item) for key, item in value.items()}
    return value


def snapshot(process: Process, name: str) -> Any:  # noqa: ANN401
    """Return what a name holds now, for the trace."""
    undefined, held = process.undefined.get(name), process.scope.get(name)
    if undefined is None and name in process.busy:
        undefined = process.busy[name][0]
    return measured(undefined, held) if undefined is not None else frozen(held)


def measured(undefined: Undefined, held: Any) -> Undefined:  # noqa: ANN401
    """Return an undefined value with the shapes and dtypes of what is held."""
    return replace(undefined, measure=_hollow(held), memory=())


def _hollow(held: Any) -> Any:  # noqa: ANN401 -- as `frozen`
    if isinstance(held, np.ndarray):
        return np.broadcast_to(np.zeros((), held.dtype), held.shape)
    if isinstance(held, list):
        items = [_hollow(item) for item in held]
        return None if any(item is None for item in items) else items
    return None


def tainted(process: Process, call: Call) -> Undefined | None:
    """Return an undefined value among what the call reads, or None."""
    if not process.undefined or call.operation is None:
        return None
    return next((left for name in call.read if (left := undefined_in(process, call, name))), None)


def undefined_in(process: Process, call: Call, name: str) -> Undefined | None:
    """Return what is undefined of a name in the arguments that a call makes of it, or None."""
    left = process.undefined.get(name)
    if left is None:
        return None
    given = [
        call.entry.arguments.get(param) for param, names in call.roots.items() if name in names
    ]
    if given and not any(map(_has_elements, given)):
        return None
    if not left.memory:
        return left
    held = [process.scope.get(root) for names in call.roots.values() for root in names]
    return None if all(beside(left.memory, value, held) for value in given) else left


def frozen_arguments(entry: Entry) -> dict[str, Any]:
    """Return a copy of an entry's arguments."""
    return {name: frozen(value) for name, value in entry.arguments.items()}


def store(process: Process, names: tuple[str, ...], target: Any, value: Any) -> None:  # noqa: ANN401
    """Put a result where a call's argument is; `names` are the held names it may belong to."""
    if isinstance(value, Undefined):
        for name in names if _has_elements(target) else ():
            if _shares(process.scope.get(name), target):
                process.undefined[name] = _left(process, name, target, value)
        return
    if isinstance(target, np.ndarray):
        np.copyto(target, np.asarray(value).reshape(target.shape), casting="unsafe")
        _defined(process, names, target)
    elif isinstance(target, list):
        if _of_tensors(target) and isinstance(value, list) and len(value) == len(target):
            for inner, item in zip(target, value, strict=True):
                store(process, names, inner, item)
        else:
            target[:] = value
        _defined(process, names, target)


def _left(process: Process, name: str, target: Any, value: Undefined) -> Undefined:  # noqa: ANN401
    """Return what is undefined of a name once `target`, all or a part of it, is, too."""
    held, before = process.scope.get(name), process.undefined.get(name)
    part = isinstance(target, np.ndarray) and not (
        isinstance(held, np.ndarray) and held.size == target.size
    )
    if not part or (before and not before.memory):
        return replace(value, memory=())
    return replace(value, memory=(*(before.memory if before else ()), target))


def _has_elements(target: Any) -> bool:  # noqa: ANN401 -- an array, or a list
    """Whether something can be undefined there: in a tensor without elements nothing can."""
    if isinstance(target, list):
        return any(_has_elements(item) for item in target)
    return not isinstance(target, np.ndarray) or target.size > 0


def _of_tensors(target: list[Any]) -> bool:
    """Whether a list is made of tensors, or of lists of tensors; objects are assigned whole."""
    return bool(target) and all(
        isinstance(item, np.ndarray) or (isinstance(item, list) and _of_tensors(item))
        for item in target
    )


def _defined(process: Process, names: tuple[str, ...], target: Any) -> None:  # noqa: ANN401
    """Forget that a name is undefined once all of it was written."""
    for name in names:
        held = process.scope.get(name)
        if held is target or (
            isinstance(held, np.ndarray)
            and isinstance(target, np.ndarray)
            and held.size == target.size
            and np.may_share_memory(held, target)
        ):
            process.undefined.pop(name, None)
        elif (left := process.undefined.get(name)) is not None and left.memory:
            memory = tuple(part for part in left.memory if not _same_place(part, target))
            if memory:
                process.undefined[name] = replace(left, memory=memory)
            else:
                process.undefined.pop(name)


def _same_place(one: NDArray[Any], two: Any) -> bool:  # noqa: ANN401
    if not isinstance(two, np.ndarray):
        return False
    places = [(each.ctypes.data, each.shape, each.strides, each.dtype) for each in (one, two)]
    return places[0] == places[1]


def beside(memory: tuple[Any, ...], value: Any, held: Any) -> bool:  # noqa: ANN401
    """Whether a value is made of parts of what is `held`, and of none that is in `memory`.

    Of a copy it cannot be told what was read.
    """
    whole, parts = arrays_of(held), arrays_of(value)
    views = bool(parts) and all(overlap((part,), whole) for part in parts)
    return views and not overlap(memory, parts)


def arrays_of(value: Any) -> tuple[Any, ...]:  # noqa: ANN401 -- an argument has any type
    """Return the arrays, and lists of plain objects, that a value is made of."""
    if isinstance(value, np.ndarray):
        return (value,)
    if isinstance(value, dict):
        return tuple(each for item in value.values() for each in arrays_of(item))
    if isinstance(value, list | tuple):
        found = account()
        if found is not None:
            found.spend(ITEM_WORK * len(value))
        parts = tuple(each for item in value for each in arrays_of(item))
        return parts or (value,)
    return ()


def byte_span(part: NDArray[Any]) -> tuple[int, int]:
    """Return the first and the last byte that an array uses, the latter exclusive."""
    first = int(part.ctypes.data)
    reach = [stride * (size - 1) for stride, size in zip(part.strides, part.shape, strict=True)]
    low = first + sum(each for each in reach if each < 0)
    return low, first + sum(each for each in reach if each > 0) + part.itemsize


def span_of(memory: tuple[Any, ...]) -> tuple[int, int] | None:
    """Return the first and the last byte of arrays; None where there is something else."""
    if not memory or not all(isinstance(part, np.ndarray) and part.size for part in memory):
        return None
    spans = [byte_span(part) for part in memory]
    return min(low for low, _ in spans), max(high for _, high in spans)


def overlap(mine: tuple[Any, ...], theirs: tuple[Any, ...]) -> bool:
    """Whether some array of the one shares an element with some of the other."""
    return any(_share(one, two) for one in mine for two in theirs)


def _share(one: Any, two: Any) -> bool:  # noqa: ANN401
    if isinstance(one, np.ndarray) and isinstance(two, np.ndarray):
        if not (one.size and two.size):
            return False
        try:
            return np.shares_memory(one, two, max_work=_MOST_TRIED)  # type: ignore[arg-type]
        except RuntimeError:  # `TooHardError`, wherever this NumPy has it
            return True  # it cannot be told in time: it is taken for shared
    return one is two


def _shares(held: Any, target: Any) -> bool:  # noqa: ANN401
    if held is target:
        return True
    if isinstance(target, list):
        return any(_shares(held, item) for item in target)
    if isinstance(held, list):
        return any(_shares(item, target) for item in held)
    return (
        isinstance(held, np.ndarray)
        and isinstance(target, np.ndarray)
        and bool(np.may_share_memory(held, target))
    )
