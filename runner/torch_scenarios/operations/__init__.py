"""The operations, one file each, in one explicit table.

To add one: read a neighbour, write its file, add it to `OPERATIONS`, and write a file of
`scenarios/` that runs it. The schema, the validation, the step reference, the simulator, the worker
and the contract tests follow from it (docs/how-to/operation.md).
"""

from __future__ import annotations

from torch_scenarios.operations.all_gather import AllGather
from torch_scenarios.operations.all_gather_coalesced import AllGatherCoalesced
from torch_scenarios.operations.all_gather_object import AllGatherObject
from torch_scenarios.operations.all_gather_single import AllGatherSingle
from torch_scenarios.operations.all_reduce import AllReduce
from torch_scenarios.operations.all_reduce_coalesced import AllReduceCoalesced
from torch_scenarios.operations.all_to_all import AllToAll
from torch_scenarios.operations.all_to_all_single import AllToAllSingle
from torch_scenarios.operations.barrier import Barrier
from torch_scenarios.operations.base import Operation
from torch_scenarios.operations.batch_isend_irecv import BatchISendIRecv
from torch_scenarios.operations.broadcast import Broadcast
from torch_scenarios.operations.broadcast_object_list import BroadcastObjectList
from torch_scenarios.operations.compute import Compute
from torch_scenarios.operations.destroy_process_group import DestroyProcessGroup
from torch_scenarios.operations.distribute_tensor import DistributeTensor
from torch_scenarios.operations.fault import Fault
from torch_scenarios.operations.from_local import FromLocal
from torch_scenarios.operations.full_tensor import FullTensor
from torch_scenarios.operations.gather import Gather
from torch_scenarios.operations.gather_object import GatherObject
from torch_scenarios.operations.join import Join
from torch_scenarios.operations.let import Let
from torch_scenarios.operations.load import Load
from torch_scenarios.operations.monitored_barrier import MonitoredBarrier
from torch_scenarios.operations.new_group import NewGroup
from torch_scenarios.operations.recv import IRecv, Recv
from torch_scenarios.operations.recv_object_list import RecvObjectList
from torch_scenarios.operations.redistribute import Redistribute
from torch_scenarios.operations.reduce import Reduce
from torch_scenarios.operations.reduce_scatter import ReduceScatter
from torch_scenarios.operations.reduce_scatter_single import ReduceScatterSingle
from torch_scenarios.operations.rpc import Remote, RpcAsync, RpcSync, Shutdown, ToHere
from torch_scenarios.operations.save import Save
from torch_scenarios.operations.scatter import Scatter
from torch_scenarios.operations.scatter_object_list import ScatterObjectList
from torch_scenarios.operations.send import ISend, Send
from torch_scenarios.operations.send_object_list import SendObjectList
from torch_scenarios.operations.sleep import Sleep
from torch_scenarios.operations.train import Train
from torch_scenarios.operations.wait import Wait

OPERATIONS: tuple[Operation, ...] = (
    Send(),
    Recv(),
    ISend(),
    IRecv(),
    BatchISendIRecv(),
    Broadcast(),
    AllReduce(),
    Reduce(),
    AllGather(),
    AllGatherSingle(),
    Gather(),
    Scatter(),
    ReduceScatter(),
    ReduceScatterSingle(),
    AllToAll(),
    AllToAllSingle(),
    Barrier(),
    MonitoredBarrier(),
    BroadcastObjectList(),
    AllGatherObject(),
    GatherObject(),
    ScatterObjectList(),
    SendObjectList(),
    RecvObjectList(),
    AllReduceCoalesced(),
    AllGatherCoalesced(),
    NewGroup(),
    DestroyProcessGroup(),
    DistributeTensor(),
    Redistribute(),
    FullTensor(),
    FromLocal(),
    Train(),
    Join(),
    Save(),
    Load(),
    RpcSync(),
    RpcAsync(),
    Remote(),
    ToHere(),
    Wait(),
    Compute(),
    Let(),
    Sleep(),
    Fault(),
)

#: what a program does and no file writes, by name
IMPLIED: dict[str, Operation] = {each.name: each for each in (Shutdown(),)}

#: what c10d's dispatcher calls an operation -> torch's public name
C10D: dict[str, str] = {
    name: operation.name for operation in reversed(OPERATIONS) for name in operation.c10d
}

#: every name that a scenario may use, older and newer ones alike
BY_NAME: dict[str, Operation] = {
    name: operation for operation in OPERATIONS for name in (operation.name, *operation.aliases)
}


def kind_of(name: str) -> str:
    """Return what an operation is whatever the form of its tensors; another word as it is."""
    return BY_NAME[name].kind if name in BY_NAME else name
