"""What nccl-tests wrote, as text or JSON, and `scenario bench --json` -> measured times.

One file may hold several tables: of several collectives, of repeated runs, with a launcher's words
before each line. Times are microseconds, sizes bytes as nccl-tests counts them. The columns are
those of each release, as its source prints them (NVIDIA/nccl-tests, src/common.cu, src/util.cu).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from torch_scenarios.cost.measurements import Table, name_table
from torch_scenarios.errors import Problem, ScenarioError
from torch_scenarios.files import read_file
from torch_scenarios.operations import BY_NAME, OPERATIONS, kind_of
from torch_scenarios.source.documents import decode_json

#: program of nccl-tests -> operation
PROGRAMS = {each.bench: each.name for each in OPERATIONS if each.bench is not None}


class LogRow(Struct, frozen=True):
    """The times of one size, out of place and in place; None for a half that was not measured."""

    size: float
    out_of_place: float | None
    in_place: float | None


class Log(Struct, frozen=True, kw_only=True):
    """The rows of one collective on so many ranks, in any order, as far as the file says them.

    `collective` is the operation, or the program of nccl-tests where no operation is the same.
    """

    rows: tuple[LogRow, ...]
    source: str
    ranks: int | None = None
    collective: str | None = None

    def table(self, collective: str | None = None) -> Table:
        """Return its table: times in place for what torch does in place, out of place for others.

        A half that was not measured is replaced by the other.
        """
        operation = BY_NAME.get(collective or self.collective or "")
        in_place = operation is not None and operation.in_place
        times = []
        for row in self.rows:
            one, other = row.out_of_place, row.in_place
            time = (other or one) if in_place else (one or other)
            assert time is not None
            times.append((row.size, time))
        return Table.of(times, self.source)


def read_logs(path: Path, content: bytes) -> tuple[Log, ...]:
    """Return what a file measured, one log for each collective and number of ranks.

    Raises ScenarioError where it has no row.
    """
    text = content.decode("utf-8", errors="replace")
    if text.lstrip("\ufeff \t\r\n").startswith("{"):
        return merge(_read_json(path, text))
    reader = _Reader(str(path))
    for line in text.splitlines():
        reader.line(_PREFIX.sub(" ", line))
    return merge(reader.logs())


def merge(logs: Iterable[Log]) -> tuple[Log, ...]:
    """Return logs of which no two are of the same collective on as many ranks."""
    found: dict[tuple[str | None, int | None], list[Log]] = {}
    for each in logs:
        found.setdefault((each.collective, each.ranks), []).append(each)
    return tuple(
        replace(
            same[0],
            rows=tuple(row for each in same for row in each.rows),
            source=", ".join(dict.fromkeys(each.source for each in same)),
        )
        for same in found.values()
    )


def choose_logs(
    logs: Sequence[Log], path: Path, collective: str | None, ranks: int | None
) -> tuple[Log, ...]:
    """Return the logs of a collective and of so many ranks; None: of any.

    What a log does not say is as it is asked for. Raises ScenarioError where none is of them.
    """
    for name, asked in (("collective", collective), ("ranks", ranks)):
        stated = {getattr(each, name) for each in logs}
        if asked is None or stated & {asked, None}:
            logs = [each for each in logs if asked is None or getattr(each, name) in {asked, None}]
            continue
        has = ", ".join(sorted(map(str, stated)))
        of = f"{has}, and not of {asked}" if name == "collective" else f"{has} ranks, not {asked}"
        hint = "take the log of that run" if name == "ranks" else "take the log of its program"
        message = f"{path} is of {of}"
        raise _refuse(message, hint)
    return merge(
        replace(each, collective=each.collective or collective, ranks=each.ranks or ranks)
        for each in logs
    )


def tables_of(logs: Iterable[Log]) -> dict[str, dict[int, Table]]:
    """Return the tables of logs: collective -> ranks -> table.

    Programs that measure no collective are left out beside those that do. Raises ScenarioError
    where none does, or a log does not say of what it is.
    """
    found: dict[str, dict[int, Table]] = {}
    whole = merge(logs)
    known = [each for each in whole if each.collective in PROGRAMS.values()]
    for each in known or whole:
        if each.collective is None or each.ranks is None:
            message = f"{each.source} does not say of which collective, or of how many ranks, it is"
            raise _refuse(message, "keep the lines before its rows, which do")
        found.setdefault(name_table(each.collective), {})[each.ranks] = each.table()
    return found


def _refuse(message: str, hint: str | None = None) -> ScenarioError:
    return ScenarioError([Problem(code="bad_topology", message=message, hint=hint)])


#: what launchers put before a line or into it: `[1,0]<stdout>:`, `[0]`, `0:`; colours
_PREFIX = re.compile(r"\x1b\[[\d;]*m|\[\d+(?:,\d+)?\](?:<\w+>:?)?|^\s*\d+:(?=\s|#)")
_RANK = re.compile(r"(?:^|\s)#?\s*Rank\s+(\d+)\s+(?:Group\s+(\d+)\s+)?Pid\b")
_PROGRAM = re.compile(r"\b(\w+?_perf)(?:_mpi)?\b")
#: size, count and type begin a row, whatever stands before them
_ROW = re.compile(r"(?:^|\s)(\d+)\s+(\d+)\s+([A-Za-z]\w*)\s+(\S.*)$")
_WORD = re.compile(r"(?!nan|inf)[A-Za-z]\w*", re.IGNORECASE)
_NAME = re.compile(r"#?[\w%]+")
_STAMP = re.compile(r"\d+[-:]\d+[-:]\d+\S*")
_TIMES, _WRONG = ("time", "cputime"), "#wrong"


class _Columns(Struct, frozen=True):
    """The columns behind a row's type and reduce op, by their names; times are of `unit` us."""

    names: tuple[str, ...]
    unit: float = 1.0

    @classmethod
    def of_header(cls, line: str) -> _Columns | None:
        """Return the columns that a header names; None for any other line."""
        found = _NAME.findall(line.lower())
        words = [word if word == _WRONG else word.lstrip("#") for word in found]
        if "type" not in words or "algbw" not in words or not {"size", "bytes"} & {*words}:
            return None
        names = words[words.index("type") + 1 :]
        # until 2019 there were `bytes`, `N` and milliseconds
        unit = 1000.0 if "bytes" in words else 1.0
        return cls(tuple(name for name in names if name not in {"redop", "op"}), unit)

    @classmethod
    def of_row(cls, words: Sequence[str]) -> _Columns | None:
        """Return the columns of a row without a header; None where it is no row."""
        half = ("time", "algbw", "busbw", _WRONG)
        known = {len(root) + n * 4: (*root, *half * n) for root in ((), ("root",)) for n in (1, 2)}
        names = known.get(len(words))
        return None if names is None else cls(names)

    def halves(self, words: Sequence[str]) -> list[float | None]:
        """Return the time of each half: None where it was not measured, or values were wrong."""
        found: list[float | None] = []
        for at, name in enumerate(self.names):
            if name in _TIMES:
                found.append(_number(words[at]) if at < len(words) else None)
            elif name == _WRONG and found and at < len(words) and (_number(words[at]) or 0) >= 1:
                found[-1] = None
        return [time * self.unit if time else None for time in found]


def _number(text: str) -> float | None:
    """Return a number from zero up; None for other words."""
    try:
        found = float(text)
    except ValueError:
        return None
    return found if 0 <= found < float("inf") else None


class _Reader:
    """Reads a log, line by line."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.columns: _Columns | None = None
        self.program: str | None = None
        self.programs: set[str] = set()
        #: ranks and their groups, of the table to come or at hand; whether that has begun
        self.devices: set[tuple[int, int]] = set()
        self.begun = False
        self.found: list[Log] = []
        self.by_host = False

    def line(self, line: str) -> None:
        row = None if line.lstrip().startswith("#") else _ROW.search(line)
        if row is not None and self.row(row):
            return
        columns = _Columns.of_header(line)
        if columns is not None:
            self.columns, self.begun = columns, True
            return
        rank = _RANK.search(line)
        if "nThread" in line or (rank is not None and self.begun):
            self.devices, self.begun = set(), False
        if rank is not None:
            self.devices.add((int(rank[1]), int(rank[2] or 0)))
            return
        named = set(_PROGRAM.findall(line))
        self.programs |= named
        if len(named) == 1 and "concluded" not in line:
            (self.program,) = named

    def row(self, found: re.Match[str]) -> bool:
        """Note a row; returns whether it was one."""
        words = [word for word in found[4].split() if not _STAMP.fullmatch(word)]
        if words and _WORD.fullmatch(words[0]):
            words = words[1:]
        columns = self.columns or _Columns.of_row(words)
        if columns is None or len(words) < 3 or _WORD.fullmatch(words[1]):
            return False
        self.begun = True
        self.by_host |= "cputime" in columns.names
        times = columns.halves(words)
        size = float(found[1])
        if size > 0 and any(times):
            one, other = (*times, None, None)[:2]
            self.note(LogRow(size, one, other))
        return True

    def note(self, row: LogRow) -> None:
        collective = None if self.program is None else PROGRAMS.get(self.program, self.program)
        log = Log(rows=(row,), source=self.source, ranks=self.ranks, collective=collective)
        self.found.append(log)

    @property
    def ranks(self) -> int | None:
        """How many ranks take part: those of one group, where there are several.

        Some may be left out of the list. A list of rank 0 alone is what each of several processes
        prints that do not know each other: None.
        """
        groups = {group for _, group in self.devices}
        if len(groups) > 1:
            return max(sum(group == each for _, group in self.devices) for each in groups)
        last = max((rank for rank, _ in self.devices), default=0)
        return last + 1 if last else None

    def logs(self) -> list[Log]:
        """Return a log for each row. Raises ScenarioError where there is none."""
        if self.by_host:
            message = f"{self.source} has times of the host's calls (`-C`), not of the collective"
            raise _refuse(message, "measure without -C")
        if not self.found:
            message = (
                f"{self.source} has no row of nccl-tests: size, count, type, redop, root, time, ..."
            )
            raise _refuse(message, "name the output of *_perf")
        (only,) = self.programs if len(self.programs) == 1 else (None,)
        collective = None if only is None else PROGRAMS.get(only, only)
        return [replace(each, collective=each.collective or collective) for each in self.found]


# JSON: of nccl-tests (`-J`), of `scenario bench --json`.


def _read_json(path: Path, text: str) -> list[Log]:
    try:
        whole: dict[str, Any] = decode_json(text.lstrip("\ufeff"))
        found = _read_nccl_tests(path, whole) if "results" in whole else _read_bench(path, whole)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError):
        found = []
    if not found:
        message = f"{path} is neither an output of nccl-tests nor of `scenario bench --json`"
        raise _refuse(message)
    return found


def _read_nccl_tests(path: Path, whole: dict[str, Any]) -> list[Log]:
    reader = _Reader(str(path))
    named = _PROGRAM.search(str(whole["args"][0]))
    reader.program = None if named is None else named[1]
    for device in whole.get("config", {}).get("devices") or ():
        reader.devices.add((int(device["rank"]), int(device["group"])))
    for row in whole["results"]:
        halves = [row.get("out_of_place") or {}, row.get("in_place") or {}]
        reader.by_host |= any("cpu_time" in half for half in halves)
        times = [
            None if (half.get("nwrong") or 0) > 0 else _number(str(half.get("time")))
            for half in halves
        ]
        if float(row["size"]) > 0 and any(times):
            reader.note(LogRow(float(row["size"]), times[0] or None, times[1] or None))
    return reader.logs()


def _read_bench(path: Path, whole: dict[str, Any]) -> list[Log]:
    """Return the rows that `scenario bench --json` wrote: minima, which noise moves least.

    Programs that are no collective are left out beside those that are.
    """
    rows = [row for row in whole["rows"] if row.get("collective")] or whole["rows"]
    if not all(isinstance(row.get("collective") or "", str) for row in rows):
        message = "the name of a collective is not a text"
        raise TypeError(message)
    return [
        Log(
            rows=(LogRow(float(row["bytes"]), float(row["min_us"]), float(row["min_us"])),),
            source=str(path),
            ranks=int(row["ranks"]),
            collective=kind_of(named) if (named := row.get("collective")) else None,
        )
        for row in rows
    ]


def is_log(content: bytes) -> bool:
    """Return whether a file is what nccl-tests wrote, and not `scenario bench --json`."""
    try:
        return "results" in decode_json(content)
    except (ValueError, TypeError):
        return True


#: numbers of a row that a comparison needs
_NEEDED = ("ranks", "bytes", "min_us", "median_us")


def _fits(row: Any) -> bool:
    """Return whether a row is one that `scenario bench --json` writes."""
    numbers = [row[name] for name in _NEEDED] + list(row.get("block_medians_us") or [])
    return isinstance(row["case"], str) and all(
        isinstance(each, int | float) and not isinstance(each, bool) and 0 <= each < float("inf")
        for each in numbers
    )


def read_bench(path: Path) -> dict[str, Any]:
    """Return what `scenario bench --json` wrote: its `rows`, and the `environment` of then.

    Raises ScenarioError where the file has no rows, or others.
    """
    content = read_file(path, root=path.parent.resolve())
    try:
        whole: dict[str, Any] = decode_json(content)
        fits = bool(whole["rows"]) and all(_fits(row) for row in whole["rows"])
        fits = fits and isinstance(whole.get("environment", {}), dict)
    except (ValueError, KeyError, TypeError, AttributeError):
        fits = False
    if not fits:
        message = f"{path} is not output of `scenario bench --json`"
        raise ScenarioError([Problem(code="bad_topology", message=message)])
    return whole


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of `scenario bench --json`. Raises ScenarioError where the file has none."""
    rows: list[dict[str, Any]] = read_bench(path)["rows"]
    return rows
