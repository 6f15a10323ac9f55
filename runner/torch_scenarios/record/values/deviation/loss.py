"""A loss that is not that of one process."""

from __future__ import annotations

import numpy as np

from torch_scenarios.record.values.arrangement import Records
from torch_scenarios.record.values.deviation.distance import LOSSES_APART
from torch_scenarios.record.values.deviation.value import Deviation, tell_size
from torch_scenarios.record.values.format.event import (
    BackwardPass,
    LossValues,
    ModelInput,
    ModuleOutput,
)
from torch_scenarios.record.values.format.record import ValueRecord
from torch_scenarios.record.values.invariants.finding import ValueFinding, tell_call, tell_line
from torch_scenarios.record.values.source import frames_of_loss

#: times the unit roundoff of a lower precision in which modules compute that a loss may be off
COARSE_LOSS = 1.0
#: calls that give a rank what others have
GATHERING = {"allgather_", "_allgather_base_"}
#: what to look at where a loss is computed with gathered rows
OF_GATHERED = (
    "look at what is gathered: where a rank pads its part to the length of the others, drop the "
    "padding after the call, and take each row from its own place"
)
#: what to look at where a loss is computed with collectives
OF_ALL_CLASSES = (
    "look at what each of these calls reduces, and at what none reduces: where classes are split "
    "over ranks, reduce the maximum (`ReduceOp.MAX`), the sum of exponentials and the logit of the "
    "target over all of them, and count each row and token once"
)


def find_loss(
    first: ValueRecord, records: Records, off: Deviation, coarse: float = 0.0
) -> ValueFinding | None:
    """Return that the loss of a step, in which a value is off, is not that of one process.

    `coarse` is the unit roundoff of a lower precision in which modules compute.

    Each rank's may be the mean of its own rows, or their part of the mean of all, and ranks of one
    model have it several times: all of them are the reference's times one to as many as there are.
    """
    step, wanted = off.step, _loss_of(first, off.step)
    losses = {r: loss for r, each in records.items() if (loss := _loss_of(each, step)) is not None}
    if not wanted or not losses:
        return None
    apart = max(LOSSES_APART, COARSE_LOSS * coarse)
    ratio = sum(losses.values()) / wanted
    if 1 <= round(ratio) <= len(losses) and abs(ratio - round(ratio)) <= apart * ratio:
        return None
    mean = ratio / len(losses)
    rank = max(losses, key=lambda r: abs(losses[r] - wanted))
    record = records[rank]
    shown = ", ".join(f"{loss:.5g} on rank {r}" for r, loss in [*losses.items()][:4])
    is_whole = round(mean) > 1 and abs(mean - round(mean)) < apart * mean
    times = f" ({round(mean)} times as large)" if is_whole else ""
    passes = [e.place for e in record.of(BackwardPass) if e.turn == step]
    words, hint = _tell_loss(first, record, step, round(mean) if is_whole else 0)
    return ValueFinding(
        code="not_equivalent",
        message=f"step {step}, forward: the loss is {shown}{times}, and "
        f"{wanted:.5g} in one process; no module before it is off{words}"
        f"{tell_size(off).replace('(', '(its gradients ')}",
        ranks=tuple(losses),
        rank=rank,
        place=passes[0] if passes else -1,
        frames=frames_of_loss(record, passes[0]) if passes else (),
        hint=hint,
        turn=step,
        is_measured=bool(np.isfinite(off.off)),
    )


def _tell_loss(first: ValueRecord, record: ValueRecord, step: int, times: int) -> tuple[str, str]:
    """Return what is known of how a rank computes its loss, in words, and what to look at.

    The loss is `times` as large as in one process; 0 where that is not a whole number.
    """
    passes = [each.at for each in record.of(BackwardPass) if each.turn == step]
    alone = sum(each.turn == step for each in first.of(BackwardPass))
    if times > 1 and len(passes) == times * alone:
        return (
            f"; it is the sum of {len(passes)} microbatches, each of which has its own mean",
            f"divide the loss of each microbatch by their number ({times}) before its backward",
        )
    ended = passes[0] if passes else 0
    left = max((e.at for e in record.of(ModuleOutput) if e.at < ended), default=ended)
    calls = [
        call
        for call in record.calls
        if left < call.at < ended and call.tensors[0].carries != "gradient"
    ]
    shown = [f"{tell_call(each.operation)}{tell_line(record, each.place)}" for each in calls]
    words = f"; the loss is computed with {', '.join(dict.fromkeys(shown))}" if shown else ""
    kinds = {each.operation for each in calls if each.tensors[0].size > 1}
    if kinds:
        return words, OF_GATHERED if kinds <= GATHERING else OF_ALL_CLASSES
    hint = (
        "look at what the loss sums and divides by: rows, tokens, classes and microbatches of "
        "all ranks, each once. A term that is not a mean of rows (a product of means, a norm, a "
        "variance) needs the sums of all ranks before"
    )
    if _has_parts_of_sequences(first, record, step):
        hint += (
            ". Each rank has a part of each sequence: shift the labels before they are split, so "
            "that the label of a part's last position is the first token of the next part"
        )
    return words, hint


def _has_parts_of_sequences(first: ValueRecord, record: ValueRecord, step: int) -> bool:
    """Whether the rows that a rank's model is called with are shorter than in one process."""
    own = [
        {e.shapes[0] for e in each.of(ModelInput) if e.turn == step and e.shapes}
        for each in (first, record)
    ]
    if not all(len(each) == 1 for each in own):
        return False
    whole, part = (next(iter(each)) for each in own)
    return len(whole) == len(part) and whole != part and all(map(int.__le__, part, whole))


def _loss_of(record: ValueRecord, step: int) -> float | None:
    """Return the sum of the losses of a step; None where it has none, or one is not a number."""
    own = [sum(each.values) for each in record.of(LossValues) if each.turn == step]
    return sum(own) if own and np.isfinite(own).all() else None
