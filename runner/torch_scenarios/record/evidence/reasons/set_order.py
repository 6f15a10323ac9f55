"""A loop over a set: each process has an order of its own."""

from __future__ import annotations

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import Parted, Reason
from torch_scenarios.record.evidence.script import script_at


def find_set(parted: Parted) -> Reason | None:
    """Return the set whose order decides which tensors ranks pass in one line."""
    frames = {each for _, at in parted.sides for each in at}
    for decision in parted.tallies(whole=True, alike=True):
        if decision.kind != "set":
            continue
        source = script_at(decision.file)
        span = source.loop(decision.line) if source is not None else None
        inside = span is None or any(
            file == decision.file and span[0] <= line <= span[1] for file, line, _ in frames
        )
        if not inside:
            continue
        place = parted.place(decision)
        words = (
            f"`{decision.text}` ({place}) goes through a set, whose order each process has for "
            "itself: the hashes of strings differ"
        )
        return Clause(words), f"go through `sorted(...)` of it at {place}, or through a list."
    return None
