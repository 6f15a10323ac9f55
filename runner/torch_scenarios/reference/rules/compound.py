"""Compound steps: several calls of other operations on one rank, one after the other."""

from __future__ import annotations

from collections.abc import Mapping

from torch_scenarios.expressions.values import Undefined
from torch_scenarios.model.process import Call
from torch_scenarios.operations.base import Compound
from torch_scenarios.reference.rules import rule
from torch_scenarios.reference.rules.words import name_unequal
from torch_scenarios.reference.state import RankState
from torch_scenarios.reference.symptoms import Symptom


@rule(
    "A step of several calls makes them one after the other, as a program that spells them out: "
    "ranks meet, wait and disagree in each of them.",
    source="torch.distributed.tensor, DTensor.redistribute; torch.nn.parallel",
    shown="strategies/column_then_row wrong/one_rank_does_not_redistribute",
)
def spoil(call: Call, cause: Undefined | None) -> Mapping[str, Undefined]:
    """Return what the whole leaves undefined, because one of its calls brought what is."""
    return {} if cause is None else dict.fromkeys(call.targets, cause)


@rule(
    "A step of a model in parallel computes what one process would compute on the whole batch, but "
    "for rounding.",
    source="torch.nn.parallel.DistributedDataParallel, torch.distributed.fsdp",
    shown="training/data_parallel wrong/not_equivalent/sum_for_mean",
)
def compare(state: RankState, call: Call, operation: Compound) -> tuple[Symptom, ...]:
    """Return what the step does not compute as one process would; nothing where it does."""
    symptom = name_unequal(state, call, operation)
    return () if symptom is None else (symptom,)
