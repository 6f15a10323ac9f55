"""What NCCL's collectives take of a GPU from the kernels that run meanwhile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from torch_scenarios.cli import cli
from torch_scenarios.cost.candidates import NOTHING, ZERO_0, Candidate, Decoder, hide
from torch_scenarios.cost.collectives import TENSOR_GROUP, CollectiveTimes
from torch_scenarios.cost.replay import end_of_kernels, replay_events, replay_together
from torch_scenarios.cost.topology import Network, read_topology, topology
from torch_scenarios.errors import ScenarioError
from torch_scenarios.model.traffic import Enter, Finish, Pause, Traffic

MACHINE = "h100-8x400g"
#: a gather of 1 GiB that is under way while a rank computes; `{held}` makes it a recorded step
STEP = """\
world_size: 8
tensors:
  weights: {{shape: 536870912, value: 0, dtype: bfloat16}}
  part: {{shape: 67108864, value: 0, dtype: bfloat16}}
  {held}: {{shape: 1, value: 0}}
steps:
  - all_gather_single: {{output: weights, input: part, async_op: true}}
    as: gather
  - compute: {{time: 100ms}}
  - wait: gather
"""
LLAMA = Decoder(
    layers=32, hidden=4096, inner=14336, heads=32, kv_heads=8, vocabulary=128256, sequence=8192,
    batch=8,
)  # fmt: skip
FSDP = Candidate(stages=1, replicas=1, shards=8, tensor=1, recompute=NOTHING)


def weigh(folder: Path, text: str) -> Any:
    path = folder / "step.yaml"
    path.write_text(text, encoding="utf-8")
    shown = CliRunner().invoke(cli, ["cost", str(path), "--topology", MACHINE, "--json", "-"])
    assert shown.exit_code == 0, shown.output
    return json.loads(shown.stdout)["cases"][0]


def gather(group: str = "world", ranks: int = 8, size: float = 2.0**30) -> Enter:
    members = tuple(range(ranks))
    found = Enter(0, np.array(members), np.zeros(ranks), "all_gather_single", "", size, members)
    return replace(found, key=group, group=group)


def test_kernels_take_longer_while_a_collective_has_a_part_of_the_gpu(tmp_path: Path) -> None:
    times = CollectiveTimes(topology(MACHINE), 8)
    took, part = times.of(gather()).time, times.count_part(gather())
    assert part == pytest.approx(24 / 132)  # a ring of 24 channels, of 132 SMs
    step = weigh(tmp_path, STEP.format(held="held_state"))
    assert step["time_us"] == pytest.approx(100_000 + part * took, rel=1e-3)
    assert step["exposed_us"] < 100  # it is the kernels that take longer


def test_kernels_whose_time_was_measured_take_what_the_file_states(tmp_path: Path) -> None:
    assert weigh(tmp_path, STEP.format(held="other"))["time_us"] == pytest.approx(100_000, rel=1e-3)


def test_a_collective_takes_no_more_than_kernels_lose_while_it_runs() -> None:
    assert end_of_kernels(0.0, 10.0, []) == 10.0
    assert end_of_kernels(0.0, 10.0, [(20.0, 30.0, 0.5)]) == 10.0  # it begins behind them
    assert end_of_kernels(5.0, 10.0, [(0.0, 9.0, 0.5)]) == 17.0
    assert end_of_kernels(0.0, 10.0, [(0.0, 99.0, 0.5)]) == 20.0
    # two of them take what each takes, and never all
    assert end_of_kernels(0.0, 3.0, [(0.0, 4.0, 0.25), (0.0, 4.0, 0.25)]) == 5.0
    assert end_of_kernels(0.0, 1.0, [(0.0, 99.0, 0.6), (0.0, 99.0, 0.6)]) == 4.0


def test_both_replays_slow_kernels_down_alike() -> None:
    traffic = Traffic(2)
    both = np.arange(2)
    traffic.entries += [gather(ranks=2), Pause(both, 1e-5), Finish(both, rows=None, post=0)]
    network = Network(topology("flat"), 2)
    found = [
        each(traffic, network, lambda _: 4.0, taken=lambda _: 0.5)
        for each in (replay_events, replay_together)
    ]
    assert [each.time for each in found] == [12.0, 12.0]
    assert [each.slowed.tolist() for each in found] == [[2.0, 2.0]] * 2


def test_between_nodes_a_ring_has_two_channels_for_each_nic() -> None:
    times = CollectiveTimes(topology(MACHINE), 64)
    assert times.count_part(gather(ranks=64)) == pytest.approx(16 / 132)
    rack = CollectiveTimes(topology("gb200-nvl72"), 64)
    assert rack.count_part(gather(ranks=64)) == pytest.approx(24 / 148)


def test_what_copy_engines_do_takes_nothing_of_a_gpu() -> None:
    times = CollectiveTimes(topology(MACHINE), 8)
    assert times.count_part(gather(TENSOR_GROUP)) == 0
    assert times.count_part(gather(ranks=1)) == 0
    assert times.count_part(replace(gather(), name="all_to_all_single")) == 0
    assert CollectiveTimes(topology("mi300x-8"), 8).count_part(gather()) == 0  # it states no SMs


def test_fsdp_copies_what_it_gathers_and_scatters_and_ddp_does_not() -> None:
    gpu = topology(MACHINE).gpu
    assert gpu is not None
    sharded = LLAMA.load(FSDP, gpu)
    whole = LLAMA.load(replace(FSDP, shards=1, replicas=8, zero=ZERO_0), gpu)
    # read and written in bfloat16; backwards once more, and gradients are written in float32
    moved = LLAMA.block / (gpu.bandwidth * gpu.memory)
    assert sharded.block - whole.block == pytest.approx(4 * moved)
    assert sharded.backwards - whole.backwards == pytest.approx(10 * moved)
    lean = replace(LLAMA, gradient_bytes=2)
    less = lean.load(FSDP, gpu).backwards
    assert sharded.backwards - less == pytest.approx(2 * moved)


def test_an_estimate_hides_calls_at_the_price_of_what_they_take() -> None:
    assert hide(9.0, 0.0, 0.2) == 9.0
    assert hide(9.0, 5.0, 0.2) == 10.0
    assert hide(8.0, 9.5, 0.2) == pytest.approx(9.9)
    assert hide(8.0, 50.0, 0.2) == 50.0


def test_the_sms_of_a_gpu_are_a_number(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    text = CliRunner().invoke(cli, ["topology", "show", MACHINE]).stdout
    assert "  sms: 132\n" in text
    path.write_text(text.replace("  sms: 132\n", ""), encoding="utf-8")
    gpu = read_topology(path).gpu
    assert gpu is not None
    assert gpu.sms == 0
    path.write_text(text.replace("sms: 132", "sms: many"), encoding="utf-8")
    with pytest.raises(ScenarioError, match="sms"):
        read_topology(path)
