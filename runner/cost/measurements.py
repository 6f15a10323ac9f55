"""Measured times of collectives: the logs of nccl-tests, read, and tables of them, interpolated.

Between two rows a time is a straight line in bytes: what does not depend on the size, and bytes at
one bandwidth. Beyond the first and the last row it goes on so for a factor of two, and no further.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from runner.errors import Problem, ScenarioError
from runner.files import read_file
from runner.model.scenario import Scenario
from runner.model.trace import Trace

#: how far beyond its first and last row a table is believed
REACH = 2.0
#: how far apart two rows may be for what lies between them to be believed
GAP = 16.0


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of sizes in bytes and times in microseconds, ascending; `source` says whose."""

    sizes: tuple[float, ...]
    times: tuple[float, ...]
    source: str

    @classmethod
    def of(cls, rows: Iterable[tuple[float, float]], source: str) -> Table:
        """Return the table of rows in any order; the last one of a size counts."""
        found = sorted(dict(rows).items())
        return cls(tuple(size for size, _ in found), tuple(time for _, time in found), source)

    def at(self, size: float) -> float:
        """Return the time of a size. Raises ScenarioError where the table is silent about it."""
        sizes = self.sizes
        if not sizes[0] / REACH <= size <= sizes[-1] * REACH:
            message = (
                f"{size:.12g} bytes are beyond the table ({sizes[0]:.12g} to {sizes[-1]:.12g} "
                "bytes) by more than twice"
            )
            raise _beyond(message, "measure that size, or forecast another")
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
            raise _beyond(message, "measure more sizes")
        if size <= low * REACH and high > GAP * low:
            return first
        if high > GAP * low:
            return last * size / high
        time = first + (size - low) / (high - low) * (last - first)
        if size < low:  # no more than the first row takes, no less than its bandwidth allows
            return min(first, max(time, first * size / low))
        return max(last, time) if size > high else time


#: collective -> ranks -> table
Tables: TypeAlias = Mapping[str, Mapping[int, Table]]


def time_in(tables: Mapping[int, Table], ranks: int, size: float) -> float:
    """Return the time of a collective on so many ranks, in microseconds.

    Between tables of two numbers of ranks, and up to twice the larger, it is a straight line in
    ranks: a step more for each rank more. Raises ScenarioError where no table tells.
    """
    if ranks in tables:
        return tables[ranks].at(size)
    known = sorted(tables)
    shown = ", ".join(map(str, known))
    if len(known) < 2:
        message = f"the table is of {shown} ranks, and {ranks} take part"
        raise _beyond(message, "measure that number of ranks")
    if not known[0] / REACH <= ranks <= known[-1] * REACH:
        message = f"{ranks} ranks are beyond the tables ({shown} ranks) by more than twice"
        raise _beyond(message, "measure that number of ranks")
    upper = next((at for at, each in enumerate(known) if each >= ranks), len(known) - 1)
    upper = max(1, upper)
    low, high = known[upper - 1], known[upper]
    first, last = tables[low].at(size), tables[high].at(size)
    return first + (ranks - low) / (high - low) * (last - first)


def _beyond(message: str, hint: str) -> ScenarioError:
    return ScenarioError([Problem(code="beyond_the_table", message=message, hint=hint)])


# -------------------------------------------------------------------------------------------------
# The output of nccl-tests, as text or JSON, and that of `scenario bench`.

#: program of nccl-tests -> operation
PROGRAMS = {
    "all_reduce_perf": "all_reduce",
    "all_gather_perf": "all_gather",
    "reduce_scatter_perf": "reduce_scatter",
    "broadcast_perf": "broadcast",
    "reduce_perf": "reduce",
    "alltoall_perf": "all_to_all",
    "gather_perf": "gather",
    "scatter_perf": "scatter",
}
#: operations that torch does in place: of a log they take the column of that name
IN_PLACE = frozenset({"all_reduce", "broadcast", "reduce"})
#: what launchers put before a line: `[1,0]<stdout>:`, `[0]`, `0:`
_PREFIX = re.compile(r"^\s*(?:\[[\d,]+\](?:<\w+>)?:?|\d+:)(?=[\s#])")
_RANK = re.compile(r"\s*#\s+Rank\s+(\d+)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """What one log holds: its collective and ranks, as far as it says them, and its rows."""

    table: Table
    ranks: int | None = None
    collective: str | None = None


def read_log(path: Path, content: bytes, collective: str | None = None) -> Log:
    """Return the rows of a log: sizes in bytes, times in microseconds.

    Times are those in place for what torch does in place, `collective` or else what the log names;
    those out of place for all others. Raises ScenarioError where it has no row.
    """
    text = content.decode("utf-8", errors="replace")
    if text.lstrip().startswith("{"):
        return _from_bench(path, text)
    named = re.search(r"\b(\w+_perf)\b", text)
    program = None if named is None else PROGRAMS.get(named[1])
    in_place = (collective or program) in IN_PLACE
    lines = [_PREFIX.sub("", line) for line in text.splitlines()]
    found = [row for line in lines if (row := _row(line, in_place=in_place)) is not None]
    if not found:
        message = f"{path} has no row of nccl-tests: size, count, type, redop, root, time, ..."
        raise ScenarioError(
            [Problem(code="bad_topology", message=message, hint="name the output of *_perf")]
        )
    ranks = len({rank[1] for line in lines if (rank := _RANK.match(line))}) or None
    return Log(table=Table.of(found, str(path)), ranks=ranks, collective=program)


#: columns before the halves of a row (size, count, type; redop and root in later versions), and
#: those of each half: time, algbw, busbw, how many values are wrong
_LEADING, _HALF = (3, 4, 5), 4


def _row(line: str, *, in_place: bool) -> tuple[float, float] | None:
    """Return the size and time of a row, from the half that is asked for if it was measured.

    None for any other line.
    """
    words = line.split()
    halves = next((n for n in (1, 2) if len(words) - n * _HALF in _LEADING), 0)
    if not halves or not all(word.isdigit() for word in words[:2]):
        return None
    times = [_number(words[at - halves * _HALF]) for at in range(0, halves * _HALF, _HALF)]
    time = times[-1 if in_place else 0] or max(times)
    return (float(words[0]), time) if time and int(words[0]) else None


def _number(text: str) -> float:
    """Return a number from zero up; 0 for other words."""
    return float(text) if re.fullmatch(r"\d+(\.\d*)?", text) else 0.0


def _from_bench(path: Path, text: str) -> Log:
    """Return the rows that `scenario bench --json` wrote: minima, which noise moves least."""
    try:
        rows: list[dict[str, Any]] = json.loads(text)["rows"]
        first = rows[0]
        return Log(
            table=Table.of([(row["bytes"], row["min_us"]) for row in rows], str(path)),
            ranks=int(first["ranks"]),
            collective=first.get("collective"),
        )
    except (ValueError, KeyError, IndexError, TypeError):
        message = f"{path} is neither an output of nccl-tests nor of `scenario bench --json`"
        raise ScenarioError([Problem(code="bad_topology", message=message)]) from None


#: values of a row that a comparison needs
_NEEDED = ("case", "ranks", "bytes", "min_us", "median_us")


def measured(path: Path) -> list[dict[str, Any]]:
    """Return the rows of `scenario bench --json`. Raises ScenarioError where the file has none."""
    content = read_file(path, root=path.parent.resolve())
    try:
        rows: list[dict[str, Any]] = json.loads(content)["rows"]
        fits = bool(rows) and all(name in row for row in rows for name in _NEEDED)
    except (ValueError, KeyError, TypeError):
        fits = False
    if not fits:
        message = f"{path} is not output of `scenario bench --json`"
        raise ScenarioError([Problem(code="bad_topology", message=message)])
    return rows


def base_size(scenario: Scenario, predicted: Trace | None) -> float:
    """Return the bytes that the size of a case means.

    That is the parameter `bytes`, else the largest tensor of those that the case states at its end,
    else the largest of all.
    """
    stated = scenario.constants.get("bytes")
    if isinstance(stated, int | float) and not isinstance(stated, bool) and stated > 0:
        return float(stated)
    if predicted is None:
        return 0.0
    sizes = {
        name: float(value.nbytes)
        for rank in predicted.ranks[:1]
        for name, value in rank.initial.items()
        if hasattr(value, "nbytes")
    }
    ended = {name for each in scenario.expect.at_end.values for name in each.key.names}
    largest = max(sizes.values(), default=0.0)
    return max((sizes[name] for name in ended & sizes.keys()), default=largest)


def fitted(name: str, source: str, logs: Iterable[Log]) -> str:
    """Return the text of a topology whose tables are these logs, written out."""
    lines = [
        "version: 1",
        f"topology: {json.dumps(name)}",
        "describes: collectives as they were measured",
        f"source: {json.dumps(source)}",
        "collectives:",
        "  model: table",
    ]
    by_collective: dict[str, dict[int, Table]] = {}
    for each in logs:
        assert each.collective is not None
        assert each.ranks is not None
        by_collective.setdefault(each.collective, {})[each.ranks] = each.table
    for collective, tables in sorted(by_collective.items()):
        lines.append(f"  {collective}:")
        for ranks, table in sorted(tables.items()):
            lines.append(f"    {ranks}:")
            rows = zip(table.sizes, table.times, strict=True)
            lines += [f"      {size:.12g}: {time:.12g}us" for size, time in rows]
    return "\n".join(lines) + "\n"
