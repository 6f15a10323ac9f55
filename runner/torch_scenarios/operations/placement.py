"""Placements: how a tensor lies on a device mesh, and the rule by which one becomes another.

A distributed tensor is known by its global shape, its mesh and one placement a mesh dimension, as
`torch.distributed.tensor.DTensor` is. Dimensions of the mesh are cut in their order: `[Shard(0),
Shard(0)]` cuts rows over the first, and each part again over the second.

The order of transitions is that of `DTensorRedistributePlanner.generate_greedy_transform_infos`
(torch 2.13): shards whose outer shards change are opened first, from the innermost mesh dimension
outwards; then each mesh dimension, from the outermost inwards, comes to what it is to be. On a CPU
a shard along another dimension is an all_gather and a slice ("CPU process group does not support
alltoall yet").
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Sequence
from functools import cache
from math import prod
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from torch_scenarios.operations.base import Group, Operation, Part, operation_named

#: reduce ops that a `Partial` may have
PARTIAL_OPS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor")

#: reduce ops of which one member's contribution is the whole value itself
_IDEMPOTENT = frozenset({"avg", "min", "max"})

_SHARD, _REPLICATE, _PARTIAL = "Shard", "Replicate", "Partial"

_WRITTEN = re.compile(r"(Shard|Replicate|Partial)\(\s*(-?\d+|\w*)\s*\)")

Array: TypeAlias = NDArray[Any]

#: what moves a tensor: the calls that it makes, one after the other; it returns the local tensor
Moving: TypeAlias = Generator[Part, None, Array]


class Placement(Struct, frozen=True, kw_only=True):
    """One placement: `Shard(dim)`, `Replicate()` or `Partial(op)`."""

    kind: str
    dim: int = 0
    op: str = ""

    def __str__(self) -> str:
        """As an author writes it."""
        inner = {_SHARD: str(self.dim), _PARTIAL: self.op}.get(self.kind, "")
        return f"{self.kind}({inner})"

    @property
    def is_shard(self) -> bool:
        """Whether each member holds a part."""
        return self.kind == _SHARD

    @property
    def is_partial(self) -> bool:
        """Whether each member holds a contribution that is not yet reduced."""
        return self.kind == _PARTIAL

    def shards(self, dim: int) -> bool:
        """Whether it cuts that dimension of the tensor."""
        return self.is_shard and self.dim == dim


def shard(dim: int) -> Placement:
    """`Shard(dim)`."""
    return Placement(kind=_SHARD, dim=dim)


REPLICATE = Placement(kind=_REPLICATE)


def partial_of(op: str) -> Placement:
    """`Partial(op)`."""
    return Placement(kind=_PARTIAL, op=op)


def placement_of(text: str) -> Placement:
    """Return the placement that a text says. Raises ValueError where it says none.

    >>> placement_of("Shard(0)") == shard(0), placement_of("Replicate()") == REPLICATE
    (True, True)
    """
    found = _WRITTEN.fullmatch(text.strip())
    kind, inner = (found[1], found[2]) if found else ("", "")
    if kind == _SHARD and re.fullmatch(r"-?\d+", inner):
        return shard(int(inner))
    if kind == _REPLICATE and not inner:
        return REPLICATE
    if kind == _PARTIAL and inner in ("", *PARTIAL_OPS):
        return partial_of(inner or "sum")
    message = f"`{text}` is not a placement: write Shard(0), Replicate() or Partial(sum)"
    raise ValueError(message)


class Layout(Struct, frozen=True, kw_only=True):
    """A distributed tensor as one rank knows it.

    `mesh` is the name of its mesh, `groups` this rank's group along each mesh dimension, `shape`
    the global shape as this rank believes it to be.
    """

    mesh: str
    groups: tuple[Group, ...]
    placements: tuple[Placement, ...]
    shape: tuple[int, ...]
    rank: int

    def at(self, dim: int) -> int:
        """Return the rank's coordinate along a mesh dimension."""
        return self.groups[dim].group_rank(self.rank)

    def impassable(self, goal: Sequence[Placement]) -> str | None:
        """Return why torch does not redistribute to `goal`, or None."""
        refused = unplaceable(goal, len(self.shape), len(self.placements))
        if refused is not None:
            return refused
        for now, wanted in zip(self.placements, goal, strict=True):
            if wanted.is_partial and now != wanted:
                return (
                    f"{now} cannot become {wanted}: redistributing to Partial is for internal use"
                )
        return None

    def transitions(self, goal: Sequence[Placement]) -> list[Transition]:
        """Return the transitions that lead to `goal`, in order."""
        if len(self.placements) == 1:
            (now,), (wanted,) = self.placements, goal
            change = Transition(mesh_dim=0, now=now, wanted=wanted, shape=self.shape)
            return [] if now == wanted else [change]
        shapes = self._logical_shapes()
        current, found = list(self.placements), []

        def turn(dim: int, wanted: Placement) -> None:
            if current[dim] != wanted:
                shape = shapes[dim]
                found.append(Transition(mesh_dim=dim, now=current[dim], wanted=wanted, shape=shape))
                current[dim] = wanted

        if any(each.is_shard for each in current):
            for dim in reversed(range(len(current))):
                turn(dim, REPLICATE if _is_crossed(current, goal, dim) else goal[dim])
        for dim, wanted in enumerate(goal):
            turn(dim, wanted)
        return found

    def _logical_shapes(self) -> list[tuple[int, ...]]:
        """Return, by mesh dimension, the tensor that it cuts on this rank."""
        shapes = [self.shape]
        for dim, placement in enumerate(self.placements[:-1]):
            shape = list(shapes[-1])
            if placement.is_shard:
                parts = chunks(shape[placement.dim], self.groups[dim].size)
                shape[placement.dim] = parts[self.at(dim)]
            shapes.append(tuple(shape))
        return shapes

    # Tensors on their way: each transition with the calls that it makes.
    def redistribute(self, goal: Sequence[Placement], local: Array) -> Moving:
        """Move a local tensor to the placements of `goal`."""
        for each in self.transitions(goal):
            group = self.groups[each.mesh_dim]
            if group.size > 1:
                local = yield from _turn(each, group, group.group_rank(self.rank), local)
        return local

    def distribute(self, tensor: Array) -> Moving:
        """Give each rank its part of what the first member of each mesh dimension holds."""
        local = tensor
        for dim, placement in enumerate(self.placements):
            group = self.groups[dim]
            if placement.is_shard:
                local = yield from _scatter(placement.dim, group, self.at(dim), local)
                continue
            local = yield from _broadcast_first(group, local)
            if placement.is_partial:
                local = partition(placement.op, group.size, local)
        return local

    def replicate_from_first(self, local: Array) -> Moving:
        """Broadcast along each mesh dimension that replicates: `from_local(run_check=True)`."""
        for dim, placement in enumerate(self.placements):
            if not placement.is_shard and not placement.is_partial:
                local = yield from _broadcast_first(self.groups[dim], local)
        return local

    def replace_placements(self, goal: Sequence[Placement]) -> Layout:
        """Return the layout of the same tensor with other placements."""
        return replace(self, placements=tuple(goal))


@cache
def chunks(size: int, count: int) -> tuple[int, ...]:
    """Return the sizes of `count` parts as `torch.chunk` cuts them: 5 over 3 is 2, 2, 1.

    >>> chunks(5, 3), chunks(5, 4), chunks(0, 2)
    ((2, 2, 1), (2, 2, 1, 0), (0, 0))

    The last parts may be empty, which is where strategies that assume equal parts go wrong.
    """
    most = -(-size // count) if size else 0
    return tuple(max(0, min(most, size - at * most)) for at in range(count))


def normalise(placements: Iterable[Placement], ndim: int) -> tuple[Placement, ...]:
    """Return placements in which no dimension counts from the end."""
    return tuple(
        shard(each.dim + ndim) if each.is_shard and each.dim < 0 else each for each in placements
    )


# -------------------------------------------------------------------------------------------------
# Placements as numbers: a trace says with tensors how its tensors lie.

#: under which name a trace says how a tensor lies: `t.placements`; of a model, `net.placements`
LAYOUTS = "placements"
#: mesh dimensions that a code has room for
MOST_DIMS = 4
_KINDS = (_SHARD, _REPLICATE, _PARTIAL)
#: the code of a tensor that does not exist
ABSENT = -1


def layout_name(name: str) -> str:
    """Return under which name a trace says how a tensor, or each parameter of a model, lies."""
    return f"{name}.{LAYOUTS}"


def is_layout(name: str) -> bool:
    """Whether what a trace has under a name is how tensors lie, and no tensor of the author's."""
    return name.endswith(f".{LAYOUTS}")


def encode(placements: Sequence[Placement] | None) -> list[int]:
    """Return placements in numbers of one length: how many, then a kind and what it is of.

    None is a tensor that is not there, no placement one that is not distributed.

    >>> decode(encode([shard(1), REPLICATE])) == (shard(1), REPLICATE), decode(encode(None)) is None
    (True, True)
    """
    row = [ABSENT if placements is None else len(placements)]
    for each in placements or ():
        of = PARTIAL_OPS.index(each.op) if each.is_partial else each.dim
        row += [_KINDS.index(each.kind), of]
    return row + [0] * (1 + 2 * MOST_DIMS - len(row))


def decode(row: Sequence[int]) -> tuple[Placement, ...] | None:
    """Return the placements of a code."""
    count = int(row[0])
    if count == ABSENT:
        return None
    pairs = zip(row[1 : 1 + 2 * count : 2], row[2 : 2 + 2 * count : 2], strict=True)
    return tuple(_decode_placement(_KINDS[int(kind)], int(of)) for kind, of in pairs)


def _decode_placement(kind: str, of: int) -> Placement:
    if kind == _PARTIAL:
        return partial_of(PARTIAL_OPS[of])
    return shard(of) if kind == _SHARD else REPLICATE


def read_torch_placements(tensor: object) -> tuple[Placement, ...] | None:
    """Return how a tensor of torch's lies; None where there is none, nothing where it is plain."""
    if tensor is None:
        return None
    return tuple(_read_torch_placement(each) for each in getattr(tensor, "placements", ()))


def _read_torch_placement(placement: Any) -> Placement:
    if placement.is_shard() or hasattr(placement, "split_factor"):
        return shard(placement.dim)
    return partial_of(str(placement.reduce_op)) if placement.is_partial() else REPLICATE


# -------------------------------------------------------------------------------------------------
# What torch refuses.


def unplaceable(placements: Sequence[Placement], ndim: int, mesh_dims: int) -> str | None:
    """Return why torch does not place a tensor of `ndim` dimensions so, or None."""
    if len(placements) != mesh_dims:
        return f"{len(placements)} placements for a mesh of {mesh_dims} dimensions"
    ops = sorted({each.op for each in placements if each.is_partial})
    if len(ops) > 1:
        return f"Partial({ops[0]}) and Partial({ops[1]}) in one tensor"
    for each in placements:
        if each.is_shard and not -ndim <= each.dim < ndim:
            return f"{each} of a tensor of {ndim} dimensions"
    return None


# -------------------------------------------------------------------------------------------------
# The rule: which mesh dimension changes when.


class Transition(Struct, frozen=True, kw_only=True):
    """One mesh dimension that changes its placement.

    `shape` is the tensor that is cut along it: the global one, cut by the outer mesh dimensions.
    """

    mesh_dim: int
    now: Placement
    wanted: Placement
    shape: tuple[int, ...]


def _is_crossed(current: Sequence[Placement], goal: Sequence[Placement], dim: int) -> bool:
    """Whether outer mesh dimensions cut the same dimension of the tensor otherwise than wanted."""
    wanted = goal[dim]
    if not wanted.is_shard:
        return False
    outer_now = [each.shards(wanted.dim) for each in current[:dim]]
    return outer_now != [each.shards(wanted.dim) for each in goal[:dim]]


def partition(op: str, size: int, value: Array) -> Array:
    """Return one member's contribution to a value that all members hold (`_partition_value`)."""
    return value if op in _IDEMPOTENT else (value / size).astype(value.dtype)


def _turn(change: Transition, group: Group, at: int, local: Array) -> Moving:
    now, wanted = change.now, change.wanted
    if now.is_partial:
        if wanted.is_shard:
            return (yield from _reduce_to_shard(now.op, wanted.dim, group, at, local))
        return (yield from _reduce(now.op, group, local))
    if now.is_shard:
        size = change.shape[now.dim]
        if not wanted.is_shard:
            return (yield from _gather(now.dim, size, group, local))
        across = chunks(change.shape[wanted.dim], group.size)
        local = pad(local, wanted.dim, max(across, default=0) * group.size)
        whole = yield from _gather(now.dim, size, group, local)
        return cut(cut(whole, wanted.dim, (sum(across),), 0), wanted.dim, across, at)
    if wanted.is_shard:
        return cut(local, wanted.dim, chunks(local.shape[wanted.dim], group.size), at)
    return local


def _gather(dim: int, size: int, group: Group, local: Array) -> Moving:
    """Join the shards along `dim`, which is `size` long, each padded to the longest of them."""
    part = pad(local, dim, max(chunks(size, group.size)))
    output = np.zeros((group.size * part.shape[0], *part.shape[1:]), part.dtype)
    yield call("all_gather_single", group, output=output, input=part)
    whole = np.concatenate(_split(output, 0, group.size), axis=dim)
    return cut(whole, dim, (size,), 0)


def _reduce(op: str, group: Group, local: Array) -> Moving:
    result = local.copy()
    yield call("all_reduce", group, tensor=result, op=op)
    return result


def _reduce_to_shard(op: str, dim: int, group: Group, at: int, local: Array) -> Moving:
    sizes = chunks(local.shape[dim], group.size)
    whole = pad(local, dim, max(sizes) * group.size)
    given = np.concatenate(_split(whole, dim, group.size))
    output = np.zeros((given.shape[0] // group.size, *given.shape[1:]), given.dtype)
    yield call("reduce_scatter_single", group, output=output, input=given, op=op)
    return cut(output, dim, (sizes[at],), 0)


def _scatter(dim: int, group: Group, at: int, tensor: Array) -> Moving:
    sizes = chunks(tensor.shape[dim], group.size)
    whole = pad(tensor, dim, max(sizes) * group.size)
    parts = [each.copy() for each in _split(whole, dim, group.size)]
    mine = np.zeros_like(parts[0])
    listed = parts if at == 0 else None
    yield call("scatter", group, tensor=mine, scatter_list=listed, group_src=0)
    return cut(mine, dim, (sizes[at],), 0)


def _broadcast_first(group: Group, tensor: Array) -> Moving:
    result = tensor.copy()
    yield call("broadcast", group, tensor=result, group_src=0)
    return result


def _split(tensor: Array, dim: int, count: int) -> list[Array]:
    """Return the equal parts of a tensor along `dim`, as views: four times as fast as NumPy's."""
    size, before = tensor.shape[dim] // count, (slice(None),) * dim
    return [tensor[(*before, slice(at * size, (at + 1) * size))] for at in range(count)]


def pad(tensor: Array, dim: int, size: int) -> Array:
    """Return a tensor with zeros behind it, so that it is `size` long along `dim`."""
    length = tensor.shape[dim]
    if size <= length:
        return tensor.copy()
    # three times as fast as `np.pad`
    whole = np.zeros((*tensor.shape[:dim], size, *tensor.shape[dim + 1 :]), tensor.dtype)
    whole[(*(slice(None) for _ in range(dim)), slice(length))] = tensor
    return whole


def cut(tensor: Array, dim: int, sizes: Sequence[int], at: int) -> Array:
    """Return the part at a place of a tensor that is cut into parts of these sizes."""
    start = sum(sizes[:at])
    index = [slice(None)] * tensor.ndim
    index[dim] = slice(start, start + sizes[at])
    return tensor[tuple(index)].copy()


def call(name: str, group: Group, **given: Any) -> Part:
    """Return one call of an operation, its defaults filled in."""
    operation: Operation = operation_named(name)
    arguments = {param.name: param.default for param in operation.params}
    return Part(operation=operation, group=group, arguments=arguments | given)


def elements(shape: Iterable[int]) -> int:
    """Return the number of elements of a shape."""
    return prod(shape)
