"""Sums of what is equal already: gradients of replicas, outputs of parts that are one part.

A sum over n ranks of one and the same value is n times that value. A gradient that is summed,
kept while another backward pass adds to it, and summed again counts its first part n times; a
gradient that DDP has averaged and the script sums once more is n times as large; ranks that should
hold parts of a weight, and drew one and the same part from one seed, sum equal outputs.

Right programs divide: the first sum by n before the second, or the output in the function that
sums it. Data-parallel ranks may compute equal outputs of equal rows, so that outputs count only
in groups that exchange no gradients and no weights, and only where the sum is equal at every call
of a line. Constants and few elements may be equal by chance.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from torch_scenarios.record.values.format.event import WRAPPERS, CarriedReduction
from torch_scenarios.record.values.format.record import CarryingCall, ValueRecord
from torch_scenarios.record.values.invariants.finding import (
    Records,
    ValueFinding,
    find_groups_of_calls,
    join_calls,
    list_names,
    tell_line,
)
from torch_scenarios.record.values.roles import Ranks, Roles, find_first_use, is_in_backward
from torch_scenarios.record.values.source import scales_by_ranks, scales_values
from torch_scenarios.verdict.finding import ranks_text

#: elements from which values are not equal by chance, and sums at one line that are enough
MOST_FEW, MOST_ONCE = 8, 2
#: relative difference of two factors that rounding may make
ROUNDED = 1e-3


def find_sums_of_replicas(records: Records, roles: Roles) -> Iterator[ValueFinding]:
    """Yield sums of values that are equal on all ranks, and are not divided afterwards."""
    for ranks in find_groups_of_calls(records):
        if (found := _find_sum_of_sums(records, ranks)) is not None:
            yield found
            return
    for ranks in roles.data:
        if (found := _find_sum_of_gradients(records, ranks)) is not None:
            yield found
            return
    for ranks in find_groups_of_calls(records):
        if (found := _find_sum_of_outputs(records, ranks)) is not None:
            yield found
            return


def tell_undivided_sums(records: Records, roles: Roles) -> Iterator[str]:
    """Yield that gradients are summed over data-parallel ranks, and go into the step as they are.

    It is not a finding: the loss may be divided before, or the learning rate be meant for sums.
    """
    for ranks in roles.data:
        if any(rank not in records for rank in ranks):
            continue
        record = records[ranks[0]]
        sums = [call for call in record.calls if call.ranks == ranks and call.op == "sum"]
        summed, place = _find_undivided(record, [call for call in sums if call.results])
        if not summed or scales_by_ranks(record, place, len(ranks)):
            continue
        subject, verb = ("gradient", "is") if len(summed) == 1 else ("gradients", "are")
        yield (
            f"the {subject} of {list_names(summed)} {verb} summed over "
            f"{ranks_text(ranks)}{tell_line(record, place)} and not divided afterwards: where the "
            f"mean is meant, divide by {len(ranks)}; `--redeal world` compares with fewer ranks"
        )
        return


def _find_undivided(record: ValueRecord, sums: Sequence[CarryingCall]) -> tuple[list[str], int]:
    """Return the parameters whose gradients a step takes as a sum left them, and the sum's line."""
    names: dict[str, int] = {}
    for step in record.steps[:1]:
        for call in (each for each in sums if each.at < step.at):
            first = call.tensors[0]
            if first.carries != "gradient" or len(first.parameters) != 1:
                continue
            (number,) = first.parameters
            if step.gradients.get(number) == call.results[0]:
                names[record.parameters[number].name] = call.place
    return [*names], next(iter(names.values()), -1)


def _find_sum_of_sums(records: Records, ranks: Ranks) -> ValueFinding | None:
    """Return that a gradient is summed, kept while a backward pass adds to it, and summed again.

    What was summed first is equal on all ranks, and counts once for each of them. Where it was
    divided by their number before the second sum, that one is right.
    """
    found = [(rank, *_find_second_sum(records[rank], ranks)) for rank in ranks if rank in records]
    if len(found) < len(ranks) or any(name == "" for _, name, *_ in found):
        return None
    rank, name, first, again = found[0]
    line = tell_line(records[rank], first)
    return ValueFinding(
        code="sum_of_replicas",
        message=f"the gradient of `{name}` is summed over {ranks_text(ranks)}{line}, kept, and "
        "summed once more with what the next backward pass adds: what was summed before counts "
        f"{len(ranks)} times",
        ranks=ranks,
        rank=rank,
        place=again,
        hint="reduce once, behind the last microbatch of a step, or divide by the number of ranks "
        "at each reduction",
        turn=0,
        name=name,
    )


def _find_second_sum(record: ValueRecord, ranks: Ranks) -> tuple[str, int, int]:
    """Return a gradient that is summed twice in a step, and both lines; no name where none is."""
    for event in record.of(CarriedReduction):
        ended = min((s.at for s in record.steps if s.at > event.at), default=event.at)
        began = max((s.at for s in record.steps if s.at < event.at), default=-1)
        if abs(event.factor * len(ranks) - 1.0) < ROUNDED:
            continue
        for number in event.parameters:
            own = [
                call
                for call in record.calls
                if began < call.at < ended
                and call.ranks == ranks
                and (call.operation, call.op) == ("allreduce_", "sum")
                and any(t.carries == "gradient" and number in t.parameters for t in call.tensors)
            ]
            before = [call for call in own if call.at < event.at]
            later = [call for call in own if call.at > event.at]
            if later and event.within and scales_values(record, later[0].place):
                continue  # it may be divided there before the sum
            if before and later:
                return record.parameters[number].name, before[-1].place, later[0].place
    return "", -1, -1


def _find_sum_of_gradients(records: Records, ranks: Ranks) -> ValueFinding | None:
    for met in join_calls(records, ranks, lambda call: call.op == "sum"):
        tensors = [call.tensors[0] for call in met.values()]
        first = tensors[0]
        if first.carries != "gradient" or first.size < MOST_FEW or first.constant:
            continue
        if len({each.hash for each in tensors}) > 1 or not first.exact:
            continue
        rank, call = next(iter(met.items()))
        step = next((s for s in records[rank].steps if s.at > call.at), None)
        used = step.gradients.get(first.parameters[0]) if step and first.parameters else None
        if used is not None and call.results and used == call.results[0]:
            name = records[rank].parameters[first.parameters[0]].name
            return ValueFinding(
                code="sum_of_replicas",
                message=f"the gradient of `{name}` is equal on {ranks_text(ranks)} already, "
                f"and is summed: it is {len(ranks)} times what one rank has",
                ranks=ranks,
                rank=rank,
                place=call.place,
                hint="leave the all_reduce out, or divide by the size of the group",
                turn=call.turn,
                error=False,
                name=name,
            )
    return None


def _find_sum_of_outputs(records: Records, ranks: Ranks) -> ValueFinding | None:
    """Return that ranks of one model sum equal outputs at a line, in each forward pass.

    Parts of a model give other outputs: these ranks hold one and the same part. Where gradients or
    weights go over the group, it is data-parallel, and may have got equal rows.
    """
    if any(rank not in records for rank in ranks) or _is_data_parallel(records, ranks):
        return None
    at_line: dict[int, list[tuple[bool, int, CarryingCall]]] = defaultdict(list)
    for met in join_calls(records, ranks, lambda call: call.op == "sum"):
        rank, call = next(iter(met.items()))
        first = call.tensors[0]
        if first.carries == "activation" and not is_in_backward(records[rank], call):
            is_one = len({each.tensors[0].hash for each in met.values()}) == 1
            is_one = is_one and first.size >= MOST_FEW and not first.constant
            at_line[call.place].append((is_one, rank, call))
    for place, calls in at_line.items():
        _, rank, call = calls[0]
        turns = {each.turn for _, _, each in calls}
        names = _list_equal_weights(records, ranks)
        if not all(is_one for is_one, *_ in calls) or len(turns) < MOST_ONCE or not names:
            continue
        if scales_values(records[rank], place):
            continue
        return ValueFinding(
            code="sum_of_replicas",
            message=f"{ranks_text(ranks)} sum outputs that are equal already, in each forward pass "
            f"({len(turns)} steps): they hold the same values of {list_names(names)}, and the sum "
            f"is {len(ranks)} times what one rank has",
            ranks=ranks,
            rank=rank,
            place=place,
            hint="let each rank hold another part of a weight: draw the whole of it from one seed "
            "and take the rank's part, or seed each rank's part by its number in the group",
            turn=call.turn,
            name=names[0],
        )
    return None


def _is_data_parallel(records: Records, ranks: Ranks) -> bool:
    """Whether gradients or weights go over a group, or DDP or FSDP does over a part of it."""
    for record in (records[rank] for rank in ranks):
        if any(
            len({*call.ranks} & {*ranks}) > 1
            and {"gradient", "weight"} & {each.carries for each in call.tensors}
            for call in record.calls
        ):
            return True
        wrapped = [e.ranks for kind in WRAPPERS for e in record.of(kind)]
        if any(len({*each} & {*ranks}) > 1 for each in wrapped):
            return True
    return False


def _list_equal_weights(records: Records, ranks: Ranks) -> list[str]:
    """Return the trained parameters that ranks begin with alike; none where they are constants."""
    firsts = [find_first_use(records[rank]) for rank in ranks]
    first = records[ranks[0]]
    trained = {number for step in first.steps[:1] for number in step.gradients}
    return [
        each.name
        for number, each in first.parameters.items()
        if number in trained
        and not each.constant
        and not each.placements
        and len({own.get(each.name) for own in firsts}) == 1
    ]
