"""What a program costs: rounds, messages and bytes, in both engines, stated and shown."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner
from judging import codes_of
from msgspec.structs import replace

from torch_scenarios.cli import cli
from torch_scenarios.language.document import load
from torch_scenarios.limits import DEFAULT
from torch_scenarios.model.groups import plan
from torch_scenarios.model.traffic import Structure
from torch_scenarios.pipeline.attempts import analyse, result_of
from torch_scenarios.reference import simulate
from torch_scenarios.reference.simulate import walk
from torch_scenarios.report.html.page import body

CORPUS = Path(__file__).parents[2] / "scenarios"
SCHEMA = json.loads((CORPUS.parent / "schemas" / "cost.schema.json").read_text(encoding="utf-8"))
MANY = replace(DEFAULT, max_ranks=2048)


def structure(folder: Path, text: str, **sets: str) -> Structure:
    """Return what a program costs, after both engines agreed on it."""
    file = folder / "shown.yaml"
    file.write_text(text, encoding="utf-8")
    (case,) = load(file, sets=sets, limits=MANY)
    resolved = plan(case)
    traffic = simulate(resolved).traffic
    assert traffic is not None
    if case.world_size <= 64:
        other = walk(resolved, DEFAULT).traffic
        assert other is not None
        assert other.structure == traffic.structure
        assert other.links() == traffic.links()
    return traffic.structure


PIPELINE = """
world_size: n
parameters: {n: 4, pieces: 5}
tensors: {x: "zeros([pieces, 2])"}
steps:
  - for: {p: "range(pieces)"}
    steps:
      - recv: {tensor: "x[p]", src: "rank - 1"}
        ranks: rank > 0
      - send: {tensor: "x[p]", dst: "rank + 1"}
        ranks: rank < n - 1
"""

FLAT = """
world_size: n
parameters: {n: 4}
tensors: {x: [1, 2], y: [0, 0]}
steps:
  - for: {r: "range(1, n)"}
    steps:
      - send: {tensor: x, dst: 0}
        ranks: r
      - recv: {tensor: y, src: r}
        ranks: 0
"""

TOGETHER = """
world_size: n
parameters: {n: 4}
tensors: {x: [1, 2], y: [0, 0], z: [0, 0]}
steps:
  - batch_isend_irecv:
      p2p_op_list:
        - {op: isend, tensor: x, peer: "(rank + 1) % n"}
        - {op: isend, tensor: x, peer: "(rank - 1) % n"}
        - {op: irecv, tensor: y, peer: "(rank + 1) % n"}
        - {op: irecv, tensor: z, peer: "(rank - 1) % n"}
    as: all
  - wait: all
"""


@pytest.mark.parametrize("n", [2, 3, 5, 20])
@pytest.mark.parametrize("pieces", [1, 4])
def test_a_pipelined_chain_takes_as_many_rounds_as_its_formula(
    n: int, pieces: int, tmp_path: Path
) -> None:
    found = structure(tmp_path, PIPELINE, n=str(n), pieces=str(pieces))
    assert (found.rounds, found.messages) == (n - 2 + pieces, (n - 1) * pieces)
    assert found.sent == (*([8 * pieces] * (n - 1)), 0)


@pytest.mark.parametrize("n", [3, 20])
def test_a_message_follows_what_its_sender_has_returned_from(n: int, tmp_path: Path) -> None:
    """All send at once: that their one receiver takes them in turn makes no chain."""
    assert structure(tmp_path, FLAT, n=str(n)).rounds == 1
    turned = FLAT.replace(
        "send: {tensor: x, dst: 0}\n        ranks: r", "recv: {tensor: y, src: 0}\n        ranks: r"
    )
    turned = turned.replace("recv: {tensor: y, src: r}", "send: {tensor: x, dst: r}")
    assert structure(tmp_path, turned, n=str(n)).rounds == n - 1


@pytest.mark.parametrize("n", [3, 20])
def test_the_messages_of_a_batch_are_one_round(n: int, tmp_path: Path) -> None:
    found = structure(tmp_path, TOGETHER, n=str(n))
    assert (found.rounds, found.messages, set(found.sent)) == (1, 2 * n, {16})


def test_work_is_done_with_at_its_wait(tmp_path: Path) -> None:
    text = """
world_size: 2
tensors: {x: [1], y: [0]}
steps:
  - {isend: {tensor: x, dst: 1}, as: one, ranks: 0}
  - {wait: one}
  - {isend: {tensor: x, dst: 1}, as: two, ranks: 0}
  - {wait: two}
  - {recv: {tensor: y, src: 0}, ranks: 1}
  - {recv: {tensor: y, src: 0}, ranks: 1}
"""
    assert structure(tmp_path, text).rounds == 2
    later = text.replace("  - {wait: one}\n", "").replace("{wait: two}", "{wait: [one, two]}")
    assert structure(tmp_path, later).rounds == 1


VOLUMES = [
    ("all_reduce: {tensor: x}", 2 * 48 * 2 / 3),
    ("all_gather_single: {output: all, input: x}", 48 * 2),
    ("reduce_scatter_single: {output: y, input: x}", 48 * 2 / 3),
    ("all_to_all_single: {output: z, input: x}", 48 * 2 / 3),
    ("broadcast: {tensor: x, src: 1}", 48),
    ("reduce: {tensor: x, dst: 1}", 48),
    ("barrier: {}", 0),
]


@pytest.mark.parametrize(("step", "sent"), VOLUMES)
def test_a_collective_sends_what_a_ring_sends(step: str, sent: float, tmp_path: Path) -> None:
    text = f"""
world_size: 3
tensors: {{x: "zeros(12)", y: "zeros(4)", z: "zeros(12)", all: "zeros(36)"}}
steps:
  - {step}
"""
    found = structure(
        tmp_path, text.replace("all: ", "whole: ").replace("output: all", "output: whole")
    )
    assert max(found.sent) == pytest.approx(sent)
    assert (found.rounds, found.messages, found.modelled) == (None, None, True)


STATED = {
    "{rounds: 7, messages: 15, sent: 40}": [],
    '{rounds: "n - 2 + pieces", messages: "(n - 1) * pieces", sent: "8 * pieces"}': [],
    "{rounds: {max: 8}, messages: {min: 15, max: 15}, sent: {max: 40}}": [],
    '{sent: {"rank == n - 1": 0, else: "8 * pieces"}}': [],
    "{sent: {3: 0}}": [],
    "{rounds: 8}": ["cost_differs"],
    "{rounds: {max: 6}}": ["cost_differs"],
    "{messages: {min: 16}}": ["cost_differs"],
    "{sent: 39}": ["cost_differs"],
    "{sent: {3: 1, else: {max: 39}}}": ["cost_differs"],
    "{round: 1}": ["unknown_key"],
    "{}": ["missing_value"],
    "7": ["wrong_type"],
    "{rounds: {least: 1}}": ["unknown_key"],
    "{rounds: {min: 3, max: 2}}": ["bad_value"],
    "{rounds: rank}": ["not_constant"],
    "{rounds: -1}": ["bad_value"],
    "{rounds: many}": ["unknown_name"],
}


@pytest.mark.parametrize("stated", STATED)
def test_a_cost_that_is_stated_is_proved(stated: str, tmp_path: Path) -> None:
    assert codes_of(f"{PIPELINE}expect: {{cost: {stated}}}\n", tmp_path) == STATED[stated]


def test_rounds_of_a_collective_in_one_call_are_refused(tmp_path: Path) -> None:
    text = "world_size: 2\ntensors: {x: [1]}\nsteps: [{all_reduce: {tensor: x}}]\n"
    assert codes_of(text + "expect: {cost: {rounds: 2}}\n", tmp_path) == ["cost_of_collective"]
    assert codes_of(text + "expect: {cost: {messages: 2}}\n", tmp_path) == ["cost_of_collective"]
    assert codes_of(text + "expect: {cost: {sent: 4}}\n", tmp_path) == []


def test_a_wrong_program_has_no_cost(tmp_path: Path) -> None:
    text = "world_size: 2\ntensors: {x: [1]}\nsteps: [{send: {tensor: x, dst: 1}, ranks: 0}]\n"
    assert codes_of(text + "expect: {cost: {messages: 1}}\n", tmp_path) == ["diagnosis_undeclared"]
    stated = "expect: {outcome: deadlock, diagnosis: unmatched_send, cost: {messages: 1}}\n"
    assert codes_of(text + stated, tmp_path) == ["no_cost"]


def test_no_tensor_is_called_cost(tmp_path: Path) -> None:
    text = "world_size: 2\ntensors: {cost: [1]}\nsteps: [{all_reduce: {tensor: cost}}]\n"
    assert codes_of(text, tmp_path) == ["reserved_name"]


# -------------------------------------------------------------------------------------------------
# The command.


def shown(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["cost", *arguments])
    return result.exit_code, result.output


def told(*arguments: str) -> tuple[int, list[dict[str, Any]]]:
    code, output = shown("--json", "-", *arguments)
    content = json.loads(output)
    jsonschema.validate(content, SCHEMA)
    cases: list[dict[str, Any]] = content["cases"]
    return code, cases


def test_the_command_tells_rounds_messages_and_bytes_by_rank() -> None:
    code, cases = told(str(CORPUS / "p2p" / "ring_all_reduce.yaml"))
    assert code == 0
    found = [(case["rounds"], case["messages"], case["sent"]["0"]) for case in cases]
    assert found == [(2, 4, 8), (4, 12, 16), (6, 24, 24)]


def test_the_command_refuses_a_wrong_program_with_its_diagnosis() -> None:
    file = str(CORPUS / "p2p" / "both_send_first.yaml")
    code, (case,) = told(file)
    assert (code, case["diagnoses"]) == (1, ["circular_wait", "buffering_hazard"])
    code, output = shown(file)
    assert code == 1
    assert "circular_wait" in output


def test_the_command_says_what_is_modelled(tmp_path: Path) -> None:
    file = tmp_path / "one.yaml"
    file.write_text("world_size: 2\ntensors: {x: [1]}\nsteps: [{all_reduce: {tensor: x}}]\n")
    code, output = shown(str(file))
    assert (code, "modelled" in output, "all_reduce is one call" in output) == (0, True, True)
    code, (case,) = told(str(file))
    assert (case["rounds"], case["messages"], case["modelled"]) == (None, None, True)
    file.write_text("world_size: 2\nstep: []\n")
    assert shown(str(file))[0] == 2


# -------------------------------------------------------------------------------------------------
# In reports.

SHIFT = """
world_size: n
parameters: {n: 4}
tensors: {x: [1, 2], y: [0, 0]}
steps:
  - isend: {tensor: x, dst: "(rank + 1) % n"}
    as: out
  - recv: {tensor: y, src: "(rank - 1) % n"}
  - wait: out
"""
RESULTS = json.loads((CORPUS.parent / "schemas" / "result.schema.json").read_text("utf-8"))


def checked(tmp_path: Path, text: str, *arguments: str) -> tuple[str, dict[str, Any]]:
    """Return what `check` prints of a file, and its result as JSON."""
    file, report = tmp_path / "shown.yaml", tmp_path / "report.json"
    file.write_text(text, encoding="utf-8")
    words = ["check", str(file), "--json", str(report), *arguments]
    output = CliRunner().invoke(cli, words).output
    content = json.loads(report.read_text(encoding="utf-8"))
    jsonschema.validate(content, RESULTS)
    return output, content["results"][0]


def test_reports_tell_what_a_program_costs_beside_what_is_stated(tmp_path: Path) -> None:
    stated = f"{SHIFT}expect: {{cost: {{rounds: 1, messages: {{max: 4}}, sent: {{1: 8, 2: 8}}}}}}\n"
    output, result = checked(tmp_path, stated, "-v")
    assert "cost: 1 round; 4 messages; 8 bytes sent by each rank, as stated" in output
    rows = {(row["name"], *row["ranks"]): row for row in result["cost"].pop("stated")}
    assert result["cost"] == {
        "rounds": 1,
        "messages": 4,
        "sent": dict.fromkeys("0123", 8),
        "modelled": False,
        "collectives": [],
    }
    assert (rows["rounds",]["min"], rows["rounds",]["max"]) == (1, 1)
    assert (rows["messages",]["min"], rows["messages",]["max"]) == (None, 4)
    assert rows["sent", 1, 2]["computed"] == 8
    assert all(row["holds"] for row in rows.values())


def test_reports_tell_a_cost_that_is_not_as_stated(tmp_path: Path) -> None:
    output, result = checked(tmp_path, f"{SHIFT}expect: {{cost: {{rounds: 2}}}}\n", "-v")
    assert "cost: 1 rounds, stated 2" in output
    assert [(row["computed"], row["holds"]) for row in result["cost"]["stated"]] == [(1, False)]


def test_reports_tell_the_time_beside_what_is_stated(tmp_path: Path) -> None:
    stated = f"{SHIFT}expect: {{cost: {{time: {{max: 60us, on: flat}}}}}}\n"
    output, result = checked(tmp_path, stated, "-v")
    (row,) = result["cost"]["stated"]
    assert (row["name"], row["max"], row["holds"]) == ("time_us", 60, True)
    assert f"cost: {row['computed']:.12g} us, stated at most 60" in output


def test_a_wrong_program_has_no_cost_in_reports(tmp_path: Path) -> None:
    _, result = checked(tmp_path, (CORPUS / "p2p" / "both_send_first.yaml").read_text("utf-8"))
    assert result["cost"] is None


def test_many_ranks_that_send_the_same_are_one_key(tmp_path: Path) -> None:
    _, result = checked(tmp_path, SHIFT, "--set", "n=128", "--max-ranks", "128")
    assert result["cost"]["sent"] == {"0-127": 8}


def test_costs_come_back_from_a_file_of_results(tmp_path: Path) -> None:
    _, result = checked(tmp_path, f"{SHIFT}expect: {{cost: {{rounds: 1, sent: 8}}}}\n")
    again = tmp_path / "again.json"
    words = ["merge", str(tmp_path / "report.json"), "--json", str(again)]
    assert CliRunner().invoke(cli, words).exit_code == 0
    (merged,) = json.loads(again.read_text(encoding="utf-8"))["results"]
    assert merged["cost"] == result["cost"]


def test_costs_come_back_from_the_processes_of_an_analysis(tmp_path: Path) -> None:
    every = "matrix: {n: [2, 3, 4, 5], again: [1, 2, 3, 4, 5, 6, 7, 8]}"
    matrix = SHIFT.replace("parameters: {n: 4}", every)
    output, result = checked(tmp_path, matrix)
    assert "32 passed" in output
    assert result["cost"]["messages"] == 2


def test_the_page_of_a_run_tells_the_cost(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(SHIFT, encoding="utf-8")
    (case,) = load(tmp_path / "one.yaml")
    assert body(result_of(analyse(case)))["cost"] == [
        "cost: 1 round; 4 messages; 8 bytes sent by each rank"
    ]


OBJECTS = """
world_size: 4
objects:
  mine: {0: %s, 1: 1, 2: 2, 3: 3}
  all: [null, null, null, null]
steps:
  - all_gather_object: {object_list: all, obj: mine}
"""


def test_objects_are_counted_by_their_pickles(tmp_path: Path) -> None:
    longest = len(pickle.dumps({"a": [1, 2.5]}))
    found = structure(tmp_path, OBJECTS % "{a: [1, 2.5]}")
    assert list(found.sent) == [3 * (8 + longest)] * 4
    file = tmp_path / "sent.yaml"
    file.write_text(
        "world_size: 2\nobjects: {o: {0: [1, [2]], 1: [null, null]}}\nsteps:\n"
        "  - {ranks: 0, send_object_list: {object_list: o, dst: 1}}\n"
        "  - {ranks: 1, recv_object_list: {object_list: o, src: 0}}\n"
    )
    sent = structure(tmp_path, file.read_text(encoding="utf-8"))
    size = 16 + len(pickle.dumps(1)) + len(pickle.dumps([2]))
    assert [sent.rounds, sent.messages, *sent.sent] == [2, 2, size, 0]
    code, output = shown(str(file), "--topology", "flat")
    assert (code, "waits for rank 0 to post, which sends 16 bytes" in output) == (0, True)


def test_a_pickle_that_may_be_shorter_is_not_counted(tmp_path: Path) -> None:
    file = tmp_path / "twice.yaml"
    file.write_text(OBJECTS % "[same, same]", encoding="utf-8")
    code, output = shown(str(file))
    assert (code, "unknown: objects are sent whose pickles" in output) == (0, True)
    code, (case,) = told(str(file))
    assert (code, case["sent"]["0"]) == (0, None)
    code, output = shown(str(file), "--topology", "flat")
    assert (code, "no forecast: " in output) == (2, True)
