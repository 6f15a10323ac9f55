"""A framework's loop is left early on one rank, by what the script rates on each rank by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from recordings import install

if TYPE_CHECKING:
    from pathlib import Path

    from recordings import Recording

pytestmark = [pytest.mark.torch, pytest.mark.slow]

#: what reads as the Trainer of transformers does
KIT = """\
import torch
import torch.distributed as dist


class EarlyStopping:
    def __init__(self, patience):
        self.patience, self.best, self.bad = patience, float("inf"), 0

    def is_over(self, score):
        self.bad = 0 if score < self.best else self.bad + 1
        self.best = min(score, self.best)
        return self.bad >= self.patience


class Settings:
    def __init__(self, folder, epochs):
        self.folder, self.epochs = folder, epochs


class Trainer:
    def __init__(self, settings, callbacks):
        self.settings, self.callbacks = settings, callbacks

    def train(self):
        for epoch in range(self.settings.epochs):
            dist.all_reduce(torch.ones(2))
            score = self.evaluate(epoch)
            if any(each.is_over(score) for each in self.callbacks):
                break
        dist.barrier()
"""
USER = """\
import os
import sys

sys.path.insert(0, {folder!r})
import torch
import torch.distributed as dist
from kit import EarlyStopping, Settings, Trainer


class OwnTrainer(Trainer):
    def evaluate(self, epoch):
        score = torch.tensor([4.0 + epoch * (dist.get_rank() - 0.5)])
{gather}
        return score.item()


def main():
    dist.init_process_group("gloo")
    settings = Settings(
        folder=os.environ.get("RUNS", "runs"),
        epochs=4,
    )
    trainer = OwnTrainer(
        settings=settings,
        callbacks=[EarlyStopping(patience=2)],
    )
    trainer.train()
    dist.destroy_process_group()


main()
"""


@pytest.mark.parametrize(
    "how",
    [pytest.param((), id="live", marks=pytest.mark.nightly), pytest.param(("--fake",), id="fake")],
)
@pytest.mark.parametrize("is_right", [False, True])
def test_what_may_end_the_loop_of_a_framework_is_told(
    recording: Recording, tmp_path: Path, how: tuple[str, ...], *, is_right: bool
) -> None:
    kit = install(tmp_path, "kit", {"__init__": KIT})
    script = tmp_path / "train.py"
    gather = "        dist.all_reduce(score)" if is_right else ""
    script.write_text(USER.format(folder=kit, gather=gather), encoding="utf-8")
    ran = recording.record(script, "-n", "2", *how)
    assert ran.code == (0 if is_right else 1), ran.output
    if not is_right:
        assert "by `callbacks=[EarlyStopping(patience=2)]` (train.py:25)" in ran.output, ran.output
        assert "what `evaluate` (train.py:11) gives may be another" in ran.output, ran.output
        assert "Settings(" not in ran.output, ran.output
