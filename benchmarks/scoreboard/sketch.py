"""A program of the scoreboard: its YAML, and what is right or wrong with it by construction."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import yaml

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

#: the classes: those of the MPI Bugs Initiative (Laurent, Saillard, Quinson, 2021), and two more
CLASSES = (
    "call matching",
    "communicator",
    "datatype",
    "shape",
    "root",
    "operator",
    "tag",
    "buffering hazard",
    "input hazard",
    "local concurrency",
    "missing wait",
    "message race",
    "invalid argument",
    "undefined value",
)
CORRECT = "correct"

COMPLETES = frozenset({"completes"})
DEADLOCK = frozenset({"deadlock"})
ERROR = frozenset({"error"})
#: arguments that disagree: the semantics define nothing
ANYTHING = frozenset({"completes", "deadlock", "error", "crash"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One program with its verdict.

    `expected` are the diagnoses that it has, all of them names for its one fault; none: it is
    correct. `allowed` may be named as well, for what follows from the fault. `first` is the name of
    the first divergent step, `outcomes` what the semantics let it come to. A correct program is the
    near twin of the wrong one whose `family` and beginning of the name it shares.
    """

    name: str
    family: str
    document: Mapping[str, Any]
    expected: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    first: str | None = None
    outcomes: frozenset[str] = COMPLETES

    @property
    def text(self) -> str:
        """The program as YAML."""
        return str(yaml.dump(self.document, Dumper=_Dumper, sort_keys=False, width=100))

    @property
    def correct(self) -> bool:
        """Whether nothing is wrong with it."""
        return not self.expected

    @property
    def label(self) -> str:
        """The row of the table that it counts for."""
        return CORRECT if self.correct else self.family


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a faulty operation happens: a group of a world, `members` those that it concerns."""

    name: str
    world_size: int
    members: tuple[int, ...]
    group: str | None = None
    groups: Mapping[str, Any] = field(default_factory=dict)
    #: the ranks that take a step of the group, where other parts of a partition take it as well
    takers: tuple[int, ...] = ()

    @property
    def ranks(self) -> tuple[int, ...]:
        """Everybody who takes a step on the group."""
        return self.takers or self.members

    @property
    def size(self) -> int:
        """The number of members."""
        return len(self.members)

    def others(self, odd: int) -> list[int]:
        """Everybody who takes a step on the group, except one rank."""
        return [rank for rank in self.ranks if rank != odd]

    def root(self, role: str, at: int) -> dict[str, int]:
        """Return the argument that makes member `at` the root (`src` or `dst`)."""
        if self.takers:
            return {f"group_{role}": at}
        return {role: self.members[at]}

    def roots(self, at: int) -> tuple[int, ...]:
        """Return the world ranks that are then roots: one for each part of a partition."""
        return tuple(self.ranks[at :: self.size])


TWO = Place(name="world of 2", world_size=2, members=(0, 1))
THREE = Place(name="world of 3", world_size=3, members=(0, 1, 2))
FOUR = Place(name="world of 4", world_size=4, members=(0, 1, 2, 3))
PART = Place(
    name="[1, 2] of 3", world_size=3, members=(1, 2), group="part", groups={"part": [1, 2]}
)
SPARSE = Place(
    name="[0, 2, 3] of 4",
    world_size=4,
    members=(0, 2, 3),
    group="part",
    groups={"part": [0, 2, 3]},
)
PAIRS = Place(
    name="pairs of 4",
    world_size=4,
    members=(2, 3),
    group="pair",
    groups={"pair": {"partition": [[0, 1], [2, 3]]}},
    takers=(0, 1, 2, 3),
)
PLACES = (TWO, THREE, FOUR, PART, SPARSE, PAIRS)


class Sketch:
    """A program in the making: YAML as plain data."""

    def __init__(self, place: Place) -> None:
        """Begin with a place's world and groups."""
        self.place = place
        self.groups: dict[str, Any] = dict(place.groups)
        self.tensors: dict[str, Any] = {}
        self.objects: dict[str, Any] = {}
        self.steps: list[dict[str, Any]] = []

    def step(
        self,
        name: str,
        *,
        ranks: Collection[int] | int | None = None,
        handle: str | None = None,
        **action: Any,
    ) -> None:
        """Add a step. `ranks` None: every member of its group."""
        step: dict[str, Any] = {"name": name}
        if ranks is not None:
            step["ranks"] = ranks if isinstance(ranks, int) else list(ranks)
        step.update(action)
        if handle is not None:
            step["as"] = handle
        self.steps.append(step)

    def tensor(self, name: str, value: Any) -> str:
        """Let every rank hold `value`; return the name."""
        self.tensors[name] = value
        return name

    def prelude(self, variant: int) -> None:
        """Put something right before the fault, so that it is not always the first step."""
        if variant % 3 == 1:
            self.step("before", barrier={})
        if variant % 3 == 2:
            self.tensor("warm", "full(2, rank)")
            self.step("before", all_reduce={"tensor": "warm"})

    def document(self) -> dict[str, Any]:
        """Return the whole file, as plain data."""
        document: dict[str, Any] = {"world_size": self.place.world_size}
        for key in ("groups", "tensors", "objects", "steps"):
            if value := getattr(self, key):
                document[key] = value
        return document


#: PyYAML's emitter: in C where it was built in, which is ten times as fast
_FASTEST: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


# which of the two it derives from is known only when it runs
class _Dumper(_FASTEST):  # type: ignore[misc]
    """Writes the same list twice rather than once with an anchor."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


class Builder(Protocol):
    """Makes either side of a twin."""

    def __call__(self, *, wrong: bool) -> Sketch:
        """Return the wrong program, or the right one."""


def twins(
    build: Builder,
    *,
    name: str,
    family: str,
    expected: tuple[str, ...],
    first: str,
    outcomes: frozenset[str],
    allowed: tuple[str, ...] = (),
) -> Iterator[Program]:
    """Yield the wrong program that `build` makes, and its correct twin."""
    yield Program(
        name=name,
        family=family,
        document=build(wrong=True).document(),
        expected=expected,
        allowed=allowed,
        first=first,
        outcomes=outcomes,
    )
    yield Program(name=f"{name}, right", family=family, document=build(wrong=False).document())
