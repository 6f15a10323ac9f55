"""Communicators: the wrong group, two groups in crossed order, groups made differently."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

from benchmarks.scoreboard.collectives import KINDS, MEETING, Kind, call
from benchmarks.scoreboard.program import (
    ANYTHING,
    COMPLETES,
    DEADLOCK,
    RECEIVES,
    SENDS,
    Draft,
    Place,
    Program,
    twins,
    written,
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

#: (what sends, what receives): blocking, and started and waited for
SIDES = tuple(product(SENDS[:2], RECEIVES[:2]))

#: a group that some ranks create: the step's name, the ranks, the arguments
Creation = tuple[str, list[int], dict[str, Any]]


def programs() -> Iterator[Program]:
    """Yield collectives on the wrong group or in crossed order, and groups made differently."""
    for number, (kind, place) in enumerate(product(KINDS, (SAME_TWO, SAME_THREE))):
        for at in (0, place.size - 1):
            yield from _wrong_group(number, place, kind, at, later=False)
            if not kind.objects:
                yield from _wrong_group(number, place, kind, at, later=True)
    for number, (one, two) in enumerate(product(MEETING, MEETING)):
        yield from _crossed(number, DOUBLES[number % len(DOUBLES)], one, two)
    for world_size in (3, 4):
        yield from _created(world_size)


def messages() -> Iterator[Program]:
    """Yield messages that miss each other in another group."""
    for number, (side, place) in enumerate(product(SIDES, DOUBLES)):
        for other in ("other", "world"):
            yield from _across(number, place, side, other)


def _wrong_group(
    number: int, place: Place, kind: Kind, at: int, *, later: bool
) -> Iterator[Program]:
    """One member calls on another group of the same ranks.

    Some rank is always stuck: the leaves without their source, the root without a leaf.
    """
    odd = place.members[at]
    other = replace(place, group="other")
    work, more = ("work", "more") if later else (None, None)

    def write(draft: Draft, *, wrong: bool) -> None:
        if wrong:
            call(draft, kind, "the call of most", ranks=place.others(odd), handle=work)
            call(draft, kind, "the call of one", ranks=[odd], place=other, handle=work)
        else:
            call(draft, kind, "the call", handle=work)
            call(draft, kind, "the next", number=1, place=other, handle=more)
        if later:
            draft.step("the wait", wait="work" if wrong else ["more", "work"])

    return twins(
        write,
        place,
        number,
        name=f"{kind.name} on the wrong one of {place.name}, by rank {odd}"
        + (", async" if later else ""),
        family=FAMILY,
        expected=("missing_participant",),
        first="the call of most",
        outcomes=DEADLOCK,
    )


def _crossed(number: int, place: Place, one: Kind, two: Kind) -> Iterator[Program]:
    """Two members enter the operations of two groups in crossed order."""
    other = replace(place, name="other", members=tuple(place.groups["other"]), group="other")
    odd = max(set(place.members) & set(other.members))

    def cross(draft: Draft, *, later: bool = False) -> None:
        work, more = ("work", "more") if later else (None, None)
        call(draft, one, "on one by most", ranks=place.others(odd), handle=work)
        ranks = list(other.members)
        call(draft, two, "on other by all", number=1, ranks=ranks, place=other, handle=more)
        call(draft, one, "on one by the last", ranks=[odd], handle=work)

    def write(draft: Draft, *, wrong: bool) -> None:
        if wrong:
            cross(draft)
            return
        call(draft, one, "on one by all", ranks=list(place.members))
        ranks = list(other.members)
        call(draft, two, "on other by all", number=1, ranks=ranks, place=other)

    def write_async(draft: Draft, *, wrong: bool) -> None:
        cross(draft, later=True)
        if not wrong:
            draft.step("the wait", wait=["work", "more"])

    name = f"{one.name} and {two.name} crossed on a {place.name}"
    yield from twins(
        write,
        place,
        number,
        name=name,
        family=FAMILY,
        expected=("group_order",),
        first="on one by most",
        outcomes=DEADLOCK,
    )
    if not (one.objects or two.objects):
        document = written(write_async, place, number, wrong=False)
        yield Program(name=f"{name}, async, right", family=FAMILY, document=document)


def _across(number: int, place: Place, side: tuple[str, str], other: str) -> Iterator[Program]:
    """Sent on one group, received on another that has both ranks as well."""
    source, target = place.members[:2]
    if place is SMALLER and other == "world":
        source, target = target, source

    def write(draft: Draft, *, wrong: bool) -> None:
        draft.tensor("letter")
        calls: tuple[tuple[str, int, str, dict[str, Any]], ...] = (
            ("the call", source, side[0], {"dst": target, "group": "one"}),
            ("it", target, side[1], {"src": source, "group": other if wrong else "one"}),
        )
        works = {rank: f"{how}_work" for _, rank, how, _ in calls if how.startswith("i")}
        for name, rank, how, peer in calls:
            action = {"tensor": "letter", **peer}
            draft.step(name, ranks=rank, handle=works.get(rank), **{how: action})
        for rank, work in works.items():
            draft.step(f"wait of {rank}", ranks=rank, wait=work)

    return twins(
        write,
        place,
        number,
        name=f"{side[0]} on one, {side[1]} on {'the world' if other == 'world' else other}"
        f" of {place.name}",
        family=FAMILY,
        expected=("unmatched_send", "unmatched_recv"),
        first="the call",
        outcomes=DEADLOCK,
    )


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
    bad: list[Creation],
    good: list[Creation],
    expected: str,
    outcomes: frozenset[str],
) -> Iterator[Program]:
    def write(draft: Draft, *, wrong: bool) -> None:
        draft.tensor("x", value="full(2, rank)")
        for label, ranks, arguments in bad if wrong else good:
            draft.step(label, ranks=ranks, new_group=arguments)

    return twins(
        write,
        place,
        number,
        name=f"{name} in a {place.name}",
        family=FAMILY,
        expected=(expected,),
        first="create",
        outcomes=outcomes,
    )
