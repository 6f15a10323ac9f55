"""Pickles of plain values: what may be read, and that nothing else does anything."""

from __future__ import annotations

import io
import os
import pickle
import sys
from http import HTTPMethod
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from torch_scenarios.execution.pickles import CheckpointUnpickler, ExactUnpickler, plain

if TYPE_CHECKING:
    from pathlib import Path

PLAIN: list[Any] = [
    None,
    True,
    -3,
    2**70,
    -1.5,
    "hé",
    "y" * 70_000,
    [1, [2, []]],
    {"a": {"b": [None]}, 3: ()},
    (1, 2, (3, 4, 5, 6)),
    [["same"]] * 3,
    list(range(2000)),
]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_values_are_read_in_every_protocol(protocol: int) -> None:
    for value in PLAIN:
        assert plain(pickle.dumps(value, protocol)) == value


class Making:
    """An object whose pickle creates a folder when it is read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        """Make a folder in place of the object."""
        return os.mkdir, (str(self._folder),)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_class_is_refused_before_anything_is_called(protocol: int, tmp_path: Path) -> None:
    with pytest.raises(pickle.UnpicklingError, match=r"it names posix.mkdir"):
        plain(pickle.dumps([Making(tmp_path / "made")], protocol))
    assert not (tmp_path / "made").exists()


class Shape(tuple[int, ...]):
    """Stands for torch's, in a process without torch."""

    __slots__ = ()


def exactly(content: bytes) -> Any:
    return ExactUnpickler(io.BytesIO(content)).load()


def test_of_classes_only_those_of_the_list_are_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stand_in = ModuleType("torch")
    stand_in.float32, stand_in.Size = "a dtype", Shape  # type: ignore[attr-defined]
    stand_in.load = list  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", stand_in)
    assert exactly(b"ctorch\nfloat32\n.") == "a dtype"
    assert exactly(b"ctorch\nSize\n((I2\nI3\nttR.") == (2, 3)
    for content in (b"ctorch\nload\n(tR.", b"cbuiltins\nlist\n(tR.", b"cos\nsystem\n(S'x'\ntR."):
        with pytest.raises(pickle.UnpicklingError, match="it names"):
            exactly(content)
    with pytest.raises(pickle.UnpicklingError, match=r"it names posix.mkdir"):
        exactly(pickle.dumps([Making(tmp_path / "made")]))
    assert not (tmp_path / "made").exists()


HUGE = (2**50).to_bytes(8, "little")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a pickle",
        b"\x80\x04.",
        b"\x80\x04N",
        b"\x80\xff.",
        b"\x80\x04" + b"]" * 5 + b"e.",
        # room for more than there is: bytes, text, a frame, a number, a memo, an array of bytes
        b"\x80\x04\x8e" + HUGE + b".",
        b"\x80\x04\x8d" + HUGE + b".",
        b"\x80\x04\x95" + HUGE + b".",
        b"\x80\x04\x8b\xff\xff\xff\x7f.",
        b"\x80\x04r\xff\xff\xff\xff.",
        b"\x80\x05\x96" + HUGE + b".",
        # extensions, persistent objects, instances, state, buffers beside the pickle
        b"\x80\x04\x82\x01.",
        b"Pname\n.",
        b"\x80\x04NQ.",
        b"(ios\nsystem\n.",
        b"\x80\x04NNb.",
        b"\x80\x05\x97.",
    ],
)
def test_what_is_no_pickle_of_plain_values_is_refused(content: bytes) -> None:
    with pytest.raises((pickle.UnpicklingError, EOFError)):
        plain(content)


class Asks:
    """Pickles as a call of getattr, as a member of an enumeration does in Python 3.11.0."""

    def __init__(self, kind: Any, name: str) -> None:
        self.asked = (kind, name)

    def __reduce__(self) -> tuple[Any, ...]:
        """Ask for the attribute."""
        return getattr, self.asked


class OfMethods(CheckpointUnpickler):
    """Knows one enumeration."""

    known = frozenset({("http", "HTTPMethod")})


def test_a_member_of_an_enumeration_is_read_as_every_python_pickles_it() -> None:
    content = pickle.dumps(Asks(HTTPMethod, "GET"))
    assert OfMethods(io.BytesIO(content)).load() is HTTPMethod.GET


@pytest.mark.parametrize("asked", [(HTTPMethod, "__class__"), ("text", "upper"), (HTTPMethod, "X")])
def test_no_other_attribute_is_given(asked: tuple[Any, str]) -> None:
    with pytest.raises(pickle.UnpicklingError):
        OfMethods(io.BytesIO(pickle.dumps(Asks(*asked)))).load()
