"""A call that the handler of a signal makes."""

from __future__ import annotations

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import Parted, Reason, short
from torch_scenarios.record.evidence.script import script_at
from torch_scenarios.verdict.finding import ranks_text


def find_handler(parted: Parted) -> Reason | None:
    """Return the function that handles a signal in which some ranks communicate, and others not."""
    inside: dict[tuple[str, int, str], list[int]] = {}
    for ranks, frames in parted.sides:
        for file, line, _ in frames:
            source = script_at(file)
            name, at = source.handler(line) if source is not None else ("", 0)
            if name:
                inside.setdefault((file, at, name), []).extend(ranks)
                break
    for (file, at, name), ranks in inside.items():
        if len(set(ranks)) == len(parted.ranks):
            continue
        place = short(((file, at, ""),), parted.folder)
        verb = "is" if len(ranks) == 1 else "are"
        words = (
            f"{ranks_text(ranks)} alone {verb} in `{name}`, which handles a signal ({place}): it "
            "comes between any two lines, and to each rank by itself"
        )
        fix = (
            f"let `{name}` set a flag alone, and let the ranks agree on it after each step (an "
            "`all_reduce` with `op=max`) before they act on it together."
        )
        return Clause(words), fix
    return None
