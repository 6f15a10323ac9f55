"""How far off a forecast may be: intervals that hold for rows of sets that were left out."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from click.testing import CliRunner
from msgspec.structs import replace
from sampling import sampled

from benchmarks import held_out, held_out_steps
from benchmarks import residuals as written
from benchmarks.folds import coverage, fitted, folds, measured_rows, unmeasured
from benchmarks.planned_steps import ROWS as PUBLISHED
from torch_scenarios.cli import cli
from torch_scenarios.cost.collectives import CollectiveTimes, hops
from torch_scenarios.cost.forecast import forecast
from torch_scenarios.cost.intervals import (
    COMPARED,
    CONVOLUTION,
    FORMS,
    HOST,
    OF_PLANNED,
    SMALL_EXPERTS,
    TABLE,
    ComparedRow,
    find_interval,
    find_memory_interval,
    find_step_interval,
    form_interval,
    interval,
    memories,
    memory_interval,
    planned_steps,
    step_interval,
    steps,
)
from torch_scenarios.cost.topology import NcclNetwork, presets, read_topology, topology
from torch_scenarios.errors import ScenarioError
from torch_scenarios.model.traffic import Enter, Traffic


@pytest.mark.parametrize("alike", sampled([True, False], 2))
def test_80_percent_of_the_rows_of_projects_left_out_of_every_fit_are_in_their_interval(
    *, alike: bool
) -> None:
    inside, asked = coverage(folds(), alike=alike)
    assert asked > 350
    assert 0.77 <= inside / asked <= 0.89  # nor so wide that it says nothing


def test_80_percent_of_what_is_measured_of_a_collective_for_the_first_time_is_in_its_interval() -> (
    None
):
    """Of no row of it on such a machine, and of no other row of the project that measured it."""
    cells = unmeasured()
    others = [each for each in cells if each.collective != "all_reduce"]
    for own in (cells, others):
        inside = [each for cell in own for each in cell.inside]
        assert 0.8 <= np.mean(inside) < 0.92
        assert 0.78 <= np.mean([np.mean(cell.inside) for cell in own]) < 0.92


def test_80_percent_of_the_rows_that_nothing_knows_are_in_their_interval() -> None:
    """Of four logs, and rows of one log are inside together: so these bounds are wider than above.

    Most of them have been seen since. What the first forecasts counted is in the page of costs.
    """
    rows = list(held_out.rows())
    assert len(rows) > 80
    assert sum(row.between is None for row in rows) <= 1  # never compared, and so outside
    assert np.mean([row.is_inside for row in rows]) >= 0.75


def test_no_log_that_is_held_out_is_among_those_that_are_compared() -> None:
    compared = yaml.safe_load((COMPARED / "sets.yaml").read_text(encoding="utf-8"))
    known = {each["source"] for each in compared.values()}
    assert not known & {
        each["source"]
        for each in yaml.safe_load(held_out.ROWS.read_text(encoding="utf-8")).values()
    }


def test_a_broken_network_makes_no_interval_of_those_that_work() -> None:
    own = [
        ComparedRow("mine", "all_reduce", 2, 2.0**20, 0.05 * at, f"project {at}") for at in range(4)
    ]
    broken = ComparedRow("mine", "all_reduce", 2, 2.0**20, 2.5, "broken")
    without, beside = (
        find_interval(rows, "mine", "all_reduce", 2, 2.0**20) for rows in (own, [*own, broken])
    )
    assert without is not None
    assert beside is not None
    assert without.high < beside.high < 3
    assert beside.low < 1


def test_slow_networks_widen_an_interval_upwards_alone() -> None:
    def own(*ratios: float) -> list[ComparedRow]:
        return [
            ComparedRow("mine", "all_reduce", 2, 2.0**30, ratio, f"project {at}")
            for at, ratio in enumerate(ratios)
        ]

    alike, slow = (
        find_interval(rows, "mine", "all_reduce", 2, 2.0**30)
        for rows in (own(0, 0, 0, 0, 0, 0), own(0, 0, 0, 0, 0, 0.7))
    )
    assert alike is not None
    assert slow is not None
    assert slow.high / alike.high > 1.3
    assert slow.low / alike.low > 0.95


def test_the_more_projects_measured_a_collective_the_narrower_is_its_interval() -> None:
    rows = [ComparedRow("mine", "all_reduce", 1, 2.0**30, 0.0, f"project {at}") for at in range(4)]
    widths = []
    for many in range(4):
        gathers = [replace(each, collective="all_gather") for each in rows[:many]]
        found = find_interval([*rows, *gathers], "mine", "all_gather", 1, 2.0**30)
        assert found is not None
        assert found.asked is (many > 0)
        widths.append(found.high / found.low)
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > 1.2 * widths[3]


def test_rows_of_several_nodes_say_less_of_one_node() -> None:
    rows = [ComparedRow("mine", "all_reduce", 2, 2.0**20, 0.0, "a project")]
    own = [replace(rows[0], nodes=1)]
    inside = find_interval(rows, "mine", "all_reduce", 1, 2.0**20)
    known = find_interval(own, "mine", "all_reduce", 1, 2.0**20)
    assert inside is not None
    assert known is not None
    assert inside.high > known.high


def test_80_percent_of_the_steps_of_projects_left_out_are_in_their_interval() -> None:
    inside = []
    for row in steps():
        found = find_step_interval(
            (each for each in steps() if each.group != row.group), row.kind, row.gpu
        )
        assert found is not None
        inside.append(found.low <= np.exp(row.log_ratio) <= found.high)
    assert 0.8 <= np.mean(inside) < 1


def test_the_steps_are_those_of_the_benchmark_that_nothing_is_fitted_to() -> None:
    published = yaml.safe_load((Path(written.__file__).parent / "step_times.yaml").read_text())
    with (COMPARED / "steps.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        stated = published["rows"][row["step"]]
        assert (stated["machine"], stated["tokens"]) == (row["kind"], int(row["measured"]))
        tuner = topology(row["kind"]).tuner
        assert tuner is not None
        assert tuner.gpu == row["gpu"]
    fitted_to = {name for name, row in published["rows"].items() if row.get("fitted")}
    assert fitted_to
    assert not fitted_to & {row["step"] for row in rows}


@pytest.mark.parametrize("is_stated", [False, True])
def test_80_percent_of_planned_steps_of_projects_left_out_are_in_their_interval(
    *, is_stated: bool
) -> None:
    by_project: dict[str, list[bool]] = {}
    rows = planned_steps(is_stated=is_stated)
    for row in rows:
        others = [each for each in rows if each.group != row.group]
        found = find_step_interval(others, row.kind, row.gpu, OF_PLANNED)
        assert found is not None
        is_inside = found.low <= np.exp(row.log_ratio) <= found.high
        by_project.setdefault(row.group, []).append(bool(is_inside))
    assert len(by_project) >= 7
    inside = [each for rows in by_project.values() for each in rows]
    assert 0.8 <= np.mean(inside) < 1
    assert 0.8 <= np.mean([np.mean(rows) for rows in by_project.values()]) < 1


def test_80_percent_of_planned_memory_of_projects_left_out_is_in_its_interval() -> None:
    by_project: dict[str, list[bool]] = {}
    for row in memories():
        if row.is_planned:
            others = [each for each in memories() if each.group != row.group]
            found = find_memory_interval(others, is_planned=True)
            by_project.setdefault(row.group, []).append(row.is_in(found))
    assert len(by_project) >= 5
    inside = [each for rows in by_project.values() for each in rows]
    assert 0.8 <= np.mean(inside) < 1
    assert memory_interval(is_planned=True).high < 1.6  # nor so wide that it says nothing


def test_planned_memory_is_what_a_plan_says_of_the_published_steps() -> None:
    document = yaml.safe_load(held_out_steps.ROWS.read_text(encoding="utf-8"))
    published = {}
    for name, about in document["sets"].items():
        for row in [] if about.get("in_no_interval") else about["rows"]:
            model, way = held_out_steps.read_row(row, document["models"], about.get("code", {}))
            gpu = topology(row["machine"]).gpu
            assert gpu is not None
            if "memory" in row:
                loads = [each.load(way, gpu) for each in (model, model.hold_least())]
                key = name, f"{row['model']}, {way.name}", float(row["memory"])
                published[key] = [round(each.held / 2**30, 1) for each in loads]
    with (COMPARED / "memory.csv").open(encoding="utf-8", newline="") as file:
        planned = [row for row in csv.DictReader(file) if row["form"] == "planned"]
    kept = {
        (row["set"], row["step"], float(row["measured"])): [
            float(row["forecast"]),
            float(row["least"]),
        ]
        for row in planned
    }
    assert len(kept) == len(planned) > 40
    assert kept == published


def test_planned_steps_are_compared_with_planned_ones() -> None:
    recorded, planned = (
        step_interval("a100-8x200g", "a100-8x200g", "ampere", is_planned=is_planned)
        for is_planned in (False, True)
    )
    assert recorded is not None
    assert planned is not None
    assert recorded.rows == len(steps())
    assert planned.rows == len(planned_steps())


def test_planned_steps_as_their_code_is_make_a_narrower_interval() -> None:
    for name, gpu in (("h100-8x400g", "hopper"), ("a100-8x200g", "ampere")):
        plain, stated = (
            step_interval(name, name, gpu, is_planned=True, is_stated=is_stated)
            for is_stated in (False, True)
        )
        assert plain is not None
        assert stated is not None
        assert stated.rows == plain.rows
        assert stated.high / stated.low < plain.high / plain.low
    with (COMPARED / "planned.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["form"] == "planned"]
    known = [row for row in rows if row["stated"] != row["forecast"]]
    off, of_code = (
        np.mean([abs(np.log(float(row[column]) / float(row["measured"]))) for row in known])
        for column in ("forecast", "stated")
    )
    assert len(known) > 40
    assert of_code < off


def test_published_rows_are_those_of_the_benchmark() -> None:
    with (COMPARED / "planned.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    known = [row for row in rows if row["step"] in PUBLISHED]
    assert len(known) >= 30
    for row in known:
        published = PUBLISHED[row["step"]]
        assert published.machine == row["kind"]
        assert published.measured == pytest.approx(float(row["measured"]), rel=0.01)


def test_steps_of_other_gpus_make_a_wider_interval() -> None:
    own, other = (
        step_interval(machine, machine, gpu)
        for machine, gpu in (("h100-8x400g", "hopper"), ("mine", "blackwell"))
    )
    assert own is not None
    assert other is not None
    assert own.alike
    assert not other.alike
    assert other.high / other.low > 1.5 * own.high / own.low


def test_a_fold_fits_without_the_rows_of_its_project() -> None:
    rows = [row for row in measured_rows() if row.compared.kind == "h100-8x400g"]
    others = [row for row in rows if row.compared.group != rows[0].compared.group]
    slower = [replace(row, measured=3 * row.measured) for row in others]
    one, two = fitted(others), fitted(slower)
    assert one.factors["nvls"] == pytest.approx(1.15, abs=0.15)
    assert two.factors["nvls"] > 2 * one.factors["nvls"]


def test_intervals_are_narrow_where_machines_agree() -> None:
    large = interval("h100-8x400g", "all_reduce", 1, 2.0**28)
    small = interval("h100-8x400g", "all_reduce", 1, 2.0**12)
    assert large is not None
    assert small is not None
    assert large.alike
    assert large.high / large.low < 1.7 < small.high / small.low
    assert large.sets >= 3


def test_what_nothing_like_it_was_measured_of_has_no_interval() -> None:
    assert interval("h100-8x400g", "all_reduce", 4096, 2.0**28) is None
    other = interval("nothing", "all_reduce", 2, 2.0**28)
    assert other is not None
    assert not other.alike


def test_the_residuals_are_those_of_the_code() -> None:
    assert (COMPARED / "residuals.csv").read_text(encoding="utf-8") == written.text()


def test_each_set_has_its_source_and_a_machine_that_is_known() -> None:
    sets = yaml.safe_load((COMPARED / "sets.yaml").read_text(encoding="utf-8"))
    with (COMPARED / "measured.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["set"] for row in rows} == sets.keys()
    assert all(each["source"] and each["machine"] for each in sets.values())
    assert {each["preset"] for each in sets.values()} <= set(presets())
    assert len(rows) > 900


def called(name: str, size: float, ranks: int = 8) -> Traffic:
    traffic = Traffic(ranks)
    members = tuple(range(ranks))
    number = traffic.stroke()
    entry = Enter(number, np.arange(ranks), np.zeros(ranks), name, "w", size, members)
    traffic.enter(entry)
    traffic.finish(np.arange(ranks), number, None)
    return traffic


def test_a_forecast_says_between_which_times_such_calls_were() -> None:
    found = forecast(called("all_reduce", 2.0**28), topology("h100-8x400g"))
    assert found.low < found.time < found.high
    assert found.uncompared == 0
    assert found.error.startswith("80 % of such calls took")
    assert found.json()["interval_us"] == [found.low, found.high]
    (told,) = [each for each in found.forecast_lines({}) if "nccl-tests" in each]
    assert told.strip().startswith("launch 14 us + t")
    assert found.json()["nccl_tests_us"] == pytest.approx(found.time - 14)


def test_a_collective_that_no_row_is_of_says_that_its_rows_are_of_others() -> None:
    machine = topology("h100-8x400g")
    others, own = (
        forecast(called(name, 1e9), machine).error for name in ("broadcast", "all_reduce")
    )
    assert " measurements of other collectives, published by" in others
    assert " measurements like it, published by" in own


@pytest.mark.parametrize(("count", "is_compared"), [(100, True), (1, False)])
def test_a_time_most_of_which_is_like_no_measurement_has_no_interval(
    count: int, *, is_compared: bool
) -> None:
    """Groups of 4,096 nodes were never measured."""
    traffic, node, everyone = Traffic(32768), range(8), range(32768)
    calls = [("all_reduce", node, 2.0**33)] * count + [("all_gather", everyone, 2.0**20)]
    for name, ranks, size in calls:
        number, members = traffic.stroke(), np.array(ranks)
        zeros = np.zeros(len(ranks))
        entry = Enter(number, members, zeros, name, f"of {len(ranks)}", size, tuple(ranks))
        traffic.enter(entry)
        traffic.finish(members, number, None)
    found = forecast(traffic, topology("h100-8x400g"))
    assert found.uncompared > 0
    if is_compared:
        assert found.low < found.time < found.high
        assert "% of the time was never compared, and may err as the rest" in found.error
        alone = forecast(called("all_reduce", 2.0**33), topology("h100-8x400g"))
        share = found.high / found.time
        assert share == pytest.approx(alone.high / alone.time, rel=0.01)
    else:
        assert found.low == found.time == found.high
        assert found.interval_words == "never compared"
        assert found.error.startswith("never compared with a measurement: ")


@pytest.mark.parametrize(("name", "model"), [("flat", None), ("h100-8x400g", "torch")])
def test_models_without_measurements_say_so(name: str, model: str | None) -> None:
    found = forecast(called("all_reduce", 2.0**28), topology(name), model=model)
    assert found.error == "never compared with a measurement"
    assert found.uncompared == pytest.approx(found.time)


def test_a_table_has_the_interval_of_tables() -> None:
    found = forecast(called("all_reduce", 2.0**28), topology("azure-nd-h100-v5"))
    expected = interval(TABLE, "all_reduce", 1, 2.0**28)
    assert expected is not None
    assert found.high == pytest.approx(found.time * expected.high)


def test_factors_are_by_algorithm_and_hops_and_peers_add_up(tmp_path: Path) -> None:
    text = """\
version: 1
topology: mine
describes: a test
source: made up
like: h100-8x400g
node: {ranks: 8}
links:
  port: {per: rank, bandwidth: 360GB/s, latency: 0.6us}
  nic: {per: rank, bandwidth: 48GB/s, latency: 2.7us}
collectives: {model: nccl, version: 2.30.7, gpu: hopper, channels: {ring: [24, 15]}%s}
"""

    def time(extra: str, name: str, size: float, ranks: int) -> float:
        file = tmp_path / "mine.yaml"
        file.write_text(text % extra)
        machine = read_topology(file)
        assert machine.kind == "h100-8x400g"
        entry = Enter(0, None, 0.0, name, "w", size, tuple(range(ranks)))
        return CollectiveTimes(machine, ranks).of(entry).time

    plain = time("", "all_gather_single", 2.0**30, 8)
    ring = time(", factor: {ring: 2, tree: 3}", "all_gather_single", 2.0**30, 8)
    assert ring == pytest.approx(2 * plain)
    far = time("", "all_gather_single", 2.0**30, 32)
    hop = time(", hop: 10us", "all_gather_single", 2.0**30, 32)
    assert hop == pytest.approx(far + 40)
    few = time("", "all_to_all_single", 1024.0, 16)
    peer = time(", peer: 3us", "all_to_all_single", 1024.0, 16)
    assert peer == pytest.approx(few + 8 * 3)  # those of the other node
    near = time(", peer: 3us, node_peer: 1us", "all_to_all_single", 1024.0, 16)
    assert near == pytest.approx(peer + 7)
    in_node = time("", "all_to_all_single", 1024.0, 8)
    assert time(", peer: 3us", "all_to_all_single", 1024.0, 8) == in_node
    with pytest.raises(ScenarioError, match="`factor` has no `rings`"):
        time(", factor: {rings: 2}", "all_gather_single", 1024.0, 8)


@pytest.mark.parametrize(
    ("ranks", "mib", "least", "most"),
    [
        (8, 4, 52, 57),
        (8, 64, 317, 327),
        (8, 1024, 4016, 4050),
        (16, 16, 184, 208),
        (16, 64, 461, 480),
        (16, 256, 1260, 1304),
    ],
)
def test_sums_by_nvls_take_what_their_chunks_take(
    ranks: int, mib: int, least: float, most: float
) -> None:
    """Between these are what H100 and H200 with a healthy network took, of three projects each."""
    times = CollectiveTimes(topology("h100-8x400g"), ranks)
    members = tuple(range(ranks))
    found = times.of(Enter(0, None, 0.0, "all_reduce", "w", mib * 2.0**20, members))
    assert found.algorithm.startswith("nvls")
    assert 0.93 * least < found.time < 1.07 * most


def test_a_hop_of_a_ring_may_take_another_time_than_one_of_a_tree() -> None:
    machine = topology("p5")
    assert machine.hop_of("tree") < machine.hop_of("ring") == machine.ring_hop
    gather = Enter(0, None, 0.0, "all_gather", "w", 2.0**20, tuple(range(64)))
    shared = replace(machine, ring_hop=None)
    of_ring, of_tree = (CollectiveTimes(each, 64).of(gather).time for each in (machine, shared))
    assert of_ring - of_tree == pytest.approx(8 * (machine.hop_of("ring") - machine.hop))


def test_messages_leave_their_node_on_the_rail_of_their_receiver() -> None:
    """NVLink takes them to the GPU with that NIC, as NCCL does (PXN); not so over PCIe."""
    machine = topology("h100-8x400g")
    assert machine.tuner is not None
    over_pcie = replace(machine, tuner=replace(machine.tuner, inside="pcie"))
    for own, rail in ((machine, 1), (over_pcie, 0)):
        network = NcclNetwork(own, 16)
        (links,) = network.routes(np.array([0]), np.array([9])).links.tolist()
        assert f"nic out of node 0, rail {rail}" in [network.name_of(each) for each in links]


def test_where_gpus_are_joined_in_pairs_few_of_a_node_have_few_wires() -> None:
    """Two A100 of a node of four have a third of its NVLink: what Perlmutter's two took, 8 GiB."""
    times = CollectiveTimes(topology("a100-4"), 4)
    for name, took in (
        ("all_gather", 65_672),
        ("reduce_scatter", 65_874),
        ("all_reduce", 115_460),
    ):
        found = times.of(Enter(0, None, 0.0, name, "w", 2.0**33, (0, 1))).time
        assert found == pytest.approx(took, rel=0.3), name
    network = NcclNetwork(topology("a100-4"), 4)
    alone = network.routes(np.array([0]), np.array([1])).slowest
    assert 2**33 * alone == pytest.approx(115_150, rel=0.1)  # a ring of messages
    few, all_of_them = (
        CollectiveTimes(topology("mi300x-8"), 8).of(
            Enter(0, None, 0.0, "all_reduce", "w", 2.0**30, tuple(range(count)))
        )
        for count in (2, 8)
    )
    assert few.time > 3 * all_of_them.time


def test_a_ring_of_messages_in_a_node_has_the_channels_that_nccl_gives_each(
    tmp_path: Path,
) -> None:
    """As 8 B300, 8 H100 and 4 of these took, in a ring: 64 MiB go by 4 of 32 channels, or by 8."""
    text = """\
version: 1
world_size: %d
tensors: {x: {shape: %d, value: 0}, y: {shape: %d, value: 0}}
steps:
  - batch_isend_irecv:
      p2p_op_list:
        - {op: isend, tensor: x, peer: "(rank + 1) %% world_size"}
        - {op: irecv, tensor: y, peer: "(rank - 1) %% world_size"}
    as: exchange
  - wait: exchange
"""
    for machine, ranks, mib, took in (
        ("b200-8x400g", 8, 16, 208),
        ("b200-8x400g", 8, 64, 770),
        ("b200-8x400g", 8, 256, 830),
        ("h100-8x400g", 8, 64, 820),
        ("h100-8x400g", 4, 64, 427),
        ("h100-8x400g", 8, 1024, 2975),
    ):
        path = tmp_path / "ring.yaml"
        path.write_text(text % (ranks, mib * 2**18, mib * 2**18), encoding="utf-8")
        done = CliRunner().invoke(cli, ["cost", str(path), "--topology", machine, "--json", "-"])
        assert done.exit_code == 0, done.output
        (found,) = json.loads(done.stdout)["cases"]
        assert found["time_us"] == pytest.approx(took, rel=0.2), (machine, ranks, mib)


def test_a_factor_of_all_to_all_is_of_messages_that_leave_by_all_nics() -> None:
    machine = topology("b200-8x400g")
    plain = replace(machine, factors={**machine.factors, "all_to_all": 1.0}, peer=0.0)
    stated = replace(machine, peer=0.0)
    for name, ranks, times in (
        ("all_to_all_single", 16, machine.factors["all_to_all"]),
        ("scatter", 16, machine.factors["all_to_all"]),
        ("gather", 16, 1.0),
        ("all_to_all_single", 8, 1.0),
    ):
        call = Enter(0, None, 0.0, name, "w", 2.0**30, tuple(range(ranks)))
        found, without = (CollectiveTimes(each, ranks).of(call).time for each in (stated, plain))
        assert found == pytest.approx(times * without)


def test_messages_are_compared_with_rings_of_messages(tmp_path: Path) -> None:
    text = """\
version: 1
world_size: 16
tensors: {x: {shape: 16777216, value: 0}, y: {shape: 16777216, value: 0}}
steps:
  - batch_isend_irecv:
      p2p_op_list:
        - {op: isend, tensor: x, peer: "(rank + 1) % 16"}
        - {op: irecv, tensor: y, peer: "(rank - 1) % 16"}
    as: exchange
  - wait: exchange
"""
    path = tmp_path / "ring.yaml"
    path.write_text(text, encoding="utf-8")
    done = CliRunner().invoke(cli, ["cost", str(path), "--topology", "b200-8x400g"])
    assert done.exit_code == 0, done.output
    assert "measurements like it, published by" in done.output


def test_a_tree_over_two_nodes_has_more_bandwidth_than_a_ring_on_few_nics() -> None:
    """As NCCL's search has it (src/graph/search.cc): so two GPUs of each node leave the ring."""
    preset = topology("h100-8x400g")

    def algorithm(members: tuple[int, ...]) -> str:
        entry = Enter(0, None, 0.0, "all_reduce", "w", 2.0**30, members)
        return CollectiveTimes(preset, 16).of(entry).algorithm

    assert algorithm((0, 1, 8, 9)) == "tree, Simple"
    assert algorithm((0, 8)) == "ring, Simple"
    assert algorithm((0, 1, 2, 3, 8, 9, 10, 11)).startswith("nvls_tree")
    over_few = CollectiveTimes(topology("p4d"), 16)
    entry = Enter(0, None, 0.0, "all_reduce", "w", 2.0**30, tuple(range(16)))
    assert over_few.of(entry).algorithm == "tree, Simple"
    # what two clusters measured: 26.0 and 26.4 ms
    assert 23e3 < over_few.of(entry).time < 30e3


def test_hops_grow_with_the_nodes() -> None:
    trees = [hops("all_reduce", "tree", nodes, 8 * nodes) for nodes in (1, 2, 3, 4, 32)]
    assert trees == [0, 2, 4, 4, 10]
    assert [hops("all_reduce", "ring", nodes, 8 * nodes) for nodes in (1, 2, 32)] == [0, 4, 64]
    assert hops("all_gather", "ring", 32, 256) == 32


def test_a_ring_of_one_rank_of_each_node_does_not_come_back_to_its_own() -> None:
    assert hops("all_gather", "ring", 32, 32) == 31
    assert hops("all_reduce", "ring", 2, 2) == 2


def test_a_collective_that_no_row_of_a_machine_is_of_has_a_wider_interval() -> None:
    rows = [ComparedRow("mine", "all_reduce", 2, 2.0**20, 0.0, f"project {at}") for at in range(4)]
    own, other = (
        find_interval(rows, "mine", name, 2, 2.0**20) for name in ("all_reduce", "all_to_all")
    )
    assert own is not None
    assert other is not None
    assert own.asked
    assert not other.asked
    assert other.high > 1.3 * own.high


@pytest.mark.parametrize("form", [each for each in FORMS if each != CONVOLUTION])
def test_published_steps_of_a_form_are_within_its_interval(form: str) -> None:
    found = form_interval(form)
    assert found is not None
    with (COMPARED / "planned.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["form"] == form]
    ratios = [float(row["forecast"]) / float(row["measured"]) for row in rows]
    assert found.rows == len(rows) >= 3
    assert all(
        found.low <= each * (1 + 1e-9) and each <= found.high * (1 + 1e-9) for each in ratios
    )
    widest = 4 if form in {HOST, SMALL_EXPERTS} else 2.5  # nor so wide that it says nothing
    assert found.high / found.low < widest


def test_a_form_of_which_no_step_was_published_has_no_interval() -> None:
    assert form_interval(CONVOLUTION) is None
    assert form_interval("sparse") is None


def test_few_gpus_of_two_racks_have_what_their_nics_carry() -> None:
    """A rack of 72 has fewer channels than NICs: NVLink bounds these, and a part has its own NICs.

    Of GB300, four of each of two racks gather as quickly as their four NICs, 8/7 of the bus.
    """
    machine = topology("gb300-nvl72")
    nic = machine.links["nic"].bandwidth
    size = 2.0**34
    times = {}
    for few in (2, 4, 8, 64):
        members = (*range(few), *range(72, 72 + few))
        entry = Enter(0, None, 0.0, "all_gather_into_tensor", "", size, members)
        found = CollectiveTimes(machine, 144).of(entry).time
        bound = size * (2 * few - 1) / (2 * few) / (few * nic)
        times[few] = found / bound
    assert times[2] == pytest.approx(times[4], rel=0.05)
    assert 1 <= times[4] < 1.2
    assert times[64] > 5  # so many NICs carry more than NVLink does
