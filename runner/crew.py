"""Analysis on every core: cases are independent, and the analysis starts no process of its own.

Workers are forked once everything is loaded, so that they have the cases already, and only
verdicts travel back, in order. They end with the analysis, also when it is interrupted.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

T = TypeVar("T")
R = TypeVar("R")

#: fewer cases than this are done sooner than a process is forked
WORTHWHILE = 64

#: cases that one worker takes at a time
PORTION = 8

_work: tuple[Callable[[int], object], int] | None = None


@contextmanager
def shared(do: Callable[[T], R], cases: Sequence[T]) -> Iterator[Iterator[R]]:
    """Give the results of `do` for each case, in order, computed on as many cores as there are.

    `do` must depend on nothing but its case; its results must pickle.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    alone = threading.active_count() > 1  # a process with threads must not be forked
    if alone or cores < 2 or len(cases) < WORTHWHILE:  # noqa: PLR2004 -- one core does not share
        yield map(do, cases)
        return
    global _work  # noqa: PLW0603 -- what the forked workers inherit
    _work = (lambda at: do(cases[at])), len(cases)
    context = multiprocessing.get_context("fork")
    pool = ProcessPoolExecutor(cores, mp_context=context, initializer=_quiet)
    try:
        portions = [pool.submit(_portion, first) for first in range(0, len(cases), PORTION)]
        yield (result for portion in portions for result in portion.result())  # type: ignore[misc]
    finally:
        for process in multiprocessing.active_children():
            process.terminate()
        pool.shutdown(cancel_futures=True)
        _work = None


def _quiet() -> None:
    """Leave an interrupt to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _portion(first: int) -> list[object]:
    assert _work is not None  # noqa: S101 -- set before the fork
    do, count = _work
    return [do(at) for at in range(first, min(first + PORTION, count))]
