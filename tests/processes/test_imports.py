"""What a fresh process imports: a command no more than it needs, and no torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

GOOD = """\
world_size: 2
parameters: {width: 2}
tensors: {x: "full(width, rank + 1)"}
steps:
  - all_reduce: {tensor: x}
    expect: {x: "full(width, 3)"}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder with one good scenario."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.yaml").write_text(GOOD, encoding="utf-8")


def imported(*arguments: str) -> set[str]:
    """Return the modules that a fresh process imports for a command line."""
    code = (
        "import sys; sys.argv = ['scenario', *sys.argv[1:]]\n"
        "from torch_scenarios.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print('\\n'.join(sys.modules), file=sys.stderr)\n"
    )
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_help_imports_neither_numpy_nor_torch_nor_rich() -> None:
    assert {"numpy", "torch", "rich", "yaml"}.isdisjoint(imported("--help"))


@pytest.mark.parametrize("command", ["run", "check", "list"])
def test_the_help_of_a_command_imports_no_language(command: str) -> None:
    assert {"numpy", "torch", "yaml", "torch_scenarios.operations"}.isdisjoint(
        imported(command, "--help")
    )


def test_check_never_imports_torch() -> None:
    modules = imported("check", "good.yaml")
    assert "numpy" in modules
    assert "torch" not in modules


def test_numpy_is_imported_once_the_tests_have_one_thread() -> None:
    """The library that multiplies counts its threads when it is loaded, and never again."""
    code = "import sys, conftest; assert 'numpy' not in sys.modules"
    tests = str(Path(__file__).parents[1])
    subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": tests}, check=True
    )


def test_a_log_is_written_without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert "rich" not in imported("check", "good.yaml")


def test_an_expression_over_numpy_imports_no_torch() -> None:
    program = (
        "import sys\n"
        "from torch_scenarios.expressions.compile import compile_expression\n"
        "from torch_scenarios.expressions.functions import NumpyArrays\n"
        "scope = {**NumpyArrays().functions(), '__builtins__': {}}\n"
        "compile_expression('sum(full(3, 1))', None).evaluate(scope)\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
