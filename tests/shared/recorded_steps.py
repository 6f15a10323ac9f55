"""Functions that tests record. The ranks import this module, which imports nothing else."""

from __future__ import annotations


def train_step() -> None:
    """Sum three times, and meet."""
    import torch
    import torch.distributed as dist

    for _ in range(3):
        dist.all_reduce(torch.ones(4))
    dist.barrier()


def longer_step(rank: int, world_size: int) -> None:
    """Sum once more, in a world of its own."""
    import torch
    import torch.distributed as dist

    assert 0 <= rank < world_size
    dist.init_process_group("nccl")
    train_step()
    dist.all_reduce(torch.ones(5))
    dist.destroy_process_group()


def stuck_step(rank: int) -> None:
    """Sum on rank 0 alone."""
    import torch
    import torch.distributed as dist

    if rank == 0:
        dist.all_reduce(torch.ones(4))
    dist.barrier()


def step_that_meets_behind_an_error() -> None:
    """Broadcast where a sum has failed."""
    import torch
    import torch.distributed as dist

    try:
        dist.all_reduce(torch.ones(4))
    except RuntimeError:
        dist.broadcast(torch.ones(1), 0)


def averaged_step(rank: int, world_size: int, share: bool = True) -> None:  # noqa: FBT001, FBT002
    """Train a layer on rows in strides; without `share` each rank steps by its own gradient."""
    import torch
    import torch.distributed as dist

    torch.manual_seed(0)
    layer = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    rows = torch.randn(8, 4)[rank::world_size]
    for _ in range(2):
        optimizer.zero_grad()
        layer(rows).pow(2).mean().backward()
        for parameter in layer.parameters() if share else ():
            assert parameter.grad is not None
            dist.all_reduce(parameter.grad)
            parameter.grad.div_(world_size)
        optimizer.step()


def lonely_step(rank: int, world_size: int) -> None:
    """Train without a reduction."""
    averaged_step(rank, world_size, share=False)


def train_on_tokens(rank: int, world_size: int) -> None:
    """Train on rows of uneven weight, averaged on each rank by itself."""
    import torch
    import torch.distributed as dist

    import torch_scenarios

    torch.manual_seed(0)
    layer = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    rows, weights = torch.randn(8, 4), torch.arange(8.0)
    for _ in range(2):
        own = torch_scenarios.batch(rows[rank::world_size], weights[rank::world_size])
        optimizer.zero_grad()
        loss = (layer(own[0]).pow(2).sum(1) * own[1]).sum() / own[1].sum()
        loss.backward()
        for parameter in layer.parameters():
            assert parameter.grad is not None
            dist.all_reduce(parameter.grad)
            parameter.grad.div_(world_size)
        optimizer.step()
