"""What one node knows of the others, and what keeps nodes from being one launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from torch_scenarios.cli.run import COMMAND_LINE, read
from torch_scenarios.execution.heartbeat import SILENT_S
from torch_scenarios.execution.nodes import SILENCE_S, Beat, Nodes, difference
from torch_scenarios.execution.protocol import WorkerReady

if TYPE_CHECKING:
    from pathlib import Path

VERSIONS = {"torch-scenarios": "1.0", "torch": "2.13.0", "Python": "3.11"}
FILE = "world_size: 2\nsteps: [{barrier: {}}]\n"


def beat(number: int, **more: object) -> Beat:
    return Beat(number=number, host="node1", ranks=(2, 3), **more)  # type: ignore[arg-type]


def test_a_beat_travels_whole() -> None:
    one = beat(7, lost={3: "its process ended"}, quiet={2: 31})
    assert Beat.decode(one.encode()) == one


def test_a_node_without_a_new_beat_is_lost_with_its_ranks() -> None:
    nodes = Nodes()
    for second in range(int(SILENCE_S) + 1):
        nodes.hear({"1": beat(1)}, float(second))
        assert (nodes.find_lost() == {}) == (second < SILENCE_S)
    assert nodes.find_lost().keys() == {2, 3}
    assert "host node1 (ranks 2, 3)" in nodes.find_lost()[2]
    assert nodes.find_lost(more_s=5.0) == {}
    nodes.hear({"1": beat(2)}, SILENCE_S + 1)
    assert nodes.find_lost() == {}


def test_who_did_not_run_has_heard_nothing() -> None:
    nodes = Nodes()
    nodes.hear({"1": beat(1)}, 0.0)
    nodes.hear({"1": beat(1)}, 1000.0)
    assert nodes.find_lost() == {}


def test_a_rank_is_lost_alone() -> None:
    nodes = Nodes()
    nodes.hear({"1": beat(1, lost={3: "its process ended"})}, 0.0)
    assert nodes.find_lost() == {3: "its process ended on host node1"}


def test_a_quiet_rank_is_lost_after_the_time_that_its_scenario_allows() -> None:
    nodes = Nodes()
    nodes.hear({"1": beat(1, quiet={2: int(SILENT_S)})}, 0.0)
    assert nodes.find_lost().keys() == {2}
    assert nodes.find_lost(more_s=10.0) == {}


def hello(rank: int, *, digest: str = "", **versions: str) -> WorkerReady:
    return WorkerReady(
        rank=rank, pid=rank, host=f"node{rank}", versions={**VERSIONS, **versions}, digest=digest
    )


def test_equal_nodes_are_one_launch() -> None:
    hellos = {0: hello(0, digest="a"), 1: hello(1), 2: hello(2, digest="a")}
    assert difference(hellos, lambda _: {}) is None


@pytest.mark.parametrize("name", VERSIONS)
def test_another_version_is_named_with_its_host(name: str) -> None:
    hellos = {0: hello(0, digest="a"), 1: hello(1, digest="b", **{name: "0.1"})}
    found = difference(hellos, lambda _: {})
    assert found is not None
    assert found.startswith(f"rank 1 on host node1 has {name} 0.1, and rank 0 on host node0 has")


@pytest.mark.parametrize(
    ("there", "words"),
    [
        ({"x.yaml": "1", "y.yaml": "3"}, "y.yaml differs."),
        ({"x.yaml": "1"}, "y.yaml is not there on node1."),
        ({"x.yaml": "1", "y.yaml": "2", "z.yaml": "1"}, "z.yaml is on node1 only."),
        ({"x.yaml": "2", "y.yaml": "3"}, "x.yaml differs (1 more differ)."),
        ({"z.yaml": "2"}, "x.yaml is not there on node1 (2 more differ)."),
    ],
)
def test_another_file_is_named(there: dict[str, str], words: str) -> None:
    files = {0: {"x.yaml": "1", "y.yaml": "2"}, 1: there}
    hellos = {0: hello(0, digest="a"), 1: hello(1, digest="b")}
    found = difference(hellos, files.__getitem__)
    assert found is not None
    assert words in found


def test_a_node_reads_what_the_command_line_leads_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "x.yaml").write_text(FILE + "# use: {file: ../ring.yaml}\n")
    (tmp_path / "ring.yaml").write_text(FILE)
    (tmp_path / "unused.yaml").write_text(FILE)
    found = read(["folder", "missing.yaml", "--json", "out.json"])
    assert found.keys() == {COMMAND_LINE, "folder/x.yaml", "folder/../ring.yaml", "missing.yaml"}
    (tmp_path / "ring.yaml").write_text(FILE + "\n")
    again = read(["folder", "missing.yaml", "--json", "out.json"])
    assert {name for name in found if found[name] != again[name]} == {"folder/../ring.yaml"}


def test_a_file_outside_of_the_project_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    monkeypatch.chdir(inside)
    (inside / "pyproject.toml").write_text("")
    (inside / "x.yaml").write_text(f"# ../secret.yaml {'long' * 100}.yaml\n")
    (tmp_path / "secret.yaml").write_text("secret\n")
    assert read(["x.yaml"]).keys() == {COMMAND_LINE, "x.yaml"}


def test_a_command_line_that_makes_no_sense_leads_to_no_file() -> None:
    assert read(["--no-such-option", "x.yaml"]).keys() == {COMMAND_LINE}
    assert read(["--help"]).keys() == {COMMAND_LINE}
