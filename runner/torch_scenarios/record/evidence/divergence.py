"""Where ranks part: the first operation of a group that they enter from different lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from torch_scenarios.record.evidence.frame import Maker
from torch_scenarios.record.format import (
    CREATION,
    MESSAGES,
    RENDEZVOUS,
    BlockingCall,
    RankRecord,
    RecordedCall,
    ScriptPlace,
)
from torch_scenarios.verdict import Finding
from torch_scenarios.vocabulary import DISAGREEMENTS

#: operations to which the root passes more than the others
_FROM_ROOT = frozenset({"scatter"})


#: those of ranks that wait for each other in different groups
CROSSED = frozenset({"circular_wait", "group_order"})


Frames: TypeAlias = tuple[tuple[str, int, str], ...]


class Parting(Struct, frozen=True, kw_only=True):
    """The first operation of a group that ranks enter from different lines, or that some miss."""

    group: str
    at: int
    calls: Mapping[int, RecordedCall | BlockingCall]
    missing: tuple[int, ...] = ()
    #: the call of each rank before, in the same group
    before: Mapping[int, RecordedCall | BlockingCall] = {}

    @property
    def sides(self) -> list[tuple[list[int], Frames]]:
        """The ranks at each place, the fewest first."""
        found: dict[tuple[Frames, str], list[int]] = {}
        for rank, call in sorted(self.calls.items()):
            found.setdefault((call.place.frames, call.place.via), []).append(rank)
        return sorted(((who, at) for (at, _), who in found.items()), key=lambda each: len(each[0]))

    @property
    def parts(self) -> dict[str, list[int]]:
        """The ranks that carry each part of a model."""
        found: dict[str, list[int]] = {}
        for rank, call in sorted(self.calls.items()):
            if isinstance(call, RecordedCall) and call.carries:
                found.setdefault(call.carries, []).append(rank)
        return found


def parting_of(finding: Finding, records: Mapping[int, RankRecord]) -> Parting | None:
    """Return where the ranks of a finding part; None where they do not."""
    if finding.diagnosis == "group_creation":
        return find_creation(records)
    if finding.diagnosis in CROSSED:
        return find_crossing(records, finding.ranks)
    parting = find_parting(records, finding.ranks)
    if finding.diagnosis == "missing_participant":
        others = _find_other_groups(records) or parting
        return others or find_creation(records) or _find_start(records)
    if finding.diagnosis in DISAGREEMENTS:
        differing = find_difference(records)
        if (
            parting is None
            or _is_cut_off(parting, records)
            or (
                differing is not None
                and differing.group == parting.group
                and differing.at < parting.at
            )
        ):
            return differing
    return parting


def _is_cut_off(parting: Parting, records: Mapping[int, RankRecord]) -> bool:
    """Whether ranks miss an operation because what they passed in one before has ended them."""
    gone = [records[rank] for rank in parting.missing]
    is_ended = all(each.died is not None or each.error is not None for each in gone)
    return bool(gone) and is_ended and len(parting.sides) == 1


def find_difference(records: Mapping[int, RankRecord]) -> Parting | None:
    """Return the first operation in which ranks of one line pass what differs."""
    for group, _, calls in calls_by_group(records):
        for at in range(min(map(len, calls.values()))):
            entered = {rank: own[at] for rank, own in sorted(calls.items())}
            passed = {
                (call.operation, call.op, call.root, _list_passed(call))
                for call in entered.values()
            }
            if len(passed) > 1:
                before = {rank: own[at - 1] for rank, own in calls.items() if at}
                return Parting(group=group, at=at, calls=entered, before=before)
    return None


def _list_passed(call: RecordedCall) -> object:
    """Return the tensors that a call passes, as far as they are the same on all ranks."""
    passed = [(each.dtype, each.shape) for each in call.inputs or call.outputs]
    # the root passes one for each rank, the others take one
    return frozenset(passed) if call.operation in _FROM_ROOT else tuple(passed)


def find_crossing(records: Mapping[int, RankRecord], ranks: Sequence[int]) -> Parting | None:
    """Return where ranks that wait for each other part: their first calls of other lines or groups.

    Their own calls are compared in order, whatever their groups are. Messages have other lines on
    each side, so ranks that exchange them are not compared.
    """
    known = [rank for rank in ranks if rank in records]
    calls = {
        rank: [
            each
            for each in records[rank].items
            if isinstance(each, RecordedCall)
            or (isinstance(each, BlockingCall) and each.what == CREATION and not each.local)
        ]
        for rank in known
    }
    messages = (
        each.operation in MESSAGES
        for own in calls.values()
        for each in own
        if isinstance(each, RecordedCall)
    )
    if len(known) < 2 or any(messages):
        return None
    for at in range(max(map(len, calls.values()))):
        entered = {rank: own[at] for rank, own in calls.items() if at < len(own)}
        origins = {
            origin_of(records[rank], call)
            for rank, call in entered.items()
            if isinstance(call, RecordedCall)
        }
        if len({call.place.frames for call in entered.values()}) > 1 or len(origins) > 1:
            return Parting(
                group="",
                at=at,
                calls=entered,
                missing=tuple(rank for rank in known if rank not in entered),
                before={rank: own[at - 1] for rank, own in calls.items() if 0 < at <= len(own)},
            )
    return None


def find_creation(records: Mapping[int, RankRecord]) -> Parting | None:
    """Return where ranks first create groups of other lines or members, or some create none."""
    made = {
        rank: [
            each
            for each in record.items
            if isinstance(each, BlockingCall) and each.what == CREATION and not each.local
        ]
        for rank, record in records.items()
    }
    for at in range(max(map(len, made.values()), default=0)):
        entered = {rank: own[at] for rank, own in made.items() if at < len(own)}
        missing = tuple(rank for rank in made if rank not in entered)
        if missing or len({(each.place.frames, each.ranks) for each in entered.values()}) > 1:
            before = {rank: own[at - 1] for rank, own in made.items() if 0 < at <= len(own)}
            return Parting(group="", at=at, calls=entered, missing=missing, before=before)
    return None


def _find_start(records: Mapping[int, RankRecord]) -> Parting | None:
    """Return where some ranks start the world anew, and others have left for good."""
    starts = {
        rank: [
            each
            for each in record.items
            if isinstance(each, BlockingCall) and each.what == RENDEZVOUS
        ]
        for rank, record in records.items()
    }
    most = max(map(len, starts.values()), default=0)
    entered = {rank: own[-1] for rank, own in starts.items() if len(own) == most}
    missing = tuple(rank for rank in starts if rank not in entered)
    if most < 2 or not missing:
        return None
    before = {rank: own[most - 2] for rank, own in starts.items() if len(own) >= most - 1}
    return Parting(group="", at=most - 1, calls=entered, missing=missing, before=before)


def _find_other_groups(records: Mapping[int, RankRecord]) -> Parting | None:
    """Return where ranks first pass groups that other lines made; None where they do not."""
    found = find_crossing(records, [*records])
    if found is None:
        return None
    calls = [
        (records[r], each) for r, each in found.calls.items() if isinstance(each, RecordedCall)
    ]
    return found if len({origin_of(record, call) for record, call in calls}) > 1 else None


def origin_of(record: RankRecord, call: RecordedCall) -> ScriptPlace | None:
    """Return the line that made the group of a call; None where the script did not make it."""
    number = int(call.group_name)
    return next(
        (
            each.place
            for each in record.items
            if isinstance(each, BlockingCall) and each.what == CREATION and each.group == number
        ),
        None,
    )


def find_parting(records: Mapping[int, RankRecord], ranks: Sequence[int] = ()) -> Parting | None:
    """Return where ranks first part: from different lines, and no two ways to one operation.

    A group that has all of `ranks`, those of a finding, comes before others: who is not in it may
    wait for one that is.
    """
    found: list[tuple[int, Parting]] = []
    for group, members, calls in calls_by_group(records):
        longest = max(map(len, calls.values()))
        for at in range(longest):
            entered = {rank: own[at] for rank, own in sorted(calls.items()) if at < len(own)}
            missing = tuple(r for r in members if r in records and r not in entered)
            began = max(_time(records[rank], call) for rank, call in entered.items())
            if missing or _is_apart(entered, records):
                before = {rank: own[at - 1] for rank, own in calls.items() if 0 < at <= len(own)}
                parting = Parting(group=group, at=at, calls=entered, missing=missing, before=before)
                found.append((began, parting))
                break
    of_finding = [each for each in found if {*each[1].calls, *each[1].missing} >= {*ranks}]
    return min(of_finding or found, key=lambda each: each[0])[1] if found else None


def _time(record: RankRecord, call: RecordedCall) -> int:
    started = record.about.get("time", 0.0)
    return int(float(started) * 1e6) + call.began_us if isinstance(started, int | float) else 0


def calls_by_group(
    records: Mapping[int, RankRecord],
) -> Iterator[tuple[str, tuple[int, ...], dict[int, list[RecordedCall]]]]:
    """Yield the collectives of each group by rank, in order, with its name and members."""
    found: dict[tuple[str, tuple[int, ...]], dict[int, list[RecordedCall]]] = {}
    for rank, record in records.items():
        for call in record.calls:
            if call.operation not in MESSAGES:
                name, members, _ = record.groups[int(call.group_name)]
                found.setdefault((name, members), {}).setdefault(rank, []).append(call)
    for (name, members), calls in found.items():
        yield name, members, calls


def _is_apart(entered: Mapping[int, RecordedCall], records: Mapping[int, RankRecord]) -> bool:
    """Whether calls that meet are of different places that one rank comes to both of.

    So are calls of one place that carry different parts of a model.
    """
    parts = {call.carries for call in entered.values()}
    if len(parts) > 1 and "" not in parts:
        return any(len(parts & {c.carries for c in records[rank].calls}) > 1 for rank in entered)
    places = {(call.place.frames, call.place.via) for call in entered.values()}
    if len(places) < 2:
        return False
    calls = entered.values()
    kinds = {(call.operation, call.dtype, call.maker == Maker.BACKWARD) for call in calls}
    if len(kinds) > 1:
        return True
    return any(
        len(places & {(call.place.frames, call.place.via) for call in records[rank].calls}) > 1
        for rank in entered
    )
