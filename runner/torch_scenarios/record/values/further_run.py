"""A recorded program, run once more for a comparison: in silence, its files kept aside.

A second run must not change what the first one left: what it prints is dropped, what it writes
goes into copies, and it ends after the steps that are compared where nothing asks for more.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from torch_scenarios.record.analysis import NothingRecordedError, record
from torch_scenarios.record.live import Launcher, RunOrder
from torch_scenarios.record.values.invariants.finding import ValueFinding

#: runs whose modules round otherwise, which measure what rounding does
DISTURBED = 3


class Redeal(Struct, frozen=True, kw_only=True):
    """What dealing anew shows: findings, a reason why nothing is known, or a change in bounds."""

    findings: tuple[ValueFinding, ...] = ()
    reason: str = ""
    change: float = 0.0
    compared: int = 0
    allowed: str = ""
    resumed: bool = False

    @property
    def words(self) -> str:
        """What was compared, in a clause."""
        if self.resumed:
            return f"redeal: {self.compared} steps after a checkpoint are as without a stop"
        if self.reason:
            return f"redeal: not known, {self.reason}"
        if self.allowed:
            return f"redeal: only `{self.allowed}` makes a difference, which is allowed"
        return (
            f"redeal: {self.compared} gradients do not depend on the dealing (largest change "
            f"{self.change:.1g})"
        )


class UnsuitedError(Exception):
    """The batches of a training cannot be dealt anew; the message says why."""


def empty_folder(order: RunOrder, name: str) -> Path:
    """Return the folder of a further run, with nothing in it."""
    folder = order.folder / "redeal" / name
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def run_again(
    order: RunOrder,
    folder: Path,
    values: Mapping[str, Any],
    start: Launcher | None,
    world_size: int = 0,
) -> Path:
    """Run the program once more; return the folder of its record. Raises UnsuitedError."""
    world = world_size or order.world_size
    again = replace(
        order,
        folder=folder,
        values={**order.values, **values},
        silent=True,
        world_size=world,
        ranks=tuple(range(world)),
    )
    try:
        found = record(again, start=start)
    except NothingRecordedError:
        message = "a further run does not communicate"
        raise UnsuitedError(message) from None
    if found.ran.stuck or found.ran.timed_out:
        message = f"a further run does not end: {found.reason}"
        raise UnsuitedError(message)
    return folder


def disturb(order: RunOrder, folder: Path, start: Launcher | None = None) -> list[Path]:
    """Run one process some times more, its modules rounding otherwise; return the records.

    Raises UnsuitedError.
    """
    found = []
    for seed in range(DISTURBED):
        own = folder / f"disturbed-{seed}"
        shutil.rmtree(own, ignore_errors=True)
        values = {"disturb": seed, "stop": True, "outputs": False}
        found.append(run_again(order, own, values, start))
    return found
