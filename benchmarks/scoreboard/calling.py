"""A call of a collective as a step: every rank's tensors and arguments, merged into YAML."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.scoreboard.kinds import At, Kind, Spec

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from benchmarks.scoreboard.sketch import Place, Sketch


def call(  # noqa: PLR0913 -- what a step has
    sketch: Sketch,
    kind: Kind,
    name: str,
    *,
    number: int = 0,
    ranks: Collection[int] | None = None,
    spec: Spec | None = None,
    odd: Mapping[int, Spec] | None = None,
    group: str | None = None,
    handle: str | None = None,
    memory: Mapping[str, str] | None = None,
    place: Place | None = None,
) -> dict[str, str]:
    """Add a call of `kind`; return the names of its `x` and `y`.

    `odd` are the beliefs of single ranks that differ from `spec`. `memory` makes it use tensors of
    other names. A `handle` makes it asynchronous.
    """
    place = place or sketch.place
    names = {"x": f"x{number}", "y": f"y{number}", **(memory or {})}
    believed = dict.fromkeys(place.ranks, spec or Spec()) | dict(odd or {})
    made = {
        rank: kind.make(At(place=place, spec=belief, rank=rank, x=names["x"], y=names["y"]))
        for rank, belief in believed.items()
    }
    for letter in ("x", "y"):
        tensor = names[letter]
        held = {rank: calls[0][tensor] for rank, calls in made.items() if tensor in calls[0]}
        if not held:
            continue
        if kind.objects:
            sketch.objects[tensor] = _per_rank(held, place)
        else:
            sketch.tensors[tensor] = _per_rank(
                {rank: _typed(value, believed[rank].dtype) for rank, value in held.items()}, place
            )
    arguments = {
        key: _per_rank({rank: calls[1][key] for rank, calls in made.items()}, place, spread=True)
        for key in made[place.members[0]][1]
        # a list that no rank has is left out
        if key not in {"gather_list", "scatter_list", *_OBJECT_LISTS} or _held(sketch, names["y"])
    }
    where = group or place.group
    if where is not None:
        arguments["group"] = where
    if handle is not None:
        arguments["async_op"] = True
    sketch.step(name, ranks=ranks, handle=handle, **{kind.name: arguments})
    return names


_OBJECT_LISTS = ("object_gather_list", "scatter_object_input_list")


def _held(sketch: Sketch, name: str) -> bool:
    return name in sketch.tensors or name in sketch.objects


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
