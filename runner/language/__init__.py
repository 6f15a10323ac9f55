"""The language: from the text of a file to `Scenario`.

`load` reads one file and returns its cases; `discover` finds the files below some paths. Neither
runs anything: what a rank holds, and whether a program finishes, is for later stages.

The two are imported when they are first asked for: the bounds, which every command line shows, then
cost neither the operations nor NumPy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runner.language.discovery import discover
    from runner.language.loading import load

__all__ = ["discover", "load"]

_ROOMS = {"discover": "runner.language.discovery", "load": "runner.language.loading"}


def __getattr__(name: str) -> Any:  # noqa: ANN401 -- one of the functions above
    """Import what is asked for (PEP 562)."""
    if name not in _ROOMS:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    found = globals()[name] = getattr(importlib.import_module(_ROOMS[name]), name)
    return found
