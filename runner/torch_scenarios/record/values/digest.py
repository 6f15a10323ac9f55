"""Short hashes of what tensors hold, computed in the user's processes: the standard library alone.

Two tensors with one hash hold the same bytes in the same order, as good as surely; a hash has six
bytes.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch_scenarios.record.values.format.event import (
    BackwardResult,
    CarriedReduction,
    GradientChange,
    ReducedChange,
    ShardChange,
    ValueEvent,
)

#: bytes of a hash
SIZE = 6
#: bytes of a row that are hashed at its beginning, and as many at its end
ROW_BYTES = 1 << 14
#: bytes from which sums are hashed, and words of a row of such sums
LARGE, WORDS = 1 << 16, 1024
#: containers in one another that are looked through for tensors
DEEPEST = 6


class CaptureError(RuntimeError):
    """A value is asked for while a CUDA graph is captured: to copy it would end the capture."""


def is_captured() -> bool:
    """Whether the current stream is captured into a CUDA graph; torch for CPUs has no such call."""
    import torch

    cuda: Any = torch.cuda
    is_built = torch.version.cuda is not None or torch.version.hip is not None
    return bool(is_built and cuda.is_initialized() and cuda.is_current_stream_capturing())


def refuse_in_capture(tensor: Any) -> None:
    """Raise CaptureError where the stream of a tensor's device is captured into a CUDA graph."""
    if tensor.device.type == "cuda" and is_captured():
        message = "a CUDA graph is captured: what its kernels compute is not there yet"
        raise CaptureError(message)


def plain_tensor(tensor: Any) -> Any:
    """Return the tensor that `torch.func` has put its own around, else the tensor itself."""
    import torch

    functions = torch._C._functorch
    while functions.is_functorch_wrapped_tensor(tensor):
        tensor = functions.get_unwrapped(tensor)
    return tensor


def local_part(tensor: Any) -> Any:
    """Return what this rank holds of a tensor: the local part of a DTensor, else the tensor."""
    found = plain_tensor(tensor)
    found = getattr(found, "_local_tensor", found)
    found = (
        getattr(found, "elem", found) if type(found).__name__ == "AsyncCollectiveTensor" else found
    )
    return found.detach()


def address_of(tensor: Any) -> int:
    """Return where what this rank holds of a tensor begins in memory; 0 where it is no one block.

    A sparse tensor is not one.
    """
    plain = local_part(tensor)
    return int(plain.data_ptr()) if plain.layout.__repr__() == "torch.strided" else 0


def is_held(tensor: Any) -> bool:
    """Whether the memory of what this rank holds of a tensor is there: FSDP gives some back."""
    plain = local_part(tensor)
    if plain.layout.__repr__() != "torch.strided" or plain.is_meta or not plain.numel():
        return True
    last = sum((n - 1) * step for n, step in zip(plain.shape, plain.stride(), strict=True))
    needed = (plain.storage_offset() + last + 1) * plain.element_size()
    return bool(plain.untyped_storage().nbytes() >= needed)


def memory_of(tensor: Any) -> tuple[Any, int, int]:
    """Return a contiguous copy or view on the host, its address and its size in bytes.

    That is 0 where its memory was given back.
    """
    plain = local_part(tensor)
    if not is_held(plain):
        return plain, 0, 0
    if plain.layout.__repr__() != "torch.strided":
        plain = plain.to_dense()
    if plain.device.type != "cpu":
        refuse_in_capture(plain)
        plain = plain.cpu()
    if plain.is_neg() or plain.is_conj():
        plain = plain.resolve_neg().resolve_conj()
    plain = plain.contiguous()
    return plain, plain.data_ptr(), plain.numel() * plain.element_size()


def bytes_of(tensor: Any) -> bytes:
    """Return what a tensor holds, in row-major order."""
    kept, address, size = memory_of(tensor)
    content = ctypes.string_at(address, size) if size else b""
    del kept
    return content


def digest(tensor: Any) -> str:
    """Return the hash of what a tensor holds on this rank."""
    kept, address, size = memory_of(tensor)
    found = hashlib.blake2b(digest_size=SIZE)
    if size >= LARGE:
        _add_sums(found, kept)
    elif size:
        found.update((ctypes.c_char * size).from_address(address))
    del kept
    return found.hexdigest()


def _add_sums(found: Any, tensor: Any) -> None:
    """Hash the sums of a large tensor's words along rows and columns, and what is left of them.

    The words are integers of eight bytes, so that sums are exact whatever their order. That costs a
    fifth of a hash of all bytes; a word that is another, or in another place, changes both sums.
    """
    import torch

    content = tensor.reshape(-1).view(torch.uint8)
    if content.data_ptr() % 8 or content.storage_offset() % 8:
        content = content.clone()
    size = content.numel() // (8 * WORDS) * (8 * WORDS)
    words = content[:size].view(torch.int64).reshape(-1, WORDS)
    for part in (words.sum(0), words.sum(1), content[size:].clone()):
        kept, address, count = memory_of(part)
        if count:
            found.update((ctypes.c_char * count).from_address(address))
        del kept


def digest_text(text: str) -> str:
    """Return the hash of words."""
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=SIZE).hexdigest()


def tensors_in(value: Any, tensor: type, deep: int = 0) -> Iterator[Any]:
    """Yield the tensors in a value: lists, tuples, mappings and fields of plain objects."""
    if isinstance(value, tensor):
        yield value
    elif deep < DEEPEST:
        if isinstance(value, Mapping):
            for each in value.values():
                yield from tensors_in(each, tensor, deep + 1)
        elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
            for each in value:
                yield from tensors_in(each, tensor, deep + 1)
        elif hasattr(value, "__dataclass_fields__"):
            for each in vars(value).values():
                yield from tensors_in(each, tensor, deep + 1)


def row_digests(batch: Any, tensor: type) -> list[str]:
    """Return a hash for each row of a batch: the first dimension of its tensors.

    A batch without tensors is one row. Of a long row the beginning and the end count.
    """
    parts = [each for each in tensors_in(batch, tensor) if each.dim()]
    if not parts:
        return [digest_text(repr(batch)[:ROW_BYTES])]
    rows = parts[0].shape[0]
    found = [hashlib.blake2b(digest_size=SIZE) for _ in range(rows)]
    for part in parts:
        if part.shape[0] != rows:
            continue
        kept, address, size = memory_of(part)
        width = size // rows if rows else 0
        for at, each in enumerate(found):
            start = address + at * width
            if width <= 2 * ROW_BYTES:
                each.update(ctypes.string_at(start, width))
            else:
                each.update(ctypes.string_at(start, ROW_BYTES))
                each.update(ctypes.string_at(start + width - ROW_BYTES, ROW_BYTES))
        del kept
    return [each.hexdigest() for each in found]


def is_constant(tensor: Any) -> bool:
    """Whether all elements of a tensor are equal, or it has none."""
    flat = local_part(tensor).reshape(-1)
    if flat.numel() < 2:
        return True
    head = flat[: 1 << 10]
    return bool((head == head[0]).all()) and bool((flat == flat[0]).all())


#: elements by which one tensor is found to be another one times a number, of how many tensors,
#: and of how many of which this rank may step a part
HEAD, MOST_HEADS, MOST_REDUCED = 8, 8, 64
#: bytes of gradients of another device that are copied after a backward pass
MOST_COPIED = 1 << 26
#: relative difference of two numbers that rounding does not make
APART = 1e-5


class LeftGradients:
    """The gradients of a process as its last backward pass left them: a hash of each.

    What writes them before a step (a clip, a scale, noise) is not what their reduction did.
    """

    def __init__(self, parameters: Any, put: Callable[[ValueEvent], None]) -> None:
        """Know none yet."""
        self._parameters, self._put = parameters, put
        self._left: dict[int, str] = {}
        self._heads: dict[int, Any] = {}
        #: elements of gradients that are shards
        self._parts: dict[int, Any] = {}
        #: elements of gradients as a call behind the backward pass has reduced them
        self._reduced: dict[int, Any] = {}
        self._place: int | None = None
        self._is_stepped = False
        self._carried: CarriedReduction | None = None

    def begin(self, turn: int, place: int) -> None:
        """See what a backward pass adds to: what a call has reduced, and no step has used yet."""
        if self._reduced and not self._is_stepped:
            now = {n: _head_of(each) for n, each in self._gradients() if n in self._reduced}
            factor = _find_common(self._reduced, now)
            if factor:
                self._carried = CarriedReduction(turn, place, factor, tuple(sorted(now)))
        self.forget()

    def see(self, turn: int, place: int) -> None:
        """Hash what a backward pass has left."""
        reduced = dict(self._reduced)
        self.forget()
        self._reduced.update(reduced)
        self._place = place
        self._parts = dict(self._find_parts())
        room = MOST_COPIED
        for number, gradient in self._gradients():
            plain = local_part(gradient)
            if plain.device.type != "cpu":
                room -= plain.numel() * plain.element_size()
                if room < 0:
                    continue
            self._left[number] = digest(gradient)
            if len(self._heads) < MOST_HEADS and plain.layout.__repr__() == "torch.strided":
                self._heads[number] = _head_of(gradient)
        whole = digest_text(" ".join(f"{n} {each}" for n, each in sorted(self._left.items())))
        self._put(BackwardResult(turn, place, whole))

    def reduce_again(self, own: Mapping[int, Any], *, within: bool) -> None:
        """Write down that a call takes what another has reduced, and what it was multiplied by.

        `own` has the first elements of each gradient that the call takes. A division before the
        call counts as one behind the call before. Within a backward pass none is seen.
        """
        if (carried := self._carried) is None:
            return
        wanted = {n: each for n, each in own.items() if n in carried.parameters}
        factor = _find_common(self._heads, wanted)
        if within and wanted:
            factor = 1.0
        if factor is not None:
            self._put(replace(carried, factor=carried.factor * factor, within=within))
            self._carried = None

    def reduce(self, own: Mapping[int, Any]) -> None:
        """Know the first elements of what a call has left of gradients."""
        for number, head in own.items():
            if len(self._reduced) < MOST_REDUCED:
                self._reduced[number] = head

    def _find_parts(self) -> Iterator[tuple[int, Any]]:
        """Yield the first elements of some gradients that are shards."""
        found = 0
        for known in self._parameters.known.values():
            gradient = None if (tensor := known.tensor) is None else tensor.grad
            if found == MOST_HEADS or not _is_shard(gradient):
                continue
            if local_part(gradient).numel() and not local_part(gradient).is_meta:
                found += 1
                yield known.number, _head_of(gradient)

    def _gradients(self) -> Iterator[tuple[int, Any]]:
        """Yield the gradients that may be those of replicas, by the number of their parameter."""
        for known in self._parameters.known.values():
            gradient = None if (tensor := known.tensor) is None else tensor.grad
            if gradient is None or local_part(gradient).is_meta:
                continue
            if not _is_shard(gradient):
                yield known.number, gradient

    def meet(self, gradients: list[list[Any]]) -> None:
        """Write down which gradients of a step are others than the backward pass has left."""
        self._is_stepped, self._carried = True, None
        if self._place is None:
            return
        changed = tuple(
            (number, self._left.get(number))
            for number, found in gradients
            if self._left.get(number) != found
        )
        factor = self._find_factor({number for number, _ in changed})
        self._put(GradientChange(self._place, changed, factor))
        factor = _find_common(self._parts, dict(self._find_parts()))
        if factor is not None and len(self._parts) > 1:  # one alone may be clipped by itself
            self._put(ShardChange(self._place, factor))
        reduced = {n: self._reduced[n] for n, each in gradients if each and n in self._reduced}
        now = {n: _head_of(each) for n, each in self._gradients() if n in reduced}
        factor = _find_common(reduced, now)
        if factor is not None:
            self._put(ReducedChange(self._place, factor, len(now)))

    def _find_factor(self, changed: set[int]) -> float | None:
        """Return the one number by which all that changed was multiplied, where there is one."""
        now = {
            number: _head_of(gradient)
            for number, gradient in self._gradients()
            if number in changed and number in self._heads
        }
        return _find_common(self._heads, now)

    def forget(self) -> None:
        """Forget them: another backward pass begins."""
        self._left.clear()
        self._heads.clear()
        self._parts.clear()
        self._reduced.clear()
        self._place = None
        self._is_stepped = False


def _head_of(gradient: Any) -> Any:
    """Return a copy of the first elements of a gradient."""
    return local_part(gradient).reshape(-1)[:HEAD].double().clone()


def _is_shard(gradient: Any) -> bool:
    """Whether a gradient is a DTensor of which a rank has a part."""
    return any(each.is_shard() for each in getattr(gradient, "placements", ()))


def _find_common(before: dict[int, Any], now: dict[int, Any]) -> float | None:
    """Return the one number by which all elements were multiplied, where there is one."""
    now = {number: each for number, each in now.items() if number in before}
    before, now = _fetch({number: before[number] for number in now}), _fetch(now)
    factors = [_ratio(each, before[number]) for number, each in now.items()]
    known = [each for each in factors if each is not None]
    if not known or len(known) < len(factors):
        return None
    return known[0] if max(known) - min(known) <= APART * abs(known[0]) else None


def _fetch(heads: dict[int, Any]) -> dict[int, Any]:
    """Return elements on the host, in one copy where one device has them."""
    import torch

    own = [*heads.values()]
    if not own or own[0].device.type == "cpu" or len({each.device for each in own}) > 1:
        return heads
    parts = torch.split(torch.cat(own).cpu(), [each.numel() for each in own])
    return dict(zip(heads, parts, strict=True))


def _ratio(head: Any, before: Any) -> float | None:
    """Return the number that some elements are others times, or None."""
    if head.shape != before.shape or not before.numel():
        return None
    at = int(before.abs().argmax())
    if float(before[at]) == 0.0:
        return None
    found = float(head[at]) / float(before[at])
    away = float((head - found * before).abs().max())
    return found if away <= APART * float(before.abs().max()) * max(abs(found), APART) else None
