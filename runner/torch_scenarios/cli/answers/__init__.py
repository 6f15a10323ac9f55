"""What commands do. `scenario COMMAND --help` waits for none of it.

A module of this package is imported when a command first asks for it: `answers.check.check(...)`
imports :mod:`torch_scenarios.cli.answers.check`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    from torch_scenarios.cli.answers import (
        cases,
        check,
        conformance,
        cost,
        doctor,
        edit,
        hang,
        merge,
        parity,
        plan,
        record,
        reference,
        run,
        show,
    )

__all__ = [
    "cases",
    "check",
    "conformance",
    "cost",
    "doctor",
    "edit",
    "hang",
    "merge",
    "parity",
    "plan",
    "record",
    "reference",
    "run",
    "show",
]


def __getattr__(name: str) -> ModuleType:
    """Import a module of the package, by its name."""
    if name not in __all__:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    return import_module(f"{__name__}.{name}")
