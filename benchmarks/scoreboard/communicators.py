"""Communicator matching: the wrong group, two groups in crossed order, groups made differently."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

from benchmarks.scoreboard.calling import call
from benchmarks.scoreboard.kinds import KINDS, Kind
from benchmarks.scoreboard.sketch import (
    ANYTHING,
    COMPLETES,
    DEADLOCK,
    Place,
    Program,
    Sketch,
    twins,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

FAMILY = "communicator"

#: two groups: the first is that of the place, `other` the second; `odd` is in both, and not a root
SAME_TWO = Place(
    name="two groups of the same 2",
    world_size=2,
    members=(0, 1),
    group="one",
    groups={"one": [0, 1], "other": [0, 1]},
)
SAME_THREE = Place(
    name="two groups of the same 3",
    world_size=4,
    members=(0, 2, 3),
    group="one",
    groups={"one": [0, 2, 3], "other": [0, 2, 3]},
)
SMALLER = Place(
    name="group of 3 beside one of 2",
    world_size=3,
    members=(0, 1, 2),
    group="one",
    groups={"one": [0, 1, 2], "other": [0, 1]},
)
DOUBLES = (SAME_TWO, SAME_THREE, SMALLER)

Step = tuple[str, list[int], dict[str, Any]]


def _other(place: Place) -> Place:
    members = tuple(place.groups["other"])
    return Place(name="other", world_size=place.world_size, members=members, group="other")


def programs() -> Iterator[Program]:
    """Yield the class."""
    for number, (kind, place) in enumerate(product(KINDS, (SAME_TWO, SAME_THREE))):
        for at in (0, place.size - 1):
            yield from _wrong_group(number, place, kind, at, later=False)
            if not kind.objects:
                yield from _wrong_group(number, place, kind, at, later=True)
    meeting = [kind for kind in KINDS if kind.role == "all"]
    for number, (one, two) in enumerate(product(meeting, meeting)):
        yield from _crossed(number, DOUBLES[number % len(DOUBLES)], one, two)
    for world_size in (3, 4):
        yield from _created(world_size)


def _wrong_group(
    number: int, place: Place, kind: Kind, at: int, *, later: bool
) -> Iterator[Program]:
    """One member calls on another group of the same ranks.

    Somebody is always stuck: the leaves without their source, the root without a leaf.
    """
    odd = place.members[at]
    handle = "work" if later else None

    def build(*, wrong: bool) -> Sketch:
        sketch = Sketch(place)
        sketch.prelude(number)
        if wrong:
            call(sketch, kind, "the call of most", ranks=place.others(odd), handle=handle)
            call(sketch, kind, "the call of one", ranks=[odd], group="other", handle=handle)
        else:
            call(sketch, kind, "the call", handle=handle)
            call(
                sketch, kind, "the next", number=1, group="other", handle="more" if later else None
            )
        if later:
            sketch.step("the wait", wait="work" if wrong else ["more", "work"])
        return sketch

    return twins(
        build,
        name=f"{kind.name} on the wrong one of {place.name}, by rank {odd}"
        + (", async" if later else ""),
        family=FAMILY,
        expected=("missing_participant",),
        first="the call of most",
        outcomes=DEADLOCK,
    )


def _crossed(number: int, place: Place, one: Kind, two: Kind) -> Iterator[Program]:
    """Two members enter the operations of two groups in crossed order."""
    other = _other(place)
    odd = max(set(place.members) & set(other.members))

    def build(*, wrong: bool, later: bool = False) -> Sketch:
        sketch = Sketch(place)
        sketch.prelude(number)

        def enter(name: str, ranks: list[int], *, second: bool) -> None:
            call(
                sketch,
                two if second else one,
                name,
                number=int(second),
                ranks=ranks,
                place=other if second else place,
                handle=("more" if second else "work") if later else None,
            )

        if wrong or later:
            enter("on one by most", place.others(odd), second=False)
            enter("on other by all", list(other.members), second=True)
            enter("on one by the last", [odd], second=False)
        else:
            enter("on one by all", list(place.members), second=False)
            enter("on other by all", list(other.members), second=True)
        if later:
            sketch.step("the wait", wait=["work", "more"])
        return sketch

    name = f"{one.name} and {two.name} crossed on a {place.name}"
    yield from twins(
        build,
        name=name,
        family=FAMILY,
        expected=("group_order",),
        first="on one by most",
        outcomes=DEADLOCK,
    )
    if not (one.objects or two.objects):
        document = build(wrong=False, later=True).document()
        yield Program(name=f"{name}, async, right", family=FAMILY, document=document)


# ---------------------------------------------------------------------------- creation


def _created(world_size: int) -> Iterator[Program]:
    world = list(range(world_size))
    place = Place(name=f"world of {world_size}", world_size=world_size, members=tuple(world))
    lists = [[a, b] for a in world for b in world if a < b]
    for number, members in enumerate(lists):
        rest = [rank for rank in world if rank not in members]
        for absent in world:
            inside = absent in members
            yield from _creation(
                number,
                place,
                f"rank {absent} does not create {members}",
                bad=[("create", [r for r in world if r != absent], _new("g", members))],
                good=[("create", world, _new("g", members))],
                expected="missing_participant" if inside else "group_creation",
                outcomes=DEADLOCK if inside else COMPLETES,
            )
        if len(rest) > 1:
            yield from _creation(
                number,
                place,
                f"only the members create {members}",
                bad=[("create", members, _new("g", members))],
                good=[("create", members, _new("g", members, alone=True))],
                expected="group_creation",
                outcomes=COMPLETES,
            )
        for odd in members:
            yield from _disagreements(number, place, members, odd)


def _disagreements(number: int, place: Place, members: list[int], odd: int) -> Iterator[Program]:
    world = list(place.members)
    most = [rank for rank in world if rank != odd]
    bigger = sorted({*members, *(rank for rank in world if rank not in members)})[:3]
    bigger = bigger if bigger != members else world
    yield from _creation(
        number,
        place,
        f"rank {odd} creates {bigger}, the others {members}",
        bad=[("create", most, _new("g", members)), ("by one", [odd], _new("g", bigger))],
        good=[("create", most, _new("g", members)), ("by one", [odd], _new("g", members))],
        expected="group_creation",
        outcomes=ANYTHING,
    )
    one, two = _new("g", members), _new("h", world)
    yield from _creation(
        number,
        place,
        f"rank {odd} creates {world} before {members}",
        bad=[
            ("create", most, one),
            ("create the world", world, two),
            ("by one", [odd], one),
        ],
        good=[("create", most, one), ("by one", [odd], one), ("create the world", world, two)],
        expected="group_creation",
        outcomes=ANYTHING,
    )


def _new(name: str, ranks: list[int], *, alone: bool = False) -> dict[str, Any]:
    """Return the arguments of a creation; `alone`: only its members need call it."""
    given: dict[str, Any] = {"name": name, "group_ranks": ranks}
    return given | ({"use_local_synchronization": True} if alone else {})


def _creation(
    number: int,
    place: Place,
    name: str,
    *,
    bad: list[Step],
    good: list[Step],
    expected: str,
    outcomes: frozenset[str],
) -> Iterator[Program]:
    def build(*, wrong: bool) -> Sketch:
        sketch = Sketch(place)
        sketch.prelude(number)
        sketch.tensor("x", "full(2, rank)")
        for label, ranks, arguments in bad if wrong else good:
            sketch.step(label, ranks=ranks, new_group=arguments)
        return sketch

    return twins(
        build,
        name=f"{name} in a {place.name}",
        family=FAMILY,
        expected=(expected,),
        first="create",
        outcomes=outcomes,
    )
