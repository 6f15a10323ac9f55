"""The timelines of the latest run, kept for `scenario show --last`.

A file of JSON lines in the folder of :mod:`torch_scenarios.pipeline.selection`: a head, then a case
on each line, so that one can be read without the others. Cases that did not pass are kept before
those that did; a run of very many keeps some of each.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import asdict

from torch_scenarios.display import clean_json
from torch_scenarios.errors import Problem, ScenarioError
from torch_scenarios.pipeline.results import FinalReport, Outcome, Result
from torch_scenarios.report.output import timeline
from torch_scenarios.source.documents import decode_json
from torch_scenarios.timeline import Timeline, pack, unpack

FILE = "timelines.jsonl"

#: cases that are kept: of those that did not pass, and of those that did
MOST_FAILED, MOST_PASSED = 50, 40

#: events beyond which a case is not kept: it would take longer to write than to run again
MOST_EVENTS = 50_000

#: characters of all timelines together
MOST_CHARACTERS = 50_000_000


class LatestCase(Struct, frozen=True, kw_only=True):
    """A case of the latest run: its verdict, and its timelines where there was a trace.

    `scenario show --last` draws it without running anything again: a failure that comes once in a
    hundred runs can be looked at afterwards.
    """

    name: str
    status: str
    predicted: Timeline | None
    observed: Timeline | None


class _Head(Struct):
    format: Literal["scenario-last-timelines"]
    version: Literal[1]


_HEAD = _Head(format="scenario-last-timelines", version=1)


class _Row(Struct):
    name: str
    status: str
    predicted: dict[str, Any] | None
    observed: dict[str, Any] | None


class LatestRun(FinalReport):
    """Keeps timelines as results come, as text; nothing of a trace outlives its case.

    Traces of a thousand cases do not fit into memory, and only a few are ever looked at. Those that
    did not pass have most of the room.
    """

    def __init__(self, folder: Path) -> None:
        """Keep in `folder`."""
        self._folder = folder
        self._passed: list[str] = []
        self._failed: list[str] = []
        self._room = MOST_CHARACTERS

    def finish(self, result: Result) -> None:
        """Put the case into words, if there is room for it."""
        passed = result.verdict.status in {"PASSED", "UNSUPPORTED"}
        kept, most = (self._passed, MOST_PASSED) if passed else (self._failed, MOST_FAILED)
        small = _events(result) <= MOST_EVENTS and self._room > 0
        if len(kept) < most and result.scenario is not None and small:
            kept.append(_line(result))
            self._room -= len(kept[-1])

    def end(self, outcome: Outcome) -> None:
        """Write them, in place of those of the run before; where nothing ran, that stays."""
        del outcome
        if not self._failed and not self._passed:
            return
        from torch_scenarios.pipeline.history import keep

        head = json.dumps(asdict(_HEAD))
        with suppress(OSError):  # a folder that cannot be written
            keep(self._folder, FILE, "\n".join([head, *self._failed, *self._passed, ""]))


def _events(result: Result) -> int:
    traces = (result.verdict.predicted, result.verdict.observed)
    return sum(len(rank.events) for trace in traces if trace is not None for rank in trace.ranks)


def _line(result: Result) -> str:
    scenario, verdict = result.scenario, result.verdict
    assert scenario is not None
    named = {"predicted": verdict.predicted, "observed": verdict.observed}
    timelines = {
        name: None if trace is None else pack(timeline(scenario, trace, verdict.predicted))
        for name, trace in named.items()
    }
    row = {"name": f"{result.file}::{result.case}", "status": verdict.status, **timelines}
    return clean_json(json.dumps(row, separators=(",", ":"), ensure_ascii=False))


def find_latest(folder: Path, wanted: str = "") -> tuple[LatestCase | None, dict[str, str]]:
    """Return the first case of the latest run with `wanted` in its name; every name and verdict.

    Raises ScenarioError where none was kept, or what was kept cannot be read.
    """
    from torch_scenarios.pipeline.history import read_kept

    path = folder / FILE
    try:
        # not `splitlines`: JSON leaves characters as they are that end lines elsewhere
        head, *lines = read_kept(folder, FILE).rstrip("\n").split("\n")
        decode_json(head, _Head)
        rows = [decode_json(line, _Row) for line in lines]
        chosen = next((row for row in rows if wanted in row.name), None)
        return None if chosen is None else _read_row(chosen), {row.name: row.status for row in rows}
    except FileNotFoundError:
        message = "there is no latest run here: `scenario run` keeps its timelines in .scenario/"
        raise ScenarioError([Problem(code="no_latest_run", message=message)]) from None
    except (OSError, ValueError) as error:
        raise _unreadable(path) from error


def _unreadable(path: Path) -> ScenarioError:
    message = f"{path} cannot be read: it is damaged, or of another version"
    hint = "the next `scenario run` writes it anew"
    return ScenarioError([Problem(code="no_latest_run", message=message, hint=hint)])


def _read_row(row: _Row) -> LatestCase:
    return LatestCase(
        name=row.name,
        status=row.status,
        predicted=None if row.predicted is None else unpack(row.predicted),
        observed=None if row.observed is None else unpack(row.observed),
    )
