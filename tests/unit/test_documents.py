"""Whatever a document from outside holds, its reader ends at once and says what is wrong."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import Struct

from torch_scenarios.source.documents import (
    MOST_DEPTH,
    DocumentError,
    decode_json,
    police,
    read_document,
)

if TYPE_CHECKING:
    from pathlib import Path


class Row(Struct):
    """What a document may be."""

    name: str
    rank: int = 0


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not JSON"),
        (b"\x80\x04K\x01.", "not JSON"),
        ("{}".encode("utf-16"), "not JSON"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        (b'{"name": "a"', "not JSON"),
        (b"NaN", "not JSON"),
        (b"[Infinity]", "not JSON"),
        (b"[1e999]", "not JSON"),
        (b'"\xed\xa0\x80"', "not JSON"),
        (b"[" * 100_000, "levels of nesting"),
        (b'{"a":' * 100_000, "levels of nesting"),
        (b"[" * 200 + b"]" * 200, "levels of nesting"),
        (b"[" + b"[]," * 5_000_000 + b"1]", "values"),
        (b"9" * 5000, "not JSON"),
        (b"1" + b"0" * 100, "bits of an integer"),
        (b'{"rank": 3}', "`name`"),
        (b'{"name": 3}', "Expected `str`"),
        (b'{"name": "a", "rank": true}', "Expected `int`"),
    ],
)
def test_what_is_not_such_a_document_is_refused_with_words(content: bytes, says: str) -> None:
    with pytest.raises(DocumentError) as raised:
        decode_json(content, Row)
    assert says in str(raised.value)


def test_a_document_is_read_as_its_kind_and_what_is_unknown_is_passed_over() -> None:
    assert decode_json('{"name": "a", "new": [1]}', Row) == Row(name="a")
    assert decode_json(b'{"name": [1, 2.5, null]}') == {"name": [1, 2.5, None]}


def doubled(times: int, value: Any = 0) -> Any:
    for _ in range(times):
        value = (value, value)
    return value


def test_what_is_shared_counts_as_often_as_it_is_reached() -> None:
    police(doubled(10))
    for endless in (doubled(60), {"a": [doubled(60)]}, [doubled(18)] * 1000):
        with pytest.raises(DocumentError, match="values"):
            police(endless)


def test_what_holds_itself_is_too_deep() -> None:
    ring: list[Any] = []
    ring.append(ring)
    with pytest.raises(DocumentError, match=f"{MOST_DEPTH} levels"):
        police(ring)


def test_only_a_regular_file_is_read_and_nothing_is_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "socket"))
    for name, says in (("fifo", "a FIFO"), ("", "a folder"), ("gone", "No such file")):
        with pytest.raises(OSError, match=says):
            read_document(tmp_path / name)
    for strange in (tmp_path / "socket", "/dev/zero", "/dev/tty"):
        with pytest.raises(OSError, match=r".+"):
            read_document(strange)


def test_a_link_is_followed_where_the_caller_lets_it(tmp_path: Path) -> None:
    (tmp_path / "there").write_bytes(b"1")
    (tmp_path / "link").symlink_to("there")
    assert read_document(tmp_path / "link") == b"1"
    with pytest.raises(OSError, match=r".+"):
        read_document(tmp_path / "link", follow=False)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    path.touch()
    os.truncate(path, 100_000_000_000)
    with pytest.raises(DocumentError, match="bytes"):
        read_document(path)
    path.write_bytes(b"12345")
    assert read_document(path, most=5) == b"12345"
    with pytest.raises(DocumentError, match="4 bytes"):
        read_document(path, most=4)
