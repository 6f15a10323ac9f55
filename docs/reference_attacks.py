"""The rows of docs/attacks.json, as tables; `python -m benchmarks.attacks` measures them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from writing import escaped, table, wrapped

#: a section -> its heading, and what holding means there
SECTIONS = {
    "files": (
        "Hostile scenario files",
        (
            "Each ends with the exit code that is stated for it, reads no file outside of its "
            "project, starts no process, opens no connection, and says no control character."
        ),
    ),
    "documents": (
        "Hostile documents",
        (
            "Results, records, flight recorder dumps, pages and topologies that are no such thing. "
            "Each command ends at once with one line: no traceback, no code that runs."
        ),
    ),
    "intruder": (
        "Another user of the machine",
        (
            "He connects to every port and socket of a run, with the secret and without it, and "
            "plants, changes and repeats messages."
        ),
    ),
    "names": (
        "A user's own modules",
        "Beside a `runner.py`, `queue.py` and `yaml.py` of the user everything imports its own.",
    ),
    "kills": (
        "Random kills",
        (
            "One signal to one process of a run: no process, port, shared memory or temporary file "
            "is left, and no result is lost that was printed."
        ),
    ),
    "load": (
        "The corpus on a loaded machine",
        "Beside busy loops no case comes out as anything but PASSED or UNSUPPORTED.",
    ),
}
ROWS = Path(__file__).parent / "attacks.json"


def attacks() -> str:
    """Return what was attacked: a table of the sections, then each row."""
    kept = {each["section"]: each for each in json.loads(ROWS.read_text(encoding="utf-8"))}
    found = [name for name in SECTIONS if name in kept]
    head = ("attacked", "rows", "held", "skipped", "did not hold", "most CPU", "when, on what")
    parts = [table(head, (_total(name, kept[name]) for name in found))]
    for name in found:
        heading, meaning = SECTIONS[name]
        parts += [f"## {heading}", wrapped(meaning), _rows(kept[name]["rows"])]
    return "\n\n".join(parts)


def _total(name: str, section: dict[str, Any]) -> tuple[str, ...]:
    held = Counter(row["held"] for row in section["rows"])
    most = max((row.get("cpu_s", 0) for row in section["rows"]), default=0)
    machine = f"{section['date']}, torch {section['torch']}, Python {section['python']}"
    return (
        SECTIONS[name][0],
        str(len(section["rows"])),
        *(str(held[word]) for word in ("yes", "skipped", "no")),
        f"{most:.1f} s" if most else "",
        f"{machine}, {section['cores']} cores",
    )


def _rows(rows: list[dict[str, Any]]) -> str:
    """Return the rows of a section, with the columns that at least one of them has."""
    columns = {
        "command": lambda row: f"`{row['command']}`" if "command" in row else "",
        "code": lambda row: str(row.get("code", "")),
        "cpu_s": lambda row: f"{row['cpu_s']:.2f} s" if "cpu_s" in row else "",
        "mib": lambda row: f"{row['mib']} MiB" if "mib" in row else "",
        "says": lambda row: escaped(row.get("says", "")),
    }
    headings = {"code": "exit code", "cpu_s": "CPU", "mib": "memory", "says": "came out as"}
    used = [name for name in columns if any(name in row for row in rows)]
    return table(
        ("attack", *(headings.get(name, name) for name in used), "held"),
        (
            (escaped(row["attack"]), *(columns[name](row) for name in used), row["held"])
            for row in rows
        ),
    )
