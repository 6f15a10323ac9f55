"""`scenario check`: schema, semantics, reference; no process is started."""

from __future__ import annotations

from typing import Any

import click

from runner.commands.grouping import GroupedCommand
from runner.commands.options import reported, reporting, selecting, selection_of


@click.command("check", cls=GroupedCommand)
@selecting
@reporting
def command(**options: Any) -> None:  # noqa: ANN401 -- click hands over what it parsed
    """Check scenarios and prove their expectations against the semantics; start no process.

    PATHS are scenario files, folders that hold some, a case (sum.yaml::sum[n=2]), or a line
    (sum.yaml:42: the step there, whose values are shown).
    """
    from runner.pipeline import check  # noqa: PLC0415 -- after the command line is parsed

    selection = selection_of(options)
    reported(options, lambda reports: check(selection, reports, traces=reports.traces))
