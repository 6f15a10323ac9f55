"""Versions of torch as a scenario states them: `>=2.7`, or several that all hold, `>=2.7, <2.14`.

A version is compared as far as the bound is written: 2.13.1 is `==2.13`, `<=2.13`, and not `>2.13`.
What follows the numbers (`2.14.0+cpu`, `2.15.0a0`) counts for nothing.
"""

from __future__ import annotations

import operator
import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

from msgspec import Struct

_COMPARED: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}
_BOUND = re.compile(r"\s*(>=|<=|==|!=|>|<)\s*([0-9]{1,4}(?:\.[0-9]{1,4}){0,2})\s*", re.ASCII)
_NUMBERS = re.compile(r"[0-9]{1,4}(?:\.[0-9]{1,4}){0,2}", re.ASCII)
_DEPTH = 3
#: the folder in which an installer records torch
_METADATA = re.compile(r"torch-([^-]+)\.dist-info")


class VersionRange(Struct, frozen=True, kw_only=True):
    """The versions that meet every one of some bounds, each an operator with the numbers.

    >>> known = VersionRange.read(">=2.7, <2.14")
    >>> str(known), known.holds("2.13.1+cpu"), known.holds("2.14.0a0")
    ('>=2.7, <2.14', True, False)

    A bound is as exact as it is written, so that a patch release of 2.13 is 2.13:

    >>> VersionRange.read("==2.13").holds("2.13.1"), VersionRange.read(">2.13").holds("2.13.1")
    (True, False)
    """

    bounds: tuple[tuple[str, tuple[int, ...]], ...]

    @classmethod
    def read(cls, text: str) -> VersionRange:
        """Return what a text says. Raises ValueError where it says no versions."""
        found = [_BOUND.fullmatch(part) for part in text.split(",")]
        if not all(found):
            message = f"`{text.strip()}` names no versions of torch"
            raise ValueError(message)
        return cls(bounds=tuple((m[1], _numbers(m[2])) for m in found if m))

    def __str__(self) -> str:
        """Return how it is written: `>=2.7, <2.14`."""
        return ", ".join(f"{sign}{'.'.join(map(str, numbers))}" for sign, numbers in self.bounds)

    def holds(self, version: str) -> bool:
        """Return whether a version, as torch spells its own, meets every bound."""
        release = release_of(version)
        return all(
            _COMPARED[sign](release[: len(numbers)], numbers) for sign, numbers in self.bounds
        )

    def edges(self) -> set[str]:
        """Return versions between which, and below which, nothing changes for this range."""
        after = ((*numbers[:-1], numbers[-1] + 1) for _, numbers in self.bounds)
        return {".".join(map(str, each)) for each in (*(n for _, n in self.bounds), *after)}


@cache
def find_torch_version() -> str | None:
    """Return the version of torch that is installed, by its package's metadata; None without.

    The folder of the metadata has the version in its name (https://packaging.python.org,
    "Recording installed projects"); to import what reads any kind takes longer than most checks.
    """
    for folder in sys.path:
        with suppress(OSError), os.scandir(folder or ".") as entries:
            for each in entries:
                named = _METADATA.fullmatch(each.name)
                if named is not None and Path(each.path, "METADATA").is_file():
                    return named[1]
    from importlib import metadata

    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return None


def is_version(text: str) -> bool:
    """Return whether a text begins as a version does."""
    return _NUMBERS.match(text) is not None


def release_of(version: str) -> tuple[int, ...]:
    """Return the three numbers of a version; a missing one is 0. Raises ValueError.

    >>> release_of("2.14.0+cpu"), release_of("2.15.0a0")
    ((2, 14, 0), (2, 15, 0))
    """
    found = _NUMBERS.match(version)
    if found is None:
        message = f"{version!r} is not a version of torch, such as 2.14.1"
        raise ValueError(message)
    numbers = _numbers(found[0])
    return numbers + (0,) * (_DEPTH - len(numbers))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))
