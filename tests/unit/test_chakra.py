"""Programs as Chakra's execution traces, read back by a reader of Protocol Buffers that is ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from msgspec import Struct

from torch_scenarios.cli import cli
from torch_scenarios.cost.chakra import COLLECTIVES, traces
from torch_scenarios.errors import ScenarioError
from torch_scenarios.model.traffic import Traffic
from torch_scenarios.operations import BY_NAME
from torch_scenarios.operations.base import Collective

SEND, RECEIVE, COMPUTE, COLLECTIVE = 5, 6, 4, 7

OVERLAP = """\
world_size: 4
groups: {even: [0, 2], odd: [1, 3]}
tensors: {x: "ones(256)", y: "zeros(256)", u: "ones(256)", z: "zeros([4, 256])"}
steps:
  - {ranks: 0, isend: {tensor: x, dst: 1}, as: w}
  - {ranks: 1, irecv: {tensor: y, src: 0}, as: w}
  - all_reduce: {tensor: u}
  - wait: w
  - {ranks: 1, sleep: 0.25s}
  - all_reduce: {tensor: u, group: even}
  - all_reduce: {tensor: u, group: odd}
  - all_gather_single: {output: z, input: x}
"""


class ReadNode(Struct, frozen=True):
    """A node of a trace, as its file says it."""

    name: str
    kind: int
    depends_on: list[int]
    duration_us: int
    attributes: dict[str, Any]


def read_number(content: bytes, at: int) -> tuple[int, int]:
    """Return the number that begins there, and where the next thing begins."""
    value = shift = 0
    while True:
        value |= (content[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if content[at - 1] < 0x80:
            return value, at


def fields(message: bytes) -> list[tuple[int, Any]]:
    """Return the fields of a message: numbers, and what has a length."""
    at, found = 0, []
    while at < len(message):
        key, at = read_number(message, at)
        value: Any
        value, at = read_number(message, at)
        if key & 7 == 2:
            value, at = message[at : at + value], at + value
        found.append((key >> 3, value))
    return found


def attribute(message: bytes) -> tuple[str, Any]:
    """Return the name of an attribute and its value: int64, bool or string."""
    (_, name), (kind, value) = fields(message)
    if kind == 29:
        return name.decode(), value.decode()
    assert kind in {9, 27}
    return name.decode(), value if kind == 9 else bool(value)


def read_trace(path: Path) -> list[ReadNode]:
    """Return the nodes of a file, whose numbers are their places."""
    content, at, records = path.read_bytes(), 0, []
    while at < len(content):
        size, at = read_number(content, at)
        records.append(content[at : at + size])
        at += size
    assert fields(records[0]) == [(1, b"0.0.4")]
    found = []
    for place, record in enumerate(records[1:]):
        of = fields(record)
        one = dict(of)
        assert one[1] == place
        found.append(
            ReadNode(
                name=one[2].decode(),
                kind=one[3],
                depends_on=[value for number, value in of if number == 5],
                duration_us=one[7],
                attributes=dict(attribute(value) for number, value in of if number == 10),
            )
        )
    return found


def written(folder: Path, text: str, *more: str) -> tuple[int, str]:
    file = folder / "program.yaml"
    file.write_text(text, encoding="utf-8")
    done = CliRunner().invoke(cli, ["cost", str(file), "--chakra", str(folder / "out"), *more])
    return done.exit_code, done.output


def test_a_node_depends_on_what_its_rank_has_returned_from(tmp_path: Path) -> None:
    assert written(tmp_path, OVERLAP)[0] == 0
    out = tmp_path / "out"
    ranks = [read_trace(out / f"trace.{rank}.et") for rank in range(4)]
    assert [(each.kind, each.depends_on) for each in ranks[1]] == [
        (RECEIVE, []),
        (COLLECTIVE, []),  # beside the message, which is waited for afterwards
        (COMPUTE, [0, 1]),
        (COLLECTIVE, [2]),
        (COLLECTIVE, [3]),
    ]
    assert ranks[1][2].duration_us == 250_000
    assert [each.kind for each in ranks[0]] == [SEND, COLLECTIVE, COLLECTIVE, COLLECTIVE]
    assert not any(each.attributes["is_cpu_op"] for each in ranks[0])
    sent, received = ranks[0][0].attributes, ranks[1][0].attributes
    assert (sent["comm_dst"], received["comm_src"]) == (1, 0)
    assert sent["comm_tag"] == received["comm_tag"]
    assert sent["comm_size"] == received["comm_size"] == 1024


def test_a_collective_has_its_kind_its_group_and_what_a_rank_puts_in(tmp_path: Path) -> None:
    assert written(tmp_path, OVERLAP)[0] == 0
    out = tmp_path / "out"
    groups = json.loads((out / "groups.json").read_text())
    whole, part, gathered = (
        each.attributes for each in read_trace(out / "trace.2.et") if each.kind == COLLECTIVE
    )
    assert (whole["comm_type"], gathered["comm_type"]) == (0, 2)
    assert "pg_name" not in whole
    assert groups[part["pg_name"]] == [0, 2]
    assert sorted(groups.values()) == [[0, 2], [1, 3]]
    assert (whole["comm_size"], gathered["comm_size"]) == (1024, 1024)


def test_a_ring_is_a_chain_of_messages_of_which_each_has_two_ends(tmp_path: Path) -> None:
    ring = Path(__file__).parents[2] / "scenarios" / "algorithms" / "ring_all_reduce.yaml"
    done = CliRunner().invoke(
        cli, ["cost", f"{ring}::ring_all_reduce[n=4]", "--chakra", str(tmp_path)]
    )
    assert done.exit_code == 0, done.output
    ranks = [read_trace(tmp_path / f"trace.{rank}.et") for rank in range(4)]
    ends = {
        kind: sorted(
            each.attributes["comm_tag"] for rank in ranks for each in rank if each.kind == kind
        )
        for kind in (SEND, RECEIVE)
    }
    assert ends[SEND] == ends[RECEIVE] == list(range(24))
    assert [each.depends_on for each in ranks[0]][:6] == [[], [], [0, 1], [0, 1], [2, 3], [2, 3]]


def test_objects_are_the_collectives_of_tensors_that_carry_them(tmp_path: Path) -> None:
    """First how long each one is, then the pickles."""
    text = (
        "world_size: 2\nobjects: {mine: {0: [1], 1: [1, 2]}, all: [null, null]}\n"
        "steps: [{all_gather_object: {object_list: all, obj: mine}}]\n"
    )
    assert written(tmp_path, text)[0] == 0
    lengths, pickles = read_trace(tmp_path / "out" / "trace.1.et")
    assert (lengths.attributes["comm_type"], lengths.attributes["comm_size"]) == (2, 8)
    assert (pickles.attributes["comm_type"], pickles.depends_on) == (2, [0])


def test_objects_of_unknown_size_have_no_trace() -> None:
    traffic = Traffic(2)
    traffic.post(np.array([0]), np.array([1]), None, sends=True)
    with pytest.raises(ScenarioError, match="how many an object has"):
        traces(traffic)


def test_each_collective_of_tensors_has_a_kind() -> None:
    kinds = {each.kind for each in BY_NAME.values() if isinstance(each, Collective)}
    assert COLLECTIVES.keys() == {kind for kind in kinds if "object" not in kind}


def test_traces_are_of_one_case(tmp_path: Path) -> None:
    ring = Path(__file__).parents[2] / "scenarios" / "algorithms" / "ring_all_reduce.yaml"
    done = CliRunner().invoke(cli, ["cost", str(ring), "--chakra", str(tmp_path)])
    assert (done.exit_code, "--chakra writes one case" in done.output) == (2, True)
