"""What the doctor says of one host: GPUs, the environment, /dev/shm, limits."""

from __future__ import annotations

import os
import resource
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from torch_scenarios.doctor import machine
from torch_scenarios.doctor.check import Check, exit_code, fine, note, report_untested, wrong
from torch_scenarios.doctor.machine import Inventory

if TYPE_CHECKING:
    from collections.abc import Sequence

WHOLE = Inventory(versions={"torch": "2.13.0+cu130"}, built_for="13.0", gloo=True, nccl="2.30.3")


def statuses(checks: Sequence[Check]) -> list[str]:
    return [check.status for check in checks]


@pytest.mark.parametrize(
    ("checks", "code"),
    [
        ([fine("a", "b"), note("a", "b")], 0),
        ([fine("a", "b"), wrong("a", "b", "c"), report_untested("a", "b")], 1),
        ([fine("a", "b"), report_untested("a", "b")], 3),
    ],
)
def test_the_exit_code_says_what_was_found(checks: list[Check], code: int) -> None:
    assert exit_code(checks) == code


@pytest.fixture
def no_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "DEVICES", ())
    monkeypatch.setattr(machine, "GPUS", "no-such-device*")


@pytest.fixture
def a_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "nvidiactl").touch()
    monkeypatch.setattr(machine, "DEVICES", (str(tmp_path / "nvidiactl"),))


def tool(folder: Path, monkeypatch: pytest.MonkeyPatch, *, mode: str, listed: str) -> None:
    """Put an `nvidia-smi` on the path that says this."""
    program = folder / "nvidia-smi"
    program.write_text(
        f"#!/bin/sh\ncase $1 in -L) printf '%s\\n' '{listed}';; *) echo {mode};; esac\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.usefixtures("no_devices")
def test_a_machine_without_gpus_is_right() -> None:
    (check,) = machine.look_at_gpus(Inventory(), 4, {})
    assert (check.status, check.message) == ("ok", "a process sees no GPU: cases run on Gloo")


@pytest.mark.usefixtures("a_device")
def test_a_gpu_that_torch_is_not_built_for_is_named() -> None:
    (check,) = machine.look_at_gpus(Inventory(versions={"torch": "2.13.0+cpu"}), 4, {})
    assert check.status == "wrong"
    assert check.message == "this machine has a GPU, and torch 2.13.0+cpu is for CPUs"


@pytest.mark.usefixtures("a_device")
def test_a_gpu_that_no_process_sees_is_told_with_what_cuda_says() -> None:
    found = Inventory(built_for="13.0", complaint="The NVIDIA driver is too old")
    (check,) = machine.look_at_gpus(found, 4, {})
    assert check.status == "wrong"
    assert check.message.endswith("a process sees none: The NVIDIA driver is too old")


@pytest.mark.usefixtures("a_device")
def test_mig_without_a_slice_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(tmp_path, monkeypatch, mode="Enabled", listed="GPU 0: NVIDIA H100 (UUID: GPU-1)")
    (check,) = machine.look_at_gpus(WHOLE, 4, {})
    assert check.message == "MIG is on and there are no slices: a process sees no GPU"


def test_slices_are_counted_next_to_what_a_process_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = (
        "GPU 0: x\n  MIG 1g.10gb Device 0: (UUID: MIG-1)\n  MIG 1g.10gb Device 1: (UUID: MIG-2)"
    )
    tool(tmp_path, monkeypatch, mode="Enabled", listed=listed)
    one = Inventory(built_for="13.0", gloo=True, nccl="2.30.3", gpus=["NVIDIA H100 MIG 1g.10gb"])
    checks = machine.look_at_gpus(one, 1, {})
    assert statuses(checks) == ["ok", "note"]
    assert checks[1].message == "MIG is on: 2 slices are here, and a process sees 1"


@pytest.mark.parametrize(
    ("visible", "gpus", "status"),
    [("0,1", 2, "ok"), ("0,7", 1, "wrong"), ("7", 0, "wrong"), ("", 0, "note")],
)
@pytest.mark.usefixtures("a_device")
def test_what_is_visible_is_held_against_what_a_process_sees(
    visible: str, gpus: int, status: str
) -> None:
    found = Inventory(built_for="13.0", nccl="2.30.3", gpus=["NVIDIA H100"] * gpus)
    checks = machine.look_at_gpus(found, gpus, {"CUDA_VISIBLE_DEVICES": visible})
    assert checks[0].status == status


def test_more_ranks_than_gpus_is_a_note() -> None:
    found = Inventory(built_for="13.0", nccl="2.30.3", gpus=["NVIDIA H100"])
    assert statuses(machine.look_at_gpus(found, 4, {})) == ["ok", "note"]


def test_gpus_without_nccl_are_wrong() -> None:
    found = Inventory(built_for="13.0", gpus=["NVIDIA H100"])
    assert statuses(machine.look_at_gpus(found, 1, {})) == ["wrong"]


# ---------------------------------------------------------------------------- the environment


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({}, "nothing is set for NCCL, Gloo or torch"),
        ({"NCCL_DEBUG": "INFO", "HOME": "/"}, "NCCL_DEBUG=INFO"),
        ({"NCCL_BLOCKING_WAIT": "1"}, "torch reads TORCH_NCCL_BLOCKING_WAIT"),
        ({"TORCH_NCCL_BLOCKING_WAIT": "1"}, "each wait of NCCL blocks its rank"),
        ({"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}, "end a rank before its hang is judged"),
    ],
)
def test_what_is_set_is_said(environment: dict[str, str], words: str) -> None:
    (check,) = machine.look_at_environment(environment)
    assert words in check.message


@pytest.mark.parametrize(
    ("name", "status"), [("NCCL_ALGO", "wrong"), ("NCCL_SOCKET_IFNAME", "note")]
)
def test_variables_that_differ_between_nodes_are_told(name: str, status: str) -> None:
    (check,) = machine.compare_variables({name: "x"}, {}, "node0")
    assert (check.status, check.message) == (
        status,
        f"{name}=x here, and {name} is not set on node0",
    )
    assert machine.compare_variables({name: "x"}, {name: "x"}, "node0") == []


# ---------------------------------------------------------------------------- memory and limits


def test_a_small_shared_memory_is_wrong_with_gpus_and_a_note_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "SHM_OF_RANK", 1 << 60)
    assert statuses(machine.look_at_shared_memory(2, 2, str(tmp_path))) == ["wrong"]
    assert statuses(machine.look_at_shared_memory(0, 2, str(tmp_path))) == ["note"]


def test_a_shared_memory_that_is_not_there_is_told(tmp_path: Path) -> None:
    (check,) = machine.look_at_shared_memory(0, 2, str(tmp_path / "none"))
    assert check.message.endswith("none: No such file or directory")


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"RLIMIT_NOFILE": 100}, "100 open files are allowed; 288 are needed; `ulimit -n 4096`"),
        ({"RLIMIT_FSIZE": 0}, "0 bytes of a file are allowed"),
        ({"RLIMIT_CPU": 60}, "a process is ended after 60 s of processor time"),
        ({}, "open files, "),
    ],
    ids=str,
)
def test_a_limit_that_is_too_low_is_named(
    limits: dict[str, int], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lowered = {getattr(resource, name): most for name, most in limits.items()}
    monkeypatch.setattr(
        resource, "getrlimit", lambda which: (lowered.get(which, resource.RLIM_INFINITY), 4096)
    )
    (check,) = machine.look_at_limits(4, 4)
    assert words in str(check)


def test_a_control_group_of_few_threads_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "read_control_group", {"pids.max": 40, "pids.current": 20}.get)
    (check,) = machine.look_at_limits(4, 4)
    assert check.message == "20 more processes or threads are allowed; 4 ranks take 128"


def test_little_memory_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "free_memory", lambda: 300 << 20)
    assert statuses(machine.look_at_memory(1)) == ["ok"]
    assert statuses(machine.look_at_memory(4)) == ["wrong"]


def test_a_folder_for_temporary_files_that_cannot_be_written_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    (check,) = machine.look_at_folder()
    assert check.status == "wrong"


# ---------------------------------------------------------------------------- torch


def test_a_torch_that_cannot_be_imported_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.13: no such file')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = machine.ask_torch()
    (check,) = machine.look_at_torch(found)
    assert check.status == "wrong"
    assert "libcudart.so.13" in check.message
