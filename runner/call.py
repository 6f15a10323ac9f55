"""A call: one step as one rank takes it, its arguments evaluated."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runner.operations.base import Operation
    from runner.operations.entries import Entry
    from runner.scenario import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One step taken by one rank, its arguments evaluated.

    `iteration` holds the values of the enclosing loop variables, outermost first; with
    `step.index` it names the instance of the step, the same on every rank. `roots` maps an
    argument to the names of the held tensors whose storage it may share. `operation` is None for
    a step that is an `expect` alone.
    """

    step: Step
    iteration: tuple[int, ...]
    operation: Operation | None
    entry: Entry
    roots: Mapping[str, frozenset[str]] = field(default_factory=dict)
    #: the name under which its work is waited for
    handle: str | None = None

    @property
    def label(self) -> str:
        """The name that reports and `blocked:` use: the step's own, else the operation's."""
        if self.step.name is not None:
            return self.step.name
        return self.operation.label(self.entry) if self.operation else "expect"

    @property
    def written(self) -> tuple[str, ...]:
        """The names of the held tensors that this call may store into, sorted."""
        if self.operation is None:
            return ()
        if not any(self.roots.values()) and not self.operation.introduces(self.step):
            return ()
        stored = self.operation.written(self.entry, self.roots)
        return tuple(sorted(stored.union(self.operation.introduces(self.step))))

    @property
    def read(self) -> tuple[str, ...]:
        """The names of the held tensors that this call looks at, sorted."""
        if self.operation is None:
            return ()
        return tuple(sorted(self.operation.read(self.entry, self.roots)))

    @property
    def asynchronous(self) -> bool:
        """Whether the call returns before its work is complete."""
        if self.operation is None:
            return False
        return self.operation.asynchronous or bool(self.entry.arguments.get("async_op"))
