"""Checkpoints: what a file may say of them, who waits for whom, what is unpickled, what is left."""

from __future__ import annotations

import io
import pickle
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from torch_scenarios.errors import ScenarioError
from torch_scenarios.execution.pickles import CHECKPOINT, CheckpointUnpickler, ExactUnpickler
from torch_scenarios.language import load
from torch_scenarios.pipeline.attempts import analyse, execute
from torch_scenarios.strategies.checkpoint import Checkpoint
from torch_scenarios.strategies.data_parallel import weights_only

PROGRAM = """\
world_size: 2
groups: {{pair: {{shape: [2], dims: [dp]}}, one: [0]}}
models:
  net: &net
    layers: [fc: {{Linear: {{in_features: 2, out_features: 3}}}}]
    loss: mse_loss
    optimizer: {{AdamW: {{lr: 0.1}}}}
    parallel: [{strategy}]
  slower:
    layers: [fc: {{Linear: {{in_features: 2, out_features: 3}}}}]
    loss: mse_loss
    optimizer: {{AdamW: {{lr: 0.01}}}}
tensors:
  x: "random([4, 2], 1)"
  y: "random([4, 3], 2)"
steps:
  - train: {{model: net, input: x, target: y, batch: world}}
{steps}
"""
DDP = "DistributedDataParallel: {}"


def written(folder: Path, steps: str, strategy: str = DDP) -> Path:
    path = folder / "case.yaml"
    path.write_text(PROGRAM.format(strategy=strategy, steps=steps), encoding="utf-8")
    return path


def verdict_on(folder: Path, steps: str, strategy: str = DDP) -> Any:
    (case,) = load(written(folder, steps, strategy))
    return analyse(case).verdict


@pytest.mark.parametrize("path", ["../x", "/x", "a/b", "'.'", "''", "[a]", "3", "a b"])
def test_a_path_is_invalid_at_its_place(path: str, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as raised:
        load(written(tmp_path, f"  - save: {{model: net, checkpoint: {path}}}"))
    problem = raised.value.problems[0]
    assert problem.mark is not None
    assert problem.mark.line == 18
    assert problem.hint or problem.code == "wrong_type"


def test_a_rank_that_does_not_consolidate_is_waited_for(tmp_path: Path) -> None:
    strategy = f"{DDP}, ZeroRedundancyOptimizer: {{}}"
    found = verdict_on(tmp_path, "  - save: {model: net, checkpoint: a}", strategy)
    assert found.status == "PASSED"
    found = verdict_on(tmp_path, "  - ranks: 0\n    save: {model: net, checkpoint: a}", strategy)
    assert [each.name for each in found.predicted.diagnoses] == ["missing_participant"]


@pytest.mark.torch
def test_a_state_arrives_as_tensors_alone() -> None:
    """ZeRO's own broadcast unpickles whatever a rank sends."""
    torch = pytest.importorskip("torch")
    content = io.BytesIO()
    torch.save({"state": torch.ones(2), "of": Runs()}, content)
    load = torch.load
    content.seek(0)
    with weights_only(torch), pytest.raises(pickle.UnpicklingError, match="print"):
        torch.load(content, weights_only=False)
    assert torch.load is load


def test_another_optimizer_takes_no_checkpoint(tmp_path: Path) -> None:
    steps = "  - save: {model: net, checkpoint: a}\n  - load: {model: slower, checkpoint: a}"
    found = verdict_on(tmp_path, steps)
    assert found.status == "INVALID"
    assert "restores the arguments of its optimizer" in found.problems[0].message


def test_a_rank_that_does_not_save_is_waited_for(tmp_path: Path) -> None:
    found = verdict_on(tmp_path, "  - ranks: 0\n    save: {model: net, checkpoint: a}")
    assert found.status == "FAILED"
    assert [each.name for each in found.predicted.diagnoses] == ["missing_participant"]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_asks_alone_waits_before_it_is_refused(tmp_path: Path, rank: int) -> None:
    found = verdict_on(tmp_path, f"  - ranks: {rank}\n    load: {{model: net, checkpoint: a}}")
    assert found.status == "FAILED"
    assert found.predicted.outcome == "deadlock"
    assert [each.name for each in found.predicted.diagnoses] == ["missing_participant"]


def test_what_one_rank_knows_of_no_rank_reads_without_it(tmp_path: Path) -> None:
    """All ranks raise what one of them finds."""
    steps = "  - load: {model: net, checkpoint: a}\n    expect: {raises: invalid_argument}"
    found = verdict_on(tmp_path, f"{steps}\nexpect: {{diagnosis: invalid_argument}}")
    assert found.status == "PASSED"


def test_parts_of_ranks_are_joined_where_they_lie() -> None:
    """Rank 1 has the rows from the second on; of what both have rank 0's counts."""
    model: Any = type("Model", (), {"network": type("N", (), {"shapes": lambda: {"w": (3,)}})})
    numbers = np.arange(3)
    pieces: list[dict[str, Any]] = [
        {"parts": {"w": (numbers[:2], np.array([1.0, 2.0]), {"step": 4})}, "trained": "one"},
        {"parts": {"w": (numbers[1:], np.array([9.0, 3.0]), {"m": np.ones(2)})}, "trained": "two"},
    ]
    found = Checkpoint.of(model, pieces)
    assert found.weights["w"].tolist() == [1, 2, 3]
    assert found.states["w"]["step"] == 4
    assert found.states["w"]["m"].tolist() == [0, 1, 1]
    assert found.trained == "one"  # type: ignore[comparison-overlap]


class Runs:
    """Whose pickle calls something."""

    def __reduce__(self) -> Any:  # noqa: D105 -- its class says it
        return print, ("run",)


def test_only_the_names_of_plans_are_unpickled() -> None:
    assert all("*" not in name for pair in CHECKPOINT for name in pair)
    for value in (Runs(), Path, tempfile.TemporaryDirectory, np.ones(2)):
        with pytest.raises(pickle.UnpicklingError, match="it names"):
            CheckpointUnpickler(io.BytesIO(pickle.dumps(value))).load()
    told = pickle.dumps(ValueError("no such row"))
    assert str(CheckpointUnpickler(io.BytesIO(told)).load()) == "no such row"
    with pytest.raises(pickle.UnpicklingError):
        ExactUnpickler(io.BytesIO(told)).load()


@pytest.mark.torch
def test_a_run_leaves_no_checkpoint(
    tmp_path: Path, launcher: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lies in a folder of the run's own, which goes with the run."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    steps = "  - save: {model: net, checkpoint: a}\n  - load: {model: net, checkpoint: a}"
    path = written(tmp_path, steps)
    (case,) = load(path)
    result = execute(analyse(case), launcher)
    assert result.verdict.status == "PASSED", result.verdict.findings
    assert list(tmp_path.iterdir()) == [path]
