"""The extension for VS Code: it declares what its code uses, and builds from its lockfile."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "editors" / "vscode"
CODE = (FOLDER / "src" / "extension.ts").read_text(encoding="utf-8")

#: loads a bundle with a stand-in for the editor, and prints what it exports
LOAD = """
const Module = require("module"), load = Module._load;
const editor = new Proxy(function () {}, {
  get: (it, key) => key === Symbol.toPrimitive ? () => "" : key === "prototype" ? {} : editor,
  apply: () => editor, construct: () => ({}),
});
Module._load = (name, ...rest) => name === "vscode" ? editor : load(name, ...rest);
console.log(Object.keys(require(process.argv[1])).sort().join(" "));
"""


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


@pytest.mark.nightly
def test_it_builds_from_its_lockfile_and_loads(tmp_path: Path) -> None:
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        pytest.skip("npm and node, which build it, are not installed")
    folder = tmp_path / "vscode"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("node_modules", "out"))
    for words in (["ci"], ["run", "build"]):
        done = subprocess.run(
            [npm, *words], cwd=folder, capture_output=True, text=True, check=False
        )
        if words == ["ci"] and re.search(r"ENOTFOUND|ECONNREFUSED|EAI_AGAIN", done.stderr):
            pytest.skip("npm reaches no registry")
        assert done.returncode == 0, done.stdout + done.stderr
    bundle = folder / "out" / "extension.js"
    made = subprocess.run(
        [node, "-e", LOAD, str(bundle)], capture_output=True, text=True, check=False
    )
    assert made.stdout == "activate deactivate\n", made.stderr
