"""`scenario show`: pictures to the byte, every step and message in them, the command's manners.

The golden pictures lie in `show/`. After a change of drawing write all of them anew, and read them:

    python tests/unit/test_show.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_programs import programs

import torch_scenarios
from torch_scenarios.cli import cli
from torch_scenarios.pipeline.history import FOLDER
from torch_scenarios.pipeline.results import Outcome
from torch_scenarios.pipeline.results import Result as CaseResult
from torch_scenarios.report.diagram.lanes import picture
from torch_scenarios.report.diagram.layout import PictureView
from torch_scenarios.report.latest import LatestRun
from torch_scenarios.timeline import Timeline, timeline
from torch_scenarios.verdict import Verdict

if TYPE_CHECKING:
    from torch_scenarios.verdict.finding import Status

CORPUS = Path(__file__).parents[2] / "scenarios"
GOLDEN = Path(__file__).parent / "show"

#: name of the golden picture -> the file in the corpus, and how it is looked at
PICTURES: dict[str, tuple[str, PictureView]] = {
    "collectives_in_groups": ("groups/mesh_2x4.yaml", PictureView()),
    "messages": ("p2p/even_odd_ring.yaml", PictureView()),
    "receives_first": ("p2p/halo_exchange.yaml", PictureView(values=True)),
    "ring_of_batches": ("p2p/batch_ring.yaml", PictureView()),
    "from_a_used_file": ("language/use_ring_all_reduce.yaml", PictureView(width=80)),
    "gossip": ("training/gossip.yaml", PictureView()),
    "pipeline": ("training/pipeline_microbatches.yaml", PictureView(steps=(2, 9))),
    "group_on_the_way": ("groups/created_on_the_way.yaml", PictureView(values=True, width=80)),
    "sends_first": ("p2p/both_send_first.yaml", PictureView(width=80)),
    "ring_of_sends": ("wrong/circular_wait/ring_of_sends.yaml", PictureView()),
    "three_across_a_group": (
        "wrong/circular_wait/three_across_a_group.yaml",
        PictureView(width=80),
    ),
    "wait_too_early": ("wrong/circular_wait/wait_too_early.yaml", PictureView()),
    "groups_crossed": ("reported/two_groups_crossed.yaml", PictureView(width=120)),
    "different_calls": ("reported/extra_all_gather.yaml", PictureView()),
    "different_groups": ("wrong/group_creation/swapped.yaml", PictureView()),
    "absent": ("reported/ranks_that_never_join.yaml", PictureView()),
    "from_anyone": ("wrong/unmatched_recv/from_anyone_and_nobody.yaml", PictureView()),
    "raises": ("faults/raises.yaml", PictureView()),
    "killed": ("faults/killed_peer.yaml", PictureView()),
}

CALM = settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

LOOP = (
    "world_size: 2\ntensors: {x: [1], y: [0]}\nsteps:\n"
    '- for: {i: "range(30)"}\n  steps:\n'
    "  - {all_reduce: {tensor: x, op: max}}\n  - {compute: {x: x + 1}}\n"
)


def of_file(path: Path) -> Timeline:
    scenario = torch_scenarios.load(path)[0]
    trace = torch_scenarios.simulate(torch_scenarios.plan(scenario))
    return timeline(scenario, trace, trace)


def predicted(text: str, folder: Path) -> Timeline:
    path = folder / "program.yaml"
    path.write_text(text, encoding="utf-8")
    return of_file(path)


def drawn(found: Timeline, view: PictureView) -> str:
    lines = ("".join(piece.text for piece in line).rstrip() for line in picture(found, view))
    return "\n".join([*lines, ""])


def golden(name: str) -> str:
    file, view = PICTURES[name]
    return drawn(of_file(CORPUS / file), view).replace(str(CORPUS), "scenarios")


def shown(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["show", *arguments])


# ---------------------------------------------------------------------------- the picture


@pytest.mark.parametrize("name", sorted(PICTURES))
def test_a_picture_is_the_golden_one(name: str) -> None:
    assert golden(name) == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8"), (
        "`python tests/unit/test_show.py` draws all of them anew: read the difference"
    )


def test_every_golden_picture_is_drawn() -> None:
    assert {path.stem for path in GOLDEN.glob("*.txt")} == set(PICTURES)


@pytest.mark.parametrize("name", sorted(PICTURES))
def test_no_line_is_wider_than_what_is_asked_for(name: str) -> None:
    file, view = PICTURES[name]
    lines = drawn(of_file(CORPUS / file), view).splitlines()
    assert max(len(line) for line in lines[1:]) <= view.width


def cells(found: Timeline, view: PictureView) -> str:
    """Return every character that was drawn for a step, a collective or a message."""
    inked = {"step", "stuck", "open", "raised", "arrow", "bar"}
    return "".join(
        piece.text
        for line in picture(found, view)
        for piece in line[1:]
        if piece.style in inked and not piece.text.startswith("  ")
    )


@given(text=programs(wrong=True) | programs(wrong=False))
@CALM
def test_every_step_has_a_node_and_every_message_an_arrow(text: str, tmp_path: Path) -> None:
    found = predicted(text, tmp_path)
    ink = cells(found, PictureView(steps=(1, None), width=200))
    nodes = sum(ink.count(each) for each in "●•○◌!✗")
    assert nodes == sum(len(lane.spans) for lane in found.lanes)
    arrived = [m for m in found.matches if m.kind == "message" and m.complete]
    assert ink.count("▶") + ink.count("◀") == len(arrived)


@given(text=programs(wrong=True), ranks=st.sets(st.integers(0, 1), min_size=1))
@CALM
def test_some_ranks_are_drawn_with_all_their_steps(
    text: str, ranks: set[int], tmp_path: Path
) -> None:
    found = predicted(text, tmp_path)
    ink = cells(found, PictureView(steps=(1, None), width=200, ranks=tuple(ranks)))
    steps = sum(len(lane.spans) for lane in found.lanes if lane.rank in ranks)
    assert sum(ink.count(each) for each in "●•○◌!✗") == steps


def test_an_arrow_passes_no_rank_that_takes_a_step_in_its_row(tmp_path: Path) -> None:
    text = (
        "world_size: 4\ntensors: {x: [1], y: [0]}\nsteps:\n"
        "- ranks: rank < 2\n  send: {tensor: x, dst: rank + 2}\n"
        "- ranks: rank >= 2\n  recv: {tensor: y, src: rank - 2}\n"
    )
    assert drawn(predicted(text, tmp_path), PictureView()).splitlines()[2:] == [
        "line  rank 0    rank 1    rank 2    rank 3",
        " 5,7  ●─────────│────────▶●         │  send / recv",
        " 5,7  │         ●─────────│────────▶●  send / recv",
    ]


def test_asynchronous_calls_that_cross_are_drawn_one_above_the_other(tmp_path: Path) -> None:
    text = (
        "world_size: 2\ngroups: {a: [0, 1], b: [0, 1]}\ntensors: {x: [1], y: [1]}\nsteps:\n"
        "- {ranks: 0, all_reduce: {tensor: x, group: a, async_op: true}, as: p}\n"
        "- {all_reduce: {tensor: y, group: b, async_op: true}, as: q}\n"
        "- {ranks: 1, all_reduce: {tensor: x, group: a, async_op: true}, as: p}\n"
        "- wait: [p, q]\n"
    )
    assert drawn(predicted(text, tmp_path), PictureView()).splitlines()[3:7] == [
        "   5  ○         │  all_reduce on a",
        "   6  ○━━━━━━━━━○  all_reduce on b",
        "   7  ┿━━━━━━━━━○  all_reduce on a",
        "   8  ●         ●  wait p, q",
    ]


# ---------------------------------------------------------------------------- large programs


def test_the_middle_of_a_long_program_is_left_out_and_said_so(tmp_path: Path) -> None:
    lines = drawn(predicted(LOOP, tmp_path), PictureView()).splitlines()
    assert lines[15] == "   ⋮  ⋮         ⋮  … 30 more steps: --steps 13:42"
    assert lines[16] == "   6  ●━━━━━━━━━●  all_reduce  iteration 21"
    assert len(lines) == 3 + 12 + 1 + 18


def test_steps_are_chosen_by_number(tmp_path: Path) -> None:
    found = predicted(LOOP, tmp_path)
    assert drawn(found, PictureView(steps=(59, None))).splitlines()[3:] == [
        "   ⋮  ⋮         ⋮  … 58 more steps: --steps 1:58",
        "   6  ●━━━━━━━━━●  all_reduce  iteration 29",
        "   7  •         •  compute  iteration 29",
    ]
    assert drawn(found, PictureView(steps=(None, 1))).splitlines()[3:] == [
        "   6  ●━━━━━━━━━●  all_reduce  iteration 0",
        "   ⋮  ⋮         ⋮  … 59 more steps: --steps 2:60",
    ]


def test_a_large_world_is_cut_to_the_width_and_the_ranks_at_fault_stay(tmp_path: Path) -> None:
    text = (
        "world_size: 60\ntensors: {x: [1]}\nsteps:\n"
        '- {ranks: "rank != 50", all_reduce: {tensor: x}}\n'
    )
    path = tmp_path / "program.yaml"
    found = predicted(text, tmp_path)
    lines = drawn(found, PictureView(width=100, ranks=(49, 50, 51))).splitlines()
    assert lines[2:4] == [
        "line  rank 49   rank 50   rank 51",
        "   4  ✗╍╍╍╍╍╍╍╍╍?╍╍╍╍╍╍╍╍╍✗  all_reduce  waits for rank 50 to enter `all_reduce`",
    ]
    cut = drawn(found, PictureView(width=100))
    assert " 48 49 50 " not in cut
    assert cut.splitlines()[2].endswith(" 18 50  rank")
    assert "… 40 more ranks: --ranks chooses which are drawn" in cut
    refused = shown(str(path), "--ranks", "0,60")
    assert refused.exit_code == 2
    assert "there is no rank 60, the world has ranks 0 to 59" in refused.output


# ---------------------------------------------------------------------------- the command


def test_a_case_is_drawn_without_a_run() -> None:
    result = shown(str(CORPUS / "p2p/both_send_first.yaml"))
    assert result.exit_code == 0
    assert "predicted: deadlock" in result.output
    assert "circular_wait  0 → 1 → 0" in result.output


def test_a_case_is_named_and_the_others_of_a_file_are_told(tmp_path: Path) -> None:
    path = tmp_path / "two.yaml"
    path.write_text(
        'world_size: 2\nmatrix: {n: [1, 2]}\ntensors: {x: "full(n, 1)"}\n'
        "steps:\n- {all_reduce: {tensor: x}}\n"
    )
    cases = [scenario.case for scenario in torch_scenarios.load(path)]
    assert f"also there:\n  {path}::{cases[1]}" in shown(str(path)).output
    chosen = shown(f"{path}::{cases[1]}", "--values").output
    assert "also there" not in chosen
    assert "x = [2, 2]" in chosen


def test_a_wrong_expectation_is_said_below_the_picture(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(
        "world_size: 2\ntensors: {x: [1]}\nsteps:\n- all_reduce: {tensor: x}\n  expect: {x: [3]}\n"
    )
    output = shown(str(path)).output
    assert "●━━━━━━━━━●  all_reduce" in output
    assert "your expectation is wrong: x differs on ranks 0 and 1" in output


def test_where_a_stream_has_only_ascii_the_picture_is_in_ascii(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    runs = CliRunner(charset="ascii")
    output = runs.invoke(cli, ["show", str(CORPUS / "p2p/both_send_first.yaml")]).output
    assert output.isascii()
    assert "  14  X~~~~~~~~>?  send to 1" in output
    assert "circular_wait  0 -> 1 -> 0" in output


def test_colours_are_asked_for_and_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    file = str(CORPUS / "p2p/both_send_first.yaml")
    assert "\x1b" not in shown(file).output
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[1;31m" in shown(file).output
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[1;31m" not in shown(file).output


def test_control_characters_of_a_file_do_not_reach_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "sly.yaml"
    path.write_text(
        'world_size: 2\ntensors: {x: [1]}\nsteps:\n- {name: "a\\e[2Jb", all_reduce: {tensor: x}}\n'
    )
    assert "\x1b" not in shown(str(path)).output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name a FILE to draw, or --last for the latest run"),
        (("a.yaml", "--run", "--last"), "--last draws the latest run; --run makes a new one"),
        (("a.yaml", "--ranks", "one"), "'one' names no ranks; ranks are written like 0,3,8-11"),
        (("a.yaml", "--ranks", "5-3"), "'5-3' names no ranks"),
        (("a.yaml", "--ranks", "0-99999999999"), "'0-99999999999' names no ranks"),
        (("a.yaml", "--steps", "x:"), "'x:' names no steps; they are written like 10:30"),
        (("nowhere.yaml",), "nowhere.yaml"),
    ],
)
def test_a_wrong_command_line_is_refused(arguments: tuple[str, ...], message: str) -> None:
    result = shown(*arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_an_invalid_file_is_told_as_by_check(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("world_size: two\n")
    result = shown(str(tmp_path / "bad.yaml"))
    assert result.exit_code == 2
    assert "bad.yaml:1:13" in result.output


# ---------------------------------------------------------------------------- the latest run


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder that is a project of its own."""
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_without_a_latest_run_that_is_said(project: Path) -> None:
    result = shown("--last")
    assert result.exit_code == 2
    assert "there is no latest run here" in result.output
    (project / FOLDER).mkdir()
    (project / FOLDER / "timelines.jsonl").write_text('{"format": "other"}\n')
    result = shown("--last")
    assert result.exit_code == 2
    said = " ".join(result.output.split())
    assert "cannot be read: it is damaged, or of another version" in said


def test_the_latest_run_is_drawn_what_failed_first(project: Path) -> None:
    outcome = Outcome(results=())
    keeper = LatestRun(project / FOLDER)
    for name in ("p2p/ping_pong.yaml", "p2p/both_send_first.yaml"):
        scenario = torch_scenarios.load(CORPUS / name)[0]
        trace = torch_scenarios.simulate(torch_scenarios.plan(scenario))
        status: Status = "FAILED" if "send" in name else "PASSED"
        verdict = Verdict(status=status, predicted=trace)
        keeper.finish(CaseResult(file=name, case=scenario.case, verdict=verdict, scenario=scenario))
    keeper.end(outcome)
    output = shown("--last").output
    assert "both_send_first.yaml::both_send_first  predicted: deadlock" in output
    assert "FAILED in the latest run" in output
    assert output.endswith("also there:\n  PASSED       p2p/ping_pong.yaml::ping_pong\n")
    assert "ping_pong.yaml::ping_pong  predicted: completes" in shown("--last", "ping").output
    nowhere = shown("--last", "nowhere")
    assert nowhere.exit_code == 5
    assert "PASSED       p2p/ping_pong.yaml::ping_pong" in nowhere.output


def test_a_name_with_a_line_break_of_unicode_is_read_back(project: Path) -> None:
    scenario = torch_scenarios.load(CORPUS / "p2p/ping_pong.yaml")[0]
    keeper = LatestRun(project / FOLDER)
    verdict = Verdict(
        status="PASSED", predicted=torch_scenarios.simulate(torch_scenarios.plan(scenario))
    )
    keeper.finish(
        CaseResult(file="a.yaml", case="one\u2028two\x85", verdict=verdict, scenario=scenario)
    )
    keeper.end(Outcome(results=()))
    assert "predicted: completes" in shown("--last").output


def test_a_run_in_which_nothing_ran_is_not_the_latest(project: Path) -> None:
    scenario = torch_scenarios.load(CORPUS / "p2p/ping_pong.yaml")[0]
    first, second = LatestRun(project / FOLDER), LatestRun(project / FOLDER)
    verdict = Verdict(
        status="PASSED", predicted=torch_scenarios.simulate(torch_scenarios.plan(scenario))
    )
    first.finish(CaseResult(file="a.yaml", case="a", verdict=verdict, scenario=scenario))
    first.end(Outcome(results=()))
    second.finish(CaseResult(file="b.yaml", case="b.yaml", verdict=Verdict(status="INVALID")))
    second.end(Outcome(results=()))
    assert "ping_pong  predicted: completes" in shown("--last").output


def test_a_run_of_very_many_cases_keeps_what_failed_and_some_of_the_rest(project: Path) -> None:
    scenario = torch_scenarios.load(CORPUS / "p2p/ping_pong.yaml")[0]
    trace = torch_scenarios.simulate(torch_scenarios.plan(scenario))
    keeper = LatestRun(project / FOLDER)
    for number in range(100):
        verdict = Verdict(status="PASSED" if number < 80 else "FAILED", predicted=trace)
        keeper.finish(
            CaseResult(file="a.yaml", case=str(number), verdict=verdict, scenario=scenario)
        )
    keeper.end(Outcome(results=()))
    _, *lines = (project / FOLDER / "timelines.jsonl").read_text(encoding="utf-8").splitlines()
    kept = [json.loads(line) for line in lines]
    assert [row["status"] for row in kept] == ["FAILED"] * 20 + ["PASSED"] * 40


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for each in PICTURES:
        (GOLDEN / f"{each}.txt").write_text(golden(each), encoding="utf-8")
