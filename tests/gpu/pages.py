"""What was seen, kept: docs/nccl.json, whole, and the part of docs/nccl.md between marks."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch_scenarios.conformance.table import Cell, CellOutcome, list_cells
from torch_scenarios.vocabulary import DTYPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from tests.gpu.passes import Tally
    from tests.gpu.timings import Timing

VERSION = 1
#: torch's own NCCL code over simulated GPUs (tests/simulated): what torch itself refuses is seen
#: there, and nothing of NCCL's
SIMULATED = "nccl_simulated"
BACKENDS = ("gloo", "nccl", SIMULATED)
TITLES = {"gloo": "Gloo", "nccl": "NCCL", SIMULATED: "torch's NCCL code, simulated GPUs"}
NOT_SEEN = {
    "gloo": "not seen.",
    "nccl": "not seen. No machine with a GPU has run the checks yet.",
    SIMULATED: "not run.",
}
NOTHING_OF_NVIDIA = (
    "No GPU and nothing of NVIDIA's ran here: the code under test is torch's and this project's "
    "(tests/simulated/README.md)."
)
#: in a refusal that is NCCL's
NCCL_SAID = "NCCL error in"
#: torch let the call go to NCCL; what came of it there is the simulation's, and not kept
THROUGH = "goes through"
BEGIN, END = "<!-- seen: begin -->", "<!-- seen: end -->"
UNSEEN = "unseen"
LEGEND = (
    "`same` as the reference, `differs` from it, `refuses` the call, `undefined`: the reference "
    "gives it no value. Dtypes that are not named are `same`; in the last column they go through "
    "torch to what is not NCCL."
)


def blank() -> dict[str, Any]:
    """Return the document in which nothing was seen yet."""
    return {
        "version": VERSION,
        "about": "operation x reduce op x dtype on two ranks, against the reference",
        "backends": {name: {"seen": False} for name in BACKENDS},
        "cells": [
            {"operation": c.operation, "op": c.op, "dtype": c.dtype}
            | dict.fromkeys(BACKENDS, UNSEEN)
            for cells in list_cells().values()
            for c in cells
        ],
    }


def read(path: Path) -> dict[str, Any]:
    """Return the document as it is, or a blank one where there is none."""
    if not path.exists():
        return blank()
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    for name in BACKENDS:
        found["backends"].setdefault(name, {"seen": False})
    return found


def of_torch_alone(cells: Mapping[Cell, CellOutcome]) -> dict[Cell, CellOutcome]:
    """Return what torch itself made of cells that were run on simulated GPUs."""
    return {
        cell: seen
        if seen.outcome == "refuses" and NCCL_SAID not in seen.words
        else CellOutcome(outcome=THROUGH)
        for cell, seen in cells.items()
        if seen.outcome in {"same", "differs", "undefined", "refuses"}
    }


@dataclass(slots=True, kw_only=True)
class Findings:
    """What the checks saw of one backend; what is empty was not looked at this time."""

    cells: dict[Cell, CellOutcome] = field(default_factory=dict)
    timings: list[Timing] = field(default_factory=list)
    tallies: list[Tally] = field(default_factory=list)


def noted(
    document: Mapping[str, Any],
    backend: str,
    machine: Mapping[str, str],
    found: Findings,
    *,
    shared: bool,
) -> dict[str, Any]:
    """Return the document with what was seen of one backend.

    It keeps what it had of the others, and of this one what was not looked at this time.
    """
    before = document["backends"][backend]
    about = {"corpus": {}, "red": [], "timings": {}, **before, "seen": True}
    if not before["seen"] or found.tallies or found.timings:
        about |= {"machine": dict(machine), "shared": shared}
    if found.tallies:
        about["corpus"] = {tally.name: _counted(tally) for tally in found.tallies}
        about["red"] = [case.name for tally in found.tallies for case in tally.red]
    if found.timings:
        about["timings"] = {timing.what: timing.value for timing in found.timings}
    return {
        **document,
        "backends": {**document["backends"], backend: about},
        "cells": [_with(entry, backend, found.cells) for entry in document["cells"]],
    }


def _counted(tally: Tally) -> dict[str, int]:
    return {**dict(sorted(tally.counts.items())), "not run": tally.left}


def _with(entry: dict[str, Any], backend: str, cells: Mapping[Cell, CellOutcome]) -> dict[str, Any]:
    cell = Cell(operation=entry["operation"], op=entry["op"], dtype=entry["dtype"])
    seen = cells.get(cell)
    if seen is None:
        return entry
    # a refusal's words differ by version; its kind does not
    said = seen.words.partition(":")[0] if seen.outcome == "refuses" else seen.words
    words = {**entry.get("words", {}), backend: said}
    told = {name: text for name, text in words.items() if text}
    without = {key: value for key, value in entry.items() if key != "words"}
    return {**without, backend: seen.outcome, **({"words": told} if told else {})}


def text(document: Mapping[str, Any]) -> str:
    """Return the document as JSON with one cell a line, so that a difference can be read."""
    head = json.dumps({k: v for k, v in document.items() if k != "cells"}, indent=2)
    cells = ",\n    ".join(json.dumps(entry) for entry in document["cells"])
    return f'{head[:-2]},\n  "cells": [\n    {cells}\n  ]\n}}\n'


# ---------------------------------------------------------------------------- the page


def put(page: str, document: Mapping[str, Any]) -> str:
    """Return a page with what was seen between its marks. Raises ValueError where it has none."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        message = f"the page has no {BEGIN} ... {END}"
        raise ValueError(message)
    return f"{before}{BEGIN}\n\n{section(document)}\n{END}{after}"


def section(document: Mapping[str, Any]) -> str:
    """Return what was seen, as Markdown: the machines, the corpus, the table, the figures."""
    lines = [
        "This part is written by `python -m tests.gpu`; docs/nccl.json has every cell.",
        "",
    ]
    for name in BACKENDS:
        lines += [*_machine(name, document["backends"][name]), ""]
    lines += [
        f"| operation | reduce op | {' | '.join(TITLES[name] for name in BACKENDS)} |",
        "|---|---|" + "---|" * len(BACKENDS),
        *_rows(document["cells"]),
        "",
        LEGEND,
    ]
    return "\n".join(lines) + "\n"


def _machine(name: str, about: Mapping[str, Any]) -> list[str]:
    if not about["seen"]:
        return [f"**{TITLES[name]}**: {NOT_SEEN[name]}"]
    machine = ", ".join(f"{key} {value}" for key, value in about["machine"].items())
    shared = "; ranks shared GPUs, so that its times mean nothing" if about["shared"] else ""
    lines = [f"**{TITLES[name]}**: {machine}{shared}.", ""]
    if name == SIMULATED:
        lines += [NOTHING_OF_NVIDIA, ""]
    for what, counts in about["corpus"].items():
        told = ", ".join(f"{count} {status.lower()}" for status, count in counts.items() if count)
        lines.append(f"* {what}: {told}")
    if name != SIMULATED:  # there it may be the simulation that is wrong
        lines += [f"* RED: `{case}`" for case in about["red"]]
    if name == "nccl":  # what is promised is promised of a GPU
        lines += [f"* {what}: {value}" for what, value in about["timings"].items()]
    return lines


def _rows(cells: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a row for each reduce op; operations that come to the same everywhere share one."""
    by_call: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = {}
    for entry in cells:
        by_call.setdefault((entry["op"], entry["operation"]), {})[entry["dtype"]] = entry
    alike: dict[tuple[str, ...], list[str]] = {}
    for (op, operation), row in by_call.items():
        told = (op, *(_summary(row, backend) for backend in BACKENDS))
        alike.setdefault(told, []).append(operation)
    return [
        f"| {', '.join(operations)} | {' | '.join(told)} |" for told, operations in alike.items()
    ]


def _summary(row: Mapping[str, Mapping[str, Any]], backend: str) -> str:
    """Return the dtypes of a row by what came of them: `refuses int16`; alike ones as `all`."""
    outcomes: dict[str, list[str]] = {}
    for dtype in DTYPES:
        if dtype in row:
            outcomes.setdefault(row[dtype].get(backend, UNSEEN), []).append(dtype)
    if len(outcomes) == 1:
        return next(iter(outcomes))
    return "; ".join(
        f"{outcome} {' '.join(dtypes)}"
        for outcome, dtypes in outcomes.items()
        if outcome not in {"same", THROUGH}
    )
