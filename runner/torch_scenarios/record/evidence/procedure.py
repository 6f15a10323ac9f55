"""Calls of a rank that go past torch's collectives: where it waits in them, and not judged.

What `torch.distributed.rpc` sends goes past the kernels of `c10d`. So its functions that wait are
calls that may block, as `new_group` is, with the function and the worker that they name. The wait
for a future of `rpc_async` is not written, whose class is closed. This runs in the user's own
process: it imports the standard library alone.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

#: what a call is named by in a record
NAMES = ("init_rpc", "rpc_sync", "rpc_async", "remote", "shutdown")
PREFIX = "rpc."


def watch_calls(module: Any, inside: Callable[[str], Any]) -> None:
    """Let a record have the calls of `torch.distributed.rpc` from now on.

    `inside` gives a context that a call is in, by its name.
    """
    for name in NAMES:
        function = getattr(module, name, None)
        if function is not None:
            # its own functions call each other in its module `api`: they are not the script's
            setattr(module, name, watch(function, f"{PREFIX}{name}", inside))
    if hasattr(module, "RRef"):
        module.RRef.to_here = watch(module.RRef.to_here, f"{PREFIX}to_here", inside)


def watch(
    function: Callable[..., Any], name: str, inside: Callable[[str], Any]
) -> Callable[..., Any]:
    """Return a function whose calls are in a record under a name."""

    @functools.wraps(function)
    def watch_call(*args: Any, **kwargs: Any) -> Any:
        more = _name_callee(args) or _name_worker(name, args, kwargs)
        with inside(name + more):
            return function(*args, **kwargs)

    return watch_call


#: where `init_rpc` takes the number of its workers
_WORLD_SIZE = 3


def _name_worker(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Return as which worker of how many a rank begins; nothing of other calls."""
    own = args[0] if args else kwargs.get("name")
    if name != f"{PREFIX}init_rpc" or not isinstance(own, str):
        return ""
    size = args[_WORLD_SIZE] if len(args) > _WORLD_SIZE else kwargs.get("world_size")
    size = os.environ.get("WORLD_SIZE") if size is None else size
    return f" as {own[:MOST_NAME]} of {size}"


#: characters of the name of a function or a worker
MOST_NAME = 60


def _name_callee(args: tuple[Any, ...]) -> str:
    """Return which function a call runs, and on which worker; nothing of other calls."""
    if len(args) < 2 or not callable(args[1]):
        return ""
    worker = getattr(args[0], "name", args[0])
    function = getattr(args[1], "__name__", "")
    return f" of `{str(function)[:MOST_NAME]}` on {str(worker)[:MOST_NAME]}"


#: where Ray's workers meet past torch: the modules, the class in them or nothing, the functions
_WORKERS_MEET_IN = (
    ("context", "TrainContext", ("_sync_checkpoint_dir_name_across_ranks",)),
    ("collective_impl", "", ("barrier", "broadcast_from_rank_zero")),
)
_OF_RAY = "ray.train.v2._internal.execution."


def watch_workers_of_ray(write: Callable[[], None]) -> None:
    """Let a rank `write` what it has decided before it waits for the others in a call of Ray's.

    No call of torch may follow, before which it would be written.
    """
    for module, kind, names in _WORKERS_MEET_IN:
        loaded: Any = sys.modules.get(f"{_OF_RAY}{module}")
        holder = getattr(loaded, kind, None) if kind else loaded
        for name in names:
            function = getattr(holder, name, None)
            if function is not None and not hasattr(function, "__wrapped__"):
                setattr(holder, name, _write_first(function, write))


def _write_first(function: Callable[..., Any], write: Callable[[], None]) -> Callable[..., Any]:
    """Return a function that writes what a rank has decided, and then does what it does."""

    @functools.wraps(function)
    def write_and_call(*args: Any, **kwargs: Any) -> Any:
        write()
        return function(*args, **kwargs)

    return write_and_call
