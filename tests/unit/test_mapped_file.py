"""A file that is written through memory, as a record is."""

from __future__ import annotations

import errno
import json
import os
import signal
import threading
from pathlib import Path
from unittest import mock

import pytest

from torch_scenarios.errors import LaunchError
from torch_scenarios.record.format import lines_of
from torch_scenarios.record.live import prepare
from torch_scenarios.record.mapped_file import FIRST, MappedFile, count_written, is_written


def line(number: int) -> bytes:
    return b'["d",%d]\n' % number


def in_child(work: object) -> int:
    """Run a function in a process that is forked; returns how that ended, as `waitpid` does."""
    pid = os.fork()
    if pid == 0:
        try:
            work()  # type: ignore[operator]
        finally:
            os._exit(0)
    return os.waitpid(pid, 0)[1]


def test_a_file_that_is_closed_is_its_lines(tmp_path: Path) -> None:
    file = MappedFile(str(tmp_path / "a"))
    count = FIRST // 4  # it grows, more than once
    for number in range(count):
        file.append(line(number))
    file.close()
    assert (tmp_path / "a").read_bytes() == b"".join(map(line, range(count)))


def test_a_line_that_is_longer_than_the_room_is_whole(tmp_path: Path) -> None:
    file = MappedFile(str(tmp_path / "a"))
    long = b"x" * (5 * FIRST + 1)
    file.append(b"a\n")
    file.append(long)
    file.close()
    assert (tmp_path / "a").read_bytes() == b"a\n" + long


def test_what_a_killed_process_wrote_is_whole_and_what_is_behind_is_room(tmp_path: Path) -> None:
    path = tmp_path / "a"

    def killed() -> None:
        file = MappedFile(str(path))
        for number in range(10_000):
            file.append(line(number))
        os.kill(os.getpid(), signal.SIGKILL)

    assert os.WTERMSIG(in_child(killed)) == signal.SIGKILL
    content = b"".join(map(line, range(10_000)))
    assert path.read_bytes().rstrip(b"\0") == content
    assert count_written(path) == len(content)
    assert [each[1] for each in lines_of(path)] == [*range(10_000)]


def test_lines_that_threads_append_are_whole(tmp_path: Path) -> None:
    file = MappedFile(str(tmp_path / "a"))

    def append(first: int) -> None:
        for number in range(first, first + 20_000):
            file.append(line(number))

    threads = [threading.Thread(target=append, args=[at * 20_000]) for at in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    file.close()
    assert sorted(each[1] for each in lines_of(tmp_path / "a")) == [*range(80_000)]


def test_a_process_that_is_forked_leaves_the_file_alone(tmp_path: Path) -> None:
    file = MappedFile(str(tmp_path / "a"))
    file.append(line(0))

    def writes() -> None:
        file.append(line(1))
        file.close()

    assert in_child(writes) == 0
    file.append(line(2))
    file.close()
    assert [each[1] for each in lines_of(tmp_path / "a")] == [0, 2]


def test_a_file_that_another_process_writes_is_not_begun_anew(tmp_path: Path) -> None:
    first = MappedFile(str(tmp_path / "rank-00000.jsonl"))
    first.append(line(0))
    assert is_written(tmp_path / "rank-00000.jsonl")
    second = MappedFile(str(tmp_path / "rank-00000.jsonl"))
    second.append(line(1))
    assert Path(second.path).name == f"rank-00000-{os.getpid()}.jsonl"
    first.append(line(2))
    for file in (first, second):
        file.close()
    assert [each[1] for each in lines_of(tmp_path / "rank-00000.jsonl")] == [0, 2]
    assert [each[1] for each in lines_of(Path(second.path))] == [1]


def test_a_file_that_was_left_there_is_begun_anew(tmp_path: Path) -> None:
    for number in range(2):
        file = MappedFile(str(tmp_path / "a"))
        file.append(line(number))
        file.close()
        assert not is_written(tmp_path / "a")
    assert [each[1] for each in lines_of(tmp_path / "a")] == [1]


def test_the_folder_of_a_run_that_goes_on_is_not_emptied(tmp_path: Path) -> None:
    file = MappedFile(str(tmp_path / "rank-00000.jsonl"))
    with pytest.raises(LaunchError, match="a run that goes on writes its record"):
        prepare(tmp_path)
    file.close()
    prepare(tmp_path)
    assert not (tmp_path / "rank-00000.jsonl").exists()


def test_a_disk_without_room_ends_the_record_and_not_the_program(tmp_path: Path) -> None:
    file = MappedFile(str(tmp_path / "a"))
    full = OSError(errno.ENOSPC, "no space left on device")
    with mock.patch("os.posix_fallocate", side_effect=full):
        for number in range(FIRST):
            file.append(line(number))
    found = [each[1] for each in lines_of(tmp_path / "a")]
    assert found == [*range(len(found))]
    assert 0 < len(found) < FIRST


def test_written_bytes_are_counted_from_where_a_look_before_ended(tmp_path: Path) -> None:
    path = tmp_path / "a"
    file = MappedFile(str(path))
    assert count_written(path) == 0
    file.append(line(0))
    before = count_written(path)
    assert before == len(line(0))
    assert count_written(path, before) == before
    file.append(line(1))
    assert count_written(path, before) == 2 * before
    file.close()
    assert count_written(path, 10 * before) == 2 * before


def test_lines_end_where_one_has_room_in_it(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(line(0) + b'["d",\0\0\n' + line(2))
    assert [json.dumps(each) for each in lines_of(path)] == ['["d", 0]']
