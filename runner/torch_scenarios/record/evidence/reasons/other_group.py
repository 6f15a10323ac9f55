"""Ranks that pass groups of different kinds in one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import Reason, short
from torch_scenarios.record.evidence.divergence import Parting, origin_of
from torch_scenarios.record.format import (
    Blocking,
    RankRecord,
)
from torch_scenarios.verdict.finding import ranks_text


def find_other_group(
    parting: Parting, records: Mapping[int, RankRecord], folder: str
) -> Reason | None:
    """Return that ranks pass groups of different lines in one and the same line."""
    alike: dict[str, list[int]] = {}
    members: dict[int, str] = {}
    for rank, call in sorted(parting.calls.items()):
        if isinstance(call, Blocking):
            return None
        origin = origin_of(records[rank], call)
        members[rank] = _list_ranks(call.group)
        made = "the world" if origin is None else f"a group made at {short(origin.frames, folder)}"
        name = "" if origin is None else origin.variable
        alike.setdefault(f"{made} (`{name}`)" if name else made, []).append(rank)
    if len(alike) < 2:
        return None
    place = short(next(iter(parting.calls.values())).place.frames, folder)
    words = "; ".join(
        f"{ranks_text(ranks)} {'passes' if len(ranks) == 1 else 'pass'} {made}"
        + (f" of ranks {members[ranks[0]]}" if len(ranks) == 1 else "")
        for made, ranks in sorted(alike.items(), key=lambda each: len(each[1]))
    )
    fix = f"pass the same group, by its role, on every rank at {place}."
    return Clause(f"the ranks pass groups of different kinds at {place}: {words}"), fix


def _list_ranks(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:8]))
    return f"{shown}, ..." if len(ranks) > 8 else shown


def tell_groups(parting: Parting, records: Mapping[int, RankRecord], folder: str) -> list[Clause]:
    """Return the groups in which ranks part, each with the line that made it; not the world."""
    made: dict[tuple[int, ...], str] = {}
    for rank, call in sorted(parting.calls.items()):
        if isinstance(call, Blocking) or (origin := origin_of(records[rank], call)) is None:
            continue
        text = f": `{origin.frames[0][2]}`" if origin.frames and origin.frames[0][2] else ""
        words = f"the group of ranks {_list_ranks(call.group)} is made at"
        made.setdefault(call.group, f"{words} {short(origin.frames, folder)}{text}")
    return [Clause(words) for words in made.values()]
