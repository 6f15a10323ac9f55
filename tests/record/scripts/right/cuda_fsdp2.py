"""FSDP2 as it is written for CUDA: streams, events, pinned memory."""

import os, torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset

local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
dist.init_process_group("cpu:gloo,cuda:nccl", device_id=torch.device(f"cuda:{local}"))
device = f"cuda:{local}"
print(
    torch.cuda.get_device_properties(local).total_memory,
    torch.cuda.get_device_name(),
    torch.cuda.is_available(),
)
mesh = init_device_mesh("cuda", (dist.get_world_size(),))
with torch.device("cpu"):
    pass
net = nn.Sequential(nn.Linear(8, 16, device=device), nn.Linear(16, 4)).cuda()
for l in net:
    fully_shard(l, mesh=mesh)
fully_shard(net, mesh=mesh)
opt = torch.optim.AdamW(net.parameters())
torch.manual_seed(local)
s = torch.cuda.Stream()
e = torch.cuda.Event(enable_timing=True)
for (x,) in DataLoader(TensorDataset(torch.randn(8, 8)), batch_size=4, pin_memory=True):
    x = x.to(device, non_blocking=True)
    with torch.cuda.stream(s), torch.cuda.amp.autocast():
        y = net(x)
    torch.cuda.current_stream().wait_stream(s)
    e.record()
    e.synchronize()
    y.float().sum().backward()
    opt.step()
    opt.zero_grad()
t = torch.zeros(1, device="cuda")
dist.all_reduce(t)
z = x.new_zeros(3)
q = torch.tensor(3.0, device=torch.device("cuda", local))
w = torch.empty(3).cuda()
v = torch.full_like(w, 2, device=device)
if torch.cuda.is_bf16_supported():
    v = v.bfloat16()
g = torch.Generator(device="cuda") if False else None
dist.all_reduce(v)
with torch.amp.autocast(device_type="cuda", dtype=torch.bfloat16):
    pass
sc = torch.cuda.amp.GradScaler(enabled=False)
sc = torch.amp.GradScaler()
dist.barrier(device_ids=[local])
dist.destroy_process_group()
