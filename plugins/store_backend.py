"""A whole backend in Python without Gloo: what ranks send lies in torch's store.

    scenario certify --plugin plugins.store_backend --backend store

Slow, and simple: a call puts its tensors into the store as it is made, and its wait fetches what
the others have put there. So it buffers every message, and a rank never waits in a send. Written
from docs/how-to/backend.md; importing it registers the backend `store`.
"""

from __future__ import annotations

import io
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from functools import reduce as fold
from typing import Any

import torch
import torch.distributed as dist

NAME = "store"
#: torch refuses the one of all but Gloo; a rank that ends is not noticed, and one that comes late
#: still finds what the others had put there
LACKS = ["monitored_barrier", "timeouts"]

Tensors = Sequence[torch.Tensor]
OPS: dict[Any, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    dist.ReduceOp.SUM: torch.add,
    dist.ReduceOp.AVG: torch.add,
    dist.ReduceOp.PRODUCT: torch.mul,
    dist.ReduceOp.MIN: torch.minimum,
    dist.ReduceOp.MAX: torch.maximum,
    dist.ReduceOp.BAND: torch.bitwise_and,
    dist.ReduceOp.BOR: torch.bitwise_or,
    dist.ReduceOp.BXOR: torch.bitwise_xor,
}
#: seconds between two looks into the store
LOOK_S = 0.001


class StoreWork(dist.Work):
    """A call under way: its wait fetches what the others have put into the store."""

    def __init__(self, finish: Callable[[timedelta | None], None], source: int = -1) -> None:
        """Fetch nothing yet."""
        super().__init__()
        self._finish: Callable[[timedelta | None], None] | None = finish
        self.source = source

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Fetch, and store into the tensors of the call. Raises RuntimeError where none comes."""
        finish, self._finish = self._finish, None
        if finish is not None:
            finish(timeout or None)
        return True

    def is_completed(self) -> bool:
        """Return whether it was waited for."""
        return self._finish is None

    def _source_rank(self) -> int:
        """Return whose message a receive took."""
        return self.source


def wait_for_all(works: Sequence[StoreWork], timeout: timedelta | None) -> None:
    """Wait for several works, in order."""
    for work in works:
        work.wait(timeout)


def packed(tensors: Tensors) -> bytes:
    """Return tensors as bytes."""
    file = io.BytesIO()
    torch.save([each.detach().clone() for each in tensors], file)
    return file.getvalue()


def unpacked(content: bytes) -> list[torch.Tensor]:
    """Return the tensors of bytes."""
    found: list[torch.Tensor] = torch.load(io.BytesIO(content), weights_only=True)
    return found


class StoreGroup(dist.ProcessGroup):
    """A process group whose ranks meet in torch's store."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        """Put nothing there yet."""
        super().__init__(rank, size)  # type: ignore[call-arg]  # torch has both
        self._store = store
        self._timeout = timeout
        self._calls = 0
        self._sent: Counter[tuple[int, int]] = Counter()
        self._received: Counter[tuple[int, int]] = Counter()
        self._aborted = False
        self.known_as = ""

    def getBackendName(self) -> str:  # noqa: N802 -- torch's name
        """Return the name that torch shows."""
        return NAME

    def getGroupName(self) -> str:  # noqa: N802 -- torch's name
        """Return what torch calls this group."""
        return self.known_as

    @property
    def group_name(self) -> str:
        """What torch calls this group."""
        return self.known_as

    def abort(self) -> None:
        """Let every wait raise."""
        self._aborted = True

    def shutdown(self) -> None:
        """End nothing."""

    # ------------------------------------------------------------------ the store

    def _fetch(self, key: str, timeout: timedelta | None) -> list[torch.Tensor]:
        """Return what lies under a key once it does."""
        self._await(lambda: self._store.check([key]), timeout)
        return unpacked(self._store.get(key))

    def _await(self, is_there: Callable[[], bool], timeout: timedelta | None) -> None:
        until_s = time.monotonic() + (timeout or self._timeout).total_seconds()
        while not is_there():
            if self._aborted:
                message = "ProcessGroup abort: the group was aborted"
                raise RuntimeError(message)
            if time.monotonic() > until_s:
                message = "Timed out waiting for another rank"
                raise RuntimeError(message)
            time.sleep(LOOK_S)

    def _meet(
        self,
        mine: Tensors,
        finish: Callable[[list[list[torch.Tensor]]], None],
        needs: Sequence[int] | None = None,
    ) -> StoreWork:
        """Put tensors there for the next collective; its wait has those of the ranks it needs."""
        self._calls += 1
        place = f"c{self._calls}"
        self._store.set(f"{place}/{self.rank()}", packed(mine))
        ranks = range(self.size()) if needs is None else needs

        def fetch(timeout: timedelta | None) -> None:
            finish([self._fetch(f"{place}/{rank}", timeout) for rank in ranks])

        return StoreWork(fetch)

    def _reduced(self, op: Any, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return what a reduce op makes of the ranks' tensors."""
        kind = op.op if hasattr(op, "op") else op
        found = next((OPS[each] for each in OPS if each == kind), None)
        if found is None:
            message = f"the reduce op {kind} is not implemented"
            raise NotImplementedError(message)
        if parts[0].dtype == torch.bool and found in (torch.add, torch.mul):
            found = torch.logical_or if found is torch.add else torch.logical_and
        result = fold(found, parts)
        return result / len(parts) if kind == dist.ReduceOp.AVG else result

    # ------------------------------------------------------------------ collectives

    def allreduce(self, tensors: Tensors, options: Any) -> StoreWork:
        """Reduce a tensor."""
        return self.allreduce_coalesced(tensors, options)

    def allreduce_coalesced(self, tensors: Tensors, options: Any) -> StoreWork:
        """Reduce several."""

        def finish(all_: list[list[torch.Tensor]]) -> None:
            for at, tensor in enumerate(tensors):
                tensor.copy_(self._reduced(options.reduceOp, [each[at] for each in all_]))

        return self._meet(tensors, finish)

    def reduce(self, tensors: Tensors, options: Any) -> StoreWork:
        """Reduce a tensor at the root; nobody else waits."""

        def finish(all_: list[list[torch.Tensor]]) -> None:
            if all_:
                tensors[0].copy_(self._reduced(options.reduceOp, [each[0] for each in all_]))

        return self._meet(tensors, finish, None if self.rank() == options.rootRank else ())

    def broadcast(self, tensors: Tensors, options: Any) -> StoreWork:
        """Fill with what the root has."""

        def finish(all_: list[list[torch.Tensor]]) -> None:
            tensors[0].copy_(all_[0][0])

        return self._meet(tensors, finish, (options.rootRank,))

    def allgather(self, outputs: Sequence[Tensors], inputs: Tensors, _: Any = None) -> StoreWork:
        """Fill a list with what each has."""

        def finish(all_: list[list[torch.Tensor]]) -> None:
            for output, part in zip(outputs[0], all_, strict=True):
                output.copy_(part[0])

        return self._meet(inputs, finish)

    def allgather_coalesced(
        self, outputs: Sequence[Tensors], inputs: Tensors, _: Any = None
    ) -> StoreWork:
        """Fill several."""

        def finish(all_: list[list[torch.Tensor]]) -> None:
            for of_rank, parts in zip(outputs, all_, strict=True):
                for output, part in zip(of_rank, parts, strict=True):
                    output.copy_(part)

        return self._meet(inputs, finish)

    def _allgather_base(
        self, output: torch.Tensor, given: torch.Tensor, _: Any = None
    ) -> StoreWork:
        """Fill one tensor with what each has, in order."""

        def finish(all_: list[list[torch.Tensor]]) -> None:
            output.view(-1).copy_(torch.cat([part[0].reshape(-1) for part in all_]))

        return self._meet([given], finish)

    def gather(self, outputs: Sequence[Tensors], inputs: Tensors, options: Any) -> StoreWork:
        """Fill a list at the root."""

        def finish(all_: list[list[torch.Tensor]]) -> None:
            for output, part in zip(outputs[0] if all_ else (), all_, strict=True):
                output.copy_(part[0])

        return self._meet(inputs, finish, None if self.rank() == options.rootRank else ())

    def scatter(self, outputs: Tensors, inputs: Sequence[Tensors], options: Any) -> StoreWork:
        """Give each rank its part of the root's list."""

        def finish(all_: list[list[torch.Tensor]]) -> None:
            outputs[0].copy_(all_[0][self.rank()])

        mine = inputs[0] if self.rank() == options.rootRank else []
        return self._meet(mine, finish, (options.rootRank,))

    def reduce_scatter(
        self, outputs: Tensors, inputs: Sequence[Tensors], options: Any
    ) -> StoreWork:
        """Reduce, and leave each rank its part."""

        def finish(all_: list[list[torch.Tensor]]) -> None:
            mine = [part[self.rank()] for part in all_]
            outputs[0].copy_(self._reduced(options.reduceOp, mine))

        return self._meet(inputs[0], finish)

    def _reduce_scatter_base(
        self, output: torch.Tensor, given: torch.Tensor, options: Any
    ) -> StoreWork:
        """Reduce one tensor, and leave each rank its part."""
        parts = given.reshape(-1).chunk(self.size())

        def finish(all_: list[list[torch.Tensor]]) -> None:
            mine = [part[self.rank()] for part in all_]
            output.view(-1).copy_(self._reduced(options.reduceOp, mine))

        return self._meet(parts, finish)

    def allgather_into_tensor_coalesced(
        self, outputs: Tensors, inputs: Tensors, _: Any = None
    ) -> StoreWork:
        """Fill several tensors with what each has: DTensor gathers so."""
        works = [self._allgather_base(*pair) for pair in zip(outputs, inputs, strict=True)]
        return StoreWork(partial(wait_for_all, works))

    def reduce_scatter_tensor_coalesced(
        self, outputs: Tensors, inputs: Tensors, options: Any
    ) -> StoreWork:
        """Reduce several, and leave each rank its parts: DTensor does so."""
        pairs = zip(outputs, inputs, strict=True)
        works = [self._reduce_scatter_base(*pair, options) for pair in pairs]
        return StoreWork(partial(wait_for_all, works))

    def alltoall(self, outputs: Tensors, inputs: Tensors, _: Any = None) -> StoreWork:
        """Give each rank its part of each list."""

        def finish(all_: list[list[torch.Tensor]]) -> None:
            for output, parts in zip(outputs, all_, strict=True):
                output.copy_(parts[self.rank()])

        return self._meet(inputs, finish)

    def alltoall_base(
        self,
        output: torch.Tensor,
        given: torch.Tensor,
        output_sizes: list[int],
        input_sizes: list[int],
        _: Any = None,
    ) -> StoreWork:
        """Give each rank its rows."""
        rows = given.shape[0] // self.size()
        parts = given.split(input_sizes or [rows] * self.size())
        del output_sizes

        def finish(all_: list[list[torch.Tensor]]) -> None:
            output.copy_(torch.cat([each[self.rank()] for each in all_]))

        return self._meet(parts, finish)

    def barrier(self, opts: Any = None) -> StoreWork:
        """Wait for all."""
        return self._meet([], lambda _: None)

    # ------------------------------------------------------------------ messages

    def send(self, tensors: Tensors, to: int, tag: int) -> StoreWork:
        """Put a message there."""
        number = self._sent[to, tag]
        self._sent[to, tag] += 1
        self._store.set(f"m{self.rank()}>{to}/{tag}/{number}", packed(tensors))
        return StoreWork(lambda _: None)

    def recv(self, tensors: Tensors, source: int, tag: int) -> StoreWork:
        """Fetch the next message of a rank with that tag."""
        number = self._received[source, tag]
        self._received[source, tag] += 1
        key = f"m{source}>{self.rank()}/{tag}/{number}"

        def finish(timeout: timedelta | None) -> None:
            tensors[0].view(-1).copy_(self._fetch(key, timeout)[0].reshape(-1))

        return StoreWork(finish, source)

    def recv_anysource(self, tensors: Tensors, tag: int) -> StoreWork:
        """Fetch the first message that is there, of any rank."""
        work = StoreWork(lambda timeout: self._take(work, tensors, tag, timeout))
        return work

    def _take(self, work: StoreWork, tensors: Tensors, tag: int, timeout: timedelta | None) -> None:
        others = [rank for rank in range(self.size()) if rank != self.rank()]

        def first() -> bool:
            work.source = next((each for each in others if self._has(each, tag)), -1)
            return work.source >= 0

        self._await(first, timeout)
        self.recv(tensors, work.source, tag).wait(timeout)

    def _has(self, source: int, tag: int) -> bool:
        key = f"m{source}>{self.rank()}/{tag}/{self._received[source, tag]}"
        return bool(self._store.check([key]))


#: what torch calls by another name from 2.13 on
for _new, _old in (
    ("all_gather_single", "_allgather_base"),
    ("reduce_scatter_single", "_reduce_scatter_base"),
    ("all_to_all_single", "alltoall_base"),
    ("all_gather_single_coalesced", "allgather_into_tensor_coalesced"),
    ("reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced"),
):
    setattr(StoreGroup, _new, getattr(StoreGroup, _old))


def make(options: Any, _: Any = None) -> StoreGroup:
    """Return a group, as torch asks for it."""
    made = StoreGroup(options.store, options.group_rank, options.group_size, options.timeout)
    made.known_as = options.group_id
    return made


if NAME not in dist.Backend.backend_list:
    dist.Backend.register_backend(NAME, make, extended_api=True, devices=["cpu"])
