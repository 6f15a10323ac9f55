"""Results as Markdown, for a job's summary or a comment: the counts, and what went wrong.

What a file says is shown as it stands and never as Markdown or HTML.
"""

from __future__ import annotations

import re
from html import escape
from typing import TextIO

from torch_scenarios.display import MOST_LINE, clean, clean_line, short
from torch_scenarios.pipeline.results import FinalReport, Outcome, Result, environment
from torch_scenarios.report.text import count_warnings, details, milliseconds

#: cases that are shown unfolded
OPEN = 10
#: warnings, and unsupported cases, that are listed
MOST_ITEMS = 100
#: how long all cases may be together; GitHub takes 1 MiB of a step
MOST_BYTES = 900_000


class MarkdownReport(FinalReport):
    """The whole of a run as one document.

    What a file says is escaped: a tensor that is called `<b>` or `|` must not change the page.
    """

    def __init__(self, file: TextIO) -> None:
        """Write to `file`."""
        self._file = file

    def end(self, outcome: Outcome) -> None:
        """Write the document."""
        self._file.write(text(outcome))


def text(outcome: Outcome) -> str:
    """Return the document: what it came to, then every case that did not pass."""
    known = [f"{name} {value}" for name, value in sorted(environment(outcome).items())]
    if outcome.shard is not None:
        known.insert(0, f"shard {outcome.shard}")
    known.append(milliseconds(outcome.duration_s))
    parts = [f"## Scenarios: {_came_to(outcome)}", ", ".join(known)]
    if any(outcome.counts.values()):
        counts = "\n".join(f"| {s} | {n} |" for s, n in outcome.counts.items() if n)
        parts.append(f"| verdict | cases |\n|---|---:|\n{counts}")
    wrong = [r for r in outcome.results if r.verdict.status not in {"PASSED", "UNSUPPORTED"}]
    parts += _sections(wrong)
    parts += _warnings(outcome)
    parts += _list_unsupported(outcome)
    return clean("\n\n".join(parts) + "\n")


def _came_to(outcome: Outcome) -> str:
    if outcome.interrupted:
        return f"interrupted, {outcome.not_run} of {outcome.cases} not run"
    if not outcome.results:
        return "nothing was selected"
    wrong = [
        f"{n} {s.lower()}"
        for s, n in outcome.counts.items()
        if n and s not in {"PASSED", "UNSUPPORTED"}
    ]
    if outcome.not_run:
        wrong.append(f"{outcome.not_run} not run")
    warned = outcome.all_warnings
    return ", ".join(
        [*(wrong or ["all passed"]), *([count_warnings(len(warned))] if warned else [])]
    )


def _sections(results: list[Result]) -> list[str]:
    parts: list[str] = []
    size = 0
    for at, result in enumerate(results):
        section = _section(result, opened=at < OPEN)
        size += len(section.encode())
        if size > MOST_BYTES:
            return [*parts, f"... and {len(results) - at} more, which the log shows."]
        parts.append(section)
    return parts


#: what begins a link, an image, code or emphasis in Markdown, mentions a person or an issue, or is
#: made a link by itself
_MARKING = re.compile(r"[\[\]`*_~|\\@#]|(?<=:)//|(?<=www)\.")


def inert(text: str) -> str:
    """Return words of a file for a page of Markdown, in which they are words and no more."""
    return _MARKING.sub(lambda found: "".join(f"&#{ord(c)};" for c in found[0]), escape(text))


def _section(result: Result, *, opened: bool) -> str:
    lines = [line.printable for line in details(result)]
    body = "\n".join(lines)
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", body)), default=0))
    title = f"<b>{result.verdict.status}</b> <code>{_name(result)}</code>"
    about = (
        [inert(short(" ".join(result.description.split()), MOST_LINE))]
        if result.description.strip()
        else []
    )
    parts = [
        f"<details{' open' if opened else ''}><summary>{title}</summary>",
        *about,
        f"{fence}text\n{body}\n{fence}",
        "</details>",
    ]
    return "\n\n".join(parts)


def _warnings(outcome: Outcome) -> list[str]:
    found = outcome.all_warnings
    if not found:
        return []
    lines = "\n".join(f"<li>{inert(e.line('warning'))}</li>" for e in found[:MOST_ITEMS])
    return [_fold(count_warnings(len(found)), lines, len(found))]


def _fold(title: str, lines: str, number: int) -> str:
    more = f"<li>... and {number - MOST_ITEMS} more</li>" if number > MOST_ITEMS else ""
    return f"<details><summary>{title}</summary>\n<ul>\n{lines}{more}\n</ul>\n</details>"


def _name(result: Result) -> str:
    return inert(clean_line(result.name))


def _list_unsupported(outcome: Outcome) -> list[str]:
    found = [result for result in outcome.results if result.verdict.status == "UNSUPPORTED"]
    if not found:
        return []
    lines = "\n".join(
        f"<li><code>{_name(each)}</code>: {inert(each.verdict.reason or '')}</li>"
        for each in found[:MOST_ITEMS]
    )
    return [_fold(f"{len(found)} not run, because they are unsupported here", lines, len(found))]
