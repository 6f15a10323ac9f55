"""How ranks that never come have left: by an exit, or by their end."""

from __future__ import annotations

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import Parted, Reason
from torch_scenarios.record.format import (
    Blocking,
)
from torch_scenarios.verdict.finding import ranks_text


def find_departure(parted: Parted) -> Reason | None:
    """Return how ranks that never come have left: the line of their exit, or of their end."""
    ended: dict[str, list[int]] = {}
    for rank in parted.parting.missing:
        record = parted.records[rank]
        left = record.left_at.short(parted.folder)
        if left:
            text = record.left_at.frames[0][2]
            ended.setdefault(f"`{text}` ({left})" if text else left, []).append(rank)
            continue
        last = record.items[-1] if record.items else None
        if isinstance(last, Blocking) and last.what.startswith("destroy"):
            where = last.place.short(parted.folder)
            ended.setdefault(f"`{last.what}` ({where})", []).append(rank)
    if not ended:
        return None
    words = "; ".join(
        f"{ranks_text(ranks)} {'has' if len(ranks) == 1 else 'have'} left by {how}"
        for how, ranks in ended.items()
    )
    how = next(iter(ended))
    fix = f"let no rank leave by {how} while others still communicate with it."
    return Clause(words), fix
