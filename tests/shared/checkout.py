"""Where the package and its sources are; no other test module spells the name of the package."""

from __future__ import annotations

from pathlib import Path

#: the name that the package is imported by, and the folder of this checkout that holds it
NAME = "torch_scenarios"
ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "runner" / NAME
