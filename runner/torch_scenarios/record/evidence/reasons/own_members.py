"""Why ranks that create a group in one line pass other members: each of them draws these itself.

``new_group`` is called by all ranks, with the same members::

    torch.manual_seed(seed + rank)         another seed on each rank
    pairs = torch.randperm(world)          so that each has another order
    dist.new_group(pairs[:2].tolist())     and creates another group
"""

from __future__ import annotations

import ast

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import Reason
from torch_scenarios.record.evidence.divergence import Parting
from torch_scenarios.record.evidence.reasons.origin import DRAWS, list_own_seeds
from torch_scenarios.record.evidence.reasons.value_source import trace_value
from torch_scenarios.record.evidence.script import script_at

#: where functions take the members of a group
_MEMBERS = {"new_group": 0, "split_group": 1}


def find_own_members(parting: Parting, folder: str) -> Reason | None:
    """Return the line by which each rank has its own members; None where none is seen."""
    frames = next((at for _, at in parting.sides), ())
    source = script_at(frames[0][0]) if frames else None
    value = (
        source.argument(frames[0][1], {"ranks", "split_ranks"}, _MEMBERS)
        if source is not None
        else None
    )
    if source is None or value is None:
        return None
    for script, at in trace_value(frames, value):
        text, place = script.text(at), script.place(at, folder)
        words = f"the members are `{ast.unparse(value)}`, which come from `{text}` ({place})"
        again = "let every rank call `new_group` for the same groups"
        if DRAWS.search(text):
            seeds = list_own_seeds([script, *script.imported()])
            seeded = "".join(
                f", and {each.quote(line, folder)} gives each of them its own seed"
                for each, line in seeds[:1]
            )
            fix = (
                f"draw it alike on all ranks: at {place} by a generator that all ranks seed with "
                "one number, or on one rank that sends it to all (`broadcast_object_list`); "
                f"{again}."
            )
            return Clause(f"{words}: each rank draws them for itself{seeded}"), fix
    return None
