"""Steps taken again: what was settled the first time holds, and nothing else is taken for settled.

The rank is real, `torch.distributed` is not: its functions note what they are given. What they
should have been given tells a process that evaluates every step anew.
"""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from torch_scenarios.expressions.functions import NumpyArrays
from torch_scenarios.language import load
from torch_scenarios.model.groups import plan
from torch_scenarios.model.process import Process
from torch_scenarios.operations.barrier import Barrier
from torch_scenarios.operations.base import GroupCreation, Local, Waiting
from torch_scenarios.worker.board import Board
from torch_scenarios.worker.device import HostCompletion
from torch_scenarios.worker.program import BrokenCallError, Program, convert

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch_scenarios.model.plan import Plan
    from torch_scenarios.model.trace import RankTrace

FUNCTIONS = ("all_reduce", "send", "recv", "barrier", "all_gather", "broadcast", "reduce")


class Dist(SimpleNamespace):
    """A `torch.distributed` that notes each call with the values that its tensors have then."""

    def __init__(self) -> None:
        names = SimpleNamespace(WORLD="the world", NON_GROUP_MEMBER=-100)
        super().__init__(group=names, GroupMember=names, calls=[], during=lambda: None)
        self.isend, self.irecv = "isend", "irecv"
        self.ReduceOp = SimpleNamespace(SUM="SUM", MAX="MAX")
        self.get_world_size = lambda _group=None: 2
        self.get_rank = lambda _group=None: 0
        for name in FUNCTIONS:
            setattr(self, name, self._noting(name))

    def _noting(self, name: str) -> Callable[..., object]:
        def call(**given: object) -> object:
            self.during()
            self.calls.append((name, shown(given)))
            tensor = given.get("tensor")
            if isinstance(tensor, np.ndarray) and name != "send":
                tensor += 1  # it was written to
            return SimpleNamespace(wait=lambda: None)

        return call

    def P2POp(self, op: str, **given: Any) -> tuple[str, str]:  # noqa: N802 -- torch's own
        """Return what tells one message from another."""
        return op, shown(given)

    def batch_isend_irecv(self, operations: list[Any]) -> list[Any]:
        """Start nothing."""
        self.calls.append(("batch_isend_irecv", operations))
        return [SimpleNamespace(wait=lambda: None)]

    def new_group(self, ranks: list[int], **_: object) -> str:
        """Return a handle that no other call returned."""
        self.calls.append(("new_group", shown({"ranks": ranks})))
        return f"group {len(self.calls)}"


def shown(given: dict[str, Any]) -> str:
    return ", ".join(f"{name}={given[name]!r}" for name in sorted(given) if name != "timeout")


class World(SimpleNamespace):
    """The groups of rank 0, by name."""

    def __init__(self, planned: Plan) -> None:
        torch = ModuleType("torch")
        torch.Tensor = type("Tensor", (), {})  # type: ignore[attr-defined]
        here = SimpleNamespace(type="cpu")
        super().__init__(
            torch=torch, dist=Dist(), device=here, plan=planned, rank=0, made={}, calls=None
        )

    def handle(self, name: str) -> object:
        """Return something to tell groups apart by."""
        return self.made.get(name, f"handle of {name}")

    def adopt(self, group: Any, handle: object) -> None:
        """Learn a group that a step created."""
        self.made[group.name] = handle

    def create(self, creation: Any) -> None:
        """Create nothing: every name has a handle."""

    def mend(self, _error: BaseException) -> None:
        """Have nothing to take back."""

    def serve_while(self, call: Any) -> Any:
        """Make a call; no function of another rank runs meanwhile."""
        return call()

    def group_rank(self, _name: str) -> int:
        """Be the first everywhere."""
        return 0

    group_size = group_ranks = group_rank


def planned(text: str, folder: Path) -> Plan:
    path = folder / "case.yaml"
    path.write_text(text, encoding="utf-8")
    (scenario,) = load(path)
    return plan(scenario)


def taken(
    found: Plan, during: Callable[[Board], None] = lambda _: None
) -> tuple[list[Any], RankTrace]:
    """Return the calls that rank 0 made, and its account; `during` runs inside each call."""
    world: Any = World(found)
    board = Board(0, lambda value: value)
    world.dist.during = lambda: during(board)
    program = Program(
        found,
        world,
        NumpyArrays(),
        board=board,
        completion=HostCompletion(),
        broken=lambda: False,
    )
    return world.dist.calls, board.account(program.prepare() or program.run())


def evaluated_anew(found: Plan) -> list[Any]:
    """Return the calls that rank 0 makes if nothing is kept from one step to the next."""
    world: Any = World(found)
    process = Process(found, 0, NumpyArrays())
    for call in process.walk():
        operation: Any = call.operation
        if isinstance(operation, Local):
            operation.run(process, call.entry)
        elif isinstance(operation, GroupCreation):
            world.adopt(
                operation.group(call.entry, 1.0),
                operation.execute(world.dist, convert(world, call)),
            )
            process.join(operation.group(call.entry, 1.0))
        elif not isinstance(operation, Waiting):
            operation.execute(world.dist, convert(world, call))
            if call.asynchronous:
                process.handles.add(str(call.step.handle))
        process._last.clear()  # noqa: SLF001 -- what makes it evaluate anew
    calls: list[Any] = world.dist.calls
    return calls


def loop(*steps: str, variable: str = "i", times: int = 4, head: str = "") -> str:
    body = "".join(f"      - {step}\n" for step in steps)
    return (
        f"world_size: 2\n{head}tensors: {{x: [1, 2], y: [5, 6], z: [0, 1, 2, 3]}}\nsteps:\n"
        f'  - for: {{{variable}: "range({times})"}}\n    steps:\n{body}'
    )


PROGRAMS = {
    "the same call": loop("all_reduce: {tensor: x}"),
    "a tensor that is computed anew": loop('compute: {x: "x + 1"}', "all_reduce: {tensor: x}"),
    "a name that has no tensor at first": loop(
        "broadcast: {tensor: w, src: 0}", 'compute: {w: "x * 2 + i"}'
    ),
    "the variable as a peer": loop('send: {tensor: x, dst: "(i + 1) % 2"}'),
    "the variable as a tag, by rank": loop('send: {tensor: x, dst: 1, tag: {"i > 1": i, else: 9}}'),
    "the variable as a peer, again and again": loop(
        '{for: {j: "range(3)"}, steps: [{send: {tensor: x, dst: "(i + j) % 2"}}]}'
    ),
    "a peer that only some rounds have": loop('{ranks: "i > 0", send: {tensor: x, dst: "1 // i"}}'),
    "a rank and the truth": loop(
        '{ranks: "i == 1 if i < 2 else i - 2", send: {tensor: x, dst: 1}}', "barrier: {}", times=6
    ),
    "a batch that counts, on ranks that do": loop(
        '{ranks: "i % 2", batch_isend_irecv: {p2p_op_list: [{op: isend, tensor: x, peer: 1,'
        " tag: i}]}, as: h}",
        '{ranks: "i % 2", wait: h}',
        times=8,
    ),
    "a batch": loop(
        "{batch_isend_irecv: {p2p_op_list: [{op: isend, tensor: x, peer: 1}]}, as: h}", "wait: h"
    ),
    "the variable of the outer loop": loop(
        '{for: {j: "range(2)"}, steps: [{send: {tensor: x, dst: "i % 2", tag: j}}]}'
    ),
    "a part chosen by the variable": loop('all_reduce: {tensor: "z[i:i + 1]"}'),
    "a part": loop('all_reduce: {tensor: "z[0:2]"}'),
    "data": loop("send: {tensor: [1, 2], dst: 1}"),
    "a value made each time": loop('send: {tensor: "x + 1", dst: 1}', "recv: {tensor: x, src: 1}"),
    "a rank that looks into a tensor": loop(
        '{ranks: "x[0] < 3", all_reduce: {tensor: x}}', "send: {tensor: y, dst: 1}"
    ),
    "a rank chosen by the variable": loop(
        '{ranks: "i % 2", barrier: {}}', "{ranks: 0, barrier: {}}"
    ),
    "a list of tensors": loop("all_gather: {tensor_list: [x, y], tensor: x}"),
    "a list that is computed anew": loop(
        'compute: {both: "[x + i, y]"}', "all_gather: {tensor_list: both, tensor: x}"
    ),
    "an argument by rank": loop("all_reduce: {tensor: {0: x, else: y}, op: {0: max, else: sum}}"),
    "a tensor chosen by looking": loop('all_reduce: {tensor: {"x[0] > 2": y, else: x}}'),
    "a group made each round": loop(
        "new_group: {name: g, group_ranks: [0, 1]}", "all_reduce: {tensor: x, group: g}"
    ),
    "a call that starts work": loop("{all_reduce: {tensor: x, async_op: true}, as: h}", "wait: h"),
    "written out": "world_size: 2\ntensors: {x: [1, 2], y: [5, 6]}\nsteps:\n"
    + "  - all_reduce: {tensor: x}\n  - send: {tensor: y, dst: 1}\n" * 3
    + '  - compute: {x: "y * 3"}\n'
    + "  - all_reduce: {tensor: x}\n  - all_reduce: {tensor: y}\n" * 2
    + "  - all_reduce: {tensor: x, op: max}\n  - send: {tensor: y, dst: 1, tag: 4}\n" * 2,
    "written out, by rank": "world_size: 2\ntensors: {x: [1, 2]}\nsteps:\n"
    + "  - {ranks: 0, all_reduce: {tensor: x}}\n  - {ranks: 1, all_reduce: {tensor: x}}\n" * 3,
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_step_taken_again_is_the_call_that_it_would_be_anew(program: str, tmp_path: Path) -> None:
    found = planned(PROGRAMS[program], tmp_path)
    calls, account = taken(found)
    assert account.ending == "finished"
    assert calls == evaluated_anew(found)
    assert len(calls) >= 3


def test_every_round_keeps_what_it_wrote_then(tmp_path: Path) -> None:
    _, account = taken(planned(PROGRAMS["the same call"], tmp_path))
    assert [event.writes["x"].tolist() for event in account.events] == [
        [2, 3],
        [3, 4],
        [4, 5],
        [5, 6],
    ]
    assert [event.iteration for event in account.events] == [(0,), (1,), (2,), (3,)]


def test_steps_written_alike_keep_their_own_places(tmp_path: Path) -> None:
    _, account = taken(planned(PROGRAMS["written out, by rank"], tmp_path))
    assert [event.index for event in account.events] == [0, 2, 4]
    assert [event.writes["x"].tolist() for event in account.events] == [[2, 3], [3, 4], [4, 5]]


def test_work_that_is_waited_for_again_writes_what_its_start_would(tmp_path: Path) -> None:
    _, account = taken(planned(PROGRAMS["a call that starts work"], tmp_path))
    assert [(event.label, sorted(event.writes)) for event in account.events] == [
        ("all_reduce", []),
        ("wait h", ["x"]),
    ] * 4


def test_the_board_tells_the_place_before_a_call_is_made(tmp_path: Path) -> None:
    stood = []

    def look(board: Board) -> None:
        assert board.inside is board.records[-1]
        stood.append((board.inside.position, board.moves))

    taken(planned(loop("all_reduce: {tensor: x}", "send: {tensor: y, dst: 1}"), tmp_path), look)
    steps = [(index, (round_,)) for round_ in range(4) for index in (1, 2)]
    assert stood == [(step, 2 * number + 1) for number, step in enumerate(steps)]


def test_a_round_that_raises_as_expected_is_not_the_last(tmp_path: Path) -> None:
    text = loop("{all_reduce: {tensor: x}, expect: {raises: timeout}}")

    def stumble(board: Board) -> None:
        if board.records[-1].iteration in {(1,), (2,)}:
            raise RuntimeError("Timed out waiting 1000ms for recv operation to complete")  # noqa: EM101, TRY003 -- Gloo's words

    _, account = taken(planned(text, tmp_path), stumble)
    assert [event.state for event in account.events] == ["done", "raised", "raised", "done"]
    assert [event.writes["x"].tolist() for event in account.events] == [
        [2, 3],
        [2, 3],
        [2, 3],
        [3, 4],
    ]
    assert account.ending == "finished"


def test_a_round_that_raises_unexpectedly_is_the_last(tmp_path: Path) -> None:
    def stumble(board: Board) -> None:
        if board.records[-1].iteration == (2,):
            raise RuntimeError("Connection closed by peer")  # noqa: EM101, TRY003 -- Gloo's words

    _, account = taken(planned(PROGRAMS["the same call"], tmp_path), stumble)
    assert account.ending == "raised"
    assert account.events[-1].failure is not None
    assert account.events[-1].failure.kinds == ("peer_lost",)
    assert len(account.events) == 3


def test_a_call_that_the_supervisor_broke_says_nothing(tmp_path: Path) -> None:
    found = planned(PROGRAMS["the same call"], tmp_path)
    world: Any = World(found)
    board = Board(0, lambda value: value)

    def breaks() -> None:
        if len(board.records) == 3:
            raise RuntimeError("Connection closed by peer")  # noqa: EM101, TRY003 -- Gloo's words

    world.dist.during = breaks
    program = Program(
        found, world, NumpyArrays(), board=board, completion=HostCompletion(), broken=lambda: True
    )
    with pytest.raises(BrokenCallError):
        program.prepare() or program.run()
    assert [event.state for event in board.account("blocked").events] == [
        "done",
        "done",
        "blocked",
    ]


def test_what_cannot_be_computed_in_a_later_round_ends_the_program(tmp_path: Path) -> None:
    text = loop('send: {tensor: x, dst: "1 // (2 - i)"}')
    _, account = taken(planned(text, tmp_path))
    assert account.ending == "raised"
    assert account.events[-1].label == "what comes next"
    assert account.events[-1].failure is not None
    assert "cannot be computed on rank 0" in account.events[-1].failure.message
    assert [event.label for event in account.events[:-1]] == ["send to 0", "send to 1"]


def test_a_name_that_holds_no_single_tensor_any_more_is_refused(tmp_path: Path) -> None:
    text = loop('compute: {w: "x if i < 2 else [x, y]"}', "send: {tensor: w, dst: 1}")
    _, account = taken(planned(text, tmp_path))
    assert account.ending == "raised"
    assert account.events[-1].failure is not None
    assert "`tensor` is not a tensor on rank 0" in account.events[-1].failure.message


def test_an_operation_that_calls_torch_in_its_own_way_does_so_each_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def execute(self: Barrier, dist: Any, arguments: dict[str, Any]) -> None:
        dist.calls.append(sorted(arguments))

    monkeypatch.setattr(Barrier, "execute", execute)
    calls, account = taken(planned(loop("barrier: {}"), tmp_path))
    assert account.ending == "finished"
    assert calls == [["async_op"]] * 4
