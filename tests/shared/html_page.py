"""HTML reports of runs that tests make up: cases by their text, judged without a backend."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

from judging import checked, ran
from msgspec.structs import replace

import torch_scenarios
from torch_scenarios.pipeline.attempts import case_result
from torch_scenarios.pipeline.results import Outcome, Result, Selection
from torch_scenarios.pipeline.selection import load_all
from torch_scenarios.report.html import HtmlReport

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from torch_scenarios.model.trace import Trace

RING = """\
description: Every rank hands its block to the next before it takes one.
world_size: 4
tensors:
  x: "full(2, rank)"
  y: "zeros(2)"
steps:
  - name: share
    all_reduce: {tensor: x, op: max}
  - send: {tensor: x, dst: "(rank + 1) % world_size"}
  - recv: {tensor: y, src: "(rank - 1) % world_size"}
"""

SUMS = """\
world_size: 4
tags: [sums]
groups:
  even: "range(0, world_size, 2)"
  odd: "range(1, world_size, 2)"
tensors:
  x: "full(2, rank + 1)"
steps:
  - all_reduce: {tensor: x, group: even}
  - all_reduce: {tensor: x, group: odd}
  - name: sum of all
    all_reduce: {tensor: x}
    expect:
      x: [20, 20]
"""

CRASH = """\
world_size: 3
tensors:
  x: [1, 2]
steps:
  - all_reduce: {tensor: x}
  - ranks: 1
    fault: exit
  - all_reduce: {tensor: x}
"""

MISSPELT = """\
world_size: 2
tensors:
  x: [1]
steps:
  - all_reduce: {tensr: x}
"""


def analysed(text: str, folder: Path, name: str) -> Result:
    """Return the result of a case that was only analysed."""
    return _result(text, folder, name, None)


def observed(text: str, folder: Path, name: str, *changes: Callable[[Trace], Trace]) -> Result:
    """Return the result of a case that ran on Gloo as predicted, but for the changes."""
    return _result(text, folder, name, changes)


def _result(
    text: str, folder: Path, name: str, changes: Sequence[Callable[[Trace], Trace]] | None
) -> Result:
    place = folder / name
    place.mkdir(exist_ok=True)
    verdict = checked(text, place) if changes is None else ran(text, place, *changes)
    (scenario,) = torch_scenarios.load(place / "judged.yaml")
    return replace(case_result(scenario, verdict, 0.01), case=name)


def invalid(text: str, folder: Path, name: str) -> Result:
    """Return the result of a file that cannot be read."""
    path = folder / f"{name}.yaml"
    path.write_text(text, encoding="utf-8")
    (result,) = load_all(Selection(paths=(str(path),))).invalid
    return result


def page_of(*results: Result) -> str:
    """Return the page of a run with these results."""
    file = io.StringIO()
    report = HtmlReport(file)
    report.begin(len(results))
    for result in results:
        report.finish(result)
    report.end(Outcome(results=results, duration_s=1.5))
    return file.getvalue()


def data_of(page: str) -> bytes:
    """Return the compressed data of a page, in base64."""
    found = re.search(r'id="data">([^<]*)</script>', page)
    assert found is not None
    return found[1].encode()
