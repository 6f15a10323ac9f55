"""`load`: one file, read, checked and built."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from runner.language.budget import OverdueError, accounted
from runner.language.discovery import read_file
from runner.language.document import scenarios
from runner.language.hints import hinted
from runner.language.limits import DEFAULT, Limits
from runner.language.reader import read_tree
from runner.problems import ScenarioError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runner.scenario import Scenario


def load(
    path: str | Path, *, sets: Mapping[str, str] | None = None, limits: Limits = DEFAULT
) -> tuple[Scenario, ...]:
    """Return the cases of a scenario file, one for each combination of its matrix.

    `sets` replaces parameters and matrix keys by the YAML text given for them. A file with
    `inputs:` is a library for others: it is checked, and has no cases. Raises ScenarioError with
    all problems of the file and of the files that it uses, sorted by place.
    """
    path = Path(path)
    return load_content(path, read_file(path, limits), sets=sets, limits=limits)


def load_content(
    path: Path, text: bytes, *, sets: Mapping[str, str] | None = None, limits: Limits = DEFAULT
) -> tuple[Scenario, ...]:
    """Return the cases that a file at `path` would have if it held `text`; raises as `load`."""
    try:
        with accounted(limits):
            tree = read_tree(str(path), text, limits=limits)
            return scenarios(tree, path, sets or {}, limits)
    except OverdueError:
        raise
    except ScenarioError as error:
        raise ScenarioError(hinted(error.problems)) from None
