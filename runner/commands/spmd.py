"""`python -m runner.worker`: `scenario run` for a launch that torchrun or a cluster has started."""

from __future__ import annotations

from typing import Any

import click

from runner.commands.arranging import arranging
from runner.commands.grouping import GroupedCommand
from runner.commands.options import reported, reporting, selecting
from runner.commands.run import conducted, launch_options, launching


@click.command("runner.worker", cls=GroupedCommand)
@selecting
@arranging
@launching
@reporting
@click.pass_obj
def command(conduct: Any, /, **options: Any) -> None:  # noqa: ANN401 -- click hands over what it parsed
    """Run scenarios on the ranks of this launch, as `scenario run` does on ranks of its own.

    PATHS are scenario files, or folders that hold some. Every rank gets the same command line; rank
    0 reads it, judges and reports. A scenario that ends a process ends the launch: those after it
    are inconclusive.
    """
    reported(
        options,
        lambda reports: conducted(options, reports, lambda: conduct(launch_options(options))),
    )
