"""Every case of a run as one Chrome trace, which Perfetto opens."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TextIO

from msgspec import Struct

from torch_scenarios.display import clean_json
from torch_scenarios.pipeline.results import Outcome, Result
from torch_scenarios.report.output import timeline
from torch_scenarios.timeline import At, Lane, Match, StepSpan, Timeline

# Timeline -> events of the Chrome trace format, which Perfetto and `chrome://tracing` open.
#
# A timeline is a process, a rank a thread, a step a slice. Within a step that waited lies a second
# slice that names the ranks it waits for. Arrows (*flows*) go from a send to the step in which its
# receive was complete, and through the members of a collective in the order in which they came.
# Where steps are issued to a device and complete there later, the device is a second thread of the
# rank. What a verdict says is an instant event at the beginning of its process.
#
# An observed run has its own times, in microseconds since the scenario began on that rank. A
# prediction knows an order and no times: each logical column is drawn a millisecond wide, and a
# step lasts from where the rank came to it until its column ends.

Event = dict[str, Any]

#: a logical column of a prediction, in microseconds
COLUMN_US = 1000

#: no slice is shorter: an arrow could not hold on to it
LEAST_US = 1

#: an arrow ends this long before its slice does, in microseconds
_BEFORE_END_US = 0.5

#: a name of the format's own palette, where a viewer follows it
_STUCK_COLOUR = "terrible"


class _Slice(Struct, frozen=True, kw_only=True):
    """When a step began and ended, in microseconds."""

    start: float
    end: float


class Numbers:
    """Hands out the numbers of processes, threads and flows, each once in a file.

    >>> numbers = Numbers()
    >>> numbers.next("pid"), numbers.next("pid"), numbers.next("tid")
    (1, 2, 1)
    """

    def __init__(self) -> None:
        """Begin at 1: viewers keep 0 for the idle process."""
        self._last = {"pid": 0, "tid": 0, "id": 0}

    def next(self, kind: str) -> int:
        """Return a number that was not given before."""
        self._last[kind] += 1
        return self._last[kind]


def tell_findings(
    title: str, findings: Sequence[str], numbers: Numbers, pid: int
) -> Iterator[Event]:
    """Yield the title of a process, and what was found out about it as instant events."""
    yield _name("process_name", pid, {"name": title})
    yield _name("process_sort_index", pid, {"sort_index": pid})
    if findings:
        tid = numbers.next("tid")
        yield {**_name("thread_name", pid, {"name": "verdict"}), "tid": tid}
        yield {**_name("thread_sort_index", pid, {"sort_index": -1}), "tid": tid}
    for finding in findings:
        name, _, rest = finding.partition("\n")
        args = {"text": rest} if rest else {}
        event = {"name": name, "cat": "verdict", "ph": "i", "s": "p", "ts": 0, "pid": pid}
        yield {**event, "tid": tid, "args": args}


def events_of(timeline: Timeline, numbers: Numbers, pid: int) -> Iterator[Event]:
    """Yield the events of one timeline, each slice before what binds to it."""
    tids = [numbers.next("tid") for _ in timeline.lanes]
    slices = _slices(timeline)
    yield from _lanes(timeline, pid, tids)
    waits = _waits(timeline, slices)
    for number, (lane, tid) in enumerate(zip(timeline.lanes, tids, strict=True)):
        for position, span in enumerate(lane.spans):
            yield _complete(span, slices[number, position], {"pid": pid, "tid": tid})
    for match in timeline.matches:
        yield from _flow(match, slices, numbers, pid, tids)
    for at, (name, end) in sorted(waits.items()):
        start = slices[at].start
        where = {"pid": pid, "tid": tids[at[0]]}
        yield {"name": name, "cat": "wait", "ph": "X", "ts": start, "dur": end - start, **where}
    for lane in timeline.lanes:
        yield from _device(lane, numbers, pid)


def _device(lane: Lane, numbers: Numbers, pid: int) -> Iterator[Event]:
    """Yield the steps of a rank as its device completed them, one after the other."""
    completed = [(span, span.complete_s) for span in lane.spans if span.complete_s is not None]
    if not completed:
        return
    tid, now = numbers.next("tid"), 0.0
    yield {**_name("thread_name", pid, {"name": f"rank {lane.rank}, device"}), "tid": tid}
    yield {**_name("thread_sort_index", pid, {"sort_index": 2 * lane.rank + 1}), "tid": tid}
    for span, complete_s in completed:
        start = max(now, round(span.start_s * 1e6))
        now = max(start + LEAST_US, round(complete_s * 1e6))
        where = {"ts": start, "dur": now - start, "pid": pid, "tid": tid}
        yield {"name": span.label, "cat": "device", "ph": "X", **where}


def _lanes(timeline: Timeline, pid: int, tids: list[int]) -> Iterator[Event]:
    for lane, tid in zip(timeline.lanes, tids, strict=True):
        where = f" on {lane.host}" if lane.host else ""
        yield {**_name("thread_name", pid, {"name": f"rank {lane.rank}{where}"}), "tid": tid}
        yield {**_name("thread_sort_index", pid, {"sort_index": 2 * lane.rank}), "tid": tid}


def _name(name: str, pid: int, args: dict[str, Any]) -> Event:
    return {"name": name, "ph": "M", "pid": pid, "args": args}


def _slices(timeline: Timeline) -> dict[At, _Slice]:
    """Return when each span was; on a lane they follow one another."""
    predicted = timeline.witness == "predicted"
    last = max((_end(span) for lane in timeline.lanes for span in lane.spans), default=0.0)
    last = max(last, timeline.duration_s) * 1e6
    slices: dict[At, _Slice] = {}
    for number, lane in enumerate(timeline.lanes):
        now = 0.0
        for position, span in enumerate(lane.spans):
            column = timeline.columns if span.stuck else span.column + 1
            start, end = now, float(column * COLUMN_US)
            if not predicted:
                start = max(now, round(span.start_s * 1e6))
                end = last if span.end_s is None else round(span.end_s * 1e6)
            end = max(end, start + LEAST_US)
            slices[number, position] = _Slice(start=start, end=end)
            now = end
    return slices


def _end(span: StepSpan) -> float:
    return span.start_s if span.end_s is None else span.end_s


def _complete(span: StepSpan, when: _Slice, where: dict[str, int]) -> Event:
    args: dict[str, Any] = {"state": span.state}
    given = {"line": span.place, "iteration": list(span.iteration), "raised": span.raised}
    args |= {name: value for name, value in given.items() if value}
    args |= {f"after {name}": value for name, value in span.values.items()}
    event: Event = {
        "name": span.label,
        "cat": span.kind,
        "ph": "X",
        "ts": when.start,
        "dur": when.end - when.start,
        **where,
        "args": args,
    }
    return {**event, "cname": _STUCK_COLOUR} if span.stuck else event


def _waits(timeline: Timeline, slices: dict[At, _Slice]) -> dict[At, tuple[str, float]]:
    """Return, by span, the ranks that a rank waited for there, and until when."""
    found: dict[At, tuple[str, float]] = {}
    for match in timeline.matches:
        starts = {at: slices[at].start for at in match.spans}
        late = max(starts, key=starts.__getitem__)
        for at in match.completed:
            end = min(starts[late], slices[at].end - LEAST_US)
            if at[0] != late[0] and end > slices[at].start and end > found.get(at, ("", 0.0))[1]:
                found[at] = (f"waits for rank {timeline.lanes[late[0]].rank}", end)
    for number, lane in enumerate(timeline.lanes):
        edges = [edge for edge in timeline.edges if edge.waiter == lane.rank]
        if edges and lane.spans and lane.spans[-1].stuck:
            at = (number, len(lane.spans) - 1)
            peers = ", ".join(str(edge.peer) for edge in edges)
            word = "rank" if len(edges) == 1 else "ranks"
            found[at] = (f"waits for {word} {peers} {edges[0].because}", slices[at].end)
    return found


def _flow(
    match: Match, slices: dict[At, _Slice], numbers: Numbers, pid: int, tids: list[int]
) -> Iterator[Event]:
    """Yield the start, the steps and the end of a flow; none where only one came."""
    points = _points(match, slices)
    if len(points) <= 1:
        return
    common = {"name": match.label, "cat": match.kind, "id": numbers.next("id"), "pid": pid}
    last = len(points) - 1
    for number, ((lane, _), when) in enumerate(points):
        event: Event = {**common, "ph": "t", "ts": when, "tid": tids[lane]}
        if number == 0:
            event["ph"] = "s"
        elif number == last:
            event |= {"ph": "f", "bp": "e"}
        yield event


def _points(match: Match, slices: dict[At, _Slice]) -> list[tuple[At, float]]:
    """Return where a flow passes, and when: never backwards in time."""
    if match.kind != "message":
        return sorted(((at, slices[at].start) for at in match.spans), key=lambda point: point[1])
    if not match.complete:
        return []
    sent, received = match.spans[0], match.completed[1]
    start, end = slices[sent].start, slices[received].end - _BEFORE_END_US
    # the clocks of two ranks may differ by more than a short message lasts
    return [(sent, start), (received, end)] if start <= end else []


# `--trace FILE`: every case of a run as one Chrome trace; https://ui.perfetto.dev opens it.
#
# The format is the *Trace Event Format* of Chromium's catapult project, in its object form.


class TraceReport:
    """Writes the events of each case as it comes; nothing of it is kept.

    A case is a process of the trace and a rank a thread of it; a message is a flow, which Perfetto
    draws as an arrow from lane to lane.
    """

    def __init__(self, file: TextIO) -> None:
        """Take the open file to write to."""
        self._file = file
        self._numbers = Numbers()
        self._written = 0

    def begin(self, total: int) -> None:
        """Hear it in silence."""

    def start(self, case: str) -> None:
        """Hear it in silence."""

    def finish(self, result: Result) -> None:
        """Write what was predicted and what was observed, one process each; or why nothing."""
        verdict = result.verdict
        name = f"{verdict.status} {result.file}"
        if result.scenario is not None:
            name += f"::{result.case}"
        found = _findings(result)
        named = {"predicted": verdict.predicted, "observed": verdict.observed}
        traces = {witness: trace for witness, trace in named.items() if trace is not None}
        if result.scenario is None or not traces:
            self._write_all(tell_findings(name, found, self._numbers, self._numbers.next("pid")))
            return
        for witness, trace in traces.items():
            pid = self._numbers.next("pid")
            how = "logical time" if witness == "predicted" else trace.backend
            title = f"{name} ({witness}, {how}): {trace.outcome}"
            self._write_all(tell_findings(title, found, self._numbers, pid))
            drawn = timeline(result.scenario, trace, verdict.predicted)
            self._write_all(events_of(drawn, self._numbers, pid))

    def end(self, outcome: Outcome) -> None:
        """Close the list."""
        del outcome
        self._file.write('\n],"displayTimeUnit":"ms"}\n' if self._written else _EMPTY)

    def _write_all(self, events: Iterable[Event]) -> None:
        text = clean_json(_encoded(list(events)))[
            1:-1
        ]  # at once: far faster than one after the other
        if text:
            self._write(text)

    def _write(self, line: str) -> None:
        self._file.write(",\n" if self._written else '{"traceEvents":[\n')
        self._file.write(line)
        self._written += 1


def _findings(result: Result) -> list[str]:
    """Return what speaks against a case: a headline each, the details on the lines below it."""
    verdict = result.verdict
    found = ["\n".join([each.summary, *each.because]) for each in verdict.findings]
    found += [f"{each.message} [{each.code}]\n{each}" for each in verdict.problems]
    return found + ([verdict.reason] if verdict.reason else [])


#: made once: `json.dumps` makes an encoder for each call that is not as by default
_encoded = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode

_EMPTY = '{"traceEvents":[],"displayTimeUnit":"ms"}\n'
