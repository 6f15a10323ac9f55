"""`scenario certify`: what a backend of one's own passes of the corpus, level by level."""

from __future__ import annotations

from typing import Any

import click

from torch_scenarios.cli import answers
from torch_scenarios.cli.options import (
    HOW,
    REPORTS,
    WHICH,
    GroupedCommand,
    add_execution_options,
    add_reports_as,
    option,
)


@click.command("certify", cls=GroupedCommand)
@click.argument("paths", nargs=-1, type=click.Path())
@option(
    WHICH,
    "--first",
    is_flag=True,
    help="Only the twenty files that say most, soonest.",
)
@option(WHICH, "-k", "keyword", metavar="EXPR", help="Only cases whose path or name holds this.")
@option(
    HOW,
    "-j",
    "--jobs",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    metavar="N",
    help="Run so many cases at once.",
)
@add_execution_options
@option(
    REPORTS,
    "-o",
    "--output",
    type=click.Path(file_okay=False),
    metavar="FOLDER",
    help="Write certificate.md, certificate.json and badge.svg into this folder.",
)
@add_reports_as([])
def certify(**options: Any) -> None:
    """Run the corpus on a backend, and say which levels it passes.

    The levels are p2p, collectives, groups, async, objects, errors, hangs and dtypes. A case
    belongs to the last of them that it needs anything of. What the plugin declares in `LACKS` is
    counted as lacking. PATHS are scenarios; left out, the corpus that comes with the package. The
    plugin is a module, or the path of a file. Cases that no level asks for are left out. The exit
    code is that of `scenario run`.
    """
    answers.conformance.certify(options)
