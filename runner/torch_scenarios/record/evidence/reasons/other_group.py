"""Ranks that pass groups of different kinds in one line, or none where they mean one of theirs."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import DecidedParting, Reason, short
from torch_scenarios.record.evidence.divergence import Frames, Parting, origin_of
from torch_scenarios.record.evidence.reasons.loop import find_surrounding_loop
from torch_scenarios.record.evidence.script import Script, has_line, name_of, place_at, script_at
from torch_scenarios.record.format import (
    BlockingCall,
    Decision,
    RankRecord,
    RecordedCall,
)
from torch_scenarios.verdict.finding import ranks_text


def find_other_group(
    parting: Parting, records: Mapping[int, RankRecord], folder: str
) -> Reason | None:
    """Return that ranks pass groups of different lines in one and the same line."""
    alike: dict[str, list[int]] = {}
    members: dict[int, str] = {}
    for rank, call in sorted(parting.calls.items()):
        if isinstance(call, BlockingCall):
            return None
        origin = origin_of(records[rank], call)
        members[rank] = _list_ranks(call.group)
        made = "the world" if origin is None else f"a group made at {short(origin.frames, folder)}"
        name = "" if origin is None else origin.variable
        alike.setdefault(f"{made} (`{name}`)" if name else made, []).append(rank)
    if len(alike) < 2:
        return None
    place = short(next(iter(parting.calls.values())).place.frames, folder)
    words = "; ".join(
        f"{ranks_text(ranks)} {'passes' if len(ranks) == 1 else 'pass'} {made}"
        + (f" of ranks {members[ranks[0]]}" if len(ranks) == 1 else "")
        for made, ranks in sorted(alike.items(), key=lambda each: len(each[1]))
    )
    clause = Clause(f"the ranks pass groups of different kinds at {place}: {words}")
    order = find_own_order(next(iter(parting.calls.values())).place.frames, folder)
    if order is not None:
        return Clause(f"{order[0].words}; {clause.words}"), order[1]
    fix = f"pass the same group, by its role, on every rank at {place}."
    return clause, fix


def find_meant_group(parted: DecidedParting) -> Reason | None:
    """Return another group, whose members are the very ranks that come to a line of a collective.

    The line passes a group of which one rank alone comes there, in each of its kind::

        if mesh.get_local_rank("tp") != 0:                ranks 0 and 2 come to the `all_reduce`:
            return                                        they are a group of "dp"
        dist.all_reduce(mean, group=mesh["tp"].get_group())
    """
    for ranks, frames in parted.parting.sides:
        call = parted.parting.calls[ranks[0]]
        if len(ranks) != 1 or not isinstance(call, RecordedCall) or len(call.group) < 2:
            continue
        come = {
            rank: each.group
            for rank, record in parted.records.items()
            for each in record.calls
            if each.place.frames == frames and each.operation == call.operation
        }
        apart = {*come.values()}  # each of them with a group of its own
        if len(come) < 2 or len(apart) < len(come):
            continue
        meant = next(
            (
                members
                for _, members, _ in parted.records[ranks[0]].groups.values()
                if {*members} == {*come} and members != call.group
            ),
            None,
        )
        if meant is None:
            continue
        place, group = short(frames, parted.folder), _list_ranks(meant)
        words = (
            f"{ranks_text(sorted(come))} come to {place}, one of each group that is passed there, "
            f"and are a group themselves: that of ranks {group}"
        )
        return Clause(words), (
            f"pass the group of ranks {group} at {place}, or let all ranks of the group that is "
            "passed come there."
        )
    return None


def find_group_apart(
    parted: DecidedParting, send: RecordedCall, take: RecordedCall, ends: tuple[int, int]
) -> Reason | None:
    """Return the `if` by which two ranks choose the groups of a message, one another at each end.

    `ends` are the rank that sends and the one that receives.
    """
    source, target = ends
    made = [
        origin_of(parted.records[rank], call) for rank, call in ((source, send), (target, take))
    ]
    if send.group != take.group or made[0] == made[1] or None in made:
        return None
    names = [
        f" on `{each.variable}`" if each is not None and each.variable else "" for each in made
    ]
    places = [call.place.short(parted.folder) for call in (send, take)]
    words = (
        f"rank {source} sends{names[0]} ({places[0]}) what rank {target} expects{names[1]} "
        f"({places[1]}): messages of two groups never meet"
    )
    fix = f"pass one group at both ends of a message: at {places[0]} and at {places[1]}."
    tallies = parted.tallies(whole=True)
    asked = (each for each in tallies if each.kind == "if")
    chosen = next((each for each in asked if _chooses_group(each, (send, take))), None)
    if chosen is not None:
        own = tallies[chosen]
        ranks = ranks_text([rank for rank, each in own.items() if each.yes])
        words += f"; `{chosen.text}` ({parted.place(chosen)}), which chooses them, "
        words += f"is true on {ranks} of {len(own)}"
    return Clause(words), fix


def _chooses_group(decision: Decision, calls: Sequence[RecordedCall]) -> bool:
    """Whether an `if` is around what sets the groups of calls, or in a function that gives them."""
    for call in calls:
        file, line, _ = call.choice_frames[0]
        source = script_at(file)
        group = source.argument(line, {"group"}, {}) if source is not None else None
        if source is None or group is None:
            continue
        for script, at in [(source, line), *source.traces(group, line, in_parts=True)]:
            for node in ast.walk(script.tree):
                if not isinstance(node, ast.Call) or node.lineno != at:
                    continue
                given = script.functions(name_of(node.func))
                if any(
                    each.file == decision.file and has_line(function, decision.line)
                    for each, function in given
                ):
                    return True
            if script.file == decision.file and any(
                isinstance(node, ast.If) and node.test.lineno == decision.line
                for node, _ in script.find_statements(at)
            ):
                return True
    return False


def find_own_order(frames: Frames, folder: str) -> Reason | None:
    """Return the loop whose variable a group is found by, with what puts it in an order.

    Ranks that sort by what each has measured, or has waiting, come to their groups in another one.
    """
    for file, line, _ in frames[:1]:
        source = script_at(file)
        group = source.argument(line, {"group"}, {}) if source is not None else None
        if source is None or group is None:
            continue
        read = _names_of(group) | {
            name
            for script, at in source.traces(group, line)
            if script is source
            for each in ast.walk(source.tree)
            if isinstance(each, ast.Assign) and each.lineno == at
            for name in _names_of(each.value)
        }
        for node, part in source.find_statements(line):
            if not isinstance(node, ast.For) or part != "body" or not read & _names_of(node.target):
                continue
            place = source.place(node.lineno, folder)
            words = (
                f"the loop `{source.text(node.lineno)}` ({place}) goes in another order on some "
                "ranks"
            )
            sorting = _find_sorting(source, node)
            if sorting is not None:
                script, at = sorting
                words += f": {script.quote(at, folder)}"
            fix = (
                f"let the loop at {place} go in one order on every rank: by names that all have, "
                "and not by what each rank has measured, drawn or waiting."
            )
            return Clause(words), fix
    return None


def find_turn_of_callers(frames: Frames, folder: str) -> Reason | None:
    """Return the loop of a caller that ranks go through in an order of each rank's own.

    The line that communicates is in a function below it, such as the `backward` of one of ours::

        for name in sorted(losses, key=losses.get):
            losses[name].backward()
    """
    for file, line, _ in frames[1:]:
        source, loop = script_at(file), find_surrounding_loop(file, line)
        sorting = _find_sorting(source, loop) if source is not None and loop is not None else None
        if source is None or loop is None or sorting is None:
            continue
        script, at = sorting
        if not _BY_VALUE.search(script.text(at)):
            continue
        place = source.place(loop.lineno, folder)
        words = (
            f"the loop `{source.text(loop.lineno)}` ({place}) goes in another order on some ranks: "
            f"{script.quote(at, folder)}"
        )
        fix = (
            f"let the loop at {place} go in one order on every rank: by names that all have, and "
            "not by what each rank has measured or drawn."
        )
        return Clause(words), fix
    return None


#: what puts things in an order by their values, or at random, and not by their names
_BY_VALUE = re.compile(r"\bkey=|\b(?:shuffle|sample|permutation|randperm|argsort)\(")


def _names_of(value: ast.expr) -> set[str]:
    return {each.id for each in ast.walk(value) if isinstance(each, ast.Name)}


#: functions and methods that put things in an order of each rank's own
_SORTING = re.compile(r"\b(?:sorted|sort|shuffle|sample|permutation|randperm|argsort|reversed)\(")


def _find_sorting(source: Script, loop: ast.For) -> tuple[Script, int] | None:
    """Return the line that puts what a loop goes through in an order; None where none is seen."""
    changed = source.changes(loop.iter, loop.lineno)
    lines = [(source, changed)] if changed else []
    for call in (each for each in ast.walk(loop.iter) if isinstance(each, ast.Call)):
        found = [*source.functions(name_of(call.func))]
        for script, function in found if len(found) == 1 else ():
            lines += [
                (script, each.lineno)
                for each in ast.walk(function)
                if isinstance(each, ast.Return) and each.value is not None
            ]
    lines += [*source.traces(loop.iter, loop.lineno)]
    return next((each for each in lines if _SORTING.search(each[0].text(each[1]))), None)


def find_ungrouped(parted: DecidedParting) -> Reason | None:
    """Return the call without a group to which whole groups come, where they passed theirs before.

    Both calls are of one function, so that its author had the group at hand::

        dist.all_reduce(weights, group=group)      ranks 0 and 1
        dist.barrier()                             is of all ranks
    """
    for ranks, frames in parted.parting.sides:
        calls = [parted.parting.calls[rank] for rank in ranks]
        source = script_at(frames[0][0]) if frames else None
        scope = source.scope(frames[0][1]) if source is not None else None
        if not isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        before = [
            found
            for rank, call in zip(ranks, calls, strict=True)
            if (found := _find_grouped(parted.records[rank], call, scope)) is not None
        ]
        come = {rank for each in before for rank in each.group}
        if len(before) < len(ranks) or come != {*ranks} or _read_group(scope, frames[0][1]):
            continue
        file, line, _ = before[0].place.frames[0]
        passed = _read_group(scope, line)
        if not passed:
            continue
        there, here = place_at(file, line, parted.folder), short(frames, parted.folder)
        words = (
            f"`{scope.name}` passes `group={passed}` at {there}, and no group at {here}: that is "
            f"of all ranks, and {ranks_text(ranks)} alone {'is' if len(ranks) == 1 else 'are'} "
            "there"
        )
        return Clause(words), f"pass `group={passed}` at {here}, or let every rank come there."
    return None


def _find_grouped(
    record: RankRecord,
    call: RecordedCall | BlockingCall,
    scope: ast.FunctionDef | ast.AsyncFunctionDef,
) -> RecordedCall | None:
    """Return the last call before another one, in one function, in a part of its group."""
    found = None
    for each in record.items:
        if each is call:
            return found
        if (
            isinstance(each, RecordedCall)
            and isinstance(call, RecordedCall)
            and {*each.group} < {*call.group}
            and each.place.frames[:1]
            and each.place.frames[0][0] == call.place.frames[0][0]
            and has_line(scope, each.place.frames[0][1])
        ):
            found = each
    return None


def _read_group(scope: ast.AST, line: int) -> str:
    """Return the argument `group` of a call in a line of a function; empty where it has none."""
    for node in ast.walk(scope):
        if isinstance(node, ast.Call) and has_line(node, line):
            for each in node.keywords:
                if each.arg == "group":
                    return ast.unparse(each.value)
    return ""


def _list_ranks(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:8]))
    return f"{shown}, ..." if len(ranks) > 8 else shown


def tell_groups(parting: Parting, records: Mapping[int, RankRecord], folder: str) -> list[Clause]:
    """Return the groups in which ranks part, each with the line that made it; not the world."""
    made: dict[tuple[int, ...], str] = {}
    for rank, call in sorted(parting.calls.items()):
        if isinstance(call, BlockingCall) or (origin := origin_of(records[rank], call)) is None:
            continue
        text = f": `{origin.frames[0][2]}`" if origin.frames and origin.frames[0][2] else ""
        words = f"the group of ranks {_list_ranks(call.group)} is made at"
        made.setdefault(call.group, f"{words} {short(origin.frames, folder)}{text}")
    return [Clause(words) for words in made.values()]
