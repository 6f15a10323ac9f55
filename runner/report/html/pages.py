"""What a page shows, read back from it: the pictures of several runs, for one page of them all.

A page holds a head and a body for each case (:mod:`runner.report.html.report`). Bodies are taken as
they stand, line by line; nothing in them is looked at.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from runner.problems import Problem, ScenarioError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runner.results import Outcome, Result

_DATA = re.compile(r'<script type="text/plain" id="data">([^<]*)</script>')
_BEGIN = b"<!doctype html>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A case of a page: its verdict, how long it took in microseconds, its body as it stands."""

    verdict: str
    took: int
    body: str


def is_page(path: str) -> bool:
    """Return whether a file begins as a page does; one that cannot be read is none."""
    try:
        with Path(path).open("rb") as file:
            return file.read(len(_BEGIN)).lower() == _BEGIN
    except OSError:
        return False


def cases_of(path: str) -> dict[tuple[str, str], Shown]:
    """Return the cases of a page by file and name. Raises ScenarioError where it is not ours."""
    try:
        found = _DATA.search(Path(path).read_text(encoding="utf-8"))
        lines = zlib.decompress(base64.b64decode(found[1] if found else "")).decode().split("\n")
        lines.pop()  # what is behind the last line break
        heads, bodies, run = lines[:-1:2], lines[1:-1:2], json.loads(lines[-1])
        release = run["version"]
        cases = {
            (head["file"], head["case"]): Shown(
                verdict=head["verdict"], took=head["took"], body=body
            )
            for head, body in zip(map(json.loads, heads), bodies, strict=True)
        }
    except (OSError, ValueError, zlib.error, LookupError, TypeError):
        text = f"{path} is no page that --html wrote, or not all of it"
        raise ScenarioError([Problem(code="not_a_result", message=text)]) from None
    if release != metadata.version("scenario-runner"):
        _refuse(f"{path} is a page of version {release}, which this one cannot draw")
    return cases


def drawn(outcome: Outcome, pages: Mapping[str, Mapping[tuple[str, str], Shown]]) -> Outcome:
    """Return the outcome with what pages show of its cases; those in none stay without a picture.

    Raises ScenarioError where a page is of another run: another verdict, or another duration.
    """
    results = {(each.file, each.case): each for each in outcome.results}
    for path, cases in pages.items():
        for key, shown in cases.items():
            result = results.get(key)
            if result is None or not _of(shown, result):
                _refuse(f"{path} is the page of another run: {key[1]} is no such result")
            results[key] = replace(result, page=shown.body)
    return replace(outcome, results=tuple(results.values()))


def _of(shown: Shown, result: Result) -> bool:
    return (shown.verdict, shown.took) == (result.verdict.status, round(result.duration_s * 1e6))


def _refuse(message: str) -> NoReturn:
    raise ScenarioError([Problem(code="not_mergeable", message=message)])
