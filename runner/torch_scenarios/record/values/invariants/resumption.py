"""A training that goes on from a checkpoint within one process: with which data and state.

A training that loads the weights of an earlier step into a new model goes on with the rows behind
that step. An epoch that was broken off in the middle and begins anew trains on its first rows
twice. A rank that loads the optimizer's state of rank 0 next to its own shard goes on with the
momentum of other weights, and one that loads none begins its part from zero.

Weights that are put back into one and the same model go another way on purpose. Rows come again
rightly where an epoch was over, where each epoch is limited to as many batches, and where the
loader skips what was read. One state on several ranks is right where they hold equal weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from torch_scenarios.record.values.format.event import (
    BackwardPass,
    DataParallelWrapper,
    LoadedBatch,
    LoadedState,
    ModuleLoad,
    OptimizerLoad,
    OptimizerSettings,
)
from torch_scenarios.record.values.format.record import OptimizerStep, ValueRecord
from torch_scenarios.record.values.invariants.finding import Records, ValueFinding, tell_line
from torch_scenarios.record.values.roles import Roles
from torch_scenarios.verdict.finding import ranks_text

#: batches that are the same again from which an epoch begins anew
MOST_FEW = 2


def find_epochs_begun_anew(records: Records, roles: Roles) -> Iterator[ValueFinding]:
    """Yield an epoch that begins anew where its training goes on from the middle of it.

    A state is loaded into an optimizer, and the weights of the next step are those that an earlier
    one left in another model: what is put back into one and the same goes another way on purpose.
    The rows before that are dealt again in the same order, and the epoch has more.
    """
    del roles
    for rank, record in records.items():
        epochs = _epochs(record)
        for each in record.of(OptimizerLoad):
            following = next((step for step in record.steps if step.at > each.at), None)
            left = _find_left_step(record, each.at, following)
            if following is None or left is None or {*left.gradients} & {*following.gradients}:
                continue
            before = [own for own in epochs if own[0].at < left.at]
            after = [own for own in epochs if own[0].at > each.at]
            if not before or not after:
                continue
            old = [batch.rows for batch in before[-1] if batch.at < left.at]
            new = [batch.rows for batch in after[0]]
            read = min(len(old), len(new))
            is_anew = read >= MOST_FEW and new[:read] == old[:read]
            is_anew = is_anew and _is_broken_off(record, before[-1][0], each.at, len(new))
            is_anew = is_anew and not _are_limited(record, before, after)
            if is_anew and not _skips(record, each.at, following.at):
                count = sum(map(len, old[:read]))
                yield ValueFinding(
                    code="resumes_otherwise",
                    message=f"the training goes on from the weights after step {left.turn}"
                    f"{tell_line(record, each.place)}, in the middle of an epoch, and the epoch "
                    f"begins anew: the {count} rows of its first {read} batches are trained on "
                    "twice",
                    ranks=tuple(sorted(records)),
                    rank=rank,
                    place=after[0][0].place,
                    hint="save the place in the epoch with the weights, and skip what was read: "
                    "the sampler's state, or the first batches of the loader",
                    turn=following.turn,
                )
                return


def find_foreign_states(records: Records, roles: Roles) -> Iterator[ValueFinding]:
    """Yield a state of an optimizer that several ranks load, and that belongs to one's part alone.

    Their weights differ, as shards do; a momentum that has one value on them all is of one rank.
    """
    del roles
    loads = {rank: record.of(LoadedState) for rank, record in records.items()}
    for together in zip(*loads.values(), strict=False):
        events = dict(zip(loads, together, strict=True))
        held: dict[tuple[str, str], dict[int, str]] = {}
        for rank, event in events.items():
            for name, weight, state in event.states:
                held.setdefault((name, state), {})[rank] = weight
        unlike = [own for own in held.values() if len({*own.values()}) == len(own) > 1]
        if not unlike:
            continue
        rank, other = [*unlike[0]][:2]
        yield ValueFinding(
            code="resumes_otherwise",
            message=f"{ranks_text([*unlike[0]])} load one and the same state of the optimizer, and "
            f"hold other weights: the momentum that rank {other} goes on with belongs to the part "
            f"of rank {rank}",
            ranks=tuple(unlike[0]),
            rank=other,
            place=events[other].place,
            hint="save the optimizer's state of each rank, and load each rank's own; or gather the "
            "whole of it, and give each rank its part",
            turn=events[other].turn,
        )
        return


def find_lone_states(records: Records, roles: Roles) -> Iterator[ValueFinding]:
    """Yield a state of an optimizer that one rank loads, where others step other parts without one.

    The others load weights at the same step, and no state: they lose the momentum of what they
    step. A collective before their step may have sent them their part of the state.
    """
    del roles
    for rank, record in records.items():
        for loaded in (each for each in record.of(LoadedState) if each.states):
            own = next((step for step in record.steps if step.at > loaded.at), None)
            if own is None:
                continue
            stepped = {record.parameters[number].name for number in own.gradients}
            others = [
                (other, step)
                for other, each in records.items()
                if other != rank and (step := _find_new_start(each, loaded.turn)) is not None
                if stepped.isdisjoint(each.parameters[number].name for number in step.gradients)
                and _describe_kind(record, own) == _describe_kind(each, step)
            ]
            if not others:
                continue
            ranks = [other for other, _ in others]
            who = ranks_text(ranks)
            loads, begins = ("load", "begin") if len(ranks) > 1 else ("loads", "begins")
            yield ValueFinding(
                code="resumes_otherwise",
                message=f"rank {rank} loads a state of its optimizer, and {who} {loads} the "
                f"weights alone: each rank steps other parameters, and the momentum of those that "
                f"{who} {'step' if len(ranks) > 1 else 'steps'}"
                f"{tell_line(records[ranks[0]], others[0][1].place)} {begins} from zero",
                ranks=tuple(sorted((rank, *ranks))),
                rank=rank,
                place=loaded.place,
                hint="save the optimizer's state of each rank, and load each rank's own; or gather "
                "the whole of it, and give each rank its part",
                turn=loaded.turn,
            )
            return


def _describe_kind(record: ValueRecord, step: OptimizerStep) -> tuple[str, bool]:
    """Return the class of an optimizer, and whether it has a momentum: whether it keeps a state.

    SGD without a momentum keeps none, so that none can be loaded.
    """
    for each in record.of(OptimizerSettings):
        if each.optimizer == step.optimizer:
            return each.type, any(group.get("momentum") for group in each.groups)
    return "", False


def _find_new_start(record: ValueRecord, turn: int) -> OptimizerStep | None:
    """Return the first step after a load of weights, if its optimizer has no state before it.

    None where the rank loads a state, or where another rank may have sent it one.
    """
    weights = next((each for each in record.of(ModuleLoad) if each.turn == turn), None)
    if weights is None or any(each.turn >= turn for each in record.of(OptimizerLoad)):
        return None
    known = {step.optimizer for step in record.steps if step.at < weights.at}
    step = next((step for step in record.steps if step.at > weights.at), None)
    if step is None or step.optimizer in known:
        return None
    began = max((each.at for each in record.steps if each.at < weights.at), default=-1)
    is_sent = any(
        began < call.at < step.at
        and any(each.size > 1 and each.carries in {"metric", "other"} for each in call.tensors)
        for call in record.calls
    )
    return None if is_sent else step


def _is_broken_off(record: ValueRecord, first: LoadedBatch, until: int, later: int) -> bool:
    """Whether the epoch of a batch has more batches than are read of it before a load.

    Its loader says so, or the next epoch is longer.
    """
    epoch = (first.loader, first.epoch)
    read = sum((e.loader, e.epoch) == epoch and e.at < until for e in record.batches)
    return read < max(later, int(record.loaders.get(first.loader, {}).get("batches", -1)))


def _are_limited(
    record: ValueRecord, before: list[list[LoadedBatch]], after: list[list[LoadedBatch]]
) -> bool:
    """Whether a script reads so many batches of each epoch, and no more.

    Two epochs before a load and the one after it have them, or all epochs have one order.
    """
    is_shuffled = record.loaders.get(after[0][0].loader, {}).get("shuffle")
    sizes = {len(own) for own in (*before[-2:], after[0])}
    return len(before[-1]) == len(after[0]) and (
        not is_shuffled or (len(before) > 1 and len(sizes) == 1)
    )


def _skips(record: ValueRecord, loaded: int, until: int) -> bool:
    """Whether a loader gives more batches after a load than the next step trains on."""
    read = sum(loaded < each.at < until for each in record.batches)
    return read > sum(loaded < each.at < until for each in record.of(BackwardPass))


def _epochs(record: ValueRecord) -> list[list[LoadedBatch]]:
    """Return the batches of training, those of one epoch of one loader together."""
    trained = [each for each in record.batches if each.trained]
    return [[*own] for _, own in groupby(trained, key=lambda each: (each.loader, each.epoch))]


def _find_left_step(
    record: ValueRecord, loaded: int, following: OptimizerStep | None
) -> OptimizerStep | None:
    """Return the last step before a load whose weights are those that the next step begins with."""
    if following is None:
        return None
    random = {n for n, each in record.parameters.items() if not each.constant}
    now = {n: each.first for n, each in record.parameters.items()}
    states: list[tuple[OptimizerStep, frozenset[str]]] = []
    events: list[Any] = [*record.forwards, *record.steps, *record.of(DataParallelWrapper)]
    for event in sorted(events, key=lambda each: int(each.at)):
        now.update(event.changed)
        if event is following:
            begin = {now[n] for n in following.gradients if n in random}
            left = [step for step, state in states if begin and begin <= state]
            return left[-1] if left else None
        if isinstance(event, OptimizerStep):
            now.update(event.after)
            if event.at < loaded:
                states.append((event, frozenset(now[n] for n in event.gradients if n in now)))
    return None
