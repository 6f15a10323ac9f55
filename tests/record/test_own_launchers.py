"""Programs whose rank 0 starts the others itself, as Lightning's do: their ranks are of one record.

The stand-in launcher here does what Lightning's does, without Lightning. Where a framework is
installed, the night runs a program of it too: the suite itself installs none of them.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from recordings import install

pytestmark = [pytest.mark.torch, pytest.mark.slow]

#: rank 0 chooses a port, starts rank 1 with the same command, and goes on as a rank
STAND_IN = """\
import os
import socket
import subprocess
import sys

import torch
import torch.distributed as dist


class Trainer:
    def __init__(self, *, max_steps, log_every):
        self.max_steps, self.log_every = max_steps, log_every

    def fit(self, model):
        if "RANK" not in os.environ:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE="2")
            for rank in range(1, 2):
                subprocess.Popen(
                    [sys.executable, *sys.argv], env={**os.environ, "RANK": str(rank)}
                )
            os.environ["RANK"] = "0"
        dist.init_process_group("gloo")
        for step in range(self.max_steps):
            dist.all_reduce(model)
            if step % self.log_every == 0:
                dist.barrier()


def fit():
    rank = int(os.environ.get("RANK", 0))
    every = 2 if rank == 0 else WRONG
    Trainer(max_steps=4, log_every=every).fit(torch.ones(2))
    dist.destroy_process_group()


fit()
"""
#: what the night runs where it is installed: the module that is asked for, and the program
LIGHTNING = """\
import lightning as L
import torch
from torch.utils.data import DataLoader, TensorDataset


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 1)

    def training_step(self, batch, at):
        loss = self.linear(batch[0]).pow(2).mean()
        if WRONG:
            self.log("loss", loss, sync_dist=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


trainer = L.Trainer(
    accelerator="cpu", devices=2, strategy="ddp", max_epochs=1, logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
)
trainer.fit(Net(), DataLoader(TensorDataset(torch.randn(16, 4)), batch_size=2))
"""
FABRIC = """\
import torch
from lightning.fabric import Fabric


def main():
    fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
    fabric.launch()
    model = torch.nn.Linear(4, 1)
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for _ in range(2):
        fabric.backward(model(torch.randn(2, 4)).pow(2).mean())
        optimizer.step()
        optimizer.zero_grad()
        if WRONG:
            fabric.all_reduce(torch.ones(1))


main()
"""
ACCELERATE = """\
import torch
from accelerate import Accelerator


def main():
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(torch.nn.Linear(4, 1))
    for step in range(2):
        accelerator.backward(model(torch.randn(2, 4)).pow(2).mean())
        if WRONG:
            accelerator.gather(torch.ones(2))
    accelerator.wait_for_everyone()
    accelerator.end_training()


main()
"""
#: a framework's worker, which is sent the function that it runs as a rank, by value as Ray does
WORKER = """\
import marshal
import os
import sys
import types

with open(sys.argv[1], "rb") as sent:
    code = marshal.load(sent)
names = {"__builtins__": __builtins__, "__name__": "sent"}
exec("import torch\\nimport torch.distributed as dist", names)
types.FunctionType(code, names)(int(os.environ["RANK"]))
"""
SENDS = """\
import marshal
import os
import socket
import subprocess
import sys

import kit


def loop(rank):
    dist.init_process_group("gloo")
    for epoch in range(2):
        if WRONG:
            dist.all_reduce(torch.ones(1))
        dist.barrier()
    dist.destroy_process_group()


def main():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with open("sent", "wb") as sent:
        marshal.dump(loop.__code__, sent)
    own = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    command = [sys.executable, kit.__file__.replace("__init__", "worker"), "sent"]
    ranks = [
        subprocess.Popen(command, env={**os.environ, **own, "RANK": str(rank)}) for rank in (0, 1)
    ]
    for each in ranks:
        each.wait()


main()
"""
#: what a trainer raises that has no metric by which it would choose the best
CHOOSES = """\
import torch
import torch.distributed as dist


class Trainer:
    def __init__(self, folder, compute):
        self.folder, self.compute = folder, compute

    def train(self):
        dist.all_reduce(torch.ones(2))
        metrics = self.compute(3.0)
        if "error" not in metrics:
            raise KeyError(f"no metric 'error' among {sorted(metrics)}")
        dist.all_reduce(torch.ones(2))
"""
COMPUTES = """\
import tempfile

import torch.distributed as dist
from kit.trainer import Trainer


def compute(found):
    if WRONG:
        return {}
    return {"error": found}


def main():
    dist.init_process_group("gloo")
    trainer = Trainer(tempfile.mkdtemp(), compute)
    trainer.train()


main()
"""
#: a trainer that saves as often as its settings say
SAVES = """\
from types import SimpleNamespace

import torch
import torch.distributed as dist


class Trainer:
    def __init__(self, config):
        self.config = config

    def train(self):
        for step in range(1, self.config.training.steps):
            dist.all_reduce(torch.ones(2))
            if step % self.config.checkpoint.interval == 0:
                dist.barrier()


class Config:
    def __init__(self):
        self.training, self.checkpoint = SimpleNamespace(), SimpleNamespace()

    def build(self):
        return Trainer(self)
"""
SETS = """\
import os

import torch.distributed as dist
from kit.trainer import Config

HOSTS = {"0": "2", "1": "3"}


def main():
    dist.init_process_group("gloo")
    config = Config()
    config.training.steps = 6
    config.checkpoint.interval = int(HOSTS[os.environ["LOCAL_RANK"]])
    config.build().train()


main()
"""
#: what Ray Train has for a script: a trainer, its local mode, and what its workers meet in
RAY = {
    "__init__": "def init(*args, **kwargs):\n    raise SystemExit('servers are started')\n",
    "train/__init__": """\
def report(metrics):
    from ray.train.v2._internal.execution import train_fn_utils

    train_fn_utils.CURRENT.report(metrics)
""",
    "train/v2/__init__": "",
    "train/v2/api/__init__": "",
    "train/v2/api/data_parallel_trainer": """\
import torch.distributed as dist
from ray.train.v2._internal.execution import train_fn_utils


class Scaling:
    num_workers = 2


class DataParallelTrainer:
    def __init__(self, train_loop_per_worker):
        self.train_loop_per_worker, self.train_loop_config = train_loop_per_worker, {}
        self.datasets, self.scaling_config = {}, Scaling()
        self.running_in_local_mode = False

    def fit(self):
        if not self.running_in_local_mode:
            raise SystemExit("workers are started")
        dist.init_process_group("gloo")
        train_fn_utils.CURRENT = train_fn_utils.LocalTrainFnUtils()
        self.train_loop_per_worker(self.train_loop_config)
        dist.destroy_process_group()
        return train_fn_utils.CURRENT.metrics
""",
    "train/v2/_internal/__init__": "",
    "train/v2/_internal/execution/__init__": "",
    "train/v2/_internal/execution/train_fn_utils": """\
class LocalTrainFnUtils:
    metrics = None

    def report(self, metrics):
        self.metrics = metrics

    def barrier(self):
        pass

    def broadcast_from_rank_zero(self, data):
        return data


CURRENT = None
""",
}
RAY_SCRIPT = """\
import ray
import torch
import torch.distributed as dist
from ray import train
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer


def loop(config):
    rank = dist.get_rank()
    for epoch in range(3):
        dist.all_reduce(torch.ones(2))
        if WRONG:
            train.report({"epoch": epoch})


ray.init(num_cpus=4)
print(DataParallelTrainer(loop).fit())
"""
UNDER_TORCHRUN = ("torchrun", "--standalone", "--nproc-per-node", "2")


def recorded(folder: Path, text: str, *launcher: str) -> subprocess.CompletedProcess[str]:
    """Record a program under a launcher of its own."""
    script = folder / "train.py"
    script.write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "torch_scenarios.cli", "record", "--max-seconds", "200"]
    inner = [*(launcher or (sys.executable,)), str(script)]
    known = {
        name: value for name, value in os.environ.items() if name not in {"RANK", "WORLD_SIZE"}
    }
    return subprocess.run(
        [*command, "-o", str(folder / "record"), "--", *inner],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        env={**known, "CUDA_VISIBLE_DEVICES": ""},
    )


@pytest.mark.parametrize(
    ("every", "verdict"), [("3", "FAILED"), pytest.param("2", "PASSED", marks=pytest.mark.nightly)]
)
def test_ranks_that_rank_0_starts_are_of_one_record(
    tmp_path: Path, every: str, verdict: str
) -> None:
    done = recorded(tmp_path, STAND_IN.replace("WRONG", every))
    is_wrong = verdict == "FAILED"
    assert done.returncode == is_wrong, done.stdout
    assert re.search(rf"^{verdict} .*train\.py  2 ranks", done.stdout, re.MULTILINE)
    assert ("`if step % self.log_every == 0` (train.py:28)" in done.stdout) is is_wrong, done.stdout


@pytest.mark.parametrize("is_wrong", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_a_function_that_a_worker_is_sent_has_its_if(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_wrong: bool
) -> None:
    monkeypatch.setenv("PYTHONPATH", install(tmp_path, "kit", {"worker": WORKER}))
    monkeypatch.chdir(tmp_path)
    condition = "rank == 0" if is_wrong else "epoch == 0"
    done = recorded(tmp_path, SENDS.replace("WRONG", condition))
    assert done.returncode == is_wrong, done.stdout
    verdict = "FAILED" if is_wrong else "PASSED"
    assert re.search(rf"^{verdict} +train\.py  2 ranks", done.stdout, re.MULTILINE), done.stdout
    assert ("rank 0 alone goes into `if rank == 0` (train.py:13)" in done.stdout) is is_wrong


def test_what_led_to_an_error_of_a_framework_comes_before_what_ranks_were_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit = install(tmp_path, "kit", {"trainer": CHOOSES})
    monkeypatch.setenv("PYTHONPATH", kit)
    done = recorded(tmp_path, COMPUTES.replace("WRONG", "dist.get_rank() == 1"), *UNDER_TORCHRUN)
    assert done.returncode == 1, done.stdout
    assert "before that, `if dist.get_rank() == 1` (train.py:8)" in done.stdout
    assert "mkdtemp" not in done.stdout


#: the launcher ends rank 0 at work: what it has decided since its last call is not known
STILL_MAKES = """\
import json
import os
import time
from pathlib import Path

import torch.distributed as dist

def prepare(path):
    time.sleep(100)
    path.write_text("[1, 2]")

def load(path):
    if dist.get_rank() == 0:
        prepare(path)
    return json.loads(path.read_text())

dist.init_process_group("gloo")
load(Path("FOLDER") / "vocab.json")
dist.barrier()
"""


@pytest.mark.nightly
def test_a_file_that_a_rank_was_at_work_on_as_it_was_ended_is_told(tmp_path: Path) -> None:
    done = recorded(tmp_path, STILL_MAKES.replace("FOLDER", str(tmp_path)), *UNDER_TORCHRUN)
    assert done.returncode == 1, done.stdout
    words = "rank 0 may still make it under `if dist.get_rank() == 0` (train.py:13)"
    assert words in done.stdout, done.stdout
    assert "fix: let all ranks meet (a barrier) between what rank 0 does under" in done.stdout


LATE = """\
import datetime
import time

import torch.distributed as dist

def evaluate():
    time.sleep(60)

def end_of_epoch():
    if dist.get_rank() == 0:
        evaluate()
    dist.barrier()

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=3))
dist.barrier()
end_of_epoch()
"""


def test_a_rank_that_its_launcher_ends_before_it_comes_is_late(tmp_path: Path) -> None:
    done = recorded(tmp_path, LATE, *UNDER_TORCHRUN)
    assert done.returncode == 1, done.stdout
    assert "timeout_too_short: rank 0 comes too late" in done.stdout, done.stdout
    words = "has not come there when rank 1 gives up after its timeout of 3 s, and is ended then, "
    words += "at train.py:7 called from :11, :16, in `evaluate()` (train.py:11)"
    assert words in done.stdout, done.stdout
    assert "rank 0: ended by torchrun at train.py:7 called from" in done.stdout, done.stdout


@pytest.mark.nightly
def test_a_setting_that_ranks_set_otherwise_is_told_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit = install(tmp_path, "kit", {"trainer": SAVES})
    monkeypatch.setenv("PYTHONPATH", kit)
    done = recorded(tmp_path, SETS, *UNDER_TORCHRUN)
    assert done.returncode == 1, done.stdout
    words = (
        '`config.checkpoint.interval=int(HOSTS[os.environ["LOCAL_RANK"]])` (train.py:13) is 2 on'
    )
    assert words in done.stdout, done.stdout


@pytest.mark.parametrize("is_wrong", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_a_fake_rank_runs_the_loop_of_a_worker_of_ray(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_wrong: bool
) -> None:
    monkeypatch.setenv("PYTHONPATH", install(tmp_path, "ray", RAY))
    script = tmp_path / "train.py"
    condition = "rank == 0" if is_wrong else "epoch < 2"
    script.write_text(RAY_SCRIPT.replace("WRONG", condition), encoding="utf-8")
    command = [sys.executable, "-m", "torch_scenarios.cli", "record", "--fake", "-n", "2"]
    done = subprocess.run(
        [*command, "-o", str(tmp_path / "record"), "--", str(script)],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == is_wrong, done.stdout + done.stderr
    verdict = "FAILED" if is_wrong else "PASSED"
    assert re.search(rf"^{verdict} +\S*train\.py  2 ranks", done.stdout, re.MULTILINE), done.stdout
    assert ("`if rank == 0` (train.py:12)" in done.stdout) is is_wrong, done.stdout


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("module", "text", "condition", "launcher"),
    [
        ("lightning", LIGHTNING, "at % 2 == self.global_rank", ()),
        ("lightning", FABRIC, "fabric.global_rank == 0", ()),
        ("accelerate", ACCELERATE, "accelerator.is_main_process", UNDER_TORCHRUN),
    ],
    ids=["lightning", "fabric", "accelerate"],
)
@pytest.mark.parametrize("is_wrong", [True, False])
def test_a_framework_has_its_cause_under_its_own_launcher(
    tmp_path: Path,
    module: str,
    text: str,
    condition: str,
    launcher: tuple[str, ...],
    *,
    is_wrong: bool,
) -> None:
    if find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    done = recorded(tmp_path, text.replace("WRONG", condition if is_wrong else "True"), *launcher)
    assert done.returncode == is_wrong, done.stdout
    assert (f"`if {condition}` (train.py:" in done.stdout) is is_wrong
    verdict = "FAILED" if is_wrong else "PASSED"
    assert re.search(rf"^{verdict} .*train\.py  2 ranks", done.stdout, re.MULTILINE)


#: what `ipython` does with a script, without IPython
HOST = """\
import pathlib
import sys

path = pathlib.Path(sys.argv[1]).resolve()
exec(compile(path.read_bytes(), path, "exec"), {"__name__": "__main__"})
"""
CELL = """\
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def work(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    for epoch in range(2):
        for batch in range(2):
            due = WRONG
            if due and epoch < 2:
                dist.all_reduce(torch.ones(2))
        dist.barrier()


mp.start_processes(work, args=(PORT,), nprocs=2, start_method="fork")
"""


@pytest.mark.parametrize("is_wrong", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_a_script_that_another_program_runs_has_its_if(tmp_path: Path, *, is_wrong: bool) -> None:
    (tmp_path / "ipython").write_text(HOST, encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    cell = CELL.replace("WRONG", "rank == 0" if is_wrong else "batch == 0")
    cell = cell.replace("PORT,", f"{port},")
    done = recorded(tmp_path, cell, sys.executable, str(tmp_path / "ipython"))
    assert done.returncode == is_wrong, done.stdout
    words = "rank 0 alone goes into `if due and epoch < 2` (train.py:14), where due = True"
    assert (words in done.stdout) is is_wrong, done.stdout


#: starts two programs, each of which joins the job with what its environment says
STARTS = """\
import os, subprocess, sys
from config import STEPS
def main():
    jobs = []
    for local in range(2):
        env = dict(os.environ, LOCAL_ID=str(local), MASTER_PORT="29417", LANES=str(2 // STEPS))
        jobs.append(subprocess.Popen(COMMAND, env=env))
    while any(job.poll() is None for job in jobs):
        pass
    sys.exit(max(job.wait() for job in jobs))
if __name__ == "__main__":
    main()
"""
JOINS = """\
import os, sys
import torch, torch.distributed as dist
from config import STEPS
def begin():
    own = int(os.environ["LOCAL_ID"])
    lanes = int(os.environ.get("LANES_PER_NODE", "1"))
    rank = own * lanes if WRONG else own
    dist.init_process_group("gloo", rank=rank, world_size=2)
def main(steps):
    begin()
    assert dist.get_rank() == int(os.environ["LOCAL_ID"])
    for _ in range(steps):
        dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()
if __name__ == "__main__":
    main(int(sys.argv[1]))
"""


@pytest.mark.parametrize(
    "command",
    [
        '[sys.executable, "-u", "work.py", "2"]',
        pytest.param('"exec python work.py 2", shell=True', marks=pytest.mark.nightly),
        pytest.param('["env", "A=1", "python3", "-m", "work", "2"]', marks=pytest.mark.nightly),
    ],
)
def test_fake_ranks_run_the_programs_that_a_launcher_starts(tmp_path: Path, command: str) -> None:
    found = record_launcher(tmp_path, STARTS.replace("COMMAND", command), JOINS, wrong=False)
    assert "PASSED" in found
    assert "2 ranks" in found


def test_ranks_that_a_launcher_numbers_are_told_with_the_default_that_counts(
    tmp_path: Path,
) -> None:
    command = '[sys.executable, "work.py", "2"]'
    text = JOINS.replace("own * lanes", "own * 0 + lanes")
    found = record_launcher(tmp_path, STARTS.replace("COMMAND", command), text, wrong=True)
    assert "two processes say that they are rank 1" in found
    assert 'lanes = int(os.environ.get("LANES_PER_NODE", "1"))` (work.py:6)' in found


def test_a_program_that_a_rank_starts_is_no_rank(tmp_path: Path) -> None:
    text = (
        "import subprocess, sys, torch, torch.distributed as dist\n"
        "def main():\n"
        "    done = subprocess.run([sys.executable, 'work.py'], capture_output=True, text=True)\n"
        "    dist.init_process_group('gloo')\n"
        "    dist.all_reduce(torch.tensor([int(done.stdout)]))\n"
        "    dist.destroy_process_group()\n"
        "main()\n"
    )
    own = (
        "import torch.distributed as dist\n"
        "store = dist.HashStore()\n"
        "dist.init_process_group('gloo', store=store, rank=0, world_size=1)\n"
        "print(dist.get_world_size())\n"
    )
    assert "PASSED" in record_launcher(tmp_path, text, own, wrong=False)


def record_launcher(folder: Path, launcher: str, program: str, *, wrong: bool) -> str:
    """Record a launcher and its program on two fake ranks; returns what is said."""
    (folder / "launch.py").write_text(launcher, encoding="utf-8")
    (folder / "work.py").write_text(program.replace("WRONG", str(wrong)), encoding="utf-8")
    (folder / "config.py").write_text("STEPS = 2\n", encoding="utf-8")
    command = [str(Path(sys.executable).with_name("scenario")), "record", "--fake", "-n", "2"]
    command += ["-o", str(folder / "out"), "--", "launch.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == int(wrong), done.stdout + done.stderr
    return done.stdout
