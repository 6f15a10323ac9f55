"""Analysis on several cores gives what one core gives, in the same order, and leaves nobody."""

from __future__ import annotations

import multiprocessing
import os

import pytest

from runner.crew import PORTION, WORTHWHILE, shared

MANY = range(3 * WORTHWHILE + PORTION // 2)


def test_results_come_in_the_order_of_the_cases() -> None:
    with shared(lambda number: number * number, MANY) as results:
        assert list(results) == [number * number for number in MANY]
    assert multiprocessing.active_children() == []


def test_few_cases_stay_in_this_process() -> None:
    with shared(lambda _: os.getpid(), range(WORTHWHILE - 1)) as results:
        assert set(results) == {os.getpid()}


def test_an_exception_in_a_worker_is_the_caller_s() -> None:
    def divide(number: int) -> float:
        return 1 / (number - 100)

    with pytest.raises(ZeroDivisionError), shared(divide, MANY) as results:
        list(results)
    assert multiprocessing.active_children() == []


def test_leaving_early_ends_the_workers() -> None:
    with shared(lambda number: number, MANY) as results:
        assert next(results) == 0
    assert multiprocessing.active_children() == []
