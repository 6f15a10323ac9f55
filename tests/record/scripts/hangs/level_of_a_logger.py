"""Norms of sharded parameters are logged where the logger takes debug messages.

Ranks: 2
Told: `logger` comes from `logger.setLevel(10 if rank == 0 else 30)`
"""

import logging
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

logger = logging.getLogger("train")


def setup_logging(rank):
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter(f"[{rank}] %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(10 if rank == 0 else 30)  # cause  # right: logger.setLevel(10)
    logger.propagate = False


def build():
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(3)))
    for layer in model:
        fully_shard(layer)
    return fully_shard(model)


def full(value):
    return value.full_tensor() if isinstance(value, DTensor) else value


def log_norms(model, step):
    if logger.isEnabledFor(logging.DEBUG):  # cause
        for name, p in model.named_parameters():
            logger.debug("%d %s %.3f", step, name, full(p.detach()).norm().item())


def train(model, steps):
    optim = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(steps):
        loss = model(torch.ones(2, 8)).square().mean()
        loss.backward()
        optim.step()
        optim.zero_grad(set_to_none=True)
        log_norms(model, step)
    return loss


def main():
    dist.init_process_group("gloo")
    setup_logging(dist.get_rank())
    model = build()
    train(model, steps=2)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
