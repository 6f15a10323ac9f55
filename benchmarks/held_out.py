"""How many of the rows of held_out.yaml are in the interval that `scenario cost` prints.

`python -m benchmarks.held_out` prints for each log how far off its forecasts are, and how many of
its rows are in the 80 % interval. Nothing reads these rows to forecast.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import exp, log
from pathlib import Path

import yaml
from msgspec import Struct

from benchmarks.residuals import members_of, time_call
from torch_scenarios.cost.collectives import CollectiveTimes
from torch_scenarios.cost.topology import topology

ROWS = Path(__file__).parent / "held_out.yaml"
UNITS = {"B": 1, "K": 2**10, "M": 2**20, "G": 2**30}


class HeldOutRow(Struct, frozen=True, kw_only=True):
    """A row: what was measured, what is forecast, and its interval where it has one."""

    log: str
    size: int
    measured: float
    forecast: float
    between: tuple[float, float] | None

    @property
    def ratio(self) -> float:
        """Measured over forecast."""
        return self.measured / self.forecast

    @property
    def is_inside(self) -> bool:
        """Whether the interval has it."""
        return self.between is not None and self.between[0] <= self.ratio <= self.between[1]


def rows() -> Iterator[HeldOutRow]:
    """Yield each row with its forecast."""
    for name, about in yaml.safe_load(ROWS.read_text(encoding="utf-8")).items():
        machine = topology(about["preset"])
        for each in about["logs"]:
            ranks = each["ranks"]
            members = members_of(about, machine, ranks, each["nodes"])
            times = CollectiveTimes(machine, members[-1] + 1, algorithm=each.get("algorithm"))
            for size, measured in each["us"].items():
                count = int(size[:-1]) * UNITS[size[-1]]
                timing = time_call(times, each["collective"], count, members)
                found = timing.interval
                yield HeldOutRow(
                    log=f"{name}, {each['collective']} x {ranks}",
                    size=count,
                    measured=measured,
                    forecast=max(timing.time, times.launch),
                    between=None if found is None else (found.low, found.high),
                )


def main() -> None:
    """Print a line for each log, and the sum."""
    logs: dict[str, list[HeldOutRow]] = {}
    for row in rows():
        logs.setdefault(row.log, []).append(row)
    print("| log | rows | off by a factor of (mean) | worst | in the interval |")
    print("|---|---|---|---|---|")
    for name, own in logs.items():
        compared = [row for row in own if row.between]
        ratios = [row.ratio for row in own]
        mean = exp(sum(abs(log(ratio)) for ratio in ratios) / len(ratios))
        worst = max(ratios, key=lambda ratio: abs(log(ratio)))
        told = (
            f"{sum(row.is_inside for row in own)} of {len(own)}" if compared else "never compared"
        )
        print(f"| {name} | {len(own)} | {mean:.2f} | {worst:.2f} | {told} |")
    asked = [row for own in logs.values() for row in own if row.between]
    print(f"{sum(row.is_inside for row in asked)} of {len(asked)} rows are in their interval")


if __name__ == "__main__":
    main()
