"""What a backend does is kept in a file, compared with another, and drawn."""

from __future__ import annotations

import json
import re
from importlib import metadata
from pathlib import Path

import jsonschema
import pytest
from checkout import ROOT
from click.testing import CliRunner
from msgspec.structs import replace

from torch_scenarios.cli import cli
from torch_scenarios.conformance import document, table
from torch_scenarios.conformance.document import CaseOutcome, Conformance
from torch_scenarios.conformance.run import complete, launch_column, tell_counts
from torch_scenarios.conformance.table import Cell, CellOutcome
from torch_scenarios.errors import LaunchError, ScenarioError
from torch_scenarios.files import schema_file
from torch_scenarios.language import load
from torch_scenarios.model.groups import plan
from torch_scenarios.model.versions import VersionRange
from torch_scenarios.pipeline.results import Selection
from torch_scenarios.reference import simulate
from torch_scenarios.vocabulary import DTYPES

DOCS = Path(__file__).parents[2] / "docs"
SUM = Cell(operation="all_reduce", op="sum", dtype="int32")
MEAN = Cell(operation="all_reduce", op="avg", dtype="int32")
MEAN_OF_LONGS = Cell(operation="all_reduce", op="avg", dtype="int64")
OLD = Conformance(
    name="gloo, torch 2.6.0",
    backend="gloo",
    torch="2.6.0",
    machine={"cores": "2"},
    cases={
        "a.yaml::a": CaseOutcome(verdict="PASSED", outcome="completes"),
        "b.yaml::b": CaseOutcome(verdict="FAILED", outcome="error", words="it raises"),
        "gone.yaml::gone": CaseOutcome(verdict="PASSED", outcome="deadlock"),
    },
    cells={
        SUM: CellOutcome(outcome="same"),
        MEAN: CellOutcome(outcome="refuses", words="unsupported"),
        MEAN_OF_LONGS: CellOutcome(outcome="refuses", words="unsupported"),
    },
)
NEW = Conformance(
    name="gloo, torch 2.14.1",
    backend="gloo",
    torch="2.14.1",
    machine={"cores": "2"},
    cases={
        "a.yaml::a": CaseOutcome(verdict="PASSED", outcome="completes"),
        "b.yaml::b": CaseOutcome(verdict="PASSED", outcome="completes"),
    },
    cells={
        SUM: CellOutcome(outcome="same"),
        MEAN: CellOutcome(outcome="same"),
        MEAN_OF_LONGS: CellOutcome(outcome="same"),
    },
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a file with both columns."""
    path = tmp_path / "both.json"
    path.write_text(document.text([OLD, NEW]), encoding="utf-8")
    return path


def test_a_file_gives_back_what_was_written(file: Path) -> None:
    assert document.read(str(file)) == {OLD.name: OLD, NEW.name: NEW}
    assert document.one(f"{file}#{NEW.name}") == NEW


def test_columns_of_one_backend_are_in_the_order_of_their_versions(file: Path) -> None:
    seen, *_ = document.read(str(file)).values()
    names = ("nccl, torch 2.9", "gloo, torch 2.10.0", "JAX, without torch", "gloo, torch 2.6.0")
    columns = [replace(seen, name=name) for name in names]
    file.write_text(document.text(columns), encoding="utf-8")
    assert [*document.read(str(file))] == [names[3], names[1], names[2], names[0]]


def test_nothing_differs_from_itself() -> None:
    assert OLD.differences(OLD) == []


def test_a_difference_names_both_results_and_the_scenario_that_shows_it(tmp_path: Path) -> None:
    case, call = OLD.differences(NEW)
    assert (case.what, case.before, case.after) == (
        "b.yaml::b",
        "FAILED error",
        "PASSED completes",
    )
    assert case.scenario == "b.yaml::b"
    assert (call.what, call.before, call.after) == (
        "all_reduce avg int32 int64",
        "refuses",
        "same",
    )
    path = tmp_path / call.file
    path.write_text(call.scenario, encoding="utf-8")
    assert [each.case for each in load(path)] == [
        f"{path.stem}[dtype=int32]",
        f"{path.stem}[dtype=int64]",
    ]


@pytest.mark.parametrize("cell", table.list_cells(("float32",))["float32"], ids=str)
def test_the_scenario_of_every_call_is_one(cell: Cell, tmp_path: Path) -> None:
    path = tmp_path / "call.yaml"
    path.write_text(table.write_scenario(cell.operation, cell.op, [cell.dtype]), encoding="utf-8")
    (scenario,) = load(path)
    assert simulate(plan(scenario)).outcome in {"completes", "error"}


def test_the_published_schema_says_what_the_reader_takes(tmp_path: Path) -> None:
    schema = json.loads(schema_file("conformance.schema.json").read_text(encoding="utf-8"))
    whole = json.loads(document.text([OLD, NEW]))
    path = tmp_path / "file.json"
    jsonschema.validate(whole, schema)
    jsonschema.validate(json.loads((DOCS / "conformance.json").read_text("utf-8")), schema)
    for broken in (
        whole | {"version": 2},
        whole | {"more": 1},
        whole | {"columns": [{**whole["columns"][0], "name": ""}]},
        whole | {"columns": [{**whole["columns"][0], "counts": {"PASSED": -1}}]},
        whole | {"cases": [{"case": "a", "results": {OLD.name: "GREEN"}}]},
        whole | {"cells": [{**whole["cells"][0], "results": {OLD.name: "alike"}}]},
        {key: value for key, value in whole.items() if key != "cells"},
    ):
        assert list(jsonschema.Draft202012Validator(schema).iter_errors(broken))
        path.write_text(json.dumps(broken), encoding="utf-8")
        with pytest.raises(ScenarioError, match="not_comparable"):
            document.read(str(path))


def test_compare_ends_with_1_where_something_differs(file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "shown"
    arguments = [f"{file}#{OLD.name}", f"{file}#{NEW.name}", "--scenarios", str(folder)]
    done = CliRunner().invoke(cli, ["conformance", "compare", *arguments])
    assert done.exit_code == 1, done.output
    assert "b.yaml::b: FAILED error in gloo, torch 2.6.0, PASSED completes in" in done.output
    assert "1 are in gloo, torch 2.6.0 only" in done.output
    (shown,) = folder.iterdir()
    assert str(shown) in done.output


def test_compare_ends_with_0_where_nothing_differs(file: Path) -> None:
    one = f"{file}#{OLD.name}"
    done = CliRunner().invoke(cli, ["conformance", "compare", one, one])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ("[]", "is not what `scenario conformance` writes"),
        ('{"format": "scenario-results"}', "is not what `scenario conformance` writes"),
        (None, "cannot be read"),
        (document.text([OLD, NEW]), "has 2 columns: name one"),
    ],
)
def test_what_cannot_be_compared_ends_with_2(tmp_path: Path, text: str | None, words: str) -> None:
    path = tmp_path / "file.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    done = CliRunner().invoke(cli, ["conformance", "compare", str(path), str(path)])
    assert done.exit_code == 2
    assert words in " ".join(done.output.split())  # messages are wrapped


def test_two_documents_are_compared_in_any_folder(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    one = f"{file}#gloo, torch 2.6.0"
    done = CliRunner().invoke(cli, ["conformance", "compare", one, one])
    assert done.exit_code == 0, done.output


def test_a_column_that_is_not_there_is_named(file: Path) -> None:
    with pytest.raises(ScenarioError) as raised:
        document.read(f"{file}#x")
    assert "has no column 'x'; it has 'gloo, torch 2.6.0'" in raised.value.problems[0].message


def test_the_page_says_what_works_and_what_differs(file: Path) -> None:
    shown = document.page(document.read(str(file)))
    assert "| all_reduce | sum | yes | yes |" in shown
    assert "| all_reduce | avg | refuses | yes |" in shown
    assert "| `b.yaml::b` | FAILED error | PASSED completes |" in shown
    assert "a.yaml::a" not in shown


def test_the_document_of_this_repository_has_three_versions_of_torch_whole() -> None:
    columns = document.read(str(DOCS / "conformance.json"))
    gloo = {column.torch: column for column in columns.values() if column.backend == "gloo"}
    versions = {version.partition("+")[0] for version in gloo}
    assert versions >= {"2.6.0", "2.13.0", "2.14.1"}
    every = {cell for cells in table.list_cells(tuple(DTYPES)).values() for cell in cells}
    for column in gloo.values():
        assert column.cells.keys() == every, (
            "an operation with a `trial` is a row of docs/conformance.json: run "
            "`bash .ci/nightly versions`, which installs each torch, and commit that file"
        )
        assert not {seen.outcome for seen in column.cells.values()} & {"not run", "unseen"}
        assert sum(column.counts.values()) == len(column.cases)


def test_the_page_has_a_reason_for_each_case_that_does_not_pass() -> None:
    page = (DOCS / "reference" / "conformance.md").read_text(encoding="utf-8")
    reasons = page.partition("## Why a case fails in a column")[2].partition("\n## ")[0]
    unexplained = {
        f"{column.name}: {case}"
        for column in document.read(str(DOCS / "conformance.json")).values()
        for case, seen in column.cases.items()
        if seen.verdict not in {"PASSED", "UNSUPPORTED"}
        and f"`{Path(case.partition('::')[0]).stem}`" not in reasons
    }
    assert not unexplained


@pytest.mark.parametrize("page", ["jax", "mpi"])
def test_pages_state_what_was_measured(page: str) -> None:
    text = (DOCS / "explanation" / f"{page}.md").read_text(encoding="utf-8")
    stated = re.search(r"Of (\d+) cases (\S+ \S+) passes (\d+), and (\d+) need", text)
    assert stated is not None
    column = document.read(str(DOCS / "conformance.json"))[f"{stated[2]}, without torch"]
    counts = column.counts
    assert (len(column.cases), counts["PASSED"], counts["UNSUPPORTED"]) == tuple(
        map(int, stated.group(1, 3, 4))
    )


WRONG_CORPORA = {
    "an invalid file": ("world_size: two\n", 2, "INVALID"),
    "no file": (None, 2, "file_not_found"),
    "no case": ("world_size: 1\nsteps: [{barrier: {}}]\n", 5, "no case"),
}


@pytest.mark.parametrize("launcher", [(), ("--launcher", "true")], ids=["here", "launched"])
@pytest.mark.parametrize("kind", WRONG_CORPORA)
def test_a_corpus_without_a_case_to_run_leaves_the_file_as_it_was(
    kind: str, launcher: tuple[str, ...], tmp_path: Path
) -> None:
    text, code, words = WRONG_CORPORA[kind]
    corpus, path = tmp_path / "corpus.yaml", tmp_path / "seen.json"
    if text is not None:
        corpus.write_text(text, encoding="utf-8")
    path.write_text(document.text([OLD]), encoding="utf-8")
    arguments = ["--corpus", str(corpus), "-k", "sum" if kind == "no case" else "corpus"]
    arguments += ["-o", str(path), "--name", "here", *launcher]
    done = CliRunner().invoke(cli, ["conformance", *arguments])
    assert done.exit_code == code, done.output
    assert words in done.output
    assert f"nothing is written to {path}" in " ".join(done.output.split())
    assert list(document.read(str(path))) == [OLD.name]


def write_sums(folder: Path, *names: str) -> None:
    for name in names:
        text = "world_size: 2\ntensors: {x: [1]}\nsteps: [{all_reduce: {tensor: x}}]\n"
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (NEW.name, "lacks no case of these and no call"),
        ("", f"say which column `--missing` completes, by `--name`: '{OLD.name}', '{NEW.name}'"),
    ],
)
def test_what_lacks_nothing_is_not_run(file: Path, name: str, words: str) -> None:
    write_sums(file.parent, "a", "b")
    arguments = ["--missing", "--name", name, "--corpus", str(file.parent), "-o", str(file)]
    before = file.read_bytes()
    done = CliRunner().invoke(
        cli,
        ["conformance", *arguments, "--launcher", "true", "--backend", "gloo" if name else "auto"],
    )
    assert done.exit_code == (0 if name else 2), done.output
    assert words in " ".join(done.output.split())
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("before", "now", "after"),
    [
        ("2.6.0+cpu", "2.6.0+cpu", "2.6.0+cpu"),
        ("2.6.0", "2.6.0+cpu", "2.6.0+cpu"),
        ("2.6.0+cpu", "2.6.0", "2.6.0+cpu"),
        ("2.6.0+cpu", "2.6.0+cu124", None),
        ("2.6.0", "2.14.1", None),
    ],
)
def test_a_column_is_completed_on_the_same_torch(before: str, now: str, after: str | None) -> None:
    cases = {"c.yaml::c": CaseOutcome(verdict="PASSED")}
    known = replace(OLD, torch=before, machine={"torch": before})
    seen = replace(NEW, torch=now, machine={"torch": now}, cases=cases)
    if after is None:
        with pytest.raises(
            LaunchError, match=re.escape(f"run on torch {before}, and this is {now}")
        ):
            complete(known, seen)
    else:
        column = complete(known, seen)
        assert column.cases == {**OLD.cases, **cases}
        assert column.torch == column.machine["torch"] == after


@pytest.mark.torch
def test_a_run_completes_its_column_and_keeps_those_of_others(tmp_path: Path) -> None:
    write_sums(tmp_path, "kept", "new", "unclear")
    path = tmp_path / "seen.json"
    torch = metadata.version("torch")
    kept = {"kept.yaml::kept": CaseOutcome(verdict="FAILED", outcome="error", words="that day")}
    cases = {**kept, "unclear.yaml::unclear": CaseOutcome(verdict="INCONCLUSIVE", words="no MPI")}
    built = torch.partition("+")[0]  # as the package has it
    here = replace(NEW, name="here", torch=built, machine={"torch": built}, cases=cases, cells={})
    path.write_text(document.text([OLD, here]), encoding="utf-8")
    arguments = ["--missing", "--corpus", str(tmp_path), "--dtypes", "int32", "-o", str(path)]
    done = CliRunner().invoke(cli, ["conformance", "--backend", "gloo", *arguments])
    assert done.exit_code == 0, done.output
    found = json.loads(path.read_text(encoding="utf-8"))
    assert [column["name"] for column in found["columns"]] == [OLD.name, "here"]
    after = document.one(f"{path}#here")
    passed = CaseOutcome(verdict="PASSED", outcome="completes")
    assert after.cases == {**kept, "new.yaml::new": passed, "unclear.yaml::unclear": passed}
    assert after.cells[SUM].outcome == "same"
    assert after.cells[MEAN].outcome == "refuses"


def of_version(torch: str, **verdicts: str) -> Conformance:
    cases = {f"{name}.yaml::{name}": CaseOutcome(verdict=each) for name, each in verdicts.items()}
    return Conformance(name=f"gloo, torch {torch}", backend="gloo", torch=torch, cases=cases)


#: what three cases come to in versions of torch, which are not in order
VERSIONS = (
    of_version("2.10.0", late="PASSED", gone="PASSED", middle="FAILED", never="FAILED"),
    of_version("2.6.0+cpu", late="FAILED", gone="PASSED", middle="PASSED", never="UNSUPPORTED"),
    of_version("2.14.1", late="PASSED", gone="FAILED", middle="PASSED", never="FAILED"),
)


def test_a_range_leaves_out_the_versions_that_fail() -> None:
    found = document.propose({each.name: each for each in VERSIONS}, "gloo")
    assert {each.case.partition(".")[0]: each.torch for each in found} == {
        "gone": "<2.14",
        "late": ">=2.10",
        "middle": "",
        "never": "",
    }
    for each in found:
        if each.torch:
            stated = VersionRange.read(each.torch)
            assert all(map(stated.holds, each.passes))
            assert not any(map(stated.holds, each.fails))
    assert document.propose({each.name: each for each in VERSIONS}, "nccl") == []


def test_a_range_between_two_patches_is_as_long_as_it_must_be() -> None:
    columns = of_version("2.14.0", x="FAILED"), of_version("2.14.1", x="PASSED")
    (found,) = document.propose({each.name: each for each in columns}, "gloo")
    assert found.torch == ">=2.14.1"


def test_ranges_are_proposed_on_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(document.text(VERSIONS), encoding="utf-8")
    done = CliRunner().invoke(cli, ["conformance", "ranges", str(path)])
    assert done.exit_code == 1
    line = "late.yaml::late: write `torch: '>=2.10'`: the case fails in 2.6.0 and passes in 2.10.0"
    assert line in done.output
    assert "4 ranges proposed, from 3 versions of torch" in done.output
    other = CliRunner().invoke(cli, ["conformance", "ranges", str(path), "--backend", "mpi"])
    assert other.exit_code == 2
    assert "has no column of mpi; it has columns of gloo" in other.output


def test_the_corpus_needs_no_other_ranges_on_gloo() -> None:
    assert document.propose(document.read(str(DOCS / "conformance.json")), "gloo") == []


def test_a_launch_without_a_result_shows_each_cause_once(tmp_path: Path) -> None:
    """A plugin that cannot be imported is why no call ran."""
    launcher = tmp_path / "launcher"
    launcher.write_text(
        "#!/bin/sh\n"
        "for dtype in int8 int32; do\n"
        "  echo \"calls of $dtype: 54 not run; because no module named 'mine'\" >&2\n"
        "done\n",
        encoding="utf-8",
    )
    launcher.chmod(0o700)
    case = ROOT / "scenarios" / "collectives" / "all_reduce_sum.yaml"
    with pytest.raises(LaunchError) as caught:
        launch_column([str(launcher)], (), Selection(paths=(str(case),)), say=lambda _: None)
    assert str(caught.value).count("no module named 'mine'") == 1


def test_a_first_case_that_ends_its_launch_leaves_the_column_to_the_next(tmp_path: Path) -> None:
    write_sums(tmp_path, "a", "b", "c")
    (tmp_path / "column").write_text(document.text([NEW]), encoding="utf-8")
    launcher = tmp_path / "launch"
    launcher.write_text(
        "#!/bin/sh\n"
        'case "$*" in *--conformance*a.yaml*) exit 1;; *--conformance*) ;; *) exit 0;; esac\n'
        'while [ "$1" != --conformance ]; do shift; done\n'
        f'cp {tmp_path / "column"} "$2"\n',
        encoding="utf-8",
    )
    launcher.chmod(0o700)
    selection = Selection(paths=(str(tmp_path),))
    column = launch_column([str(launcher)], (), selection, say=lambda _: None)
    assert column.name == NEW.name
    assert {seen.verdict for seen in column.cases.values()} == {"INCONCLUSIVE"}
    assert set(column.cases) == {"a.yaml::a", "b.yaml::b", "c.yaml::c"}


def test_why_calls_did_not_run_is_said() -> None:
    seen = {
        Cell(operation="barrier", op="", dtype="int8"): CellOutcome(
            outcome="not run", words="no module"
        ),
        Cell(operation="send", op="", dtype="int8"): CellOutcome(outcome="same"),
    }
    assert tell_counts("int8", seen) == "calls of int8: 1 not run, 1 same; because no module"


def test_a_case_that_nothing_ran_for_leaves_a_column_without_torch(tmp_path: Path) -> None:
    (name,) = (each for each in document.read(str(DOCS / "conformance.json")) if "MPICH" in each)
    known = document.read(str(DOCS / "conformance.json"))[name]
    path, case = tmp_path / "conformance.json", tmp_path / "average.yaml"
    path.write_text(document.text([known]), encoding="utf-8")
    case.write_text(
        "world_size: 2\ntensors: {x: ones(2)}\nsteps:\n  - all_reduce: {tensor: x, op: avg}\n",
        encoding="utf-8",
    )
    arguments = ["--framework", "mpi", "--missing", "--corpus", str(tmp_path), "-o", str(path)]
    CliRunner().invoke(cli, ["conformance", *arguments], catch_exceptions=False)
    (column,) = document.read(str(path)).values()
    assert (column.name, column.torch, column.machine) == (name, "", known.machine)
    assert column.cases.keys() - known.cases.keys() == {"average.yaml::average"}
