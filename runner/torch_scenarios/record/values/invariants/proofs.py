"""Mistakes that one process proves of itself.

No other rank is needed to see that a call takes a tensor with a graph and the loss depends on its
result, which has none (`dist.all_gather` in a contrastive loss); that the result of a call goes
into a temporary, or into a list that holds one tensor n times; that a tensor is read or written
before the wait; that Gloo takes the elements of a tensor with strides in the order of memory. The
witness writes these down where they happen (`CallMistake`).

A gather whose parts are joined with the rank's own, which has its graph, is right where all ranks
compute one and the same loss: the gradient that arrives at the own part is the same on each of
them then, and whole. A result that is only shown goes into no loss.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from torch_scenarios.record.values.format.event import (
    BackwardPass,
    CallMistake,
    ConstantTerm,
    DataParallelWrapper,
)
from torch_scenarios.record.values.format.record import ValueRecord
from torch_scenarios.record.values.invariants.finding import Records, ValueFinding
from torch_scenarios.record.values.roles import Ranks, Roles
from torch_scenarios.record.values.source import find_early_read, goes_into_loss, scales_values

#: the finding of a tensor that is used before the wait
BEFORE_WAIT = "touched_in_flight"

#: what a process proved of itself: code -> its words, and what to do
PROVED: dict[str, tuple[Callable[[Mapping[str, Any]], str], str, bool]] = {
    "no_gradient_through": (
        lambda about: (
            "no gradient goes through this call: it takes a tensor with a graph, and "
            f"{_tell_how(about)}, so the gradient of the other ranks is lost"
        ),
        (
            "use `torch.distributed.nn.functional` (or functional collectives with autograd) where "
            "a gradient has to go through, or `detach()` what is only shown"
        ),
        True,
    ),
    "result_dropped": (
        lambda about: (
            f"the parts of {about['parts'] - 1} ranks are lost: the list holds one tensor "
            f"{about['parts']} times, which has the part that comes last"
            if "parts" in about
            else f"the result is lost: the call writes into `{about['argument']}`, a "
            "temporary that no variable holds"
        ),
        (
            "give each result a tensor that you keep: a name before the call in place of a "
            "temporary, `[torch.empty_like(x) for _ in range(n)]` in place of "
            "`[torch.empty_like(x)] * n`"
        ),
        True,
    ),
    BEFORE_WAIT: (
        lambda about: (
            f"nothing waits for this call, which reduces gradients, in {about['steps']} steps: "
            "what is read of its tensor may be what was there before"
            if about["how"] == "left"
            else "the tensor of this call is "
            + (f"read by {about.get('by')}" if about["how"] == "read" else "written")
            + " before its wait"
        ),
        "call `wait()` first",
        True,
    ),
    "in_place_of_strided": (
        lambda about: (
            "Gloo takes elements as they lie in memory, and not those of this tensor in their "
            f"order: it has strides (shape {about['shape']})"
            + (", and a weight, a gradient or an activation is mixed by it" * ("trained" in about))
        ),
        (
            "pass a contiguous copy, and copy the result back: `y = x.contiguous(); "
            "dist.all_reduce(y); x.copy_(y)`; in a backward pass, make the gradient contiguous "
            "where it comes from: `gathered.register_hook(lambda grad: grad.contiguous())`"
        ),
        False,
    ),
}


#: what to do about an autograd function whose backward calls nothing
CALL_BACK = (
    "sum the gradient over the ranks in `backward`: `reduce_scatter` behind a gather, `all_gather` "
    "behind a reduce_scatter, `all_to_all` the other way round behind an all_to_all"
)


def _tell_how(about: Mapping[str, Any]) -> str:
    """Say why a gradient is lost."""
    if name := about.get("function"):
        return (
            f"`{name}.backward` calls no collective, though the gradient that arrives there "
            "differs between ranks"
        )
    return str(about["how"])


def find_proved(records: Records, roles: Roles) -> Iterator[ValueFinding]:
    """Yield the mistakes that a process proved of itself, each line once."""
    whole = _find_whole_losses(records)
    seen: dict[tuple[str, Any], list[int]] = defaultdict(list)
    firsts: dict[tuple[str, Any], tuple[int, CallMistake, int]] = {}
    for rank, record in records.items():
        for each in record.of(CallMistake):
            key = each.code, record.places.get(each.place)
            if key in whole and "arrives" in each.about:
                continue
            if "function" in each.about and not _share_weights(record, roles, each.place):
                continue
            if rank not in seen[key]:
                seen[key].append(rank)
            turn = max((s.turn + 1 for s in record.steps if s.at < each.at), default=0)
            known = firsts.get(key)
            if known is None or ("trained" in each.about and "trained" not in known[1].about):
                firsts[key] = (rank, each, each.about.get("turn", turn))
    yield from _find_constant_terms(records)
    yield from _find_early_reads(records, {key[1] for key in firsts if key[0] == BEFORE_WAIT})
    for key, (rank, mistake, turn) in firsts.items():
        words, hint, error = PROVED[mistake.code]
        hint = CALL_BACK if "function" in mistake.about else hint
        yield ValueFinding(
            code=mistake.code,
            message=words(mistake.about),
            ranks=tuple(seen[key]),
            rank=rank,
            place=mistake.place,
            hint=hint,
            turn=turn,
            error=error or "trained" in mistake.about,
        )


def _share_weights(record: ValueRecord, roles: Roles, place: int) -> bool:
    """Whether ranks that a call joins hold replicas; else each may train a model of its own."""
    joined = {*_joined_by(record, place)}
    return any(len(joined & {*each.ranks}) > 1 for each in roles.replicas)


def _find_early_reads(records: Records, known: Collection[Any]) -> Iterator[ValueFinding]:
    """Yield calls whose result the script computes with before any wait, as its text says."""
    seen = {*known}
    for rank, record in records.items():
        for call in record.calls:
            frames = record.places.get(call.place, ())
            if not frames or frames in seen:
                continue
            seen.add(frames)
            if read := find_early_read(record, call.place):
                yield ValueFinding(
                    code=BEFORE_WAIT,
                    message=f"the script computes with the result of this call in line {read[0][1]}"
                    ", before it waits for the call",
                    ranks=call.ranks,
                    rank=rank,
                    place=call.place,
                    hint=PROVED[BEFORE_WAIT][1],
                    turn=call.turn,
                )


def _find_constant_terms(records: Records) -> Iterator[ValueFinding]:
    """Yield a term of a loss that is computed of what a call gathered, and so has no gradient.

    The call took a tensor with a graph, the loss adds a term without one, and the script's text
    says that what was gathered goes into it.
    """
    known: dict[Any, bool] = {}
    for rank, record in records.items():
        passes = record.of(BackwardPass)
        for each in record.of(ConstantTerm):
            place = each.place
            before = [e.place for e in passes if e.at < each.at]
            if not before:
                continue
            key = record.places.get(place), record.places.get(before[-1])
            if key not in known:
                known[key] = goes_into_loss(record, place, before[-1])
            if known[key]:
                yield ValueFinding(
                    code="no_gradient_through",
                    message="no gradient goes through this call: it takes a tensor with a graph, "
                    "and a term of the loss is computed from what it gathers alone, so that the "
                    "term changes the loss and no weight",
                    ranks=tuple(sorted(records)),
                    rank=rank,
                    place=place,
                    hint=PROVED["no_gradient_through"][1],
                )
                return


#: relative difference of two gradients that rounding does not make
APART = 1e-4


def _find_whole_losses(records: Records) -> set[tuple[str, Any]]:
    """Return the calls behind which every rank computes the same loss of all that was gathered.

    The gradient of the own part is whole then: what arrives where parts are joined, or summed in
    place, is the same on all ranks that the call joins. Other groups of ranks have other rows. A
    sum in place has no backward of its own, and needs none where the ranks hold parts of one model;
    where gradients are averaged over the same ranks, the average divides what was never summed.
    """
    arrived: dict[tuple[str, Any], dict[Ranks, dict[int, list[list[float]]]]] = {}
    for rank, record in records.items():
        for each in record.of(CallMistake):
            if "arrives" in each.about:
                groups = arrived.setdefault((each.code, record.places.get(each.place)), {})
                ranks = groups.setdefault(_joined_by(record, each.place), {})
                ranks.setdefault(rank, []).append(each.about["arrives"])
    return {
        key
        for key, groups in arrived.items()
        if all(len(ranks) > 1 and _are_alike(ranks) for ranks in groups.values())
        and not any(_is_averaged(records[rank], key[1]) for own in groups.values() for rank in own)
    }


def _is_averaged(record: ValueRecord, frames: Any) -> bool:
    """Whether a line sums activations in place over ranks that average their gradients."""
    sums = [
        call
        for call in record.calls
        if call.operation == "allreduce_" and record.places.get(call.place) == frames
    ]
    if any(call.op != "sum" for call in sums):
        return True
    joined = {rank for call in sums for rank in call.ranks}
    if not joined:
        return False
    return any(joined <= {*each.ranks} for each in record.of(DataParallelWrapper)) or any(
        joined <= {*call.ranks}
        and any(each.carries == "gradient" for each in call.tensors)
        and (call.op == "avg" or "scatter" in call.operation or scales_values(record, call.place))
        for call in record.calls
    )


def _joined_by(record: ValueRecord, place: int) -> Ranks:
    """Return the ranks that a call of a line joins."""
    return next((call.ranks for call in record.calls if call.place == place), ())


def _are_alike(ranks: Mapping[int, list[list[float]]]) -> bool:
    first = next(iter(ranks.values()))
    return all(
        len(own) == len(first)
        and all(
            abs(a - b) <= APART * max(norm, 1e-30)
            for one, other in zip(own, first, strict=True)
            for a, b, norm in ((one[0], other[0], other[0]), (one[1], other[1], other[0]))
        )
        for own in ranks.values()
    )
