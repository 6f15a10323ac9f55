"""What is kept of a step that ranks took: what they stored, and what is expected beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from runner.reference.ledger import size_of
from runner.reference.vector.forms import looked_at
from runner.reference.vector.record import Batch
from runner.reference.vector.values import LARGEST, leave

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runner.reference.ledger import Ledger
    from runner.reference.vector.calls import Calls
    from runner.reference.vector.flights import Flights
    from runner.reference.vector.leaves import Scene
    from runner.reference.vector.memory import Memory
    from runner.reference.vector.record import Change, Record, Said
    from runner.reference.vector.unrolled import Instance
    from runner.reference.vector.values import Active
    from runner.scenario import Expectation, Step


class Notes:
    """Writes the record of a run."""

    def __init__(
        self, memory: Memory, flights: Flights, calls: Calls, record: Record, ledger: Ledger
    ) -> None:
        """Begin with nothing noted."""
        self._ledger = ledger
        self._memory = memory
        self._flights = flights
        self._calls = calls
        self._record = record
        #: bytes that are kept for what is expected beside steps
        self._beside = 0

    def before(self, step: Step, scene: Scene, names: tuple[str, ...]) -> dict[str, Any] | None:
        """Return what the ranks hold, where something is expected beside the step."""
        if step.expect is None:
            return None
        return self._held(step.expect, names, scene.active)

    def _held(self, expect: Expectation, stored: tuple[str, ...], active: Active) -> dict[str, Any]:
        """Return what the ranks hold in the names that a step stores into, or is asked about."""
        found = {}
        names = looked_at(expect).union(stored)
        for name, column in self._memory.columns.items():
            if name in names:
                values = np.array(column.values[active.index])
                self._beside += values.nbytes
                found[name] = (values, column.held[active.index].copy())
        if self._beside > LARGEST:
            leave("much that is expected beside steps")
        return found

    def note(
        self,
        instance: Instance,
        scene: Scene,
        said: Said,
        names: tuple[str, ...] = (),
        changes: tuple[Change, ...] = (),
        *,
        slack: Mapping[str, Any] | None = None,
        before: dict[str, Any] | None = None,
    ) -> None:
        """Note that ranks took a step."""
        if slack:
            self._ledger.keep_bytes(sum(map(size_of, slack.values())), instance.step.mark)
        for name in names:
            column = self._memory.columns.get(name)
            if column is not None:
                each = column.values.nbytes // len(column.values)
                self._ledger.hold(scene.active.size * each)
        batch = Batch(instance, scene.active, names, said, changes, slack or None)
        if instance.step.expect is not None:
            for name in looked_at(instance.step.expect):
                self._flights.check_look(name, scene.active)
            batch.after = self._held(instance.step.expect, names, scene.active)
            batch.observed = self._calls.observed(instance.step, scene)
            batch.before = batch.after if before is None else before
        self._record.add(batch)
