"""Placements against what torch 2.13 does: local tensors, and the calls of every transition."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from torch_scenarios.operations.base import Group
from torch_scenarios.operations.placement import (
    REPLICATE,
    Layout,
    chunks,
    partial_of,
    placement_of,
    shard,
    unplaceable,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from torch_scenarios.operations.base import Part
    from torch_scenarios.operations.placement import Moving, Placement

    Array = NDArray[Any]
    CallDescription = list[tuple[str, str, tuple[int, ...]]]

#: measured with torch 2.13 on Gloo; `about` in the file says how
FACTS = json.loads(Path(__file__).with_name("dtensor_2x2.json").read_text(encoding="utf-8"))
KINDS = {"all_gather_single": "AG", "reduce_scatter_single": "RS", "all_reduce": "AR"}
WHOLE = np.arange(20, dtype=np.float32).reshape(5, 4)


def mesh(*sizes: int) -> dict[int, tuple[Group, ...]]:
    """Return, by rank, its group along each dimension of a mesh."""
    ranks = np.arange(np.prod(sizes)).reshape(sizes)
    found: dict[int, tuple[Group, ...]] = {}
    for place in itertools.product(*map(range, sizes)):
        groups = []
        for dim in range(len(sizes)):
            index: list[Any] = list(place)
            index[dim] = slice(None)
            members = tuple(int(each) for each in ranks[tuple(index)])
            name = f"m.{'abc'[dim]}"
            groups.append(Group(key=f"{name}#{members}", name=name, ranks=members, timeout_s=1.0))
        found[int(ranks[place])] = tuple(groups)
    return found


def layouts(
    sizes: Sequence[int], placements: Iterable[Placement], shape: tuple[int, ...] = (5, 4)
) -> dict[int, Layout]:
    return {
        rank: Layout(mesh="m", groups=groups, placements=tuple(placements), shape=shape, rank=rank)
        for rank, groups in mesh(*sizes).items()
    }


def carried_out(
    moving: Mapping[int, Moving],
) -> tuple[dict[int, Array], dict[int, CallDescription]]:
    """Carry out what moves on every rank, meeting by group; return locals, and what was said."""
    results: dict[int, Array] = {}
    said: dict[int, CallDescription] = {rank: [] for rank in moving}
    waiting: dict[int, Part] = {}

    def go_on(rank: int) -> None:
        waiting.pop(rank, None)
        try:
            waiting[rank] = next(moving[rank])
        except StopIteration as end:
            results[rank] = end.value

    for rank in moving:
        go_on(rank)
    while waiting:
        group = next(
            part.group
            for part in waiting.values()
            if all(
                other in waiting and waiting[other].group.key == part.group.key
                for other in part.group.ranks
            )
        )
        parts = [waiting[rank] for rank in group.ranks]
        entries = [entry_of(rank, part) for rank, part in zip(group.ranks, parts, strict=True)]
        operation: Any = parts[0].operation
        assert {part.operation.name for part in parts} == {operation.name}
        assert operation.disagreements(entries) == []
        outcome = operation.reference(entries)
        for rank, part, values in zip(group.ranks, parts, outcome, strict=True):
            given = part.arguments.get("input", part.arguments.get("tensor"))
            assert given is not None
            said[rank].append((operation.name, group.name[-1], given.shape))
            for name, value in values.items():
                target = part.arguments[name]
                np.copyto(target, np.asarray(value).reshape(target.shape))
            go_on(rank)
    return results, said


def entry_of(rank: int, part: Part) -> Any:
    from torch_scenarios.operations.base import Entry

    entry = Entry(rank=rank, group=part.group, arguments=part.arguments)
    assert part.operation.refuse(entry) is None
    return entry


def cut_by_hand(layout: Layout, whole: Array) -> Array:
    """Return the local tensor that torch.chunk gives, mesh dimension by mesh dimension."""
    local = whole
    for dim, placement in enumerate(layout.placements):
        if placement.is_shard:
            sizes = chunks(local.shape[placement.dim], layout.groups[dim].size)
            start = sum(sizes[: layout.at(dim)])
            index = [slice(None)] * local.ndim
            index[placement.dim] = slice(start, start + sizes[layout.at(dim)])
            local = local[tuple(index)]
        elif placement.is_partial and placement.op == "sum":
            local = local / layout.groups[dim].size
    return local


def of_facts(text: str) -> tuple[Placement, ...]:
    words = {"R": REPLICATE, "S(0)": shard(0), "S(1)": shard(1), "P(sum)": partial_of("sum")}
    return tuple(words[word] for word in text.split(","))


def test_the_facts_are_all_transitions_of_two_dimensions() -> None:
    assert len(FACTS["transitions"]) == 256
    assert sum("refused" in each for each in FACTS["transitions"]) == 87


@pytest.mark.parametrize(
    "fact",
    FACTS["transitions"],
    ids=[f"{each['from']}->{each['to']}" for each in FACTS["transitions"]],
)
def test_a_transition_of_two_dimensions(fact: dict[str, Any]) -> None:
    start, goal = of_facts(fact["from"]), of_facts(fact["to"])
    before = layouts((2, 2), start)
    if "refused" in fact:
        assert all(layout.impassable(goal) for layout in before.values())
        return
    assert not any(layout.impassable(goal) for layout in before.values())
    local = {rank: cut_by_hand(layout, WHOLE).astype(np.float32) for rank, layout in before.items()}
    results, said = carried_out(
        {rank: layout.redistribute(goal, local[rank]) for rank, layout in before.items()}
    )
    for rank, layout in before.items():
        wanted = cut_by_hand(layout.replace_placements(goal), WHOLE)
        np.testing.assert_array_equal(results[rank], wanted)
    wanted_calls = [
        (kind, dim, tuple(json.loads(shape.removeprefix("float32"))))
        for kind, dim, shape in fact["calls"]
    ]
    assert [(KINDS[name], dim, shape) for name, dim, shape in said[0]] == wanted_calls
    assert list(results[0].shape) == fact["local_shape"]


ONE = (
    REPLICATE,
    shard(0),
    shard(1),
    *(partial_of(op) for op in ("sum", "avg", "max", "min", "product")),
)


@pytest.mark.parametrize(("start", "goal"), list(itertools.product(ONE, ONE)), ids=str)
def test_a_transition_of_one_dimension(start: Placement, goal: Placement) -> None:
    """The 64 pairs of one dimension, [5, 4] over three ranks."""
    before = layouts((3,), (start,))
    refused = goal.is_partial and start != goal
    assert all(bool(layout.impassable((goal,))) == refused for layout in before.values())
    if refused:
        return
    held = {
        rank: WHOLE + rank if start.is_partial else cut_by_hand(layout, WHOLE)
        for rank, layout in before.items()
    }
    whole = WHOLE if not start.is_partial else reduced_by_hand(start.op, list(held.values()))
    results, said = carried_out(
        {rank: layout.redistribute((goal,), held[rank]) for rank, layout in before.items()}
    )
    for rank, layout in before.items():
        wanted = (
            held[rank] if start == goal else cut_by_hand(layout.replace_placements((goal,)), whole)
        )
        np.testing.assert_array_equal(results[rank], wanted)
    assert {tuple(calls) for calls in said.values()} == {tuple(expected_calls(start, goal))}


def expected_calls(start: Placement, goal: Placement) -> CallDescription:
    if start in (goal, REPLICATE):
        return []
    if start.is_shard:
        along = {0: [2, 4], 1: [5, 2]}[start.dim]
        if goal.is_shard:
            other = {0: 6, 1: 6}[goal.dim]
            along[goal.dim] = other
        return [("all_gather_single", "a", tuple(along))]
    if not goal.is_shard:
        return [("all_reduce", "a", (5, 4))]
    return [("reduce_scatter_single", "a", (6, 4) if goal.dim == 0 else (15, 2))]


def reduced_by_hand(op: str, parts: list[Array]) -> Array:
    stacked = np.stack(parts)
    by_name: dict[str, Any] = {"sum": np.sum, "max": np.max, "min": np.min, "avg": np.mean}
    by_name["product"] = np.prod
    return np.asarray(by_name[op](stacked, axis=0))


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("rows", [0, 1, 2, 5, 6, 7])
def test_rows_are_cut_as_torch_chunk_cuts_them(rows: int, count: int) -> None:
    whole = np.arange(rows * 2, dtype=np.float32).reshape(rows, 2)
    before = layouts((count,), (shard(0),), shape=(rows, 2))
    results, said = carried_out({rank: layout.distribute(whole) for rank, layout in before.items()})
    sizes = [len(results[rank]) for rank in range(count)]
    most = -(-rows // count) if rows else 0
    assert sizes == [max(0, min(most, rows - at * most)) for at in range(count)]
    np.testing.assert_array_equal(np.concatenate([results[rank] for rank in range(count)]), whole)
    assert {calls[0][0] for calls in said.values()} == {"scatter"}


def test_nested_shards_are_cut_one_after_the_other() -> None:
    before = layouts((2, 2), (shard(0), shard(0)), shape=(5,))
    whole = np.arange(5, dtype=np.float32)
    results, _ = carried_out({rank: each.distribute(whole) for rank, each in before.items()})
    assert [results[rank].tolist() for rank in range(4)] == [[0, 1], [2], [3], [4]]


def test_three_dimensions_come_back_whole() -> None:
    whole = np.arange(30, dtype=np.float32).reshape(5, 3, 2)
    choices = (REPLICATE, shard(0), shard(1), shard(2))
    for start in itertools.product(choices, repeat=3):
        before = layouts((2, 2, 2), start, shape=whole.shape)
        local = {rank: cut_by_hand(layout, whole) for rank, layout in before.items()}
        results, _ = carried_out(
            {
                rank: layout.redistribute((REPLICATE,) * 3, local[rank])
                for rank, layout in before.items()
            }
        )
        for value in results.values():
            np.testing.assert_array_equal(value, whole)


def test_what_is_refused() -> None:
    assert unplaceable((shard(0),), 2, 2) == "1 placements for a mesh of 2 dimensions"
    assert unplaceable((shard(2),), 2, 1) == "Shard(2) of a tensor of 2 dimensions"
    assert unplaceable((partial_of("sum"), partial_of("max")), 2, 2)
    assert unplaceable((shard(-1), REPLICATE), 2, 2) is None


def test_how_placements_are_written() -> None:
    for text in ("Shard(0)", "Replicate()", "Partial(max)", "Shard(-1)"):
        assert str(placement_of(text)) == text
    assert placement_of("Partial()") == partial_of("sum")
    for text in ("Shard()", "Shard(x)", "Replicate(0)", "Partial(mean)", "S(0)"):
        with pytest.raises(ValueError, match="is not a placement"):
            placement_of(text)
