"""How often each rank has come to a line, where that differs: how far apart ranks are."""

from __future__ import annotations

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import Parted, list_times, short
from torch_scenarios.record.evidence.divergence import Frames
from torch_scenarios.record.evidence.reasons.loop import count_passes
from torch_scenarios.record.format import RecordedCall

#: passes from which on a line is one of a loop; lines that are told; calls that are counted
FEWEST, MOST_LINES, MOST_CALLS = 3, 2, 10_000


def tell_progress(parted: Parted) -> list[Clause]:
    """Return how often ranks have come to lines of a loop, those that differ most often done."""
    calls = [
        item
        for rank in parted.ranks
        for item in parted.records[rank].items
        if isinstance(item, RecordedCall) and item.place.frames
    ]
    if len(calls) > MOST_CALLS:
        return []
    places = dict.fromkeys((each.place.frames, each.maker, each.operation) for each in calls)
    found: dict[tuple[Frames, str], dict[int, int]] = {}
    for frames, maker, operation in places:
        counts = {
            rank: count_passes(parted.records[rank], frames, maker, None) for rank in parted.ranks
        }
        if len(set(counts.values())) > 1 and max(counts.values()) >= FEWEST:
            found.setdefault((frames, "backward" if maker == "bw" else operation), counts)
    ordered = sorted(found.items(), key=lambda each: -max(each[1].values()))[:MOST_LINES]
    words = [
        f"{what} at {short(frames, parted.folder)}: {list_times(counts)}"
        for (frames, what), counts in ordered
    ]
    is_fake = any(each.about.get("mode") == "fake" for each in parted.records.values())
    when = "in all" if is_fake else "done so far"  # fake ranks go on behind where they part
    return [Clause(f"{when}: {'; '.join(words)}")] if words else []
