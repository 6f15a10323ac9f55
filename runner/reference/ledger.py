"""How much the analysis may hold: every rank's tensors, and what its trace keeps of each step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from runner.language.limits import beyond
from runner.problems import Problem, ScenarioError

if TYPE_CHECKING:
    from runner.language.limits import Limits
    from runner.problems import Mark


#: bytes that a step takes, whatever it stores: its event, and whom it met (measured: 1.3 to 1.5 kB)
STEP_BYTES = 1_500


class Ledger:
    """Counts the steps and bytes of one simulation, and refuses what goes beyond the limits."""

    def __init__(self, limits: Limits) -> None:
        """Begin at nothing."""
        self._limits = limits
        self._bytes = 0
        self._steps = 0

    def step(self, mark: Mark | None, count: int = 1, *, events: int = 1) -> None:
        """Count steps of ranks, and what is kept of them; ScenarioError beyond the limits.

        `events` tells how many things are kept of the steps: one of several ranks together.
        """
        self.keep_bytes(events * STEP_BYTES, mark)
        self._steps += count
        if self._steps > self._limits.max_steps:
            raise ScenarioError([self._problem("too_many_steps", "max_steps", mark)])

    def keep(self, values: Any, mark: Mark | None) -> None:  # noqa: ANN401 -- values of a trace
        """Count what is kept of these values; ScenarioError beyond `max_bytes`."""
        self.keep_bytes(sum(map(size_of, values)), mark)

    def keep_bytes(self, count: int, mark: Mark | None) -> None:
        """Count bytes that are kept; ScenarioError beyond `max_bytes`."""
        self._bytes += count
        if self._bytes > self._limits.max_bytes:
            raise ScenarioError([self._problem("too_much_memory", "max_bytes", mark)])

    def _problem(self, code: str, name: str, mark: Mark | None) -> Problem:
        what = "takes too many steps" if code == "too_many_steps" else "holds too much"
        return Problem(
            code=code,
            message=f"the program {what}: {beyond(name, self._limits)}",
            mark=mark,
        )


def size_of(value: Any) -> int:  # noqa: ANN401 -- a value of a trace
    """Return the bytes of an array or of the arrays in a list; plain objects count nothing."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, list):
        return sum(map(size_of, value))
    return 0
