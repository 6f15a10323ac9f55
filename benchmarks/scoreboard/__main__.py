"""Measures the static verdict, torch alone, torch with DETAIL, and the confirmed run.

    python -m benchmarks.scoreboard                   # all four, about ten minutes
    python -m benchmarks.scoreboard --static-only     # the first, over every program
    python -m benchmarks.scoreboard --write FOLDER    # every program as a scenario file

A wrong program costs torch its whole timeout, so the others than the static verdict are measured on
a sample of every class.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib.metadata
import json
import os
import platform
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.scoreboard.catalogue import programs, sample
from benchmarks.scoreboard.figures import (
    of_confirmed,
    of_static,
    of_torch,
    side_by_side,
    static_table,
)
from benchmarks.scoreboard.witnesses import (
    Analysis,
    Confirmation,
    TorchReport,
    analyse,
    confirm,
    run_on_torch,
)
from torch_scenarios.execution import Launcher, LaunchOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: the process-group timeout of the confirmed run: far longer than any verdict should take
PATIENCE_S = 30.0
LARGEST_WORLD = 4


def main() -> None:
    """Measure and print."""
    options = _options()
    if options.write is not None:
        _write(Path(options.write))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        static = [analyse(program, folder).verdict for program in programs()]
        rows = {"static": of_static(static)}
        _print(_heading(len(static)), *static_table(rows["static"]), "")
        _print(*(f"- wrong: {each.describe()}" for each in static if not each.right))
        if not options.static_only:
            chosen = [analyse(each, folder) for each in sample(options.sample, options.seed)]
            rows |= _on_gloo(chosen, timeout_s=options.timeout)
    if options.json is not None:
        figures = {
            key: {label: each.brief() for label, each in held.items()} for key, held in rows.items()
        }
        Path(options.json).write_text(json.dumps(figures, indent=1) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scoreboard")
    parser.add_argument("--static-only", action="store_true", help="start no process")
    parser.add_argument("--sample", type=int, default=15, help="programs of each class that run")
    parser.add_argument("--seed", type=int, default=0, help="which of them")
    parser.add_argument("--timeout", type=float, default=2.0, help="torch's own, in seconds")
    parser.add_argument("--json", metavar="FILE", help="write the figures there as well")
    parser.add_argument("--write", metavar="FOLDER", help="write every program there, and stop")
    return parser.parse_args()


def _heading(count: int) -> str:
    torch = importlib.metadata.version("torch")
    return (
        f"{count} programs, torch {torch}, Python {platform.python_version()}, "
        f"{os.cpu_count()} cores, {dt.datetime.now(tz=dt.UTC):%Y-%m-%d}\n"
    )


def _on_gloo(chosen: Sequence[Analysis], *, timeout_s: float) -> dict[str, Any]:
    """Run a sample three times, print the table, and return the figures."""
    alone = LaunchOptions(backend="gloo", timeout_s=timeout_s, confirm="timeout")
    ours = LaunchOptions(backend="gloo", timeout_s=PATIENCE_S)
    plain = _each(chosen, alone, lambda each, launcher: run_on_torch(each, launcher, "off"))
    detail = _each(chosen, alone, lambda each, launcher: run_on_torch(each, launcher, "detail"))
    run = _each(chosen, ours, confirm)
    rows = {
        "static of the sample": of_static(each.verdict for each in chosen),
        "gloo": of_torch(each for each in plain if isinstance(each, TorchReport)),
        "gloo, detail": of_torch(each for each in detail if isinstance(each, TorchReport)),
        "confirmed": of_confirmed(each for each in run if isinstance(each, Confirmation)),
    }
    _print(*side_by_side(*rows.values()), "")
    for each in run:
        if each.status != "PASSED":
            _print(f"- {each.status}: {each.program.name}: {'; '.join(each.findings)}")
    for each in (*plain, *detail):
        if each.unable or (each.program.correct and each.alarmed):
            _print(f"- {each.outcome or each.unable}: {each.program.name}: {each.messages}")
    return rows


def _each(
    chosen: Sequence[Analysis],
    options: LaunchOptions,
    measure: Callable[[Analysis, Launcher], Any],
) -> list[Any]:
    """Measure every program of the sample on one launcher, once that is warm."""
    with Launcher(options) as launcher:
        launcher.reserve(LARGEST_WORLD)
        warm = next(each for each in chosen if each.verdict.program.correct)
        measure(warm, launcher)
        return [measure(each, launcher) for each in chosen]


def _write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, program in enumerate(programs()):
        head = f"# {program.label}: {program.name}\n"
        if program.expected:
            head += f"# {', '.join(program.expected)}, first at step `{program.first}`\n"
        (folder / f"{number:04}.yaml").write_text(head + program.text)


def _print(*lines: str) -> None:
    for line in lines:
        print(line, flush=True)


if __name__ == "__main__":
    main()
