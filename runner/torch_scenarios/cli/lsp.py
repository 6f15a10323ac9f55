"""`scenario lsp`: the language server on standard input and output."""

from __future__ import annotations

from importlib.util import find_spec

import click

from torch_scenarios.cli.options import refuse_usage


@click.command("lsp")
def lsp() -> None:
    """Serve an editor on standard input and output (the Language Server Protocol).

    It needs pygls, of the extra `lsp`. `docs/how-to/editor.md` says how editors start it.
    """
    if find_spec("pygls") is None:
        refuse_usage("scenario lsp needs pygls: pip install pygls")
    from torch_scenarios.editor.server import serve

    serve()
