"""`scenario check`: schema, semantics, reference; no process is started."""

from __future__ import annotations

from typing import Any

import click

from runner.commands.bounds import known_backend
from runner.commands.grouping import HOW, GroupedCommand, option
from runner.commands.options import (
    judging_strictly,
    reported,
    reporting,
    selecting,
    selection_of,
)
from runner.versions import is_version


def _version(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Refuse what is no version."""
    if value is not None and not is_version(value):
        message = f"{value!r} is no version of torch, such as 2.14.1"
        raise click.BadParameter(message, ctx=ctx, param=param)
    return value


@click.command("check", cls=GroupedCommand)
@selecting
@judging_strictly
@reporting
@option(
    HOW,
    "--plugin",
    "plugins",
    multiple=True,
    is_eager=True,
    metavar="MODULE",
    help="The module that registers the backend of --backend in a run; nothing is imported here.",
)
@option(
    HOW,
    "--backend",
    callback=known_backend,
    metavar="NAME",
    help="What comes of each case on a backend that is known to do otherwise than the semantics "
    "say for sure: nccl. Everywhere, if left out.",
)
@option(
    HOW,
    "--torch",
    callback=_version,
    metavar="VERSION",
    help="What comes of each case with this version of torch, such as 2.14.1. What is stated for "
    "any version is checked if left out, whatever is installed.",
)
def command(**options: Any) -> None:  # noqa: ANN401 -- click hands over what it parsed
    """Check scenarios and prove their expectations against the semantics; start no process.

    PATHS are scenario files, folders that hold some, a case (sum.yaml::sum[n=2]), or a line
    (sum.yaml:42: the step there, whose values are shown).
    """
    from runner.pipeline import check  # noqa: PLC0415 -- after the command line is parsed

    selection = selection_of(options)
    backend = options["backend"]
    if backend is not None:
        from runner.execution.backends import carrier  # noqa: PLC0415 -- only where one is named

        backend = carrier(backend)
    reported(
        options,
        lambda told: check(
            selection, told, traces=told.traces, backend=backend, torch=options["torch"]
        ),
    )
