"""Writes docs/explanation/semantics.md from the rule book: `python docs/reference_semantics.py`.

With it go the pictures of the scenarios that show the rules, which `scenario show --svg` draws.
"""

from __future__ import annotations

import importlib
import json
import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from writing import wrapped

import torch_scenarios
from torch_scenarios.pipeline.attempts import analyse
from torch_scenarios.reference.rules import RULES, Article
from torch_scenarios.report.diagram import PictureView, svg
from torch_scenarios.timeline import Timeline, timeline

DOCS = Path(__file__).parent
PAGE = DOCS / "explanation" / "semantics.md"
PICTURES = DOCS / "explanation" / "pictures"
CORPUS = DOCS.parent / "scenarios"

#: the rooms of the rule book, in the order of the page, each with its heading
ROOMS = {
    "call": "Every call",
    "collective": "Collectives",
    "message": "Messages",
    "waiting": "Waiting",
    "creation": "Creating groups",
    "local": "Local steps",
    "compound": "Steps of several calls",
    "procedure": "Functions that other ranks call",
}

NOT_MEASURED = "not measured"
#: rules about what ranks hold afterwards: their pictures show it
OF_VALUES = frozenset({"act", "deliver", "leave", "settle"})

INTRODUCTION = """\
Each rule below is a function of `torch_scenarios/reference/rules`, and the analysis is made of
these functions; `python docs/reference_semantics.py` writes this page from them. A rule has its
source and a picture, which `scenario show --svg` draws of a scenario that shows the rule (of a
right and of a wrong one, where there are both): a lane for each rank, time downwards, a row for
each step of the file. Below it is how these scenarios end where they were really run, on
COLUMNS ([what works where](../reference/conformance.md)): `as stated` is what the scenario states
of that backend, an error or a hang included.
"""


def page() -> str:
    """Return the whole page."""
    measured = json.loads((DOCS / "conformance.json").read_text(encoding="utf-8"))
    columns = [column["name"] for column in measured["columns"]]
    introduction = INTRODUCTION.replace("COLUMNS", list_backends(columns))
    parts = [f"# What torch.distributed means\n\n{wrapped(introduction)}\n"]
    for room, heading in ROOMS.items():
        parts.append(f"## {heading}\n")
        parts += [_section(rule, columns, measured["cases"]) for rule in rules(room)]
    return "\n".join(parts)


def list_backends(columns: Sequence[str]) -> str:
    """Return the backends of the columns, each with the versions of torch it was run with."""
    versions: dict[str, list[str]] = {}
    for column in columns:
        backend, _, on = column.partition(", ")
        versions.setdefault(backend, []).append(on.removeprefix("torch "))
    return "; ".join(
        backend if "without torch" in on else f"{backend} of torch {', '.join(on)}"
        for backend, on in versions.items()
    )


def rules(room: str) -> list[Article]:
    """Return the rules of a room."""
    importlib.import_module(f"torch_scenarios.reference.rules.{room}")
    return [rule for rule in RULES if rule.room == room]


def pictures() -> dict[Path, str]:
    """Return the pictures by their files."""
    return {
        picture_of(rule, name): svg(_drawn(name), PictureView(values=rule.name in OF_VALUES))
        for room in ROOMS
        for rule in rules(room)
        for name in drawn_of(rule)
    }


def drawn_of(rule: Article) -> list[str]:
    """Return the first scenario that shows a rule and is right, and the first that is wrong."""
    found = {name.startswith("wrong/"): name for name in reversed(rule.shown)}
    return [found[wrong] for wrong in sorted(found)]


def picture_of(rule: Article, name: str) -> Path:
    """Return the file of a picture."""
    values = "-with-values" if rule.name in OF_VALUES else ""
    return PICTURES / f"{name.replace('/', '-')}{values}.svg"


@cache
def _drawn(name: str) -> Timeline:
    """Return the first case of a scenario as it is predicted."""
    scenario = torch_scenarios.load(CORPUS / f"{name}.yaml")[0]
    predicted = analyse(scenario).predicted
    assert predicted is not None
    return timeline(scenario, predicted, predicted)


def _shown(rule: Article, name: str) -> str:
    return f"![{name}]({picture_of(rule, name).relative_to(PAGE.parent).as_posix()})"


def _section(rule: Article, columns: list[str], cases: list[dict[str, Any]]) -> str:
    title, rest = _part_title(rule.sentence)
    source = wrapped(f"Source: {rule.source}. Rule: `{rule.room}.{rule.name}`.")
    shown = [
        wrapped(
            f"[{name.rpartition('/')[2]}](../../scenarios/{name}.yaml): "
            + _told(_ends(name, columns, cases), columns)
        )
        for name in rule.shown
    ]
    return "\n\n".join(
        [
            f"### {title}",
            *([wrapped(rest)] if rest else []),
            source,
            "\n".join(_shown(rule, name) for name in drawn_of(rule)),
            "\n".join("- " + each.replace("\n", "\n  ") for each in shown) + "\n",
        ]
    )


def _part_title(sentence: str) -> tuple[str, str]:
    """Return what a rule says first, which is its title, and what it says after that."""
    parts = re.split(r"[.:;] ", sentence, maxsplit=1)
    rest = parts[1] if len(parts) > 1 else ""
    return parts[0].removesuffix("."), rest[:1].upper() + rest[1:]


def _told(ends: list[str], columns: list[str]) -> str:
    """Return in words how a scenario ends in the columns: those that say the same together."""
    names: dict[str, list[str]] = {}
    for end, column in zip(ends, columns, strict=True):
        names.setdefault(end, []).append(column)
    if len(names) == 1:
        return f"{ends[0]} on all of them" if ends[0] != NOT_MEASURED else ends[0]
    most = max(names, key=lambda end: len(names[end]))
    others = [f"{end} on {'; '.join(found)}" for end, found in names.items() if end != most]
    return f"{most}, but {', and '.join(others)}"


def _ends(name: str, columns: list[str], cases: list[dict[str, Any]]) -> list[str]:
    """Return how the cases of a scenario end in each column."""
    mine = [case["results"] for case in cases if case["case"].startswith(f"{name}.yaml::")]
    return [_end([results[column] for results in mine if column in results]) for column in columns]


def _end(results: list[str]) -> str:
    words = {"PASSED": "as stated", "UNSUPPORTED": "not supported", "FAILED": "**differs**"}
    counts = Counter(words.get(each.split()[0], each.split()[0].lower()) for each in results)
    if not counts:
        return NOT_MEASURED
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{count} {word}" for word, count in counts.items())


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    made = pictures()
    for path in {*PICTURES.glob("*.svg")} - made.keys():
        path.unlink()
    for path, text in made.items():
        path.write_text(text, encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")
