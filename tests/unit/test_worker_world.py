"""What a worker forgets between two scenarios."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from torch_scenarios.worker.world import forget_layouts

if TYPE_CHECKING:
    from collections.abc import Sequence


@pytest.mark.parametrize(
    "names",
    [
        ["_clear_sharding_prop_cache"],
        ["_clear_python_sharding_prop_cache", "_clear_fast_path_sharding_prop_cache"],
    ],
    ids=["torch 2.13", "torch 2.10"],
)
def test_layouts_of_a_mesh_that_is_gone_are_forgotten(
    names: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    emptied: list[str] = []
    debug = SimpleNamespace(**{name: lambda name=name: emptied.append(name) for name in names})
    monkeypatch.setitem(sys.modules, "torch.distributed.tensor", ModuleType("tensor"))
    monkeypatch.setitem(sys.modules, "torch.distributed.tensor.debug", debug)
    forget_layouts()
    assert emptied == names
