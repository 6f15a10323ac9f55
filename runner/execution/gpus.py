"""How many GPUs there are, asked without touching CUDA in the process that workers fork from.

A process that has asked CUDA itself forks children that cannot use it. torch asks the driver's
library (NVML) first, and CUDA where that does not answer: in a container without it, for a slice of
a GPU (MIG). There a process of its own is asked, which ends.
"""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

#: one of these is there wherever CUDA or ROCm can find a GPU (the second: WSL)
DEVICES = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
ASK = "import torch; print(torch.cuda.device_count())"
#: seconds that the process gets: it imports torch
ASK_S = 60.0


@cache
def count(torch: ModuleType) -> int:
    """Return how many GPUs torch sees, as CUDA_VISIBLE_DEVICES lets it."""
    cuda: Any = torch.cuda
    if not cuda._is_compiled():  # noqa: SLF001 -- no public name
        return 0
    by_the_driver: int = cuda._device_count_nvml()  # noqa: SLF001 -- the same
    if by_the_driver >= 0:
        return by_the_driver
    return asked() if may_be_here() else 0


def may_be_here() -> bool:
    """Return whether there may be a GPU, without asking anybody."""
    return any(Path(device).exists() for device in DEVICES)


def asked() -> int:
    """Return how many GPUs a process of its own sees; none where it cannot say."""
    done = subprocess.run(  # noqa: S603 -- this very interpreter
        [sys.executable, "-c", ASK], capture_output=True, text=True, timeout=ASK_S, check=False
    )
    words = done.stdout.split()
    return int(words[-1]) if words and words[-1].isdigit() else 0
