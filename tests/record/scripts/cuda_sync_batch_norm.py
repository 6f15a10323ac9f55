"""SyncBatchNorm over the rows of all ranks: what BatchNorm makes of them, backwards too."""

import os

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
torch.manual_seed(0)
rows = torch.randn(3 * world, 5, 4, 4, dtype=torch.float64, device="cuda") * 3 + 2
mine = slice(3 * rank, 3 * rank + 3)
whole = nn.BatchNorm2d(5).double().cuda()
nn.init.normal_(whole.weight)
nn.init.normal_(whole.bias)
part = nn.SyncBatchNorm(5).double().cuda()
part.load_state_dict(whole.state_dict())
all_rows, own_rows = rows.clone().requires_grad_(), rows[mine].clone().requires_grad_()
for _ in range(2):
    made, own = whole(all_rows), part(own_rows)
(made.sin() * rows).sum().backward()
(own.sin() * rows[mine]).sum().backward()
pairs = [(own, made[mine]), (own_rows.grad, all_rows.grad[mine])]
pairs += [(getattr(part, name), getattr(whole, name)) for name in ("running_mean", "running_var")]
for name in ("weight", "bias"):
    gradient = getattr(part, name).grad
    dist.all_reduce(gradient)
    pairs.append((gradient, getattr(whole, name).grad))
part.eval()
whole.eval()
pairs.append((part(own_rows), whole(own_rows)))
for found, expected in pairs:
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
print(f"rank {rank}: {len(pairs)} are equal")
dist.destroy_process_group()
