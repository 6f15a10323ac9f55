"""What `@immutable` makes, held against what `dataclasses.dataclass(frozen=True)` makes."""

from __future__ import annotations

import copy
import inspect
import pickle
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any, Generic, TypeVar

import pytest

from runner.dataclass import immutable

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Theirs:
    """As the standard library makes it."""

    name: str
    size: int = 1
    held: list[int] = field(default_factory=list)
    place: str | None = field(default=None, compare=False, repr=False)
    counted: int = field(default=0, hash=False)


@immutable
class Ours:
    """The same fields."""

    name: str
    size: int = 1
    held: list[int] = field(default_factory=list)
    place: str | None = field(default=None, compare=False, repr=False)
    counted: int = field(default=0, hash=False)


@immutable(kw_only=False)
class Pair(Generic[T]):
    """Two values, given by position, and one that follows from them."""

    first: T
    second: T = field(kw_only=True)
    both: tuple[T, T] = field(init=False)

    def __post_init__(self) -> None:
        """Set what follows."""
        object.__setattr__(self, "both", (self.first, self.second))


@immutable
class Longer(Ours):
    """A class with one field more."""

    more: int = 2


@immutable(eq=False)
class Only:
    """Equal to itself alone."""

    number: int


@immutable
class Told:
    """A class that says itself how it is shown, compared and hashed."""

    number: int
    inside: object = None

    def __repr__(self) -> str:
        """Say no field."""
        return "told"

    def __eq__(self, other: object) -> bool:
        """Compare what is left of a division."""
        return isinstance(other, Told) and self.number % 2 == other.number % 2

    def __hash__(self) -> int:
        """Follow the comparison."""
        return self.number % 2


@pytest.mark.parametrize(
    "arguments",
    [
        {"name": "a"},
        {"name": "a", "size": 3},
        {"name": "a", "place": "here"},
        {"name": "b", "counted": 4},
        {"name": "a", "held": (1, 2)},
    ],
)
def test_it_does_as_the_standard_library_does(arguments: dict[str, Any]) -> None:
    theirs, ours = Theirs(**arguments), Ours(**arguments)
    assert asdict(ours) == asdict(theirs)
    assert repr(ours) == repr(theirs).replace("Theirs", "Ours")
    assert [each.name for each in fields(ours)] == [each.name for each in fields(theirs)]
    assert replace(ours, size=7).size == 7
    for other in ({"name": "a"}, {"name": "a", "place": "there"}, {"name": "b", "counted": 5}):
        assert (ours == Ours(**other)) is (theirs == Theirs(**other))
    if "held" in arguments:
        assert hash(ours) == hash(theirs)


def test_fields_that_are_not_hashed_do_not_count() -> None:
    assert hash(Told(number=3)) == hash(Told(number=5))
    assert hash(Longer(name="a", held=(), counted=1)) == hash(  # type: ignore[arg-type]
        Longer(name="a", held=(), counted=2)  # type: ignore[arg-type]
    )


def test_a_missing_and_an_unknown_argument_are_errors() -> None:
    with pytest.raises(TypeError, match="name"):
        Ours()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="nome"):
        Ours(name="a", nome="b")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="positional"):
        Ours("a")  # type: ignore[call-arg]


def test_it_has_slots_and_no_other_attribute() -> None:
    ours = Ours(name="a")
    assert is_dataclass(Ours)
    assert not hasattr(ours, "__dict__")
    with pytest.raises(AttributeError):
        ours.other = 1  # type: ignore[attr-defined]


def test_each_instance_has_a_default_of_its_own() -> None:
    assert Ours(name="a").held is not Ours(name="b").held


def test_what_follows_from_fields_is_set_after_them() -> None:
    pair = Pair(1, second=2)
    assert pair.both == (1, 2)
    assert replace(pair, first=5).both == (5, 2)


def test_a_class_inherits_fields_and_compares_with_its_own_kind() -> None:
    longer = Longer(name="a", more=3)
    assert (longer.name, longer.size, longer.more) == ("a", 1, 3)
    assert longer != Ours(name="a")
    assert longer == Longer(name="a", more=3) != Longer(name="a")


def test_what_a_class_defines_itself_stays() -> None:
    assert Told(number=1) == Told(number=3) != Told(number=2)
    assert repr(Told(number=1)) == "told"
    assert Only(number=1) != Only(number=1)
    assert len({Only(number=1), Only(number=1)}) == 2


def test_it_is_copied_and_pickled() -> None:
    longer = Longer(name="a", held=[1], more=3)
    unpickled = pickle.loads(pickle.dumps(longer))  # noqa: S301 -- our own
    for again in (copy.copy(longer), copy.deepcopy(longer), unpickled):
        assert again == longer
        assert again is not longer


def test_a_field_that_holds_itself_is_shown_once() -> None:
    held: list[Any] = []
    ours = Ours(name="a", held=held)
    held.append(ours)
    assert "held=[...]" in repr(ours)


def test_its_methods_are_written_once_they_are_called() -> None:
    @immutable
    class Late:
        """A class that has made nothing yet."""

        number: int

    assert "number" not in inspect.signature(Late.__init__).parameters
    assert Late(number=1).number == 1
    assert "number" in inspect.signature(Late.__init__).parameters
