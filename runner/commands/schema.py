"""`scenario schema`: the JSON Schema of scenario files, for editors; or of the results."""

from __future__ import annotations

from pathlib import Path

import click

#: in an installed package the schemas lie inside it, in a checkout beside it
FOLDERS = (
    Path(__file__).parent.parent / "schemas",
    Path(__file__).parent.parent.parent / "schemas",
)


def schema_file(name: str) -> Path:
    """Return where a schema file is."""
    return next((folder / name for folder in FOLDERS if (folder / name).is_file()), Path(name))


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
