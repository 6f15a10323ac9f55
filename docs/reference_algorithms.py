"""Which algorithm is the quickest, by sizes and ranks: forecasts of the files in scenarios/."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace
from writing import table

from torch_scenarios.cost.forecast import forecast, microseconds
from torch_scenarios.cost.measurements import base_size
from torch_scenarios.cost.topology import topology
from torch_scenarios.language.document import load
from torch_scenarios.limits import DEFAULT
from torch_scenarios.pipeline.attempts import analyse

if TYPE_CHECKING:
    from torch_scenarios.model.traffic import Traffic

ALGORITHMS = Path(__file__).parents[1] / "scenarios" / "algorithms"
#: the machine of the page, and its ranks: one node, and eight
MACHINE, RANKS = "8x100g", (8, 64)
#: how exact a crossover is told
EXACT = 1.03
SIZES = tuple(2.0**power for power in (10, 14, 18, 22, 26, 30))
WIDE = replace(DEFAULT, max_ranks=2048)

#: collective -> its algorithms: file -> what the page calls it
FILES = {
    "all_reduce": {
        "ring_all_reduce": "ring",
        "recursive_doubling_all_reduce": "doubling",
        "halving_doubling_all_reduce": "halving and doubling",
        "double_binary_tree_all_reduce": "double tree",
        "ring_2d_all_reduce": "2-D ring",
        "swing_all_reduce": "Swing",
    },
    "broadcast": {
        "binomial_broadcast": "binomial tree",
        "pipelined_chain_broadcast": "pipelined chain",
        "scatter_all_gather_broadcast": "scatter and all_gather",
    },
    "all_gather": {
        "ring_all_gather": "ring",
        "bruck_all_gather": "Bruck",
        "pat_all_gather": "PAT",
    },
    "reduce_scatter": {
        "ring_reduce_scatter": "ring",
        "halving_reduce_scatter": "halving",
    },
    "all_to_all": {
        "pairwise_all_to_all": "pairwise exchange",
        "bruck_all_to_all": "Bruck",
    },
}


@dataclass(frozen=True, slots=True)
class Curve:
    """The time of one algorithm by the bytes of its tensor."""

    name: str
    traffic: Traffic
    own: float

    @cache  # noqa: B019 -- for as long as the pages are written
    def at(self, size: float) -> float:
        """Return microseconds."""
        return forecast(self.traffic, topology(MACHINE), scale=size / self.own).time


@cache
def curve_of(file: str, name: str, ranks: int) -> Curve:
    """Return an algorithm on so many ranks, proved first."""
    two = {"rows": str(max(2, ranks // 8)), "columns": str(ranks // max(2, ranks // 8))}
    sets = two if file == "ring_2d_all_reduce" else {"n": str(ranks)}
    (case,) = load(ALGORITHMS / f"{file}.yaml", sets=sets, limits=WIDE)
    analysis = analyse(case, WIDE)
    trace = analysis.predicted
    assert analysis.verdict.status == "PASSED"
    assert trace is not None
    assert trace.traffic is not None
    # of a reduce_scatter the whole counts, as in nccl-tests, and each rank states its part
    own = base_size(case, trace) * (ranks if "reduce_scatter" in file else 1)
    return Curve(name, trace.traffic, own)


def curves(collective: str, ranks: int) -> list[Curve]:
    """Return the algorithms of a collective on so many ranks."""
    return [curve_of(file, name, ranks) for file, name in FILES[collective].items()]


def quickest(collective: str, ranks: int, size: float) -> tuple[float, str]:
    """Return the time of the quickest algorithm, and its name; the first of equals."""
    times = ((curve.at(size), curve.name) for curve in curves(collective, ranks))
    return min(times, key=lambda found: round(found[0], 9))


def crossovers(collective: str, ranks: int, low: float, high: float) -> list[tuple[float, str]]:
    """Return the bytes from which on another algorithm is the quickest, and which one."""
    first = quickest(collective, ranks, low)[1]
    if first == quickest(collective, ranks, high)[1]:
        return []
    under, over = low, high
    while over / under > EXACT:
        middle = (under * over) ** 0.5
        if quickest(collective, ranks, middle)[1] == first:
            under = middle
        else:
            over = middle
    found = (over, quickest(collective, ranks, over)[1])
    return [found, *crossovers(collective, ranks, over, high)]


def algorithms() -> str:
    """Return the quickest algorithm of each collective by ranks and sizes, and the crossovers."""
    head = ("collective", "ranks", *(bytes_of(size, 3) for size in SIZES))
    rows, turns = [], []
    for collective in FILES:
        for ranks in RANKS:
            best = [quickest(collective, ranks, size) for size in SIZES]
            cells = (f"{name}, {microseconds(float(f'{time:.3g}'))}" for time, name in best)
            rows.append((collective, str(ranks), *cells))
            pairs = itertools.pairwise(SIZES)
            found = [each for pair in pairs for each in crossovers(collective, ranks, *pair)]
            shown = [best[0][1], *(f"from {bytes_of(size)} on {name}" for size, name in found)]
            turns.append((collective, str(ranks), ", ".join(shown)))
    (lone, few), (_, many) = (
        (ranks, microseconds(float(f"{barrier(ranks):.3g}"))) for ranks in RANKS
    )
    turns.append(("barrier", str(lone), f"dissemination, {few}"))
    turns.append(("barrier", str(RANKS[1]), f"dissemination, {many}"))
    return f"{table(head, rows)}\n\n{table(('collective', 'ranks', 'the quickest'), turns)}"


def barrier(ranks: int) -> float:
    """Return the time of a barrier, whose messages carry nothing, in microseconds."""
    return curve_of("dissemination_barrier", "dissemination", ranks).at(0.001)


def bytes_of(size: float, digits: int = 2) -> str:
    """Return a size with so many digits and its unit."""
    power = min(3, int(math.log2(size)) // 10)
    return f"{float(f'{size / 1024**power:.{digits}g}'):g} {('B', 'KiB', 'MiB', 'GiB')[power]}"
