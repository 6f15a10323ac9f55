"""What the HTML report writes: one small file, safe for any words, that keeps no trace."""

from __future__ import annotations

import base64
import gc
import hashlib
import io
import json
import re
import weakref
import zlib
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from html_page import CRASH, MISSPELT, RING, SUMS, analysed, data_of, invalid, observed, page_of
from judging import hanging, writing
from msgspec.structs import replace

from torch_scenarios.cli import cli
from torch_scenarios.pipeline.attempts import analyse, result_of
from torch_scenarios.pipeline.results import Result, Selection
from torch_scenarios.pipeline.selection import load_all
from torch_scenarios.report.html import HtmlReport
from torch_scenarios.report.html.page import page
from torch_scenarios.report.output import forget
from torch_scenarios.report.text import details
from torch_scenarios.verdict import STATUSES
from torch_scenarios.vocabulary import DIAGNOSES

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch_scenarios.model.trace import Trace

CORPUS = Path(__file__).parents[2] / "scenarios"


def lines_of(text: str) -> list[Any]:
    """Return what the page knows: a head and a body for each case, then the whole run."""
    lines = zlib.decompress(base64.b64decode(data_of(text))).decode().splitlines()
    return [json.loads(line) for line in lines]


def bodies(*results: Result) -> list[Any]:
    return lines_of(page_of(*results))[1:-1:2]


def test_a_page_knows_every_case(tmp_path: Path) -> None:
    results = [
        analysed(RING, tmp_path, "ring"),
        analysed(CRASH, tmp_path, "crash"),
        observed(SUMS, tmp_path, "sums"),
        invalid(MISSPELT, tmp_path, "misspelt"),
    ]
    lines = lines_of(page_of(*results))
    heads, whole = lines[:-1:2], lines[-1]
    assert [head["verdict"] for head in heads] == ["FAILED", "FAILED", "PASSED", "INVALID"]
    assert heads[0]["cause"] == f"circular_wait: {DIAGNOSES['circular_wait']}"
    assert heads[2]["tags"] == ["sums"]
    assert heads[3]["cause"] == "unknown argument `tensr` of all_reduce"
    assert whole["summary"] == "1 passed, 2 failed, 1 invalid in 1.50 s"
    assert whole["environment"]["backend"] == "gloo"
    assert "break the ring" in whole["explanations"]["circular_wait"]["fix"]


def test_the_words_are_those_of_the_terminal(tmp_path: Path) -> None:
    results = [
        analysed(SUMS.replace("[20, 20]", "[10, 10]"), tmp_path, "wrong"),
        invalid(MISSPELT, tmp_path, "misspelt"),
    ]
    for result, body in zip(results, bodies(*results), strict=True):
        assert body["lines"] == [[line.printable, line.style] for line in details(result)]


def test_a_finding_names_its_place_in_file_and_run(tmp_path: Path) -> None:
    (body,) = bodies(observed(SUMS, tmp_path, "deviates", writing(2, 3, "x", [20, 7])))
    (place,) = [place for place in body["places"] if place.get("name") == "x"]
    assert (place["index"], place["ranks"], place["iteration"]) == (2, [3], [])
    assert body["text"] == SUMS


def test_an_invalid_file_shows_its_text_and_the_columns_that_are_wrong(tmp_path: Path) -> None:
    (body,) = bodies(invalid(MISSPELT, tmp_path, "misspelt"))
    (place,) = body["places"]
    assert body["text"] == MISSPELT
    assert MISSPELT.splitlines()[place["line"] - 1][place["from"] : place["to"]] == "tensr"
    assert "predicted" not in body


def test_what_was_observed_says_only_what_differs(tmp_path: Path) -> None:
    body = bodies(observed(SUMS, tmp_path, "sums"))[0]
    assert body["predicted"]["witness"] == "predicted"
    assert body["observed"]["backend"] == "gloo"
    assert "steps" not in body["observed"]
    assert "meetings" not in body["observed"]


def test_a_file_that_is_not_there_has_a_page(tmp_path: Path) -> None:
    (result,) = load_all(Selection(paths=(str(tmp_path / "none.yaml"),))).invalid
    (body,) = bodies(result)
    assert body["text"] == ""
    assert body["lines"]


def test_the_cause_of_what_is_no_failure_is_its_reason(tmp_path: Path) -> None:
    failed = analysed(RING, tmp_path, "ring")
    verdict = replace(failed.verdict, status="UNSUPPORTED", reason="gloo has no such op")
    heads = lines_of(page_of(replace(failed, verdict=verdict)))[0]
    assert heads["cause"] == "gloo has no such op"


def test_a_run_of_nothing_has_a_page() -> None:
    (whole,) = lines_of(page_of())
    assert whole["summary"] == "nothing was selected"


def test_a_run_of_too_many_steps_is_told_without_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch_scenarios.report.html.page.MOST_STEPS", 15)
    drawn, undrawn = bodies(analysed(SUMS, tmp_path, "x"), observed(SUMS, tmp_path, "y"))
    assert "predicted" in drawn
    assert "predicted" not in undrawn
    assert undrawn["undrawn"] == 16


def test_a_place_that_is_the_whole_file_is_not_marked(tmp_path: Path) -> None:
    failed = analysed(CRASH, tmp_path, "crash")
    assert failed.scenario is not None
    whole = [replace(f, mark=failed.scenario.mark) for f in failed.verdict.findings]
    (body,) = bodies(replace(failed, verdict=replace(failed.verdict, findings=tuple(whole))))
    assert [place["says"] for place in body["places"] if "line" not in place]
    assert not [place for place in body["places"] if place.get("line") == 1]


def test_the_page_has_a_place_and_a_sign_for_every_verdict() -> None:
    model = resources.files("torch_scenarios.report.html").joinpath("model.js").read_text("utf-8")
    style = resources.files("torch_scenarios.report.html").joinpath("report.css").read_text("utf-8")
    order = re.search(r"const ORDER = (\[.*?\]);", model)
    assert order is not None
    assert sorted(json.loads(order[1])) == sorted(STATUSES)
    for status in STATUSES:
        assert re.search(rf"GLYPHS = .*\b{status}:", model)
        assert f".{status} {{ --hue:" in style


# ---------------------------------------------------------------------------- one safe file


def test_the_policy_allows_its_own_parts_alone(tmp_path: Path) -> None:
    text = page_of(analysed(RING, tmp_path, "ring"))
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; ")
    for tag in ("style", "script"):
        (part,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy[1]


def test_nothing_is_fetched(tmp_path: Path) -> None:
    text = page_of(analysed(RING, tmp_path, "ring"))
    outside = text.replace(data_of(text).decode(), "")
    assert not re.search(r"https?://|@import|url\(|\bfetch\(|XMLHttp|import\(", outside)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", outside)


def test_no_word_of_a_scenario_is_markup(tmp_path: Path) -> None:
    hostile = "</script><script>alert(1)</script>"
    result = analysed(f"description: '{hostile}'\n{SUMS}", tmp_path, "<b>case")
    text = page_of(result)
    assert hostile not in text
    assert text.count("<script") == 2
    assert bodies(result)[0]["description"] == hostile


def test_a_title_is_escaped() -> None:
    assert "<title>&lt;/title&gt;&amp;$x</title>" in page("</title>&$x", b"")


def test_text_that_utf8_cannot_hold_is_replaced(tmp_path: Path) -> None:
    strange = replace(analysed(SUMS, tmp_path, "x"), case="\udc80")
    assert lines_of(page_of(strange))[0]["case"] == "\ufffd"


# ---------------------------------------------------------------------------- size and memory


def test_a_hundred_scenarios_make_less_than_300_kilobytes() -> None:
    paths = sorted(path for path in CORPUS.rglob("*.yaml") if "parts" not in path.parts)
    step = len(paths) // 100
    chosen = tuple(str(path) for path in paths[::step][:100])
    results = []
    for scenario in load_all(Selection(paths=chosen)).scenarios[:100]:
        result = result_of(analyse(scenario))
        seen = result.verdict.predicted
        assert seen is not None
        verdict = replace(result.verdict, observed=replace(seen, backend="gloo", duration_s=0.5))
        results.append(replace(result, verdict=verdict))
    text = page_of(*results)
    assert len(results) == 100
    assert len(text.encode()) < 300_000


def test_no_trace_outlives_its_case(tmp_path: Path) -> None:
    result = analysed(RING, tmp_path, "ring")
    predicted = result.verdict.predicted
    assert predicted is not None
    array = weakref.ref(next(iter(predicted.ranks[0].initial.values())))
    report = HtmlReport(io.StringIO())
    report.finish(result)
    forget()
    del result, predicted
    gc.collect()
    assert array() is None


# ---------------------------------------------------------------------------- where a run parts


def parted(text: str, folder: Path, *changes: Callable[[Trace], Trace]) -> Any:
    (body,) = bodies(observed(text, folder, "one", *changes))
    return body.get("divergence")


def test_a_run_as_predicted_parts_nowhere(tmp_path: Path) -> None:
    assert parted(SUMS, tmp_path) is None
    (body,) = bodies(analysed(RING, tmp_path, "ring"))
    assert "divergence" not in body


def test_a_run_parts_where_a_value_is_another(tmp_path: Path) -> None:
    assert parted(SUMS, tmp_path, writing(2, 3, "x", [20, 7])) == {
        "rank": 3,
        "index": 2,
        "iteration": [],
        "witness": "observed",
        "says": "rank 3 at sum of all: holds another value than predicted",
    }


def test_a_run_parts_where_a_rank_is_stuck_and_nothing_after_it_counts(tmp_path: Path) -> None:
    found = parted(SUMS, tmp_path, hanging(1, 1), writing(2, 3, "x", [20, 7]))
    assert (found["rank"], found["index"]) == (1, 1)
    assert found["says"].endswith("predicted to end, and stuck")


def test_the_first_of_several_steps_is_that_of_the_earlier_time(tmp_path: Path) -> None:
    late, early = writing(2, 0, "x", [1, 1]), writing(1, 3, "x", [1, 1])
    found = parted(SUMS, tmp_path, late, early)
    assert (found["rank"], found["index"]) == (3, 1)


def test_what_was_predicted_and_never_reached_is_shown_in_the_prediction(tmp_path: Path) -> None:
    def cut(trace: Trace) -> Trace:
        ranks = tuple(replace(rank, events=rank.events[:1]) for rank in trace.ranks)
        return replace(trace, ranks=ranks)

    found = parted(SUMS, tmp_path, cut)
    assert found["witness"] == "predicted"
    assert found["says"].endswith("predicted, and not reached")


# ---------------------------------------------------------------------------- two runs


def written(folder: Path, name: str, *results: Result) -> str:
    path = folder / name
    path.write_text(page_of(*results), encoding="utf-8")
    return str(path)


def diff(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, ["diff", *arguments])
    return done.exit_code, done.output


def test_two_runs_are_compared_by_verdicts_values_and_endings(tmp_path: Path) -> None:
    first = written(
        tmp_path,
        "one.html",
        observed(SUMS, tmp_path, "same"),
        observed(SUMS, tmp_path, "value"),
        observed(SUMS, tmp_path, "hang"),
        observed(SUMS, tmp_path, "gone"),
    )
    slower = replace(observed(SUMS, tmp_path, "same"), duration_s=3.0)
    second = written(
        tmp_path,
        "two.html",
        slower,
        observed(SUMS, tmp_path, "value", writing(2, 3, "x", [20, 7])),
        observed(SUMS, tmp_path, "hang", hanging(2, 1)),
        observed(SUMS, tmp_path, "new"),
    )
    code, told = diff(first, second)
    assert code == 1
    lines = told.splitlines()
    name = str(tmp_path / "value" / "judged.yaml")
    at = lines.index(f"FAILED       {name}::value  was PASSED")
    assert "  rank 3: after sum of all x was [20, 20], is [20, 7]" in lines[at:]
    assert "  rank 1: finished before, blocked now" in lines
    assert any(line.startswith("PASSED ") and line.endswith("::new  new") for line in lines)
    assert any("::gone  was PASSED" in line for line in lines)
    assert not any("::same" in line for line in lines)
    assert lines[-2:] == ["before: 4 passed in 1.50 s", "after:  2 passed, 2 failed in 1.50 s"]
    assert diff(first, first) == (
        0,
        "before: 4 passed in 1.50 s\nafter:  4 passed in 1.50 s\nequal: 4 cases\n",
    )


def test_the_page_of_two_runs_says_what_each_case_was(tmp_path: Path) -> None:
    first = written(tmp_path, "one.html", observed(SUMS, tmp_path, "value"))
    hostile = "<img src=x onerror=alert(1)>"
    second = written(
        tmp_path,
        "two.html",
        observed(SUMS, tmp_path, "value", writing(2, 3, "x", [20, 7])),
        observed(SUMS, tmp_path, hostile),
    )
    target = tmp_path / "both.html"
    assert diff(first, second, "--html", str(target))[0] == 1
    text = target.read_text(encoding="utf-8")
    one, body, other, _, whole = lines_of(text)
    assert one["was"] == {"verdict": "PASSED", "took": 10000}
    assert one["changed"]
    assert "rank 3: after sum of all x was [20, 20], is [20, 7]" in body["changes"]
    assert other["was"] is None
    assert whole["against"] == {"summary": "1 passed in 1.50 s", "changed": 2, "gone": []}
    assert hostile not in text
    assert "http://" not in text
    assert "https://" not in text
    # the page of a comparison is a page: it is compared, and joined, as any
    assert diff(second, str(target))[0] == 0


@pytest.mark.parametrize("damage", ["", "<!doctype html>", "<!doctype html><p>another page"])
def test_what_is_not_a_page_is_not_compared(tmp_path: Path, damage: str) -> None:
    page_ = written(tmp_path, "one.html", observed(SUMS, tmp_path, "one"))
    other = tmp_path / "other.html"
    other.write_text(damage, encoding="utf-8")
    code, told = diff(page_, str(other))
    assert code == 2
    assert "is not a page that --html wrote" in " ".join(told.split())


def test_pages_are_not_compared_as_json(tmp_path: Path) -> None:
    one = written(tmp_path, "one.html", observed(SUMS, tmp_path, "one"))
    code, told = diff(one, one, "--json", "-")
    assert code == 2
    assert "--json is for two programs" in told


# ---------------------------------------------------------------------------- the option


@pytest.mark.parametrize("command", [["check"], ["run", "--dry-run"]])
def test_the_option_writes_a_page_with_pictures(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "ring.yaml").write_text(RING, encoding="utf-8")
    target = tmp_path / "page.html"
    done = CliRunner().invoke(cli, [*command, str(tmp_path), "--html", str(target)])
    assert done.exit_code == 1
    _, body, _ = lines_of(target.read_text(encoding="utf-8"))
    assert len(body["predicted"]["lanes"]) == 4
    assert body["predicted"]["edges"]


def test_a_page_that_cannot_be_written_is_told_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "ring.yaml").write_text(RING, encoding="utf-8")
    target = tmp_path / "none" / "page.html"
    done = CliRunner().invoke(cli, ["check", str(tmp_path), "--html", str(target)])
    assert done.exit_code == 2
    assert "circular_wait" not in done.output
    assert "page.html cannot be written" in " ".join(done.output.split())


def test_a_long_line_of_the_source_is_broken_in_its_pane() -> None:
    style = (resources.files("torch_scenarios.report.html") / "report.css").read_text(
        encoding="utf-8"
    )
    assert re.search(r"^\.line code \{[^}]*white-space: pre-wrap;", style, re.MULTILINE)
    assert not re.search(r"^\.lines \{[^}]*max-content", style, re.MULTILINE)
