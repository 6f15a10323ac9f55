"""What torch does wrong in silence, as scripts in plain torch that can be sent upstream.

They are about torch and not about this package, so that the nightly run asks. Red when torch mends
it: the page on strategies says then that it was mended, and since when.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.nightly]

SCRIPTS = Path(__file__).with_name("upstream")


def said_by(name: str) -> str:
    torch = pytest.importorskip("torch")
    if not torch.__version__.startswith("2.13"):
        pytest.skip("measured with torch 2.13")
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / f"{name}.py")],
        capture_output=True,
        text=True,
        check=True,
        timeout=400,
    )
    return done.stdout


def test_the_gradient_of_mse_loss_on_shards_is_too_large() -> None:
    said = said_by("mse_loss_on_a_shard")
    assert "ranks 2 rows 6: loss 2.26727, one process 2.26727" in said
    assert "[2.0, 2.0, 2.0, 2.0, 2.0, 2.0]" in said
    assert "ranks 3 rows 7: loss 1.27918, one process 1.50458" in said
    assert "[2.333, 2.333, 2.333, 2.333, 2.333, 2.333, 7.0]" in said


def test_a_flattened_mesh_loses_a_row() -> None:
    said = said_by("flatten_then_redistribute")
    assert "before: [0.0, 3.0, 6.0, 9.0, 12.0]" in said
    assert "after: [0.0, 3.0, 6.0, 0.0, 9.0]" in said


def test_a_checkpoint_before_the_first_step_counts_one() -> None:
    said = said_by("checkpoint_before_the_first_step")
    assert "step saved: 1" in said
    assert "one step: 3.0000" in said
    assert "after a checkpoint of a fresh model: 2.0000" in said


def test_low_rank_gradients_of_two_buckets_wait_for_ever() -> None:
    said = said_by("power_sgd_of_two_buckets")
    one, _, two = said.partition("two buckets:")
    assert one.split("\n")[1:] == ["100 steps are done", ""]
    assert two.strip() == "a rank waits for ever"


def test_a_zero_bubble_backward_detaches_a_view() -> None:
    said = said_by("zero_bubble_of_a_view")
    assert "two dimensions: right" in said
    assert "three dimensions: Can't detach views in-place" in said
    assert "three, without a bias: right" in said
    assert "three, and an activation: right" in said


def test_a_joined_owner_steps_on_old_gradients() -> None:
    output = said_by("joined_owner_steps_on_old_gradients")
    assert "owned by rank 0: -6.0, by rank 1: -2.0" in output
    assert "one process: -6.0, -6.0" in output
