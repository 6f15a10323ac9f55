"""What the benchmarks share: running a command, the median, a table of ratios."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SCENARIO = [sys.executable, "-m", "torch_scenarios.cli"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure: what was measured, its value with its unit, and the bound it is held to."""

    what: str
    value: str
    bound: str = ""


def seconds(
    command: Sequence[str], *, folder: Path | None = None, codes: tuple[int, ...] = (0,)
) -> float:
    """Run a command and return how long it took; an unexpected exit code ends the benchmark."""
    began = time.perf_counter()
    done = subprocess.run(
        list(command),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    took = time.perf_counter() - began
    if done.returncode not in codes:
        sys.exit(f"{' '.join(command)} exited with {done.returncode}:\n{done.stdout}{done.stderr}")
    return took


def median_seconds(command: Sequence[str], times: int, *, folder: Path | None = None) -> float:
    """Return the median of several runs of a command."""
    return statistics.median(seconds(command, folder=folder) for _ in range(times))


def show(rows: Sequence[Row]) -> None:
    """Print the rows as a table in Markdown."""
    print("| measured | figure | bound |")
    print("|---|---|---|")
    for row in rows:
        print(f"| {row.what} | {row.value} | {row.bound} |")
