"""`--trace`: a document of the format, with slices that nest and arrows that hold on to them."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from click.testing import CliRunner

import torch_scenarios
from torch_scenarios.cli import cli
from torch_scenarios.model.trace import Event, RankTrace, Trace
from torch_scenarios.pipeline.results import Outcome, Result
from torch_scenarios.report.chrome_trace import TraceReport
from torch_scenarios.verdict import Verdict
from torch_scenarios.vocabulary import DIAGNOSES

if TYPE_CHECKING:
    from torch_scenarios.model.scenario import Scenario

SCHEMA = json.loads((Path(__file__).parent / "trace_event.schema.json").read_text("utf-8"))

CORPUS = Path(__file__).parents[2] / "scenarios"

#: some of every sort: messages, asynchronous work, groups, loops, hangs, errors
FILES = (
    "p2p/both_send_first.yaml",
    "p2p/halo_exchange.yaml",
    "p2p/from_anyone.yaml",
    "async/waits_backwards.yaml",
    "groups/mesh_2x4.yaml",
    "groups/created_on_the_way.yaml",
    "reported/two_groups_crossed.yaml",
    "training/pipeline_microbatches.yaml",
    "faults/raises.yaml",
)


def predicted(text: str, folder: Path) -> Result:
    path = folder / "program.yaml"
    path.write_text(text, encoding="utf-8")
    (scenario,) = torch_scenarios.load(path)
    return result_of(scenario)


def result_of(scenario: Scenario, observed: Trace | None = None) -> Result:
    trace = torch_scenarios.simulate(torch_scenarios.plan(scenario))
    verdict = Verdict(status="PASSED", predicted=trace, observed=observed)
    return Result(file="program.yaml", case=scenario.case, verdict=verdict, scenario=scenario)


def events_of(*results: Result) -> list[dict[str, Any]]:
    file = io.StringIO()
    report = TraceReport(file)
    report.begin(len(results))
    for result in results:
        report.finish(result)
    report.end(Outcome(results=results))
    document = json.loads(file.getvalue())
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    events: list[dict[str, Any]] = document["traceEvents"]
    return events


def slices_of(events: list[dict[str, Any]]) -> dict[tuple[int, int], list[tuple[float, float]]]:
    found = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            found[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    return found


def flows_of(events: list[dict[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    found = defaultdict(list)
    for event in events:
        if event["ph"] in "stf":
            found[event["id"]].append(event)
    return found


def names_of(events: list[dict[str, Any]], category: str) -> list[str]:
    return [e["name"] for e in events if e["ph"] == "X" and e["cat"] == category]


@pytest.mark.parametrize("name", FILES)
def test_slices_nest_and_arrows_go_forward_between_them(name: str) -> None:
    for scenario in torch_scenarios.load(CORPUS / name):
        events = events_of(result_of(scenario))
        slices = slices_of(events)
        for spans in slices.values():
            for start, end in spans:
                assert all(
                    other_end <= start
                    or end <= other_start
                    or (start <= other_start and other_end <= end)
                    or (other_start <= start and end <= other_end)
                    for other_start, other_end in spans
                )
        for flow in flows_of(events).values():
            assert [event["ph"] for event in flow] == ["s", *"t" * (len(flow) - 2), "f"]
            assert [event["ts"] for event in flow] == sorted(event["ts"] for event in flow)
            for event in flow:
                own = slices[event["pid"], event["tid"]]
                assert any(start <= event["ts"] < end for start, end in own)


def test_a_message_has_an_arrow_from_its_send_to_where_it_was_complete(tmp_path: Path) -> None:
    text = (
        "world_size: 2\ntensors: {x: [1], y: [0]}\nsteps:\n"
        "- {ranks: 1, irecv: {tensor: y, src: 0}, as: a}\n"
        "- {ranks: 0, send: {tensor: x, dst: 1, tag: 7}}\n- {ranks: 1, wait: a}\n"
    ).replace("src: 0", "src: 0, tag: 7")
    events = events_of(predicted(text, tmp_path))
    ((start, end),) = flows_of(events).values()
    assert (start["name"], end["name"]) == ("0 → 1 tag 7", "0 → 1 tag 7")
    (wait,) = [e for e in events if e["ph"] == "X" and e["cat"] == "wait" and "args" in e]
    assert wait["ts"] < end["ts"] < wait["ts"] + wait["dur"]


def test_a_flow_goes_through_every_member_of_a_collective(tmp_path: Path) -> None:
    text = "world_size: 5\ntensors: {x: [1]}\nsteps:\n- {all_reduce: {tensor: x}}\n"
    events = events_of(predicted(text, tmp_path))
    (flow,) = flows_of(events).values()
    assert len({event["tid"] for event in flow}) == 5


def test_a_stuck_rank_waits_to_the_end_and_says_for_whom() -> None:
    (scenario,) = torch_scenarios.load(CORPUS / "p2p/both_send_first.yaml")
    events = events_of(result_of(scenario))
    waits = [event for event in events if event.get("cat") == "wait"]
    assert [event["name"] for event in waits] == [
        "waits for rank 1 to receive",
        "waits for rank 0 to receive",
    ]
    assert len({event["ts"] + event["dur"] for event in waits}) == 1


def test_a_rank_that_came_early_waits_inside_its_step(tmp_path: Path) -> None:
    text = (
        "world_size: 2\ntensors: {x: [1]}\nsteps:\n"
        "- {ranks: 1, sleep: 0.1}\n- {all_reduce: {tensor: x}}\n"
    )
    events = events_of(predicted(text, tmp_path))
    assert names_of(events, "wait") == ["waits for rank 1"]


def test_an_observed_run_is_a_process_of_its_own_with_its_own_times(tmp_path: Path) -> None:
    text = "world_size: 2\ntensors: {x: [1]}\nsteps:\n- {all_reduce: {tensor: x}}\n"
    path = tmp_path / "program.yaml"
    path.write_text(text, encoding="utf-8")
    (scenario,) = torch_scenarios.load(path)
    ranks = tuple(
        RankTrace(
            rank=rank,
            events=(Event(index=0, label="all_reduce", start_s=0.001 * rank, end_s=0.0025),),
        )
        for rank in range(2)
    )
    observed = Trace(backend="gloo", outcome="completes", ranks=ranks, duration_s=0.003)
    events = events_of(result_of(scenario, observed))
    titles = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert [title.partition(" (")[1:] for title in titles] == [
        (" (", "predicted, logical time): completes"),
        (" (", "observed, gloo): completes"),
    ]
    own = [e for e in events if e["ph"] == "X" and e["pid"] == 2]
    assert [(e["name"], e["ts"], e["dur"]) for e in own] == [
        ("all_reduce", 0, 2500),
        ("all_reduce", 1000, 1500),
        ("waits for rank 1", 0, 1000),
    ]
    threads = [e["tid"] for e in events if e["name"] == "thread_name"]
    assert len(set(threads)) == 4


def test_values_and_places_stand_with_a_step(tmp_path: Path) -> None:
    text = "world_size: 2\ntensors: {x: [1, 2]}\nsteps:\n- {all_reduce: {tensor: x}}\n"
    (event, _) = [e for e in events_of(predicted(text, tmp_path)) if e["ph"] == "X"]
    assert event["args"] == {"state": "done", "line": "program.yaml:4", "after x": "[2, 4]"}


def test_an_invalid_file_is_a_process_that_says_why(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("world_size: two\n")
    target = tmp_path / "trace.json"
    CliRunner().invoke(cli, ["check", str(tmp_path / "bad.yaml"), "--trace", str(target)])
    document = json.loads(target.read_text())
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    title = document["traceEvents"][0]["args"]["name"]
    assert title == f"INVALID {tmp_path / 'bad.yaml'}"
    problems = [e for e in document["traceEvents"] if e["ph"] == "i"]
    assert any("bad.yaml:1:13" in event["args"]["text"] for event in problems)


def test_what_was_found_stands_beside_the_ranks(tmp_path: Path) -> None:
    path, target = tmp_path / "stuck.yaml", tmp_path / "trace.json"
    path.write_text(
        "world_size: 2\ntensors: {x: [1], y: [0]}\nsteps:\n"
        "- {send: {tensor: x, dst: 1 - rank}}\n- {recv: {tensor: y, src: 1 - rank}}\n"
    )
    CliRunner().invoke(cli, ["check", str(path), "--trace", str(target)])
    document = json.loads(target.read_text())
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    titles = [e["args"]["name"] for e in document["traceEvents"] if e["name"] == "process_name"]
    assert titles == [f"FAILED {path}::stuck (predicted, logical time): deadlock"]
    (finding, *_) = [e for e in document["traceEvents"] if e["ph"] == "i"]
    assert finding["name"] == f"error[circular_wait]: {DIAGNOSES['circular_wait']}"
    assert "rank 0 waits in `send to 1` (stuck.yaml:4) for rank 1" in finding["args"]["text"]


def test_a_device_is_a_second_thread_of_its_rank(tmp_path: Path) -> None:
    path = tmp_path / "program.yaml"
    path.write_text("world_size: 1\ntensors: {x: [1]}\nsteps:\n- {all_reduce: {tensor: x}}\n")
    (scenario,) = torch_scenarios.load(path)
    event = Event(index=0, label="all_reduce", start_s=0.001, end_s=0.0015, complete_s=0.004)
    observed = Trace(
        backend="nccl", outcome="completes", ranks=(RankTrace(rank=0, events=(event,)),)
    )
    events = events_of(result_of(scenario, observed))
    threads = [e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == 2]
    assert threads == ["rank 0", "rank 0, device"]
    (device,) = [e for e in events if e.get("cat") == "device"]
    assert (device["ts"], device["dur"]) == (1000, 3000)


def test_check_writes_what_it_predicts(tmp_path: Path) -> None:
    target = tmp_path / "trace.json"
    file = str(CORPUS / "p2p/both_send_first.yaml")
    CliRunner().invoke(cli, ["check", file, "--trace", str(target)])
    assert len(names_of(json.loads(target.read_text())["traceEvents"], "message")) == 2
