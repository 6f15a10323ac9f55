"""The strategies of training, one file each, in one explicit table.

To add one: read a neighbour, write its file, add what it is called to `STRATEGIES`, and the rank
that it makes of a model to `TRAINEES`.
"""

from __future__ import annotations

from torch_scenarios.operations.base import Caller
from torch_scenarios.strategies.alone import SingleRank
from torch_scenarios.strategies.data_parallel import (
    DataParallel,
    DistributedDataParallel,
    ZeroRedundancyOptimizer,
)
from torch_scenarios.strategies.fully_shard import FullyShard, FullySharded
from torch_scenarios.strategies.model import LeftOutError, Model, Rows, Strategy, TrainStep
from torch_scenarios.strategies.model_averager import (
    DataParallelAveraged,
    ModelAveraged,
    PeriodicModelAverager,
)
from torch_scenarios.strategies.pipeline import Pipeline, PipelineStage
from torch_scenarios.strategies.tensor_parallel import (
    FullyShardedTensorParallel,
    ParallelizeModule,
    TensorParallel,
)
from torch_scenarios.strategies.trainee import Trainee

#: every strategy of `parallel:`, by torch's name
STRATEGIES: dict[str, type[Strategy]] = {
    each.name: each
    for each in (
        DistributedDataParallel,
        ZeroRedundancyOptimizer,
        FullyShard,
        ParallelizeModule,
        Pipeline,
        PeriodicModelAverager,
    )
}

#: strategies of torch's that no model here is trained by -> why
LEFT_OUT: dict[str, str] = {
    "context_parallel": "scaled_dot_product_attention has no sharding strategy on a CPU",
    "FullyShardedDataParallel": "fully_shard is lowered here, and not the class before it",
    "loss_parallel": "losses are not computed over cut classes here",
    "PostLocalSGDOptimizer": "weights are averaged by PeriodicModelAverager here, and not by it",
    "ExpertParallel": "torch has it in its tests alone; training/expert_gradients has its steps",
    "checkpoint_wrapper": "activation checkpointing changes no value, and is not recorded here",
}

#: the strategies of a model, in order -> one rank of it
TRAINEES: dict[tuple[str, ...], type[Trainee]] = {
    (): SingleRank,
    ("DistributedDataParallel",): DataParallel,
    ("DistributedDataParallel", "ZeroRedundancyOptimizer"): DataParallel,
    ("fully_shard",): FullySharded,
    ("parallelize_module",): TensorParallel,
    ("parallelize_module", "fully_shard"): FullyShardedTensorParallel,
    ("pipeline",): PipelineStage,
    ("PeriodicModelAverager",): ModelAveraged,
    ("DistributedDataParallel", "PeriodicModelAverager"): DataParallelAveraged,
}

__all__ = [
    "LEFT_OUT",
    "STRATEGIES",
    "TRAINEES",
    "LeftOutError",
    "Model",
    "Rows",
    "Strategy",
    "TrainStep",
    "Trainee",
    "trainee_of",
]


def kinds(model: Model) -> tuple[str, ...]:
    """Return the names of a model's strategies, in order."""
    return tuple(each.name for each in model.parallel)


def trainee_of(model: Model, caller: Caller) -> Trainee:
    """Return one rank of a model, in the reference."""
    return TRAINEES[kinds(model)](model, caller)
