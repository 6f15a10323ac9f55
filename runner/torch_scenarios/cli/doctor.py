"""`scenario doctor`: names, ports, token, versions, GPUs and limits, before anything runs."""

from __future__ import annotations

from typing import Any

import click

from torch_scenarios.cli import answers
from torch_scenarios.cli.nodes import add_node_options
from torch_scenarios.cli.options import HOW, REPORTS, GroupedCommand, option


@click.command("doctor", cls=GroupedCommand)
@option(
    HOW,
    "--wait",
    "wait_s",
    type=click.FloatRange(0, 3600),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long the nodes wait for each other.",
)
@add_node_options
@option(
    REPORTS,
    "--json",
    "as_json",
    type=click.Path(),
    default=None,
    metavar="FILE",
    help="Write the checks as JSON.",
)
def doctor(**options: Any) -> None:
    """Look at this machine, and at every node of a run, before anything runs.

    Prints one line per check: `ok`, `note` (nothing fails by it), `wrong`, or `untested`, and what
    to do. With --nnodes start the same command on every node, with the options and the token that
    `scenario run --nnodes` gets: the nodes meet, connect to each other, and compare what they have.
    The first prints the checks of all. Exit codes: 0 all is right, 1 something is wrong, 2 the
    command line is invalid, 3 something could not be tested.
    """
    answers.doctor.doctor(options)
