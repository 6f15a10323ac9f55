"""`scenario check`: schema, semantics, reference; no process is started."""

from __future__ import annotations

from typing import Any

import click

from runner.commands.options import reported, reporting, selecting, selection_of


@click.command("check")
@selecting
@reporting
def command(**options: Any) -> None:  # noqa: ANN401 -- click hands over what it parsed
    """Check scenarios and prove their expectations against the semantics; start no process.

    PATHS are scenario files, or folders that hold some.
    """
    from runner.pipeline import check  # noqa: PLC0415 -- after the command line is parsed

    selection = selection_of(options)
    reported(options, lambda reports: check(selection, reports, traces=reports.traces))
