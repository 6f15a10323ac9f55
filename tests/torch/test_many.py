"""Hangs, crashes and failures in one long run: every verdict is right, and nothing is left."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]

PROGRAMS = {
    "fine": """\
world_size: {ranks}
tensors: {{x: "full(3, rank + 1)"}}
steps:
  - all_reduce: {{tensor: x}}
""",
    "hang": """\
world_size: 2
timeout: 600s
tensors: {{x: [1], y: [0]}}
steps:
  - send: {{tensor: x, dst: "1 - rank"}}
  - recv: {{tensor: y, src: "1 - rank"}}
expect: {{outcome: deadlock, diagnosis: circular_wait}}
""",
    "crash": """\
world_size: 3
timeout: 600s
tensors: {{x: [1]}}
steps:
  - {{ranks: 1, fault: kill}}
  - {{all_reduce: {{tensor: x}}, expect: {{raises: peer_lost}}}}
expect: {{outcome: crash, dies: {{1: SIGKILL}}}}
""",
    "abort": """\
world_size: 2
tensors: {{x: {{0: [1, 2, 3, 4], 1: [0]}}}}
steps:
  - {{ranks: 0, send: {{tensor: x, dst: 1}}}}
  - {{ranks: 1, recv: {{tensor: x, src: 0}}}}
expect: {{outcome: crash, diagnosis: shape_mismatch, dies: {{1: SIGABRT}}}}
""",
    "fail": """\
world_size: 2
tensors: {{x: [1]}}
steps:
  - all_reduce: {{tensor: x}}
    expect: {{elapsed: {{max: 1us}}}}
""",
}
COUNTS = {"fine": 36, "hang": 12, "crash": 4, "abort": 2, "fail": 4}


def test_every_verdict_is_right_whatever_ran_before(tmp_path: Path) -> None:
    kinds = [kind for kind, count in COUNTS.items() for _ in range(count)]
    order = random.Random(7)  # noqa: S311 -- any order that is always the same
    order.shuffle(kinds)
    for number, kind in enumerate(kinds):
        text = PROGRAMS[kind].format(ranks=1 + number % 4)
        (tmp_path / f"{number:02}_{kind}.yaml").write_text(text, encoding="utf-8")
    report = tmp_path / "report.json"
    mark = f"many-{tmp_path.name}-{os.getpid()}"
    finished = subprocess.run(
        [
            sys.executable,
            "-c",
            "from runner.cli import main; main()",
            "run",
            str(tmp_path),
            "--json",
            str(report),
        ],
        env={**os.environ, "SCENARIO_TEST": mark},
        capture_output=True,
        timeout=300,
        check=False,
    )
    results = json.loads(report.read_text(encoding="utf-8"))["results"]
    verdicts = {result["case"]: result["verdict"] for result in results}
    assert len(verdicts) == len(kinds)
    wrong = {
        case: verdict
        for case, verdict in verdicts.items()
        if verdict != ("FAILED" if case.endswith("fail") else "PASSED")
    }
    assert wrong == {}, finished.stdout.decode()
    assert finished.returncode == 1
    assert not [entry for entry in Path("/proc").glob("[0-9]*") if _carries(entry, mark)]


def _carries(entry: Path, mark: str) -> bool:
    try:
        state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z" and mark.encode() in (entry / "environ").read_bytes()
    except OSError:
        return False
