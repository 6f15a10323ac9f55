"""The branch that leads ranks to different places, by the text of the script alone."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import ASKS_RANK, Reason
from torch_scenarios.record.evidence.divergence import Frames, Parting
from torch_scenarios.record.evidence.reasons.loop import loop_of
from torch_scenarios.record.evidence.script import Script, place_at, script_at
from torch_scenarios.record.format import (
    RankRecord,
)
from torch_scenarios.verdict.finding import ranks_text


def explain_places(sides: Sequence[tuple[list[int], Frames]], folder: str) -> Reason | None:
    """Return why ranks are at different places of a script, by its text alone.

    How often they came there is not known: the loop that some are still in, or the `if` that some
    have taken.
    """
    for ranks, frames in sides:
        loop = loop_of(frames, [each for _, each in sides if each != frames])
        if loop is not None and len(sides) > 1:
            text, line, file = loop
            place = place_at(file, line, folder)
            verb = "is" if len(ranks) == 1 else "are"
            branch = branch_of(sides, folder)
            if branch is not None and "rank" in str(branch[0]):
                return branch
            words = f"{ranks_text(ranks)} {verb} still in the loop `{text}` ({place})"
            fix = (
                f"give every rank the same number of turns of the loop at {place} and the same "
                "calls in each turn, and let no rank make a call alone; or let all ranks leave the "
                "loop in the same turn."
            )
            return Clause(words), fix
    return branch_of(sides, folder)


def find_branch(
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
    return branch_of(sides, folder)


def find_asking_branch(
    parting: Parting, records: Mapping[int, RankRecord], folder: str
) -> Reason | None:
    """Return the `if` that asks for the rank, around a line to which other ranks never come.

    A loop around it has as many turns on all ranks, as far as its text shows.
    """
    for ranks, frames in parting.sides:
        others = [each for each in (*parting.calls, *parting.missing) if each not in ranks]
        came = any(call.place.frames == frames for each in others for call in records[each].calls)
        found = find_branch(parting, records, folder) if frames and not came else None
        if found is not None:
            who, _, text = found[0].words.partition("`")
            if who.startswith(ranks_text(ranks)) and ASKS_RANK.search(text):
                return found
    return None


def branch_of(sides: Sequence[tuple[list[int], Frames]], folder: str) -> tuple[Clause, str] | None:
    """Return the `if` or `except` that leads some ranks to their place, by the script's text."""
    if len(sides) < 2:
        return None  # all are in one line: no branch leads some of them there
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
                for node, name in source.find_statements(at)
            }
            apart = [
                (node, name)
                for node, name in source.find_statements(line)
                if (id(node), name) not in shared and isinstance(node, ast.If | ast.Try)
            ]
            if apart:
                tries = [each for each in apart if isinstance(each[0], ast.Try)]
                asking = [e for e in apart if ASKS_RANK.search(source.text(e[0].lineno))]
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
    """Return the words for a statement at which ranks part, and what to do about it.

    `name` is the part of the statement that `ranks` took: its body, another branch.
    """
    place = source.place(node.lineno, folder)
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
        "out of the condition, or decide it the same way on all ranks."
    )
    return Clause(words), fix


def _jump_within(
    sides: Sequence[tuple[list[int], Frames]], folder: str
) -> tuple[Clause, str] | None:
    """Return the way out of a function in which some ranks wait, and past whose call others are.

    The others are further on in the function that calls it: they have left it, or never came.
    """
    for ranks, frames in sides:
        for at, (file, line, _) in enumerate(frames[1:], 1):
            source = script_at(file)
            past = [
                rank
                for who, other in sides
                for path, further, _ in other
                if source is not None and path == file and line < further
                if source.scope(line) is source.scope(further)
                for rank in who
            ]
            for inner, number, _ in frames[:at] if past else ():
                called = script_at(inner)
                node = called.jump_before(number) if called is not None else None
                if called is None or node is None:
                    continue
                text, place = called.text(node.lineno), called.place(node.lineno, folder)
                verb = "is" if len(past) == 1 else "are"
                words = (
                    f"{ranks_text(past)} {verb} past {place_at(file, line, folder)}, in "
                    f"which {ranks_text(ranks)} wait{'s' * (len(ranks) == 1)}: `{text}` ({place}) "
                    "may lead out of it before"
                )
                fix = (
                    f"take the way out at {place} on all ranks or on none: agree on its condition "
                    "first."
                )
                return Clause(words), fix
    return None


def _jump(sides: Sequence[tuple[list[int], Frames]], folder: str) -> tuple[Clause, str] | None:
    """Return the way out under an `if` (`return`, `continue`) that leads some past a call."""
    placed = [(ranks, frames[0]) for ranks, frames in sides if frames]
    if len(placed) < 2:
        return None
    (early, (file, line, _)), (late, (other, _, _)) = sorted(placed, key=lambda each: each[1][1])[
        :2
    ]
    source = script_at(file)
    if source is None or file != other:
        return _jump_within(sides, folder)
    node = source.jump_before(line)
    if node is None:
        return _jump_within(sides, folder)
    text, place = source.text(node.lineno), source.place(node.lineno, folder)
    who, verb = ranks_text(late), "goes" if len(late) == 1 else "go"
    words = (
        f"{who} {verb} past {source.place(line, folder)}, where {ranks_text(early)} wait"
        f"{'s' * (len(early) == 1)}: `{text}` ({place}) may lead past it"
    )
    fix = f"take the way out at {place} on all ranks or on none: agree on its condition first."
    return Clause(words), fix
