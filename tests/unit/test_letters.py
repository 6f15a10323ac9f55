"""Values that cross a store: whole on the other side, sealed, and never more than values."""

from __future__ import annotations

import pickle
from array import array
from datetime import timedelta
from typing import Any

import ml_dtypes
import msgspec
import numpy as np
import pytest

from torch_scenarios.errors import LaunchError
from torch_scenarios.execution.letters import ForgedError, Secret, decode, encode
from torch_scenarios.execution.protocol import (
    Inbox,
    Outbox,
    RankAlive,
    RankStuck,
    SealedStore,
    open_parts,
    put,
)


class Memory:
    """A store of torch's, as an intruder has it: he reads, writes and moves what he likes."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    def set(self, key: str, value: bytes) -> None:  # noqa: D102 -- torch's own
        self.values[key] = value

    def get(self, key: str) -> bytes:  # noqa: D102 -- torch's own
        return self.values[key]

    def add(self, key: str, amount: int) -> int:  # noqa: D102 -- torch's own
        self.values[key] = str(int(self.values.get(key, b"0")) + amount).encode()
        return int(self.values[key])

    def wait(self, keys: list[str], timeout: timedelta) -> None:  # noqa: D102 -- torch's own
        if not self.check(keys):
            message = f"wait timeout after {timeout}"
            raise RuntimeError(message)

    def check(self, keys: list[str]) -> bool:  # noqa: D102 -- torch's own
        return all(key in self.values for key in keys)

    def compare_set(self, key: str, expected: str, _: str) -> bytes:  # noqa: D102 -- torch's own
        return self.values.get(key, expected.encode())

    def delete_key(self, key: str) -> bool:  # noqa: D102 -- torch's own
        return self.values.pop(key, None) is not None


@pytest.mark.parametrize(
    "value",
    [
        None,
        -5,
        1 << 70,
        -(1 << 64),
        0.1,
        "é",
        b"\0\xff",
        2j,
        [1, [2, (3,)], {"a": {4}, (1, 2): frozenset({5})}],
        range(2, 9, 3),
        array("d", [1.5]),
        RankStuck(rank=3, position=(1, (2, 3))),
    ],
    ids=repr,
)
def test_a_value_is_the_same_on_the_other_side(value: object) -> None:
    found = decode(*encode(value))
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint64", "float16", "complex64", ml_dtypes.bfloat16]
)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3), (300, 400)])
def test_an_array_keeps_its_dtype_and_shape_and_can_be_written(dtype: Any, shape: Any) -> None:
    value = np.ones(shape, dtype=dtype)
    body, large = encode({"x": value})
    found = decode(body, [bytearray(each) for each in large])["x"]
    assert found.dtype == value.dtype
    assert found.shape == shape
    assert np.array_equal(found, value)
    found[...] = 0


def test_what_two_values_share_is_sent_once() -> None:
    shared = ["long" * 1000]
    body, _ = encode([shared] * 50)
    assert len(body) < 5000
    first, second, *_ = decode(body)
    assert first is second


class Hidden:
    """What runs code where it is unpickled."""

    def __reduce__(self) -> Any:
        """Run code, as a pickle can."""
        return eval, ("1",)


@pytest.mark.parametrize("value", [Hidden(), eval, np.array([object()]), np.array(["x"]), Hidden])
def test_what_is_more_than_a_value_does_not_travel(value: object) -> None:
    with pytest.raises(TypeError, match="does not travel"):
        encode([value])


def letter(*parts: object, kinds: tuple[str, ...] = ("list",), whole: object = None) -> bytes:
    return msgspec.msgpack.encode([list(kinds), [], list(parts), whole])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        pickle.dumps(Hidden()),
        b"\x91" * 100_000,
        b"\xdd\xff\xff\xff\xff" * 1000,
        msgspec.msgpack.encode([1, 2]),
        letter(whole=[0]),
        letter([0, [[1]]]),
        letter([0, [[-1]]]),
        letter([1, []]),
        letter([-1, []]) + b"\0",
        letter([0, []], kinds=("eval",)),
        letter([0, []], kinds=("Popen",)),
        letter([0, [1]], kinds=("RankStuck",)),
        letter([0, [0, "object"]], kinds=("array",)),
        letter([0, [[0]]], kinds=("operation",)),
    ],
    ids=lambda body: repr(body[:20]),
)
def test_what_is_not_a_letter_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"it is (not )?a letter"):
        decode(body)


def mail(store: Any, secret: Secret) -> tuple[Outbox, Inbox]:
    sealed = SealedStore(store, "run/0", secret)
    return Outbox(sealed, "mail"), Inbox(sealed, "mail")


def test_a_pickle_that_another_program_puts_into_a_mailbox_is_never_read(tmp_path: Any) -> None:
    class Planted:
        def __reduce__(self) -> Any:
            return (tmp_path / "ran").touch, ()

    store, secret = Memory(), Secret.random()
    _, inbox = mail(store, secret)
    store.add("mail/slots", 1)
    store.set("mail/1", pickle.dumps(Planted()))
    with pytest.raises(ForgedError, match="this run did not write"):
        inbox.take(0.0)
    assert not (tmp_path / "ran").exists()


def test_a_message_under_another_secret_is_not_read() -> None:
    store = Memory()
    outbox, _ = mail(store, Secret.random())
    outbox.post(RankAlive(rank=0))
    _, inbox = mail(store, Secret.random())
    with pytest.raises(ForgedError):
        inbox.take(0.0)


def test_a_message_holds_in_its_own_place_alone() -> None:
    store, secret = Memory(), Secret.random()
    outbox, inbox = mail(store, secret)
    outbox.post(RankAlive(rank=0))
    store.set("mail/2", store.get("mail/1"))
    parts = inbox.take(0.0)
    assert parts is not None
    assert open_parts(parts, RankAlive) == RankAlive(rank=0)
    with pytest.raises(ForgedError):
        inbox.take(0.0)
    with pytest.raises(ForgedError):
        mail(store, secret.derive(b"another run"))[1].take(0.0)


@pytest.mark.parametrize("place", [0, 31, 32, -1])
def test_one_byte_that_changes_is_noticed(place: int) -> None:
    secret = Secret.random()
    sealed = bytearray(secret.seal("here", b"words"))
    sealed[place] ^= 1
    with pytest.raises(ForgedError):
        secret.open("here", bytes(sealed))
    assert secret.open("here", secret.seal("here", b"words")) == b"words"


def test_large_values_travel_in_sealed_pieces() -> None:
    store, secret = Memory(), Secret.random()
    outbox, inbox = mail(store, secret)
    outbox.post({"x": np.arange(1 << 20)})
    (piece,) = [key for key in store.values if key.startswith("mail/1/1/0")]
    whole = store.get(piece)
    store.set(piece, whole[:-1] + b"\1")
    with pytest.raises(ForgedError):
        inbox.take(0.0)


def test_another_message_than_the_one_that_is_due_is_refused() -> None:
    store = SealedStore(Memory(), "run/0", Secret.random())
    put(store, "order/1", RankAlive(rank=0))
    with pytest.raises(LaunchError, match="another message of this launch was due"):
        open_parts([store.get("order/1")], RankStuck)
