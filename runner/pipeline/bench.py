"""A case, run again and again: how long it takes, and whether that changed.

The program is checked, run once and judged first; then it is repeated in a loop, of which nothing
is kept but times. A repetition takes as long as its slowest rank: durations alone are compared
between ranks, so that their clocks need not agree. Times are microseconds.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runner.errors import LaunchError
from runner.expressions.values import Constant
from runner.model.groups import plan
from runner.model.scenario import Scenario, Step
from runner.model.trace import Trace
from runner.model.traffic import Enter
from runner.operations import BY_NAME
from runner.pipeline.results import Analysis, Executor

#: blocks of repetitions, each a run of its own, that a comparison resamples
BLOCKS = 5
#: repetitions from which a 99th percentile is more than the slowest one
FOR_P99 = 100

#: operation -> what bandwidth of the bus is of that of the algorithm, for n ranks (nccl-tests)
_TWICE = frozenset({"all_reduce", "all_reduce_coalesced"})
_PARTS = frozenset(
    {
        *("all_gather", "all_gather_single", "all_gather_coalesced"),
        *("reduce_scatter", "reduce_scatter_single"),
        *("all_to_all", "all_to_all_single", "gather", "scatter"),
    }
)


def bus_factor(collective: str, ranks: int) -> float:
    """Return busbw / algbw as nccl-tests defines it (doc/PERFORMANCE.md)."""
    if collective in _TWICE:
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if collective in _PARTS else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRow:
    """What was measured of one case at one size.

    `blocks` are the times of the slowest rank, one row for each block; `by_rank` is the mean of
    each rank. `bytes` is the size as nccl-tests counts it, `collective` None for other programs.
    """

    file: str
    case: str
    ranks: int
    bytes: float
    collective: str | None
    blocks: tuple[tuple[float, ...], ...]
    by_rank: tuple[float, ...]
    dtype: str = "float32"
    item_bytes: int = 4
    forecast: Mapping[str, Any] | None = None

    @property
    def samples(self) -> NDArray[np.float64]:
        """All repetitions."""
        return np.concatenate([np.array(block) for block in self.blocks])

    def json(self) -> dict[str, Any]:
        """Return what JSON has of it."""
        samples = self.samples
        median = float(np.median(samples))
        speed = self.bytes / median / 1e3 if median > 0 else 0.0
        found: dict[str, Any] = {
            "file": self.file,
            "case": self.case,
            "ranks": self.ranks,
            "bytes": self.bytes,
            "collective": self.collective,
            "n": len(samples),
            "min_us": float(samples.min()),
            "median_us": median,
            "mean_us": float(samples.mean()),
            "max_us": float(samples.max()),
            "p99_us": percentile_99(samples) if len(samples) >= FOR_P99 else None,
            "mean_by_rank_us": list(self.by_rank),
            "algbw_gbps": speed,
            "busbw_gbps": speed * bus_factor(self.collective or "", self.ranks),
            "block_medians_us": [float(np.median(block)) for block in self.blocks],
        }
        if self.forecast is not None:
            found["forecast"] = {
                **self.forecast,
                "ratio": self.forecast["time_us"] / found["min_us"],
            }
        return found


def percentile_99(samples: NDArray[np.float64]) -> float:
    """Return the 99th percentile by nearest rank."""
    ordered = np.sort(samples)
    return float(ordered[max(0, -(-99 * len(ordered) // 100) - 1)])


# -------------------------------------------------------------------------------------------------
# Running it.


def repeated_scenario(scenario: Scenario, times: int) -> Scenario:
    """Return the program in a loop behind a barrier, with nothing expected and nothing kept."""

    def shifted(step: Step) -> Step:
        body = tuple(shifted(each) for each in step.body)
        return replace(step, index=step.index + 2, body=body, expect=None)

    barrier = Step(index=0, operation=BY_NAME["barrier"], name="bench barrier")
    loop = Step(
        index=1,
        variable="bench_turn",
        over=Constant(value=list(range(times))),
        body=tuple(shifted(step) for step in scenario.steps),
    )
    return replace(scenario, steps=(barrier, loop), keeps=False)


def measured(
    analysis: Analysis, executor: Executor, *, warmup: int, iterations: int
) -> NDArray[np.float64]:
    """Return the times of each rank and repetition, `[ranks, iterations]`, in microseconds.

    Raises LaunchError where a run of the repeated program does not come to its end.
    """
    assert analysis.predicted is not None
    scenario = repeated_scenario(analysis.scenario, warmup + iterations)
    observed = executor.run(plan(scenario), analysis.predicted)
    if observed.outcome != "completes":
        message = f"repeated, the program ends in {observed.outcome}: it cannot be measured"
        raise LaunchError(message)
    return np.array(
        [_durations(observed, rank, warmup, iterations) for rank in range(len(observed.ranks))]
    )


#: repetitions of a block at most
MOST_REPETITIONS = 20_000
#: how long a new world takes to come to its pace, in microseconds: connections and memory are cold.
#: At 1 MiB on Gloo the first repetition takes thrice as long, the tenth a third longer
#: (benchmarks/by_hand.py)
COLD_US = 50_000.0
#: repetitions that do not count: at least, and at most
LEAST_WARMUP, MOST_WARMUP = 5, 1000


def warmups(tried: NDArray[np.float64]) -> int:
    """Return how many repetitions before a block do not count, by the times of some."""
    each_us = max(1.0, float(np.median(tried.max(axis=0))))
    return min(MOST_WARMUP, max(LEAST_WARMUP, round(COLD_US / each_us)))


def repetitions(tried: NDArray[np.float64], seconds: float) -> int:
    """Return how many repetitions of a block take a share of so many seconds, by those tried."""
    each_us = max(1.0, float(np.median(tried.max(axis=0))))
    return min(MOST_REPETITIONS, max(1, round(seconds * 1e6 / each_us / BLOCKS)))


def _durations(observed: Trace, rank: int, warmup: int, iterations: int) -> list[float]:
    """Return how long each repetition took on one rank; 0 where it takes no step."""
    first: dict[int, float] = {}
    last: dict[int, float] = {}
    for event in observed.ranks[rank].events:
        end_s = event.complete_s if event.complete_s is not None else event.end_s
        if event.index < 2 or not event.iteration or end_s is None:
            continue
        turn = event.iteration[0]
        first.setdefault(turn, event.start_s)
        last[turn] = max(last.get(turn, 0.0), end_s)
    turns = range(warmup, warmup + iterations)
    return [(last[turn] - first[turn]) * 1e6 if turn in first else 0.0 for turn in turns]


def row_of(
    analysis: Analysis,
    blocks: Sequence[NDArray[np.float64]],
    size: float,
    forecast: Mapping[str, Any] | None,
) -> BenchRow:
    """Return the row of a case, from the times of its blocks."""
    scenario = analysis.scenario
    assert analysis.predicted is not None
    held = [each for each in analysis.predicted.ranks[0].initial.values() if hasattr(each, "dtype")]
    largest = max(held, key=lambda each: each.nbytes, default=np.zeros(0, np.float32))
    return BenchRow(
        file=scenario.source.path,
        case=scenario.case,
        ranks=scenario.world_size,
        bytes=size,
        collective=collective_of(analysis)[0],
        blocks=tuple(tuple(block.max(axis=0).tolist()) for block in blocks),
        by_rank=tuple(np.concatenate(blocks, axis=1).mean(axis=1).tolist()),
        dtype=str(largest.dtype),
        item_bytes=int(largest.dtype.itemsize),
        forecast=forecast,
    )


def collective_of(analysis: Analysis) -> tuple[str | None, float | None]:
    """Return the one collective that a case consists of, and its bytes; None for any other."""
    traffic = None if analysis.predicted is None else analysis.predicted.traffic
    entries = [] if traffic is None else traffic.entries
    entered = [each for each in entries if isinstance(each, Enter)]
    names = {each.name for each in entered}
    calls = sum(np.size(each.ranks) for each in entered)
    if len(names) != 1 or any(hasattr(each, "sends") for each in entries):
        return None, None
    if calls != analysis.scenario.world_size:
        return None, None
    return entered[0].name, float(entered[0].size)


# -------------------------------------------------------------------------------------------------
# What noise there is, and what a comparison is worth.


def noise(ranks: int, backend: str, rows: Sequence[Mapping[str, Any]], load: float) -> list[str]:
    """Return what makes times of this machine uncertain, in words."""
    cores = os.cpu_count() or 1
    notes = []
    if backend == "gloo" and ranks > cores:
        notes.append(f"{ranks} ranks share {cores} cores: their scheduler is measured, too")
    if load > cores / 2 + 0.5:
        notes.append(f"the machine was busy before: load {load:.1f} on {cores} cores")
    wide = [row for row in rows if row["min_us"] > 0 and row["median_us"] > 2 * row["min_us"]]
    if wide:
        notes.append(
            f"the median is more than twice the minimum in {len(wide)} of {len(rows)} rows"
        )
    return notes


def environment(backend: str, load: float) -> dict[str, Any]:
    """Return where this was measured."""
    return {
        "host": platform.node(),
        "cores": os.cpu_count() or 1,
        "load": load,
        "backend": backend,
        "python": platform.python_version(),
    }


#: resamples of a bootstrap, and the share that its interval holds
RESAMPLES = 4000
INTERVAL = (2.5, 97.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchComparison:
    """New time over old, by medians of blocks, its 95 % interval, and the verdict from that."""

    ratio: float
    low: float
    high: float
    status: str


def compared(
    old: Sequence[float], new: Sequence[float], fail_above: float, *, noisy: bool
) -> BenchComparison:
    """Compare medians of blocks by their geometric means; `fail_above` is a share, as 0.1.

    Blocks are resampled. The median of five of them has so few values that it misses a slowdown of
    a fifth in a quarter of all comparisons (benchmarks/slowdown.py); the mean in one of twenty.

    FAILED where the whole interval is beyond it, PASSED where all of it is within, else
    INCONCLUSIVE; so is what a noisy machine, or fewer than five blocks of either, would fail.
    """
    chosen = np.random.default_rng(0)
    first, second = (np.log(np.maximum(each, 1e-3)) for each in (old, new))
    before, after = (
        each[chosen.integers(0, len(each), (RESAMPLES, len(each)))].mean(axis=1)
        for each in (first, second)
    )
    ratios = np.exp(after - before)
    low, high = (float(each) for each in np.percentile(ratios, INTERVAL))
    few = min(len(first), len(second)) < BLOCKS
    status = "INCONCLUSIVE"
    if high <= 1 + fail_above and not few:
        status = "PASSED"
    elif low > 1 + fail_above and not few and not noisy:
        status = "FAILED"
    ratio = float(np.exp(second.mean() - first.mean()))
    return BenchComparison(ratio=ratio, low=low, high=high, status=status)


# -------------------------------------------------------------------------------------------------
# The table of nccl-tests, as its parsers read it.

#: dtypes by the names of nccl-tests
_TYPES = {"float32": "float", "float64": "double", "float16": "half"}


def nccl_tests_table(rows: Sequence[BenchRow]) -> list[str]:
    """Return rows as nccl-tests prints them: loop means, averaged over ranks (`-a 1`).

    What is measured stands in both halves: a step is in place or not as the file has it.
    """
    half = "    time   algbw   busbw #wrong"
    lines = [
        f"# scenario bench, columns of nccl-tests; {rows[0].ranks if rows else 0} ranks",
        "#",
        f"#{'out-of-place':>67}{'in-place':>31}",
        f"#{'size':>11}{'count':>14}{'type':>10}{'redop':>8}{'root':>8}{half}{half}",
        f"#{'(B)':>11}{'(elements)':>14}{'':>26}" + "    (us)  (GB/s)  (GB/s)       " * 2,
    ]
    for row in rows:
        time = sum(row.by_rank) / len(row.by_rank)
        speed = row.bytes / time / 1e3 if time > 0 else 0.0
        bus = speed * bus_factor(row.collective or "", row.ranks)
        told = f"{time:>8.2f}{speed:>8.2f}{bus:>8.2f}{0:>7}"
        kind, count = _TYPES.get(row.dtype, row.dtype), int(row.bytes // row.item_bytes)
        lines.append(f"{int(row.bytes):>12}{count:>14}{kind:>10}{'sum':>8}{-1:>8}{told}{told}")
    buses = [
        row.bytes
        / (sum(row.by_rank) / len(row.by_rank))
        / 1e3
        * bus_factor(row.collective or "", row.ranks)
        for row in rows
    ]
    average = sum(buses) / len(buses) if buses else 0.0
    return [*lines, "# Out of bounds values : 0 OK", f"# Avg bus bandwidth    : {average:.6g}", "#"]
