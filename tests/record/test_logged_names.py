"""A framework averages what is logged over all ranks, name by name: each rank has to have it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from recordings import install

if TYPE_CHECKING:
    from pathlib import Path

    from recordings import Recording, RunEnd

pytestmark = [pytest.mark.torch, pytest.mark.slow]

#: what logs as Lightning does: names are averaged at the end of an epoch
KIT = """\
import torch
import torch.distributed as dist


class Module:
    def __init__(self):
        self.logged = {}

    def log(self, name, value, sync_dist=False):
        self.log_dict({name: value}, sync_dist=sync_dist)

    def log_dict(self, values, sync_dist=False):
        for name, value in values.items():
            self.logged[name] = float(value), sync_dist


def fit(module, batches):
    for batch in batches:
        module.training_step(batch)
    for value, averages in module.logged.values():
        if averages:
            dist.all_reduce(torch.tensor(value))
    dist.barrier()
"""
USER = """\
import sys

sys.path.insert(0, {folder!r})
import torch.distributed as dist
from kit import Module, fit


class Net(Module):
    def per_class(self, batch):
        return {{f"recall/{{c}}": 1.0 for c in sorted({{*batch}})}}

    def training_step(self, batch):
        {line}


dist.init_process_group("gloo")
rows = [["car", "bus"], ["bus", {last!r} if dist.get_rank() else "bus"], ["car", "bus"]]
fit(Net(), rows)
dist.destroy_process_group()
"""
DICT = "self.log_dict(self.per_class(batch), sync_dist=True)"
NAME = 'self.log("last/" + batch[-1], 1.0, sync_dist=True)'


def record(recording: Recording, folder: Path, line: str, last: str, *how: str) -> RunEnd:
    kit = install(folder, "kit", {"__init__": KIT})
    script = folder / "train.py"
    text = USER.format(folder=kit, line=line, last=last)
    script.write_text(text, encoding="utf-8")
    return recording.record(script, "-n", "2", *how)


@pytest.mark.parametrize("how", [(), ("--fake",)], ids=["live", "fake"])
@pytest.mark.parametrize(
    ("line", "name"),
    [(DICT, "`recall/bike` on rank 1 alone"), (NAME, "`last/bike` on rank 1 alone")],
)
def test_a_name_that_one_rank_logs_alone_is_told_with_its_line(
    recording: Recording, tmp_path: Path, line: str, name: str, how: tuple[str, ...]
) -> None:
    ran = record(recording, tmp_path, line, "bike", *how)
    assert ran.code == 1, ran.output
    assert name in ran.output, ran.output
    assert "(train.py:13) logs other names on some ranks" in ran.output, ran.output
    assert "fix: log the same names on every rank (train.py:13)" in ran.output, ran.output
    made = "(train.py:10) makes" in ran.output
    assert made == (line == DICT), ran.output


@pytest.mark.parametrize("line", [DICT, NAME])
def test_the_same_names_in_another_turn_are_right(
    recording: Recording, tmp_path: Path, line: str
) -> None:
    ran = record(recording, tmp_path, line, "bus", "--fake")
    assert ran.code == 0, ran.output
    assert "logs other names" not in ran.output


def test_names_that_no_rank_averages_are_each_ranks_own(
    recording: Recording, tmp_path: Path
) -> None:
    ran = record(recording, tmp_path, DICT.replace("True", "False"), "bike", "--fake")
    assert ran.code == 0, ran.output
