"""Why ranks of two roles do not meet in a collective: each role has its own `if` before it.

A learner and its actors have code of their own, and call the same operation in other lines::

    class Actor:                                      class Learner:
        if done and self.episodes % 2 == 0:               if self.updates % 4 == 0:
            dist.broadcast(self.policy, src=0)                dist.broadcast(self.policy, src=0)

What one condition counts, the other does not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import (
    DecidedParting,
    Reason,
    Tallies,
    Tally,
    list_times,
    short,
)
from torch_scenarios.record.evidence.divergence import Frames
from torch_scenarios.record.evidence.script import Script, name_of, place_at, script_at
from torch_scenarios.record.format import Decision, RecordedCall
from torch_scenarios.verdict.finding import ranks_text

#: an `if` with how often each rank went which way
_Asked = tuple[Decision, Mapping[int, Tally]]


def find_other_count(parted: DecidedParting) -> Reason | None:
    """Return the `if`s of two roles before one operation, to which one role comes more often."""
    tallies = parted.tallies(whole=True, alike=True)
    for ranks, frames in parted.parting.sides:
        call = parted.parting.calls[ranks[0]]
        others = [rank for rank in parted.ranks if rank not in ranks]
        source = script_at(frames[0][0]) if frames else None
        if source is None or not others or not isinstance(call, RecordedCall):
            continue
        own = _find_asked(source, frames[0][1], tallies)
        if own is None or not _is_of(own[1], ranks, others):
            continue
        names = source.called(frames[0][1]) & {call.operation}
        for line, other in _list_answers(source, frames, names, tallies):
            if not _is_of(other[1], others, ranks):
                continue
            came = min(own[1][rank].yes for rank in ranks)
            if max(other[1][rank].yes for rank in others) < came:
                return _tell(parted, (ranks, frames, own), (others, line, other))
    return None


def _find_asked(source: Script, line: int, tallies: Tallies) -> _Asked | None:
    """Return the innermost `if` around a line, with what ranks decided there."""
    for node, part in source.find_statements(line):
        if isinstance(node, ast.If) and part == "body":
            at = (source.file, node.test.lineno)
            return next(
                (
                    (each, own)
                    for each, own in tallies.items()
                    if each.kind == "if" and (each.file, each.line) == at
                ),
                None,
            )
    return None


def _is_of(own: Mapping[int, Tally], ranks: Sequence[int], others: Sequence[int]) -> bool:
    """Whether ranks come to an `if` that the others never come to."""
    return all(own[rank].yes + own[rank].no for rank in ranks) and not any(
        own[rank].yes + own[rank].no for rank in others
    )


def _list_answers(
    source: Script,
    frames: Frames,
    names: set[str],
    tallies: Tallies,
) -> Iterator[tuple[int, _Asked]]:
    """Yield the lines in other functions that make the same call under an `if`."""
    scope = source.scope(frames[0][1])
    for call in ast.walk(source.tree):
        if isinstance(call, ast.Call) and name_of(call.func) in names:
            asked = _find_asked(source, call.lineno, tallies)
            if asked is not None and source.scope(call.lineno) is not scope:
                yield call.lineno, asked


def _tell(
    parted: DecidedParting,
    here: tuple[Sequence[int], Frames, _Asked],
    there: tuple[Sequence[int], int, _Asked],
) -> Reason:
    (ranks, frames, own), (others, line, other) = here, there
    places = [parted.place(each[0]) for each in (own, other)]
    lines = [short(frames, parted.folder), place_at(frames[0][0], line, parted.folder)]
    counts = [
        list_times({rank: each[1][rank].yes for rank in who})
        for who, each in ((ranks, own), (others, other))
    ]
    words = (
        f"{ranks_text([*ranks])} {'comes' if len(ranks) == 1 else 'come'} to {lines[0]} under "
        f"`{own[0].text}` ({places[0]}; true: {counts[0]}), and {ranks_text([*others])} answer"
        f"{'s' * (len(others) == 1)} it at {lines[1]} under `{other[0].text}` ({places[1]}; true: "
        f"{counts[1]}): the two conditions do not count the same"
    )
    fix = (
        f"let {places[0]} and {places[1]} be decided by one number that both ends have, or let one "
        "rank decide and send it to the others before they come there."
    )
    return Clause(words), fix
