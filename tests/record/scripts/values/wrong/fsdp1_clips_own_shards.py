"""FSDP1: torch's clip_grad_norm_ sees the shards of a rank alone.

Found: norm_is_local
"""

import torch, torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.a, self.b = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x):
        return x + self.b(torch.relu(self.a(x)))


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), Block(16), Block(16), nn.Linear(16, 1))
model = FSDP(
    model,
    auto_wrap_policy=ModuleWrapPolicy({Block}),
    use_orig_params=True,
    device_id=torch.device("cpu"),
)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
torch.manual_seed(40 + rank)
for _ in range(4):
    x = torch.randn(8, 8)
    loss = 50 * (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # norm_is_local
    opt.step()
dist.destroy_process_group()
