"""`scenario parity`: whether n processes compute what one process computes."""

from __future__ import annotations

from typing import Any

import click

from torch_scenarios.cli import answers
from torch_scenarios.cli.options import HOW, REPORTS, GroupedCommand, option


@click.command("parity", cls=GroupedCommand)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@option(
    HOW, "-n", "--world-size", type=click.IntRange(2, 65_536), default=2, help="How many ranks."
)
@option(HOW, "--reference", default="", help="The script with its arguments that one process runs.")
@option(HOW, "--no-dropout", is_flag=True, help="Let every dropout keep all, in both.")
@option(
    HOW,
    "--init",
    type=click.Choice(["own", "reference"]),
    default="own",
    help="`reference`: begin with its weights, where names and shapes are equal.",
)
@option(
    HOW,
    "--steps",
    type=click.IntRange(1, 1000),
    default=3,
    help="How many steps are compared; those behind a resume as well.",
)
@option(
    HOW, "--max-seconds", type=click.FloatRange(0), default=600.0, help="End a run after so long."
)
@option(
    REPORTS,
    "-o",
    "--output",
    "folder",
    type=click.Path(),
    default=None,
    help="The records' folder.",
)
@option(
    REPORTS,
    "--json",
    "as_json",
    type=click.Path(),
    default=None,
    help="Write the result as JSON; `-` is standard output.",
)
@option(
    REPORTS,
    "--html",
    "html_file",
    type=click.Path(),
    default=None,
    help="Write a page: the modules as a tree, and which part of each the ranks have.",
)
def parity(**options: Any) -> None:
    """Compare n processes with one: gradients and weights at the first steps.

    COMMAND is a script with its arguments, behind `--`, with `--reference` for one process; or the
    folders of two records with values: of one process, of several. Exit codes: 0 they compute the
    same, 1 they do not, 3 it is not known.
    """
    answers.parity.parity(options)
