"""Programs that compute something else on n ranks than on one, and on purpose.

A vote of signs, elements that each rank chooses, a perturbation by each rank's own gradient,
weights that are averaged now and then: their gradients are not those of one process, nor do they
stay the same where the rows are dealt anew, and they are no mistakes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from torch_scenarios.record.values.format.event import (
    WRAPPERS,
    BackwardPass,
    CommunicationHook,
    GradientChange,
)
from torch_scenarios.record.values.format.record import (
    CarriedTensor,
    CarryingCall,
    OptimizerStep,
    ValueRecord,
)
from torch_scenarios.record.values.invariants.finding import Records, tell_line
from torch_scenarios.record.values.invariants.weights import is_put_back_roundly, join_timelines

#: the code of a verdict that is not known because of it
CODE = "another_algorithm"
#: elements up to which integers are counts
MOST_COUNTS = 8
#: unit roundoffs of the precisions in which gradients are sent
COARSE = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
#: names of hooks of DDP that send gradients in a lower precision -> that precision
LOWERING = {"fp16_compress": "float16", "bf16_compress": "bfloat16"}


def tell_another_algorithm(
    records: Records, turn: int, name: str, *, is_left_right: bool, is_shared: bool = True
) -> str:
    """Return why n ranks are another algorithm than one up to a step, or nothing.

    `name` is the parameter whose gradient deviates; `is_left_right` says that what the backward
    passes of all ranks leave is right, `is_shared` that several ranks hold it: what one has alone
    no rank exchanges. Before the first step all ranks hold the same weights, so that what backward
    leaves there must be right also where weights are averaged later.
    """
    if not is_shared:
        return ""
    reasons = [*_tell_perturbed(records, turn)]
    if is_left_right or turn > 0:
        reasons = [*_tell_averages(records, turn, name), *reasons]
    if is_left_right:
        reasons += _tell_compressed(records, turn, name)
    return f"{reasons[0]} ({CODE})" if reasons else ""


def tell_own_rates(records: Records) -> str:
    """Return that ranks train models of their own by learning rates of their own, or nothing.

    As the members of a population do: no rank exchanges a gradient or what modules give back.
    """
    exchanged = {
        each.carries for r in records.values() for call in r.calls for each in call.tensors
    }
    wrapped = any(r.of(kind) for r in records.values() for kind in WRAPPERS)
    rates = {rank: record.steps[0].rates for rank, record in records.items() if record.steps}
    if wrapped or exchanged & {"gradient", "activation"} or len({*rates.values()}) < 2:
        return ""
    if len(rates) < len(records) or any(not each for each in rates.values()):
        return ""
    shown = ", ".join(f"{each[0]:g} on rank {rank}" for rank, each in [*rates.items()][:4])
    return (
        f"each rank steps by a learning rate of its own ({shown}), and no gradient is exchanged: "
        f"they train models of their own ({CODE})"
    )


def tell_whole_numbers(records: Records, turn: int) -> str:
    """Return that a hook of DDP's sends whole numbers in place of gradients, or nothing.

    They are rounded: what they leave is about what one process has, and equal on all ranks.
    """
    for record in records.values():
        step = next((each for each in record.steps if each.turn == turn), None)
        passes = [each.at for each in record.of(BackwardPass) if step and each.at < step.at]
        if step is None or not passes or not record.of(CommunicationHook):
            continue
        for call in record.calls:
            kinds = {each.dtype for each in call.tensors if each.size > MOST_COUNTS}
            if passes[-1] < call.at < step.at and any("int" in each for each in kinds):
                return (
                    f"a hook of DistributedDataParallel sends {min(kinds)} in place of "
                    f"gradients{tell_line(record, call.place)}: they are about what one process "
                    f"has, and rounded ({CODE})"
                )
    return ""


def find_sent_precision(records: Records) -> float:
    """Return the unit roundoff of the lowest precision in which gradients are sent; or zero."""
    found = {
        each.dtype
        for record in records.values()
        for call in record.calls
        for each in call.tensors
        if each.carries in {"gradient", "metric"} and each.size > MOST_COUNTS
    }
    hooks = {e.name for record in records.values() for e in record.of(CommunicationHook)}
    found |= {kind for part, kind in LOWERING.items() if any(part in each for each in hooks)}
    return max((COARSE[each] for each in found if each in COARSE), default=0.0)


def _tell_averages(records: Records, turn: int, name: str) -> Iterator[str]:
    """Yield that weights are averaged now and then, and ranks train by themselves in between."""
    hashes: dict[int, list[str | None]] = defaultdict(list)
    for record in records.values():
        for step in record.steps:
            hashes[step.turn].append(step.gradients.get(record.names.get(name, -1)))
    own = [each for at, each in hashes.items() if at <= turn]
    if not any(len({*each}) > 1 and None not in each for each in own):
        return
    for record in records.values():
        if any("localsgd" in e.name.lower() for e in record.of(CommunicationHook)):
            yield f"{AVERAGES} (a hook of DDP that does)"
            return
        for call in record.calls:
            is_average = call.operation.startswith("allreduce") and call.op in {"sum", "avg"}
            is_later = bool(record.steps) and call.at > record.steps[0].at
            if is_average and is_later and any(e.carries == "weight" for e in call.tensors):
                yield f"{AVERAGES}{tell_line(record, call.place)}"
                return


#: what ranks do between two averages
AVERAGES = (
    "each rank steps by a gradient of its own, and weights are averaged over the ranks now and then"
)


def _tell_perturbed(records: Records, turn: int) -> Iterator[str]:
    """Yield that ranks compute gradients at weights of their own, which are equal again after it.

    As where each perturbs them by its own gradient.
    """
    were_equal, apart = False, ""
    ranks = tuple(sorted(records))
    for (at, kind, *_), found in join_timelines(records, ranks):
        if at > turn + 1:
            return
        states = [state for _, state in found.values()]
        unlike = _find_first_difference(states)
        if kind == 0 and not unlike:
            were_equal = True
        elif kind == 0 and were_equal:
            event = found[ranks[0]][0]
            line = tell_line(records[ranks[0]], event.place)
            apart = (
                f"the model is called with weights of each rank's own{line}, `{unlike}` first, "
                "which are equal again at the step: a perturbation by a rank's own gradient "
                "differs between ranks"
            )
        elif kind == 1 and apart:
            events = {rank: event for rank, (event, _) in found.items()}
            if not unlike or is_put_back_roundly(records, _find_unlike(states), events):
                yield apart
                return


def _find_first_difference(states: Sequence[Mapping[str, str]]) -> str:
    """Return the first weight of all ranks that some of them hold otherwise; or nothing."""
    return next(iter(_find_unlike(states)), "")


def _find_unlike(states: Sequence[Mapping[str, str]]) -> list[str]:
    common = set.intersection(*({*each} for each in states))
    return [n for n in states[0] if n in common and len({each[n] for each in states}) > 1]


def _tell_compressed(records: Records, turn: int, name: str) -> Iterator[str]:
    """Yield that ranks exchange less than the gradient that deviates, after backward left it."""
    for record in records.values():
        step = next((each for each in record.steps if each.turn == turn), None)
        if step is None:
            return
        calls, written = _list_calls_after_backward(record, step)
        number = record.names.get(name, -1)
        if number not in written or not calls:
            continue
        own = [e for c in calls for e in c.tensors if number in e.parameters]
        if any(each.carries == "gradient" and not each.levels for each in own):
            return  # it is the gradient itself that is reduced
        sent = [(c, e) for c in calls for e in c.tensors if e.size > 1 and e.carries != "weight"]
        total = sum(_size(record, each) for each in written)
        if found := _find_less(sent, total):
            call, words = found
            yield (
                f"what ranks exchange between backward and the optimizer is {words}"
                f"{tell_line(record, call.place)}: a vote, a quantisation, or elements that each "
                "rank chooses are another algorithm on n ranks than on one; what backward leaves "
                "is right"
            )
            return


def _list_calls_after_backward(
    record: ValueRecord, step: OptimizerStep
) -> tuple[list[CarryingCall], list[int]]:
    """Return the calls between the last backward pass and a step, and which gradients changed."""
    passes = [each.at for each in record.of(BackwardPass) if each.at < step.at]
    began = passes[-1] if passes else step.at
    kept = [each for each in record.of(GradientChange) if began < each.at < step.at]
    written = [number for number, _ in kept[-1].left] if kept else []
    return [call for call in record.calls if began < call.at < step.at], written


def _size(record: ValueRecord, number: int) -> int:
    count = 1
    for each in record.parameters[number].local:
        count *= each
    return count


def _find_less(
    sent: Sequence[tuple[CarryingCall, CarriedTensor]], total: int
) -> tuple[CarryingCall, str] | None:
    """Return the first call that sends less than gradients, and what it sends in their place."""
    for call, each in sent:
        if each.levels:
            return call, "one magnitude with a sign"
        if not each.dtype.startswith(("float", "bfloat")) and each.size > MOST_COUNTS:
            return call, f"{each.dtype} in place of gradients"
    floats = [(call, each) for call, each in sent if each.carries in {"metric", "other"}]
    if floats and sum(each.size for _, each in floats) < total:
        return floats[0][0], f"fewer numbers than gradients have ({total})"
    return None
