"""Where the JSON Schemas are that this package publishes."""

from __future__ import annotations

from pathlib import Path

#: in an installed package the schemas lie inside it, in a checkout beside it
FOLDERS = (Path(__file__).parent / "schemas", Path(__file__).parent.parent / "schemas")


def schema_file(name: str) -> Path:
    """Return where a schema file is."""
    return next((folder / name for folder in FOLDERS if (folder / name).is_file()), Path(name))
