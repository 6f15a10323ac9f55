"""The scenario that is written of records: what it says, projected on a rank, is the record."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from projections import in_order, of_program, of_record

from torch_scenarios.expressions.functions import numpy_arrays
from torch_scenarios.language.document import load_content
from torch_scenarios.language.format import format_file
from torch_scenarios.limits import DEFAULT
from torch_scenarios.model.groups import plan
from torch_scenarios.model.process import Process
from torch_scenarios.operations.base import Local
from torch_scenarios.record.format import (
    BlockingCall,
    RankRecord,
    RecordedCall,
    RecordedWait,
    ScriptPlace,
    Tensor,
)
from torch_scenarios.record.program import MOST_NAMED, SHORTER, RecordedProgram, program_of
from torch_scenarios.record.program.fold import Coordinate, count, number, selector

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: a rank's groups: name -> its members on that rank
Groups = dict[str, tuple[int, ...]]


def at(line: int) -> ScriptPlace:
    return ScriptPlace(frames=(("/me/train.py", line, ""),))


def in_groups(
    world: int, names: Callable[[int], Groups], order: Sequence[str], *, mesh: bool = True
) -> dict[int, RankRecord]:
    """Return records of ranks that create the groups and reduce once on each of theirs."""
    records = {}
    created = [
        (name, part)
        for name in order
        for part in sorted({names(rank)[name] for rank in range(world)})
    ]
    for rank in range(world):
        own = names(rank)
        items: list[Any] = []
        groups = {0: ("0", tuple(range(world)), "default_pg")}
        for number_, (name, part) in enumerate(created, 1):
            is_own = own[name] == part
            if is_own:
                groups[number_] = (str(number_), part, f"mesh_{name}" if mesh else "undefined")
            items.append(
                BlockingCall(
                    number=number_,
                    what="new_group",
                    place=at(1),
                    ranks=part,
                    group=number_ if is_own else None,
                    over=True,
                )
            )
        for line, name in enumerate(order, 10):
            number_ = created.index((name, own[name])) + 1
            items.append(
                RecordedCall(
                    number=100 + line,
                    operation="all_reduce",
                    group=own[name],
                    group_name=str(number_),
                    place=at(line),
                    inputs=(Tensor(dtype="float32", shape=(4,), address=64, size=16),),
                    op="sum",
                    completes=True,
                )
            )
        records[rank] = RankRecord(
            rank=rank, world_size=world, items=items, groups=groups, ending="ended", code=0
        )
    return records


def written(records: dict[int, RankRecord]) -> RecordedProgram:
    """Return the program of records, of which each rank is projected and found the same."""
    program = program_of(records, name="train", folder="/me")
    world = len(records)
    found = of_program(program, Path("train.yaml"), sizes=True, world=world)
    for rank, record in records.items():
        assert found[rank] == in_order(of_record(record, "/me", sizes=True)), program.text
    assert format_file("train.yaml", program.text.encode(), DEFAULT).decode() == program.text
    return program


def along(rank: int, stride: int, extent: int) -> tuple[int, ...]:
    first = rank - rank // stride % extent * stride
    return tuple(first + index * stride for index in range(extent))


@pytest.mark.parametrize(
    ("order", "line"),
    [
        (["pp", "dp", "tp"], "mesh: {shape: [2, 4, 4], dims: [pp, dp, tp]}"),
        (["tp", "dp", "pp"], "mesh: {shape: [2, 4, 4], dims: [pp, dp, tp]}"),
    ],
)
def test_groups_along_the_dimensions_of_a_mesh_are_a_mesh(order: list[str], line: str) -> None:
    strides = {"pp": (16, 2), "dp": (4, 4), "tp": (1, 4)}
    program = written(
        in_groups(32, lambda rank: {name: along(rank, *strides[name]) for name in order}, order)
    )
    assert line in program.text
    assert "group: mesh.dp" in program.text
    assert "partition" not in program.text


def test_groups_that_a_script_makes_one_by_one_are_no_mesh() -> None:
    program = written(
        in_groups(
            8,
            lambda rank: {"rows": along(rank, 1, 4), "columns": along(rank, 4, 2)},
            ["rows", "columns"],
            mesh=False,
        )
    )
    assert "group: {size: 4}\n" in program.text
    assert "mesh" not in program.text


def test_a_dimension_of_one_rank_is_kept() -> None:
    strides = {"dp": (1, 4), "cp": (1, 1)}
    program = written(
        in_groups(
            4, lambda rank: {name: along(rank, *strides[name]) for name in strides}, ["dp", "cp"]
        )
    )
    assert "mesh: {shape: [4, 1], dims: [dp, cp]}" in program.text


@pytest.mark.parametrize(
    ("members", "line"),
    [
        (lambda rank: along(rank, 8, 4), 'dp: {partition: "[range(i, 32, 8) for i in range(8)]"}'),
        (
            lambda rank: along(rank, 2, 4),
            "range(i + j, i + j + 8, 2) for i in range(0, 32, 8) for j in range(2)",
        ),
        (lambda rank: along(rank, 1, 8), "dp: {size: 8}"),
    ],
)
def test_groups_that_tile_the_world_are_one_expression(
    members: Callable[[int], tuple[int, ...]], line: str
) -> None:
    program = written(in_groups(32, lambda rank: {"dp": members(rank)}, ["dp"]))
    assert line in program.text


def test_groups_of_no_shape_are_listed() -> None:
    parts = {0: (0, 3), 3: (0, 3), 1: (1, 2), 2: (1, 2)}
    program = written(in_groups(4, lambda rank: {"dp": parts[rank]}, ["dp"]))
    assert "dp: {partition: [[0, 3], [1, 2]]}" in program.text


# -------------------------------------------------------------------------------------------------
# Messages, and the work of them.

#: what a rank does: "isend", "irecv", "send" or "recv" with a peer, "wait" with the positions of
#: what it waits for, each at a line of its own; messages of a batch, as "isend in 1", follow
#: each other
Done = tuple[str, Any, int]


def with_messages(programs: Sequence[Sequence[Done]]) -> dict[int, RankRecord]:
    """Return records of ranks that send and receive; every message has memory of its own."""
    records = {}
    world = len(programs)
    for rank, program in enumerate(programs):
        waited = {each for kind, what, _ in program if kind == "wait" for each in what}
        items: list[Any] = []
        for number_, (kind, what, line) in enumerate(program):
            if kind == "wait":
                items += [RecordedWait(numbers=(each,), place=at(line)) for each in what]
                continue
            tensor = Tensor(dtype="float32", shape=(2,), address=64 * (number_ + 1), size=8)
            kind, _, batch = kind.partition(" in ")  # noqa: PLW2901
            operation = kind.removeprefix("i")
            items.append(
                RecordedCall(
                    number=number_,
                    operation=operation,
                    group=tuple(range(world)),
                    group_name="0",
                    place=at(line),
                    inputs=(tensor,) if operation == "send" else (),
                    outputs=(tensor,) if operation == "recv" else (),
                    peer=what,
                    completes=kind == operation,
                    waited=number_ in waited,
                    batch=int(batch) if batch else None,
                )
            )
        groups = {0: ("0", tuple(range(world)), "default_pg")}
        records[rank] = RankRecord(
            rank=rank, world_size=world, items=items, groups=groups, ending="ended", code=0
        )
    return records


def gpipe(world: int, microbatches: int, steps: int) -> list[list[Done]]:
    """Forward of all microbatches, then backward; what is sent is waited for after each."""
    programs: list[list[Done]] = []
    for rank in range(world):
        program: list[Done] = []
        for _ in range(steps):
            for source, target, line in ((rank - 1, rank + 1, 10), (rank + 1, rank - 1, 20)):
                sent = []
                for _ in range(microbatches):
                    if 0 <= source < world:
                        program.append(("recv", source, line))
                    if 0 <= target < world:
                        sent.append(len(program))
                        program.append(("isend", target, line))
                if sent:
                    program.append(("wait", sent[::-1], line))
        programs.append(program)
    return programs


@pytest.mark.parametrize(("world", "microbatches"), [(4, 4), (8, 16)])
def test_all_sends_of_a_pipeline_are_one_step_and_one_wait(world: int, microbatches: int) -> None:
    program = written(with_messages(gpipe(world, microbatches, 3)))
    assert program.steps == 9, program.text
    assert 'as: "works[i1]"' in program.text
    assert "wait: works, " in program.text
    assert program.text.count("zeros(") == 2


def one_forward_one_backward(world: int, microbatches: int, steps: int) -> list[list[Done]]:
    """1F1B of blocking receives, whose sends are all waited for at the end of a step."""
    programs: list[list[Done]] = []
    for rank in range(world):
        warm = min(world - rank - 1, microbatches)
        forward: list[Done] = [("recv", rank - 1, 10), ("isend", rank + 1, 10)]
        backward: list[Done] = [("recv", rank + 1, 20), ("isend", rank - 1, 20)]
        whole = forward * warm + (forward + backward) * (microbatches - warm) + backward * warm
        own = [each for each in whole if 0 <= each[1] < world]
        program: list[Done] = []
        for _ in range(steps):
            sent = [len(program) + at for at, each in enumerate(own) if each[0] == "isend"]
            program += [*own, ("wait", sent[::-1], 30)]
        programs.append(program)
    return programs


@pytest.mark.parametrize(("world", "microbatches"), [(4, 8), (8, 32)])
def test_a_schedule_of_one_forward_and_one_backward_folds(world: int, microbatches: int) -> None:
    program = written(with_messages(one_forward_one_backward(world, microbatches, 2)))
    assert program.steps == 13, program.text
    assert 'ranks: "rank > 0", recv: {tensor: f32_2, src: "rank - 1"}' in program.text


def test_a_wait_of_another_thread_is_not_at_the_place_of_a_rank_that_waits() -> None:
    records = with_messages([[("isend", 1, 10)], [("isend", 0, 10), ("wait", [0], 20)]])
    records[0].calls[0].loose = True
    program = written(records)
    assert "{ranks: 0, wait: work_0}" in program.text


def received_ahead(world: int, microbatches: int, steps: int) -> list[list[Done]]:
    """Each rank takes the next message of the one before it while it works on the last one.

    Rank r is r messages ahead, so that more is in flight on later ranks.
    """
    programs: list[list[Done]] = []
    for rank in range(world):
        program: list[Done] = []
        for _ in range(steps):
            begun: list[int] = []

            def begin(program: list[Done] = program, begun: list[int] = begun) -> None:
                begun.append(len(program))
                program.append(("irecv", (rank - 1) % world, 10))  # noqa: B023

            for _ in range(rank + 1):
                begin()
            for at in range(microbatches):
                if len(begun) < microbatches:
                    begin()
                program.append(("wait", [begun[at]], 20))
                program.append(("send", (rank + 1) % world, 30))
        programs.append(program)
    return programs


def test_receives_in_flight_are_numbered_where_that_is_shorter() -> None:
    program = written(with_messages(received_ahead(4, 16, 2)))
    assert program.steps <= 12, program.text
    assert '"ahead[i1' in program.text
    assert 'tensor: "f32_2_ahead[i1' in program.text


def test_memory_that_is_touched_in_flight_keeps_its_name() -> None:
    records = with_messages(received_ahead(4, 16, 2))
    for record in records.values():
        _, second, *_ = (each for each in record.calls if each.operation == "recv")
        call = next(each for each in record.calls if each.operation == "send")
        call.inputs = second.outputs  # what is sent is still being received
    program = program_of(records, name="train", folder="/me")
    assert "ahead" not in program.text


def halos(world: int, steps: int, *, ring: bool) -> list[list[Done]]:
    """Each rank sends to both neighbours and receives of both, in one batch a step."""
    programs: list[list[Done]] = []
    for rank in range(world):
        sides = [rank - 1, rank + 1]
        sides = [each % world for each in sides] if ring else [x for x in sides if 0 <= x < world]
        program: list[Done] = []
        for turn in range(steps):
            begun = [
                (f"{kind} in {turn}", side, 10) for side in sides for kind in ("isend", "irecv")
            ]
            waited = list(range(len(program), len(program) + len(begun)))
            program += [*begun, ("wait", waited, 10)]
        programs.append(program)
    return programs


@pytest.mark.parametrize(("world", "ring"), [(4, False), (4, True), (16, False)])
def test_a_batch_of_messages_is_one_step_on_all_ranks(world: int, ring: bool) -> None:  # noqa: FBT001
    program = written(with_messages(halos(world, 3, ring=ring)))
    assert program.steps == 3, program.text
    assert program.text.count("batch_isend_irecv:") == 1
    assert program.text.count("op: isend") == 2
    assert ('ranks: "rank > 0"' in program.text) is not ring
    assert "in batch_isend_irecv" not in program.text


def test_a_batch_whose_messages_are_waited_for_apart_is_of_messages() -> None:
    mine: list[Done] = [("isend in 1", 1, 10), ("irecv in 1", 1, 10), ("wait", [0], 20)]
    mine += [("send", 1, 30), ("wait", [1], 40)]
    theirs: list[Done] = [("isend in 1", 0, 10), ("irecv in 1", 0, 10), ("wait", [0, 1], 20)]
    program = written(with_messages([mine, [*theirs, ("recv", 0, 30)]]))
    assert "isend: {tensor: f32_2_sent, dst: 1}" in program.text, program.text
    assert "- ranks: 1\n    batch_isend_irecv:" in program.text


def test_a_batch_that_no_rank_waits_for_has_no_handle() -> None:
    programs: list[list[Done]] = [[("isend in 1", 1, 10)], [("irecv in 1", 0, 10)]]
    program = written(with_messages(programs))
    assert "as:" not in program.text, program.text
    assert "batch_isend_irecv" in program.text


def test_a_rank_that_stands_in_a_batch_waits_for_all_of_it() -> None:
    mine: list[Done] = [("isend in 1", 1, 10), ("irecv in 1", 1, 10), ("wait", [0], 10)]
    records = with_messages([mine, []])
    records[0].ending = "stopped"
    program = written(records)
    assert "batch_isend_irecv" in program.text
    assert "isend:" not in program.text


@st.composite
def some_programs(draw: st.DrawFn) -> list[list[Done]]:
    """Ranks that begin work, and wait for some of it, in parts that some ranks repeat."""
    world = draw(st.integers(2, 4))
    part = st.lists(
        st.one_of(
            st.tuples(
                st.sampled_from(["isend", "irecv", "send", "batch"]),
                st.integers(1, world - 1),
                st.integers(1, 3),
            ),
            st.tuples(
                st.just("wait"), st.sampled_from(["all", "first", "last"]), st.integers(4, 5)
            ),
        ),
        min_size=1,
        max_size=6,
    )
    parts: list[list[Any]] = draw(st.lists(part, min_size=1, max_size=3))
    programs = []
    for rank in range(world):
        program: list[Done] = []
        flying: list[int] = []
        batches = 0
        for each in parts:
            for _ in range(draw(st.integers(0, 3))):
                for kind, what, line in each:
                    if kind == "batch":
                        batches += 1
                        for one in draw(st.sampled_from([["isend"], ["irecv", "isend"]])):
                            flying.append(len(program))
                            program.append((f"{one} in {batches}", (rank + what) % world, line))
                    elif kind != "wait":
                        if kind != "send":
                            flying.append(len(program))
                        program.append((kind, (rank + what) % world, line))
                    elif flying:
                        some = {"all": flying[:], "first": flying[:1], "last": flying[-1:]}[what]
                        flying = [number_ for number_ in flying if number_ not in some]
                        program.append(("wait", some, line))
        programs.append(program)
    return programs


@settings(deadline=None, max_examples=60, derandomize=True)
@given(programs=some_programs(), is_numbered=st.booleans())
def test_every_rank_begins_and_waits_for_what_its_record_does(
    programs: list[list[Done]],
    is_numbered: bool,  # noqa: FBT001
) -> None:
    steps, share = (0, 2.0) if is_numbered else (MOST_NAMED, SHORTER)
    with (
        mock.patch("torch_scenarios.record.program.MOST_NAMED", steps),
        mock.patch("torch_scenarios.record.program.SHORTER", share),
    ):
        written(with_messages(programs))


# -------------------------------------------------------------------------------------------------
# What differs by rank, as an expression: whatever is written has the same value on every rank.

MESH = "mesh: {shape: [%d, %d], dims: [a, b]}"


def coordinates(rows: int, columns: int) -> list[Coordinate]:
    return [
        Coordinate(text="group_rank(mesh.a)", group="mesh.a", stride=columns, extent=rows),
        Coordinate(text="group_rank(mesh.b)", group="mesh.b", stride=1, extent=columns),
    ]


def valued(shape: tuple[int, int], steps: str) -> list[Process]:
    world = shape[0] * shape[1]
    text = f"world_size: {world}\ngroups:\n  {MESH % shape}\nsteps:\n{steps}"
    (scenario,) = load_content(Path("x.yaml"), text.encode())
    return [Process(plan(scenario), rank, numpy_arrays()) for rank in range(world)]


SHAPES = st.tuples(st.integers(2, 5), st.integers(2, 5))


@settings(deadline=None, max_examples=60, derandomize=True)
@given(shape=SHAPES, data=st.data())
def test_a_selector_selects_its_ranks(shape: tuple[int, int], data: st.DataObject) -> None:
    rows, columns = shape
    world = rows * columns
    by = data.draw(st.sampled_from([(columns, rows), (1, columns), (1, world)]))
    values = data.draw(st.sets(st.integers(0, by[1] - 1), min_size=1))
    among = data.draw(
        st.one_of(st.just(range(world)), st.sets(st.integers(0, world - 1), min_size=1))
    )
    ranks = [rank for rank in among if rank // by[0] % by[1] in values]
    if not ranks:
        return
    found = selector(ranks, sorted(among), world, coordinates(rows, columns))
    step = "  - {sleep: 0s}" if found is None else f"  - {{ranks: {found}, sleep: 0s}}"
    taken = {
        rank
        for rank, process in enumerate(valued(shape, step))
        if any(True for _ in process.walk())
    }
    assert taken & set(among) == set(ranks), found


def a_peer(kind: str, rank: int, shift: int, axis: Coordinate) -> int:
    at = axis.of(rank)
    match kind:
        case "shift":
            return rank + shift
        case "ring":
            return rank + ((at + shift) % axis.extent - at) * axis.stride
        case "ends":
            return rank + (axis.stride if at == 0 else -axis.stride)
    return hash((rank, shift, axis.stride)) % 7


@settings(deadline=None, max_examples=60, derandomize=True)
@given(
    shape=SHAPES,
    kind=st.sampled_from(["any", "shift", "ring", "ends"]),
    shift=st.integers(-2, 2),
    dimension=st.integers(0, 1),
)
def test_a_number_by_rank_has_its_value_on_each(
    shape: tuple[int, int], kind: str, shift: int, dimension: int
) -> None:
    along_both = coordinates(*shape)
    world = shape[0] * shape[1]
    peers = {rank: a_peer(kind, rank, shift, along_both[dimension]) for rank in range(world)}
    told, turns = number(peers, world, along_both), count(peers, world, along_both)
    steps = f"  - let: {{v: {told}, w: {turns!r}}}\n"
    for rank, process in enumerate(valued(shape, steps)):
        for call in process.walk():
            assert isinstance(call.operation, Local)
            call.operation.run(process, call.entry)
        assert (process.scope["v"], process.scope["w"]) == (peers[rank], peers[rank]), told


def test_the_ends_of_a_chain_are_told_apart() -> None:
    assert number({0: 1, 1: 2, 2: 3, 3: 2}, 4) == '{3: 2, else: "rank + 1"}'
    assert number({0: 3, 1: 0, 2: 1, 3: 2}, 4) == '"(rank - 1) % world_size"'
    ring = {rank: rank // 4 * 4 + (rank + 1) % 4 for rank in range(8)}
    told = number(ring, 8, coordinates(2, 4))
    assert told == '"group_ranks(mesh.b)[(group_rank(mesh.b) + 1) % 4]"'


@pytest.mark.parametrize(
    ("ranks", "told"),
    [
        ([0, 1], '"rank < 2"'),
        ([5], "5"),
        ([0, 1, 2, 4, 5, 6, 7], '"rank != 3"'),
        ([1, 2, 5, 6], "[1, 2, 5, 6]"),
        ([0, 4], '"group_rank(mesh.b) == 0"'),
        ([1, 2, 3, 5, 6, 7], '"group_rank(mesh.b) > 0"'),
        ([2, 6, 7], "[2, 6, 7]"),
    ],
)
def test_a_selector_names_the_dimension_of_a_mesh(ranks: list[int], told: str) -> None:
    assert selector(ranks, range(8), 8, coordinates(2, 4)) == told
    many = [rank + copy for copy in range(0, 64, 8) for rank in (1, 2, 5, 6)]
    found = selector(many, range(64), 64, coordinates(16, 4))
    assert found == '"group_rank(mesh.b) in [1, 2]"'
