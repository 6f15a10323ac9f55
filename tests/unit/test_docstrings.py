"""The examples in docstrings of the package run, and print what they show."""

from __future__ import annotations

import doctest
import importlib
import re
import sys
from typing import TYPE_CHECKING

import pytest
from checkout import PACKAGE

if TYPE_CHECKING:
    from pathlib import Path

#: a line of an example
EXAMPLE = re.compile(r"^ *>>> ", re.MULTILINE)


def shows_examples(path: Path) -> bool:
    """Whether a docstring of a module has an example; the module is not imported for it."""
    return EXAMPLE.search(path.read_text(encoding="utf-8")) is not None


def named(path: Path) -> str:
    """Return the name by which a module is imported."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = [named(path) for path in sorted(PACKAGE.rglob("*.py")) if shows_examples(path)]


def failures(module: object, name: str) -> list[str]:
    """Return what is wrong with the examples of a module, in doctest's words."""
    found: list[str] = []
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    for test in doctest.DocTestFinder(exclude_empty=True).find(module, name):
        runner.run(test, out=found.append)
    assert runner.tries, f"{name} has examples that doctest does not find"
    return found


def test_the_package_shows_examples() -> None:
    assert len(MODULES) > 1


@pytest.mark.parametrize("name", MODULES)
def test_examples_print_what_they_show(name: str) -> None:
    module = importlib.import_module(name)
    had_torch = "torch" in sys.modules
    assert failures(module, name) == []
    assert ("torch" in sys.modules) == had_torch, "an example imports torch"


def test_a_wrong_example_is_found() -> None:
    """The runner is no check that cannot fail."""
    shown = type("Shown", (), {"__doc__": ">>> 1 + 1\n3\n", "__module__": "shown"})
    module = type(sys)("shown")
    vars(module)["Shown"] = shown
    assert any("Expected:\n    3" in text for text in failures(module, "shown"))
