"""`scenario show --svg`: every step and message in the picture, nothing of a file as markup."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from click.testing import CliRunner

import torch_scenarios
from torch_scenarios.cli import cli
from torch_scenarios.report.diagram import PictureView, svg
from torch_scenarios.timeline import Timeline, timeline

CORPUS = Path(__file__).parents[2] / "scenarios"
SPACE = "{http://www.w3.org/2000/svg}"


def of_file(path: Path) -> Timeline:
    scenario = torch_scenarios.load(path)[0]
    trace = torch_scenarios.simulate(torch_scenarios.plan(scenario))
    return timeline(scenario, trace, trace)


def parts(text: str, style: str) -> list[ET.Element]:
    return [each for each in ET.fromstring(text).iter() if each.get("class") == style]  # noqa: S314 -- ours


def words(text: str) -> str:
    return "\n".join("".join(each.itertext()) for each in ET.fromstring(text).iter(f"{SPACE}text"))  # noqa: S314 -- ours


@pytest.mark.parametrize("name", ["groups/mesh_2x4", "p2p/halo_exchange", "faults/killed_peer"])
def test_each_rank_has_a_lane_and_each_step_a_node(name: str) -> None:
    found = of_file(CORPUS / f"{name}.yaml")
    text = svg(found, PictureView())
    assert len(parts(text, "lane")) == len(found.lanes)
    nodes = len(parts(text, "node")) + len(parts(text, "ring")) + len(parts(text, "ring gap"))
    missing = sum(len(match.missing) for match in found.matches)
    assert nodes == sum(len(lane.spans) for lane in found.lanes) + missing
    assert {span.label for lane in found.lanes for span in lane.spans if span.kind == "local"} <= {
        line.strip() for line in words(text).splitlines()
    }


def test_a_ring_of_sends_is_stuck_and_told() -> None:
    text = svg(of_file(CORPUS / "p2p/both_send_first.yaml"), PictureView())
    assert len(parts(text, "cross")) == 2
    assert len(parts(text, "rest")) == 2
    assert len(parts(text, "tip lost")) == 2
    assert "circular_wait  0 → 1 → 0" in words(text)
    assert "waits for rank 1 to receive" in words(text)


def test_a_picture_that_is_kept_names_no_folder(tmp_path: Path) -> None:
    path = tmp_path / "two_broadcasts.yaml"
    path.write_bytes((CORPUS / "collectives" / "two_broadcasts.yaml").read_bytes())
    text = svg(of_file(path), PictureView())
    assert "<title>two_broadcasts.yaml::two_broadcasts, completes</title>" in text
    assert str(tmp_path) not in text


def test_messages_have_heads_and_collectives_bars() -> None:
    assert len(parts(svg(of_file(CORPUS / "p2p/ping_pong.yaml"), PictureView()), "tip")) > 1
    two = svg(of_file(CORPUS / "collectives/two_broadcasts.yaml"), PictureView())
    assert len(parts(two, "bar")) == 2


def test_values_are_shown_where_they_are_asked_for() -> None:
    found = of_file(CORPUS / "collectives/broadcast.yaml")
    assert "x = [1, 2, 3, 4, 5]" in words(svg(found, PictureView(values=True)))
    assert "x = " not in words(svg(found, PictureView()))


def test_what_a_file_says_is_text_and_no_markup(tmp_path: Path) -> None:
    path = tmp_path / "marked.yaml"
    path.write_text(
        "world_size: 2\ntensors: {x: [1]}\nsteps:\n"
        '  - {name: "</text><script>alert(1)</script> \\u0007&", all_reduce: {tensor: x}}\n'
    )
    text = svg(of_file(path), PictureView())
    assert not list(ET.fromstring(text).iter(f"{SPACE}script"))  # noqa: S314 -- ours
    assert "<script>alert(1)</script>" in words(text)


def test_steps_that_are_left_out_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "long.yaml"
    path.write_text(
        "world_size: 2\ntensors: {x: [1]}\nsteps:\n"
        '- for: {i: "range(60)"}\n  steps:\n  - {all_reduce: {tensor: x, op: max}}\n'
    )
    text = svg(of_file(path), PictureView())
    assert "… 30 more steps" in words(text)
    assert len(parts(text, "bar")) == 30


def test_the_command_writes_it_beside_the_text(tmp_path: Path) -> None:
    file = str(CORPUS / "p2p/ping_pong.yaml")
    target = tmp_path / "picture.svg"
    done = CliRunner().invoke(cli, ["show", file, "--svg", str(target)])
    assert done.exit_code == 0
    assert "ping_pong  predicted: completes" in done.output
    assert target.read_text(encoding="utf-8") == svg(of_file(Path(file)), PictureView())
    alone = CliRunner().invoke(cli, ["show", file, "--svg", "-"])
    assert alone.output == target.read_text(encoding="utf-8")
    away = CliRunner().invoke(cli, ["show", file, "--svg", str(tmp_path / "no" / "a.svg")])
    assert away.exit_code == 2
    assert "it cannot be written" in away.output
