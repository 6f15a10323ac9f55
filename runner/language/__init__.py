"""The language: from the text of a file to `Scenario`.

`load` reads one file and returns its cases; `discover` finds the files below some paths. Neither
runs anything: what a rank holds, and whether a program finishes, is for later stages.

The two are imported when they are first asked for: the bounds, which every command line shows, then
cost neither the operations nor NumPy.
"""

from __future__ import annotations

import importlib
from typing import Any

from runner.files import discover
from runner.language.document import load

__all__ = ["discover", "load"]

_ROOMS = {"discover": "runner.files", "load": "runner.language.document"}


def __getattr__(name: str) -> Any:
    """Import what is asked for (PEP 562)."""
    if name not in _ROOMS:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    found = globals()[name] = getattr(importlib.import_module(_ROOMS[name]), name)
    return found
