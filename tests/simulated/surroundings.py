"""The environment in which a process finds the simulated GPUs."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from tests.simulated import build

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

#: where the builds lie, unless told otherwise: a folder for each version of torch
FOLDER = build.HERE.parents[1] / "build" / "simulated-gpus"
#: the NCCL that is simulated, unless told otherwise
NCCL = "2.28.9"


def folder_for(torch: build.Torch) -> Path:
    """Return where the build for a torch lies: two versions share a checkout."""
    return FOLDER / torch.version


def surroundings(
    around: Mapping[str, str], *, gpus: int, version: str = NCCL, into: Path | None = None
) -> dict[str, str]:
    """Return `around` with `gpus` simulated GPUs and a version of NCCL. Raises NotHereError.

    The libraries are loaded before any other, and so found in place of those torch was linked to;
    nothing that is installed is changed. They are built into `into`, by default into the folder of
    the installed torch.
    """
    torch = build.installed()
    into = into or folder_for(torch)
    preloaded = build.build(into, torch)
    before = around.get("LD_PRELOAD", "").split(":")
    paths = [str(into), *filter(None, around.get("PYTHONPATH", "").split(":"))]
    return {
        **around,
        "LD_PRELOAD": ":".join([*map(str, preloaded), *filter(None, before)]),
        "PYTHONPATH": ":".join(paths),
        "SIMULATED_GPUS": str(gpus),
        "SIMULATED_NCCL_VERSION": version,
    }


def is_simulated() -> bool:
    """Return whether this process has the simulated GPUs. CUDA is not asked."""
    return hasattr(ctypes.CDLL(None), "simulatedHasContext")
