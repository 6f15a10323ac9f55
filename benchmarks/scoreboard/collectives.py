"""The collectives as the scoreboard knows them: what each rank holds for one, and its arguments."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from benchmarks.scoreboard.program import Draft, Place

    #: what a rank holds: of `rows` rows, in a group of `size`
    Value = Callable[[int, int], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What one rank believes an operation's arguments to be. `root` counts inside the group."""

    dtype: str = "float32"
    rows: int = 4
    op: str = "sum"
    root: int = 0


EVERY, ROOT, LEAF = "every", "root", "leaf"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A collective. `role`: who needs whom (`all`; the leaves the root; the root the leaves).

    `x` and `y` are what a rank holds under these names, and `passes` which argument is which;
    `op` and the root come after them. Of a rooted collective the root alone holds a `y`.
    `reads` and `writes` say, of `x` and `y`, which memory the call looks at and stores into:
    on every member, on the root alone (`root`), or on all others (`leaf`).
    """

    name: str
    role: str = "all"
    x: Value | None = None
    y: Value | None = None
    passes: Mapping[str, str] = field(default_factory=dict)
    reads: Mapping[str, str] = field(default_factory=dict)
    writes: Mapping[str, str] = field(default_factory=dict)
    reduces: bool = False
    objects: bool = False

    @property
    def rooted(self) -> bool:
        """Whether the call has a root."""
        return self.role != "all"

    def lists(self, letter: str) -> bool:
        """Whether `x` or `y` is a list of tensors."""
        return (self.x if letter == "x" else self.y) in {_list, _scaled_list}


def _rows(rows: int, _: int) -> str:
    return f"full({rows}, rank + 1)"


def _whole(rows: int, size: int) -> str:
    return f"full({size * rows}, rank + 1)"


def _list(rows: int, size: int) -> str:
    return f"[full({rows}, rank + i) for i in range({size})]"


def _scaled_list(rows: int, size: int) -> str:
    return f"[full({rows}, rank * i) for i in range({size})]"


def _nones(_: int, size: int) -> list[None]:
    return [None] * size


def _own_object(*_: int) -> dict[str, str]:
    return {"expr": "rank * 10"}


X, Y = {"x": EVERY}, {"y": EVERY}
REDUCE = Kind(name="reduce", role="dst", x=_rows, passes={"tensor": "x"}, writes=X, reduces=True)
TENSOR_KINDS = (
    Kind(name="all_reduce", x=_rows, passes={"tensor": "x"}, writes=X, reduces=True),
    Kind(
        name="broadcast",
        role="src",
        x=_rows,
        passes={"tensor": "x"},
        reads={"x": ROOT},
        writes={"x": LEAF},
    ),
    REDUCE,
    Kind(
        name="all_gather",
        x=_rows,
        y=_list,
        passes={"tensor_list": "y", "tensor": "x"},
        reads=X,
        writes=Y,
    ),
    Kind(
        name="all_gather_single",
        x=_rows,
        y=_whole,
        passes={"output": "y", "input": "x"},
        reads=X,
        writes=Y,
    ),
    Kind(
        name="gather",
        role="dst",
        x=_rows,
        y=_list,
        passes={"tensor": "x", "gather_list": "y"},
        reads=X,
        writes={"y": ROOT},
    ),
    Kind(
        name="scatter",
        role="src",
        x=_rows,
        y=_list,
        passes={"tensor": "x", "scatter_list": "y"},
        reads={"y": ROOT},
        writes=X,
    ),
    Kind(
        name="reduce_scatter",
        x=_rows,
        y=_list,
        passes={"output": "x", "input_list": "y"},
        reads=Y,
        writes=X,
        reduces=True,
    ),
    Kind(
        name="reduce_scatter_single",
        x=_rows,
        y=_whole,
        passes={"output": "x", "input": "y"},
        reads=Y,
        writes=X,
        reduces=True,
    ),
    Kind(
        name="all_to_all",
        x=_scaled_list,
        y=_list,
        passes={"output_tensor_list": "y", "input_tensor_list": "x"},
        writes=Y,
    ),
    Kind(
        name="all_to_all_single",
        x=_whole,
        y=_whole,
        passes={"output": "y", "input": "x"},
        reads=X,
        writes=Y,
    ),
)
BARRIER = Kind(name="barrier")
OBJECT_KINDS = (
    Kind(
        name="broadcast_object_list",
        role="src",
        x=lambda *_: ["text", 7],
        passes={"object_list": "x"},
        objects=True,
    ),
    Kind(
        name="all_gather_object",
        x=_own_object,
        y=_nones,
        passes={"object_list": "y", "obj": "x"},
        objects=True,
    ),
    Kind(
        name="gather_object",
        role="dst",
        x=_own_object,
        y=_nones,
        passes={"obj": "x", "object_gather_list": "y"},
        objects=True,
    ),
    Kind(
        name="scatter_object_list",
        role="src",
        x=lambda *_: [None],
        y=lambda _, size: [f"for {member}" for member in range(size)],
        passes={"scatter_object_output_list": "x", "scatter_object_input_list": "y"},
        objects=True,
    ),
)
KINDS = (*TENSOR_KINDS, BARRIER, *OBJECT_KINDS)
#: every member needs every other one
MEETING = tuple(kind for kind in KINDS if not kind.rooted)
ROOTED = tuple(kind for kind in KINDS if kind.rooted)


def call(  # noqa: PLR0913 -- what a step has
    draft: Draft,
    kind: Kind,
    name: str,
    *,
    number: int = 0,
    ranks: Collection[int] | None = None,
    spec: Spec | None = None,
    odd: Mapping[int, Spec] | None = None,
    handle: str | None = None,
    x: str | None = None,
    place: Place | None = None,
) -> dict[str, str]:
    """Add a call of `kind`: every rank's tensors and arguments as one step.

    Returns the names of its `x` and `y`. `odd` are the beliefs of single ranks that differ from
    `spec`. `x` makes it use a tensor of another name. A `handle` makes it asynchronous.
    """
    place = place or draft.place
    names = {"x": x or f"x{number}", "y": f"y{number}"}
    believed = dict.fromkeys(place.ranks, spec or Spec()) | dict(odd or {})
    held = {letter: _held(kind, letter, place, believed) for letter in names}
    for letter, values in held.items():
        if values and kind.objects:
            draft.objects[names[letter]] = _per_rank(values, place)
        elif values:
            typed = {rank: _typed(value, believed[rank].dtype) for rank, value in values.items()}
            draft.tensors[names[letter]] = _per_rank(typed, place)
    passed = {rank: _arguments(kind, place, belief, names) for rank, belief in believed.items()}
    arguments = {
        key: _per_rank({rank: each[key] for rank, each in passed.items()}, place, spread=True)
        for key in passed[place.members[0]]
        # a list that no rank holds is left out
        if kind.passes.get(key) != "y" or held["y"]
    }
    arguments |= place.on_group
    if handle is not None:
        arguments["async_op"] = True
    draft.step(name, ranks=ranks, handle=handle, **{kind.name: arguments})
    return names


def _held(kind: Kind, letter: str, place: Place, believed: Mapping[int, Spec]) -> dict[int, Any]:
    """Return what each rank holds under a letter: a `y` of a rooted call the root alone."""
    value = kind.x if letter == "x" else kind.y
    return {
        rank: value(belief.rows, place.size)
        for rank, belief in believed.items()
        if value is not None
        and (letter == "x" or not kind.rooted or rank in place.roots(belief.root))
    }


def _arguments(kind: Kind, place: Place, spec: Spec, names: Mapping[str, str]) -> dict[str, Any]:
    passed: dict[str, Any] = {key: names[letter] for key, letter in kind.passes.items()}
    if kind.reduces:
        passed["op"] = spec.op
    return passed | (place.root(kind.role, spec.root) if kind.rooted else {})


def _typed(value: Any, dtype: str) -> Any:
    return value if dtype == "float32" else {"dtype": dtype, "value": value}


def _per_rank(values: Mapping[int, Any], place: Place, *, spread: bool = False) -> Any:
    """Return one value where all agree, else a mapping; `spread`: some value for every rank."""
    distinct = list(values.values())
    whole = spread or len(values) == len(place.ranks)
    if whole and all(value == distinct[0] for value in distinct):
        return distinct[0]
    if not whole:
        return dict(values)
    usual = max(distinct, key=lambda value: (distinct.count(value), -distinct.index(value)))
    return {rank: value for rank, value in values.items() if value != usual} | {"else": usual}
