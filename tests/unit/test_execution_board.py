"""The account of a rank, on a device that is done with the call and on one that only enqueues."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest

from torch_scenarios.model.trace import Failure
from torch_scenarios.worker.board import MOST_ON_DEVICE, Board, Site, TakenStep
from torch_scenarios.worker.device import DeviceCompletion, HostCompletion, completion_on


def taken(board: Board, index: int, *, communicates: bool = True) -> TakenStep:
    return board.enter(Site(f"step {index}", communicates), index)


def board() -> Board:
    return Board(0, lambda value: value)


def states(account: Any) -> list[tuple[int, str]]:
    return [(event.index, event.state) for event in account.events]


def test_a_step_that_did_not_return_is_blocked_or_running() -> None:
    first = board()
    first.leave(taken(first, 0))
    taken(first, 1)
    assert states(first.account("blocked")) == [(0, "done"), (1, "blocked")]
    second = board()
    taken(second, 0, communicates=False)
    assert states(second.account("died", "SIGKILL")) == [(0, "running")]


def test_only_a_communication_call_can_be_stuck() -> None:
    here = board()
    taken(here, 0, communicates=False)
    seen = [here.inside]
    record = taken(here, 1)
    seen.append(here.inside)
    here.leave(record)
    seen.append(here.inside)
    assert seen == [None, record, None]


def test_every_entry_and_return_is_a_move() -> None:
    here = board()
    record = taken(here, 0)
    here.leave(record)
    assert here.moves == 2


def test_what_was_none_of_the_programs_is_forgotten_and_was_a_move() -> None:
    here = board()
    moves = [here.moves]
    for _ in range(2):
        record = taken(here, -1)
        moves.append(here.moves)
        here.leave(record)
        here.forget(record)
        moves.append(here.moves)
    assert here.records == []
    assert moves == [0, 1, 2, 3, 4]


def test_what_a_device_has_not_done_is_left_out_of_the_account() -> None:
    here, steps = enqueued("call", "call", "call")
    for index, record in enumerate(here.records):
        record.written, record.kept = ("x",), [index]
    steps[0].happened = True
    here.advance()
    account = here.account("blocked")
    assert states(account) == [(0, "done"), (1, "blocked")]
    assert [event.complete_s for event in account.events] == [0.25, None]
    assert [event.writes for event in account.events] == [{"x": 0}, {}]


@dataclass
class FakeEvent:
    """An event of a device whose clock counts the events recorded on it."""

    enable_timing: bool = False
    at_ms: float = 0.0
    #: how often it was asked whether it has happened; the device needs three looks
    asked: int = 0

    def record(self, stream: object) -> None:  # noqa: D102 -- torch's own
        assert stream == "the current stream"
        FakeCuda.now_ms += 250.0
        self.at_ms = FakeCuda.now_ms

    def query(self) -> bool:  # noqa: D102 -- torch's own
        self.asked += 1
        return self.asked > 2

    def elapsed_time(self, other: FakeEvent) -> float:  # noqa: D102 -- torch's own
        return other.at_ms - self.at_ms


class FakeCuda:
    """As much of `torch.cuda` as a completion uses."""

    now_ms = 0.0
    Event = FakeEvent
    current_stream = staticmethod(lambda: "the current stream")


@dataclass(frozen=True)
class Device:
    """As much of a `torch.device` as tells a GPU from a CPU."""

    type: str


FAKE_TORCH = ModuleType("torch")
FAKE_TORCH.cuda = FakeCuda  # type: ignore[attr-defined]


def test_a_gpu_completes_with_events_and_a_cpu_with_the_call() -> None:
    on_gpu = completion_on(FAKE_TORCH, Device("cuda"))
    assert isinstance(on_gpu, DeviceCompletion)
    on_gpu.begin()
    on_gpu.mark()
    assert on_gpu.seconds(on_gpu.mark()) == 0.5
    on_cpu = completion_on(FAKE_TORCH, Device("cpu"))
    assert isinstance(on_cpu, HostCompletion)
    assert on_cpu.mark() is None  # type: ignore[func-returns-value]


def test_a_scenario_begins_once_the_device_has_what_it_holds() -> None:
    events: list[FakeEvent] = []

    class Noting(FakeEvent):
        def record(self, stream: object) -> None:
            events.append(self)
            super().record(stream)

    torch = ModuleType("torch")
    torch.cuda = type("Cuda", (FakeCuda,), {"Event": Noting})  # type: ignore[attr-defined]
    DeviceCompletion(torch).begin()
    assert [event.asked for event in events] == [3]


def test_the_events_of_a_scenario_serve_the_next_one() -> None:
    on_gpu = completion_on(FAKE_TORCH, Device("cuda"))
    on_gpu.begin()
    first = [on_gpu.mark() for _ in range(2)]
    assert first[0] is not first[1]
    again = completion_on(FAKE_TORCH, Device("cuda"))
    again.begin()
    second = [again.mark() for _ in range(3)]
    assert second[0] is first[0]
    assert second[1] is first[1]
    assert [again.seconds(event) for event in second] == [0.25, 0.5, 0.75]


# ---------------------------------------------------------------------------- a device that lags


@dataclass
class Step:
    """An event that happens when the test says so, or whose device is lost."""

    happened: bool = False
    lost: bool = False
    asked: int = 0

    def query(self) -> bool:  # noqa: D102 -- torch's own
        self.asked += 1
        if self.lost:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")  # noqa: EM101, TRY003 -- CUDA's words
        return self.happened


def enqueued(*kinds: str) -> tuple[Board, list[Step]]:
    """Return a board on which the host has left every step and the device has done none."""
    here = Board(0, lambda value: value, lambda _: 0.25)
    steps = [Step() for _ in kinds]
    for index, (kind, step) in enumerate(zip(kinds, steps, strict=True)):
        record = taken(here, index, communicates=kind == "call")
        here.leave(record)
        record.event = step
    return here, steps


def test_a_rank_stands_where_its_device_does_while_the_host_has_run_on() -> None:
    here, steps = enqueued("call", "call", "local")
    stood = []
    for step in steps:
        stood.append(here.position)
        step.happened = True
    # the last is a kernel of the program's own: busy, and waited for
    assert stood == [here.records[0], here.records[1], None]
    assert here.advance() is None


def test_what_the_device_does_is_a_move_and_has_its_time() -> None:
    here, steps = enqueued("call", "call")
    before = here.moves
    steps[0].happened = True
    here.advance()
    assert here.moves == before + 1
    assert here.account("blocked").events[0].complete_s == 0.25
    assert here.advance() is here.records[1]
    assert here.moves == before + 1


@pytest.mark.parametrize("done", [0, 1, 2, 3, 7, 63, 64, 99, 100])
def test_a_device_that_is_far_behind_is_found_with_few_questions(done: int) -> None:
    here, steps = enqueued(*["call"] * 100)
    for step in steps[:done]:
        step.happened = True
    at = here.advance()
    assert (at is None) if done == 100 else (at is here.records[done])
    assert sum(step.asked for step in steps) <= 14
    assert here.account("blocked").events[done - 1].state == ("done" if done else "blocked")


def test_events_count_in_the_order_of_the_stream() -> None:
    here, steps = enqueued("call", "call")
    steps[1].happened = True
    assert here.position is here.records[0]
    assert states(here.account("blocked")) == [(0, "blocked")]


def test_the_host_that_is_inside_a_call_stands_there_once_the_device_is_idle() -> None:
    here, steps = enqueued("call")
    record = taken(here, 1)
    assert here.position is here.records[0]
    steps[0].happened = True
    assert here.position is record


def test_a_call_that_failed_on_the_device_has_raised_and_ends_the_account() -> None:
    here, steps = enqueued("call", "call", "call")
    steps[0].happened = True
    standing = here.advance()
    assert standing is not None
    here.fail(standing, Failure(kinds=("timeout",), message="late"))
    account = here.account("raised")
    assert states(account) == [(0, "done"), (1, "raised")]
    assert account.events[1].failure == Failure(kinds=("timeout",), message="late")


def test_a_lost_device_is_a_fault_and_no_exception() -> None:
    here, steps = enqueued("call")
    steps[0].lost = True
    assert here.advance() is here.records[0]
    assert "illegal memory access" in str(here.fault)


def test_what_is_enqueued_for_a_step_afterwards_is_waited_for_too() -> None:
    here, steps = enqueued("call", "call")
    for step in steps:
        step.happened = True
    assert here.advance() is None
    last = here.records[1]
    here.defer(last, Step())
    assert here.advance() is last
    assert states(here.account("blocked")) == [(0, "done"), (1, "blocked")]


@dataclass
class Copied:
    """A copy on a device, or its array on the host."""

    nbytes: int
    is_here: bool = False


def bring(value: Any) -> Any:
    """Bring a value to the host, as an account's conversion does."""
    if isinstance(value, list):
        return [bring(item) for item in value]
    return Copied(value.nbytes, is_here=True)


def test_copies_come_to_the_host_once_they_are_too_many_for_the_device() -> None:
    here, steps = enqueued("call", "call", "call", "call")
    here.convert = bring
    steps[0].happened = steps[1].happened = True
    for record in here.records:
        record.written, record.kept = ("x",), [[Copied(MOST_ON_DEVICE // 3)]]
        here.spare(record)
    # three thirds fit; the fourth asks for one, and the device has made that
    assert [record.kept[0][0].is_here for record in here.records] == [True, False, False, False]
    late = here.records[-1]
    here.spare(late)
    here.spare(late)  # the device has made no third one: what it has not made stays there
    assert [record.kept[0][0].is_here for record in here.records] == [True, True, False, False]
