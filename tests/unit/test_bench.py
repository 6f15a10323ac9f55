"""`scenario bench`: what is measured, what a comparison is worth, what parsers read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench_command import BENCHED, benched

from torch_scenarios.cost.logs import read_logs
from torch_scenarios.pipeline.bench import (
    BenchRow,
    bus_factor,
    changes,
    compare,
    nccl_tests_tables,
    noise,
    percentile_99,
    repetitions,
    warmups,
)


def row(**rest: Any) -> BenchRow:
    given: dict[str, Any] = {
        "file": "one.yaml",
        "case": "one",
        "ranks": 4,
        "bytes": 2**20,
        "collective": "all_reduce",
        "blocks": ((100.0, 120.0), (110.0, 130.0)),
        "by_rank": (100.0, 90.0, 110.0, 100.0),
    }
    return BenchRow(**{**given, **rest})


def test_bandwidths_are_those_of_nccl_tests() -> None:
    found = row().json()
    assert found["median_us"] == 115
    assert found["algbw_gbps"] == pytest.approx(2**20 / 115e3)
    assert found["busbw_gbps"] == pytest.approx(2**20 / 115e3 * 2 * 3 / 4)
    assert found["p99_us"] is None
    factors = [bus_factor(name, 4) for name in ("all_gather", "broadcast", "all_to_all_single")]
    assert factors == [0.75, 1.0, 0.75]


def test_a_percentile_is_a_sample() -> None:
    assert percentile_99(np.arange(1.0, 101.0)) == 99
    assert percentile_99(np.arange(1.0, 1001.0)) == 990
    assert row(blocks=((1.0,) * 100,)).json()["p99_us"] == 1


def blocks(chosen: np.random.Generator, slower: float, spread: float) -> list[float]:
    """Return medians of five blocks whose repetitions are as skewed as real ones are."""
    tails = chosen.lognormal(0, spread, (5, 20)) + chosen.pareto(3, (5, 20)) * 0.1
    return [float(each) for each in np.median(1000 * slower * tails, axis=1)]


@pytest.mark.parametrize("spread", [0.1, 0.12])
@pytest.mark.parametrize(("slower", "failed"), [(1.2, (19, 20)), (1.0, (0, 1))])
def test_11_a_slowdown_fails_and_equal_times_do_not(
    slower: float, failed: tuple[int, int], spread: float
) -> None:
    """A fifth, at --fail-above 10%; benchmarks/slowdown.py measures it on real ranks."""
    chosen = np.random.default_rng(11)
    found = [
        compare(blocks(chosen, 1, spread), blocks(chosen, slower, spread), 0.1, noisy=False)
        for _ in range(20)
    ]
    assert failed[0] <= sum(each.status == "FAILED" for each in found) <= failed[1]
    assert all(each.low <= each.ratio <= each.high for each in found)


def test_12_a_noisy_machine_fails_nothing() -> None:
    assert compare([100.0] * 5, [200.0] * 5, 0.1, noisy=True).status == "INCONCLUSIVE"
    assert compare([100.0] * 5, [200.0] * 5, 0.1, noisy=False).status == "FAILED"
    assert compare([100.0] * 5, [100.0] * 5, 0.1, noisy=True).status == "PASSED"
    notes = noise(64, "gloo", [row().json()], load=1e3)
    assert [note.partition(" ")[0] for note in notes] == ["64", "the"]


def test_12_one_number_is_no_verdict() -> None:
    assert compare([100.0], [300.0], 0.1, noisy=False).status == "INCONCLUSIVE"
    assert compare([100.0] * 5, [300.0] * 4, 0.1, noisy=False).status == "INCONCLUSIVE"


#: how nccl-tests prints a row and its headings (2.19, src/util.cu)
ROW = "%12i  %12i  %8s  %6s  %6s" + 2 * "  %7s  %6s  %6s  %6g"
HEADINGS = "# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %6s  %7s  %6s  %6s  %6s %*s"


def test_the_table_is_the_one_of_nccl_tests() -> None:
    lines = nccl_tests_tables([row(), row(bytes=8, dtype="int64", item_bytes=8, redop="product")])
    half = ("time", "algbw", "busbw", "#wrong")
    assert HEADINGS % ("size", "count", "type", "redop", "root", *half, *half, 0, "") in lines
    shown = ("100.00", "10.49", "15.73", 0)
    assert ROW % (2**20, 2**18, "float", "sum", -1, *shown, *shown) in lines
    small = ("100.00", "0.00", "0.00", 0)
    assert ROW % (8, 1, "int64", "prod", -1, *small, *small) in lines
    assert lines[0] == "# Collective test starting: all_reduce_perf"
    assert lines[-1] == "# Collective test concluded: all_reduce_perf"
    assert "# Out of bounds values : 0 OK" in lines


@pytest.mark.parametrize(
    ("collective", "told"),
    [
        ("broadcast", ["262144", "float", "none", "3"]),
        ("reduce", ["262144", "float", "max", "3"]),
        ("all_gather_single", ["65536", "float", "none", "3"]),
        ("reduce_scatter_single", ["65536", "float", "max", "3"]),
        ("all_to_all_single", ["65536", "float", "none", "3"]),
        ("gather", ["65536", "float", "none", "3"]),
    ],
)
def test_a_row_counts_elements_as_its_program_does(collective: str, told: list[str]) -> None:
    """Of what each rank has a part of, the size is that of the whole and the count of one part."""
    lines = nccl_tests_tables([row(collective=collective, redop="max", root=3)])
    (shown,) = [line.split() for line in lines if not line.startswith("#")]
    assert shown[:5] == ["1048576", *told]


def test_numbers_keep_the_width_of_their_columns() -> None:
    lines = nccl_tests_tables([row(by_rank=(time,) * 4) for time in (9.0, 12345.6, 1e6, 1e9)])
    shown = [line for line in lines if not line.startswith("#")]
    times = [line.split()[5] for line in shown]
    assert times == ["9.00", "12345.6", "1000000", "1.0e+09"]
    assert len({len(line) for line in shown}) == 1


def test_a_rank_that_takes_no_step_is_in_no_mean() -> None:
    lines = nccl_tests_tables([row(by_rank=(100.0, 0.0, 110.0, 0.0))])
    (shown,) = [line.split() for line in lines if not line.startswith("#")]
    assert shown[5] == "105.00"


def test_each_collective_has_a_table_that_a_topology_is_made_of(tmp_path: Path) -> None:
    rows = [row(), row(bytes=8), row(collective="all_to_all_single"), row(ranks=2)]
    log = tmp_path / "log.txt"
    log.write_text("\n".join(nccl_tests_tables(rows)), encoding="utf-8")
    found = {
        (each.collective, each.ranks): each.table().sizes
        for each in read_logs(log, log.read_bytes())
    }
    assert found == {
        ("all_reduce", 4): (8, 2**20),
        ("all_to_all", 4): (2**20,),
        ("all_reduce", 2): (2**20,),
    }


def test_a_program_with_wrong_values_is_not_measured(tmp_path: Path) -> None:
    file = tmp_path / "one.yaml"
    file.write_text(BENCHED.replace(", 3)", ", 4)"), encoding="utf-8")
    code, output = benched(str(file), "--iters", "5")
    assert code == 1
    assert "FAILED" in output
    assert "median" not in output.partition("one")[2]


def test_a_new_world_warms_up_for_a_while() -> None:
    """At its pace after 50 ms; never fewer than five repetitions, never more than a thousand."""
    assert [warmups(np.full((2, 5), time)) for time in (500.0, 84_000.0, 3.0)] == [100, 5, 1000]


DEADLOCK = """
world_size: 2
tensors: {x: [1]}
steps:
  - ranks: 0
    all_reduce: {tensor: x}
expect: {outcome: deadlock, diagnosis: missing_participant}
"""


def test_a_program_that_does_not_complete_is_refused_with_its_diagnosis(tmp_path: Path) -> None:
    file = tmp_path / "one.yaml"
    file.write_text(DEADLOCK, encoding="utf-8")
    code, output = benched(str(file))
    assert code == 1
    assert "one is not measured: a program with missing_participant has no cost" in output
    assert "note" not in output


def test_a_size_that_is_too_large_is_told_with_its_limit(tmp_path: Path) -> None:
    file = tmp_path / "one.yaml"
    file.write_text(BENCHED, encoding="utf-8")
    code, output = benched(str(file), "--sizes", "1T")
    assert code == 2
    assert "--limit" in output


def test_sizes_want_a_parameter_that_is_told_by_their_own_name(tmp_path: Path) -> None:
    file = tmp_path / "one.yaml"
    file.write_text("world_size: 2\nsteps:\n  - barrier: {}\n", encoding="utf-8")
    code, output = benched(str(file), "--sizes", "1K")
    assert code == 2
    assert "--sizes" in output
    assert "--set" not in output


OLD: dict[str, Any] = {"case": "one", "ranks": 2, "bytes": 64, "min_us": 1.0, "median_us": 2.0}


@pytest.mark.parametrize(
    "changed",
    [
        {"min_us": "fast"},
        {"ranks": None},
        {"median_us": -1},
        {"block_medians_us": ["x"] * 5},
        {"block_medians_us": 5},
        {"case": 3},
    ],
)
def test_an_old_file_that_makes_no_sense_is_refused(
    changed: dict[str, Any], tmp_path: Path
) -> None:
    file, old = tmp_path / "one.yaml", tmp_path / "old.json"
    file.write_text(BENCHED, encoding="utf-8")
    old.write_text(json.dumps({"rows": [{**OLD, **changed}]}), encoding="utf-8")
    code, output = benched(str(file), "--compare", str(old))
    assert code == 2
    assert "is not output of `scenario bench --json`" in " ".join(output.split())


def test_what_changed_since_the_old_times_is_told() -> None:
    before = {"host": "one", "load": 1.0, "torch": "2.12.0", "backend": "gloo"}
    now = {"host": "one", "load": 9.0, "torch": "2.13.0", "backend": "gloo", "cores": 2}
    told = "torch was 2.12.0 when the old times were measured, and is 2.13.0"
    assert changes(before, now) == [told]
    assert changes(None, now) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["--compare", "none.json"],
        ["--fail-above", "much"],
        ["--sizes", "big"],
        ["--fail-above", "20%"],
        ["--compare", "none.json", "--fail-above", "10"],
        ["--raw"],
        ["--json", "/nowhere/there/new.json"],
        ["--sizes", "64,1K", "--set", "bytes=8"],
    ],
)
def test_options_that_make_no_sense_are_refused(arguments: list[str], tmp_path: Path) -> None:
    file = tmp_path / "one.yaml"
    file.write_text(BENCHED, encoding="utf-8")
    assert benched(str(file), *arguments)[0] == 2


def test_repetitions_are_as_many_as_take_so_long() -> None:
    tried = np.array([[900.0, 1000.0, 1100.0], [100.0, 200.0, 300.0]])  # rank 0 is the slowest
    assert repetitions(tried, 1.0) == 200
    assert repetitions(tried, 1e-9) == 1
