"""When Python's cyclic collector may walk the heap: not while a large world is built or kept."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def uncollected() -> Iterator[None]:
    """Keep the collector away while many objects are made that all stay."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def settled() -> Iterator[None]:
    """Let the collector leave alone whatever there is by now, and look at what comes after."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
