"""The operation that docs/how-to/operation.md shows works in a copy of the package."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from checkout import PACKAGE, ROOT
from pages import blocks, noted, scenario_of

PAGE = ROOT / "docs" / "how-to" / "operation.md"
BLOCKS = blocks(PAGE)


@pytest.mark.torch
def test_shown_operation_works_with_its_one_line(tmp_path: Path) -> None:
    """A copy of the package with the shown file and the shown line runs it on real Gloo."""
    ((name, block),) = noted(PAGE, "operation:").items()
    (change,) = (each.body for each in BLOCKS if each.note == "line")
    line = "".join(f"{each[1:]}\n" for each in change.splitlines() if each.startswith("+"))
    source = tmp_path / "runner"
    package = shutil.copytree(
        PACKAGE, source / PACKAGE.name, ignore=shutil.ignore_patterns("*.pyc")
    )
    (package / "operations" / f"{name}.py").write_text(block.body, encoding="utf-8")
    (operation,) = re.findall(r"^class (\w+)", block.body, re.MULTILINE)
    table = package / "operations" / "__init__.py"
    text = table.read_text(encoding="utf-8")
    imported = f"from torch_scenarios.operations.{name} import {operation}\n"
    first = "from torch_scenarios.operations.all_gather import AllGather\n"
    assert first in text
    text = text.replace(first, f"{imported}{first}", 1)
    table.write_text(text.replace("    Fault(),\n", f"    Fault(),\n{line}"), encoding="utf-8")
    shutil.rmtree(package / "schemas", ignore_errors=True)  # where an installed package has them
    (tmp_path / "schemas").mkdir()
    command = [sys.executable, "-m", "torch_scenarios.language.schema"]
    compiled_schema = subprocess.run(
        command, cwd=source, capture_output=True, text=True, check=True
    ).stdout
    (tmp_path / "schemas" / "scenario.schema.json").write_text(compiled_schema, encoding="utf-8")
    (example,) = re.findall(r'example = """\\\n(.*?)"""', block.body, re.DOTALL)
    (tmp_path / "example.yaml").write_text(example, encoding="utf-8")
    done = scenario_of(source, "run", "--backend", "gloo", "example.yaml", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
