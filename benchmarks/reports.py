"""What reports cost: a run of 300 scenarios without any, and the same run with every kind at once.

Most scenarios are small, so that the reports have as little to hide behind as they ever will:

    python -m benchmarks.reports [TIMES]

The two runs alternate, and the fastest of each counts. Then the processor time of each kind as if
it were the only one, with runs that are as predicted.
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from benchmarks.measure import SCENARIO, Row, seconds, show
from torch_scenarios.pipeline.results import Selection
from torch_scenarios.pipeline.run import run
from torch_scenarios.report.formats import FORMATS
from torch_scenarios.report.output import forget

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch_scenarios.model.plan import Plan
    from torch_scenarios.model.trace import Trace
    from torch_scenarios.pipeline.results import Outcome, Report, Result

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


class Predicted:
    """An executor whose runs are as predicted: what is left of a run is what this program does."""

    def run(self, plan: Plan, predicted: Trace) -> Trace:
        """Do as predicted."""
        return replace(predicted, backend="gloo", diagnoses=(), open=())


class Timed:
    """Lets reports hear a run, and counts the processor time that each takes."""

    def __init__(self, reports: dict[str, Report]) -> None:
        """Begin with none."""
        self.reports = reports
        self.took_s = dict.fromkeys(reports, 0.0)

    def _tell(self, say: Callable[[Report], None]) -> None:
        for name, report in self.reports.items():
            forget()  # each is counted as if it were the only one
            began = time.process_time()
            say(report)
            self.took_s[name] += time.process_time() - began

    def begin(self, total: int) -> None:
        """Tell all."""
        self._tell(lambda report: report.begin(total))

    def start(self, case: str) -> None:
        """Tell all."""
        self._tell(lambda report: report.start(case))

    def finish(self, result: Result) -> None:
        """Tell all."""
        self._tell(lambda report: report.finish(result))

    def end(self, outcome: Outcome) -> None:
        """Tell all."""
        self._tell(lambda report: report.end(outcome))


def alone(folder: Path) -> dict[str, float]:
    """Return the processor time of each kind of report, in seconds a scenario."""
    timed = Timed({kind.name: kind.make(io.StringIO()) for kind in FORMATS})
    selection = Selection(paths=(str(folder),))
    timed.end(run(selection, lambda: nullcontext(Predicted()), timed))
    return {name: took_s / SCENARIOS for name, took_s in timed.took_s.items()}


def main() -> None:
    """Measure and print."""
    times = int(sys.argv[1]) if len(sys.argv) > 1 else TIMES
    names = [kind.name for kind in FORMATS]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write(folder)
        without: list[float] = []
        with_all: list[float] = []
        for _ in range(times):
            without.append(seconds(command([], folder), codes=(1,)))
            with_all.append(seconds(command(names, folder), codes=(1,)))
        found = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        assert len(found["results"]) == SCENARIOS, found["counts"]
        sizes = {name: (folder / f"report.{name}").stat().st_size for name in names}
        cost_s = alone(folder)
    rows = [
        Row(what=f"{SCENARIOS} scenarios, no report", value=f"{min(without):.2f} s"),
        Row(what=f"with all {len(names)}", value=f"{min(with_all):.2f} s"),
        Row(what="ratio", value=f"{min(with_all) / min(without):.3f}", bound="<= 1.10"),
    ]
    rows += [
        Row(
            what=f"processor time of `--{name}`, a scenario ({sizes[name] / 1024:.0f} KiB in all)",
            value=f"{cost_s[name] * 1000:.2f} ms",
        )
        for name in names
    ]
    show(rows)


if __name__ == "__main__":
    main()
