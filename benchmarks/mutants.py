"""Backends that are right but for one fault, and which of them the corpus finds.

`python -m benchmarks.mutants` runs each on the cases of some files until one fails, and writes
docs/reference/mutants.md. As a plugin (`--plugin benchmarks.mutants --backend mutant_NAME`) it
registers each mutant on its own.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from plugins.passing_backend import Passing, register
from torch_scenarios.conformance.certificate import FIRST, places_of
from torch_scenarios.execution import Launcher, LaunchOptions
from torch_scenarios.language import load
from torch_scenarios.limits import DEFAULT
from torch_scenarios.pipeline.attempts import analyse, execute

PREFIX = "mutant_"
PAGE = Path(__file__).parents[1] / "docs" / "reference" / "mutants.md"
#: the folders that are gone through after the first twenty files
FOLDERS = ("collectives", "rooted", "barrier", "p2p", "groups", "async", "dtypes", "objects")
#: and these, in which a backend must raise, or be left in a hang
LATE_FOLDERS = ("faults",)

Method = Callable[..., Any]
SUM, PRODUCT, MIN, MAX = (
    dist.ReduceOp.SUM,
    dist.ReduceOp.PRODUCT,
    dist.ReduceOp.MIN,
    dist.ReduceOp.MAX,
)


def finish(result: Any) -> Any:
    """Return a work that is done."""
    done: torch.futures.Future[Any] = torch.futures.Future()
    done.set_result(result)
    bindings: Any = torch._C  # noqa: SLF001 -- torch has no other way to make one
    return bindings._distributed_c10d._create_work_from_future(done)  # noqa: SLF001


class Changed(dist.Work):
    """A work of Gloo's after which something is changed, by its first wait."""

    def __init__(self, work: Any, change: Callable[[], object] = lambda: None) -> None:
        """Keep the work, and what is changed."""
        super().__init__()
        self._work, self._change = work, change
        self._waited = False

    def wait(self, *timeout: Any) -> bool:
        """Wait for it, and change what is to be changed."""
        done = bool(self._work.wait(*timeout))
        if not self._waited:
            self._waited = True
            self._change()
        return done

    def is_completed(self) -> bool:
        """Return whether it is done."""
        return bool(self._work.is_completed())

    def _source_rank(self) -> int:
        return int(self._work._source_rank())  # noqa: SLF001 -- torch's name


class Watched(dist.Work):
    """A work of Gloo's that differs in one answer."""

    def __init__(self, work: Any, **answers: Callable[..., Any]) -> None:
        """Keep the work, and what is answered in its place."""
        super().__init__()
        self._work, self._answers = work, answers

    def wait(self, *timeout: Any) -> bool:
        """Wait for it."""
        if "wait" in self._answers:
            return bool(self._answers["wait"](self._work, *timeout))
        return bool(self._work.wait(*timeout))

    def is_completed(self) -> bool:
        """Return whether it is done."""
        if "is_completed" in self._answers:
            return bool(self._answers["is_completed"](self._work))
        return bool(self._work.is_completed())

    def _source_rank(self) -> int:
        if "source" in self._answers:
            return int(self._answers["source"](self._work))
        return int(self._work._source_rank())  # noqa: SLF001 -- torch's name


def after(name: str, change: Callable[..., None]) -> Method:
    """Return a method that does what is right, and then changes what came."""

    def call(self: Passing, *arguments: Any) -> Any:
        return Changed(getattr(self.gloo, name)(*arguments), lambda: change(self, *arguments))

    return call


def before(name: str, change: Callable[..., tuple[Any, ...]]) -> Method:
    """Return a method that changes its arguments first."""

    def call(self: Passing, *arguments: Any) -> Any:
        return getattr(self.gloo, name)(*change(self, *arguments))

    return call


def rooted(name: str, root: Callable[[Passing, int], int]) -> Method:
    """Return a rooted collective that takes another root than the one asked for."""

    def call(self: Passing, *arguments: Any) -> Any:
        options = arguments[-1]
        options.rootRank = root(self, options.rootRank)
        return getattr(self.gloo, name)(*arguments)

    return call


def with_op(name: str, other: Mapping[Any, Any]) -> Method:
    """Return a reduction that takes another op for some."""

    def call(self: Passing, *arguments: Any) -> Any:
        options = arguments[-1]
        for op, instead in other.items():
            if options.reduceOp == op:
                options.reduceOp = instead
                break
        return getattr(self.gloo, name)(*arguments)

    return call


def nothing(_: Passing, *__: Any, **___: Any) -> Any:
    """Do nothing, and say that it is done."""
    return finish([])


def keep(name: str, part: Callable[[Passing, torch.Tensor], Any]) -> Method:
    """Return a reduction after which a part of each tensor is what it was."""

    def call(self: Passing, tensors: Any, *options: Any) -> Any:
        old = [each.clone() for each in tensors]

        def restore() -> None:
            for tensor, was in zip(tensors, old, strict=True):
                where = part(self, tensor)
                if where is not None and tensor.numel():
                    tensor.view(-1)[where] = was.view(-1)[where]

        return Changed(getattr(self.gloo, name)(tensors, *options), restore)

    return call


def by_way_of(dtype: torch.dtype) -> Method:
    """Return an all_reduce that computes in another dtype."""

    def call(self: Passing, tensors: Any, *options: Any) -> Any:
        copies = [each.to(dtype) for each in tensors]

        def store() -> None:
            for tensor, copy in zip(tensors, copies, strict=True):
                tensor.copy_(copy.to(tensor.dtype))

        return Changed(self.gloo.allreduce(copies, *options), store)

    return call


class Late(dist.Work):
    """A work that begins when it is waited for."""

    def __init__(self, begin: Callable[[], Any]) -> None:
        """Keep what to begin."""
        super().__init__()
        self._begin: Callable[[], Any] | None = begin

    def wait(self, *_: Any) -> bool:
        """Begin, and wait."""
        begin, self._begin = self._begin, None
        if begin is not None:
            begin().wait()
        return True

    def is_completed(self) -> bool:
        """Whether it was waited for."""
        return self._begin is None


#: works that were never waited for are kept, so that Gloo goes on with them
_KEPT: list[Any] = []


def late(name: str) -> Method:
    """Return a call that begins when it is waited for: the order of the calls is lost."""

    def call(self: Passing, *arguments: Any) -> Any:
        work = Late(lambda: getattr(self.gloo, name)(*arguments))
        _KEPT.append(work)
        return work

    return call


def early(name: str) -> Method:
    """Return a call whose work is done before it is."""

    def call(self: Passing, *arguments: Any, **options: Any) -> Any:
        _KEPT.append(getattr(self.gloo, name)(*arguments, **options))
        return finish(list(arguments[:1]))

    return call


def quiet(name: str) -> Method:
    """Return a call that raises nothing, whatever happens."""

    def call(self: Passing, *arguments: Any) -> Any:
        try:
            getattr(self.gloo, name)(*arguments).wait()
        except Exception:  # noqa: BLE001 -- that is the fault
            return finish(arguments[0])
        return finish(arguments[0])

    return call


def reverse_lists(self: Passing, outputs: Any, *_: Any) -> None:
    """Let a list of results stand in the opposite order."""
    del self
    for listed in outputs:
        copies = [each.clone() for each in listed]
        for tensor, copy in zip(listed, reversed(copies), strict=True):
            tensor.copy_(copy)


def leave_own(self: Passing, outputs: Any, *_: Any) -> None:
    """Let the rank's own part of a list be zero."""
    for listed in outputs:
        if listed:
            listed[self.rank()].zero_()


def zero_last(self: Passing, tensors: Any, *_: Any) -> None:
    """Let the last element be zero."""
    del self
    for tensor in tensors:
        if tensor.numel():
            tensor.view(-1)[-1:] = 0


def flip(self: Passing, output: torch.Tensor, *_: Any) -> None:
    """Let the parts of a result stand in the opposite order."""
    parts = output.view(-1).chunk(self.size())
    output.view(-1).copy_(torch.cat([each.clone() for each in reversed(parts)]))


def zero_tag(self: Passing, tensors: Any, peer: int, tag: int) -> tuple[Any, ...]:
    """Leave the tag out."""
    del self, tag
    return tensors, peer, 0


def last_byte_of_tag(self: Passing, tensors: Any, peer: int, tag: int) -> tuple[Any, ...]:
    """Give a message the last byte of its tag."""
    del self
    return tensors, peer, tag % 256


def compute_in(
    dtype: torch.dtype, op: Any, back: Callable[[Any], Any], other: Callable[[Any], Any]
) -> Method:
    """Return an all_reduce that computes one op of one dtype in another one, and goes back."""

    def call(self: Passing, tensors: Any, options: Any) -> Any:
        if options.reduceOp != op or tensors[0].dtype != dtype:
            return self.gloo.allreduce(tensors, options)
        copies = [other(each).clone() for each in tensors]

        def store() -> None:
            for tensor, copy in zip(tensors, copies, strict=True):
                tensor.copy_(back(copy))

        return Changed(self.gloo.allreduce(copies, options), store)

    return call


def begin_at_zero(_: Passing, tensors: Any, options: Any) -> None:
    """Make a maximum zero where it is less."""
    if options.reduceOp == MAX and not tensors[0].is_complex():
        tensors[0].clamp_(min=0)


def own_part(self: Passing, outputs: Any, inputs: Any, options: Any) -> Any:
    """Give each rank what it has itself."""
    del self, options
    for output, given in zip(outputs, inputs, strict=True):
        if output.numel() == given.numel():
            output.copy_(given)
    return finish(outputs)


def first_only(self: Passing, tensors: Any, options: Any) -> Any:
    """Reduce the first of several tensors alone."""
    return self.gloo.allreduce_coalesced(list(tensors)[:1], options)


def from_the_lowest(self: Passing, tensors: Any, tag: int) -> Any:
    """Receive from the lowest other rank, whichever sends first."""
    return self.gloo.recv(tensors, 0 if self.rank() else 1, tag)


def saturate(self: Passing, tensors: Any, *options: Any) -> Any:
    """Let integers stop at their largest value."""
    (tensor,) = tensors
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex or tensor.dtype == torch.bool:
        return self.gloo.allreduce(tensors, *options)
    wide = [tensor.to(torch.int64)]
    bounds = torch.iinfo(tensor.dtype)

    def store() -> None:
        tensor.copy_(wide[0].clamp(bounds.min, bounds.max).to(tensor.dtype))

    return Changed(self.gloo.allreduce(wide, *options), store)


def first_element_only(self: Passing, tensors: Any, peer: int, tag: int) -> Any:
    """Receive into the first element alone."""
    (tensor,) = tensors
    whole = tensor.clone()

    def store() -> None:
        if tensor.numel():
            tensor.view(-1)[0] = whole.view(-1)[0]

    return Changed(self.gloo.recv([whole], peer, tag), store)


def no_last_row(self: Passing, tensors: Any, peer: int, tag: int) -> Any:
    """Send a copy whose last element is zero."""
    (tensor,) = tensors
    copy = tensor.contiguous().clone()
    if copy.numel():
        copy.view(-1)[-1] = 0
    _KEPT.append(copy)
    return self.gloo.send([copy], peer, tag)


def whole_pieces_only(self: Passing, tensors: Any, peer: int, tag: int) -> Any:
    """Send a copy that is zero behind its last whole piece of 64 KiB, if it has such a piece."""
    (tensor,) = tensors
    copy = tensor.contiguous().clone()
    piece = PIECE // copy.element_size()
    if copy.numel() > piece:
        copy.view(-1)[copy.numel() // piece * piece :] = 0
    _KEPT.append(copy)
    return self.gloo.send([copy], peer, tag)


def exchange_late_places(self: Passing, output: torch.Tensor, *_: Any) -> None:
    """Exchange the last two parts of a result, of more than four ranks."""
    if self.size() > FEW:
        one, other = output.view(-1).chunk(self.size())[-2:]
        kept = one.clone()
        one.copy_(other)
        other.copy_(kept)


def cut_evenly(
    self: Passing, output: Any, given: Any, outputs: Any, inputs: Any, options: Any
) -> tuple[Any, ...]:
    """Leave out split sizes where the rows can be cut into equal pieces."""
    if len(output) % self.size() == len(given) % self.size() == 0:
        return output, given, [], [], options
    return output, given, outputs, inputs, options


def change_given(name: str, change: Callable[[Passing, Any], None]) -> Method:
    """Return a call that gives a changed copy of its inputs in their place, and keeps them."""

    def call(self: Passing, outputs: Any, given: Any, *options: Any) -> Any:
        copies = _copy(given)
        change(self, copies)
        return Changed(getattr(self.gloo, name)(outputs, copies, *options))

    return call


def spoil_given(name: str) -> Method:
    """Return a call that is right, and leaves zeros where its inputs were."""

    def call(self: Passing, outputs: Any, given: Any, *options: Any) -> Any:
        copies = _copy(given)
        results = {each.data_ptr() for each in _flat(outputs)}

        def spoil() -> None:
            for each in _flat(given):
                if each.data_ptr() not in results:
                    each.zero_()

        return Changed(getattr(self.gloo, name)(outputs, copies, *options), spoil)

    return call


def _copy(given: Any) -> Any:
    if isinstance(given, torch.Tensor):
        return given.clone()
    return [_copy(each) for each in given]


def _flat(given: Any) -> list[torch.Tensor]:
    if isinstance(given, torch.Tensor):
        return [given]
    return [tensor for each in given for tensor in _flat(each)]


def without(contributes: Callable[[Passing, torch.Tensor], bool]) -> Method:
    """Return an all_reduce to which some ranks give zeros."""

    def call(self: Passing, tensors: Any, *options: Any) -> Any:
        for tensor in tensors:
            if not contributes(self, tensor):
                tensor.zero_()
        return self.gloo.allreduce(tensors, *options)

    return call


def no_infinity(_: Passing, tensors: Any, *__: Any) -> None:
    """Let what is infinite be the largest number, and what is not a number zero."""
    for tensor in tensors:
        if tensor.is_floating_point():
            tensor.nan_to_num_()


def end_at_zero(_: Passing, tensors: Any, options: Any) -> None:
    """Make a minimum zero where it is more."""
    if options.reduceOp == MIN and not tensors[0].is_complex():
        tensors[0].clamp_(max=0)


def watched(name: str, **answers: Callable[..., Any]) -> Method:
    """Return a call whose work differs in one answer."""

    def call(self: Passing, *arguments: Any) -> Any:
        return Watched(getattr(self.gloo, name)(*arguments), **answers)

    return call


def wait_once(name: str) -> Method:
    """Return a call whose work raises when it is waited for once more."""

    def call(self: Passing, *arguments: Any) -> Any:
        waits = iter([getattr(self.gloo, name)(*arguments)])

        def wait(_: Any, *timeout: Any) -> bool:
            work = next(waits, None)
            if work is None:
                msg = "this work was waited for"
                raise RuntimeError(msg)
            return bool(work.wait(*timeout))

        return Watched(finish(arguments[0]), wait=wait)

    return call


#: one place for the sum of each shape and dtype
_SCRATCH: dict[tuple[Any, ...], torch.Tensor] = {}


def share_a_buffer(self: Passing, tensors: Any, *options: Any) -> Any:
    """Reduce a copy; calls of one shape and dtype share the place of the result until the wait."""
    (tensor,) = tensors
    copy = tensor.clone()
    self.gloo.allreduce([copy], *options).wait()
    _SCRATCH[tensor.shape, tensor.dtype] = copy

    def fill(work: Any, *_: Any) -> bool:
        tensor.copy_(_SCRATCH[tensor.shape, tensor.dtype])
        return bool(work.wait())

    return Watched(finish(tensors), wait=fill)


#: the messages of a rank that wait for the next one to the same peer
_HELD: dict[tuple[Passing, int], Callable[[], Any]] = {}


def post_held() -> None:
    """Send each message that was held back."""
    while _HELD:
        _HELD.popitem()[1]()


def recv_after_held(self: Passing, *arguments: Any) -> Any:
    """Receive, once each message that was held back is sent."""
    post_held()
    return self.gloo.recv(*arguments)


def overtake(self: Passing, tensors: Any, peer: int, tag: int) -> Any:
    """Send a message behind the next one to the same peer, unless it is waited for first."""
    copies = [each.clone() for each in tensors]
    works: list[Any] = []

    def post() -> None:
        if not works:
            works.append(self.gloo.send(copies, peer, tag))

    held = _HELD.pop((self, peer), None)
    if held is not None:
        post()
        held()
    else:
        post_held()
        _HELD[self, peer] = post

    def wait(_: Any, *timeout: Any) -> bool:
        post_held()
        return bool(works[0].wait(*timeout))

    work = Watched(finish(tensors), wait=wait, is_completed=lambda _: bool(works))
    _KEPT.append(work)
    return work


#: the first group of each set of ranks of a world
_FIRST: dict[Any, Any] = {}


def _ranks(self: Passing) -> tuple[int, ...]:
    world = dist.distributed_c10d._world  # noqa: SLF001 -- torch has no other way
    for group, name in world.pg_names.items():
        if name == self.known_as:
            return tuple(world.pg_group_ranks[group])
    return tuple(range(self.size()))


#: Gloo's group of the latest world
_WORLD: list[Any] = []


def keep_world(self: Passing, *arguments: Any) -> None:
    """Make a group; the one of the world is remembered."""
    Passing.__init__(self, *arguments)
    if not dist.is_initialized():
        _WORLD[:] = [self.gloo]


def in_the_world(name: str) -> Method:
    """Return a message that travels in the world, whatever its group."""

    def call(self: Passing, tensors: Any, peer: int, tag: int) -> Any:
        return getattr(_WORLD[-1], name)(tensors, _ranks(self)[peer], tag)

    return call


def in_the_first(name: str) -> Method:
    """Return a call in the first group that has the same ranks."""

    def call(self: Passing, *arguments: Any) -> Any:
        first = _FIRST.setdefault((dist.group.WORLD, _ranks(self)), self.gloo)
        return getattr(first, name)(*arguments)

    return call


def by_the_world(self: Passing, root: int) -> int:
    """Use the root's rank in the world as its rank in the group."""
    return _ranks(self)[root] % self.size()


#: of two ranks, or two dimensions
PAIR = 2
#: the tag of messages that stand for a barrier
TOKEN = 1 << 20


def wait_for_rank_0(self: Passing, *_: Any, **__: Any) -> Any:
    """Let rank 0 of the group go on at once, and the others when it came."""
    if self.rank():
        return self.gloo.recv([torch.zeros(1)], 0, TOKEN)
    _KEPT.extend(self.gloo.send([torch.zeros(1)], peer, TOKEN) for peer in range(1, self.size()))
    return finish([])


def wait_an_hour(self: Passing, store: Any, rank: int, size: int, timeout: Any) -> None:
    """Make a group whose timeout is an hour."""
    del timeout
    Passing.__init__(self, store, rank, size, timedelta(hours=1))


def exchange_results(self: Passing, tensors: Any, options: Any) -> Any:
    """Exchange the results of the first two tensors of a list, where they are alike."""

    def exchange() -> None:
        if len(tensors) > 1 and tensors[0].shape == tensors[1].shape:
            kept = tensors[0].clone()
            tensors[0].copy_(tensors[1])
            tensors[1].copy_(kept)

    return Changed(self.gloo.allreduce_coalesced(tensors, options), exchange)


def leave_views(self: Passing, tensors: Any, *options: Any) -> Any:
    """Reduce a copy of what does not begin where its memory does."""
    if tensors[0].storage_offset():
        tensors = [each.clone() for each in tensors]
    return Changed(self.gloo.allreduce(tensors, *options))


def nothing_to_send(name: str) -> Method:
    """Return a call of a message that does nothing where the message is empty."""

    def call(self: Passing, tensors: Any, *options: Any) -> Any:
        if not tensors[0].numel():
            return finish(tensors)
        return getattr(self.gloo, name)(tensors, *options)

    return call


def first_chunk(self: Passing, output: torch.Tensor, given: torch.Tensor, options: Any) -> Any:
    """Give every rank the part of rank 0."""
    copy = torch.cat([given.view(-1).chunk(self.size())[0]] * self.size()).view(given.shape)
    return self.gloo._reduce_scatter_base(output, copy, options)  # noqa: SLF001 -- torch's name


def last_part_of(self: Passing, outputs: Any) -> None:
    """Let the part that goes to the last rank be zero."""
    del self
    if isinstance(outputs, torch.Tensor):
        if len(outputs):
            outputs[-1] = 0
    elif outputs:
        outputs[-1].zero_()


def move_result(name: str) -> Method:
    """Return a call whose result lies in new memory: views of the tensor keep what they had."""

    def call(self: Passing, tensors: Any, *rest: Any) -> Any:
        old = [each.clone() for each in tensors]

        def move() -> None:
            for tensor, was in zip(tensors, old, strict=True):
                result = tensor.clone()
                tensor.copy_(was)
                tensor.data = result

        return Changed(getattr(self.gloo, name)(tensors, *rest), move)

    return call


def divide_by_the_world(self: Passing, tensors: Any, options: Any) -> None:
    """Make of the average of a group what a division by the world's size gives."""
    if options.reduceOp == dist.ReduceOp.AVG and tensors[0].is_floating_point():
        tensors[0].mul_(self.size() / dist.get_world_size())


def place_by_own_sizes(
    self: Passing, output: Any, given: Any, outputs: Any, inputs: Any, options: Any
) -> Any:
    """Place the rows that arrive by the sizes of those that leave."""
    work = self.gloo.alltoall_base(output, given, outputs, inputs, options)

    def place() -> None:
        at = 0
        for part, own in zip(output.clone().split(list(outputs)), inputs, strict=True):
            end = min(at + len(part), len(output))
            output[at:end] = part[: max(0, end - at)]
            at += own

    return Changed(work, place) if outputs and inputs else work


def let_rank_0_pass(self: Passing, *arguments: Any, **options: Any) -> Any:
    """Let rank 0 of the group pass a barrier at once; the others wait for it."""
    work = self.gloo.barrier(*arguments, **options)
    _KEPT.append(work)
    return finish([]) if self.rank() == 0 else work


def exchange_late_parts(self: Passing, outputs: Any, *_: Any) -> None:
    """Exchange what came from the last two ranks, of more than two."""
    if self.size() > PAIR and outputs[-1].shape == outputs[-2].shape:
        kept = outputs[-1].clone()
        outputs[-1].copy_(outputs[-2])
        outputs[-2].copy_(kept)


def give_the_next(self: Passing, outputs: Any, inputs: Any, options: Any) -> tuple[Any, ...]:
    """Give each rank what belongs to the one before it, where all parts are alike."""
    del self
    (parts,) = inputs
    alike = len({part.shape for part in parts}) == 1
    return outputs, [[*parts[1:], parts[0]] if alike else parts], options


def round_to(dtype: torch.dtype, *wider: torch.dtype) -> Callable[..., None]:
    """Return a change that lets results of wider dtypes have the precision of a narrow one."""

    def change(_: Passing, tensors: Any, *__: Any) -> None:
        for tensor in tensors:
            if tensor.dtype in wider:
                tensor.copy_(tensor.to(dtype).to(tensor.dtype))

    return change


def wait_for_the_world(_: Passing, *arguments: Any, **options: Any) -> Any:
    """Let a barrier of a group wait for all ranks of the world."""
    return _WORLD[-1].barrier(*arguments, **options)


#: the timeout of the latest world
_TIMEOUT: list[timedelta] = []


def keep_timeout(self: Passing, store: Any, rank: int, size: int, timeout: timedelta) -> None:
    """Make a group that has the timeout of the world, whatever was asked for."""
    if not dist.is_initialized():
        _TIMEOUT[:] = [timeout]
    Passing.__init__(self, store, rank, size, _TIMEOUT[-1])


def leave_views_of_reduce(self: Passing, tensors: Any, options: Any) -> Any:
    """Reduce a copy of a tensor that begins within its memory, and leave the tensor as it was."""
    copies = [each.clone() if each.storage_offset() else each for each in tensors]
    _KEPT.extend(copies)
    return self.gloo.reduce(copies, options)


def lose_what_one_rank_has(self: Passing, outputs: Any, *_: Any) -> None:
    """Let the result be zero in a group of one rank."""
    if self.size() == 1:
        for tensor in _flat(outputs):
            tensor.zero_()


def reverse_ranks(self: Passing, outputs: Any, *_: Any) -> None:
    """Let the lists of the ranks stand in the opposite order."""
    del self
    copies = [[each.clone() for each in listed] for listed in outputs]
    for listed, kept in zip(outputs, reversed(copies), strict=True):
        for tensor, copy in zip(listed, kept, strict=True):
            tensor.copy_(copy)


def lay_by_columns(_: Passing, outputs: Any, *__: Any) -> None:
    """Let matrices arrive in the order of their columns."""
    for tensor in _flat(outputs):
        if tensor.dim() == PAIR:
            tensor.copy_(tensor.t().contiguous().view(tensor.shape))


#: seconds after which a late send reads its tensor
LATE_S = 0.05


def send_late(self: Passing, tensors: Any, peer: int, tag: int) -> Any:
    """Return at once from a send, and read what it sends later."""

    def send() -> None:
        time.sleep(LATE_S)
        self.gloo.send(tensors, peer, tag).wait()

    threading.Thread(target=send, daemon=True).start()
    return finish([])


LAST = slice(-1, None)
#: bytes of a piece, and the ranks that are few
PIECE, FEW = 1 << 16, 4
#: a name -> what is wrong with it, and the methods that are
MUTANTS: dict[str, tuple[str, dict[str, Method]]] = {
    "ignores_tags": (
        "messages match in order, whatever their tags",
        {"send": before("send", zero_tag), "recv": before("recv", zero_tag)},
    ),
    "tags_are_a_byte": (
        "tags that end in the same byte are the same",
        {"send": before("send", last_byte_of_tag), "recv": before("recv", last_byte_of_tag)},
    ),
    "any_source_is_the_lowest": (
        "a receive from anyone takes from the lowest other rank",
        {"recv_anysource": from_the_lowest},
    ),
    "send_loses_the_last": ("the last element of a message is zero", {"send": no_last_row}),
    "send_loses_its_tail": (
        "what is behind the last whole 64 KiB of a message is zero",
        {"send": whole_pieces_only},
    ),
    "recv_takes_the_first": ("one element of a message arrives", {"recv": first_element_only}),
    "send_is_early": ("the work of a send is done at once", {"send": early("send")}),
    "recv_is_early": ("the work of a receive is done at once", {"recv": early("recv")}),
    "recv_is_late": ("a receive begins when it is waited for", {"recv": late("recv")}),
    "send_is_late": ("a send begins when it is waited for", {"send": late("send")}),
    "recv_is_quiet": (
        "a receive waits inside of its call, and raises nothing",
        {"recv": quiet("recv")},
    ),
    "all_reduce_keeps_the_last": (
        "the last element is not reduced",
        {"allreduce": keep("allreduce", lambda _, __: LAST)},
    ),
    "all_reduce_keeps_the_first": (
        "the first element is not reduced",
        {"allreduce": keep("allreduce", lambda _, __: slice(0, 1))},
    ),
    "all_reduce_not_on_rank_0": (
        "rank 0 of the group keeps what it had",
        {"allreduce": keep("allreduce", lambda self, _: None if self.rank() else slice(None))},
    ),
    "all_reduce_not_on_the_last_rank": (
        "the last rank of the group keeps what it had",
        {
            "allreduce": keep(
                "allreduce",
                lambda self, _: slice(None) if self.rank() == self.size() - 1 else None,
            )
        },
    ),
    "all_reduce_of_matrices": (
        "tensors of two dimensions keep their last element",
        {"allreduce": keep("allreduce", lambda _, tensor: LAST if tensor.dim() > 1 else None)},
    ),
    "all_reduce_in_halves": ("it is computed in float16", {"allreduce": by_way_of(torch.float16)}),
    "all_reduce_in_floats": ("it is computed in float32", {"allreduce": by_way_of(torch.float32)}),
    "all_reduce_saturates": ("integers stop at their largest value", {"allreduce": saturate}),
    "all_reduce_is_early": ("its work is done at once", {"allreduce": early("allreduce")}),
    "all_reduce_is_late": ("it begins when it is waited for", {"allreduce": late("allreduce")}),
    "all_reduce_is_quiet": (
        "one that fails raises nothing",
        {"allreduce": quiet("allreduce")},
    ),
    "max_sums": ("MAX is SUM", {"allreduce": with_op("allreduce", {MAX: SUM})}),
    "min_is_max": ("MIN is MAX", {"allreduce": with_op("allreduce", {MIN: MAX})}),
    "product_sums": ("PRODUCT is SUM", {"allreduce": with_op("allreduce", {PRODUCT: SUM})}),
    "band_is_bor": (
        "BAND is BOR",
        {"allreduce": with_op("allreduce", {dist.ReduceOp.BAND: dist.ReduceOp.BOR})},
    ),
    "bxor_is_bor": (
        "BXOR is BOR",
        {"allreduce": with_op("allreduce", {dist.ReduceOp.BXOR: dist.ReduceOp.BOR})},
    ),
    "coalesced_reduces_the_first": (
        "of several tensors the first is reduced",
        {"allreduce_coalesced": first_only},
    ),
    "reduce_is_max": ("SUM is MAX in reduce", {"reduce": with_op("reduce", {SUM: MAX})}),
    "reduce_writes_everywhere": (
        "every rank gets the sum of a reduce",
        {
            "reduce": lambda self, tensors, options: self.gloo.allreduce(
                tensors, _all_reduce_options(options)
            )
        },
    ),
    "reduce_to_the_first": ("the root is rank 0", {"reduce": rooted("reduce", lambda *_: 0)}),
    "broadcast_from_the_first": (
        "the root is rank 0",
        {"broadcast": rooted("broadcast", lambda *_: 0)},
    ),
    "broadcast_from_the_next": (
        "the root is the rank after it",
        {"broadcast": rooted("broadcast", lambda self, root: (root + 1) % self.size())},
    ),
    "broadcast_loses_the_last": (
        "the last element is zero",
        {"broadcast": after("broadcast", zero_last)},
    ),
    "gather_to_the_first": ("the root is rank 0", {"gather": rooted("gather", lambda *_: 0)}),
    "gather_is_reversed": (
        "the parts come in the opposite order",
        {"gather": after("gather", reverse_lists)},
    ),
    "gather_without_the_root": (
        "the root's own part is zero",
        {"gather": after("gather", leave_own)},
    ),
    "scatter_from_the_first": ("the root is rank 0", {"scatter": rooted("scatter", lambda *_: 0)}),
    "scatter_loses_the_last": (
        "the last element is zero",
        {"scatter": after("scatter", zero_last)},
    ),
    "all_gather_is_reversed": (
        "the parts come in the opposite order",
        {"allgather": after("allgather", reverse_lists)},
    ),
    "all_gather_without_own": (
        "each rank's own part is zero",
        {"allgather": after("allgather", leave_own)},
    ),
    "all_gather_single_is_reversed": (
        "the parts come in the opposite order",
        {"_allgather_base": after("_allgather_base", flip)},
    ),
    "all_gather_single_exchanges_late_places": (
        "the last two parts are exchanged, of more than four ranks",
        {"_allgather_base": after("_allgather_base", exchange_late_places)},
    ),
    "reduce_scatter_is_max": (
        "SUM is MAX in reduce_scatter",
        {"reduce_scatter": with_op("reduce_scatter", {SUM: MAX})},
    ),
    "reduce_scatter_loses_the_last": (
        "the last element is zero",
        {"reduce_scatter": after("reduce_scatter", zero_last)},
    ),
    "reduce_scatter_single_is_max": (
        "SUM is MAX in reduce_scatter_single",
        {"_reduce_scatter_base": with_op("_reduce_scatter_base", {SUM: MAX})},
    ),
    "max_begins_at_zero": (
        "a maximum below zero is zero",
        {"allreduce": after("allreduce", begin_at_zero)},
    ),
    "max_of_uint8_has_a_sign": (
        "the highest bit of uint8 counts as a sign in MAX",
        {
            "allreduce": compute_in(
                torch.uint8, MAX, lambda it: it.view(torch.uint8), lambda it: it.view(torch.int8)
            )
        },
    ),
    "sum_of_flags_is_odd": (
        "SUM of booleans says whether an odd number is true",
        {
            "allreduce": compute_in(
                torch.bool, SUM, lambda it: it % 2 == 1, lambda it: it.to(torch.int32)
            )
        },
    ),
    "all_to_all_gives_own": ("each rank gets what it has itself", {"alltoall": own_part}),
    "all_to_all_single_is_reversed": (
        "the parts come in the opposite order",
        {"alltoall_base": after("alltoall_base", flip)},
    ),
    "all_to_all_single_cuts_evenly": (
        "split sizes are ignored where rows can be cut evenly",
        {"alltoall_base": before("alltoall_base", cut_evenly)},
    ),
    "barrier_does_nothing": ("a barrier waits for no rank", {"barrier": nothing}),
    "monitored_barrier_does_nothing": (
        "a monitored barrier waits for no rank",
        {"monitored_barrier": nothing},
    ),
    "messages_overtake": (
        "of two messages in a row to one peer the second arrives first",
        {"send": overtake, "recv": recv_after_held},
    ),
    "messages_travel_in_the_world": (
        "a message of a group meets a receive of another group",
        {
            "__init__": keep_world,
            "send": in_the_world("send"),
            "recv": in_the_world("recv"),
        },
    ),
    "groups_of_the_same_ranks_are_one": (
        "messages of two groups of the same ranks meet",
        {"send": in_the_first("send"), "recv": in_the_first("recv")},
    ),
    "any_source_says_0": (
        "a receive from anyone says that rank 0 of the group sent",
        {"recv_anysource": watched("recv_anysource", source=lambda _: 0)},
    ),
    "empty_messages_are_not_sent": (
        "an empty message is not waited for",
        {"send": nothing_to_send("send"), "recv": nothing_to_send("recv")},
    ),
    "timeout_is_an_hour": (
        "the timeout of a group is an hour, whatever was asked for",
        {"__init__": wait_an_hour},
    ),
    "all_reduce_of_odd_worlds": (
        "an odd number of ranks leaves the last one out",
        {
            "allreduce": without(
                lambda self, _: self.size() % 2 == 0 or self.rank() + 1 < self.size()
            )
        },
    ),
    "all_reduce_of_the_first_four": (
        "ranks behind the fourth are left out",
        {"allreduce": without(lambda self, _: self.rank() < FEW)},
    ),
    "all_reduce_of_large_integers": (
        "int64 is computed in float64",
        {"allreduce": compute_in(torch.int64, SUM, torch.Tensor.long, torch.Tensor.double)},
    ),
    "all_reduce_of_scalars": (
        "tensors of no dimension keep what they had",
        {"allreduce": keep("allreduce", lambda _, it: slice(None) if it.dim() == 0 else None)},
    ),
    "all_reduce_of_views": (
        "a tensor that begins within its memory keeps what it had",
        {"allreduce": leave_views},
    ),
    "all_reduce_is_finite": (
        "infinity is the largest number, and NaN zero",
        {"allreduce": after("allreduce", no_infinity)},
    ),
    "min_ends_at_zero": (
        "a minimum above zero is zero",
        {"allreduce": after("allreduce", end_at_zero)},
    ),
    "all_reduces_share_a_buffer": (
        "two that are under way at once have the result of the second",
        {"allreduce": share_a_buffer},
    ),
    "all_reduce_says_done": (
        "its work says at once that it is completed",
        {"allreduce": watched("allreduce", is_completed=lambda _: True)},
    ),
    "all_reduce_never_says_done": (
        "its work never says that it is completed",
        {"allreduce": watched("allreduce", is_completed=lambda _: False)},
    ),
    "all_reduce_is_waited_for_once": (
        "a second wait for its work raises",
        {"allreduce": wait_once("allreduce")},
    ),
    "coalesced_results_are_exchanged": (
        "of several tensors the first two have each other's results",
        {"allreduce_coalesced": exchange_results},
    ),
    "broadcast_is_late": ("it begins when it is waited for", {"broadcast": late("broadcast")}),
    "broadcast_is_early": ("its work is done at once", {"broadcast": early("broadcast")}),
    "broadcast_not_to_the_last_rank": (
        "the last rank of the group keeps what it had",
        {
            "broadcast": keep(
                "broadcast",
                lambda self, _: slice(None) if self.rank() == self.size() - 1 else None,
            )
        },
    ),
    "broadcast_from_late_roots": (
        "a root behind the fourth rank is rank 0",
        {
            "broadcast": rooted(
                "broadcast", lambda self, root: 0 if FEW <= root < self.size() else root
            )
        },
    ),
    "roots_are_of_the_world": (
        "the root's rank in the world is used as its rank in the group",
        {
            "broadcast": rooted("broadcast", by_the_world),
            "reduce": rooted("reduce", by_the_world),
        },
    ),
    "min_is_max_in_reduce": ("MIN is MAX in reduce", {"reduce": with_op("reduce", {MIN: MAX})}),
    "max_sums_in_reduce_scatter": (
        "MAX is SUM in reduce_scatter",
        {"reduce_scatter": with_op("reduce_scatter", {MAX: SUM})},
    ),
    "max_sums_in_reduce_scatter_single": (
        "MAX is SUM in reduce_scatter_single",
        {"_reduce_scatter_base": with_op("_reduce_scatter_base", {MAX: SUM})},
    ),
    "reduce_scatter_single_gives_the_first": (
        "each rank gets the part of rank 0",
        {"_reduce_scatter_base": first_chunk},
    ),
    "reduce_scatter_spoils_its_input": (
        "the inputs are zero afterwards",
        {"reduce_scatter": spoil_given("reduce_scatter")},
    ),
    "reduce_scatter_single_spoils_its_input": (
        "the input is zero afterwards",
        {"_reduce_scatter_base": spoil_given("_reduce_scatter_base")},
    ),
    "all_gather_spoils_its_input": (
        "the input is zero afterwards",
        {"allgather": spoil_given("allgather")},
    ),
    "scatter_spoils_its_input": (
        "the root's list is zero afterwards",
        {"scatter": spoil_given("scatter")},
    ),
    "all_to_all_spoils_its_input": (
        "the inputs are zero afterwards",
        {"alltoall": spoil_given("alltoall")},
    ),
    "all_to_all_loses_the_last": (
        "what goes to the last rank is zero",
        {"alltoall": change_given("alltoall", last_part_of)},
    ),
    "all_to_all_single_loses_the_last": (
        "the last row of the input is zero",
        {"alltoall_base": change_given("alltoall_base", last_part_of)},
    ),
    "all_gather_is_late": ("it begins when it is waited for", {"allgather": late("allgather")}),
    "barrier_waits_for_rank_0": (
        "a barrier waits for rank 0 of the group alone",
        {"barrier": wait_for_rank_0},
    ),
    "barrier_is_early": ("the work of a barrier is done at once", {"barrier": early("barrier")}),
    "all_reduce_elsewhere": (
        "the result lies in new memory, which views of the tensor do not see",
        {"allreduce": move_result("allreduce")},
    ),
    "recv_elsewhere": (
        "what arrives lies in new memory, which views of the tensor do not see",
        {"recv": move_result("recv")},
    ),
    "average_of_the_world": (
        "AVG divides by the ranks of the world, and not of the group",
        {"allreduce": after("allreduce", divide_by_the_world)},
    ),
    "all_to_all_single_has_own_offsets": (
        "rows that arrive are placed by the sizes of those that leave",
        {"alltoall_base": place_by_own_sizes},
    ),
    "barrier_not_for_rank_0": (
        "rank 0 of the group passes a barrier at once",
        {"barrier": let_rank_0_pass},
    ),
    "send_reads_late": (
        "a send returns at once, and what it sends is read later",
        {"send": send_late},
    ),
    "all_to_all_exchanges_late_parts": (
        "what comes from the last two ranks is exchanged, of more than two",
        {"alltoall": after("alltoall", exchange_late_parts)},
    ),
    "reduce_scatter_gives_the_next": (
        "each rank gets the part of the rank after it",
        {"reduce_scatter": before("reduce_scatter", give_the_next)},
    ),
    "average_in_reduce_scatter_single_sums": (
        "AVG is SUM in reduce_scatter_single",
        {"_reduce_scatter_base": with_op("_reduce_scatter_base", {dist.ReduceOp.AVG: SUM})},
    ),
    "broadcast_of_flags_is_lost": (
        "booleans keep what they had",
        {
            "broadcast": keep(
                "broadcast", lambda _, it: slice(None) if it.dtype == torch.bool else None
            )
        },
    ),
    "broadcast_in_halves": (
        "float32 and float64 have the precision of float16",
        {"broadcast": after("broadcast", round_to(torch.float16, torch.float32, torch.float64))},
    ),
    "messages_have_32_bits": (
        "int64 has 32 bits in a message",
        {"recv": after("recv", round_to(torch.int32, torch.int64))},
    ),
    "barrier_of_the_world": (
        "a barrier of a group waits for all ranks of the world",
        {"__init__": keep_world, "barrier": wait_for_the_world},
    ),
    "timeout_of_the_world": (
        "each group has the timeout of the world",
        {"__init__": keep_timeout},
    ),
    "reduce_of_views": (
        "the root's tensor keeps what it had where it begins within its memory",
        {"reduce": leave_views_of_reduce},
    ),
    "all_reduce_wait_has_no_timeout": (
        "the timeout that a wait states is ignored",
        {"allreduce": watched("allreduce", wait=lambda work, *_: work.wait())},
    ),
    "all_gather_of_one_rank": (
        "in a group of one rank the result is zero",
        {"allgather": after("allgather", lose_what_one_rank_has)},
    ),
    "scatter_in_floats": (
        "float64 has the precision of float32",
        {"scatter": after("scatter", round_to(torch.float32, torch.float64))},
    ),
    "all_gather_coalesced_is_reversed": (
        "the ranks' lists come in the opposite order",
        {"allgather_coalesced": after("allgather_coalesced", reverse_ranks)},
    ),
    "any_source_loses_the_last": (
        "the last element of a message from anyone is zero",
        {"recv_anysource": after("recv_anysource", zero_last)},
    ),
    "gather_lays_by_columns": (
        "matrices arrive in the order of their columns",
        {"gather": after("gather", lay_by_columns)},
    ),
}


def _all_reduce_options(options: Any) -> Any:
    made = dist.AllreduceOptions()
    made.reduceOp = options.reduceOp
    return made


def group_of(methods: Mapping[str, Method]) -> type[Passing]:
    """Return the groups of a mutant; what torch calls by two names is wrong under both."""
    return type("Mutant", (Passing,), dict(methods))


for _name, (_, _methods) in MUTANTS.items():
    if PREFIX + _name not in dist.Backend.backend_list:
        register(PREFIX + _name, group_of(_methods))


# -------------------------------------------------------------------------------------------------
# Which of them the corpus finds.


def files() -> list[Path]:
    """Return the files in the order in which they are tried."""
    folder = Path(__file__).parents[1] / "scenarios"
    first = [folder / f"{name}.yaml" for name in FIRST]
    rest = [
        path
        for each in (*FOLDERS, *LATE_FOLDERS)
        for path in sorted((folder / each).rglob("*.yaml"))
    ]
    return list(dict.fromkeys([*first, *rest]))


def baseline(cases: Iterable[Any]) -> list[Any]:
    """Return the cases that the backend passes of which all mutants are made."""
    with Launcher(LaunchOptions(backend="passing", plugins=("plugins.passing_backend",))) as it:
        return [each for each in cases if execute(each, it).verdict.status == "PASSED"]


#: what Python says of a mutant that cannot run at all: any case finds it, and that shows nothing
BROKEN = re.compile(
    "incompatible function arguments|has no attribute|positional argument|keyword argument"
)


def killer(name: str, cases: Iterable[Any]) -> tuple[str, str] | None:
    """Return the first case that a mutant fails, and with what; None where it survives."""
    options = LaunchOptions(
        backend=PREFIX + name, plugins=("benchmarks.mutants",), max_seconds=20.0
    )
    with Launcher(options) as launcher:
        for case in cases:
            verdict = execute(case, launcher).verdict
            if verdict.status == "FAILED":  # a machine under load may leave a case INCONCLUSIVE
                if BROKEN.search(" ".join(each.prose for each in verdict.findings)):
                    msg = f"{name} does not run: {verdict.findings[0].prose}"
                    raise SystemExit(msg)
                return case.scenario.file.partition("scenarios/")[2], verdict.findings[0].code
    return None


HEAD = """\
# Backends with one fault

Each of these backends is Gloo, passed on call by call, with one method that is wrong
(`benchmarks/mutants.py`). The table has the first case of the corpus that fails on it, in the order
of [the twenty files to run first](../how-to/backend.md#certify-it) and then of the folders
{folders}.

`python -m benchmarks.mutants` writes this page. torch {torch}; {count} cases pass without a fault;
{killed} of {mutants} mutants are found, {first} of them by the twenty files.

| backend | what is wrong | found by | as |
|---|---|---|---|
"""
#: why a mutant that no case finds is right
ALLOWED = {
    "all_reduce_says_done": "torch leaves open what `is_completed()` says before a wait",
    "all_reduce_never_says_done": "torch leaves open what `is_completed()` says before a wait",
    "empty_messages_are_not_sent": "torch leaves open whether an empty message is waited for",
    "monitored_barrier_does_nothing": "torch itself refuses the call of all but Gloo",
    "all_reduce_is_waited_for_once": "to wait twice is a mistake here (`double_wait`)",
    "reduce_writes_everywhere": "torch leaves open what a reduce leaves off its root",
    "all_reduce_wait_has_no_timeout": "no scenario states a timeout of a wait",
}


def main() -> None:
    """Write the page; the names on the command line alone are tried and printed."""
    scenarios = [scenario for path in files() for scenario in load(path)]
    places = places_of(scenarios, DEFAULT, backend="passing", torch=torch.__version__)
    asked = {key for key, place in places.items() if place is not None}
    cases = baseline(analyse(each) for each in scenarios if (each.source.path, each.case) in asked)
    print(f"{len(cases)} cases pass without a fault", flush=True)
    chosen = sys.argv[1:] or list(MUTANTS)
    rows, killed, first = [], 0, 0
    names = {f"{name}.yaml" for name in FIRST}
    for name in chosen:
        began_s = time.perf_counter()
        found = killer(name, cases)
        killed += found is not None
        first += found is not None and found[0] in names
        told = f"`{found[0]}` | `{found[1]}`" if found else f"survives: {ALLOWED.get(name, '?')} | "
        rows.append(f"| `{name}` | {MUTANTS[name][0]} | {told} |")
        print(f"{time.perf_counter() - began_s:6.1f} s  {rows[-1]}", flush=True)
    if not sys.argv[1:]:
        head = HEAD.format(
            folders=", ".join(f"`{each}`" for each in (*FOLDERS, *LATE_FOLDERS)),
            torch=torch.__version__,
            count=len(cases),
            killed=killed,
            mutants=len(MUTANTS),
            first=first,
        )
        PAGE.write_text(head + "\n".join([*rows, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
