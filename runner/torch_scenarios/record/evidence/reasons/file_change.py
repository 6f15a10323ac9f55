"""A file that a rank misses, or finds there already, because of what another rank does to it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePath

from msgspec.structs import replace

from torch_scenarios.errors import Clause
from torch_scenarios.record.format import FileChange, RankRecord
from torch_scenarios.verdict import Finding

#: errors about a file, what another rank did to it, and what mends it
_MISSING = re.compile(r"FileNotFoundError|No such file|does not exist|not a (?:valid )?directory")
_THERE = re.compile(r"FileExistsError|File exists|Directory not empty")
#: a path in the words of an error
_PATH = re.compile(r"['\"]([^'\"]*/[^'\"]*)['\"]|(?<![\w/])(/[^\s'\":,]+)")


def explain_file(finding: Finding, records: Mapping[int, RankRecord], folder: str) -> Finding:
    """Return a finding that a rank raised; where it is about a file, with who changes that."""
    rank = finding.ranks[0] if finding.ranks else None
    record = records.get(rank) if rank is not None else None
    error = record.error or "" if record is not None else ""
    is_missing = _MISSING.search(error) is not None
    if rank is None or not (is_missing or _THERE.search(error)):
        return finding
    wanted = ("removes", "renames", "writes", "makes") if is_missing else ("makes", "writes")
    paths = [first or second for first, second in _PATH.findall(error)]
    for what in wanted:
        for other, each in _changes(records, rank, what):
            if any(_is_of(each.path, path, is_whole=what != "removes") for path in paths):
                where = each.place.short(folder)
                clause = Clause(f"rank {other} {what} it ({where})")
                fix = _fix(what, rank, other, where, is_missing=is_missing)
                return replace(finding, notes=(clause,), fix=fix, help=(fix,))
    return finding


def _changes(
    records: Mapping[int, RankRecord], rank: int, what: str
) -> list[tuple[int, FileChange]]:
    """Return what other ranks did to files, the latest first."""
    return [
        (other, each)
        for other, record in sorted(records.items())
        if other != rank
        for each in record.changes[::-1]
        if each.what == what
    ]


def _is_of(changed: str, path: str, *, is_whole: bool) -> bool:
    """Whether a change is of a path, or removes a folder that it is in."""
    own, other = PurePath(changed), PurePath(path)
    return own == other or (not is_whole and other.is_relative_to(own))


def _fix(what: str, rank: int, other: int, where: str, *, is_missing: bool) -> str:
    if not is_missing:
        return (
            f"two ranks make it: pass `exist_ok=True`, or let one rank make it ({where}) and the "
            "others wait at a barrier behind that."
        )
    if what in {"removes", "renames"}:
        return (
            f"let all ranks meet (a barrier) before rank {other} {what} it ({where}): nothing "
            f"makes it wait until rank {rank} has done with it."
        )
    return (
        f"let all ranks meet (a barrier) between what rank {other} does there ({where}) and what "
        f"rank {rank} reads: nothing makes rank {rank} wait for it."
    )
