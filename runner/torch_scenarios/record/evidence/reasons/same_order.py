"""Why ranks wait for each other in one line: an `if` that all of them take alike.

Two ranks that exchange go different ways, so that one sends while the other receives::

    if self.send_first:                    true on ranks 0 and 2, which send to each other
        dist.send(x, peer)
        dist.recv(y, peer)
    else:
        dist.recv(y, peer)
        dist.send(x, peer)

The cause is what the condition reads: here the parity of a rank of the world, in a group that has
every other rank alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import DecidedParting, Reason, Tally
from torch_scenarios.record.evidence.reasons.origin import word_values
from torch_scenarios.record.evidence.script import script_at
from torch_scenarios.record.format import Decision, RankRecord, RecordedCall
from torch_scenarios.verdict.finding import ranks_text

#: functions that send, or receive, in the text of a line
_MESSAGES = re.compile(r"\b(i?send|i?recv)(?:_object_list)?\b")


def find_same_order(parted: DecidedParting, waiting: Mapping[int, str]) -> Reason | None:
    """Return the `if` by which ranks that wait for each other take the same order of messages.

    `waiting` are the ranks, and what each of them waits for another one to do.
    """
    ranks = sorted(waiting)
    operations = set(waiting.values())
    if len(ranks) < 2 or len(operations) != 1:  # they do not all send, or all receive
        return None
    operation = "send" if operations == {"receive"} else "recv"
    calls = [_find_call(parted.records[rank], operation, ranks) for rank in ranks]
    places = {call.choice_frames[:1] for call in calls if call is not None}
    if None in calls or len(places) != 1 or not (frames := next(iter(places))):
        return None
    file, line, _ = frames[0]
    for node, part in _list_branches(file, line):
        other = node.orelse if part == "body" else node.body
        if not _is_opposite(getattr(node, part), other, operation):
            continue
        tallies = parted.tallies(whole=True, alike=True)
        decision = next((each for each in tallies if _is_of(each, file, node)), None)
        own = tallies[decision] if decision is not None else {}
        if decision is not None and all(_takes(own[rank], part) for rank in ranks):
            return _tell(parted, decision, part, own, ranks)
    return None


def _find_call(record: RankRecord, operation: str, ranks: Collection[int]) -> RecordedCall | None:
    """Return the first message of a rank that goes to, or comes from, the others."""
    return next(
        (each for each in record.calls if each.operation == operation and each.peer in ranks), None
    )


def _list_branches(file: str, line: int) -> Iterator[tuple[ast.If, str]]:
    source = script_at(file)
    for node, part in source.find_statements(line) if source is not None else ():
        if isinstance(node, ast.If) and part in {"body", "orelse"} and node.orelse:
            yield node, part


def _is_opposite(own: Sequence[ast.stmt], other: Sequence[ast.stmt], operation: str) -> bool:
    """Whether one branch begins with what is given, and the other with its counterpart."""
    first, second = (_MESSAGES.findall("\n".join(map(ast.unparse, each))) for each in (own, other))
    if not first or not second:
        return False
    return first[0].endswith(operation) and not second[0].endswith(operation)


def _is_of(decision: Decision, file: str, node: ast.If) -> bool:
    return decision.kind == "if" and (decision.file, decision.line) == (file, node.test.lineno)


def _takes(tally: Tally, part: str) -> bool:
    """Whether a rank took one branch alone."""
    yes, no = tally.yes, tally.no
    return bool(yes and not no) if part == "body" else bool(no and not yes)


def _tell(
    parted: DecidedParting,
    decision: Decision,
    part: str,
    own: Mapping[int, Tally],
    ranks: list[int],
) -> Reason:
    place = parted.place(decision)
    way = "go into" if part == "body" else "take the `else` of"
    values = word_values(parted, decision, own, ranks)
    count = "both" if len(ranks) == 2 else "all"
    words = f"{ranks_text(ranks)} {count} {way} `{decision.text}` ({place}), so none of them "
    words += "begins with the other end"
    fix = (
        f"let `{decision.text}` ({place}) be true on one of two ranks that exchange and false on "
        "the other: in a group by the number inside of it (`dist.get_rank(group) % 2`), as its "
        "ranks of the world may all be even."
    )
    return Clause(words + (f"; {values}" if values else "")), fix
