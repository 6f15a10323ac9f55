"""The last stage has nothing to watch, and returns before what a monitor gathers of all stages.

Ranks: 2
Told: `return`:23 under `if not local` (stage_watches_nothing.py:22)
"""

from __future__ import annotations

import torch
import torch.distributed as dist


class Monitor:
    """Watches the layers of a stage that say how sure they are."""

    def __init__(self, layers: list[str]) -> None:
        self.watched = [each for each in layers if each.startswith("attention")]

    def gather(self, step: int) -> dict[str, float]:
        local = {name: float(step) for name in self.watched}
        parts: list[dict[str, float] | None] = [None] * dist.get_world_size()
        if not local:  # cause  # right: if not parts:
            return {}
        dist.all_gather_object(parts, local)
        return {name: value for part in parts if part for name, value in part.items()}


dist.init_process_group("gloo")
rank = dist.get_rank()
layers = ["attention.0", "attention.1"] if rank == 0 else ["norm", "head"]
monitor = Monitor(layers)
for step in range(4):
    hidden = torch.ones(3).sum()
    if step % 2 == 1:
        monitor.gather(step)
dist.destroy_process_group()
