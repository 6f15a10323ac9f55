"""Which ranks did not come to a `monitored_barrier`, as the others say it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from torch_scenarios.record.evidence.job_log.log import JobLog, make_finding
from torch_scenarios.verdict import Finding
from torch_scenarios.verdict.finding import ranks_text

SAYS = re.compile(r"Ranks? (\d+(?:, ?\d+)*) failed to pass monitoredBarrier in (\d+) ms")

#: what a rank says that has come to it, and for which the first rank did not
LOST = re.compile(r"reached monitoredBarrier, but received errors .{0,60}from rank (\d+)")


def read(lines: Sequence[str], log: JobLog) -> None:
    """Read who is absent, and for how long the others waited."""
    for line in lines:
        if (barrier := SAYS.search(line)) is not None:
            for absent in barrier[1].split(","):
                log.absent.setdefault(int(absent[:10]), int(barrier[2][:12]) / 1000)
        elif (lost := LOST.search(line)) is not None:
            log.absent.setdefault(int(lost[1][:10]), 0.0)


def find(log: JobLog) -> Iterator[Finding]:
    """Yield which ranks did not come to a monitored barrier."""
    if not log.absent:
        return
    ranks, seconds = sorted(log.absent), max(log.absent.values())
    words = f"{ranks_text(ranks)} did not come to `monitored_barrier` within {seconds:.4g} s"
    if not seconds:
        words = f"{ranks_text(ranks)} did not come to `monitored_barrier` in time, or ended before"
    fix = (
        f"look at {ranks_text(ranks)}: still at work, in another call, or gone; `scenario hang` on "
        "the machine shows where."
    )
    yield make_finding("missing_participant", words, ranks, fix=fix)
