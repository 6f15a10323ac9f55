"""What the checks ran on: versions and devices, asked without initialising CUDA here."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys

from tests.simulated.surroundings import is_simulated
from torch_scenarios.execution import backends as nccl

#: what nvidia-smi is asked for each GPU
ASKED = "name,driver_version,memory.total,compute_cap"


def machine() -> dict[str, str]:
    """Return names and versions: Python, torch, CUDA, NCCL (as loaded, as built), driver, GPUs."""
    import torch

    found = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": str(os.cpu_count()),
        "torch": str(torch.__version__),
        "cuda": str(torch.version.cuda or "none"),
        "nccl": nccl.tell_version(nccl.version_of(torch)) if _has_nccl(torch) else "none",
        "gpus": str(torch.cuda.device_count()),
    }
    if is_simulated():
        return {**found, "devices": "simulated"}
    for number, line in enumerate(_gpus()):
        found[f"gpu {number}"] = line
    return found


def _has_nccl(torch: object) -> bool:
    return bool(torch.distributed.is_nccl_available())  # type: ignore[attr-defined]


def _gpus() -> list[str]:
    """Return a line for each GPU as its driver tells; none where there is no driver."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    done = subprocess.run(
        [program, f"--query-gpu={ASKED}", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


def command() -> str:
    """Return the command that this process was started with, for a reader to repeat it."""
    return " ".join(["python -m tests.gpu", *sys.argv[1:]])
