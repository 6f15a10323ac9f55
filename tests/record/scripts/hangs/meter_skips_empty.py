"""A meter counts its updates past a `return` for pictures without boxes, and ranks share it by the count.

Ranks: 3
Told: `self.updates` is set by `self.updates += 1` (meter_skips_empty.py:
Told: past `if not len(batch)` (meter_skips_empty.py:
Told: fix: move what communicates out of `if self.updates % self.sync_every == 0`
"""

from collections import deque

import torch
import torch.distributed as dist


class Meter:
    """A mean over a window, which all ranks share now and then."""

    def __init__(self, window=16, sync_every=4):
        self.values = deque(maxlen=window)
        self.sync_every = sync_every
        self.updates = 0
        self.shared = 0.0

    def update(self, batch):
        if not len(batch):  # cause
            return  # right: pass
        self.values.extend(batch)
        self.updates += 1
        if self.updates % self.sync_every == 0:
            self.sync()

    def sync(self):
        pair = torch.tensor([sum(self.values), float(len(self.values))])
        dist.all_reduce(pair)
        self.shared = (pair[0] / pair[1]).item()


def detections(rank, step):
    """Scores of the boxes in one picture; some have none."""
    count = (rank + step) % 4 if rank != 1 else 2
    return [0.1 * k for k in range(count)]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    meter = Meter()
    for step in range(12):
        meter.update(detections(rank, step))
    total = torch.tensor([meter.shared])
    dist.broadcast(total, src=0)
    print(rank, total.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
