"""Which file a `use` means, and whether it may be read."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from runner.language.discovery import SUFFIXES, project_root, read_file
from runner.language.inputs import police_library
from runner.language.limits import beyond
from runner.language.reader import read_tree
from runner.language.tree import Mapping, Node, Scalar
from runner.problems import ScenarioError, nearest

if TYPE_CHECKING:
    from runner.language.context import Context


@dataclass(slots=True)
class Library:
    """The files that a scenario uses, each read once. `root` is found when first asked for."""

    path: Path
    read: dict[Path, Mapping | None] = field(default_factory=dict)
    _root: Path | None = None

    @property
    def root(self) -> Path:
        """The folder below which files may be used."""
        if self._root is None:
            self._root = project_root(self.path)
        return self._root


def permitted(file: Scalar, context: Context) -> Path | None:
    """Return the file's path, if it may be read from here."""
    text = str(file.value)
    if PurePosixPath(text).is_absolute() or "\\" in text or ":" in text or "\0" in text:
        context.faults.add(
            "use_outside_project",
            f"`{text}` is no relative path",
            file.mark,
            "a used file is named relative to the file that uses it",
        )
        return None
    path = Path(os.path.realpath(context.path.parent / text))
    root = context.library.root
    if not context.limits.follow_links and not path.is_relative_to(root):
        context.faults.add(
            "use_outside_project",
            f"`{text}` lies outside the project",
            file.mark,
            "used files lie below the folder that holds pyproject.toml or .git",
        )
        return None
    if path in context.chain:
        context.faults.add(
            "use_cycle", f"`{text}` uses itself, directly or through others", file.mark
        )
        return None
    if len(context.chain) > context.limits.max_use_depth:
        context.faults.add(
            "use_too_deep",
            f"`use` is nested too deep: {beyond('max_use_depth', context.limits)}",
            file.mark,
        )
        return None
    return path


def tree_of(path: Path, file: Scalar, context: Context) -> Mapping | None:
    """Return the tree of a used file, read once; None where it cannot be used."""
    library = context.library
    if path not in library.read:
        library.read[path] = None
        try:
            if path.suffix not in SUFFIXES or not path.exists():
                _note_missing(path, file, context)
                return None
            text = _text_of(path, file, context)
            if text is None:
                return None
            tree = read_tree(str(_shown(path)), text, limits=context.limits)
        except ScenarioError as error:
            context.faults.keep(error.problems)
        except OSError as error:
            reason = error.strerror or "it cannot be read"
            context.faults.add("unreadable_file", f"`{file.text}`: {reason}", file.mark)
        else:
            library.read[path] = _library(tree, file, context)
    return library.read[path]


def _text_of(path: Path, file: Scalar, context: Context) -> bytes | None:
    """Return the bytes of a used file; None, told where it is used, for what may not be read."""
    try:
        return read_file(path, context.limits, context.library.root)
    except ScenarioError as error:
        for problem in error.problems:
            context.faults.add(
                problem.code, f"`{file.text}`: {problem.message}", file.mark, problem.hint
            )
        return None


def _note_missing(path: Path, file: Scalar, context: Context) -> None:
    siblings = (
        [each.name for each in path.parent.iterdir() if each.suffix in {".yaml", ".yml"}]
        if path.parent.is_dir()
        else []
    )
    close = nearest(path.name, siblings)
    context.faults.add(
        "file_not_found",
        f"there is no file `{file.text}` beside this one",
        file.mark,
        f"did you mean `{close}`?" if close else "the path is relative to this file",
    )


def _shown(path: Path) -> Path:
    """Return a path as messages show it: relative where it is below the working folder."""
    working = Path.cwd()
    return path.relative_to(working) if path.is_relative_to(working) else path


def _library(tree: Node, file: Scalar, context: Context) -> Mapping | None:
    if isinstance(tree, Mapping) and tree.get("inputs") is not None:
        police_library(tree, context)
        return tree
    context.faults.add(
        "not_a_library",
        f"`{file.text}` has no `inputs:`, so it cannot be used",
        file.mark,
        "a used file says `inputs: [...]` instead of `world_size:`",
    )
    return None
