"""A user's own `runner.py`, `queue.py` or `yaml.py`: they import theirs, and we import ours."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from checkout import NAME

THEIRS = ("runner", "queue", "yaml", "display", "worker")
SCENARIO = """\
world_size: 2
tensors: {x: [1, 2]}
steps:
  - all_reduce: {tensor: x}
    expect: {x: [2, 4]}
"""
TEST = """\
import runner

def test_their_module_is_theirs():
    assert runner.WHOSE == "theirs"

def test_a_scenario_runs(run_scenario):
    run_scenario("sum.yaml")
"""
SCRIPT = """\
import runner
import torch
import torch.distributed as dist

assert runner.WHOSE == "theirs"
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(2))
dist.destroy_process_group()
"""
BIN = Path(sys.executable).parent


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a folder with modules of common names, a scenario, a test and a script."""
    for name in THEIRS:
        (tmp_path / f"{name}.py").write_text('WHOSE = "theirs"\n', encoding="utf-8")
    (tmp_path / "sum.yaml").write_text(SCENARIO, encoding="utf-8")
    (tmp_path / "test_theirs.py").write_text(TEST, encoding="utf-8")
    (tmp_path / "train.py").write_text(SCRIPT, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return tmp_path


def say(*command: str) -> str:
    """Return what a command prints; it has to succeed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_one_name_is_installed() -> None:
    files = metadata.distribution("torch-scenarios").files or ()
    top = {each.parts[0] for each in files if not each.parts[0].endswith(".dist-info")}
    # `..` is the command; an editable installation has a `.pth` in place of the package
    assert top <= {"..", NAME, f"_editable_impl_{NAME}.pth"}


@pytest.mark.torch
def test_scenarios_and_tests_run_under_pytest() -> None:
    command = [str(BIN / "pytest"), "-q", "-p", "no:cacheprovider", "--scenarios", "."]
    assert "3 passed" in say(*command, "-W", "ignore")


@pytest.mark.nightly
@pytest.mark.torch
def test_scenarios_run() -> None:
    assert "1 passed" in say(str(BIN / "scenario"), "run", "--no-cache", "sum.yaml")


@pytest.mark.torch
@pytest.mark.parametrize(
    "more",
    [pytest.param((), id="live"), pytest.param(("--fake",), id="fake", marks=pytest.mark.nightly)],
)
def test_a_script_is_recorded(more: tuple[str, ...]) -> None:
    said = say(str(BIN / "scenario"), "record", "-n", "2", *more, "--", "train.py")
    assert "PASSED" in said


@pytest.mark.nightly
@pytest.mark.torch
def test_a_script_under_their_own_launcher_is_recorded(folder: Path) -> None:
    (folder / "queue.py").unlink()  # torchrun itself imports the standard library's
    launcher = [str(BIN / "torchrun"), "--nproc-per-node", "2"]
    said = say(str(BIN / "scenario"), "record", "--", *launcher, "train.py")
    assert "PASSED" in said
