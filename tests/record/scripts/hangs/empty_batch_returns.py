"""A collate function answers an empty batch early, and a step leaves such a batch out.

Ranks: 2
Told: the `return`:40 under `if len(inputs["y"]) == 0` (empty_batch_returns.py:39)
Told: take the way out at empty_batch_returns.py:39 on all ranks or on none
"""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

BROKEN = {4}


class Images(torch.utils.data.Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, at):
        return None if at in BROKEN else {"x": torch.ones(4), "y": torch.ones(1)}


def collate(rows):
    rows = [row for row in rows if row is not None]
    if not rows:
        return {"x": torch.empty(0, 4), "y": torch.empty(0, 1)}
    return {name: torch.stack([row[name] for row in rows]) for name in ("x", "y")}


class Trainer:
    def __init__(self):
        self.model = DDP(nn.Linear(4, 1))
        sampler = DistributedSampler(Images(), shuffle=False)
        self.loader = DataLoader(Images(), sampler=sampler, collate_fn=collate)

    def step(self, inputs):
        if len(inputs["y"]) == 0:  # cause # right: if False:
            return torch.tensor(0.0)
        loss = (self.model(inputs["x"]) - inputs["y"]).pow(2).sum()
        loss.backward()
        return loss.detach()

    def train(self):
        losses = [self.step(inputs) for inputs in self.loader]
        dist.all_reduce(torch.stack(losses).mean())


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    Trainer().train()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
