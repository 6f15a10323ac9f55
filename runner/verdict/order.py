"""The program order: which of two step instances comes first, on whichever ranks they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.scenario import steps_of
from runner.trace import Recorded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from runner.scenario import Step
    from runner.trace import Event, Trace

#: where a step instance stands in the program; compares with any other
Moment = tuple[int, ...]


class ProgramOrder:
    """The order of step instances: by position in the file, and in a loop by its iterations.

    The values of a loop are put in the order in which ranks met them: ascending or descending
    where every rank counts so, else in the order of the first rank that met them.
    """

    def __init__(self, steps: tuple[Step, ...], traces: tuple[Trace, ...]) -> None:
        """Learn the loops of the scenario and the values that the traces show for them."""
        self.loops: dict[int, tuple[Step, ...]] = {}
        self.steps: dict[int, Step] = {step.index: step for step in steps_of(steps)}
        self._enclose(steps, ())
        self._traces = traces
        self._learnt: dict[tuple[int, tuple[int, ...]], dict[int, int]] | None = None

    def _enclose(self, steps: tuple[Step, ...], loops: tuple[Step, ...]) -> None:
        for step in steps:
            self.loops[step.index] = loops
            self._enclose(step.body, (*loops, step))

    @property
    def _positions(self) -> dict[tuple[int, tuple[int, ...]], dict[int, int]]:
        """Where the values of each loop stand among each other; learnt when first asked for."""
        if self._learnt is None:
            self._learnt = self._learn() if any(self.loops.values()) else {}
        return self._learnt

    def _learn(self) -> dict[tuple[int, tuple[int, ...]], dict[int, int]]:
        met: dict[tuple[int, tuple[int, ...]], list[dict[int, None]]] = {}
        for trace in self._traces:
            for places in _walks(trace):
                own: dict[tuple[int, tuple[int, ...]], dict[int, None]] = {}
                for index, iteration in places:
                    for depth, loop in enumerate(self.loops.get(index, ())):
                        place = (loop.index, iteration[:depth])
                        own.setdefault(place, {})[iteration[depth]] = None
                for place, values in own.items():
                    met.setdefault(place, []).append(values)
        return {place: _merged(orders) for place, orders in met.items()}

    def moment(self, index: int, iteration: tuple[int, ...]) -> Moment:
        """Return the sort key of a step instance."""
        key: list[int] = []
        for depth, loop in enumerate(self.loops.get(index, ())):
            positions = self._positions.get((loop.index, iteration[:depth]), {})
            key += [loop.index, positions.get(iteration[depth], len(positions))]
        return (*key, index)

    def variables(self, event: Event) -> dict[str, int]:
        """Return the loop variables that are known at an event, with their values."""
        loops = self.loops.get(event.index, ())
        return {
            str(loop.variable): value for loop, value in zip(loops, event.iteration, strict=False)
        }


def _walks(trace: Trace) -> Iterator[Iterable[tuple[int, tuple[int, ...]]]]:
    """Yield the step instances that ranks took, in their order; alike ranks are one."""
    events = trace.ranks[0].events if trace.ranks else ()
    if isinstance(events, Recorded):
        yield events.program()
        return
    for rank in trace.ranks:
        yield ((event.index, event.iteration) for event in rank.events)


def _merged(orders: list[dict[int, None]]) -> dict[int, int]:
    everything = dict.fromkeys(value for values in orders for value in values)
    listed = [list(values) for values in orders]
    if all(values == sorted(values) for values in listed):
        ordered = sorted(everything)
    elif all(values == sorted(values, reverse=True) for values in listed):
        ordered = sorted(everything, reverse=True)
    else:
        ordered = list(everything)
    return {value: position for position, value in enumerate(ordered)}
