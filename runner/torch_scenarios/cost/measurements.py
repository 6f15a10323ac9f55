"""Measured times of collectives, in tables (:mod:`torch_scenarios.cost.logs` reads them).

Between two rows a time is a straight line in bytes: what does not depend on the size, and bytes at
one bandwidth. Beyond the first and the last row it goes on so for a factor of two, and no further.
Where NCCL takes another algorithm between two rows, times jump: if its tuner says which it takes,
the line through the two rows above goes down to the size from which that algorithm is taken.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from statistics import median
from typing import TypeAlias

from msgspec import Struct

from torch_scenarios.errors import Problem, ScenarioError, nearest
from torch_scenarios.model.scenario import Scenario
from torch_scenarios.model.trace import Trace
from torch_scenarios.operations import BY_NAME, kind_of
from torch_scenarios.operations.base import Collective

#: how far beyond its first and last row a table is believed
REACH = 2.0
#: how far apart two rows may be for what lies between them to be believed
GAP = 16.0


#: a size in bytes -> what NCCL takes for it
Taken: TypeAlias = Callable[[float], tuple[str, str]]


class Table(Struct, frozen=True):
    """Rows of sizes in bytes and times in microseconds, ascending; `source` says whose."""

    sizes: tuple[float, ...]
    times: tuple[float, ...]
    source: str

    @classmethod
    def of(cls, rows: Iterable[tuple[float, float]], source: str) -> Table:
        """Return the table of rows in any order; of several of one size the median counts."""
        times: dict[float, list[float]] = {}
        for size, time in rows:
            times.setdefault(size, []).append(time)
        sizes = tuple(sorted(times))
        return cls(sizes, tuple(median(times[size]) for size in sizes), source)

    def at(self, size: float, taken: Taken | None = None) -> float:
        """Return the time of a size, with the algorithm that is `taken` for each, if that is known.

        Raises ScenarioError where the table is silent about it.
        """
        sizes = self.sizes
        if not sizes[0] / REACH <= size <= sizes[-1] * REACH:
            message = (
                f"{size:.12g} bytes are beyond the table ({sizes[0]:.12g} to {sizes[-1]:.12g} "
                "bytes) by more than twice"
            )
            raise _refuse_size(message, "measure that size, or forecast another")
        if len(sizes) == 1:
            return self.times[0]
        upper = next((at for at, each in enumerate(sizes) if each >= size), len(sizes) - 1)
        upper = max(1, upper)
        low, high = sizes[upper - 1], sizes[upper]
        first, last = self.times[upper - 1], self.times[upper]
        if high > GAP * low and low * REACH < size < high / REACH:
            message = (
                f"the table has no row between {low:.12g} and {high:.12g} bytes, and {size:.12g} "
                "is far from both"
            )
            raise _refuse_size(message, "measure more sizes")
        if size <= low * REACH and high > GAP * low:
            return first
        if high > GAP * low:
            return last * size / high
        time = first + (size - low) / (high - low) * (last - first)
        if size < low:  # no more than the first row takes, no less than its bandwidth allows
            return min(first, max(time, first * size / low))
        if size > high:
            return max(last, time)
        if taken is None or upper + 1 == len(sizes) or size == low:
            return time
        after = sizes[upper + 1]
        if taken(low) != taken(size) == taken(high) == taken(after):
            time = last + (size - high) / (after - high) * (self.times[upper + 1] - last)
            return min(last, max(time, last * size / high))
        return time


def name_table(name: str) -> str:
    """Return the collective under which an operation's table stands.

    Raises ScenarioError where no collective has that name.
    """
    if not isinstance(BY_NAME.get(name), Collective):
        known = sorted(
            {
                each.kind
                for each in BY_NAME.values()
                if isinstance(each, Collective) and not each.takes_objects
            }
        )
        close = nearest(name, known)
        hint = f"did you mean {close}?" if close else f"known are {', '.join(known)}"
        message = f"no collective is called {name}"
        raise ScenarioError([Problem(code="bad_topology", message=message, hint=hint)])
    return kind_of(name)


#: collective -> ranks -> table
Tables: TypeAlias = Mapping[str, Mapping[int, Table]]


def time_in(
    tables: Mapping[int, Table],
    ranks: int,
    size: float,
    taken: Callable[[int], Taken | None] = lambda _: None,
) -> float:
    """Return the time of a collective on so many ranks, in microseconds.

    Between tables of two numbers of ranks, and up to twice the larger, it is a straight line in
    ranks: a step more for each rank more. `taken` says what NCCL takes on so many ranks. Raises
    ScenarioError where no table tells.
    """
    if ranks in tables:
        return tables[ranks].at(size, taken(ranks))
    known = sorted(tables)
    shown = ", ".join(map(str, known))
    if len(known) < 2:
        message = f"the table is of {shown} ranks, and {ranks} take part"
        raise _refuse_size(message, "measure that number of ranks")
    if not known[0] / REACH <= ranks <= known[-1] * REACH:
        message = f"{ranks} ranks are beyond the tables ({shown} ranks) by more than twice"
        raise _refuse_size(message, "measure that number of ranks")
    upper = next((at for at, each in enumerate(known) if each >= ranks), len(known) - 1)
    upper = max(1, upper)
    low, high = known[upper - 1], known[upper]
    first, last = (tables[each].at(size, taken(each)) for each in (low, high))
    return first + (ranks - low) / (high - low) * (last - first)


def _refuse_size(message: str, hint: str) -> ScenarioError:
    return ScenarioError([Problem(code="beyond_the_table", message=message, hint=hint)])


# The size of a case, and a topology of tables.


def base_size(
    scenario: Scenario, predicted: Trace | None, known: Mapping[str, float] | None = None
) -> float:
    """Return the bytes that the size of a case means.

    That is the parameter `bytes`, else the largest tensor of those that the case states at its end,
    else the largest of all. The bytes of each name are `known` where values were not computed.
    """
    stated = scenario.constants.get("bytes")
    if isinstance(stated, int | float) and not isinstance(stated, bool) and stated > 0:
        return float(stated)
    if predicted is None:
        return 0.0
    sizes = known or {
        name: float(value.nbytes)
        for rank in predicted.ranks[:1]
        for name, value in rank.initial.items()
        if hasattr(value, "nbytes")
    }
    ended = {name for each in scenario.expect.at_end.values for name in each.key.names}
    largest = max(sizes.values(), default=0.0)
    return max((sizes[name] for name in ended & sizes.keys()), default=largest)


def write_topology(name: str, source: str, tables: Mapping[str, Mapping[int, Table]]) -> str:
    """Return the text of a topology with these tables: collective -> ranks -> table."""
    lines = [
        "version: 1",
        f"topology: {json.dumps(name)}",
        "describes: collectives as they were measured",
        f"source: {json.dumps(source)}",
        "collectives:",
        "  model: table",
    ]
    for collective, by_ranks in sorted(tables.items()):
        lines.append(f"  {collective}:")
        for ranks, table in sorted(by_ranks.items()):
            lines.append(f"    {ranks}:")
            rows = zip(table.sizes, table.times, strict=True)
            lines += [f"      {size:.12g}: {time:.12g}us" for size, time in rows]
    return "\n".join(lines) + "\n"
