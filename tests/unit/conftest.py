"""Unit tests need no torch; what takes seconds by nature is in tests/sweeps or tests/processes."""

from __future__ import annotations

from torch_free import without_torch

__all__ = ["without_torch"]
