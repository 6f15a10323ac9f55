"""Streams of the CPU, which torch has as names alone, seen as those of a GPU would be.

FSDP2 calls them for any device: `with torch.cpu.stream(s)`, `s.wait_stream`, `record_event`,
`wait_event`. On a CPU nothing happens there. Here each is written down, and an event is there to be
waited for, so that the code goes the way that it goes on a GPU.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch.cpu

#: the stream that a program begins on
MAIN = 0


class StreamWatch:
    """The streams of one process; `tell` writes a line of what becomes of them.

    `wait` writes that the host waits for its stream, or for all.
    """

    def __init__(self, tell: Callable[[list[Any]], None], wait: Callable[..., None]) -> None:
        """Number nothing yet."""
        self._tell, self._wait_on_host = tell, wait
        self._streams, self._events = itertools.count(MAIN + 1), itertools.count()
        #: the stream that calls and kernels are on now
        self.current = MAIN

    def install(self, *, cuda: bool) -> None:
        """Take the place of torch's streams of the CPU; of CUDA's too, where it is the CPU."""
        cpu: Any = torch.cpu
        for name in ("__enter__", "__exit__"):
            setattr(cpu.StreamContext, name, self._see_change(getattr(cpu.StreamContext, name)))
        self._watch_streams(cpu)
        self._watch_events(cpu)
        if cuda:
            on_cuda: Any = torch.cuda
            on_cuda.Stream, on_cuda.Event, on_cuda.stream = cpu.Stream, cpu.Event, cpu.stream
            on_cuda.current_stream = on_cuda.default_stream = cpu.current_stream
            on_cuda.synchronize = self._block_all

    def _block(self, *_: Any) -> None:
        self._wait_on_host()

    def _block_all(self, *_: Any) -> None:
        self._wait_on_host(for_all=True)

    def _watch_streams(self, cpu: Any) -> None:
        streams = self._streams

        def begin(stream: Any, *_: Any, **__: Any) -> None:
            stream._lane = next(streams)

        def record_event(stream: Any, event: Any = None) -> Any:
            return self._record(cpu.Event() if event is None else event, stream)

        def wait_stream(stream: Any, other: Any) -> None:
            self._wait(self._record(cpu.Event(), other), stream)

        kind = cpu.Stream
        kind.__init__, kind.record_event, kind.wait_stream = begin, record_event, wait_stream
        kind.wait_event = lambda stream, event: self._wait(event, stream)
        kind.synchronize, kind.query = self._block, lambda _: True
        cpu.synchronize = self._block_all

    def _watch_events(self, cpu: Any) -> None:
        def record(event: Any, stream: Any = None) -> None:
            self._record(event, cpu.current_stream() if stream is None else stream)

        def wait(event: Any, stream: Any = None) -> None:
            self._wait(event, cpu.current_stream() if stream is None else stream)

        kind = cpu.Event
        kind.__init__ = lambda *_, **__: None
        kind.record, kind.wait, kind.synchronize = record, wait, self._block
        kind.query, kind.elapsed_time = lambda _: True, lambda *_: 1.0

    def _record(self, event: Any, stream: Any) -> Any:
        event._mark = next(self._events)
        self._tell(["m", event._mark, _number(stream)])
        return event

    def _wait(self, event: Any, stream: Any) -> None:
        if hasattr(event, "_mark"):
            self._tell(["u", _number(stream), event._mark])

    def _see_change(self, method: Any) -> Any:
        """Return the beginning, or the end, of a `with` after which another stream is current."""

        def change(*args: Any) -> Any:
            result = method(*args)
            now = _number(torch.cpu.current_stream())
            if now != self.current:
                self._tell(["o", now])
                self.current = now
            return result

        return change


def _number(stream: Any) -> int:
    """Return the number of a stream; that which a program begins on was there before."""
    return int(getattr(stream, "_lane", MAIN))
