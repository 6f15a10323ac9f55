"""`python -m torch_scenarios.worker.inventory`: what torch has here, as one line of JSON.

Another process, because it asks CUDA: a process that has asked cannot fork workers. The line
is the last one of standard output; torch and its plugins may print before it.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

import torch
import torch.distributed

from torch_scenarios.execution import backends
from torch_scenarios.worker.serve import versions


def inventory() -> dict[str, Any]:
    """Return the versions, the backends and the GPUs, with what CUDA says where it sees none.

    `gpus` has the name of each GPU.
    """
    cuda, dist = torch.cuda, torch.distributed
    with warnings.catch_warnings(record=True) as complaints:
        warnings.simplefilter("always")
        seen = cuda.is_available()
        names = [cuda.get_device_name(each) for each in range(cuda.device_count())] if seen else []
    nccl = backends.version_of(torch) if dist.is_nccl_available() else None
    return {
        "versions": versions(),
        "built_for": torch.version.cuda or getattr(torch.version, "hip", None) or "",
        "gloo": dist.is_gloo_available(),
        "nccl": "" if nccl is None else ".".join(map(str, nccl)),
        "gpus": names,
        "complaint": " ".join(str(complaints[0].message).split())[:300] if complaints else "",
    }


if __name__ == "__main__":
    sys.stdout.write(f"{json.dumps(inventory())}\n")
