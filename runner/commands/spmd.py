"""`python -m runner.worker`: `scenario run` for a launch that torchrun or a cluster has started."""

from __future__ import annotations

from typing import Any

import click

from runner.commands.options import finish, refuse, reporting, selecting, selection_of, terminal_of
from runner.commands.run import launch_options, launching
from runner.problems import ScenarioError


@click.command("runner.worker")
@selecting
@launching
@reporting
@click.pass_obj
def command(conduct: Any, /, **options: Any) -> None:  # noqa: ANN401 -- click hands over what it parsed
    """Run scenarios on the ranks of this launch, as `scenario run` does on ranks of its own.

    PATHS are scenario files, or folders that hold some. Every rank gets the same command line; rank
    0 reads it, judges and reports. A scenario that ends a process ends the launch: those after it
    are inconclusive.
    """
    from runner import pipeline  # noqa: PLC0415 -- after the command line is parsed

    report = terminal_of(options)
    selection = selection_of(options)
    try:
        if options["dry_run"]:
            outcome = pipeline.check(selection, report)
        else:
            outcome = pipeline.run(
                selection,
                lambda: conduct(launch_options(options)),
                report,
                stop_at_failure=options["exitfirst"],
            )
    except ScenarioError as error:
        refuse(error)
    finally:
        report.close()
    finish(outcome, report, options)
