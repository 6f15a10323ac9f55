"""A strategy as the analysis has it: its scenario and lanes, who holds which shard, its calls."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from writing import table, yaml_block

from torch_scenarios.cli.starts import starter
from torch_scenarios.language import load
from torch_scenarios.limits import DEFAULT
from torch_scenarios.model.groups import plan
from torch_scenarios.reference import simulate
from torch_scenarios.report.diagram.lanes import picture
from torch_scenarios.report.diagram.layout import PictureView
from torch_scenarios.report.lowered import lower
from torch_scenarios.timeline import timeline

if TYPE_CHECKING:
    from torch_scenarios.model.scenario import Scenario
    from torch_scenarios.model.trace import Trace

#: how wide a picture may be, in columns
WIDTH = 100


def strategy(name: str) -> str:
    """Return what a page says of a strategy."""
    text = starter(name, f"{name}.yaml")
    scenario = _case(text)
    trace = simulate(plan(scenario))
    return "\n\n".join(
        (
            f"`scenario new {name} --strategy {name}` writes this:",
            yaml_block(text),
            "Its calls, one lane per rank, are those of `scenario show --lowered`:",
            f"```text\n{_lanes(scenario)}\n```",
            "What each rank holds of each parameter:",
            _shards(scenario, trace),
            "What it says in one step, by group, and what it keeps, in bytes at rest:",
            _calls(trace),
            _memory(trace),
        )
    )


def _case(text: str) -> Scenario:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "strategy.yaml"
        path.write_text(text, encoding="utf-8")
        return load(path)[0]


def _lanes(scenario: Scenario) -> str:
    """Return the picture of the first step, each of its calls a row."""
    once = _case(scenario.source.text.replace("range(2)", "range(1)").partition("\n# the calls")[0])
    case = _case(str(lower(once, DEFAULT)))
    trace = simulate(plan(case))
    view = PictureView(width=WIDTH, values=False, ranks=None, steps=None)
    lines = picture(timeline(case, trace, trace), view)
    texts = ["".join(piece.text for piece in line).rstrip() for line in lines]
    return "\n".join(texts[1:]).strip("\n")


def _shards(scenario: Scenario, trace: Trace) -> str:
    (model,) = scenario.models.values()
    ranks = range(scenario.world_size)
    held = [trace.ranks[rank].events[-1].writes for rank in ranks]
    rows = []
    for name in model.parameters:
        values: list[Any] = [writes.get(f"{model.name}.{name}") for writes in held]
        shapes = ["" if v is None else f"`{list(v.shape)}`" for v in values]
        rows.append((f"`{name}`", *shapes))
    return table(("parameter", *(f"rank {rank}" for rank in ranks)), rows)


def _calls(trace: Trace) -> str:
    """Return the calls of rank 0's last step, equal ones that follow each other counted."""
    rows: list[tuple[str, ...]] = []
    counts: list[int] = []
    for each in trace.ranks[0].events[-1].said or ():
        row = (f"`{each.call}`", f"`{each.dtype}`", str(each.numel), f"`{each.group}`")
        if rows and rows[-1] == row:
            counts[-1] += 1
        else:
            rows.append(row)
            counts.append(1)
    head = ("call", "dtype", "elements", "group", "times")
    return table(head, [(*row, str(count)) for row, count in zip(rows, counts, strict=True)])


def _memory(trace: Trace) -> str:
    rows: list[tuple[Any, ...]] = []
    for rank, each in enumerate(trace.ranks):
        kept = next(v for name, v in each.events[-1].writes.items() if name.endswith(".memory"))
        rows.append((f"rank {rank}", *(str(int(part)) for part in kept)))
    return table(("", "parameters", "gradients", "optimizer"), rows)
