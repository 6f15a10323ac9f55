"""Dataclasses that nothing changes: `@immutable`, which is cheap to declare and to make.

`dataclasses.dataclass(frozen=True)` writes and compiles six methods when its class is declared, a
half of what importing this package took, and sets each field of an instance through
`object.__setattr__`, at four times the cost of an assignment: a sixth of an analysis. Here the type
checker alone holds that nothing is assigned to, and a method is written when it is first called.
All else is as there: `fields`, `replace`, `asdict`, `field(...)`, `__post_init__`, equality by the
fields that compare, a hash, a repr, pickling.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field, fields
from reprlib import recursive_repr
from typing import Any, TypeVar, dataclass_transform, overload

C = TypeVar("C")


@overload
def immutable(cls: type[C], /) -> type[C]: ...


@overload
def immutable(*, kw_only: bool = True, eq: bool = True) -> Callable[[type[C]], type[C]]: ...


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def immutable(
    cls: type[Any] | None = None, /, *, kw_only: bool = True, eq: bool = True
) -> type[Any] | Callable[[type[Any]], type[Any]]:
    """Make a slotted dataclass of a class, whose fields are not assigned to once it is made.

    Its arguments are keywords unless `kw_only` is false; without `eq` it is equal to itself alone.
    """

    def decorated(declared: type[Any]) -> type[Any]:
        own = declared.__dict__
        by_fields = eq and "__eq__" not in own
        hashed = eq and own.get("__hash__") is None
        shown = "__repr__" not in own
        made = dataclass(init=False, repr=False, eq=False, slots=True, kw_only=kw_only)(declared)
        _written_later(made, "__init__", _init)
        if by_fields:
            _written_later(made, "__eq__", _eq)
        if hashed:
            _written_later(made, "__hash__", _hash)
        if shown:
            made.__repr__ = _repr  # type: ignore[assignment]  # mypy binds it
        return made

    return decorated if cls is None else decorated(cls)


def _written_later(cls: type[Any], name: str, write: Callable[[type[Any]], str]) -> None:
    """Give a class a method whose source `write` returns; it is compiled at its first call."""

    def first(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        names: dict[str, Any] = {"_MISSING": MISSING}
        for each in fields(cls):
            names[f"_default_{each.name}"] = each.default
            names[f"_factory_{each.name}"] = each.default_factory
        exec(write(cls), names)  # noqa: S102 -- the source is made of the class's own field names
        method = names[name]
        method.__qualname__ = f"{cls.__qualname__}.{name}"
        method.__module__ = cls.__module__
        setattr(cls, name, method)
        return method(self, *args, **kwargs)

    first.__qualname__ = f"{cls.__qualname__}.{name}"
    setattr(cls, name, first)


def _init(cls: type[Any]) -> str:
    given = [each for each in fields(cls) if each.init]
    ordered = [_parameter(each) for each in given if not each.kw_only]
    named = [_parameter(each) for each in given if each.kw_only]
    parameters = ["self", *ordered, *(["*"] if named else []), *named]
    lines = [_assignment(each) for each in fields(cls)]
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    body = "\n ".join(line for line in lines if line) or "pass"
    return f"def __init__({', '.join(parameters)}):\n {body}"


def _parameter(each: Field[Any]) -> str:
    if each.default is not MISSING:
        return f"{each.name}=_default_{each.name}"
    return each.name if each.default_factory is MISSING else f"{each.name}=_MISSING"


def _assignment(each: Field[Any]) -> str:
    name = each.name
    made = each.default_factory is not MISSING
    if not each.init:
        default = "" if each.default is MISSING else f"_default_{name}"
        value = f"_factory_{name}()" if made else default
        return value and f"self.{name} = {value}"
    return (
        f"self.{name} = _factory_{name}() if {name} is _MISSING else {name}"
        if made
        else f"self.{name} = {name}"
    )


def _eq(cls: type[Any]) -> str:
    compared = [each.name for each in fields(cls) if each.compare]
    return (
        "def __eq__(self, other):\n"
        " if other.__class__ is not self.__class__:\n"
        "  return NotImplemented\n"
        f" return {_tuple('self', compared)} == {_tuple('other', compared)}"
    )


def _hash(cls: type[Any]) -> str:
    hashed = [
        each.name for each in fields(cls) if (each.compare if each.hash is None else each.hash)
    ]
    return f"def __hash__(self):\n return hash({_tuple('self', hashed)})"


def _tuple(of: str, names: list[str]) -> str:
    return f"({''.join(f'{of}.{name},' for name in names)})"


@recursive_repr("...")
def _repr(self: Any) -> str:
    shown = ", ".join(
        f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr
    )
    return f"{self.__class__.__qualname__}({shown})"
