"""`scenario bench`: what is measured, what a comparison is worth, what parsers read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench_command import BENCHED, benched

from runner.cost.logs import read_logs
from runner.pipeline.bench import (
    BenchRow,
    bus_factor,
    compared,
    nccl_tests_table,
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
        compared(blocks(chosen, 1, spread), blocks(chosen, slower, spread), 0.1, noisy=False)
        for _ in range(20)
    ]
    assert failed[0] <= sum(each.status == "FAILED" for each in found) <= failed[1]
    assert all(each.low <= each.ratio <= each.high for each in found)


def test_12_a_noisy_machine_fails_nothing() -> None:
    assert compared([100.0] * 5, [200.0] * 5, 0.1, noisy=True).status == "INCONCLUSIVE"
    assert compared([100.0] * 5, [200.0] * 5, 0.1, noisy=False).status == "FAILED"
    assert compared([100.0] * 5, [100.0] * 5, 0.1, noisy=True).status == "PASSED"
    notes = noise(64, "gloo", [row().json()], load=1e3)
    assert [note.partition(" ")[0] for note in notes] == ["64", "the"]


def test_12_one_number_is_no_verdict() -> None:
    assert compared([100.0], [300.0], 0.1, noisy=False).status == "INCONCLUSIVE"
    assert compared([100.0] * 5, [300.0] * 4, 0.1, noisy=False).status == "INCONCLUSIVE"


def test_the_table_is_read_by_the_parser_of_nccl_tests(tmp_path: Path) -> None:
    lines = nccl_tests_table([row(), row(bytes=8, dtype="int64", item_bytes=8)])
    log = tmp_path / "log.txt"
    log.write_text("\n".join(lines), encoding="utf-8")
    (found,) = read_logs(log, log.read_bytes())
    assert (found.table().sizes, found.table().times) == ((8, 2**20), (100.0, 100.0))
    (shown,) = [line.split() for line in lines if line.split()[0] == "8"]
    assert shown[:5] == ["8", "1", "int64", "sum", "-1"]
    assert len(shown) == 13


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


@pytest.mark.parametrize(
    "arguments", [["--compare", "none.json"], ["--fail-above", "much"], ["--sizes", "big"]]
)
def test_options_that_make_no_sense_are_refused(arguments: list[str], tmp_path: Path) -> None:
    file = tmp_path / "one.yaml"
    file.write_text(BENCHED, encoding="utf-8")
    assert benched(str(file), *arguments)[0] == 2


def test_repetitions_are_as_many_as_take_so_long() -> None:
    tried = np.array([[900.0, 1000.0, 1100.0], [100.0, 200.0, 300.0]])  # rank 0 is the slowest
    assert repetitions(tried, 1.0) == 200
    assert repetitions(tried, 1e-9) == 1
