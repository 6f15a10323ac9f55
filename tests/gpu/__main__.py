"""`python -m tests.gpu`: run every check, print all of it, write down what was seen."""

from __future__ import annotations

import argparse
import faulthandler
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tests.gpu import machine, pages, passes, timings
from tests.gpu.pages import Findings
from tests.simulated.surroundings import is_simulated
from torch_scenarios.conformance import table as cells
from torch_scenarios.execution import Launcher, LaunchOptions
from torch_scenarios.execution import backends as nccl
from torch_scenarios.vocabulary import DTYPES

if TYPE_CHECKING:
    from tests.gpu.passes import Pass, Tally
    from tests.gpu.timings import Timing
    from torch_scenarios.conformance.table import Cell, CellOutcome

ROOT = Path(__file__).parents[2]
PAGE, DOCUMENT = ROOT / "docs" / "nccl.md", ROOT / "docs" / "nccl.json"
#: seconds after its time that a run is ended by force
LATE_S = 45
PARTS = ("cells", "timings", "corpus")
#: exit codes, as those of `scenario run`
GREEN, RED, NO_MACHINE = 0, 1, 3
#: sizes of worlds that share GPUs, each a launch of its own, with its part of the time
SHARED = {2: 2, 4: 2, 8: 2}


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    parser.add_argument("--backend", choices=("nccl", "gloo"), default="nccl")
    parser.add_argument("--minutes", type=float, default=8.0, help="all of it, at most")
    parser.add_argument("--only", action="append", choices=PARTS, help="some parts; repeatable")
    parser.add_argument("--dtypes", default=",".join(DTYPES), help="of the cells, by commas")
    parser.add_argument(
        "--paths", nargs="*", default=["scenarios"], help="the corpus, or some of it"
    )
    parser.add_argument("--no-write", action="store_true", help="leave docs/ as it is")
    return parser.parse_args(words)


def main() -> int:
    """Run the checks; returns the exit code."""
    chosen = arguments()
    # what hangs all the same is cut short, with a look at where it stood
    faulthandler.dump_traceback_later(60 * chosen.minutes + LATE_S, exit=True)
    ends_s = time.monotonic() + 60 * chosen.minutes
    here = machine.machine()
    _say_machine(here)
    gpus = int(here["gpus"])
    if chosen.backend == "nccl":
        if gpus == 0 or here["nccl"] == "none":
            say("there is no NCCL or no GPU here: run it with --backend gloo")
            return NO_MACHINE
        _say_environment(gpus)
    parts = chosen.only or list(PARTS)
    share = chosen.backend == "nccl" and gpus < cells.RANKS
    found = Findings()
    gloo = Findings()
    if "cells" in parts:
        wanted = tuple(chosen.dtypes.split(","))
        if chosen.backend == "nccl":
            gloo.cells = table("gloo", wanted, share=False)
        found.cells = table(chosen.backend, wanted, share=share)
        differences(found.cells, gloo.cells)
    if "timings" in parts:
        say(f"timings on {chosen.backend}{', on a shared GPU: they mean nothing' if share else ''}")
        found.timings = attempted(chosen.backend, share=share)
    if "corpus" in parts:
        found.tallies = the_corpus(chosen, gpus, ends_s)
    if not chosen.no_write:
        write(chosen.backend, here, found, gloo, shared=share)
    return summed_up(found)


def say(line: str) -> None:
    """Print a line at once: a log is read while it grows, and when it is cut short."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _say_machine(here: dict[str, str]) -> None:
    say(machine.command())
    for name, value in here.items():
        say(f"  {name}: {value}")
    if is_simulated():
        say("SIMULATED: no GPU runs any of this, and nothing here is seen of NCCL")


def _say_environment(gpus: int) -> None:
    import torch

    for name, value in nccl.ENVIRONMENT.items():
        say(f"  {name}={value}")
    for ranks in SHARED:
        say(f"  {ranks} ranks on {gpus}: {nccl.find_sharing(nccl.version_of(torch), ranks, gpus)}")


# ---------------------------------------------------------------------------- the parts


def table(backend: str, dtypes: tuple[str, ...], *, share: bool) -> dict[Cell, CellOutcome]:
    """Return what came of every cell on a backend, and say it by dtype."""
    say(f"cells on {backend}")
    found: dict[Cell, CellOutcome] = {}
    options = LaunchOptions(backend=backend, share_gpu=share)
    with tempfile.TemporaryDirectory() as folder, Launcher(options) as launcher:
        launcher.reserve(cells.RANKS)
        for dtype, each in cells.list_cells(dtypes).items():
            own = cells.observe(launcher, each, Path(folder))
            found |= own
            outcomes = [seen.outcome for seen in own.values()]
            counted = {name: outcomes.count(name) for name in cells.OUTCOMES if name in outcomes}
            say(f"  {dtype}: {', '.join(f'{count} {name}' for name, count in counted.items())}")
            for cell, seen in own.items():
                if seen.outcome not in {"same", "refuses"}:
                    say(f"    {cell} {seen.outcome}: {seen.words}")
    return found


def differences(one: dict[Cell, CellOutcome], other: dict[Cell, CellOutcome]) -> None:
    """Say where two backends do not come to the same."""
    for cell, seen in one.items():
        beside = other.get(cell)
        if beside is not None and beside.outcome != seen.outcome:
            say(f"  {cell}: nccl {seen.outcome}, gloo {beside.outcome}  {seen.words}")


def attempted(backend: str, *, share: bool) -> list[Timing]:
    """Return the figures; what could not be measured is said, and is no reason to stop."""
    try:
        return timings.measured(backend, share_gpu=share, say=say)
    except Exception as error:  # noqa: BLE001 -- the checks after it are worth more than this one
        say(f"  RED the timings stopped: {type(error).__name__}: {error}")
        return [timings.Timing(what="the timings stopped", value=str(error)[:200])]


def the_corpus(chosen: argparse.Namespace, gpus: int, ends_s: float) -> list[Tally]:
    """Run the corpus in passes, each with its part of the time that is left."""
    scenarios = passes.corpus(tuple(chosen.paths))
    waiting = planned(chosen.backend, gpus, max(s.world_size for s in scenarios))
    found = []
    while waiting:
        (what, weight), *after = waiting
        left_s = max(0.0, ends_s - time.monotonic())
        part = weight / (weight + sum(other for _, other in after))
        say(f"corpus, {what.name}: at most {part * left_s:.0f} s")
        found.append(passes.run(what, scenarios, time.monotonic() + part * left_s, say))
        waiting = after
    return found


def planned(backend: str, gpus: int, largest: int) -> list[tuple[Pass, int]]:
    """Return the passes over the corpus, each with its weight in the time that is left."""
    if backend == "gloo":
        sizes = range(1, largest + 1)
        return [(passes.Pass(name="every size on gloo", backend="gloo", sizes=sizes), 1)]
    own = passes.Pass(
        name=f"up to {gpus} ranks, a GPU for each", backend=backend, sizes=range(1, gpus + 1)
    )
    found = [(own, 1 if gpus == 1 else 3)]
    below = gpus
    for size, weight in SHARED.items():
        if size > below:
            sizes = range(below + 1, size + 1)
            name = f"up to {size} ranks, --share-gpu"
            shared = passes.Pass(name=name, backend=backend, sizes=sizes, share_gpu=True)
            found.append((shared, weight))
            below = size
    return found


def write(
    backend: str, here: dict[str, str], found: Findings, gloo: Findings, *, shared: bool
) -> None:
    """Write what was seen to docs/."""
    document = pages.read(DOCUMENT)
    if backend == "nccl" and is_simulated():
        backend = pages.SIMULATED
        found = replace(found, cells=pages.of_torch_alone(found.cells), timings=[])
    elif gloo.cells:
        document = pages.noted(document, "gloo", here, gloo, shared=False)
    document = pages.noted(document, backend, here, found, shared=shared)
    DOCUMENT.write_text(pages.text(document), encoding="utf-8")
    PAGE.write_text(pages.put(PAGE.read_text(encoding="utf-8"), document), encoding="utf-8")
    say(f"written: {DOCUMENT.relative_to(ROOT)}, {PAGE.relative_to(ROOT)}")


def summed_up(found: Findings) -> int:
    """Say what is red, and return the exit code."""
    bad = [cell for cell, seen in found.cells.items() if seen.outcome in {"hangs", "dies"}]
    red = [case for tally in found.tallies for case in tally.red]
    stopped = [timing for timing in found.timings if timing.what == "the timings stopped"]
    left = sum(tally.left for tally in found.tallies)
    say(f"{len(red)} red cases, {len(bad)} cells that hang or die, {left} cases not run for time")
    for case in red:
        say(f"  RED {case.name}")
    for cell in bad:
        say(f"  RED {cell}")
    return RED if red or bad or stopped else GREEN


if __name__ == "__main__":
    sys.exit(main())
