"""Files that appear whole: what is there meanwhile, and what a killed process leaves."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from torch_scenarios import files as replacing
from torch_scenarios.files import STALE_S, PendingFile, replace_file

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(params=["without names", "with names", "without links"])
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Be a file system that has unnamed files, one that has none, one that cannot name them."""
    if request.param == "with names":
        monkeypatch.setattr(replacing, "_open_unnamed", lambda _: None)
    if request.param == "without links":
        monkeypatch.setattr(replacing, "_link", lambda *_: False)
    return str(request.param)


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize("before", [None, "old"])
def test_a_file_appears_whole_when_it_is_kept(tmp_path: Path, before: str | None) -> None:
    path = tmp_path / "r.json"
    if before is not None:
        path.write_text(before)
        path.chmod(0o640)
    pending = PendingFile(path)
    os.write(pending.descriptor, b"new")
    assert (path.read_text() if path.exists() else None) == before
    pending.keep()
    os.close(pending.descriptor)
    assert names(tmp_path) == ["r.json"]
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == (0o640 if before else 0o666 & ~umask())


def umask() -> int:
    found = os.umask(0o022)
    os.umask(found)
    return found


@pytest.mark.usefixtures("system")
def test_a_discarded_file_leaves_nothing(tmp_path: Path) -> None:
    pending = PendingFile(tmp_path / "r.json")
    os.write(pending.descriptor, b"new")
    pending.discard()
    os.close(pending.descriptor)
    assert names(tmp_path) == []


def test_a_pending_file_has_no_name(tmp_path: Path) -> None:
    pending = PendingFile(tmp_path / "r.json")
    assert names(tmp_path) == []
    os.close(pending.descriptor)


def test_what_a_killed_process_left_is_swept_away_and_what_a_living_one_holds_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replacing, "_open_unnamed", lambda _: None)
    held = PendingFile(tmp_path / "r.json")
    (living,) = names(tmp_path)
    left = [".r.json.0123abcd.part", ".r.json.fresh000.part", ".r.jsonl.0123abcd.part"]
    for name in left:
        (tmp_path / name).write_text("half")
    for name in (*left, living):
        long_ago_s = (tmp_path / name).stat().st_mtime - 2 * STALE_S
        if "fresh" not in name:
            os.utime(tmp_path / name, (long_ago_s, long_ago_s))
    replace_file(tmp_path / "r.json", b"new")
    assert names(tmp_path) == sorted([living, *left[1:], "r.json"])
    held.keep()
    os.close(held.descriptor)
    assert names(tmp_path) == sorted([*left[1:], "r.json"])


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "r.json").write_text("old")

    def full(_: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        replace_file(tmp_path / "r.json", b"new")
    assert names(tmp_path) == ["r.json"]
    assert (tmp_path / "r.json").read_text() == "old"
