"""What several cores are ordered they give as one core does, in order, and no process is left."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, TypeVar

import pytest

from torch_scenarios.pipeline.parallel import EACH, WORTHWHILE, ProcessPool

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence
    from pathlib import Path

R = TypeVar("R")

pytestmark = [
    pytest.mark.skipif(len(os.sched_getaffinity(0)) == 1, reason="one core does all by itself"),
    pytest.mark.usefixtures("forkable"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning"),
]

LOST, LATE = -1, -2

#: seconds of processor time that no order of these tests takes, unless it never returns
MOST_S = 60.0

MANY = range(5 * WORTHWHILE + 3)

#: the processes that do so many orders
WORKERS = min(len(os.sched_getaffinity(0)), len(MANY) // EACH)


def pool(
    *known: Callable[[int], object], most_s: float = MOST_S, ends_s: float | None = None
) -> ProcessPool:
    return ProcessPool(*known, most_s=most_s, ends_s=ends_s)


def itself(order: int) -> Hashable:
    return order


def given(
    several: ProcessPool,
    do: Callable[[int], R],
    orders: Sequence[int] = MANY,
    near: Callable[[int], Hashable] = itself,
) -> Iterator[R | int]:
    return several.results(do, orders, lost=lambda _, late: LATE if late else LOST, near=near)


def square(order: int) -> int:
    return order**2


@pytest.fixture(autouse=True)
def forked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Return the processes that a test has forked so far; none of them outlives it."""
    pids: list[int] = []
    fork = os.fork

    def counted() -> int:
        pid = fork()
        pids.append(pid)
        return pid

    monkeypatch.setattr(os, "fork", counted)
    yield pids
    for pid in pids:
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def test_results_come_in_the_order_of_the_orders() -> None:
    with pool(square) as several:
        assert list(given(several, square)) == [square(order) for order in MANY]


def test_orders_of_a_second_kind_are_done_by_the_same_processes(forked: list[int]) -> None:
    def process(_: int) -> int:
        return os.getpid()

    with pool(square, process) as several:
        assert list(given(several, square)) == [square(order) for order in MANY]
        assert set(given(several, process)) <= set(forked)
    assert len(forked) == WORKERS


def test_what_a_worker_has_read_is_asked_of_it() -> None:
    known: list[int] = []

    def read(order: int) -> int:
        known.append(order)
        return os.getpid()

    def is_known(order: int) -> bool:
        return order in known

    with pool(read, is_known) as several:
        assert len(set(given(several, read))) == WORKERS
        found = list(given(several, is_known))
    # a worker that has nothing left takes what is another one's, from the end
    assert sum(map(int, found)) > len(MANY) / 2


def test_a_worker_without_work_takes_that_of_another() -> None:
    def process(_: int) -> int:
        return os.getpid()

    with pool(process) as several:
        list(given(several, process, near=lambda _: None))  # all near to the one that was last
        found = Counter(given(several, process, near=lambda _: None))
    assert len(found) == WORKERS


def test_a_result_may_be_larger_than_a_pipe() -> None:
    large = 300_000

    def enlarged(order: int) -> bytes:
        return bytes([order]) * large

    with pool(enlarged) as several:
        assert list(given(several, enlarged)) == [bytes([order]) * large for order in MANY]


def test_few_orders_stay_in_this_process(forked: list[int]) -> None:
    few = MANY[: WORTHWHILE - 1]
    with pool(square) as several:
        assert list(given(several, square, few)) == [square(order) for order in few]
    assert forked == []


def test_few_orders_and_then_many_are_shared_with_what_is_known(forked: list[int]) -> None:
    known: list[int] = []

    def sum_of_known(order: int) -> int:
        return order + sum(known)

    with pool(known.append, sum_of_known) as several:
        list(given(several, known.append, [5, 7]))
        assert list(given(several, sum_of_known)) == [order + 12 for order in MANY]
    assert forked


def test_there_are_no_more_processes_than_there_is_to_do(
    forked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    with pool(square) as several:
        few = MANY[:WORTHWHILE]
        assert list(given(several, square, few)) == [square(order) for order in few]
        assert len(forked) == WORTHWHILE // EACH
        assert list(given(several, square)) == [square(order) for order in MANY]
        assert len(forked) == len(MANY) // EACH


def test_a_process_with_threads_is_not_forked(forked: list[int]) -> None:
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        with pool(square) as several:
            assert list(given(several, square)) == [square(order) for order in MANY]
    finally:
        over.set()
        thread.join()
    assert forked == []


def test_an_exception_in_a_worker_is_the_caller_s() -> None:
    def divided(order: int) -> int:
        return 1 // (order - 30)

    with pytest.raises(ZeroDivisionError), pool(divided) as several:
        list(given(several, divided))


def test_an_order_whose_worker_is_killed_is_lost_and_no_other_one() -> None:
    def die(order: int) -> int:
        if order == 30:
            os.kill(os.getpid(), signal.SIGKILL)
        return square(order)

    with pool(die, square) as several:
        found = list(given(several, die))
        assert found == [LOST if order == 30 else square(order) for order in MANY]
        assert list(given(several, square)) == [square(order) for order in MANY]


def test_what_all_workers_leave_behind_is_lost() -> None:
    def die(_: int) -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    with pool(die) as several:
        assert list(given(several, die)) == [LOST] * len(MANY)


def test_leaving_early_ends_the_workers(tmp_path: Path) -> None:
    def endless(order: int) -> int:
        (tmp_path / str(os.getpid())).touch()
        while order:
            signal.pause()
        return 0

    with pool(endless) as several:
        assert next(given(several, endless)) == 0
    assert list(tmp_path.iterdir())


def test_a_worker_that_computes_without_an_end_is_ended_from_outside() -> None:
    def stuck(order: int) -> int:
        if order == MANY[-1]:
            hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)  # no line of Python meanwhile
        return square(order)

    with pool(stuck, most_s=1.0) as several:
        found = list(given(several, stuck))
    assert found == [*(square(order) for order in MANY[:-1]), LATE]


def test_a_worker_that_waits_for_others_is_not_late() -> None:
    def patient(order: int) -> int:
        if order == MANY[-1]:
            time.sleep(2.0)  # as a process does that gets no core
        return square(order)

    with pool(patient, most_s=0.5) as several:
        assert list(given(several, patient)) == [square(order) for order in MANY]


def test_no_worker_goes_on_once_there_is_no_time_left() -> None:
    def stuck(order: int) -> int:
        if order == MANY[-1]:
            threading.Event().wait()
        return square(order)

    with pool(stuck, ends_s=time.monotonic() + 2.0) as several:
        found = list(given(several, stuck))
    assert found[-1] == LATE
