"""Why ranks part: the loop that one takes once more, the `if` that one takes, the error it catches.

A finding says which calls meet. What a person mends is before: the first operation that ranks enter
from different lines, and what in the script leads there::

    14   for batch in loader:          rank 0 takes it a fourth time, rank 1 three times
    17       loss.backward()           rank 0 is here
    18   dist.barrier()                rank 1 is here

The source is parsed and never run; it is the script that was just recorded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import DecidedParting, Reason, Tallies, short
from torch_scenarios.record.evidence.divergence import (
    CROSSED,
    Parting,
    find_difference,
    find_parting,
    parting_of,
)
from torch_scenarios.record.evidence.files import explain_file, tell_race
from torch_scenarios.record.evidence.frame import Maker
from torch_scenarios.record.evidence.reasons.argument import (
    HELD_OTHERWISE,
    find_argument,
    find_batch,
    find_collated,
    find_forward_input,
    find_made,
    find_objects,
    find_order,
    find_refused,
    find_sizes,
    find_tensor,
    is_split_evenly,
)
from torch_scenarios.record.evidence.reasons.branch import (
    explain_places,
    find_asking_branch,
    find_branch,
)
from torch_scenarios.record.evidence.reasons.callback import find_callback
from torch_scenarios.record.evidence.reasons.caller import (
    find_anew,
    find_answer,
    find_caller,
    find_compiled,
    find_decorated,
    find_early_end,
    find_finalizer,
    find_handler,
    find_turn,
)
from torch_scenarios.record.evidence.reasons.caught_error import (
    ERROR_CAUGHT,
    find_caught,
    find_lost,
)
from torch_scenarios.record.evidence.reasons.condition import find_condition
from torch_scenarios.record.evidence.reasons.counterpart import (
    explain_anyone,
    explain_message,
    find_anyone,
)
from torch_scenarios.record.evidence.reasons.departure import (
    NO_WRITER,
    explain_idle,
    explain_parent,
    explain_time_limit,
    explain_wait,
    find_departure,
    find_endless,
    find_endless_loop,
    find_polls,
    waits_for_items,
)
from torch_scenarios.record.evidence.reasons.earlier_condition import (
    BEFORE,
    EARLY,
    find_last_decided,
    find_other_way,
    leave_modes,
    list_early,
)
from torch_scenarios.record.evidence.reasons.error_source import find_own_peer
from torch_scenarios.record.evidence.reasons.function import (
    find_coroutine,
    find_made_alone,
    find_override,
    find_registered,
    find_roles,
)
from torch_scenarios.record.evidence.reasons.given import (
    find_given,
    find_given_amount,
    find_given_here,
    find_given_too,
    find_passed,
)
from torch_scenarios.record.evidence.reasons.kept_state import find_kept_state
from torch_scenarios.record.evidence.reasons.late_rank import SINCE, find_late_rank
from torch_scenarios.record.evidence.reasons.logged_name import find_logged_name
from torch_scenarios.record.evidence.reasons.loop import (
    GOES_THROUGH_SET,
    PARTS_UNLIKE,
    advise_turns,
    find_loader,
    find_longer_argument,
    find_longest,
    find_loop,
    find_set,
    find_shorter,
    find_taken,
    find_turns,
    is_left_earlier,
    tell_progress,
)
from torch_scenarios.record.evidence.reasons.lost_dimension import find_lost_dimension
from torch_scenarios.record.evidence.reasons.model_error import explain_error
from torch_scenarios.record.evidence.reasons.model_options import (
    OTHER_TURN,
    find_buffers,
    find_flag,
    find_options,
)
from torch_scenarios.record.evidence.reasons.other_count import find_other_count
from torch_scenarios.record.evidence.reasons.other_group import (
    find_meant_group,
    find_other_group,
    find_own_order,
    find_turn_of_callers,
    find_ungrouped,
    tell_groups,
)
from torch_scenarios.record.evidence.reasons.other_type import find_text
from torch_scenarios.record.evidence.reasons.own_members import find_own_members
from torch_scenarios.record.evidence.reasons.own_signal import explain_signal
from torch_scenarios.record.evidence.reasons.part_of_model import (
    find_other_unit,
    find_own_shape,
    find_part,
    has_buffers,
    list_parts,
)
from torch_scenarios.record.evidence.reasons.repeated_end import find_repeated_end
from torch_scenarios.record.evidence.reasons.shortcut import find_shortcut
from torch_scenarios.record.evidence.reasons.unlike_value import find_unlike
from torch_scenarios.record.evidence.reasons.way_out import (
    OWN_CLOCK,
    find_unmet,
    find_way_out,
    list_own_ways,
)
from torch_scenarios.record.format import BlockingCall, Decision, RankRecord, RecordedCall
from torch_scenarios.verdict import Finding
from torch_scenarios.verdict.finding import ranks_text
from torch_scenarios.vocabulary import DISAGREEMENTS

__all__ = [
    "SINCE",
    "add_reason",
    "add_reasons",
    "advise_turns",
    "explain_absence",
    "explain_anyone",
    "explain_idle",
    "explain_message",
    "explain_parent",
    "explain_places",
    "explain_wait",
    "find_anyone",
    "find_endless",
    "find_endless_loop",
    "find_late_rank",
    "find_other_unit",
    "find_polls",
    "list_own_ways",
    "waits_for_items",
]

#: diagnoses of ranks that went different ways
PARTED = frozenset(
    {
        *DISAGREEMENTS,
        *("call_mismatch", "missing_participant"),
        *("circular_wait", "group_order", "group_creation"),
    }
)


def add_reasons(
    findings: Sequence[Finding], records: Mapping[int, RankRecord], folder: str
) -> tuple[Finding, ...]:
    """Return the findings; the first of ranks that part with where they do, and why."""
    found = _add_reasons(findings, records, folder)
    text = find_text(records, folder) if found else None
    if text is not None:
        return (add_reason(found[0], [text[0]], text[1]), *found[1:])
    return (*(_add_unlike(each, records, folder) for each in found[:1]), *found[1:])


#: what a report says of its operation, behind why ranks part there
_FACTS = re.compile(
    r"(?:later, )?operation \d+ on |in all: |the members of |\d+ more operations? |"
    r"what they call after |ranks? \d+(?:(?:, | and | to )\d+)* (?:in|pass|passes|waits? in|sends|"
    r"receives) "
)


def _part_at_end(records: Mapping[int, RankRecord]) -> Parting:
    """Return the last calls of ranks as where they part."""
    calls = {
        rank: last
        for rank, record in sorted(records.items())
        for last in record.items[-1:]
        if isinstance(last, RecordedCall | BlockingCall)
    }
    missing = tuple(rank for rank in sorted(records) if rank not in calls)
    return Parting(group="", at=0, calls=calls, missing=missing)


def _add_unlike(finding: Finding, records: Mapping[int, RankRecord], folder: str) -> Finding:
    """Return a finding with where values become unlike that lead to it, behind its reasons."""
    if finding.code == "outcome_differs" and finding.fix:
        return finding  # the error says where it comes from
    parting = parting_of(finding, records) if finding.diagnosis in PARTED else None
    parting = parting or find_parting(records) or _part_at_end(records)
    marks = " ".join(str(each.mark.at) for each in finding.notes if each.mark is not None)
    words = " ".join((*(f"{each.words} {each.rest}" for each in finding.notes), marks))
    reason = find_unlike(DecidedParting(parting, records, folder), f"{words} {finding.fix}")
    if reason is None:
        return finding
    facts = (at for at, each in enumerate(finding.notes) if _FACTS.match(each.words))
    at = next(facts, len(finding.notes))
    found = replace(finding, notes=(*finding.notes[:at], reason[0], *finding.notes[at:]))
    if finding.diagnosis != "shape_mismatch" or not (finding.fix or "").startswith("give `"):
        return found
    fix = f"{reason[1]}; {finding.fix}"  # to pad helps where the sizes are to differ
    return replace(found, fix=fix, help=(fix, *finding.help[1:]))


def _add_reasons(
    findings: Sequence[Finding], records: Mapping[int, RankRecord], folder: str
) -> tuple[Finding, ...]:
    """Return the findings with why their ranks part, where the records say so.

    One finding is explained: the first whose diagnosis is that ranks went apart. What only follows
    from it is left out, once a fix is known.
    """
    findings = _put_unreal_last(findings, records, folder)
    lines = [explain_signal(each, records, folder) for each in findings]
    lines[:1] = [_explain_alone(each, records, folder) for each in lines[:1]]
    at = next((at for at, each in enumerate(lines) if each.diagnosis in PARTED), None)
    if at is None:
        lines[:1] = [_explain_roles(each, records, folder) for each in lines[:1]]
        return tuple(lines)
    finding = lines[at]
    parting = parting_of(finding, records)
    if (finding.fix or "").startswith("two threads"):
        always = DecidedParting(parting, records, folder) if parting is not None else None
        apart = _list_apart(always) if always is not None else {}
        reason = find_condition(always, apart) if always is not None else None
        if reason is None or parting is None:
            return tuple(lines)
        lines[at] = add_reason(finding, [reason[0]], reason[1])
        return tuple(_leave_out_results(lines, at, parting, folder))
    of_model = _is_of_model(parting, records)
    options = _explain_model(finding, parting, records, folder) if of_model else None
    if options is not None:
        lines[at] = add_reason(finding, [options[0]], options[1])
    if options is None and parting is None:
        given = (
            _explain_order(finding, records, folder)
            or _explain_sizes(finding, records, folder)
            or _explain_line(records, folder)
        )
        lines[at] = add_reason(finding, [given[0]], given[1]) if given is not None else finding
    if options is not None or parting is None:
        return tuple(lines)
    clauses, fix = explain_parting(parting, records, folder)
    is_of_set = any(GOES_THROUGH_SET in each.words for each in clauses)
    reason = None if is_of_set else _explain_argument(finding, parting, records, folder)
    kept = (finding.fix or "").startswith("rank ")  # its error is nearer than what it decided
    clauses = _keep_near(clauses) if kept or _says_where(reason) else clauses
    handled = str(finding.fix).partition(": in a `finally`")[0]
    is_caught = any(
        each.words.startswith(handled.replace(" handles ", " catches ")) for each in clauses
    )
    clauses += [Clause(handled)] * (kept and not is_caught)
    clauses, fix = ([*clauses, reason[0]], reason[1]) if reason else (clauses, fix)
    if finding.diagnosis != "group_order":
        clauses = [*clauses, *tell_groups(parting, records, folder)]
    if not clauses:
        return tuple(lines)
    if not any(_MORE_TURNS in each.words for each in clauses):
        clauses = [*clauses, *tell_progress(DecidedParting(parting, records, folder))]
    told = _say_later(finding, parting)
    lines[at] = add_reason(told, clauses, "" if kept else fix or _hint(clauses, finding))
    return tuple(_leave_out_results(lines, at, parting, folder)) if fix else tuple(lines)


def _put_unreal_last(
    findings: Sequence[Finding], records: Mapping[int, RankRecord], folder: str
) -> Sequence[Finding]:
    """Return the findings, those behind the others that only fake ranks come to: errors.

    A fake rank goes on where a real one waits for ranks that never come, or is given nothing.
    """
    if not findings or not any(each.about.get("mode") == "fake" for each in records.values()):
        return findings
    first, *others = findings
    raised = [records[rank] for rank in first.ranks if rank in records]
    if first.code != "outcome_differs" or not raised or not all(each.error for each in raised):
        return findings
    for each in others:
        marks = {note.mark.at for note in each.notes if note.mark is not None}
        if each.diagnosis == "invalid_argument":
            refused = {record.calls[-1].place.short(folder) for record in raised if record.calls}
            is_unreal = (
                len(refused) == 1 and refused <= marks and not {*first.ranks} & {*each.ranks}
            )
        elif each.diagnosis in PARTED and (parting := parting_of(each, records)) is not None:
            is_unreal = bool(parting.group) and all(
                record.rank in parting.calls
                and parting.calls[record.rank].place.frames != record.raised_at.frames
                for record in raised
            )
        else:
            is_unreal = False
        if is_unreal:
            words = "fake ranks alone come so far: real ones end, or wait, in the operation before"
            clause = Clause(words)
            return [*others, replace(first, notes=(*first.notes, clause))]
    return findings


def _explain_roles(finding: Finding, records: Mapping[int, RankRecord], folder: str) -> Finding:
    """Return a finding that ranks rely on buffers, with why those of a role come to a collective.

    The others are in messages, and would come there by their own `if`.
    """
    parting = find_parting(records) if finding.diagnosis == "buffering_hazard" else None
    if parting is None:
        return finding
    reason = find_other_count(DecidedParting(parting, records, folder))
    return add_reason(finding, [reason[0]], reason[1]) if reason is not None else finding


def _list_apart(parted: DecidedParting) -> Tallies:
    """Return what ranks decided otherwise, and not only in another turn of one loop.

    The calls of two threads meet in any order: ranks that meet there may be turns apart.
    """
    counts: dict[Decision, list[int]] = {}
    for at, rank in enumerate(parted.ranks):
        for way in parted.records[rank].ways:
            counts.setdefault(way.decision, [0] * len(parted.ranks))[at] += way.yes
    return {
        decision: own
        for decision, own in parted.tallies(whole=True).items()
        if len({*counts[decision]}) > 1
    }


#: an operation of a group, as a finding counts it
_OPERATION = re.compile(r"operation (\d+) on ")


def _say_later(finding: Finding, parting: Parting) -> Finding:
    """Return a finding that says so where its operation comes after that in which ranks part.

    A record whose loops are folded shows the first of its steps that do not fit, and a loop is a
    step: ranks that part in its first turn may meet in another step once it is over.
    """
    if not parting.group or len(parting.sides) < 2:
        return finding
    notes = []
    for each in finding.notes:
        found = _OPERATION.match(each.words)
        is_later = found is not None and int(found[1]) > parting.at + 1
        notes.append(replace(each, words=f"later, {each.words}") if is_later else each)
    return replace(finding, notes=tuple(notes))


def _list_marked(
    finding: Finding, records: Mapping[int, RankRecord], folder: str
) -> Iterator[tuple[int, RecordedCall]]:
    """Yield the calls at the places that a finding marks, with their ranks, in order."""
    marks = {each.mark.at for each in finding.notes if each.mark is not None}
    for rank in finding.ranks:
        for call in records[rank].calls if rank in records else ():
            if call.place.short(folder) in marks:
                yield rank, call


def _explain_order(
    finding: Finding, records: Mapping[int, RankRecord], folder: str
) -> Reason | None:
    """Return the loop by which ranks come to groups in another order, all of them in one line."""
    if finding.diagnosis not in CROSSED:
        return None
    frames = {call.place.frames for _, call in _list_marked(finding, records, folder)}
    return find_own_order(next(iter(frames)), folder) if len(frames) == 1 else None


def _explain_sizes(
    finding: Finding, records: Mapping[int, RankRecord], folder: str
) -> Reason | None:
    """Return what sets the sizes of the parts that ranks send and expect, where these disagree.

    Each rank passes tensors of one shape, so that they do not part by what they pass.
    """
    if finding.diagnosis != "shape_mismatch":
        return None
    parting = Parting(group="", at=0, calls=dict(_list_marked(finding, records, folder)))
    return find_sizes(parting, folder) if len(parting.sides) == 1 else None


def _explain_line(records: Mapping[int, RankRecord], folder: str) -> Reason | None:
    """Return what ranks were given otherwise that make other calls in one line of the script."""
    difference = find_difference(records)
    if difference is None:
        return None
    parted = DecidedParting(difference, records, folder)
    found = find_given_amount(parted) or find_flag(parted)
    calls = [each for each in difference.calls.values() if isinstance(each, RecordedCall)]
    if found is None and len({each.operation for each in calls}) > 1:
        near = parted.tallies(whole=False)
        found = find_way_out(parted, near, None, has_returned=False)
        found = found or find_condition(parted, near, by_all=True)
    return found or find_passed(parted) or find_given(parted)


def _explain_alone(finding: Finding, records: Mapping[int, RankRecord], folder: str) -> Finding:
    """Return a finding about what one rank does, with what led there: an error, a refused call."""
    if finding.code == "outcome_differs":
        waited = _explain_limit(finding, records, folder)
        waited = waited or _explain_timeout(finding, records, folder)
        if waited is not None:
            return waited
        about = explain_file(finding, records, folder)
        return about if about != finding else explain_error(finding, records, folder)
    if finding.diagnosis != "invalid_argument":
        return finding
    record = records.get(finding.ranks[0]) if finding.ranks else None
    marks = {each.mark.at for each in finding.notes if each.mark is not None}
    calls = [each for each in record.calls if each.place.short(folder) in marks] if record else []
    if calls and any("is the rank itself" in f"{e.words} {e.rest}" for e in finding.notes):
        reason = find_own_peer(calls[0].place.frames, finding.ranks[0], folder)
        return add_reason(finding, [reason[0]], reason[1]) if reason is not None else finding
    words = find_refused(calls[0], folder) if calls else ""
    return replace(finding, notes=(*finding.notes, Clause(words))) if words else finding


def _explain_timeout(
    finding: Finding, records: Mapping[int, RankRecord], folder: str
) -> Finding | None:
    """Return a finding that a rank waited too long, where it parts from ranks in a call; or None.

    It waited outside of torch, as in a vote of torchft, for ranks that are in a call without it.
    """
    late = [
        records[rank]
        for rank in finding.ranks
        if rank in records and (records[rank].error or "").startswith("TimeoutError")
    ]
    parting = find_parting(records) if late else None
    if parting is None or not {each.rank for each in late} & {*parting.missing}:
        return None
    clauses, fix = explain_parting(parting, records, folder)
    return add_reason(finding, clauses, fix) if clauses and fix else None


def _explain_limit(
    finding: Finding, records: Mapping[int, RankRecord], folder: str
) -> Finding | None:
    """Return a finding that a rank gave up a loop, with what that waits for; None for no such."""
    for rank in finding.ranks:
        record = records.get(rank)
        waits = explain_time_limit(record, records, folder) if record is not None else []
        is_open = any(NO_WRITER in each for each in waits)  # why it is not written says more
        if waits and waits[-1].startswith("fix: ") and not is_open:
            fix = waits[-1].removeprefix("fix: ")
            notes = (*finding.notes, *map(Clause, waits[:-1]))
            return replace(finding, notes=notes, fix=fix, help=(fix,))
    return None


#: an `if` with its place, as a clause names it
_DECIDED = re.compile(rf"(?:{BEFORE})?(`if [^`]+` \([^)]+\)) is (?:not )?true ")


def _hint(clauses: Sequence[Clause], finding: Finding) -> str:
    """Return the advice of a finding, with what ranks decided otherwise before that; or nothing."""
    decided = next(filter(None, (_DECIDED.match(each.words) for each in clauses)), None)
    if decided is None or (finding.fix or "").startswith("find why"):
        return ""
    if not finding.fix and finding.diagnosis in {"dtype_mismatch", "op_mismatch"}:
        return f"let all ranks take {decided[1]} the same way: they pass something else after it."
    if not finding.fix and finding.diagnosis == "shape_mismatch":
        return (
            f"look first at {decided[1]}, which ranks decide otherwise, and give the tensor the "
            "same shape on every rank."
        )
    if not finding.fix:
        return ""
    return f"look first at {decided[1]}, which ranks decide otherwise; {finding.fix}"


def _says_where(reason: Reason | None) -> bool:
    """Whether a reason says where a tensor comes from, not only that ranks hold it otherwise."""
    return reason is not None and HELD_OTHERWISE not in reason[0].words


def _keep_near(clauses: Sequence[Clause]) -> list[Clause]:
    """Return the clauses without those of what ranks decided before, and elsewhere."""
    return [each for each in clauses if not each.words.startswith((EARLY, BEFORE))]


def _explain_argument(
    finding: Finding, parting: Parting, records: Mapping[int, RankRecord], folder: str
) -> Reason | None:
    """Return where what ranks of one line pass comes from: a root, a tensor, a group's members."""
    if len(parting.sides) > 1 or len(parting.parts) > 1 or has_buffers(parting):
        return None
    if find_coroutine(DecidedParting(parting, records, folder)) is not None:
        return None  # what they pass differs since another task passes it
    if finding.diagnosis == "group_creation" and not parting.missing:
        return find_own_members(parting, folder) or find_order(parting, folder)
    if finding.diagnosis == "root_mismatch":
        return find_argument(parting, records, folder)
    if finding.diagnosis == "shape_mismatch":
        objects = find_objects(DecidedParting(parting, records, folder))
        given = objects or find_forward_input(parting, folder) or find_sizes(parting, folder)
        given = given or find_batch(parting, records, folder)
        given = given or find_collated(parting, folder)
        given = given or find_own_shape(DecidedParting(parting, records, folder))
        given = given or find_turn_of_callers(parting.sides[0][1], folder)
        if given is not None:
            return given
    is_open = not finding.fix or is_split_evenly(parting)
    if finding.diagnosis in {"shape_mismatch", "dtype_mismatch"} and is_open:
        return find_tensor(parting, records, folder, finding.diagnosis.partition("_")[0])
    return None


def _explain_model(
    finding: Finding, parting: Parting | None, records: Mapping[int, RankRecord], folder: str
) -> Reason | None:
    """Return what differs in the models that DDP or FSDP was given, or in how they were."""
    calls = parting.calls.values() if parting is not None else ()
    makers = {each.maker for each in calls if isinstance(each, RecordedCall)}
    is_of_cpp = makers == {Maker.CPP}  # as at the construction of DDP
    if finding.diagnosis == "shape_mismatch" and is_of_cpp:
        buffers = find_buffers(records, folder)
        if buffers is not None:
            return buffers
    return find_options(records, folder, finding.ranks)


def _is_of_model(parting: Parting | None, records: Mapping[int, RankRecord]) -> bool:
    """Whether torch's own code makes the calls at which ranks part, or differ in one line."""
    found = parting or find_difference(records)
    calls = found.calls.values() if found is not None else ()
    return any(isinstance(each, RecordedCall) and each.maker != Maker.PYTHON for each in calls)


def _leave_out_results(
    lines: Sequence[Finding], at: int, parting: Parting, folder: str
) -> Iterator[Finding]:
    """Yield the findings; of ranks that part in a group what follows there is a note of the first.

    Their calls are of other turns from there on, and may agree in nothing.
    """
    apart = len(parting.sides) > 1 or len(parting.parts) > 1
    ranks = {*parting.calls, *parting.missing} if apart and parting.group else set()
    ranks |= {*lines[at].ranks} if ranks else ranks  # groups alike part at the same line
    results = [
        each for each in lines[at + 1 :] if each.diagnosis in PARTED and ranks >= {*each.ranks}
    ]
    later = [each for each in lines[at + 1 :] if not _is_unwaited_there(each, parting, folder)]
    lines = [*lines[: at + 1], *later]
    for place, each in enumerate(lines):
        if place == at and results:
            names = ", ".join(dict.fromkeys(str(result.diagnosis) for result in results))
            words = f"what they call after it meets at random: {names}"
            yield replace(each, notes=(*each.notes, Clause(words)))
        elif place <= at or each not in results:
            yield each


def _is_unwaited_there(finding: Finding, parting: Parting, folder: str) -> bool:
    """Whether a finding says that ranks never wait for the calls at which they part: these fail."""
    marks = {each.mark.at for each in finding.notes if each.mark is not None}
    return finding.diagnosis == "missing_wait" and all(
        rank in parting.calls and parting.calls[rank].place.short(folder) in marks
        for rank in finding.ranks
    )


def add_reason(finding: Finding, clauses: Sequence[Clause], fix: str) -> Finding:
    """Return a finding that begins with a reason, and with the advice that follows from it."""
    return replace(
        finding,
        notes=(*clauses, *finding.notes),
        fix=fix or finding.fix,
        help=(fix, *finding.help[:1]) if fix else finding.help,
    )


def explain_parting(
    parting: Parting, records: Mapping[int, RankRecord], folder: str
) -> tuple[list[Clause], str]:
    """Return where ranks part and why, and what mends it; nothing where nothing is known."""
    sides, parted = parting.sides, DecidedParting(parting, records, folder)
    clauses: list[Clause] = []
    what = f"operation {parting.at + 1}" if parting.group else f"their call {parting.at + 1}"
    if len(sides) > 1:
        is_one_line = len({short(frames, folder) for _, frames in sides}) == 1
        where = "; ".join(
            f"{ranks_text(ranks)} {'comes' if len(ranks) == 1 else 'come'} from "
            + (
                call.place.short(folder)
                if is_one_line
                else short(frames, folder) + _word_framework_line(call)
            )
            for ranks, frames in sides
            for call in [parting.calls[ranks[0]]]
        )
        clauses.append(Clause(f"the ranks part at {what}: {where}"))
    elif len(parting.parts) > 1:
        where = f"in {short(sides[0][1], folder)}: {list_parts(parted)}"
        clauses.append(Clause(f"the ranks part at {what}, {where}"))
    elif not parting.group and (reason := find_other_group(parting, records, folder)) is not None:
        before = find_last_decided(parted, by_all=True)
        return [reason[0], *(before[:1] if before else ())], reason[1]
    reason = next(filter(None, _list_reasons(parted)), None)
    left = find_departure(parted)
    if left is not None and left != reason:
        clauses.append(left[0])
    if parted.has_ways:
        clauses += tell_race(parted)
    further = _find_further(parted, reason)
    if further is not None:
        return [*clauses, *(reason[:1] if reason is not None else ()), further[0]], further[1]
    if reason is None:
        return clauses, ""
    behind, reason = _tell_given_too(parted, reason)
    clauses += behind
    if not parting.group and not reason[1]:
        return [*clauses, reason[0]], ""
    return _put_together(parted, clauses, reason, left)


def _put_together(
    parted: DecidedParting, clauses: list[Clause], reason: Reason, left: Reason | None
) -> tuple[list[Clause], str]:
    """Return the clauses with a reason, and the advice of it, or of how ranks have left.

    An error that a rank catches is why it leaves, by whatever line: it comes first.
    """
    if left is not None and clauses == [left[0]] and reason[1].startswith(ERROR_CAUGHT):
        return [reason[0], left[0]], reason[1]
    missing = parted.parting.missing
    is_end = any(not parted.records[rank].left_at.frames for rank in missing)
    return [*clauses, reason[0]], reason[1] if is_end and reason[1] else (left or reason)[1]


def _list_reasons(parted: DecidedParting) -> Iterator[Reason | None]:
    """Yield what ranks may part for, None where it is not so: the first one counts."""
    if parted.has_ways:
        always = leave_modes(parted.tallies(whole=True))
        yield from _list_before_branches(parted)
        yield from _list_branches(parted, always)
        yield find_departure(parted)
        yield from _list_behind_branches(parted, always)
    else:
        yield from _list_places(parted)


def _list_before_branches(parted: DecidedParting) -> Iterator[Reason | None]:
    """Yield what needs no `if`: lines that run otherwise than they stand, objects that differ."""
    yield find_coroutine(parted)
    yield find_repeated_end(parted)
    yield find_lost(parted)
    yield find_caught(parted, whole=False)
    yield find_handler(parted)
    yield find_decorated(parted)
    yield find_turn(parted)
    yield find_anew(parted)
    yield find_registered(parted)
    yield find_callback(parted)
    yield find_other_count(parted)
    yield find_roles(parted, leaving_out=True)
    yield find_made_alone(parted)
    yield find_set(parted)
    yield find_flag(parted)
    yield find_logged_name(parted)
    yield find_part(parted)
    yield find_unmet(parted)


def _list_branches(parted: DecidedParting, always: Tallies) -> Iterator[Reason | None]:
    """Yield what ranks decided otherwise: next to the call, then on the way to it.

    `always` is what they decided from the beginning, and not only since the call before.
    """
    parting, records, folder = parted.parting, parted.records, parted.folder
    now = leave_modes(parted.tallies(whole=False))
    loop = find_loop(parted, always)
    near = {} if is_left_earlier(parted, loop) else now
    yield find_condition(parted, near, by_all=True)
    yield find_override(parted)
    yield find_roles(parted)
    yield find_shortcut(parted, by_all=True, is_first=True)
    yield find_way_out(parted, now, None, has_returned=False)
    yield find_shortcut(parted, by_all=True)
    yield find_condition(parted, near)
    yield find_given_amount(parted)
    yield find_lost_dimension(parted)
    yield find_kept_state(parted)
    yield find_caught(parted, whole=True)
    yield find_way_out(parted, always, loop, has_returned=False)
    if loop is not None or not always:
        yield find_turns(parting, records, folder)
    yield find_condition(parted, always)
    yield find_way_out(parted, now, None, has_returned=True)
    yield find_way_out(parted, always, loop, has_returned=True)
    yield find_shortcut(parted, by_all=False)
    yield find_given_here(parted)
    yield find_loader(parted)
    yield find_longer_argument(parted)
    yield find_other_way(parted, always)
    yield find_last_decided(parted)
    yield find_answer(parted)
    yield find_longest(parted, always)
    yield find_compiled(parted)
    yield find_caller(parted)


def _list_behind_branches(parted: DecidedParting, always: Tallies) -> Iterator[Reason | None]:
    """Yield what is far from the place where ranks part."""
    yield find_shorter(parted, always)
    yield find_caught(parted, whole=True, by_chance=True)
    yield find_last_decided(parted, whole=True)
    yield find_passed(parted)
    yield find_given(parted)
    yield list_early(parted)
    yield find_early_end(parted)
    yield find_made(parted)


def _list_places(parted: DecidedParting) -> Iterator[Reason | None]:
    """Yield reasons by the lines that ranks come from, where the record tells of no decisions."""
    parting, records, folder = parted.parting, parted.records, parted.folder
    yield find_coroutine(parted)
    yield find_handler(parted)
    yield find_decorated(parted)
    yield find_turn(parted)
    yield find_anew(parted)
    yield find_asking_branch(parting, records, folder)
    yield find_turns(parting, records, folder)
    yield find_branch(parting, records, folder)
    yield find_loader(parted)
    yield find_compiled(parted)
    yield find_departure(parted)


def _tell_given_too(parted: DecidedParting, reason: Reason) -> tuple[list[Clause], Reason]:
    """Return the loader and the argument that are behind a reason, and it with their advice."""
    counts = (_MORE_TURNS, OTHER_TURN)
    loader = find_loader(parted) if any(each in reason[0].words for each in counts) else None
    behind = [loader[0]] if loader is not None else []
    is_parted = PARTS_UNLIKE in reason[0].words
    if loader is not None and not is_parted and ", as `" in loader[0].words:
        # what it was made of says more
        reason = (reason[0], loader[1])
    given = find_given_too(parted, " ".join(each.words for each in (reason[0], *behind)))
    if given is None or reason[1].startswith(OWN_CLOCK):
        return behind, reason
    fix = f"{given[1].rstrip('.')}; {reason[1]}" if reason[1] else ""
    return [*behind, given[0]], (reason[0], fix)


#: how a reason says that a loop has more turns
_MORE_TURNS = "more turns on some ranks"


def _find_further(parted: DecidedParting, reason: Reason | None) -> Reason | None:
    """Return what lies behind a reason and has an advice of its own; None where nothing does."""
    further = find_finalizer(parted) or find_ungrouped(parted) or find_meant_group(parted)
    if further is not None or reason is None or _MORE_TURNS not in reason[0].words:
        return further
    return find_taken(parted, parted.tallies(whole=True))


def explain_absence(
    records: Mapping[int, RankRecord], absent: Sequence[int], folder: str
) -> Clause | None:
    """Return the way that ranks went alone which never come to `init_process_group`."""
    calls = {
        rank: item
        for rank, record in records.items()
        for item in record.items[:1]
        if rank not in absent and isinstance(item, BlockingCall)
    }
    parting = Parting(group="", at=0, calls=calls, missing=tuple(absent))
    parted = DecidedParting(parting, records, folder)
    always = parted.tallies(whole=True)
    reason = (
        find_caught(parted, whole=True, by_chance=True)
        or find_way_out(parted, always, None)
        or find_condition(parted, always)
        or find_last_decided(parted, whole=True)
    )
    return reason[0] if reason is not None and calls else None


def _word_framework_line(call: RecordedCall | BlockingCall) -> str:
    """Return the line of a framework that makes a call, and the part of a model that it carries."""
    part = call.carries if isinstance(call, RecordedCall) else ""
    return (f" in {call.place.via}" if call.place.via else "") + (f" for {part}" if part else "")
