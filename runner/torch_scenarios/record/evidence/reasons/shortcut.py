"""A call that an `or`, an `any()` or a comprehension makes unequally often."""

from __future__ import annotations

from collections.abc import Mapping

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import (
    DecidedParting,
    Reason,
    Tally,
    list_times,
)
from torch_scenarios.record.evidence.reasons.origin import word_values
from torch_scenarios.record.evidence.script import script_at
from torch_scenarios.record.format import Decision
from torch_scenarios.verdict.finding import ranks_text


def find_shortcut(parted: DecidedParting, *, by_all: bool, is_first: bool = False) -> Reason | None:
    """Return the expression in which ranks call unequally often; `by_all` where each comes to it.

    It is in a line that leads to the call of some ranks. `is_first` asks for those alone that stop
    where something decides: a comprehension has more turns too where a loop around it has.
    """
    lines = {(file, line) for _, frames in parted.sides for file, line, _ in frames}
    for decision, own in reversed(parted.tallies(whole=True).items()):
        if (decision.file, decision.line) not in lines or decision.kind not in _KINDS:
            continue
        if by_all and not all(each.yes or each.no for each in own.values()):
            continue
        if is_first and decision.kind == "each" and decision.text.partition("(")[0] not in _STOPS:
            continue
        if decision.kind != "each":
            return _explain_part(parted, decision, own)
        return _explain_turns(parted, decision, own)
    return None


#: functions that stop at the first element that decides
_STOPS = frozenset({"any", "all"})
#: decisions within an expression
_KINDS = frozenset({"and", "or", "each"})


def _explain_part(parted: DecidedParting, decision: Decision, own: Mapping[int, Tally]) -> Reason:
    """Return that ranks leave out what follows an `and` or `or`."""
    place = parted.place(decision)
    left = {rank: each.yes if decision.kind == "or" else each.no for rank, each in own.items()}
    most = max(left.values())
    ranks = [rank for rank, count in left.items() if count == most]
    verb = "leaves" if len(ranks) == 1 else "leave"
    words = (
        f"{ranks_text(ranks)} alone {verb} out what follows `{decision.kind}` in "
        f"`{decision.text}` ({place})"
    )
    values = word_values(parted, decision, own)
    fix = (
        f"make the call on every rank, in a line of its own, before `{decision.kind}` ({place}) "
        "combines what comes out."
    )
    return Clause(words + (f", where {values}" if values else "")), fix


def _explain_turns(parted: DecidedParting, decision: Decision, own: Mapping[int, Tally]) -> Reason:
    """Return that ranks take the turns of a comprehension, or of a generator, unequally often."""
    place, text = parted.place(decision), decision.text
    counts = list_times({rank: each.yes for rank, each in own.items()})
    name = text.partition("(")[0]
    if name in _STOPS:
        which = "true" if name == "any" else "false"
        words = f"`{text}` ({place}) stops at the first that is {which}; turns: {counts}"
        fix = (
            f"let every rank ask for all of them ({place}): `{name}([...])`, with a list, goes to "
            "the end."
        )
        return Clause(words), fix
    source = script_at(decision.file)
    named = text.rstrip("])}").split()[-1]
    set_at = source.assigned(named, decision.line) if source is not None else ""
    words = f"`{text}` ({place}) has more turns on some ranks: {counts}"
    fix = (
        f"give every rank the same number of turns at {place}: let it go over the same "
        "items on all ranks, or agree on the length first (an `all_reduce` with `op=max`)."
    )
    return Clause(words + (f" (`{set_at}`)" if set_at else "")), fix
