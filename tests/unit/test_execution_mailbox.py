"""Messages through a store: in order, in pieces, over holes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from torch_scenarios.execution import protocol as mailbox
from torch_scenarios.execution.protocol import Inbox, Outbox, arrives, open_parts

if TYPE_CHECKING:
    from datetime import timedelta


class DictStore:
    """A store in this process: what waits for a missing key times out at once, as torch says it."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.largest = 0

    def set(self, key: str, value: bytes) -> None:  # noqa: D102 -- torch's own
        self.largest = max(self.largest, len(value))
        self.values[key] = value

    def get(self, key: str) -> bytes:  # noqa: D102 -- torch's own
        return self.values[key]

    def add(self, key: str, amount: int) -> int:  # noqa: D102 -- torch's own
        total = int(self.values.get(key, b"0")) + amount
        self.values[key] = str(total).encode()
        return total

    def wait(self, keys: list[str], timeout: timedelta) -> None:  # noqa: D102 -- torch's own
        if not self.check(keys):
            message = f"wait timeout after {timeout.total_seconds() * 1000:g}ms, keys: {keys}"
            raise RuntimeError(message)

    def check(self, keys: list[str]) -> bool:  # noqa: D102 -- torch's own
        return all(key in self.values for key in keys)

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:  # noqa: D102 -- torch's own
        if key not in self.values and expected:
            return expected.encode()
        if self.values.get(key, b"") == expected.encode():
            self.values[key] = desired.encode()
        return self.values[key]

    def delete_key(self, key: str) -> bool:  # noqa: D102 -- torch's own
        return self.values.pop(key, None) is not None


def taken(inbox: Inbox) -> object:
    parts = inbox.take(0.001)
    return None if parts is None else open_parts(parts)


def test_messages_come_in_the_order_of_their_slots() -> None:
    store = DictStore()
    inbox = Inbox(store, "mail")
    for writer in ("a", "b"):
        Outbox(store, "mail").post(writer)
    assert [taken(inbox), taken(inbox), taken(inbox)] == ["a", "b", None]


def test_a_large_array_travels_in_pieces_and_leaves_nothing() -> None:
    store = DictStore()
    value = np.arange(3 * mailbox.PIECE // 4, dtype=np.int64)
    Outbox(store, "mail").post({"x": value, "small": np.ones(2)})
    assert store.largest <= mailbox.PIECE
    inbox = Inbox(store, "mail")
    received = taken(inbox)
    inbox.clear()
    assert isinstance(received, dict)
    assert np.array_equal(received["x"], value)
    assert received["small"].tolist() == [1, 1]
    assert store.values.keys() == {"mail/slots"}


def test_a_slow_writer_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    store = DictStore()
    inbox = Inbox(store, "mail")
    store.add("mail/slots", 1)
    Outbox(store, "mail").post("second")
    assert taken(inbox) is None
    mailbox.put(store, "mail/1", "first")
    assert [taken(inbox), taken(inbox)] == ["first", "second"]
    monkeypatch.setattr(mailbox, "HOLE_S", 0.0)
    store.add("mail/slots", 1)
    Outbox(store, "mail").post("fourth")
    assert taken(inbox) == "fourth"


def test_a_message_that_comes_after_its_slot_was_stepped_over_is_read_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mailbox, "HOLE_S", 0.0)
    store = DictStore()
    inbox = Inbox(store, "mail")
    store.add("mail/slots", 1)
    Outbox(store, "mail").post("second")
    assert [taken(inbox), taken(inbox)] == ["second", None]
    mailbox.put(store, "mail/1", "first")
    assert [taken(inbox), taken(inbox)] == ["first", None]


def test_a_message_that_was_begun_is_expected_until_it_counts_as_a_hole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = DictStore()
    inbox = Inbox(store, "mail")
    assert not inbox.expects()
    store.add("mail/slots", 1)
    assert inbox.expects()
    mailbox.put(store, "mail/1", "first")
    assert inbox.expects()
    assert taken(inbox) == "first"
    assert not inbox.expects()
    store.add("mail/slots", 1)
    monkeypatch.setattr(mailbox, "HOLE_S", 0.0)
    assert not inbox.expects()


def test_a_store_that_is_gone_is_no_timeout() -> None:
    class Gone(DictStore):
        def wait(self, keys: list[str], timeout: timedelta) -> None:
            del keys, timeout
            message = "failed to recv, got 0 bytes"
            raise RuntimeError(message)

    with pytest.raises(RuntimeError, match="failed to recv"):
        arrives(Gone(), "key", 0.1)
