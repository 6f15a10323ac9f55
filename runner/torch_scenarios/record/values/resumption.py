"""A run that stops after a checkpoint and goes on from it, held against one that did not stop."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch_scenarios.record.live import Launcher, Order
from torch_scenarios.record.values.format import (
    OptimizerStep,
    ValueRecord,
    read_values,
)
from torch_scenarios.record.values.further_run import Redeal, UnsuitedError, empty_folder, run_again
from torch_scenarios.record.values.invariants import ValueFinding


def check_resumption(order: Order, start: Launcher | None) -> Redeal:
    """Run until a checkpoint is written, run again from it, and compare with the whole run."""
    records = read_values(order.folder)
    whole = records[min(records)]
    turn = _turn_after_save(whole)
    scratch = order.folder / "redeal" / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    aside = {"scratch": str(scratch.absolute()), "redeal": False}
    half, rest = empty_folder(order, "half"), empty_folder(order, "rest")
    run_again(order, half, {**aside, "stop": True, "until": turn}, start)
    run_again(order, rest, aside, start)
    return compare_resumed(order.folder, rest)


def _turn_after_save(record: ValueRecord) -> int:
    """Return the turn before which a run can stop: a checkpoint was written by then."""
    turns = sorted({step.turn for step in record.steps})
    if len(turns) < 2:
        message = "the training has fewer than two steps"
        raise UnsuitedError(message)
    saves = [e.details[0] for e in record.of_kind("save") if turns[0] <= e.details[0] < turns[-1]]
    if not saves:
        message = "no checkpoint is written between two steps (torch.save, DCP): nothing to go on"
        raise UnsuitedError(message)
    middle = turns[len(turns) // 2]
    return int(min(saves, key=lambda turn: abs(turn + 1 - middle))) + 1


def compare_resumed(whole: Path, rest: Path) -> Redeal:
    """Compare a run that went on from a checkpoint with the one that was not stopped."""
    records, others = read_values(whole), read_values(rest)
    counts = []
    for rank, own in others.items():
        if not own.steps:
            return Redeal(reason="the run that goes on takes no step")
        begin = _states(own)[0]
        states = enumerate(_states(records[rank]))
        at = next((n for n, each in states if _agree(each, begin)), None)
        if at == 0:
            return Redeal(reason="the script begins anew: it does not load its checkpoint")
        if at is None:
            return Redeal(findings=(_loads_otherwise(own),))
        pairs = [*zip(own.steps, records[rank].steps[at:], strict=False)]
        counts.append(len(pairs))
        for mine, theirs in pairs:
            if words := _difference_after_load(own, mine, records[rank], theirs):
                return Redeal(findings=(_resumes_otherwise(own, mine, theirs, words),))
    return Redeal(compared=min(counts, default=0), resumed=True)


def _states(record: ValueRecord) -> list[dict[str, str]]:
    """Return the hash of each trained parameter, by name, before each step."""
    trained = {n for step in record.steps for n in step.gradients}
    now = {n: each.first for n, each in record.parameters.items() if n in trained}
    found = []
    events: list[Any] = sorted([*record.forwards, *record.steps], key=lambda each: int(each.at))
    for event in events:
        now.update({n: each for n, each in event.changed.items() if n in now})
        if isinstance(event, OptimizerStep):
            found.append({record.parameters[n].name: each for n, each in now.items()})
            now.update({n: each for n, each in event.after.items() if n in now})
    return found


def _agree(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    common = {*one} & {*other}
    return bool(common) and all(one[name] == other[name] for name in common)


def _difference_after_load(
    record: ValueRecord, mine: OptimizerStep, whole: ValueRecord, theirs: OptimizerStep
) -> tuple[str, str] | None:
    """Return what is another at a step than without the stop, and what to do; or nothing."""
    if mine.rates != theirs.rates:
        words = f"the learning rate is {mine.rates[0]:g}, and {theirs.rates[0]:g} without the stop"
        return words, "save and load the state of the schedule, and of the optimizer"
    rows = [rows_before(*each) for each in ((record, mine), (whole, theirs))]
    if rows[0] != rows[1] and all(rows):
        same = len({*rows[0]} & {*rows[1]})
        words = f"it trains on other rows: {same} of {len(rows[1])} are the same"
        return words, (
            "save the epoch and the place in it, and begin there: the sampler's state, or a "
            "loader that skips what was read"
        )
    gradients = [_by_name(record, mine.gradients), _by_name(whole, theirs.gradients)]
    if gradients[0] != gradients[1]:
        return "the gradients are others on the same rows and weights", (
            "save and load the state of the random generators, the buffers and the scaler"
        )
    after = [_by_name(record, mine.after), _by_name(whole, theirs.after)]
    if after[0] != after[1]:
        return "the same gradients move the weights in another way", (
            "save and load the state of the optimizer (momentum, averages of squares, its step)"
        )
    return None


def _by_name(record: ValueRecord, values: Mapping[int, str | None]) -> dict[str, str | None]:
    return {record.parameters[number].name: each for number, each in values.items()}


def rows_before(record: ValueRecord, step: OptimizerStep) -> list[str]:
    """Return the rows that a step trains on: those of loaders, else those of its modules."""
    began = max((each.at for each in record.steps if each.at < step.at), default=-1)
    loaded = [e.rows for e in record.batches if began < e.at < step.at and e.trained]
    called = [e.details[1] for e in record.of_kind("in") if began < e.at < step.at]
    return [row for rows in loaded or called for row in rows]


def _resumes_otherwise(
    record: ValueRecord, mine: OptimizerStep, theirs: OptimizerStep, words: tuple[str, str]
) -> ValueFinding:
    loads = [e.details[1] for e in record.of_kind("load") if e.details[0] == 0]
    return ValueFinding(
        code="resumes_otherwise",
        message=f"a run that goes on from its checkpoint differs at step {theirs.turn}: {words[0]}",
        ranks=(record.rank,),
        rank=record.rank,
        place=loads[-1] if loads else mine.place,
        frames=record.places.get(loads[-1] if loads else mine.place, ()),
        hint=words[1],
        turn=theirs.turn,
    )


def _loads_otherwise(record: ValueRecord) -> ValueFinding:
    step = record.steps[0]
    words = "its weights are those of no step without the stop", "load all weights and buffers"
    return _resumes_otherwise(record, step, step, words)
