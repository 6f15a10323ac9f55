"""One page that holds a whole run: packed as cases end, joined, read back."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import metadata, resources
from itertools import zip_longest
from pathlib import Path
from string import Template
from typing import Any, NoReturn, TextIO

from msgspec import UNSET, Struct, UnsetType, to_builtins
from msgspec.structs import replace

from torch_scenarios.display import clean, clean_line
from torch_scenarios.errors import Mark, Problem, ScenarioError
from torch_scenarios.explain import EXPLANATIONS
from torch_scenarios.files import open_regular, read_open
from torch_scenarios.pipeline.results import Outcome, Result, environment
from torch_scenarios.report.output import timeline
from torch_scenarios.report.terminal import summary_lines
from torch_scenarios.report.text import MOST_FINDINGS, Line, cost_lines, details, write_warning
from torch_scenarios.source.documents import (
    MOST_BYTES,
    BoundsError,
    DocumentError,
    decode_json,
    read_document,
)
from torch_scenarios.timeline import Lane, StepSpan, Timeline, TimelineError, pack, unpack
from torch_scenarios.verdict import Finding, Verdict
from torch_scenarios.verdict.finding import ranks_text

# -------------------------------------------------------------------------------------------------
# Result -> what the page knows of it: a head for the list, and a body, read once it is opened.

#: steps of all ranks, predicted and observed, of which a page can hold a picture
MOST_STEPS = 200_000


class EarlierCase(Struct, frozen=True, kw_only=True):
    """What a case was in the run that a page is compared with.

    >>> EarlierCase(verdict="PASSED", took=1200).took
    1200
    """

    verdict: str
    took: int


class Head(Struct, frozen=True, kw_only=True):
    """What the list of cases shows of one; `took` is in microseconds, `cause` a few words.

    `was` and `changed` are set where two runs are compared; `was` is None where the other lacks it.
    """

    verdict: str
    file: str
    case: str
    took: int
    cause: str
    runs: int = 0
    tags: tuple[str, ...] = ()
    was: EarlierCase | UnsetType | None = UNSET
    changed: bool | UnsetType = UNSET

    @property
    def name(self) -> str:
        """The file, and the case where a file has several."""
        return self.file if self.case == self.file else f"{self.file}::{self.case}"


def head(result: Result) -> Head:
    """Return what the list of cases shows: verdict, names, time, and the cause in a few words."""
    return Head(
        verdict=result.verdict.status,
        file=result.file,
        case=result.case,
        took=round(result.duration_s * 1e6),
        runs=len(result.attempts),
        cause=_cause(result.verdict),
        tags=tuple(result.tags),
    )


def body(result: Result) -> dict[str, Any]:
    """Return everything else: what the terminal says, the file, the run as a picture."""
    verdict = result.verdict
    return {
        "description": result.description,
        "lines": [[line.printable, line.style] for line in _lines(result)],
        "places": _places(result),
        "text": _text(result),
        "diagnoses": _diagnoses(verdict),
        "notes": list(verdict.notes),
        "cost": cost_lines(verdict),
        "silent": verdict.silently_wrong,
        **_timelines(result),
    }


def _lines(result: Result) -> list[Line]:
    warned = [line for each in result.verdict.warnings for line in write_warning(each)]
    return [*warned, *details(result)]


def text(part: Struct | dict[str, Any]) -> str:
    """Return plain data as one line of JSON."""
    return clean(json.dumps(to_builtins(part), ensure_ascii=False, separators=(",", ":")))


def _cause(verdict: Verdict) -> str:
    if verdict.problems:
        more = len(verdict.problems) - 1
        return verdict.problems[0].message + (f" (and {more} more)" if more else "")
    if verdict.reason:
        return verdict.reason
    if verdict.findings:
        first = verdict.findings[0]
        return f"{first.diagnosis}: {first.prose}" if first.diagnosis else first.prose
    return f"warning: {verdict.warnings[0].message}" if verdict.warnings else ""


def _places(result: Result) -> list[dict[str, Any]]:
    """Return where in the file, and in the run, something is wrong; the whole file is no place."""
    verdict = result.verdict
    problems = [_problem(problem) for problem in verdict.problems]
    whole = result.scenario.mark if result.scenario is not None else None
    found = verdict.findings[:MOST_FINDINGS]
    return problems + [
        _write_finding(each, None if each.mark == whole else each.mark) for each in found
    ]


def _problem(problem: Problem) -> dict[str, Any]:
    return {"says": problem.message, **_mark(problem.mark)}


def _write_finding(finding: Finding, mark: Mark | None) -> dict[str, Any]:
    return {
        "says": finding.prose,
        **_mark(mark),
        "index": finding.index,
        "iteration": list(finding.iteration),
        "ranks": list(finding.ranks),
        "name": finding.name,
    }


def _mark(mark: Mark | None) -> dict[str, Any]:
    """Return the columns that are wrong, from 0; the end is exclusive, None at the line's end."""
    if mark is None:
        return {}
    same = mark.end_line in {None, mark.line}
    end = mark.end_column - 1 if same and mark.end_column is not None else None
    return {"file": mark.source.path, "line": mark.line, "from": mark.column - 1, "to": end}


def _text(result: Result) -> str:
    """Return the text of the file; of an INVALID one what was read before it was refused."""
    if result.scenario is not None:
        return result.scenario.source.text
    marks = [problem.mark for problem in result.verdict.problems if problem.mark is not None]
    return next((mark.source.text for mark in marks if mark.source.path == result.file), "")


def _diagnoses(verdict: Verdict) -> list[dict[str, Any]]:
    if verdict.predicted is None:
        return []
    return [
        {"name": each.name, "prose": each.prose, "ranks": list(each.ranks)}
        for each in verdict.predicted.diagnoses
    ]


def _timelines(result: Result) -> dict[str, Any]:
    """Return the run as a picture, twice; of what was observed only where it differs.

    A run of more steps than a browser could hold is described without a picture.
    """
    scenario, predicted = result.scenario, result.verdict.predicted
    if scenario is None or predicted is None:
        return {}
    observed = result.verdict.observed
    steps = sum(
        len(rank.events) for trace in (predicted, observed) if trace for rank in trace.ranks
    )
    if steps > MOST_STEPS:
        return {"undrawn": steps}
    foreseen = timeline(scenario, predicted, predicted)
    first = pack(foreseen)
    if observed is None:
        return {"predicted": first}
    seen = timeline(scenario, observed, predicted)
    second = pack(seen)
    changed = {key: value for key, value in second.items() if value != first[key]}
    found = {"predicted": first, "observed": changed}
    parted = divergence(foreseen, seen, result.verdict)
    return found if parted is None else {**found, "divergence": parted}


# -------------------------------------------------------------------------------------------------
# Where a run first parts from its prediction.

#: who stands alone in a finding that sets a run and its prediction apart
_APART: frozenset[str] = frozenset({"backend", "reference"})


def divergence(predicted: Timeline, observed: Timeline, verdict: Verdict) -> dict[str, Any] | None:
    """Return the first step, by logical time and then by rank, in which a run is not as predicted.

    There a rank takes another step, is stuck or goes on, raises or does not, or holds a value that
    a finding says is another one. None where there is no such step. `witness` says in which of the
    two timelines the step is: a rank may never have come to it.
    """
    values = {
        (rank, finding.index, finding.iteration)
        for finding in verdict.findings
        if finding.witness in _APART and finding.index >= 0
        for rank in finding.ranks
    }
    ran = {lane.rank: lane.spans for lane in observed.lanes}
    found: list[tuple[int, int, StepSpan, str, str]] = []
    for lane in predicted.lanes:
        for first, second in zip_longest(lane.spans, ran.get(lane.rank, ())):
            words = _tell_parting(first, second, values, lane.rank)
            span = second or first
            if words and span is not None:
                witness = "predicted" if second is None else "observed"
                found.append((span.column, lane.rank, span, witness, words))
                break
    if not found:
        return None
    _, rank, span, witness, words = min(found, key=lambda each: each[:2])
    return {
        "rank": rank,
        "index": span.index,
        "iteration": list(span.iteration),
        "witness": witness,
        "says": f"rank {rank} at {span.label}: {words}",
    }


def _tell_parting(
    first: StepSpan | None,
    second: StepSpan | None,
    values: set[tuple[int, int, tuple[int, ...]]],
    rank: int,
) -> str:
    """Return how a step is not as predicted, in words; nothing where it is."""
    if second is None:
        return "predicted, and not reached"
    if first is None:
        return "reached, and not predicted"
    if (first.index, first.iteration) != (second.index, second.iteration):
        return f"{first.label} is predicted"
    if first.stuck != second.stuck:
        return "predicted to end, and stuck" if second.stuck else "predicted to be stuck, and ends"
    if (first.raised is None) != (second.raised is None):
        return f"raises {second.raised}" if second.raised else f"predicted to raise {first.raised}"
    other = (rank, second.index, second.iteration) in values
    return "holds another value than predicted" if other else ""


# -------------------------------------------------------------------------------------------------
# Markup, style, program and data -> one page that needs nothing else.
#
# The data are compressed and in base64: no text of a scenario is ever part of the markup, but the
# title, which is escaped. The page's own security policy allows its one style sheet and its one
# program, by their hashes, and no connection: even a mistake in the program could not run what a
# scenario says.

#: the program, in the order in which its parts build on each other
PROGRAM = (
    "model.js",
    "folding.js",
    "source.js",
    "palette.js",
    "geometry.js",
    "meetings.js",
    "waiting.js",
    "pointed.js",
    "distant.js",
    "names.js",
    "paint.js",
    "diagram.js",
    "values.js",
    "story.js",
    "cases.js",
    "controls.js",
    "finder.js",
    "main.js",
)


def page(title: str, data: bytes) -> str:
    """Return the whole file. `data` is a zlib stream of lines of JSON."""
    style, program = _dense("report.css"), _program()
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(program)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return Template(_read("report.html")).substitute(
        title=html.escape(clean_line(title)),
        policy=policy,
        style=style,
        program=program,
        data=base64.b64encode(data).decode(),
    )


@cache
def _program() -> str:
    parts = "\n".join(_dense(name) for name in PROGRAM)
    return f'(() => {{\n"use strict";\n{parts}\n}})();\n'


@cache
def _read(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


@cache
def _dense(name: str) -> str:
    """Return a file without indentation and without the lines that are comments."""
    lines = (line.strip() for line in _read(name).splitlines())
    return "\n".join(line for line in lines if line and not line.startswith(("//", "/*")))


def _hash(part: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()}"


# -------------------------------------------------------------------------------------------------
# What a page shows, read back from it: the pictures of several runs, for one page of them all.
#
# A page holds a head and a body for each case (:mod:`torch_scenarios.report.html.page`). Bodies are
# taken as they stand, line by line; nothing in them is looked at.

_DATA = re.compile(r'<script type="text/plain" id="data">([^<]*)</script>')
_BEGIN = b"<!doctype html>"


class PageCase(Struct, frozen=True, kw_only=True):
    """A case of a page: its verdict, how long it took in microseconds, its body as it stands.

    A page can be read back, and compared with a later run: it holds what it shows as data.
    """

    verdict: str
    took: int
    body: str


def is_page(path: str) -> bool:
    """Return whether a file begins as a page does; one that cannot be read does not."""
    try:
        opened = open_regular(Path(path))
    except OSError:
        return False
    try:
        return read_open(opened, len(_BEGIN)).lower() == _BEGIN
    except OSError:
        return False
    finally:
        os.close(opened)


class ComparedRun(Struct, frozen=True, kw_only=True):
    """The run that a page is compared with: how it ended, and its cases that are gone since.

    A case that is gone fails nothing, which is why it is named: it may have been renamed, or lost.
    """

    summary: str
    changed: int
    gone: tuple[str, ...]


class WholeRun(Struct, frozen=True, kw_only=True):
    """What a page says of a run as a whole; `version` is the package's that wrote it."""

    version: str
    summary: str
    environment: dict[str, Any]
    interrupted: bool
    explanations: dict[str, dict[str, str]]
    against: ComparedRun | UnsetType = UNSET


class PageContent(Struct, frozen=True, kw_only=True):
    """What a page holds: a head and a body for each case, the body as it stands, and the run."""

    path: str
    heads: tuple[Head, ...]
    bodies: tuple[str, ...]
    run: WholeRun


class _Release(Struct):
    version: str


def content_of(path: str) -> PageContent:
    """Return what a page holds. Raises ScenarioError where it is not ours."""
    try:
        found = _DATA.search(read_document(path).decode())
        lines = _unpack(base64.b64decode(found[1] if found else "")).decode().split("\n")
        lines.pop()  # what is behind the last line break
        release = decode_json(lines[-1], _Release).version
        if release != metadata.version("torch-scenarios"):
            _refuse(f"{path} is a page of version {release}, which this one cannot draw")
        run = decode_json(lines[-1], WholeRun)
        heads = tuple(decode_json(line, Head) for line in lines[:-1:2])
        bodies = tuple(lines[1:-1:2])
        if len(heads) != len(bodies):
            raise ValueError(path)  # noqa: TRY301 -- as all else that is not ours
    except (OSError, ValueError, zlib.error, LookupError):
        text = f"{path} is not a page that --html wrote, or not all of it"
        raise ScenarioError([Problem(code="not_a_result", message=text)]) from None
    return PageContent(path=path, heads=heads, bodies=bodies, run=run)


def _unpack(packed: bytes) -> bytes:
    """Return what was packed. Raises BoundsError where that is too much, zlib.error and EOFError.

    A few bytes can hold a great many.
    """
    unpacker = zlib.decompressobj()
    content = unpacker.decompress(packed, MOST_BYTES)
    if unpacker.unconsumed_tail:
        message = f"it unpacks to more than {MOST_BYTES} bytes"
        raise BoundsError(message)
    return content


def cases_of(path: str) -> dict[tuple[str, str], PageCase]:
    """Return the cases of a page by file and name. Raises ScenarioError where it is not ours."""
    content = content_of(path)
    return {
        (head.file, head.case): PageCase(verdict=head.verdict, took=head.took, body=body)
        for head, body in zip(content.heads, content.bodies, strict=True)
    }


def draw(outcome: Outcome, pages: Mapping[str, Mapping[tuple[str, str], PageCase]]) -> Outcome:
    """Return the outcome with what pages show of its cases; those in none stay without a picture.

    Raises ScenarioError where a page is of another run: another verdict, or another duration.
    """
    results = {(each.file, each.case): each for each in outcome.results}
    for path, cases in pages.items():
        for key, shown in cases.items():
            result = results.get(key)
            if result is None or not _is_of(shown, result):
                _refuse(f"{path} is the page of another run: {key[1]} is not among its results")
            results[key] = replace(result, page=shown.body)
    return replace(outcome, results=tuple(results.values()))


def _is_of(shown: PageCase, result: Result) -> bool:
    return (shown.verdict, shown.took) == (result.verdict.status, round(result.duration_s * 1e6))


def _refuse(message: str) -> NoReturn:
    raise ScenarioError([Problem(code="not_mergeable", message=message)])


# -------------------------------------------------------------------------------------------------
# Two pages -> what is another in the second one, and a page that says so.

#: changes of one case that are told
MOST_CHANGES = 12


class CaseChange(Struct, frozen=True, kw_only=True):
    """A case that is another in a second run: its verdicts, None where a run lacks it, and how.

    `lines` say what else is another: what a rank held after a step, where it ended.

    >>> CaseChange(name="a.yaml", before="PASSED", after="FAILED").lines
    ()
    """

    name: str
    before: str | None
    after: str | None
    lines: tuple[str, ...] = ()


def changes(before: PageContent, after: PageContent) -> list[CaseChange]:
    """Return the cases that are another in a second run, in its order; then those it lacks.

    A time alone is no change.
    """
    old = {head.name: (head, body) for head, body in _cases(before)}
    found = []
    for head, body_ in _cases(after):
        name = head.name
        if name not in old:
            found.append(CaseChange(name=name, before=None, after=head.verdict))
            continue
        then, text_then = old.pop(name)
        lines = _tell_changes(text_then, body_)
        if then.cause != head.cause:
            lines = [f"before: {then.cause or 'nothing was wrong'}", *lines]
        if then.verdict != head.verdict or lines:
            found.append(
                CaseChange(name=name, before=then.verdict, after=head.verdict, lines=tuple(lines))
            )
    return found + [
        CaseChange(name=name, before=head.verdict, after=None) for name, (head, _) in old.items()
    ]


def _cases(content: PageContent) -> Iterator[tuple[Head, str]]:
    return zip(content.heads, content.bodies, strict=True)


def _tell_changes(before: str, after: str) -> list[str]:
    """Return what two runs of a case did otherwise, in words; equal words of ranks once."""
    by_words: dict[str, list[int]] = {}
    then, now = (_run_of(each) for each in (before, after))
    for rank in sorted({*then, *now}):
        for words in _tell_lane_changes(then.get(rank), now.get(rank)):
            by_words.setdefault(words, []).append(rank)
    lines = [f"{ranks_text(ranks)}: {words}" for words, ranks in by_words.items()]
    left = len(lines) - MOST_CHANGES
    return lines if left <= 0 else [*lines[:MOST_CHANGES], f"and {left} more changes"]


class _Pictures(Struct):
    """What of a body is a picture; the observed one has only what differs from the predicted."""

    predicted: dict[str, Any] = {}
    observed: dict[str, Any] = {}


def _run_of(body_: str) -> dict[int, Lane]:
    """Return what each rank did in a run, or would have done where nothing ran."""
    try:
        pictures = decode_json(body_, _Pictures)
        if not pictures.predicted:
            return {}
        packed = {**pictures.predicted, **pictures.observed}
        return {lane.rank: lane for lane in unpack(packed).lanes}
    except (DocumentError, TimelineError) as error:
        _refuse(str(error))


def _tell_lane_changes(before: Lane | None, after: Lane | None) -> Iterator[str]:
    if before is None or after is None:
        yield "is in one of the two runs only"
        return
    if before.ending != after.ending:
        yield f"{before.ending.replace('_', ' ')} before, {after.ending.replace('_', ' ')} now"
    held = {(span.index, span.iteration): span.values for span in before.spans}
    for span in after.spans:
        then = held.get((span.index, span.iteration), {})
        turn = f" (iteration {', '.join(map(str, span.iteration))})" if span.iteration else ""
        for name, value in span.values.items():
            if name in then and then[name] != value:
                yield f"after {span.label}{turn} {name} was {then[name]}, is {value}"


def compare_pages(before: PageContent, after: PageContent, found: Sequence[CaseChange]) -> str:
    """Return the page of a second run, which says of each case what it was in the first one."""
    by_name = {each.name: each for each in found}
    old = {head.name: head for head in before.heads}
    lines = []
    for head, body_ in _cases(after):
        then, change = old.get(head.name), by_name.get(head.name)
        was = None if then is None else EarlierCase(verdict=then.verdict, took=then.took)
        told = [] if change is None else [*change.lines]
        lines.append(text(replace(head, was=was, changed=change is not None)))
        lines.append(text({**decode_json(body_), "changes": told}))
    gone = tuple(each.name for each in found if each.after is None)
    against = ComparedRun(summary=before.run.summary, changed=len(found), gone=gone)
    lines.append(text(replace(after.run, against=against)))
    data = "".join(f"{line}\n" for line in lines).encode(errors="replace")
    return page(f"{after.run.summary} · compared · scenario", zlib.compress(data, 9))


# -------------------------------------------------------------------------------------------------
# A run -> one HTML file. Every case is packed as it comes, so that no trace outlives its case.


class HtmlReport:
    """Listens to a run and writes one page that holds all of it.

    The page's data are lines of JSON: a head and a body for each case, then what concerns the whole
    run. They are compressed as they come, as one stream, so that a run of any length costs no more
    memory than its page, and what cases have in common (a file's text) is stored once.
    """

    def __init__(self, file: TextIO) -> None:
        """Write to `file`."""
        self._file = file
        self._stream = zlib.compressobj(9)
        self._packed: list[bytes] = []
        self._diagnoses: dict[str, None] = {}

    def begin(self, total: int) -> None:
        """Nothing is written before the end."""

    def start(self, case: str) -> None:
        """Nothing is written before the end."""

    def finish(self, result: Result) -> None:
        """Keep what the page shows of a case."""
        self._add(text(head(result)))
        self._add(text(body(result)) if result.page is None else result.page)
        predicted = result.verdict.predicted
        if predicted is not None:
            self._diagnoses.update(dict.fromkeys(each.name for each in predicted.diagnoses))

    def end(self, outcome: Outcome) -> None:
        """Write the page."""
        summary = summary_lines(outcome)[-1].printable
        run = WholeRun(
            version=metadata.version("torch-scenarios"),
            summary=summary,
            environment=dict(environment(outcome)),
            interrupted=outcome.interrupted,
            explanations=_explanations(self._diagnoses),
        )
        self._add(text(run))
        self._packed.append(self._stream.flush())
        self._file.write(page(f"{summary} · scenario", b"".join(self._packed)))

    def _add(self, line: str) -> None:
        self._packed.append(self._stream.compress(line.encode(errors="replace") + b"\n"))


def _explanations(names: dict[str, None]) -> dict[str, dict[str, str]]:
    """Return what `scenario explain` says of the diagnoses in a run, without its examples."""
    return {
        name: {"what": each.what, "why": each.why, "fix": each.fix}
        for name in sorted(names)
        if (each := EXPLANATIONS.get(name)) is not None
    }
