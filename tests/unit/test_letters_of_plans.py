"""Every plan of the corpus travels as it is once it was analysed."""

from __future__ import annotations

from pathlib import Path

import pytest
from checkout import ROOT

import torch_scenarios
from torch_scenarios.errors import ScenarioError
from torch_scenarios.execution.letters import decode, encode

FOLDERS = sorted(
    {path.parent for path in Path(ROOT, "scenarios").rglob("*.yaml") if "parts" not in path.parts}
)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_plans_of_a_folder_travel(folder: Path) -> None:
    for path in sorted(folder.glob("*.yaml"))[:2]:
        try:
            (first, *_) = torch_scenarios.load(path)
            plan = torch_scenarios.plan(first)
            torch_scenarios.simulate(plan)
        except (ScenarioError, ValueError):
            continue  # a part, or a file that is invalid
        assert decode(*encode(plan)) == plan
