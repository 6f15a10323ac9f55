"""The calls of a program on MPI: each is one nonblocking call of MPI's, by torch's name.

A rank's program hands its calls to `torch.distributed`; here it hands them to this module, which
has the functions that MPI has a word for. Tensors are NumPy arrays, process groups communicators.
What MPI has no word for (AVG, a timeout, several tensors in one collective) is not here, and a call
of it raises what Python raises.

A call that blocks starts its nonblocking twin and tests it until it is done. MPI 4.1 defines both
by the same completion (3.7, 6.12), and so a call that hangs can be broken off, and ranks that wait
leave the processors to others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from mpi4py import MPI

from torch_scenarios.worker import framework
from torch_scenarios.worker.framework import (
    Array,
    GroupMember,
    PolledWork,
    deal,
    do_nothing,
    flatten,
    group,
    join,
    rank_in,
    store,
)

#: several messages that start together, by torch's names
P2POp, batch_isend_irecv = framework.P2POp, framework.batch_isend_irecv
#: what starts a call: MPI's requests, one for each message
Start: TypeAlias = Callable[[], list[MPI.Request]]

#: NumPy's dtypes and MPI's; what MPI lacks (half, bfloat16, float8) it moves as bytes
DATATYPES = {
    "int8": MPI.INT8_T,
    "int16": MPI.INT16_T,
    "int32": MPI.INT32_T,
    "int64": MPI.INT64_T,
    "uint8": MPI.UINT8_T,
    "uint16": MPI.UINT16_T,
    "uint32": MPI.UINT32_T,
    "uint64": MPI.UINT64_T,
    "float32": MPI.FLOAT,
    "float64": MPI.DOUBLE,
    "complex64": MPI.C_FLOAT_COMPLEX,
    "complex128": MPI.C_DOUBLE_COMPLEX,
    "bool": MPI.C_BOOL,
}


class ReduceOp:
    """MPI's reductions, by torch's names. MPI has no average.

    An average is a sum and a division, and where a backend divides first it rounds otherwise. So
    AVG is left out and not imitated.
    """

    SUM, PRODUCT, MIN, MAX = MPI.SUM, MPI.PROD, MPI.MIN, MPI.MAX
    BAND, BOR, BXOR = MPI.BAND, MPI.BOR, MPI.BXOR


class Communicator:
    """A process group: MPI's communicator, and the ranks of the world in the order of its ranks.

    A communicator is also a space of its own for tags: messages of two groups never meet (MPI 4.1,
    chapter 7), as in torch.
    """

    def __init__(self, comm: MPI.Comm, ranks: Sequence[int]) -> None:
        """Hold a communicator of these ranks."""
        self.comm = comm
        self.ranks = tuple(ranks)


#: requests that no call waits for any more, with their memory: MPI may still write to it
LEFT: list[Any] = []


# -------------------------------------------------------------------------------------------------
# Work: some requests, what they read and write, and what follows once they are done.


class MpiWork(PolledWork):
    """A call under way.

    It holds the memory that MPI writes to until the request is complete. A request that was broken
    off keeps it for good (`LEFT`): MPI may still write there.
    """

    def __init__(self, start: Start, held: Any, then: Callable[[], None] = lambda: None) -> None:
        """Start it. `held` lives as long as MPI uses it; `then` stores what came where it belongs.

        Raises what stands for MPI's error.
        """
        self._held = held
        self._then = then
        self._requests: list[MPI.Request] = []
        self.source = -1
        try:
            self._requests = start()
        except MPI.Exception as error:
            raise _explain(error) from error

    def __del__(self) -> None:
        """Keep for MPI what it has not done yet."""
        if self._requests:
            LEFT.append((self._requests, self._held))

    def is_completed(self) -> bool:
        """Test once. Raises what stands for MPI's error."""
        status = MPI.Status()
        try:
            while self._requests:
                if not self._requests[0].Test(status):
                    return False
                self.source = status.Get_source()
                self._requests.pop(0)
        except MPI.Exception as error:
            self._requests.pop(0)
            raise _explain(error) from error
        then, self._then = self._then, do_nothing
        then()
        return True


#: MPI's classes of errors that say what a kind of `raises:` says, each with the error of that kind
_REFUSED = {
    MPI.ERR_OP: NotImplementedError,
    MPI.ERR_TYPE: NotImplementedError,
    MPI.ERR_ROOT: ValueError,
    MPI.ERR_RANK: ValueError,
    MPI.ERR_TAG: ValueError,
    MPI.ERR_COUNT: ValueError,
    MPI.ERR_ARG: ValueError,
    MPI.ERR_BUFFER: ValueError,
}


def _explain(error: MPI.Exception) -> Exception:
    """Return what a program gets for an error of MPI's, with MPI's own words."""
    number = error.Get_error_class()
    words = f"MPI: {error.Get_error_string()}"
    if number == MPI.ERR_TRUNCATE:
        return RuntimeError(f"{words} (the sizes must have the same size: MPI_ERR_TRUNCATE)")
    if number == MPI.ERR_COMM:
        return ValueError(f"{words} (this rank is not part of the group: MPI_COMM_NULL)")
    return _REFUSED.get(number, RuntimeError)(words)


# -------------------------------------------------------------------------------------------------
# Memory: what MPI reads and writes lies in a row.


def _make_buffer(row: Array, *parts: Any) -> list[Any]:
    """Return a buffer as MPI gets it: of its own datatype, or of bytes where MPI has none.

    `parts` are counts and displacements, in elements.
    """
    datatype = DATATYPES.get(row.dtype.name)
    if datatype is not None:
        return [row, *parts, datatype]
    scaled = [[each * row.itemsize for each in part] for part in parts]
    return [row.view(np.uint8), *scaled, MPI.BYTE]


def _make_operand(row: Array) -> list[Any]:
    """Return a buffer that MPI computes with. Raises NotImplementedError for a dtype it lacks."""
    buffer = _make_buffer(row)
    if buffer[-1] is MPI.BYTE:
        message = f"MPI has no datatype for {row.dtype.name}, and so it computes nothing with it"
        raise NotImplementedError(message)
    return buffer


def _cut(rows: Sequence[int], row: Array) -> list[Any]:
    """Return a buffer that is cut into parts of these sizes, one after the other.

    Raises ValueError where they go beyond its end, which MPI does not look at.
    """
    if min(rows, default=0) < 0:
        message = f"no part has a negative number of elements, as in {list(rows)}"
        raise ValueError(message)
    if sum(rows) > row.size:
        message = f"incorrect size: parts of {list(rows)} go beyond the end of {row.size} elements"
        raise ValueError(message)
    places = [0, *np.cumsum(rows)[:-1].tolist()] if rows else []
    return _make_buffer(row, list(rows), places)


# -------------------------------------------------------------------------------------------------
# Groups: communicators, and ranks of the world in them.


def _comm_of(known: Any) -> MPI.Comm:
    """Return the communicator of a group: the world's for None, MPI_COMM_NULL for no member."""
    if isinstance(known, int):
        return MPI.COMM_NULL
    chosen = group.WORLD if known is None else known
    return MPI.COMM_NULL if chosen is None else chosen.comm


def _rank_in(known: Any, world: int | None, inside: int | None) -> int:
    """Return the rank of a communicator that a program means by one spelling or the other.

    A rank of the world that is not in it is MPI_UNDEFINED, as MPI_Group_translate_ranks has it.
    """
    chosen = group.WORLD if known is None else known
    ranks = () if chosen is None or isinstance(chosen, int) else chosen.ranks
    found = rank_in(ranks, world, inside)
    return MPI.UNDEFINED if found is None else found


def __getattr__(name: str) -> Any:
    """Raise AttributeError for a function of torch's that is not here."""
    message = f"`{name}` is not supported: MPI has no word for it"
    raise AttributeError(message)


def _member(comm: MPI.Comm, ranks: Sequence[int]) -> Any:
    """Return a new group as the ranks hold it that are members, and as the others do."""
    if comm == MPI.COMM_NULL:
        return GroupMember.NON_GROUP_MEMBER
    return Communicator(comm, ranks)


def new_group(
    ranks: list[int] | None = None,
    timeout: object = None,
    backend: str | None = None,
    *,
    sort_ranks: bool = True,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
) -> Any:
    """Create a group: MPI_Comm_create of the world, or of the members alone."""
    if backend is not None:
        message = f"MPI is not supported by the backend {backend}: it is one by itself"
        raise NotImplementedError(message)
    world = group.WORLD
    if world is None:
        message = "there is no world: its communicator was freed"
        raise ValueError(message)
    wanted = list(world.ranks) if ranks is None else list(ranks)
    wanted = sorted(wanted) if sort_ranks else wanted
    chosen = world.comm.Get_group().Incl(wanted)
    try:
        if not use_local_synchronization:
            return _member(world.comm.Create(chosen), wanted)
        if world.comm.Get_rank() not in wanted:
            return GroupMember.NON_GROUP_MEMBER
        assert isinstance(world.comm, MPI.Intracomm)
        return _member(world.comm.Create_group(chosen), wanted)
    except MPI.Exception as error:
        raise _explain(error) from error


def split(parts: Sequence[Sequence[int]]) -> Any:
    """Create a group of each part of the world: MPI_Comm_split."""
    world = group.WORLD
    assert world is not None
    own = world.comm.Get_rank()
    colour = next((at for at, part in enumerate(parts) if own in part), None)
    place = 0 if colour is None else list(parts[colour]).index(own)
    made = world.comm.Split(MPI.UNDEFINED if colour is None else colour, place)
    return _member(made, () if colour is None else parts[colour])


def destroy_process_group(group: Any = None) -> None:
    """Free a communicator; without one, the world's."""
    comm = _comm_of(group)
    if comm == MPI.COMM_NULL:
        message = "the communicator is MPI_COMM_NULL: an invalid process group specified"
        raise ValueError(message)
    comm.Free()


def get_rank(known: Any = None) -> int:
    """Return MPI_Comm_rank; -1 for no member."""
    comm = _comm_of(known)
    return -1 if comm == MPI.COMM_NULL else comm.Get_rank()


def get_world_size(known: Any = None) -> int:
    """Return MPI_Comm_size; -1 for no member."""
    comm = _comm_of(known)
    return -1 if comm == MPI.COMM_NULL else comm.Get_size()


def get_process_group_ranks(known: Any) -> list[int]:
    """Return the ranks of the world in a group."""
    chosen = group.WORLD if known is None else known
    return [] if chosen is None or isinstance(chosen, int) else list(chosen.ranks)


# -------------------------------------------------------------------------------------------------
# Messages.


def isend(
    tensor: Array,
    dst: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> MpiWork:
    """MPI_Isend, in the standard mode: MPI may buffer it or not."""
    comm, peer, row = _comm_of(group), _rank_in(group, dst, group_dst), flatten(tensor)
    return MpiWork(lambda: [comm.Isend(_make_buffer(row), peer, tag)], row)


def irecv(
    tensor: Array,
    src: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_src: int | None = None,
) -> MpiWork:
    """MPI_Irecv, from MPI_ANY_SOURCE where no source is given."""
    anyone = src is None and group_src is None
    peer = MPI.ANY_SOURCE if anyone else _rank_in(group, src, group_src)
    comm, row = _comm_of(group), flatten(tensor)
    return MpiWork(
        lambda: [comm.Irecv(_make_buffer(row), peer, tag)], row, lambda: store(tensor, row)
    )


def send(tensor: Array, dst: int | None = None, **given: Any) -> None:
    """MPI_Send."""
    isend(tensor, dst, **given).wait()


def recv(tensor: Array, src: int | None = None, **given: Any) -> int:
    """MPI_Recv; returns whose message it was."""
    work = irecv(tensor, src, **given)
    work.wait()
    return get_process_group_ranks(given.get("group"))[work.source]


# -------------------------------------------------------------------------------------------------
# Collectives.


def barrier(group: Any = None, *, async_op: bool = False) -> PolledWork | None:
    """MPI_Ibarrier."""
    comm = _comm_of(group)
    return MpiWork(lambda: [comm.Ibarrier()], None).finish(async_op=async_op)


def broadcast(
    tensor: Array,
    src: int | None = None,
    group: Any = None,
    *,
    async_op: bool = False,
    group_src: int | None = None,
) -> PolledWork | None:
    """MPI_Ibcast."""
    comm, root, row = _comm_of(group), _rank_in(group, src, group_src), flatten(tensor)
    work = MpiWork(lambda: [comm.Ibcast(_make_buffer(row), root)], row, lambda: store(tensor, row))
    return work.finish(async_op=async_op)


def all_reduce(
    tensor: Array, op: MPI.Op = MPI.SUM, group: Any = None, *, async_op: bool = False
) -> PolledWork | None:
    """MPI_Iallreduce, in place."""
    comm, row = _comm_of(group), flatten(tensor)
    buffer = _make_operand(row)
    start = partial(_start_one, comm.Iallreduce, MPI.IN_PLACE, buffer, op)
    return MpiWork(start, row, lambda: store(tensor, row)).finish(async_op=async_op)


def reduce(
    tensor: Array,
    dst: int | None = None,
    op: MPI.Op = MPI.SUM,
    group: Any = None,
    *,
    async_op: bool = False,
    group_dst: int | None = None,
) -> PolledWork | None:
    """MPI_Ireduce, in place on the root; the others keep what they have."""
    comm, root, row = _comm_of(group), _rank_in(group, dst, group_dst), flatten(tensor)
    buffer = _make_operand(row)
    if get_rank(group) == root:
        work = MpiWork(
            lambda: [comm.Ireduce(MPI.IN_PLACE, buffer, op, root)], row, lambda: store(tensor, row)
        )
    else:
        work = MpiWork(lambda: [comm.Ireduce(buffer, None, op, root)], row)
    return work.finish(async_op=async_op)


def gather(
    tensor: Array,
    gather_list: list[Array] | None = None,
    dst: int | None = None,
    group: Any = None,
    *,
    async_op: bool = False,
    group_dst: int | None = None,
) -> PolledWork | None:
    """MPI_Igatherv: the root takes of each member as much as the place for it has."""
    dst = 0 if dst is None and group_dst is None else dst
    comm, root, row = _comm_of(group), _rank_in(group, dst, group_dst), flatten(tensor)
    if get_rank(group) != root:
        work = MpiWork(lambda: [comm.Igatherv(_make_buffer(row), None, root)], row)
        return work.finish(async_op=async_op)
    places = gather_list or []
    whole = _room(places, tensor)
    taken = _cut([each.size for each in places], whole)
    work = MpiWork(
        lambda: [comm.Igatherv(_make_buffer(row), taken, root)],
        (row, whole),
        lambda: deal(places, whole),
    )
    return work.finish(async_op=async_op)


def scatter(
    tensor: Array,
    scatter_list: list[Array] | None = None,
    src: int | None = None,
    group: Any = None,
    *,
    async_op: bool = False,
    group_src: int | None = None,
) -> PolledWork | None:
    """MPI_Iscatterv: each member takes as much as it has room for."""
    src = 0 if src is None and group_src is None else src
    comm, root, row = _comm_of(group), _rank_in(group, src, group_src), flatten(tensor)
    given: Any = None
    if get_rank(group) == root:
        parts = scatter_list or []
        given = _cut([each.size for each in parts], join(parts) if parts else row[:0])
    work = MpiWork(
        lambda: [comm.Iscatterv(given, _make_buffer(row), root)],
        (row, given),
        lambda: store(tensor, row),
    )
    return work.finish(async_op=async_op)


def _room(arrays: Sequence[Array], like: Array) -> Array:
    """Return memory for the elements of some arrays, in a row."""
    dtype = arrays[0].dtype if arrays else like.dtype
    return np.empty(sum(each.size for each in arrays), dtype)


def all_gather(
    tensor_list: list[Array], tensor: Array, group: Any = None, *, async_op: bool = False
) -> PolledWork | None:
    """MPI_Iallgatherv: each member takes of each as much as the place for it has."""
    comm, row, whole = _comm_of(group), flatten(tensor), _room(tensor_list, tensor)
    taken = _cut([each.size for each in tensor_list], whole)
    work = MpiWork(
        lambda: [comm.Iallgatherv(_make_buffer(row), taken)],
        (row, whole),
        lambda: deal(tensor_list, whole),
    )
    return work.finish(async_op=async_op)


def all_gather_single(
    output: Array, input: Array, group: Any = None, *, async_op: bool = False
) -> PolledWork | None:
    """MPI_Iallgather."""
    comm, row, whole = _comm_of(group), flatten(input), flatten(output)
    row = row.copy() if np.shares_memory(row, whole) else row
    work = MpiWork(
        lambda: [comm.Iallgather(_make_buffer(row), _make_buffer(whole))],
        (row, whole),
        lambda: store(output, whole),
    )
    return work.finish(async_op=async_op)


def reduce_scatter(
    output: Array,
    input_list: list[Array],
    op: MPI.Op = MPI.SUM,
    group: Any = None,
    *,
    async_op: bool = False,
) -> PolledWork | None:
    """MPI_Ireduce_scatter: member j gets the j-th part, of whatever size."""
    comm, whole, row = _comm_of(group), join(input_list), np.empty(output.size, output.dtype)
    sizes = [each.size for each in input_list]
    if sizes[get_rank(group)] != output.size:
        message = f"the output of {output.size} elements must have the same size as its part"
        raise ValueError(message)
    given, taken = _make_operand(whole), _make_operand(row)
    work = MpiWork(
        lambda: [comm.Ireduce_scatter(given, taken, sizes, op)],
        (whole, row),
        lambda: deal([output], row),
    )
    return work.finish(async_op=async_op)


def reduce_scatter_single(
    output: Array,
    input: Array,
    op: MPI.Op = MPI.SUM,
    group: Any = None,
    *,
    async_op: bool = False,
) -> PolledWork | None:
    """MPI_Ireduce_scatter_block."""
    comm, whole, row = _comm_of(group), flatten(input), np.empty(output.size, output.dtype)
    given, taken = _make_operand(whole), _make_operand(row)
    work = MpiWork(
        lambda: [comm.Ireduce_scatter_block(given, taken, op)],
        (whole, row),
        lambda: deal([output], row),
    )
    return work.finish(async_op=async_op)


def all_to_all(
    output_tensor_list: list[Array],
    input_tensor_list: list[Array],
    group: Any = None,
    *,
    async_op: bool = False,
) -> PolledWork | None:
    """MPI_Ialltoallv."""
    whole = _room(output_tensor_list, input_tensor_list[0])
    given = _cut([each.size for each in input_tensor_list], join(input_tensor_list))
    taken = _cut([each.size for each in output_tensor_list], whole)
    comm = _comm_of(group)
    work = MpiWork(
        lambda: [comm.Ialltoallv(given, taken)],
        (given, whole),
        lambda: deal(output_tensor_list, whole),
    )
    return work.finish(async_op=async_op)


def all_to_all_single(
    output: Array,
    input: Array,
    output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None,
    group: Any = None,
    *,
    async_op: bool = False,
) -> PolledWork | None:
    """MPI_Ialltoallv of rows, or MPI_Ialltoall where the parts are equal."""
    comm, row, whole = _comm_of(group), flatten(input), np.empty(output.size, output.dtype)
    if output_split_sizes or input_split_sizes:
        sizes = [
            _elements(each, splits, get_world_size(group))
            for each, splits in ((input, input_split_sizes), (output, output_split_sizes))
        ]
        given, taken = _cut(sizes[0], row), _cut(sizes[1], whole)
        start: Start = partial(_start_one, comm.Ialltoallv, given, taken)
    else:
        start = partial(_start_one, comm.Ialltoall, _make_buffer(row), _make_buffer(whole))
    work = MpiWork(start, (row, whole), lambda: deal([output], whole))
    return work.finish(async_op=async_op)


def _start_one(call: Callable[..., MPI.Request], *given: Any) -> list[MPI.Request]:
    """Start a call of MPI's; returns its request, the only one."""
    return [call(*given)]


def _elements(array: Array, splits: Sequence[int] | None, size: int) -> list[int]:
    """Return how many elements each part of some rows has."""
    rows, *rest = array.shape
    return [each * int(np.prod(rest)) for each in splits or [rows // size] * size]
