"""The scenarios that a command line means at this moment, and what each was read from.

A look at the disk gives for each file its stamp and those of the files that it uses, directly or
through others. Two looks that differ tell what changed: by a save in place, by an editor that
renames a new file over the old one, by a file that appears or goes.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from runner.language import discover
from runner.language.discovery import SUFFIXES, project_root, read_file
from runner.language.reader import read_tree
from runner.language.tree import Mapping, Scalar, Sequence, key_text
from runner.places import place_of
from runner.problems import ScenarioError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from runner.language.limits import Limits
    from runner.language.tree import Node

#: time of the last change in ns, size in bytes, inode
Stamp: TypeAlias = tuple[int, int, int]

#: ns after a change in which another one may get the same time: a kernel's clock is coarse
TICK_NS = 10_000_000
#: looks at a file that never rests
RESTLESS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What stood on the disk at one moment.

    `read` has for each scenario file, by its resolved path, the stamps of itself and of what it
    uses, None for a file that is not there; `named` has the words of the command line that mean it.
    """

    read: dict[Path, dict[Path, Stamp | None]]
    named: dict[Path, tuple[str, ...]]

    def since(self, before: Look) -> Difference:
        """Return what changed between an earlier look and this one."""
        changed: set[Path] = set()
        affected: list[Path] = []
        for path, stamps in self.read.items():
            old = before.read.get(path)
            if old == stamps and self.named[path] == before.named.get(path):
                continue
            affected.append(path)
            if old is not None:
                changed |= {each for each in {*stamps, *old} if stamps.get(each) != old.get(each)}
        return Difference(
            affected=tuple(affected),
            changed=tuple(sorted(changed)),
            appeared=tuple(path for path in self.read if path not in before.read),
            gone=tuple(path for path in before.read if path not in self.read),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What changed: `affected` are the scenario files to be run again."""

    affected: tuple[Path, ...]
    changed: tuple[Path, ...]
    appeared: tuple[Path, ...]
    gone: tuple[Path, ...]

    def __bool__(self) -> bool:
        """Whether there is anything."""
        return bool(self.affected or self.gone)

    def concerns(self, path: Path) -> bool:
        """Return whether a scenario file changed, by itself or by what it uses, or is gone."""
        return path in self.affected or path in self.gone


class Files:
    """Looks at the disk; remembers only what each file uses, by its stamp."""

    def __init__(self, paths: Iterable[str], limits: Limits) -> None:
        """Mean what the paths of a command line mean."""
        self._paths = tuple(paths)
        self._limits = limits
        self._uses: dict[Path, tuple[Stamp | None, frozenset[Path]]] = {}

    def look(self) -> Look:
        """Return what stands on the disk now; a named path that is not there means nothing."""
        named: dict[Path, tuple[str, ...]] = {}
        for text in self._paths:
            place = place_of(text)
            try:
                found = discover([place.path], self._limits)
            except ScenarioError:
                continue
            for path in found:
                meant = str(path) if place.whole else text
                resolved = path.resolve()
                named[resolved] = (*named.get(resolved, ()), meant)
        return Look(read={path: self._stamps(path) for path in named}, named=named)

    def folders(self, look: Look) -> tuple[frozenset[Path], frozenset[Path]]:
        """Return the folders to follow: some with all that is below, some by themselves.

        A file is followed by its folder, because a save may put another file in its place; and so
        is a named folder, which may go and come back.
        """
        deep = {path.resolve() for path in map(Path, self._paths) if path.is_dir()}
        flat = {Path(place_of(text).path).resolve().parent for text in self._paths}
        flat |= {used.parent for stamps in look.read.values() for used in stamps}
        flat = {path for path in flat if not any(path.is_relative_to(root) for root in deep)}
        return frozenset(deep), frozenset(path for path in flat if path.is_dir())

    def _stamps(self, path: Path) -> dict[Path, Stamp | None]:
        """Return the stamps of a file and of all that it uses."""
        found: dict[Path, Stamp | None] = {}
        waiting = [path]
        while waiting:
            each = waiting.pop()
            if each not in found:
                found[each] = stamp_of(each)
                waiting += self._used_by(each, found[each])
        return found

    def _used_by(self, path: Path, stamp: Stamp | None) -> frozenset[Path]:
        """Return what a file itself uses; what it used last while it cannot be read."""
        known = self._uses.get(path)
        if known is not None and known[0] == stamp:
            return known[1]
        try:
            tree = read_tree(str(path), read_file(path, self._limits), limits=self._limits)
        except ScenarioError:
            found = known[1] if known is not None else frozenset()
        else:
            found = frozenset(_permitted(used_in(tree), path))
        self._uses[path] = (stamp, found)
        return found


def stamp_of(path: Path) -> Stamp | None:
    """Return a file's stamp; None where it is not there.

    A file that changed this very moment is looked at a moment later: its next change could have
    the same stamp.
    """
    for _ in range(RESTLESS):
        try:
            status = path.stat()
        except OSError:
            return None
        if not 0 <= time.time_ns() - status.st_mtime_ns < TICK_NS:
            break
        time.sleep(TICK_NS / 1e9)
    return status.st_mtime_ns, status.st_size, status.st_ino


def used_in(tree: Node) -> Iterator[str]:
    """Yield the files that a tree names in its `use`, wherever it stands."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Sequence):
            waiting += node.items
        elif isinstance(node, Mapping):
            for key, value in node.entries:
                waiting.append(value)
                file = value.get("file") if isinstance(value, Mapping) else value
                if key_text(key) == "use" and isinstance(file, Scalar):
                    yield file.text


def _permitted(named: Iterable[str], path: Path) -> Iterator[Path]:
    """Yield the files that `use` may read from here: nothing outside the project is looked at."""
    root = project_root(path)
    for text in named:
        if "\0" in text or os.path.isabs(text):  # noqa: PTH117 -- no path yet
            continue
        used = Path(os.path.realpath(path.parent / text))
        if used.suffix in SUFFIXES and used.is_relative_to(root):
            yield used
