"""A case, run again and again: how long it takes, and whether that changed.

The program is checked, run once and judged first; then it is repeated in a loop, of which nothing
is kept but times. A repetition takes as long as its slowest rank: durations alone are compared
between ranks, so that their clocks need not agree. Times are microseconds.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from torch_scenarios.cost.logs import PROGRAMS
from torch_scenarios.errors import LaunchError
from torch_scenarios.expressions.values import Constant, Expression
from torch_scenarios.model.groups import plan
from torch_scenarios.model.scenario import Scenario, Step, steps_of
from torch_scenarios.model.trace import Trace
from torch_scenarios.model.traffic import Enter, EnterGroups
from torch_scenarios.operations import BY_NAME, kind_of
from torch_scenarios.operations.base import Collective, PremulSum
from torch_scenarios.pipeline.results import Analysis, Executor

#: blocks of repetitions, each a run, that a comparison resamples
BLOCKS = 5
#: repetitions from which a 99th percentile is more than the slowest one
FOR_P99 = 100


def bus_factor(collective: str, ranks: int) -> float:
    """Return busbw / algbw as nccl-tests defines it (doc/PERFORMANCE.md).

    >>> bus_factor("all_reduce", 4), bus_factor("all_gather", 4)
    (1.5, 0.75)

    nccl-tests multiplies by it, so that the bandwidth of the bus is the same for each collective:
    an all_reduce crosses each link twice, but for the part that a rank already has.
    """
    operation = BY_NAME.get(collective)
    turns = operation.turns if isinstance(operation, Collective) else 0
    return turns * (ranks - 1) / ranks if turns else 1.0


class BenchRow(Struct, frozen=True, kw_only=True):
    """What was measured of one case at one size.

    `blocks` are the times of the slowest rank, one row for each block; `by_rank` is the mean of
    each rank, 0 where it takes no step. `bytes` is the size as nccl-tests counts it, `collective`
    None for other programs. `root` is -1 where there is none, or where only the ranks know it.
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
    redop: str = "sum"
    root: int = -1
    warmup: int = 0
    device: str = "CPU"
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


def repeat_scenario(scenario: Scenario, times: int) -> Scenario:
    """Return the program in a loop behind a barrier, with nothing expected and nothing kept."""

    def shift(step: Step) -> Step:
        body = tuple(shift(each) for each in step.body)
        return replace(step, index=step.index + 2, body=body, expect=None)

    barrier = Step(index=0, operation=BY_NAME["barrier"], name="bench barrier")
    loop = Step(
        index=1,
        variable="bench_turn",
        over=Constant(value=list(range(times))),
        body=tuple(shift(step) for step in scenario.steps),
    )
    return replace(scenario, steps=(barrier, loop), keeps=False)


def measure(
    analysis: Analysis, executor: Executor, *, warmup: int, iterations: int
) -> NDArray[np.float64]:
    """Return the times of each rank and repetition, `[ranks, iterations]`, in microseconds.

    Raises LaunchError where a run of the repeated program does not come to its end.
    """
    assert analysis.predicted is not None
    scenario = repeat_scenario(analysis.scenario, warmup + iterations)
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
    *,
    warmup: int = 0,
    device: str = "CPU",
) -> BenchRow:
    """Return the row of a case, from the times of its blocks.

    `warmup` are the repetitions before each block, `device` what each rank computes on.
    """
    scenario = analysis.scenario
    assert analysis.predicted is not None
    collective = collective_of(analysis)[0]
    redop, root = _op_and_root(scenario, collective)
    held = [each for each in analysis.predicted.ranks[0].initial.values() if hasattr(each, "dtype")]
    largest = max(held, key=lambda each: each.nbytes, default=np.zeros(0, np.float32))
    return BenchRow(
        file=scenario.source.path,
        case=scenario.case,
        ranks=scenario.world_size,
        bytes=size,
        collective=collective,
        blocks=tuple(tuple(block.max(axis=0).tolist()) for block in blocks),
        by_rank=tuple(np.concatenate(blocks, axis=1).mean(axis=1).tolist()),
        dtype=str(largest.dtype),
        item_bytes=int(largest.dtype.itemsize),
        redop=redop,
        root=root,
        warmup=warmup,
        device=device,
        forecast=forecast,
    )


#: where a collective has its root
_ROOTS = ("src", "dst", "group_src", "group_dst")


def _op_and_root(scenario: Scenario, collective: str | None) -> tuple[str, int]:
    """Return the reduce op and the root of a program's one collective.

    An argument that is neither a constant nor a parameter is what is left out.
    """
    named = (step for step in steps_of(scenario.steps) if step.operation is not None)
    step = next((step for step in named if getattr(step.operation, "name", "") == collective), None)
    if step is None:
        return "sum", -1
    op = _read_argument(step, "op", scenario)
    redop = "premul_sum" if isinstance(op, PremulSum) else op if isinstance(op, str) else "sum"
    stated = [_read_argument(step, name, scenario) for name in _ROOTS]
    given = [each for each in stated if isinstance(each, int)]
    return redop, given[0] if given else _default_root(collective)


def _default_root(collective: str | None) -> int:
    """Return the root where none is stated: torch's is rank 0; -1 where there is none."""
    operation = BY_NAME.get(collective or "")
    return 0 if isinstance(operation, Collective) and operation.rooted else -1


def _read_argument(step: Step, name: str, scenario: Scenario) -> Any:
    """Return an argument that is a constant or a parameter; None for any other, or none."""
    form = step.arguments.get(name)
    if isinstance(form, Constant):
        return form.value
    return scenario.constants.get(form.text) if isinstance(form, Expression) else None


def collective_of(analysis: Analysis) -> tuple[str | None, float | None]:
    """Return the one collective that a case consists of, and its bytes; None for any other."""
    traffic = None if analysis.predicted is None else analysis.predicted.traffic
    entries = [] if traffic is None else traffic.entries
    entered = [each for each in entries if isinstance(each, Enter | EnterGroups)]
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


def facts_of(observed: Trace | None) -> dict[str, str]:
    """Return the backend of a run, and what torch says of itself and of its GPUs."""
    if observed is None:
        return {"backend": "gloo"}
    facts = {name: observed.environment[name] for name in _FACTS & observed.environment.keys()}
    return {"backend": observed.backend, **dict(sorted(facts.items()))}


#: what a run tells of torch: its version, CUDA's, NCCL's, and how many GPUs there are
_FACTS = frozenset({"torch", "cuda", "nccl", "gpus"})


def environment(facts: Mapping[str, str], load: float) -> dict[str, Any]:
    """Return where this was measured."""
    return {
        "host": platform.node(),
        "cores": os.cpu_count() or 1,
        "load": load,
        "python": platform.python_version(),
        **facts,
    }


def changes(old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> list[str]:
    """Return what is not as it was where the old times were measured; the load is noise."""
    lines = []
    before = {} if old is None else old
    for name in sorted(before.keys() & new.keys() - {"load"}):
        if before[name] != new[name]:
            was = f"{name} was {before[name]} when the old times were measured"
            lines.append(f"{was}, and is {new[name]}")
    return lines


#: resamples of a bootstrap, and the share that its interval holds
RESAMPLES = 4000
INTERVAL = (2.5, 97.5)


class BenchComparison(Struct, frozen=True, kw_only=True):
    """New time over old, by medians of blocks, its 95 % interval, and the verdict from that.

    >>> compare([10.0] * 5, [10.1] * 5, 0.1, noisy=False).status
    'PASSED'
    >>> compare([10.0] * 5, [20.0] * 5, 0.1, noisy=False).status
    'FAILED'

    The interval and not the ratio decides: a ratio of 1.2 from times that scatter by half says
    nothing, and is INCONCLUSIVE.
    """

    ratio: float
    low: float
    high: float
    status: str


def compare(
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
# The tables of nccl-tests, as its parsers read them (NVIDIA/nccl-tests 2.19, src/util.cu).

#: dtypes and reduce ops by the names of nccl-tests, where it has others
_TYPES = {
    "float32": "float",
    "float64": "double",
    "float16": "half",
    "float8_e4m3fn": "f8e4m3",
    "float8_e5m2": "f8e5m2",
}
_OPS = {"product": "prod", "premul_sum": "mulsum"}
_HALF = ("time", "algbw", "busbw", "#wrong")
_UNITS = ("(us)", "(GB/s)", "(GB/s)", "")


def nccl_tests_tables(rows: Sequence[BenchRow]) -> list[str]:
    """Return rows as nccl-tests prints them, a table for each collective and number of ranks.

    Times are loop means, averaged over ranks (`-a 1`). What is measured stands in both halves: a
    step is in place or not as the file has it.
    """
    tables: dict[tuple[str | None, int], list[BenchRow]] = {}
    for row in rows:
        tables.setdefault((row.collective or row.case, row.ranks), []).append(row)
    return [line for each in tables.values() for line in _nccl_tests_table(each)]


def _nccl_tests_table(rows: Sequence[BenchRow]) -> list[str]:
    """Return the rows as nccl-tests prints them, so that what reads its output reads these."""
    first = rows[0]
    program = first.case
    if first.collective is not None:
        tabled = kind_of(first.collective)
        program = {name: each for each, name in PROGRAMS.items()}.get(tabled, tabled)
    sizes = [int(row.bytes) for row in rows]
    factors = {after / before for before, after in pairwise(sizes) if before}
    step = f"{min(factors):g}(factor)" if len(factors) == 1 else "1048576(bytes)"
    title = f"{' ' * 11}out-of-place{' ' * 23}in-place{' ' * 10}"
    run = (
        f"# nThread 1 nGpus 1 minBytes {min(sizes)} maxBytes {max(sizes)} step: {step} warmup "
        f"iters: {first.warmup} iters: {len(first.samples)} agg iters: 1 validation: 1 graph: 0 "
        "unalign: 0"
    )
    lines = [
        f"# Collective test starting: {program}",
        run,
        "#",
        "# Using devices",
        *(_rank_line(rank, first.device) for rank in range(first.ranks)),
        "#",
        _write_heading("", "", "", "", "") + title,
        _write_heading("size", "count", "type", "redop", "root") + _half(_HALF) * 2 + " ",
        _write_heading("(B)", "(elements)", "", "", "") + _half(_UNITS) * 2 + " ",
    ]
    buses = []
    for row in rows:
        times = [each for each in row.by_rank if each > 0] or [0.0]
        time = sum(times) / len(times)
        speed = row.bytes / time / 1e3 if time > 0 else 0.0
        buses.append(speed * bus_factor(row.collective or "", row.ranks))
        half = _half((_fit_number(time, 7), _fit_number(speed, 6), _fit_number(buses[-1], 6), "0"))
        lines.append(f"{_preamble(row)}{half}{half}")
    average = sum(buses) / len(buses)
    return [
        *lines,
        f"# {'Out of bounds values':<20} : 0 OK",
        f"# {'Avg bus bandwidth':<20} : {average:g} ",
        "#",
        f"# Collective test concluded: {program}",
    ]


def _rank_line(rank: int, device: str) -> str:
    """Return the line of a rank; which process and which bus it was is not kept."""
    where = f"on {platform.node():>10} device {rank:>2} [0000:00:00] {device}"
    return f"#  Rank {rank:>2} Group  0 Pid {0:>6} {where}"


def _write_heading(*cells: str) -> str:
    """Return the headings of the columns before the times."""
    widths = (10, 12, 8, 6, 6)
    padded = (f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
    return f"# {'  '.join(padded)}"


def _half(cells: Sequence[str]) -> str:
    """Return the four columns of one half, each as wide as nccl-tests has it."""
    widths = (7, 6, 6, 6)
    return "".join(f"  {cell:>{width}}" for cell, width in zip(cells, widths, strict=True))


def _preamble(row: BenchRow) -> str:
    """Return the columns before the times: size, count, type, reduce op, root."""
    operation = BY_NAME.get(kind_of(row.collective or ""))
    # what counts the elements of one rank's part, where the size is that of the whole
    by_part = isinstance(operation, Collective) and operation.turns == 1
    parts = row.ranks if by_part else 1
    count = int(row.bytes // row.item_bytes) // parts
    redop = (
        _OPS.get(row.redop, row.redop) if operation is not None and operation.reduces else "none"
    )
    kind = _TYPES.get(row.dtype, row.dtype)
    return f"{int(row.bytes):>12}  {count:>12}  {kind:>8}  {redop:>6}  {row.root:>6}"


def _fit_number(value: float, width: int) -> str:
    """Return a number with as many decimals, of two at most, as fit into so many columns."""
    for decimals in (2, 1, 0):
        text = f"{value:.{decimals}f}"
        if len(text) <= width:
            return text
    return f"{value:.{1 if width >= 7 else 0}e}"
