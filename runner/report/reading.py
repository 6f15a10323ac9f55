"""Results read back from what `--json` or `--jsonl` wrote: the same results, without tensors.

Raises ScenarioError with one problem that says what the file is instead: not ours, of a newer
version, cut off in the middle, or changed by somebody.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import jsonschema

from runner.problems import Mark, Problem, ScenarioError, Source
from runner.report.json_report import DOCUMENT, LINES, TOOL, VERSION
from runner.results import Outcome, Result, Shard
from runner.schema_files import schema_file
from runner.trace import Diagnosis, Event, Failure, RankTrace, Trace
from runner.verdict.finding import Difference, Finding, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Json = dict[str, Any]


def results_of(path: str | Path) -> Outcome:
    """Return the outcome that a file of results tells. Raises ScenarioError."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        _refuse("unreadable_file", path, f"cannot be read: {error.strerror or error}")
    except UnicodeDecodeError:
        _refuse("not_a_result", path, _NOT_OURS)
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
            return _joined(path, text)
        found = json.loads(text)
    except ValueError:
        if ours:
            _refuse("truncated_result", path, _CUT_OFF)
        _refuse("not_a_result", path, _NOT_OURS)
    if not isinstance(found, dict) or found.get("format") != DOCUMENT:
        _refuse("not_a_result", path, _NOT_OURS)
    return found


def _joined(path: str | Path, text: str) -> Json:
    # not `splitlines`: JSON leaves characters as they are that end lines elsewhere
    lines = [json.loads(line) for line in text.rstrip("\n").split("\n")]
    if lines[0].get("version") != VERSION:
        return {**lines[0], "format": DOCUMENT}  # told as what it is: a newer one
    if lines[-1].get("kind") != "end":
        _refuse("truncated_result", path, f"{_CUT_OFF}; its last line is none that ends it")
    origin = {name: lines[0].get(name) for name in ("version", "tool")}
    results = [line.get("result") for line in lines[1:-1]]
    return {"format": DOCUMENT, **origin, **lines[-1].get("summary", {}), "results": results}


def _police(path: str | Path, document: Json) -> None:
    version = document.get("version")
    if isinstance(version, int) and version > VERSION:
        release = document.get("tool", {}).get("version", "a newer one")
        text = f"is of version {version} of the format, and this {TOOL} reads {VERSION}"
        hint = f"it was written by {TOOL} {release}: install that one"
        _refuse("newer_result", path, text, hint)
    schema = json.loads(schema_file("result.schema.json").read_text(encoding="utf-8"))
    validator = jsonschema.Draft202012Validator(schema)
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
        warnings=tuple(_problem(each) for each in document["warnings"]),
        strict=selection["strict"],
        release=document["tool"]["version"],
    )


def _result(entry: Json, environment: Mapping[str, str]) -> Result:
    verdict = Verdict(
        status=entry["verdict"],
        findings=tuple(_finding(each) for each in entry["problems"] if "alone" in each),
        predicted=None if entry["predicted"] is None else _predicted(entry["predicted"]),
        observed=None if entry["observed"] is None else _observed(entry["observed"], environment),
        problems=tuple(_problem(each) for each in entry["problems"] if "alone" not in each),
        warnings=tuple(_problem(each) for each in entry["warnings"]),
        reason=entry["reason"],
        notes=tuple(entry["notes"]),
        compared=entry["compared"],
        silently_wrong=entry["silently_wrong"],
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


def _predicted(entry: Json) -> Trace:
    diagnoses = (
        Diagnosis(
            name=each["diagnosis"],
            prose=each["prose"],
            ranks=_ranks(each["ranks"]),
            odd=_ranks(each["odd"]),
        )
        for each in entry["explanations"]
    )
    return Trace(
        backend="reference",
        outcome=entry["outcome"],
        ranks=_blocked(entry),
        open=tuple(entry["open"]),
        diagnoses=tuple(diagnoses),
        limits=tuple(entry["limits"]),
    )


def _observed(entry: Json, environment: Mapping[str, str]) -> Trace:
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
        ranks=(*_blocked(entry), *died, *raised),
        duration_s=entry["duration_s"],
        notes=tuple(entry["notes"]),
        environment=environment,
    )


def _blocked(entry: Json) -> tuple[RankTrace, ...]:
    labels: dict[int, str] = {}
    for key, label in entry["blocked"].items():
        first, _, last = key.partition("-")
        labels |= dict.fromkeys(range(int(first), int(last or first) + 1), label)
    return tuple(
        RankTrace(rank=rank, ending="blocked", events=(Event(index=-1, label=labels[rank]),))
        for rank in sorted(labels)
    )


def _ranks(told: Sequence[int | list[int]]) -> tuple[int, ...]:
    """Return ranks that are told one by one, or in a row by the first and the last."""
    parts = ([each] if isinstance(each, int) else range(each[0], each[1] + 1) for each in told)
    return tuple(rank for part in parts for rank in part)


def _mark(entry: Json) -> Mark | None:
    if entry.get("file") is None or entry["line"] is None:
        return None
    source = Source(path=entry["file"], text="")
    return Mark(source=source, line=entry["line"], column=entry["column"])


def _problem(entry: Json) -> Problem:
    return Problem(
        code=entry["code"], message=entry["message"], mark=_mark(entry), hint=entry["hint"]
    )


def _finding(entry: Json) -> Finding:
    errors = Difference(
        rank=-1,
        code=entry["code"],
        message="",
        expected=None,
        got=None,
        max_abs=entry["max_abs"],
        max_rel=entry["max_rel"],
    )
    return Finding(
        witness=entry["alone"],
        code=entry["code"],
        prose=entry["message"],
        mark=_mark(entry),
        ranks=_ranks(entry["ranks"]),
        label=entry["step"],
        iteration=tuple(entry["iteration"]),
        name=entry["name"],
        differences=(errors,),
        guess=entry["hint"],
    )
