"""The table of reports that write a file: one line each makes an option of `run` and `check`.

A report is a class that is made with the open text file it writes to, and that keeps the protocol
:class:`torch_scenarios.pipeline.results.Report`. It is imported only where its option is given.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, TextIO

from msgspec import Struct

if TYPE_CHECKING:
    from torch_scenarios.pipeline.results import Report


class Format(Struct, frozen=True, kw_only=True):
    """One kind of report: the option `--NAME FILE`, the class that writes it, the line of help.

    `made_by` is `module:Class`. A report that `streams` writes straight to its file, so that
    another program can follow it; every other appears whole, at the end. One that reads `traces`
    is handed results with every value that each rank held, from `check` too; one that tells `costs`
    those with what a program costs. One that is `again` can be made of results that were read back
    from a file.
    """

    name: str
    made_by: str
    help: str
    streams: bool = False
    traces: bool = False
    costs: bool = False
    again: bool = True

    @property
    def option(self) -> str:
        """The option of the command line."""
        return f"--{self.name}"

    @property
    def parameter(self) -> str:
        """The name of the option's value among the others of a command."""
        return f"{self.name}_file"

    def make(self, file: TextIO) -> Report:
        """Return a report that writes to `file`."""
        module, _, name = self.made_by.partition(":")
        made: Report = getattr(importlib.import_module(module), name)(file)
        return made


FORMATS: tuple[Format, ...] = (
    Format(
        name="json",
        made_by="torch_scenarios.report.json:JsonReport",
        costs=True,
        help="Write all results as JSON.",
    ),
    Format(
        name="jsonl",
        made_by="torch_scenarios.report.json:JsonLinesReport",
        costs=True,
        help="Write a line of JSON for each result as it comes.",
        streams=True,
    ),
    Format(
        name="junit",
        made_by="torch_scenarios.report.junit:JunitReport",
        help="Write JUnit XML, for GitLab, Jenkins and GitHub.",
    ),
    Format(
        name="tap",
        made_by="torch_scenarios.report.tap:TapReport",
        help="Write TAP 14 as results come.",
        streams=True,
    ),
    Format(
        name="markdown",
        made_by="torch_scenarios.report.markdown:MarkdownReport",
        help="Write a summary in Markdown: the counts, and what did not pass.",
    ),
    Format(
        name="trace",
        made_by="torch_scenarios.report.chrome_trace:TraceReport",
        traces=True,
        again=False,
        help="Write a Chrome trace: a timeline of every case, for ui.perfetto.dev.",
    ),
    Format(
        name="html",
        made_by="torch_scenarios.report.html:HtmlReport",
        traces=True,
        costs=True,
        help="Write one self-contained page: every case as a picture, for any browser.",
    ),
)
