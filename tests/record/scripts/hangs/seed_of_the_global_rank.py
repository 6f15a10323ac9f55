"""Tensor parallel ranks draw their lengths by a seed of the global rank.

Ranks: 4
Told: it differs by rank through `seed = 100 + rank`
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh


def lengths(seed, count):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, 9, (count,), generator=generator).tolist()


class VocabParallel(nn.Module):
    def __init__(self, group, vocab=12, width=6):
        super().__init__()
        self.group = group
        self.embed = nn.Embedding(vocab, width)

    def forward(self, ids):
        out = self.embed(ids).detach()
        dist.all_reduce(out, group=self.group)  # cause
        return out


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(0)
    model = VocabParallel(mesh.get_group("tp"))
    seed = 100 + rank  # cause # right: seed = 100 + mesh.get_local_rank("dp")
    for length in lengths(seed, 3):  # cause
        ids = torch.randint(0, 12, (2, length))
        loss = model(ids).pow(2).mean()
        dist.all_reduce(loss, group=mesh.get_group("dp"))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
