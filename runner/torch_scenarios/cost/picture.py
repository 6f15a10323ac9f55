"""Forecasts as a page and as a Chrome trace, and next to one that torch.profiler wrote.

A page has a curve over sizes or ranks, and messages on real time.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite, log10
from statistics import median
from typing import Any

import numpy as np
from msgspec import Struct

from torch_scenarios.cost.forecast import Forecast, microseconds
from torch_scenarios.cost.structure import amount
from torch_scenarios.errors import Problem, ScenarioError
from torch_scenarios.operations import kind_of


class Point(Struct, frozen=True, kw_only=True):
    """One forecast of a sweep: a case at one size. `bytes` is None where the size is its own.

    A case that is one collective has its name, and its bytes as nccl-tests counts them.
    """

    case: str
    ranks: int
    bytes: float | None
    lines: tuple[str, ...]
    forecast: Forecast
    collective: str | None = None
    size: float | None = None


# The page. No script: pictures are SVG, as wide as the page.

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem;
  color: #1b1f24; background: #fff }
pre { background: #f6f8fa; padding: .8rem; overflow-x: auto; font-size: 13px }
svg { width: 100%; height: auto; font: 11px system-ui, sans-serif }
.lane { stroke: #d0d7de } .message { stroke: #57606a; stroke-width: 1 }
.bytes { stroke-width: 3 } .critical { stroke: #cf222e } .box { fill: #0969da; opacity: .35 }
.curve { fill: none; stroke: #0969da; stroke-width: 2 } .dot { fill: #0969da }
table { border-collapse: collapse } td, th { padding: .2rem .8rem; text-align: right }
@media (prefers-color-scheme: dark) { body { background: #0d1117; color: #e6edf3 }
  pre { background: #161b22 } svg text { fill: #e6edf3 } }
"""


def page(points: Sequence[Point]) -> str:
    """Return a page with every forecast: curves first, then each with its picture."""
    parts = ["<!doctype html><html lang='en'><meta charset='utf-8'>"]
    parts.append(f"<title>scenario cost</title><style>{_STYLE}</style><h1>Forecast</h1>")
    parts += [_curve(curve) for curve in _curves(points)]
    for point in points:
        heading = point.case if point.bytes is None else f"{point.case}, {amount(point.bytes)}"
        parts.append(f"<h2>{html.escape(heading)}</h2>")
        parts.append(picture(point.forecast, point.ranks))
        parts.append(f"<pre>{html.escape(chr(10).join(point.lines))}</pre>")
    return "".join(parts) + "</html>\n"


def _curves(points: Sequence[Point]) -> list[list[Point]]:
    """Return the points that belong together: sizes of one case, or cases of one file."""
    found: dict[str, list[Point]] = {}
    for point in points:
        sized = point.bytes is not None and sum(each.case == point.case for each in points) > 1
        key = point.case if sized else point.case.partition("[")[0]
        found.setdefault(key, []).append(point)
    return [curve for curve in found.values() if len(curve) > 1]


_WIDTH, _HEIGHT, _MARGIN = 900.0, 300.0, 60.0


def _curve(points: Sequence[Point]) -> str:
    """Return time over size, or over ranks, both logarithmic, with its table."""
    sized = len({point.bytes for point in points}) > 1
    along = [float(point.bytes or 0) if sized else float(point.ranks) for point in points]
    times = [max(point.forecast.time, 1e-3) for point in points]
    across = _scale(along, _MARGIN, _WIDTH - 20)
    up = _scale(times, _HEIGHT - 40, 20)
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in sorted(zip(across, up, strict=True)))
    parts = [f"<svg viewBox='0 0 {_WIDTH:.0f} {_HEIGHT:.0f}' role='img'>"]
    parts.append(f"<polyline class='curve' points='{line}'/>")
    rows = []
    for x, y, where, point in zip(across, up, along, points, strict=True):
        named = amount(where) if sized else f"{where:.0f} ranks"
        time = microseconds(point.forecast.time)
        parts.append(f"<circle class='dot' cx='{x:.1f}' cy='{y:.1f}' r='3.5'>")
        parts.append(f"<title>{html.escape(f'{named}: {time}')}</title></circle>")
        parts.append(
            f"<text x='{x:.1f}' y='{_HEIGHT - 12:.0f}' text-anchor='middle'>{named}</text>"
        )
        rows.append(f"<tr><td>{html.escape(named)}<td>{time}")
    parts.append(f"<text x='4' y='14'>{microseconds(max(times))}</text>")
    parts.append(f"<text x='4' y='{_HEIGHT - 40:.0f}'>{microseconds(min(times))}</text></svg>")
    head = "<tr><th>size<th>time" if sized else "<tr><th>ranks<th>time"
    title = html.escape(points[0].case if sized else points[0].case.partition("[")[0])
    origin = html.escape(points[0].forecast.origin)
    table = f"<table>{head}{''.join(rows)}</table>"
    return f"<h2>{title}</h2><p>{origin}</p>{''.join(parts)}{table}"


def _scale(values: Sequence[float], first: float, last: float) -> list[float]:
    logs = [log10(max(value, 1e-9)) for value in values]
    low, high = min(logs), max(logs)
    if high == low:
        return [(first + last) / 2] * len(logs)
    return [first + (each - low) / (high - low) * (last - first) for each in logs]


#: messages that a picture shows: those that end last are left out
MOST = 2000


def picture(found: Forecast, ranks: int) -> str:
    """Return a space-time diagram on a real time axis: latency thin, bytes thick, the path red."""
    events = found.replay.events
    critical = set(found.replay.path)
    height = 30 + 26 * ranks
    if ranks > 128 or found.time <= 0:
        return ""
    parts = [f"<svg viewBox='0 0 {_WIDTH:.0f} {height}' role='img'>"]

    def x(time: float) -> float:
        return _MARGIN + time / found.time * (_WIDTH - _MARGIN - 10)

    for rank in range(ranks):
        y = 20 + 26 * rank
        parts.append(f"<line class='lane' x1='{_MARGIN}' x2='{_WIDTH}' y1='{y}' y2='{y}'/>")
        parts.append(f"<text x='4' y='{y + 4}'>rank {rank}</text>")
    order = np.argsort(events.column("started"), kind="stable")
    for number in order[:MOST].tolist():
        event = events[number]
        source, target = event.source, event.target
        began, sent, ended = event.started, event.sent, event.ended
        red = " critical" if number in critical else ""
        y = 20 + 26 * source
        if event.name is not None:
            box = f"x='{x(began):.1f}' y='{y - 6}' width='{max(1.0, x(ended) - x(began)):.1f}'"
            name = html.escape(event.name)
            parts.append(f"<rect class='box{red}' {box} height='12'><title>{name}</title></rect>")
            continue
        words = f"rank {source} to rank {target}, {amount(event.size)}"
        parts.append(
            f"<line class='message bytes{red}' x1='{x(began):.1f}' x2='{x(sent):.1f}' y1='{y}' "
            f"y2='{y}'/><line class='message{red}' x1='{x(sent):.1f}' x2='{x(ended):.1f}' "
            f"y1='{y}' y2='{20 + 26 * target}'><title>{words}</title></line>"
        )
    parts.append("</svg>")
    if len(order) > MOST:
        parts.append(f"<p>The first {MOST} of {len(order)} messages.</p>")
    return "".join(parts)


# A Chrome trace, which Perfetto opens: a process for each forecast, a thread for each rank.


def trace_events(points: Iterable[Point]) -> list[dict[str, Any]]:
    """Return the events of forecasts, in the Chrome trace format; times in microseconds."""
    found: list[dict[str, Any]] = []
    for process, point in enumerate(points, 1):
        name = point.case if point.bytes is None else f"{point.case} {amount(point.bytes)}"
        told = {"name": f"{name}: {point.forecast.origin}"}
        found.append({"ph": "M", "pid": process, "name": "process_name", "args": told})
        for rank in range(point.ranks):
            thread = {"ph": "M", "pid": process, "tid": rank, "name": "thread_name"}
            found.append({**thread, "args": {"name": f"rank {rank}"}})
        events, critical = point.forecast.replay.events, set(point.forecast.replay.path)
        for number in range(len(events)):
            event = events[number]
            named = event.name or f"to rank {event.target}"
            slice_ = {"ph": "X", "pid": process, "tid": event.source, "name": named}
            about = {"bytes": event.size, "group": event.group, "critical": number in critical}
            times = {"ts": event.started, "dur": event.ended - event.started}
            found.append({**slice_, **times, "args": about})
    return found


# What torch.profiler measured of one step on a GPU, next to a forecast of it. A trace has events of
# Kineto: kernels (`cat: kernel`), those of NCCL among them with the collective that they are,
# copies, and one annotation for each `prof.step()`.

#: bytes that a trace may have
MOST_BYTES = 1 << 29
#: what a GPU does that is no kernel of NCCL
_ON_GPU = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
#: what NCCL's collectives are called by torch, where it is not the operation's own name
_NAMES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "_allgather_base": "all_gather",
    "allgather_into_tensor_coalesced": "all_gather",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter",
    "all_to_allv": "all_to_all",
}

#: a kernel's own name, as `ncclKernel_AllReduce_RING_LL_Sum_float`, and where its words begin
_KERNEL, _CAPITAL = (
    re.compile(r"nccl\w*Kernel_([A-Z][a-z]+[A-Z][A-Za-z]*)_"),
    re.compile("(?<=[a-z])(?=[A-Z])"),
)

Span = tuple[float, float]


class ProfiledStep(Struct, frozen=True, kw_only=True):
    """One step of a trace, in microseconds; `calls` are the times of each collective's kernels."""

    name: str
    time: float
    computing: float
    exposed: float
    calls: Mapping[str, tuple[float, ...]]

    @property
    def idle(self) -> float:
        """How long nothing runs on the GPU."""
        return max(0.0, self.time - self.computing - self.exposed)


def read_profile(trace: Any) -> ProfiledStep:
    """Return the last whole step of a decoded trace. Raises ScenarioError where it has none."""
    events = list(_spans(trace))
    kernels = [each for each in events if each[0].get("cat") in _ON_GPU]
    if not kernels:
        message = "the trace has no kernel of a GPU: profile with `ProfilerActivity.CUDA`"
        hint = "`scenario cost step.yaml --topology T --against trace.json`"
        raise ScenarioError([Problem(code="bad_topology", message=message, hint=hint)])
    name, (began, ended) = _last_step(events, kernels)
    computing: list[Span] = []
    sent: list[Span] = []
    calls: dict[str, list[float]] = {}
    for event, (first, last) in kernels:
        if first < began or first >= ended:
            continue
        if not str(event.get("name", "")).startswith("nccl"):
            computing.append((first, last))
            continue
        sent.append((first, last))
        calls.setdefault(_collective(event), []).append(last - first)
    computed = _length(computing)
    return ProfiledStep(
        name=name,
        time=ended - began,
        computing=computed,
        exposed=_length([*computing, *sent]) - computed,
        calls={kind: tuple(times) for kind, times in calls.items()},
    )


def _collective(event: Mapping[str, Any]) -> str:
    """Return what a kernel of NCCL does: as torch says, or else by the kernel's own name."""
    args = event.get("args")
    told = args.get("Collective name") if isinstance(args, dict) else None
    if not told:
        found = _KERNEL.match(str(event["name"]))
        return _CAPITAL.sub("_", found[1]).lower() if found else "a collective without a name"
    return kind_of(_NAMES.get(str(told), str(told)))


def _spans(trace: Any) -> Iterator[tuple[dict[str, Any], Span]]:
    """Yield the events that take a time, each with its begin and its end."""
    listed = trace.get("traceEvents") if isinstance(trace, dict) else None
    for event in listed if isinstance(listed, list) else ():
        if not isinstance(event, dict) or event.get("ph") != "X":
            continue
        began, took = event.get("ts"), event.get("dur")
        if isinstance(began, int | float) and isinstance(took, int | float):
            span = float(began), float(began) + float(took)
            if isfinite(span[0]) and isfinite(span[1]) and took >= 0:
                yield event, span


def _last_step(
    events: Iterable[tuple[dict[str, Any], Span]], kernels: Iterable[tuple[dict[str, Any], Span]]
) -> tuple[str, Span]:
    """Return the last step that is annotated, on the GPU before the host; all where none is."""
    for kind in ("gpu_user_annotation", "user_annotation"):
        steps = [
            (span, str(event["name"]))
            for event, span in events
            if event.get("cat") == kind and str(event.get("name")).startswith("ProfilerStep#")
        ]
        if steps:
            span, name = max(steps)
            return name, span
    spans = [span for _, span in kernels]
    return "all of it", (min(first for first, _ in spans), max(last for _, last in spans))


def _length(spans: Iterable[Span]) -> float:
    """Return how long at least one of some spans lasts."""
    total, reached = 0.0, float("-inf")
    for first, last in sorted(spans):
        total += max(0.0, last - max(first, reached))
        reached = max(reached, last)
    return total


def profile_lines(step: ProfiledStep, forecast: Forecast) -> list[str]:
    """Return a step as it was measured next to its forecast, in lines for a terminal."""
    rows = [
        ("the step", forecast.time, step.time),
        ("computing", forecast.computing, step.computing),
        ("exposed communication", forecast.exposure, step.exposed),
        ("nothing runs", forecast.idle, step.idle),
    ]
    forecasted = _calls_of(forecast)
    for kind, times in sorted(step.calls.items()):
        made = forecasted.get(kind, ())
        rows.append((f"{kind}, median of {len(times)}", median(made or [0.0]), median(times)))
    width = max(len(name) for name, _, _ in rows)
    head = f"{'':{width}}  {'forecast':>10}  {'measured':>10}  forecast / measured"
    return [f"{step.name} of the trace", head, *(_line(width, *row) for row in rows)]


def _line(width: int, name: str, made: float, measured: float) -> str:
    ratio = f"{made / measured:.2f}" if measured and made else "-"
    told = microseconds(made) if made else "-"
    return f"{name:{width}}  {told:>10}  {microseconds(measured):>10}  {ratio}"


def _calls_of(forecast: Forecast) -> dict[str, tuple[float, ...]]:
    """Return the times of the collectives of a forecast, by what they are."""
    events, found = forecast.replay.events, dict[str, list[float]]()
    for number, name in events.names.items():
        if name != "pause":
            event = events[number]
            found.setdefault(kind_of(name), []).append(event.ended - event.started)
    return {kind: tuple(times) for kind, times in found.items()}
