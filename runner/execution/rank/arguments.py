"""A call's evaluated arguments as torch takes them: converted by kind, never by operation."""

from __future__ import annotations

from datetime import timedelta
from inspect import signature
from typing import TYPE_CHECKING, Any

from runner.operations.base import GroupCreation
from runner.operations.entries import PremulSum
from runner.plan import WORLD

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from runner.call import Call
    from runner.execution.rank.world import World
    from runner.operations.params import Param


def convert(world: World, call: Call) -> dict[str, Any]:
    """Return torch's arguments for a call.

    What the author left out and what has no default is left out here too; a name that has no value
    on this rank is passed as None.
    """
    assert call.operation is not None  # noqa: S101 -- an `expect` alone calls nothing
    converted: dict[str, Any] = {}
    given, stated = call.entry.arguments, call.step.arguments
    for param in call.operation.params:
        name, kind = param.name, param.kind
        value = given.get(name)
        if value is None:
            if kind == "seconds":
                value = _own_timeout(world.dist, call, param)
            if value is None:
                if name in stated:
                    converted[name] = None
                continue
        change = CHANGES.get(kind)
        converted[name] = value if change is None else change(world, value)
    return converted


def _own_timeout(dist: ModuleType, call: Call, param: Param) -> float | None:
    """Return the group's timeout for a call that would fall back on torch's own 30 minutes.

    `monitored_barrier`, `new_group` and the subgroups do not inherit the world's timeout.
    """
    if isinstance(call.operation, GroupCreation):
        return call.entry.group.timeout_s
    function = getattr(dist, call.operation.name, None) if call.operation else None
    if function is None or param.name not in signature(function).parameters:
        return None
    return call.entry.group.timeout_s


def reduce_op(world: World, op: str | PremulSum) -> Any:  # noqa: ANN401 -- torch's ReduceOp
    """Return torch's reduce op for a name, or for a sum of scaled contributions."""
    if isinstance(op, PremulSum):
        return world.torch._C._distributed_c10d._make_nccl_premul_sum(op.factor)  # noqa: SLF001 -- the only maker
    return getattr(world.dist.ReduceOp, op.upper())


def p2p_ops(world: World, operations: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the items of `batch_isend_irecv` with the handle of each one's group."""
    return [
        {
            **item,
            "group": None if item.get("group") is None else world.handle(item["group"]),
        }
        for item in operations
    ]


CHANGES: dict[str, Callable[[World, Any], Any]] = {
    "group": lambda world, name: world.handle(WORLD if name is None else name),
    "reduce_op": reduce_op,
    "seconds": lambda _, seconds: timedelta(seconds=float(seconds)),
    "p2p_ops": p2p_ops,
}
