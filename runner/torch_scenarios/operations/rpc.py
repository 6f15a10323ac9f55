"""`torch.distributed.rpc`: a rank asks another one to run a function of the file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from torch_scenarios.expressions.params import Param, tensors
from torch_scenarios.expressions.values import Form
from torch_scenarios.operations.base import (
    Caller,
    Departure,
    Entry,
    Refusal,
    RemoteCall,
    Waiting,
    name_outsider,
)
from torch_scenarios.operations.checks import refuse_none
from torch_scenarios.operations.wait import output_of, parts_of

TO = Param(name="to", kind="rank", required=True, description="The rank that is called.")
FUNC = Param(
    name="func",
    kind="function",
    required=True,
    description="The function of `functions:` that runs there.",
)
ARGS = tensors("args", "What it is given, in the order of its `arguments`.", required=False)
TIMEOUT = Param(
    name="timeout",
    kind="seconds",
    description="How long the call may take; the scenario's `timeout` if left out.",
)
OUTPUT = Param(name="output", kind="name", description="The name under which the result is held.")

_SERVER = """\
world_size: 2
tensors: {w: {0: [1, 2]}, g: [1, 1]}
functions:
  push: {arguments: [g], sets: {w: "w - g"}, returns: w}
"""


class RpcCall(RemoteCall):
    """What the three calls of a function have in common."""

    params: ClassVar[tuple[Param, ...]] = (TO, FUNC, ARGS, TIMEOUT)

    def label(self, entry: Entry) -> str:
        """`rpc_sync push on 0`."""
        return f"{self.name} {entry['func']} on {entry['to']}"

    def refuse(self, entry: Entry) -> Refusal | None:
        """Refuse no rank, and one that the world lacks."""
        to = entry["to"]
        if to is None:
            return refuse_none("to")
        if 0 <= to < entry.size:
            return None
        return Refusal(kind="invalid_argument", message=name_outsider(entry, "to", to))

    def callee(self, entry: Entry) -> tuple[int, str]:
        """`to` and `func`."""
        return int(entry["to"]), str(entry["func"])


class RpcSync(RpcCall):
    """Call a function on another rank, and wait until it has run there.

    It runs at one time between the arrival of the call and its return, next to the steps of that
    rank: see [functions](language.md#functions).
    """

    name = "rpc_sync"
    params = (*RpcCall.params, OUTPUT)
    source = "torch.distributed.rpc.rpc_sync"
    example = f"""{_SERVER}\
steps:
  - ranks: 1
    rpc_sync: {{to: 0, func: push, args: [g], output: fresh}}
    expect:
      fresh: [0, 1]
expect:
  w: {{0: [0, 1]}}
"""

    def introduces(self, given: Mapping[str, Form]) -> tuple[str, ...]:
        """The output."""
        return output_of(given)


class RpcAsync(RpcCall):
    """Call a function on another rank, and go on; a `wait` has its result as `output`."""

    name = "rpc_async"
    source = "torch.distributed.rpc.rpc_async"
    asynchronous: ClassVar[bool] = True
    example = f"""{_SERVER}\
steps:
  - ranks: 1
    rpc_async: {{to: 0, func: push, args: [g]}}
    as: pushed
  - wait: {{handle: pushed, output: fresh}}
    expect:
      fresh: [0, 1]
"""


class Remote(RpcCall):
    """Call a function on another rank, which keeps the result; `to_here` fetches it.

    Whether `to_here` raises where the function takes longer than the `timeout` is open: torch calls
    its handling of such errors best effort.
    """

    name = "remote"
    source = "torch.distributed.rpc.remote"
    asynchronous: ClassVar[bool] = True
    keeps_there: ClassVar[bool] = True
    example = f"""{_SERVER}\
steps:
  - ranks: 1
    remote: {{to: 0, func: push, args: [g]}}
    as: kept
  - to_here: {{rref: kept, output: fresh}}
    expect:
      fresh: [0, 1]
"""


class ToHere(Waiting):
    """Fetch what another rank keeps, once its function has run; as often as one likes."""

    name = "to_here"
    params = (
        Param(name="rref", kind="reference", required=True, description="What `remote` returned."),
        TIMEOUT,
        OUTPUT,
    )
    source = "torch.distributed.rpc.RRef.to_here"
    example = Remote.example

    def label(self, entry: Entry) -> str:
        """`to_here kept`."""
        return "to_here " + ", ".join(self.handles(entry))

    def concerns(self, caller: Caller, given: Mapping[str, Form]) -> bool:
        """A rank that has no such reference skips the step."""
        return not caller.handles.isdisjoint(parts_of(caller.evaluate(given["rref"])))

    def handles(self, entry: Entry) -> tuple[str, ...]:
        """Return the reference."""
        return parts_of(entry["rref"])

    def introduces(self, given: Mapping[str, Form]) -> tuple[str, ...]:
        """The output."""
        return output_of(given)


class Shutdown(Departure):
    """Serve until all ranks have come to their end, and leave the RPC world."""

    name = "rpc.shutdown"
    source = "torch.distributed.rpc.shutdown"
    example = ""
