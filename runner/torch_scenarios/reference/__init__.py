"""The reference: what a plan must do, proved without running it. Needs no torch."""

from __future__ import annotations

from torch_scenarios.reference.needs import derive
from torch_scenarios.reference.simulate import simulate

__all__ = ["derive", "simulate"]
