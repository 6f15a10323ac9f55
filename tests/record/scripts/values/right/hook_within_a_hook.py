"""A hook that compresses is around one of local SGD: ranks train by themselves in between."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_wrapper
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import (
    PostLocalSGDState,
    post_localSGD_hook,
)
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)))
alone, _ = dist.new_subgroups(1)
state = PostLocalSGDState(process_group=None, subgroup=alone, start_localSGD_iter=2)
model.register_comm_hook(state, fp16_compress_wrapper(post_localSGD_hook))
averager = PeriodicModelAverager(period=2, warmup_steps=2)
opt = PostLocalSGDOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), averager)
torch.manual_seed(dist.get_rank())
for _ in range(6):
    opt.zero_grad()
    model(torch.randn(4, 8)).pow(2).mean().backward()
    opt.step()
dist.destroy_process_group()
