"""Messages of two ranks that are not received in the order in which they are sent.

Torch matches the messages of a pair by their order, and by their tag where the backend has tags::

    rank 0   sends hidden (768 elements), then mask (24)
    rank 1   receives mask (24), then hidden (768)
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import Reason, short
from torch_scenarios.record.evidence.reasons.loop import find_surrounding_loop
from torch_scenarios.record.evidence.reasons.value_source import trace_value
from torch_scenarios.record.format import RecordedCall

#: messages behind the first that does not fit, among which its counterpart is looked for
MOST_AHEAD = 8


def find_other_order(
    sent: Sequence[RecordedCall], taken: Sequence[RecordedCall], ranks: tuple[int, int], folder: str
) -> Reason | None:
    """Return that what two ranks send and receive fits in another order; None where it does not.

    The first of each does not fit, and each of the two has a counterpart further on. One that
    receives may have died in its first message, so that no other one is known of it.
    """
    sends, takes = sent[:MOST_AHEAD], taken[:MOST_AHEAD]
    send = next((each for each in sends[1:] if _kind(each) == _kind(takes[0])), None)
    take = next((each for each in takes[1:] if _kind(each) == _kind(sends[0])), None)
    if send is None or (take is None and len(takes) > 1):
        return None
    source, target = ranks
    first, second = (
        _tell_order(f"rank {source} sends", sends[0], send, folder),
        _tell_order(f"rank {target} receives", takes[0], take, folder),
    )
    words = (
        f"{first}, and {second}: the messages of two ranks meet in the order in which they are made"
    )
    chosen = _find_chosen_order(takes[0], folder) or _find_chosen_order(sends[0], folder)
    if chosen is not None:
        return Clause(f"{words}; {chosen[0].words}"), chosen[1]
    where, there = short(takes[0].choice_frames, folder), short(sends[0].choice_frames, folder)
    fix = (
        f"let rank {target} receive ({where}) in the order in which rank {source} sends ({there})."
    )
    return Clause(words), fix


def _find_chosen_order(call: RecordedCall, folder: str) -> Reason | None:
    """Return the line by which ranks go through a loop in different orders."""
    frames = call.choice_frames
    loop = find_surrounding_loop(*frames[0][:2]) if frames else None
    if loop is None:
        return None
    head = (frames[0][0], loop.lineno, "")
    for script, line in trace_value((head, *frames[1:]), loop.iter):
        if (script.asks_rank(line) or script.chooses(line)) and not script.keeps_rank(line):
            text = f"for {ast.unparse(loop.target)} in {ast.unparse(loop.iter)}"
            place, at = short((head,), folder), script.place(line, folder)
            words = f"`{text}` ({place}) goes by `{script.text(line)}` ({at})"
            fix = (
                f"let both ranks go through the same in the same order ({at}): one receives in the "
                "order in which the other sends."
            )
            return Clause(words), fix
    return None


def _kind(call: RecordedCall) -> tuple[str | None, int]:
    return call.dtype, call.elements


def _tell_order(does: str, one: RecordedCall, other: RecordedCall | None, folder: str) -> str:
    shown = [
        f"{each.elements} elements ({short(each.choice_frames, folder)})"
        for each in (one, other)
        if each is not None
    ]
    return f"{does} {', then '.join(shown)}"
