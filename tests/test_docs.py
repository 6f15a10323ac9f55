"""What the documentation shows is true: its scenarios, its output, its commands, its reference."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner
from pages import Block, blocks, noted, scenario, timeless, write_files
from sampling import sampled

import torch_scenarios
from torch_scenarios.cli import COMMANDS, cli
from torch_scenarios.explain import EXPLANATIONS
from torch_scenarios.expressions.signatures import SIGNATURES
from torch_scenarios.operations import OPERATIONS
from torch_scenarios.report.formats import FORMATS
from torch_scenarios.vocabulary import DIAGNOSES, DTYPES

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(
    page
    for page in DOCS.rglob("*.md")
    if page.parent.name != "decisions"
    and page.name not in {"nccl.md", "scoreboard.md", "messages.md"}
)
#: wrong files and what is said of them
MISTAKES = DOCS / "contributing" / "messages.md"
#: what a block of data must have above it: its use
NOTES = re.compile(r"file: \S+|operation: \S+|config|python|sketch")
BLOCKS = [(page, block) for page in PAGES for block in blocks(page)]


def name(value: object) -> str:
    if isinstance(value, Path):
        return value.stem
    return value.about if isinstance(value, Block) else str(value)


def of_kind(*kinds: str) -> list[tuple[Path, Block]]:
    return [(page, block) for page, block in BLOCKS if block.kind in kinds]


def reference(page: str) -> str:
    return (DOCS / "reference" / page).read_text(encoding="utf-8")


@pytest.mark.torch
@pytest.mark.usefixtures("forked_hosts")
@pytest.mark.parametrize(("page", "session"), sampled(list(of_kind("console")), 2), ids=name)
def test_shown_output_is_real(page: Path, session: Block, tmp_path: Path) -> None:
    write_files(page, tmp_path)
    command, _, shown = session.body.partition("\n")
    program, *arguments = shlex.split(command.removeprefix("$ "))
    assert program == "scenario"
    done = scenario(*arguments, folder=tmp_path)
    assert timeless(done.stdout + done.stderr) == timeless(shown)


@pytest.mark.parametrize(
    "session", [each for each in blocks(MISTAKES) if each.kind == "console"], ids=name
)
def test_a_common_mistake_is_told_as_shown_and_in_a_few_lines(
    session: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(MISTAKES, tmp_path)
    monkeypatch.chdir(tmp_path)
    command, _, shown = session.body.partition("\n")
    done = CliRunner().invoke(cli, shlex.split(command)[2:])
    assert timeless(done.output) == timeless(shown)
    _headline, *message, _summary = shown.splitlines()
    assert len(message) <= 12
    assert all(len(line) <= 100 for line in message)


def test_the_commonest_mistakes_are_twelve() -> None:
    assert len(noted(MISTAKES, "file:")) == 12


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_shown_scenarios_are_scenarios_and_formatted(page: Path, tmp_path: Path) -> None:
    write_files(page, tmp_path)
    for file in noted(page, "file:"):
        if file.endswith(".yaml"):
            for case in torch_scenarios.load(tmp_path / file):
                torch_scenarios.simulate(torch_scenarios.plan(case))
            done = scenario("fmt", "--check", file, folder=tmp_path)
            assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("page", "block"), of_kind("yaml", "json", "toml", "python"), ids=name)
def test_every_block_of_code_says_what_it_is_and_can_be_read(page: Path, block: Block) -> None:
    assert NOTES.fullmatch(block.note), f"{page.name} has a block that nobody tests"
    match block.kind:
        case "yaml":
            assert yaml.safe_load(block.body)
        case "json":
            assert json.loads(block.body)
        case "toml":
            assert tomllib.loads(block.body)
        case _:
            compile(block.body, page.name, "exec")


def test_shown_python_prints_what_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = DOCS / "reference" / "python.md"
    write_files(page, tmp_path)
    monkeypatch.chdir(tmp_path)
    (python,) = (block for block in blocks(page) if block.note == "python")
    (text,) = (block for block in blocks(page) if block.kind == "text")
    exec(compile(python.body, page.name, "exec"), {})  # noqa: S102 -- the page's own words
    assert capsys.readouterr().out.strip() == text.body.strip()


@pytest.mark.torch
def test_shown_tests_pass(pytester: pytest.Pytester) -> None:
    write_files(DOCS / "how-to" / "pytest.md", pytester.path)
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=2)


@pytest.mark.nightly  # the page of pytest has a function that is recorded, too
@pytest.mark.torch
def test_the_mended_script_of_the_tutorial_passes_its_test(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(DOCS / "tutorial" / "first-hang.md", pytester.path)
    monkeypatch.chdir(pytester.path / "fixed")
    pytester.runpytest_subprocess("-p", "no:cacheprovider", ".").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("page", "block"),
    [each for each in BLOCKS if each[1].kind == "sh" or each[1].note == "config"],
    ids=name,
)
def test_commands_and_options_that_are_named_exist(page: Path, block: Block) -> None:
    for command, rest in re.findall(r"\bscenario ([a-z]+)\b(.*)", block.body):
        found = cli.get_command(click.Context(cli), command)
        assert found is not None, f"{page.name} names `scenario {command}`"
        known = {option for param in found.params for option in param.opts}
        own = re.sub(r'"[^"]*"', "", rest)  # what is quoted is another program's
        assert set(re.findall(r"(?<!\S)--?[a-z][a-z-]*", own)) <= known, f"{page.name}: {rest}"


def test_inline_commands_exist() -> None:
    for page in PAGES:
        prose = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        named = set(re.findall(r"`scenario ([a-z]+)\b", prose))
        assert named <= set(COMMANDS), page.name


def test_the_reference_has_every_operation_with_its_example() -> None:
    page = reference("operations.md")
    for operation in OPERATIONS:
        assert f"\n### {operation.name}\n" in page
        assert operation.example.rstrip() in page
        assert all(f"`{param.name}`" in page for param in operation.params)


def test_the_reference_has_every_code() -> None:
    page = reference("codes.md")
    assert set(re.findall(r"^### (\w+)$", page, re.MULTILINE)) == set(EXPLANATIONS)


def test_a_page_of_a_code_is_one_folder_below_all_codes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    from codes_site import deepened

    given = (
        '<a href="language.html#x"><img src="../_images/a.svg"><a href="#b"><a href="https://c">'
    )
    assert deepened(given) == (
        '<a href="../language.html#x"><img src="../../_images/a.svg">'
        '<a href="../codes.html#b"><a href="https://c">'
    )


def test_a_session_is_coloured_as_in_the_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    from codes_site import Session
    from pygments.token import Generic

    text = "$ scenario check a.yaml\nFAILED  a.yaml  2 ms\n  error[bad_name]: no\n1 passed\n"
    found = [(word, sort) for sort, word in Session().get_tokens(text) if sort in Generic]
    assert found == [
        ("$ ", Generic.Prompt),
        ("FAILED", Generic.Deleted),
        ("error[bad_name]", Generic.Deleted),
        ("1 passed", Generic.Inserted),
    ]


def test_the_reference_has_every_command_and_option() -> None:
    page = reference("cli.md")
    for each in COMMANDS:
        found = cli.get_command(click.Context(cli), each)
        assert found is not None
        assert f"\n## scenario {each}\n" in page
        options = [param for param in found.params if isinstance(param, click.Option)]
        assert all(param.opts[-1] in page for param in options if not param.hidden)


def test_the_reference_of_the_language_has_every_word() -> None:
    page = reference("language.md")
    words = [*(f"codes.md#{each}" for each in DIAGNOSES), *(f"`{each}`" for each in DTYPES)]
    words += [each.usage for each in SIGNATURES.values()]
    schema = json.loads((DOCS.parent / "schemas" / "scenario.schema.json").read_text("utf-8"))
    words += [f"| `{key}` |" for key in schema["properties"]]
    words += [f"| `{key}` |" for key in schema["$defs"]["final"]["properties"]]
    assert [word for word in words if word not in page] == []


def test_the_corpus_is_listed_with_its_lessons() -> None:
    page = reference("corpus.md")
    rows = re.findall(r"^\| `([\w./]+)` \| (.*) \|$", page, re.MULTILINE)
    corpus = DOCS.parent / "scenarios"
    files = [str(file.relative_to(corpus))[: -len(".yaml")] for file in corpus.rglob("*.yaml")]
    assert sorted(name for name, _ in rows) == sorted(files)
    assert [stem for stem, lesson in rows if not lesson] == []


def test_the_reference_has_every_report() -> None:
    page = reference("reports.md")
    assert all(f"`{each.option} FILE`" in page for each in FORMATS)


def test_the_reference_is_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    import reference_pages

    stale = sorted(page.name for page in reference_pages.stale())
    assert stale == [], f"`python docs/reference_pages.py` writes {', '.join(stale)} anew"
    with pytest.raises(KeyError, match="which no function writes"):
        reference_pages.filled("a.md", "<!-- generated: the weather -->\n")


def test_the_sections_of_the_nightly_run_are_documented() -> None:
    found = subprocess.run(
        ["bash", DOCS.parent / ".ci" / "nightly", "no-such-section"],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 2
    sections = found.stderr.partition("there are ")[2].split()
    page = (DOCS / "how-to" / "contribute.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|", page.partition("`.ci/nightly` takes")[2], re.MULTILINE)
    assert rows == sections


def test_every_folder_of_tests_is_documented() -> None:
    page = (DOCS / "how-to" / "contribute.md").read_text(encoding="utf-8")
    folders = {file.parent.name for file in (ROOT / "tests").glob("*/test_*.py")}
    assert folders - set(re.findall(r"tests/(\w+)", page)) == set()


def documents() -> list[Path]:
    """Return every page of this repository, those of its root and its decisions included."""
    return [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]


#: files that a user or a run has, and documents of others
FOREIGN = frozenset({"README.md", "CONTRIBUTING.md", "all.md", "report.md", "summary.md"})


@pytest.mark.parametrize("page", documents(), ids=name)
def test_a_page_refers_to_files_that_are_there(page: Path) -> None:
    """By a link, by its path from the root, or by the name of a page in capitals alone."""
    text = re.sub(r"(?ms)^```.*?^```", "", page.read_text(encoding="utf-8"))
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
    absent = [
        target
        for target in targets
        if not re.match(r"[a-z]+:", target) and not (page.parent / target).exists()
    ]
    known = {path.name for path in documents()} | FOREIGN
    absent += [each for each in re.findall(r"\b[A-Z][A-Z_]+\.md\b", text) if each not in known]
    paths = re.findall(r"`((?:docs|tests|scenarios|schemas|benchmarks|plugins)/[\w./-]+)`", text)
    absent += [each for each in paths if not (ROOT / each).exists() and page.name not in PAST]
    assert absent == []


#: pages about what was: a file that they name may be gone
PAST = frozenset({"CHANGELOG.md", *(path.name for path in (DOCS / "decisions").glob("*.md"))})
