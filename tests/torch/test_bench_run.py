"""`scenario bench` on real Gloo: what is measured, checked, and compared with before."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from bench_command import BENCHED, benched

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "schemas" / "bench.schema.json").read_text(encoding="utf-8"))

pytestmark = pytest.mark.torch


def test_a_program_is_measured_checked_and_compared(tmp_path: Path) -> None:
    file, saved = tmp_path / "one.yaml", tmp_path / "old.json"
    file.write_text(BENCHED, encoding="utf-8")
    asked = [str(file), "--iters", "10", "--warmup", "1", "--sizes", "64,1K"]
    code, output = benched(*asked, "--json", str(saved), "--raw", "--topology", "flat")
    assert code == 0, output
    content = json.loads(saved.read_text(encoding="utf-8"))
    jsonschema.validate(content, SCHEMA)
    assert [(each["bytes"], each["n"]) for each in content["rows"]] == [(64, 10), (1024, 10)]
    for each in content["rows"]:
        assert 0 < each["min_us"] <= each["median_us"] <= each["max_us"]
        assert len(each["samples_us"]) == 5
        assert each["forecast"]["origin"].startswith("steps")
    assert "median" in output
    for each in content["rows"]:  # as if it had been a thousand times slower before
        each["block_medians_us"] = [1000 * time for time in each["block_medians_us"]]
    saved.write_text(json.dumps(content), encoding="utf-8")
    code, output = benched(*asked, "--compare", str(saved))
    assert code == 0, output
    assert output.count("PASSED") == 2


def test_repetitions_take_the_seconds_that_are_asked(tmp_path: Path) -> None:
    file, saved = tmp_path / "one.yaml", tmp_path / "new.json"
    file.write_text(BENCHED, encoding="utf-8")
    code, output = benched(str(file), "--seconds", "0.05", "--warmup", "1", "--json", str(saved))
    assert code == 0, output
    (found,) = json.loads(saved.read_text(encoding="utf-8"))["rows"]
    assert found["n"] % 5 == 0
    assert found["n"] >= 5
