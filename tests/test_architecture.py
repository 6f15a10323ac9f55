"""The walls of the house: what may import what, and where torch stands."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import runner
from runner.operations import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(__file__).parents[1] / "runner"
FILES = sorted(PACKAGE.rglob("*.py"))

#: a part of the package -> the parts that it may not know
WALLS = {
    "problems": {"scenario", "plan", "program", "trace", "operations", "language", "reference"},
    "trace": {"language", "reference", "execution", "verdict", "report", "cli"},
    "operations": {"language", "reference", "execution", "verdict", "report", "cli"},
    "language": {"reference", "execution", "verdict", "report", "cli"},
    "reference": {"language", "execution", "verdict", "report", "cli"},
    "execution": {"language", "verdict", "report", "cli"},
    "verdict": {"reference", "execution", "report", "cli"},
    "report": {"reference", "execution", "cli"},
    "bless": {"execution", "report", "cli", "commands", "minimize"},
    "minimize": {"execution", "report", "cli", "commands"},
}

#: the doors through which a wall is passed, each with its reason
DOORS = {
    ("execution", "language"): "runner.language.functions is the worker's array library",
    ("reference", "language"): "runner.language.functions is the reference's array library, and "
    "what it computes is charged to the account of the case in runner.language.budget",
}
THROUGH = {"runner.language.budget", "runner.language.functions", "runner.language.limits"}


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def part_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def module_level(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield the statements that run when the module is imported, into `if` and `try`."""
    waiting: list[ast.stmt] = list(tree.body)
    while waiting:
        statement = waiting.pop()
        if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
            waiting += statement.orelse
            continue
        yield statement
        for block in ("body", "orelse", "finalbody"):
            if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                waiting += getattr(statement, block, [])


def imports(tree: ast.Module) -> set[str]:
    found: set[str] = set()
    for statement in module_level(tree):
        if isinstance(statement, ast.Import):
            found |= {alias.name for alias in statement.names}
        elif isinstance(statement, ast.ImportFrom) and statement.module:
            found.add(statement.module)
            found |= {f"{statement.module}.{alias.name}" for alias in statement.names}
    return found


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports_torch(path: Path) -> bool:
    return any(name.split(".")[0] == "torch" for name in imports(parsed(path)))


TORCH_SIDE = {module_of(path) for path in FILES if imports_torch(path)}


def test_torch_stands_only_with_the_worker() -> None:
    strangers = {
        module
        for module in TORCH_SIDE
        if module != "runner.worker" and part_of(module) != "execution"
    }
    assert not strangers, f"torch is imported at module level by {sorted(strangers)}"


def test_everything_but_the_worker_imports_without_torch() -> None:
    worker_side = TORCH_SIDE | {"runner.worker"}
    modules = [module_of(path) for path in FILES if module_of(path) not in worker_side]
    program = (
        "import importlib, sys\n"
        f"for name in {modules!r}:\n"
        "    importlib.import_module(name)\n"
        "    assert 'torch' not in sys.modules, name\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("part", sorted(WALLS))
def test_walls_stand(part: str) -> None:
    broken = []
    for path in FILES:
        module = module_of(path)
        if part_of(module) != part or module == "runner.worker":
            continue
        for name in imports(parsed(path)):
            known = part_of(name) if name.startswith("runner.") else ""
            through = (part, known) in DOORS and any(name.startswith(door) for door in THROUGH)
            if known in WALLS[part] and not through:
                broken.append(f"{module} imports {name}")
    assert not broken, "\n".join(broken)


def test_no_ladder_over_operation_names() -> None:
    """Outside the operations themselves, no code decides by an operation's name."""
    named = []
    for path in FILES:
        if part_of(module_of(path)) in {"operations", "explanations"}:
            continue
        tree = parsed(path)
        compared = [
            constant
            for node in ast.walk(tree)
            if isinstance(node, ast.Compare | ast.match_case)
            for constant in ast.walk(node if isinstance(node, ast.Compare) else node.pattern)
            if isinstance(constant, ast.Constant) and constant.value in BY_NAME
        ]
        named += [f"{module_of(path)}:{node.lineno} {node.value!r}" for node in compared]
    assert not named, f"operation names are compared with in {named}"


def test_public_names() -> None:
    assert set(vars(runner)["__all__"]) >= {"load", "plan", "simulate", "launch", "judge"}
    assert all(callable(getattr(runner, name)) for name in ("load", "simulate", "judge"))


def test_an_operation_is_one_file() -> None:
    """Each operation's class stands in the module of its own name."""
    for operation in set(BY_NAME.values()):
        assert type(operation).__module__ == f"runner.operations.{operation.name}"
