"""`scenario ops`: the operations, as their own declarations describe them."""

from __future__ import annotations

import sys

import click

from runner.commands.options import INVALID_EXIT


@click.command("ops")
@click.argument("name", required=False)
def command(*, name: str | None) -> None:
    """Show every operation that a step may be, or NAME whole: arguments, semantics, an example."""
    from runner.operations import BY_NAME  # noqa: PLC0415 -- imports NumPy
    from runner.problems import nearest  # noqa: PLC0415 -- beside its only use
    from runner.report.operations import overview, page  # noqa: PLC0415 -- the same

    if name is None:
        click.echo(overview())
        return
    operation = BY_NAME.get(name)
    if operation is None:
        close = nearest(name, BY_NAME)
        hint = f"did you mean {close}?" if close else "`scenario ops` lists them all"
        click.echo(f"there is no operation {name}; {hint}", err=True)
        sys.exit(INVALID_EXIT)
    click.echo(page(operation))
