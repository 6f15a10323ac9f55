"""What other programs read: hooks for pre-commit, the GitHub action, CI, SchemaStore's entry."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
import yaml

from torch_scenarios.cli import COMMANDS, cli

ROOT = Path(__file__).parents[1]
BASH = shutil.which("bash") or ""
GOOD = "world_size: 2\nsteps:\n  - barrier: {}\n"
WRONG = """\
world_size: 2
tensors:
  x: "full(1, rank)"
steps:
  - all_reduce: {tensor: x}
    expect: {x: [0]}
"""

#: what SchemaStore asks of an entry of its catalogue
CATALOGUE = {
    "type": "object",
    "required": ["name", "description", "fileMatch", "url"],
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "description": {"type": "string", "minLength": 1},
        "fileMatch": {
            "type": "array",
            "minItems": 1,
            "uniqueItems": True,
            "items": {"type": "string"},
        },
        "url": {"type": "string", "pattern": r"^https://.*\.json$"},
        "versions": {"type": "object"},
    },
}


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def options(command: str) -> set[str]:
    """Return the options that a command of `scenario` has."""
    found = cli.get_command(click.Context(cli), command)
    assert found is not None, command
    return {name for param in found.params for name in (*param.opts, *param.secondary_opts)}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a folder with scenarios, and a command `scenario` of this very package."""
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "scenarios" / "good.yaml").write_text(GOOD)
    command = tmp_path / "bin" / "scenario"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m torch_scenarios.cli "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(command.parent), prepend=os.pathsep)
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ---------------------------------------------------------------------- pre-commit

HOOKS = read(".pre-commit-hooks.yaml")


def call(hook: dict[str, Any], *files: str) -> subprocess.CompletedProcess[str]:
    """Call a hook as pre-commit does."""
    names = files if hook.get("pass_filenames", True) else ()
    line = [*shlex.split(hook["entry"]), *hook.get("args", []), *names]
    return subprocess.run(line, capture_output=True, text=True, check=False)


def test_hooks_are_those_that_the_documentation_names() -> None:
    assert [hook["id"] for hook in HOOKS] == ["scenario-check", "scenario-fmt"]


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook["id"])
def test_a_hook_has_what_pre_commit_asks_for(hook: dict[str, Any]) -> None:
    assert {"id", "name", "entry", "language", "files"} <= hook.keys()
    program, command = shlex.split(hook["entry"])
    assert program == "scenario"
    assert command in COMMANDS
    assert re.search(hook["files"], "scenarios/p2p/ring.yaml")
    assert not re.search(hook["files"], "docker-compose.yaml")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook["id"])
def test_a_hook_passes_what_is_right(hook: dict[str, Any]) -> None:
    done = call(hook, "scenarios/good.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_hook_finds_a_wrong_scenario(folder: Path) -> None:
    (folder / "scenarios" / "wrong.yaml").write_text(WRONG)
    done = call(HOOKS[0], "scenarios/wrong.yaml")
    assert done.returncode == 1
    assert "value_differs" in done.stdout


def test_a_hook_formats_in_place(folder: Path) -> None:
    file = folder / "scenarios" / "good.yaml"
    file.write_text(GOOD.replace("  - ", "- "))
    call(HOOKS[1], "scenarios/good.yaml")
    assert file.read_text() == GOOD


# ---------------------------------------------------------------------- GitHub

ACTION = read("action.yml")
STEPS = ACTION["runs"]["steps"]
CI = read(".github/workflows/ci.yml")


def test_the_action_declares_every_input_that_it_uses() -> None:
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    assert set(re.findall(r"inputs\.([\w-]+)", text)) == set(ACTION["inputs"])
    assert all("description" in each and "default" in each for each in ACTION["inputs"].values())
    assert ACTION["runs"]["using"] == "composite"
    assert all("shell" in step for step in STEPS if "run" in step)


def test_nothing_but_a_value_of_the_action_holds_an_expression() -> None:
    told = [ACTION["description"], *(each["description"] for each in ACTION["inputs"].values())]
    assert [text for text in told if "${{" in text] == []  # GitHub would evaluate it, and refuse


def test_a_name_to_be_replaced_is_nobody_s() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    accounts = re.findall(r"(?:uses: |github\.com/)([^/\s]+)/torch-scenarios\b", text)
    assert set(accounts) == {"<owner>"}  # no account of GitHub can be called so


def test_what_is_installed_is_ours() -> None:
    """A name on a public index that is not ours installs a stranger's program."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / ".ci").iterdir()]
    pages += [ROOT / "action.yml", ROOT / ".pre-commit-hooks.yaml", ROOT / "constraints.txt"]
    pages += [*(ROOT / ".github").rglob("*.yml")]
    wanted = {
        (page.name, word)
        for page in pages
        if page.is_file()
        for line in page.read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
        for words in re.findall(r"pip\"? install ([^`&|]+)", line)
        for word in shlex.split(words, comments=True, posix=True)
        if not word.startswith(("-", "$")) and word not in {"constraints.txt", ";", "}"}
    }
    ours = re.compile(
        r"\.(\[\w+(,\w+)*\])?|git\+https://github\.com/<owner>/torch-scenarios@v[\d.]+"
    )
    others = {(page, word) for page, word in wanted if not ours.fullmatch(word)}
    assert len(wanted) - len(others) > 5
    # and names of others that are meant: torch, what shows a stack, what the server speaks by
    meant = {("nightly", "torch==$version"), ("cli.md", "py-spy"), ("hang.md", "py-spy")}
    meant |= {("editor.md", "pygls")}
    assert others == meant


def test_no_input_is_pasted_into_a_script() -> None:
    """What a caller gives reaches a script as a variable, so that it cannot be a command."""
    scripts = [step["run"] for step in STEPS if "run" in step]
    scripts += [
        step["run"] for job in CI["jobs"].values() for step in job["steps"] if "run" in step
    ]
    assert scripts
    assert not [script for script in scripts if "${{" in script]


@pytest.mark.skipif(not BASH, reason="bash is not installed")
@pytest.mark.parametrize(("text", "code"), [(GOOD, 0), (WRONG, 1)], ids=["good", "wrong"])
def test_the_action_runs_and_leaves_a_report(text: str, code: int, folder: Path) -> None:
    (folder / "scenarios" / "good.yaml").write_text(text)
    (step,) = (step for step in STEPS if step.get("id") == "run")
    summary, output = folder / "summary", folder / "output"
    environment = {
        **os.environ,
        "COMMAND": "check",
        "PATHS": "scenarios",
        "ARGS": "-k 'good or none' --durations 1",
        "RUNNER_TEMP": str(folder),
        "GITHUB_ACTIONS": "true",
        "GITHUB_OUTPUT": str(output),
        "GITHUB_STEP_SUMMARY": str(summary),
    }
    done = subprocess.run(
        [BASH, "-eo", "pipefail", "-c", step["run"]],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "<html" in (folder / "scenario-report.html").read_text(encoding="utf-8")
    assert output.read_text() == f"html={folder}/scenario-report.html\n"
    assert ("::error file=scenarios/good.yaml,line=6" in done.stdout) == (code == 1)


@pytest.mark.skipif(not BASH, reason="bash is not installed")
def test_every_script_is_bash(tmp_path: Path) -> None:
    scripts = [*(step["run"] for step in STEPS if "run" in step), (ROOT / ".ci/run").read_text()]
    for number, script in enumerate(scripts):
        (tmp_path / f"{number}").write_text(script)
        done = subprocess.run(
            [BASH, "-n", f"{tmp_path}/{number}"], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_the_workflow_calls_what_stands_in_the_repository() -> None:
    runs = [step["run"] for job in CI["jobs"].values() for step in job["steps"] if "run" in step]
    assert runs == ["bash .ci/run"]
    assert CI["permissions"] == {"contents": "read"}


def test_scripts_call_only_commands_and_options_that_exist() -> None:
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in (".ci/run", "action.yml")]
    calls = re.findall(r"^\s*(?:nice )?scenario (\w+)(.*)$", "\n".join(texts), re.MULTILINE)
    assert {"fmt"} <= {command for command, _ in calls}
    for command, rest in calls:
        given = {word for word in rest.split() if word.startswith("--") and len(word) > 2}
        assert given <= options(command), command


# ---------------------------------------------------------------------- editors


def test_the_entry_for_schemastore_has_its_shape() -> None:
    entry = json.loads((ROOT / "docs" / "schemastore.json").read_text(encoding="utf-8"))
    jsonschema.validate(entry, CATALOGUE)
    assert any(fnmatch("ring.scenario.yaml", pattern) for pattern in entry["fileMatch"])
    assert not any(fnmatch("docker-compose.yaml", pattern) for pattern in entry["fileMatch"])


@pytest.mark.skipif(not BASH, reason="bash is not installed")
@pytest.mark.parametrize(("name", "value"), [("PATHS", "it's scenarios"), ("ARGS", '-k "good')])
def test_a_quote_that_is_not_closed_is_an_error_of_the_action(
    name: str, value: str, folder: Path
) -> None:
    (step,) = (step for step in STEPS if step.get("id") == "run")
    environment = {
        **os.environ,
        "COMMAND": "check",
        "PATHS": "scenarios",
        "ARGS": "",
        name: value,
        "RUNNER_TEMP": str(folder),
        "GITHUB_OUTPUT": str(folder / "output"),
    }
    done = subprocess.run(
        [BASH, "-eo", "pipefail", "-c", step["run"]],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert f"the input `{name.lower()}` cannot be read" in done.stdout
    assert "passed" not in done.stdout
