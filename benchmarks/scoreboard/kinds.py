"""The collectives as the generator knows them: what each rank holds for one, and its arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from benchmarks.scoreboard.sketch import Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What one rank believes an operation's arguments to be. `root` counts inside the group."""

    dtype: str = "float32"
    rows: int = 4
    op: str = "sum"
    root: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class At:
    """One rank at one call: `x` and `y` are the names that its tensors have."""

    place: Place
    spec: Spec
    rank: int
    x: str
    y: str

    @property
    def is_root(self) -> bool:
        """Whether the rank believes itself to be the root."""
        return self.rank in self.place.roots(self.spec.root)

    def flat(self, times: int = 1) -> str:
        """Return a tensor of `times` the rows."""
        return f"full({times * self.spec.rows}, rank + 1)"

    def many(self) -> str:
        """Return a list with a tensor for each member."""
        return f"[full({self.spec.rows}, rank + i) for i in range({self.place.size})]"

    def root(self, role: str) -> dict[str, int]:
        """Return the argument that names the root."""
        return self.place.root(role, self.spec.root)


#: what a rank holds under its names, and what it passes
Call = tuple[dict[str, Any], dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A collective. `role`: who needs whom (`all`; the leaves the root; the root the leaves).

    `reads` and `writes` say, of `x` and `y`, which memory the call looks at and stores into:
    on every member, on the root alone (`root`), or on all others (`leaf`).
    """

    name: str
    role: str
    make: Callable[[At], Call]
    reads: Mapping[str, str]
    writes: Mapping[str, str]
    reduces: bool = False
    objects: bool = False
    #: `y` is a list of tensors
    listed: bool = False

    @property
    def rooted(self) -> bool:
        """Whether the call has a root."""
        return self.role != "all"


def _all_reduce(at: At) -> Call:
    return {at.x: at.flat()}, {"tensor": at.x, "op": at.spec.op}


def _broadcast(at: At) -> Call:
    return {at.x: at.flat()}, {"tensor": at.x, **at.root("src")}


def _reduce(at: At) -> Call:
    return {at.x: at.flat()}, {"tensor": at.x, "op": at.spec.op, **at.root("dst")}


def _all_gather(at: At) -> Call:
    return {at.x: at.flat(), at.y: at.many()}, {"tensor_list": at.y, "tensor": at.x}


def _all_gather_single(at: At) -> Call:
    held = {at.x: at.flat(), at.y: at.flat(at.place.size)}
    return held, {"output": at.y, "input": at.x}


def _gather(at: At) -> Call:
    held = {at.x: at.flat()} | ({at.y: at.many()} if at.is_root else {})
    return held, {"tensor": at.x, "gather_list": at.y, **at.root("dst")}


def _scatter(at: At) -> Call:
    held = {at.x: at.flat()} | ({at.y: at.many()} if at.is_root else {})
    return held, {"tensor": at.x, "scatter_list": at.y, **at.root("src")}


def _reduce_scatter(at: At) -> Call:
    held = {at.x: at.flat(), at.y: at.many()}
    return held, {"output": at.x, "input_list": at.y, "op": at.spec.op}


def _reduce_scatter_single(at: At) -> Call:
    held = {at.x: at.flat(), at.y: at.flat(at.place.size)}
    return held, {"output": at.x, "input": at.y, "op": at.spec.op}


def _all_to_all(at: At) -> Call:
    inputs = f"[full({at.spec.rows}, rank * i) for i in range({at.place.size})]"
    return {at.x: inputs, at.y: at.many()}, {
        "output_tensor_list": at.y,
        "input_tensor_list": at.x,
    }


def _all_to_all_single(at: At) -> Call:
    held = {at.x: at.flat(at.place.size), at.y: at.flat(at.place.size)}
    return held, {"output": at.y, "input": at.x}


def _barrier(at: At) -> Call:
    del at
    return {}, {}


def _broadcast_object_list(at: At) -> Call:
    return {at.x: ["text", 7]}, {"object_list": at.x, **at.root("src")}


def _all_gather_object(at: At) -> Call:
    held = {at.x: {"expr": "rank * 10"}, at.y: [None] * at.place.size}
    return held, {"object_list": at.y, "obj": at.x}


def _gather_object(at: At) -> Call:
    held: dict[str, Any] = {at.x: {"expr": "rank * 10"}}
    if at.is_root:
        held[at.y] = [None] * at.place.size
    return held, {"obj": at.x, "object_gather_list": at.y, **at.root("dst")}


def _scatter_object_list(at: At) -> Call:
    held: dict[str, Any] = {at.x: [None]}
    if at.is_root:
        held[at.y] = [f"for {member}" for member in range(at.place.size)]
    named = {"scatter_object_output_list": at.x, "scatter_object_input_list": at.y}
    return held, {**named, **at.root("src")}


EVERY, ROOT, LEAF = "every", "root", "leaf"
X, Y = {"x": EVERY}, {"y": EVERY}

ALL_REDUCE = Kind(name="all_reduce", role="all", make=_all_reduce, reads={}, writes=X, reduces=True)
BROADCAST = Kind(
    name="broadcast", role="src", make=_broadcast, reads={"x": ROOT}, writes={"x": LEAF}
)
REDUCE = Kind(name="reduce", role="dst", make=_reduce, reads={}, writes=X, reduces=True)
ALL_GATHER = Kind(name="all_gather", role="all", make=_all_gather, reads=X, writes=Y, listed=True)
ALL_GATHER_SINGLE = Kind(
    name="all_gather_single", role="all", make=_all_gather_single, reads=X, writes=Y
)
GATHER = Kind(name="gather", role="dst", make=_gather, reads=X, writes={"y": ROOT}, listed=True)
SCATTER = Kind(name="scatter", role="src", make=_scatter, reads={"y": ROOT}, writes=X, listed=True)
REDUCE_SCATTER = Kind(
    name="reduce_scatter",
    role="all",
    make=_reduce_scatter,
    reads=Y,
    writes=X,
    reduces=True,
    listed=True,
)
REDUCE_SCATTER_SINGLE = Kind(
    name="reduce_scatter_single",
    role="all",
    make=_reduce_scatter_single,
    reads=Y,
    writes=X,
    reduces=True,
)
ALL_TO_ALL = Kind(name="all_to_all", role="all", make=_all_to_all, reads={}, writes=Y, listed=True)
ALL_TO_ALL_SINGLE = Kind(
    name="all_to_all_single", role="all", make=_all_to_all_single, reads=X, writes=Y
)
BARRIER = Kind(name="barrier", role="all", make=_barrier, reads={}, writes={})

TENSOR_KINDS = (
    ALL_REDUCE,
    BROADCAST,
    REDUCE,
    ALL_GATHER,
    ALL_GATHER_SINGLE,
    GATHER,
    SCATTER,
    REDUCE_SCATTER,
    REDUCE_SCATTER_SINGLE,
    ALL_TO_ALL,
    ALL_TO_ALL_SINGLE,
)
OBJECT_KINDS = tuple(
    Kind(name=name, role=role, make=make, reads={}, writes={}, objects=True)
    for name, role, make in (
        ("broadcast_object_list", "src", _broadcast_object_list),
        ("all_gather_object", "all", _all_gather_object),
        ("gather_object", "dst", _gather_object),
        ("scatter_object_list", "src", _scatter_object_list),
    )
)
KINDS = (*TENSOR_KINDS, BARRIER, *OBJECT_KINDS)
