"""Strategies lowered into calls: schedules, units, and that a fault planted in them is found."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sampling import sampled

from torch_scenarios.language import load
from torch_scenarios.limits import DEFAULT
from torch_scenarios.model.groups import plan
from torch_scenarios.modules.linear import Linear
from torch_scenarios.modules.loss import MseLoss
from torch_scenarios.modules.optimizer import Adam
from torch_scenarios.modules.relu import ReLU
from torch_scenarios.operations.train import listen
from torch_scenarios.reference import simulate
from torch_scenarios.report.lowered import lower
from torch_scenarios.strategies import data_parallel, fully_shard, pipeline, tensor_parallel
from torch_scenarios.strategies.pipeline import (
    DUAL_V,
    GPIPE,
    IN_A_V,
    ONE_EACH,
    SEVERAL,
    ZERO_BUBBLE,
    actions,
    order_of,
)
from torch_scenarios.verdict import judge

if TYPE_CHECKING:
    from collections.abc import Callable

CORPUS = Path(__file__).parents[2] / "scenarios" / "strategies"


def test_gpipe_goes_all_forward_and_then_all_back() -> None:
    done = [f"{kind}{part}" for kind, part in actions(GPIPE, 0, 2, 3)]
    assert done == ["F0", "F1", "F2", "B0", "B1", "B2"]


def test_one_forward_one_backward_keeps_few_parts() -> None:
    last = [f"{kind}{part}" for kind, part in actions(ONE_EACH, 1, 2, 3)]
    assert last == ["F0", "B0", "F1", "B1", "F2", "B2"]
    first = [f"{kind}{part}" for kind, part in actions(ONE_EACH, 0, 2, 3)]
    assert first == ["F0", "F1", "B0", "F2", "B1", "B2"]


@pytest.mark.torch
@pytest.mark.parametrize("schedule", sampled(list(SEVERAL), 2))
def test_orders_of_several_stages_are_those_that_torch_runs(schedule: str) -> None:
    """What `_PipelineScheduleRuntime` follows, call by call."""
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
    short = {"FORWARD": "F", "FULL_BACKWARD": "B", "BACKWARD_INPUT": "I", "BACKWARD_WEIGHT": "W"}
    for size, each, parts in itertools.product((1, 2, 3, 4), (1, 2, 3), (1, 3, 4, 6, 8)):
        stages = size * each
        if each == 1 and schedule != ZERO_BUBBLE:  # of one stage a rank it is ZB-H1
            continue
        if (schedule in IN_A_V and each != 2) or parts % max(1, parts // size):
            continue
        if schedule == DUAL_V and parts < stages:
            continue
        own = (0, stages - 1) if schedule in IN_A_V else range(0, stages, size)
        made = [Stage(at, size, stages) for at in own]
        theirs = getattr(schedules, schedule)(made, parts, loss_fn=max).pipeline_order_with_comms
        for rank in range(size):
            wanted = [
                (short.get(kind := move.computation_type.name, kind), *move[0:1], move[2])
                for turn in theirs[rank]
                for move in turn.sub_actions or (turn,)
                if move.microbatch_index is not None
            ]
            mine = order_of(schedule, rank, size, stages, parts)
            assert [tuple(move) for move in mine] == wanted, (size, each, parts, rank)


class Stage:
    """As much of torch's stage as a schedule asks for before it runs."""

    def __init__(self, index: int, size: int, stages: int) -> None:
        self.stage_index, self.group_size, self.num_stages = index, size, stages
        self.group_rank, self.is_first, self.is_last = 0, index == 0, index == stages - 1
        self.has_backward, self.submod, self.group, self.device = False, None, None, "cpu"
        self.stage_index_to_group_rank: Any = None


def test_what_is_gathered_again_is_what_was_gathered() -> None:
    """Over two of four ranks, from halves that each pair has kept."""
    (scenario,) = load(CORPUS / "fully_shard_reshards_over_two.yaml")
    planned = plan(scenario)
    with listen() as told:
        simulate(planned)
    gathers = [call for call in told if call.rank == 1 and call.name == "all_gather_single"]
    up, down, down_again, up_again = (np.sort(call.after["output"]) for call in gathers)
    assert gathers[0].group.size == 4
    assert gathers[-1].group.ranks == (0, 1)
    np.testing.assert_array_equal(up_again, up)
    np.testing.assert_array_equal(down_again, down)


def statuses(name: str) -> list[str]:
    found: list[str] = []
    for scenario in load(CORPUS / f"{name}.yaml"):
        planned = plan(scenario)
        found.append(judge(planned, simulate(planned), None, None).status)
    return found


def off(function: Callable[..., Any], change: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return a function whose result is changed."""

    def changed(*args: Any, **kwargs: Any) -> Any:
        return change(function(*args, **kwargs))

    return changed


def scaled(result: Any) -> Any:
    """Return the gradients of a layer, those of its parameters twice as large."""
    dx, grads = result
    return dx, {name: 2 * value for name, value in grads.items()}


def doubled_sum(sum_over: Callable[..., Any]) -> Callable[..., Any]:
    """Return a sum over a group that is twice as large."""

    def sum_twice(group: Any, value: Any, *op: Any) -> Any:
        result = yield from sum_over(group, value, *op)
        return 2 * result

    return sum_twice


#: what is wrong -> where, the change, and a scenario that must not pass with it.
#: one process and the ranks share the layers: a fault there is one of the run's to find
FAULTS: dict[str, tuple[Any, str, Callable[[Any], Any], str]] = {
    "the mean of DDP is a sum": (
        data_parallel,
        "sum_over",
        doubled_sum,
        "ddp_accumulates",
    ),
    "a bucket is closed too late": (
        data_parallel,
        "buckets",
        lambda old: lambda sizes, limits: old(sizes, (10 * limits[0], 10 * limits[1])),
        "ddp_equals_one_process",
    ),
    "the smallest parameters are given away first": (
        data_parallel,
        "owners",
        lambda old: lambda numels, ranks: old([(name, -size) for name, size in numels], ranks),
        "zero1_owns_parameters",
    ),
    "rows are dealt out from the last rank on": (
        fully_shard,
        "slice_part",
        lambda old: lambda value, sizes, at, axis=0: old(value, sizes, len(sizes) - 1 - at, axis),
        "fully_shard_calls",
    ),
    "features are cut in the wrong order": (
        tensor_parallel,
        "slice_part",
        lambda old: (
            lambda value, sizes, at, axis=0: (
                old(value, sizes, len(sizes) - 1 - at, axis)
                if axis == 0
                else old(value, sizes, at, axis)
            )
        ),
        "column_then_row",
    ),
    "a stage takes parts back in the wrong order": (
        pipeline,
        "actions",
        lambda old: (
            lambda _, at, stages, parts: iter(
                [
                    (kind, parts - 1 - part if kind == "B" and at else part)
                    for kind, part in old(GPIPE, at, stages, parts)
                ]
            )
        ),
        "pipeline_schedules",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_lowering_turns_a_scenario_red(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, name, change, scenario = FAULTS[fault]
    assert set(statuses(scenario)) == {"PASSED"}
    monkeypatch.setattr(module, name, change(getattr(module, name)))
    assert "FAILED" in statuses(scenario)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("kind", "name", "change"),
    [
        (Linear, "backward", scaled),
        (ReLU, "backward", lambda result: (-result[0], result[1])),
        (MseLoss, "value", lambda result: (result[0], result[1] / 2)),
        (Adam, "step", lambda result: result + np.float32(1e-2)),
    ],
)
def test_a_fault_in_a_layer_is_found_by_the_run(
    kind: Any,
    name: str,
    change: Callable[[Any], Any],
    monkeypatch: pytest.MonkeyPatch,
    launcher: Any,
) -> None:
    """What both references share only torch can contradict."""
    scenario = "ddp_equals_one_process" if kind is not Adam else "zero1_owns_parameters"
    (case,) = load(CORPUS / f"{scenario}.yaml")
    planned = plan(case)
    observed = launcher.run(planned, simulate(planned))
    assert judge(planned, simulate(planned), observed, observed.backend).status == "PASSED"
    monkeypatch.setattr(kind, name, off(getattr(kind, name), change))
    assert judge(planned, simulate(planned), observed, observed.backend).status == "FAILED"


LOWERED = (
    "ddp_joins_without_a_batch",
    "ddp_equals_one_process",
    "column_then_row",
    "pipeline_schedules",
    "zero1_owns_parameters",
)


@pytest.mark.parametrize("name", [*LOWERED, "fully_shard_reshards_over_two", "sequence_parallel"])
def test_what_is_lowered_is_a_scenario_that_passes_by_itself(name: str, tmp_path: Path) -> None:
    scenario = load(CORPUS / f"{name}.yaml")[0]
    content = lower(scenario, DEFAULT)
    assert content is not None
    path = tmp_path / "lowered.yaml"
    path.write_text(content, encoding="utf-8")
    (case,) = load(path)
    assert not case.models
    planned = plan(case)
    found = judge(planned, simulate(planned), None, None)
    assert found.status == "PASSED"
    assert found.compared > 1
    changed = re.sub(r"(expect: \{\w+: \[+)(-?\d)", r"\g<1>9\g<2>", content, count=1)
    assert changed != content
    path.write_text(changed, encoding="utf-8")
    (case,) = load(path)
    planned = plan(case)
    assert judge(planned, simulate(planned), None, None).status == "FAILED"


def test_only_what_ends_and_trains_is_lowered() -> None:
    stuck = load(CORPUS.parent / "wrong" / "one_batch_more.yaml")[0]
    with pytest.raises(ValueError, match="only what ends is lowered"):
        lower(stuck, DEFAULT)
    (bare,) = load(CORPUS / "nested_shards.yaml")
    assert lower(bare, DEFAULT) is None


#: rank 0 may leave the broadcast early; whether the program relies on it is tried in a second run
RELIES_ON_LEAVING = """\
world_size: 2
tensors:
  x: "random([4, 2], 1)"
  y: "random([4, 1], 2)"
  t: [1]
models:
  net:
    layers: [fc: {Linear: {in_features: 2, out_features: 1}}]
    loss: mse_loss
    optimizer: {SGD: {lr: 0.1}}
    parallel: [DistributedDataParallel: {}]
steps:
  - train: {model: net, input: x, target: y, batch: world}
  - {ranks: 0, broadcast: {tensor: t, src: 0}}
  - {ranks: 0, send: {tensor: t, dst: 1}}
  - {ranks: 1, recv: {tensor: t, src: 0}}
  - {ranks: 1, broadcast: {tensor: t, src: 0}}
"""


def test_a_program_that_is_run_twice_is_lowered_once(tmp_path: Path) -> None:
    path = tmp_path / "twice.yaml"
    path.write_text(RELIES_ON_LEAVING, encoding="utf-8")
    content = lower(load(path)[0], DEFAULT)
    assert content is not None
    assert content.count("all_reduce") == 1
