"""Which tensors of a rank are shared between its own steps and the functions that others call.

A function runs on the rank that is called next to that rank's steps. Where both touch the same
name, it matters which of them comes first: such a step is *open*. Read from the text, for every
rank: more is open than need be, and never less.
"""

from __future__ import annotations

from typing import Any

from torch_scenarios.expressions.values import Constant, expressions_in
from torch_scenarios.model.scenario import Function, Scenario, Step, steps_of
from torch_scenarios.operations.base import Compound, Local, Operation, RemoteCall
from torch_scenarios.operations.compute import PARTS

NOTHING: frozenset[str] = frozenset()


class Procedures:
    """The functions of a scenario, and what its steps share with them on each rank.

        functions: {push: {arguments: [g], sets: {w: w - g}}}
        rank 1   y = 2 * x          not open: `push` touches neither x nor y
                 z = w              open: before or after a push, z is another one

    With no open step a function runs as soon as it is called, and no order has to be explored.
    """

    def __init__(self, scenario: Scenario) -> None:
        """Look at every call."""
        self.functions = scenario.functions
        self._steps = steps_of(scenario.steps)
        #: functions that any rank may be asked for, and those that one rank alone is
        self._anywhere: set[str] = set()
        self._on: dict[int, set[str]] = {}
        for step in self._steps:
            if isinstance(step.operation, RemoteCall):
                self._note(step)
        self._open: dict[tuple[int, int], bool] = {}
        self._all_written: frozenset[str] | None = None

    def _note(self, step: Step) -> None:
        func, to = step.arguments.get("func"), step.arguments.get("to")
        if not isinstance(func, Constant) or func.value not in self.functions:
            return
        if isinstance(to, Constant) and isinstance(to.value, int):
            self._on.setdefault(to.value, set()).add(func.value)
        else:
            self._anywhere.add(func.value)

    def __bool__(self) -> bool:
        """Whether some step calls a function."""
        return bool(self._anywhere or self._on)

    def of(self, rank: int) -> list[Function]:
        """Return the functions that a rank may be asked for."""
        return [self.functions[name] for name in sorted(self._anywhere | self._on.get(rank, set()))]

    def find_stored(self, rank: int) -> frozenset[str]:
        """Return the names of a rank that functions store into."""
        return NOTHING.union(*(each.writes for each in self.of(rank)))

    def is_open(self, rank: int, step: Step) -> bool:
        """Whether it matters if a function that others call on a rank runs before a step of it."""
        known = self._open.get((rank, step.index))
        if known is None:
            known = self._open[rank, step.index] = self._look(rank, step)
        return known

    def _look(self, rank: int, step: Step) -> bool:
        functions = self.of(rank)
        if not functions:
            return False
        if isinstance(step.operation, Compound) or _ends(step.operation):
            return True
        read = NOTHING.union(*(each.reads for each in functions))
        touches, writes = find_accesses(step)
        return not (touches.isdisjoint(self.find_stored(rank)) and writes.isdisjoint(read))

    def find_changed(self, rank: int, step: Step) -> frozenset[str]:
        """Return the names that functions may have changed by the end of a step that is open."""
        return self.find_stored(rank) if self.is_open(rank, step) else NOTHING

    def clashes(self, rank: int, function: Function) -> bool:
        """Whether it matters when a function runs on a rank: something else stores what it reads.

        Or reads what it stores; or the process may end.
        """
        if function.writes or any(_ends(step.operation) for step in self._steps):
            return True
        if self._all_written is None:
            self._all_written = NOTHING.union(*(find_accesses(step)[1] for step in self._steps))
        return not function.reads.isdisjoint(self.find_stored(rank) | self._all_written)


def find_accesses(step: Step) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names that a step may touch, and those of them that it may store into."""
    operation = step.operation
    forms: list[Any] = [step.ranks, step.over, step.handle_index, *step.arguments.values()]
    if step.expect is not None:
        forms += [form for each in step.expect.values for form in (each.key, each.wanted)]
    names = NOTHING.union(*map(_names, forms))
    if operation is None:
        return names, NOTHING
    params = [each.name for each in operation.params if each.writes or each.fields]
    stored = [step.arguments.get(name) for name in (PARTS, *params)]
    writes = NOTHING.union(operation.introduces(step.arguments), *map(_names, stored))
    return names | writes, writes


def _ends(operation: Operation | None) -> bool:
    """Whether an operation may end the process, so that functions run on it no more."""
    return isinstance(operation, Local) and type(operation).ends is not Local.ends


def _names(form: Any) -> frozenset[str]:
    return NOTHING.union(*(each.names | each.before for each in expressions_in(form)))
