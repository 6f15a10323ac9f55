"""What people read is written by docs/contributing/style.md: its words, and its widths."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest
from checkout import PACKAGE, ROOT

from torch_scenarios.cli import COMMANDS, cli
from torch_scenarios.explain import EXPLANATIONS
from torch_scenarios.explain import page as explained
from torch_scenarios.operations import OPERATIONS
from torch_scenarios.vocabulary import DIAGNOSES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

STYLE = ROOT / "docs" / "contributing" / "style.md"
PAGES = [
    page
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if page.parent.name != "decisions" and page != STYLE
]
#: pages that are written by what they measure, on machines that are not at hand
MEASURED = {"attacks.md", "nccl.md", "scoreboard.md"}
MODULES = sorted(PACKAGE.rglob("*.py"))
SCRIPTS = sorted(PACKAGE.rglob("*.js"))
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


def literals(module: str) -> Iterator[str]:
    """Yield the strings of a module that are not docstrings; pieces of one string as one."""
    tree = ast.parse(module)
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


def prose(page: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a page outside its blocks of code, with their numbers."""
    code = False
    for number, line in enumerate(page.splitlines(), 1):
        if line.lstrip().startswith("```"):
            code = not code
        elif not code:
            yield number, line


def help_of(name: str) -> str:
    """Return what `--help` prints for a command."""
    context = click.Context(cli, info_name="scenario", max_content_width=HELP_COLUMNS)
    command = cli.get_command(context, name)
    assert command is not None
    return command.get_help(
        click.Context(command, info_name=name, parent=context, max_content_width=HELP_COLUMNS)
    )


def test_the_list_forbids_what_it_says() -> None:
    assert found_in("the peer that nobody waits for")
    assert found_in("`x` is no dtype")
    assert not found_in("there is no file of this name, and it is no longer needed")
    assert not found_in("this understands a standard")


def faults(
    files: Iterable[Path], faults_of: Callable[[str], Sequence[object]]
) -> dict[str, Sequence[object]]:
    """Return what is wrong with the text of each file, by its name; files without a fault not."""
    found = {named(path): faults_of(path.read_text(encoding="utf-8")) for path in files}
    return {name: each for name, each in found.items() if each}


def found_in_all(texts: Iterable[str]) -> list[str]:
    return [each for text in texts for each in found_in(text)]


def test_messages_keep_to_the_list() -> None:
    assert faults(MODULES, lambda text: found_in_all(literals(text))) == {}


def test_what_a_diagnosis_says_is_written_once() -> None:
    """Elsewhere it is `DIAGNOSES[name]`; what pages show is held against the program."""
    files = [*MODULES, *(ROOT / "tests").rglob("*.py")]
    again = [
        f"{path.relative_to(ROOT)} writes what DIAGNOSES[{name!r}] says"
        for path in files
        if path.name != "vocabulary.py"
        for name, says in DIAGNOSES.items()
        if says in path.read_text(encoding="utf-8")
    ]
    assert again == []
    assert f"`{DIAGNOSES['circular_wait']}`" in STYLE.read_text(encoding="utf-8")


def test_words_of_the_page_of_a_run_keep_to_the_list() -> None:
    def words(script: str) -> list[str]:
        pairs = re.findall(r'"([^"\n]*)"|`([^`]*)`', script)
        return [text for pair in pairs for text in pair]

    assert SCRIPTS
    assert faults(SCRIPTS, lambda script: found_in_all(words(script))) == {}


def test_pages_keep_to_the_list() -> None:
    def own_prose(page: str) -> str:  # not Python, nor the names of tests
        attacks = r"<!-- generated: attacks -->.*?<!-- generated: end -->"
        return re.sub(rf"```python\n.*?```|{attacks}", "", page, flags=re.DOTALL)

    assert faults(PAGES, lambda page: found_in(own_prose(page))) == {}


def test_descriptions_of_the_corpus_keep_to_the_list() -> None:
    def described(text: str) -> list[str]:
        about = re.search(r"^description:((?:.*\n)(?:  .*\n|\n)*)", text, re.MULTILINE)
        return ["it has no description"] if about is None else found_in(about[1])

    assert CORPUS
    assert faults(CORPUS, described) == {}


def test_lines_of_pages_are_short() -> None:
    def long(page: str) -> list[int]:
        return [
            number
            for number, line in prose(page)
            if len(line) > PROSE_COLUMNS and not line.startswith("|") and " " in line.strip()[:80]
        ]

    assert faults([each for each in PAGES if each.name not in MEASURED], long) == {}


@pytest.mark.parametrize("name", COMMANDS)
def test_help_keeps_to_the_list_and_its_width(name: str) -> None:
    text = help_of(name)
    assert found_in(text) == []
    assert [line for line in text.splitlines() if len(line) > HELP_COLUMNS] == []


def test_golden_messages_keep_to_the_list_and_their_width() -> None:
    def faulty(text: str) -> list[str]:
        return [*found_in(text), *(line for line in text.splitlines() if len(line) > HELP_COLUMNS)]

    assert GOLDENS
    assert faults(GOLDENS, faulty) == {}


def test_explanations_keep_to_the_list() -> None:
    assert found_in_all(f"{e.what} {e.why} {e.fix}" for e in EXPLANATIONS.values()) == []


def test_explanations_keep_to_their_width() -> None:
    long = [
        (code, line)
        for code, explanation in EXPLANATIONS.items()
        for line in explained(explanation).splitlines()
        if len(line) > HELP_COLUMNS and line[:4].strip()
    ]
    assert long == []


def test_what_operations_say_of_themselves_keeps_to_the_list() -> None:
    assert found_in_all(type(each).__doc__ or "" for each in OPERATIONS) == []
