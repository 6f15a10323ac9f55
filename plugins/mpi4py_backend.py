"""A backend of one's own, whole: torch.distributed over MPI, by mpi4py, in Python.

torch's wheels are built without MPI, and torch keeps the name `mpi` for its own; this one is
called `mpi4py`. Each operation is one nonblocking operation of MPI's: what comes out is MPI's
arithmetic and matching, and so a witness that shares no code with Gloo.

    mpirun -n 4 python -m torch_scenarios.worker --plugin plugins.mpi4py_backend --backend mpi4py
    scenarios

Importing this module registers the backend; that is all that `--plugin` asks of a module. Three
rules make a backend one that scenarios can be run on:

1. A call ends: when it is done, when the group's timeout is over (RuntimeError, "timed out"), or
   when the group is aborted from another thread. So no call here blocks in MPI; it polls.
2. What is not there is refused with NotImplementedError, before anything is sent: UNSUPPORTED.
3. Its process groups are independent: each has a communicator of its own. They are not freed: to
   free one is a collective call, and the ranks of a wrong program do not meet.

MPI is used from several threads (MPI_THREAD_MULTIPLE). Needs mpi4py 4 and an MPI, and a launch by
`mpirun`: each process of it is the rank of its number.
"""

from __future__ import annotations

import atexit
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from mpi4py import MPI

NAME = "mpi4py"
#: an operation of MPI's has no timeout, and torch refuses the other call of all but Gloo
LACKS = ["timeouts", "monitored_barrier"]
#: torch's dtypes and MPI's, for reductions; what MPI lacks (half, bfloat16) can only be moved
DATATYPES = {
    torch.int8: MPI.INT8_T,
    torch.int16: MPI.INT16_T,
    torch.int32: MPI.INT32_T,
    torch.int64: MPI.INT64_T,
    torch.uint8: MPI.UINT8_T,
    torch.uint16: MPI.UINT16_T,
    torch.uint32: MPI.UINT32_T,
    torch.uint64: MPI.UINT64_T,
    torch.float32: MPI.FLOAT,
    torch.float64: MPI.DOUBLE,
    torch.complex64: MPI.C_FLOAT_COMPLEX,
    torch.complex128: MPI.C_DOUBLE_COMPLEX,
    torch.bool: MPI.C_BOOL,
}
OPS = {
    dist.ReduceOp.SUM: MPI.SUM,
    dist.ReduceOp.PRODUCT: MPI.PROD,
    dist.ReduceOp.MIN: MPI.MIN,
    dist.ReduceOp.MAX: MPI.MAX,
    dist.ReduceOp.BAND: MPI.BAND,
    dist.ReduceOp.BOR: MPI.BOR,
    dist.ReduceOp.BXOR: MPI.BXOR,
}
#: how many works a group keeps alive, held by others or not
KEPT = 32
#: seconds between two looks at a request: soon at first, then seldom
FIRST_LOOK_S, LOOK_S = 0.00002, 0.0005
#: a tag that no message has, for looks that let MPI go on; 32767 is the least that MPI allows
NO_TAG = MPI.COMM_WORLD.Get_attr(MPI.TAG_UB) or 32767


# -------------------------------------------------------------------------------------------------
# MPI goes on only inside calls of MPI: a thread must make some while a request is under way.


class Progress:
    """A thread that looks into MPI while there is work that no call waits for."""

    def __init__(self) -> None:
        """Start with the first work."""
        self._open = 0
        self._lock = threading.Lock()
        self._wanted = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Count one more work that is under way."""
        with self._lock:
            self._open += 1
            self._wanted.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._look, name="mpi", daemon=True)
                self._thread.start()

    def end(self) -> None:
        """Count one less."""
        with self._lock:
            self._open -= 1
            if self._open == 0:
                self._wanted.clear()

    def _look(self) -> None:
        while self._wanted.wait():
            MPI.COMM_WORLD.Iprobe(MPI.ANY_SOURCE, NO_TAG)
            time.sleep(LOOK_S)


PROGRESS = Progress()


# -------------------------------------------------------------------------------------------------
# Work: some requests, and what is to be done once they are.


class Work(dist._Work):  # type: ignore[name-defined]  # noqa: SLF001 -- torch has no public name
    """Requests of MPI's, what they write to, and what follows when all are done."""

    def __init__(
        self,
        group: Group,
        requests: Sequence[MPI.Request],
        held: Any,
        then: Callable[[], None],
        results: Sequence[torch.Tensor],
    ) -> None:
        """Keep what the requests read and write in `held`; call `then` once they are done.

        `results` are what the work is worth to those who ask for its future.
        """
        super().__init__()
        self._group = group
        self._requests = list(requests)
        self._held = held
        self._then = then
        self._results = list(results)
        self._future: torch.futures.Future[list[torch.Tensor]] | None = None
        self._lock = threading.Lock()
        self._over = False
        self._source = -1
        PROGRESS.begin()

    def __del__(self) -> None:
        """Give up what no call waits for any more; MPI still goes on with it."""
        if not self._over:
            ABANDONED.append((self._requests, self._held))
            PROGRESS.end()

    def is_completed(self) -> bool:
        """Look once."""
        return self._look()

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Wait until the requests are done. Raises RuntimeError after the timeout, or an abort."""
        limit = timeout if timeout > timedelta(0) else self._group.timeout
        deadline_s = time.monotonic() + limit.total_seconds()
        pause_s = FIRST_LOOK_S
        while not self._look():
            if self._group.aborted.is_set():
                message = "the process group was aborted"
                raise RuntimeError(message)
            if time.monotonic() > deadline_s:
                message = f"Timed out waiting {limit.total_seconds() * 1000:.0f}ms in MPI"
                raise RuntimeError(message)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LOOK_S)
        return True

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """Return a future of the results, which a thread waits for; DDP asks for it.

        That of a work that has been waited for is complete: DDP reads it without waiting.
        """
        if self._future is None:
            self._future = torch.futures.Future()
            if self._over:
                self._fulfil()
            else:
                threading.Thread(target=self._fulfil, name="future", daemon=True).start()
        return self._future

    def _fulfil(self) -> None:
        assert self._future is not None
        try:
            self.wait()
        except RuntimeError as error:
            self._future.set_exception(error)  # type: ignore[arg-type]
        else:
            self._future.set_result(self._results)

    def _source_rank(self) -> int:
        return self._source

    def _look(self) -> bool:
        with self._lock:
            if self._over:
                return True
            status = MPI.Status()
            try:
                while self._requests:
                    if not self._requests[0].Test(status):
                        return False
                    self._source = status.Get_source()
                    self._requests.pop(0)
            except MPI.Exception as error:
                self._over = True
                PROGRESS.end()
                raise refusal(error) from error
            self._over = True
            PROGRESS.end()
            self._then()
            return True


#: requests that are under way for good, and their memory, which MPI may still write to
ABANDONED: list[Any] = []


def refusal(error: MPI.Exception) -> Exception:
    """Return what torch's callers get for an error of MPI's."""
    words = f"MPI: {error.Get_error_string()}"
    if error.Get_error_class() in {MPI.ERR_OP, MPI.ERR_TYPE}:
        return NotImplementedError(words)
    if error.Get_error_class() in {MPI.ERR_ROOT, MPI.ERR_RANK, MPI.ERR_TAG, MPI.ERR_COUNT}:
        return ValueError(words)
    return RuntimeError(words)


# -------------------------------------------------------------------------------------------------
# Memory: MPI reads and writes contiguous bytes.


EMPTY = torch.empty(0, dtype=torch.uint8)


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's elements in a row: its own memory if it lies so, else a copy."""
    return tensor.detach().contiguous().view(-1)


def array(tensor: torch.Tensor) -> Any:
    """Return contiguous memory as bytes, for MPI."""
    return tensor.view(torch.uint8).numpy() if tensor.numel() else EMPTY.numpy()


def moved(tensor: torch.Tensor) -> list[Any]:
    """Return MPI's datatype for elements that it only moves."""
    return [array(tensor), MPI.BYTE]


def apart(own: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
    """Return a tensor that shares no memory with another one, as MPI wants it (MPI 4.1, 2.3)."""
    shared = own.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()
    return own.clone() if shared else own


def reduced(tensor: torch.Tensor) -> list[Any]:
    """Return MPI's datatype for elements that it computes with."""
    datatype = DATATYPES.get(tensor.dtype)
    if datatype is None:
        message = f"MPI has no datatype for {tensor.dtype}"
        raise NotImplementedError(message)
    return [array(tensor), tensor.numel(), datatype]


def op_of(options: Any, tensors: Sequence[torch.Tensor]) -> MPI.Op:
    """Return MPI's operation for torch's; an average of numbers that can be divided is a sum."""
    found = next((own for known, own in OPS.items() if options.reduceOp == known), None)
    if options.reduceOp == dist.ReduceOp.AVG and all(
        tensor.is_floating_point() or tensor.is_complex() for tensor in tensors
    ):
        return MPI.SUM
    if found is None:
        message = f"MPI has no operation for torch's {options.reduceOp.op.name}"
        raise NotImplementedError(message)
    return found


def refuse(what: str) -> None:
    """Refuse arguments, as ValueError, before anything is sent."""
    message = f"ProcessGroupMPI4PY: {what}"
    raise ValueError(message)


def alike(tensors: Iterable[torch.Tensor]) -> None:
    """Refuse tensors of several sizes or dtypes where one operation takes all."""
    if len({(tensor.numel(), tensor.dtype) for tensor in tensors}) > 1:
        refuse("invalid tensor size: all tensors must have the same size and dtype")


# -------------------------------------------------------------------------------------------------
# The process group.


class Group(dist.ProcessGroup):  # type: ignore[misc]
    """A process group over a communicator of its own."""

    def __init__(
        self, store: Any, rank: int, size: int, ranks: Sequence[int], timeout: Any
    ) -> None:
        """Meet the other members in the store, then make the communicator, which cannot fail.

        Those meet that name the same ranks; one that no other names so waits until its timeout.
        """
        super().__init__(rank, size)  # type: ignore[call-arg]
        self.timeout: timedelta = timeout
        self.aborted = threading.Event()
        self.known_as = ""
        #: torch may hold a work in C++ alone (DDP within `join` does): were its Python object gone,
        #: `wait` would be that of torch's base class, which nothing ends
        self._latest: deque[Work] = deque(maxlen=KEPT)
        own = ",".join(map(str, ranks))
        store.set(f"{own}/{rank}", "here")
        store.wait([f"{own}/{other}" for other in range(size)], timeout)
        tag = zlib.crc32(f"{own} {id(store) if size == 1 else ''}".encode())
        chosen = MPI.COMM_WORLD.Get_group().Incl(list(ranks))
        self._comm = MPI.COMM_WORLD.Create_group(chosen, tag % 2**15)

    def getBackendName(self) -> str:  # noqa: N802 -- torch's name
        """Return what torch calls it."""
        return NAME

    def name(self) -> str:
        """Return the same."""
        return NAME

    def getGroupName(self) -> str:  # noqa: N802 -- torch's name
        """Return what torch calls this group; a mesh, and DDP, ask for it."""
        return self.known_as

    @property
    def group_name(self) -> str:
        """What torch calls this group."""
        return self.known_as

    def abort(self) -> None:
        """Let every call that waits raise, from another thread."""
        self.aborted.set()

    def shutdown(self) -> None:
        """Do nothing: the communicator stays."""

    def _work(
        self,
        begin: Callable[[], MPI.Request | list[MPI.Request]],
        held: Any,
        then: Callable[[], None] = lambda: None,
        results: Sequence[torch.Tensor] = (),
    ) -> Work:
        try:
            requests = begin()
        except MPI.Exception as error:
            raise refusal(error) from error
        listed = requests if isinstance(requests, list) else [requests]
        self._latest.append(Work(self, listed, held, then, results))
        return self._latest[-1]

    # ------------------------------------------------------------------ reductions

    def allreduce(self, tensors: Any, options: Any = None) -> Work:
        """Reduce each tensor in place; torch gives one."""
        return self.allreduce_coalesced(tensors, options)

    def allreduce_coalesced(self, tensors: Any, options: Any = None) -> Work:
        """Reduce each tensor in place."""
        op = op_of(options, tensors)
        rows = [flat(tensor) for tensor in tensors]
        told = [reduced(row) for row in rows]
        return self._work(
            lambda: [self._comm.Iallreduce(MPI.IN_PLACE, each, op) for each in told],
            rows,
            lambda: copy(tensors, self._averaged(rows, options)),
            tensors,
        )

    def _averaged(self, rows: list[torch.Tensor], options: Any) -> list[torch.Tensor]:
        """Return what was reduced: an average is the sum, divided here."""
        if options.reduceOp != dist.ReduceOp.AVG:
            return rows
        return [row.div_(self.size()) for row in rows]

    def reduce(self, tensors: Any, options: Any) -> Work:
        """Reduce into the root's tensor; the others keep theirs."""
        op, root = op_of(options, tensors), options.rootRank
        row = flat(tensors[0])
        told = reduced(row)
        if self.rank() != root:
            return self._work(lambda: self._comm.Ireduce(told, None, op, root), row)
        return self._work(
            lambda: self._comm.Ireduce(MPI.IN_PLACE, told, op, root),
            row,
            lambda: copy(tensors, self._averaged([row], options)),
        )

    def reduce_scatter(self, outputs: Any, inputs: Any, options: Any) -> Work:
        """Reduce a list, and keep one's own entry of it."""
        sizes = [each.numel() for each in inputs[0]]
        if sizes[self.rank()] != outputs[0].numel():
            refuse("invalid tensor size: the output must be as large as its entry of the list")
        whole = torch.cat([flat(each) for each in inputs[0]])
        return self._reduce_scatter(outputs[0], whole, sizes, options)

    def _reduce_scatter_base(self, output: Any, whole: Any, options: Any) -> Work:
        if whole.numel() != output.numel() * self.size():
            refuse("input tensor must be the same size as output size times world size")
        sizes = [output.numel()] * self.size()
        return self._reduce_scatter(output, flat(whole), sizes, options)

    reduce_scatter_single = _reduce_scatter_base

    def reduce_scatter_tensor_coalesced(self, outputs: Any, inputs: Any, options: Any) -> Work:
        """Reduce, and keep one's own part of each; functional collectives and DTensor call it."""
        op = op_of(options, inputs)
        rows, wholes = [flat(each) for each in outputs], [flat(each) for each in inputs]
        told = [
            (reduced(whole), reduced(row), [row.numel()] * self.size())
            for row, whole in zip(rows, wholes, strict=True)
        ]
        return self._work(
            lambda: [self._comm.Ireduce_scatter(*each, op) for each in told],
            (rows, wholes),
            lambda: copy(outputs, self._averaged(rows, options)),
            outputs,
        )

    def _reduce_scatter(
        self, output: torch.Tensor, whole: torch.Tensor, sizes: list[int], options: Any
    ) -> Work:
        op, row = op_of(options, [whole]), flat(output)
        sent, got = reduced(whole), reduced(row)
        return self._work(
            lambda: self._comm.Ireduce_scatter(sent, got, sizes, op),
            (whole, row),
            lambda: copy([output], self._averaged([row], options)),
            [output],
        )

    # ------------------------------------------------------------------ moves

    def broadcast(self, tensors: Any, options: Any) -> Work:
        """Send the root's tensor to all."""
        row = flat(tensors[0])
        return self._work(
            lambda: self._comm.Ibcast(moved(row), options.rootRank),
            row,
            lambda: copy(tensors, [row]),
            tensors,
        )

    def allgather(self, outputs: Any, inputs: Any, _options: Any = None) -> Work:
        """Gather everyone's tensor into a list."""
        if len(outputs[0]) != self.size():
            refuse("output tensor list must have an entry for each rank")
        alike([*outputs[0], inputs[0]])
        return self._allgather(outputs[0], inputs[0])

    def _allgather(self, outputs: Any, own: torch.Tensor) -> Work:
        row = flat(own)
        whole = row.new_empty(row.numel() * self.size())
        return self._work(
            lambda: self._comm.Iallgather(moved(row), moved(whole)),
            (row, whole),
            lambda: copy(outputs, whole.chunk(self.size())),
        )

    def _allgather_base(self, output: Any, own: Any, _options: Any = None) -> Work:
        if output.numel() != own.numel() * self.size() or output.dtype != own.dtype:
            refuse("output tensor size must be equal to world_size times input tensor size")
        whole = flat(output)
        row = apart(flat(own), whole)
        return self._work(
            lambda: self._comm.Iallgather(moved(row), moved(whole)),
            (row, whole),
            lambda: copy([output], [whole]),
            [output],
        )

    all_gather_single = _allgather_base

    def allgather_into_tensor_coalesced(
        self, outputs: Any, inputs: Any, _options: Any = None
    ) -> Work:
        """Gather each of some tensors; functional collectives and DTensor call it."""
        wholes = [flat(each) for each in outputs]
        rows = [apart(flat(own), whole) for own, whole in zip(inputs, wholes, strict=True)]
        return self._work(
            lambda: [
                self._comm.Iallgather(moved(row), moved(whole))
                for row, whole in zip(rows, wholes, strict=True)
            ],
            (rows, wholes),
            lambda: copy(outputs, wholes),
            outputs,
        )

    def allgather_coalesced(self, outputs: Any, inputs: Any, _options: Any = None) -> Work:
        """Gather several tensors at once: outputs[rank][i] is rank's i-th."""
        rows = [flat(own) for own in inputs]
        wholes = [row.new_empty(row.numel() * self.size()) for row in rows]

        def then() -> None:
            for index, whole in enumerate(wholes):
                copy([each[index] for each in outputs], whole.chunk(self.size()))

        return self._work(
            lambda: [
                self._comm.Iallgather(moved(row), moved(whole))
                for row, whole in zip(rows, wholes, strict=True)
            ],
            (rows, wholes),
            then,
        )

    def gather(self, outputs: Any, inputs: Any, options: Any) -> Work:
        """Gather everyone's tensor at the root."""
        row, root = flat(inputs[0]), options.rootRank
        if self.rank() != root:
            return self._work(lambda: self._comm.Igather(moved(row), None, root), row)
        alike([*outputs[0], inputs[0]])
        whole = row.new_empty(row.numel() * self.size())
        return self._work(
            lambda: self._comm.Igather(moved(row), moved(whole), root),
            (row, whole),
            lambda: copy(outputs[0], whole.chunk(self.size())),
        )

    def scatter(self, outputs: Any, inputs: Any, options: Any) -> Work:
        """Give each rank its entry of the root's list."""
        row, root = flat(outputs[0]), options.rootRank
        whole = None
        if self.rank() == root:
            alike([*inputs[0], outputs[0]])
            whole = torch.cat([flat(each) for each in inputs[0]])
        return self._work(
            lambda: self._comm.Iscatter(None if whole is None else moved(whole), moved(row), root),
            (row, whole),
            lambda: copy(outputs, [row]),
        )

    def alltoall(self, outputs: Any, inputs: Any, _options: Any = None) -> Work:
        """Send entry i to rank i."""
        sent = torch.cat([flat(each) for each in inputs])
        got = sent.new_empty(sum(each.numel() for each in outputs))
        takes, gives = ([each.numel() for each in side] for side in (outputs, inputs))
        return self._alltoall(got, takes, sent, gives, lambda: copy(outputs, got.split(takes)))

    def alltoall_base(
        self, output: Any, own: Any, takes: Any, gives: Any, _options: Any = None
    ) -> Work:
        """Send the parts of a tensor along its first axis, evenly if no sizes are given."""
        counts = [self._parts(output, takes), self._parts(own, gives)]
        row, sent = flat(output), flat(own)
        return self._alltoall(row, counts[0], sent, counts[1], lambda: copy([output], [row]))

    all_to_all_single = alltoall_base

    def _parts(self, tensor: torch.Tensor, sizes: Sequence[int]) -> list[int]:
        """Return how many elements each rank's part has."""
        rows = tensor.size(0)
        if not sizes and rows % self.size():
            refuse(f"Tensor's dim 0 does not divide equally across group size ({rows})")
        if sizes and sum(sizes) != rows:
            refuse("Split sizes doesn't match total dim 0 size")
        of_one = tensor.numel() // max(rows, 1)
        return [size * of_one for size in sizes or [rows // self.size()] * self.size()]

    def _alltoall(
        self,
        got: torch.Tensor,
        takes: Sequence[int],
        sent: torch.Tensor,
        gives: Sequence[int],
        then: Callable[[], None],
    ) -> Work:
        width = sent.element_size()
        told = [
            [array(row), [count * width for count in counts], MPI.BYTE]
            for row, counts in ((sent, gives), (got, takes))
        ]
        return self._work(lambda: self._comm.Ialltoallv(*told), (got, sent), then)

    def barrier(self, opts: Any = None) -> Work:
        """Wait for everyone; torch gives its options by their name."""
        del opts
        return self._work(self._comm.Ibarrier, None)

    # ------------------------------------------------------------------ messages

    def send(self, tensors: Any, peer: int, tag: int) -> Work:
        """Send to one rank."""
        row = flat(tensors[0])
        return self._work(lambda: self._comm.Isend(moved(row), peer, tag), row)

    def recv(self, tensors: Any, peer: int, tag: int) -> Work:
        """Receive from one rank."""
        row = flat(tensors[0])
        return self._work(
            lambda: self._comm.Irecv(moved(row), peer, tag), row, lambda: copy(tensors, [row])
        )

    def recv_anysource(self, tensors: Any, tag: int) -> Work:
        """Receive from the rank that sends first."""
        return self.recv(tensors, MPI.ANY_SOURCE, tag)


def copy(tensors: Iterable[torch.Tensor], rows: Iterable[torch.Tensor]) -> None:
    """Write what came into the tensors, where it did not come there by itself."""
    for tensor, row in zip(tensors, rows, strict=True):
        if row.data_ptr() != tensor.data_ptr() or not tensor.is_contiguous():
            tensor.detach().copy_(row.view(tensor.shape))


def create(options: Any, _group_options: Any = None) -> Group:
    """Make a process group; torch hands what it knows of it."""
    ranks = list(options.global_ranks_in_group) or list(range(options.group_size))
    made = Group(options.store, options.group_rank, options.group_size, ranks, options.timeout)
    made.known_as = options.group_id
    return made


#: the end of a process that MPI knows of; without it `mpirun` takes the end for a crash
atexit.register(MPI.Finalize)
dist.Backend.register_backend(NAME, create, extended_api=True, devices=["cpu"])
