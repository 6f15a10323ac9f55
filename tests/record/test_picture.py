"""`scenario show DIR`: a record as a picture, with the script's lines, in real times."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from click.testing import CliRunner, Result
from handwritten_records import ALL_GATHER, ALL_REDUCE, BARRIER, recorded

from torch_scenarios.cli import cli
from torch_scenarios.record.format import read
from torch_scenarios.record.picture import picture
from torch_scenarios.report.html.page import cases_of

if TYPE_CHECKING:
    from pathlib import Path


def shown(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["show", *map(str, arguments)])


def test_the_lines_are_those_of_the_script(tmp_path: Path) -> None:
    record = recorded(tmp_path / "a", (ALL_GATHER, BARRIER), (ALL_GATHER, BARRIER))
    said = shown(record)
    assert said.exit_code == 0, said.output
    assert "  10  ●━━━━━━━━━●  all_gather_single" in said.output
    assert "  13  ●━━━━━━━━━●  barrier" in said.output
    found = picture(read(record), record / "scenario.yaml", script="train.py", folder="/me")
    assert found.scenario is not None
    assert found.scenario.source.path == "train.py"
    assert found.scenario.source.line(10) == "x"


def test_ranks_that_part_are_drawn_where_they_stand(tmp_path: Path) -> None:
    record = recorded(tmp_path / "a", (ALL_REDUCE, BARRIER), (BARRIER, ALL_REDUCE))
    said = shown(record).output
    assert "call_mismatch" in said
    assert "(train.py:12)" in said
    assert "(train.py:13)" in said


def test_a_trace_has_the_times_of_the_run(tmp_path: Path) -> None:
    record = recorded(tmp_path / "a", (ALL_GATHER, BARRIER), (ALL_GATHER, BARRIER))
    trace, page = tmp_path / "trace.json", tmp_path / "page.html"
    said = shown(record, "--trace", trace, "--html", page)
    assert said.exit_code == 0, said.output
    events: list[dict[str, Any]] = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    times = {
        (each["name"], each["ts"])
        for each in events
        if each.get("ph") == "X" and each["name"] in {"all_gather_single", "barrier"}
    }
    assert {("all_gather_single", 0), ("barrier", 10)} <= times
    assert [file for file, _ in cases_of(str(page))] == ["train.py"]


def test_reports_of_a_scenario_are_those_of_run(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("world_size: 1\nsteps:\n  - barrier: {}\n", encoding="utf-8")
    said = shown(file, "--html", tmp_path / "page.html")
    assert said.exit_code == 2
    assert "`scenario run` has it" in said.output
