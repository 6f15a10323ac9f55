"""How many of the steps of held_out_steps.yaml are in the intervals that a plan prints.

`python -m benchmarks.held_out_steps [SET...]` weighs the program of each published way, and prints
tokens a second of each GPU and its memory, measured and reckoned, with what 80 % of such steps take
and an allocator reserves. Nothing reads these rows to forecast.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct
from msgspec.structs import replace

from torch_scenarios.cost.candidates import NOTHING, ZERO_3, Candidate, Decoder
from torch_scenarios.cost.intervals import FITS, TOO_LARGE, memory_interval, tell_fit
from torch_scenarios.cost.topology import topology
from torch_scenarios.pipeline.plan import weigh_candidate

ROWS = Path(__file__).with_suffix(".yaml")
WAYS = ("stages", "parts", "replicas", "shards", "context", "expert", "tensor", "micro", "turns")
HEAD = "| step | measured | reckoned | 80 % | memory | 80 % | verdict | allocated | reckoned |"


class HeldOutStep(Struct, frozen=True, kw_only=True):
    """A step: what was measured, and what the plan says of it; memory in GiB."""

    name: str
    tokens: float | None
    reckoned: float
    between: tuple[float, float]
    memory: float | None
    reserved: tuple[float, float]
    verdict: str
    is_oom: bool
    #: the peak of what torch's tensors held, where it was published, and what is reckoned
    allocated: float | None
    held: float

    @property
    def is_time_inside(self) -> bool | None:
        """Whether the interval has the time; None where none was published."""
        return None if self.tokens is None else _has(self.between, self.tokens)

    @property
    def is_memory_inside(self) -> bool | None:
        """Whether the interval has the memory; None where none was published."""
        return None if self.memory is None else _has(self.reserved, self.memory)

    @property
    def is_fit_right(self) -> bool:
        """Whether a step that was run is not TOO LARGE, and one without room does not fit."""
        return self.verdict != FITS if self.is_oom else self.verdict != TOO_LARGE


def _has(between: tuple[float, float], value: float) -> bool:
    return between[0] <= value <= between[1]


def read_row(
    row: dict[str, Any], models: dict[str, Any], code: dict[str, Any]
) -> tuple[Decoder, Candidate]:
    """Return the model and the way of a row; the model states what its code holds."""
    sizes = {name: row.get(name, 1) for name in WAYS}
    way = Candidate(
        **sizes,
        recompute=row.get("recompute", NOTHING),
        zero=row.get("zero", ZERO_3),
        products=row.get("products", "bfloat16"),
    )
    batch = way.replicas * way.shards // way.context * way.micro * way.turns
    stated = ("sequence", "recomputed_blocks", "recomputed_operations", "kernels", "tensor_overlap")
    changed: dict[str, Any] = {
        name: tuple(row[name]) if isinstance(row[name], list) else row[name]
        for name in stated
        if name in row
    }
    return Decoder(batch=batch, **{**models[row["model"]], **code, **changed}), way


def weigh_row(row: dict[str, Any], models: dict[str, Any], code: dict[str, Any]) -> HeldOutStep:
    """Return what the plan says of a row."""
    model, way = read_row(row, models, code)
    machine = topology(row["machine"])
    machine = replace(machine, node_ranks=row.get("node", machine.node_ranks))
    assert machine.gpu is not None
    with tempfile.TemporaryDirectory() as folder:
        found = weigh_candidate(model, way, machine, machine.gpu, Path(folder))
    own = model.batch * model.sequence / way.ranks
    took, least = found.forecast, model.hold_least().load(way, machine.gpu).held
    allocator, gib = memory_interval(is_planned=True), 2**30
    return HeldOutStep(
        name=f"{row['model']}, {way.name}, {row['machine']}",
        tokens=row.get("tokens"),
        reckoned=own / took.time * 1e6,
        between=(own / took.high * 1e6, own / took.low * 1e6),
        memory=row.get("memory"),
        reserved=(least * allocator.low / gib, found.held * allocator.high / gib),
        verdict=tell_fit(found.held, machine.memory, least, is_planned=True),
        is_oom=row.get("oom", False),
        allocated=row.get("allocated"),
        held=found.held / gib,
    )


def main() -> None:
    """Print a line for each step, and the sums of each set and of all."""
    document = yaml.safe_load(ROWS.read_text(encoding="utf-8"))
    every: list[HeldOutStep] = []
    for name, about in document["sets"].items():
        if len(sys.argv) > 1 and not any(asked in name for asked in sys.argv[1:]):
            continue
        print(f"\n{name}\n{HEAD}", "|---" * 9 + "|", sep="\n")
        own = []
        for row in about["rows"]:
            found = weigh_row(row, document["models"], about.get("code", {}))
            own.append(found)
            print(line(found), flush=True)
        print(told(own))
        every += own
    print(f"all: {told(every)}")


def line(found: HeldOutStep) -> str:
    """Return a step as a line of the table; what is outside is bold."""
    marks = ["**" * (inside is False) for inside in (found.is_time_inside, found.is_memory_inside)]
    measured = "out of memory" if found.is_oom else f"{found.tokens:.0f}"
    memory = "" if found.memory is None else f"{found.memory:.0f} GiB"
    tensors = f"{found.allocated} | {found.held:.1f} GiB"
    allocated = " | " if found.allocated is None else tensors
    verdict = found.verdict if found.is_fit_right else f"**{found.verdict}**"
    return (
        f"| {found.name} | {marks[0]}{measured}{marks[0]} | {found.reckoned:.0f} "
        f"| {found.between[0]:.0f} to {found.between[1]:.0f} | {marks[1]}{memory}{marks[1]} "
        f"| {found.reserved[0]:.0f} to {found.reserved[1]:.0f} GiB | {verdict} "
        f"| {allocated} |"
    )


def told(steps: list[HeldOutStep]) -> str:
    """Return how many of some steps are inside."""
    times, memories = (
        [inside for step in steps if (inside := getattr(step, name)) is not None]
        for name in ("is_time_inside", "is_memory_inside")
    )
    right = sum(step.is_fit_right for step in steps)
    return (
        f"{sum(times)} of {len(times)} times and {sum(memories)} of {len(memories)} memories are "
        f"in their interval, {right} of {len(steps)} verdicts right"
    )


if __name__ == "__main__":
    main()
