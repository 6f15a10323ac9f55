"""What a simulated rank holds: copies for the trace, results put in place, undefined marks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.operations.entries import Undefined

if TYPE_CHECKING:
    from runner.operations.entries import Entry
    from runner.program import Call, Process


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
    return measured(undefined, held) if undefined is not None else frozen(held)


def measured(undefined: Undefined, held: Any) -> Undefined:  # noqa: ANN401
    """Return an undefined value with the shapes and dtypes of what is held."""
    return replace(undefined, measure=_hollow(held))


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
    return next((process.undefined[name] for name in call.read if name in process.undefined), None)


def frozen_arguments(entry: Entry) -> dict[str, Any]:
    """Return a copy of an entry's arguments."""
    return {name: frozen(value) for name, value in entry.arguments.items()}


def store(process: Process, names: tuple[str, ...], target: Any, value: Any) -> None:  # noqa: ANN401
    """Put a result where a call's argument is; `names` are the held names it may belong to."""
    if isinstance(value, Undefined):
        for name in names if _has_elements(target) else ():
            if _shares(process.scope.get(name), target):
                process.undefined[name] = value
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
