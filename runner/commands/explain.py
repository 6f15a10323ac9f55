"""`scenario explain`: what a code means, why it is a fault, an example, the fix."""

from __future__ import annotations

import sys

import click

from runner.commands.options import INVALID_EXIT

SORTS = ("diagnosis", "finding", "problem", "kind of error")


@click.command("explain")
@click.argument("code", required=False)
def command(*, code: str | None) -> None:
    """Explain CODE: any problem code, diagnosis, finding, warning or kind of error.

    Without CODE it lists them all.

    Codes stand in brackets at the end of a message.
    """
    from runner.explanations import EXPLANATIONS, page  # noqa: PLC0415 -- only when it is asked for
    from runner.problems import nearest  # noqa: PLC0415 -- beside its only use

    if code is None:
        width = max(map(len, EXPLANATIONS))
        sorts = dict.fromkeys(each.sort for each in EXPLANATIONS.values())
        for sort in (
            "diagnosis",
            "finding",
            "warning",
            *(s for s in sorts if s not in {"diagnosis", "finding", "warning"}),
        ):
            click.echo(f"{sort}:")
            for each in EXPLANATIONS.values():
                if each.sort == sort:
                    click.echo(f"  {each.code:<{width}}  {each.what}")
        return
    found = EXPLANATIONS.get(code.strip("[] "))
    if found is None:
        close = nearest(code, EXPLANATIONS)
        hint = f"did you mean {close}?" if close else "`scenario explain` lists them all"
        click.echo(f"there is no code {code}; {hint}", err=True)
        sys.exit(INVALID_EXIT)
    click.echo(page(found))
