"""The `if` around the calls of some ranks, which others decide otherwise."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import DecidedParting, Reason, Tallies, Tally, short
from torch_scenarios.record.evidence.reasons.origin import SET_UNDER, word_values
from torch_scenarios.record.evidence.reasons.part_of_model import advise_unwrapped
from torch_scenarios.record.evidence.script import CASE, OF_RANK, end_of, script_at
from torch_scenarios.record.format import CREATION, BlockingCall, Decision, RecordedCall
from torch_scenarios.verdict.finding import ranks_text


def find_condition(
    parted: DecidedParting, tallies: Tallies, *, by_all: bool = False
) -> Reason | None:
    """Return the outermost `if` around the calls of some ranks that others decide otherwise.

    `by_all` leaves out what the others do not come to: they went another way before it.
    """
    for ranks, frames in parted.sides:
        others = [rank for rank in parted.ranks if rank not in ranks]
        around: list[tuple[Decision, str]] = []
        for file, line, _ in frames:
            source = script_at(file)
            for node, name in source.find_statements(line) if source is not None else ():
                around += [
                    (decision, name) for decision in tallies if _is_of(decision, node, name, file)
                ]
            if source is not None:
                around += [
                    (decision, part)
                    for decision in tallies
                    if decision.kind == "if" and decision.file == file
                    if (part := source.choice_part(decision.line, line))
                ]
        fitting = [
            (decision, name)
            for decision, name in around
            if any(tallies[decision][rank].yes or tallies[decision][rank].no for rank in others)
        ]
        fitting = fitting if fitting or by_all else around
        # a loop that others take too is no condition: they are a turn further on
        fitting = [
            (decision, name)
            for decision, name in fitting
            if decision.kind != "while" or not any(tallies[decision][rank].yes for rank in others)
            if not _is_left_inside(parted, tallies[decision], ranks, name)
        ]
        if fitting:
            decision, name = fitting[-1]
            return _explain_decision(parted, decision, tallies[decision], ranks, name)
    return None


def _is_left_inside(
    parted: DecidedParting, own: Mapping[int, Tally], ranks: Sequence[int], name: str
) -> bool:
    """Whether ranks that never come go the way of others at an `if` too: they part inside of it.

    What a rank decides that never comes is known to its end: it goes there as often, or more.
    """
    counts = {rank: each.no if name == "orelse" else each.yes for rank, each in own.items()}
    most, missing = max(counts[rank] for rank in ranks), parted.parting.missing
    return (
        bool(missing)
        and not {*ranks} & {*missing}
        and {*ranks} | {*missing} == {*parted.ranks}
        and all(counts[rank] >= most > 0 for rank in missing)
    )


def _is_of(decision: Decision, node: ast.stmt, name: str, file: str) -> bool:
    """Whether a decision is the condition of a statement's part, or in the head of a `with`."""
    if decision.file != file or decision.kind not in {"if", "while"}:
        return False
    if isinstance(node, ast.Match):
        return name == f"{CASE}{decision.line}"
    if name not in {"body", "orelse", "items"}:
        return False
    if isinstance(node, ast.If | ast.While):
        return node.test.lineno == decision.line
    if isinstance(node, ast.With | ast.AsyncWith):
        last = max((end_of(each.context_expr) for each in node.items), default=0)
        return node.lineno <= decision.line <= last
    return False


def _explain_decision(
    parted: DecidedParting,
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
    values = word_values(parted, decision, tallies)
    unwrapped = advise_unwrapped(parted)
    fix = (
        f"let every rank of the group make the calls under `{text}` ({place}), or none: move them "
        f"out of the condition, or decide it the same way on all ranks{unwrapped and '; '}"
        f"{unwrapped}."
    )
    set_under = SET_UNDER.search(values)
    if set_under is not None and OF_RANK.search(set_under[1]):
        fix = (
            f"let all ranks take {set_under[1]} the same way, or send what it sets from one to "
            f"all: `{text}` ({place}) is decided by that."
        )
    elif set_under is not None:
        fix = (
            f"move what communicates out of `{text}` ({place}), or agree on it first (an "
            f"`all_reduce` of a flag): it is decided by {set_under[1]}, which ranks take "
            "otherwise."
        )
    if _is_other_way_taken(parted, decision, ranks):
        if not parted.parting.group:  # both ways communicate: their order is to be changed
            return Clause(words + (f", where {values}" if values else "")), ""
        if _pass_other_tensors(parted):
            return _explain_both(parted, f"`{text}` ({place})")
    elif made := _find_creation(parted, ranks):
        fix = (
            f"create the group of {made} on every rank at one point of the program, and not under "
            f"`{text}` ({place}): each rank of the world takes part in that."
        )
    elif not parted.parting.group and not _are_left_out(parted, ranks):
        fix = ""
    reduced = _find_reduced(parted, decision)
    if reduced:
        words += f", where {values}" if values else ""
        return Clause(f"{words}; {reduced[0]}"), reduced[1]
    return Clause(words + (f", where {values}" if values else "")), fix


def _find_creation(parted: DecidedParting, ranks: Sequence[int]) -> str:
    """Return the line at which some ranks create a group where others make other calls."""
    calls = parted.parting.calls
    is_made = {
        rank: isinstance(each, BlockingCall) and each.what == CREATION
        for rank, each in calls.items()
    }
    is_made_by_all = all(is_made.values()) and not parted.parting.missing
    if not is_made.get(ranks[0]) or is_made_by_all:
        return ""
    return short(calls[ranks[0]].place.frames, parted.folder)


def _is_other_way_taken(parted: DecidedParting, decision: Decision, ranks: Sequence[int]) -> bool:
    """Whether other ranks make their call in the other part of the same `if`."""
    source = script_at(decision.file)
    if source is None:
        return False
    parts: dict[str, set[int]] = {}
    for who, frames in parted.parting.sides:
        for file, line, _ in frames:
            for node, name in source.find_statements(line) if file == decision.file else ():
                if isinstance(node, ast.If) and node.test.lineno == decision.line:
                    parts.setdefault(name, set()).update(who)
    own = next((name for name, who in parts.items() if who & {*ranks}), "")
    return any(who for name, who in parts.items() if name != own and own)


def _are_left_out(parted: DecidedParting, ranks: Sequence[int]) -> bool:
    """Whether a call of some ranks is one of a group whose other members make fewer in it."""
    call = parted.parting.calls.get(ranks[0])
    if not isinstance(call, RecordedCall):
        return False
    members = {*call.group} - {*ranks}
    counts = {
        rank: sum(each.group_name == call.group_name for each in record.calls)
        for rank, record in parted.records.items()
        if rank in members or rank in ranks
    }
    rest = [count for rank, count in counts.items() if rank in members]
    return bool(rest) and max(rest) < min(counts[rank] for rank in ranks)


def _pass_other_tensors(parted: DecidedParting) -> bool:
    """Whether ranks make the same call, with tensors of another shape or dtype."""
    calls = [each for each in parted.parting.calls.values() if isinstance(each, RecordedCall)]
    passed = {tuple((x.dtype, x.shape) for x in each.inputs or each.outputs) for each in calls}
    return len({(each.operation, each.root) for each in calls}) == 1 and len(passed) > 1


def _explain_both(parted: DecidedParting, condition: str) -> Reason:
    """Return that both ways of an `if` make the call that ranks disagree in."""
    where = " and ".join(short(frames, parted.folder) for _, frames in parted.parting.sides)
    fix = (
        f"let both ways ({where}) make the same calls in the same order, with tensors of the same "
        "shape and dtype."
    )
    return Clause(f"both ways of {condition} make the call, with other tensors"), fix


def _find_reduced(parted: DecidedParting, decision: Decision) -> tuple[str, str] | None:
    """Return that a condition asks for what a `reduce` before it has left on one rank alone."""
    source = script_at(decision.file)
    node = source.condition(decision.line) if source is not None else None
    if source is None or node is None:
        return None
    read = {each.id for each in ast.walk(node.test) if isinstance(each, ast.Name)}
    for record in (parted.records[rank] for rank in parted.ranks):
        for call in reversed(record.calls):
            file, line, _ = call.place.frames[0] if call.place.frames else ("", 0, "")
            if call.operation != "reduce" or file != decision.file or line > decision.line:
                continue
            passed = source.argument(line, {"tensor"}, {"reduce": 0})
            if isinstance(passed, ast.Name) and passed.id in read:
                place = parted.place(replace(decision, line=line))
                words = f"`reduce` ({place}) leaves the result in `{passed.id}` on one rank alone"
                return (
                    words,
                    f"write `all_reduce` at {place}: every rank decides by what comes out.",
                )
    return None
