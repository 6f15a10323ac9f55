"""The HTML report: how large, how soon open, how smooth; in headless Chromium without a GPU.

A run of 100 scenarios of the corpus on Gloo, and one scenario of 64 ranks and 500 steps, predicted
and observed, which ends in a deadlock. A frame is what passes between two animation frames while
the diagram is scrolled or zoomed in each of them: 16.7 ms is every frame of a 60 Hz screen.

python -m benchmarks.html
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

import torch_scenarios
from benchmarks.measure import SCENARIO, Row, seconds, show
from torch_scenarios.model.groups import plan
from torch_scenarios.pipeline.results import Outcome, Result
from torch_scenarios.report.html import HtmlReport
from torch_scenarios.verdict import judge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

    from torch_scenarios.model.trace import RankTrace

CORPUS = Path(__file__).parents[1] / "scenarios"
CASES = 100
OPENINGS = 5
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"]

WIDE = """\
description: Sixty-four ranks, five hundred steps, and a ring that never turns.
world_size: 64
groups:
  even: "range(0, world_size, 2)"
  odd: "range(1, world_size, 2)"
tensors:
  x: "full(4, rank + 1)"
  y: "zeros(4)"
steps:
  - for: {i: "range(99)"}
    steps:
      - compute: {x: "(x + rank * 3) % 97 + i"}
      - ranks: even
        all_reduce: {tensor: x, group: even, op: max}
      - ranks: odd
        all_reduce: {tensor: x, group: odd, op: max}
      - isend: {tensor: x, dst: "(rank + 1) % world_size"}
        as: out
      - recv: {tensor: y, src: "(rank - 1) % world_size"}
      - wait: out
  - all_reduce: {tensor: y}
  - compute: {x: "y % 13"}
  - all_reduce: {tensor: x, op: min}
  - send: {tensor: x, dst: "(rank + 1) % world_size"}
  - recv: {tensor: y, src: "(rank - 1) % world_size"}
"""

#: moves the diagram in 120 frames and returns how long each took, in milliseconds
FRAMES = """async (kind) => {
  const { diagram } = page;
  const moves = {
    right: () => { diagram.scroll.scrollLeft += 97; },
    down: () => { diagram.scroll.scrollTop += 13; },
    zoom: (at) => { diagram.zoom(at < 60 ? 0.93 : 1 / 0.93); },
    whole: (at) => { diagram.light({ hovered: { lane: at % 64, position: at } }); },
  };
  if (kind === "whole") diagram.fit();
  const times = [];
  let last = performance.now();
  for (let at = 0; at < 120; at += 1) {
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    times.push(now - last);
    last = now;
    moves[kind](at);
  }
  return times.slice(2);
}"""


def wide(folder: Path) -> Path:
    """Write the page of 64 ranks and 500 steps; the run differs from the prediction in times."""
    source = folder / "wide.yaml"
    source.write_text(WIDE, encoding="utf-8")
    (scenario,) = torch_scenarios.load(source)
    predicted = torch_scenarios.simulate(torch_scenarios.plan(scenario))
    clock = np.random.default_rng(1)
    ranks = tuple(_timed(rank, clock) for rank in predicted.ranks)
    observed = replace(predicted, backend="gloo", ranks=ranks)
    result = Result(
        file=str(source),
        case="wide",
        verdict=judge(plan(scenario), predicted, observed),
        duration_s=1.0,
        scenario=scenario,
    )
    page = folder / "wide.html"
    with page.open("w", encoding="utf-8") as file:
        report = HtmlReport(file)
        report.finish(result)
        report.end(Outcome(results=(result,), duration_s=1.0))
    return page


def _timed(rank: RankTrace, clock: np.random.Generator) -> RankTrace:
    """Return a rank whose steps took some time."""
    ends = np.cumsum(clock.exponential(1e-3, len(rank.events)))
    starts = np.concatenate([[0.0], ends[:-1]])
    events = tuple(
        replace(event, start_s=float(start), end_s=None if event.end_s is None else float(end))
        for event, start, end in zip(rank.events, starts, ends, strict=True)
    )
    return replace(rank, events=events)


def corpus(folder: Path) -> Path:
    """Write the page of a run of 100 scenarios."""
    page = folder / "corpus.html"
    paths = [str(path) for path in sorted(CORPUS.rglob("*.yaml")) if "parts" not in path.parts]
    step = len(paths) // CASES
    chosen = paths[::step][:CASES]
    seconds([*SCENARIO, "run", *chosen, "--html", str(page)], codes=(0, 1))
    return page


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the browser."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        sys.exit("no Chromium is installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


def opened(browser: Browser, file: Path) -> tuple[Page, float]:
    """Open a page; return it, and the seconds until its diagram was painted."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    began = time.perf_counter()
    page.goto(file.as_uri())
    page.wait_for_function("window.page")
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return page, time.perf_counter() - began


def main() -> None:
    """Measure both pages."""
    with tempfile.TemporaryDirectory() as name, chromium() as browser:
        folder = Path(name)
        many, large = corpus(folder), wide(folder)
        rows = [
            Row(
                what="100 scenarios of the corpus, run",
                value=f"{many.stat().st_size / 1000:.0f} KB",
                bound="< 300 KB",
            ),
            Row(what="64 ranks, 500 steps", value=f"{large.stat().st_size / 1000:.0f} KB"),
        ]
        for what, file in (("100 scenarios", many), ("64 ranks, 500 steps", large)):
            times = []
            for _ in range(OPENINGS):
                page, took = opened(browser, file)
                times.append(took)
                page.close()
            rows.append(
                Row(
                    what=f"{what}: open, the diagram painted",
                    value=f"{statistics.median(times):.2f} s (best {min(times):.2f})",
                    bound="<= 1 s",
                )
            )
        page, _ = opened(browser, large)
        for what, kind in (
            ("scrolled along", "right"),
            ("scrolled down", "down"),
            ("zoomed out and in", "zoom"),
            ("whole, another span pointed at", "whole"),
        ):
            frames = sorted(page.evaluate(FRAMES, kind))
            rows.append(
                Row(
                    what=f"64 ranks, 500 steps: a frame, {what}",
                    value=f"{statistics.median(frames):.1f} ms, 95 %: "
                    f"{frames[int(len(frames) * 0.95)]:.1f} ms",
                )
            )
        show(rows)


if __name__ == "__main__":
    main()
