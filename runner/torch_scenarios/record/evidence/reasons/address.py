"""A message to a global rank whose number is that of another rank within a group.

A pipeline of ranks 2 and 3 that counts its stages from 0 sends from stage 0 to stage 1::

    rank 2   dist.send(x, dst=1)     global rank 1 never receives it
    rank 3   dist.recv(x, src=0)     rank 1 and rank 0 of the group (2, 3) are meant: 3 and 2
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import Reason, short
from torch_scenarios.record.evidence.script import script_at
from torch_scenarios.record.format import RankRecord, RecordedCall

#: arguments that name the other rank of a message, and where functions take it
_PEERS = frozenset({"dst", "src", "peer"})
_PEER_POSITIONS = {
    **dict.fromkeys(("send", "isend", "recv", "irecv"), 1),
    **dict.fromkeys(("send_object_list", "recv_object_list"), 1),
    "P2POp": 2,
}


def find_group_rank(records: Mapping[int, RankRecord], folder: str) -> Reason | None:
    """Return that messages without an end would meet, were their ranks those of a group."""
    lonely = {
        key: call for key, call in _list_lonely(records) if key[0] in records and key[1] in records
    }
    for (rank, peer, what), call in sorted(lonely.items()):
        for _, members, _ in records[rank].groups.values():
            if rank not in members or not peer < len(members) < records[rank].world_size:
                continue
            meant, own = members[peer], members.index(rank)
            other = "recv" if what == "send" else "send"
            answers = [lonely.get((meant, each, other)) for each in (rank, own)]
            answer = next(filter(None, answers), None)
            if meant not in {peer, rank} and answer is not None:
                return _tell_meant(records, (rank, call), (meant, answer), members, folder)
    return None


def find_other_sender(records: Mapping[int, RankRecord], folder: str) -> Reason | None:
    """Return that ranks receive from others than those that send to them.

    Each of them has one message that no rank takes, of another rank than the one it waits for.
    """
    lonely = dict(_list_lonely(records))
    waiting = {key[0]: call for key, call in lonely.items() if key[2] == "recv"}
    senders: dict[int, list[int]] = {}
    for rank, peer, what in lonely:
        if what == "send":
            senders.setdefault(peer, []).append(rank)
    sending = {
        key[0] for key in lonely if key[2] == "send"
    }  # and who is waited for sends elsewhere
    if not waiting or any(len(senders.get(rank, ())) != 1 for rank in waiting):
        return None
    if not all(call.peer in sending for call in waiting.values()):
        return None
    if any(
        call.operation == "recv" and call.peer in senders[rank]
        for rank in waiting
        for call in records[rank].calls
    ):
        return None  # it does receive from there, and this message is one of another turn
    rank, call = min(waiting.items())
    (sender,) = senders[rank]
    sent = lonely[sender, rank, "send"]
    passed, given = find_peer(call, folder)
    where = short(call.choice_frames, folder)
    words = (
        f"{_tell_message(rank, call, folder)}, and rank {sender} is the one that sends to it "
        f"({short(sent.choice_frames, folder)})"
    )
    words += f"; the number is `{passed}`" if passed else ""
    words += f": {given}" if given else ""
    fix = (
        f"let each rank receive from the rank that sends to it ({where}): in a ring that sends to "
        "the next one, that is the previous one."
    )
    return Clause(words), fix


def find_other_target(records: Mapping[int, RankRecord], folder: str) -> Reason | None:
    """Return that a rank sends to one that takes nothing from it, and another one waits for it.

    A stage that gives its gradients to the next one, and not back to the one before. No rank
    receives over that distance, so that the message is not merely taken later; and a number
    that is written there may be right, and the `if` wrong under which another one receives.
    """
    lonely = dict(_list_lonely(records))
    taken = {
        call.peer - rank
        for rank, record in records.items()
        for call in record.calls
        if call.operation == "recv" and call.peer is not None
    }
    for (rank, peer, what), call in sorted(lonely.items(), key=lambda each: each[0]):
        waiting = [at for at, other, how in lonely if (other, how) == (rank, "recv") and at != peer]
        if what != "send" or peer not in records or rank - peer in taken or len(waiting) != 1:
            continue
        meant, passed = waiting[0], find_peer(call, folder)
        if passed[0].isdigit():
            continue
        where, there = (
            short(each.choice_frames, folder) for each in (call, lonely[meant, rank, "recv"])
        )
        words = (
            f"{_tell_message(rank, call, folder)}, which receives nothing from it, and rank "
            f"{meant} is the one that waits for a message of rank {rank} ({there})"
        )
        words += f"; the number is `{passed[0]}`" if passed[0] else ""
        words += f": {passed[1]}" if passed[1] else ""
        return Clause(words), f"send to the rank that waits for it ({where}): to rank {meant}."
    return None


def _list_lonely(
    records: Mapping[int, RankRecord],
) -> Iterator[tuple[tuple[int, int, str], RecordedCall]]:
    """Yield the messages that one end makes more often: its rank, the other one, and what it is."""
    counts: Counter[tuple[int, int]] = Counter()
    last: dict[tuple[int, int, str], RecordedCall] = {}
    for rank, record in records.items():
        for call in record.calls:
            if call.operation in {"send", "recv"} and call.peer is not None:
                is_sent = call.operation == "send"
                counts[(rank, call.peer) if is_sent else (call.peer, rank)] += 1 if is_sent else -1
                last[rank, call.peer, call.operation] = call
    for (source, target), count in counts.items():
        key = (source, target, "send") if count > 0 else (target, source, "recv")
        if count:
            yield key, last[key]


def _tell_meant(
    records: Mapping[int, RankRecord],
    here: tuple[int, RecordedCall],
    there: tuple[int, RecordedCall],
    members: tuple[int, ...],
    folder: str,
) -> Reason:
    (rank, call), (meant, answer) = here, there
    words = (
        f"{_tell_message(rank, call, folder)}, and {_tell_message(meant, answer, folder)}: within "
        f"their group of ranks {', '.join(map(str, members))}, rank {call.peer} is global rank "
        f"{meant}"
    )
    if answer.peer != rank:
        words += f", and rank {answer.peer} is rank {rank}"
    passed, given = find_peer(call, folder)
    words += f"; the number is `{passed}`" if passed else ""
    words += f": {given}" if given else ""
    where = short(call.choice_frames, folder)
    group = records[rank].groups[int(call.group_name)][1]
    fix = (
        f"pass the global rank ({where}): `dist.get_global_rank(group, {call.peer})`, or "
        f"`group_{'dst' if call.operation == 'send' else 'src'}=` with the `group` of ranks "
        f"{', '.join(map(str, members))}"
    )
    fix += "." if group != members else ", which counts within it."
    return Clause(words), fix


def _tell_message(rank: int, call: RecordedCall, folder: str) -> str:
    does = "sends to" if call.operation == "send" else "receives from"
    return f"rank {rank} {does} rank {call.peer} ({short(call.choice_frames, folder)})"


def find_peer(call: RecordedCall, folder: str) -> tuple[str, str]:
    """Return what a message's line passes as its other rank, and the line that gives it."""
    for file, line, _ in call.choice_frames[:1]:
        source = script_at(file)
        value = source.argument(line, _PEERS, _PEER_POSITIONS) if source is not None else None
        if source is None or value is None:
            continue
        given = source.returned(value) if isinstance(value, ast.Call) else None
        found = [(given[0], given[1].lineno)] if given else source.traces(value, line)[:1]
        text = "".join(each.quote(at, folder) for each, at in found)
        return ast.unparse(value), text
    return "", ""
