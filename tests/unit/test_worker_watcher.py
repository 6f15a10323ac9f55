"""The watching thread of a worker: what it says of a scenario where its process is told to end."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from torch_scenarios.execution import protocol
from torch_scenarios.worker import watcher

if TYPE_CHECKING:
    from collections.abc import Iterator

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@pytest.fixture
def handlers() -> Iterator[None]:
    """Give the signals back that a watcher takes."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    signal.set_wakeup_fd(-1)
    for number, handler in before.items():
        signal.signal(number, handler)


def running(name: str) -> Any:
    posted: list[Any] = []
    return SimpleNamespace(
        outbox=SimpleNamespace(post=posted.append),
        posted=posted,
        key=lambda what: f"{name}/{what}",
        look=lambda _: None,
        take_device=lambda: None,
        told=True,
    )


@pytest.mark.usefixtures("handlers")
def test_a_scenario_that_begins_while_its_rank_is_told_to_end_hears_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SIGTERM and the next scenario may wake the thread together: it knew the one before alone."""
    before, after = running("before"), running("after")
    ends: list[int] = []
    ended = threading.Event()
    waits = iter((False, True))
    ready = select.select

    def wait(*args: Any) -> Any:
        if next(waits, False):  # it waits, and knows the scenario before
            own.begin(after)
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.3)
        return ready(*args)

    def end(code: int) -> None:
        ends.append(code)
        ended.set()
        raise RuntimeError  # the thread returns

    monkeypatch.setattr(select, "select", wait)
    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(watcher, "LAST_S", 1.0)
    absent: Any = SimpleNamespace(compare_set=lambda _key, _was, value: value.encode())
    own = watcher.Watcher(absent, 0, lifeline=None, alone=lambda _: None, told=lambda: None)
    own.begin(before)
    own.listen()
    assert ended.wait(20)
    assert ends == [protocol.TERMINATED]
    assert after.posted == [protocol.RankLeaving(rank=0)]
