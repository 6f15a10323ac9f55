"""Copies of what a rank holds, made beside each step."""

from __future__ import annotations

import copy
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

#: bytes above which nothing is prepared for a tensor: that would keep it alive
LARGE = 2**20


class Copies:
    """Copies of what a rank holds, which later steps cannot change.

    On the host a tensor is copied as an array. One that is seen again is copied through a view of
    its memory, which is made once: that takes a tenth of a clone's time. On a device a clone is
    enqueued.
    """

    def __init__(
        self, torch: ModuleType, scope: Mapping[str, Any], convert: Callable[[Any], Any] | None
    ) -> None:
        """Copy what names hold in `scope`; `convert` makes arrays of tensors, None clones them."""
        self._torch: Any = torch
        self._scope = scope
        self._convert = convert
        #: name -> a tensor that it held, and what copies it
        self._seen: dict[str, tuple[Any, Callable[[], Any]]] = {}

    def named(self, names: tuple[str, ...]) -> list[Any]:
        """Return copies of what these names hold now."""
        copies = []
        for name in names:
            value, seen = self._scope.get(name), self._seen.get(name)
            if seen is not None and seen[0] is value:
                copies.append(seen[1]())
            else:
                copies.append(self._first(name, value))
        return copies

    def of(self, value: Any) -> Any:  # noqa: ANN401 -- a held value has any type
        """Return a copy: tensors as said above, lists by item, objects deeply."""
        if isinstance(value, self._torch.Tensor):
            return value.clone() if self._convert is None else self._convert(value).copy()
        if isinstance(value, list):
            return [self.of(item) for item in value]
        return copy.deepcopy(value)

    def _first(self, name: str, value: Any) -> Any:  # noqa: ANN401 -- a held value has any type
        """Copy what a name has come to hold, and be ready to copy it again."""
        self._seen.pop(name, None)
        if isinstance(value, self._torch.Tensor) and not is_large(value):
            self._seen[name] = (value, lambda: self._again(name, value))
        return self.of(value)

    def _again(self, name: str, tensor: Any) -> Any:  # noqa: ANN401 -- torch.Tensor
        """Copy a tensor for the second time, and make a view for the times to come."""
        copying: Callable[[], Any] = tensor.clone
        if self._convert is not None and tensor.is_contiguous() and not tensor.is_conj():
            copying = self._convert(tensor).copy
        elif self._convert is not None:
            copying = partial(self.of, tensor)
        self._seen[name] = (tensor, copying)
        return copying()


def is_large(value: Any) -> bool:  # noqa: ANN401 -- a held value has any type
    """Return whether a value is a tensor of many bytes, or has one in it."""
    if isinstance(value, list):
        return any(is_large(item) for item in value)
    return bool(getattr(value, "nbytes", 0) > LARGE)
