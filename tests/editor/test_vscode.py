"""The extension for VS Code: it declares what its code uses, and builds from its lockfile."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "editors" / "vscode"
CODE = (FOLDER / "src" / "extension.ts").read_text(encoding="utf-8")

STAND_IN = Path(__file__).with_name("stand_in.js")
BAD = "world_size: 2\ntensors: {x: [1]}\nsteps:\n  - all_reduce: {tensor: x, op: summ}\n"


def read(name: str) -> Any:
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


def test_it_declares_what_its_code_uses() -> None:
    declared = read("package.json")["contributes"]
    commands = {each["command"] for each in declared["commands"]}
    assert set(re.findall(r'registerCommand\("([\w.]+)"', CODE)) == commands
    settings = {f"scenario.{name}" for name in re.findall(r'setting\("(\w+)"\)', CODE)}
    assert settings == declared["configuration"]["properties"].keys()


def test_the_lockfile_fixes_versions_and_names_no_host() -> None:
    packages = read("package-lock.json")["packages"]
    assert len(packages) > 10
    assert all("integrity" in each for name, each in packages.items() if name)
    assert "://" not in json.dumps(packages)
    declared = read("package.json")
    pinned = {**declared["dependencies"], **declared["devDependencies"]}
    assert all(packages[f"node_modules/{name}"]["version"] == it for name, it in pinned.items())


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the extension, built from its lockfile."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        pytest.skip("npm and node, which build it, are not installed")
    folder = tmp_path_factory.mktemp("built") / "vscode"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("node_modules", "out"))
    for words in (["ci"], ["run", "build"]):
        done = subprocess.run(
            [npm, *words], cwd=folder, capture_output=True, text=True, check=False
        )
        if words == ["ci"] and re.search(r"ENOTFOUND|ECONNREFUSED|EAI_AGAIN", done.stderr):
            pytest.skip("npm reaches no registry")
        assert done.returncode == 0, done.stdout + done.stderr
    return folder / "out" / "extension.js"


def show(bundle: Path, file: Path, command: str) -> tuple[Any, str]:
    """Return what a stand-in for the editor shows of a file, and what it logs."""
    words = ["node", str(STAND_IN), str(bundle), str(file.parent), str(file), command]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.mark.nightly
def test_a_built_extension_shows_mistakes_and_lanes(bundle: Path, tmp_path: Path) -> None:
    """It activates, starts the real server twice, and draws the lanes of a right file."""
    pytest.importorskip("pygls")
    command = tmp_path / "scenario"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m torch_scenarios.cli "$@"\n')
    command.chmod(0o755)
    file = tmp_path / "sum.yaml"
    file.write_text(BAD, encoding="utf-8")
    shown, logged = show(bundle, file, str(command))
    wrong = ["unknown_op", 3, "unknown reduce op `summ`\ndid you mean `sum`?"]
    assert shown["diagnostics"] == [[wrong], [wrong]]
    assert "unknown reduce op" in shown["panels"][0][1]
    file.write_text(BAD.replace("summ", "sum"), encoding="utf-8")
    shown, again = show(bundle, file, str(command))
    assert shown["diagnostics"] == [[], []]
    ((title, page),) = shown["panels"]
    assert title == "Lanes of sum.yaml"
    assert "<svg" in page
    assert not shown["messages"]
    assert set(re.findall(r"exited with code (\d+)", logged + again)) <= {"0"}


@pytest.mark.nightly
def test_a_command_that_is_not_there_is_said(bundle: Path, tmp_path: Path) -> None:
    file = tmp_path / "sum.yaml"
    file.write_text(BAD, encoding="utf-8")
    shown, _ = show(bundle, file, str(tmp_path / "nothing"))
    assert 'is not found: set "scenario.command" to its path' in shown["messages"][-1]
