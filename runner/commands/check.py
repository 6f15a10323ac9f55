"""`scenario check`: schema, semantics, reference; no process is started."""

from __future__ import annotations

from typing import Any

import click

from runner.commands.options import finish, refuse, reporting, selecting, selection_of, terminal_of
from runner.problems import ScenarioError


@click.command("check")
@selecting
@reporting
def command(**options: Any) -> None:  # noqa: ANN401 -- click hands over what it parsed
    """Check scenarios and prove their expectations against the semantics; start no process.

    PATHS are scenario files, or folders that hold some.
    """
    from runner.pipeline import check  # noqa: PLC0415 -- after the command line is parsed

    report = terminal_of(options)
    try:
        outcome = check(selection_of(options), report)
    except ScenarioError as error:
        refuse(error)
    finally:
        report.close()
    finish(outcome, report, options)
