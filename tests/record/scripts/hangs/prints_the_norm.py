"""FSDP2: rank 0 prints the norm of a weight, which gathers it.

Ranks: 2
Told: if dist.get_rank() == 0 and step % every == 0
"""

import torch
import torch.distributed as dist
from torch import nn

from torch.distributed.fsdp import fully_shard


def clip(model, limit):
    return nn.utils.clip_grad_norm_(model.parameters(), limit)


def report(step, norm, every=2):
    if dist.get_rank() == 0 and step % every == 0:  # cause  # right: if step % every == 0:
        print(f"step {step}: |w| = {norm.full_tensor().norm():.3f}")


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(model)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        model(torch.ones(2, 4)).sum().backward()
        clip(model, 1.0)
        report(step, model[0].weight)
        opt.step()
        opt.zero_grad()
    dist.barrier()
    dist.destroy_process_group()


main()
