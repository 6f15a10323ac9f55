"""Why a message has no counterpart: a loop that is longer on one side, or an `if` not taken.

Messages are in other lines on each side, so ranks do not *part* as those of a collective do::

    for m in range(self.n):          rank 1 takes it 4 times, rank 2 3 times
        dist.recv(x, self.prev)

    if rank < world - 1:             rank 2 does not go in, where it would send
        ops.append(P2POp(dist.isend, x, right))
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import (
    DecidedParting,
    Reason,
    Tallies,
    Tally,
    count_turns,
    list_times,
    list_values,
    short,
    times,
)
from torch_scenarios.record.evidence.divergence import Frames, Parting
from torch_scenarios.record.evidence.reasons.address import (
    find_group_rank,
    find_other_sender,
    find_other_target,
    find_peer,
)
from torch_scenarios.record.evidence.reasons.argument import find_buffer, find_last_message
from torch_scenarios.record.evidence.reasons.caught_error import find_caught
from torch_scenarios.record.evidence.reasons.crossed_sends import find_crossed, find_late_message
from torch_scenarios.record.evidence.reasons.departure import find_departure
from torch_scenarios.record.evidence.reasons.loop import loop_of, tell_filled
from torch_scenarios.record.evidence.reasons.message_order import find_other_order
from torch_scenarios.record.evidence.reasons.other_group import find_group_apart
from torch_scenarios.record.evidence.reasons.own_counter import tell_counter
from torch_scenarios.record.evidence.reasons.pipeline_stage import explain_stage
from torch_scenarios.record.evidence.reasons.same_order import find_same_order
from torch_scenarios.record.evidence.reasons.value_source import HASHES_DIFFER, find_hash
from torch_scenarios.record.evidence.reasons.way_out import find_way_out
from torch_scenarios.record.evidence.script import has_line, place_at, script_at
from torch_scenarios.record.format import BranchTaken, Decision, RankRecord, RecordedCall
from torch_scenarios.verdict import Finding
from torch_scenarios.verdict.finding import ranks_text

#: diagnoses of messages without a counterpart
UNANSWERED = frozenset({"unmatched_send", "unmatched_recv", "circular_wait", "missing_wait"})
#: the functions that do it, in a script and in a record
_CALLS = {"send": re.compile(r"\bi?send\b"), "receive": re.compile(r"\bi?recv\b")}
_OPERATIONS = {"send": "send", "receive": "recv"}
#: where functions take a tag
_TAGS = {"send": 3, "isend": 3, "recv": 3, "irecv": 3, "P2POp": 4}


def explain_message(
    finding: Finding, records: Mapping[int, RankRecord], folder: str
) -> Reason | None:
    """Return why a message of a finding has no counterpart; None where nothing is known."""
    if finding.diagnosis in {"dtype_mismatch", "shape_mismatch"}:
        return _find_wrong_turn(finding, records, folder)
    if finding.diagnosis == "tag_mismatch":
        return _tags_apart(finding, records, folder)
    if finding.diagnosis not in UNANSWERED:
        return None
    if finding.diagnosis == "circular_wait" and (
        crossed := _explain_crossed_tags(finding, records, folder)
    ):
        return crossed
    acts = [each.awaits for each in finding.notes if each.awaits is not None]
    answers = [(each.rank, each.peer, each.act) for each in acts if each.is_of_message]
    answers = [each for each in answers if {*each[:2]} <= records.keys()]
    late = find_late_message(answers, records, folder)
    meant = (late if finding.diagnosis == "circular_wait" else None) or (
        find_group_rank(records, folder)
        or find_other_sender(records, folder)
        or find_other_target(records, folder)
    )
    if meant is not None or not answers:
        return meant
    parted = DecidedParting(
        Parting(group="", at=0, calls={}, missing=tuple(records)), records, folder
    )
    return (
        find_caught(parted, whole=True)
        or _find_groups_apart(parted, answers)
        or find_same_order(parted, {rank: what for rank, _, what in answers})
        or _find_way_past(finding, parted)
        or _find_past(finding, parted)
        or find_crossed(parted, answers)
        or _loop(finding, parted, answers)
        or next(filter(None, (_find_turn_without(parted, *each) for each in answers)), None)
        or next(filter(None, (_find_over(parted, *each) for each in answers)), None)
        or next(filter(None, (_find_longer(parted, *each) for each in answers)), None)
        or next(filter(None, (_answer(parted, *each) for each in answers)), None)
        or next(filter(None, (_find_left(parted, *each[:2]) for each in answers)), None)
        or next(filter(None, (_find_never_reached(parted, *each) for each in answers)), None)
        or _find_exit(parted, [rank for _, rank, _ in answers])
    )


def _find_groups_apart(
    parted: DecidedParting, answers: Sequence[tuple[int, int, str]]
) -> Reason | None:
    """Return the groups of a message that is sent on one and expected on another one alone."""
    for waiting, rank, what in answers:
        source, target = (waiting, rank) if what == "receive" else (rank, waiting)
        sent = [each for _, each in _messages(parted, source, "send", target - source)]
        taken = [each for _, each in _messages(parted, target, "receive", source - target)]
        if {each.group_name for each in sent} & {each.group_name for each in taken}:
            continue
        if sent and taken:
            reason = find_group_apart(parted, sent[0], taken[0], (source, target))
            if reason is not None:
                return reason
    return None


def _find_exit(parted: DecidedParting, ranks: Sequence[int]) -> Reason | None:
    """Return the exit in a function by which ranks have left that owe a message."""
    left = []
    for rank in dict.fromkeys(ranks):
        for file, line, _ in parted.records[rank].left_at.frames[:1]:
            source = script_at(file)
            if source is not None and source.scope(line) is not source.tree:
                left.append(rank)
    gone = Parting(group="", at=0, calls={}, missing=tuple(left))
    return find_departure(DecidedParting(gone, parted.records, parted.folder)) if left else None


def _find_left(
    parted: DecidedParting, waiting: int, rank: int, loop: tuple[str, int, int] | None = None
) -> Reason | None:
    """Return the way out that a rank which does not answer takes, and the one that waits does not.

    A framework sends and receives in one line of the script, so that nothing else leads there.
    With `loop`, a file with its first and last line, it is one out of that.
    """
    both = Parting(group="", at=0, calls={}, missing=(rank, waiting))
    apart = DecidedParting(both, parted.records, parted.folder)
    apart.sides = []  # where they are tells nothing: a framework communicates there
    reason = find_way_out(apart, apart.tallies(whole=True), loop)
    alone = reason is not None and reason[0].words.startswith(f"rank {rank} alone")
    return reason if alone else None


def _find_wrong_turn(
    finding: Finding, records: Mapping[int, RankRecord], folder: str
) -> Reason | None:
    """Return the first message that does not fit, where its lines met others before."""
    parted = DecidedParting(
        Parting(group="", at=0, calls={}, missing=tuple(records)), records, folder
    )
    for source, record in sorted(records.items(), key=lambda each: each[0] not in finding.ranks):
        targets = {call.peer for call in record.calls if call.operation == "send"}
        known = {each for each in targets if each is not None and each in records}
        for target in sorted(known, key=lambda each: (each not in finding.ranks, each)):
            sent = _messages(parted, source, "send", target - source)
            taken = _messages(parted, target, "receive", source - target)
            met: dict[tuple[str, Frames], tuple[int, RecordedCall]] = {}
            for number, ((_, send), (_, take)) in enumerate(zip(sent, taken, strict=False), 1):
                before = (
                    met.get(("receive", take.place.frames)),
                    met.get(("send", send.place.frames)),
                )
                if (send.dtype, send.elements) == (take.dtype, take.elements):
                    met["receive", take.place.frames] = sent[number - 1]
                    met["send", send.place.frames] = taken[number - 1]
                    continue
                clause = Clause(
                    f"message {number} from rank {source} to rank {target} is sent at "
                    f"{send.place.short(folder)} and received at {take.place.short(folder)}"
                )
                for rank, what, found in (
                    (source, "send", before[0]),
                    (target, "receive", before[1]),
                ):
                    if (
                        found is not None
                        and found[1].place != (send if rank == source else take).place
                    ):
                        where = found[1].place.frames
                        reason = _find_branch(parted, rank, what, where, since=found[0])
                        if reason is not None:
                            return Clause(f"{clause.words}; {reason[0].words}"), reason[1]
                earlier = [each for _, each in sent[: number - 1] if each.place == send.place]
                last = find_last_message(send, earlier, folder)
                if last is not None:
                    return Clause(f"{clause.words}; {last[0].words}"), last[1]
                added = _find_added(parted, (source, send), (target, take)) if number > 1 else None
                if added is not None:
                    return Clause(f"{clause.words}; {added[0].words}"), added[1]
                rest = [each for _, each in sent[number - 1 :]], [e for _, e in taken[number - 1 :]]
                return find_other_order(*rest, (source, target), folder) or _explain_buffers(
                    send, take, source, target, folder
                )
    return None


#: conditions that only say which part of a pipeline a rank is
_PARTS = re.compile(r"\b(?:is|has)_(?:first|last)\b")


def _find_added(
    parted: DecidedParting, one: tuple[int, RecordedCall], other: tuple[int, RecordedCall]
) -> Reason | None:
    """Return the `if` without an `else` by which one of two ranks alone comes to a message.

    A condition that asks for the rank, or for the first or the last stage, deals the parts.
    """
    apart = {
        (each.file, each.line): (each, own)
        for each, own in parted.tallies(whole=True).items()
        if each.kind == "if" and not _PARTS.search(each.text)
    }
    for (rank, call), (peer, _) in ((one, other), (other, one)):
        for file, line, _ in call.place.frames:
            source = script_at(file)
            for node, part in source.find_statements(line) if source is not None else ():
                if source is None or not isinstance(node, ast.If) or part != "body" or node.orelse:
                    continue
                decision, own = apart.get((file, node.test.lineno), (None, {}))
                at = node.test.lineno
                deals = source.names_rank(at) or (
                    not isinstance(node.test, ast.Compare) and source.tests_rank(node.test, at)
                )
                if decision is None or deals:
                    continue
                if own[rank].yes > own[peer].yes:
                    values = list_values(decision, own)
                    words = count_turns(parted, decision, own)
                    words += f", where {values}" if values else ""
                    fix = (
                        f"let rank {peer} take `{decision.text}` ({parted.place(decision)}) the "
                        f"same way: send it what rank {rank} decides by, or use what both have."
                    )
                    return Clause(words), fix
    return None


def _explain_buffers(
    send: RecordedCall, take: RecordedCall, source: int, target: int, folder: str
) -> Reason | None:
    """Return what both ends of a message pass, where its place in the order is right."""
    sent, _ = find_buffer(send.place.frames, folder)
    taken, where = find_buffer(take.place.frames, folder)
    if not taken:
        return explain_stage(take, source, target, folder)
    words = f"rank {target} receives into {taken}" + (f"; rank {source} sends {sent}" * bool(sent))
    what = "the dtype and the shape" if send.dtype != take.dtype else "the shape"
    fix = f"give the tensor that rank {target} receives into ({where}) {what} of what is sent."
    return Clause(words), fix


def _tags_apart(finding: Finding, records: Mapping[int, RankRecord], folder: str) -> Reason | None:
    """Return what a tag is counted by, where ranks do not come as often to what counts it."""
    parted = DecidedParting(
        Parting(group="", at=0, calls={}, missing=finding.ranks), records, folder
    )
    marks = {each.mark.at for each in finding.notes if each.mark is not None}
    for call in (call for rank in finding.ranks for call in records[rank].calls):
        if call.place.short(folder) not in marks or call.operation not in _OPERATIONS.values():
            continue
        file, line, _ = call.place.frames[0]
        source = script_at(file)
        tag = source.argument(line, {"tag"}, _TAGS) if source is not None else None
        if source is None or tag is None or isinstance(tag, ast.Constant):
            continue
        lines = (*source.traces(tag, line), (source, line))
        for script, hashed in filter(None, (find_hash(*each) for each in lines)):
            place = script.place(hashed.lineno, folder)
            words = f"the tag is `{ast.unparse(tag)}`, by `{script.text(hashed.lineno)}` ({place})"
            words += f": {HASHES_DIFFER}"
            fix = f"number what is sent ({place}) by a table that both ends have, or `zlib.crc32`."
            return Clause(words), fix
        set_at = source.assignment(tag, line, in_parts=True)
        words = f"the tag is `{ast.unparse(tag)}`, which each rank counts for itself"
        words += f": `{source.text(set_at)}` (:{set_at})" if set_at else ""
        jump = find_way_out(parted, parted.tallies(whole=True), None)
        if jump is not None:
            return Clause(f"{words}; {jump[0].words}"), jump[1]
        passed = _list_tags(finding, records, folder)
        if len({text for _, text, _ in passed}) > 1:
            ends = [f"rank {rank} passes {text} ({at})" for rank, text, at in passed]
            fix = (
                f"pass at {passed[-1][2]} the tag that {passed[0][2]} passes, or leave it out at "
                "both: messages keep their order."
            )
            return Clause(f"the tags are written differently: {'; '.join(ends)}"), fix
        fix = (
            "count the tag the same way at both ends, or leave it out at both: messages keep their "
            "order."
        )
        return Clause(words), fix
    return None


def _list_tags(
    finding: Finding, records: Mapping[int, RankRecord], folder: str
) -> list[tuple[int, str, str]]:
    """Return what ranks pass as a tag in the lines of a finding: rank, words, place; sends first.

    Nothing where the calls of one end alone are in lines of the scripts.
    """
    marks = {each.mark.at for each in finding.notes if each.mark is not None}
    found: dict[tuple[str, str], tuple[int, str, str]] = {}
    for rank, call in ((each, call) for each in finding.ranks for call in records[each].calls):
        at = call.place.short(folder)
        if at not in marks or call.operation not in _OPERATIONS.values():
            continue
        file, line, _ = call.place.frames[0]
        source = script_at(file)
        if source is None or not source.called(line) & _TAGS.keys():
            continue  # a function around the call may pass a tag
        tag = source.argument(line, {"tag"}, _TAGS)
        text = f"`tag={ast.unparse(tag)}`" if tag is not None else "no tag"
        found.setdefault((call.operation, at), (rank, text, at))
    if len({operation for operation, _ in found}) < 2:
        return []
    return [found[each] for each in sorted(found, key=lambda each: each[0] != "send")]


def _explain_crossed_tags(
    finding: Finding, records: Mapping[int, RankRecord], folder: str
) -> Reason | None:
    """Return where two ranks that wait for each other take the messages in another order."""
    marks = {each.mark.at for each in finding.notes if each.mark is not None}
    parted = DecidedParting(
        Parting(group="", at=0, calls={}, missing=finding.ranks), records, folder
    )
    for source, target in itertools.permutations(finding.ranks, 2):
        sent = _messages(parted, source, "send", target - source)
        taken = _messages(parted, target, "receive", source - target)
        for (_, send), (_, take) in zip(sent, taken, strict=False):
            if send.tag == take.tag:
                continue
            where, at = send.place.short(folder), take.place.short(folder)
            if not {where, at} <= marks:
                return None
            words = (
                f"rank {target} receives tag {take.tag} from rank {source} ({at}), which sends tag "
                f"{send.tag} before it ({where})"
            )
            file, line, _ = take.place.frames[0]
            script = script_at(file)
            tag = script.argument(line, {"tag"}, {}) if script is not None else None
            set_at = (
                script.assignment(tag, line, in_parts=True)
                if script is not None and tag is not None
                else 0
            )
            if script is not None and tag is not None and set_at:
                words += f": `{ast.unparse(tag)}` is set by `{script.text(set_at)}` (:{set_at})"
            fix = (
                "let both ranks go through the messages in one order, or begin the receives by "
                "`irecv` and wait for them afterwards."
            )
            return Clause(words), fix
    return None


def _loop(
    finding: Finding, parted: DecidedParting, answers: Sequence[tuple[int, int, str]]
) -> Reason | None:
    """Return the loop around a message that some ranks have left after fewer turns than others.

    Where the rank that owes the message has left it by a way out of its own, that is the reason.
    """
    marks = {each.mark.at for each in finding.notes if each.mark is not None}
    frames = {
        call.place.frames
        for record in parted.records.values()
        for call in record.calls
        if marks
        & {
            call.place.short(parted.folder),
            replace(call.place, api="", via="").short(parted.folder),  # as a batch is marked
        }
    }
    tallies = parted.tallies(whole=True)
    for decision, own in tallies.items():
        if decision.kind not in {"for", "while"}:
            continue
        turns = {rank: each.yes for rank, each in own.items() if each.yes}
        if len(turns) < 2 or len(set(turns.values())) < 2:
            continue
        if _has_begun_anew(parted, decision, own):
            continue
        span = _span(decision.file, decision.line)
        body = (span[0] + 1, span[1]) if span is not None else (0, 0)  # a head may begin a batch
        if span is None or not any(_is_inside(each, decision.file, body) for each in frames):
            continue
        fewest = [rank for rank, count in turns.items() if count == min(turns.values())]
        if any(_ends_inside(parted.records[rank], decision.file, span) for rank in fewest):
            continue  # it is still in the loop, and waits there for something else
        last = [parted.records[each[0]].items[-1:] for each in answers if each[0] in fewest]
        if any(_is_inside(each.place.frames, decision.file, span) for own in last for each in own):
            continue  # it has waited there for the message itself, and given up
        inside = (decision.file, *span)
        left = (_find_left(parted, *each[:2], inside) for each in answers if each[1] in fewest)
        way_out = next(filter(None, left), None)
        if way_out is not None:
            return way_out
        return _tell_turns(parted, decision, turns, (span, fewest))
    return None


def _tell_turns(
    parted: DecidedParting,
    decision: Decision,
    turns: Mapping[int, int],
    about: tuple[tuple[int, int], Sequence[int]],
) -> Reason:
    """Return that a loop has more turns on some ranks, and why: a `break`, or what bounds it.

    `about` are its first and last line, and the ranks with the fewest turns.
    """
    span, fewest = about
    place = parted.place(decision)
    words = f"the loop `{decision.text}` ({place}) has more turns on some ranks: "
    words += list_times(turns)
    broken = _find_break(parted, (decision.file, *span), fewest)
    if broken is not None:
        return Clause(f"{words}; {broken[0]}"), broken[1]
    bound = _tell_bound((decision.file, decision.line), parted.folder)
    counted, name = tell_counter(parted, (decision.file, decision.line))
    words += f"; {bound} sets them" if bound else f"; {counted}" if counted else ""
    fix = f"give every rank that takes it the same number of turns of the loop at {place}."
    if name and not bound:
        fix = (
            f"count `{name}` alike on all ranks, or let one of them decide and send it, so "
            f"that they leave the loop at {place} in the same turn."
        )
    return Clause(words), fix


def _find_break(
    parted: DecidedParting, loop: tuple[str, int, int], fewest: Sequence[int]
) -> tuple[str, str] | None:
    """Return the `break` by which ranks with the fewest turns of a loop leave it, and the advice.

    Others may take it too, as often and in later turns::

        for step in range(size):
            if step > rank:           rank 0 in turn 1, rank 1 in turn 2
                break
    """
    source = script_at(loop[0])
    for decision, own in parted.tallies(whole=True, alike=True).items() if source else ():
        is_inside = decision.file == loop[0] and loop[1] < decision.line <= loop[2]
        jump = source.jump_under(decision.line) if source is not None and is_inside else None
        if decision.kind != "if" or jump is None or jump[1] not in {"break", "return"}:
            continue
        taken = {rank: each.yes if jump[0] == "body" else each.no for rank, each in own.items()}
        if not all(taken[rank] for rank in fewest):
            continue
        ranks = [rank for rank, count in taken.items() if count]
        place = parted.place(decision)
        verb = "leaves" if len(ranks) == 1 else "leave"
        words = f"{ranks_text(ranks)} {verb} it by the `{jump[1]}`:{jump[2]} under "
        words += f"`{decision.text}` ({place})"
        values = list_values(decision, {rank: own[rank] for rank in ranks})
        words += f", where {values}" if values else ""
        return words, (
            f"take the way out at {place} on all ranks in the same turn, or on none: what is sent "
            "in each turn of the loop is for all of them."
        )
    return None


def _find_turn_without(parted: DecidedParting, waiting: int, rank: int, what: str) -> Reason | None:
    """Return the `continue` by which a rank has left out a message in some turns of its loop."""
    messages = _messages(parted, rank, what, waiting - rank)
    tallies = parted.tallies(whole=True, alike=True) if messages else {}
    for file, line, _ in messages[-1][1].place.frames if messages else ():
        source = script_at(file)
        loops = [
            node
            for node, part in (source.find_statements(line) if source is not None else ())
            if isinstance(node, ast.For | ast.While) and part == "body"
        ]
        for decision, own in tallies.items() if source is not None and loops else ():
            is_before = decision.file == file and loops[0].lineno < decision.line < line
            jump = source.jump_under(decision.line) if source is not None and is_before else None
            if decision.kind != "if" or jump is None or jump[1] != "continue":
                continue
            count = own[rank].yes if jump[0] == "body" else own[rank].no
            if not count:
                continue
            where, place = (
                short(messages[-1][1].place.frames, parted.folder),
                parted.place(decision),
            )
            others = [each for one, each in own.items() if one != rank]
            alone = " alone" * all(not (e.yes if jump[0] == "body" else e.no) for e in others)
            words = (
                f"rank {rank}{alone} takes the `continue`:{jump[2]} under `{decision.text}` "
                f"({place}) {times(count)}, past the message at {where}, for which "
                f"rank {waiting} waits"
            )
            values = list_values(decision, {rank: own[rank]})
            words += f", where {values}" if values else ""
            fix = (
                f"let rank {rank} make its message at {where} in every turn, also with zeros, "
                f"or let rank {waiting} know how many come."
            )
            return Clause(words), fix
    return None


def _has_begun_anew(parted: DecidedParting, loop: Decision, own: Mapping[int, Tally]) -> bool:
    """Whether ranks have more turns of a loop since they are in it once more, after as many.

    They come from the same calls again, which the others have not left: what they have not done
    there is why.
    """
    span = _span(loop.file, loop.line)
    first = min(own.values(), key=lambda each: (each.yes, each.no))
    if span is None or not first.no or first.yes % first.no:
        return False
    whole = first.yes // first.no  # turns of one pass
    ahead = {rank: each for rank, each in own.items() if each.yes > first.yes}
    return all(
        each.no > first.no
        and whole * (each.no - 1) < each.yes <= whole * each.no
        and _is_inside(parted.records[rank].items[-1].place.frames, loop.file, span)
        for rank, each in ahead.items()
    )


def _tell_bound(loop: tuple[str, int], folder: str) -> str:
    """Return the line that sets how many turns a loop has, as it is shown; or nothing."""
    source = script_at(loop[0])
    node = source.find_for(loop[1]) if source is not None else None
    if source is None or node is None:
        return ""
    traced = source.traces(node.iter, node.lineno)
    chosen = [(each, at) for each, at in traced if each.chooses(at) and not each.keeps_rank(at)]
    first = [(source, at) for at in source.origins(node.iter, node.lineno)]
    for script, at in (*chosen, *first)[:1]:
        return script.quote(at, folder)
    return ""


def _list_absent(finding: Finding, parted: DecidedParting) -> list[tuple[int, int, Frames]]:
    """Return who waits in a collective, for which rank, and where, as a finding says it."""
    found = []
    for each in finding.notes:
        awaits = each.awaits
        if awaits is None or awaits.act != "enter" or awaits.peer not in parted.records:
            continue
        record = parted.records.get(awaits.rank)
        if record is None or not record.items:
            continue
        places = [item.place for item in record.items[::-1]]
        at = each.mark.at if each.mark is not None else ""
        marked = (place.frames for place in places if place.short(parted.folder) == at)
        found.append((awaits.rank, awaits.peer, next(marked, places[0].frames)))
    return found


def _find_way_past(finding: Finding, parted: DecidedParting) -> Reason | None:
    """Return the way out by which a rank alone has left before a collective where others wait.

    It is in the function in which they communicate.
    """
    for waiting, rank, frames in _list_absent(finding, parted):
        for file, line, _ in frames:
            source = script_at(file)
            scope = source.scope(line) if source is not None else None
            if not isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            reason = _find_left(parted, waiting, rank, (file, scope.lineno, line - 1))
            if reason is not None:
                return reason
    return None


def _find_past(finding: Finding, parted: DecidedParting) -> Reason | None:
    """Return the loop or `if` around a collective in which one rank waits and another went past.

    It came there as often, and made fewer turns or took the other way: it will not come any more.
    """
    tallies = parted.tallies(whole=True)
    for waiting, rank, _ in _list_absent(finding, parted):
        for file, line, _ in parted.records[waiting].items[-1].place.frames:
            script = script_at(file)
            if script is None:
                continue
            for node, part in script.find_statements(line):
                reason = _tell_past(parted, tallies, (node, part, file), waiting, rank)
                if reason is None:
                    continue
                by_rank = isinstance(node, ast.If) and script.tests_rank(node.test, node.lineno)
                return (reason[0], finding.fix) if by_rank and finding.fix else reason
    return None


def _tell_past(
    parted: DecidedParting,
    tallies: Tallies,
    around: tuple[ast.stmt, str, str],
    waiting: int,
    rank: int,
) -> Reason | None:
    """Return why one rank is past the loop or the branch in which another waits.

    None where no decision tells. `around` is the statement about the call that waits, which of its
    parts holds the call, and its file.
    """
    node, part, file = around
    is_loop = isinstance(node, ast.For)
    if not is_loop and not (isinstance(node, ast.If) and part in {"body", "orelse"}):
        return None
    line = node.test.lineno if isinstance(node, ast.If) else node.lineno
    kind = "for" if is_loop else "if"
    for decision, own in tallies.items():
        if (decision.kind, decision.file, decision.line) != (kind, file, line):
            continue
        mine, others = own[waiting], own[rank]
        taken = (mine.yes, others.yes) if part == "body" else (mine.no, others.no)
        came = (mine.no, others.no) if is_loop else (mine.yes + mine.no, others.yes + others.no)
        if came[1] < came[0] or taken[1] >= taken[0]:
            continue
        place = parted.place(decision)
        if is_loop:
            words = f"the loop `{decision.text}` ({place}) has more turns on some ranks: "
            words += list_times({waiting: taken[0], rank: taken[1]})
            fix = (
                f"give every rank the same number of turns of the loop at {place}: let it go "
                "over the same items on all ranks."
            )
        else:
            way = "into" if part == "body" else "into the `else` of"
            words = f"{ranks_text([rank])} does not go {way} `{decision.text}` ({place})"
            words += f", under which rank {waiting} is"
            fix = f"decide `{decision.text}` ({place}) the same way on all ranks of the group."
        return Clause(words), fix
    return None


def _find_over(parted: DecidedParting, waiting: int, rank: int, what: str) -> Reason | None:
    """Return the loop in which a rank received, and that it has left after fewer turns.

    The other rank sends in a loop of more turns, and both wait for each other to receive.
    """
    ends = _find_blocked(parted, waiting, rank) if what == "receive" else None
    if ends is None:
        return None
    until, left_at = ends
    own = [each for each in _messages(parted, rank, what, waiting - rank) if each[0] < left_at]
    calls = parted.records[waiting].items[until], parted.records[rank].items[left_at]
    outer = loop_of(calls[0].place.frames, [])
    inner = loop_of(own[-1][1].place.frames, []) if own else None
    span = _span(inner[2], inner[1]) if inner is not None else None
    if inner is None or outer is None or span is None or inner[1:] == outer[1:]:
        return None
    if _is_inside(calls[1].place.frames, inner[2], span):
        return None  # it is still in the loop, and waits there
    few = _count_turns(parted.records[rank], inner, left_at)
    many = _count_turns(parted.records[waiting], outer, until)
    return _tell_over(parted, (rank, inner, few), (waiting, outer, many))


def _find_longer(parted: DecidedParting, waiting: int, rank: int, what: str) -> Reason | None:
    """Return the loop in which a rank sent or received, and that it has left for good.

    The other rank waits for one message more, in a loop of its own that has more turns.
    """
    own = _messages(parted, rank, what, waiting - rank)
    other = "receive" if what == "send" else "send"
    ends = _messages(parted, waiting, other, rank - waiting)
    if not 0 < len(own) < len(ends):
        return None
    until, call = ends[len(own)]
    inner, outer = (loop_of(each.place.frames, []) for each in (own[-1][1], call))
    span = _span(inner[2], inner[1]) if inner is not None else None
    if inner is None or outer is None or span is None or inner[1:] == outer[1:]:
        return None
    record = parted.records[rank]
    if _ends_inside(record, inner[2], span):
        return None
    few = _count_turns(record, inner, len(record.items))
    many = _count_turns(parted.records[waiting], outer, until)
    return _tell_over(parted, (rank, inner, few), (waiting, outer, many))


#: a loop by its text, its line and its file
_Loop: TypeAlias = tuple[str, int, str]


def _tell_over(
    parted: DecidedParting, over: tuple[int, _Loop, int], waits: tuple[int, _Loop, int]
) -> Reason | None:
    """Return that a rank has left its loop, and that another one takes more turns of its own."""
    (rank, inner, few), (waiting, outer, many) = over, waits
    if not 0 < few < many:
        return None
    at, there = (place_at(each[2], each[1], parted.folder) for each in (inner, outer))
    words = (
        f"rank {rank} has taken its loop `{inner[0]}` ({at}) {times(few)} and left it, rank "
        f"{waiting} takes its own, `{outer[0]}` ({there}), {times(many)}"
    )
    bound = _tell_bound((inner[2], inner[1]), parted.folder)
    fix = f"let one rank take as many turns of the loop at {at} as the other takes at {there}"
    fix += f": look at {bound}, which sets how many turns {at} has." if bound else "."
    return Clause(words + (f"; {bound} sets the turns of the first" if bound else "")), fix


def _find_blocked(parted: DecidedParting, one: int, other: int) -> tuple[int, int] | None:
    """Return the items of two ranks that send to each other while neither receives.

    The messages of a pair meet in order. Fake ranks go on behind where they would be stuck.
    """
    sent = {
        (one, other): _messages(parted, one, "send", other - one),
        (other, one): _messages(parted, other, "send", one - other),
    }
    taken = {
        (one, other): [at for at, _ in _messages(parted, other, "receive", one - other)],
        (other, one): [at for at, _ in _messages(parted, one, "receive", other - one)],
    }
    for number, (mine, _) in enumerate(sent[one, other]):
        before = sum(at < mine for at in taken[other, one])
        for back, (its, _) in enumerate(sent[other, one][before : before + 1], before):
            if sum(at < its for at in taken[one, other]) == number and back == before:
                return mine, its
    return None


def _count_turns(record: RankRecord, loop: tuple[str, int, str], until: int) -> int:
    """Return how many turns of a loop a rank has made, up to an item of its record."""
    _, line, file = loop
    return sum(
        way.yes
        for way in record.ways
        if (way.decision.file, way.decision.line) == (file, line) and way.before <= until
    )


def _span(file: str, line: int) -> tuple[int, int] | None:
    """Return the first and last line of the loop whose head is in a line."""
    source = script_at(file)
    return source.loop(line) if source is not None else None


def _is_inside(frames: Sequence[tuple[str, int, str]], file: str, span: tuple[int, int]) -> bool:
    return any(each == file and span[0] <= line <= span[1] for each, line, _ in frames)


def _ends_inside(record: RankRecord, file: str, span: tuple[int, int]) -> bool:
    """Whether a rank was inside of lines when its record ended."""
    last = record.items[-1] if record.items else None
    return last is not None and record.inside and _is_inside(last.place.frames, file, span)


def _answer(parted: DecidedParting, waiting: int, rank: int, what: str) -> Reason | None:
    """Return the `if` under which a rank would send or receive, and which it does not take.

    It is around the line from which the rank did so before, else around that of a rank that does so
    at the same distance, else around any line that could.
    """
    own = _messages(parted, rank, what, waiting - rank)
    if own:
        since, call = own[-1]
        known = _find_branch(parted, rank, what, call.choice_frames, since=since)
        return (
            _find_never_taken(parted, rank, what, since)
            or known
            or _passed_by(parted, rank, what, waiting, since, call.choice_frames)
            or _skipped(parted, rank, what, call.choice_frames)
        )
    others = [
        call.choice_frames
        for other in parted.ranks
        if other != rank
        for _, call in _messages(parted, other, what, waiting - rank)[:1]
    ]
    found = (_find_branch(parted, rank, what, frames) for frames in others)
    return (
        next(filter(None, found), None)
        or _find_never_reached(parted, waiting, rank, what)
        or _explain_distance(parted, waiting, rank, what)
    )


def _find_never_reached(
    parted: DecidedParting, waiting: int, rank: int, what: str
) -> Reason | None:
    """Return the loop in which a rank sends to others, or receives from them, and not from one.

    A server goes over its workers, and one of them waits that the loop never comes to.
    """
    if _messages(parted, rank, what, waiting - rank):
        return None
    reached: dict[_Loop, set[int]] = {}
    for call in parted.records[rank].calls:
        if call.operation == _OPERATIONS[what] and call.peer is not None:
            loop = loop_of(call.choice_frames, [])
            targets = loop[0].partition(" in ")[0] if loop is not None else ""
            peer = re.findall(r"\w+", find_peer(call, parted.folder)[0])
            if loop is not None and {*peer} & {*re.findall(r"\w+", targets)} - {"for"}:
                reached.setdefault(loop, set()).add(call.peer)
    if not reached:
        return None
    (text, line, file), peers = next(iter(reached.items()))
    place = place_at(file, line, parted.folder)
    words = (
        f"rank {rank} {what}s in the loop `{text}` ({place}), which reaches "
        f"{ranks_text(sorted(peers))} and not to rank {waiting}"
    )
    held, chosen = tell_filled(parted, (file, line), [rank])
    if held:
        fix = f"let rank {rank} go into {chosen} too, or let rank {waiting} not wait for it."
        return Clause(f"{words}; {held}"), fix
    fix = (
        f"let the loop at {place} reach rank {waiting} as well; if it is meant to leave that rank "
        f"out, remove the call in which rank {waiting} waits."
    )
    return Clause(words), fix


def _passed_by(
    parted: DecidedParting, rank: int, what: str, waiting: int, since: int, before: Frames
) -> Reason | None:
    """Return the `if` around where the other rank waits, which this one decides otherwise.

    One in whose other part this rank did so `before` deals the parts, as those of a pipeline.
    """
    other = "receive" if what == "send" else "send"
    ends = _messages(parted, waiting, other, rank - waiting)
    last = ends[-1][1] if ends else parted.records[waiting].items[-1]
    frames = last.choice_frames if isinstance(last, RecordedCall) else last.place.frames
    own = {(way.decision.file, way.decision.line): way for way in parted.records[waiting].ways}
    for file, line, _ in frames:
        source = script_at(file)
        for node, name in source.find_statements(line) if source is not None else ():
            at = (file, node.test.lineno) if isinstance(node, ast.If) else (file, 0)
            way = own.get(at)
            if any(path == file and _is_other_part(node, name, past) for path, past, _ in before):
                continue
            if frames[0] == (file, line, frames[0][2]) and not _able(node, name, what):
                continue  # it leads to what the other rank does there, and to no answer
            if way is not None and not (way.no if name == "body" else way.yes):
                return _find_branch(parted, rank, what, frames, since=since, again=False)
    return None


def _able(node: ast.stmt, name: str, what: str) -> bool:
    """Whether a part of a statement may send, or receive: its text, or what a framework does."""
    part = getattr(node, name, []) if name in {"body", "orelse"} else []
    texts = [ast.unparse(each) for each in part]
    able = {each for each, call in _CALLS.items() if any(map(call.search, texts))}
    return what in able or not able


def _is_other_part(node: ast.stmt, name: str, line: int) -> bool:
    """Whether a line is in the other part of an `if` than the one of a name."""
    part = getattr(node, "orelse" if name == "body" else "body", []) if name else []
    return isinstance(node, ast.If) and any(has_line(each, line) for each in part)


def _skipped(parted: DecidedParting, rank: int, what: str, frames: Frames) -> Reason | None:
    """Return the `if` around a line that a rank came to, and at times went past."""
    own: dict[tuple[str, int], list[BranchTaken]] = {}
    for way in parted.records[rank].ways:
        own.setdefault((way.decision.file, way.decision.line), []).append(way)
    for file, line, _ in frames:
        source = script_at(file)
        for node, name in source.find_statements(line) if source is not None else ():
            ways = own.get((file, node.test.lineno), []) if isinstance(node, ast.If) else []
            past = [each for each in ways if (each.no if name == "body" else each.yes)]
            if past:
                tally = Tally(yes=past[0].yes, no=past[0].no)
                clause, fix = _report_branch(parted, rank, what, past[0].decision, name, tally)
                count = sum(each.no if name == "body" else each.yes for each in ways)
                return Clause(f"{clause.words}, {times(count)}"), fix
    return None


def _messages(
    parted: DecidedParting, rank: int, what: str, distance: int
) -> list[tuple[int, RecordedCall]]:
    """Return the messages of a rank to, or from, the one at a distance, with where each is."""
    return [
        (at, item)
        for at, item in enumerate(parted.records[rank].items)
        if isinstance(item, RecordedCall)
        and item.operation == _OPERATIONS[what]
        and item.peer is not None
        and item.peer - rank == distance
    ]


def _find_branch(
    parted: DecidedParting,
    rank: int,
    what: str,
    frames: Frames,
    *,
    since: int = -1,
    again: bool | None = None,
) -> Reason | None:
    """Return the innermost `if` around a line that a rank decides otherwise, from an item on."""
    taken: dict[tuple[str, int], list[BranchTaken]] = {}
    for way in parted.records[rank].ways:
        if way.before > since:
            taken.setdefault((way.decision.file, way.decision.line), []).append(way)
    for file, line, _ in frames:
        source = script_at(file)
        for node, name in source.find_statements(line) if source is not None else ():
            ways = taken.get((file, node.test.lineno), []) if isinstance(node, ast.If) else []
            yes, no = sum(each.yes for each in ways), sum(each.no for each in ways)
            if (yes or no) and not (yes if name == "body" else no):
                tally = Tally(yes=yes, no=no, values=ways[-1].values)
                again = since >= 0 if again is None else again
                return _report_branch(
                    parted, rank, what, ways[-1].decision, name, tally, again=again
                )
    return None


def _find_never_taken(parted: DecidedParting, rank: int, what: str, since: int) -> Reason | None:
    """Return the first `if` that a rank came to after a message, and under which it never sent.

    One that asks for the rank deals the parts: its other part is the one of this rank.
    """
    tallies = parted.tallies(whole=True)
    for way in parted.records[rank].ways:
        source = script_at(way.decision.file)
        node = source.condition(way.decision.line) if source is not None else None
        if way.before <= since or way.decision.kind != "if" or source is None or node is None:
            continue
        tally = tallies.get(way.decision, {}).get(rank)
        parts = [] if tally is None else [*_branches(node, tally.yes, tally.no)]
        able = [part for part in parts if _CALLS[what].search(part[1])]
        if not able:
            continue
        name, text, taken = able[0]
        if source.names_rank(way.decision.line) or len(able) > 1 or (taken and "if " in text):
            continue  # an inner one decides
        if taken or tally is None:
            return None  # the first one is the one that it takes at times
        return _report_branch(parted, rank, what, way.decision, name, tally)
    return None


def _explain_distance(parted: DecidedParting, waiting: int, rank: int, what: str) -> Reason | None:
    """Return the `if` under which a rank waits for another one that is further than any answers.

    It is as likely to be wrong as the one under which the other rank could answer: both are named.
    """
    guess = _find_branch_by_text(parted, rank, what)
    apart = parted.tallies(whole=True)
    alike = {
        (each.file, each.line)
        for each in parted.tallies(whole=True, alike=True)
        if each not in apart
    }
    other = "receive" if what == "send" else "send"
    for _, call in _messages(parted, waiting, other, rank - waiting)[-1:]:
        for file, line, _ in call.made_at.frames:
            source = script_at(file)
            node = next(
                (
                    node
                    for node, name in (source.find_statements(line) if source is not None else ())
                    if isinstance(node, ast.If) and name in {"body", "orelse"}
                    if (file, node.test.lineno) not in alike and not _is_of_module(node)
                ),
                None,
            )
            if node is None or source is None:
                continue
            text = source.text(node.lineno)
            place = source.place(node.lineno, parted.folder)
            words = (
                f"rank {waiting} makes this message at {call.made_at.short(parted.folder)}, under "
                f"`{text}` ({place}), and no rank {what}s over that distance"
            )
            fix = (
                f"let rank {waiting} not {other} there ({place}), or let rank {rank} {what} too: "
                "each message needs a rank at both ends."
            )
            return Clause(f"{words}; {guess[0].words}" if guess else words), fix
    return guess


def _is_of_module(node: ast.If) -> bool:
    """Whether an `if` asks whether a file is run as a script, which all ranks answer alike."""
    return any(isinstance(each, ast.Name) and each.id == "__name__" for each in ast.walk(node.test))


def _find_branch_by_text(parted: DecidedParting, rank: int, what: str) -> Reason | None:
    """Return an `if` whose text has a call that sends or receives, and that a rank never takes."""
    for decision, own in parted.tallies(whole=True).items():
        source = script_at(decision.file)
        node = source.condition(decision.line) if source is not None else None
        if decision.kind != "if" or node is None:
            continue
        mine = own[rank]
        for name, part, taken in _branches(node, mine.yes, mine.no):
            if not taken and (mine.yes or mine.no) and _CALLS[what].search(part):
                return _report_branch(parted, rank, what, decision, name, mine)
    return None


def _report_branch(
    parted: DecidedParting,
    rank: int,
    what: str,
    decision: Decision,
    name: str,
    tally: Tally,
    *,
    again: bool = False,
) -> Reason:
    """Return that a rank does not go into a branch in which it would send or receive."""
    place = parted.place(decision)
    way = "into" if name == "body" else "into the `else` of"
    values = list_values(decision, {rank: tally})
    clause = Clause(
        f"{ranks_text([rank])} does not go {way} `{decision.text}` ({place}){' again' * again}, "
        f"where it would {what}" + (f"; {values}" if values else "")
    )
    fix = (
        f"let rank {rank} {what} too ({place}), or let the other rank not wait for it: each "
        "message needs a rank at both ends."
    )
    return clause, fix


def _branches(node: ast.If | ast.IfExp, yes: int, no: int) -> Iterator[tuple[str, str, int]]:
    """Yield the parts of a condition: its name, its text, and how often a rank took it."""
    for name, taken in (("body", yes), ("orelse", no)):
        part = getattr(node, name)
        nodes = part if isinstance(part, list) else [part]
        yield name, "\n".join(ast.unparse(each) for each in nodes), taken


def explain_anyone(finding: Finding, records: Mapping[int, RankRecord], folder: str) -> Finding:
    """Return a finding that a program is stuck, with the receive from anyone that has no sender."""
    is_stuck = finding.diagnosis is None and "deadlock" in finding.prose
    is_unmatched = finding.diagnosis == "unmatched_recv" and any(
        "from anyone" in f"{each.words} {each.rest}" for each in finding.notes
    )
    if not is_stuck and not is_unmatched:
        return finding
    for rank, record in sorted(records.items()):
        last = record.calls[-1] if record.calls else None
        if last is None or last.operation != "recv" or last.peer is not None:
            continue
        taken = sum(
            each.operation == "recv" and each.place == last.place for each in record.calls[:-1]
        )
        clauses = [
            Clause(
                f"rank {rank} has received {times(taken)} at {last.place.short(folder)}, and waits "
                "there for one message more"
            )
        ]
        clauses += [
            Clause(f"rank {other} has sent to it {times(count)}, and is {where}")
            for other, each in sorted(records.items())
            if other != rank
            for count, where in [_sent(each, rank, folder)]
        ]
        fix = f"let rank {rank} receive as often as the others send to it"
        loop = loop_of(last.place.frames, [])
        skipped = _find_unsent(records, rank, folder)
        if skipped is not None:
            clauses, fix = [skipped[0], *clauses], skipped[1].removesuffix(".")
        elif loop is not None:
            text, line, file = loop
            fix += f": look at the turns of `{text}` ({place_at(file, line, folder)})"
        return replace(
            finding,
            code="diagnosis_undeclared",
            diagnosis="unmatched_recv",
            prose=f"rank {rank} receives from anyone, and no rank sends to it any more",
            notes=tuple(clauses),
            ranks=(rank,),
            fix=f"{fix}.",
            help=(f"{fix}.",),
        )
    return finding


def find_anyone(records: Mapping[int, RankRecord], folder: str) -> Finding | None:
    """Return the receive from anyone that fake ranks stand at, none of which goes on; or None."""
    is_fake = all(each.about.get("mode") == "fake" for each in records.values())
    if not is_fake or not all(each.inside or not each.truncated for each in records.values()):
        return None
    words = "the outcome is a deadlock"
    stuck = Finding(witness="program", code="outcome_differs", prose=words, name="outcome")
    found = explain_anyone(stuck, records, folder)
    return found if found.diagnosis is not None else None


def _find_unsent(records: Mapping[int, RankRecord], rank: int, folder: str) -> Reason | None:
    """Return the `if` past which one of those went that have sent to a rank the least."""
    counts = {other: _sent(each, rank, folder)[0] for other, each in records.items()}
    counts.pop(rank)
    parted = DecidedParting(Parting(group="", at=0, calls={}, missing=(*records,)), records, folder)
    for other in (each for each in sorted(counts) if counts[each] < max(counts.values())):
        sent = _messages(parted, other, "send", rank - other)
        known = sent or next(
            (
                own
                for each in sorted(counts)
                if (own := _messages(parted, each, "send", rank - each))
            ),
            [],
        )
        for _, call in known[-1:]:
            reason = _skipped(parted, other, "send", call.choice_frames)
            if reason is not None:
                return reason
    return None


def _sent(record: RankRecord, rank: int, folder: str) -> tuple[int, str]:
    """Return how often a rank has sent to another one, and where it is."""
    count = sum(each.operation == "send" and each.peer == rank for each in record.calls)
    last = record.items[-1] if record.items else None
    place = last.place.short(folder) if last is not None and hasattr(last, "place") else ""
    what = last.operation if isinstance(last, RecordedCall) else "its last call"
    where = f"{'in' if record.inside else 'past'} {what}" + (f" ({place})" if place else "")
    return count, where
