"""`torch.distributed.rpc`: known by torch's names and arguments, and left out.

A call runs a function of another rank on a thread of its own there: what it reads depends on when
it comes, and ranks here take one step after the other.
"""

from __future__ import annotations

from typing import ClassVar

from torch_scenarios.expressions.params import Param, tensor, tensors
from torch_scenarios.operations.base import Operation

#: why no scenario has it
LACKING = (
    "`{}` runs on a thread of the rank that it calls, and a rank takes one step after the other"
    " here; what it computes is a `send` there, a `compute` and a `send` back"
)

TO = Param(name="to", kind="rank", required=True, description="The rank that is called.")
FUNC = tensor("func", "What it computes: an expression over the tensors that it holds.")
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
    """Call a function on another rank; `wait` has what it returns: left out, UNSUPPORTED."""

    name = "rpc_async"
    params = (TO, FUNC, ARGS, TIMEOUT, OUTPUT)
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
        Param(name="rref", kind="handles", required=True, description="What `remote` started."),
        TIMEOUT,
        OUTPUT,
    )
    source = "torch.distributed.rpc.RRef.to_here"
