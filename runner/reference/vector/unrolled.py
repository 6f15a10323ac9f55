"""The program as one row of step instances: loops unrolled, the same for every rank.

A rank takes the instances in order and passes those that do not select it. Where it stands is one
number, so that the ranks that are furthest behind are known at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runner.reference.vector.values import Active, leave, varies

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from runner.reference.ledger import Ledger
    from runner.reference.vector.evaluating import Evaluation
    from runner.scenario import Step


#: bytes of an instance, and of what its loops' variables are (measured)
INSTANCE_BYTES = 400


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """One step in one round of its loops; `mask` `[W]` are the ranks that the loops select."""

    number: int
    step: Step
    iteration: tuple[int, ...]
    variables: Mapping[str, int]
    mask: NDArray[np.bool_] | None


class Unrolled:
    """The instances of a program, made as far as ranks have come."""

    def __init__(
        self, steps: tuple[Step, ...], evaluation: Evaluation, world: Active, ledger: Ledger
    ) -> None:
        """Begin before the first step."""
        self._ledger = ledger
        self._evaluation = evaluation
        self._world = world
        self._made: dict[int, Instance] = {}
        self._next = 0
        self._coming = self._walk(steps, (), {}, None)

    def at(self, number: int) -> Instance | None:
        """Return an instance; None behind the last one."""
        while number >= self._next:
            following = next(self._coming, None)
            if following is None:
                return None
            step, iteration, variables, mask = following
            self._ledger.keep_bytes(INSTANCE_BYTES, step.mark)
            self._made[self._next] = Instance(self._next, step, iteration, variables, mask)
            self._next += 1
        return self._made[number]

    def _walk(
        self,
        steps: tuple[Step, ...],
        iteration: tuple[int, ...],
        variables: Mapping[str, int],
        mask: NDArray[np.bool_] | None,
    ) -> Iterator[tuple[Any, ...]]:
        for step in steps:
            if step.variable is None:
                yield step, iteration, variables, mask
                continue
            inner = mask
            if step.ranks is not None:
                chosen = self._evaluation.before_all(step.ranks, variables, self._world)
                inner = chosen if mask is None else chosen & mask
            for value in self._rounds(step, variables):
                self._ledger.turn(step)
                known = {**variables, step.variable: value}
                yield from self._walk(step.body, (*iteration, value), known, inner)

    def _rounds(self, step: Step, variables: Mapping[str, int]) -> Iterator[int]:
        values = self._evaluation.plain(step.over, variables, self._world)
        if varies(values) or not isinstance(values, list | range):
            leave("a loop that differs from rank to rank")
        for value in values:
            if value.__class__ is not int:
                leave("a loop over what are no integers")
            yield value
