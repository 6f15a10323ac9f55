"""Trace -> structure: rounds, messages and bytes, in words and JSON; or why there is none."""

from __future__ import annotations

from math import isnan
from typing import Any

from torch_scenarios.model.trace import Trace
from torch_scenarios.model.traffic import Structure

#: why no number of bytes is told
UNKNOWN = (
    "objects are sent whose pickles may have more bytes or fewer: what occurs twice in one of them "
    "is written once where it is the same in memory"
)


class CostRefusedError(Exception):
    """The program has no cost: it is wrong, or does not complete."""


def structure_of(trace: Trace) -> Structure:
    """Return what a program costs, by its predicted trace. Raises CostRefusedError."""
    wrong = [each for each in trace.diagnoses if not each.optional]
    if wrong:
        first = wrong[0]
        names = ", ".join(dict.fromkeys(each.name for each in wrong))
        message = f"a program with {names} has no cost\n{first.prose}"
        raise CostRefusedError(message)
    if trace.outcome != "completes" or trace.traffic is None:
        message = f"a program that ends in {trace.outcome} has no cost"
        raise CostRefusedError(message)
    return trace.traffic.structure


def structure_json(structure: Structure) -> dict[str, Any]:
    """Return the structure of one case as JSON holds it; bytes by rank."""
    return {
        "rounds": structure.rounds,
        "messages": structure.messages,
        "sent": {
            str(rank): None if isnan(sent) else sent for rank, sent in enumerate(structure.sent)
        },
        "modelled": structure.modelled,
        "collectives": list(structure.collectives),
    }


def structure_phrases(structure: Structure) -> list[str]:
    """Return the structure of one case in a few words each."""
    counted = []
    if structure.rounds is not None and structure.messages is not None:
        counted = [
            f"{structure.rounds} round{'' if structure.rounds == 1 else 's'}",
            f"{structure.messages} message{'' if structure.messages == 1 else 's'}",
        ]
    if any(map(isnan, structure.sent)):
        return [*counted, f"bytes unknown: {UNKNOWN}"]
    most = max(structure.sent)
    whose = "by each rank" if most == min(structure.sent) else "at most by a rank"
    origin = " (collectives by the ring's volume)" if structure.modelled else ""
    return [*counted, f"{amount(most)} sent {whose}{origin}"]


def structure_lines(structure: Structure) -> list[str]:
    """Return the structure of one case in lines for a terminal."""
    lines = []
    if structure.rounds is not None and structure.messages is not None:
        chain = "the longest chain of messages"
        lines.append(f"rounds    {structure.rounds}  ({chain})")
        lines.append(f"messages  {structure.messages}")
    else:
        named = ", ".join(structure.collectives)
        one = "is one call" if len(structure.collectives) == 1 else "are one call each"
        lines.append(f"rounds, messages  left to the backend: {named} {one}")
    if any(map(isnan, structure.sent)):
        return [*lines, f"sent      unknown: {UNKNOWN}"]
    most, least = max(structure.sent), min(structure.sent)
    busiest = structure.sent.index(most)
    origin = "  (collectives by the ring's volume: modelled)" if structure.modelled else ""
    if most == least:
        lines.append(f"sent      {amount(most)} by each rank{origin}")
    else:
        lines.append(
            f"sent      {amount(most)} at most (rank {busiest}), {amount(least)} at least{origin}"
        )
    return lines


def amount(size: float) -> str:
    """Return bytes as people read them: exact below 10 KiB, in units of 1024 beyond."""
    if size < 10 * 1024:
        return f"{size:.12g} bytes"
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        size /= 1024
        if size < 1024 or unit == "TiB":
            return f"{size:.4g} {unit}"
    return ""
