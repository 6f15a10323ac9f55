"""Whatever forecasts a time says how far off such times were, or that they were never compared."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from torch_scenarios.cli import cli
from torch_scenarios.cli.answers.cost import bench_lines
from torch_scenarios.cost.intervals import COMPARED as COMPARED_ROWS
from torch_scenarios.cost.intervals import memory_interval

ONE = """\
world_size: 16
tensors: {x: {shape: BYTES, value: 0, dtype: uint8}}
steps:
  - all_reduce: {tensor: x}
"""
STATED = ONE.replace("BYTES", "1024") + "expect: {cost: {time: {max: 1us, on: MACHINE}}}\n"
MODEL = """\
layers: 2
hidden: 2048
inner: 8192
heads: 16
kv_heads: 4
vocabulary: 512
sequence: 2048
batch: 64
"""
#: a machine that measurements are of, and one that none is of
COMPARED, NEVER = "h100-8x400g", "flat"


def shown(folder: Path, machine: str, command: str) -> str:
    """Return what a command prints that forecasts on a machine."""
    path, model = folder / "case.yaml", folder / "model.yaml"
    path.write_text(ONE.replace("BYTES", "1024"), encoding="utf-8")
    model.write_text(MODEL, encoding="utf-8")
    on, page = ("--topology", machine), folder / "page.html"
    plan = ["plan", str(model), *on, "--gpus", "16", "--most", "1", "-o", str(folder / "ways")]
    if command == "check":
        path.write_text(STATED.replace("MACHINE", machine), encoding="utf-8")
    commands = {
        "cost": ["cost", str(path), *on],
        "curve": ["cost", str(path), *on, "--sizes", "1K:1M:1024"],
        "json": ["cost", str(path), *on, "--json", "-"],
        "page": ["cost", str(path), *on, "--html", str(page)],
        "plan": plan,
        "plan_json": [*plan, "--json", "-"],
        "check": ["check", str(path)],
    }
    found = CliRunner().invoke(cli, commands[command])
    return page.read_text(encoding="utf-8") if command == "page" else " ".join(found.output.split())


@pytest.mark.parametrize("command", ["cost", "curve", "json", "page", "check"])
@pytest.mark.parametrize(
    ("machine", "words"), [(COMPARED, "80 % of such calls took"), (NEVER, "never compared with a")]
)
def test_a_forecast_has_its_interval_or_says_that_it_has_none(
    tmp_path: Path, machine: str, words: str, command: str
) -> None:
    found = shown(tmp_path, machine, command)
    assert words in found
    if command == "curve":  # each size its own
        assert found.count(words) == 2


def test_a_plan_has_an_interval_for_each_step_and_for_its_memory(tmp_path: Path) -> None:
    found = shown(tmp_path, COMPARED, "plan")
    assert "of 80 %" in found
    assert "80 % of such steps reserve 1.05 to 1.48 times their tensors (69 steps that" in found
    assert "80 % of such steps took" in shown(tmp_path, COMPARED, "plan_json")


def test_a_measurement_has_the_error_of_its_forecast() -> None:
    row = {
        **dict.fromkeys(("median_us", "min_us", "p99_us", "algbw_gbps", "busbw_gbps"), 1.0),
        "case": "one",
        "bytes": 8.0,
        "ranks": 2,
        "n": 3,
        "forecast": {"time_us": 2.0, "ratio": 2.0, "origin": "steps", "error": "never compared"},
    }
    lines = bench_lines([row], [row], [], nccl=False)
    assert "known error: never compared" in lines[-1]


def test_memory_was_never_compared_or_has_what_an_allocator_reserves(tmp_path: Path) -> None:
    found = shown(tmp_path, COMPARED, "cost")
    assert re.search(r"its tensors fit: \S+ \S+ on each rank, of 80 GiB; .* never compared", found)
    recorded = ONE.replace(
        "x: {shape: BYTES",
        "held_parameters: {shape: 1073741824, value: 0, dtype: uint8}, x: {shape: 1024",
    )
    path = tmp_path / "recorded.yaml"
    path.write_text(recorded, encoding="utf-8")
    output = CliRunner().invoke(cli, ["cost", str(path), "--topology", COMPARED]).output
    assert "fits: 80 % of such steps reserve 1.053 GiB to 1.347 GiB of 80 GiB (24 steps" in output
    assert "  largest   parameters 1 GiB\n" in output


def test_80_percent_of_published_memory_is_within_its_interval() -> None:
    found = memory_interval()
    with (COMPARED_ROWS / "memory.csv").open(encoding="utf-8", newline="") as file:
        ratios = [
            float(row["measured"]) / float(row["forecast"])
            for row in csv.DictReader(file)
            if row["form"] == "recorded"
        ]
    assert 0.8 <= sum(found.low <= each <= found.high for each in ratios) / len(ratios) < 1
    assert found.high / found.low < 1.6
