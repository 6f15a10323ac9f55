"""A value in a few words: a number, a short string, a size, a shape, what options hold.

What a script decides by, gives to calls and sets is written down in the process that runs it, so
nothing is kept and nothing of the script's own is called::

    3   'adam'   [0, 2]   14 items   shape [8, 16]   **  lr: 0.1  optimizer: 'adam'

This imports the standard library alone.
"""

from __future__ import annotations

import ctypes
import enum
import re
from collections import Counter, OrderedDict, defaultdict
from types import BuiltinFunctionType, FunctionType
from typing import Any

#: characters of a value that is read; items of a list of numbers, such as ranks, that is written
MOST_CHARACTERS, MOST_ITEMS = 60, 8
#: characters of a value that is given; items of its list; keys of a dict, and how deep they lie
MOST_WORDS, MOST_LISTED, MOST_KEYS, MOST_DEPTH = 100, 8, 200, 3
#: what stands before the keys of what holds others by name
HOLDS = "**"

_SIMPLE = (bool, int, float, str, type(None))
_SIZED = (list, tuple, dict, set, frozenset)
#: dicts, and what Python's own `collections` make of them: their items are read, no code is run
DICTS = (dict, defaultdict, OrderedDict, Counter)
#: what has a name
_NAMED = (type, FunctionType, BuiltinFunctionType)
#: classes whose objects hold options
_OPTIONS = re.compile(r"(?:Config|Configuration|Args|Arguments|Options|Params|Settings|Namespace)$")


def _is_whole(value: Any) -> bool:
    return value.__class__ in {bool, int}


def shorten_value(value: Any) -> Any:
    """Return a value as it may be written: a number, a short string, a size; else None."""
    kind = value.__class__
    if kind in _SIMPLE:
        return repr(value)[:MOST_CHARACTERS]
    if kind in {list, tuple} and len(value) <= MOST_ITEMS and all(map(_is_whole, value)):
        return repr(value)[:MOST_CHARACTERS]
    if kind in _SIZED:
        return count_items(value)
    if kind.__name__ in {"Tensor", "Parameter"}:
        return read_number(value) or f"shape {list(value.shape)}"[:MOST_CHARACTERS]
    return None


#: dtype of a tensor -> what lies at its address
_NUMBERS: dict[str, Any] = {
    "torch.float32": ctypes.c_float,
    "torch.float64": ctypes.c_double,
    "torch.int32": ctypes.c_int32,
    "torch.int64": ctypes.c_int64,
    "torch.bool": ctypes.c_bool,
}


def read_number(tensor: Any) -> str:
    """Return the value of a tensor that is one number of the CPU; nothing of another one.

    It is read where it lies: no function of torch is called, which a mode might see.
    """
    try:
        kind = _NUMBERS.get(str(tensor.dtype))
        if kind is None or len(tensor.shape) or tensor.device.type != "cpu":
            return ""
        address = tensor.data_ptr()
        return repr(kind.from_address(address).value)[:MOST_CHARACTERS] if address else ""
    except Exception:  # a wrapper without memory, of whatever kind
        return ""


def describe_given(value: Any) -> tuple[str, ...] | None:
    """Return what a call is given as text; of what holds others by name, `**` and each `key: text`.

    None for what is neither.
    """
    if (words := describe_one(value)) is not None:
        return (words,)
    held = _items_of(value)
    found: dict[str, str] = {}
    if held is not None:
        _flatten("", held, MOST_DEPTH, found)
    return (HOLDS, *(f"{key}: {words}" for key, words in found.items())) if found else None


def describe_one(value: Any) -> str | None:
    """Return a value that holds no others by name."""
    kind = value.__class__
    if kind in _SIMPLE:
        return repr(value)[:MOST_WORDS]
    if kind in {list, tuple}:
        return _describe_list(value)
    if kind in {set, frozenset}:
        return count_items(value)
    if isinstance(value, enum.Enum):
        return f"{kind.__name__}.{value._name_}"
    if kind in _NAMED or isinstance(value, type):
        return str(value.__name__)[:MOST_WORDS]
    if kind.__name__ in {"Tensor", "Parameter"}:
        return f"a tensor {list(value.shape)}"[:MOST_WORDS]
    return str(value) if kind.__name__ == "dtype" and kind.__module__ == "torch" else None


def _describe_list(value: list[Any] | tuple[Any, ...]) -> str:
    """Return a short list of simple values itself; of another one how long it is, and of what."""
    if len(value) <= MOST_LISTED and all(each.__class__ in _SIMPLE for each in value):
        return repr(value)[:MOST_WORDS]
    kinds = [each.__class__.__name__ for each in value[:MOST_LISTED]]
    more = ", ..." if len(value) > MOST_LISTED else ""
    names = ", ".join(kinds if len({*kinds}) > 1 else kinds[:1])
    return f"{count_items(value)} ({names}{more})"[:MOST_WORDS]


def count_items(value: Any) -> str:
    """Return how many items a value has: `3 items`."""
    return f"{len(value)} item{'s' * (len(value) != 1)}"


def _items_of(value: Any) -> dict[Any, Any] | None:
    """Return what a dict holds, or an object that is there for its options."""
    kind = value.__class__
    if kind in DICTS:
        return value  # type: ignore[no-any-return]
    is_of_options = "__dataclass_fields__" in kind.__dict__ or _OPTIONS.search(kind.__name__)
    if not is_of_options or isinstance(value, type):
        return None
    try:
        held = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return held if held.__class__ is dict else None


def _flatten(before: str, held: dict[Any, Any], depth: int, found: dict[str, str]) -> None:
    """Add what a dict holds, that of a dict inside of it behind its key and a point."""
    for key, value in list(held.items()):
        if len(found) >= MOST_KEYS or not isinstance(key, str | int) or str(key)[:1] == "_":
            continue
        name = f"{before}{key}"
        words = describe_one(value)
        if words is not None:
            found[name] = words
        elif depth > 1 and (inner := _items_of(value)) is not None:
            _flatten(f"{name}.", inner, depth - 1, found)
        else:
            found[name] = str(value.__class__.__name__)[:MOST_WORDS]
