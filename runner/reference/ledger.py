"""How much the analysis may hold: every rank's tensors, and what its trace keeps of each step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from runner.language.budget import Account, BoundError, account
from runner.language.limits import beyond
from runner.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runner.language.limits import Limits
    from runner.problems import Mark
    from runner.scenario import Step


#: bytes that a step takes, whatever it stores: its event, and whom it met (measured: 1.3 to 1.5 kB)
STEP_BYTES = 1_500

#: bytes of an item of a list: what points to it, and a number
ITEM_BYTES = 36

#: bytes that are copied for one unit of work
COPIED_BYTES = 4

#: units of work of a step, whatever it computes, and of each rank that takes it with others
STEP_WORK = 2_000
RANK_WORK = 24

#: units of work of a step that a rank only looks at
PASSED_WORK = 256

#: and where ranks look at it together
PASSED_TOGETHER = 2_000


class Ledger:
    """Counts the steps and bytes of one simulation, and refuses what goes beyond the limits.

    All is charged to the account of the case; a simulation outside of any has one of its own.
    """

    def __init__(self, limits: Limits) -> None:
        """Begin at nothing."""
        self._limits = limits
        self._steps = 0
        self._kept = 0
        self._held = 0
        self.account = account() or Account(limits)

    def step(self, mark: Mark | None, count: int = 1, *, events: int = 1) -> None:
        """Count steps of ranks, and what is kept of them; ScenarioError beyond the limits.

        `events` tells how many things are kept of the steps: one of several ranks together.
        """
        self.account.at = mark
        self.keep_bytes(events * STEP_BYTES, mark)
        self.account.spend(events * STEP_WORK + count * RANK_WORK, mark)
        self._steps += count
        if self._steps > self._limits.max_steps:
            message = f"the program takes too many steps: {beyond('max_steps', self._limits)}"
            raise BoundError([Problem(code="too_many_steps", message=message, mark=mark)])

    def begin(self, mark: Mark | None) -> None:
        """Take note of the place of what is computed next, for what is charged without one."""
        self.account.at = mark

    def turn(self, step: Step) -> None:
        """Count a turn of a loop, whether or not a rank takes a step in it."""
        self.account.turn(step.mark)

    def passed(self, step: Step, work: int = PASSED_WORK) -> None:
        """Count a step that is looked at, and not taken."""
        self.account.at = step.mark
        self.account.spend(work, step.mark)

    def keep(self, values: Iterable[Any], mark: Mark | None, *, copies: int = 1) -> None:
        """Count copies of values that are kept, before they are made; ScenarioError beyond."""
        count = copies * sum(map(size_of, values))
        self.keep_bytes(count, mark)
        self.hold(count)

    def hold(self, count: int) -> None:
        """Count bytes that the ranks of a run hold, their copies of what steps stored included."""
        self._held += count
        self.account.run_bytes = max(self.account.run_bytes, self._held)

    def keep_bytes(self, count: int, mark: Mark | None) -> None:
        """Count bytes that are kept; ScenarioError beyond `max_bytes`."""
        self._kept += count
        self.account.keep(count, mark)
        self.account.spend(count // COPIED_BYTES, mark)

    def room(self, values: Iterable[Any], mark: Mark | None, *, copies: int = 1) -> None:
        """Raise ScenarioError where copies of these values have no room beside what is kept.

        They are looked at only where it may be close: all that there is was kept before.
        """
        if self.account.bytes_left < (copies + 1) * self._kept:
            self.account.room(copies * sum(map(size_of, values)), mark)

    def release(self) -> None:
        """Give back all bytes: what was kept of this simulation is there no more."""
        self.account.bytes_left += self._kept
        self._kept = 0


def size_of(value: Any) -> int:  # noqa: ANN401 -- a value of a trace
    """Return the bytes of an array, or of a list or a mapping with all that is in it."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, list | tuple):
        return ITEM_BYTES * len(value) + sum(map(size_of, value))
    if isinstance(value, dict):
        return 2 * ITEM_BYTES * len(value) + sum(map(size_of, value.values()))
    return 0
