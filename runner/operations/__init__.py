"""The operations, one file each, in one explicit table.

To add one: read a neighbour, write its file, add it to `OPERATIONS`. The schema, the validation,
the step reference, the simulator, the worker and the contract tests follow from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.operations.all_reduce import AllReduce
from runner.operations.broadcast import Broadcast
from runner.operations.compute import Compute
from runner.operations.send import Send
from runner.operations.wait import Wait

if TYPE_CHECKING:
    from runner.operations.base import Operation

OPERATIONS: tuple[Operation, ...] = (
    Send(),
    Broadcast(),
    AllReduce(),
    Wait(),
    Compute(),
)

#: every name that a scenario may use, older and newer ones alike
BY_NAME: dict[str, Operation] = {
    name: operation for operation in OPERATIONS for name in (operation.name, *operation.aliases)
}
