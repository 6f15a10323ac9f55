"""Analysis on several cores gives what one core gives, in the same order, and leaves nobody."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING

import pytest

from runner.pipeline.parallel import MOST_AHEAD, WORTHWHILE, Crew

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.skipif(len(os.sched_getaffinity(0)) == 1, reason="one core does all by itself"),
    pytest.mark.usefixtures("forkable"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning"),
]

LOST, LATE = -1, -2

#: seconds that no worker of these tests is silent for, unless it never returns
PATIENCE_S = 60.0

#: cases as the caller has them: objects, told apart by what they are and not by what they equal
MANY = [[number] for number in range(5 * WORTHWHILE + 3)]


def crew(do: Callable[[list[int]], int]) -> Crew[list[int], int]:
    return Crew(do, lambda _, late: LATE if late else LOST, PATIENCE_S)


def square(case: list[int]) -> int:
    return case[0] ** 2


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


@pytest.mark.parametrize("portion", [1, WORTHWHILE, MOST_AHEAD + 1, len(MANY)])
def test_results_come_in_the_order_of_the_cases(portion: int) -> None:
    with crew(square) as several:
        for first in range(0, len(MANY), portion):
            several.ahead(MANY[first : first + portion])
        assert list(several.results(MANY)) == [square(case) for case in MANY]


def test_what_was_not_taken_ahead_is_done_at_the_end() -> None:
    order = [*MANY[1::2], *MANY[::2]]
    with crew(square) as several:
        several.ahead(MANY[:WORTHWHILE])
        assert list(several.results(order)) == [square(case) for case in order]


def test_equal_cases_are_cases_of_their_own() -> None:
    equal = [[7] for _ in MANY]
    with crew(square) as several:
        several.ahead(equal[:WORTHWHILE])
        assert list(several.results(equal)) == [49] * len(equal)


def test_more_cases_than_a_queue_holds_are_taken_in_strides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("runner.pipeline.parallel._QUEUE", 7)
    with crew(square) as several:
        assert list(several.results(MANY)) == [square(case) for case in MANY]


def test_a_result_may_be_larger_than_a_pipe() -> None:
    large = 300_000
    enlarged: Crew[list[int], bytes] = Crew(
        lambda case: bytes(case) * large, lambda _, late: str(late).encode(), PATIENCE_S
    )
    with enlarged as several:
        assert [len(result) for result in several.results(MANY)] == [large] * len(MANY)


def test_few_cases_stay_in_this_process(forked: list[int]) -> None:
    few = MANY[: WORTHWHILE - 1]
    with crew(square) as several:
        several.ahead(few)
        assert list(several.results(few)) == [square(case) for case in few]
    assert forked == []


def test_many_cases_leave_this_process_alone(forked: list[int]) -> None:
    with crew(lambda _: os.getpid()) as several:
        several.ahead(MANY[:WORTHWHILE])
        assert len(forked) == 1
        assert set(several.results(MANY)) <= set(forked)


def test_a_process_with_threads_is_not_forked(forked: list[int]) -> None:
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        with crew(square) as several:
            several.ahead(MANY)
            assert list(several.results(MANY)) == [square(case) for case in MANY]
    finally:
        over.set()
        thread.join()
    assert forked == []


def test_an_exception_in_a_worker_is_the_caller_s() -> None:
    with pytest.raises(ZeroDivisionError), crew(lambda case: 1 // (case[0] - 30)) as several:
        list(several.results(MANY))


def test_a_case_whose_worker_is_killed_is_lost_and_no_other_one() -> None:
    def die(case: list[int]) -> int:
        if case[0] == 30:
            os.kill(os.getpid(), signal.SIGKILL)
        return square(case)

    with crew(die) as several:
        found = list(several.results(MANY))
    assert found == [LOST if case[0] == 30 else square(case) for case in MANY]


def test_leaving_early_ends_the_workers(tmp_path: Path) -> None:
    def endless(case: list[int]) -> int:
        (tmp_path / str(os.getpid())).touch()
        while case[0]:
            signal.pause()
        return 0

    with crew(endless) as several:
        results = several.results(MANY)
        assert next(results) == 0
    assert list(tmp_path.iterdir())


def test_a_worker_that_never_returns_is_ended_from_outside() -> None:
    def stuck(case: list[int]) -> int:
        if case == MANY[-1]:
            threading.Event().wait()
        return square(case)

    several: Crew[list[int], int] = Crew(stuck, lambda _, late: LATE if late else LOST, 2.0)
    with several:
        found = list(several.results(MANY))
    assert found == [*(square(case) for case in MANY[:-1]), LATE]
