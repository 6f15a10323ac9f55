"""The corpus beside busy loops: whether what a scenario comes to depends on how busy a machine is.

    python -m benchmarks.load --rounds 20 --loops 4 scenarios

Each round is one `scenario run`, beside processes that do nothing but turn. Nothing but PASSED and
UNSUPPORTED is right; whatever else comes is printed with its reason, and the exit code is 1. The
load of the machine is said beside each round, with that of everything else on it. Twenty rounds of
the corpus take the better part of an hour on two cores; a machine that is loaded already wants
`--loops 0`.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchmarks.measure import SCENARIO, Row, show

if TYPE_CHECKING:
    from collections.abc import Iterator

RIGHT = {"PASSED", "UNSUPPORTED"}


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """Keep `loops` processes turning meanwhile."""
    turning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
    try:
        yield
    finally:
        for process in turning:
            process.kill()
        for process in turning:
            process.wait()


def results(paths: tuple[str, ...], options: tuple[str, ...]) -> list[dict[str, Any]]:
    """Run scenarios once; returns the results of the JSON report."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        done = subprocess.run(
            [*SCENARIO, "run", "--no-cache", *options, *paths, "--json", str(report)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if not report.exists():
            sys.exit(f"`scenario run` wrote no report:\n{done.stdout}{done.stderr}")
        found: list[dict[str, Any]] = json.loads(report.read_text(encoding="utf-8"))["results"]
        return found


@click.command()
@click.option("--rounds", default=20, show_default=True, help="How often everything is run.")
@click.option("--loops", default=4, show_default=True, help="Busy loops beside it.")
@click.option("--isolate", is_flag=True, help="Give each scenario processes of its own.")
@click.argument("paths", nargs=-1)
def main(*, rounds: int, loops: int, isolate: bool, paths: tuple[str, ...]) -> None:
    """Run scenarios (the corpus, if none are named) over and over beside busy loops."""
    verdicts: Counter[str] = Counter()
    took_s: list[float] = []
    loads: list[float] = []
    wrong = 0
    with busy(loops):
        for number in range(1, rounds + 1):
            began = time.perf_counter()
            for result in results(paths or ("scenarios",), ("--isolate",) if isolate else ()):
                verdicts[result["verdict"]] += 1
                if result["verdict"] not in RIGHT:
                    wrong += 1
                    name = f"{result['file']}::{result['case']}"
                    why = result.get("reason") or result.get("problems")
                    print(f"round {number}: {result['verdict']} {name}: {why}", flush=True)
            took_s.append(time.perf_counter() - began)
            loads.append(os.getloadavg()[0])
            print(f"round {number}: {took_s[-1]:.0f} s, load {loads[-1]:.1f}", flush=True)
    rows = [Row(what=verdict, value=str(count)) for verdict, count in sorted(verdicts.items())]
    rows.append(Row(what="neither passed nor unsupported", value=str(wrong), bound="0"))
    rows.append(Row(what="the slowest round", value=f"{max(took_s, default=0.0):.0f} s"))
    if loads:
        loaded = f"{min(loads):.1f} to {max(loads):.1f}, median {statistics.median(loads):.1f}"
        rows.append(Row(what="the load of the machine (its last minute, by round)", value=loaded))
    show(rows)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
