"""Two hundred scenarios in one run, of which some hang, some kill a rank and some are wrong."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from processes import of_folder, until

if TYPE_CHECKING:
    from pathlib import Path

    from warm_hosts import WarmHosts

pytestmark = [pytest.mark.torch, pytest.mark.slow]

COUNTS = {"passes": 140, "hangs": 40, "crashes": 5, "aborts": 5, "fails": 10}

TEXTS = {
    "passes": """\
world_size: 2
tensors: {x: "full(3, rank + 1)"}
steps:
- all_reduce: {tensor: x}
  expect: {x: [3, 3, 3]}
""",
    "hangs": """\
world_size: 2
timeout: 600s
tensors: {x: [1], y: [0]}
steps:
- send: {tensor: x, dst: "1 - rank"}
- recv: {tensor: y, src: "1 - rank"}
expect:
  outcome: deadlock
  diagnosis: circular_wait
  blocked: {0: send to 1, 1: send to 0}
""",
    "crashes": """\
world_size: 2
tensors: {x: [1]}
steps:
- {ranks: 1, fault: kill}
- all_reduce: {tensor: x}
expect:
  outcome: crash
  dies: {1: SIGKILL}
""",
    "aborts": """\
world_size: 2
tensors: {x: {0: [1, 2, 3, 4], 1: [0]}}
steps:
- {ranks: 0, send: {tensor: x, dst: 1}}
- {ranks: 1, recv: {tensor: x, src: 0}}
expect:
  outcome: crash
  diagnosis: shape_mismatch
  dies: {1: SIGABRT}
""",
    # only the run can tell: what a backend does with a wrong program is open
    "fails": """\
world_size: 2
tensors: {x: [1, 2]}
steps:
- all_reduce: {tensor: x, op: {0: sum, 1: max}}
expect:
  diagnosis: op_mismatch
  x: [77, 77]
""",
}


def write_all(folder: Path) -> None:
    """Write every file; the kinds stand mixed, in a fixed order."""
    left = Counter(COUNTS)
    for number in range(sum(COUNTS.values())):
        kind = max(left, key=lambda name: (left[name] / COUNTS[name], name))
        left[kind] -= 1
        (folder / f"s{number:03}_{kind}.yaml").write_text(TEXTS[kind])


@pytest.mark.nightly
def test_every_verdict_of_a_long_mixed_run_is_right(
    tmp_path: Path, forked_hosts: WarmHosts
) -> None:
    write_all(tmp_path)
    report = tmp_path / "report.json"
    ended = subprocess.run(
        forked_hosts.command("scenario", "run", ".", "--json", str(report)),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ended.returncode == 1, ended.stdout[-2000:] + ended.stderr[-2000:]
    results = json.loads(report.read_text())["results"]
    verdicts = Counter((result["case"].split("_")[1], result["verdict"]) for result in results)
    assert verdicts == {
        ("passes", "PASSED"): 140,
        ("hangs", "PASSED"): 40,
        ("crashes", "PASSED"): 5,
        ("aborts", "PASSED"): 5,
        ("fails", "FAILED"): 10,
    }
    assert until(lambda: not of_folder(tmp_path), 5.0)
