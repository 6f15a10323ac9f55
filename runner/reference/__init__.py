"""The reference: what a plan must do, proved without running it. Needs no torch."""

from runner.reference.simulate import MAX_SCHEDULES, MAX_STEPS, simulate

__all__ = ["MAX_SCHEDULES", "MAX_STEPS", "simulate"]
