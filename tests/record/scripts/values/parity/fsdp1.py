"""FullyShardedDataParallel with the parameters of the model, or flat ones; the rest is a mistake."""

import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

how = sys.argv[1] if len(sys.argv) > 1 else ""
is_flat, how = how.startswith("flat"), how.removeprefix("flat").removeprefix("-")
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x):
        return x + self.linear(self.norm(x)).relu()


torch.manual_seed(61)
net = nn.Sequential(Layer(), Layer(), nn.Linear(8, 1))
wrap = {"auto_wrap_policy": ModuleWrapPolicy({Layer}), "device_id": torch.device("cpu")}
model = FSDP(net, use_orig_params=not is_flat, **wrap)
opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(3):
    rows = torch.Generator().manual_seed(step)
    x = torch.randn(8, 8, generator=rows).chunk(world)[rank]
    loss = model(x).square().mean()
    if how == "scaled":
        loss = loss / world
    opt.zero_grad()
    loss.backward()
    if how == "scaled":  # a clip would hide it
        pass
    elif how == "mean":
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        square = sum(each.square().sum() for each in grads)
        dist.all_reduce(square)
        torch._foreach_mul_(grads, 0.05 / (square / world).sqrt())
    elif how == "clip":
        nn.utils.clip_grad_norm_(model.parameters(), 0.05)
    else:
        model.clip_grad_norm_(0.05)
    opt.step()
dist.destroy_process_group()
