"""The conformance file: what each backend did in each version of torch, side by side.

    case or cell             gloo, torch 2.6.0   gloo, torch 2.13.0   mpi4py, torch 2.13.0
    all_reduce avg int32     refuses             refuses              same
    async/late.yaml::late    UNSUPPORTED         PASSED               PASSED

A column is one :class:`Conformance`. schemas/conformance.schema.json describes the file; what is
the same in every column is written once, so that a difference of the file is one of the backends.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from torch_scenarios.conformance.table import Cell, CellOutcome, write_scenario
from torch_scenarios.display import short
from torch_scenarios.errors import Problem, ScenarioError
from torch_scenarios.model.versions import release_of
from torch_scenarios.source.documents import DocumentError, convert, decode_json, read_document
from torch_scenarios.vocabulary import DTYPES

FORMAT, VERSION = "scenario-conformance", 1
#: what is written between a file and the name of one of its columns
COLUMN = "#"
#: words of a name, and the number behind them
_NUMBERED = re.compile(r"(\D+)(\d*)")


#: what a case came to where it says something of the version: UNSUPPORTED says nothing
SAYS = frozenset({"PASSED", "FAILED"})


class CaseOutcome(Struct, frozen=True, kw_only=True):
    """What came of a case of the corpus: its verdict, how the run ended, a reason in words.

    >>> str(CaseOutcome(verdict="PASSED", outcome="deadlock"))
    'PASSED deadlock'
    """

    verdict: str
    outcome: str = ""
    words: str = ""

    def __str__(self) -> str:
        """Return the verdict and the outcome of the run: `PASSED deadlock`."""
        return f"{self.verdict} {self.outcome}".strip()


class Conformance(Struct, frozen=True, kw_only=True):
    """What one backend did in one version of torch; `name` is that of its column.

    `torch` is empty where no torch ran. `machine` is what it ran on, in words (torch and Python,
    cores); `cases` are named `folder/file.yaml::case` from the corpus.
    """

    name: str
    backend: str
    torch: str
    machine: Mapping[str, str] = field(default_factory=dict)
    cases: Mapping[str, CaseOutcome] = field(default_factory=dict)
    cells: Mapping[Cell, CellOutcome] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """How many cases came to each verdict."""
        return dict(sorted(Counter(seen.verdict for seen in self.cases.values()).items()))

    def differences(self, new: Conformance) -> list[ColumnDifference]:
        """Return what two columns do not agree on: cases, then calls, alike dtypes together.

        What only one of them has is no difference: the corpus may have grown between them.
        """
        found = [
            ColumnDifference(
                what=case,
                before=str(self.cases[case]),
                after=str(new.cases[case]),
                words=new.cases[case].words or self.cases[case].words,
                scenario=case,
            )
            for case in sorted(self.cases.keys() & new.cases.keys())
            if _differ(self.cases[case], new.cases[case])
        ]
        return [*found, *self.calls(new)]

    def calls(self, new: Conformance) -> Iterator[ColumnDifference]:
        """Yield the calls that came out otherwise, alike dtypes together."""
        alike: dict[tuple[str, str, str, str], list[Cell]] = {}
        for cell, before in self.cells.items():
            after = new.cells.get(cell)
            if after is not None and before.outcome != after.outcome:
                key = (cell.operation, cell.op, before.outcome, after.outcome)
                alike.setdefault(key, []).append(cell)
        for (operation, op, before_, after_), cells in alike.items():
            dtypes = [cell.dtype for cell in cells]
            words = (new.cells[cells[0]].words, self.cells[cells[0]].words)
            yield ColumnDifference(
                what=" ".join(filter(None, (operation, op, *dtypes))),
                before=before_,
                after=after_,
                words=next(filter(None, words), ""),
                scenario=write_scenario(operation, op, dtypes),
                file="_".join(filter(None, (operation, op, before_, after_))).replace(" ", "_")
                + ".yaml",
            )

    def count_left_out(self, new: Conformance) -> tuple[int, int]:
        """Return how many cases and cells only the first has, and only the second."""
        before = self.cases.keys() | set(map(str, self.cells))
        after = new.cases.keys() | set(map(str, new.cells))
        return len(before - after), len(after - before)


class ColumnDifference(Struct, frozen=True, kw_only=True):
    """Something that two columns do not agree on, and the scenario that shows it.

    `scenario` is the name of a case of the corpus, or the text of a file.

        what     reduce_scatter avg int32         before  refused      after  7

    Between two releases of one backend such a line is a change of behaviour, with its reproduction.
    """

    what: str
    before: str
    after: str
    words: str = ""
    scenario: str = ""
    file: str = ""


class RangeProposal(Struct, frozen=True, kw_only=True):
    """What the versions of torch in which a case passes and fails make of its `torch:` key.

    `torch` is the range to write, such as `>=2.7, <2.15`; empty where no range leaves out all that
    fail, because the case fails everywhere or passes again. `passes` and `fails` are versions in
    their order, `words` what the first that fails says.
    """

    case: str
    torch: str
    passes: tuple[str, ...]
    fails: tuple[str, ...]
    words: str = ""

    def __str__(self) -> str:
        """Return it as one line: what to write, and why."""
        advice = f"write `torch: '{self.torch}'`" if self.torch else "no range helps"
        fails = f"the case fails in {', '.join(self.fails)}"
        passes = f"and passes in {', '.join(self.passes)}" if self.passes else "and passes in none"
        return f"{self.case}: {advice}: {fails} {passes}"


def name_of(backend: str, torch: str) -> str:
    """Return how a column is called unless its author says otherwise: `gloo, torch 2.13.0`."""
    return f"{backend}, torch {torch.partition('+')[0]}"


#: a verdict, and how the run ended where there was one: `PASSED deadlock`
CaseResult = Annotated[
    str,
    Meta(
        pattern=r"^(PASSED|FAILED|FLAKY|INCONCLUSIVE|UNSUPPORTED|INVALID)"
        r"( (completes|deadlock|error|crash))?$"
    ),
]
CellResult = Literal[
    "same", "differs", "refuses", "undefined", "hangs", "dies", "not run", "goes through"
]


class _FilePart(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of the file as it is written."""


class _Column(_FilePart, frozen=True, kw_only=True):
    name: Annotated[str, Meta(min_length=1)]
    backend: str
    torch: str
    machine: Mapping[str, str]
    counts: Mapping[str, Annotated[int, Meta(ge=0)]]


class _CaseRow(_FilePart, frozen=True, kw_only=True):
    """A case: its results and their words, each by the name of the column."""

    case: str
    results: Mapping[str, CaseResult]
    words: Mapping[str, str] = field(default_factory=dict)


class _CellRow(_FilePart, frozen=True, kw_only=True):
    """A call: its results and their words, each by the name of the column."""

    operation: str
    op: str
    dtype: str
    results: Mapping[str, CellResult]
    words: Mapping[str, str] = field(default_factory=dict)


class _File(_FilePart, frozen=True, kw_only=True):
    """The whole of the file, as schemas/conformance.schema.json says it."""

    format: Literal["scenario-conformance"]
    version: Literal[1]
    columns: tuple[_Column, ...]
    cases: tuple[_CaseRow, ...]
    cells: tuple[_CellRow, ...]


def read(path: str) -> dict[str, Conformance]:
    """Return the columns of a file by their names; `FILE#COLUMN` gives that one alone.

    Raises ScenarioError where it cannot be read, is not a conformance file, or lacks the column.
    """
    file, mark, chosen = path.partition(COLUMN)
    try:
        document = decode_json(read_document(file))
    except OSError as error:
        message = f"{file} cannot be read: {error.strerror}"
        raise _refuse(message) from error
    except ValueError as error:
        message = f"{file} cannot be read: {error}"
        raise _refuse(message) from error
    try:
        whole = convert(document, _File)
    except DocumentError as error:
        message = f"{file} is not what `scenario conformance` writes: {short(str(error))}"
        raise _refuse(message) from error
    found = {column.name: _column(column, whole) for column in whole.columns}
    if not mark:
        return found
    if chosen not in found:
        names = ", ".join(f"{name!r}" for name in found)
        message = f"{file} has no column {chosen!r}; it has {names}"
        raise _refuse(message)
    return {chosen: found[chosen]}


def one(path: str) -> Conformance:
    """Return the only column of a file, or that of `FILE#COLUMN`. Raises ScenarioError."""
    found = read(path)
    if len(found) == 1:
        return next(iter(found.values()))
    names = ", ".join(f"'{path}{COLUMN}{name}'" for name in found)
    message = f"{path} has {len(found)} columns: name one, as {names or 'none is there'}"
    raise _refuse(message)


def _refuse(message: str) -> ScenarioError:
    return ScenarioError([Problem(code="not_comparable", message=message)])


def _column(column: _Column, whole: _File) -> Conformance:
    name = column.name
    cases = {
        row.case: _case_seen(row.results[name], row.words.get(name, ""))
        for row in whole.cases
        if name in row.results
    }
    cells = {
        Cell(operation=row.operation, op=row.op, dtype=row.dtype): CellOutcome(
            outcome=row.results[name], words=row.words.get(name, "")
        )
        for row in whole.cells
        if name in row.results
    }
    return Conformance(
        name=name,
        backend=column.backend,
        torch=column.torch,
        machine=column.machine,
        cases=cases,
        cells=cells,
    )


def _case_seen(result: str, words: str) -> CaseOutcome:
    verdict, _, outcome = result.partition(" ")
    return CaseOutcome(verdict=verdict, outcome=outcome, words=words)


def text(columns: Iterable[Conformance]) -> str:
    """Return the file of some columns as JSON, one case or cell a line.

    Columns of one backend follow each other by version, in whichever order they were measured.
    """
    chosen = sorted(columns, key=lambda column: _order(column.name))
    head = {
        "format": FORMAT,
        "version": VERSION,
        "columns": [
            {
                "name": column.name,
                "backend": column.backend,
                "torch": column.torch,
                "machine": dict(column.machine),
                "counts": column.counts,
            }
            for column in chosen
        ],
    }
    cases = sorted({case for column in chosen for case in column.cases})
    cells = list(dict.fromkeys(cell for column in chosen for cell in column.cells))
    lines = {
        "cases": [
            {"case": case} | _row({column.name: column.cases.get(case) for column in chosen})
            for case in cases
        ],
        "cells": [
            {"operation": cell.operation, "op": cell.op, "dtype": cell.dtype}
            | _row({column.name: column.cells.get(cell) for column in chosen})
            for cell in cells
        ],
    }
    written = json.dumps(head, indent=2, ensure_ascii=False)[:-2]
    for name, entries in lines.items():
        body = ",\n    ".join(json.dumps(entry, ensure_ascii=False) for entry in entries)
        written += f',\n  "{name}": [\n    {body}\n  ]' if entries else f',\n  "{name}": []'
    return written + "\n}\n"


def _order(name: str) -> list[tuple[str, int]]:
    """Return a key by which names are in order, the numbers in them by their value."""
    return [(words, int(number or 0)) for words, number in _NUMBERED.findall(name.casefold())]


def _row(seen: Mapping[str, CaseOutcome | CellOutcome | None]) -> dict[str, Any]:
    there = {name: each for name, each in seen.items() if each is not None}
    words = {name: each.words for name, each in there.items() if each.words}
    results = {
        name: each.outcome if isinstance(each, CellOutcome) else str(each)
        for name, each in there.items()
    }
    return {"results": results} | ({"words": words} if words else {})


def _differ(one: CaseOutcome, other: CaseOutcome) -> bool:
    return str(one) != str(other)


def propose(columns: Mapping[str, Conformance], backend: str) -> list[RangeProposal]:
    """Return a proposal for each case that fails in a column of a backend, in the order of names.

    A bound is written as far as it must be: `>=2.7` where 2.6.0 fails and 2.7.1 passes.
    """
    chosen = sorted(
        (column for column in columns.values() if column.backend == backend and column.torch),
        key=lambda column: release_of(column.torch),
    )
    cases = sorted({case for column in chosen for case in column.cases})
    return list(_compare(cases, chosen))


def _compare(cases: Iterable[str], chosen: Sequence[Conformance]) -> Iterator[RangeProposal]:
    for case in cases:
        seen = [
            (column.torch.partition("+")[0], column.cases[case])
            for column in chosen
            if case in column.cases and column.cases[case].verdict in SAYS
        ]
        if any(each.verdict == "FAILED" for _, each in seen):
            yield _make_proposal(case, seen)


def _make_proposal(case: str, seen: Sequence[tuple[str, CaseOutcome]]) -> RangeProposal:
    passes = tuple(version for version, each in seen if each.verdict == "PASSED")
    fails = tuple(version for version, each in seen if each.verdict == "FAILED")
    return RangeProposal(
        case=case,
        torch=_find_range(passes, fails),
        passes=passes,
        fails=fails,
        words=next(each.words for _, each in seen if each.verdict == "FAILED"),
    )


def _find_range(passes: tuple[str, ...], fails: tuple[str, ...]) -> str:
    """Return the bounds that hold for every version that passes and for none that fails."""
    if not passes:
        return ""
    first, last = release_of(passes[0]), release_of(passes[-1])
    below = [release_of(each) for each in fails if release_of(each) < first]
    above = [release_of(each) for each in fails if release_of(each) > last]
    if len(below) + len(above) < len(fails):
        return ""  # it fails between two that pass
    bounds = []
    if below:
        bounds.append(f">={_shorten(first, below[-1])}")
    if above:
        bounds.append(f"<{_shorten(above[0], last)}")
    return ", ".join(bounds)


def _shorten(version: tuple[int, ...], other: tuple[int, ...]) -> str:
    """Return a version as far as it must be written to tell it from another: 2.7 from 2.6.0."""
    depth = next(n for n in (2, 3) if version[:n] != other[:n] or n == len(version))
    return ".".join(map(str, version[:depth]))


# The page: which call works where.

MARKS = {
    "same": "yes",
    "refuses": "refuses",
    "differs": "**differs**",
    "undefined": "undefined",
    "hangs": "**hangs**",
    "dies": "**dies**",
    "not run": "not run",
    "goes through": "passes torch",
}


def page(columns: Mapping[str, Conformance]) -> str:
    """Return the columns as Markdown: what each ran on, its verdicts, which call works where."""
    names = list(columns)
    lines = [
        f"| | {' | '.join(names)} |",
        "|---|" + "---|" * len(names),
        *_facts(columns),
        "",
        f"| operation | reduce op | {' | '.join(names)} |",
        "|---|---|" + "---|" * len(names),
        *_calls_of(columns),
    ]
    others = _cases_that_differ(columns)
    if others:
        lines += [
            "",
            f"| case | {' | '.join(names)} |",
            "|---|" + "---|" * len(names),
            *others,
        ]
    return "\n".join(lines) + "\n"


def _facts(columns: Mapping[str, Conformance]) -> Iterator[str]:
    facts = dict.fromkeys(name for column in columns.values() for name in column.machine)
    for fact in facts:
        yield f"| {fact} | {' | '.join(c.machine.get(fact, '') for c in columns.values())} |"
    yield f"| cases that ran | {' | '.join(str(len(c.cases)) for c in columns.values())} |"
    verdicts = dict.fromkeys(name for column in columns.values() for name in column.counts)
    for verdict in verdicts:
        counts = (str(column.counts.get(verdict, 0)) for column in columns.values())
        yield f"| cases {verdict} | {' | '.join(counts)} |"


def _calls_of(columns: Mapping[str, Conformance]) -> Iterator[str]:
    """Yield a row for each reduce op; operations that come to the same everywhere share one."""
    rows: dict[tuple[str, str], dict[str, dict[str, str]]] = {}
    for name, column in columns.items():
        for cell, seen in column.cells.items():
            row = rows.setdefault((cell.op, cell.operation), {})
            row.setdefault(name, {})[cell.dtype] = seen.outcome
    alike: dict[tuple[str, ...], list[str]] = {}
    for (op, operation), row in rows.items():
        cells = (op, *(_summary(row.get(name, {})) for name in columns))
        alike.setdefault(cells, []).append(operation)
    for cells, operations in alike.items():
        yield f"| {', '.join(operations)} | {' | '.join(cells)} |"


def _summary(outcomes: Mapping[str, str]) -> str:
    """Return what came of each dtype: `yes`, or `yes but: refuses int16 bool`."""
    by_outcome: dict[str, list[str]] = {}
    for dtype in DTYPES:
        if dtype in outcomes:
            by_outcome.setdefault(MARKS.get(outcomes[dtype], outcomes[dtype]), []).append(dtype)
    if not by_outcome:
        return "not seen"
    if len(by_outcome) == 1:
        return next(iter(by_outcome))
    usual = max(by_outcome, key=lambda outcome: len(by_outcome[outcome]))
    others = "; ".join(
        f"{outcome} {' '.join(dtypes)}"
        for outcome, dtypes in by_outcome.items()
        if outcome != usual
    )
    return f"{usual}, but {others}"


def _cases_that_differ(columns: Mapping[str, Conformance]) -> list[str]:
    found = []
    for case in sorted({case for column in columns.values() for case in column.cases}):
        cells = [str(c.cases[case]) if case in c.cases else "" for c in columns.values()]
        if len(set(filter(None, cells))) > 1:
            found.append(f"| `{case}` | {' | '.join(cells)} |")
    return found
