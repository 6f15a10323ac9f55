"""The store of one machine: it answers its own workers, and no one else."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from contextlib import closing, suppress
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from torch_scenarios.execution.letters import Secret
from torch_scenarios.execution.local_store import LocalStore, LocalStoreClient

if TYPE_CHECKING:
    from collections.abc import Iterator

#: seconds after which something that must come is missed
MISSED_S = 30.0
OTHER_USER = 65534


@pytest.fixture
def line(local_store: LocalStore) -> Iterator[LocalStoreClient]:
    found = LocalStoreClient(local_store.address)
    yield found
    found.close()


def test_it_keeps_what_workers_and_its_own_process_put(
    local_store: LocalStore, line: LocalStoreClient
) -> None:
    line.set("a", b"1")
    local_store.set("b", b"2")
    assert (local_store.get("a"), line.get("b")) == (b"1", b"2")
    assert (line.add("n", 2), local_store.add("n", 3), line.add("n", 0)) == (2, 5, 5)
    assert (line.check(["a", "b"]), line.check(["a", "c"])) == (True, False)
    assert line.compare_set("a", "absent", "absent") == b"1"
    assert line.compare_set("c", "absent", "absent") == b"absent"
    assert (line.delete_key("a"), line.delete_key("a"), local_store.check(["a"])) == (
        True,
        False,
        False,
    )


def test_a_worker_waits_for_what_another_one_puts(
    local_store: LocalStore, line: LocalStoreClient
) -> None:
    found: list[bytes] = []
    waiting = threading.Thread(target=lambda: found.append(line.get("late")))
    waiting.start()
    with closing(LocalStoreClient(local_store.address)) as other:
        other.set("late", b"x" * (4 << 20))
    waiting.join(MISSED_S)
    assert found == [b"x" * (4 << 20)]


def test_a_wait_ends_with_a_timeout_in_torchs_words(
    local_store: LocalStore, line: LocalStoreClient
) -> None:
    for store in (local_store, line):
        with pytest.raises(RuntimeError, match="timeout"):
            store.wait(["never"], timedelta(milliseconds=1))


def test_a_line_without_the_secret_is_ended_and_reads_nothing(
    local_store: LocalStore, line: LocalStoreClient
) -> None:
    local_store.set("key", b"value")
    wrong = replace(local_store.address, key=bytes(32))
    with closing(LocalStoreClient(wrong)) as intruder, pytest.raises(RuntimeError, match="gone"):
        intruder.get("key")
    assert line.get("key") == b"value"


@pytest.mark.parametrize("words", [b"\xff" * 4, b"\0\0\0\1\x91", b"\0\0\0\2[]", b"\0" * 64])
def test_a_line_that_says_something_else_is_ended(
    local_store: LocalStore, line: LocalStoreClient, words: bytes
) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.settimeout(MISSED_S)
        other.connect(local_store.address.name)
        other.sendall(local_store.address.key + words)
        with suppress(ConnectionError):
            assert other.recv(1) == b""
    assert line.add("n", 1) == 1


INTRUDER = """
import os, socket, sys
os.setgroups([]); os.setgid({user}); os.setuid({user})
line = socket.socket(socket.AF_UNIX); line.settimeout(30)
line.connect(bytes.fromhex(sys.argv[1]))
try:
    line.sendall(bytes.fromhex(sys.argv[2]) + b"\\0\\0\\0\\7\\x94\\xa3get\\xa1k")
    print(line.recv(100))
except OSError as error:
    print(type(error).__name__)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="to be another user for a moment needs root")
def test_another_user_is_not_let_in_even_with_the_secret(local_store: LocalStore) -> None:
    local_store.set("k", b"value")
    address = local_store.address
    done = subprocess.run(
        [
            *(sys.executable, "-I", "-c", INTRUDER.format(user=OTHER_USER)),
            *(address.name.hex(), address.key.hex()),
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=MISSED_S,
    )
    assert done.stdout.strip() in {"b''", "BrokenPipeError", "ConnectionResetError"}


def test_what_waits_on_an_office_that_closes_hears_of_it() -> None:
    local_store = LocalStore(Secret.random())
    local_store.start()
    line = LocalStoreClient(local_store.address)
    line.set("a", b"1")
    local_store.close()
    with closing(line), pytest.raises(RuntimeError, match="gone"):
        line.get("never")
