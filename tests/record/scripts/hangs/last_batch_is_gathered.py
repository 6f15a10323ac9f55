"""The features of a batch are gathered, and the last batch is smaller on one rank.

Ranks: 2
Told: the last batch has 2 rows on rank 0, 1 row on rank 1
Told: `loader = DataLoader(mine, 4)` (last_batch_is_gathered.py:
Told: `drop_last=True`
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset, TensorDataset


class GatherLayer(torch.autograd.Function):
    """Gathers from all ranks, and keeps the gradient."""

    @staticmethod
    def forward(ctx, x):
        output = [torch.zeros_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(output, x)  # cause
        return tuple(output)

    @staticmethod
    def backward(ctx, *grads):
        all_gradients = torch.stack(grads)
        dist.all_reduce(all_gradients)
        return all_gradients[dist.get_rank()]


class TwoTowers(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = nn.Linear(8, 4)
        self.text = nn.Linear(6, 4)

    def forward(self, image, text):
        return F.normalize(self.image(image), dim=1), F.normalize(self.text(text), dim=1)


def clip_loss(image, text):
    images = torch.cat(GatherLayer.apply(image))
    texts = torch.cat(GatherLayer.apply(text))
    logits = images @ texts.t()
    return F.cross_entropy(logits, torch.arange(len(logits)))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    pairs = TensorDataset(torch.randn(27, 8), torch.randn(27, 6))
    mine = Subset(pairs, range(rank, len(pairs), world))
    loader = DataLoader(mine, 4)  # cause # right: loader = DataLoader(mine, 4, drop_last=True)
    model = DDP(TwoTowers())
    opt = torch.optim.Adam(model.parameters())
    for epoch in range(2):
        for image, text in loader:
            loss = clip_loss(*model(image, text))
            opt.zero_grad()
            loss.backward()
            opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
