"""Two ranks that both send to each other before either receives, in loops that do both.

A stage sends its activation on, and the next one its gradient back, in the same turn::

    for batch in batches:                      for batch in batches:
        dist.send(y, rank + 1)                     dist.recv(x, rank - 1)
        dist.recv(g, rank + 1)                     dist.send(x.grad, rank - 1)

No message is too many, and none is missing: where one stage is a turn ahead, their order is wrong.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import DecidedParting, Reason
from torch_scenarios.record.evidence.divergence import Frames
from torch_scenarios.record.evidence.reasons.loop import find_surrounding_loop
from torch_scenarios.record.evidence.script import name_of, place_at, script_at
from torch_scenarios.record.format import RankRecord, RecordedCall

#: functions that send, and that receive
_SENDS, _TAKES = frozenset({"send", "isend"}), frozenset({"recv", "irecv"})
#: a call of one of them in the text of a script
_MESSAGES = re.compile(r"\b(?:i?send|i?recv)\(")


def find_crossed(parted: DecidedParting, answers: Sequence[tuple[int, int, str]]) -> Reason | None:
    """Return the lines in which two ranks both send first; None where a message is left out.

    `answers` are who waits, for which rank, and what that one does not do.
    """
    pairs = {(waiting, rank) for waiting, rank, what in answers if what == "receive"}
    for one, other in sorted(pairs):
        if one > other or (other, one) not in pairs or _leaves_out(parted):
            continue
        ends = [
            _find_blocked(parted.records[rank], parted.records[peer])
            for rank, peer in ((one, other), (other, one))
        ]
        if any(end is None or not _does_both(end.place.frames) for end in ends):
            continue
        where = [end.place.short(parted.folder) for end in ends if end is not None]
        if where[0] == where[1]:
            continue
        words = (
            f"ranks {one} and {other} both send first: rank {one} at {where[0]}, rank {other} at "
            f"{where[1]}; a send may wait until the other rank receives, and each of them would "
            "receive behind its send"
        )
        fix = (
            f"begin the receive before the send on one of them (`irecv`, then {where[0]}), or make "
            "what a rank sends and receives in one turn by one `batch_isend_irecv`."
        )
        return Clause(words), fix
    return None


def find_late_message(
    answers: Sequence[tuple[int, int, str]], records: Mapping[int, RankRecord], folder: str
) -> Reason | None:
    """Return the message that a rank of a ring makes behind the one in which it waits, too late.

    A stage that sends on to two others begins with the one that first waits for the other::

        rank 0   sends to 2, then to 1
        rank 1   receives from 0, then sends to 2
        rank 2   receives from 1, then from 0
    """
    waits = {waiting: (rank, _HOW[what]) for waiting, rank, what in answers}
    if len(waits) < MIXED or len({how for _, how in waits.values()}) < len(_HOW):
        return None
    for waiting, rank, what in answers:
        if rank not in waits or waiting == waits[rank][0]:
            continue
        peer, how = waits[rank]  # in which the rank waits that owes this message
        calls = [each for each in records[rank].calls if each.operation in _HOW.values()]
        open_at = len(calls) - 1 if records[rank].inside else 0  # a real rank is in its last call
        fitting = [n for n, e in enumerate(calls) if (e.operation, e.peer) == (how, peer)]
        at = next((n for n in fitting if n >= open_at), -1)
        if at < 0 or how != "send" or what != "send":
            continue
        call, loop = calls[at], _find_loop_of_peers(calls[at])
        later = [e for e in calls[at + 1 :] if (e.operation, e.peer) == ("send", waiting)]
        if not later and loop is None:
            continue
        here = call.place.short(folder)
        there = later[0].place.short(folder) if later else here
        words = (
            f"rank {rank} sends to rank {peer} first ({here}), which receives only behind what it "
            f"waits for itself; and to rank {waiting}, which waits for it, behind that ({there})"
        )
        place = there
        if loop is not None:
            text, place = loop[0], place_at(loop[1], loop[2], folder)
            words += f": `{text}` ({place}) goes through the ranks in this order"
        fix = (
            f"let rank {rank} send to rank {waiting} first ({place}), or begin its messages "
            "together (`isend`, `batch_isend_irecv`) and wait for them afterwards."
        )
        return Clause(words), fix
    return None


#: what a rank does that waits until another one receives, or sends
_HOW = {"receive": "send", "send": "recv"}
#: ranks of a ring in which a message to one waits behind that to another
MIXED = 3


def _find_loop_of_peers(call: RecordedCall) -> tuple[str, str, int] | None:
    """Return the loop that gives the rank to which a line sends: text, file and line."""
    for file, line, _ in call.place.frames[:1]:
        source, loop = script_at(file), find_surrounding_loop(file, line)
        value = (
            source.argument(line, {"dst"}, {"send": 1, "isend": 1}) if source is not None else None
        )
        if source is None or loop is None or value is None:
            continue
        names = {each.id for each in ast.walk(loop.target) if isinstance(each, ast.Name)}
        if names & {each.id for each in ast.walk(value) if isinstance(each, ast.Name)}:
            return source.text(loop.lineno), file, loop.lineno
    return None


def _find_blocked(record: RankRecord, peer: RankRecord) -> RecordedCall | None:
    """Return the send of a rank that the other one does not come to receive; None for none.

    A real rank is in it. Fake ranks go on: it is the first one that is still open where the other
    rank sends as well, and all messages between them fit in number.
    """
    sent, taken = _list(record, "send", peer.rank), _list(peer, "recv", record.rank)
    if record.inside:
        return sent[-1][1] if sent and sent[-1][0] == len(record.items) - 1 else None
    back, got = _list(peer, "send", record.rank), _list(record, "recv", peer.rank)
    if len(sent) != len(taken) or len(back) != len(got):
        return None
    for number, (at, call) in enumerate(sent):
        before = sum(each < at for each, _ in got)
        if before < len(back):
            its = back[before][0]
            if sum(each < its for each, _ in taken) == number:
                return call
    return None


def _list(record: RankRecord, operation: str, peer: int) -> list[tuple[int, RecordedCall]]:
    return [
        (at, each)
        for at, each in enumerate(record.items)
        if isinstance(each, RecordedCall) and (each.operation, each.peer) == (operation, peer)
    ]


def _leaves_out(parted: DecidedParting) -> bool:
    """Whether an `if` around a message goes one way at one time, and the other at another one."""
    for decision, own in parted.tallies(whole=True, alike=True).items():
        source = script_at(decision.file) if decision.kind == "if" else None
        node = source.condition(decision.line) if source is not None else None
        if (
            isinstance(node, ast.If)
            and any(each.yes and each.no for each in own.values())
            and _MESSAGES.search(ast.unparse(node))
        ):
            return True
    return False


def _does_both(frames: Frames) -> bool:
    """Whether a loop around a line sends and receives, itself or by functions that it calls."""
    for file, line, _ in frames:
        source = script_at(file)
        for node, part in source.find_statements(line) if source is not None else ():
            if source is None or not isinstance(node, ast.For | ast.While) or part != "body":
                continue
            called = {
                name_of(each.func)
                for stmt in node.body
                for each in ast.walk(stmt)
                if isinstance(each, ast.Call)
            }
            if all(
                called & wanted or any(source.reaches(name, wanted) for name in called)
                for wanted in (_SENDS, _TAKES)
            ):
                return True
    return False
