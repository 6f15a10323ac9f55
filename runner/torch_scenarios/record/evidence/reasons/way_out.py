"""A `return`, `break` or `continue` that some ranks take and others do not."""

from __future__ import annotations

from collections.abc import Mapping

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import Parted, Reason, Tally, list_values, times
from torch_scenarios.record.evidence.script import script_at
from torch_scenarios.record.format import (
    Decision,
)
from torch_scenarios.verdict.finding import ranks_text


def find_way_out(
    parted: Parted,
    tallies: Mapping[Decision, Mapping[int, Tally]],
    loop: tuple[str, int, int] | None,
) -> Reason | None:
    """Return the first `if` that leads some ranks out of their block, and others not.

    `loop` is a file with its first and last line: what lies outside of it does not count.
    """
    files = {file for _, frames in parted.sides for file, _, _ in frames}
    for decision, own in tallies.items():
        source = script_at(decision.file)
        if decision.kind != "if" or source is None:
            continue
        if loop is not None and not (
            decision.file == loop[0] and loop[1] <= decision.line <= loop[2]
        ):
            continue
        if loop is None and files and decision.file not in files:
            continue
        if loop is None and not parted.leads_on(decision):
            continue
        jump = source.jump_under(decision.line)
        if jump is None:
            continue
        name, word, line = jump
        counts = {rank: (each.yes if name == "body" else each.no) for rank, each in own.items()}
        most = max(counts.values())
        ranks = [rank for rank, count in counts.items() if count == most]
        if min(counts.values()) == most:
            continue
        verb = "takes" if len(ranks) == 1 else "take"
        place = parted.place(decision)
        at = f":{line}" if line != decision.line else ""
        words = (
            f"{ranks_text(ranks)} alone {verb} the `{word}`{at} under `{decision.text}` ({place})"
        )
        if most > 1 or min(counts.values()):
            words += f", {times(most)} ({_others(counts, most)})"
        values = list_values(decision, {rank: own[rank] for rank in ranks})
        fix = (
            f"take the way out at {place} on all ranks or on none: agree on its condition first "
            "(an `all_reduce` of a flag)."
        )
        return Clause(words + (f", where {values}" if values else "")), fix
    return None


def _others(counts: Mapping[int, int], most: int) -> str:
    alike: dict[int, list[int]] = {}
    for rank, count in counts.items():
        if count != most:
            alike.setdefault(count, []).append(rank)
    return ", ".join(f"{ranks_text(ranks)} {times(count)}" for count, ranks in alike.items())
