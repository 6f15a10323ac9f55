"""`torch.distributed.rpc`: read whole, and left out.

A call runs a function of the file on another rank, at any point between its arrival and its return:
which orders end differently is not explored here, and no process runs it.
"""

from __future__ import annotations

from typing import ClassVar

from torch_scenarios.expressions.params import Param, tensors
from torch_scenarios.operations.base import Operation

#: why no scenario has it
LACKING = (
    "`{}` runs a function on the rank that it calls, next to that rank's own steps: which orders of"
    " these end differently is not explored yet, and no process runs it; what it computes is a"
    " `send` there, a `compute` and a `send` back"
)

TO = Param(name="to", kind="rank", required=True, description="The rank that is called.")
FUNC = Param(
    name="func",
    kind="function",
    required=True,
    description="The function of `functions:` that runs there.",
)
ARGS = tensors("args", "What it is given.", required=False)
TIMEOUT = Param(name="timeout", kind="seconds", description="How long the call may take.")
OUTPUT = Param(name="output", kind="name", description="The name under which the result is held.")


class LeftOut(Operation):
    """What torch has, and no scenario: a case that has such a step is UNSUPPORTED."""

    example = ""

    @property
    def lacking(self) -> str:
        """Why not."""
        return LACKING.format(self.name)


class RpcSync(LeftOut):
    """Call a function on another rank, and wait for what it returns: left out, UNSUPPORTED."""

    name = "rpc_sync"
    params = (TO, FUNC, ARGS, TIMEOUT, OUTPUT)
    source = "torch.distributed.rpc.rpc_sync"


class RpcAsync(LeftOut):
    """Call a function on another rank; its `wait` has the `output`: left out, UNSUPPORTED."""

    name = "rpc_async"
    params = (TO, FUNC, ARGS, TIMEOUT)
    source = "torch.distributed.rpc.rpc_async"
    asynchronous: ClassVar[bool] = True


class Remote(LeftOut):
    """Let another rank keep what a function returns there: left out, UNSUPPORTED."""

    name = "remote"
    params = (TO, FUNC, ARGS, TIMEOUT)
    source = "torch.distributed.rpc.remote"
    asynchronous: ClassVar[bool] = True


class ToHere(LeftOut):
    """Fetch what another rank keeps: left out, UNSUPPORTED."""

    name = "to_here"
    params = (
        Param(name="rref", kind="reference", required=True, description="What `remote` returned."),
        TIMEOUT,
        OUTPUT,
    )
    source = "torch.distributed.rpc.RRef.to_here"
