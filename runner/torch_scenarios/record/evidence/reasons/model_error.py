"""The `if` before an error that ranks raise."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import (
    DecidedParting,
    Reason,
    Tally,
    count_turns,
    list_times,
)
from torch_scenarios.record.evidence.divergence import Frames, Parting
from torch_scenarios.record.evidence.reasons.caught_error import find_caught
from torch_scenarios.record.evidence.reasons.earlier_condition import is_idle
from torch_scenarios.record.evidence.reasons.error_source import find_source, tell_passed
from torch_scenarios.record.evidence.reasons.given import tell_given
from torch_scenarios.record.evidence.reasons.origin import SEEDED, word_values
from torch_scenarios.record.evidence.script import name_of, place_at, script_at
from torch_scenarios.record.format import (
    Decision,
    RankRecord,
    names_model,
)
from torch_scenarios.verdict import Finding
from torch_scenarios.verdict.finding import ranks_text


def explain_error(finding: Finding, records: Mapping[int, RankRecord], folder: str) -> Finding:
    """Return a finding that ranks raised, with the `if` before it that ranks decided otherwise."""
    raised = [records[rank] for rank in finding.ranks if rank in records]
    is_known = _OF_THE_GROUP in (finding.fix or "")  # its members fail alike, whatever was decided
    if finding.diagnosis is not None or is_known or not raised or raised[0].error is None:
        return finding
    if (source := find_source(raised[0], folder)) is not None:
        notes = (*finding.notes, source[0])
        return replace(finding, notes=notes, fix=source[1], help=(source[1],))
    return _explain_decided(finding, raised, records, folder)


def _explain_decided(
    finding: Finding, raised: Sequence[RankRecord], records: Mapping[int, RankRecord], folder: str
) -> Finding:
    """Return a finding of an error that no line is known for, with what ranks decided before it."""
    parted = DecidedParting(
        Parting(group="", at=0, calls={}, missing=tuple(records)), records, folder
    )
    finding = _add_passed(finding, raised[0], folder, by_all=len(raised) == len(records))
    of_model = any(names_model(each.error or "") for each in raised)
    made = _tell_made(raised[0], folder) if _OTHER_MODEL.search(raised[0].error or "") else ""
    if made:
        finding = replace(finding, notes=(*finding.notes, Clause(made)))
    reason = find_caught(parted, whole=True) if of_model else _find_breakpoint(raised[0], folder)
    reason = reason or _find_left(raised[0], records, folder)
    if reason is not None:
        return replace(finding, notes=(reason[0],), fix=reason[1], help=(reason[1],))
    latest = [] if of_model else _list_latest(parted, raised)
    given = None if latest else tell_given(parted, raised[0].raised_at.frames[:1])
    if given is not None:
        return replace(finding, notes=(*finding.notes, given[0]), fix=given[1], help=(given[1],))
    fitting = [
        (decision, own)
        for decision, own in parted.tallies(whole=True).items()
        if decision.kind == "if"
        and len({each.yes for each in own.values()}) > 1
        and not is_idle(decision)
        and (
            parted.leads_on(decision)
            if of_model
            else _is_near(decision, raised[0].raised_at.frames) and _is_alike(own, raised)
        )
    ]
    if of_model:  # what a model leaves out is decided in its `forward`, where anything is there
        fitting = [each for each in fitting if _is_in_forward(each[0])] or fitting
    called = [each for each in latest if _is_called(each[0], raised[0].raised_at.frames)]
    fitting = called or fitting or latest
    unused = [] if fitting or not of_model else _find_forward_branches(parted, raised)
    if not fitting and not unused:
        taken = "" if of_model else _tell_taken(parted, raised)
        return replace(finding, notes=(*finding.notes, Clause(taken))) if taken else finding
    decision, own = (fitting or unused)[-1]
    values = word_values(parted, decision, own)
    chosen = "" if of_model else _tell_chosen(raised[0], folder)
    if chosen:
        finding = replace(finding, notes=(*finding.notes, Clause(chosen)))
    words = f"before that, {count_turns(parted, decision, own)}"
    if not fitting:
        counts = list_times({rank: each.yes for rank, each in own.items()})
        place = parted.place(decision)
        words = f"`{decision.text}` ({place}) may leave a layer out; true: {counts}"
    notes = (*finding.notes, Clause(words + (f", where {values}" if values else "")))
    is_of_loss = of_model or "does not require grad" in (raised[0].error or "")
    if fitting and is_of_loss and not finding.fix:
        fix = f"let all ranks take `{decision.text}` ({parted.place(decision)}) the same way"
        fix += ": seed all ranks alike for what it draws." if SEEDED in values else "."
        return replace(finding, notes=notes, fix=fix, help=(fix, *finding.help[:1]))
    return replace(finding, notes=notes)


#: advice about a root outside of a group, where its number inside of the group was meant
_OF_THE_GROUP = "for its rank "


def _add_passed(finding: Finding, record: RankRecord, folder: str, *, by_all: bool) -> Finding:
    """Return a finding with what ranks pass in the line that raises, where all of them raise."""
    passed = tell_passed(record, folder) if by_all and not finding.fix else ""
    return replace(finding, notes=(*finding.notes, Clause(passed))) if passed else finding


def _tell_chosen(record: RankRecord, folder: str) -> str:
    """Return the line by which ranks choose what the line uses that raised; or nothing.

    That is `x = a if rank == 0 else b`, which may stand far from it.
    """
    for file, line, _ in record.raised_at.frames:
        source = script_at(file)
        if source is None:
            continue
        calls = source.calls(line)
        read = [part for each in calls for part in (each.func, *each.args)]
        read += [each.value for call in calls for each in call.keywords]
        for script, at in source.traces(ast.Tuple(read, ast.Load()), line):
            if script.chooses(at) and not script.keeps_rank(at):
                used, place = (
                    place_at(each, number, folder)
                    for each, number in ((file, line), (script.file, at))
                )
                return f"what {used} uses is chosen by rank: `{script.text(at)}` ({place})"
    return ""


#: errors of DDP about a model that is another one on some rank
_OTHER_MODEL = re.compile(
    r"appears not to match|expects same model across|any parameter that requires a gradient"
)
#: lines that make a model which are shown
MOST_MADE = 3


def _tell_made(record: RankRecord, folder: str) -> str:
    """Return the lines that make the model which a rank wraps, those first that ask for the rank.

    The model is what is passed in the line that raised; its size comes from what makes it.
    """
    for file, line, _ in record.raised_at.frames[:1]:
        source = script_at(file)
        calls = source.calls(line) if source is not None else []
        if source is None or not calls:
            return ""
        widest = min(calls, key=lambda each: (each.lineno, each.col_offset))
        passed = [*widest.args, *(each.value for each in widest.keywords)]
        made = source.traces(ast.Tuple(passed, ast.Load()), line)
        asking = [each for each in made if each[0].asks_rank(each[1])]
        rest = [each for each in made if each not in asking]
        clauses = [
            f"{words} " + ", ".join(each.quote(at, folder) for each, at in lines)
            for words, lines in (
                ("what differs by rank is read in", asking[:MOST_MADE]),
                ("the model is made of", rest[:MOST_MADE]),
            )
            if lines
        ]
        return "; ".join(clauses)
    return ""


#: what a store raises whose server is gone
_GONE = re.compile(r"^Dist(?:Network|Store)Error\b.*(?:likely closed|[Bb]roken pipe|reset by peer)")


def _find_left(record: RankRecord, records: Mapping[int, RankRecord], folder: str) -> Reason | None:
    """Return the ranks that have ended, and with them a store that this rank still asks."""
    if _GONE.search(record.error or "") is None:
        return None
    host = _tell_host(record, folder)
    if host is not None:
        return host
    ended = [each for each in records.values() if each.ending == "ended" and each is not record]
    last = next((each.items[-1] for each in ended if each.items), None)
    if last is None:
        return None
    ranks = [each.rank for each in ended]
    has = "has" if len(ranks) == 1 else "have"
    words = (
        f"{ranks_text(ranks)} {has} ended, the last line {last.place.short(folder)}: a store is "
        "gone when the process that serves it ends"
    )
    fix = (
        f"let no rank end while rank {record.rank} still asks the store: a `dist.barrier()` behind "
        "the last of these calls, on every rank."
    )
    return Clause(words), fix


def _tell_host(record: RankRecord, folder: str) -> Reason | None:
    """Return the line that makes a store of the script's own which a rank still asks.

    Its host has ended, or has left the function that holds the store.
    """
    for file, line, _ in record.raised_at.frames[:1]:
        source = script_at(file)
        for call in source.calls(line) if source is not None else ():
            if source is None or not isinstance(call.func, ast.Attribute):
                continue
            made = [
                (script, at)
                for script, at in source.traces(call.func.value, line)
                if any(name_of(each.func) == "TCPStore" for each in script.calls(at))
            ]
            for script, at in made[:1]:
                host = script.argument(at, {"is_master"}, {"TCPStore": 3})
                chosen = f", by `is_master={ast.unparse(host)}`," if host is not None else ""
                place = script.place(at, folder)
                words = (
                    f"the store is made at {place}: the rank that hosts it{chosen} has let it go, "
                    f"while rank {record.rank} still asks it"
                )
                fix = (
                    f"let the rank that hosts the store ({place}) keep it until all are done with "
                    "it: a `dist.barrier()` before the function ends that holds it."
                )
                return Clause(words), fix
    return None


#: calls that wait for a person at a terminal
_STOPS = re.compile(r"\b(?:breakpoint|set_trace)\(")


def _find_breakpoint(record: RankRecord, folder: str) -> Reason | None:
    """Return the breakpoint behind which a rank's debugger found no terminal; None without one."""
    if not (record.error or "").startswith("BdbQuit"):
        return None
    for file, line, _ in record.raised_at.frames:
        source = script_at(file)
        for at in range(line, max(line - MOST_BEFORE, 0), -1) if source is not None else ():
            if source is not None and _STOPS.search(source.text(at)):
                place = source.place(at, folder)
                words = f"`{source.text(at)}` ({place}) waits for a person, and has no terminal"
                fix = (
                    f"leave it out ({place}); `torch.distributed.breakpoint(rank)` stops all ranks "
                    "and asks at one of them."
                )
                return Clause(words), fix
    return None


def _find_forward_branches(
    parted: DecidedParting, raised: Sequence[RankRecord]
) -> list[tuple[Decision, dict[int, Tally]]]:
    """Return what a `forward` decides both ways: ranks may do so as often, and not in one turn.

    Those come last that have left out the very parameters which had no part in the loss.
    """
    found: dict[Decision, dict[int, Tally]] = {}
    left_out: dict[Decision, dict[int, Tally]] = {}
    for decision, own in parted.tallies(whole=True, alike=True).items():
        if decision.kind != "if" or not _is_in_forward(decision):
            continue
        if any(_leaves_out(decision, own[each.rank], each) for each in raised):
            left_out[decision] = own
        elif any(each.yes and each.no for each in own.values()):
            found[decision] = own
    return [*found.items(), *left_out.items()]


#: the names that the recorder adds to an error of DDP
_UNUSED = re.compile(r"is ([\w.]+)")


def _leaves_out(decision: Decision, own: Tally, record: RankRecord) -> bool:
    """Whether the way that a rank has not gone uses a parameter which had no part in its loss."""
    names = {part for name in _UNUSED.findall(record.error or "") for part in name.split(".")[:-1]}
    source = script_at(decision.file)
    node = source.condition(decision.line) if source is not None else None
    parts = [] if not isinstance(node, ast.If) else [*node.body * (not own.yes)]
    parts += [] if not isinstance(node, ast.If) else [*node.orelse * (not own.no)]
    return any(
        isinstance(each, ast.Attribute) and each.attr in names
        for part in parts
        for each in ast.walk(part)
    )


def _is_in_forward(decision: Decision) -> bool:
    source = script_at(decision.file)
    scope = source.scope(decision.line) if source is not None else None
    return isinstance(scope, ast.FunctionDef) and scope.name == "forward"


def _list_latest(
    parted: DecidedParting, raised: Sequence[RankRecord]
) -> list[tuple[Decision, dict[int, Tally]]]:
    """Return what ranks decided otherwise between their last call and their error.

    A framework raises far from the line that it was given the wrong thing by.
    """
    latest = {
        way.decision
        for record in raised
        for way in record.ways
        if way.before >= len(record.items) > 0
    }
    return [
        (decision, own)
        for decision, own in parted.tallies(whole=True).items()
        if decision in latest
        and decision.kind == "if"
        and len({each.yes for each in own.values()}) > 1
        and not is_idle(decision)
        and _is_alike(own, raised)
    ]


def _tell_taken(parted: DecidedParting, raised: Sequence[RankRecord]) -> str:
    """Return the way out that each rank has taken for the first time just before its error.

    Each may come to it in another turn, and a framework raises because of what it is given then.
    """
    for decision, own in parted.tallies(whole=True, alike=True).items():
        source = script_at(decision.file)
        jump = source.jump_under(decision.line) if source is not None else None
        if decision.kind != "if" or jump is None or jump[0] != "body":
            continue
        if all(
            own[record.rank].no
            and own[record.rank].yes
            == sum(
                way.yes
                for way in record.ways
                if way.decision == decision and way.before >= len(record.items)
            )
            > 0
            for record in raised
        ):
            who = "each of them" if len(raised) > 1 else "the rank"
            under = f"`{decision.text}` ({parted.place(decision)})"
            return f"before that, {who} takes the `{jump[1]}`:{jump[2]} under {under}"
    return ""


def _is_alike(own: Mapping[int, Tally], raised: Sequence[RankRecord]) -> bool:
    """Whether ranks that raise one error went one way: else an `if` has not led to it."""
    one = {each.error for each in raised}
    ways = {bool(own[each.rank].yes) for each in raised if each.rank in own}
    return len(one) > 1 or len(ways) < 2


def _is_near(decision: Decision, frames: Frames) -> bool:
    """Whether a decision is in a function that an error went through, before it did."""
    source = script_at(decision.file)
    return source is not None and any(
        file == decision.file
        and decision.line <= line
        and source.scope(decision.line) is source.scope(line)
        for file, line, _ in frames
    )


def _is_called(decision: Decision, frames: Frames) -> bool:
    """Whether a decision is in a function that gives the line which raised what it passes on."""
    for file, line, _ in frames[:1]:
        source, inner = script_at(file), script_at(decision.file)
        scope = inner.scope(decision.line) if inner is not None else None
        name = scope.name if isinstance(scope, ast.FunctionDef) else ""
        return source is not None and name in source.called(line)
    return False


#: lines behind a breakpoint in which its error may be raised
MOST_BEFORE = 20
