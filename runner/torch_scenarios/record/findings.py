"""What is found in a record, in the words of a person who wrote a script and states nothing.

Ranks that are *out of step* have come to different calls of the script, which meet because a
group's collectives match by their order alone::

    rank 0   all_reduce :11   all_reduce :11   all_reduce :11
    rank 1   all_reduce :11   all_reduce :18   <- it has left the loop

That the two differ in dtype and in shape says nothing: it is one finding, of the two lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from torch_scenarios.display import short
from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.frame import Maker
from torch_scenarios.record.evidence.procedure import PREFIX
from torch_scenarios.record.evidence.reasons import find_endless_loop
from torch_scenarios.record.format import (
    MESSAGES,
    NOT_OWN,
    BlockingCall,
    JoinedProgram,
    RankRecord,
    RecordedCall,
    RecordedWait,
    ScriptPlace,
    names_dead_worker,
    names_lost_peer,
)
from torch_scenarios.verdict import Finding, Verdict
from torch_scenarios.verdict.finding import among_text, ranks_text
from torch_scenarios.vocabulary import DIAGNOSES, DISAGREEMENTS

#: findings that say how the program ends: where a diagnosis says why, they say nothing more
_ENDINGS = frozenset({"outcome_differs", "blocked_differs"})
#: diagnoses that say in which order a rank comes to its calls
_ORDERS = frozenset({"group_order", "circular_wait"})

OUT_OF_STEP = "the ranks are out of step: calls of different lines meet in one operation"
#: what torch says of a rank of the world that a group does not have
_NOT_A_MEMBER = re.compile(r"Global rank (\d+) is not part of group")
#: what torch says of a list that one rank alone passes: its argument, and whether that rank is it
_OF_THE_ROOT = re.compile(
    r"Argument ``(\w+)`` must (?:NOT )?be specified on (?:non-)?(source|destination) rank"
)
#: the argument of a call that names one rank, and its rank
_ARGUMENT = re.compile(r"\b(dst|src|global_rank)\s*=")
#: calls whose one rank is that which others receive from
_FROM_ONE = re.compile(r"\b(?:broadcast|scatter|i?recv)\w*\(")


def verdict_on_records(
    verdict: Verdict, records: Mapping[int, RankRecord], folder: str = ""
) -> Verdict:
    """Return the verdict in the words of a person who wrote a script, and states nothing of it.

    `folder` is the one that places are relative to.

    The analysis finds each thing that is wrong, and a script has one mistake: ranks out of step, a
    wrong mesh or a loop's body each give many findings, of which the first is reported and the rest
    counted.
    """
    verdict = _leave_out_assumed(verdict, records)
    findings = [each for each in verdict.findings if each.code == "diagnosis_undeclared"]
    findings = findings or [each for each in verdict.findings if each.code in _ENDINGS]
    rest = [
        each
        for each in verdict.findings
        if each.code != "diagnosis_undeclared" and each.code not in _ENDINGS
    ]
    lines = []
    apart = _join_line(_join_mistake(_list_findings(findings, records, folder)))
    for finding in (*apart, *rest):
        prose, more = finding.prose, finding.help
        fix = finding.fix
        if finding.diagnosis == "circular_wait":
            fix = _fix_ring(finding)
        elif finding.diagnosis == "shape_mismatch":
            fix = fix or _fix_shapes(finding, records)
        elif finding.diagnosis == "invalid_argument":
            fix = fix or _REFUSED
        if finding.diagnosis is not None:
            more = (*filter(None, (fix,)), *more[:1])
        elif finding.code in _ENDINGS:
            prose = prose.partition("; you expect")[0]
        lines.append(replace(finding, witness="program", prose=prose, help=more, fix=fix))
    lines += _find_strays(records, folder)
    causes, results = _endings(records, lines, folder)
    if any(record.strays for record in records.values()):
        verdict = replace(verdict, status="FAILED")
    if causes or results:
        lines = [*causes, *(each for each in lines if each.code != "outcome_differs"), *results]
        verdict = replace(verdict, status="FAILED")
    warnings = tuple(
        each for each in verdict.warnings if each.code not in {"truncated", "outcome_open"}
    )
    verdict = replace(verdict, findings=tuple(lines), warnings=warnings)
    return _keep_diagnoses(verdict, {each.diagnosis for each in findings}, lines)


#: what helps where torch refuses a call
_REFUSED = (
    "correct the argument in this line: torch refuses the call at once, before anything is "
    "communicated."
)


def _keep_diagnoses(verdict: Verdict, before: set[str | None], told: Sequence[Finding]) -> Verdict:
    """Return a verdict that predicts those diagnoses alone that are told."""
    left_out = before - {each.diagnosis for each in told}
    if verdict.predicted is None or not left_out:
        return verdict
    kept = tuple(each for each in verdict.predicted.diagnoses if each.name not in left_out)
    return replace(verdict, predicted=replace(verdict.predicted, diagnoses=kept))


def _leave_out_assumed(verdict: Verdict, records: Mapping[int, RankRecord]) -> Verdict:
    """Return a verdict without what rests on the order of calls of a rank that was not recorded.

    Of such a rank it is known which collectives it took part in, and not in what order it came to
    those of several groups.
    """
    doubtful = {
        each.diagnosis
        for each in verdict.findings
        if each.diagnosis in _ORDERS and not records.keys() >= set(each.ranks)
    }
    if not doubtful:
        return verdict
    findings = tuple(each for each in verdict.findings if each.diagnosis not in doubtful)
    if all(each.code in _ENDINGS for each in findings):
        findings = ()
    predicted = verdict.predicted
    if predicted is not None:
        left = tuple(each for each in predicted.diagnoses if each.name not in doubtful)
        predicted = replace(predicted, diagnoses=left)
    status = verdict.status if findings else "PASSED"
    return replace(verdict, status=status, findings=findings, predicted=predicted)


# -------------------------------------------------------------------------------------------------
# Ranks that are out of step.

#: the calls of ranks that meet in one operation of a group
_Meeting: TypeAlias = dict[int, RecordedCall]


class _Parting(Struct, frozen=True, kw_only=True):
    """Where ranks of a group come to be out of step: their calls, and the place of each.

    ranks 0, 2, 3   all_reduce (train.py:11)     sides: [1] at train.py:18
    rank 1          all_reduce (train.py:18)            [0, 2, 3] at train.py:11
    """

    calls: _Meeting
    places: dict[int, str]

    @property
    def sides(self) -> list[tuple[list[int], str]]:
        """The ranks at each place, the fewest first."""
        found: dict[str, list[int]] = {}
        for rank, place in sorted(self.places.items()):
            found.setdefault(place, []).append(rank)
        return sorted(((who, at) for at, who in found.items()), key=lambda each: len(each[0]))


def _list_findings(
    findings: Sequence[Finding], records: Mapping[int, RankRecord], folder: str
) -> Iterator[Finding]:
    """Yield the findings; of calls of different lines that meet one alone, and nothing after it."""
    partings = [
        _find_parting(each, records, folder)
        if each.diagnosis in {*DISAGREEMENTS, "call_mismatch"}
        else None
        for each in findings
    ]
    apart = [each for each in partings if each is not None]
    parted: list[tuple[_Parting, list[Finding]]] = []
    found: list[Finding | tuple[_Parting, list[Finding]]] = []
    for finding, parting in zip(findings, partings, strict=True):
        ranks = set(finding.ranks)
        if finding.diagnosis == "missing_participant" and any(
            ranks <= each.calls.keys() for each in apart
        ):
            continue  # who is out of step does not come to what the others do next
        same = next((names for each, names in parted if each == parting), None)
        if parting is None:
            found.append(finding)
        elif same is not None:
            same.append(finding)
        else:
            parted.append((parting, [finding]))
            found.append(parted[-1])
    whole = [
        each if isinstance(each, Finding) else _report_parting(*each, records, folder)
        for each in found
    ]
    yield from _join_race(whole, records, folder)


def _join_race(
    findings: Sequence[Finding], records: Mapping[int, RankRecord], folder: str
) -> Iterator[Finding]:
    """Yield the findings; of those of a group in which threads of a rank race the first alone.

    Which calls meet there is a matter of time: the advice is about the threads.
    """
    races = [_find_race(each, records, folder) for each in findings]
    first = next((at for at, rank in enumerate(races) if rank is not None), None)
    for at, (finding, rank) in enumerate(zip(findings, races, strict=True)):
        if rank is None:
            yield finding
        elif at == first:
            names = dict.fromkeys(
                str(each.diagnosis)
                for each, other in zip(findings[at + 1 :], races[at + 1 :], strict=True)
                if other is not None
            )
            after = f"what they call after it meets at random: {', '.join(names)}"
            more = (Clause(after),) if names else ()
            threads = [e for e in _tell_threads(records[rank], folder) if e not in finding.notes]
            notes = (*threads, *finding.notes, *more)
            yield replace(finding, notes=notes, fix=_fix_race(records[rank], folder))


def _tell_threads(record: RankRecord, folder: str) -> list[Clause]:
    """Return where the threads of a rank communicate that race in one group."""
    group = record.racing_group
    last = {
        each.thread: each.place.short(folder)
        for each in record.calls
        if each.group_name == group and each.maker != Maker.BACKWARD
    }
    if len(last) < 2:
        return []
    places = " and ".join(dict.fromkeys(last.values()))
    return [Clause(f"two threads of rank {record.rank} communicate in one group: {places}")]


def _find_race(finding: Finding, records: Mapping[int, RankRecord], folder: str) -> int | None:
    """Return a rank whose threads race in the group of a finding; None where none does.

    Where the main thread waits for the other one in the end, they do where calls of one line meet.

    A collective has no name: which of two threads comes first decides which call of the other ranks
    it meets. So each thread needs a group of its own.
    """
    if finding.diagnosis not in {*DISAGREEMENTS, "call_mismatch", "missing_participant"}:
        return None
    marked = {each.mark.at for each in finding.notes if each.mark is not None and each.mark.at}
    for rank in finding.ranks:
        record = records.get(rank)
        if record is None or not (record.racing or (record.racing_group and len(marked) == 1)):
            continue
        group = record.racing_group
        if any(c.group_name == group and c.place.short(folder) in marked for c in record.calls):
            return rank
    return None


def _fix_race(record: RankRecord, folder: str) -> str:
    """Return what mends threads of a rank that race; a checkpoint has one of torch's own."""
    saves = (
        _line(call.place.short(folder))
        for call in record.calls
        if call.place.frames and _SAVES.search(call.place.frames[0][2])
    )
    where = next(saves, "")
    own = f" (`process_group=` of `async_save`, {where})" if where else ""
    return (
        f"two threads of rank {record.rank} communicate in one group, and which of them comes "
        f"first is a matter of time: give each thread a group of its own{own}, or let one thread "
        "make all calls."
    )


#: a line that saves a checkpoint in a thread of torch's own
_SAVES = re.compile(r"\basync_save\(")


def _find_parting(
    finding: Finding, records: Mapping[int, RankRecord], folder: str
) -> _Parting | None:
    """Return where the ranks of a finding come to be out of step; None where they do not.

    They do where calls of different lines meet that never met before, and these are no two ways to
    one operation (as `if rank == 0: broadcast(...)`, `else: broadcast(...)`): a rank that makes
    both is at another point of its program, and so is one in `backward()`, or in an `except`.
    """
    marked = {each.mark.at for each in finding.notes if each.mark is not None and each.mark.at}
    if len(marked) < 2:
        return None
    for matches in _matches(finding.ranks, records):
        together: set[frozenset[str]] = set()
        for calls in matches:
            places = {rank: call.place.short(folder) for rank, call in calls.items()}
            at = frozenset(places.values())
            if not marked <= at or len(set(map(_list_passed, calls.values()))) == 1:
                together.add(at)
                continue
            if any(at <= each for each in together):
                return None
            found = _Parting(calls=calls, places=places)
            return found if _is_elsewhere(found, records, folder) else None
    return None


def _matches(
    ranks: Sequence[int], records: Mapping[int, RankRecord]
) -> Iterator[Iterator[_Meeting]]:
    """Yield the calls of ranks that meet in their groups, group by group, in order.

    The n-th call of each member in a group is one operation, whatever it was meant to be.
    """
    found: dict[tuple[str, tuple[int, ...]], dict[int, list[RecordedCall]]] = {}
    for rank in ranks:
        record = records.get(rank)
        for call in record.calls if record is not None else ():
            if call.operation not in MESSAGES:
                assert record is not None
                name, members, _ = record.groups[int(call.group_name)]
                found.setdefault((name, members), {}).setdefault(rank, []).append(call)
    for (_, members), calls in found.items():
        if set(ranks) <= set(members):
            longest = max(map(len, calls.values()))
            yield (
                {rank: own[at] for rank, own in sorted(calls.items()) if at < len(own)}
                for at in range(longest)
            )


def _list_passed(call: RecordedCall) -> tuple[object, ...]:
    """Return what has to be the same of calls that meet.

    Operation, reduce op, root, dtypes and shapes.

    Of calls that agree in it nothing is known to be wrong, though they are of different lines.
    """
    tensors = tuple((each.dtype, each.shape) for each in call.inputs or call.outputs)
    return call.operation, call.op, call.root, tensors


def _is_elsewhere(parting: _Parting, records: Mapping[int, RankRecord], folder: str) -> bool:
    """Whether the calls that meet are no two ways to one operation.

        if rank == 0: broadcast(x, 0)     line 11 on rank 0, line 13 on the others:
        else: broadcast(y, 0)             two ways to one operation

    A rank that has made calls of both lines cannot be in one of two ways. Nor can one that is in
    `backward()`, or handles an error, while the others are not.
    """
    if len({call.maker == Maker.BACKWARD for call in parting.calls.values()}) > 1:
        return True
    if _find_handled(parting):
        return True
    met = set(parting.places.values())
    return any(
        len(met.intersection(call.place.short(folder) for call in records[rank].calls)) > 1
        for rank in parting.calls
    )


def _find_handled(parting: _Parting) -> dict[int, tuple[str, ScriptPlace]]:
    """Return the errors of their own that ranks handle while they make their calls.

    A rank in a `finally:` with a barrier comes to that barrier, while the others come to their next
    all_reduce. An error that says a peer is lost is not the rank's own.
    """
    return {
        rank: call.handled
        for rank, call in parting.calls.items()
        if call.handled is not None and not names_lost_peer(call.handled[0])
    }


def _report_parting(
    parting: _Parting,
    findings: Sequence[Finding],
    records: Mapping[int, RankRecord],
    folder: str,
) -> Finding:
    """Return the finding that ranks are out of step: what each side passes, with its place."""
    finding = findings[0]
    if finding.diagnosis == "op_mismatch":  # ranks go on from that, and not from another shape
        finding = next((each for each in findings if each.diagnosis != "op_mismatch"), finding)
    notes, prose = finding.notes, finding.prose
    if finding.diagnosis in DISAGREEMENTS:
        prose = OUT_OF_STEP
        notes = tuple(_tell_passing(parting, findings))
    handled = _find_handled(parting)
    fix = None  # that two operations differ has a page of its own
    if handled:
        rank, (words, place) = next(iter(handled.items()))
        where = place.short(folder)
        raised = f"{words} ({where})" if where else words
        fix = (
            f"rank {rank} handles {raised}: in a `finally` or `except` call nothing that waits for "
            "ranks without that error."
        )
    elif (own := _find_threads(parting, records, folder)) is not None:
        fix = _fix_race(records[own], folder)
        notes = (*_tell_threads(records[own], folder), *notes)
    elif finding.diagnosis in DISAGREEMENTS:
        (ranks, one), (others, other) = parting.sides[0], parting.sides[-1]
        fix = (
            f"find why {ranks_text(ranks)} {'comes' if len(ranks) == 1 else 'come'} to "
            f"{_line(one)} when {ranks_text(others)} {'comes' if len(others) == 1 else 'come'} to "
            f"{_line(other)} (a `return`, a condition, an error, data of another length), and let "
            "every rank make the same calls in the same order."
        )
    return replace(finding, prose=prose, notes=notes, fix=fix)


def _tell_passing(parting: _Parting, findings: Sequence[Finding]) -> Iterator[Clause]:
    """Yield where the ranks meet, and what each side passes: dtype and shape in one clause."""
    head, *sides = findings[0].notes
    marks = {each.mark.at: each.mark for each in findings[0].notes if each.mark is not None}
    if head.mark is not None or len(sides) != len(parting.sides):  # of several meetings
        for ranks, place in parting.sides:
            call = parting.calls[ranks[0]]
            verb = "passes" if len(ranks) == 1 else "pass"
            passed = ", ".join(f"{each.dtype} {list(each.shape)}" for each in call.inputs[:1])
            yield Clause(f"{ranks_text(ranks)} {verb} {passed}", marks.get(place))
        return
    yield replace(head, words=f"{head.words.partition(' with ')[0]} from other lines")
    found: dict[str, Clause] = {}
    first = findings[0].index, findings[0].iteration
    of_meeting = [each for each in findings if (each.index, each.iteration) == first]
    for clause in (each for finding in of_meeting for each in finding.notes[1:]):
        who, _, value = clause.words.replace(" passes ", " pass ", 1).partition(" pass ")
        before = found.get(who)
        found[who] = clause if before is None else replace(before, words=f"{before.words}, {value}")
    yield from found.values()


def _find_threads(parting: _Parting, records: Mapping[int, RankRecord], folder: str) -> int | None:
    """Return a rank that makes the calls of both sides, each in a thread of its own; or None."""
    met = set(parting.places.values())
    for rank in parting.calls:
        threads: dict[str, set[int]] = {}
        for call in records[rank].calls if records[rank].threaded else ():
            threads.setdefault(call.place.short(folder), set()).add(call.thread)
        own = [threads[place] for place in met if place in threads]
        if len(own) > 1 and not set.intersection(*own):
            return rank
    return None


def _line(place: str) -> str:
    """Return `train.py:19`, without what calls it."""
    return place.partition(" ")[0]


def _join_mistake(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the findings; of groups that ranks create apart the first: a wrong mesh has many."""
    found = list(findings)
    groups = [each for each in found if each.diagnosis == "group_creation"]
    for each in found:
        if each.diagnosis != "group_creation" or len(groups) == 1:
            yield each
        elif each is groups[0]:
            more = len(groups) - 1
            words = f"{more} more group{'s differ' if more > 1 else ' differs'} after it"
            yield replace(each, notes=(*each.notes, Clause(words)))


#: diagnoses that are one mistake where they are of one line
_OF_LINES = frozenset({*DISAGREEMENTS, "call_mismatch", "missing_participant", "missing_wait"})


def _list_lines(finding: Finding) -> frozenset[str]:
    """Return the lines of the script that a finding names."""
    return frozenset(
        _line(str(clause.mark.at))
        for clause in finding.notes
        if clause.mark is not None and clause.mark.at
    )


def _join_line(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the findings; of those of one kind in one line, as in a loop, the first alone."""
    found: dict[object, list[Finding]] = {}
    listed = [*findings]
    unwaited = {_list_lines(each) for each in listed if each.diagnosis == "missing_wait"}
    for at, each in enumerate(listed):
        places = _list_lines(each)
        if each.diagnosis == "buffer_race" and places in unwaited:
            continue  # who waits there touches nothing before
        is_alike = each.diagnosis in _OF_LINES
        key = (each.diagnosis, each.ranks, places) if places and is_alike else at
        found.setdefault(key, []).append(each)
    for alike in found.values():
        first, more = alike[0], len(alike) - 1
        words = f"{more} more operation{'s' * (more > 1)} of {'the same line' if more else ''}"
        after = f"{words} {'are' if more > 1 else 'is'} wrong after it"
        yield replace(first, notes=(*first.notes, Clause(after))) if more else first


#: what a shape that differs is due to, by what moves it: the words to find it by, and the advice
_SHAPES = (
    (
        re.compile(r"split sizes"),
        (
            "what a rank passes as `input_split_sizes` for another one, that one has to pass as "
            "`output_split_sizes` for it: exchange the sizes first (an `all_to_all_single`)."
        ),
    ),
    (re.compile(r"object_list"), "pass a list of as many objects on every rank."),
    (
        re.compile(r"backward\(|\.step\("),
        (
            "let every rank use the same parameters, of the same sizes, in its forward pass: what "
            "depends on the batch or the rank must not choose a layer."
        ),
    ),
)


#: a clause about one end of a message
_OF_MESSAGE = re.compile(r"in `i?(?:send to|recv from) \d+`")


def _fix_shapes(finding: Finding, records: Mapping[int, RankRecord]) -> str | None:
    """Return what mends shapes that differ, by what passes them; None where that is the shape."""
    if any(_OF_MESSAGE.search(each.words) for each in finding.notes):
        return None
    words = " ".join(finding.because)
    places = {each.mark.at for each in finding.notes if each.mark is not None and each.mark.at}
    for rank in finding.ranks:
        record = records.get(rank)
        for call in record.calls[-4:] if record is not None else ():
            if call.place.short().partition(" ")[0] in {_line(str(at)) for at in places}:
                words += " ".join(text for _, _, text in call.place.frames[:1])
    return next((advice for pattern, advice in _SHAPES if pattern.search(words)), None)


def _fix_ring(finding: Finding) -> str | None:
    """Return what mends a ring of a message and something else; None for any other ring.

    rank 0: send to 1, then recv    rank 1: send to 0, then recv    two messages
    rank 0: send to 1               rank 1: barrier                 a message and a collective
    """
    waits = [each.awaits for each in finding.notes if each.awaits is not None]
    messages = [each for each in waits if each.is_of_message]
    if len(waits) == len(messages) == 2 and all(each.act == "receive" for each in messages):
        return (
            "let one of the two receive before it sends, or begin the sends by `isend` (or both "
            "ways by `batch_isend_irecv`) and wait for them after the receives."
        )
    if len(waits) != 2 or len(messages) != 1:
        return None
    (message,) = messages
    (other,) = (each.call for each in waits if each is not message)
    way = "receive it from" if message.act == "receive" else "send it to"
    return (
        f"let rank {message.peer} {way} rank {message.rank} before its `{other}`, or leave that "
        "message out."
    )


# -------------------------------------------------------------------------------------------------
# How ranks ended, and where they stand.


#: what reads an object's size and bytes raises, where a fake rank gets those of another call
_OF_NO_DATA = re.compile(
    r"can't allocate memory|negative dimension|UnpicklingError|EOFError: Ran out of input"
)


#: what a rank raises that has got what is of another size, or no data at all
_OF_OTHER_DATA = re.compile(
    rf"{_OF_NO_DATA.pattern}|must match the size of tensor|invalid for input of size|size mismatch|"
    r"shapes cannot be multiplied|expects each tensor to be equal size|Sizes of tensors must match"
)


def _endings(
    records: Mapping[int, RankRecord], told: Sequence[Finding], folder: str
) -> tuple[list[Finding], list[Finding]]:
    """Return the findings that ranks raised, were killed, or left the others: their own words.

    Ranks that ended alike are one. Those that died in a call which a finding is about stand for
    themselves, behind it: a backend may abort where calls do not fit.

    Returned are causes, which come before what the calls show, and results, which come after it.
    """
    torn = any(record.truncated for record in records.values())
    alike: dict[tuple[str, str, str, bool], list[int]] = {}
    for rank, record in sorted(records.items()):
        ended = _tell_end(record, folder, torn=torn)
        if ended is not None:
            # what a rank gets where calls do not fit is no data, or other data; and the error of
            # another rank follows from that
            fake = record.about.get("mode") == "fake"
            is_other = (record.error or "").startswith(NOT_OWN)
            is_result = is_other or (
                (
                    fake
                    or (record.died is not None and record.inside)
                    or _OF_OTHER_DATA.search(record.error or "") is not None
                )
                and any(
                    (rank in each.ranks or _is_given_less(record, each))
                    and each.diagnosis in {*DISAGREEMENTS, "call_mismatch", "invalid_argument"}
                    for each in told
                )
            )
            also = [each for each in records.values() if each.error == record.error]
            fix = _fix_rank(record, folder, also) if ended[0] == "raise" else ""
            fix = fix or _fix_training(records)
            if not fix and record.died == "SIGKILL":
                fix = _KILLED + (_LESS_MEMORY if fake else "")
            alike.setdefault((*ended, fix, is_result), []).append(rank)
    causes: list[Finding] = []
    results: list[Finding] = []
    known: dict[str, tuple[int, ...]] = {}
    # a fake rank makes nothing of what another one that has raised would have sent
    is_fake = any(each.about.get("mode") == "fake" for each in records.values())
    has_cause = any(not _OF_NO_DATA.search(whole) for _, whole, *_ in alike)
    for (verb, whole, fix, is_result), ranks in alike.items():
        does = f"{verb}s" if len(ranks) == 1 else verb
        words = whole
        if is_fake and (is_result or has_cause) and _OF_NO_DATA.search(words):
            continue
        same = known.setdefault(whole[:MOST_ALIKE], tuple(ranks)) if fix else tuple(ranks)
        if same != tuple(ranks) and len(whole) > MOST_ALIKE:
            named = _NAMED.search(whole)
            words = f"the same as {ranks_text(list(same))}" + (f" {named[0]}" if named else "")
        (results if is_result else causes).append(
            Finding(
                witness="program",
                code="outcome_differs",
                prose=f"{among_text(ranks, len(records))} {does} {words}",
                ranks=tuple(ranks),
                name="outcome",
                fix=fix or None,
            )
        )
    return causes, results


def _is_given_less(record: RankRecord, finding: Finding) -> bool:
    """Whether a rank raises for the size of what it was given, and a message has another size.

    What one stage of a pipeline sends goes through the next one to those behind it.
    """
    is_of_message = any(_OF_MESSAGE.search(f"{e.words} {e.rest}") for e in finding.notes)
    takes = any(each.operation in MESSAGES for each in record.calls)
    is_size = _OF_OTHER_DATA.search(record.error or "") is not None
    return finding.diagnosis == "shape_mismatch" and is_of_message and takes and is_size


def find_forked(
    records: Mapping[int, RankRecord], forked: Mapping[int, ScriptPlace], folder: str
) -> Finding | None:
    """Return the finding that processes that ranks forked communicate in groups of theirs.

    A fork copies memory and one thread. The threads of Gloo and NCCL are not in the child, and its
    copies of the connections are those of its parent: both read from one socket.
    """
    ranks = [rank for rank in sorted(forked) if rank in records]
    if not ranks:
        return None
    clauses = dict.fromkeys(
        f"it communicates at {forked[rank].short(folder)}" for rank in ranks if forked[rank].frames
    )
    fix = (
        "communicate in the process of the rank alone: not in a worker of a loader "
        "(`num_workers=0`), nor in any other process that it forks."
    )
    return Finding(
        witness="program",
        code="outcome_differs",
        prose=(
            f"a process that {' or '.join(f'rank {rank}' for rank in ranks)} forked communicates "
            "in a group of the rank's: the threads and connections of the group stay with the rank"
        ),
        notes=tuple(map(Clause, clauses)),
        ranks=tuple(ranks),
        name="outcome",
        fix=fix,
        help=(fix,),
    )


def find_joined(
    records: Mapping[int, RankRecord], joined: Mapping[int, JoinedProgram], folder: str
) -> Finding | None:
    """Return the finding that programs of ranks join the job a second time, as these ranks."""
    ranks = [rank for rank in sorted(joined) if rank in records]
    if not ranks:
        return None
    clauses = []
    for rank in ranks:
        started = next((e for e in reversed(records[rank].changes) if e.what == "starts"), None)
        where = joined[rank].place.short(folder)
        words = f"it calls `init_process_group` at {where}" if where else ""
        by = started.place.short(folder) if started is not None else ""
        words += f"; rank {rank} has started it at {by}" if by else ""
        clauses.append(words.removeprefix("; "))
    fix = (
        "start the program without RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in its "
        "environment (`env=`), or let it call no `init_process_group`."
    )
    words = " or ".join(f"rank {rank}" for rank in ranks)
    return Finding(
        witness="program",
        code="outcome_differs",
        prose=(
            f"a program that {words} has started, `{joined[ranks[0]].command}`, joins the job in "
            "its place: it finds RANK and MASTER_ADDR in its environment, and meets ranks that "
            "have met already"
        ),
        notes=tuple(Clause(each) for each in dict.fromkeys(clauses) if each),
        ranks=tuple(ranks),
        name="outcome",
        fix=fix,
        help=(fix,),
    )


def find_locked(
    records: Mapping[int, RankRecord], locks: Mapping[int, tuple[int, str]], folder: str
) -> Finding | None:
    """Return the finding that a rank waits for a lock that one holds which waits for it in a call.

    `locks` says for a rank which other one holds the lock that it waits for, and on which file.
    """
    for rank, (holder, path) in sorted(locks.items()):
        record = records.get(holder)
        last = record.items[-1] if record is not None and record.items else None
        if record is None or not record.inside or not isinstance(last, RecordedCall):
            continue
        if rank not in last.group or last.operation in MESSAGES:
            continue
        where = last.place.short(folder)
        fix = (
            f"let rank {holder} give the lock back before it communicates ({where}): within a lock "
            "no rank may wait for another one."
        )
        return Finding(
            witness="program",
            code="diagnosis_undeclared",
            diagnosis="circular_wait",
            prose=DIAGNOSES["circular_wait"],
            notes=(
                Clause(f"rank {rank} waits for the lock on {path}, which rank {holder} holds"),
                Clause(f"rank {holder} waits in {last.operation} ({where}) for rank {rank}"),
            ),
            ranks=(rank, holder),
            name="outcome",
            fix=fix,
            help=(fix,),
        )
    return None


#: ranks that are named which wait for one in a loop
MOST_WAITING = 8


def find_turning(records: Mapping[int, RankRecord], home: str) -> Finding | None:
    """Return the finding that ranks turn for ever in a loop of their own; none by chance."""
    found = find_endless_loop(records, home)
    if found is None or any(each.turns_by_chance for each in records.values()):
        return None
    ranks, lines, fix = found
    waiting = [
        Clause(f"rank {each.rank} waits in {tell_position(each)}")
        for each in records.values()
        if each.inside and each.rank not in ranks
    ]
    return Finding(
        witness="program",
        code="diagnosis_undeclared",
        diagnosis="missing_participant",
        prose=DIAGNOSES["missing_participant"],
        notes=(*map(Clause, lines), *waiting[:MOST_WAITING]),
        ranks=tuple(ranks),
        name="outcome",
        fix=fix,
        help=(fix,),
    )


#: errors of a call that follow from the end of another rank, or from time
_FOLLOWS = re.compile(
    r"[Cc]onnection|reset by peer|[Bb]roken pipe|Read error|[Tt]imed? ?out|[Aa]bort|terminated|"
    r"pair\.cc|enforce fail"
)


def find_refused_call(records: Mapping[int, RankRecord], folder: str) -> Finding | None:
    """Return the finding that the backend refuses what a rank passes; None where none does.

    No scenario has what is wrong there, as that a tensor is a column of another one.
    """
    refused: dict[str, list[int]] = {}
    for rank, record in sorted(records.items()):
        last = record.items[-1] if record.items else None
        failed = last.failed if isinstance(last, RecordedCall) else None
        if failed and record.error and not _FOLLOWS.search(failed):
            where = f" ({last.place.short(folder)})" if last is not None else ""
            refused.setdefault(short(failed, MOST_ERROR) + where, []).append(rank)
    if not refused:
        return None
    words, ranks = next(iter(refused.items()))
    does = "raises" if len(ranks) == 1 else "raise"
    fix = None
    if "contiguous" in words:
        fix = (
            "send `x.contiguous()`, and receive into a tensor of its own that is copied to its "
            "place then: a column, or a transposed tensor, is not in one piece."
        )
    return Finding(
        witness="program",
        code="outcome_differs",
        prose=f"{among_text(ranks, len(records))} {does} {words}",
        ranks=tuple(ranks),
        name="outcome",
        fix=fix,
        help=(fix,) if fix else (),
    )


def find_left_in_rpc(records: Mapping[int, RankRecord], folder: str) -> Finding | None:
    """Return the finding that a rank waits in `rpc.shutdown` for ranks that have left without it.

    A `shutdown` that is graceful waits until every rank of the RPC world has come to one
    (https://docs.pytorch.org/docs/stable/rpc.html#torch.distributed.rpc.shutdown).
    """
    waiting = {
        rank: record.items[-1].place.short(folder)
        for rank, record in sorted(records.items())
        if record.inside and record.items and _is_shutdown(record.items[-1])
    }
    left = [
        rank
        for rank, record in sorted(records.items())
        if not record.truncated and _has_rpc(record) and not any(map(_is_shutdown, record.items))
    ]
    if not waiting or not left:
        return None
    where, ranks = next(iter(waiting.values())), ranks_text([*waiting])
    places = {rank: records[rank].left_at.short(folder) for rank in left}
    ways = [f"rank {rank} has left ({place})" for rank, place in places.items() if place]
    fix = (
        f"let {ranks_text(left)} call `rpc.shutdown()` before the end too, or let all ranks pass "
        "`graceful=False`."
    )
    verb = "waits" if len(waiting) == 1 else "wait"
    have = "has" if len(left) == 1 else "have"
    return Finding(
        witness="program",
        code="outcome_differs",
        prose=(
            f"{ranks} {verb} in `rpc.shutdown` ({where}) for {ranks_text(left)}, "
            f"which {have} left without it"
        ),
        notes=tuple(map(Clause, ways)),
        ranks=(*waiting, *left),
        name="outcome",
        fix=fix,
        help=(fix,),
    )


def _is_shutdown(item: object) -> bool:
    """Whether an item of a record is a call of `rpc.shutdown`."""
    return isinstance(item, BlockingCall) and item.what == f"{PREFIX}shutdown"


def _has_rpc(record: RankRecord) -> bool:
    """Whether a rank calls `torch.distributed.rpc`."""
    return any(
        isinstance(each, BlockingCall) and each.what.startswith(PREFIX) for each in record.items
    )


def tell_rpc(records: Mapping[int, RankRecord]) -> list[str]:
    """Return that remote procedure calls are recorded and not judged, where there are some."""
    if not any(map(_has_rpc, records.values())):
        return []
    return ["`torch.distributed.rpc` is used: where ranks wait in it is recorded, and not judged"]


def _find_strays(records: Mapping[int, RankRecord], folder: str) -> Iterator[Finding]:
    """Yield one finding of the messages and roots that name ranks that do not exist."""
    clauses: dict[str, int] = {}
    for rank, record in sorted(records.items()):
        for each in record.strays:
            way = "sends to" if each.is_sent else "receives from"
            does = f"{way} rank {each.peer}"
            if not each.is_message:
                does = f"names rank {each.peer} as the root of its {each.operation}"
            of = "the world" if len(each.group) == record.world_size else "its group"
            words = (
                f"rank {rank} {does} ({each.place.short(folder)}), "
                f"and {of} has ranks 0 to {len(each.group) - 1}"
            )
            clauses.setdefault(words, rank)
    if not clauses:
        return
    fix = (
        "a rank at the edge has no neighbour: let it leave that message out, or let the ranks be a "
        "ring (`(rank + 1) % world_size`)."
    )
    prose = "a message goes to a rank that does not exist, or comes from one"
    if not any(each.is_message for record in records.values() for each in record.strays):
        prose = "the root of a collective is a rank that does not exist"
        fix = "let `src` or `dst` be a rank of the group, also for the last item and the last rank."
    yield Finding(
        witness="program",
        code="diagnosis_undeclared",
        diagnosis="invalid_argument",
        prose=prose,
        notes=tuple(map(Clause, [*clauses][:MOST_NAMES])),
        ranks=tuple(dict.fromkeys(clauses.values())),
        name="outcome",
        fix=fix,
        help=(fix,),
    )


#: characters of an error that are shown: some of CUDA's name a kernel by thousands
MOST_ERROR = 600


def _tell_end(record: RankRecord, folder: str, *, torn: bool) -> tuple[str, str] | None:
    """Return in words how a rank ended before its end: a verb, and the rest.

    An exit with a code counts where the others are `torn` out of their program by it: a rank that
    exits by itself when all is done has merely a code.
    """
    if record.error is not None and record.ending == "raised":
        where = record.raised_at.short(folder)
        words = short(_TRAINED.sub("", record.error), MOST_ERROR)
        return "raise", words + (f" ({where})" if where else "")
    if record.died is not None:
        where = record.killed_at.short(folder) if not record.inside else ""
        at = f"at {where}, " if where else ""
        return "die", f"by {record.died} {at}{position(record, folder)}"
    if record.ending == "ended" and record.code and torn:
        return "exit", f"with code {record.code} after {tell_position(record, folder)}"
    return None


#: what to look at where a rank is killed from outside
_KILLED = (
    "something outside of the program killed it, most often the kernel for want of memory: look "
    "at `dmesg | grep -i 'killed process'`, and at the memory limit of the container or the job."
)

#: how a script that needs more memory than the machine has is recorded all the same
_LESS_MEMORY = (
    " Here every fake rank holds a whole model on this machine: record some ranks (`--ranks 0,1`), "
    "fewer (`-n 2`), or all on tensors without memory (`--times-on h100-8x400g`)."
)


#: what to look at where a loader's worker is gone
_WORKER = (
    "look at `dmesg | grep -i 'killed process'` and at shared memory (`--shm-size` of a "
    "container): a worker that is killed most often had no memory left; with `num_workers=0` an "
    "error of the dataset itself is seen."
)


def _fix_rank(record: RankRecord, folder: str, also: Sequence[RankRecord]) -> str:
    """Return what to write for a `dst` or `src` that is outside of its group; or nothing.

    Where the ranks that raise `also` have one group with it that lacks that one and has as many
    members, its number inside of that group was meant.
    """
    listed = _OF_THE_ROOT.search(record.error or "")
    if listed is not None:
        root = "src" if "source" in listed[2] else "dst"
        return (
            f"pass `{listed[1]}` on the rank that `{root}` names, and None on all others: "
            f"`... if dist.get_rank() == {root} else None`."
        )
    refused = _NOT_A_MEMBER.search(record.error or "")
    if refused is None:
        return _WORKER if names_dead_worker(record.error or "") else _fix_model(record, folder)
    text = record.raised_at.frames[0][2] if record.raised_at.frames else ""
    named = _ARGUMENT.search(text)
    name = "src" if _FROM_ONE.search(text) else "dst"
    name = named[1] if named is not None and named[1] != "global_rank" else name
    inside = f"group_{name}"
    fix = f"`{name}` is a global rank, also where a group is passed"
    at = int(refused[1])
    groups = set.intersection(
        *({members for _, members, _ in each.groups.values() if at not in members} for each in also)
    )
    if len(groups) == 1 and at < len(members := next(iter(groups))):
        return (
            f"{fix}, and rank {at} is not in {list(members)}: for its rank {at} write "
            f"`{name}={members[at]}`, or `{inside}={at}`."
        )
    return f"{fix}: pass a rank that is in it, or its number in the group as `{inside}`."


#: the parameters that a rank trains, which the recorder adds to an error of DDP
_TRAINED = re.compile(r" \[of the model it trains ([^\]]*)\]")


def _fix_training(records: Mapping[int, RankRecord]) -> str:
    """Return which parameters some ranks train and others do not; nothing where DDP says none.

    DDP compares the number of parameters of all ranks when it wraps a model, and names none of
    them. The recorder has added the names of each rank to its error; what is on some ranks alone is
    the difference.
    """
    trained = {
        rank: dict.fromkeys(found[1].split(", "))
        for rank, record in sorted(records.items())
        if (found := _TRAINED.search(record.error or "")) is not None
    }
    if len(trained) < 2:
        return ""
    alike: dict[tuple[int, ...], list[str]] = {}
    for name in dict.fromkeys(name for own in trained.values() for name in own):
        ranks = tuple(rank for rank, own in trained.items() if name in own)
        if len(ranks) < len(trained):
            alike.setdefault(ranks, []).append(name)
    apart = "; ".join(
        f"{', '.join(names[:MOST_NAMES])}{' and others' * (len(names) > MOST_NAMES)} on "
        f"{ranks_text(list(ranks))} alone"
        for ranks, names in alike.items()
    )
    return apart and (
        f"let every rank train the same parameters (`requires_grad`, the layers it has): {apart}."
    )


#: characters by which two errors are one, where what mends them differs
MOST_ALIKE = 160
#: parameters that are named one by one
MOST_NAMES = 6
#: the names of parameters that the recorder adds to an error of DDP
_NAMED = re.compile(r"\[of the model's parameters, (.+)\]")


def _fix_model(record: RankRecord, folder: str) -> str:
    """Return what mends a model that DDP refuses, with the names of its parameters; or nothing.

    DDP names parameters by their index alone (`Parameter indices which did not receive grad`); the
    recorder has added their names.
    """
    error = record.error or ""
    named = _NAMED.search(error)
    names = ", ".join(re.findall(r"is ([\w.]+)", named[1])) if named is not None else ""
    if "to have finished reduction in the prior iteration" in error:
        which = f"the parameters {names}" if names else "some parameters"
        return (
            f"{which} had no part in the loss of this rank: let every rank use them in each "
            "forward pass, or pass `find_unused_parameters=True` to DDP"
            f"{_tell_wrapping(record, folder)}."
        )
    if "appears not to match" in error:
        which = f"`{names}`" if names else "the parameter"
        return f"give {which} the same shape on every rank: the model must not depend on the rank."
    return ""


#: a line that wraps a model
_WRAPS = re.compile(r"\b(?:DistributedDataParallel|DDP)\(")


def _tell_wrapping(record: RankRecord, folder: str) -> str:
    """Return where a rank wraps its model, in brackets; or nothing."""
    places = (each.place for each in record.calls)
    found = next(
        (each for each in places if each.frames and _WRAPS.search(each.frames[0][2])), None
    )
    return f" ({_line(found.short(folder))})" if found is not None else ""


def position(record: RankRecord, folder: str = "") -> str:
    """Return where a rank is, with the error that it handles: `in all_reduce (train.py:19)`."""
    words = f"{'in' if record.inside else 'after'} {tell_position(record, folder)}"
    if record.turns_at.frames:
        words = f"in a loop ({record.turns_at.short(folder)}), {words}"
    if record.handled is None:
        return words
    error, place = record.handled
    where = place.short(folder)
    return f"{words}, while it handles {error[:160]}" + (f" ({where})" if where else "")


def tell_position(record: RankRecord, folder: str = "") -> str:
    """Return where a rank stands, or what it did last: `all_reduce (train.py:19)`."""
    stray = record.strays[-1] if record.strays and record.inside else None
    if stray is not None and (where := stray.place.short(folder)):
        return f"{stray.operation} ({where})"
    if not record.items:
        return "no call yet"
    last = record.items[-1]
    where = last.place.short(folder)
    if isinstance(last, RecordedCall):
        what = last.operation + (f" of {last.carries}" if last.carries else "")
    elif isinstance(last, RecordedWait):
        call = next((each for each in record.calls if each.number in last.numbers), None)
        what = f"wait for {call.operation}" if call else "wait"
    else:
        assert isinstance(last, BlockingCall)
        what = last.what
    return f"{what} ({where})" if where else what
