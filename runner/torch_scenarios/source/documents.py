"""Documents from outside: the bytes of a file, JSON and plain values, all of them bounded.

A result, a record, a dump, a log, or what an earlier run left behind may come from a stranger, or
be damaged. Each is read here, so that it ends at once: a regular file alone, so many bytes, so
many parts, so deep. What is shared counts as often as it is reached: a tuple that holds another one
twice, sixty times over, has few bytes and no end. Knows no format.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypeVar, overload

import msgspec

from torch_scenarios.files import open_regular, read_open
from torch_scenarios.limits import pause_collector

#: bytes of a document; its parts, which are values and keys; levels of nesting; bits of an integer
MOST_BYTES, MOST_PARTS, MOST_DEPTH, MOST_BITS = 1 << 27, 1 << 22, 64, 64

#: what begins or parts the values of JSON: there are at most so many values, and one more
_SEPARATORS = (b",", b"[", b"{", b":")

T = TypeVar("T")


class DocumentError(ValueError):
    """A document that is not read; the message says what is wrong with it.

    A document is what a program wrote: a result, a record, a dump. A file that a person wrote has
    problems with places (:class:`torch_scenarios.errors.ScenarioError`).
    """


class BoundsError(DocumentError):
    """A document that is larger, or deeper, than what is read of one.

    100 brackets within each other, or ten aliases of ten aliases of ten: a small file can be a
    large value, and is refused before it is one.
    """


def read_document(
    path: str | os.PathLike[str], *, most: int = MOST_BYTES, follow: bool = True
) -> bytes:
    """Return the bytes of a file. A link is followed unless `follow` says otherwise.

    Raises OSError where it cannot be read or is not a regular file, which is found without waiting
    for it, and BoundsError where it has more than `most` bytes.
    """
    opened = open_regular(Path(path), follow=follow)
    try:
        if os.fstat(opened).st_size > most:
            raise _refuse_size(most, "bytes")
        content = read_open(opened, most + 1)
    finally:
        os.close(opened)
    if len(content) > most:  # it grew
        raise _refuse_size(most, "bytes")
    return content


@overload
def decode_json(content: bytes | str, kind: type[T], *, parts: int = ...) -> T: ...


@overload
def decode_json(content: bytes | str, kind: None = None, *, parts: int = ...) -> Any: ...


@pause_collector()
def decode_json(
    content: bytes | str, kind: type[Any] | None = None, *, parts: int = MOST_PARTS
) -> Any:
    """Return what a text of JSON holds; as a `kind`, which may be a Struct, where one is given.

    Raises DocumentError where it is not JSON or not of that kind, BoundsError beyond the bounds.
    """
    raw = content.encode(errors="surrogatepass") if isinstance(content, str) else content
    if sum(map(raw.count, _SEPARATORS)) > parts:
        raise _refuse_size(parts, "values")
    try:
        found = msgspec.json.decode(raw)
    except RecursionError:
        raise _refuse_size(MOST_DEPTH, "levels of nesting") from None
    except ValueError as error:
        message = f"it is not JSON: {error}"
        raise DocumentError(message) from None
    police(found, parts=parts)
    return found if kind is None else convert(found, kind)


def convert(value: Any, kind: type[T]) -> T:
    """Return a plain value as a `kind`. Raises DocumentError, with the place in the value."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise DocumentError(str(error)) from None


def police(
    value: Any, *, parts: int = MOST_PARTS, depth: int = MOST_DEPTH, bits: int = MOST_BITS
) -> None:
    """Raise BoundsError where plain values are more, deeper or larger than the bounds.

    Level by level, and a shared value as often as it is reached: what is endless, because it holds
    itself, is too deep.
    """
    level, count = [value], 1
    for _ in range(depth):
        below: list[Any] = []
        for each in level:
            kind = type(each)
            if kind is int and each.bit_length() > bits:
                raise _refuse_size(bits, "bits of an integer")
            if kind not in _HOLDERS:
                continue
            count += len(each)
            if count > parts:
                raise _refuse_size(parts, "values")
            below += each.values() if kind is dict else each
        if not below:
            return
        level = below
    raise _refuse_size(depth, "levels of nesting")


_HOLDERS = frozenset({dict, list, tuple, set, frozenset})


def _refuse_size(most: int, what: str) -> BoundsError:
    return BoundsError(f"it has more than {most} {what}")
