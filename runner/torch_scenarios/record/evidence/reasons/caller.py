"""The line under which some ranks communicate, and others do not."""

from __future__ import annotations

import re

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import Parted, Reason, short
from torch_scenarios.verdict.finding import ranks_text

#: a line that logs
_LOGS = re.compile(r"\b(?:log|logger|logging|_log|_logger)\w*\.(?:debug|info|warning|log)\(")


def find_caller(parted: Parted) -> Reason | None:
    """Return the line under which some ranks communicate and others, who pass it too, do not."""
    sides = [(ranks, frames) for ranks, frames in parted.parting.sides if len(frames) > 1]
    for ranks, frames in sides:
        others = [each for _, each in parted.parting.sides if each != frames]
        known = {(file, line) for other in others for file, line, _ in other}
        file, line, text = next((each for each in frames[::-1] if each[:2] not in known), frames[0])
        if (file, line, text) == frames[0] or not others:
            continue
        place = short(((file, line, ""),), parted.folder)
        verb = "communicates" if len(ranks) == 1 else "communicate"
        words = f"{ranks_text(ranks)} alone {verb} under `{text.strip()}` ({place})"
        if _LOGS.search(text):
            words += ": a logger formats its arguments where its level lets the message through"
            fix = f"take the value on every rank before {place}, and log that."
        else:
            fix = f"let every rank of the group make the calls under {place}, or none."
        return Clause(words), fix
    return None
