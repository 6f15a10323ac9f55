"""The calls of a program on JAX: each is one of its collectives on CPU devices, by torch's name.

A rank's program hands its calls to `torch.distributed`; here it hands them to this module, which
has the functions that `jax.lax` has a word for. A rank is a process (`jax.distributed.initialize`),
a group is a mesh of one device of each member, and a call is a compiled function of that mesh,
which the members alone make. XLA carries it out over Gloo.

JAX leaves no choice whether a call blocks: a small one is carried out before the function returns.
So each mesh has a thread that makes its calls in order, and a program waits for it as for any
other work. XLA tells the calls of two meshes apart by their devices: each process has several, one
for each group of the same ranks and one for the messages in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, ClassVar, TypeAlias

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from torch_scenarios.worker import framework
from torch_scenarios.worker.framework import (
    Array,
    GroupMember,
    PolledWork,
    deal,
    flatten,
    group,
    join,
    rank_in,
)

#: several messages that start together, by torch's names
P2POp, batch_isend_irecv = framework.P2POp, framework.batch_isend_irecv
#: what a call does with the elements of one rank, as they lie in a row
Word: TypeAlias = Callable[[Any], Any]

#: the name of the one axis of every mesh
AXIS = "rank"
#: groups of the same ranks that one scenario may have, the world included
SAME_RANKS = 4
#: devices of a process: for each of them one for collectives and one for messages
DEVICES = 2 * SAME_RANKS
#: how JAX is set up
SETTINGS = {
    "jax_platforms": "cpu",
    "jax_cpu_collectives_implementation": "gloo",
    "jax_num_cpu_devices": DEVICES,
    "jax_enable_x64": True,  # else 64-bit numbers are cut to 32
}


#: JAX's reductions, by torch's names. It has no product, and none of bits
ReduceOp = SimpleNamespace(SUM="psum", AVG="pmean", MIN="pmin", MAX="pmax")


class JaxGroup:
    """A process group: the ranks of the world in the order of its own, and the devices of each.

    `number` tells groups of the same ranks apart. Each has devices of its own, so that calls on the
    one do not queue behind those on the other.
    """

    def __init__(self, ranks: Sequence[int], number: int) -> None:
        """Be the group of these ranks that is the `number`th one."""
        self.ranks = tuple(ranks)
        self.number = number


class Runtime:
    """What this process is in JAX's runtime.

    It outlives a scenario: `jax.distributed` is joined once a process, and devices cannot be added
    later.
    """

    rank = 0
    #: how often a group of some ranks was made in this scenario
    made: ClassVar[Counter[tuple[int, ...]]] = Counter()
    #: a thread for the calls of each mesh
    threads: ClassVar[dict[Mesh, ThreadPoolExecutor]] = {}
    #: calls that did not come back yet
    under_way: ClassVar[set[Future[Any]]] = set()


def connect(rank: int, size: int, address: str) -> None:
    """Connect this process to the others; the first of them serves `address`."""
    for name, value in SETTINGS.items():
        jax.config.update(name, value)
    jax.distributed.initialize(address, size, rank)
    Runtime.rank = rank
    _list_devices()


@cache
def _list_devices() -> dict[int, list[Any]]:
    """Return the devices of each process, in order."""
    found: dict[int, list[Any]] = {}
    for device in jax.devices():
        found.setdefault(device.process_index, []).append(device)
    return found


def is_idle() -> bool:
    """Return whether every call has come back."""
    return not Runtime.under_way


# -------------------------------------------------------------------------------------------------
# A call: a compiled function of a mesh, in the thread of that mesh.


class JaxWork(PolledWork):
    """A call under way.

    Its thread makes the call with a copy of the tensor's row. What came is stored when the rank
    waits, which is when torch promises it to be there.
    """

    def __init__(
        self, mesh: Mesh, word: Word, row: Array, then: Callable[[Array], None] | None = None
    ) -> None:
        """Start it with a copy of `row`; `then` stores what came, in a row, where it belongs."""
        self._then = then
        given = np.array(row)
        thread = Runtime.threads.get(mesh)
        if thread is None:
            thread = Runtime.threads[mesh] = ThreadPoolExecutor(1)
        self._came: Future[Array] = thread.submit(_carry_out, mesh, word, given)
        Runtime.under_way.add(self._came)
        self._came.add_done_callback(Runtime.under_way.discard)

    def is_completed(self) -> bool:
        """Look once. Raises what stands for JAX's error."""
        if not self._came.done():
            return False
        try:
            row = self._came.result()
        except jax.errors.JaxRuntimeError as error:
            raise _explain(error) from error
        then, self._then = self._then, None
        if then is not None:
            then(row)
        return True


def _explain(error: Exception) -> Exception:
    """Return what a program gets for an error of JAX's, with its own words."""
    words = f"JAX: {str(error).partition(chr(10))[0]}"
    if "UNIMPLEMENTED" in words:
        return NotImplementedError(words)
    return RuntimeError(words)


@cache
def _compile(mesh: Mesh, word: Word) -> Callable[[Any], Any]:
    """Return the function of a mesh; JAX compiles it for each dtype and number of elements."""
    spec = PartitionSpec(AXIS)
    body = jax.shard_map(
        lambda rows: word(rows[0])[None], mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False
    )
    made: Callable[[Any], Any] = jax.jit(body)
    return made


def _carry_out(mesh: Mesh, word: Word, row: Array) -> Array:
    """Make a call, and return what this rank has of it, in a row."""
    sharding = NamedSharding(mesh, PartitionSpec(AXIS))
    own = mesh.local_devices[0]
    given = jax.make_array_from_single_device_arrays(
        (mesh.size, row.size), sharding, [jax.device_put(row[None], own)]
    )
    (shard,) = _compile(mesh, word)(given).addressable_shards
    return np.asarray(shard.data).reshape(-1)


@cache
def _make_word(word: str, **given: Any) -> Word:
    """Return one of the words of `jax.lax`, always the same for the same arguments."""
    return partial(_say, word, given)


def _say(word: str, given: dict[str, Any], row: Any) -> Any:
    return getattr(lax, word)(row, AXIS, **given)


# -------------------------------------------------------------------------------------------------
# Groups: meshes, and ranks of the world in them.


def forget_groups() -> None:
    """Begin a scenario: no group was made in it yet."""
    Runtime.made.clear()


def make_group(ranks: Iterable[int]) -> JaxGroup:
    """Return the group of some ranks. Raises NotImplementedError where there are too many alike."""
    own = tuple(ranks)
    number = Runtime.made[own]
    Runtime.made[own] += 1
    if number >= SAME_RANKS:
        message = f"more than {SAME_RANKS} groups of the same ranks are not supported on JAX here"
        raise NotImplementedError(message)
    return JaxGroup(own, number)


def _find_group(known: Any) -> JaxGroup:
    """Return a group: the world for None. Raises ValueError for what is not a member's."""
    chosen = group.WORLD if known is None else known
    if not isinstance(chosen, JaxGroup) or Runtime.rank not in chosen.ranks:
        message = "this rank is not part of the group: its mesh has no device of this process"
        raise ValueError(message)
    return chosen


def _find_mesh(known: Any) -> Mesh:
    """Return the mesh of a group's collectives."""
    chosen = _find_group(known)
    return _make_mesh(chosen.ranks, 2 * chosen.number)


@cache
def _make_mesh(ranks: tuple[int, ...], number: int) -> Mesh:
    return Mesh(np.array([_list_devices()[rank][number] for rank in ranks]), (AXIS,))


def __getattr__(name: str) -> Any:
    """Raise AttributeError for a function of torch's that is not here."""
    message = f"`{name}` is not supported: JAX has no word for it"
    raise AttributeError(message)


def new_group(
    ranks: list[int] | None = None,
    timeout: object = None,
    backend: str | None = None,
    *,
    sort_ranks: bool = True,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
) -> Any:
    """Create a group: a mesh, which is a value, so that no rank waits for another."""
    if backend is not None:
        message = f"JAX is not supported by the backend {backend}"
        raise NotImplementedError(message)
    world = group.WORLD
    if world is None:
        message = "there is no world: it was destroyed"
        raise ValueError(message)
    wanted = list(world.ranks) if ranks is None else list(ranks)
    if Runtime.rank not in wanted:
        return GroupMember.NON_GROUP_MEMBER
    return make_group(sorted(wanted) if sort_ranks else wanted)


def destroy_process_group(group: Any = None) -> None:
    """Check that there is one: a mesh is a value, and nothing is freed."""
    _find_group(group)


def get_rank(known: Any = None) -> int:
    """Return this rank's place in a group; -1 for no member."""
    ranks = get_process_group_ranks(known)
    return ranks.index(Runtime.rank) if Runtime.rank in ranks else -1


def get_world_size(known: Any = None) -> int:
    """Return how many ranks a group has; -1 for no member."""
    return len(get_process_group_ranks(known)) or -1


def get_process_group_ranks(known: Any) -> list[int]:
    """Return the ranks of the world in a group."""
    chosen = group.WORLD if known is None else known
    return list(chosen.ranks) if isinstance(chosen, JaxGroup) else []


def _find_peer(known: Any, world: int | None, inside: int | None) -> int:
    """Return the place in a group of the rank that a program means. Raises ValueError."""
    ranks = _find_group(known).ranks
    place = rank_in(ranks, world, inside)
    if place is None or not 0 <= place < len(ranks):
        message = f"invalid: the mesh has no device of rank {world if inside is None else inside}"
        raise ValueError(message)
    return place


# -------------------------------------------------------------------------------------------------
# Messages: `ppermute` of one pair, on a mesh of the sender and the receiver.


def _make_message(known: Any, source: int, target: int, tag: int) -> tuple[Mesh, Word]:
    """Return the mesh of a message between two places of a group, and its word."""
    if tag:
        message = "a message with a tag is not supported: JAX has no word for it"
        raise NotImplementedError(message)
    if source == target:
        message = "invalid: a rank cannot send to itself, as a mesh has each device once"
        raise ValueError(message)
    chosen = _find_group(known)
    pair = chosen.ranks[source], chosen.ranks[target]
    return _make_mesh(pair, 2 * chosen.number + 1), _make_word("ppermute", perm=((0, 1),))


def isend(
    tensor: Array,
    dst: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> JaxWork:
    """`ppermute`, from the first of two ranks: both wait for each other."""
    target = _find_peer(group, dst, group_dst)
    return JaxWork(*_make_message(group, get_rank(group), target, tag), flatten(tensor))


def irecv(
    tensor: Array,
    src: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_src: int | None = None,
) -> JaxWork:
    """`ppermute`, on the second of two ranks. Raises NotImplementedError without a source."""
    if src is None and group_src is None:
        message = "a receive from anyone is not supported: a mesh has its ranks by name"
        raise NotImplementedError(message)
    source = _find_peer(group, src, group_src)
    mesh, word = _make_message(group, source, get_rank(group), tag)
    return JaxWork(mesh, word, flatten(tensor), lambda row: deal([tensor], row))


def send(tensor: Array, dst: int | None = None, **given: Any) -> None:
    """Wait until the receiver has it."""
    isend(tensor, dst, **given).wait()


def recv(tensor: Array, src: int | None = None, **given: Any) -> int:
    """Wait for the message; returns whose it was."""
    irecv(tensor, src, **given).wait()
    group, inside = given.get("group"), given.get("group_src")
    return get_process_group_ranks(group)[_find_peer(group, src, inside)]


# -------------------------------------------------------------------------------------------------
# Collectives.


def barrier(group: Any = None, *, async_op: bool = False) -> PolledWork | None:
    """Add up a number, as `multihost_utils.sync_global_devices` does."""
    one = np.ones(1, np.int32)
    return JaxWork(_find_mesh(group), _make_word("psum"), one).finish(async_op=async_op)


def broadcast(
    tensor: Array,
    src: int | None = None,
    group: Any = None,
    *,
    async_op: bool = False,
    group_src: int | None = None,
) -> PolledWork | None:
    """Add up the source's elements and zeros: `pbroadcast` by its documentation.

    JAX 0.10 does not translate `pbroadcast` itself for CPUs.
    """
    source = _find_peer(group, src, group_src)
    row = flatten(tensor)
    given = row if get_rank(group) == source else np.zeros_like(row)
    work = JaxWork(_find_mesh(group), _make_word("psum"), given, lambda came: deal([tensor], came))
    return work.finish(async_op=async_op)


def _find_reduction(op: str, dtype: np.dtype[Any]) -> Word:
    """Return the word of a reduction, whose result is of the same dtype as what is reduced.

    Raises NotImplementedError where it is not: JAX counts booleans, and an average of integers is
    a float.
    """
    if (dtype == np.bool_ and op in {"psum", "pmean"}) or (dtype.kind in "iu" and op == "pmean"):
        message = f"`{op}` of {dtype.name} is not supported: its result has another dtype on JAX"
        raise NotImplementedError(message)
    return _make_word(op)


def all_reduce(
    tensor: Array, op: str = ReduceOp.SUM, group: Any = None, *, async_op: bool = False
) -> PolledWork | None:
    """`psum`, `pmean`, `pmin` or `pmax`."""
    word = _find_reduction(op, tensor.dtype)
    work = JaxWork(_find_mesh(group), word, flatten(tensor), lambda row: deal([tensor], row))
    return work.finish(async_op=async_op)


def all_gather(
    tensor_list: list[Array], tensor: Array, group: Any = None, *, async_op: bool = False
) -> PolledWork | None:
    """`all_gather`: all parts have the same number of elements."""
    mesh = _find_mesh(group)
    _require_alike([tensor, *tensor_list], [tensor_list], mesh.size)
    work = JaxWork(
        mesh, _make_word("all_gather"), flatten(tensor), lambda row: deal(tensor_list, row)
    )
    return work.finish(async_op=async_op)


def _require_alike(arrays: Sequence[Array], lists: Sequence[Sequence[Array]], size: int) -> None:
    """Raise ValueError where arrays differ in size, or a list is not one for each rank."""
    sizes = {each.size for each in arrays}
    if len(sizes) > 1:
        message = f"JAX's arrays have the same size on all ranks, and here are {sorted(sizes)}"
        raise ValueError(message)
    if any(len(each) != size for each in lists):
        message = f"incorrect size: a list has not one tensor for each of {size} ranks"
        raise ValueError(message)


def _require_size(array: Array, wanted: int) -> None:
    """Raise ValueError where an array has not as many elements as it is cut into, or joined of."""
    if array.size != wanted:
        message = f"incorrect size: {array.size} elements, where {wanted} are needed"
        raise ValueError(message)


def all_gather_single(
    output: Array, input: Array, group: Any = None, *, async_op: bool = False
) -> PolledWork | None:
    """`all_gather` into one array."""
    mesh = _find_mesh(group)
    _require_size(output, input.size * mesh.size)
    work = JaxWork(mesh, _make_word("all_gather"), flatten(input), lambda row: deal([output], row))
    return work.finish(async_op=async_op)


def reduce_scatter(
    output: Array,
    input_list: list[Array],
    op: str = ReduceOp.SUM,
    group: Any = None,
    *,
    async_op: bool = False,
) -> PolledWork | None:
    """`psum_scatter` of parts in a row."""
    _require_alike([output, *input_list], [input_list], _find_mesh(group).size)
    return reduce_scatter_single(output, join(input_list), op, group, async_op=async_op)


def reduce_scatter_single(
    output: Array,
    input: Array,
    op: str = ReduceOp.SUM,
    group: Any = None,
    *,
    async_op: bool = False,
) -> PolledWork | None:
    """`psum_scatter`. Raises NotImplementedError for another reduction: it has none."""
    mesh = _find_mesh(group)
    _require_size(input, output.size * mesh.size)
    _find_reduction(op, input.dtype)
    if op != ReduceOp.SUM:
        message = f"`{op}` in reduce_scatter is not supported: JAX has `psum_scatter` alone"
        raise NotImplementedError(message)
    word = _make_word("psum_scatter", tiled=True)
    work = JaxWork(mesh, word, flatten(input), lambda row: deal([output], row))
    return work.finish(async_op=async_op)


def all_to_all(
    output_tensor_list: list[Array],
    input_tensor_list: list[Array],
    group: Any = None,
    *,
    async_op: bool = False,
) -> PolledWork | None:
    """`all_to_all` of parts in a row."""
    lists = output_tensor_list, input_tensor_list
    mesh = _find_mesh(group)
    _require_alike([*output_tensor_list, *input_tensor_list], lists, mesh.size)
    row, word = (
        join(input_tensor_list),
        _make_word("all_to_all", split_axis=0, concat_axis=0, tiled=True),
    )
    work = JaxWork(mesh, word, row, lambda came: deal(output_tensor_list, came))
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
    """`all_to_all` of equal parts."""
    mesh = _find_mesh(group)
    if len({*(output_split_sizes or ()), *(input_split_sizes or ())}) > 1:
        message = "parts that differ in size are not supported by JAX's `all_to_all`"
        raise NotImplementedError(message)
    _require_size(output, input.size)
    _require_size(input, input.size // mesh.size * mesh.size)
    word = _make_word("all_to_all", split_axis=0, concat_axis=0, tiled=True)
    work = JaxWork(mesh, word, flatten(input), lambda row: deal([output], row))
    return work.finish(async_op=async_op)
