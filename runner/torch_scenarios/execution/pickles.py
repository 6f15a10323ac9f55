"""Pickles of plain values, read so that they can do nothing but hold them.

A pickle is a program: it can name any class or function and call it, and it can ask for memory that
it has no bytes for. Bytes that another rank's tensors, or another program's file, may have made are
therefore read by an unpickler that knows no class. Knows no torch.
"""

from __future__ import annotations

import io
import pickle
import struct
import sys
from collections.abc import Callable, Mapping
from enum import EnumType
from typing import Any, ClassVar

from torch_scenarios.source.documents import MOST_PARTS, BoundsError, police
from torch_scenarios.vocabulary import DTYPES

#: what a pickle of None, booleans, numbers, text, bytes, lists, tuples and mappings is made of.
#: What names a class is here to be refused by its name; absent are what calls one, and what makes
#: room before it has the bytes
PLAIN = (
    *(pickle.PROTO, pickle.FRAME, pickle.STOP, pickle.MARK, pickle.POP, pickle.POP_MARK),
    *(pickle.DUP, pickle.MEMOIZE, pickle.PUT, pickle.BINPUT, pickle.LONG_BINPUT),
    *(pickle.GET, pickle.BINGET, pickle.LONG_BINGET),
    *(pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE),
    *(pickle.INT, pickle.BININT, pickle.BININT1, pickle.BININT2),
    *(pickle.LONG, pickle.LONG1, pickle.LONG4),
    *(pickle.FLOAT, pickle.BINFLOAT),
    *(pickle.UNICODE, pickle.SHORT_BINUNICODE, pickle.BINUNICODE, pickle.BINUNICODE8),
    *(pickle.SHORT_BINBYTES, pickle.BINBYTES, pickle.BINBYTES8),
    *(pickle.EMPTY_LIST, pickle.LIST, pickle.APPEND, pickle.APPENDS),
    *(pickle.EMPTY_TUPLE, pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3),
    *(pickle.GLOBAL, pickle.STACK_GLOBAL),
    *(pickle.EMPTY_DICT, pickle.DICT, pickle.SETITEM, pickle.SETITEMS),
)


#: operations of a pickle that is read: each takes about a microsecond
MOST_OPERATIONS = MOST_PARTS

#: levels of nesting, and bits of an integer: objects of a scenario may be deeper than a document
MOST_DEPTH, MOST_BITS = 512, 1 << 20

#: what may be the key of a mapping: to hash a tuple takes as long as it is when it is written out
_KEYS = (str, bytes, int, float, type(None))


# The unpickler written in C makes room for a memo of 2**32 places, or for bytes of any length, when
# it is told to; the one written in Python, which behaves alike otherwise, keeps its memo in a
# dictionary and reads no more than there is.
class PlainUnpickler(pickle._Unpickler):
    """Reads plain values; raises UnpicklingError for anything else, before it is done.

    It takes at most `MOST_OPERATIONS` operations, and what it returns is within the bounds of
    :func:`torch_scenarios.source.documents.police`, which count what is shared.

    >>> PlainUnpickler(io.BytesIO(pickle.dumps({"step": [1, 2.5, None]}))).load()
    {'step': [1, 2.5, None]}
    >>> PlainUnpickler(io.BytesIO(pickle.dumps(io.BytesIO))).load()
    Traceback (most recent call last):
        ...
    _pickle.UnpicklingError: ...
    """

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        code[0]: pickle._Unpickler.dispatch[code[0]] for code in PLAIN
    }

    def load(self) -> Any:
        """Return the value. Raises UnpicklingError, also where the bytes are no pickle at all."""
        self.__dict__["dispatch"] = _Counted(type(self).dispatch)
        try:
            found = super().load()
            self.police(found)
        except BoundsError as error:
            raise pickle.UnpicklingError(str(error)) from error
        except KeyError as error:
            message = "it holds a value that is not plain: an unknown operation or a missing part"
            raise pickle.UnpicklingError(message) from error
        except (IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
            message = f"it is not a pickle: {error}"
            raise pickle.UnpicklingError(message) from error
        return found

    def police(self, value: Any) -> None:
        """Raise BoundsError where the value is beyond the bounds of plain ones."""
        police(value, depth=MOST_DEPTH, bits=MOST_BITS)

    def find_class(self, module: str, name: str) -> Any:
        """Refuse every class."""
        message = f"it names {module}.{name}"
        raise pickle.UnpicklingError(message)


class _Counted(dict[int, Callable[[Any], None]]):
    """Operations by their codes, of which so many are looked up."""

    def __init__(self, known: Mapping[int, Callable[[Any], None]]) -> None:
        super().__init__(known)
        self._left = MOST_OPERATIONS

    def __getitem__(self, code: int) -> Callable[[Any], None]:
        self._left -= 1
        if self._left < 0:
            message = f"it has more than {MOST_OPERATIONS} operations"
            raise pickle.UnpicklingError(message)
        return super().__getitem__(code)


def _check_keys(code: bytes) -> Callable[[Any], None]:
    """Return the operation of a code that fills a mapping, once its keys are known to be plain."""
    fill = pickle._Unpickler.dispatch[code[0]]

    def check(reader: Any) -> None:
        stack = reader.stack
        keys = stack[-2:-1] if code == pickle.SETITEM else stack[::2]
        if not all(isinstance(key, _KEYS) for key in keys):
            message = "a key of a mapping is not a text or a number"
            raise pickle.UnpicklingError(message)
        fill(reader)

    return check


#: the operations that fill a mapping
FILLING = (pickle.DICT, pickle.SETITEM, pickle.SETITEMS)
PlainUnpickler.dispatch |= {code[0]: _check_keys(code) for code in FILLING}


#: what torch's own exchanges between ranks name: nothing of it does more than hold values
EXACT = frozenset({("torch", name) for name in (*DTYPES, "Size")})


class ExactUnpickler(PlainUnpickler):
    """Reads what torch itself sends from rank to rank: plain values, dtypes and shapes.

    It knows a few names and no other, so that nothing else can be called: not even those that stand
    in the same module. `DTensor.from_local(run_check=True)` gathers shapes and dtypes.
    """

    known: ClassVar[frozenset[tuple[str, str]]] = EXACT
    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        **PlainUnpickler.dispatch,
        **{
            code[0]: pickle._Unpickler.dispatch[code[0]]
            for code in (pickle.REDUCE, pickle.NEWOBJ, *FILLING)
        },
    }

    def police(self, value: Any) -> None:
        """Let it pass: torch made it, and keys of its plans are values of its classes."""

    def find_class(self, module: str, name: str) -> Any:
        """Return what a name of the list means; refuse every other."""
        if (module, name) in self.known and module in sys.modules:
            return getattr(sys.modules[module], name)
        return super().find_class(module, name)


#: what the ranks of a distributed checkpoint name in their plans: holders of values, and words.
#: `_get_layout` is a table of torch's layouts, by their names
CHECKPOINT = (
    EXACT
    | {
        (f"torch.distributed.checkpoint.{module}", name)
        for module, names in {
            "filesystem": ("_StorageInfo", "_StoragePrefix"),
            "metadata": (
                *("BytesStorageMetadata", "ChunkStorageMetadata", "Metadata", "MetadataIndex"),
                *(
                    "StorageMeta",
                    "TensorProperties",
                    "TensorStorageMetadata",
                    "_MEM_FORMAT_ENCODING",
                ),
            ),
            "planner": (
                *("SavePlan", "TensorWriteData", "WriteItem", "WriteItemType"),
                *("LoadPlan", "ReadItem", "LoadItemType"),
            ),
            "storage": ("WriteResult",),
        }.items()
        for name in names
    }
    | {
        ("torch.serialization", "_get_layout"),
        ("pathlib", "PosixPath"),
        ("pathlib._local", "PosixPath"),  # as Python 3.13 names it
        # what went wrong on one rank, with its traceback, which the others raise
        *(("builtins", name) for name in ("FileNotFoundError", "KeyError", "RuntimeError")),
        *(("builtins", name) for name in ("AssertionError", "TypeError", "ValueError")),
        ("torch.distributed.checkpoint.api", "CheckpointException"),
        *(("traceback", name) for name in ("FrameSummary", "StackSummary")),
    }
)


class CheckpointUnpickler(ExactUnpickler):
    """Reads the plans of a distributed checkpoint that torch's own ranks send each other.

    Their classes are a list of names (`CHECKPOINT`). A name that leads to one of them by way of
    another module, or through a dot, is refused as any other.
    """

    known = CHECKPOINT
    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        **ExactUnpickler.dispatch,
        pickle.BUILD[0]: pickle._Unpickler.dispatch[pickle.BUILD[0]],
    }

    def find_class(self, module: str, name: str) -> Any:
        """Return what a name of the list means, or :func:`member` for `getattr`."""
        if (module, name) == ("builtins", "getattr"):
            return member
        return super().find_class(module, name)


def member(kind: Any, name: Any) -> Any:
    """Return a member of an enumeration, by its name; raises UnpicklingError for anything else.

    The first releases of Python 3.11 pickle a member as a call of `getattr` on its class.
    """
    if isinstance(kind, EnumType) and isinstance(name, str) and name in kind.__members__:
        return kind.__members__[name]
    message = "it names an attribute which an enumeration does not have as a member"
    raise pickle.UnpicklingError(message)


#: what Python's own unpickler raises for bytes that are no pickle, beside UnpicklingError
DAMAGED = (
    struct.error,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    OverflowError,
    RecursionError,
    TypeError,
    ValueError,
)


def plain(content: bytes) -> Any:
    """Return the plain value that a pickle holds; raises UnpicklingError for anything else."""
    try:
        return PlainUnpickler(io.BytesIO(content)).load()
    except DAMAGED as error:
        message = f"it is damaged: {error}"
        raise pickle.UnpicklingError(message) from None
