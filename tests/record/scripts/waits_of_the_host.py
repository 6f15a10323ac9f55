"""A model whose loop reads its loss in the middle of each step, and its gradients' norm at the end."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(nn.Sequential(*(nn.Linear(512, 512) for _ in range(4))))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    loss = model(torch.randn(64, 512)).square().mean()
    if loss.item() > 2:
        break
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    row = norm.reshape(1).cpu().numpy()
    torch.cpu.synchronize()
    optimizer.step()
    optimizer.zero_grad()
    print(row, norm.tolist())
dist.destroy_process_group()
