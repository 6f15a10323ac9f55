"""The `if` that an error is told with: one that has led to it, and not another one before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from recordings import Recording

pytestmark = [pytest.mark.torch, pytest.mark.slow]

SCRIPT = """\
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
title = "of the main rank" if rank == 0 else "of another one"


def forward(x):
    width = 4
    if rank == 0:
        width = 5
        title = f"rows {width}"
    return x.view(3, 4)


forward(torch.ones(4, 4))
"""


def test_an_if_that_splits_the_ranks_of_one_error_has_not_led_to_it(
    recording: Recording, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    ran = recording.record(script, "-n", "2", "--fake")
    assert ran.code == 1, ran.output
    assert "all 2 ranks raise RuntimeError" in ran.output
    assert "before that" not in ran.output, ran.output
