"""Why ranks part: the loop that one takes once more, the `if` that one takes, the error it catches.

A finding says which calls meet. What a person mends is before: the first operation that ranks enter
from different lines, and what in the script leads there::

    14   for batch in loader:          rank 0 takes it a fourth time, rank 1 three times
    17       loss.backward()           rank 0 is here
    18   dist.barrier()                rank 1 is here

The source is parsed and never run; it is the script that was just recorded.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.script import Script, script_at
from torch_scenarios.record.format import (
    CREATION,
    MESSAGES,
    Blocking,
    Caught,
    Decision,
    RankRecord,
    RecordedCall,
    RecordedWait,
    ScriptPlace,
    names_lost_peer,
    names_model,
)
from torch_scenarios.verdict import Finding
from torch_scenarios.verdict.finding import ranks_text

#: diagnoses of ranks that went different ways
PARTED = frozenset(
    {
        *("call_mismatch", "missing_participant", "dtype_mismatch", "shape_mismatch"),
        *("op_mismatch", "root_mismatch", "split_mismatch", "circular_wait", "group_order"),
        "group_creation",
    }
)
#: those of ranks that pass what differs in one operation
DISAGREEING = frozenset({"dtype_mismatch", "shape_mismatch", "split_mismatch"})
#: those of ranks that wait for each other in different groups
CROSSED = frozenset({"circular_wait", "group_order"})
#: what backends raise where a timeout strikes, with its milliseconds
_TIMED_OUT = re.compile(r"[Tt]imed out (?:after )?(?:waiting )?(\d+) ?ms")
#: times its timeout by which a fake rank has to be later: its clock is that of a busy machine
_FAKE_MARGIN = 1.2
#: ranks whose values are told one by one
MOST_TOLD = 4
#: how often something is done, in words
_TIMES = {0: "never", 1: "once", 2: "twice"}

_Frames: TypeAlias = tuple[tuple[str, int, str], ...]


class Parting(Struct, frozen=True, kw_only=True):
    """The first operation of a group that ranks enter from different lines, or that some miss."""

    group: str
    at: int
    calls: Mapping[int, RecordedCall | Blocking]
    missing: tuple[int, ...] = ()
    #: the call of each rank before, in the same group
    before: Mapping[int, RecordedCall | Blocking] = {}

    @property
    def sides(self) -> list[tuple[list[int], _Frames]]:
        """The ranks at each place, the fewest first."""
        found: dict[tuple[_Frames, str], list[int]] = {}
        for rank, call in sorted(self.calls.items()):
            found.setdefault((call.place.frames, call.place.via), []).append(rank)
        return sorted(((who, at) for (at, _), who in found.items()), key=lambda each: len(each[0]))


def add_reasons(
    findings: Sequence[Finding], records: Mapping[int, RankRecord], folder: str
) -> tuple[Finding, ...]:
    """Return the findings; the first of ranks that part with where they do, and why."""
    lines = list(findings)
    if lines and lines[0].code == "outcome_differs":
        lines[0] = explain_error(lines[0], records, folder)
    at = next((at for at, each in enumerate(lines) if each.diagnosis in PARTED), None)
    if at is None or (lines[at].fix or "").startswith("two threads"):
        return tuple(lines)
    finding = lines[at]
    parting = _parting_of(finding, records, folder)
    if parting is None:
        return tuple(lines)
    clauses, fix = explain_parting(parting, records, folder)
    if not clauses:
        return tuple(lines)
    kept = (finding.fix or "").startswith("rank ")
    lines[at] = with_reason(finding, clauses, "" if kept else fix)
    return tuple(lines)


def with_reason(finding: Finding, clauses: Sequence[Clause], fix: str) -> Finding:
    """Return a finding that begins with a reason, and with the advice that follows from it."""
    return replace(
        finding,
        notes=(*clauses, *finding.notes),
        fix=fix or finding.fix,
        help=(fix, *finding.help[:1]) if fix else finding.help,
    )


def explain_error(finding: Finding, records: Mapping[int, RankRecord], folder: str) -> Finding:
    """Return a finding that ranks raised, with the `if` before it that ranks decided otherwise."""
    raised = [records[rank] for rank in finding.ranks if rank in records]
    if finding.diagnosis is not None or not raised or raised[0].error is None:
        return finding
    parted = Parted(Parting(group="", at=0, calls={}, missing=tuple(records)), records, folder)
    of_model = any(names_model(each.error or "") for each in raised)
    fitting = [
        (decision, own)
        for decision, own in parted.tallies(whole=True).items()
        if decision.kind == "if"
        and len({each.yes for each in own.values()}) > 1
        and not is_idle(decision)
        and (of_model or _is_near(decision, raised[0].raised_at.frames))
    ]
    unused = [] if fitting or not of_model else _in_forward(parted)
    if not fitting and not unused:
        return finding
    decision, own = (fitting or unused)[-1]
    values = list_values(decision, own)
    words = f"before that, {count_turns(parted, decision, own)}"
    if not fitting:
        counts = list_times({rank: each.yes for rank, each in own.items()})
        place = parted.place(decision)
        words = f"`{decision.text}` ({place}) may leave a layer out; true: {counts}"
    return replace(
        finding, notes=(*finding.notes, Clause(words + (f", where {values}" if values else "")))
    )


def _in_forward(parted: Parted) -> list[tuple[Decision, dict[int, Tally]]]:
    """Return what a `forward` decides both ways: ranks may do so as often, and not in one turn."""
    found: dict[Decision, dict[int, Tally]] = {}
    for decision, own in parted.tallies(whole=True, alike=True).items():
        source = script_at(decision.file)
        scope = source.scope(decision.line) if source is not None else None
        is_forward = isinstance(scope, ast.FunctionDef) and scope.name == "forward"
        if decision.kind == "if" and is_forward and any(e.yes and e.no for e in own.values()):
            found[decision] = own
    return list(found.items())


def _is_near(decision: Decision, frames: _Frames) -> bool:
    """Whether a decision is in a function that an error went through, before it did."""
    source = script_at(decision.file)
    return source is not None and any(
        file == decision.file
        and decision.line <= line
        and source.scope(decision.line) is source.scope(line)
        for file, line, _ in frames
    )


def _parting_of(finding: Finding, records: Mapping[int, RankRecord], folder: str) -> Parting | None:
    """Return where the ranks of a finding part; None where they do not."""
    if finding.diagnosis == "group_creation":
        return find_creation(records)
    if finding.diagnosis in CROSSED:
        return find_crossing(records, finding.ranks)
    parting = find_parting(records, finding.ranks)
    if finding.diagnosis == "missing_participant":
        return _find_crossing(records, folder) or parting
    if finding.diagnosis in DISAGREEING:
        differing = find_difference(records)
        if parting is None or (
            differing is not None and differing.group == parting.group and differing.at < parting.at
        ):
            return differing
    return parting


def find_difference(records: Mapping[int, RankRecord]) -> Parting | None:
    """Return the first operation in which ranks of one line pass tensors that differ."""
    for group, _, calls in calls_by_group(records):
        for at in range(min(map(len, calls.values()))):
            entered = {rank: own[at] for rank, own in sorted(calls.items())}
            passed = {
                (call.operation, tuple((each.dtype, each.shape) for each in call.inputs))
                for call in entered.values()
            }
            if len(passed) > 1:
                before = {rank: own[at - 1] for rank, own in calls.items() if at}
                return Parting(group=group, at=at, calls=entered, before=before)
    return None


def find_crossing(records: Mapping[int, RankRecord], ranks: Sequence[int]) -> Parting | None:
    """Return where ranks that wait for each other part: their first calls of other lines or groups.

    Their own calls are compared in order, whatever their groups are. Messages have other lines on
    each side, so ranks that exchange them are not compared.
    """
    known = [rank for rank in ranks if rank in records]
    calls = {rank: records[rank].calls for rank in known}
    if len(known) < 2 or any(c.operation in MESSAGES for own in calls.values() for c in own):
        return None
    for at in range(max(map(len, calls.values()))):
        entered = {rank: own[at] for rank, own in calls.items() if at < len(own)}
        origins = {origin_of(records[rank], call) for rank, call in entered.items()}
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
            if isinstance(each, Blocking) and each.what == CREATION and not each.local
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


def _find_crossing(records: Mapping[int, RankRecord], folder: str) -> Parting | None:
    """Return where ranks first pass groups of other kinds in one line; None where they do not."""
    found = find_crossing(records, [*records])
    return found if found is not None and _other_group(found, records, folder) else None


def origin_of(record: RankRecord, call: RecordedCall) -> ScriptPlace | None:
    """Return the line that made the group of a call; None where the script did not make it."""
    number = int(call.group_name)
    return next(
        (
            each.place
            for each in record.items
            if isinstance(each, Blocking) and each.what == CREATION and each.group == number
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
    """Whether calls that meet are of different places that one rank comes to both of."""
    places = {(call.place.frames, call.place.via) for call in entered.values()}
    if len(places) < 2:
        return False
    if len({(call.operation, call.dtype, call.maker == "bw") for call in entered.values()}) > 1:
        return True
    return any(
        len(places & {(call.place.frames, call.place.via) for call in records[rank].calls}) > 1
        for rank in entered
    )


# -------------------------------------------------------------------------------------------------
# Why.

#: loops over data
_BATCHES = re.compile(r"load|batch|data|sampler|step|epoch|iter", re.IGNORECASE)
#: what a reason is: a clause that says it, and what to change
Reason: TypeAlias = tuple[Clause, str]


class Tally(Struct, kw_only=True):
    """How often a rank went each way at a place, and what the place read last."""

    yes: int = 0
    no: int = 0
    values: tuple[str | None, ...] = ()


class Parted:
    """A parting with what each rank decided: since the call before it, and from the beginning."""

    def __init__(self, parting: Parting, records: Mapping[int, RankRecord], folder: str) -> None:
        self.parting, self.records, self.folder = parting, records, folder
        self.ranks = [*parting.calls, *parting.missing]
        self._spans = {rank: self._span(rank) for rank in self.ranks}
        self.has_ways = any(records[rank].ways for rank in self.ranks)
        self.sides = [*self._gone(), *((who, at) for who, at in parting.sides if at)]

    def _gone(self) -> Iterator[tuple[list[int], _Frames]]:
        """Yield the ranks that do not come, by the place at which they left."""
        found: dict[_Frames, list[int]] = {}
        for rank in self.parting.missing:
            record = self.records[rank]
            frames = record.left_at.frames
            if not frames and len(record.items) > self._spans[rank][0] + 1:
                frames = record.items[-1].place.frames
            if frames:
                found.setdefault(frames, []).append(rank)
        yield from ((ranks, frames) for frames, ranks in found.items())

    def _span(self, rank: int) -> tuple[int, int]:
        items = self.records[rank].items
        before, call = self.parting.before.get(rank), self.parting.calls.get(rank)
        start = next((at for at, each in enumerate(items) if each is before), -1)
        end = next((at for at, each in enumerate(items) if each is call), len(items))
        return start, end

    def is_within(self, rank: int, before: int, *, whole: bool) -> bool:
        """Whether what lies before an item of a rank is in the span that is asked for."""
        start, end = self._spans[rank]
        return (whole or before > start) and before <= end

    def tallies(self, *, whole: bool, alike: bool = False) -> dict[Decision, dict[int, Tally]]:
        """Return what ranks decided, in their order: where they decide apart, or `alike` too."""
        found: dict[Decision, dict[int, Tally]] = {}
        for rank in self.ranks:
            for way in self.records[rank].ways:
                if self.is_within(rank, way.before, whole=whole):
                    tally = found.setdefault(way.decision, {}).setdefault(rank, Tally())
                    tally.yes, tally.no = tally.yes + way.yes, tally.no + way.no
                    tally.values = way.values or tally.values
        for own in found.values():
            for rank in self.ranks:
                own.setdefault(rank, Tally())
        return {
            decision: own
            for decision, own in found.items()
            if alike or len({(each.yes, each.no) for each in own.values()}) > 1
        }

    def place(self, decision: Decision) -> str:
        """Return the place of a decision as it is shown."""
        return _short(((decision.file, decision.line, ""),), self.folder)


def explain_parting(
    parting: Parting, records: Mapping[int, RankRecord], folder: str
) -> tuple[list[Clause], str]:
    """Return where ranks part and why, and what mends it; nothing where nothing is known."""
    sides = parting.sides
    clauses: list[Clause] = []
    if len(sides) > 1:
        where = "; ".join(
            f"{ranks_text(ranks)} {'comes' if len(ranks) == 1 else 'come'} from "
            f"{_short(frames, folder)}" + _through(parting.calls[ranks[0]].place)
            for ranks, frames in sides
        )
        what = f"operation {parting.at + 1}" if parting.group else f"their call {parting.at + 1}"
        clauses.append(Clause(f"the ranks part at {what}: {where}"))
    elif not parting.group and (reason := _other_group(parting, records, folder)) is not None:
        return [reason[0]], reason[1]
    parted = Parted(parting, records, folder)
    reasons: list[Reason | None] = []
    if parted.has_ways:
        now, always = parted.tallies(whole=False), parted.tallies(whole=True)
        loop = _find_loop(parted, always)
        reasons += [
            find_caught(parted, whole=False),
            _condition(parted, now),
            _way_out(parted, now, None),
            find_caught(parted, whole=True),
            _way_out(parted, always, loop),
            _turns(parting, records, folder) if loop is not None or not always else None,
            _condition(parted, always),
            _other_way(parted, always),
            _last_decided(parted, now),
            _longest_turned(parted, always),
            _under_line(parted),
        ]
    else:
        reasons += [
            _turns(parting, records, folder),
            _branch(parting, records, folder),
        ]
    reasons.append(_explain_leaving(parted))
    reason = next(filter(None, reasons), None)
    left = _explain_leaving(parted)
    if left is not None and left != reason:
        clauses.append(left[0])
    if reason is None:
        return clauses, ""
    if not parting.group:  # what is to be changed is their order
        return [*clauses, reason[0]], ""
    is_end = any(not records[rank].left_at.frames for rank in parting.missing)
    return [*clauses, reason[0]], reason[1] if is_end and reason[1] else (left or reason)[1]


def _through(place: ScriptPlace) -> str:
    return f" in {place.via}" if place.via else ""


def _other_group(parting: Parting, records: Mapping[int, RankRecord], folder: str) -> Reason | None:
    """Return that ranks pass groups of different lines in one and the same line."""
    alike: dict[str, list[int]] = {}
    members: dict[int, str] = {}
    for rank, call in sorted(parting.calls.items()):
        if isinstance(call, Blocking):
            return None
        origin = origin_of(records[rank], call)
        members[rank] = _list_ranks(call.group)
        made = "the world" if origin is None else f"a group made at {_short(origin.frames, folder)}"
        name = "" if origin is None else origin.variable
        alike.setdefault(f"{made} (`{name}`)" if name else made, []).append(rank)
    if len(alike) < 2:
        return None
    place = _short(next(iter(parting.calls.values())).place.frames, folder)
    words = "; ".join(
        f"{ranks_text(ranks)} {'passes' if len(ranks) == 1 else 'pass'} {made}"
        + (f" of ranks {members[ranks[0]]}" if len(ranks) == 1 else "")
        for made, ranks in sorted(alike.items(), key=lambda each: len(each[1]))
    )
    fix = f"pass the same group, by its role, on every rank at {place}."
    return Clause(f"the ranks pass groups of different kinds at {place}: {words}"), fix


def _list_ranks(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:8]))
    return f"{shown}, ..." if len(ranks) > 8 else shown


def explain_places(sides: Sequence[tuple[list[int], _Frames]], folder: str) -> Reason | None:
    """Return why ranks are at different places of a script, by its text alone.

    How often they came there is not known: the loop that some are still in, or the `if` that some
    have taken.
    """
    for ranks, frames in sides:
        loop = _loop_of(frames, [each for _, each in sides if each != frames])
        if loop is not None and len(sides) > 1:
            text, line, file = loop
            place = _short(((file, line, ""),), folder)
            verb = "is" if len(ranks) == 1 else "are"
            branch = _branch_of(sides, folder)
            if branch is not None and "rank" in str(branch[0]):
                return branch
            words = f"{ranks_text(ranks)} {verb} still in the loop `{text}` ({place})"
            fix = (
                f"give every rank as many turns of the loop at {place}, or leave it on all ranks "
                "at once."
            )
            return Clause(words), fix
    return _branch_of(sides, folder)


def find_caught(parted: Parted, *, whole: bool) -> Reason | None:
    """Return the error that some ranks caught and others did not."""
    found: dict[tuple[Decision, str], dict[int, Caught]] = {}
    for rank in parted.ranks:
        for each in parted.records[rank].caught:
            if parted.is_within(rank, each.before, whole=whole) and not names_lost_peer(each.words):
                found.setdefault((each.decision, each.words), {})[rank] = each
    for (decision, words), own in reversed(found.items()):
        if len(own) == len(parted.ranks):
            continue
        caught = next(iter(own.values()))
        who, place = ranks_text([*own]), parted.place(decision)
        raised = caught.raised_at.short(parted.folder)
        sentence = f"{words} ({raised})" if raised else words
        verb = "catches" if len(own) == 1 else "catch"
        clause = Clause(
            f"{who} {verb} {sentence} in `{decision.text}` ({place}), and {_goes_on(own)}"
        )
        fix = (
            f"let no error be caught at {place} on one rank alone: agree on it (an `all_reduce` of "
            "a flag) before the ranks go on, or raise it."
        )
        return clause, fix
    return None


def _goes_on(ranks: Sequence[int] | Mapping[int, object]) -> str:
    return "goes on another way" if len(ranks) == 1 else "go on another way"


def _condition(parted: Parted, tallies: Mapping[Decision, Mapping[int, Tally]]) -> Reason | None:
    """Return the outermost `if` around the calls of some ranks that others decide otherwise."""
    for ranks, frames in parted.sides:
        others = [rank for rank in parted.ranks if rank not in ranks]
        around: list[tuple[Decision, str]] = []
        for file, line, _ in frames:
            source = script_at(file)
            for node, name in source.around(line) if source is not None else ():
                around += [
                    (decision, name)
                    for decision in tallies
                    if _is_of(decision, node, file) and name in {"body", "orelse", "items"}
                ]
        fitting = [
            (decision, name)
            for decision, name in around
            if any(tallies[decision][rank].yes or tallies[decision][rank].no for rank in others)
        ] or around
        # a loop that others take too is no condition: they are a turn further on
        fitting = [
            (decision, name)
            for decision, name in fitting
            if decision.kind != "while" or not any(tallies[decision][rank].yes for rank in others)
        ]
        if fitting:
            decision, name = fitting[-1]
            return _explain_decision(parted, decision, tallies[decision], ranks, name)
    return None


def _is_of(decision: Decision, node: ast.stmt, file: str) -> bool:
    """Whether a decision is the condition of a statement, or in the head of a `with`."""
    if decision.file != file or decision.kind not in {"if", "while"}:
        return False
    if isinstance(node, ast.If | ast.While):
        return node.test.lineno == decision.line
    if isinstance(node, ast.With | ast.AsyncWith):
        last = max((each.context_expr.end_lineno or 0 for each in node.items), default=0)
        return node.lineno <= decision.line <= last
    return False


def _explain_decision(
    parted: Parted,
    decision: Decision,
    tallies: Mapping[int, Tally],
    ranks: Sequence[int],
    name: str,
) -> Reason:
    """Return that some ranks go into a condition, with the values that it read on each."""
    place, text = parted.place(decision), decision.text
    verb = "goes" if len(ranks) == 1 else "go"
    alone = " alone" if len(ranks) < len(parted.ranks) else ""
    way = "into the `else` of" if name == "orelse" else "into"
    words = f"{ranks_text(list(ranks))}{alone} {verb} {way} `{text}` ({place})"
    values = list_values(decision, tallies)
    fix = (
        f"let every rank of the group make the calls under `{text}` ({place}), or none: move them "
        "out of the condition, or decide it alike on all ranks."
    )
    return Clause(words + (f", where {values}" if values else "")), fix


def list_values(decision: Decision, tallies: Mapping[int, Tally]) -> str:
    """Return what a condition read last on each rank: `loss = 4.0 on rank 0`."""
    alike: dict[str, list[int]] = {}
    for rank, tally in sorted(tallies.items()):
        words = ", ".join(
            f"{name} has {value}"
            if value.startswith("shape") or "item" in value
            else f"{name} = {value}"
            for name, value in zip(decision.names, tally.values, strict=False)
            if value is not None and not (name.endswith("rank") and value == str(rank))
        )
        if words:
            alike.setdefault(words, []).append(rank)
    if len(alike) > MOST_TOLD or not alike:
        return ""
    source = script_at(decision.file)
    assigned = ""
    if source is not None and len(decision.names) == 1 and decision.text.split()[-1].isidentifier():
        assigned = source.assigned(decision.names[0], decision.line)
    shown = "; ".join(f"{words} on {ranks_text(ranks)}" for words, ranks in alike.items())
    return f"{shown} (`{assigned}`)" if assigned else shown


def _way_out(
    parted: Parted,
    tallies: Mapping[Decision, Mapping[int, Tally]],
    loop: tuple[str, int, int] | None,
) -> Reason | None:
    """Return the first `if` that leads some ranks out of their block, and others not.

    `loop` is a file with its first and last line: what lies outside of it does not count.
    """
    files = {file for _, frames in parted.sides for file, _, _ in frames}
    for decision, own in tallies.items():
        source = script_at(decision.file)
        if decision.kind != "if" or source is None:
            continue
        if loop is not None and not (
            decision.file == loop[0] and loop[1] <= decision.line <= loop[2]
        ):
            continue
        if loop is None and files and decision.file not in files:
            continue
        jump = source.jump_under(decision.line)
        if jump is None:
            continue
        name, word, line = jump
        counts = {rank: (each.yes if name == "body" else each.no) for rank, each in own.items()}
        most = max(counts.values())
        ranks = [rank for rank, count in counts.items() if count == most]
        if min(counts.values()) == most:
            continue
        verb = "takes" if len(ranks) == 1 else "take"
        place = parted.place(decision)
        at = f":{line}" if line != decision.line else ""
        words = (
            f"{ranks_text(ranks)} alone {verb} the `{word}`{at} under `{decision.text}` ({place})"
        )
        if most > 1 or min(counts.values()):
            words += f", {times(most)} ({_others(counts, most)})"
        values = list_values(decision, {rank: own[rank] for rank in ranks})
        fix = (
            f"take the way out at {place} on all ranks or on none: agree on its condition first "
            "(an `all_reduce` of a flag)."
        )
        return Clause(words + (f", where {values}" if values else "")), fix
    return None


def _others(counts: Mapping[int, int], most: int) -> str:
    alike: dict[int, list[int]] = {}
    for rank, count in counts.items():
        if count != most:
            alike.setdefault(count, []).append(rank)
    return ", ".join(f"{ranks_text(ranks)} {times(count)}" for count, ranks in alike.items())


def _other_way(parted: Parted, tallies: Mapping[Decision, Mapping[int, Tally]]) -> Reason | None:
    """Return the last `if` of the same function that ranks decide otherwise, as a hint."""
    for _, frames in parted.sides:
        for file, line, _ in frames:
            source = script_at(file)
            if source is None:
                continue
            fitting = [
                decision
                for decision in tallies
                if decision.kind == "if"
                and decision.file == file
                and decision.line <= line
                and source.scope(decision.line) is source.scope(line)
            ]
            if not fitting:
                continue
            decision = max(fitting, key=lambda each: each.line)
            own = tallies[decision]
            values = list_values(decision, own)
            words = f"{count_turns(parted, decision, own)}" + (
                f", where {values}" if values else ""
            )
            return Clause(words), ""
    return None


def _last_decided(parted: Parted, tallies: Mapping[Decision, Mapping[int, Tally]]) -> Reason | None:
    """Return the last `if` before they part that ranks decide otherwise, as in a callback."""
    decided = [
        decision
        for decision, own in tallies.items()
        if decision.kind == "if"
        and len({each.yes for each in own.values()}) > 1
        and not is_idle(decision)
    ]
    if not decided:
        return None
    own = tallies[decided[-1]]
    values = list_values(decided[-1], own)
    words = f"before that, {count_turns(parted, decided[-1], own)}"
    return Clause(words + (f", where {values}" if values else "")), ""


def is_idle(decision: Decision) -> bool:
    """Whether an `if` does nothing but print or log, which decides nothing that comes later."""
    source = script_at(decision.file)
    node = source.condition(decision.line) if source is not None else None
    return isinstance(node, ast.If) and not node.orelse and all(map(_speaks, node.body))


#: calls that tell a person something
_SPEECH = frozenset(
    {"print", "debug", "info", "warning", "warn", "error", "log", "write", "set_postfix", "update"}
)


def _speaks(node: ast.stmt) -> bool:
    """Whether a statement prints or logs what is known already."""
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
        return False
    function = node.value.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in _SPEECH


def _longest_turned(
    parted: Parted, tallies: Mapping[Decision, Mapping[int, Tally]]
) -> Reason | None:
    """Return the first loop that ranks take unequally often, where its script is not read."""
    for decision, own in tallies.items():
        if decision.kind in {"for", "while"} and script_at(decision.file) is None:
            counts = {rank: each.yes for rank, each in own.items()}
            place = parted.place(decision)
            words = f"the loop `{decision.text}` ({place}) has more turns on some ranks: "
            fix = f"give every rank as many turns of the loop at {place}."
            return Clause(words + list_times(counts)), fix
    return None


#: a line that logs
_LOGS = re.compile(r"\b(?:log|logger|logging|_log|_logger)\w*\.(?:debug|info|warning|log)\(")


def _under_line(parted: Parted) -> Reason | None:
    """Return the line under which some ranks communicate and others, who pass it too, do not."""
    sides = [(ranks, frames) for ranks, frames in parted.parting.sides if len(frames) > 1]
    for ranks, frames in sides:
        others = [each for _, each in parted.parting.sides if each != frames]
        known = {(file, line) for other in others for file, line, _ in other}
        file, line, text = next((each for each in frames[::-1] if each[:2] not in known), frames[0])
        if (file, line, text) == frames[0] or not others:
            continue
        place = _short(((file, line, ""),), parted.folder)
        verb = "communicates" if len(ranks) == 1 else "communicate"
        words = f"{ranks_text(ranks)} alone {verb} under `{text.strip()}` ({place})"
        if _LOGS.search(text):
            words += ": a logger formats its arguments where its level lets the message through"
            fix = f"take the value on every rank before {place}, and log that."
        else:
            fix = f"let every rank of the group make the calls under {place}, or none."
        return Clause(words), fix
    return None


def count_turns(parted: Parted, decision: Decision, own: Mapping[int, Tally]) -> str:
    """Return on which ranks a condition is true, or how often where it is so on several."""
    where = f"`{decision.text}` ({parted.place(decision)})"
    ranks = [rank for rank, each in sorted(own.items()) if each.yes]
    if ranks and all(not each.yes or not each.no for each in own.values()):
        return f"{where} is true on {ranks_text(ranks)} alone"
    alike: dict[tuple[int, int], list[int]] = {}
    for rank, each in sorted(own.items()):
        alike.setdefault((each.yes, each.no), []).append(rank)
    words = ", ".join(
        f"{ranks_text(ranks)} {times(yes)} of {yes + no}" for (yes, no), ranks in alike.items()
    )
    return f"{where} is not true as often on all ranks: {words}"


def _explain_leaving(parted: Parted) -> Reason | None:
    """Return how ranks that never come have left: the line of their exit, or of their end."""
    ended: dict[str, list[int]] = {}
    for rank in parted.parting.missing:
        record = parted.records[rank]
        left = record.left_at.short(parted.folder)
        if left:
            text = record.left_at.frames[0][2]
            ended.setdefault(f"`{text}` ({left})" if text else left, []).append(rank)
            continue
        last = record.items[-1] if record.items else None
        if isinstance(last, Blocking) and last.what.startswith("destroy"):
            where = last.place.short(parted.folder)
            ended.setdefault(f"`{last.what}` ({where})", []).append(rank)
    if not ended:
        return None
    words = "; ".join(
        f"{ranks_text(ranks)} {'has' if len(ranks) == 1 else 'have'} left by {how}"
        for how, ranks in ended.items()
    )
    how = next(iter(ended))
    fix = f"let no rank leave by {how} while others still communicate with it."
    return Clause(words), fix


def _find_loop(
    parted: Parted, tallies: Mapping[Decision, Mapping[int, Tally]]
) -> tuple[str, int, int] | None:
    """Return the loop that one side is in and the other is past: its file, first and last line."""
    for _, frames in parted.parting.sides:
        loop = _loop_of(frames, [each for _, each in parted.parting.sides if each != frames])
        if loop is not None:
            _, line, file = loop
            source = script_at(file)
            assert source is not None
            node = next(node for node, _ in source.around(line) if node.lineno == line)
            inside = (file, line, node.end_lineno or line)
            if any(each.file == file and inside[1] <= each.line <= inside[2] for each in tallies):
                return inside
    return None


def _short(frames: _Frames, folder: str) -> str:
    if not frames:
        return "an unknown line"
    path = Path(frames[0][0])
    name = path.relative_to(folder) if folder and path.is_relative_to(folder) else path.name
    return f"{name}:{frames[0][1]}"


def _turns(
    parting: Parting, records: Mapping[int, RankRecord], folder: str
) -> tuple[Clause, str] | None:
    """Return that some ranks come to a line of a loop once more than others, and how often."""
    for ranks, frames in parting.sides:
        if not frames:
            continue
        call = parting.calls[ranks[0]]
        if isinstance(call, Blocking):
            return None
        maker = call.maker
        counts = {
            rank: _passes(records[rank], frames, maker, parting.calls.get(rank))
            for rank in (*parting.calls, *parting.missing)
        }
        own, others = counts[ranks[0]], {counts[r] for r in counts if r not in ranks}
        if not others or max(others) >= own:
            continue
        elsewhere = [each for _, each in parting.sides if each != frames]
        loop = _loop_of(frames, elsewhere)
        if loop is None:
            continue
        text, line, file = loop
        outer = _longer_loop(Parted(parting, records, folder), ranks, frames, elsewhere)
        if outer is not None:
            (text, line, file), counts = outer
        place = _short(((file, line, ""),), folder)
        is_backward = call.maker in {"bw", "cc"}
        what = "backward passes" if call.maker == "bw" else f"calls of {_short(frames, folder)}"
        what = "turns" if outer is not None else what
        clause = Clause(
            f"the loop `{text}` ({place}) has more turns on some ranks; {what}: "
            + list_times(counts)
            + _origin_of_loop(text, line, file)
        )
        if call.maker in {"bw", "cc"} or _BATCHES.search(text):
            fix = (
                f"give every rank as many turns of the loop at {place}: uneven batches need "
                "`drop_last=True` (of the sampler and the loader), or one number of steps that the "
                "ranks agree on"
            )
            fix += "; with DDP also `with Join([model]):` around the loop." if is_backward else "."
        else:
            fix = (
                f"give every rank as many turns of the loop at {place}: let it go over the same on "
                "all ranks, or agree on its length first (an `all_reduce` with `op=max`)."
            )
        return clause, fix
    return None


def list_times(counts: Mapping[int, int]) -> str:
    """Return how often each rank did something, ranks alike together: `rank 0 twice`."""
    alike: dict[int, list[int]] = {}
    for rank, count in sorted(counts.items()):
        alike.setdefault(count, []).append(rank)
    return ", ".join(f"{ranks_text(who)} {times(count)}" for count, who in alike.items())


def _longer_loop(
    parted: Parted, ranks: Sequence[int], frames: _Frames, others: Sequence[_Frames]
) -> tuple[tuple[str, int, str], dict[int, int]] | None:
    """Return the loop around the innermost one that the ranks in it take more often than others.

    Each of its turns may have as many turns of the inner loop on all ranks: then it is the one that
    is longer. None where the innermost loop is.
    """
    tallies = parted.tallies(whole=True)
    found = None
    for text, line, file in [*_loops_of(frames, others)][1:]:
        own = next(
            (
                each
                for decision, each in tallies.items()
                if decision.kind in {"for", "while"}
                and (decision.file, decision.line) == (file, line)
            ),
            None,
        )
        counts = {rank: own[rank].yes for rank in parted.ranks} if own is not None else {}
        rest = [count for rank, count in counts.items() if rank not in ranks]
        if rest and min(counts[rank] for rank in ranks) > max(rest):
            found = (text, line, file), counts
    return found


def _origin_of_loop(text: str, line: int, file: str) -> str:
    """Return where the script sets the one variable that bounds a loop; or nothing."""
    source = script_at(file)
    names = re.findall(r"[A-Za-z_]\w*", text.partition(" in ")[2])
    set_at = [source.assigned(name, line) for name in dict.fromkeys(names)] if source else []
    known = [each for each in set_at if each]
    return f" (`{known[0]}`)" if len(known) == 1 else ""


def times(count: int) -> str:
    """Return how often something is done, in words."""
    return _TIMES.get(count, f"{count} times")


def _passes(
    record: RankRecord, frames: _Frames, maker: str, until: RecordedCall | Blocking | None
) -> int:
    """Return how often a rank comes to a place, up to a call; the buckets of a backward are one."""
    count, is_open = 0, False
    for item in record.items:
        if not isinstance(item, RecordedCall):
            is_open = is_open and not isinstance(item, RecordedWait)
            continue
        if item.place.frames == frames and item.maker == maker:
            count += not (is_open and item.maker == "bw")
            is_open = item.maker == "bw" and not item.completes
        if item is until:
            break
    return count


def _loop_of(frames: _Frames, others: Sequence[_Frames]) -> tuple[str, int, str] | None:
    """Return the innermost loop that a place is in and the other places are not."""
    return next(_loops_of(frames, others), None)


def _loops_of(frames: _Frames, others: Sequence[_Frames]) -> Iterator[tuple[str, int, str]]:
    """Yield the loops that a place is in and the other places are not: text, line and file."""
    for file, line, _ in frames:
        source = script_at(file)
        if source is None:
            continue
        for node, _branch_name in source.around(line):
            if isinstance(node, ast.For | ast.AsyncFor | ast.While):
                inside = [
                    at
                    for other in others
                    for name, at, _ in other
                    if name == file and node.lineno <= at <= (node.end_lineno or node.lineno)
                ]
                if not inside:
                    yield source.text(node.lineno), node.lineno, file


#: a condition that asks which rank it is on
_ASKS_RANK = re.compile(r"rank|main_process|master|leader|primary|(?:global|process)_zero")


def _branch(
    parting: Parting, records: Mapping[int, RankRecord], folder: str
) -> tuple[Clause, str] | None:
    """Return the `if` or `except` that some ranks take to where they part."""
    sides = [(ranks, frames) for ranks, frames in parting.sides if frames]
    if parting.missing:
        last = {
            rank: records[rank].calls[-1].place.frames if records[rank].calls else ()
            for rank in parting.missing
        }
        sides.append((list(parting.missing), last[parting.missing[0]]))
    return _branch_of(sides, folder)


def _branch_of(
    sides: Sequence[tuple[list[int], _Frames]], folder: str
) -> tuple[Clause, str] | None:
    """Return the `if` or `except` that leads some ranks to their place, by the script's text."""
    for ranks, frames in sides:
        others = [each for who, each in sides if who is not ranks]
        for file, line, _ in frames:
            source = script_at(file)
            if source is None:
                continue
            shared = {
                (id(node), name)
                for other in others
                for path, at, _ in other
                if path == file
                for node, name in source.around(at)
            }
            apart = [
                (node, name)
                for node, name in source.around(line)
                if (id(node), name) not in shared and isinstance(node, ast.If | ast.Try)
            ]
            if apart:
                tries = [each for each in apart if isinstance(each[0], ast.Try)]
                asking = [e for e in apart if _ASKS_RANK.search(source.text(e[0].lineno))]
                chosen = tries[0] if tries and not asking else (asking or apart)[-1]
                return _decision(*chosen, source, ranks, folder, sum(len(who) for who, _ in sides))
    return _jump(sides, folder)


def _decision(
    node: ast.stmt,
    name: str,
    source: Script,
    ranks: list[int],
    folder: str,
    among: int,
) -> tuple[Clause, str]:
    place = _short(((source.file, node.lineno, ""),), folder)
    who = ranks_text(ranks)
    verb = "goes" if len(ranks) == 1 else "go"
    alone = " alone" if 0 < len(ranks) < among else ""
    if isinstance(node, ast.Try):
        caught = next((each for each in node.handlers), None)
        handler = "" if caught is None else f", which `{source.text(caught.lineno)}` catches"
        words = f"{who}{alone} {verb} into an `except` of the `try` at {place}"
        if name == "body":
            stay = "stays" if len(ranks) == 1 else "stay"
            words = f"others leave the `try` at {place} by an error{handler}; {who} {stay} in it"
        fix = (
            f"let no error be caught around the calls at {place} on one rank alone: agree on it "
            "(an `all_reduce` of a flag) before the ranks go on."
        )
        return Clause(words), fix
    text = source.text(node.lineno)
    way = "into" if name == "body" else "into the `else` of"
    words = f"{who}{alone} {verb} {way} `{text}` ({place})"
    fix = (
        f"let every rank of the group make the calls under `{text}` ({place}), or none: move them "
        "out of the condition, or decide it alike on all ranks."
    )
    return Clause(words), fix


def _jump(sides: Sequence[tuple[list[int], _Frames]], folder: str) -> tuple[Clause, str] | None:
    """Return the way out under an `if` (`return`, `continue`) that leads some past a call."""
    placed = [(ranks, frames[0]) for ranks, frames in sides if frames]
    if len(placed) < 2:
        return None
    (early, (file, line, _)), (late, (other, _, _)) = sorted(placed, key=lambda each: each[1][1])[
        :2
    ]
    source = script_at(file)
    if source is None or file != other:
        return None
    node = source.jump_before(line)
    if node is None:
        return None
    text, place = source.text(node.lineno), _short(((file, node.lineno, ""),), folder)
    who, verb = ranks_text(late), "goes" if len(late) == 1 else "go"
    words = (
        f"{who} {verb} past {_short(((file, line, ''),), folder)}, where {ranks_text(early)} wait"
        f"{'s' * (len(early) == 1)}: `{text}` ({place}) may lead past it"
    )
    fix = f"take the way out at {place} on all ranks or on none: agree on its condition first."
    return Clause(words), fix


# -------------------------------------------------------------------------------------------------
# A rank that comes after the timeout of another one.


def find_late_rank(records: Mapping[int, RankRecord], folder: str = "") -> Finding | None:
    """Return that a rank came to an operation later than another one waits; None where none does.

    On real ranks both clocks are in the record. Fake ranks wait for nothing: what counts is how
    much longer one takes from the operation before, against the timeout of the job's start.
    """
    for _, _, calls in calls_by_group(records):
        for at in range(min(map(len, calls.values()))):
            entered = {rank: own[at] for rank, own in calls.items()}
            if len(entered) < 2:
                continue
            times = {rank: _arrival(records[rank], calls[rank], at) for rank in entered}
            early, late = min(times, key=times.__getitem__), max(times, key=times.__getitem__)
            after_s = times[late] - times[early]
            timeout_s = _timeout_s(records, entered, early)
            fake = records[early].about.get("mode") == "fake"
            if timeout_s is not None and after_s > timeout_s * (_FAKE_MARGIN if fake else 1):
                return _late_finding(entered, early, late, after_s, timeout_s, folder)
    return None


def _arrival(record: RankRecord, calls: list[RecordedCall], at: int) -> float:
    """Return when a rank comes to an operation, in seconds, by a clock that all ranks have."""
    began = calls[at].began_us / 1e6
    if record.about.get("mode") != "fake":
        started = record.about.get("time", 0.0)
        return began + (float(started) if isinstance(started, int | float) else 0.0)
    return began - calls[at - 1].began_us / 1e6 if at else 0.0


def _timeout_s(
    records: Mapping[int, RankRecord], entered: Mapping[int, RecordedCall], early: int
) -> float | None:
    """Return the timeout that strikes, or on fake ranks the one that would."""
    record = records[early]
    if record.about.get("mode") == "fake":
        return record.timeout_s
    words = " ".join(filter(None, (entered[early].failed, record.error)))
    found = _TIMED_OUT.search(words)
    if found is not None:
        return int(found[1]) / 1000
    return record.timeout_s if "imed out" in words or "imeout" in words else None


def _late_finding(
    entered: Mapping[int, RecordedCall],
    early: int,
    late: int,
    after_s: float,
    timeout_s: float,
    folder: str,
) -> Finding:
    first, last = entered[early], entered[late]
    clauses = [
        Clause(f"rank {early} waits in {first.operation} ({first.place.short(folder)})"),
        Clause(
            f"rank {late} enters {last.operation} ({last.place.short(folder)}) {after_s:.1f} s "
            f"after rank {early}, whose timeout is {timeout_s:.4g} s"
        ),
    ]
    if first.failed:
        clauses.append(Clause(f"rank {early} raises {first.failed}"))
    fix = (
        "give the group a longer `timeout=` (of `init_process_group` or `new_group`), or do what "
        f"takes rank {late} so long on every rank, or before the ranks meet."
    )
    return Finding(
        witness="program",
        code="timeout_too_short",
        diagnosis="timeout_too_short",
        prose=f"rank {late} comes too late, and rank {early} gives up before",
        notes=tuple(clauses),
        ranks=(early, late),
        name="outcome",
        fix=fix,
        help=(fix,),
    )
