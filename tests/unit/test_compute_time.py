"""`compute: {time: …}`: kernels take so long in a forecast, and nothing in a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from torch_scenarios.cost.forecast import Forecast, forecast, microseconds
from torch_scenarios.cost.topology import topology
from torch_scenarios.limits import DEFAULT
from torch_scenarios.model.groups import plan
from torch_scenarios.model.scenario import Scenario
from torch_scenarios.model.traffic import Pause
from torch_scenarios.pipeline.attempts import analyse, weigh
from torch_scenarios.pipeline.results import Selection
from torch_scenarios.pipeline.selection import load_all
from torch_scenarios.reference import simulate
from torch_scenarios.reference.vector.footprint import footprint

WIDE = replace(DEFAULT, max_ranks=2**20)
MACHINE = topology("h100-8x400g")


def case(folder: Path, text: str) -> Scenario:
    path = folder / "case.yaml"
    path.write_text(text)
    loaded = load_all(Selection(paths=(str(path),), limits=WIDE))
    assert not loaded.invalid, loaded.invalid
    (found,) = loaded.scenarios
    return found


def times(folder: Path, text: str) -> Forecast:
    analysis = weigh(case(folder, text))
    assert analysis.verdict.status == "PASSED", analysis.verdict
    assert analysis.predicted is not None
    assert analysis.predicted.traffic is not None
    return forecast(analysis.predicted.traffic, MACHINE)


STEP = """\
world_size: {world}
parameters: {{kernels: 2.5ms}}
tensors: {{grads: "zeros({size})"}}
steps:
  - all_reduce: {{tensor: grads, async_op: true}}
    as: one
  - all_reduce: {{tensor: grads2, async_op: true}}
    as: two
  - compute: {{time: {time}}}
  - wait: one
  - wait: two
""".replace('grads: "zeros({size})"', 'grads: "zeros({size})", grads2: "zeros({size})"')


@pytest.mark.parametrize("world", [4, 32])
def test_both_engines_and_shapes_note_what_kernels_take(tmp_path: Path, world: int) -> None:
    found = case(tmp_path, STEP.format(world=world, size=4, time="{0: 3ms, else: 2ms}"))
    program = plan(found, limits=WIDE)
    shapes = footprint(program, limits=WIDE)
    assert shapes is not None
    for traffic in (shapes.traffic, simulate(program, limits=WIDE).traffic):
        assert traffic is not None
        pauses: dict[int, float] = {}
        for each in traffic.entries:
            if isinstance(each, Pause):
                ranks = [each.ranks] if isinstance(each.ranks, int) else each.ranks.tolist()
                pauses |= dict.fromkeys(ranks, each.seconds)
        assert pauses == {0: 0.003, **dict.fromkeys(range(1, world), 0.002)}


def test_it_takes_no_time_in_a_run(tmp_path: Path) -> None:
    text = STEP.format(world=2, size=4, time="10min")
    analysis = analyse(case(tmp_path, text))
    assert analysis.verdict.status == "PASSED"
    assert analysis.predicted is not None
    assert analysis.predicted.duration_s == 0


@pytest.mark.parametrize("stated", ["x * 2", "x", "zeros(4)"])
def test_a_tensor_may_be_called_time(tmp_path: Path, stated: str) -> None:
    text = f"""\
world_size: 2
tensors: {{x: [0, 0, 0, 0]}}
steps:
  - compute: {{time: "{stated}"}}
    expect: {{time: [0, 0, 0, 0]}}
"""
    assert analyse(case(tmp_path, text)).verdict.status == "PASSED"


def test_what_is_computed_hides_what_is_sent(tmp_path: Path) -> None:
    hidden = times(tmp_path, STEP.format(world=8, size=2**20, time="kernels"))
    assert hidden.computing == pytest.approx(2500)
    assert hidden.exposure < 60
    exposed = times(tmp_path, STEP.format(world=8, size=2**28, time="kernels"))
    one = times(tmp_path, STEP.format(world=8, size=2**28, time="1us")).time
    assert exposed.time == pytest.approx(one)
    assert exposed.exposure + exposed.idle == pytest.approx(one - 2500)
    lines = "\n".join(exposed.forecast_lines({0: "first", 1: "second"}))
    assert "step      2.5 ms computing" in lines
    assert ", by its bytes: fewer bytes, or a smaller group, help" in lines


def test_collectives_of_one_group_go_one_after_the_other(tmp_path: Path) -> None:
    text = STEP.format(world=8, size=2**26, time="1us")
    both = times(tmp_path, text).time
    tensors = 'tensors: {x: "zeros(2**26)"}\n'
    one = f"world_size: 8\n{tensors}steps:\n  - all_reduce: {{tensor: x}}\n"
    alone = times(tmp_path, one).time
    assert both == pytest.approx(2 * alone - 14, rel=0.01)


def test_a_sum_of_next_to_no_bytes_takes_its_latency(tmp_path: Path) -> None:
    steps = "  - all_reduce: {tensor: x}\n  - all_reduce: {tensor: y}\n"
    text = "world_size: 8\ntensors: {x: [1], y: [2]}\nsteps:\n" + steps
    lines = "\n".join(times(tmp_path, text).forecast_lines({}))
    assert "by its latency: fewer, larger calls help" in lines


HOSTED = """\
world_size: {world}
tensors: {{x: "zeros(4)"}}
steps:
  - for: {{at: "range(10)"}}
    steps:
      - compute: {{time: {time}, host: {host}}}
  - all_reduce: {{tensor: x}}
"""


@pytest.mark.parametrize("world", [4, 32])
def test_kernels_end_no_sooner_than_their_host_has_started_them(tmp_path: Path, world: int) -> None:
    bound = times(tmp_path, HOSTED.format(world=world, time="1ms", host="3ms"))
    alone = times(tmp_path, HOSTED.format(world=world, time="1us", host="1us")).time
    assert bound.time == pytest.approx(30_000 + alone, abs=30)
    assert bound.computing == pytest.approx(10_000)
    assert bound.idle == pytest.approx(20_000, abs=30)
    assert bound.host > 0.9 * bound.time
    lines = bound.forecast_lines({})
    assert "20.01 ms (67%) waiting for its host" in "\n".join(lines)
    (worst,) = (line for line in lines if line.startswith("bottleneck"))
    assert worst.startswith("bottleneck  the host: 100% of the time")


def test_a_host_that_is_ahead_takes_no_time(tmp_path: Path) -> None:
    ahead = times(tmp_path, HOSTED.format(world=4, time="3ms", host="1ms"))
    without = times(tmp_path, HOSTED.format(world=4, time="3ms", host="0us"))
    assert ahead.time == pytest.approx(without.time, abs=20)
    assert not ahead.is_host_bound


def test_a_slow_host_of_one_rank_lets_all_wait(tmp_path: Path) -> None:
    found = times(tmp_path, HOSTED.format(world=4, time="1ms", host="{0: 5ms, else: 1ms}"))
    assert found.time == pytest.approx(50_000, rel=0.01)
    assert found.path[-1].source == 0
    assert found.path[-1].because.startswith("waits for the host of rank 0")


@pytest.mark.parametrize("world", [4, 32])
def test_all_engines_note_what_hosts_take(tmp_path: Path, world: int) -> None:
    found = case(tmp_path, HOSTED.format(world=world, time="2ms", host="{0: 3ms, else: 1ms}"))
    program = plan(found, limits=WIDE)
    shapes = footprint(program, limits=WIDE)
    assert shapes is not None
    for traffic in (shapes.traffic, simulate(program, limits=WIDE).traffic):
        assert traffic is not None
        hosts: dict[int, float] = dict.fromkeys(range(world), 0.0)
        for each in traffic.entries:
            if isinstance(each, Pause):
                for rank in [each.ranks] if isinstance(each.ranks, int) else each.ranks.tolist():
                    hosts[rank] += each.host_s
        assert hosts == pytest.approx({0: 0.03, **dict.fromkeys(range(1, world), 0.01)})


def test_a_tensor_may_be_called_host(tmp_path: Path) -> None:
    text = """\
world_size: 2
tensors: {x: [1, 2]}
steps:
  - compute: {time: "x * 2", host: "x + time"}
    expect: {host: [3, 6]}
"""
    assert analyse(case(tmp_path, text)).verdict.status == "PASSED"


WAITING = """\
world_size: {world}
tensors: {{x: "zeros(4)"}}
steps:
  - for: {{at: "range(10)"}}
    steps:
      - {{compute: {{time: 3ms, host: 2ms, synchronize: {waits}}}, at: "train.py:7"}}
      - compute: {{time: 1ms, host: 2ms}}
  - all_reduce: {{tensor: x}}
"""


@pytest.mark.parametrize("world", [4, 32])
def test_a_host_that_waits_for_its_gpu_is_not_ahead_then(tmp_path: Path, world: int) -> None:
    waits = times(tmp_path, WAITING.format(world=world, waits="true"))
    free = times(tmp_path, WAITING.format(world=world, waits="false"))
    # each turn: kernels of 3 ms, then a host that works for 2 ms and starts 1 ms meanwhile
    assert waits.time == pytest.approx(50_000, abs=100)
    assert free.time == pytest.approx(40_000, abs=100)
    assert waits.synchronize == ((1,), free.time)
    assert free.synchronize is None
    lines = waits.forecast_lines({1: "compute, line 6, train.py:7"})
    at = lines.index(
        "host      waits for its GPU, and starts no kernel meanwhile: without that "
        f"{microseconds(free.time)}, 20% less"
    )
    assert lines[at + 1] == "          at compute, line 6, train.py:7"
    assert any("which works for 2 ms until then" in line for line in lines)


def test_one_rank_may_wait_for_its_gpu(tmp_path: Path) -> None:
    text = WAITING.format(world=4, waits="{0: true, else: false}")
    found = times(tmp_path, text)
    assert found.time == pytest.approx(50_000, abs=100)
    assert "host_waits" in found.json()


def test_a_wait_that_costs_nothing_is_said_to(tmp_path: Path) -> None:
    text = WAITING.format(world=4, waits="true").replace("host: 2ms", "host: 1us")
    lines = times(tmp_path, text).forecast_lines({})
    words = "waits for its GPU, and starts no kernel meanwhile"
    assert f"host      {words}: that costs nothing in one such step by itself" in lines


@pytest.mark.parametrize("waits", ["3", "[true]"])
def test_whether_a_host_waits_is_true_or_false(tmp_path: Path, waits: str) -> None:
    path = tmp_path / "case.yaml"
    path.write_text(WAITING.format(world=4, waits=waits))
    loaded = load_all(Selection(paths=(str(path),), limits=WIDE))
    (problem,) = loaded.invalid[0].verdict.problems
    assert problem.code == "wrong_type"
    assert problem.hint == "write true or false"
