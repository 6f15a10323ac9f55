"""A mesh is made for nodes of eight GPUs, and there are four ranks.

Ranks: 4
Told: what it passes comes from
Told: raised by
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

GPUS_PER_NODE = 8  # cause # right: GPUS_PER_NODE = 2


def make_mesh():
    world = dist.get_world_size()
    replicas = world // GPUS_PER_NODE
    shape = (replicas, GPUS_PER_NODE)
    return init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard"))  # cause


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    mesh = make_mesh()
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16))
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for _ in range(2):
        loss = model(torch.randn(4, 16)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
