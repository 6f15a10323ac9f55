"""Forecasts of time by torch's own model, against torch itself."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

from torch_scenarios.cost.collectives import torch_time

pytestmark = pytest.mark.torch


def test_8_torchs_model_is_reproduced() -> None:
    # typed for a mesh that is made on devices; it imports sympy, so not where tests are collected
    costs: Any = import_module("torch.distributed.tensor._collective_utils")
    functions = {
        "all_reduce": costs.allreduce_cost,
        "all_gather": costs.allgather_cost,
        "reduce_scatter": costs.reduce_scatter_cost,
    }
    chosen = np.random.default_rng(20)
    for _ in range(20):
        name = str(chosen.choice(sorted(functions)))
        ranks, host = int(chosen.integers(2, 1024)), int(chosen.choice([4, 8]))
        gib = float(chosen.uniform(1e-9, 16))
        far = ranks > host
        mesh = costs.MeshTopoInfo(
            None, [ranks], [87.7 * 0.22 if far else 87.7], [2.7 if far else 0.6]
        )
        assert torch_time(name, gib, ranks, host) == pytest.approx(
            functions[name](gib, mesh, 0), rel=1e-12
        )
