"""How scenarios are executed: what the command line chose, and no scenario can."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """The choices that hold for a whole run.

    `backend` is `auto` (NCCL where every rank has a GPU of its own, else Gloo), a backend that
    torch knows, one that a plugin registers, or torch's long spelling (`cpu:gloo,cuda:nccl`).
    `plugins` are modules that every worker imports before it makes a process group. `timeout_s`
    replaces the scenario's own process-group timeout. `isolate` gives each scenario processes of
    its own. `confirm` is `prediction` (a predicted deadlock is confirmed as soon as every rank
    stands where it must) or `timeout` (it is left to the backend's timeout). `share_gpu` allows
    more NCCL ranks than GPUs. `max_ranks` bounds the processes that are ever started,
    `max_seconds` what one scenario may take, unless it states longer timeouts and sleeps itself.
    """

    backend: str = "auto"
    plugins: tuple[str, ...] = ()
    timeout_s: float | None = None
    isolate: bool = False
    confirm: str = "prediction"
    share_gpu: bool = False
    max_ranks: int = 64
    max_seconds: float = 120.0
