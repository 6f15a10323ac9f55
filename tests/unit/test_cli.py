"""The command line: exit codes, reports, help."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click
import jsonschema
import pytest
from click.testing import CliRunner, Result

from torch_scenarios.cli import COMMANDS, cli
from torch_scenarios.explain.corpus import SUBJECTS, first_sentence
from torch_scenarios.files import corpus_folder
from torch_scenarios.language import load
from torch_scenarios.pipeline.attempts import analyse

SCHEMA = Path(__file__).parents[2] / "schemas" / "result.schema.json"

GOOD = """\
world_size: 2
parameters: {width: 2}
tensors: {x: "full(width, rank + 1)"}
steps:
  - all_reduce: {tensor: x}
    expect: {x: "full(width, 3)"}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with one good scenario."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.yaml").write_text(GOOD, encoding="utf-8")
    return tmp_path


def called(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


def test_a_good_file_passes() -> None:
    result = called("check", "good.yaml")
    assert result.exit_code == 0
    assert re.fullmatch(r"1 passed in [\d.]+ m?s\n", result.output)


def test_the_case_that_passes_is_named_on_demand() -> None:
    assert called("check", "good.yaml", "-v").output.startswith("PASSED       good.yaml::good")


def test_the_case_whose_values_are_shown_is_named() -> None:
    assert called("check", "good.yaml:6").output.startswith("PASSED       good.yaml::good")


def test_a_wrong_expectation_exits_1(folder: Path) -> None:
    (folder / "wrong.yaml").write_text(GOOD.replace("width, 3", "width, 4"), encoding="utf-8")
    result = called("check", "wrong.yaml")
    assert result.exit_code == 1
    assert "your expectation is wrong" in result.output


def test_an_invalid_file_exits_2_and_shows_all_its_problems(folder: Path) -> None:
    (folder / "bad.yaml").write_text("world_size: 0\nstep: []\n", encoding="utf-8")
    for command in (["check"], ["run"], ["run", "--dry-run"]):
        result = called(*command, "bad.yaml")
        assert result.exit_code == 2
        assert result.output.count("bad.yaml:") >= 2
        assert "Traceback" not in result.output


def test_a_missing_file_exits_2_and_says_where_one_of_that_name_is(folder: Path) -> None:
    (folder / "deep").mkdir()
    (folder / "deep" / "groups_even.yaml").write_text(GOOD, encoding="utf-8")
    result = called("run", "groups_even.yaml")
    assert result.exit_code == 2
    assert "deep/groups_even.yaml" in result.output


def test_nothing_selected_exits_5() -> None:
    assert called("check", "good.yaml", "-k", "other").exit_code == 5
    assert called("list", "good.yaml", "--tag", "other").exit_code == 5


def test_a_command_line_that_makes_no_sense_exits_2() -> None:
    for arguments in (
        ("check", "good.yaml", "--no-such-option"),
        ("check", "good.yaml", "-k", "a and"),
        ("check", "good.yaml", "--set", "width"),
        ("check", "good.yaml", "--max-ranks", "0"),
        ("run", "good.yaml", "--timeout", "-1"),
        ("run", "good.yaml", "--timeout", "inf"),
        ("run", "good.yaml", "--timeout", "nan"),
        ("nonsense",),
    ):
        assert called(*arguments).exit_code == 2


def test_a_misspelt_command_names_the_nearest() -> None:
    assert "did you mean check?" in called("chekc").output


def test_set_replaces_a_parameter() -> None:
    assert called("check", "good.yaml", "--set", "width=9").exit_code == 0
    result = called("check", "good.yaml", "--set", "height=9")
    assert result.exit_code == 2
    assert "height" in result.output


def test_a_bound_names_the_flag_that_raises_it(folder: Path) -> None:
    text = "world_size: 65\nsteps:\n  - barrier: {}\n"
    (folder / "large.yaml").write_text(text, encoding="utf-8")
    result = called("check", "large.yaml")
    assert result.exit_code == 2
    assert "--limit ranks=N" in result.output
    assert called("check", "large.yaml", "--max-ranks", "65").exit_code == 0


def test_json_on_standard_output_is_alone_there_and_as_described(folder: Path) -> None:
    (folder / "bad.yaml").write_text("world_size: 0\n", encoding="utf-8")
    result = called("check", ".", "--json", "-")
    found = json.loads(result.stdout)
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(found)
    verdicts = {Path(entry["file"]).name: entry["verdict"] for entry in found["results"]}
    assert verdicts == {"good.yaml": "PASSED", "bad.yaml": "INVALID"}
    assert "INVALID" in result.stderr
    assert "1 passed" in result.stderr


def test_reports_are_written_to_files(folder: Path) -> None:
    assert called("check", "good.yaml", "--json", "r.json", "--junit", "r.xml").exit_code == 0
    assert json.loads((folder / "r.json").read_text(encoding="utf-8"))["exit_code"] == 0
    assert 'tests="1"' in (folder / "r.xml").read_text(encoding="utf-8")


def test_a_report_that_cannot_be_written_exits_2() -> None:
    result = called("check", "good.yaml", "--json", "missing/folder/r.json")
    assert result.exit_code == 2
    assert "cannot be written" in " ".join(result.output.split())


def test_list_shows_each_case_of_a_matrix(folder: Path) -> None:
    text = "matrix: {n: [1, 2]}\n" + GOOD.replace("world_size: 2", 'world_size: "n"')
    (folder / "many.yaml").write_text(text, encoding="utf-8")
    result = called("list", "many.yaml")
    assert result.output.splitlines() == ["many.yaml::many[n=1]", "many.yaml::many[n=2]"]
    entries = json.loads(called("list", "many.yaml", "--json", "-").stdout)
    assert [entry["world_size"] for entry in entries] == [1, 2]


def test_new_writes_a_scenario_that_passes_and_replaces_nothing(folder: Path) -> None:
    assert called("new", "mine").exit_code == 0
    assert called("check", "mine.yaml").exit_code == 0
    assert called("new", "mine").exit_code == 2
    assert called("new", "mine", "--force").exit_code == 0
    assert called("new", "no good").exit_code == 2
    text = (folder / "mine.yaml").read_text(encoding="utf-8")
    assert text.count("#") > 5


def test_new_asserts_something_that_a_wrong_number_breaks(folder: Path) -> None:
    called("new", "mine")
    path = folder / "mine.yaml"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('x: "full(width, 4)"', 'x: "full(width, 5)"'), encoding="utf-8")
    assert analyse(load(path)[0]).verdict.status == "FAILED"


def test_ops_shows_all_or_one_with_its_example() -> None:
    assert "all_reduce" in called("ops").output
    shown = called("ops", "all_gather_into_tensor").output
    assert "all_gather_single, all_gather_into_tensor" in shown
    assert "Example" in shown
    result = called("ops", "all_redcue")
    assert result.exit_code == 2
    assert "all_reduce" in result.output


def test_explain_shows_a_code_or_the_nearest() -> None:
    assert "ring" in called("explain", "circular_wait").output
    assert "duplicate_key" in called("explain").output
    result = called("explain", "circular_wiat")
    assert result.exit_code == 2
    assert "circular_wait" in result.output


def test_schema_prints_both_schemas() -> None:
    for arguments in (("schema",), ("schema", "--result")):
        jsonschema.Draft202012Validator.check_schema(json.loads(called(*arguments).output))
    assert Path(called("schema", "--path").output.strip()).is_file()


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str) -> None:
    result = called(command, "--help")
    assert result.exit_code == 0
    assert result.output.startswith("Usage:")


MANY = "matrix: {n: [1, 2, 3, 4, 5, 6]}\n" + GOOD.replace("width, rank", "n, rank").replace(
    "width, 3", "n, 3"
)


@pytest.fixture
def many(folder: Path) -> None:
    (folder / "many.yaml").write_text(MANY.replace("parameters: {width: 2}\n", ""), "utf-8")


def cases(*arguments: str) -> list[str]:
    """Return the cases that a dry run goes through, in order."""
    result = called("run", "--dry-run", "--json", "-", *arguments)
    assert result.exit_code == 0, result.output
    return [entry["case"] for entry in json.loads(result.stdout)["results"]]


@pytest.mark.usefixtures("many")
def test_a_case_or_a_line_may_be_named() -> None:
    assert cases("many.yaml::many[n=3]") == ["many[n=3]"]
    assert len(cases("many.yaml:5")) == 6
    result = called("check", "many.yaml::many[n=7]")
    assert result.exit_code == 2
    assert "did you mean many.yaml::many[n=" in result.output


def test_the_values_at_a_line_are_shown() -> None:
    for line in (5, 6):
        output = called("check", f"good.yaml:{line}").output
        assert "after good.yaml:5 each rank must hold, by the analysis:" in output
        assert "rank 0: x = [3, 3]\n      rank 1: x = [3, 3]" in output
    assert "good.yaml:1 is in no step" in called("check", "good.yaml:1").output


def test_a_line_of_a_loop_shows_what_each_pass_leaves(folder: Path) -> None:
    text = """\
world_size: 2
tensors: {x: [1]}
steps:
  - for: {i: "range(6)"}
    steps:
      - barrier: {}
      - all_reduce: {tensor: x}
"""
    (folder / "loop.yaml").write_text(text, encoding="utf-8")
    for line in (4, 5, 7):
        output = called("check", f"loop.yaml:{line}").output
        assert "after loop.yaml:7, iteration 3 each rank must hold" in output
        assert "rank 1: x = [16]" in output
        assert "... and 2 more iterations" in output


def test_a_line_shows_who_is_stuck_and_who_never_came(folder: Path) -> None:
    text = """\
world_size: 2
tensors: {x: [1]}
steps:
  - {ranks: 0, recv: {tensor: x, src: 1}}
  - all_reduce: {tensor: x}
expect: {outcome: deadlock, diagnosis: [unmatched_recv, missing_participant]}
"""
    (folder / "stuck.yaml").write_text(text, encoding="utf-8")
    assert "rank 0: blocked in `recv from 1`" in called("check", "stuck.yaml:4").output


@pytest.mark.usefixtures("many")
def test_shards_are_disjoint_and_an_empty_one_passes() -> None:
    found = [cases("many.yaml", "--shard", f"{number}/4") for number in (1, 2, 3, 4)]
    assert sorted(case for part in found for case in part) == [f"many[n={n}]" for n in range(1, 7)]
    result = called("run", "--dry-run", "good.yaml", "--shard", "2/2")
    assert result.exit_code == 0
    assert "shard 2/2 of 1 cases is empty" in result.output
    assert called("run", "--dry-run", "good.yaml", "-k", "x and y", "--shard", "2/2").exit_code == 5


@pytest.mark.usefixtures("many")
def test_a_seed_is_printed_and_gives_the_same_order_again() -> None:
    result = called("run", "--dry-run", "many.yaml", "--shuffle", "random", "--json", "r.json")
    seed = json.loads(Path("r.json").read_text(encoding="utf-8"))["selection"]["seed"]
    assert f"note: in the order of --shuffle {seed}" in result.output
    order = cases("many.yaml", "--shuffle", str(seed))
    assert order == cases("many.yaml", "--shuffle", str(seed))
    orders = {tuple(cases("many.yaml", "--shuffle", str(seed))) for seed in range(4)}
    assert len(orders) > 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("--shard", "0/2"),
        ("--shard", "3/2"),
        ("--shard", "1"),
        ("--shuffle", "x"),
        ("--repeat", "0"),
        ("--lf", "--no-cache"),
    ],
)
def test_a_part_or_an_order_that_makes_no_sense_exits_2(arguments: tuple[str, ...]) -> None:
    result = called("run", "--dry-run", "good.yaml", *arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_help_stands_in_groups() -> None:
    output = called("run", "--help").output
    titles = [line for line in output.splitlines() if line.endswith(":") and line[0] != " "]
    assert [title.split(" ")[0] for title in titles] == [
        "Which",
        "How",
        "Reports",
        "Bounds",
        "Other:",
    ]


@pytest.mark.parametrize("command", ["check", "run", "run --dry-run", "bless", "minimize"])
def test_a_backend_that_is_not_there_exits_2_with_the_list(command: str) -> None:
    result = called(*command.split(), "good.yaml", "--backend", "glooo")
    assert result.exit_code == 2
    assert "there is no backend 'glooo'; there are cncl, fake, gloo" in result.output
    assert "Did you mean 'gloo'?" in result.output
    assert "good.yaml" not in result.output


@pytest.mark.parametrize("name", ["gloo", "GLOO", "cpu:gloo,cuda:nccl", "mpi"])
def test_a_backend_that_torch_may_have_is_taken(name: str) -> None:
    assert called("check", "good.yaml", "--backend", name).exit_code == 0


def test_a_module_of_a_plugin_may_register_any_backend() -> None:
    # wherever it is named on the command line
    assert called("check", "good.yaml", "--backend", "own", "--plugin", "it").exit_code == 0
    arguments = ("run", "--dry-run", "good.yaml", "--plugin", "it", "--backend", "own")
    assert called(*arguments).exit_code == 0


@pytest.mark.parametrize("steps", ["9:12", "2", "0", "3:1"])
def test_steps_that_a_picture_does_not_have_exit_2(steps: str) -> None:
    result = called("show", "good.yaml", "--steps", steps)
    assert result.exit_code == 2
    assert "no step is drawn: the picture has steps 1 to 1" in result.output
    assert isinstance(result.exception, SystemExit)


def test_a_dry_run_stops_at_the_first_failure(folder: Path) -> None:
    (folder / "a.yaml").write_text(GOOD.replace("width, 3", "width, 4"), encoding="utf-8")
    (folder / "b.yaml").write_text(GOOD.replace("width, 3", "width, 5"), encoding="utf-8")
    result = called("run", "--dry-run", "-x", "good.yaml", "a.yaml", "b.yaml")
    assert result.exit_code == 1
    assert "FAILED       a.yaml::a" in result.output
    assert "b.yaml" not in result.output
    assert "1 passed, 1 failed, 1 not run" in result.output


def test_examples_are_listed_by_subject(folder: Path) -> None:
    del folder
    subjects = called("examples")
    assert subjects.exit_code == 0
    assert "\ngroups " in subjects.output
    listed = called("examples", "groups")
    assert "groups/groups_even\n    A process has one rank in the world" in listed.output
    wrong = called("examples", "group")
    assert wrong.exit_code == 2
    assert "there is no subject group; did you mean groups?" in wrong.output


def test_every_folder_of_the_corpus_is_a_subject() -> None:
    folders = {each.name for each in corpus_folder().iterdir() if each.is_dir()}
    assert folders == set(SUBJECTS)


def test_a_lesson_is_the_first_sentence() -> None:
    assert first_sentence("Sums at 1.5 s, e.g. here. And then.") == "Sums at 1.5 s, e.g. here."
    assert first_sentence('Reported as "it hangs": so it\n  does') == (
        'Reported as "it hangs": so it does'
    )


def test_an_example_is_copied_with_the_parts_that_it_uses(folder: Path) -> None:
    copied = called("new", "mine", "--from", "language/use_ring_all_reduce")
    assert copied.exit_code == 0
    assert not (folder / "mine.yaml").read_text(encoding="utf-8").startswith("# yaml-language")
    assert (folder / "parts" / "ring_all_reduce.yaml").exists()
    assert called("check", "mine.yaml").exit_code == 0
    unknown = called("new", "other", "--from", "groups/groups_evn")
    assert unknown.exit_code == 2
    assert (
        "there is no example groups/groups_evn; did you mean groups/groups_even?" in unknown.output
    )
    several = called("new", "other", "--from", "prefix_sum")
    assert "several examples have the name prefix_sum: compute/prefix_sum, p2p/prefix_sum" in (
        several.output
    )
    assert not (folder / "other.yaml").exists()


def test_a_file_that_is_not_there_may_be_an_example(folder: Path) -> None:
    del folder
    result = called("run", "groups_even.yaml")
    assert result.exit_code == 2
    assert "`scenario new groups_even --from groups/groups_even` " in result.output


def test_list_writes_json_into_a_file(folder: Path) -> None:
    result = called("list", "good.yaml", "--json", "cases.json")
    assert result.exit_code == 0
    assert "good.yaml::good" in result.output
    (entry,) = json.loads((folder / "cases.json").read_text(encoding="utf-8"))
    assert entry["case"] == "good"
    assert called("list", "good.yaml", "--json", "nowhere/cases.json").exit_code == 3


BOUNDED = [
    name
    for name in COMMANDS
    if any(param.name == "max_ranks" for param in cli.get_command(click.Context(cli), name).params)  # type: ignore[union-attr]
]


@pytest.mark.parametrize("command", BOUNDED)
def test_a_limit_is_set_by_its_name(command: str, folder: Path) -> None:
    (folder / "large.yaml").write_text(GOOD.replace("size: 2", "size: 5"), encoding="utf-8")
    for wanted in (["--limit", "ranks=4"], ["--limit=ranks=4"], ["--max-ranks", "4"]):
        result = called(command, "large.yaml", *wanted)
        assert "at most 4 ranks of the world" in result.output, result.output
    assert "--max-ranks" not in called(command, "--help").output
    assert "--limit NAME=N" in called(command, "--help").output


def test_a_limit_of_no_name_is_refused_with_the_nearest() -> None:
    assert "did you mean ranks=N?" in called("check", "--limit", "rank=4").output
    assert "`scenario explain limits` lists them" in called("check", "--limit", "x").output
    assert called("check", "--limit", "rank=4").exit_code == 2
    assert called("check", "-k", "good", "--limit", "ranks=4").exit_code == 0
