"""A stranger's file does nothing but end with its exit code: no row reads, makes or takes more."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hostile_batch import CPU_S, MEMORY_BYTES, RanksEnded
from hostile_table import TABLE, Row
from sampling import sampled

from torch_scenarios.limits import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from _pytest.mark import ParameterSet

#: seconds of CPU that what ends at a tenth of a limit may take, and what every file takes besides
TENTH_CPU_S = CPU_S / 4
#: the text of a file that lies beside every project, and that no row may read
SECRET = "the-secret-that-no-file-may-show"  # noqa: S105 -- of this test alone
#: what may change how a terminal, or an editor, shows what comes after it
UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2069\U000e0000-\U000e007f]"
)


def ways(row: Row) -> list[ParameterSet]:
    """Return how a row is given to the command: its arguments, and the CPU that it may take.

    What ends at a limit after seconds ends at a tenth of it as it does at the whole. The ordinary
    run takes one row in nine.
    """
    marks = [] if TABLE.index(row) % 9 == 0 else [pytest.mark.nightly]
    if not row.limit:
        return [pytest.param(row, row.command, CPU_S, id=row.name, marks=marks)]
    tenth = getattr(DEFAULT, f"max_{row.limit}") // 10
    command = (*row.command, "--limit", f"{row.limit}={tenth}")
    return [
        pytest.param(row, command, TENTH_CPU_S, id=f"{row.name} at a tenth", marks=marks),
        pytest.param(row, row.command, CPU_S, id=row.name, marks=pytest.mark.nightly),
    ]


@pytest.mark.parametrize(
    ("row", "command", "cpu_s"), sampled([way for row in TABLE for way in ways(row)], 2)
)
def test_a_hostile_file_ends_with_its_code(
    row: Row,
    command: tuple[str, ...],
    cpu_s: float,
    tmp_path: Path,
    ended: Callable[[Path, Sequence[str]], RanksEnded],
) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text(f"world_size: {SECRET}\n", encoding="utf-8")
    project, marker = tmp_path / "project", tmp_path / "marker"
    project.mkdir()
    (project / "pyproject.toml").write_text("", encoding="utf-8")
    if callable(row.make):
        row.make(project)
    else:
        text = row.make if isinstance(row.make, bytes) else row.make.encode()
        (project / "x.yaml").write_bytes(text.replace(b"MARKER", bytes(marker)))
    end = ended(project, command)
    assert end.code == row.code, end.said[:2000]
    assert end.cpu_s < cpu_s
    assert end.memory < MEMORY_BYTES
    assert row.says in end.said
    assert SECRET not in end.said
    assert "Traceback" not in end.said
    assert end.size < row.most_said
    assert not UNSAFE.search(end.said)
    assert not marker.exists()
    outside = (tmp_path, Path("/etc"))
    opened = [Path(what.removeprefix("open ")) for what in end.did if what.startswith("open ")]
    strange = [
        path
        for path in (Path(project, path) for path in opened)
        if any(path.is_relative_to(folder) for folder in outside)
        and not path.is_relative_to(project)
    ]
    assert not strange
    assert [what for what in end.did if not what.startswith("open ")] == []


def test_the_table_has_each_file_once() -> None:
    names = [row.name for row in TABLE]
    assert sorted(set(names)) == sorted(names)
