"""How far off a forecast of one case may be: an 80 % interval from measurements like it.

`compared/residuals.csv` holds what was measured against what is forecast, row by row, each of a set
(what one project published; `compared/sets.yaml` has the logs, and where they are from). Of a case
those rows count that are of the same kind of machine, the nearer the more: in bytes, in nodes, by
the collective. Rows of one set err together, so that sets are compared and not rows: their means
have a mean and a spread, and a next set is expected within both; a set far off counts no more than
one at some distance. About 80 % of the rows of a project that took part in no constant fall into it
(benchmarks/folds.py, benchmarks/held_out.py).
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from math import exp, log, log2, sqrt
from pathlib import Path

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

COMPARED = Path(__file__).parent / "compared"

#: octaves of bytes, and doublings of nodes, over which a row counts a third
OCTAVES, DOUBLINGS = 3.0, 1.5
#: distance of a row of another collective; of a row that counts no more
OTHER, FARTHEST = 0.8, 2.2
#: how far off a collective is, in logarithms, of which no row of such a machine is; the more sets
#: have one, the less of it is left: by one that is near it is halved, in squares. With this 80 % of
#: what a project measured is inside, on the mean over projects, where all rows of that collective
#: on that kind of machine are left out (benchmarks/folds.py)
UNASKED = 0.35
#: distance of a row of another kind of machine, which is asked where no row is of the kind itself
OTHER_KIND = 1.0
#: distance of a row of several nodes from a case in one node, where no NIC is on the way
OTHER_LEVEL = 0.8
#: how far off a set counts at the most, in deviations that are expected of sets: a broken network
#: is ten times too slow, and says little of the next one. Of large calls between nodes, of which
#: one network in four is slower than its NICs, it is more
FAR_SET, FAR_NETWORK = 3.0, 5.0
LARGE = 2.0**26
#: below this a call in one node takes what its start takes: by one process for all GPUs three times
#: what it takes by one for each
START = 2.0**20
#: the kind of rows that a table of the same log is asked for
TABLE = "table"
#: the kind of a group that has some of the ranks of each of its nodes: no row is of one
PART_OF_NODES = "part of nodes"
#: messages: nccl-tests' ring of them, in which each rank sends all bytes to the next one
SENDRECV = "sendrecv"
#: how many sets that expectation counts as
EXPECTED = 2.0
#: half the width of 80 % of a normal distribution, in standard deviations
WIDTH = 1.2816
#: the same of tables, whose few outliers make a deviation that most rows are well within
WIDTH_OF_TABLES = 0.6


class ComparedRow(Struct, frozen=True):
    """One row: log of measured over forecast, of a `kind` of machine, in a `group` of rows."""

    kind: str
    collective: str
    nodes: int
    size: float
    log_ratio: float
    group: str


class Spread(Struct, frozen=True):
    """What is expected of logarithms before any set is seen: how far sets, and rows, are apart.

    80 % of them are within `below` and `above`, in standard deviations. Where a spread is `skew`,
    sets that are quicker than most tell how far down they go, and those that are slower how far up.
    A set counts no further off than `farthest`, in deviations.
    """

    sets: float
    rows: float
    below: float = WIDTH
    above: float = WIDTH
    skew: bool = False
    farthest: float = FAR_SET


#: of calls in one node: below 1 MiB, below 64 MiB, and from there on; of calls between nodes. No
#: network is much quicker than its NICs, and some are much slower. With these 80 % of what a
#: project measured is inside where it is left out, on the mean over projects, of each by itself
STARTS = Spread(0.30, 0.08, 1.45, 1.55, skew=True)
SMALL = Spread(0.30, 0.08, 1.0, 1.05, skew=True)
LARGE_ONES = Spread(0.14, 0.08, 1.0, 0.8, skew=True)
SMALL_BETWEEN = Spread(0.30, 0.08, 1.2, 1.35, skew=True)
LARGE_BETWEEN = Spread(0.14, 0.08, 1.2, 1.4, skew=True, farthest=FAR_NETWORK)
#: whether a call is between nodes, and large -> what is expected
EXPECTED_OF = {
    (False, False): SMALL,
    (False, True): LARGE_ONES,
    (True, False): SMALL_BETWEEN,
    (True, True): LARGE_BETWEEN,
}
#: how many times further apart sets of other kinds of machines are
OTHERS_APART = 2.0
OF_TABLES = Spread(0.05, 0.03, WIDTH_OF_TABLES, WIDTH_OF_TABLES)
#: of what torch reserves for a step, of what its program holds
OF_MEMORY = Spread(0.08, 0.05)
#: of recorded steps of training; how far those on other machines with the same kind of GPU are, and
#: others; of planned ones, whose kernels are formulas: with these spreads 87 % of the rows of
#: projects that are left out are in their interval, and 84 % on the mean over projects; as their
#: code is 91 and 89 %
OF_STEPS, SAME_GPU, OTHER_GPU = Spread(0.10, 0.05), 0.7, 1.2
OF_PLANNED = Spread(0.13, 0.08)
#: forms of planned steps, by which they are compared with published ones (planned.csv). All of them
#: are PLANNED; its rows are dense, in bfloat16, and of short sequences
PLANNED, EXPERTS, CONTEXT_GROUPS, FLOAT8 = "planned", "experts", "context", "float8"
#: planned steps whose model states `kernels` other than FUSED, or exchanges that hide. They are
#: compared with what was forecast of published steps as their code is known to be
AS_STATED = "stated"
IN_TWO, LONG, SMALL_EXPERTS = "zero-bubble", "long-sequences", "small-experts"
HOST = "host"
#: recorded steps, and what a record says of its kernels (record/kernels)
RECORDED, CONVOLUTION = "recorded", "convolution"
#: words for the forms by which the interval of a planned step is widened
FORMS = {
    EXPERTS: "with experts",
    CONTEXT_GROUPS: "whose sequences are shared",
    FLOAT8: "with products in float8",
    IN_TWO: "with a zero-bubble schedule",
    LONG: "of sequences of 16,384 tokens and more",
    SMALL_EXPERTS: "with experts of fewer than 1,024 features",
    HOST: "whose kernels wait for their host",
    CONVOLUTION: "with convolutions",
}


class Interval(Struct, frozen=True):
    """Between what multiples of a forecast 80 % of measurements are; of how many `rows` and sets.

    `alike`: these are of the kind of machine that is asked about; `asked`: some of them are of the
    collective that is asked about.
    """

    low: float
    high: float
    rows: int
    sets: int
    alike: bool = True
    asked: bool = True


@cache
def residuals() -> tuple[ComparedRow, ...]:
    """Return what forecasts were compared with."""
    with (COMPARED / "residuals.csv").open(encoding="utf-8", newline="") as file:
        return tuple(
            ComparedRow(
                row["kind"],
                row["collective"],
                int(row["nodes"]),
                float(row["bytes"]),
                float(row["log_ratio"]),
                row["set"],
            )
            for row in csv.DictReader(file)
        )


class ComparedStep(Struct, frozen=True):
    """A step of training: log of measured over forecast, on a `kind` of machine with such a GPU."""

    kind: str
    gpu: str
    log_ratio: float
    group: str


@cache
def steps() -> tuple[ComparedStep, ...]:
    """Return the steps that others measured, but those that something was fitted to."""
    return tuple(_read_steps("steps.csv"))


def _read_steps(name: str, form: str = "", forecast: str = "forecast") -> Iterator[ComparedStep]:
    """Yield the steps of a file; of a form where one is given. `forecast` is a column."""
    with (COMPARED / name).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if not form or row["form"] == form:
                ratio = float(row[forecast]) / float(row["measured"])  # tokens a second
                yield ComparedStep(row["kind"], row["gpu"], log(ratio), row["set"])


class ComparedMemory(Struct, frozen=True):
    """The memory of a step in GiB: what was reserved, and its tensors, of a `group` of rows.

    The tensors of a recorded step are known. Those of a planned one are formulas; `least` has those
    of the code that holds least, where it is not known which code it was.
    """

    measured: float
    forecast: float
    least: float
    group: str
    is_planned: bool

    def is_in(self, found: Interval) -> bool:
        """Whether an interval has it."""
        return self.least * found.low <= self.measured <= self.forecast * found.high


@cache
def memories() -> tuple[ComparedMemory, ...]:
    """Return what others reserved for steps of training."""
    with (COMPARED / "memory.csv").open(encoding="utf-8", newline="") as file:
        return tuple(
            ComparedMemory(
                float(row["measured"]),
                float(row["forecast"]),
                float(row["least"]),
                row["set"],
                row["form"] == PLANNED,
            )
            for row in csv.DictReader(file)
        )


@cache
def memory_interval(*, is_planned: bool = False) -> Interval:
    """Return what an allocator reserves for a step of training, of what its tensors are."""
    return find_memory_interval(memories(), is_planned=is_planned)


def find_memory_interval(rows: Iterable[ComparedMemory], *, is_planned: bool) -> Interval:
    """Return the interval that some steps give, of which one at least is a recorded one.

    Formulas are further off than recorded tensors: code holds more. That it may hold less is in
    what the leanest code holds, so that the least is what an allocator adds to known tensors.
    """
    sets: dict[str, list[tuple[float, float]]] = {}
    recorded: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        ratio = (1.0, log(row.measured / row.forecast))
        sets.setdefault(row.group, []).append(ratio)
        if not row.is_planned:
            recorded.setdefault(row.group, []).append(ratio)
    least = _expect(recorded, OF_MEMORY, is_alike=True)
    found = _expect(sets, OF_MEMORY, is_alike=True)
    assert least is not None
    assert found is not None
    return replace(found, low=least.low) if is_planned else least


#: how the tag of a planned step begins that says how many bytes it holds by the code that holds
#: least
LEAST = "least-"


def find_least(held: float, tags: Iterable[str]) -> float:
    """Return what a step holds by the code that holds least, where its tags say so, or `held`."""
    stated = [tag.removeprefix(LEAST) for tag in tags if tag.startswith(LEAST)]
    return min([held, *(float(each) for each in stated if each.isdecimal())])


#: whether a rank has memory for what an allocator reserves for most such steps, for some, for none
FITS, TIGHT, TOO_LARGE = "FITS", "TIGHT", "TOO LARGE"


def tell_fit(
    held: float, memory: float, least: float | None = None, *, is_planned: bool = False
) -> str:
    """Return whether so many bytes have room for what is held, and what an allocator adds to that.

    `least` is held by the code that holds least, where it is not known which code it is: a step is
    TOO LARGE where that has no room. The tensors of a planned step are formulas, and further off.

    >>> [tell_fit(held * 2**30, 80 * 2**30) for held in (50, 70, 79)]
    ['FITS', 'TIGHT', 'TOO LARGE']
    >>> tell_fit(90 * 2**30, 80 * 2**30, least=60 * 2**30)
    'TIGHT'
    """
    low, high = reserve(held, least, is_planned=is_planned)
    if high <= memory:
        return FITS
    return TIGHT if low <= memory else TOO_LARGE


def reserve(
    held: float, least: float | None = None, *, is_planned: bool = False
) -> tuple[float, float]:
    """Return between what bytes an allocator reserves, for 80 % of steps that hold so many.

    >>> low, high = reserve(50 * 2**30, least=40 * 2**30)
    >>> 40 * 2**30 < low < 50 * 2**30 < high
    True
    """
    reserved = memory_interval(is_planned=is_planned)
    return (held if least is None else least) * reserved.low, held * reserved.high


@cache
def form_ratios(form: str) -> Mapping[str, tuple[float, ...]]:
    """Return how many times their forecast planned steps of a form took, by who published them."""
    found: dict[str, tuple[float, ...]] = {}
    for step in _read_steps("planned.csv", form):
        found[step.group] = (*found.get(step.group, ()), exp(step.log_ratio))
    return found


@cache
def planned_steps(*, is_stated: bool = False) -> tuple[ComparedStep, ...]:
    """Return the published steps that plan's formulas were compared with, without another form.

    Where it `is_stated` what their code is known to hold between products was in the forecast.
    """
    return tuple(_read_steps("planned.csv", PLANNED, AS_STATED if is_stated else "forecast"))


@cache
def form_interval(form: str) -> Interval | None:
    """Return the interval of planned steps of a form; None where none was published.

    They are few, of one to three projects: each that was compared is in it.
    """
    published = form_ratios(form)
    sets = {name: [(1.0, log(each)) for each in ratios] for name, ratios in published.items()}
    found = _expect(sets, OF_STEPS, is_alike=True)
    if found is None:
        return None
    ratios = [each for several in published.values() for each in several]
    return replace(found, low=min(found.low, *ratios), high=max(found.high, *ratios))


def step_interval(
    machine: str, kind: str, gpu: str, *, is_planned: bool = False, is_stated: bool = False
) -> Interval | None:
    """Return the interval of a step whose kernels are reckoned; None where none is like it.

    Those of a planned step are formulas, and those of a recorded one reckoned one by one. A machine
    whose own steps were measured is compared with these, and not with those of its kind.
    """
    planned = planned_steps(is_stated=is_stated)
    rows, expected = (planned, OF_PLANNED) if is_planned else (steps(), OF_STEPS)
    own = {row.kind for row in rows}
    return find_step_interval(rows, machine if machine in own else kind, gpu, expected)


def find_step_interval(
    rows: Iterable[ComparedStep], kind: str, gpu: str, expected: Spread = OF_STEPS
) -> Interval | None:
    """Return the interval that some steps give for a machine: its own, those of its GPU, others."""
    sets: dict[str, list[tuple[float, float]]] = {}
    near = OTHER_GPU
    for row in rows:
        far = 0.0 if row.kind == kind else SAME_GPU if row.gpu == gpu else OTHER_GPU
        near = min(near, far)
        sets.setdefault(row.group, []).append((exp(-far * far), row.log_ratio))
    return _expect(sets, expected, is_alike=near < OTHER_GPU)


@cache
def interval(kind: str, collective: str, nodes: int, size: float) -> Interval | None:
    """Return the interval of a case; None where nothing like it was compared."""
    return find_interval(residuals(), kind, collective, nodes, size)


def find_interval(
    rows: Iterable[ComparedRow], kind: str, collective: str, nodes: int, size: float
) -> Interval | None:
    """Return the interval that some rows give for a case; None where none of them is like it."""
    own = [row for row in rows if row.kind == kind]
    if kind == TABLE:
        return _choose_interval(own, collective, nodes, size, OF_TABLES)
    expected = STARTS if nodes == 1 and size < START else EXPECTED_OF[nodes > 1, size >= LARGE]
    found = _choose_interval(own, collective, nodes, size, expected)
    if found is not None:
        return found
    others = [row for row in rows if row.kind not in {kind, TABLE}]
    further = replace(expected, sets=OTHERS_APART * expected.sets)
    return _choose_interval(others, collective, nodes, size, further, OTHER_KIND)


def _choose_interval(
    rows: Iterable[ComparedRow],
    collective: str,
    nodes: int,
    size: float,
    expected: Spread,
    begin: float = 0.0,
) -> Interval | None:
    sets: dict[str, list[tuple[float, float]]] = {}
    asked: dict[str, float] = {}
    for row in rows:
        far = (
            begin
            + abs(log2(max(size, 8.0) / row.size)) / OCTAVES
            + abs(log2(nodes / row.nodes)) / DOUBLINGS
            + (0.0 if row.collective == collective else OTHER)
            + (0.0 if (row.nodes == 1) == (nodes == 1) else OTHER_LEVEL)
        )
        if far <= FARTHEST:
            weight = exp(-far * far)
            sets.setdefault(row.group, []).append((weight, row.log_ratio))
            if row.collective == collective:
                asked[row.group] = max(asked.get(row.group, 0.0), weight)
    apart = UNASKED / sqrt(1 + sum(asked.values()))
    found = _expect(sets, expected, is_alike=begin == 0, apart=apart)
    return found and replace(found, asked=bool(asked))


def _expect(
    sets: Mapping[str, Sequence[tuple[float, float]]],
    expected: Spread,
    *,
    is_alike: bool,
    apart: float = 0.0,
) -> Interval | None:
    """Return within what a next set is expected; sets have the weights and logarithms of rows.

    What is asked for is `apart` from all of them.
    """
    if not sets:
        return None
    own = [_mean(each) for each in sets.values()]
    weights = [max(weight for weight, _ in each) for each in sets.values()]
    nearest, total = max(weights), sum(weights)
    centre, most = _median(own, weights), expected.farthest * expected.sets
    means = [min(max(mean, centre - most), centre + most) for mean in own]
    middle = sum(w * mean for w, mean in zip(weights, means, strict=True)) / total
    inside = [
        weight * (value - mean) ** 2
        for mean, each in zip(own, sets.values(), strict=True)
        for weight, value in each
    ]
    weighed = sum(weight for each in sets.values() for weight, _ in each)
    of_rows = (expected.rows**2 + sum(inside)) / (1 + weighed)
    effective = total * total / sum(w * w for w in weights)
    unseen = 0.3 * sqrt(max(0.0, -log(nearest)))
    alone = of_rows + unseen**2 + apart**2

    def reach(side: int) -> float:
        """Return how far sets are from the middle, on a side of it."""
        apart_by = [(w, mean - middle) for w, mean in zip(weights, means, strict=True)]
        if expected.skew:
            squares = 2 * sum(w * each**2 for w, each in apart_by if each * side > 0)
        else:
            squares = sum(w * each**2 for w, each in apart_by)
        of_sets = (EXPECTED * expected.sets**2 + squares) / (EXPECTED + total - nearest)
        return sqrt(of_sets * (1 + 1 / effective) + alone)

    low, high = middle - expected.below * reach(-1), middle + expected.above * reach(1)
    count = sum(map(len, sets.values()))
    return Interval(exp(low), exp(high), count, len(sets), is_alike)


def _median(values: Sequence[float], weights: Sequence[float]) -> float:
    """Return the value that half of the weight is below; between two of them a straight line."""
    order = np.argsort(values)
    sizes = np.array(weights)[order]
    middles = np.cumsum(sizes) - sizes / 2
    return float(np.interp(sizes.sum() / 2, middles, np.array(values)[order]))


def _mean(weighed: Sequence[tuple[float, float]]) -> float:
    return sum(w * value for w, value in weighed) / sum(w for w, _ in weighed)
