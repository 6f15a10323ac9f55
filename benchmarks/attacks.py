"""What is attacked, and what holds: each hostile file, document, kill and neighbour, as a row.

    python -m benchmarks.attacks                          # all of it: an hour and more
    python -m benchmarks.attacks files documents names    # these sections alone: some minutes
    python -m benchmarks.attacks --output docs/attacks.json && python docs/reference_pages.py

A section is a folder of tests, run whole (`--nightly`), or the corpus beside busy loops. A row is
one attack: what was tried, whether the product held, and where one command was asked, its exit
code, its seconds of CPU and its memory. Sections that are not run keep the rows that the file has.
The exit code is 1 where a row did not hold. docs/explanation/attacks.md is written from the file.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import click

from benchmarks.load import RIGHT, busy, results
from benchmarks.measure import Row, show

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One kind of attack: its name, and the tests whose rows it has."""

    name: str
    tests: tuple[str, ...]
    options: tuple[str, ...] = ()


SECTIONS = (
    Section(name="files", tests=("tests/hostile/test_hostile_files.py",)),
    Section(name="documents", tests=("tests/hostile/test_hostile_documents.py",)),
    Section(
        name="intruder",
        tests=(
            "tests/torch/test_intruder.py",
            "tests/processes/test_local_store.py",
            "tests/unit/test_letters.py",
            "tests/unit/test_rendezvous.py",
        ),
    ),
    Section(name="names", tests=("tests/torch/test_users_own_names.py",)),
    Section(name="kills", tests=("tests/kills",), options=("-n", "0")),
)
#: the section that is no folder of tests: the corpus beside busy loops
LOAD = "load"
#: characters of what was tried that a row keeps
LONGEST = 120
NAMES = (*(each.name for each in SECTIONS), LOAD)


def rows_of(section: Section) -> list[dict[str, Any]]:
    """Run the tests of a section; returns one row for each, in the order of their names."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "--nightly", f"--junit-xml={report}"]
        subprocess.run(
            [*command, "-o", "junit_family=xunit1", *section.options, *section.tests],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        if not report.exists():
            sys.exit(f"pytest wrote no report of {', '.join(section.tests)}")
        cases = ET.parse(report).getroot().iter("testcase")  # noqa: S314 -- pytest's own
        return sorted((_row(case) for case in cases), key=lambda row: str(row["attack"]))


def _row(case: ET.Element) -> dict[str, Any]:
    """Return one test as a row."""
    how = {each.tag for each in case} & {"failure", "error", "skipped"}
    held = "skipped" if how == {"skipped"} else "no" if how else "yes"
    said = {each.get("name"): json.loads(each.get("value", "")) for each in case.iter("property")}
    ended = said.get("ended", {})
    test, _, parameters = case.get("name", "").partition("[")
    tried = parameters.removesuffix("]")
    if "command" not in ended:  # a test of its own: its name says what was tried
        tried = f"{test.removeprefix('test_')}: {tried}" if tried else test.removeprefix("test_")
    return {"attack": tried.replace("_", " ")[:LONGEST], "held": held, **ended}


def rounds_under_load(rounds: int, loops: int) -> list[dict[str, Any]]:
    """Run the corpus again and again beside busy loops; returns one row for each round."""
    found = []
    with busy(loops):
        for number in range(1, rounds + 1):
            verdicts = Counter(each["verdict"] for each in results(("scenarios",), ()))
            counts = ", ".join(f"{count} {name}" for name, count in sorted(verdicts.items()))
            attack = f"round {number} of the corpus at a load of {os.getloadavg()[0]:.0f}"
            held = "yes" if set(verdicts) <= RIGHT else "no"
            found.append({"attack": attack, "held": held, "says": counts})
            print(f"{attack}: {counts}", flush=True)
    return found


def section_of(name: str, rounds: int, loops: int) -> dict[str, Any]:
    """Run one section; returns what the file keeps of it."""
    found = next((each for each in SECTIONS if each.name == name), None)
    rows = rows_of(found) if found else rounds_under_load(rounds, loops)
    return {
        "section": name,
        "date": datetime.now(UTC).date().isoformat(),
        "torch": metadata.version("torch"),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "rows": rows,
    }


@click.command()
@click.option("--rounds", default=8, show_default=True, help="How often the corpus is run.")
@click.option("--loops", default=10, show_default=True, help="Busy loops beside it.")
@click.option("--output", type=click.Path(path_type=Path), help="The file that keeps the rows.")
@click.argument("sections", nargs=-1, type=click.Choice(NAMES))
def main(*, rounds: int, loops: int, output: Path | None, sections: tuple[str, ...]) -> None:
    """Attack the product; print what held, and keep each row in a file."""
    kept: dict[str, Any] = {}
    if output and output.exists():
        kept = {each["section"]: each for each in json.loads(output.read_text(encoding="utf-8"))}
    fell = 0
    for name in sections or NAMES:
        kept[name] = section_of(name, rounds, loops)
        if output:
            ordered = [kept[each] for each in NAMES if each in kept]
            output.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
    table = []
    for name in sections or NAMES:
        held = Counter(row["held"] for row in kept[name]["rows"])
        fell += held["no"]
        table.append(Row(what=name, value=f"{held['yes']} held, {held['no']} did not", bound="0"))
        for row in kept[name]["rows"]:
            if row["held"] == "no":
                print(f"did not hold: {name}: {row['attack']}")
    show(table)
    sys.exit(1 if fell else 0)


if __name__ == "__main__":
    main()
