"""The first value that is not a number.

Each rank writes its first NaN or infinity down: of a module's output, a loss or a gradient. The
earliest is where to look, as all later ones may follow from it: a loss that divides by the tokens
of a rank that has none. It is an error where an output or a loss is no number on some ranks of a
data-parallel group and is one on others, and a warning else: with a GradScaler infinities are
meant to be met, and ranks may agree to leave a step out that an overflow or a broken row has
spoilt. Stages of a pipeline may pass on what was never set: nothing is said of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch_scenarios.record.values.format.event import FirstNan, LossScale, NanLeftOut
from torch_scenarios.record.values.format.record import CarryingCall, ValueRecord
from torch_scenarios.record.values.invariants.finding import Records, ValueFinding, tell_line
from torch_scenarios.record.values.roles import Roles
from torch_scenarios.verdict.finding import ranks_text

#: what has, or is, no number, as a sentence begins: in the order of computing
WHAT = {
    "output": "the output of `{}` has",
    "loss": "the loss is",
    "gradient": "the gradient of `{}` has",
}
#: the largest number of half precision
MOST_HALF = 65_504
ENTERS = "look at what enters there: a division by zero, a logarithm, a row of the data"
HINTS = {
    "output": ENTERS,
    "gradient": ENTERS,
    "loss": "look at what it divides by: a rank's own rows may have no label, and no token; sum "
    "the counts over the ranks before the division",
}


def find_first_nan(records: Records, roles: Roles) -> Iterator[ValueFinding]:
    """Yield where the first value that is not a number appears."""
    found = {rank: record.of(FirstNan) for rank, record in records.items()}
    used = {r: [e for e in own if not _is_left_out(records[r], e)] for r, own in found.items()}
    is_used = any(used.values())
    firsts = {rank: own[0] for rank, own in (used if is_used else found).items() if own}
    if not firsts:
        return
    rank, first = min(firsts.items(), key=lambda each: _order_of(each[1]))
    alike = [r for r, each in firsts.items() if _value_of(each) == _value_of(first)]
    scaled = any(record.of(LossScale) for record in records.values())
    others = sorted(set(records) - set(alike))
    lines = [set(ranks) for ranks in roles.data if rank in ranks]
    if others and not any(line & set(others) for line in lines):
        return  # stages of a pipeline pass other values on, and some that were never set
    disagree = bool(others) and first.what in {"output", "loss"}
    low = find_low_sum(records[rank], first.at) if first.what == "gradient" else None
    what = WHAT[first.what].format(first.name)
    details = f", and not on {ranks_text(others)}" if others else ""
    details += "" if is_used else "; no step has used it"
    yield ValueFinding(
        code="first_nan",
        message=f"{what} the first NaN or infinity, at step {first.turn} on "
        f"{ranks_text(alike)}{details}",
        ranks=tuple(alike),
        rank=rank,
        place=first.place,
        hint=HINTS[first.what] if low is None else tell_low_sum(records[rank], low),
        turn=first.turn,
        error=disagree and is_used and not scaled,
    )


def find_low_sum(record: ValueRecord, until: int) -> CarryingCall | None:
    """Return the last call that sums numbers of half precision between a step and an event."""
    since = max((step.at for step in record.steps if step.at < until), default=-1)
    own = [
        call
        for call in record.calls
        if since < call.at < until
        and call.op == "sum"
        and any(each.dtype == "float16" for each in call.tensors)
    ]
    return own[-1] if own else None


def tell_low_sum(record: ValueRecord, call: CarryingCall) -> str:
    """Say what to do about gradients that are summed in half precision, and are infinite then."""
    return (
        f"gradients are summed in float16{tell_line(record, call.place)}, where {MOST_HALF} is the "
        f"largest number: divide them by the {len(call.ranks)} ranks, and by a scale of the loss, "
        "before they are cast, or sum them in bfloat16"
    )


def _is_left_out(record: ValueRecord, event: FirstNan) -> bool:
    """Whether no step has used a value: gradients are numbers at the next step, or none follows."""
    later = [step.at for step in record.steps if step.at > event.at]
    left = [each.at for each in record.of(NanLeftOut) if each.at > event.at]
    return bool(record.steps) and (not later or bool(left and left[0] < later[0]))


def _order_of(event: FirstNan) -> tuple[int, int]:
    """Return what events are sorted by: as values are computed within a step."""
    return event.turn, [*WHAT].index(event.what)


def _value_of(event: FirstNan) -> tuple[int, str, str]:
    """Return which value it is that is no number: the same on several ranks."""
    return event.turn, event.what, event.name
