"""What crosses a store: values of listed kinds, as MessagePack under a seal; never a pickle.

A letter is a table of parts. Each part has a kind and items, and an item is a plain value or the
number of an earlier part:

    Plan of a file          parts: ("Source", path, text), ("Mark", [0], 3, 5, ...), ...

So nothing nests, no part contains itself, and what two values share stays shared. A kind is a
container, an array, or one of this package's own structs by its name: reading a letter calls
nothing else. Large arrays travel next to the table, as they lie in memory.

A secret seals each letter for one place of one launch (HMAC-SHA256): what another program puts
there, or moves there, is not read. Knows nothing of stores and nothing of torch.
"""

from __future__ import annotations

import hmac
import marshal
import secrets
from array import array
from collections.abc import Callable, Iterable
from hashlib import sha256
from types import CodeType
from typing import Annotated, Any, TypeAlias

import ml_dtypes
import msgspec
import numpy as np
from msgspec import Meta, Struct
from msgspec.structs import astuple

from torch_scenarios.errors import LaunchError
from torch_scenarios.model.trace import Events
from torch_scenarios.operations.base import IssuedCall, Operation, operation_named
from torch_scenarios.strategies import Model
from torch_scenarios.vocabulary import DTYPES

#: bytes of a seal
SEAL = sha256().digest_size
#: characters that a token has at least, and bytes that a file with one has at most
SHORTEST_TOKEN, LONGEST_TOKEN = 16, 1024


class ForgedError(LaunchError):
    """What is in a place of the store is not from this run.

    torch's store lets any program on the network read and write. So each value has a seal, made
    with a secret of the launch, over its place and its bytes; without the right one nothing is
    decoded.
    """


class Secret:
    """What the processes of one launch know, and no other; it seals what they say.

    >>> secret = Secret(b"key")
    >>> sealed = secret.seal("scenario/1/order", b"go")
    >>> secret.open("scenario/1/order", sealed)
    b'go'
    >>> secret.open("scenario/2/order", sealed)
    Traceback (most recent call last):
        ...
    torch_scenarios.execution.letters.ForgedError: ...

    The place is sealed with the value: what was sent to one rank cannot be shown to another.
    """

    def __init__(self, key: bytes) -> None:
        """Seal with a key, of any length."""
        self._key = key

    @classmethod
    def random(cls) -> Secret:
        """Return a secret that was never used before."""
        return cls(secrets.token_bytes(SEAL))

    @property
    def key(self) -> bytes:
        """The key itself, for a process of the same launch, by a line of their own."""
        return self._key

    def digest(self, *words: bytes) -> bytes:
        """Return the HMAC of some words, each with its length."""
        text = b"".join(b"%d:%b" % (len(word), word) for word in words)
        return hmac.digest(self._key, text, "sha256")

    def derive(self, *words: bytes) -> Secret:
        """Return a secret for one use, which tells nothing of this one."""
        return Secret(self.digest(b"derive", *words))

    def seal(self, place: str, body: bytes) -> bytes:
        """Return `body` under a seal that holds in one place only."""
        return self.digest(place.encode(), body) + body

    def open(self, place: str, sealed: bytes) -> bytes:
        """Return what was sealed for a place. Raises ForgedError where it was not."""
        seal, body = sealed[:SEAL], sealed[SEAL:]
        if not hmac.compare_digest(seal, self.digest(place.encode(), body)):
            message = (
                f"the store of this launch holds something at {place} that this run did not write: "
                "another program writes to it"
            )
            raise ForgedError(message)
        return body


# A value -> a table of parts.

#: bytes; a larger array travels next to its letter
INLINE = 64 << 10
#: parts of one letter, and items of one part, at most
MOST_PARTS = 1 << 24

#: a plain value, or the number of an earlier part in a list with nothing else
Item: TypeAlias = (
    bool
    | int
    | float
    | str
    | Annotated[list[Annotated[int, Meta(ge=0)]], Meta(min_length=1, max_length=1)]
    | None
)
Part: TypeAlias = tuple[int, Annotated[list[Item], Meta(max_length=MOST_PARTS)]]


class Letter(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A value as it travels: the kinds of its parts, the parts, and the item that is the whole.

    `blobs` are bytes, which parts name by their numbers.
    """

    kinds: list[str]
    blobs: list[bytes]
    parts: Annotated[list[Part], Meta(max_length=MOST_PARTS)]
    whole: Item


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Letter)

#: the dtypes that an array may have, by their names; text and objects are none
_DTYPES: dict[str, Any] = {
    **{name: np.dtype(name) for name in DTYPES if hasattr(np, name) and name != "bool"},
    "bool": np.dtype(np.bool_),
    **{
        name: np.dtype(getattr(ml_dtypes, name))
        for name in DTYPES
        if not hasattr(np, name) and hasattr(ml_dtypes, name)
    },
}
_PLAIN = frozenset({type(None), bool, float, str})
_LARGEST_INT = 1 << 63

Reduce: TypeAlias = Callable[[Any], tuple[str, Iterable[Any]]]


class _Writer:
    """Takes one value apart."""

    def __init__(self) -> None:
        self.kinds: dict[str, int] = {}
        self.parts: list[tuple[int, list[Any]]] = []
        self.blobs: list[bytes] = []
        self.large: list[memoryview] = []
        self._known: dict[int, list[int]] = {}
        #: what has a number stays alive until all have one
        self._kept: list[Any] = []

    def item(self, value: Any) -> Any:
        """Return a value as an item, after its parts."""
        kind = value.__class__
        if kind in _PLAIN or (kind is int and -_LARGEST_INT <= value < _LARGEST_INT):
            return value
        found = self._known.get(id(value))
        if found is None:
            name, items = self._take_apart(kind, value)
            number = self.kinds.setdefault(name, len(self.kinds))
            self.parts.append((number, items))
            found = self._known[id(value)] = [len(self.parts) - 1]
            self._kept.append(value)
        return found

    def _take_apart(self, kind: type, value: Any) -> tuple[str, list[Any]]:
        """Return the kind of a part and its items. Raises TypeError for what is not listed."""
        if kind in _REDUCED:
            name, fields = _REDUCED[kind](value)
            return name, self._items(fields)
        if isinstance(value, Struct) and _struct(kind.__name__) is kind:
            return kind.__name__, self._items(astuple(value))
        if isinstance(value, np.ndarray):
            return self._array(value)
        if isinstance(value, bytes | CodeType | array | np.generic):
            return self._bytes(value)
        if isinstance(value, Operation):
            return "operation", [value.name]
        if isinstance(value, Events):
            return "events", self._items(value)
        message = f"a value of {kind.__module__}.{kind.__qualname__} does not travel"
        raise TypeError(message)

    def _items(self, values: Iterable[Any]) -> list[Any]:
        """Return values as items; a plain one, as most are, is an item already."""
        item = self.item
        return [each if each.__class__ in _PLAIN else item(each) for each in values]

    def _bytes(self, value: Any) -> tuple[str, list[Any]]:
        match value:
            case bytes():
                return "bytes", [self._blob(value)]
            case CodeType():
                return "code", [self._blob(marshal.dumps(value))]
            case array():
                return "column", [self._blob(value.tobytes()), value.typecode]
            case _:
                return "scalar", [self._blob(value.tobytes()), _name(value.dtype)]

    def _array(self, value: Any) -> tuple[str, list[Any]]:
        """Return an array: where its bytes are, its dtype and its shape."""
        name, shape = _name(value.dtype), list(value.shape)
        if value.nbytes < INLINE:
            return "array", [self._blob(value.tobytes()), name, *shape]
        flat = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        self._kept.append(flat)
        self.large.append(flat.data)
        return "array", [-len(self.large), name, *shape]

    def _blob(self, content: bytes) -> int:
        self.blobs.append(content)
        return len(self.blobs) - 1


def _name(dtype: Any) -> str:
    name = str(dtype.name)
    if _DTYPES.get(name) != dtype:
        message = f"an array of {dtype} does not travel"
        raise TypeError(message)
    return name


#: the fields of a model that travel: all but the last, in which the analysis keeps what it knows
_OF_A_MODEL = Model.__struct_fields__[:-1]
#: types whose instances are taken apart so, by exact type
_REDUCED: dict[type, Reduce] = {
    list: lambda value: ("list", value),
    tuple: lambda value: ("tuple", value),
    dict: lambda value: ("dict", (each for pair in value.items() for each in pair)),
    set: lambda value: ("set", value),
    frozenset: lambda value: ("frozenset", value),
    range: lambda value: ("range", (value.start, value.stop, value.step)),
    slice: lambda value: ("slice", (value.start, value.stop, value.step)),
    int: lambda value: ("int", (hex(value),)),
    complex: lambda value: ("complex", (value.real, value.imag)),
    IssuedCall: lambda value: ("issued", value),
    Model: lambda value: ("model", (getattr(value, each) for each in _OF_A_MODEL)),
}


def encode(value: Any) -> tuple[bytes, list[memoryview]]:
    """Return a letter, and the large arrays that travel next to it.

    Raises TypeError where a part of the value is of a kind that does not travel.
    """
    writer = _Writer()
    whole = writer.item(value)
    letter = Letter(list(writer.kinds), writer.blobs, writer.parts, whole)
    return _ENCODER.encode(letter), writer.large


# A table of parts -> the value.


def decode(body: bytes | bytearray | memoryview, large: Iterable[Any] = ()) -> Any:
    """Return the value of a letter. Raises ValueError for what :func:`encode` never writes."""
    try:
        letter = _DECODER.decode(body)
        return _read(letter, list(large))
    except (msgspec.MsgspecError, RecursionError) as error:
        message = f"it is not a letter: {error}"
        raise ValueError(message) from error
    except (LookupError, TypeError, ValueError, OverflowError, AttributeError) as error:
        message = f"it is a letter with a part that does not fit: {error}"
        raise ValueError(message) from error


def _read(letter: Letter, large: list[Any]) -> Any:
    blobs = [*letter.blobs, *reversed(large)]  # the first of the large ones is at -1
    makers = [_maker(kind, blobs) for kind in letter.kinds]
    built: list[Any] = []
    for kind, items in letter.parts:
        values = [built[each[0]] if each.__class__ is list else each for each in items]
        built.append(makers[kind](values))
    whole = letter.whole
    return built[whole[0]] if isinstance(whole, list) else whole


def _maker(kind: str, blobs: list[Any]) -> Callable[[list[Any]], Any]:
    """Return what puts a part together. Raises KeyError for an unknown kind."""
    if kind in _OF_BYTES:
        of_bytes = _OF_BYTES[kind]
        return lambda items: of_bytes(blobs[items[0]], *items[1:])
    if kind in _MADE:
        return _MADE[kind]
    struct = _struct(kind)
    if struct is None:
        raise KeyError(kind)
    fields = struct.__struct_fields__
    return lambda items: struct(**dict(zip(fields, items, strict=True)))


def _array(content: Any, dtype: str, *shape: int) -> Any:
    raw = bytearray(content) if isinstance(content, bytes) else content
    return np.frombuffer(raw, dtype=_DTYPES[dtype]).reshape(shape)


#: the kinds whose first item is the number of a blob: the bytes and the other items -> the value
_OF_BYTES: dict[str, Callable[..., Any]] = {
    "array": _array,
    "bytes": bytes,
    "code": marshal.loads,
    "column": lambda content, typecode: array(typecode, content),
    "scalar": lambda content, dtype: np.frombuffer(content, dtype=_DTYPES[dtype])[0],
}
_MADE: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "dict": lambda items: dict(zip(items[::2], items[1::2], strict=True)),
    "set": set,
    "frozenset": frozenset,
    "range": lambda items: range(*items),
    "slice": lambda items: slice(*items),
    "int": lambda items: int(items[0], 16),
    "complex": lambda items: complex(*items),
    "operation": lambda items: operation_named(items[0]),
    "events": Events,
    "issued": lambda items: IssuedCall(*items),
    "model": lambda items: Model(**dict(zip(_OF_A_MODEL, items, strict=True))),
}


def let_travel(
    kind: type, name: str, apart: Callable[[Any], Iterable[Any]], made: Callable[[list[Any]], Any]
) -> None:
    """Let values of a class travel as well: taken apart into items, and made of them again."""
    _REDUCED[kind] = lambda value: (name, apart(value))
    _MADE[name] = made


_STRUCTS: dict[str, Any] = {}


def _struct(name: str) -> Any:
    """Return the struct of this package of that name; None where no imported module has it."""
    found = _STRUCTS.get(name)
    if found is None:
        waiting: list[type] = [Struct]
        while waiting:
            heirs: list[Any] = waiting.pop().__subclasses__()
            waiting += heirs
            _STRUCTS.update(
                (heir.__name__, heir) for heir in heirs if heir.__module__.startswith(_PACKAGE)
            )
        found = _STRUCTS.get(name)
    return found


_PACKAGE = __name__.partition(".")[0] + "."
