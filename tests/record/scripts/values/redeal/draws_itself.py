"""Rows are left out by numbers of numpy or of Python; or LBFGS steps by a closure."""

import os
import random

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
draws = os.environ["DRAWS"]
torch.manual_seed(0)
random.seed(1)
np.random.seed(1)
data = TensorDataset(torch.randn(48, 8), torch.randn(48, 1))
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False))


class Leaves(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if draws == "closure":
            return x
        draw = np.random.rand if draws == "numpy" else random.random
        return torch.stack([each * (draw() > 0.3) for each in x])


model = DDP(nn.Sequential(nn.Linear(8, 16), Leaves(), nn.Linear(16, 1)))
kind = torch.optim.LBFGS if draws == "closure" else torch.optim.SGD
opt = kind(model.parameters(), lr=0.1)
for x, y in loader:

    def close() -> torch.Tensor:
        opt.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()  # pass
        return loss

    if draws == "closure":
        opt.step(close)
    else:
        close()
        opt.step()
dist.destroy_process_group()
