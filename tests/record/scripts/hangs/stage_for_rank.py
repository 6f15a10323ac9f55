"""Two pipelines: the number of a stage is passed as a global rank.

Ranks: 4
Told: within their group of ranks 2, 3, rank 1 is global rank 3
Told: dist.get_global_rank(group, 1)
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh


class Stage(nn.Module):
    def __init__(self, mesh):
        super().__init__()
        self.group = mesh.get_group("pp")
        self.stage = mesh.get_local_rank("pp")
        self.last = mesh.size(1) - 1
        self.net = nn.Linear(8, 8)

    def peer(self, stage):
        return stage  # cause # right: return dist.get_global_rank(self.group, stage)

    def run(self, x):
        if self.stage > 0:
            x = torch.empty(4, 8)
            dist.recv(x, src=self.peer(self.stage - 1))  # cause
        with torch.no_grad():
            x = self.net(x)
        if self.stage < self.last:
            dist.send(x, dst=self.peer(self.stage + 1))  # cause
        return x


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "pp"))
    torch.manual_seed(mesh.get_local_rank("dp"))
    stage = Stage(mesh)
    for step in range(3):
        out = stage.run(torch.randn(4, 8))
        grad = out.mean()
        dist.all_reduce(grad, group=mesh.get_group("dp"))
    dist.barrier()
    if dist.get_rank() == 0:
        print("done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
