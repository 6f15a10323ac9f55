"""What people read is written by docs/contributing/style.md: its words, and its widths."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from runner.cli import COMMANDS, cli
from runner.explain import EXPLANATIONS
from runner.explain import page as explained
from runner.operations import OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
STYLE = ROOT / "docs" / "contributing" / "style.md"
PAGES = [
    page
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if page.parent.name != "decisions" and page != STYLE
]
#: pages that are written by what they measure, on machines that are not at hand
MEASURED = {"nccl.md", "scoreboard.md"}
MODULES = sorted((ROOT / "runner").rglob("*.py"))
SCRIPTS = sorted((ROOT / "runner").rglob("*.js"))
CORPUS = sorted((ROOT / "scenarios").rglob("*.yaml"))
GOLDENS = sorted((ROOT / "tests" / "problems").glob("*.txt"))
PROSE_COLUMNS = 120
HELP_COLUMNS = 100


def forbidden() -> re.Pattern[str]:
    """Return what the list of style forbids, as one expression."""
    text = STYLE.read_text(encoding="utf-8")
    found = re.search(r"<!-- words -->\n```text\n(.*?)```", text, re.DOTALL)
    assert found is not None
    rows = [re.split(r" {2,}", line)[0] for line in found[1].splitlines()]
    return re.compile(r"\b(?:" + "|".join(f"(?:{row})" for row in rows) + r")\b", re.IGNORECASE)


FORBIDDEN = forbidden()


def found_in(text: str) -> list[str]:
    """Return each forbidden phrase of a text, with what is around it."""
    flat = " ".join(text.split())
    return [
        flat[max(0, found.start() - 40) : found.end() + 40] for found in FORBIDDEN.finditer(flat)
    ]


def literals(module: Path) -> Iterator[str]:
    """Return the strings of a module that are not docstrings; pieces of one string as one."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    silent: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            silent.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            silent |= {id(part) for part in node.values}
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values
            )
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in silent
        ):
            yield node.value


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """Return the lines of a page outside its blocks of code, with their numbers."""
    code = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            code = not code
        elif not code:
            yield number, line


def helps() -> Iterator[tuple[str, str]]:
    """Return what `--help` prints for each command."""
    for name in COMMANDS:
        context = click.Context(cli, info_name="scenario", max_content_width=HELP_COLUMNS)
        command = cli.get_command(context, name)
        assert command is not None
        inner = click.Context(
            command, info_name=name, parent=context, max_content_width=HELP_COLUMNS
        )
        yield name, command.get_help(inner)


def test_the_list_forbids_what_it_says() -> None:
    assert found_in("the peer that nobody waits for")
    assert found_in("`x` is no dtype")
    assert not found_in("there is no file of this name, and it is no longer needed")
    assert not found_in("this understands a standard")


@pytest.mark.parametrize("module", MODULES, ids=named)
def test_messages_keep_to_the_list(module: Path) -> None:
    assert [each for text in literals(module) for each in found_in(text)] == []


@pytest.mark.parametrize("script", SCRIPTS, ids=named)
def test_words_of_the_page_of_a_run_keep_to_the_list(script: Path) -> None:
    texts = re.findall(r'"([^"\n]*)"|`([^`]*)`', script.read_text(encoding="utf-8"))
    assert [each for pair in texts for text in pair for each in found_in(text)] == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_pages_keep_to_the_list(page: Path) -> None:
    text = re.sub(r"```python\n.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert found_in(text) == []


@pytest.mark.parametrize("file", CORPUS, ids=named)
def test_descriptions_of_the_corpus_keep_to_the_list(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    about = re.search(r"^description:((?:.*\n)(?:  .*\n|\n)*)", text, re.MULTILINE)
    assert about is not None
    assert found_in(about[1]) == []


@pytest.mark.parametrize("page", [each for each in PAGES if each.name not in MEASURED], ids=named)
def test_lines_of_pages_are_short(page: Path) -> None:
    long = [
        number
        for number, line in prose(page)
        if len(line) > PROSE_COLUMNS and not line.startswith("|") and " " in line.strip()[:80]
    ]
    assert long == [], f"{named(page)}: lines {long} have more than {PROSE_COLUMNS} columns"


@pytest.mark.parametrize(("name", "text"), list(helps()), ids=list(COMMANDS))
def test_help_keeps_to_the_list_and_its_width(name: str, text: str) -> None:
    assert found_in(text) == []
    assert [line for line in text.splitlines() if len(line) > HELP_COLUMNS] == [], name


@pytest.mark.parametrize("golden", GOLDENS, ids=named)
def test_golden_messages_keep_to_the_list_and_their_width(golden: Path) -> None:
    text = golden.read_text(encoding="utf-8")
    assert found_in(text) == []
    assert [line for line in text.splitlines() if len(line) > HELP_COLUMNS] == []


@pytest.mark.parametrize("code", EXPLANATIONS)
def test_explanations_keep_to_their_width(code: str) -> None:
    shown = explained(EXPLANATIONS[code]).splitlines()
    assert [line for line in shown if len(line) > HELP_COLUMNS and line[:4].strip()] == []


def test_what_operations_say_of_themselves_keeps_to_the_list() -> None:
    docs = [type(each).__doc__ or "" for each in OPERATIONS]
    assert [each for text in docs for each in found_in(text)] == []
