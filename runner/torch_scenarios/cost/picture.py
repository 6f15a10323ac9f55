"""Forecasts as a page and as a Chrome trace.

A page has a curve over sizes or ranks, and messages on real time.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from math import log10
from typing import Any

import numpy as np
from msgspec import Struct, field

from torch_scenarios.cost.forecast import Forecast, microseconds
from torch_scenarios.cost.structure import amount
from torch_scenarios.model.traffic import Traffic


class Point(Struct, frozen=True, kw_only=True):
    """One forecast of a sweep: a case at one size. `bytes` is None where the size is its own.

    A case that is one collective has its name, and its bytes as nccl-tests counts them. `traffic`
    is what the program sends, `labels` name its steps.
    """

    case: str
    ranks: int
    bytes: float | None
    lines: tuple[str, ...]
    forecast: Forecast
    collective: str | None = None
    size: float | None = None
    traffic: Traffic | None = None
    labels: Mapping[int, str] = field(default_factory=dict)


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
    """Return time over size, or over ranks, both logarithmic, with its table.

    On such axes latency is a flat line, and bandwidth one that rises by a decade a decade: the bend
    between them is the size from which on bytes count.
    """
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


#: messages that a picture shows: those that start last are left out
MOST = 2000


def picture(found: Forecast, ranks: int) -> str:
    """Return a space-time diagram on a real time axis: latency thin, bytes thick, the path red.

    Ranks are rows, and time goes to the right. Empty for more ranks than a picture can show.
    """
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
