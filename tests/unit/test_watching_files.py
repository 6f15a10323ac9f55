"""What a watch makes of the disk: two looks, and their difference."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from torch_scenarios.limits import DEFAULT
from torch_scenarios.watch import TICK_NS, Files, stamp_of

if TYPE_CHECKING:
    from pathlib import Path

PART = "inputs: [t]\nsteps:\n  - all_reduce: {tensor: t}\n"
USES = "world_size: 2\ntensors: {x: [1]}\nsteps:\n  - use: {file: FILE, with: {t: x}}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").touch()
    for name, text in (
        ("one.yaml", USES.replace("FILE", "lib/outer.yaml")),
        ("two.yaml", "world_size: 1\nsteps: [barrier: ]\n"),
        ("lib/outer.yaml", "inputs: [t]\nsteps:\n  - use: {file: inner.yaml, with: {t: t}}\n"),
        ("lib/inner.yaml", PART),
    ):
        write(tmp_path / name, text)
    return tmp_path


def write(path: Path, text: str) -> None:
    """Write a file that was not changed just now."""
    path.parent.mkdir(exist_ok=True)
    before = path.stat().st_mtime_ns if path.exists() else 10**18
    path.write_text(text, encoding="utf-8")
    os.utime(path, ns=(before + 2 * TICK_NS, before + 2 * TICK_NS))


def test_nothing_changed_between_two_looks(folder: Path) -> None:
    files = Files([str(folder)], DEFAULT)
    assert not files.look().since(files.look())


def test_what_uses_a_changed_file_is_affected(folder: Path) -> None:
    files = Files([str(folder / "one.yaml"), str(folder / "two.yaml")], DEFAULT)
    before = files.look()
    write(folder / "lib" / "inner.yaml", PART + "  - barrier:\n")
    difference = files.look().since(before)
    assert difference.affected == (folder / "one.yaml",)
    assert difference.changed == (folder / "lib" / "inner.yaml",)


def test_a_used_file_that_is_not_there_yet_is_waited_for(folder: Path) -> None:
    write(folder / "three.yaml", USES.replace("FILE", "lib/later.yaml"))
    files = Files([str(folder / "three.yaml")], DEFAULT)
    before = files.look()
    write(folder / "lib" / "later.yaml", PART)
    assert files.look().since(before).affected == (folder / "three.yaml",)


def test_a_file_that_cannot_be_read_keeps_what_it_used(folder: Path) -> None:
    files = Files([str(folder / "one.yaml")], DEFAULT)
    files.look()
    write(folder / "one.yaml", "steps: [\n")
    before = files.look()
    write(folder / "lib" / "inner.yaml", PART + "  - barrier:\n")
    assert files.look().since(before).affected == (folder / "one.yaml",)


def test_files_that_use_each_other_end(folder: Path) -> None:
    write(folder / "lib" / "inner.yaml", PART + "  - use: {file: outer.yaml, with: {t: t}}\n")
    look = Files([str(folder / "one.yaml")], DEFAULT).look()
    names = {path.name for path in look.read[folder / "one.yaml"]}
    assert names == {"one.yaml", "outer.yaml", "inner.yaml"}


@pytest.mark.parametrize("file", ["/etc/outside.yaml", "../outside.yaml", "lib/part.txt", "a\\0b"])
def test_what_may_not_be_used_is_not_looked_at(file: str, folder: Path) -> None:
    write(folder / "three.yaml", USES.replace("FILE", f'"{file}"'))
    look = Files([str(folder / "three.yaml")], DEFAULT).look()
    assert set(look.read[folder / "three.yaml"]) == {folder / "three.yaml"}


def test_files_appear_and_go(folder: Path) -> None:
    files = Files([str(folder)], DEFAULT)
    before = files.look()
    (folder / "two.yaml").rename(folder / "three.yaml")
    difference = files.look().since(before)
    assert difference.appeared == difference.affected == (folder / "three.yaml",)
    assert difference.gone == (folder / "two.yaml",)


def test_a_file_that_changed_this_very_moment_is_looked_at_a_moment_later(folder: Path) -> None:
    """A second save within a tick of the kernel's clock has the same time, and maybe size."""
    path = folder / "two.yaml"
    path.write_text(path.read_text())
    stamp = stamp_of(path)
    assert stamp is not None
    assert time.time_ns() - stamp[0] >= TICK_NS


def test_a_file_is_followed_by_its_folder(folder: Path) -> None:
    files = Files([str(folder / "one.yaml")], DEFAULT)
    deep, flat = files.folders(files.look())
    assert deep == frozenset()
    assert flat == {folder, folder / "lib"}


def test_a_folder_is_followed_with_all_below_and_from_outside(folder: Path) -> None:
    files = Files([str(folder / "lib")], DEFAULT)
    deep, flat = files.folders(files.look())
    assert deep == {folder / "lib"}
    assert flat == {folder}


def test_a_case_of_a_file_means_the_file(folder: Path) -> None:
    text = f"{folder / 'two.yaml'}::two"
    assert Files([text], DEFAULT).look().named == {folder / "two.yaml": (text,)}
