"""What a machine that is worse than its topology says makes of a program's time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from torch_scenarios.cli import cli

SCHEMA = Path(__file__).parents[2] / "schemas" / "cost.schema.json"

#: eight nodes of eight ranks: along `shard` the ranks of a node, along `replicate` one of each
MESH = """\
world_size: 64
groups: {{mesh: {{shape: [8, 8], dims: [replicate, shard]}}}}
tensors: {{x: {{shape: 134217728, value: 0}}}}
steps:
  - compute: {{time: 10ms}}
  - all_reduce: {{tensor: x, group: {group}}}
"""


def weigh(folder: Path, text: str, *options: str, machine: str = "h100-8x400g") -> Any:
    path = folder / "case.yaml"
    path.write_text(text)
    command = ["cost", str(path), "--topology", machine, "--json", "-", *options]
    shown = CliRunner().invoke(cli, command)
    if shown.exit_code:
        return shown.output
    found = json.loads(shown.stdout)
    jsonschema.validate(found, json.loads(SCHEMA.read_text(encoding="utf-8")))
    return found["cases"][0]


def test_a_group_of_one_rank_a_node_has_one_nic_of_each(tmp_path: Path) -> None:
    one = weigh(tmp_path, MESH.format(group="mesh.replicate"))["time_us"] - 10_000
    all_of_them = weigh(tmp_path, MESH.format(group="world"))["time_us"] - 10_000
    # 2 * 7/8 of the bytes pass each NIC of 50 GB/s
    assert one > 134217728 * 4 * 2 * 7 / 8 / 50_000
    assert all_of_them < one / 3
    told = weigh(tmp_path, MESH.format(group="mesh.replicate"))["error"]
    assert "76 measurements like it, published by 6 projects" in told


def test_an_interval_says_that_it_takes_stated_kernels_for_granted(tmp_path: Path) -> None:
    long = MESH.format(group="world").replace("10ms", "10s")
    short = MESH.format(group="world").replace("10ms", "10us")
    first, second = (weigh(tmp_path, text)["error"] for text in (long, short))
    assert first.startswith("where kernels take what the file states, 80 % of such calls took")
    assert second.startswith("80 % of such calls took")


def test_a_group_that_sends_alone_has_the_nics_of_its_nodes_for_itself(tmp_path: Path) -> None:
    # four ranks a node share two NICs of 24 GB/s
    mesh = MESH.replace("64", "16").replace("[8, 8]", "[4, 4]")
    one_by_one = """\
world_size: 16
groups: {a: [0, 4, 8, 12], b: [1, 5, 9, 13], c: [2, 6, 10, 14], d: [3, 7, 11, 15]}
tensors: {x: {shape: 134217728, value: 0}}
steps:
"""
    calls = [f"  - {{ranks: {at}, all_reduce: {{tensor: x, group: {at}}}}}\n" for at in "abcd"]
    told = [mesh.format(group="mesh.replicate").replace("  - compute: {time: 10ms}\n", "")]
    told += [one_by_one + "".join(each) for each in (calls, calls[::2], calls[:1])]
    many, named, two, alone = (weigh(tmp_path, text, machine="a100-4-slingshot") for text in told)
    assert many["time_us"] == named["time_us"]
    # a and c have a NIC each, as a alone has
    assert two["time_us"] == alone["time_us"]
    assert alone["time_us"] == pytest.approx(many["time_us"] / 2, rel=0.05)
    assert "67 measurements like it, published by 10 projects" in alone["error"]


def test_nvls_takes_no_part_where_a_node_has_two_ranks(tmp_path: Path) -> None:
    text = MESH.format(group="world").replace("64", "2").replace("[8, 8]", "[1, 2]")
    assert "nvls" not in weigh(tmp_path, text)["origin"]
    assert (
        "nvls" in weigh(tmp_path, text.replace("size: 2", "size: 8").replace("2]", "8]"))["origin"]
    )


def test_a_rank_that_is_slow_lets_all_wait(tmp_path: Path) -> None:
    found = weigh(tmp_path, MESH.format(group="world"), "--slow", "3=1.2")
    assert found["what_if"]["assumed"] == "rank 3 takes 1.2 times as long"
    assert found["time_us"] == pytest.approx(found["what_if"]["time_without_us"] + 2_000)


def test_a_lost_nic_is_shared_with_a_neighbour(tmp_path: Path) -> None:
    found = weigh(tmp_path, MESH.format(group="mesh.replicate"), "--lost-nics", "3=1")
    before = found["what_if"]["time_without_us"] - 10_000
    assert found["time_us"] - 10_000 == pytest.approx(2 * before, rel=0.03)
    found = weigh(tmp_path, MESH.format(group="world"), "--lost-nics", "3=1")
    before = found["what_if"]["time_without_us"] - 10_000
    assert found["time_us"] - 10_000 == pytest.approx(before * 8 / 7, rel=0.05)
    found = weigh(tmp_path, MESH.format(group="mesh.shard"), "--lost-nics", "3=1")
    assert found["time_us"] == found["what_if"]["time_without_us"]


MINE = """\
version: 1
topology: mine
describes: two nodes under each of two spines
source: made up
node: {ranks: 2}
links:
  port: {per: rank, bandwidth: 100GB/s, latency: 1us}
  nic: {per: rank, bandwidth: 10GB/s, latency: 1us}
  spine: {per: 2 nodes, oversubscription: 1}
"""


def test_half_a_spine_halves_what_crosses_it(tmp_path: Path) -> None:
    machine = tmp_path / "mine.yaml"
    machine.write_text(MINE)
    text = """\
world_size: 8
tensors: {x: {shape: 1000000, value: 0}, y: {shape: 1000000, value: 0}}
steps:
  - send: {tensor: x, dst: rank + 4}
    ranks: range(4)
  - recv: {tensor: y, src: rank - 4}
    ranks: range(4, 8)
"""
    found = weigh(tmp_path, text, "--spine", "0.5", machine=str(machine))
    # four messages of 4 MB, one behind the other, of which three are waited for: 100 us each more
    before = found["what_if"]["time_without_us"]
    assert found["time_us"] == pytest.approx(before + 3 * 100, abs=2)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--slow", "64=2"), "--slow 64: the program has ranks 0 to 63"),
        (("--slow", "3"), "--slow 3: it is not RANK=FACTOR, as 3=1.2"),
        (("--lost-nics", "8=1"), "--lost-nics 8=1: the ranks are on nodes 0 to 7"),
        (("--lost-nics", "0=8"), "--lost-nics 0=8: a node of h100-8x400g has 8, and needs one"),
        (("--spine", "0.5"), "--spine: topology h100-8x400g states no spine"),
    ],
)
def test_what_a_machine_does_not_have_is_refused(
    tmp_path: Path, options: tuple[str, ...], told: str
) -> None:
    assert told in " ".join(weigh(tmp_path, MESH.format(group="world"), *options).split())


def test_a_rank_that_computes_nothing_cannot_be_slow(tmp_path: Path) -> None:
    text = MESH.format(group="world").replace("  - compute: {time: 10ms}\n", "")
    assert "computes nothing that states a time" in weigh(tmp_path, text, "--slow", "3=2")
