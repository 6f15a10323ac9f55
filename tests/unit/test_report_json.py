"""Results as JSON and as lines of it, and what is read back from them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from outcomes import every_kind

from torch_scenarios.errors import ScenarioError
from torch_scenarios.pipeline.results import Outcome, Result
from torch_scenarios.report.json import JsonLinesReport, document, results_of, text
from torch_scenarios.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA = json.loads(
    (Path(__file__).parents[2] / "schemas" / "result.schema.json").read_text(encoding="utf-8")
)


@pytest.fixture
def outcome(tmp_path: Path) -> Outcome:
    return every_kind(tmp_path)


def lines_of(outcome: Outcome, *, until: int | None = None) -> str:
    file = io.StringIO()
    report = JsonLinesReport(file)
    report.begin(len(outcome.results))
    for result in outcome.results[:until]:
        report.finish(result)
    if until is None:
        report.end(outcome)
    return file.getvalue()


def told(path: Path) -> tuple[str, str]:
    with pytest.raises(ScenarioError) as raised:
        results_of(path)
    (problem,) = raised.value.problems
    return problem.code, f"{problem.message}; {problem.hint}"


def test_the_document_is_as_its_schema_describes(outcome: Outcome) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(text(outcome)))


def test_the_schema_lets_nothing_else_pass(outcome: Outcome) -> None:
    validator = jsonschema.Draft202012Validator(SCHEMA)
    changes: tuple[dict[str, Any], ...] = (
        {"extra": 1},
        {"version": 2},
        {"format": "scenario-results-lines"},
        {"results": [{}]},
        {"counts": {}},
        {"exit_code": 4},
    )
    for change in changes:
        assert not validator.is_valid({**document(outcome), **change}), change


def test_results_come_back_as_they_were_written(outcome: Outcome, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(text(outcome), encoding="utf-8")
    found = results_of(path)
    assert document(found) == document(outcome)
    assert found.exit_code == outcome.exit_code == 2


def test_lines_stream_each_result_as_it_comes(outcome: Outcome) -> None:
    class Watched(io.StringIO):
        flushed = 0

        def flush(self) -> None:
            self.flushed += 1

    file = Watched()
    report = JsonLinesReport(file)
    report.begin(10)
    report.finish(outcome.results[0])
    assert file.flushed == 2
    assert [json.loads(line)["kind"] for line in file.getvalue().splitlines()] == [
        "begin",
        "result",
    ]


def test_every_line_is_as_the_schema_describes(outcome: Outcome) -> None:
    validator = jsonschema.Draft202012Validator({"$ref": "#/$defs/line", "$defs": SCHEMA["$defs"]})
    found = [json.loads(line) for line in lines_of(outcome).splitlines()]
    assert [line["kind"] for line in found] == ["begin", *["result"] * 11, "end"]
    for line in found:
        validator.validate(line)
        assert not validator.is_valid({**line, "extra": 1})


def test_a_line_break_of_unicode_ends_no_line(tmp_path: Path) -> None:
    result = Result(file="a.yaml", case="one\u2028two\x85", verdict=Verdict(status="PASSED"))
    (tmp_path / "r.jsonl").write_text(lines_of(Outcome(results=(result,))), encoding="utf-8")
    assert results_of(tmp_path / "r.jsonl").results[0].case == result.case


def test_lines_read_back_are_the_document(outcome: Outcome, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(lines_of(outcome), encoding="utf-8")
    assert document(results_of(path)) == document(outcome)


def test_a_document_cut_anywhere_is_told_as_cut_off(outcome: Outcome, tmp_path: Path) -> None:
    whole = text(outcome)
    path = tmp_path / "r.json"
    for length in (60, len(whole) // 2, len(whole) - 3):
        path.write_text(whole[:length], encoding="utf-8")
        code, words = told(path)
        assert (code, "is cut off" in words) == ("truncated_result", True)
    path.write_text("", encoding="utf-8")
    assert told(path)[0] == "truncated_result"


def test_lines_without_a_last_one_are_told_as_cut_off(outcome: Outcome, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    for content in (lines_of(outcome, until=3), lines_of(outcome)[:-5]):
        path.write_text(content, encoding="utf-8")
        assert told(path)[0] == "truncated_result"


def test_a_newer_format_is_told_with_the_tool_that_wrote_it(
    outcome: Outcome, tmp_path: Path
) -> None:
    newer = {**document(outcome), "version": 2, "tool": {"name": "x", "version": "9.9"}}
    path = tmp_path / "r.json"
    path.write_text(json.dumps(newer), encoding="utf-8")
    code, words = told(path)
    assert code == "newer_result"
    assert "is of version 2" in words
    assert "9.9: install that one" in words
    first, *rest = lines_of(outcome).splitlines()
    path.write_text("\n".join([json.dumps({**json.loads(first), "version": 2}), *rest]), "utf-8")
    assert told(path)[0] == "newer_result"


@pytest.mark.parametrize(
    "content",
    ["no JSON", "{}", "[1, 2]", '{"version": 1, "results": []}', "<testsuites/>", "\x00\x01", "7"],
)
def test_a_file_that_is_not_ours_is_told_so(tmp_path: Path, content: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(content, encoding="utf-8")
    assert told(path)[0] == "not_a_result"


def test_a_file_that_is_no_text_or_not_there_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    assert told(tmp_path / "binary")[0] == "not_a_result"
    assert told(tmp_path / "missing")[0] == "unreadable_file"
    assert told(tmp_path)[0] == "unreadable_file"


def drop(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda found: found.pop(name) and None


def put(verdict: str) -> Callable[[dict[str, Any]], None]:
    return lambda found: found["results"][0].update(verdict=verdict)


@pytest.mark.parametrize("change", [drop("results"), drop("selection"), put("FINE")])
def test_a_document_that_somebody_changed_is_told_with_the_place(
    outcome: Outcome, tmp_path: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    found = document(outcome)
    change(found)
    path = tmp_path / "r.json"
    path.write_text(json.dumps(found), encoding="utf-8")
    code, words = told(path)
    assert code == "not_a_result"
    assert "is not as it was written: $" in words
