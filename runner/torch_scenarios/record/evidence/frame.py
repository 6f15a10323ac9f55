"""The frame that makes a call, as far as its thread has one."""

from __future__ import annotations

import sys
from typing import Any


def frame_of(calls: int) -> Any:
    """Return the frame that is so many calls above that of the caller, or the outermost one.

    torch runs the hooks of a device's backward pass on another thread, where no more frames
    are than those of the hook.
    """
    try:
        return sys._getframe(calls + 1)
    except ValueError:
        frame: Any = sys._getframe(1)
        while frame.f_back is not None:
            frame = frame.f_back
        return frame
