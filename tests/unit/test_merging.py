"""The results of shards as one: as if there had been one run, or an error that says why not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from outcomes import invalid

from torch_scenarios.cli import cli
from torch_scenarios.errors import ScenarioError
from torch_scenarios.model.trace import Trace
from torch_scenarios.pipeline.merge import merge_outcomes
from torch_scenarios.pipeline.results import Outcome, Result, Shard
from torch_scenarios.report.html.page import cases_of
from torch_scenarios.report.json import document
from torch_scenarios.verdict import Verdict

if TYPE_CHECKING:
    from torch_scenarios.verdict import Status

SCHEMA = Path(__file__).parents[2] / "schemas" / "result.schema.json"

GOOD = """\
world_size: 2
matrix: {n: [1, 2, 3, 4, 5]}
tensors: {x: "full(n, 1)"}
steps:
  - all_reduce: {tensor: x}
    expect: {x: "full(n, 2)"}
"""


def result(case: str, status: Status = "PASSED", torch: str | None = None) -> Result:
    observed = None
    if torch is not None:
        home = {"torch": torch}
        observed = Trace(backend="gloo", outcome="completes", ranks=(), environment=home)
    return Result(file="a.yaml", case=case, verdict=Verdict(status=status, observed=observed))


def outcome(*results: Result, **fields: Any) -> Outcome:
    return Outcome(results=results, cases=len(results), selected=len(results), **fields)


def refused(**outcomes: Outcome) -> list[str]:
    with pytest.raises(ScenarioError) as raised:
        merge_outcomes(outcomes)
    assert {problem.code for problem in raised.value.problems} == {"not_mergeable"}
    return [problem.message for problem in raised.value.problems]


@given(
    statuses=st.lists(st.sampled_from(["PASSED", "FAILED", "INCONCLUSIVE", "UNSUPPORTED"])),
    of=st.integers(1, 6),
    order=st.randoms(),
)
def test_all_shards_make_the_whole_run_again(
    statuses: list[Status],
    of: int,
    order: Any,
) -> None:
    results = [result(f"a[{at}]", status) for at, status in enumerate(statuses)]
    count = len(results)
    shards = [
        Outcome(
            results=tuple(results[number - 1 :: of]),
            cases=len(results[number - 1 :: of]),
            selected=count,
            shard=Shard(number=number, of=of),
        )
        for number in range(1, of + 1)
    ]
    order.shuffle(shards)
    whole = outcome(*results)
    found = merge_outcomes({f"{shard.shard}": shard for shard in shards})
    assert document(found) == document(whole)
    assert found.exit_code == whole.exit_code


def test_runs_of_different_files_add_up() -> None:
    one, two = outcome(result("a"), duration_s=1.0), outcome(result("b", "FAILED"), duration_s=2.0)
    found = merge_outcomes({"1": one, "2": two})
    assert [each.case for each in found.results] == ["a", "b"]
    assert (found.exit_code, found.duration_s, found.selected) == (1, 3.0, 2)
    assert merge_outcomes({"1": one, "2": replace(two, interrupted=True)}).exit_code == 130


def test_a_case_that_two_files_tell_of_is_refused() -> None:
    assert refused(x=outcome(result("a")), y=outcome(result("a", "FAILED"))) == [
        "a.yaml::a is in x and in y"
    ]
    many = [result(str(at)) for at in range(9)]
    assert refused(x=outcome(*many), y=outcome(*many))[-1] == "and so are 4 more"


def test_an_invalid_file_that_every_shard_tells_of_is_told_once() -> None:
    bad = Result(file="bad.yaml", case="bad.yaml", verdict=invalid())
    shards = {
        str(number): Outcome(results=(bad,), selected=3, shard=Shard(number=number, of=2))
        for number in (1, 2)
    }
    found = merge_outcomes(shards)
    assert [each.case for each in found.results] == ["bad.yaml"]
    assert found.exit_code == 2


def test_other_versions_are_refused_but_not_a_part_where_nothing_ran() -> None:
    old, new = outcome(result("a", torch="2.6.0")), outcome(result("b", torch="2.13.0"))
    assert refused(x=old, y=new) == ["x is of torch 2.6.0, y of torch 2.13.0"]
    assert merge_outcomes({"x": old, "y": outcome(result("c", "FAILED"))}).exit_code == 1
    released = replace(old, release="0.1.0"), replace(outcome(result("c")), release="0.2.0")
    assert refused(x=released[0], y=released[1]) == [
        "x is of torch-scenarios 0.1.0, y of torch-scenarios 0.2.0"
    ]


def test_a_shard_that_is_missing_double_or_of_another_run_is_refused() -> None:
    def shard(number: int, of: int, selected: int = 9) -> Outcome:
        part = Shard(number=number, of=of)
        return Outcome(results=(result(f"{number}/{of}"),), selected=selected, shard=part)

    assert refused(x=shard(1, 4), y=shard(3, 4)) == ["the results of shard 2/4, 4/4 are missing"]
    assert "different runs" in refused(x=shard(1, 2), y=shard(2, 3))[0]
    assert "x is 1/2 of 9 cases, y is 2/2 of 8 cases" in refused(x=shard(1, 2), y=shard(2, 2, 8))[0]
    assert refused(x=shard(1, 1), y=outcome(result("z"))) == ["y is of a whole run, x of a shard"]
    twice = refused(x=shard(1, 2), y=shard(1, 2))
    assert "a.yaml::1/2 is in x and in y" in twice


# ---------------------------------------------------------------------------- the command


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.yaml").write_text(GOOD, encoding="utf-8")
    for number in (1, 2):
        arguments = ["run", "--dry-run", "good.yaml", "--shard", f"{number}/2"]
        arguments += ["--json", f"{number}.json"]
        assert CliRunner().invoke(cli, arguments).exit_code == 0
    return tmp_path


def test_the_command_writes_every_report_of_the_whole(folder: Path) -> None:
    arguments = ["merge", "2.json", "1.json", "--json", "all.json", "--junit", "all.xml"]
    called = CliRunner().invoke(cli, [*arguments, "--tap", "all.tap", "--markdown", "all.md"])
    assert called.exit_code == 0, called.output
    assert called.output.startswith("5 passed in ")
    found = json.loads((folder / "all.json").read_text(encoding="utf-8"))
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(found)
    assert [each["case"] for each in found["results"]] == [f"good[n={n}]" for n in range(1, 6)]
    assert 'tests="5"' in (folder / "all.xml").read_text(encoding="utf-8")
    assert (folder / "all.tap").read_text(encoding="utf-8").count("\nok ") == 5


def test_the_command_tells_every_file_that_it_cannot_use(folder: Path) -> None:
    (folder / "cut.json").write_text('{"format": "scenario-results", "version', encoding="utf-8")
    (folder / "other.json").write_text("{}", encoding="utf-8")
    arguments = ["merge", "1.json", "1.json", "cut.json", "other.json", "gone.json"]
    called = CliRunner().invoke(cli, [*arguments, "--json", "all.json"])
    assert called.exit_code == 2
    for words in (
        "1.json is named twice",
        "cut.json is cut off",
        "other.json holds no results",
        "gone.json cannot be read: No such file or directory",
    ):
        assert words in called.output
    assert not (folder / "all.json").exists()


def pages_of(folder: Path) -> None:
    for number in (1, 2):
        arguments = ["run", "--dry-run", "good.yaml", "--shard", f"{number}/2"]
        arguments += ["--json", f"{number}.json", "--html", f"{number}.html"]
        assert CliRunner().invoke(cli, arguments).exit_code == 0
    assert (folder / "2.html").exists()


def test_the_page_of_the_whole_shows_what_the_pages_of_its_parts_show(folder: Path) -> None:
    pages_of(folder)
    arguments = ["merge", "1.json", "2.json", "1.html", "2.html", "--html", "all.html"]
    called = CliRunner().invoke(cli, arguments)
    assert called.exit_code == 0, called.output
    whole = cases_of(str(folder / "all.html"))
    parts = {**cases_of(str(folder / "1.html")), **cases_of(str(folder / "2.html"))}
    assert list(whole) == [("good.yaml", f"good[n={n}]") for n in range(1, 6)]
    assert whole == parts
    assert all(json.loads(shown.body)["predicted"]["steps"] for shown in whole.values())


def test_without_a_page_a_case_has_no_picture_but_all_that_was_told(folder: Path) -> None:
    (folder / "good.yaml").write_text(GOOD.replace("full(n, 2)", "full(n, 3)"), encoding="utf-8")
    CliRunner().invoke(cli, ["check", "good.yaml", "--json", "bad.json"])
    assert CliRunner().invoke(cli, ["merge", "bad.json", "--html", "all.html"]).exit_code == 1
    body = json.loads(cases_of(str(folder / "all.html"))["good.yaml", "good[n=1]"].body)
    assert "predicted" not in body
    assert any("you expect" in line or "≠" in line for line, _ in body["lines"])
    assert [place["line"] for place in body["places"]] == [6]


def test_a_page_that_does_not_belong_is_refused(folder: Path) -> None:
    pages_of(folder)
    whole = (folder / "1.html").read_text(encoding="utf-8")
    (folder / "cut.html").write_text(whole[: whole.index('id="data">') + 50], encoding="utf-8")
    CliRunner().invoke(cli, ["check", "good.yaml", "--html", "other.html"])
    for page, words in (
        ("cut.html", "cut.html is not a page that --html wrote, or not all of it"),
        ("other.html", "other.html is the page of another run: good[n=1] is not among its results"),
    ):
        called = CliRunner().invoke(cli, ["merge", "1.json", "2.json", page, "--html", "all.html"])
        assert (called.exit_code, words in called.output) == (2, True), called.output
        assert not (folder / "all.html").exists()
    alone = CliRunner().invoke(cli, ["merge", "1.html", "--html", "all.html"])
    assert (alone.exit_code, "pages alone cannot be joined" in alone.output) == (2, True)


def test_a_missing_shard_is_no_pass(folder: Path) -> None:
    assert (folder / "1.json").exists()
    called = CliRunner().invoke(cli, ["merge", "1.json"])
    assert called.exit_code == 2
    assert "the results of shard 2/2 are missing" in called.output
