"""(Scenario, Trace) -> Timeline: a run as a picture needs it.

A timeline is plain data: lanes, spans, which calls matched, which rank waits for which, what every
tensor held. The HTML report, the Chrome trace and `scenario show` draw from it and from nothing
else. It knows no torch and no NumPy types, and can be written to JSON and read back.
"""

from __future__ import annotations

from torch_scenarios.timeline.build import ends_of, timeline
from torch_scenarios.timeline.codec import (
    VERSION,
    TimelineError,
    from_json,
    pack,
    to_json,
    unpack,
)
from torch_scenarios.timeline.model import (
    STUCK,
    At,
    DrawnDiagnosis,
    Edge,
    Kind,
    Lane,
    Match,
    StepSpan,
    Timeline,
)

__all__ = [
    "STUCK",
    "VERSION",
    "At",
    "DrawnDiagnosis",
    "Edge",
    "Kind",
    "Lane",
    "Match",
    "StepSpan",
    "Timeline",
    "TimelineError",
    "ends_of",
    "from_json",
    "pack",
    "timeline",
    "to_json",
    "unpack",
]
