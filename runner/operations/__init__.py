"""The operations, one file each, in one explicit table.

To add one: read a neighbour, write its file, add it to `OPERATIONS`. The schema, the validation,
the step reference, the simulator, the worker and the contract tests follow from it.
"""

from __future__ import annotations

from runner.operations.all_gather import AllGather
from runner.operations.all_gather_coalesced import AllGatherCoalesced
from runner.operations.all_gather_object import AllGatherObject
from runner.operations.all_gather_single import AllGatherSingle
from runner.operations.all_reduce import AllReduce
from runner.operations.all_reduce_coalesced import AllReduceCoalesced
from runner.operations.all_to_all import AllToAll
from runner.operations.all_to_all_single import AllToAllSingle
from runner.operations.barrier import Barrier
from runner.operations.base import Operation
from runner.operations.batch_isend_irecv import BatchISendIRecv
from runner.operations.broadcast import Broadcast
from runner.operations.broadcast_object_list import BroadcastObjectList
from runner.operations.compute import Compute
from runner.operations.destroy_process_group import DestroyProcessGroup
from runner.operations.distribute_tensor import DistributeTensor
from runner.operations.fault import Fault
from runner.operations.from_local import FromLocal
from runner.operations.full_tensor import FullTensor
from runner.operations.gather import Gather
from runner.operations.gather_object import GatherObject
from runner.operations.join import Join
from runner.operations.let import Let
from runner.operations.load import Load
from runner.operations.monitored_barrier import MonitoredBarrier
from runner.operations.new_group import NewGroup
from runner.operations.recv import IRecv, Recv
from runner.operations.recv_object_list import RecvObjectList
from runner.operations.redistribute import Redistribute
from runner.operations.reduce import Reduce
from runner.operations.reduce_scatter import ReduceScatter
from runner.operations.reduce_scatter_single import ReduceScatterSingle
from runner.operations.rpc import LeftOut, Remote, RpcAsync, RpcSync, ToHere
from runner.operations.save import Save
from runner.operations.scatter import Scatter
from runner.operations.scatter_object_list import ScatterObjectList
from runner.operations.send import ISend, Send
from runner.operations.send_object_list import SendObjectList
from runner.operations.sleep import Sleep
from runner.operations.train import Train
from runner.operations.wait import Wait

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
    Wait(),
    Compute(),
    Let(),
    Sleep(),
    Fault(),
)

#: what torch has and no scenario: known, so that a file that asks for it is UNSUPPORTED
LEFT_OUT: tuple[LeftOut, ...] = (RpcSync(), RpcAsync(), Remote(), ToHere())

#: every name that a scenario may use, older and newer ones alike
BY_NAME: dict[str, Operation] = {
    name: operation
    for operation in (*OPERATIONS, *LEFT_OUT)
    for name in (operation.name, *operation.aliases)
}
