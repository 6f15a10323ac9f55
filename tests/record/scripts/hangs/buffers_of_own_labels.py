"""A model under DDP has a buffer that is as long as the rank's own set of labels.

Ranks: 2
Told: broadcasts the buffers of its model: `weights` is [3] on rank 0; [2] on rank 1
Told: fix: give the buffer `weights` the same shape on every rank
"""

import torch
import torch.distributed as dist
from torch import nn


class Classifier(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.register_buffer("weights", torch.ones(classes))  # cause

    def forward(self, x):
        return self.layer(x)


dist.init_process_group("gloo")
labels = {0, 1, 2} if dist.get_rank() == 0 else {0, 1}  # right: labels = {0, 1, 2}
model = nn.parallel.DistributedDataParallel(Classifier(len(labels)))
model(torch.randn(2, 4)).sum().backward()
dist.destroy_process_group()
