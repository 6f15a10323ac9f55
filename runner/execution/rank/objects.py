"""What an object collective takes from other ranks: plain values, of a bounded size.

torch sends an object as two tensors, its size and its pickle. It makes room for whatever size
arrives, and unpickles whatever bytes do. A scenario can let a tensor arrive in their place, so
that both are a stranger's words: here they are taken as such.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runner.execution.pickles import PlainUnpickler

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

#: bytes that one call may make room for: far more than the objects of a scenario file take
MOST_BYTES = 1 << 28


def plain_only(dist: Any) -> None:  # noqa: ANN401 -- torch.distributed
    """Let torch's object collectives of this process unpickle plain values alone, for good.

    All of them read by the name `_unpickler` of `distributed_c10d` (torch 2.6 to 2.14).
    """
    dist.distributed_c10d._unpickler = PlainUnpickler  # noqa: SLF001 -- no public name


def bounded(torch: ModuleType, call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a call of torch in which no tensor is made, or grown, to more than MOST_BYTES.

    The sizes that arrive are used in `torch.empty` and `Tensor.resize_`, and nowhere else.
    """
    from torch.overrides import TorchFunctionMode  # noqa: PLC0415 -- in the worker alone

    class Bounded(TorchFunctionMode):
        def __torch_function__(
            self,
            func: Callable[..., Any],
            types: object,
            args: tuple[Any, ...] = (),
            kwargs: dict[str, Any] | None = None,
        ) -> Any:  # noqa: ANN401 -- whatever torch returns
            if func is torch.empty:
                refuse(args)
            elif func is torch.Tensor.resize_:
                refuse(args[1:])
            return func(*args, **(kwargs or {}))

    def within(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 -- as torch's
        with Bounded():
            return call(*args, **kwargs)

    return within


def refuse(sizes: tuple[Any, ...]) -> None:
    """Raise RuntimeError where a tensor of bytes would be negative or too large."""
    total = 1
    for size in sizes:
        for each in size if isinstance(size, tuple | list) else (size,):
            total *= int(each)
            if not 0 <= total <= MOST_BYTES:
                message = (
                    f"an object collective was sent a size of {int(each)} bytes, and takes at most "
                    f"{MOST_BYTES}: what arrived is no object"
                )
                raise RuntimeError(message)
