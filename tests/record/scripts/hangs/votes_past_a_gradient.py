"""A gradient that a rank lacks is not averaged there, and the rank waits in a vote for the others.

Ranks: 2
Told: `if each.grad is None`
"""

import os
import tempfile
import time

import torch
import torch.distributed as dist


def vote(folder, rank, step):
    """Wait for all ranks, past torch, as torchft does in its manager."""
    open(f"{folder}/{rank}-{step}", "w").close()
    until = time.monotonic() + 4
    while not os.path.exists(f"{folder}/{1 - rank}-{step}"):
        if time.monotonic() > until:
            raise TimeoutError("Timeout expired")
        time.sleep(0.05)


def average(model):
    for each in model.parameters():
        if each.grad is None:  # cause  # right: if False:
            continue
        each.grad = torch.zeros_like(each) if each.grad is None else each.grad
        dist.all_reduce(each.grad)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    found = [tempfile.mkdtemp() if rank == 0 else ""]
    dist.broadcast_object_list(found)
    torch.manual_seed(0)
    body, extra = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    model = torch.nn.ModuleList([body, extra])
    if rank == 0:
        print("rank 0 keeps the votes in", found[0])
    for step in range(3):
        model.zero_grad()
        x = body(torch.ones(1, 2))
        x = x + extra(x) if step == 0 or rank == 0 else x
        x.sum().backward()
        average(model)
        vote(found[0], rank, step)


main()
