"""`scenario conformance`: what a backend does in one version of torch, and what changed."""

from __future__ import annotations

from typing import Any

import click

from torch_scenarios.cli import answers
from torch_scenarios.cli.options import (
    HOW,
    WHICH,
    add_execution_options,
    add_framework_option,
    add_reports_as,
    option,
)
from torch_scenarios.vocabulary import DTYPES


def _dtypes(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...]:
    """Split the names of dtypes; all of them if left out."""
    if value is None:
        return tuple(DTYPES)
    names = tuple(filter(None, (name.strip() for name in value.split(","))))
    strange = [name for name in names if name not in DTYPES]
    if strange:
        message = f"{strange[0]!r} is not a dtype; there are {', '.join(DTYPES)}"
        raise click.BadParameter(message, ctx=ctx, param=param)
    return names


@click.group(invoke_without_command=True)
@option(
    WHICH,
    "--corpus",
    "paths",
    multiple=True,
    default=("scenarios",),
    show_default=True,
    type=click.Path(),
    metavar="PATH",
    help="The scenarios to run: a file or a folder. Repeatable.",
)
@option(WHICH, "-k", "keyword", metavar="EXPR", help="Only cases whose path or name holds this.")
@option(
    WHICH,
    "--dtypes",
    callback=_dtypes,
    metavar="NAMES",
    help="The dtypes of the table of calls, by commas; all of them if left out.",
)
@option(
    WHICH,
    "--missing",
    is_flag=True,
    help=(
        "Only what the column in FILE lacks, such as new scenarios, or has as INCONCLUSIVE; the "
        "rest of it is kept."
    ),
)
@option(
    HOW,
    "--share-gpu",
    is_flag=True,
    help="Let several NCCL ranks share one GPU.",
)
@option(
    HOW,
    "--launcher",
    metavar="COMMAND",
    help="Start the ranks by this, as 'mpirun -n 8', and once more where a case ends a launch.",
)
@add_framework_option
@add_execution_options
@click.option(
    "-o",
    "--output",
    default="conformance.json",
    show_default=True,
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Where to write it. Columns of other versions and backends that the file has are kept.",
)
@click.option(
    "--name",
    default="",
    metavar="NAME",
    help="The column's name; the backend and the version of torch if left out.",
)
@add_reports_as([])
@click.pass_context
def conformance(context: click.Context, /, **options: Any) -> None:
    """Run the corpus and every call on what is installed, and keep the results.

    The table of calls is operation x reduce op x dtype on two ranks, each held against the
    reference. The exit code is that of `scenario run` on the corpus; the end of a call is not a
    failure. `scenario conformance compare OLD NEW` says what changed.
    """
    answers.conformance.conformance(context, options)


@conformance.command("compare")
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@click.option(
    "--scenarios",
    "folder",
    type=click.Path(file_okay=False),
    metavar="FOLDER",
    help="Write the scenario that shows each call that changed into this folder.",
)
def compare(old: str, new: str, folder: str | None) -> None:
    """Say what changed between two versions of torch, or two backends.

    OLD and NEW are files of `scenario conformance`; FILE#COLUMN names one of several columns. Each
    difference comes with the scenario that shows it: a case of the corpus, or a file of two ranks.
    Exit code 0 where nothing differs, 1 where something does, 2 where a file cannot be compared.
    """
    answers.conformance.compare(old, new, folder)


@conformance.command("ranges")
@click.argument("path", metavar="FILE", default="conformance.json")
@click.option(
    "--backend",
    default="gloo",
    show_default=True,
    metavar="NAME",
    help="The backend whose columns are compared.",
)
def ranges(path: str, backend: str) -> None:
    """Propose the `torch:` key of each case that fails in some version of torch.

    FILE is one of `scenario conformance`, with a column for each version. A range leaves out the
    versions in which the case fails, and none in which it passes; what is UNSUPPORTED says nothing.
    Exit code 0 where nothing is proposed, 1 where something is, 2 where the file cannot be read.
    """
    answers.conformance.ranges(path, backend)
