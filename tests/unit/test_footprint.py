"""What programs cost by shapes alone: the same traffic as with values, of equal ranks once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from sampling import sampled

from torch_scenarios.cli import cli
from torch_scenarios.cost.classes import reduce_ranks
from torch_scenarios.cost.forecast import Forecast, forecast
from torch_scenarios.cost.topology import topology
from torch_scenarios.limits import DEFAULT
from torch_scenarios.model.groups import plan
from torch_scenarios.model.traffic import EnterGroups, Traffic
from torch_scenarios.pipeline.attempts import analyse, analyse_part
from torch_scenarios.pipeline.results import Selection
from torch_scenarios.pipeline.selection import load_all
from torch_scenarios.reference import simulate
from torch_scenarios.reference.vector.footprint import Footprint, footprint

CORPUS = Path(__file__).parents[2] / "scenarios"
LIMITS = replace(DEFAULT, max_ranks=2**20)

STEP = """\
world_size: {world}
groups:
  mesh: {{shape: [2, {dp}, 4], dims: [pp, dp, tp]}}
tensors:
  x: {{shape: [4096, 8192], value: 0, dtype: bfloat16}}
  grads: "zeros(2 ** 28)"
steps:
  - for: {{m: "range(3)"}}
    steps:
      - ranks: "rank >= world_size // 2"
        recv: {{tensor: x, src: "rank - world_size // 2"}}
      - for: {{l: "range(2)"}}
        steps:
          - all_reduce: {{tensor: x, group: mesh.tp}}
          - sleep: 300us
      - ranks: "rank < world_size // 2"
        send: {{tensor: x, dst: "rank + world_size // 2"}}
  - ranks: "rank < world_size // 2"
    all_reduce: {{tensor: grads, group: mesh.dp}}
"""


def written(folder: Path, text: str, name: str = "case.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def told(path: Path) -> Footprint | None:
    (scenario,) = load_all(Selection(paths=(str(path),), limits=LIMITS)).scenarios
    return footprint(plan(scenario, limits=LIMITS), limits=LIMITS)


@pytest.mark.parametrize(
    "folder", sampled(["async", "algorithms", "collectives", "p2p", "rooted"], 5)
)
def test_the_traffic_of_shapes_is_that_of_values(folder: str) -> None:
    scenarios = load_all(Selection(paths=(str(CORPUS / folder),))).scenarios
    compared = 0
    for scenario in scenarios:
        program = plan(scenario, limits=DEFAULT)
        found = footprint(program, limits=DEFAULT)
        whole = simulate(program, limits=DEFAULT)
        if found is None or whole.outcome != "completes" or whole.diagnoses:
            continue
        assert whole.traffic is not None
        assert found.traffic.structure == whole.traffic.structure, scenario.case
        compared += 1
    assert compared * 3 > len(scenarios)


def all_of(traffic: Traffic) -> Forecast:
    """Return the forecast of every rank by itself."""
    apart = Traffic(traffic.world_size)
    for each in traffic.entries:
        apart.entries += list(each.split_groups()) if hasattr(each, "split_groups") else [each]
    assert reduce_ranks(apart, topology("h100-8x400g")) is None
    return forecast(apart, topology("h100-8x400g"))


@pytest.mark.parametrize("dp", [4, 16])
def test_equal_ranks_are_one_class_and_take_the_same_time(tmp_path: Path, dp: int) -> None:
    path = written(tmp_path, STEP.format(world=8 * dp, dp=dp))
    found = told(path)
    assert found is not None
    fewer = reduce_ranks(found.traffic, topology("h100-8x400g"))
    assert fewer is not None
    assert len(set(fewer.twins.tolist())) == 2  # a stage each
    few, whole = forecast(found.traffic, topology("h100-8x400g")), all_of(found.traffic)
    assert few.time == pytest.approx(whole.time, rel=1e-12)
    assert [each.ended for each in few.ranks] == pytest.approx(
        [each.ended for each in whole.ranks], rel=1e-12
    )
    assert [(each.calls, each.size) for each in few.steps] == [
        (each.calls, each.size) for each in whole.steps
    ]


def test_a_straggler_is_a_class_of_its_own(tmp_path: Path) -> None:
    text = STEP.format(world=128, dp=16).replace(
        "steps:\n", "steps:\n  - {ranks: 5, sleep: 7ms}\n", 1
    )
    found = told(written(tmp_path, text))
    assert found is not None
    few, whole = forecast(found.traffic, topology("h100-8x400g")), all_of(found.traffic)
    assert few.time == pytest.approx(whole.time, rel=1e-12)
    assert few.time > 7_000


#: a stage begins a turn after the one before it, so that stages differ in the calls behind them
BEHIND = """\
world_size: 32
groups:
  mesh: {shape: [4, 2, 4], dims: [pp, dp, tp]}
tensors:
  x: {shape: 1024, value: 0}
steps:
  - let: {stage: rank // 8}
  - for: {turn: range(7)}
    steps:
      - for: {call: range(2)}
        ranks: "0 <= turn - stage < 4"
        steps:
          - all_reduce: {tensor: x, group: mesh.tp}
"""


def test_groups_that_are_whole_enter_together_wherever_they_are(tmp_path: Path) -> None:
    path = written(tmp_path, BEHIND)
    found = told(path)
    assert found is not None
    (scenario,) = load_all(Selection(paths=(str(path),))).scenarios
    whole = simulate(plan(scenario, limits=DEFAULT), limits=DEFAULT)
    assert whole.traffic is not None
    assert found.traffic.structure == whole.traffic.structure
    assert sum(isinstance(each, EnterGroups) for each in found.traffic.entries) == 7 * 2
    few, every = forecast(found.traffic, topology("h100-8x400g")), all_of(found.traffic)
    assert few.time == pytest.approx(every.time, rel=1e-12)


@pytest.mark.parametrize("leaves_out", ["rank % 8 == 3 and turn == stage", "stage == 1"])
def test_a_member_that_leaves_out_a_call_of_its_group_is_found(
    leaves_out: str, tmp_path: Path
) -> None:
    path = written(tmp_path, BEHIND.replace("< 4", f"< 4 and not ({leaves_out})"))
    (scenario,) = load_all(Selection(paths=(str(path),))).scenarios
    outcome = simulate(plan(scenario, limits=DEFAULT), limits=DEFAULT).outcome
    assert outcome == ("completes" if leaves_out == "stage == 1" else "deadlock")
    assert (told(path) is not None) == (outcome == "completes")


def test_a_value_that_decides_what_is_sent_is_needed(tmp_path: Path) -> None:
    text = """\
world_size: 2
tensors: {n: [2], x: "zeros(4)"}
steps:
  - all_reduce: {tensor: n}
  - for: {i: "range(int(n[0]))"}
    steps:
      - all_reduce: {tensor: x}
"""
    assert told(written(tmp_path, text)) is None


SHARDED = """\
world_size: 512
parameters: {layers: 80, block: 855638016}
tensors:
  shard: {shape: block // world_size, value: 0, dtype: bfloat16}
  weights: {shape: block, value: 0, dtype: bfloat16}
steps:
  - for: {layer: "range(2 * layers)"}
    steps:
      - all_gather_single: {output: weights, input: shard}
  - for: {layer: "range(2 * layers)"}
    steps:
      - reduce_scatter_single: {output: shard, input: weights, op: sum}
"""


def cost(*arguments: str) -> dict[str, object]:
    result = CliRunner().invoke(cli, ["cost", "--json", "-", *arguments])
    assert result.exit_code == 0, result.output
    found: dict[str, object] = json.loads(result.output)["cases"][0]
    return found


def test_tensors_of_any_size_in_any_world_without_a_flag(tmp_path: Path) -> None:
    path = str(written(tmp_path, SHARDED))
    found = cost("--topology", "h100-8x400g", path)
    each = 855638016 * 2 * 511 / 512
    assert found["sent"]["0"] == pytest.approx(320 * each)  # type: ignore[index]
    assert found["time_us"] > 1e6  # type: ignore[operator]


def test_what_is_sent_follows_the_scale(tmp_path: Path) -> None:
    path = str(written(tmp_path, SHARDED))
    once = cost("--topology", "h100-8x400g", path)
    half = cost("--topology", "h100-8x400g", "--scale", "0.5", path)
    assert half["sent"]["3"] == once["sent"]["3"] / 2  # type: ignore[index]


def test_a_wrong_program_is_refused_in_a_large_world(tmp_path: Path) -> None:
    text = """\
world_size: 128
tensors: {x: "zeros(4)"}
steps:
  - ranks: "rank > 0"
    all_reduce: {tensor: x}
"""
    result = CliRunner().invoke(cli, ["cost", str(written(tmp_path, text))])
    assert result.exit_code == 1
    assert "has no cost" in result.output


PART = """\
world_size: 256
tensors: {x: "zeros(2 ** 24)"}
steps:
  - all_reduce: {tensor: x}
"""
#: of few bytes, so that its values are computed, which show a race
RACE = """\
world_size: 256
tensors: {x: "zeros(2)"}
steps:
  - {all_reduce: {tensor: x, async_op: true}, as: work}
  - compute: {x: "x + 1"}
  - wait: work
"""


@pytest.mark.parametrize(("text", "status"), [(PART, "PASSED"), (RACE, "FAILED")])
def test_a_part_of_a_large_program_is_judged_by_its_shapes(
    tmp_path: Path, text: str, status: str
) -> None:
    path = tmp_path / "part.yaml"
    path.write_text(text, encoding="utf-8")
    (scenario,) = load_all(Selection(paths=(str(path),), limits=LIMITS)).scenarios
    assert analyse(scenario, LIMITS).verdict.status in {"INVALID", status}
    assert analyse_part(scenario, LIMITS).verdict.status == status
