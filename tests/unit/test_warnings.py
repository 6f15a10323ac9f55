"""Warnings: what passes and should be looked at is shown, counted, and fails with `--strict`."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import jsonschema
import pytest
from click.testing import CliRunner, Result
from sampling import sampled

from torch_scenarios.cli import cli
from torch_scenarios.errors import Mark, Source, make_warning
from torch_scenarios.language.context import Problems
from torch_scenarios.pipeline.results import Outcome
from torch_scenarios.pipeline.results import Result as CaseResult
from torch_scenarios.report.json import document, results_of
from torch_scenarios.verdict import Verdict

SCHEMA = Path(__file__).parents[2] / "schemas" / "result.schema.json"

WARNED = """\
world_size: 2
matrix: {n: [1, 2]}
tensors: {x: "full(n, 1)"}
steps:
  - all_reduce: {tensor: x}
    expect: {x: "full(n, 2)"}
  - name: lost
    ranks: rank > 5
    barrier: {}
"""
SAYS = "warning[step_without_ranks]: no rank takes `lost`\n    --> warned.yaml:8:12"
LINE = "warning: warned.yaml:8:12: no rank takes `lost` [step_without_ranks]"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with a scenario that has a warning, in both of its cases."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    (tmp_path / "warned.yaml").write_text(WARNED, encoding="utf-8")
    return tmp_path


def called(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


def of_a_file() -> Outcome:
    mark = Mark(source=Source(path="link.yaml", text=""), line=1, column=1)
    said = make_warning("step_without_ranks", "the file is passed over", mark, "name it")
    return Outcome(results=(), warnings=(said,))


def test_a_warning_is_shown_once_for_a_file_and_counted() -> None:
    result = called("check", "warned.yaml")
    assert result.exit_code == 0
    assert result.output.count(f"  {SAYS}") == 1
    assert "        ranks: rank > 5" in result.output
    assert "    = help: change its `ranks:`" in result.output
    assert "2 passed, 1 warning in" in result.output


@pytest.mark.parametrize("command", [["check"], ["run", "--dry-run"]])
def test_a_strict_check_fails_with_a_warning(command: list[str]) -> None:
    result = called(*command, "warned.yaml", "--strict")
    assert result.exit_code == 1
    assert result.output.startswith("FAILED       warned.yaml::warned")
    assert result.output.splitlines()[1] == "  in 2 cases: [n=1], [n=2]"
    assert result.output.count("\nFAILED       warned.yaml::") == 0
    assert "  with --strict a warning is a failure" in result.output
    assert "2 failed, 1 warning in" in result.output


def test_a_strict_check_passes_without_a_warning(folder: Path) -> None:
    (folder / "warned.yaml").write_text(WARNED.replace("rank > 5", "rank >= 0"), encoding="utf-8")
    assert called("check", "warned.yaml", "--strict").exit_code == 0


def test_the_status_of_a_worse_verdict_stays_under_strict() -> None:
    said = of_a_file().warnings
    for status in ("FAILED", "INCONCLUSIVE"):
        verdict = Verdict(status=status, warnings=said, reason="its own")
        assert verdict.strict() == verdict
    assert Verdict(status="UNSUPPORTED", warnings=said).strict().status == "FAILED"
    assert Verdict(status="PASSED").strict().status == "PASSED"


def test_a_warning_of_no_case_fails_a_strict_run_alone() -> None:
    passed = called("check", "warned.yaml", "--json", "found.json")
    assert passed.exit_code == 0
    outcome = results_of("found.json")
    assert Outcome(results=outcome.results, warnings=of_a_file().warnings).exit_code == 0
    strict = Outcome(results=outcome.results, warnings=of_a_file().warnings, strict=True)
    assert strict.exit_code == 1


def test_json_has_each_warning_and_their_number() -> None:
    called("check", "warned.yaml", "--json", "found.json")
    found = json.loads(Path("found.json").read_text(encoding="utf-8"))
    jsonschema.validate(found, json.loads(SCHEMA.read_text(encoding="utf-8")))
    assert found["warning_count"] == 1
    assert found["selection"]["strict"] is False
    for result in found["results"]:
        (said,) = result["warnings"]
        assert said == {
            "code": "step_without_ranks",
            "file": "warned.yaml",
            "line": 8,
            "column": 12,
            "end_line": 8,
            "end_column": 20,
            "message": "no rank takes `lost`",
            "hint": "change its `ranks:` or its group, or remove the step",
        }


def test_json_of_a_strict_check_says_why_it_failed() -> None:
    called("check", "warned.yaml", "--strict", "--json", "found.json")
    found = json.loads(Path("found.json").read_text(encoding="utf-8"))
    assert {result["reason"] for result in found["results"]} == {
        "with --strict a warning is a failure"
    }
    assert found["selection"]["strict"] is True


def test_warnings_come_back_from_a_file_of_results() -> None:
    called("check", "warned.yaml", "--strict", "--json", "found.json")
    read = results_of("found.json")
    assert json.loads(Path("found.json").read_text(encoding="utf-8")) == document(read)
    merged = called("merge", "found.json")
    assert merged.exit_code == 1
    assert merged.output.count(f"  {SAYS}") == 1
    assert "2 failed, 1 warning in" in merged.output


def test_junit_has_them_as_output_and_counts_them_for_the_suite() -> None:
    called("check", "warned.yaml", "--junit", "found.xml")
    root = ET.parse("found.xml").getroot()  # noqa: S314 -- our own
    assert [SAYS in (each.text or "") for each in root.iter("system-out")] == [True, True]
    facts = {each.get("name"): each.get("value") for each in root.iter("property")}
    assert facts["warnings"] == "1"
    assert not list(root.iter("failure"))


def test_tap_has_them_in_the_block_and_counts_them() -> None:
    called("check", "warned.yaml", "--tap", "found.tap")
    text = Path("found.tap").read_text(encoding="utf-8")
    assert text.count(f'    - "{LINE}"') == 2
    assert text.endswith("# 1 warning\n")


def test_markdown_lists_and_counts_them() -> None:
    called("check", "warned.yaml", "--markdown", "found.md")
    text = Path("found.md").read_text(encoding="utf-8")
    assert text.startswith("## Scenarios: all passed, 1 warning\n")
    assert "<summary>1 warning</summary>" in text
    code = "&#91;step&#95;without&#95;ranks&#93;"
    inert = f"warning: warned.yaml:8:12: no rank takes &#96;lost&#96; {code}"
    assert text.count(f"<li>{inert}</li>") == 1


def test_github_annotates_the_line_once() -> None:
    output = called("check", "warned.yaml", "--github").output
    start = (
        "::warning file=warned.yaml,line=8,col=12,endLine=8,endColumn=19,title=step_without_ranks::"
    )
    assert output.count(start) == 1
    assert "::error" not in output


def test_the_language_stage_hands_its_warnings_over_in_order_of_place() -> None:
    problems = Problems()
    source = Source(path="a.yaml", text="")
    for line in (9, 2, 9):
        mark = Mark(source=source, line=line, column=1)
        problems.warn("step_without_ranks", "no rank takes it", mark)
    assert [each.mark.line for each in problems.warnings if each.mark] == [2, 9]
    problems.raise_any()


# ---------------------------------------------------------------------------- of the analysis


def warned(text: str, folder: Path) -> list[tuple[str, str]]:
    (folder / "warned.yaml").write_text(text, encoding="utf-8")
    (result,) = _checked(folder / "warned.yaml")
    assert result.verdict.status == "PASSED", result.verdict.findings
    return [(each.code, each.message) for each in result.verdict.warnings]


def _checked(path: Path) -> tuple[CaseResult, ...]:
    called("check", str(path), "--max-ranks", "64", "--json", "found.json")
    return results_of("found.json").results


def test_a_collective_outside_of_its_group_says_on_which_ranks(folder: Path) -> None:
    text = """\
world_size: WORLD
groups: {even: "range(0, world_size, 2)"}
tensors: {x: [1]}
steps:
  - {ranks: "rank < 4", all_reduce: {tensor: x, group: even}}
  - {ranks: "rank >= 4", all_reduce: {tensor: x, group: even}}
"""
    small = text.replace("WORLD", "4").replace('  - {ranks: "rank >= 4"', '  - {ranks: "rank > 9"')
    assert warned(small.rsplit("  - ", 1)[0], folder) == [
        (
            "outside_of_group",
            "ranks 1, 3 take `all_reduce on even` outside of the group even: it does nothing there",
        )
    ]
    assert [code for code, _ in warned(text.replace("WORLD", "32"), folder)] == (
        ["outside_of_group"] * 2
    )


def test_a_group_that_a_step_creates_has_outsiders_too(folder: Path) -> None:
    text = """\
world_size: 3
tensors: {x: [1]}
steps:
  - new_group: {name: pair, group_ranks: [0, 1]}
  - {ranks: "range(3)", all_reduce: {tensor: x, group: pair}}
"""
    ((code, said),) = warned(text, folder)
    assert (code, said.split(" takes ")[0]) == ("outside_of_group", "rank 2")


@pytest.mark.parametrize("size", [2, 20])
@pytest.mark.parametrize(
    ("call", "apart"),
    [
        ("all_reduce: {tensor: NAME}", True),
        ("broadcast: {tensor: NAME, src: 0}", True),
        ("all_reduce: {tensor: x}", False),
        ("barrier: {}", False),
    ],
)
@pytest.mark.parametrize("stated", [False, True])
def test_two_steps_that_meet_are_told_where_nothing_states_the_result(
    size: int,
    call: str,
    apart: bool,  # noqa: FBT001 -- a column of the table
    stated: bool,  # noqa: FBT001
    folder: Path,
) -> None:
    text = f"""\
world_size: {size}
tensors: {{acc: [1, 2], f1: [3, 4], x: [5, 6]}}
steps:
  - {{ranks: 0, {call.replace("NAME", "acc")}}}
  - {{ranks: rank > 0, {call.replace("NAME", "f1")}}}
"""
    if stated:
        text += "expect: {f1: {0: [3, 4]}}\n"
    said = warned(text, folder)
    assert [code for code, _ in said] == (["steps_apart"] if apart and not stated else [])
    if said:
        assert "(warned.yaml:4) on rank 0" in said[0][1]
        assert "(warned.yaml:5) on rank" in said[0][1]


def test_steps_of_two_groups_do_not_meet(folder: Path) -> None:
    text = """\
world_size: 32
groups: {half: {partition: ["range(16)", "range(16, 32)"]}}
tensors: {acc: [1], f1: [1]}
steps:
  - {ranks: "rank < 16", all_reduce: {tensor: acc, group: half}}
  - {ranks: "rank >= 16", all_reduce: {tensor: f1, group: half}}
"""
    assert warned(text, folder) == []


@pytest.mark.parametrize("size", [3, 20])
@pytest.mark.parametrize(
    ("step", "part"),
    sampled(
        [
            ('all_reduce: {tensor: "x[4:8]"}', "x[4:8]"),
            ('all_reduce: {tensor: "x[3:1]"}', "x[3:1]"),
            ('all_reduce: {tensor: "x[rank:rank]"}', "x[rank:rank]"),
            ('compute: {"x[2:2]": "0"}', "x[2:2]"),
            ('compute: {z: "sum(x[n:])"}', "x[n:]"),
            ('{ranks: 0, compute: {z: "x[:rank]"}}', "x[:rank]"),
            ('all_reduce: {tensor: "x[2:4]"}', None),
            ('compute: {z: "x[:rank]"}', None),
            ('{ranks: [0, 1], compute: {z: "x[:rank]"}}', None),
            ('{ranks: rank > 99, compute: {z: "x[9:]"}}', None),
            ('{for: {i: "range(2)"}, steps: [{compute: {z: "x[:i]"}}]}', None),
            ('compute: {z: "[sum(x[:i]) for i in range(2)]"}', None),
            ('compute: {empty: "zeros(0)", z: "empty[1:]"}', None),
            ('all_reduce: {tensor: "e[1:]"}', None),
        ],
        2,
    ),
)
def test_a_slice_that_is_empty_wherever_its_step_is_taken_is_a_warning(
    size: int, step: str, part: str | None, folder: Path
) -> None:
    text = f"""\
world_size: {size}
parameters: {{n: 4}}
tensors: {{x: [1, 2, 3, 4], e: "zeros(0)"}}
steps:
  - {step}
"""
    said = [words for code, words in warned(text, folder) if code == "empty_slice"]
    assert len(said) == (part is not None)
    assert all(f"`{part}` is empty on every rank that takes the step" in words for words in said)
