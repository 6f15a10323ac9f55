"""Where ranks were on several hosts, reports, pictures and diagnoses name the host of each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import jsonschema
import pytest
from judging import loaded, ran, writing
from msgspec.structs import replace

from torch_scenarios.pipeline.results import Outcome, Result, environment
from torch_scenarios.report.chrome_trace import Numbers, events_of
from torch_scenarios.report.diagram.lanes import picture
from torch_scenarios.report.diagram.layout import PictureView
from torch_scenarios.report.json import document, results_of
from torch_scenarios.report.text import details, write_details
from torch_scenarios.timeline import pack, timeline
from torch_scenarios.timeline.codec import unpack

if TYPE_CHECKING:
    from torch_scenarios.model.trace import Trace
    from torch_scenarios.timeline import Timeline

SCHEMA = json.loads(
    (Path(__file__).parents[2] / "schemas" / "result.schema.json").read_text(encoding="utf-8")
)
SUM = "world_size: 4\ntensors: {x: [1]}\nsteps: [{all_reduce: {tensor: x}, expect: {x: [4]}}]\n"


def on_two_hosts(trace: Trace) -> Trace:
    """Return a run whose ranks were on two hosts, two on each."""
    return replace(trace, hosts={rank.rank: f"node{rank.rank // 2}" for rank in trace.ranks})


@pytest.fixture
def drawn(tmp_path: Path) -> Timeline:
    """Return the timeline of such a run."""
    scenario, predicted = loaded(SUM, tmp_path)
    return timeline(scenario, on_two_hosts(predicted), predicted)


def test_a_picture_names_the_hosts_above_the_ranks(drawn: Timeline) -> None:
    lines = [
        "".join(piece.text for piece in line).rstrip() for line in picture(drawn, PictureView())
    ]
    at = next(number for number, line in enumerate(lines) if "rank 3" in line)
    assert lines[at - 1].split() == ["node0", "node1"]
    assert lines[at - 1].index("node0") == lines[at].index("rank 0")
    assert lines[at - 1].index("node1") == lines[at].index("rank 2")


def test_a_picture_of_one_host_names_none(tmp_path: Path) -> None:
    scenario, predicted = loaded(SUM, tmp_path)
    (first, second, third, *_) = picture(timeline(scenario, predicted, predicted), PictureView())
    assert not second
    assert "rank 0" in "".join(piece.text for piece in third), first


def test_a_name_too_long_for_its_lanes_is_cut(drawn: Timeline) -> None:
    name = "a-node-whose-name-does-not-fit-above-two-lanes"
    lanes = tuple(replace(lane, host=name if lane.rank < 2 else "b") for lane in drawn.lanes)
    (_, _, heads, ranks, *_) = picture(replace(drawn, lanes=lanes), PictureView())
    above, below = ("".join(piece.text for piece in line) for line in (heads, ranks))
    assert above.index("b") == below.index("rank 2")
    assert "…" in above


def test_the_page_reads_the_hosts_from_the_timeline(drawn: Timeline) -> None:
    assert unpack(json.loads(json.dumps(pack(drawn)))) == drawn
    assert [lane["host"] for lane in pack(drawn)["lanes"]] == ["node0"] * 2 + ["node1"] * 2


def test_a_trace_names_the_host_of_each_rank(drawn: Timeline) -> None:
    names = [
        each["args"]["name"]
        for each in events_of(drawn, Numbers(), 1)
        if each["name"] == "thread_name"
    ]
    assert "rank 3 on node1" in names


def test_a_failure_names_the_hosts(tmp_path: Path) -> None:
    verdict = ran(SUM, tmp_path, on_two_hosts, writing(0, 3, "x", [5]))
    result = Result(file="a", case="a", verdict=verdict)
    told = [line.text for line in (*details(result), *write_details(verdict))]
    assert told.count("  hosts: ranks 0 and 1 on node0; ranks 2 and 3 on node1") == 1


def test_results_come_back_with_their_hosts(tmp_path: Path) -> None:
    verdict = ran(SUM, tmp_path, on_two_hosts)
    written = document(Outcome(results=(Result(file="a", case="a", verdict=verdict),)))
    jsonschema.validate(written, SCHEMA)
    assert written["results"][0]["observed"]["hosts"] == {"node0": [0, 1], "node1": [2, 3]}
    path = tmp_path / "results.json"
    path.write_text(json.dumps(written), encoding="utf-8")
    (back,) = results_of(path).results
    assert back.verdict.observed is not None
    assert back.verdict.observed.hosts == {0: "node0", 1: "node0", 2: "node1", 3: "node1"}


def test_a_run_names_the_hosts_of_its_largest_case(tmp_path: Path) -> None:
    small = ran(SUM.replace("4", "2"), tmp_path)
    assert small.observed is not None
    one = replace(small, observed=replace(small.observed, environment={"hosts": "none"}))
    large = ran(SUM, tmp_path, on_two_hosts)
    assert large.observed is not None
    both = replace(large, observed=replace(large.observed, environment={"hosts": "both"}))
    results = tuple(Result(file="a", case="a", verdict=each) for each in (one, both))
    assert environment(Outcome(results=results))["hosts"] == "both"
