"""Markdown, as the generated parts of the reference are written in it."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table."""
    lines = [list(head), *(list(row) for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join("| " + " | ".join(_cell(each) for each in line) + " |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def wrapped(text: str, columns: int = 108) -> str:
    """Break prose into lines; a span of code stays on one line, and what is indented as it is."""
    if "\n\n" in text:
        return "\n\n".join(wrapped(part, columns) for part in text.split("\n\n"))
    if text.startswith("    "):
        return f"```text\n{textwrap.dedent(text)}\n```"
    lines = [""]
    for word in re.findall(r"[^`\s]*(?:`[^`]*`[^`\s]*)+|\S+", text):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > columns:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}" if lines[-1] else word
    return "\n".join(lines)


def yaml_block(text: str) -> str:
    """Return YAML as a block."""
    return f"```yaml\n{text.rstrip()}\n```"


def escaped(text: str) -> str:
    """Escape what Markdown would read as markup outside of code."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        part if part.startswith("`") else re.sub(r"([*<\[\]_])", r"\\\1", part) for part in parts
    )
