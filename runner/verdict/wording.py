"""How findings name ranks and values."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runner.verdict.finding import Difference

#: differences that are told: with many ranks each may have one of its own
MOST = 3


def prose_of(name: str, found: list[Difference]) -> str:
    """Say on which ranks which difference shows: equal messages once, ranks in order."""
    by_message: dict[str, list[int]] = {}
    for difference in found:
        item = "".join(f"[{position}]" for position in difference.item)
        by_message.setdefault(f"{name}{item} {difference.message}", []).append(difference.rank)
    told = [f"{text} on {ranks_text(ranks)}" for text, ranks in by_message.items()]
    if len(told) > MOST:
        left = {rank for ranks in list(by_message.values())[MOST:] for rank in ranks}
        told = [*told[:MOST], f"and otherwise on {ranks_text(sorted(left))}"]
    return "; ".join(told)


def ranks_text(ranks: list[int] | tuple[int, ...]) -> str:
    """Return `rank 3`, or `ranks 0, 1 and 4`; many are cut."""
    shown = sorted(set(ranks))
    if len(shown) == 1:
        return f"rank {shown[0]}"
    if len(shown) > 8:  # noqa: PLR2004 -- as many as a line holds
        return f"{len(shown)} ranks ({shown[0]}, {shown[1]}, {shown[2]}, ...)"
    return f"ranks {', '.join(map(str, shown[:-1]))} and {shown[-1]}"
