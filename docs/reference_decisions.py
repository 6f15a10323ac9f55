"""The decisions as an index: by the room that each concerns, with what became of it."""

from __future__ import annotations

import re
from pathlib import Path

from writing import table

#: the rooms, in the order of the index
ROOMS = (
    "language",
    "operations",
    "reference",
    "verdict",
    "strategies",
    "execution",
    "record",
    "cost",
    "commands",
    "the house",
)
FOLDER = Path(__file__).parent / "decisions"
_HEAD = re.compile(
    r"\A# (?P<number>\d{4})\. (?P<title>[^\n]+)\n\n"
    r"Room: (?P<room>[^.\n]+)\. Status: (?P<status>[^\n]+)\.\n",
)


def decisions() -> str:
    """Return a table for each room: number, decision, status.

    Raises ValueError for a decision without a number, a known room and a status, and for a file
    that is not named as its title is.
    """
    rows: dict[str, list[tuple[str, str, str]]] = {room: [] for room in ROOMS}
    for page in sorted(FOLDER.glob("*.md")):
        head = _HEAD.match(page.read_text(encoding="utf-8"))
        if head is None or head["room"] not in rows or head["number"] != page.name[:4]:
            message = (
                f"{page.name} does not begin with `# {page.name[:4]}. TITLE` and a line "
                f"`Room: ROOM. Status: STATUS.`; rooms are {', '.join(ROOMS)}"
            )
            raise ValueError(message)
        if page.name != (name := _file_name(head["number"], head["title"])):
            message = f"{page.name} is not named as its title is: rename it to {name}"
            raise ValueError(message)
        status = head["status"].replace("](", "](../decisions/")
        link = f"[{head['number']}](../decisions/{page.name})"
        rows[head["room"]].append((link, head["title"], status))
    return "\n\n".join(
        f"## {room[0].upper()}{room[1:]}\n\n{table(('', 'decision', 'status'), found)}"
        for room, found in rows.items()
    )


def _file_name(number: str, title: str) -> str:
    """Return the name of a decision's file: the number and the words of its title."""
    words = re.sub(r"[^a-z0-9]+", "-", title.lower().replace("'", "")).strip("-")
    return f"{number}-{words}.md"
