"""(Scenario, Trace) -> Timeline: a run as a picture needs it, for whoever draws it.

A timeline is plain data: lanes, spans, who met whom, who waits for whom, what every tensor held.
The HTML report, the Chrome trace and `scenario show` draw from it and from nothing else. It knows
no torch and no NumPy types, and can be written to JSON and read back.
"""

from runner.timeline.model import Edge, Fault, Lane, Meeting, Span, Timeline

__all__ = ["Edge", "Fault", "Lane", "Meeting", "Span", "Timeline"]
