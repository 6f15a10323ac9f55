"""The reference: what a plan must do, proved without running it. Needs no torch."""

from __future__ import annotations

from torch_scenarios.reference.simulate import simulate

__all__ = ["simulate"]
