"""An object keeps what a rank gives it, and a framework gathers that: some ranks give otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from recordings import install

if TYPE_CHECKING:
    from pathlib import Path

    from recordings import Recording

pytestmark = [pytest.mark.torch, pytest.mark.slow]

#: what gathers as torchmetrics does: each list that is not empty, item by item
KIT = """\
import torch
import torch.distributed as dist


class Metric:
    def __init__(self):
        self.kept = []

    def update(self, rows):
        self.kept.append(rows)

    def compute(self):
        for each in self.kept:
            sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
            dist.all_gather(sizes, torch.tensor([len(each)]))
        return sum(map(len, self.kept))
"""
USER = """\
import sys

sys.path.insert(0, {folder!r})
import torch
import torch.distributed as dist
from kit import Metric


class Boxes(Metric):
    def update(self, rows):
        if {inside}:
            return
        self.kept.append(rows)


def evaluate(metric, loader):
    for rows in loader:
        if {outside}:
            metric.update(rows)
    return metric.compute()


dist.init_process_group("gloo")
evaluate(Boxes(), [torch.ones(2), torch.ones(3 if dist.get_rank() else 0)])
mean = torch.zeros(3)
dist.all_reduce(mean)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("how", [(), ("--fake",)], ids=["live", "fake"])
@pytest.mark.parametrize(
    ("inside", "outside", "line", "keeper"),
    [
        ("len(rows) == 0", "True", 11, "`self.kept`"),
        ("False", "len(rows) > 0", 18, "`metric`"),
        ("False", "True", 0, ""),
    ],
    ids=["in_the_class", "around_its_update", "right"],
)
def test_the_if_by_which_a_rank_keeps_less_is_told(
    recording: Recording,
    tmp_path: Path,
    how: tuple[str, ...],
    inside: str,
    outside: str,
    line: int,
    keeper: str,
) -> None:
    kit = install(tmp_path, "kit", {"__init__": KIT})
    script = tmp_path / "train.py"
    text = USER.format(folder=kit, inside=inside, outside=outside)
    script.write_text(text, encoding="utf-8")
    ran = recording.record(script, "-n", "2", *how)
    assert ran.code == (1 if line else 0), ran.output
    if line:
        assert f"(train.py:{line}) is" in ran.output, ran.output
        assert f"train.py:20 gathers what {keeper} keeps" in ran.output, ran.output
        assert f"fix: let {keeper} keep as many parts on every rank" in ran.output, ran.output


BETTER = """\
import sys

sys.path.insert(0, {folder!r})
import torch
import torch.distributed as dist
from kit import Metric

LOSSES = [[4.0, 3.0, 2.0], [4.0, {second}, 2.0]]


class Report:
    def __init__(self):
        self.metric, self.best, self.rows = Metric(), 9.0, []

    def close(self, loss):
        if loss < self.best:
            self.best = loss
            self.rows.append(self.metric.compute())
        self.metric.kept.clear()


dist.init_process_group("gloo")
report = Report()
for epoch in range(3):
    for batch in range(2):
        dist.all_reduce(torch.ones(3))
        report.metric.update(torch.ones(2))
    report.close(LOSSES[dist.get_rank()][epoch])
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.parametrize(
    "how",
    [pytest.param((), id="live", marks=pytest.mark.nightly), pytest.param(("--fake",), id="fake")],
)
@pytest.mark.parametrize("second", [3.0, 5.0])
def test_an_if_around_what_gathers_is_no_matter_of_what_is_kept(
    recording: Recording, tmp_path: Path, how: tuple[str, ...], second: float
) -> None:
    kit = install(tmp_path, "kit", {"__init__": KIT})
    script = tmp_path / "train.py"
    script.write_text(BETTER.format(folder=kit, second=second), encoding="utf-8")
    ran = recording.record(script, "-n", "2", *how)
    assert ran.code == (second == 5.0), ran.output
    if second == 5.0:
        assert "rank 0 alone goes into `if loss < self.best` (train.py:16)" in ran.output
        assert "keep as many parts" not in ran.output


#: what gathers as torchmetrics does: the sizes first, but for a number
NUMBERS = """\
import torch
import torch.distributed as dist


def gather(kept):
    if kept.ndim == 0:
        found = [torch.zeros(()) for _ in range(2)]
        dist.all_gather(found, kept)
        return found
    sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(2)]
    dist.all_gather(sizes, torch.tensor([len(kept)]))
    most = int(max(sizes))
    found = [torch.zeros(most) for _ in range(2)]
    dist.all_gather(found, torch.cat([kept, kept.new_zeros(most - len(kept))]))
    return found
"""
RATES = """\
import sys

sys.path.insert(0, {folder!r})
import torch
import torch.distributed as dist
from kit import gather


def rate(net, x):
    return net(x).squeeze({dimension})


dist.init_process_group("gloo")
torch.manual_seed(0)
with torch.no_grad():
    scores = rate(torch.nn.Linear(4, 1), torch.ones(1 if dist.get_rank() else 8, 4))
    gather(scores)
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.parametrize("how", [(), ("--fake",)], ids=["live", "fake"])
@pytest.mark.parametrize("dimension", ["", "1"])
def test_a_squeeze_that_makes_a_number_of_one_row_is_told(
    recording: Recording, tmp_path: Path, how: tuple[str, ...], dimension: str
) -> None:
    kit = install(tmp_path, "kit", {"__init__": NUMBERS})
    script = tmp_path / "train.py"
    text = RATES.format(folder=kit, dimension=dimension)
    script.write_text(text, encoding="utf-8")
    ran = recording.record(script, "-n", "2", *how)
    if dimension:
        assert "name the dimension" not in ran.output, ran.output
        return
    assert ran.code == 1, ran.output
    words = "`return net(x).squeeze()` (train.py:10) takes away the dimension of the batch too"
    assert words in ran.output, ran.output
    assert "fix: name the dimension at train.py:10" in ran.output, ran.output
