"""One rank reads the batches of all and joins them: they have to be of one size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from recordings import install

if TYPE_CHECKING:
    from pathlib import Path

    from recordings import Recording

pytestmark = [pytest.mark.torch, pytest.mark.slow]

#: what reads as accelerate's dispatcher does
KIT = """\
import torch
import torch.distributed as dist


class Dispatcher:
    def __init__(self, rows, collate_fn):
        self.rows, self.collate = rows, collate_fn

    def __iter__(self):
        for at in range(0, len(self.rows), 4):
            known = [None]
            if dist.get_rank() == 0:
                parts = [self.collate(self.rows[at + each : at + each + 2]) for each in (0, 2)]
                try:
                    known = [list(torch.cat(parts).shape)]
                except RuntimeError as error:
                    raise RuntimeError(
                        "You can't use batches of different size with `dispatch_batches=True`"
                    ) from error
            dist.broadcast_object_list(known)
            batch = torch.zeros(known[0] or (4, 4))
            dist.broadcast(batch, 0)
            yield batch
"""
USER = """\
import sys

sys.path.insert(0, {folder!r})
import torch
import torch.distributed as dist
from kit import Dispatcher


def collate(rows):
    longest = {longest}
    return torch.stack([torch.ones(longest) for row in rows])


dist.init_process_group("gloo")
for batch in Dispatcher([3, 4, 2, 2, 4, 3, 1, 4], collate_fn=collate):
    dist.all_reduce(batch)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("how", [(), ("--fake",)], ids=["live", "fake"])
@pytest.mark.parametrize("is_right", [False, True])
def test_what_makes_batches_of_other_sizes_is_told(
    recording: Recording, tmp_path: Path, how: tuple[str, ...], *, is_right: bool
) -> None:
    kit = install(tmp_path, "kit", {"__init__": KIT})
    script = tmp_path / "train.py"
    longest = "4" if is_right else "max(rows)"
    text = USER.format(folder=kit, longest=longest)
    script.write_text(text, encoding="utf-8")
    ran = recording.record(script, "-n", "2", *how)
    assert ran.code == (0 if is_right else 1), ran.output
    if not is_right:
        assert "what `collate` (train.py:9) gives is of another size" in ran.output, ran.output
        assert "by `longest = max(rows)` (train.py:10)" in ran.output, ran.output
        assert "fix: pad to one length in `collate` (train.py:9)" in ran.output, ran.output


#: what reads as a Trainer that is given a loss and what makes its batches
TRAINER = """\
class Trainer:
    def __init__(self, rows, data_collator):
        self.rows, self.data_collator = rows, data_collator

    def train(self):
        for at in range(0, len(self.rows), 2):
            self.compute_loss(self.data_collator(self.rows[at : at + 2]))
"""
CONTRASTS = """\
import sys

sys.path.insert(0, {folder!r})
import torch
import torch.distributed as dist
from kit import Trainer


class Collator:
    def __init__(self, longest):
        self.longest = longest

    def __call__(self, rows):
        kept = {kept}
        return {{"text": torch.stack([torch.ones(3) for row in kept])}}


class ContrastiveTrainer(Trainer):
    def gathered(self, features):
        parts = [torch.zeros_like(features) for _ in range(2)]
        dist.all_gather(parts, features)
        return torch.cat(parts)

    def compute_loss(self, inputs):
        text = inputs["text"] * 2
        return self.gathered(text).sum()


def main():
    dist.init_process_group("gloo")
    rows = ["ab", "abc", "a" * (2 + 4 * dist.get_rank()), "b"]
    ContrastiveTrainer(rows, data_collator=Collator(4)).train()
    dist.destroy_process_group()


main()
"""


@pytest.mark.parametrize(
    "how",
    [pytest.param((), id="live", marks=pytest.mark.nightly), pytest.param(("--fake",), id="fake")],
)
@pytest.mark.parametrize("is_right", [False, True])
def test_what_makes_a_batch_is_told_where_a_framework_passes_it_on(
    recording: Recording, tmp_path: Path, how: tuple[str, ...], *, is_right: bool
) -> None:
    kit = install(tmp_path, "kit", {"__init__": TRAINER})
    script = tmp_path / "train.py"
    text = "[row[: self.longest] for row in rows]"
    kept = text if is_right else "[row for row in rows if len(row) <= self.longest]"
    source = CONTRASTS.format(folder=kit, kept=kept)
    script.write_text(source, encoding="utf-8")
    ran = recording.record(script, "-n", "2", *how)
    assert ran.code == (0 if is_right else 1), ran.output
    if not is_right:
        assert "`Collator` makes the batch, and sets its size by `kept = " in ran.output, ran.output
        assert "(train.py:14)" in ran.output, ran.output
        assert "fix: let `Collator` make batches of one size" in ran.output, ran.output
