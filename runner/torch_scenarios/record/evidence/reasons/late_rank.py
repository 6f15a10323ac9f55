"""A rank that comes after the timeout of another one."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from msgspec.structs import replace

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import DecidedParting, count_turns
from torch_scenarios.record.evidence.divergence import Parting, calls_by_group
from torch_scenarios.record.evidence.script import end_of, script_at
from torch_scenarios.record.format import (
    RENDEZVOUS,
    BlockingCall,
    Decision,
    RankRecord,
    RecordedCall,
    ScriptPlace,
)
from torch_scenarios.verdict import Finding
from torch_scenarios.verdict.finding import ranks_text

#: what backends raise where a timeout strikes, with its milliseconds
_TIMED_OUT = re.compile(r"[Tt]imed out (?:after )?(?:waiting )?(\d+) ?ms")
#: what they raise in `init_process_group`
_GIVEN_UP = re.compile(r"[Tt]ime(?:d )?-?out")


#: how a clause begins that says what the late rank alone decided after its call before
SINCE = "since "

#: times its timeout by which a fake rank has to be later: its clock is that of a busy machine
_FAKE_MARGIN = 1.2


def find_late_rank(records: Mapping[int, RankRecord], folder: str = "") -> Finding | None:
    """Return that a rank came to an operation later than another one waits; None where none does.

    On real ranks both clocks are in the record. Fake ranks wait for nothing: what counts is how
    much longer one takes from the operation before, against the timeout of the group, or of the
    job's start.
    """
    starting = _find_late_start(records, folder)
    if starting is not None:
        return starting
    for group, _, calls in calls_by_group(records):
        for at in range(min(map(len, calls.values()))):
            entered = {rank: own[at] for rank, own in calls.items()}
            if len(entered) < 2:
                continue
            times = {rank: _arrival(records[rank], calls[rank], at) for rank in entered}
            late = max(times, key=times.__getitem__)
            for early in sorted(times, key=times.__getitem__):
                after_s = times[late] - times[early]
                timeout_s = _timeout_s(records, entered, early)
                fake = records[early].about.get("mode") == "fake"
                if timeout_s is not None and after_s > timeout_s * (_FAKE_MARGIN if fake else 1):
                    found = _report_late_rank(entered, early, late, after_s, timeout_s, folder)
                    before = {
                        rank: last
                        for rank, call in entered.items()
                        for last in _list_before(records[rank], call)[-1:]
                    }
                    parting = Parting(group=group, at=at, calls=entered, before=before)
                    return _add_delay(found, DecidedParting(parting, records, folder), late)
    return _find_absent(records, folder)


def _list_before(record: RankRecord, call: RecordedCall) -> list[RecordedCall]:
    """Return the calls of a rank before one of them, of whatever group."""
    return record.calls[: record.calls.index(call)]


def _find_absent(records: Mapping[int, RankRecord], folder: str) -> Finding | None:
    """Return that a rank had not come yet to an operation that another one gave up; or None.

    A launcher ends the ranks that are left once one of them raises: the late one never comes.
    """
    for group, members, calls in calls_by_group(records):
        most = max(map(len, calls.values()))
        entered = {rank: own[-1] for rank, own in calls.items() if len(own) == most}
        early = next((r for r, each in entered.items() if _gives_up(records[r], each)), None)
        absent = [rank for rank in members if rank not in entered]
        if early is None or not absent or not all(_is_away(records.get(r)) for r in absent):
            continue
        limit_s = _timeout_s(records, entered, early)
        first, late = entered[early], absent[-1]
        if limit_s is None:
            continue
        before = {rank: last for rank in absent for last in records[rank].calls[-1:]}
        parting = Parting(
            group=group, at=most - 1, calls=entered, before=before, missing=tuple(absent)
        )
        has = "has" if len(absent) == 1 else "have"
        at = _tell_away(records[late].ended_at, first, folder)
        clauses = [
            Clause(f"rank {early} waits in {_name(first)} ({first.place.short(folder)})"),
            Clause(
                f"{ranks_text(absent)} {has} not come there when rank {early} gives up after its "
                f"timeout of {limit_s:.4g} s, and {'is' if len(absent) == 1 else 'are'} ended then"
                + (f", at {at}" if at else "")
            ),
        ]
        found = _report(clauses, first, early, late, limit_s, folder)
        if at:  # it says what took the time, which what it decided before may not
            return found
        return _add_delay(found, DecidedParting(parting, records, folder), late)
    return None


def _tell_away(place: ScriptPlace, waited: RecordedCall, folder: str) -> str:
    """Return where a rank was, with what it called in the function where another one waits."""
    at = place.short(folder)
    for file, line, _ in waited.place.frames:
        source = script_at(file)
        for other, own, _ in place.frames[1:] if source is not None else ():
            if source is not None and other == file and source.scope(own) is source.scope(line):
                return f"{at}, in `{source.text(own)}` ({source.place(own, folder)})"
    return at


def _gives_up(record: RankRecord, call: RecordedCall) -> bool:
    """Whether a call is a rank's last one, and raised since its timeout has struck."""
    words = " ".join(filter(None, (call.failed, record.error)))
    return record.items[-1:] == [call] and _TIMED_OUT.search(words) is not None


def _is_away(record: RankRecord | None) -> bool:
    """Whether a rank was in none of its calls when it was ended, and not on its way out."""
    return (
        record is not None
        and record.ending == "stopped"
        and bool(record.items)
        and not (record.inside or record.main_inside or record.leaving or record.error)
        and not (record.died or record.left_at.frames)
    )


def _add_delay(finding: Finding, parted: DecidedParting, late: int) -> Finding:
    """Return a finding with the last `if` that the late rank alone went into since its call before.

    What an `if` does that decides no calls takes time, too: it prints, evaluates, or writes a file.
    """
    before: RecordedCall | BlockingCall | None = parted.parting.before.get(late)
    before = before or _start_of(parted.records[late])
    tallies = parted.tallies(whole=False)
    alone = [
        each
        for each, own in tallies.items()
        if each.kind == "if" and [rank for rank, tally in own.items() if tally.yes] == [late]
    ]
    # where it never came, it was on its way to where the others wait
    call = parted.parting.calls.get(late) or next(iter(parted.parting.calls.values()))
    # the one around its call leads there, and takes no time
    alone = [each for each in alone if not _leads_to(each, call)] or alone
    if before is not None and not alone:
        between = _tell_between(before, call, parted.folder)
        return replace(finding, notes=(*finding.notes, *map(Clause, between)))
    if before is None:
        return finding
    where = before.place.short(parted.folder)
    turns = count_turns(parted, alone[-1], tallies[alone[-1]])
    words = f"{SINCE}{_name(before)} ({where}), {turns}"
    words += _tell_body(alone[-1].file, alone[-1].line, parted.folder)
    return replace(finding, notes=(*finding.notes, Clause(words)))


def _leads_to(decision: Decision, call: RecordedCall | BlockingCall) -> bool:
    """Whether a call is in the lines that an `if` leads into."""
    source = script_at(decision.file)
    node = source.condition(decision.line) if source is not None else None
    if not isinstance(node, ast.If):
        return False
    first, last = node.body[0].lineno, end_of(node.body[-1])
    return any(file == decision.file and first <= at <= last for file, at, _ in call.place.frames)


def _tell_between(
    before: RecordedCall | BlockingCall, call: RecordedCall | BlockingCall, folder: str
) -> list[str]:
    """Return the one line between two calls of a function that calls something, or reads the rank.

    That is what takes the time. Nothing where there are several, or the calls are of a loop.
    """
    for file, line, _ in call.place.frames:
        source = script_at(file)
        since = next((at for path, at, _ in before.place.frames if path == file and at < line), 0)
        if source is None or not since or source.scope(since) is not source.scope(line):
            continue
        lines = sorted(
            {
                node.lineno
                for node in ast.walk(source.scope(line))
                if isinstance(node, ast.Call)
                and since < node.lineno < line
                and source.scope(node.lineno) is source.scope(line)
            }
        )
        of_rank = [at for at in lines if source.asks_rank(at) and not source.keeps_rank(at)]
        own = [at for at in lines if any(map(any, map(source.functions, source.called(at))))]
        chosen = next((each for each in (of_rank, own) if len(each) == 1), lines)
        if len(chosen) == 1:
            where, at = (source.place(each, folder) for each in (since, chosen[0]))
            return [
                f"{SINCE}{_name(before)} ({where}) it has run `{source.text(chosen[0])}` ({at})"
            ]
        return []
    return []


def _start_of(record: RankRecord) -> BlockingCall | None:
    """Return a rank's `init_process_group`; None where it has none."""
    found = (each for each in record.items if isinstance(each, BlockingCall))
    return next((each for each in found if each.what == RENDEZVOUS), None)


def _tell_body(file: str, line: int, folder: str) -> str:
    """Return the first line under an `if`, which takes the time or leads to what does."""
    source = script_at(file)
    node = source.condition(line) if source is not None else None
    if source is None or not isinstance(node, ast.If):
        return ""
    first = node.body[0].lineno
    return f": `{source.text(first)}` ({source.place(first, folder)})"


def _find_late_start(records: Mapping[int, RankRecord], folder: str) -> Finding | None:
    """Return that a rank came to `init_process_group` after the timeout of one that waited there.

    Fake ranks start one after the other: what counts is how long each takes from its own start.
    """
    entered = {
        rank: item
        for rank, record in records.items()
        for item in record.items[:1]
        if isinstance(item, BlockingCall) and item.what == RENDEZVOUS
    }
    fake = any(each.about.get("mode") == "fake" for each in records.values())
    times = {
        rank: each.began_us / 1e6 + (0.0 if fake else _started_s(records[rank]))
        for rank, each in entered.items()
    }
    if len(times) < 2:
        return None
    late = max(times, key=times.__getitem__)
    for early in sorted(times, key=times.__getitem__):
        timeout_s, after_s = records[early].timeout_s, times[late] - times[early]
        gave_up = fake or _GIVEN_UP.search(entered[early].failed or "") is not None
        if timeout_s is None or not gave_up:
            continue
        if after_s > timeout_s * (_FAKE_MARGIN if fake else 1):
            return _report_late_rank(entered, early, late, after_s, timeout_s, folder)
    return None


def _started_s(record: RankRecord) -> float:
    started = record.about.get("time", 0.0)
    return float(started) if isinstance(started, int | float) else 0.0


def _arrival(record: RankRecord, calls: list[RecordedCall], at: int) -> float:
    """Return when a rank comes to an operation, in seconds, by a clock that all ranks have."""
    began = calls[at].began_us / 1e6
    if record.about.get("mode") != "fake":
        return began + _started_s(record)
    if at:
        return began - calls[at - 1].began_us / 1e6
    starts = [each.began_us for each in record.items if isinstance(each, BlockingCall)]
    return began - max((us for us in starts if us <= calls[at].began_us), default=0) / 1e6


def _timeout_s(
    records: Mapping[int, RankRecord], entered: Mapping[int, RecordedCall], early: int
) -> float | None:
    """Return the timeout that strikes, or on fake ranks the one that would."""
    record, call = records[early], entered[early]
    own = call.timeout_s
    if own is None or own <= 0:  # a millisecond below zero is torch's word for none of its own
        own = record.timeouts.get(int(call.group_name))
    if own is not None and own <= 0:
        own = None
    if record.about.get("mode") == "fake":
        return record.timeout_s if own is None else own
    words = " ".join(filter(None, (call.failed, record.error)))
    found = _TIMED_OUT.search(words)
    if found is not None:
        return int(found[1]) / 1000 if own is None else own
    if "imed out" in words or "imeout" in words:
        return record.timeout_s if own is None else own
    return None


def _name(call: RecordedCall | BlockingCall) -> str:
    return call.operation if isinstance(call, RecordedCall) else call.what


def _report_late_rank(
    entered: Mapping[int, RecordedCall | BlockingCall],
    early: int,
    late: int,
    after_s: float,
    timeout_s: float,
    folder: str,
) -> Finding:
    """Return the finding that a rank comes later than the timeout of one that waits for it."""
    first, last = entered[early], entered[late]
    clauses = [
        Clause(f"rank {early} waits in {_name(first)} ({first.place.short(folder)})"),
        Clause(
            f"rank {late} enters {_name(last)} ({last.place.short(folder)}) {after_s:.1f} s "
            f"after rank {early}, whose timeout is {timeout_s:.4g} s"
        ),
    ]
    return _report(clauses, first, early, late, timeout_s, folder)


def _report(
    clauses: list[Clause],
    first: RecordedCall | BlockingCall,
    early: int,
    late: int,
    timeout_s: float,
    folder: str,
) -> Finding:
    """Return a finding that begins with clauses, of the call that a rank gives up."""
    limited_at = first.limited_at if isinstance(first, RecordedCall) else ScriptPlace()
    if limited_at.frames:
        where = limited_at.short(folder)
        clauses.append(Clause(f"a wait for it passes a timeout of {timeout_s:.4g} s ({where})"))
        longer = f"give the wait ({where}) a longer timeout, or none"
    else:
        longer = "give the group a longer `timeout=` (of `init_process_group` or `new_group`)"
    if first.failed:
        clauses.append(Clause(f"rank {early} raises {first.failed}"))
    fix = f"{longer}, or do what takes rank {late} so long on every rank, or before the ranks meet."
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
