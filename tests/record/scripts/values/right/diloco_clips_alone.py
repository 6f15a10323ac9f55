"""DiLoCo: each rank trains alone for H steps with AdamW; outer Nesterov SGD on the averaged difference."""

import torch
import torch.distributed as dist
from torch import nn

H = 3


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(20, 8), nn.Flatten(), nn.Linear(32, 20))
    for p in model.parameters():
        dist.broadcast(p.data, 0)
    outer = [p.detach().clone().requires_grad_() for p in model.parameters()]
    inner_opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    outer_opt = torch.optim.SGD(outer, lr=0.7, momentum=0.9, nesterov=True)
    g = torch.Generator().manual_seed(50 + rank)
    for round_ in range(3):
        for _ in range(H):
            t = torch.randint(0, 20, (6, 5), generator=g)
            loss = nn.functional.cross_entropy(model(t[:, :4]), t[:, 4])
            inner_opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            inner_opt.step()
        for old, new in zip(outer, model.parameters()):
            old.grad = old.data - new.data
            dist.all_reduce(old.grad)
            old.grad /= world
        outer_opt.step()
        outer_opt.zero_grad()
        with torch.no_grad():
            for old, new in zip(outer, model.parameters()):
                new.copy_(old)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
