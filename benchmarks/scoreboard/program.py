"""A program of the scoreboard: its YAML, and what is right or wrong with it by construction.

A `Draft` becomes YAML step by step; `twins` makes a wrong program and its right twin of one draft.
"""

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
        """All ranks that take a step on the group."""
        return self.takers or self.members

    @property
    def ends(self) -> tuple[int, int]:
        """The first and the last member."""
        return self.members[0], self.members[-1]

    def member(self, at: int) -> int:
        """Return the rank of a member, counted round and round."""
        return self.members[at % self.size]

    @property
    def on_group(self) -> dict[str, str]:
        """The argument that names the group; none for the world."""
        return {"group": self.group} if self.group else {}

    @property
    def size(self) -> int:
        """The number of members."""
        return len(self.members)

    def others(self, odd: int) -> list[int]:
        """Return all ranks that take a step on the group, except one."""
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

#: how a message is sent or received: blocking, started and waited for, or in a batch
SENDS = ("send", "isend", "batch")
RECEIVES = ("recv", "irecv", "batch")


class Side(Protocol):
    """Adds the steps of a rank that sends a message, or of one that receives it."""

    def __call__(
        self,
        name: str,
        how: str,
        rank: int,
        peer: int,
        tensor: str = "letter",
        /,
        *,
        tag: int = 0,
        wait: bool = True,
    ) -> None:
        """Let `rank` do its part as `how` says."""


class Draft:
    """A program that is being written: YAML as plain data.

    `number` chooses what comes before the fault, so that it is not always the first step.
    """

    def __init__(self, place: Place, number: int) -> None:
        """Begin with a place's world and groups."""
        self.place = place
        self.groups: dict[str, Any] = dict(place.groups)
        self.tensors: dict[str, Any] = {}
        self.objects: dict[str, Any] = {}
        self.steps: list[dict[str, Any]] = []
        if number % 3 == 1:
            self.step("before", barrier={})
        if number % 3 == 2:
            self.tensor("warm", value="full(2, rank)")
            self.step("before", all_reduce={"tensor": "warm"})

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

    def tensor(self, *names: str, value: Any = "full(3, rank)") -> None:
        """Let every rank hold `value` under each name."""
        self.tensors |= dict.fromkeys(names, value)

    def send(
        self,
        name: str,
        how: str,
        source: int,
        target: int,
        tensor: str = "letter",
        *,
        tag: int = 0,
        wait: bool = True,
    ) -> None:
        """Add the source's steps of a message; `how` is one of SENDS.

        Without `wait` the handle is `name` with underscores.
        """
        self._message(name, how, source, {"dst": target}, tensor, tag, wait=wait)

    def receive(
        self,
        name: str,
        how: str,
        target: int,
        source: int | None,
        tensor: str = "letter",
        *,
        tag: int = 0,
        wait: bool = True,
    ) -> None:
        """Add the target's steps of a message, one of RECEIVES; `source` None: from anyone."""
        peer = {} if source is None else {"src": source}
        self._message(name, how, target, peer, tensor, tag, wait=wait)

    def sides(self, *, sends: bool) -> tuple[Side, Side]:
        """Return what adds a rank's side of a message, which it sends or not, and its peer's."""
        return (self.send, self.receive) if sends else (self.receive, self.send)

    def _message(
        self,
        name: str,
        how: str,
        rank: int,
        peer: Mapping[str, int],
        tensor: str,
        tag: int,
        *,
        wait: bool,
    ) -> None:
        where = self.place.on_group | ({"tag": tag} if tag else {})
        action: Any = {"tensor": tensor, **peer, **where}
        if how == "batch":
            ((role, other),) = peer.items()
            word = "isend" if role == "dst" else "irecv"
            action = [{"op": word, "tensor": tensor, "peer": other, **where}]
            how = "batch_isend_irecv"
        handle = None if how in {"send", "recv"} else name.replace(" ", "_")
        self.step(name, ranks=rank, handle=handle, **{how: action})
        if handle and wait:
            self.step(f"{name}, waited", ranks=rank, wait=handle)

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


class Writer(Protocol):
    """Writes either side of a twin into a draft."""

    def __call__(self, draft: Draft, *, wrong: bool) -> None:
        """Write the wrong program, or the right one."""


def written(write: Writer, place: Place, number: int, *, wrong: bool) -> Mapping[str, Any]:
    """Return one side of a twin as a document."""
    draft = Draft(place, number)
    write(draft, wrong=wrong)
    return draft.document()


def twins(  # noqa: PLR0913 -- what is known of a program
    write: Writer,
    place: Place,
    number: int,
    *,
    name: str,
    family: str,
    expected: tuple[str, ...],
    first: str,
    outcomes: frozenset[str],
    allowed: tuple[str, ...] = (),
) -> Iterator[Program]:
    """Yield the wrong program that `write` writes, and its correct twin."""
    yield Program(
        name=name,
        family=family,
        document=written(write, place, number, wrong=True),
        expected=expected,
        allowed=allowed,
        first=first,
        outcomes=outcomes,
    )
    right = written(write, place, number, wrong=False)
    yield Program(name=f"{name}, right", family=family, document=right)
