"""`scenario schema`: the JSON Schema of scenario files, for editors; or of the results."""

from __future__ import annotations

import click

from runner.schema_files import schema_file


@click.command("schema")
@click.option("--result", is_flag=True, help="The schema of --json instead.")
@click.option("--path", is_flag=True, help="Print where the schema file is, not its text.")
def command(*, result: bool, path: bool) -> None:
    """Print the JSON Schema (Draft 2020-12) of scenario files.

    An editor's YAML language server completes and explains every key from it; name it in a
    scenario's first line: # yaml-language-server: $schema=PATH
    """
    file = schema_file("result.schema.json" if result else "scenario.schema.json")
    click.echo(str(file) if path else file.read_text(encoding="utf-8"), nl=path)
