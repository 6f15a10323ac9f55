"""Ranks that communicate nothing: torch's fake group, in which small control values are real.

Every rank is a process of its own and runs the real code of DDP, FSDP2 or DTensor; its calls return
at once. What steers a program is really exchanged: tensors of integers of at most
:data:`MOST_BYTES` bytes, and so the objects, shapes, sizes and flags that travel as such. It goes
through files of one folder, and a rank that waits for what never comes stands there: that is the
deadlock. All other values are a rank's own; what a program decides by them is a guess.
"""

from __future__ import annotations

import ctypes
import datetime as dt
import hashlib
import importlib.util
import inspect
import json
import os
import re
import shlex
import subprocess
import sys
import threading
import time
import types
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import torch
import torch.distributed
import torch.multiprocessing
from msgspec import Struct
from torch.testing._internal.distributed.fake_pg import FakeStore

from torch_scenarios.record.evidence.claim import OWNER
from torch_scenarios.record.evidence.notes.side_effect import StorePrefixes
from torch_scenarios.record.evidence.procedure import PREFIX, watch
from torch_scenarios.record.evidence.script import script_at
from torch_scenarios.record.evidence.standstill import RUNNING, WAITING, RankStates
from torch_scenarios.record.import_hook import ImportHook
from torch_scenarios.record.recorder import _op, is_foreign, is_framework, leave_untraced
from torch_scenarios.record.shim import find_stand_in

#: bytes of a tensor, or of all that one call passes in, that are exchanged
MOST_BYTES = 4096

#: of objects, which torch sends as bytes: without them a program goes wrong at once
MOST_OBJECT_BYTES = 1 << 24
#: of numbers that are no integers, such as a loss; and members of a group that exchanges them
MOST_SCALAR_BYTES, MOST_SCALAR_MEMBERS = 64, 64

#: seconds in which every rank waits and nothing is put, after which what is missing never comes
STILL_S = 1.0

#: operations of c10d: one that gives a message, all that are one, one without a tensor
SENDING, MEETING = "send", "barrier"
MESSAGES = frozenset({"send", "recv_", "recv_any_source_"})

#: operations of which small numbers that are no integers are exchanged too: a loss, a flag
SCALARS = frozenset(
    {"allreduce_", "reduce_", "broadcast_", "allgather_", "_allgather_base_", "gather_"}
)


class NeverError(Exception):
    """What is waited for never comes."""


class FileMailbox:
    """Small values between the ranks, a file each."""

    def __init__(self, folder: Path, rank: int, ranks: list[int], board: RankStates) -> None:
        """Begin with nothing put."""
        self._folder = folder
        self._rank, self._ranks, self._board = rank, ranks, board
        folder.mkdir(parents=True, exist_ok=True)

    def put(self, name: str, content: bytes) -> None:
        """Put a value under a name."""
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}")
        part.write_bytes(content)
        part.rename(path)
        self._board.put(self._rank)

    def take(self, name: str) -> bytes:
        """Return the value under a name once it is there. Raises NeverError where it never is."""
        return (self._folder / self.first([name])).read_bytes()

    def first(self, names: list[str]) -> str:
        """Return the first of some names under which a value is. Raises NeverError.

        What is not there once all other ranks are over never comes.
        """
        pause = 0.001
        before, since = b"", time.monotonic()
        others = [rank for rank in self._ranks if rank != self._rank]
        try:
            while True:
                is_last = bool(others) and self._board.are_over(others)
                for name in names:
                    if (self._folder / name).exists():
                        return name
                if is_last:
                    raise NeverError(*names)
                self._board.become(self._rank, WAITING)
                now = self._board.whole()
                if now != before or not self._board.still(self._ranks):
                    before, since = now, time.monotonic()
                elif time.monotonic() - since > STILL_S:
                    raise NeverError(*names)
                time.sleep(pause)
                pause = min(pause * 1.5, 0.05)
        finally:
            self._board.become(self._rank, RUNNING)


class Exchange:
    """Answers the calls of one rank in place of a backend."""

    def __init__(self, recorder: Any, mailbox: FileMailbox, order: dict[str, Any]) -> None:
        """Answer nothing yet."""
        self._torch: Any = torch
        self._dist: Any = torch.distributed
        self._recorder, self._mailbox = recorder, mailbox
        self._ranks = set(order["ranks"])
        self._whole = len(self._ranks) == order["world_size"]
        self._meets = bool(order.get("meets")) and self._whole
        self._counts: Counter[tuple[Any, ...]] = Counter()
        self._keys: dict[str, str] = {}
        self._number, self._is_awaited = -1, True

    def answer(
        self,
        number: int,
        name: str,
        group: Any,
        args: tuple[Any, ...],
        go_on: Any,
        *,
        is_awaited: bool,
    ) -> Any:
        """Return what a call returns: its tensors, and work that is done.

        A message that is not waited for at once is taken when it is: its rank may send meanwhile
        what the other one waits for.
        """
        self._number, self._is_awaited = number, is_awaited
        if self._meets and name not in MESSAGES:
            self._meet(group, "members", is_needed=True)
        if name == "monitored_barrier_":
            self._is_awaited = True
            self._meet(group, name)
            return None
        # torch's fake backend copies some inputs to outputs: what is exchanged comes over that
        result = _call_fake(name, args, go_on)
        exchanged = self._is_exchanged(name, group, args)
        if name == MEETING:
            self._meet(group, name)
        if exchanged or name in MESSAGES:
            try:
                self._exchange(name, group, args, exchanged=exchanged)
            except NeverError:
                if name not in {"recv_", "recv_any_source_"}:
                    self._guess(name, args)
                else:
                    self._stand()
        else:
            self._guess(name, args)
        # torch's fake work has a wait of its own, and no tensors for the reducer of DDP to ask for
        future = self._torch.futures.Future()
        future.set_result(list(args[0]) if isinstance(args[0], list | tuple) else [args[0]])
        work = self._torch._C._distributed_c10d._create_work_from_future(future)
        boxed = work.boxed()
        return (result[0], boxed) if isinstance(result, tuple) else boxed

    def _meet(self, group: Any, name: str, *, is_needed: bool = False) -> None:
        """Wait at a barrier for the others, whose files may be read behind it; not for ever.

        Where all of them are needed, a rank waits for ever once one of them never comes.
        """
        is_awaited = self._is_awaited or is_needed
        if not self._whole or not is_awaited or group.size() > MOST_SCALAR_MEMBERS:
            return
        key, size = self._key(group), group.size()
        count = self._counts[key, name]
        self._counts[key, name] += 1
        me = self._dist.get_process_group_ranks(group).index(self._dist.get_rank())
        self._mailbox.put(f"{key}/{name}-{count}/{me}", b"")
        try:
            for at in range(size):
                self._mailbox.first([f"{key}/{name}-{count}/{at}"])
        except NeverError:
            if is_needed:
                self._stand()

    def _stand(self) -> None:
        """Stand in the call for ever: the record ends inside of it."""
        os._exit(0)

    # ------------------------------------------------------------------ what is exchanged

    def _is_exchanged(self, name: str, group: Any, args: tuple[Any, ...]) -> bool:
        """Whether the values of a call are really exchanged."""
        ins, outs = _sides(name, args)
        tensors = [*ins, *outs]
        if not tensors or name == MEETING:
            return False
        # the side whose size is the same on all ranks
        side = outs if name in {"scatter_", "recv_", "recv_any_source_"} else ins
        size = max((each.nbytes for each in side), default=0)
        if all(each.dtype == self._torch.uint8 for each in tensors):
            return bool(size <= MOST_OBJECT_BYTES)
        if not any(each.dtype.is_floating_point or each.dtype.is_complex for each in tensors):
            return bool(size <= MOST_BYTES)
        return bool(
            size <= MOST_SCALAR_BYTES
            and name in SCALARS
            and self._whole
            and group.size() <= MOST_SCALAR_MEMBERS
        )

    def _key(self, group: Any) -> str:
        name = group.group_name
        key = self._keys.get(name)
        if key is None:
            ranks = self._dist.get_process_group_ranks(group)
            text = json.dumps([name, ranks])
            key = self._keys[name] = hashlib.sha256(text.encode()).hexdigest()[:16]
        return key

    def _exchange(self, name: str, group: Any, args: tuple[Any, ...], *, exchanged: bool) -> None:
        """Do what a collective does among fake ranks: give this rank's part, and take the others'.

        Ranks that run one after another leave their parts in a mailbox. A part that a rank can
        never give raises NeverError.
        """
        key, ranks = self._key(group), self._dist.get_process_group_ranks(group)
        me = ranks.index(self._dist.get_rank())
        ins, outs = _sides(name, args)
        if name in MESSAGES:
            self._message(name, key, ranks, me, args, exchanged=exchanged)
            return
        count = self._counts[key,]
        self._counts[key,] += 1
        root = _root(name, args)
        gives = root is None or (me == root) == (name in {"broadcast_", "scatter_"})
        if name in {"reduce_", "gather_"}:
            gives = True
        if gives:
            content = b"".join(_bytes(each) for each in ins)
            sizes = [each.nbytes for each in ins]
            about = json.dumps({"op": name, "sizes": sizes, "in": _splits(name, args)})
            self._mailbox.put(f"{key}/{count}/{me}", about.encode() + b"\n" + content)
        wanted = range(len(ranks)) if root is None or name in {"reduce_", "gather_"} else [root]
        if name in {"reduce_", "gather_"} and me != root:
            return
        parts: dict[int, tuple[dict[str, Any], bytes]] = {}
        for at in wanted:
            if ranks[at] in self._ranks:
                raw = self._mailbox.take(f"{key}/{count}/{at}")
                head, _, content = raw.partition(b"\n")
                about = json.loads(head)
                if about["op"] != name:
                    raise NeverError(name)
                parts[at] = about, content
        own = parts.get(me)
        for at in wanted:
            if at not in parts:  # a rank that is not recorded: as if it held ours
                parts[at] = own or next(iter(parts.values()))
        self._settle(name, args, me, parts, outs)

    def _settle(
        self,
        name: str,
        args: tuple[Any, ...],
        me: int,
        parts: dict[int, tuple[dict[str, Any], bytes]],
        outs: list[Any],
    ) -> None:
        """Store what the members of a collective gave."""
        torch = self._torch
        ins, _ = _sides(name, args)
        if name in {"allgather_", "gather_"} and len(outs) != len(parts):
            words = f"invalid output tensor list (expected length {len(parts)}, got {len(outs)})"
            raise RuntimeError(words)  # as Gloo does
        if name == "alltoall_base_":
            self._rows(args, me, parts, outs[0])
        for at, tensor in enumerate(ins if name in _IN_PLACE else outs):
            if name in _IN_PLACE - {"broadcast_"}:
                each = [_part(parts[rank], at, tensor) for rank in sorted(parts)]
                found = _reduce(torch, args[2], each)
            elif name == "broadcast_":
                found = _part(next(iter(parts.values())), at, tensor)
            elif name in {"scatter_", "alltoall_"}:
                found = _part(parts[at if name == "alltoall_" else next(iter(parts))], me, tensor)
            elif name in {"allgather_", "gather_"}:
                found = _part(parts[at], 0, tensor)
            elif name in {"_allgather_base_", "allgather_into_tensor_coalesced_"}:
                found = torch.cat([_part(parts[rank], at, tensor) for rank in sorted(parts)])
            else:
                break
            if found.numel() != tensor.numel():
                raise NeverError(name)
            tensor.copy_(found.reshape(tensor.shape))

    def _rows(
        self,
        args: tuple[Any, ...],
        me: int,
        parts: dict[int, tuple[dict[str, Any], bytes]],
        out: Any,
    ) -> None:
        torch, size = self._torch, len(parts)
        row = out[0].numel() if out.dim() and out.shape[0] else 1
        found = []
        for rank in sorted(parts):
            given = _flatten(parts[rank][1], out.dtype, torch)
            splits = parts[rank][0]["in"] or [given.numel() // row // size] * size
            start = sum(splits[:me]) * row
            found.append(given[start : start + splits[me] * row])
        whole = torch.cat(found)
        if whole.numel() == out.numel():
            out.copy_(whole.reshape(out.shape))
        del args

    def _message(
        self,
        name: str,
        key: str,
        ranks: list[int],
        me: int,
        args: tuple[Any, ...],
        *,
        exchanged: bool,
    ) -> None:
        """Send or take one message; of one that is not exchanged there is only that it was sent."""
        (tensor,) = args[0]
        if not tensor.is_contiguous():
            words = "input tensor has to be contiguous"
            raise RuntimeError(words)  # as Gloo does
        exchanged = exchanged or tensor.nbytes <= MOST_SCALAR_BYTES
        if name == "recv_any_source_":
            peer, tag = self._anyone(key, ranks, me, args[2]), args[2]
            self._recorder.sources[self._number] = peer
        else:
            peer, tag = args[2], args[3]
        one, two = (me, peer) if name == SENDING else (peer, me)
        way = (key, one, two, tag)
        count = self._counts[way]
        self._counts[way] += 1
        place = f"{key}/{one}-{two}-{tag}/{count}"
        if name == SENDING:
            self._mailbox.put(place, _bytes(tensor) if exchanged else b"")
        elif not exchanged:
            self._guess(name, args)
        elif ranks[peer] in self._ranks:
            if self._is_awaited or name != "recv_":
                self._take(place, tensor)
            else:
                self._recorder.late[self._number] = partial(self._take_late, place, tensor)
        else:
            raise NeverError(name)

    def _take(self, place: str, tensor: Any) -> None:
        content = self._mailbox.take(place)
        if len(content) == tensor.nbytes:
            given = _flatten(content, tensor.dtype, self._torch)
            with self._torch.no_grad():  # a pipeline's buffer may be a leaf that has a gradient
                tensor.copy_(given.reshape(tensor.shape))

    def _take_late(self, place: str, tensor: Any) -> None:
        try:
            self._take(place, tensor)
        except NeverError:
            self._stand()

    def _anyone(self, key: str, ranks: list[int], me: int, tag: int) -> int:
        """Return the member whose message a receive from anyone takes: the first that is there.

        Which one it is, is a guess. Raises NeverError where none ever comes.
        """
        names = {
            f"{key}/{peer}-{me}-{tag}/{self._counts[key, peer, me, tag]}": peer
            for peer in range(len(ranks))
            if peer != me and ranks[peer] in self._ranks
        }
        return names[self._mailbox.first(list(names))]

    def _guess(self, name: str, args: tuple[Any, ...]) -> None:
        """Let a rank receive its own: as if all ranks held it.

        Where it gives nothing (`recv`, and `scatter` of another's), its numbers are small and the
        same: memory that was never written may hold some that are not finite, and a right script
        then raises.
        """
        ins, outs = _sides(name, args)
        if not outs:
            return
        if not ins:
            for tensor in outs:
                if tensor.is_floating_point() or tensor.is_complex():
                    with self._torch.no_grad(), suppress(RuntimeError):
                        tensor.fill_(1.0 / max(1, tensor.shape[-1] if tensor.dim() else 1))
            return
        first = ins[0]
        for tensor in outs:
            if tensor.dtype != first.dtype or not first.numel():
                continue
            with self._torch.no_grad(), suppress(RuntimeError):
                if tensor.numel() == first.numel():
                    tensor.copy_(first.reshape(tensor.shape))
                elif tensor.numel() < first.numel():
                    tensor.copy_(first.reshape(-1)[: tensor.numel()].reshape(tensor.shape))
                else:
                    turns = -(-tensor.numel() // first.numel())
                    many = first.reshape(-1).repeat(turns)[: tensor.numel()]
                    tensor.copy_(many.reshape(tensor.shape))


#: operation -> where its tensors go in, where they come out: (argument, depth of lists)
_SIDES: dict[str, tuple[tuple[int, int] | None, tuple[int, int] | None]] = {
    "allreduce_": ((0, 1), None),
    "allreduce_coalesced_": ((0, 1), None),
    "broadcast_": ((0, 1), None),
    "reduce_": ((0, 1), None),
    "allgather_": ((1, 1), (0, 2)),
    "_allgather_base_": ((1, 0), (0, 0)),
    "allgather_into_tensor_coalesced_": ((1, 1), (0, 1)),
    "gather_": ((1, 1), (0, 2)),
    "scatter_": ((1, 2), (0, 1)),
    "reduce_scatter_": ((1, 2), (0, 1)),
    "_reduce_scatter_base_": ((1, 0), (0, 0)),
    "reduce_scatter_tensor_coalesced_": ((1, 1), (0, 1)),
    "alltoall_": ((1, 1), (0, 1)),
    "alltoall_base_": ((1, 0), (0, 0)),
    "send": ((0, 1), None),
    "recv_": (None, (0, 1)),
    "recv_any_source_": (None, (0, 1)),
}


#: operations whose tensors are given and taken in one
_IN_PLACE = frozenset({"allreduce_", "allreduce_coalesced_", "reduce_", "broadcast_"})


def _sides(name: str, args: tuple[Any, ...]) -> tuple[list[Any], list[Any]]:
    one, two = _SIDES.get(name, (None, None))
    return _tensors(args, one), _tensors(args, two)


def _tensors(args: tuple[Any, ...], where: tuple[int, int] | None) -> list[Any]:
    if where is None:
        return []
    value, depth = args[where[0]], where[1]
    if depth == 0:
        return [value]
    if depth == 1:
        return list(value)
    return [each for part in value for each in part]


def _call_fake(name: str, args: tuple[Any, ...], go_on: Callable[[], Any]) -> Any:
    """Let torch's fake backend do a call, or do what it cannot: no rows, and gathers into `[1, n]`.

    NCCL gathers into any tensor of the right size, and SyncBatchNorm asks for that one.
    """
    if name == "alltoall_base_" and not (args[0].numel() and args[1].numel()):
        return None
    if name == "_allgather_base_":
        out, given = args[:2]
        if out.shape[:1] == (1,) and out.dim() > given.dim() and given.numel():
            out.copy_(given.flatten().repeat(out.numel() // given.numel()).reshape(out.shape))
            return (out,)
    return go_on()


def _root(name: str, args: tuple[Any, ...]) -> int | None:
    at = {"broadcast_": 2, "reduce_": 3, "gather_": 3, "scatter_": 3}.get(name)
    return None if at is None else int(args[at])


def _splits(name: str, args: tuple[Any, ...]) -> list[int]:
    return [int(each) for each in args[4]] if name == "alltoall_base_" else []


def _bytes(tensor: Any) -> bytes:
    flat = tensor.detach().contiguous().view(-1).view(torch.uint8)
    # `numpy()` would leave a storage that FSDP cannot resize afterwards
    return ctypes.string_at(flat.data_ptr(), flat.numel())


def _flatten(content: bytes, dtype: Any, torch: Any) -> Any:
    if not content:
        return torch.empty(0, dtype=dtype)
    if len(content) % dtype.itemsize:
        raise NeverError(dtype)
    return torch.frombuffer(bytearray(content), dtype=dtype)


def _part(given: tuple[dict[str, Any], bytes], at: int, like: Any) -> Any:
    """Return one of the tensors that a rank gave, flat."""
    about, content = given
    sizes = about["sizes"]
    if at >= len(sizes):
        raise NeverError(about["op"])
    start = sum(sizes[:at])
    found = _flatten(content[start : start + sizes[at]], like.dtype, torch)
    if not found.numel() <= like.numel():
        raise NeverError(about["op"])
    return found


def _reduce(torch: Any, op: Any, parts: list[Any]) -> Any:
    if len({part.numel() for part in parts}) != 1:
        raise NeverError(len(parts))
    stacked = torch.stack(parts)
    match _op(op):
        case "max":
            return stacked.amax(0)
        case "min":
            return stacked.amin(0)
        case "product":
            return stacked.prod(0).to(stacked.dtype)
        case "band" | "bor" | "bxor" as bits:
            function = {
                "band": torch.bitwise_and,
                "bor": torch.bitwise_or,
                "bxor": torch.bitwise_xor,
            }[bits]
            found = parts[0]
            for part in parts[1:]:
                found = function(found, part)
            return found
        case _:
            return stacked.sum(0).to(stacked.dtype)


def _end_in_loop(recorder: Any, frame: FrameType, *, draws: bool) -> NoReturn:
    """End a rank in a loop that it never leaves: its record ends inside of it."""
    recorder.note_endless_loop(frame, draws=draws)
    os._exit(0)


def install(recorder: Any, order: dict[str, Any], rank: int, board: RankStates) -> None:
    """Let this process be a rank of a fake world."""
    dist: Any = torch.distributed
    module = dist.distributed_c10d
    world = order["world_size"]
    leave_untraced(sys.modules[__name__])
    ranks = list(order["ranks"])
    mailbox = FileMailbox(Path(order["folder"]) / "mailbox", rank, ranks, board)
    recorder.answer = Exchange(recorder, mailbox, order).answer
    recorder.decisions.end_in = partial(_end_in_loop, recorder)
    begin, make = module.init_process_group, module._new_group_with_tag
    asked = _Backends(module)

    def init_process_group(backend: Any = None, *_: Any, **kwargs: Any) -> Any:
        asked.keep("", backend or "undefined")
        kept = {key: kwargs[key] for key in ("timeout", "group_name") if key in kwargs}
        claim = recorder.claim or {}
        _make_meeting_file(claim)
        stores.note_place(claim)
        own, size = claim.get("rank", -1), claim.get("world_size", -1)
        if not 0 <= own < size:
            own, size = rank, world
        return begin("fake", rank=own, world_size=size, store=FakeStore(), **kept)

    def new_group(*args: Any, **kwargs: Any) -> Any:
        backend = kwargs.pop("backend", None) or (args[2] if len(args) > 2 else None)
        args = (*args[:2], None, *args[3:]) if len(args) > 2 else args
        group = make(*args, **kwargs)
        if backend and isinstance(group, dist.ProcessGroup):
            asked.keep(group.group_name, backend)
        return group

    def monitored_barrier(group: Any = None, timeout: Any = None, *_: Any, **__: Any) -> None:
        wanted = group or module._get_default_group()
        wanted.monitored_barrier(timeout or dt.timedelta(minutes=30), wait_all_ranks=False)

    spawner = Spawner(recorder, dist, rank, world)
    spawner.install(torch.multiprocessing, sys.modules["torch.multiprocessing.spawn"])
    spawner.watch_processes()
    spawner.watch_programs(os.path.abspath(order["command"][0]))
    RayWorkers(dist, spawner.run_as_worker).install()
    _tell_sleeps(rank, board)
    path = str(Path(order["folder"]) / "store")
    stores = JobStores(dist)
    _share_keys(dist, FakeStore, path, recorder.prefixes, stores)
    module._new_group_with_tag = new_group
    for holder in (module, dist):
        holder.init_process_group = init_process_group
        holder.get_backend = asked.get_backend
        holder.monitored_barrier = monitored_barrier
    rpc = sys.modules.get("torch.distributed.rpc")
    if rpc is not None and rpc.is_available():
        # its world needs every rank at once, and these run one by one: the record ends in it
        rpc.init_rpc = watch(lambda *_, **__: os._exit(0), f"{PREFIX}init_rpc", recorder.inside)  # type: ignore[attr-defined]
    # imported by name before: they are asked there
    for name in ("torch.distributed.device_mesh",):
        if name in sys.modules and hasattr(sys.modules[name], "init_process_group"):
            sys.modules[name].init_process_group = init_process_group  # type: ignore[attr-defined]


def _make_meeting_file(claim: Mapping[str, Any]) -> None:
    """Make the file at which ranks are to meet, as torch does: other ranks may look for it."""
    if claim.get("method") == "file":
        with suppress(OSError):
            Path(claim["address"]).touch()


#: what starts a function on several ranks
STARTS = ("spawn", "start_processes")


class EndedRanks:
    """What a script that does not wait for its ranks asks them by: they have come to their end."""

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Return that all of them have ended."""
        return True


class _EndedProcess:
    """What a `Process` asks that was run in place, or by another fake rank: it has ended."""

    returncode, pid = 0, 0

    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended = ended
        self.sentinel = os.open(os.devnull, os.O_RDONLY)  # `connection.wait` finds it ready

    def poll(self, *_: Any) -> int:
        return self.returncode

    def wait(self, *_: Any, **__: Any) -> int:
        self._ended()
        return self.returncode

    def terminate(self) -> None:
        return None

    kill = interrupt = terminate

    def close(self) -> None:
        with suppress(OSError):
            os.close(self.sentinel)


class Spawner:
    """Runs in place, in the rank that is there, what a script starts on as many ranks.

    A script that spawns its ranks is the parent of all of them, and each fake rank runs it::

        mp.spawn(train, args=(world,), nprocs=world)       rank 1 runs train(1, world) in its place
        for i in range(world):
            mp.Process(target=train, args=(i, world)).start()      rank 1 runs the second of them

    What a script does behind that is done in every rank; a framework that waits there for what one
    rank gives it is left instead. What a rank starts that has joined its job are its own helpers:
    they are started.
    """

    def __init__(self, recorder: Any, dist: Any, rank: int, world: int) -> None:
        self._recorder, self._dist, self._rank, self._world = recorder, dist, rank, world
        self._has_run = False
        #: processes that the script has started since it has waited for one
        self._started = 0

    def install(self, *holders: Any) -> None:
        """Put what runs in place where a script finds `spawn` and `start_processes`."""
        for holder in holders:
            for name in STARTS:
                setattr(holder, name, self._wrap(getattr(holder, name)))

    def _wrap(self, start: Callable[..., Any]) -> Callable[..., Any]:
        def run(
            fn: Callable[..., Any],
            args: tuple[Any, ...] = (),
            nprocs: int = 1,
            join: bool = True,  # noqa: FBT001, FBT002 - scripts pass it by its place, as torch has it
            *more: Any,
            **named: Any,
        ) -> Any:
            if self._is_own() or (nprocs != self._world and _joins(fn) is False):
                return start(fn, args, nprocs, join, *more, **named)
            if self._dist.is_initialized():  # the process that has not left its group would be gone
                self._dist.destroy_process_group()
            self._run(fn, args, nprocs)
            if is_foreign(sys._getframe(1).f_code.co_filename):
                raise SystemExit(0)
            return None if join else EndedRanks()

        return run

    def watch_processes(self) -> None:
        """Run in place the processes that a script starts one by one to join its job.

        The first is that of fake rank 0, the second that of 1: what they say their ranks are, they
        say themselves. A process joins where its function, or one that this calls, makes a group.
        """
        start = BaseProcess.start

        def begin(process: Any) -> None:
            target = getattr(process, "_target", None) or type(process).run
            if self._is_own() or not _joins(target):
                start(process)
                return
            given = (process._args, process._kwargs) if hasattr(process, "_args") else (process,)
            is_mine = self._take_place(given)
            process._popen = _EndedProcess(self._wait)
            process._sentinel = process._popen.sentinel
            if is_mine:
                self._call(process.run, target, given)

        BaseProcess.start = begin  # type: ignore[method-assign, assignment]

    def watch_programs(self, main: str) -> None:
        """Run in place the programs that a script starts to join its job; `main` is the script."""
        starts = ProgramStarts(main, self._run_program, self._recorder.decisions.compile)
        starts.install(self._wait)

    def _run_program(self, run: Callable[[], None], given: Sequence[Any]) -> bool | None:
        """Run a program that the script starts where it is this rank's; returns whether it is.

        None where what is started now is a rank's own helper.
        """
        if self._is_own():
            return None
        is_mine = self._take_place(given)
        if is_mine:
            self._call(run, None, given)
        return is_mine

    def _take_place(self, given: Sequence[Any]) -> bool:
        """Count what a script starts to join its job; whether it is what this rank is to run."""
        at, self._started = self._started, self._started + 1
        if at == 0:
            self._recorder.given_first = given
        if at >= self._world:
            self._refuse(f"more than {self._world}", at + 1)
        if at == self._rank and self._dist.is_initialized():
            self._dist.destroy_process_group()
        return at == self._rank

    def run_as_worker(
        self, started: int, run: Callable[[], Any], fn: Any, passed: Sequence[Any]
    ) -> None:
        """Run as this rank what a framework runs in each of the workers that it starts."""
        if started != self._world:
            self._refuse(str(started), started)
        if self._dist.is_initialized():
            self._dist.destroy_process_group()
        self._call(run, fn, passed)

    def _is_own(self) -> bool:
        """Whether what is started now is a rank's own helper."""
        is_initialized = self._dist.is_initialized() and not self._has_run
        return bool(self._recorder.is_spawned or is_initialized)

    def _wait(self) -> None:
        """Let what is started from now on be the first again: one is waited for."""
        self._started = 0

    def _refuse(self, started: str, wanted: int) -> NoReturn:
        words = f"scenario: the script starts {started} ranks, and is recorded with {self._world}"
        raise SystemExit(words + (f": write `--fake -n {wanted}`" if wanted else ""))

    def _run(self, fn: Callable[..., Any], args: tuple[Any, ...], nprocs: int) -> None:
        """Run a function as this rank, or end the run where a script starts more or fewer."""
        if nprocs != self._world:
            self._refuse(str(nprocs), nprocs)
        self._call(partial(fn, self._rank, *args), fn, args)

    def _call(self, run: Callable[[], Any], fn: Any, passed: Sequence[Any]) -> None:
        self._recorder.is_spawned = self._has_run = True
        self._recorder.given = [*passed, *_list_given(fn)]
        try:
            run()
        finally:
            self._recorder.is_spawned = False
        self._recorder.note_return()


#: modules of Ray Train: what starts its workers, and what they meet in
_TRAINER = "ray.train.v2.api.data_parallel_trainer"
_WORKER = "ray.train.v2._internal.execution.train_fn_utils"


class RayWorkers:
    """Lets a trainer of Ray run its loop where it is called, as the worker of this rank.

    Ray's workers are started by servers of its own, one set for the whole job, and a fake rank is a
    process that runs alone. Ray has a local mode, in which a process with torchrun's environment is
    itself the worker of that rank: a trainer takes it here. What the workers meet in apart from
    torch (`report`, a barrier, a broadcast) is a barrier or a broadcast of the world.
    """

    def __init__(self, dist: Any, run: Callable[[int, Callable[[], Any], Any, Any], None]) -> None:
        """`run` runs a function as this rank: how many there are to be, and what it is given."""
        self._dist, self._run = dist, run

    def install(self) -> None:
        """Wait until the script imports Ray Train."""
        ImportHook({_TRAINER: self.take_fit, _WORKER: self.meet}).install()

    def take_fit(self, module: Any) -> None:
        """Let `fit` run in place; Ray's servers are started where something else asks for them."""
        trainer = module.DataParallelTrainer
        fit = trainer.fit

        def fit_in_place(own: Any) -> Any:
            if own.datasets:  # Ray Data has servers of its own, and its local mode none of them
                return fit(own)
            found: list[Any] = []
            own.running_in_local_mode = True
            self._run(
                own.scaling_config.num_workers or 1,
                lambda: found.append(fit(own)),
                own.train_loop_per_worker,
                (own.train_loop_config,),
            )
            return found[0] if found else None

        trainer.fit = fit_in_place
        _start_late(sys.modules["ray"])

    def meet(self, module: Any) -> None:
        """Let the ranks meet in what Ray's workers meet in."""
        worker, dist = module.LocalTrainFnUtils, self._dist
        report = worker.report

        def meet_and_report(own: Any, *args: Any, **kwargs: Any) -> None:
            dist.barrier()
            report(own, *args, **kwargs)

        def broadcast(_: Any, data: Any) -> Any:
            given = [data]
            dist.broadcast_object_list(given)
            return given[0]

        worker.report = meet_and_report
        worker.barrier = lambda _: dist.barrier()
        worker.broadcast_from_rank_zero = broadcast


def _start_late(ray: Any) -> None:
    """Let `ray.init` of a script start nothing; Ray calls it again where it wants its servers."""
    start = ray.init
    wanted: dict[str, Any] = {}

    def init(*args: Any, **kwargs: Any) -> Any:
        if sys._getframe(1).f_globals.get("__name__", "").split(".")[0] == "ray":
            return start(*wanted.get("args", ()), **wanted.get("kwargs", {}), **kwargs)
        wanted.update(args=args, kwargs=kwargs)
        return None

    ray.init = init


#: variables of the environment by which a parent says where its ranks meet
_PLACES = ("MASTER_ADDR", "MASTER_PORT")


def _list_given(fn: Any) -> Iterator[Any]:
    """Yield what a function finds that a process begins with, besides its arguments.

    That is what is bound to it, the place in the environment, and the numbers and texts of its
    module, which a process that is forked has of its parent.
    """
    while isinstance(fn, partial):
        yield from (fn.args, fn.keywords)
        fn = fn.func
    if (owner := getattr(fn, "__self__", None)) is not None:
        yield owner
    yield [os.environ.get(name) for name in _PLACES]
    known = getattr(getattr(fn, "__func__", fn), "__globals__", {})
    yield [each for each in known.values() if isinstance(each, int | str)]
    for cell in getattr(fn, "__closure__", None) or ():
        with suppress(ValueError):  # it is not filled yet
            yield cell.cell_contents


#: calls of torch, accelerate, DeepSpeed, transformers and Lightning that make the first group
_FIRST_GROUP = frozenset(
    {
        *("init_process_group", "init_device_mesh", "init_distributed", "init_rpc"),
        *("initialize", "Accelerator", "PartialState", "Trainer", "Fabric"),
    }
)


def _joins(target: Any) -> bool | None:
    """Whether a function makes a group, as far as scripts show it; None where none has it."""
    target = getattr(target, "func", target)  # of a partial
    code = getattr(getattr(target, "__func__", target), "__code__", None)
    source = script_at(code.co_filename) if code is not None else None
    if code is None or source is None:
        return None
    return source.reaches(code.co_name, _FIRST_GROUP)


def _makes_group(file: str) -> bool:
    """Whether a script makes a process group where it is run, as far as its text shows."""
    source = script_at(file)
    return source is not None and source.runs(_FIRST_GROUP)


# -------------------------------------------------------------------------------------------------
# A launcher that the user wrote: the programs that it starts run in place.


#: a program of Python, and a variable that a shell sets for one command
_PYTHON, _VARIABLE = re.compile(r"(?:python|pypy)[\d.]*"), re.compile(r"[A-Za-z_]\w*=")
#: words of a shell before a program, and those by which a line is more than one command
_BEFORE, _MORE = frozenset({"exec", "env", "nohup"}), re.compile(r"[;&|<>$`(){}*?\n]")
#: options of Python that a word follows, and that end its options
_WITH_WORD, _ENDS = frozenset({"-W", "-X"}), frozenset({"-c", "-", "--"})
#: variables that a rank keeps whatever environment it is given: who records it
_KEPT = ("SCENARIO_RECORD", OWNER, "PYTHONPATH")


class StartedProgram(Struct, frozen=True, kw_only=True):
    """A program of Python that a script starts: its file, its words, and where it runs.

    `LR=1 python -u -m jobs.train --debug`, in /work::

        |              |- module: jobs.train, file: /work/jobs/train.py
        |              `- argv: that file, --debug
        `- environment: the launcher's own, with LR; folder: /work
    """

    file: str
    module: str
    argv: tuple[str, ...]
    folder: str
    environment: Mapping[str, str]


def read_command(
    command: Any, environment: Mapping[str, str], folder: str
) -> StartedProgram | None:
    """Return the program of Python that a command starts; None where it starts another one.

    `command` is a list of words, or one line for a shell.
    """
    words = _split(command)
    own = dict(environment)
    while words and (words[0] in _BEFORE or _VARIABLE.match(words[0])):
        name, is_set, value = words.pop(0).partition("=")
        if is_set:
            own[name] = value
    if not words or _PYTHON.fullmatch(os.path.basename(words[0])) is None:
        return None
    rest = words[1:]
    while rest and rest[0].startswith("-") and rest[0] != "-m":
        if rest[0] in _ENDS:
            return None
        del rest[: 2 if rest[0] in _WITH_WORD else 1]
    if rest[:1] == ["-m"]:
        file = _find_module(rest[1], folder) if len(rest) > 1 else ""
        module, argv = (rest[1], [file, *rest[2:]]) if file else ("", [])
    else:
        file, module, argv = (os.path.join(folder, rest[0]) if rest else ""), "", rest
    if not file.endswith(".py") or not os.path.isfile(file):
        return None
    return StartedProgram(
        file=os.path.abspath(file),
        module=module,
        argv=tuple(argv),
        folder=folder,
        environment=own,
    )


def _split(command: Any) -> list[str]:
    """Return the words of a command; none where a shell would do more than start one program."""
    if isinstance(command, bytes | os.PathLike):
        command = os.fsdecode(command)
    if isinstance(command, str):
        with suppress(ValueError):
            return [] if _MORE.search(command) else shlex.split(command)
        return []
    with suppress(TypeError):
        return [os.fsdecode(each) for each in command]
    return []


def _find_module(name: str, folder: str) -> str:
    """Return the file of a module in a folder, or where Python looks; an empty text if not found.

    That of a package is its `__main__`.
    """
    path = Path(folder, *name.split("."))
    for found in (path.with_suffix(".py"), path / "__main__.py"):
        if found.is_file():
            return str(found)
    with suppress(ImportError, ValueError, AttributeError):
        spec = importlib.util.find_spec(name)
        return str(spec.origin) if spec is not None and spec.origin else ""
    return ""


class ProgramStarts:
    """Lets a fake rank run, of the programs that a launcher starts, its own in place.

    Each fake rank runs the launcher. The other programs have ended, for the launcher: other fake
    ranks run them::

        for rank in range(4):
            env = dict(os.environ, RANK=str(rank))        rank 2 runs `train.py` with RANK=2 in its
            jobs.append(subprocess.Popen(                 place, and three programs that end at once
                [sys.executable, "train.py"], env=env))

    A program is one of a job where its file, or what this calls, makes a process group, and the
    script makes none itself: what a rank starts are its own programs, and really run.
    """

    def __init__(
        self,
        main: str,
        run: Callable[[Callable[[], None], Sequence[Any]], bool | None],
        compile_own: Callable[[bytes, str], Any],
    ) -> None:
        """`main` is the script.

        `run` runs a program where it is that of this rank, and says whether it did; None where it
        is to be started as it is. `compile_own` makes code of a file of the user's.
        """
        self._main, self._run, self._compile = main, run, compile_own
        self._wait: Callable[[], None] = lambda: None
        #: what a program's module holds lives until the process ends, as that of a script does
        self._modules: list[types.ModuleType] = []

    def install(self, wait: Callable[[], None]) -> None:
        """See each program that is started from now on; `wait` is called where one is waited for.

        What it would start is a program that ends at once with the code that it ended with.
        """
        self._wait = wait
        kind: Any = subprocess.Popen
        begin = kind.__init__

        def start(own: Any, args: Any, *more: Any, **named: Any) -> None:
            code = self._run_in_place(args, named)
            if code is None:
                begin(own, args, *more, **named)
                return
            named.update(shell=False, executable=None, env=None, cwd=None)
            begin(own, ["/bin/sh", "-c", f"exit {code}"], *more, **named)
            for name in ("wait", "communicate"):
                setattr(own, name, self._see_wait(getattr(own, name)))

        kind.__init__ = start

    def _see_wait(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def wait(*args: Any, **kwargs: Any) -> Any:
            self._wait()
            return function(*args, **kwargs)

        return wait

    def _run_in_place(self, args: Any, named: Mapping[str, Any]) -> int | None:
        """Run a program where it is that of this rank; returns its exit code, or 0 for another's.

        None where it does not belong to the job.
        """
        given = named.get("env")
        environment = dict(os.environ) if given is None else {**given}
        folder = os.path.abspath(os.fsdecode(named.get("cwd") or os.getcwd()))
        program = read_command(args, environment, folder)
        if program is None or is_foreign(program.file) or not _makes_group(program.file):
            return None
        if program.file != self._main and _makes_group(self._main):
            return None
        ran = self._run(
            lambda: self._execute(program), [[*program.argv], dict(program.environment)]
        )
        return None if ran is None else 0

    def _execute(self, program: StartedProgram) -> None:
        """Run a program as `python` does, in this process."""
        main = types.ModuleType("__main__")
        main.__dict__["__file__"] = program.file
        if program.module:
            main.__dict__["__package__"] = program.module.rpartition(".")[0]
        self._modules.append(main)
        head = program.folder if program.module else os.path.dirname(program.file)
        with _as_started(program, head, main):
            try:
                exec(self._compile(Path(program.file).read_bytes(), program.file), main.__dict__)
            except SystemExit as exiting:
                if exiting.code not in {None, 0}:
                    raise


@contextmanager
def _as_started(program: StartedProgram, head: str, main: types.ModuleType) -> Iterator[None]:
    """Let this process have the words, environment, folder and modules of a program, for a while.

    What the launcher has imported of the user's own is imported anew: it may have read another
    environment.
    """
    before = (sys.argv, sys.path, dict(os.environ), os.getcwd(), dict(sys.modules))
    for name, module in before[4].items():
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and name != "__main__" and not is_foreign(file):
            del sys.modules[name]
    sys.modules["__main__"] = main
    sys.argv, sys.path = [*program.argv], [head, *sys.path]
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    _set_environment({**program.environment, **kept})
    os.chdir(program.folder)
    try:
        yield
    finally:
        os.chdir(before[3])
        _set_environment(before[2])
        sys.argv, sys.path = before[:2]
        sys.modules["__main__"] = before[4]["__main__"]


def _set_environment(wanted: Mapping[str, str]) -> None:
    for name in set(os.environ) - set(wanted):
        del os.environ[name]
    os.environ.update({os.fsdecode(name): os.fsdecode(held) for name, held in wanted.items()})


#: where torch's pipelines are
_PIPELINE = f"{os.sep}torch{os.sep}distributed{os.sep}pipelining{os.sep}"


class _Backends:
    """The backends that a script wants, by group: what frameworks ask, and torch mostly does not.

    A pipeline of torch 2.15 refuses the fake backend where its stages are to tell each other their
    shapes, and leaves out what real ranks call to connect them; fake ranks do exchange these.
    """

    def __init__(self, module: Any) -> None:
        self._module, self._tell = module, module.get_backend
        self._names: dict[str, str] = {}

    def keep(self, group: str, backend: object) -> None:
        """Keep what a group is wanted to be; that of all has no name."""
        self._names[group] = str(find_stand_in(backend)).lower()

    def get_backend(self, group: Any = None) -> str:
        """Return the backend of a group as the script wants it; to torch what it is."""
        found = str(self._tell(group))
        file = sys._getframe(1).f_code.co_filename
        is_answered = not is_foreign(file) or is_framework(file) or _PIPELINE in file
        if found != "fake" or not is_answered:
            return found
        name = (group or self._module._get_default_group()).group_name
        return self._names.get(name, self._names[""])


#: what a script may ask of the store of its job
_OF_STORE = ("set", "get", "wait", "add", "check", "delete_key", "compare_set", "num_keys")


class JobStores:
    """The store in which the ranks of a job meet, as the script itself makes clients of it.

    Fake ranks meet in none, and no process listens at the port of their job::

        store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), world)
                                                    a server that this rank alone has is in its
                                                    place, and is never asked
    """

    def __init__(self, dist: Any) -> None:
        """See each store that is made from now on."""
        self._kind: Any = dist.TCPStore
        #: where the ranks meet as `init_process_group` says, and the stand-ins that are there
        self._met_at: set[int] = set()
        self._stand_ins: set[int] = set()
        begin, refused = self._kind.__init__, getattr(dist, "DistNetworkError", RuntimeError)
        signature = inspect.Signature(
            [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in _STORE]
        )

        def make(own: Any, *args: Any, **kwargs: Any) -> None:
            known = {name: kwargs[name] for name in _STORE if name in kwargs}
            try:
                given = signature.bind_partial(*args[: len(_STORE)], **known).arguments
            except TypeError:
                given = {}
            port = given.get("port", -1)
            if not self._is_met_at(port):
                begin(own, *args, **kwargs)
                return
            if given.get("is_master"):
                raise refused(_TAKEN.format(port))
            more = {"timeout": kwargs["timeout"]} if "timeout" in kwargs else {}
            begin(own, "127.0.0.1", 0, is_master=True, wait_for_workers=False, **more)
            self._stand_ins.add(own.port)

        self._kind.__init__ = make

    def note_place(self, claim: Mapping[str, Any]) -> None:
        """Note where the ranks meet, as a call of `init_process_group` says."""
        if claim.get("method") in {"env", "tcp", "spawn"}:
            self._met_at.add(claim.get("port", -1))

    def _is_met_at(self, port: Any) -> bool:
        is_agents = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == str(True)
        of_agent = os.environ.get("MASTER_PORT") if is_agents else None
        return port in self._met_at or str(port) == of_agent

    def has(self, store: Any) -> bool:
        """Whether a store is in the place of that of the job."""
        return isinstance(store, self._kind) and store.port in self._stand_ins


#: what a `TCPStore` takes by position, and what torch says where its port is another one's
_STORE = ("host_name", "port", "world_size", "is_master")
_TAKEN = (
    "The server socket has failed to listen on any local network address. port: {}, useIpv6: "
    "false, code: -98, name: EADDRINUSE, message: address already in use"
)


def _share_keys(
    dist: Any, fake: Any, path: str, prefixes: StorePrefixes, stores: JobStores
) -> None:
    """Let the ranks share the keys that the script itself puts into the store of its job.

    Torch's fake store keeps nothing, and raises where it is asked. What torch asks of it stays
    so: a key that its barriers wait for would never come from ranks that run one by one.
    """
    shared: list[Any] = []
    real = (dist.TCPStore, dist.FileStore, dist.HashStore)

    def is_fake(store: Any) -> bool:
        while isinstance(store, dist.PrefixStore):
            store = store.underlying_store
        return stores.has(store) or not isinstance(store, real)

    def share(kind: Any, name: str) -> Any:
        own_method = vars(kind).get(name)

        def ask(store: Any, *args: Any, **kwargs: Any) -> Any:
            if is_foreign(sys._getframe(1).f_code.co_filename) or not is_fake(store):
                otherwise = own_method or getattr(dist.Store, name)  # which may be watched by now
                return otherwise(store, *args, **kwargs)
            if not shared:
                shared.append(dist.FileStore(path, -1))
            own = prefixes.put(prefixes.of(store), shared[0])
            return getattr(dist.Store, name)(own, *args, **kwargs)

        return ask

    for kind in (fake, dist.PrefixStore, dist.TCPStore):
        for name in _OF_STORE:
            if hasattr(kind, name):
                setattr(kind, name, share(kind, name))


def _tell_sleeps(rank: int, board: RankStates) -> None:
    """Let the board know until when the main thread sleeps: that is over by itself."""
    sleep = time.sleep

    def sleep_on_board(seconds: Any, /) -> None:
        if threading.current_thread() is threading.main_thread():
            board.sleep_until(rank, time.monotonic() + seconds)
        sleep(seconds)

    sleep_on_board.__name__, sleep_on_board.__doc__ = "sleep", sleep.__doc__
    time.sleep = sleep_on_board
