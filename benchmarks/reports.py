"""What reports cost: a run of 300 scenarios without any, and the same run with every kind at once.

Most scenarios are small, so that the reports have as little to hide behind as they ever will:

    python -m benchmarks.reports [TIMES]

The two runs alternate, and the fastest of each counts; then each kind alone.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import SCENARIO, Row, seconds, show
from runner.report.formats import FORMATS

TIMES = 3
SCENARIOS = 300

SUM = """\
description: Everyone learns the sum.
world_size: {world}
tensors:
  x: "full(16, rank + {number})"
  y: "zeros(16)"
steps:
  - all_reduce: {{tensor: x}}
    expect:
      x: "full(16, {total})"
  - broadcast: {{tensor: x, src: 1}}
  - barrier: {{}}
  - compute: {{y: "x * 2"}}
  - all_reduce: {{tensor: y, op: max}}
"""
RING = """\
description: Each rank hands its value to the next.
world_size: {world}
tensors:
  x: "full(4, rank + {number})"
  y: "zeros(4)"
steps:
  - for: {{i: "range(world_size)"}}
    steps:
      - isend: {{tensor: x, dst: "(rank + 1) % world_size"}}
        as: sent
      - recv: {{tensor: y, src: "(rank - 1) % world_size"}}
      - wait: sent
      - compute: {{x: "y + 0"}}
"""
STUCK = """\
description: Both send before they receive.
world_size: 2
tensors:
  x: "full(2, rank + {number})"
  y: [0, 0]
steps:
  - send: {{tensor: x, dst: "1 - rank"}}
  - recv: {{tensor: y, src: "1 - rank"}}
"""


def write(folder: Path) -> None:
    """Write the scenarios: sums and rings on two to four ranks, one in ten wrong."""
    for number in range(SCENARIOS):
        world = 2 + number % 3
        total = sum(rank + number for rank in range(world))
        text = STUCK if number % 10 == 0 else (SUM, RING)[number % 2]
        file = folder / f"case_{number:03}.yaml"
        file.write_text(text.format(world=world, number=number, total=total), encoding="utf-8")


def command(names: list[str], folder: Path) -> list[str]:
    """Return a run of all scenarios with some reports."""
    reports = [part for name in names for part in (f"--{name}", str(folder / f"report.{name}"))]
    return [*SCENARIO, "run", str(folder), "--no-cache", *reports]


def main() -> None:
    """Measure and print."""
    times = int(sys.argv[1]) if len(sys.argv) > 1 else TIMES
    names = [kind.name for kind in FORMATS]
    variants: dict[str, list[str]] = {"none": [], "all": names}
    variants |= {name: [name] for name in names}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write(folder)
        took: dict[str, list[float]] = {name: [] for name in variants}
        for turn in range(times):
            for name, kinds in variants.items():
                if turn == 0 or name in {"none", "all"}:
                    took[name].append(seconds(command(kinds, folder), codes=(1,)))
        found = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        assert len(found["results"]) == SCENARIOS, found["counts"]  # noqa: S101 -- all were told
        sizes = {name: (folder / f"report.{name}").stat().st_size for name in names}
    best = {name: min(each) for name, each in took.items()}
    rows = [
        Row(what=f"{SCENARIOS} scenarios, no report", value=f"{best['none']:.2f} s"),
        Row(what=f"with all {len(names)}", value=f"{best['all']:.2f} s"),
        Row(what="ratio", value=f"{best['all'] / best['none']:.3f}", bound="<= 1.10"),
    ]
    rows += [
        Row(
            what=f"with {name} alone ({sizes[name] / 1024:.0f} KiB)",
            value=f"{best[name] / best['none']:.3f}",
        )
        for name in names
    ]
    show(rows)


if __name__ == "__main__":
    main()
