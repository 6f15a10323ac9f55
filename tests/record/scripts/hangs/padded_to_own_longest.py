"""Each rank pads its batch to its own longest sample, and a functional collective gathers.

Ranks: 2
Told: the tensor is `model(ids)`
Told: its size comes from `longest =
"""

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch import nn

SAMPLES = {0: [[1, 2, 3], [4, 5, 6, 7, 8]], 1: [[3, 3], [9, 1, 4]]}


def collate(samples, multiple=1):
    longest = max(len(s) for s in samples)  # cause # right: longest = 8
    length = -(-longest // multiple) * multiple
    out = torch.zeros(len(samples), length, dtype=torch.long)
    for row, s in enumerate(samples):
        out[row, : len(s)] = torch.tensor(s)
    return out


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(16, 12)
        self.proj = nn.Linear(12, 12)

    def forward(self, ids):
        return torch.tanh(self.proj(self.embed(ids)))


def contrast(states, group):
    every = funcol.all_gather_tensor(states, 0, group)
    pooled = every.mean(1)
    return (pooled @ pooled.T).logsumexp(-1).mean()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    rank = dist.get_rank()
    model = Encoder()
    for step in range(2):
        ids = collate(SAMPLES[rank])
        with torch.no_grad():
            loss = contrast(model(ids), dist.group.WORLD)
        if rank == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
