"""The reference: what a plan must do, proved without running it. Needs no torch."""

from __future__ import annotations

from torch_scenarios.reference.needs import derive
from torch_scenarios.reference.schedules import hangs_on_sends
from torch_scenarios.reference.simulate import simulate

__all__ = ["derive", "hangs_on_sends", "simulate"]
