"""`scenario hang`: the job that hangs now, looked at from outside; nothing is ended."""

from __future__ import annotations

from typing import Any

import click

from torch_scenarios.cli import answers
from torch_scenarios.cli.options import HOW, REPORTS, GroupedCommand, option


@click.command("hang", cls=GroupedCommand)
@option(HOW, "--job", default="", help="Which job: a part of its variables, as they are listed.")
@option(
    HOW,
    "--pid",
    type=click.IntRange(1),
    default=None,
    help="The process of a script that starts its ranks itself (mp.spawn, mp.Process).",
)
@option(
    HOW,
    "--seconds",
    type=click.FloatRange(0),
    default=1.0,
    show_default=True,
    help="Look twice, so far apart.",
)
@option(
    REPORTS,
    "-o",
    "--output",
    "file",
    type=click.Path(dir_okay=False),
    default=None,
    help="Write the stacks as text, for `scenario import` on another machine.",
)
@option(
    REPORTS,
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, allow_dash=True),
    default=None,
    help="Write verdict, ranks, stacks and findings as JSON; `-` is standard output.",
)
def hang(**options: Any) -> None:
    """Find the ranks of a job on this machine, and say which of them keeps the others waiting.

    Their stacks come from py-spy (`pip install py-spy`), what they called before
    from the flight recorder, where TORCH_NCCL_DEBUG_INFO_PIPE_FILE is set. Nothing is ended. Of a
    job on several nodes, run it on each with `-o`, and `scenario import` the files in one.

    Exit codes: 1 something is wrong, 3 nothing is seen to be, 5 no job is found.
    """
    answers.hang.hang(options)
