"""Results as JSON, and read back from it; schemas/result.schema.json describes them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from math import nan
from pathlib import Path
from typing import Any, NoReturn, TextIO, TypeVar

import jsonschema

from torch_scenarios.cost.structure import structure_json
from torch_scenarios.display import clean_json
from torch_scenarios.errors import Clause, Mark, Problem, Repair, ScenarioError, Source
from torch_scenarios.files import schema_file
from torch_scenarios.model.trace import Diagnosis, Event, Failure, RankTrace, Trace
from torch_scenarios.model.traffic import Structure, Traffic
from torch_scenarios.pipeline.results import FinalReport, Outcome, Result, Shard, environment
from torch_scenarios.report.text import details, find_blocked, structure_in
from torch_scenarios.source.documents import (
    BoundsError,
    DocumentError,
    decode_json,
    read_document,
)
from torch_scenarios.verdict import Difference, Finding, Verdict
from torch_scenarios.verdict.finding import StatedCost
from torch_scenarios.vocabulary import DIAGNOSES

T = TypeVar("T")

# -------------------------------------------------------------------------------------------------
# Results as JSON, for other programs; schemas/result.schema.json describes them.
#
# One document at the end (`--json`), or a line for each result as it comes (`--jsonl`). What
# :mod:`torch_scenarios.report.json` reads back is what is written here.

VERSION = 1
DOCUMENT = "scenario-results"
LINES = "scenario-results-lines"
TOOL = "torch-scenarios"
#: ranks that are listed one by one; of more, those in a row are named by the first and the last
LISTED = 64


#: made once: `json.dumps` makes an encoder for each call that is not as by default
_encoded = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


class JsonReport(FinalReport):
    """The whole of a run as one document.

    It has a version and a schema. A program that reads it can do so for years; one that reads the
    lines for people cannot.
    """

    def __init__(self, file: TextIO) -> None:
        """Write to `file`."""
        self._file = file

    def end(self, outcome: Outcome) -> None:
        """Write the document."""
        self._file.write(text(outcome))


class JsonLinesReport:
    """A line for each result as it comes, between one that begins and one that ends.

    A run that is killed has no last line, which is how a reader knows that it is not whole.
    """

    def __init__(self, file: TextIO) -> None:
        """Write to `file`; each line is there for a reader at once."""
        self._file = file

    def begin(self, total: int) -> None:
        """Write the first line."""
        self._write({"kind": "begin", **_origin(LINES), "total": total})

    def start(self, case: str) -> None:
        """Write nothing."""

    def finish(self, result: Result) -> None:
        """Write the result."""
        self._write({"kind": "result", "result": entry(result)})

    def end(self, outcome: Outcome) -> None:
        """Write the last line."""
        self._write({"kind": "end", "summary": _summary(outcome)})

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(clean_json(_encoded(line)) + "\n")
        self._file.flush()


def document(outcome: Outcome) -> dict[str, Any]:
    """Return the whole of the results as plain data."""
    return {
        **_origin(DOCUMENT, outcome.release),
        **_summary(outcome),
        "results": [entry(result) for result in outcome.results],
    }


def text(outcome: Outcome) -> str:
    """Return the document as JSON text that ends in a line break."""
    written = json.dumps(document(outcome), indent=2, ensure_ascii=False, allow_nan=False)
    return clean_json(written) + "\n"


def place_of(result: Result) -> Mark | None:
    """Return the place in a file where a result is best shown: that of its first problem.

    Editors and CI have one line for a case: what is wrong with the file comes before what is wrong
    with the program.
    """
    verdict = result.verdict
    marks = [*(each.mark for each in verdict.problems), *(each.mark for each in verdict.findings)]
    return next((mark for mark in marks if mark is not None), None)


def _origin(kind: str, release: str = "") -> dict[str, Any]:
    tool = {"name": TOOL, "version": release or _release()}
    return {"format": kind, "version": VERSION, "tool": tool}


def _release() -> str:
    try:
        return version(TOOL)
    except PackageNotFoundError:  # run from a folder, not installed
        return "unknown"


def _summary(outcome: Outcome) -> dict[str, Any]:
    return {
        "environment": environment(outcome),
        "exit_code": outcome.exit_code,
        "interrupted": outcome.interrupted,
        "duration_s": round(outcome.duration_s, 6),
        "counts": outcome.counts,
        "warning_count": len(outcome.all_warnings),
        "selection": {
            "cases": outcome.cases,
            "selected": outcome.selected,
            "shard": None if outcome.shard is None else str(outcome.shard),
            "seed": outcome.seed,
            "repeat": outcome.repeat,
            "strict": outcome.strict,
        },
        "notes": list(outcome.notes),
        "warnings": [_problem(each) for each in outcome.warnings],
    }


def entry(result: Result) -> dict[str, Any]:
    """Return one result as plain data, as `results` of schemas/result.schema.json describes it.

    Tensors are left out: `text` has the lines that a person reads, with the numbers that differ in
    them.
    """
    verdict = result.verdict
    return {
        "file": result.file,
        "case": result.case,
        "description": result.description,
        "tags": list(result.tags),
        "world_size": result.world_size,
        "verdict": verdict.status,
        "attempts": list(result.attempts),
        "duration_s": round(result.duration_s, 6),
        "predicted": None if verdict.predicted is None else _encode_prediction(verdict.predicted),
        "observed": None if verdict.observed is None else _encode_observation(verdict.observed),
        "problems": [
            *(_problem(problem) for problem in verdict.problems),
            *(_encode_finding(finding) for finding in verdict.findings),
        ],
        "warnings": [_problem(each) for each in verdict.warnings],
        "reason": verdict.reason,
        "notes": list(verdict.notes),
        "silently_wrong": verdict.silently_wrong,
        "compared": verdict.compared,
        "cost": _cost(verdict),
        "text": [line.printable for line in details(result)],
    }


def _encode_prediction(trace: Trace) -> dict[str, Any]:
    return {
        "outcome": trace.outcome,
        "sure": not trace.open,
        "open": list(trace.open),
        "diagnoses": list(dict.fromkeys(diagnosis.name for diagnosis in trace.diagnoses)),
        "explanations": _explanations(trace.diagnoses),
        "blocked": _encode_blocked(trace),
        "limits": list(trace.limits),
    }


#: faults of one kind at one step that are explained one by one
EXPLAINED = 3


def _explanations(diagnoses: Sequence[Diagnosis]) -> list[dict[str, Any]]:
    """Return an entry for each mistake; one for all of a kind at a step where they are many.

    Such an entry says how often (`times`), explains the first, and has the ranks of all.
    """
    alike: dict[tuple[str, int], list[Diagnosis]] = {}
    for diagnosis in diagnoses:
        alike.setdefault((diagnosis.name, diagnosis.index), []).append(diagnosis)
    by_place: dict[tuple[str, int, int], list[Diagnosis]] = {}
    for diagnosis in diagnoses:
        same = alike[diagnosis.name, diagnosis.index]
        number = 0 if len(same) > EXPLAINED else len(by_place)
        by_place.setdefault((diagnosis.name, diagnosis.index, number), []).append(diagnosis)
    return [
        {
            "diagnosis": same[0].name,
            "prose": same[0].prose,
            "ranks": ranges(_join_ranks([each.ranks for each in same])),
            "odd": ranges(_join_ranks([each.odd for each in same])),
            "times": len(same),
        }
        for same in by_place.values()
    ]


def _join_ranks(ranks: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the ranks of one fault as it has them; of several, each once, in their order."""
    return ranks[0] if len(ranks) == 1 else tuple(sorted({rank for each in ranks for rank in each}))


def _cost(verdict: Verdict) -> dict[str, Any] | None:
    """Return what the program costs, where the semantics let it complete and it was counted."""
    structure = structure_in(verdict)
    if structure is None:
        return None
    counted = structure_json(structure)
    return {
        **counted,
        "sent": _map_ranks({int(rank): size for rank, size in counted["sent"].items()}),
        "stated": [
            {
                "name": each.name,
                "min": each.low,
                "max": each.high,
                "computed": each.computed,
                "holds": each.holds,
                "ranks": ranges(each.ranks),
            }
            for each in verdict.costs
        ],
    }


def _encode_observation(trace: Trace) -> dict[str, Any]:
    return {
        "outcome": trace.outcome,
        "blocked": _encode_blocked(trace),
        "backend": trace.backend,
        "duration_s": round(trace.duration_s, 6),
        "died": {str(rank.rank): rank.died for rank in trace.ranks if rank.died is not None},
        "raised": {
            str(rank.rank): list(event.failure.kinds)
            for rank in trace.ranks
            for event in rank.events[-1:]
            if rank.ending == "raised" and event.failure is not None
        },
        "notes": list(trace.notes),
        **({"hosts": _hosts(trace)} if trace.hosts else {}),
    }


def _hosts(trace: Trace) -> dict[str, list[Any]]:
    by_host: dict[str, list[int]] = {}
    for rank, host in sorted(trace.hosts.items()):
        by_host.setdefault(host, []).append(rank)
    return {host: ranges(ranks) for host, ranks in by_host.items()}


def _encode_blocked(trace: Trace) -> dict[str, str]:
    return _map_ranks(find_blocked(trace))


def _map_ranks(values: Mapping[int, T]) -> dict[str, T]:
    """Return a value for each rank as plain data: of many, those in a row that share it are one.

    A job of 16,384 ranks that all wait in one call is `{"0-16383": "all_reduce"}`, and not 16,384
    entries.
    """
    if len(values) <= LISTED:
        return {str(rank): value for rank, value in values.items()}
    alike: dict[T, list[int]] = {}
    for rank, value in values.items():
        alike.setdefault(value, []).append(rank)
    return {
        str(part) if isinstance(part, int) else f"{part[0]}-{part[1]}": value
        for value, ranks in alike.items()
        for part in ranges(ranks, listed=0)
    }


def ranges(ranks: Sequence[int], *, listed: int = LISTED) -> list[int | list[int]]:
    """Return ranks as plain data: one by one, or of many those in a row as `[first, last]`.

    >>> ranges([0, 1, 2]), ranges(range(1000)), ranges([*range(99), 200])
    ([0, 1, 2], [[0, 999]], [[0, 98], 200])
    """
    if len(ranks) <= listed:
        return list(ranks)
    found: list[int | list[int]] = []
    row: list[int] = []
    for rank in (*sorted(set(ranks)), None):
        if row and rank != row[-1] + 1:
            found.append([row[0], row[-1]] if len(row) > 1 else row[0])
            row = []
        if rank is not None:
            row = [row[0], rank] if row else [rank]
    return found


def _problem(problem: Problem) -> dict[str, Any]:
    return {
        "code": problem.code,
        **_place(problem.mark),
        "message": problem.message,
        "hint": problem.hint,
        **_repair(problem.repair),
    }


def _repair(repair: Repair | None) -> dict[str, Any]:
    """Return an edit as editors take it: places count from 1, the end is exclusive."""
    if repair is None:
        return {}
    source, edits = repair.source, []
    for edit in repair.edits:
        line, column = source.place(edit.start)
        end_line, end_column = source.place(edit.end)
        place = {"line": line, "column": column, "end_line": end_line, "end_column": end_column}
        edits.append({**place, "text": edit.text})
    said = {"title": repair.title, "sure": repair.sure, "file": source.path, "edits": edits}
    return {"repair": said}


def _encode_finding(finding: Finding) -> dict[str, Any]:
    """Return one finding as an entry of `problems`; `alone` is the witness that differs."""
    absolute = [d.max_abs for d in finding.differences if d.max_abs is not None]
    relative = [d.max_rel for d in finding.differences if d.max_rel is not None]
    return {
        "code": finding.kind,
        **_place(finding.mark),
        "message": ": ".join(filter(None, (finding.prose, _explain(finding.notes)))),
        "hint": finding.guess or finding.fix,
        "notes": [{**_place(note.mark), "message": note.bare} for note in finding.notes],
        "alone": finding.witness,
        "ranks": ranges(finding.ranks),
        "step": finding.label,
        "iteration": list(finding.iteration),
        "name": finding.name,
        "max_abs": max(absolute) if absolute else None,
        "max_rel": max(relative) if relative else None,
        **_repair(finding.repair),
    }


def _explain(notes: Iterable[Clause]) -> str:
    """Return what the notes say in one sentence; their places are their own.

    Of a record the lines of the script are in it: they are what its author knows.
    """
    return "; ".join(_add_line(note) for note in notes)


def _add_line(note: Clause) -> str:
    recorded = None if note.mark is None else note.mark.at
    return f"{note.bare} ({recorded})" if recorded else note.bare


def _place(mark: Mark | None) -> dict[str, Any]:
    if mark is None:
        return {"file": None, "line": None, "column": None}
    place = {"file": mark.source.path, "line": mark.line, "column": mark.column}
    if mark.end_column is not None:
        place |= {"end_line": mark.end_line or mark.line, "end_column": mark.end_column}
    return place if mark.at is None else {**place, "at": mark.at}


# -------------------------------------------------------------------------------------------------
# Results read back from what `--json` or `--jsonl` wrote: the same results, without tensors.
#
# Raises ScenarioError with one problem that says what the file is instead: not ours, of a newer
# version, cut off in the middle, or edited.

Json = dict[str, Any]


def results_of(path: str | Path) -> Outcome:
    """Return the outcome that a file of results tells. Raises ScenarioError.

    Such a file may come from another machine (`scenario merge`, an artifact of CI): it is read by
    bounds, held against its schema, and never executed. What is read back has no tensors.
    """
    try:
        text = read_document(path).decode()
    except OSError as error:
        _refuse("unreadable_file", path, f"cannot be read: {error.strerror or error}")
    except UnicodeDecodeError:
        _refuse("not_a_result", path, _NOT_OURS)
    except DocumentError as error:
        _refuse("not_a_result", path, f"cannot be read: {error}")
    document = _document(path, text)
    _police(path, document)
    return _outcome(document)


_NOT_OURS = f"holds no results of `scenario run --json` (nothing says `{DOCUMENT}` in it)"
_CUT_OFF = "is cut off: the command that wrote it was ended, or the copy is not complete"


def _document(path: str | Path, text: str) -> Json:
    """Return the whole document; lines become what they would have been as one."""
    if not text.strip():
        _refuse("truncated_result", path, "is empty")
    ours = f'"{DOCUMENT}"' in text[:200] or f'"{LINES}"' in text[:200]
    try:
        if f'"{LINES}"' in text[:200]:
            return _join(path, text)
        found = decode_json(text)
    except BoundsError as error:
        _refuse("not_a_result", path, f"cannot be read: {error}")
    except DocumentError:
        if ours:
            _refuse("truncated_result", path, _CUT_OFF)
        _refuse("not_a_result", path, _NOT_OURS)
    if not isinstance(found, dict) or found.get("format") != DOCUMENT:
        _refuse("not_a_result", path, _NOT_OURS)
    return found


def _join(path: str | Path, text: str) -> Json:
    # not `splitlines`: JSON leaves characters as they are that end lines elsewhere
    """Return lines as the document that they would have been.

    One that a run was killed in is refused.
    """
    lines = [decode_json(line) for line in text.rstrip("\n").split("\n")]
    if not all(isinstance(line, dict) for line in lines):
        raise DocumentError(_NOT_OURS)
    if lines[0].get("version") != VERSION:
        return {**lines[0], "format": DOCUMENT}  # told as what it is: a newer one
    if lines[-1].get("kind") != "end":
        _refuse("truncated_result", path, f"{_CUT_OFF}; its last line does not end it")
    origin = {name: lines[0].get(name) for name in ("version", "tool")}
    results = [line.get("result") for line in lines[1:-1]]
    summary = lines[-1].get("summary")
    if not isinstance(summary, dict):
        raise DocumentError(_NOT_OURS)
    return {"format": DOCUMENT, **origin, **summary, "results": results}


def _is_whole(_: object, value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


#: JSON Schema takes 1e308 for an integer; it counts nothing here
_Validator: Any = jsonschema.validators.extend(  # type: ignore[no-untyped-call]
    jsonschema.Draft202012Validator,
    type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_whole),
)


def _police(path: str | Path, document: Json) -> None:
    """Refuse what the schema does not describe: a newer version, or a file that was edited."""
    version = document.get("version")
    if isinstance(version, int) and version > VERSION:
        tool = document.get("tool")
        release = tool.get("version", "a newer one") if isinstance(tool, dict) else "a newer one"
        text = f"is of version {version} of the format, and this {TOOL} reads {VERSION}"
        hint = f"it was written by {TOOL} {release}: install that one"
        _refuse("newer_result", path, text, hint)
    schema = json.loads(schema_file("result.schema.json").read_text(encoding="utf-8"))
    validator = _Validator(schema)
    error = next(iter(validator.iter_errors(document)), None)
    if error is not None:
        _refuse(
            "not_a_result",
            path,
            f"is not as it was written: {error.json_path}: {error.message:.200}",
        )


def _refuse(code: str, path: str | Path, text: str, hint: str | None = None) -> NoReturn:
    raise ScenarioError([Problem(code=code, message=f"{path} {text}", hint=hint)])


# ---------------------------------------------------------------------------- the values


def _outcome(document: Json) -> Outcome:
    environment = dict(document["environment"])
    environment.pop("backend", None)
    selection = document["selection"]
    shard = selection["shard"]
    return Outcome(
        results=tuple(_result(each, environment) for each in document["results"]),
        interrupted=document["interrupted"],
        duration_s=document["duration_s"],
        cases=selection["cases"],
        selected=selection["selected"],
        shard=None
        if shard is None
        else Shard(number=int(shard.split("/")[0]), of=int(shard.split("/")[1])),
        seed=selection["seed"],
        repeat=selection["repeat"],
        notes=tuple(document["notes"]),
        warnings=tuple(_read_problem(each) for each in document["warnings"]),
        strict=selection["strict"],
        release=document["tool"]["version"],
    )


def _result(entry: Json, environment: Mapping[str, str]) -> Result:
    verdict = Verdict(
        status=entry["verdict"],
        findings=tuple(_read_finding(each) for each in entry["problems"] if "alone" in each),
        predicted=None if entry["predicted"] is None else _read_predicted(entry),
        observed=None
        if entry["observed"] is None
        else _read_observed(entry["observed"], environment),
        problems=tuple(_read_problem(each) for each in entry["problems"] if "alone" not in each),
        warnings=tuple(_read_problem(each) for each in entry["warnings"]),
        reason=entry["reason"],
        notes=tuple(entry["notes"]),
        compared=entry["compared"],
        silently_wrong=entry["silently_wrong"],
        costs=_read_stated(entry.get("cost")),
    )
    return Result(
        file=entry["file"],
        case=entry["case"],
        verdict=verdict,
        duration_s=entry["duration_s"],
        description=entry["description"],
        tags=tuple(entry["tags"]),
        world_size=entry["world_size"],
        attempts=tuple(entry["attempts"]),
        text=tuple(entry["text"]),
    )


def _read_predicted(result: Json) -> Trace:
    """Return what was predicted, as far as a report needs it.

    Outcome, diagnoses, who is blocked, cost.
    """
    entry = result["predicted"]
    diagnoses = (
        Diagnosis(
            name=each["diagnosis"],
            clauses=tuple(Clause(clause) for clause in each["prose"].split("; ")),
            ranks=_ranks(each["ranks"]),
            odd=_ranks(each["odd"]),
        )
        for each in entry["explanations"]
    )
    return Trace(
        backend="reference",
        outcome=entry["outcome"],
        ranks=_read_blocked(entry),
        open=tuple(entry["open"]),
        diagnoses=tuple(diagnoses),
        limits=tuple(entry["limits"]),
        traffic=_read_cost(result.get("cost")),
    )


def _read_observed(entry: Json, environment: Mapping[str, str]) -> Trace:
    """Return what a run came to: one event for each rank that did not finish."""
    died = (
        RankTrace(rank=int(rank), ending="died", died=how) for rank, how in entry["died"].items()
    )
    raised = (
        RankTrace(
            rank=int(rank),
            ending="raised",
            events=(Event(index=-1, label="", failure=Failure(kinds=tuple(kinds))),),
        )
        for rank, kinds in entry["raised"].items()
    )
    return Trace(
        backend=entry["backend"],
        outcome=entry["outcome"],
        ranks=(*_read_blocked(entry), *died, *raised),
        duration_s=entry["duration_s"],
        notes=tuple(entry["notes"]),
        environment=environment,
        hosts={
            rank: host for host, ranks in entry.get("hosts", {}).items() for rank in _ranks(ranks)
        },
    )


def _read_blocked(entry: Json) -> tuple[RankTrace, ...]:
    labels: dict[int, str] = _list_by_rank(entry["blocked"])
    return tuple(
        RankTrace(rank=rank, ending="blocked", events=(Event(index=-1, label=labels[rank]),))
        for rank in sorted(labels)
    )


def _list_by_rank(told: Mapping[str, T]) -> dict[int, T]:
    """Return a value for each rank that has one by itself, or with those in a row.

    >>> _list_by_rank({"0": "a", "1-3": "b"})
    {0: 'a', 1: 'b', 2: 'b', 3: 'b'}
    """
    found: dict[int, T] = {}
    for key, value in told.items():
        first, _, last = key.partition("-")
        found |= dict.fromkeys(range(int(first), int(last or first) + 1), value)
    return found


def _read_cost(entry: Json | None) -> Traffic | None:
    if entry is None:
        return None
    sizes: dict[int, float | None] = _list_by_rank(entry["sent"])
    sent = {rank: nan if size is None else size for rank, size in sizes.items()}
    structure = Structure(
        rounds=entry["rounds"],
        messages=entry["messages"],
        sent=tuple(sent[rank] for rank in sorted(sent)),
        collectives=tuple(entry["collectives"]),
    )
    return Traffic.count_bytes(structure)


def _read_stated(entry: Json | None) -> tuple[StatedCost, ...]:
    return tuple(
        StatedCost(
            name=each["name"],
            low=each["min"],
            high=each["max"],
            computed=each["computed"],
            holds=each["holds"],
            ranks=_ranks(each["ranks"]),
        )
        for each in (entry or {}).get("stated", ())
    )


def _ranks(told: Sequence[int | list[int]]) -> tuple[int, ...]:
    """Return ranks, each named, or those in a row by the first and the last.

    >>> _ranks([0, [4, 6]])
    (0, 4, 5, 6)
    """
    parts = ([each] if isinstance(each, int) else range(each[0], each[1] + 1) for each in told)
    return tuple(rank for part in parts for rank in part)


def _mark(entry: Json) -> Mark | None:
    if entry.get("file") is None or entry["line"] is None:
        return None
    source = Source(path=entry["file"], text="")
    return Mark(
        source=source,
        line=entry["line"],
        column=entry["column"],
        end_line=entry.get("end_line"),
        end_column=entry.get("end_column"),
        at=entry.get("at"),
    )


def _read_problem(entry: Json) -> Problem:
    return Problem(
        code=entry["code"], message=entry["message"], mark=_mark(entry), hint=entry["hint"]
    )


def _read_finding(entry: Json) -> Finding:
    """Return the finding of what :func:`_encode_finding` wrote.

    Its differences are the largest errors alone.
    """
    errors = Difference(
        rank=-1,
        code=entry["code"],
        message="",
        expected=None,
        got=None,
        max_abs=entry["max_abs"],
        max_rel=entry["max_rel"],
    )
    undeclared = entry["name"] == "diagnosis" and entry["code"] in DIAGNOSES
    notes = tuple(Clause(note["message"], _mark(note)) for note in entry.get("notes", ()))
    message = entry["message"].removesuffix(f": {_explain(notes)}")
    return Finding(
        witness=entry["alone"],
        code="diagnosis_undeclared" if undeclared else entry["code"],
        prose=message,
        diagnosis=entry["code"] if undeclared else None,
        mark=_mark(entry),
        ranks=_ranks(entry["ranks"]),
        label=entry["step"],
        iteration=tuple(entry["iteration"]),
        name=entry["name"],
        differences=(errors,),
        guess=entry["hint"] if entry["alone"] != "program" else None,
        fix=entry["hint"] if entry["alone"] == "program" else None,
        notes=notes,
    )
