"""Writes docs/explanation/semantics.md from the rule book: `python docs/reference_semantics.py`."""

from __future__ import annotations

import importlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

from writing import table, wrapped

from torch_scenarios.reference.rules import RULES, Article

DOCS = Path(__file__).parent
PAGE = DOCS / "explanation" / "semantics.md"

#: the rooms of the rule book, in the order of the page, each with its heading
ROOMS = {
    "call": "Every call",
    "collective": "Collectives",
    "message": "Messages",
    "waiting": "Waiting",
    "creation": "Creating groups",
    "local": "Local steps",
    "compound": "Steps of several calls",
}

INTRODUCTION = """\
Written by `python docs/reference_semantics.py` from `torch_scenarios/reference/rules`: each
sentence is a function there, and the analysis is made of these functions. A rule has its source,
and scenarios of the corpus that show it. The tables say how these scenarios end where they are
really run ([what works where](../reference/conformance.md)): `as stated` is what the scenario
states of that backend, an error or a hang included.
"""


def page() -> str:
    """Return the whole page."""
    for room in ROOMS:
        importlib.import_module(f"torch_scenarios.reference.rules.{room}")
    measured = json.loads((DOCS / "conformance.json").read_text(encoding="utf-8"))
    columns = [column["name"] for column in measured["columns"]]
    parts = [f"# What torch.distributed means\n\n{wrapped(INTRODUCTION)}\n"]
    for room, heading in ROOMS.items():
        parts.append(f"## {heading}\n")
        parts += [_section(rule, columns, measured["cases"]) for rule in RULES if rule.room == room]
    return "\n".join(parts)


def _section(rule: Article, columns: list[str], cases: list[dict[str, Any]]) -> str:
    title = rule.name.replace("_", " ")
    rows = [
        (f"[{name}](../../scenarios/{name}.yaml)", *_ends(name, columns, cases))
        for name in rule.shown
    ]
    source = wrapped(f"Source: {rule.source}. Rule: `{rule.room}.{rule.name}`.")
    return "\n\n".join(
        [
            f"### {title[0].upper()}{title[1:]}",
            wrapped(rule.sentence),
            source,
            table(("scenario", *columns), rows) + "\n",
        ]
    )


def _ends(name: str, columns: list[str], cases: list[dict[str, Any]]) -> list[str]:
    """Return how the cases of a scenario end in each column."""
    mine = [case["results"] for case in cases if case["case"].startswith(f"{name}.yaml::")]
    return [_end([results[column] for results in mine if column in results]) for column in columns]


def _end(results: list[str]) -> str:
    words = {"PASSED": "as stated", "UNSUPPORTED": "not supported", "FAILED": "**differs**"}
    counts = Counter(words.get(each.split()[0], each.split()[0].lower()) for each in results)
    if not counts:
        return "not measured"
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{count} {word}" for word, count in counts.items())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
