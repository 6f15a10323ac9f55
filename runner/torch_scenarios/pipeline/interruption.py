"""Ctrl-C, SIGTERM and SIGHUP as a KeyboardInterrupt that is raised where nothing is lost by it.

While they are handled, an interrupt is held back but for stretches that say they are
:func:`interruptible`: the pipeline's work is one, the end of its reports is not, so that a second
Ctrl-C cannot take away what the first one left. A signal that was ignored when the process began
(`nohup`, a job in the background of a script) stays ignored.

Only the main thread may take signals; in another one nothing here does anything.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from msgspec import Struct

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: seconds after which an interrupt is raised once more: the first one was lost, or its end hangs
PATIENCE_S = 2.0


class _State(Struct, eq=False):
    """The signals of this process; `open` is whether an interrupt may be raised now."""

    handled: bool = False
    open: bool = False
    asked: bool = False
    raised_s: float | None = None


_STATE = _State()


@contextmanager
def handle_interrupts() -> Iterator[None]:
    """Hold interrupts back but for what is :func:`interruptible`; the handlers are put back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    taken = {n: old for n, old in before.items() if old not in {None, signal.SIG_IGN}}
    _STATE.handled, _STATE.open, _STATE.asked, _STATE.raised_s = True, False, False, None
    for number in taken:
        signal.signal(number, _hear)
    try:
        yield
    finally:
        _STATE.handled = False
        for number, old in taken.items():
            signal.signal(number, old)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let an interrupt be raised here, one that was held back too."""
    if not _STATE.handled:
        yield
        return
    before, _STATE.open = _STATE.open, True
    try:
        if _STATE.asked:
            raise KeyboardInterrupt
        yield
    finally:
        _STATE.open = before


@contextmanager
def hold_back() -> Iterator[None]:
    """Hold an interrupt back until the end of this, where it is raised."""
    before, _STATE.open = _STATE.open, False
    try:
        yield
    finally:
        _STATE.open = before
    if before and _STATE.asked:
        raise KeyboardInterrupt


def _hear(number: int, frame: FrameType | None) -> None:
    del number, frame
    _STATE.asked = True
    now_s = time.monotonic()
    again = _STATE.raised_s is None or now_s - _STATE.raised_s > PATIENCE_S
    if _STATE.open and again:
        _STATE.raised_s = now_s
        raise KeyboardInterrupt


def interrupt_on_termination() -> None:
    """Raise a KeyboardInterrupt at Ctrl-C, SIGTERM and SIGHUP, unless they are ignored."""
    if threading.current_thread() is not threading.main_thread():
        return
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
