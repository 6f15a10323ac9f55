"""A script run once more for each of its calls, and one rank raises, dies or is late there.

A job that ends with an error is started again; one that hangs holds its GPUs until a person looks.
Which of the two comes of an error depends on the script: on what it catches, and on what it does in
a `finally`, a handler or at its exit. So each line that communicates is tried, on each rank::

    rank 0   all_reduce :14   barrier :20   all_gather :22
    rank 1   raises here      or here       or here           a run each

A run that ends is as it should be. One that is stuck is a finding, and so is one in which a rank
that is late ends the job. One in which no rank ends with an error is a note.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import asdict, replace

from torch_scenarios.errors import Clause
from torch_scenarios.record.analysis import NothingRecordedError, RecordedRun, record
from torch_scenarios.record.findings import position
from torch_scenarios.record.format import RankRecord, names_lost_peer
from torch_scenarios.record.live import Launcher, RunOrder, WarmLaunch
from torch_scenarios.verdict import Finding
from torch_scenarios.verdict.finding import ranks_text

#: what a rank does at one of its calls
Kind: TypeAlias = Literal["raise", "die", "late"]
#: in the words of a report
VERBS: Mapping[Kind, str] = {"raise": "raises", "die": "is killed", "late": "is late"}
#: seconds by which a rank is late
LATE_S = 10.0
#: runs, positions of ranks that are shown, clauses of the reason
MOST_RUNS, MOST_POSITIONS, MOST_REASONS = 64, 4, 3
#: a run has as many times the seconds of the first one, and some more
TIMES, MORE_S = 3.0, 30.0

FIX = (
    "let an error end its rank: catch nothing around a call that communicates, or let every rank "
    "leave together (`dist.destroy_process_group()` and `raise`)."
)
FIX_LATE = "give the timeout more seconds than the slowest rank may need."


class Injection(Struct, frozen=True, kw_only=True):
    """One call of a rank, by its number, and what the rank does there."""

    rank: int
    number: int
    kind: Kind
    seconds: float = LATE_S


class _InjectionPlace(Struct, frozen=True, kw_only=True):
    """A line that communicates, and what a rank does there: what runs have in common."""

    call: str
    kind: Kind


class _Ending(Struct, frozen=True, kw_only=True):
    """How a run ended: `ends`, `hangs`, `fails` or `goes on`; the reason in clauses, the advice."""

    how: str
    clauses: tuple[Clause, ...] = ()
    fix: str = ""


def strike_calls(
    order: RunOrder,
    found: RecordedRun,
    kinds: str,
    start: Launcher | None = None,
    notice: Callable[[str], None] = lambda _: None,
) -> RecordedRun:
    """Run a recorded program once more for each of its lines that communicate.

    `kinds` is what a rank does there, or `all`. What came of the program is returned with what
    hangs: findings, and notes that say what the runs did. Raises LaunchError where it cannot be
    started again.
    """
    if not found.is_whole:
        note = "nemesis: no more runs, as this one does not end well"
        return replace(found, notes=(*found.notes, note))
    strikes = [
        each for kind in VERBS if kinds in {kind, "all"} for each in _find_strikes(found, kind)
    ]
    chosen = strikes[:MOST_RUNS]
    notice(f"{len(chosen)} more run{'s' * (len(chosen) != 1)}, each with an error of one rank")
    limit = order.max_seconds or found.ran.duration_s * TIMES + MORE_S
    again = replace(order, silent=True, keep=False, join=False, values={}, max_seconds=limit)
    warm = WarmLaunch()
    endings: dict[tuple[_InjectionPlace, str], dict[int, _Ending]] = {}
    try:
        for aim, strike in chosen:
            folder = order.folder / "nemesis"
            shutil.rmtree(folder, ignore_errors=True)
            ran = replace(again, folder=folder, strike=asdict(strike))
            ending = _run(ran, strike, start or warm.start)
            endings.setdefault((aim, ending.how), {})[strike.rank] = ending
    finally:
        warm.close()
    notes = (*found.notes, *_count(endings, len(strikes)))
    result = found.judged.result
    wrong = tuple(_find(endings))
    status = "FAILED" if wrong else result.verdict.status
    verdict = replace(result.verdict, status=status, findings=(*result.verdict.findings, *wrong))
    judged = replace(found.judged, result=replace(result, verdict=verdict))
    return replace(found, judged=judged, notes=notes)


def _find_strikes(found: RecordedRun, kind: Kind) -> Iterator[tuple[_InjectionPlace, Injection]]:
    """Yield the first call of each rank in each line that communicates."""
    for rank, each in sorted(found.records.items()):
        known: set[str] = set()
        for call in each.calls:
            text = f"{call.operation} ({call.place.short(found.home)})"
            if text not in known:
                known.add(text)
                aim = _InjectionPlace(call=text, kind=kind)
                yield aim, Injection(rank=rank, number=call.number, kind=kind)


def _run(order: RunOrder, strike: Injection, start: Launcher) -> _Ending:
    """Run the program with one strike, and return how it ended."""
    try:
        found = record(order, start=start)
    except NothingRecordedError:
        return _Ending(how="ends")
    codes = found.ran.launch.exits
    if found.ran.stuck or found.ran.timed_out:
        words = _tell_positions(found.records, found.home)
        if found.ran.timed_out:
            words.append(f"it was ended after {order.max_seconds:.0f} s")
        wrong = found.judged.result.verdict.findings
        reasons = [each for finding in wrong[:1] for each in finding.notes if not each.mark]
        fix = next((each.fix for each in wrong if each.fix), None)
        clauses = (*map(Clause, words), *reasons[:MOST_REASONS])
        return _Ending(how="hangs", clauses=clauses, fix=fix or FIX)
    if strike.kind == "late":
        errors = [
            f"rank {rank} raises {each.error}"
            for rank, each in sorted(found.records.items())
            if each.error is not None and not names_lost_peer(each.error)
        ]
        clauses = tuple(map(Clause, errors[:MOST_POSITIONS]))
        return _Ending(how="fails" if any(codes.values()) else "ends", clauses=clauses)
    return _Ending(how="ends" if any(codes.values()) else "goes on")


def _tell_positions(records: Mapping[int, RankRecord], home: str) -> list[str]:
    """Return where the ranks are that did not end; ranks at one place are one line."""
    alike: dict[str, list[int]] = {}
    for rank, each in sorted(records.items()):
        if each.truncated and each.died is None:
            alike.setdefault(position(each, home), []).append(rank)
    lines = [
        f"{ranks_text(ranks)} {'is' if len(ranks) == 1 else 'are'} {where}"
        for where, ranks in alike.items()
    ]
    return lines[:MOST_POSITIONS]


def _find(
    endings: Mapping[tuple[_InjectionPlace, str], Mapping[int, _Ending]],
) -> Iterator[Finding]:
    """Yield a finding for each line at which the job hangs, or ends because a rank is late."""
    for (aim, how), ranks in endings.items():
        if how not in {"hangs", "fails"}:
            continue
        first = next(iter(ranks.values()))
        who = " or ".join(f"rank {rank}" for rank in ranks)
        late = f" by {LATE_S:.0f} s" if aim.kind == "late" else ""
        what = "hangs" if how == "hangs" else "ends with an error"
        fix = first.fix or FIX_LATE
        yield Finding(
            witness="program",
            code="outcome_differs",
            prose=f"the job {what} where {who} {VERBS[aim.kind]}{late} before {aim.call}",
            notes=first.clauses,
            ranks=tuple(ranks),
            name="outcome",
            fix=fix,
            help=(fix,),
        )


def _count(
    endings: Mapping[tuple[_InjectionPlace, str], Mapping[int, _Ending]], whole: int
) -> Iterator[str]:
    """Yield what the runs did, in lines."""
    counts: dict[str, int] = {}
    for (_, how), ranks in endings.items():
        counts[how] = counts.get(how, 0) + len(ranks)
    ran = sum(counts.values())
    words = ", ".join(
        f"{count} {word}"
        for how, word in (
            ("hangs", "hang"),
            ("fails", "end because a rank is late"),
            ("goes on", "end with 0 all the same"),
            ("ends", "end as they should"),
        )
        if (count := counts.get(how, 0))
    )
    yield f"nemesis: of {ran} more runs {words}"
    if whole > ran:
        yield f"nemesis: {whole - ran} calls were not tried, as there are more than {MOST_RUNS}"
    for (aim, how), ranks in endings.items():
        if how == "goes on":
            who = " or ".join(f"rank {rank}" for rank in ranks)
            yield (
                f"nemesis: where {who} {VERBS[aim.kind]} before {aim.call}, the job ends with 0: "
                "no launcher sees the error"
            )
