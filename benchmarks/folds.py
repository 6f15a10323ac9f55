"""The intervals of forecasts on projects whose rows took no part in any constant.

`python -m benchmarks.folds` leaves each project out in turn, with all of its sets: the constants
that presets are fitted by (a factor by algorithm, what a hop between nodes and a peer take) are
fitted anew to the rows of the others, and a kind of machine that no other project has measured gets
the median of the other kinds' constants. It prints, for each project, how many of its rows are in
the 80 % interval that the others give, how far off they are by size, nodes and collective, and how
wide their intervals are; then the same where all rows of a collective on a kind of machine are left
out too, as if it were unmeasured there.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from math import exp, log

import numpy as np
import yaml
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from benchmarks.residuals import MOST_PEERS, members_of, project_of, time_call
from torch_scenarios.cost.collectives import CollectiveTimes
from torch_scenarios.cost.intervals import (
    COMPARED,
    PART_OF_NODES,
    TABLE,
    ComparedRow,
    find_interval,
    residuals,
)
from torch_scenarios.cost.nccl import ALL_REDUCE
from torch_scenarios.cost.topology import Topology, topology

#: microseconds that a hop, and a peer, may take
HOPS = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 60.0, 100.0)
PEERS = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 13.0, 16.0)
#: the algorithms of what is made of messages: that of a ring, and of what leaves by all NICs
MESSAGES, BY_ALL_NICS = "one batch", "one batch by all NICs"
#: factors of an algorithm
FACTORS = np.exp(np.arange(-0.3, 1.4, 0.02))


class MeasuredRow(Struct, frozen=True, kw_only=True):
    """A measured row, and what its forecast is made of: `base` times a factor, hops, and peers."""

    compared: ComparedRow
    algorithm: str
    measured: float
    least: float
    base: float
    hops: float
    peers: float


class Constants(Struct, frozen=True, kw_only=True):
    """What is fitted of a kind of machine."""

    factors: dict[str, float]
    factor: float
    hop: float
    peer: float

    def residual(self, row: MeasuredRow) -> float:
        """Return the logarithm of what was measured over what these constants forecast."""
        factor = self.factors.get(row.algorithm, self.factor)
        time = factor * row.base + self.hop * row.hops + self.peer * row.peers
        return log(row.measured / max(time, row.least))


class Fold(Struct, frozen=True, kw_only=True):
    """A project that is left out: its rows, and for each whether the kind was measured by others.

    `inside` says for each whether it is in the interval of the others, whose ends are `widths`
    apart, by a factor; those without one are not among them.
    """

    project: str
    rows: tuple[ComparedRow, ...]
    alike: tuple[bool, ...]
    inside: tuple[bool, ...]
    widths: tuple[float, ...]


class UnmeasuredCell(Struct, frozen=True, kw_only=True):
    """A collective that is left out on a kind of machine, and the rows of one project."""

    kind: str
    collective: str
    project: str
    inside: tuple[bool, ...]


@cache
def measured_rows() -> tuple[MeasuredRow, ...]:
    """Return the rows of measured.csv with what their forecasts are made of."""
    return tuple(_rows())


@cache
def preset(name: str) -> Topology:
    """Return a topology, which is read once."""
    return topology(name)


def _rows() -> Iterator[MeasuredRow]:
    sets = yaml.safe_load((COMPARED / "sets.yaml").read_text(encoding="utf-8"))
    with (COMPARED / "measured.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            about, collective = sets[row["set"]], row["collective"]
            ranks, size = int(row["ranks"]), float(row["bytes"])
            if collective == "all_to_all" and ranks > MOST_PEERS:
                continue
            machine = preset(about["preset"])
            bare = replace(machine, factor=1.0, factors={}, hop=0.0, ring_hop=None)
            plain = replace(bare, peer=0.0, node_peer=0.0)
            members = members_of(about, machine, ranks, int(row["nodes"]))
            world_size = members[-1] + 1
            base, hop, peer = (
                time_call(
                    CollectiveTimes(each, world_size, algorithm=about.get("algorithm")),
                    *(collective, size, members),
                )
                for each in (
                    plain,
                    replace(plain, hop=1.0),
                    replace(plain, peer=1.0, node_peer=float(machine.node_peer > 0)),
                )
            )
            launch = CollectiveTimes(machine, world_size).launch
            time = float(row["us"])
            yield MeasuredRow(
                compared=ComparedRow(
                    PART_OF_NODES if "of_each_node" in about else machine.kind,
                    collective,
                    int(row["nodes"]),
                    size,
                    0.0,
                    project_of(about),
                ),
                algorithm=_name_algorithm(base.algorithm, collective, int(row["nodes"])),
                measured=time,
                least=0.0 if about.get("waited") else launch,
                base=base.time,
                hops=hop.time - base.time,
                peers=peer.time - base.time,
            )


def _name_algorithm(text: str, collective: str, nodes: int) -> str:
    """Return the name of the algorithm that a factor is of."""
    name = text.partition(", ")[0]
    by_all = name == MESSAGES and nodes > 1 and collective in {"all_to_all", "scatter"}
    return BY_ALL_NICS if by_all else name


def fitted(rows: Sequence[MeasuredRow]) -> Constants:
    """Return the constants that rows of one kind of machine are nearest to, by their logarithms.

    Each project counts alike, and one whose network is broken moves them little. No call takes
    less than `least`, which is what its host takes.
    """
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.compared.group] = counts.get(row.compared.group, 0) + 1
    weights = np.array([1 / counts[row.compared.group] for row in rows])
    base, hops, peers, least, wanted = (
        np.array([getattr(row, name) for row in rows])
        for name in ("base", "hops", "peers", "least", "measured")
    )
    names = np.array([row.algorithm for row in rows])
    best: tuple[float, Constants] | None = None
    for hop, peer in product(HOPS if hops.any() else (0.0,), PEERS if peers.any() else (0.0,)):
        added = hop * hops + peer * peers
        total, factors = 0.0, {}
        for name in dict.fromkeys(names.tolist()):
            own = names == name
            wrong = _errors(base[own], added[own], least[own], wanted[own], weights[own])
            at = int(wrong.argmin())
            total += float(wrong[at])
            factors[str(name)] = float(FACTORS[at])
        if best is None or total < best[0]:
            middle = float(np.median(list(factors.values())))
            best = total, Constants(factors=factors, factor=middle, hop=hop, peer=peer)
    assert best is not None
    return best[1]


@cache
def _fitted_once(rows: tuple[MeasuredRow, ...]) -> Constants:
    """Return the constants of rows: most kinds have the same rows whichever project is left out."""
    return fitted(rows)


def _errors(
    base: NDArray[np.float64],
    added: NDArray[np.float64],
    least: NDArray[np.float64],
    wanted: NDArray[np.float64],
    weights: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return how wrong each factor is on some rows."""
    times = np.maximum(FACTORS[:, None] * base + added, least)
    found: NDArray[np.float64] = (weights * np.abs(np.log(wanted / times))).sum(axis=1)
    return found


@cache
def folds() -> tuple[Fold, ...]:
    """Return each project left out in turn."""
    tables = [row for row in residuals() if row.kind == TABLE]
    rows = measured_rows()
    projects = sorted({row.compared.group for row in rows})
    return tuple(_fold(project, rows, tables) for project in projects)


def _fold(project: str, rows: Sequence[MeasuredRow], tables: Sequence[ComparedRow]) -> Fold:
    others = [row for row in rows if row.compared.group != project]
    left, seen = _part(others, [row for row in rows if row.compared.group == project])
    left += [row for row in tables if row.group == project]
    seen += [row for row in tables if row.group != project]
    asked, alike, inside, widths = zip(*_judge(left, seen), strict=True)
    return Fold(project=project, rows=asked, alike=alike, inside=inside, widths=widths)


def _judge(
    left: Sequence[ComparedRow], seen: Sequence[ComparedRow]
) -> Iterator[tuple[ComparedRow, bool, bool, float]]:
    """Yield the rows that have an interval by the seen ones.

    With each, whether the interval is of machines alike, whether the row is inside, and how wide
    the interval is.
    """
    for each in left:
        found = find_interval(seen, each.kind, each.collective, each.nodes, each.size)
        if found is not None:
            inside = found.low <= exp(each.log_ratio) <= found.high
            yield each, found.alike, inside, found.high / found.low


def _part(
    others: Sequence[MeasuredRow], rows: Sequence[MeasuredRow]
) -> tuple[list[ComparedRow], list[ComparedRow]]:
    """Return some rows by the constants that the others give, and the others by their own."""
    by_kind: dict[str, list[MeasuredRow]] = {}
    for row in others:
        by_kind.setdefault(row.compared.kind, []).append(row)
    known = {kind: _fitted_once(tuple(each)) for kind, each in by_kind.items()}
    unseen = _median(list(known.values()))
    seen = [
        replace(row.compared, log_ratio=known[row.compared.kind].residual(row)) for row in others
    ]
    whole = {kind: _with_messages(own, list(known.values())) for kind, own in known.items()}
    left = [
        replace(row.compared, log_ratio=whole.get(row.compared.kind, unseen).residual(row))
        for row in rows
    ]
    return left, seen


def _with_messages(own: Constants, known: Sequence[Constants]) -> Constants:
    """Return a kind's constants, those of messages from the others where it has no row of any."""
    whole = own
    for name in (MESSAGES, BY_ALL_NICS):
        others = [each for each in known if name in each.factors]
        if name not in own.factors and others:
            factor = float(np.median([each.factors[name] for each in others]))
            whole = replace(whole, factors={**whole.factors, name: factor})
    if BY_ALL_NICS not in own.factors:
        peers = [each.peer for each in known if BY_ALL_NICS in each.factors]
        whole = replace(whole, peer=float(np.median(peers)))
    return whole


@cache
def unmeasured() -> tuple[UnmeasuredCell, ...]:
    """Return each collective on a kind of machine left out, and in turn who measured it."""
    return tuple(_unmeasured())


def _unmeasured() -> Iterator[UnmeasuredCell]:
    rows = measured_rows()
    for kind, collective in sorted({(row.compared.kind, row.compared.collective) for row in rows}):

        def is_of(row: ComparedRow, kind: str = kind, collective: str = collective) -> bool:
            return (row.kind, row.collective) == (kind, collective)

        own = [row for row in rows if is_of(row.compared)]
        for project in sorted({row.compared.group for row in own}):
            others = [
                row for row in rows if not is_of(row.compared) and row.compared.group != project
            ]
            left, seen = _part(others, [row for row in own if row.compared.group == project])
            inside = tuple(is_inside for _, _, is_inside, _ in _judge(left, seen))
            if inside:
                yield UnmeasuredCell(
                    kind=kind, collective=collective, project=project, inside=inside
                )


def _median(known: Sequence[Constants]) -> Constants:
    """Return the constants of a kind that no one else has measured: what others have."""
    names = dict.fromkeys(name for each in known for name in each.factors)
    return Constants(
        factors={
            name: float(np.median([each.factors[name] for each in known if name in each.factors]))
            for name in names
        },
        factor=float(np.median([each.factor for each in known])),
        hop=float(np.median([each.hop for each in known])),
        peer=float(np.median([each.peer for each in known])),
    )


def coverage(found: Sequence[Fold], *, alike: bool) -> tuple[int, int]:
    """Return how many rows are inside, and of how many: of kinds others measured if `alike`."""
    told = [
        one
        for fold in found
        for one, same in zip(fold.inside, fold.alike, strict=True)
        if same == alike
    ]
    return sum(told), len(told)


#: bytes below which rows are of a size
SIZES = (("below 64 KiB", 2.0**16), ("below 64 MiB", 2.0**26), ("from 64 MiB up", float("inf")))


def table() -> Iterator[str]:
    """Yield the table of cost.md: how far off rows are, and how many are in the interval."""
    by_row: dict[tuple[str, str, int], list[bool]] = {}
    for fold in folds():
        for row, inside in zip(fold.rows, fold.inside, strict=True):
            by_row.setdefault((row.kind, row.collective, _size(row)), []).append(inside)
    fits: dict[tuple[str, str, int], list[ComparedRow]] = {}
    for row in residuals():
        fits.setdefault((row.kind, row.collective, _size(row)), []).append(row)
    for key, rows in sorted(fits.items()):
        logs = [row.log_ratio for row in rows]
        mean = exp(sum(map(abs, logs)) / len(logs))
        worst = exp(max(logs, key=abs))
        projects = len({row.group for row in rows})
        held = by_row.get(key, [])
        told = f"{sum(held)} of {len(held)}" if held else "not asked"
        yield (
            f"| `{key[0]}` | {key[1]} | {SIZES[key[2]][0]} | {len(rows)}, {projects} "
            f"| {mean:.2f} | {worst:.2f} | {told} |"
        )


def _size(row: ComparedRow) -> int:
    return next(at for at, (_, most) in enumerate(SIZES) if row.size < most)


#: bytes below which rows are of a band
BANDS = (
    ("below 64 KiB", 2.0**16),
    ("64 KiB to 1 MiB", 2.0**20),
    ("1 to 64 MiB", 2.0**26),
    ("from 64 MiB up", float("inf")),
)


def bands() -> Iterator[str]:
    """Yield a table of what is left out, by where it is and how large it is, and by collective.

    Each project counts alike, as its rows err together.
    """
    yield "| rows | how many, projects | inside | measured over forecast | off by | interval |"
    yield "|---|---|---|---|---|---|"
    rows = [
        (fold.project, *each)
        for fold in folds()
        for each in zip(fold.rows, fold.inside, fold.widths, strict=True)
        if each[0].kind != TABLE
    ]
    parts: dict[str, list[tuple[str, ComparedRow, bool, float]]] = {}
    for row in rows:
        where = "one node" if row[1].nodes == 1 else "several nodes"
        band = next(name for name, most in BANDS if row[1].size < most)
        for part in (f"{where}, {band}", f"{where}, {row[1].collective}"):
            parts.setdefault(part, []).append(row)
    order = [name for name, _ in BANDS]
    for part, own in sorted(
        parts.items(), key=lambda each: (each[0].partition(", ")[0], _place(each[0], order))
    ):
        weights = _weights([row[0] for row in own])
        logs = np.array([row[1].log_ratio for row in own])
        inside = np.average([row[2] for row in own], weights=weights)
        width = exp(np.average(np.log([row[3] for row in own]), weights=weights))
        middle = exp(weighed_median(logs, weights))
        off = (
            exp(weighed_median(np.abs(logs), weights)),
            exp(np.average(np.abs(logs), weights=weights)),
        )
        yield (
            f"| {part} | {len(own)}, {len({row[0] for row in own})} | {inside:.0%} "
            f"| {middle:.2f} | {off[0]:.2f}, mean {off[1]:.2f} | {width:.2f} |"
        )


def _place(part: str, order: Sequence[str]) -> tuple[int, str]:
    name = part.partition(", ")[2]
    return (order.index(name), "") if name in order else (len(order), name)


def _weights(projects: Sequence[str]) -> NDArray[np.float64]:
    """Return what each row counts, so that all projects count alike."""
    counts = {name: projects.count(name) for name in set(projects)}
    return np.array([1 / counts[name] for name in projects])


def weighed_median(values: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    """Return the value that half of the weight is below."""
    order = np.argsort(values)
    sums = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(sums, sums[-1] / 2)])


def main() -> None:
    """Print the table of the page, a line for each project, and the sums."""
    print(*table(), *bands(), sep="\n")
    for fold in folds():
        print(f"{fold.project}: {sum(fold.inside)} of {len(fold.inside)}")
    for alike in (True, False):
        inside, asked = coverage(folds(), alike=alike)
        print(
            f"{'alike' if alike else 'of other kinds'}: {inside} of {asked}, {inside / asked:.0%}"
        )
    cells = unmeasured()
    for told, own in (
        ("collectives left out on a kind of machine", cells),
        ("of these all but all_reduce", [each for each in cells if each.collective != ALL_REDUCE]),
    ):
        inside, asked = (sum(f(each.inside) for each in own) for f in (sum, len))
        mean = np.mean([np.mean(each.inside) for each in own])
        print(f"{told}: {inside} of {asked}, {inside / asked:.0%}; mean of projects {mean:.0%}")


if __name__ == "__main__":
    main()
