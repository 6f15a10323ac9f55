"""Each rank has a scaler of its own, which leaves the step out where a gradient is infinite.

Ranks: 2
Told: a GradScaler leaves the step out where a gradient of its rank is not finite
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.Linear(4, 2)


class Sharded(torch.optim.SGD):
    def step(self, closure=None):
        super().step(closure)
        for p in model.parameters():
            dist.broadcast(p.data, 0)


optimizer = Sharded(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
for step in range(3):
    x = torch.ones(2, 4)
    largest = [[1, 1, 1], [1, float("inf"), 1]][rank]  # right: largest = [1, float("inf"), 1]
    x = x * largest[step]
    optimizer.zero_grad()
    scaler.scale(model(x).sum()).backward()
    scaler.step(optimizer)  # cause
    scaler.update()
dist.barrier()
dist.destroy_process_group()
