"""What may be written at a place: keys and values, each with a line that explains it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch_scenarios.editor.names import TextNames
from torch_scenarios.editor.place import CursorPlace
from torch_scenarios.expressions.params import Param
from torch_scenarios.expressions.signatures import FUNCTION_NAMES
from torch_scenarios.language.keys import (
    ACTIONS,
    BESIDE,
    FINAL_EXPECT,
    GROUP,
    LONG_FORM,
    STEP_EXPECT,
    TOP,
)
from torch_scenarios.model.needs import CAPABILITIES
from torch_scenarios.model.traits import KNOWN_BACKENDS
from torch_scenarios.operations import BY_NAME
from torch_scenarios.vocabulary import DIAGNOSES, DTYPES, OUTCOMES, RAISE_KINDS, REDUCE_OPS

#: key -> the fixed words that are its value
_WORDS: dict[str, Iterable[str]] = {
    "dtype": DTYPES,
    "op": (*REDUCE_OPS, "premul_sum"),
    "outcome": OUTCOMES,
    "diagnosis": tuple(DIAGNOSES),
    "raises": (*RAISE_KINDS, "none"),
    "backends": sorted(KNOWN_BACKENDS),
    "backend": sorted(KNOWN_BACKENDS),
    "needs": tuple(CAPABILITIES),
    "debug": ("off", "info", "detail"),
    "fault": ("kill", "exit"),
}
#: key -> the sorts of names that are its value
_NAMED = {
    "group": ("group",),
    "wait": ("handle",),
    "handle": ("handle",),
    "func": ("function",),
    "model": ("model",),
}
_READ = ("tensor", "object", "parameter", "matrix key", "number", "group")


def offers(place: CursorPlace, names: TextNames) -> dict[str, str]:
    """Return what may be written at a place, each with what it means.

    steps:
      - all_|           all_gather, all_reduce, all_to_all, each with the first line of its page
      - all_reduce: {|  tensor, op, group, async_op: its parameters
      - all_reduce: {op: |  sum, avg, min, max: the words of the parameter
    """
    found = _values(place, names) if place.in_value else _keys(place, names)
    return {word: about for word, about in found.items() if word.startswith(place.prefix)}


def _descriptions(parts: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(part.get("description", "")) for name, part in parts.items()}


def _keys(place: CursorPlace, names: TextNames) -> dict[str, str]:
    """Return the keys that a mapping at this place may have; none where the language fixes none."""
    path = place.path
    operation = BY_NAME.get(place.key)
    if operation is not None:
        return {param.name: param.description for param in operation.params}
    match path:
        case ():
            return _descriptions(TOP)
        case ("expect",):
            return _descriptions(FINAL_EXPECT) | _list_tensors(names)
        case ("groups", _):
            return _descriptions(GROUP)
        case ("tensors", _):
            return _descriptions(LONG_FORM)
        case (*_, "steps"):
            calls = {name: _line(each.__doc__) for name, each in BY_NAME.items()}
            return calls | _descriptions(ACTIONS) | _descriptions(BESIDE)
        case (*_, "expect"):
            return _list_tensors(names) | _descriptions(STEP_EXPECT)
    return {}


def _line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]


def _list_tensors(names: TextNames) -> dict[str, str]:
    return {
        name: f"the {names.places[name].sort} `{name}`" for name in names.of("tensor", "object")
    }


def _values(place: CursorPlace, names: TextNames) -> dict[str, str]:
    """Return what may follow a key: its words where it has some, else the names of the right sort.

    Anything else may be an expression: then it is every name of the text, `rank`, `world_size`, and
    the functions.
    """
    key = place.key
    param = _param(place)
    if key in _WORDS:
        about = DIAGNOSES if key == "diagnosis" else {}
        return {word: about.get(word, "") for word in _WORDS[key] if word is not None}
    if param is not None and param.kind == "flag":
        return {"true": "", "false": ""}
    if key in _NAMED:
        world = {"world": "every rank"} if key == "group" else {}
        return world | {name: names.places[name].sort for name in names.of(*_NAMED[key])}
    read = {name: names.places[name].sort for name in names.of(*_READ)}
    return {
        **read,
        "rank": "the rank that computes this",
        "world_size": "the number of ranks",
        "world": "every rank",
        **dict.fromkeys(sorted(FUNCTION_NAMES), "a function"),
    }


def _param(place: CursorPlace) -> Param | None:
    operation = BY_NAME.get(place.path[-2]) if len(place.path) > 1 else None
    params = () if operation is None else operation.params
    return next((each for each in params if each.name == place.key), None)
