"""Optimizers: parameters that they or a wrapper do not have, and what differs between ranks.

A parameter that is made after the optimizer, DDP or FSDP took its list is in no list, and never
trained, or never reduced: a head that is replaced after `DistributedDataParallel(model)`. An
optimizer that is made before FSDP2 shards the model steps tensors without a gradient. Ranks that
each step a part of the parameters may leave some out altogether: `n // world` of them a rank. Or
one rank sends all of them, and takes back what another rank has stepped.

What is left out may be meant not to be trained: it is a warning. It is an error where it is what a
division leaves over at the end of a list that is dealt in equal parts, and where none of the
parameters of the only optimizer ever has a gradient.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch_scenarios.record.values.format.event import (
    BackwardPass,
    LateParameter,
    OptimizerSettings,
)
from torch_scenarios.record.values.format.record import CarryingCall, OptimizerStep, ValueRecord
from torch_scenarios.record.values.invariants.finding import (
    Records,
    ValueFinding,
    list_by_rank,
    list_names,
    tell_line,
)
from torch_scenarios.record.values.roles import Roles, find_owners, find_reduced
from torch_scenarios.verdict.finding import ranks_text

#: why a step makes unequal weights of equal ones where nothing else differs
UNLIKE_STATES = (
    "weights and gradients were equal before this step and so are the settings of the "
    "optimizers, so their state is not (momentum, averages, counts of steps), or their `step` "
    "does something of its own on each rank"
)


def find_late_parameters(records: Records, roles: Roles) -> Iterator[ValueFinding]:
    """Yield parameters that were made after DDP or the optimizer took its list."""
    del roles
    yield from _find_idle_optimizers(records)
    yield from _find_overwritten(records)
    yield from _find_left_out(records)
    for rank, record in records.items():
        elsewhere = {
            each.parameters[number].name
            for other, each in records.items()
            if other != rank
            for step in each.steps
            for number in step.gradients
        }
        late = [
            each
            for each in record.of(LateParameter)
            # another rank may step it; but what DDP or FSDP does not know, no rank reduces
            if each.owner != "optimizer" or record.parameters[each.parameter].name not in elsewhere
        ]
        if not late:
            continue
        names = [record.parameters[each.parameter].name for each in late]
        were, they = ("were", "are") if len(names) > 1 else ("was", "is")
        who = {"optimizer": "the optimizer"}.get(late[0].owner, late[0].owner)
        place = late[0].place
        yield ValueFinding(
            code="parameter_not_wrapped",
            message=f"{list_names(names)} {were} made after {who} took its list, "
            f"and {they} not in it",
            ranks=tuple(sorted(records)),
            rank=rank,
            place=place if place >= 0 else record.parameters[late[0].parameter].place,
            hint="make the whole model first, then wrap it, then make the optimizer",
            error=False,
            name=names[0],
        )
        return


def _find_idle_optimizers(records: Records) -> Iterator[ValueFinding]:
    """Yield an optimizer none of whose parameters ever has a gradient, though a loss has them."""
    for rank, record in records.items():
        for number in sorted({each.optimizer for each in record.steps}):
            own = [each for each in record.steps if each.optimizer == number]
            names = {n for each in own for n in each.gradients}
            backward = {e.turn for e in record.of(BackwardPass)}
            is_idle = all(value is None for each in own for value in each.gradients.values())
            if not is_idle or len(own) < 2 or not names or len(backward) < 2:
                continue
            if len({step.optimizer for step in record.steps}) > 1:
                continue
            yield ValueFinding(
                code="parameter_not_wrapped",
                message=f"no parameter of the optimizer has a gradient at any of {len(own)} steps, "
                "so nothing is trained: its parameters are not those of the model that is called",
                ranks=tuple(sorted(records)),
                rank=rank,
                place=own[0].place,
                hint="make the optimizer after the model is wrapped or sharded, from "
                "`model.parameters()`",
            )
            return


def _find_overwritten(records: Records) -> Iterator[ValueFinding]:
    """Yield parameters that one rank steps, and that another rank sends as they were before.

    So it is where one value comes back from `broadcast` after each step of the rank.
    """
    for ranks, _, stepped in find_owners(records):
        for rank, record in ((rank, records[rank]) for rank in ranks):
            first = min((each.at for each in record.steps), default=0)
            own = record.stepped
            sent: dict[str, list[CarryingCall]] = {}
            for call in record.calls:
                if call.operation == "broadcast_" and call.ranks == ranks and call.at > first:
                    tensor = call.tensors[0]
                    if tensor.carries == "weight" and len(tensor.parameters) == 1:
                        name = record.parameters[tensor.parameters[0]].name
                        sent.setdefault(name, []).append(call)
            lost = [
                name
                for name, calls in sent.items()
                if name in own & stepped
                and len(calls) > 1
                and len({each.results for each in calls}) == 1
                and all(each.tensors[0].hash != each.results[0] for each in calls)
            ]
            if lost:
                call = sent[lost[0]][0]
                yield ValueFinding(
                    code="parameter_not_wrapped",
                    message=f"rank {rank} alone steps {list_names(lost)}, and `broadcast`"
                    f"{tell_line(record, call.place)} puts back what "
                    f"{'they were' if len(lost) > 1 else 'it was'} before the step, which another "
                    f"rank sends: {'they are' if len(lost) > 1 else 'it is'} never trained",
                    ranks=ranks,
                    rank=rank,
                    place=call.place,
                    hint="let the rank that steps a parameter send it: `src` is its rank",
                    name=lost[0],
                )
                return


def _find_left_out(records: Records) -> Iterator[ValueFinding]:
    """Yield parameters whose gradients ranks reduce, and that none of them steps.

    Each steps a part of the parameters, and the parts leave them out. It is an error where they are
    what a division leaves over; what is left out elsewhere may not be meant to be trained.
    """
    for ranks, names, stepped in find_owners(records):
        own = [records[rank] for rank in ranks]
        written = {
            record.parameters[number].name
            for record in own
            for found in (
                *(each.changed for each in record.forwards),
                *(each.changed for each in record.steps),
                *(each.after for each in record.steps),
            )
            for number in found
        }
        summed = names & find_reduced(own[0], ranks)  # DDP's list has what is frozen, too
        reduced = [each.name for each in own[0].parameters.values() if each.name in summed]
        left = [name for name in reduced if name not in stepped | written]
        if left and len(left) < len(stepped) and all(len(each.steps) > 1 for each in own):
            yield ValueFinding(
                code="parameter_not_wrapped",
                message=f"{ranks_text(ranks)} reduce the gradient{'s' * (len(left) > 1)} of "
                f"{list_names(left)} and step a part of the parameters each, and no part has "
                f"{'them' if len(left) > 1 else 'it'}: {'they are' if len(left) > 1 else 'it is'} "
                "never trained",
                ranks=ranks,
                rank=ranks[0],
                place=own[0].steps[0].place,
                hint="give each parameter to one rank: the last part takes what a division leaves "
                "over, or deal them out by `i % world_size`; freeze what is not to be trained by "
                "`requires_grad_(False)`",
                error=_is_left_over(own, reduced, left),
                name=left[0],
            )
            return


def _is_left_over(own: Sequence[ValueRecord], names: Sequence[str], left: Sequence[str]) -> bool:
    """Whether ranks step equal parts of a list, one after another, and the end of it is left."""
    if len(left) >= len(own) or [*left] != [*names[len(names) - len(left) :]]:
        return False
    share = (len(names) - len(left)) // len(own)
    dealt = [each.stepped for each in own]
    parts = [{*names[at * share : (at + 1) * share]} for at in range(len(own))]
    return all(part in dealt for part in parts)


def tell_unlike_steps(
    records: Records, name: str, steps: Mapping[int, OptimizerStep]
) -> tuple[str, str] | None:
    """Say how optimizers make unequal weights of equal ones, and what to do about it."""
    rates = {rank: ", ".join(f"{each:g}" for each in step.rates) for rank, step in steps.items()}
    if len(set(rates.values())) > 1:
        hint = (
            "step the schedule the same way on every rank, by a number that all ranks have reduced"
        )
        return f"the learning rate is {list_by_rank(rates)}", hint
    numbers = {rank: records[rank].names.get(name, -1) for rank in steps}
    without = [rank for rank, step in steps.items() if numbers[rank] not in step.gradients]
    if without and len(without) < len(steps):
        words = f"the optimizer of {ranks_text(without)} does not have `{name}`"
        return words, "give every rank's optimizer the same parameters"
    settings = {rank: _settings_at(records[rank], step) for rank, step in steps.items()}
    known = {rank: each for rank, each in settings.items() if each is not None}
    if len(known) == len(steps):
        hint = "make one and the same optimizer on every rank"
        kinds = {rank: each.type for rank, each in known.items()}
        if len(set(kinds.values())) > 1:
            return f"the optimizer is {list_by_rank(kinds)}", hint
        if unlike := _find_unlike_setting({rank: each.groups for rank, each in known.items()}):
            return unlike, hint
    gradients = {step.gradients.get(numbers[rank]) for rank, step in steps.items()}
    if len(gradients) != 1 or None in gradients:
        return None
    hint = (
        "load the optimizer's state on every rank or on none, and write nothing in `step` that "
        "differs between ranks"
    )
    return UNLIKE_STATES, hint


def _settings_at(record: ValueRecord, step: OptimizerStep) -> OptimizerSettings | None:
    """Return what kind an optimizer is at a step, and what its groups are set to."""
    own = [
        each
        for each in record.of(OptimizerSettings)
        if each.optimizer == step.optimizer and each.at < step.at
    ]
    return own[-1] if own else None


def _find_unlike_setting(groups: Mapping[int, Sequence[dict[str, Any]]]) -> str:
    """Say which setting of an optimizer differs between ranks; nothing where none does."""
    first = next(iter(groups.values()))
    for at, group in enumerate(first):
        for name in group:
            values = {
                rank: str(own[at].get(name) if at < len(own) else None)
                for rank, own in groups.items()
            }
            if len(set(values.values())) > 1:
                return f"`{name}` of the optimizer is {list_by_rank(values)}"
    return ""
