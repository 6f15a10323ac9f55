"""What CI reads: JUnit XML, TAP, GitHub's annotations, Markdown."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from lxml import etree
from msgspec.structs import replace
from outcomes import every_kind, invalid, told
from tap.parser import Parser

from torch_scenarios.errors import Problem
from torch_scenarios.pipeline.results import Outcome, Result
from torch_scenarios.report import markdown
from torch_scenarios.report.github import GithubReport, annotation
from torch_scenarios.report.junit import JunitReport
from torch_scenarios.report.tap import TapReport
from torch_scenarios.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

    from torch_scenarios.pipeline.results import Report

SCHEMA = etree.XMLSchema(etree.parse(Path(__file__).parents[2] / "schemas" / "junit.xsd"))

#: what each report must say of a run: case -> words
CAUSES = {
    "deadlock": "rank 0 waits in `send to 1`",
    "wrong_value": "the backend deviates: x differs in 3 of 3 elements on rank 2",
    "crash": "SIGSEGV",
    "bad.yaml": "unknown key `step`",
}


@pytest.fixture
def outcome(tmp_path: Path) -> Outcome:
    return every_kind(tmp_path)


def written(made: Callable[[TextIO], Report], outcome: Outcome) -> str:
    file = io.StringIO()
    told(made(file), outcome)
    return file.getvalue()


def alone(verdict: Verdict, **fields: object) -> Outcome:
    result = Result(file="a.yaml", case="a", verdict=verdict)
    return Outcome(results=(replace(result, **fields),), cases=1)


# ---------------------------------------------------------------------------- JUnit


def junit(outcome: Outcome) -> etree._Element:
    root = etree.fromstring(written(JunitReport, outcome).encode())
    SCHEMA.assertValid(root)
    return root


def test_junit_has_a_test_case_for_each_result_and_counts_them(outcome: Outcome) -> None:
    root = junit(outcome)
    counts = {name: root.get(name) for name in ("tests", "failures", "errors")}
    assert counts == {"tests": "11", "failures": "7", "errors": "2"}
    cases = root.findall(".//testcase")
    assert sorted(str(case.get("name")) for case in cases) == sorted(
        result.case for result in outcome.results
    )
    for suite in root:
        assert int(suite.get("tests", "")) == len(suite.findall("testcase"))
        assert int(suite.get("skipped", "")) == len(suite.findall("testcase/skipped"))


def test_junit_has_backend_torch_and_world_size_as_properties(outcome: Outcome) -> None:
    root = junit(outcome)
    facts = {
        str(suite.get("name")): {p.get("name"): p.get("value") for p in suite.iter("property")}
        for suite in root
    }
    home = {"torch": "2.13.0+cpu", "backend": "gloo"}
    assert facts == {
        "some/sum.yaml on 3 ranks": {**home, "world_size": "3"},
        "some/sum.yaml on 2 ranks": {**home, "world_size": "2"},
        "bad.yaml": home,
    }


def test_junit_tells_each_cause_and_skips_what_is_unsupported(outcome: Outcome) -> None:
    root = junit(outcome)
    for case, words in CAUSES.items():
        (found,) = [each for each in root.iter("testcase") if case in str(each.get("name"))]
        failure = found.find("failure")
        assert failure is not None
        assert words in f"{failure.get('message')}\n{failure.text}"
    assert [e.get("message") for e in root.iter("skipped")] == ["no GPU # at all"]
    assert [e.get("type") for e in root.iter("error")] == ["INCONCLUSIVE"] * 2
    assert "FLAKY" in {e.get("type") for e in root.iter("failure")}


def test_junit_of_nothing_is_valid() -> None:
    assert junit(Outcome(results=())).get("tests") == "0"


def test_junit_holds_whatever_a_file_says() -> None:
    reason = "a \x00 \x1b[2J ]]> & <b> \ud800 \U0001f600"
    error = junit(alone(Verdict(status="INCONCLUSIVE", reason=reason))).find(".//error")
    assert error is not None
    assert "]]> & <b>" in str(error.text)
    assert "\U0001f600" in str(error.text)


def test_the_schema_of_junit_refuses_what_jenkins_does() -> None:
    root = junit(alone(Verdict(status="PASSED")))
    case = root.find(".//testcase")
    assert case is not None
    case.set("file", "a.yaml")
    assert not SCHEMA.validate(root)


# ---------------------------------------------------------------------------- TAP


def points(text: str) -> list[Any]:
    return [line for line in Parser().parse_text(text) if line.category == "test"]


def test_tap_is_read_by_a_parser(outcome: Outcome) -> None:
    text = written(TapReport, outcome)
    categories = [line.category for line in Parser().parse_text(text)]
    assert categories == ["version", "plan", *["test"] * 11]
    assert text.startswith("TAP version 14\n1..11\n")
    assert [point.number for point in points(text)] == list(range(1, 12))
    states = {point.description: (point.ok, point.skip) for point in points(text)}
    assert states["- some/sum.yaml::sum[n=passed]"] == (True, False)
    assert states["- some/sum.yaml::sum[n=unsupported]"] == (True, True)
    assert sum(not ok for ok, _ in states.values()) == 9


def test_tap_tells_each_cause_in_a_block(outcome: Outcome) -> None:
    for case, words in CAUSES.items():
        (point,) = [
            each for each in points(written(TapReport, outcome)) if case in each.description
        ]
        block = point.yaml_block
        assert block is not None
        assert words in f"{block['message']}\n{block['text']}"
        assert block["codes"]
        assert block["at"]["line"] >= 1


def test_nothing_in_a_tap_block_looks_like_its_end() -> None:
    text = written(TapReport, alone(Verdict(status="INCONCLUSIVE", reason="...\n---\nnot ok 7")))
    (point,) = points(text)
    assert point.yaml_block is not None
    assert point.yaml_block["text"] == "  ...\ufffd---\ufffdnot ok 7"


def test_tap_escapes_what_would_be_a_directive() -> None:
    text = written(TapReport, alone(Verdict(status="PASSED"), case="a # SKIP \\ x"))
    assert "ok 1 - a.yaml::a \\# SKIP \\\\ x\n" in text


def test_tap_bails_out_where_results_are_missing(outcome: Outcome) -> None:
    assert "Bail out! interrupted" in written(TapReport, replace(outcome, interrupted=True))
    stopped = replace(outcome, results=outcome.results[:3])
    assert "Bail out! stopped at the first failure" in written(TapReport, stopped)
    refused = replace(alone(invalid(), case="a.yaml"), cases=9)
    assert "Bail out! with an invalid file nothing runs" in written(TapReport, refused)
    assert "Bail out!" not in written(TapReport, outcome)
    assert "1..0 # SKIP" in written(TapReport, Outcome(results=()))


# ---------------------------------------------------------------------------- GitHub


def on_github(outcome: Outcome, **environ: str) -> list[str]:
    file = io.StringIO()
    told(GithubReport(file, environ), outcome)
    return file.getvalue().splitlines()


def test_an_annotation_stands_on_the_line_of_the_fault() -> None:
    result = Result(file="bad.yaml", case="bad.yaml", verdict=invalid())
    assert annotation(result) == (
        "::error file=bad.yaml,line=1,col=1,title=INVALID bad.yaml::"
        "  error[unknown_key]: unknown key `step`%0A    --> bad.yaml:1:1%0A"
        "        step: 1%0A        ^%0A    = help: `steps`"
    )


def test_an_annotation_escapes_as_github_asks() -> None:
    verdict = Verdict(status="INCONCLUSIVE", reason="100% a\nb: c, d")
    shown = annotation(Result(file="a,b:c%.yaml", case="a[x=1,y=2]", verdict=verdict))
    head, _, message = shown.removeprefix("::").partition("::")
    assert head == (
        "error file=a%2Cb%3Ac%25.yaml,title=INCONCLUSIVE a%2Cb%3Ac%25.yaml%3A%3Aa[x=1%2Cy=2]"
    )
    assert message == "  100%25 a\N{REPLACEMENT CHARACTER}b: c, d"


def test_a_path_is_told_from_the_root_of_the_repository(tmp_path: Path) -> None:
    verdict = Verdict(status="FAILED")
    result = Result(file=str(tmp_path / "deep" / "a.yaml"), case="a", verdict=verdict)
    assert "file=deep/a.yaml," in annotation(result, str(tmp_path))
    assert f"file={tmp_path}/deep/a.yaml," in annotation(result, str(tmp_path / "other"))


def test_at_most_ten_errors_are_annotated_and_the_summary_has_all(tmp_path: Path) -> None:
    failed = Result(file="a.yaml", case="a", verdict=invalid())
    many = tuple(replace(failed, case=f"a[{at}]") for at in range(14))
    summary = tmp_path / "summary.md"
    summary.write_text("of the step before\n", encoding="utf-8")
    lines = on_github(Outcome(results=many, cases=14), GITHUB_STEP_SUMMARY=str(summary))
    assert sum(line.startswith("::error ") for line in lines) == 10
    text = summary.read_text(encoding="utf-8")
    assert text.startswith("of the step before\n## Scenarios: 14 invalid")
    assert text.count("<details") == 14


def test_no_command_is_read_from_what_a_run_shows(outcome: Outcome) -> None:
    lines = on_github(outcome)
    token = lines[0].removeprefix("::stop-commands::")
    assert len(token) == 32
    assert lines[1] == f"::{token}::"
    assert all(line.startswith("::error ") for line in lines[2:])
    assert len(lines) == 2 + 9


def test_annotations_tell_each_cause(outcome: Outcome) -> None:
    text = "\n".join(on_github(outcome))
    for words in CAUSES.values():
        assert words in text


# ---------------------------------------------------------------------------- Markdown


def test_markdown_tells_counts_environment_and_each_cause(outcome: Outcome) -> None:
    text = markdown.text(outcome)
    assert text.startswith("## Scenarios: 5 failed, 1 flaky, 2 inconclusive, 1 invalid\n")
    assert "shard 2/2, backend gloo, torch 2.13.0+cpu, 3.50 s" in text
    assert "| FAILED | 5 |" in text
    for words in CAUSES.values():
        assert words in text
    assert "1 not run, because they are unsupported here" in text


def test_markdown_lets_no_file_write_markup() -> None:
    verdict = Verdict(status="INCONCLUSIVE", reason="````\n</details><script>")
    text = markdown.text(alone(verdict, description="<img src=x>", case="a<b>"))
    assert "&lt;img src=x&gt;" in text
    assert "a.yaml::a&lt;b&gt;" in text
    assert "`````text\n" in text
    assert text.rstrip().endswith("`````\n\n</details>")


HOSTILE = (
    "[text](https://host/?q) ![image](https://host/x.png) https://host www.host.example "
    "**bold** `code` @everybody #1 <a href=x>"
)


@pytest.mark.parametrize("status", ["FAILED", "UNSUPPORTED"])
def test_in_markdown_a_name_a_reason_and_a_description_are_words_alone(status: Any) -> None:
    verdict = Verdict(status=status, reason=HOSTILE if status == "UNSUPPORTED" else None)
    text = markdown.text(alone(verdict, case=HOSTILE, description=HOSTILE))
    outside = re.sub(r"(?s)^(`{3,})text\n.*?^\1$", "", text, flags=re.MULTILINE)
    assert "image" in outside
    for mark in ("](", "![", "://", "www.", "**", "`code`", "@everybody", "#1", "<a href"):
        assert mark not in outside, outside


def test_in_markdown_a_warning_is_words_alone() -> None:
    warning = Problem(code="empty_slice", message=HOSTILE)
    outcome = Outcome(results=(), warnings=(warning,))
    text = markdown.text(outcome)
    assert "image" in text
    assert "](" not in text
    assert "://" not in text


def test_an_annotation_says_a_name_and_no_command_of_its_own() -> None:
    name = "a\n::error::b,title=c::"
    line = annotation(alone(Verdict(status="FAILED"), case=name).results[0])
    assert "\n" not in line
    assert line.count("::") == 2, line


def test_markdown_of_a_pass_an_interrupt_and_nothing() -> None:
    assert markdown.text(alone(Verdict(status="PASSED"))).startswith("## Scenarios: all passed\n")
    assert "nothing was selected" in markdown.text(Outcome(results=()))
    cut = replace(alone(Verdict(status="PASSED")), interrupted=True, cases=3)
    assert "## Scenarios: interrupted, 2 of 3 not run" in markdown.text(cut)


def test_markdown_stays_within_what_github_takes() -> None:
    reason = "x y " * 2_500
    result = Result(file="a.yaml", case="a", verdict=Verdict(status="FAILED", reason=reason))
    text = markdown.text(Outcome(results=(result,) * 200))
    assert len(text.encode()) < 1 << 20
    text = markdown.text(Outcome(results=(result,) * 400))
    assert len(text.encode()) < 1 << 20
    assert "more, which the log shows" in text
