"""Models under strategies, in the analysis: buckets, owners, what is unequal, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from torch_scenarios.cli.starts import STARTS, starter
from torch_scenarios.errors import ScenarioError
from torch_scenarios.language import load
from torch_scenarios.language.format import format_file
from torch_scenarios.limits import DEFAULT
from torch_scenarios.model.groups import plan
from torch_scenarios.modules.optimizer import SGD
from torch_scenarios.pipeline.attempts import analyse
from torch_scenarios.reference import simulate
from torch_scenarios.strategies.comm_hooks.power_sgd import Normal, PowerSGD, orthogonal
from torch_scenarios.strategies.data_parallel import MIB, DataParallel, buckets, owners
from torch_scenarios.strategies.model_averager import PeriodicModelAverager
from torch_scenarios.strategies.tolerance import factor, tolerance, unequal
from torch_scenarios.verdict import judge

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from torch_scenarios.model.trace import Trace
    from torch_scenarios.modules.optimizer import State
    from torch_scenarios.verdict import Verdict

CORPUS = Path(__file__).parents[2] / "scenarios"

NET = """\
world_size: 2
models:
  net:
    layers: [{layers}]
    loss: {loss}
    optimizer: {{{optimizer}}}
    parallel: {parallel}
{more}
tensors:
  x: "random([8, 4], 1)"
  y: "random([8, 2], 2)"
steps:
  - train: {{model: net, input: x, target: y, batch: world}}
"""
LAYERS = "up: {Linear: {in_features: 4, out_features: 2}}"


def text(
    *,
    layers: str = LAYERS,
    loss: str = "mse_loss",
    optimizer: str = "SGD: {lr: 0.1}",
    parallel: str = "[DistributedDataParallel: {}]",
    more: str = "",
) -> str:
    return NET.format(layers=layers, loss=loss, optimizer=optimizer, parallel=parallel, more=more)


def verdict_on(content: str, folder: Path) -> Verdict:
    path = folder / "case.yaml"
    path.write_text(content, encoding="utf-8")
    (scenario,) = load(path)
    planned = plan(scenario)
    return judge(planned, simulate(planned), None, None)


def test_buckets_are_closed_as_they_reach_their_limit() -> None:
    sizes = [(str(at), 4 * numel) for at, numel in enumerate((4, 64, 16, 256, 16, 256, 16, 128))]
    assert [len(each) for each in buckets(sizes, (1048, 1048))] == [4, 2, 2]
    layers = [(str(at), MIB) for at in range(5)]
    assert [len(each) for each in buckets(layers, (MIB, 25 * MIB))] == [1, 4]
    assert [len(each) for each in buckets(layers, (2 * MIB, 2 * MIB))] == [2, 2, 1]


def test_the_largest_parameters_are_given_away_first() -> None:
    found = owners([("up.weight", 32), ("up.bias", 8), ("down.weight", 16), ("down.bias", 2)], 2)
    assert found == {"up.weight": 0, "down.weight": 1, "up.bias": 1, "down.bias": 1}


def test_a_factor_is_told() -> None:
    wanted = np.array([1.0, -2.0, 0.5])
    assert factor(3 * wanted, wanted, 1e-6) == pytest.approx(3)
    assert factor(wanted + np.array([0, 0, 1]), wanted, 1e-6) is None
    assert unequal(wanted.astype(np.float32), wanted, 1e-6) is None
    assert "a factor of 2.000 everywhere" in str(unequal(2 * wanted, wanted, 1e-6))
    assert "has shape [2]" in str(unequal(wanted[:2], wanted, 1e-6))


def test_the_tolerance_is_that_of_rounding() -> None:
    exact = np.array([1.0, 2.0])
    last = 2**-23 * 2
    assert tolerance(exact, exact, exact) == pytest.approx(4 * last)
    assert tolerance(exact, exact + 1e-3, exact + 1e-3) == pytest.approx(8e-3, rel=1e-3)
    assert tolerance(exact, exact, exact + 1e-3) == pytest.approx(8e-3, rel=1e-3)


def test_a_fault_in_float32_alone_widens_no_tolerance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An optimizer that is wrong in float32 makes float32 differ from float64, and is found."""
    right = SGD.step

    def wrong(self: SGD, param: NDArray[Any], grad: NDArray[Any], state: State) -> NDArray[Any]:
        made = right(self, param, grad, state)
        return made + np.float32(1e-3) if made.dtype == np.float32 else made

    monkeypatch.setattr(SGD, "step", wrong)
    found = verdict_on(text(), tmp_path)
    assert found.predicted is not None
    assert [each.name for each in found.predicted.diagnoses] == ["not_equivalent"]


def test_a_right_program_passes_and_compares(tmp_path: Path) -> None:
    found = verdict_on(text(), tmp_path)
    assert found.status == "PASSED"
    assert found.predicted is not None
    assert found.predicted.diagnoses == ()


def test_a_sum_in_place_of_a_mean_is_found_with_its_factor(tmp_path: Path) -> None:
    content = text(loss="{mse_loss: {reduction: sum}}", more="    oracle: {loss: mse_loss}")
    found = verdict_on(content, tmp_path)
    assert found.status == "FAILED"
    assert found.predicted is not None
    (diagnosis,) = found.predicted.diagnoses
    assert diagnosis.name == "not_equivalent"
    assert diagnosis.ranks == (0, 1)
    assert "net.loss is not what one process computes" in diagnosis.prose
    assert "a factor of 8.000" in diagnosis.prose


WRONG = {
    "unknown_layer": text(layers="x: {Lambda: {}}"),
    "bad_name": text(layers="loss: {Linear: {in_features: 4, out_features: 2}}"),
    "unknown_argument": text(layers="x: {Linear: {in_featurs: 4, out_features: 2}}"),
    "missing_argument": text(layers="x: {Linear: {in_features: 4}}"),
    "wrong_type": text(layers="x: {Linear: {in_features: four, out_features: 2}}"),
    "model_too_large": text(layers="x: {Linear: {in_features: 100000, out_features: 10000}}"),
    "unknown_word": text(optimizer="LBFGS: {lr: 0.1}"),
    "unsupported_strategy": text(parallel="[ZeroRedundancyOptimizer: {}]"),
    "bad_model": text(more='    init: {up.weight: "ones([4, 2])"}'),
    "unknown_name": text(more='    init: {up.weights: "ones([2, 4])"}'),
}


@pytest.mark.parametrize("code", WRONG)
def test_what_is_no_model_is_invalid_at_its_place(code: str, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as raised:
        verdict_on(WRONG[code], tmp_path)
    problem = raised.value.problems[0]
    assert problem.code == code
    assert problem.mark is not None
    assert problem.hint or code == "bad_name"


#: what a strategy says of `join` -> what is wrong
JOINS = {
    "{}": "is not trained within `join`",
    "{join: true}": "write its arguments",
    "{join: {throw: true}}": "no argument `throw`",
    "{join: {enable: 1}}": "`enable` is true or false",
}


@pytest.mark.parametrize("said", JOINS)
def test_what_is_no_context_cannot_be_left(said: str, tmp_path: Path) -> None:
    content = text(parallel=f"[DistributedDataParallel: {said}]") + "  - join: {model: net}\n"
    with pytest.raises(ScenarioError) as raised:
        verdict_on(content, tmp_path)
    (problem,) = raised.value.problems
    assert problem.code == "bad_value"
    assert JOINS[said] in problem.message
    assert problem.mark is not None


def test_a_context_that_is_not_enabled_says_nothing(tmp_path: Path) -> None:
    content = text(parallel="[DistributedDataParallel: {join: {enable: false}}]")
    content += "  - join: {model: net}\n"
    content += "expect: {communicates: {net: [[all_reduce, float32, 10]]}}\n"
    assert verdict_on(content, tmp_path).status == "PASSED"


def test_weights_are_averaged_behind_the_steps_of_their_turn() -> None:
    averager = PeriodicModelAverager(period=2, warmup_steps=1)
    assert [step for step in range(6) if averager.turn(step)] == [1, 3, 5]


@pytest.mark.parametrize("said", ["{period: 0}", "{period: 1, warmup_steps: -1}", "{}"])
def test_a_period_is_one_step_or_more(said: str, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as raised:
        verdict_on(text(parallel=f"[PeriodicModelAverager: {said}]"), tmp_path)
    assert raised.value.problems[0].mark is not None


#: a hook -> words of the problem at its place
WRONG_HOOKS = {
    "sum_hook": "there is no hook `sum_hook` here",
    "[allreduce_hook]": "a name is wanted",
    "{allreduce_hook: {}, fp16_compress_hook: {}}": "a name is wanted",
    "{powerSGD_hook: 3}": "are a mapping",
    "{powerSGD_hook: {rank: 3}}": "has no argument",
    "{powerSGD_hook: {matrix_approximation_rank: 1.5}}": "a whole number",
    "{powerSGD_hook: {matrix_approximation_rank: 0}}": "1 or more",
    "{powerSGD_hook: {random_seed: -1}}": "between 0",
    "{powerSGD_hook: {warm_start: 1}}": "true or false",
    "{powerSGD_hook: {min_compression_rate: true}}": "a number",
    "{powerSGD_hook: {start_powerSGD_iter: 1}}": "2 or more",
    "{powerSGD_hook: {start_powerSGD_iter: 1, use_error_feedback: false}}": "2 or more",
    "post_localSGD_hook": "has no `subgroup`",
    "{post_localSGD_hook: {subgroup: 3, start_localSGD_iter: 1}}": "a name",
    "{post_localSGD_hook: {subgroup: world, start_localSGD_iter: -1}}": "0 or more",
    "{post_localSGD_hook: {subgroup: nowhere, start_localSGD_iter: 1}}": "there is no such group",
}


@pytest.mark.parametrize("hook", WRONG_HOOKS)
def test_a_wrong_hook_is_a_problem_with_a_place(hook: str, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as raised:
        verdict_on(text(parallel=f"[DistributedDataParallel: {{comm_hook: {hook}}}]"), tmp_path)
    problem = raised.value.problems[0]
    assert problem.mark is not None
    assert WRONG_HOOKS[hook] in problem.message


def test_a_hook_that_keeps_nothing_may_begin_at_once() -> None:
    found = PowerSGD(start_powerSGD_iter=0, use_error_feedback=False, warm_start=False)
    assert found.find_mismatch(1, counts=False) is None


@pytest.mark.torch
def test_random_numbers_are_those_of_torch() -> None:
    """From one seed, sizes filled at once and one by one, in turn."""
    torch = pytest.importorskip("torch")
    for seed in (0, 1, 999_999_999):
        torch.manual_seed(seed)
        drawn = Normal(seed)
        for size in (3, 5, 16, 17, 40, 2, 7, 64, 15, 31, 1, 1, 200):
            np.testing.assert_allclose(drawn.sample(size), torch.randn(size).numpy(), atol=1e-6)


def test_low_rank_gradients_are_off_by_rounding_alone() -> None:
    """What all ranks give, done once more in float64 from step to step, is nearly the same."""
    case = load(CORPUS / "wrong" / "not_equivalent" / "gradients_of_too_low_a_rank.yaml")[0]
    names = ("net.loss", "net.up.weight", "net.mid.weight.grad", "net.down.weight.grad")
    for event in simulate(plan(case)).ranks[1].events:
        writes = dict(event.writes)
        for name in names:
            value: Any = writes[name]
            assert 0 < np.max(event.slack[name]) < 1e-3 * np.abs(value).max()


def test_who_does_not_step_on_a_weight_knows_how_far_off_it_is(tmp_path: Path) -> None:
    """With ZeRO rank 0 steps on the weight: what rounding leaves in the hook is in rank 1's too."""
    text = (CORPUS / "strategies" / "ddp_sends_gradients_near_a_lower_rank.yaml").read_text("utf-8")
    zero = "      - ZeroRedundancyOptimizer: {}\n"
    (tmp_path / "case.yaml").write_text(text.replace("steps:\n", f"{zero}steps:\n", 1), "utf-8")
    (case,) = load(tmp_path / "case.yaml")
    found = simulate(plan(case))
    assert not found.diagnoses
    first, other = (float(np.max(rank.events[-1].slack["net.fc.weight"])) for rank in found.ranks)
    assert first == other > 1e-4


def test_columns_become_orthogonal() -> None:
    rng = np.random.default_rng(3)
    for columns in (1, 2, 3, 4):
        made = orthogonal(rng.normal(size=(2, 6, columns)).astype(np.float32), 0)
        squares = made.swapaxes(1, 2) @ made
        np.testing.assert_allclose(
            squares, np.broadcast_to(np.eye(columns), squares.shape), atol=1e-6
        )
    made = orthogonal(np.array([[[3.0], [4.0]]], np.float32), 5)
    np.testing.assert_allclose(made, [[[0.3], [0.4]]], atol=1e-6)
    assert np.isnan(orthogonal(np.zeros((1, 3, 1), np.float32), 0)).all()
    assert not orthogonal(np.zeros((1, 3, 1), np.float32), 1e-8).any()


LEFT_OUT = {
    "context_parallel": "[context_parallel: {mesh: mesh.dp}]",
    "offload_policy": "[fully_shard: {mesh: mesh.dp, offload_policy: {CPUOffloadPolicy: {}}}]",
    "bf16_compress_hook": "[DistributedDataParallel: {comm_hook: bf16_compress_hook}]",
    "fp16_compress_wrapper": "[DistributedDataParallel: {comm_hook: {fp16_compress_wrapper:"
    " {hook: powerSGD_hook}}}]",
    "bf16_compress_wrapper": "[DistributedDataParallel: {comm_hook: {bf16_compress_wrapper:"
    " {hook: powerSGD_hook}}}]",
    "PREMUL_SUM": "[fully_shard: {mesh: mesh.dp, gradient_divide_factor: 1}]",
    "RowwiseParallel of the Embedding `up`": "[parallelize_module: {device_mesh: mesh.dp,"
    " parallelize_plan: {up: RowwiseParallel}}]",
    "SyncBatchNorm": "[DistributedDataParallel: {}]",
    "layers with buffers": "[fully_shard: {mesh: mesh.dp}]",
    "save and load of layers with buffers": "[]",
    "PostLocalSGDOptimizer": "[PostLocalSGDOptimizer: {}]",
    "batched_powerSGD_hook": "[DistributedDataParallel: {comm_hook: batched_powerSGD_hook}]",
    "powerSGD_hook with find_unused_parameters": "[DistributedDataParallel: {comm_hook:"
    " powerSGD_hook, find_unused_parameters: true}]",
    "powerSGD_hook over 2 buckets": "[DistributedDataParallel: {comm_hook: powerSGD_hook,"
    " bucket_cap_mb: 0.000001}]",
    "FullyShardedDataParallel": "[FullyShardedDataParallel: {}]",
    "models are not trained by": "[pipeline: {mesh: m, stages: [[up]]}, fully_shard: {mesh: m}]",
}


@pytest.mark.parametrize("words", LEFT_OUT)
def test_what_is_left_out_is_unsupported_with_its_reason(words: str, tmp_path: Path) -> None:
    path = tmp_path / "case.yaml"
    groups = "groups: {mesh: {shape: [2], dims: [dp]}}"
    table = "up: {Embedding: {num_embeddings: 4, embedding_dim: 2}}"
    layers = {
        "RowwiseParallel of the Embedding `up`": table,
        "SyncBatchNorm": "up: {Residual: [norm: {SyncBatchNorm: {num_features: 4}}]}",
        "layers with buffers": "up: {BatchNorm1d: {num_features: 4}}",
        "save and load of layers with buffers": "up: {BatchNorm1d: {num_features: 4}}",
    }
    content = text(parallel=LEFT_OUT[words], more=groups, layers=layers.get(words, LAYERS))
    content += "  - save: {model: net, checkpoint: c}\n" if words.startswith("save") else ""
    path.write_text(content, encoding="utf-8")
    (scenario,) = load(path)
    found = analyse(scenario).verdict
    assert found.status == "UNSUPPORTED"
    assert words in str(found.reason)


def test_interleaved_stages_are_two_a_rank_or_more(tmp_path: Path) -> None:
    layers = "a: {Linear: {in_features: 4, out_features: 4}}, " + LAYERS
    stages = "stages: [[a], [up]], schedule: ScheduleInterleaved1F1B, n_microbatches: 2"
    content = text(
        layers=layers,
        parallel=f"[pipeline: {{mesh: mesh.dp, {stages}}}]",
        more="groups: {mesh: {shape: [2], dims: [dp]}}",
    )
    found = verdict_on(content.replace(", batch: world", ""), tmp_path)
    assert found.predicted is not None
    assert [each.name for each in found.predicted.diagnoses] == ["invalid_argument"]
    assert "two stages or more a rank" in found.predicted.diagnoses[0].prose


@pytest.mark.parametrize("strategy", STARTS)
def test_a_scenario_to_start_from_passes_and_is_laid_out(strategy: str, tmp_path: Path) -> None:
    content = starter(strategy, "mine.yaml")
    assert format_file("mine.yaml", content.encode(), DEFAULT).decode() == content
    assert content.count("#") > 4
    found = verdict_on(content, tmp_path)
    assert found.status == "PASSED"
    assert found.predicted is not None
    assert "net.loss" in dict(found.predicted.ranks[-1].events[-1].writes)


def test_rounding_widens_the_gradient_and_the_weight_that_it_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def predicted(content: str) -> Trace:
        path = tmp_path / "case.yaml"
        path.write_text(content, encoding="utf-8")
        (scenario,) = load(path)
        return simulate(plan(scenario))

    def told(content: str) -> str:
        return predicted(content).diagnoses[0].prose

    def slack() -> dict[str, float]:
        (event,) = predicted(text()).ranks[0].events
        return {name: float(np.max(off)) for name, off in event.slack.items()}

    before = slack()
    monkeypatch.setattr(DataParallel, "bound_rounding", lambda _self, _name: (1.0, 0.0))
    after = slack()
    assert after["net.up.weight.grad"] > before["net.up.weight.grad"] + 0.9
    assert after["net.up.weight"] == before["net.up.weight"]
    # a gradient that is off by less is no departure: what is told first is the weight behind it
    wrong = text().replace("batch: world", "batch: {group: world, sizes: [6, 2]}")
    assert "net.up.weight is not" in told(wrong)
    monkeypatch.setattr(DataParallel, "bound_rounding", lambda _self, _name: (0.0, 1.0))
    assert "net.up.weight.grad is not" in told(wrong)
