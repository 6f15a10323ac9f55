"""What was measured against what is forecast: writes cost/compared/residuals.csv.

`python -m benchmarks.residuals` forecasts each row of cost/compared/measured.csv with the preset
that sets.yaml names, and of each long set every other row from a table of the rest (kind `table`).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from math import log
from typing import Any

import numpy as np
import yaml

from torch_scenarios.cost.collectives import CollectiveTimes, Stroke, Timing, together_time
from torch_scenarios.cost.intervals import COMPARED, PART_OF_NODES, SENDRECV, interval
from torch_scenarios.cost.measurements import Table
from torch_scenarios.cost.topology import Topology, topology
from torch_scenarios.model.traffic import Enter

#: rows of a set from which on a table of every other one is asked for the rest
LONG = 16
#: ranks up to which the messages of an all_to_all are counted one by one
MOST_PEERS = 64


def main() -> None:
    """Write the file."""
    (COMPARED / "residuals.csv").write_text(text(), encoding="utf-8")


def text() -> str:
    """Return the file as it should be."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["kind", "collective", "nodes", "bytes", "log_ratio", "set"])
    writer.writerows(_rows())
    return file.getvalue()


def _rows() -> Iterator[tuple[str, str, int, int, str, str]]:
    sets = yaml.safe_load((COMPARED / "sets.yaml").read_text(encoding="utf-8"))
    tables: dict[tuple[str, str, int], list[tuple[float, float]]] = {}
    with (COMPARED / "measured.csv").open(encoding="utf-8", newline="") as measured:
        for row in csv.DictReader(measured):
            name, collective = row["set"], row["collective"]
            ranks, nodes, size = (int(row[key]) for key in ("ranks", "nodes", "bytes"))
            time = float(row["us"])
            tables.setdefault((name, collective, nodes), []).append((float(size), time))
            if collective == "all_to_all" and ranks > MOST_PEERS:
                continue
            machine = topology(sets[name]["preset"])
            members = members_of(sets[name], machine, ranks, nodes)
            forced = sets[name].get("algorithm")
            times = CollectiveTimes(machine, members[-1] + 1, algorithm=forced)
            found = time_call(times, collective, size, members).time
            if not sets[name].get("waited"):
                found = max(found, times.launch)  # calls in a row
            text = f"{log(time / found):.4f}"
            kind = PART_OF_NODES if "of_each_node" in sets[name] else machine.kind
            yield kind, collective, nodes, size, text, project_of(sets[name])
    for (name, collective, nodes), rows in tables.items():
        if len(rows) < LONG:
            continue
        table = Table.of(rows[::2], "every other row")
        for wide, time in rows[1:-1:2]:
            ratio = f"{log(time / float(np.asarray(table.at(wide)))):.4f}"
            yield "table", collective, nodes, int(wide), ratio, project_of(sets[name])


def members_of(about: dict[str, Any], machine: Topology, ranks: int, nodes: int) -> tuple[int, ...]:
    """Return the members of a set's group: all ranks, or as many of each node as it says."""
    every = machine.node_ranks if "of_each_node" in about else None
    if every is None:
        return tuple(range(ranks))
    return tuple(node * every + at for node in range(nodes) for at in range(about["of_each_node"]))


def call_of(collective: str, size: float, members: tuple[int, ...]) -> Enter:
    """Return a call of a collective, by nccl-tests' name of it."""
    called = {"all_to_all": "all_to_all_single"}.get(collective, collective)
    return Enter(0, None, 0.0, called, "", float(size), members)


def time_call(
    times: CollectiveTimes, collective: str, size: float, members: tuple[int, ...]
) -> Timing:
    """Return what one of nccl-tests' programs is forecast to take."""
    if collective != SENDRECV:
        return times.of(call_of(collective, size, members))
    ranks, machine = np.array(members), times.topology
    nodes = machine.node_count(ranks, times.world_size)
    ring = [Stroke(ranks, np.roll(ranks, -1), size)]
    time = together_time(times.messages, ring, len(ranks) if nodes == 1 else 0)
    is_whole = machine.fills_its_nodes(ranks, times.world_size)
    kind = machine.kind if is_whole else PART_OF_NODES
    found = interval(kind, SENDRECV, nodes, size)
    return Timing(time, "nccl messages", "one batch", found)


def project_of(text: dict[str, str]) -> str:
    """Return who published a set: what one project measured errs together."""
    return text["source"].partition(",")[0].partition(" ")[0]


if __name__ == "__main__":
    main()
