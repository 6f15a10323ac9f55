"""The owner of a parameter is the hash of its name, which is another one in each process.

Ranks: 2
Told: the root is `owner`
Told: the hash of a string is another one in each process
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, n = dist.get_rank(), dist.get_world_size()
params = {
    f"layers.{layer}.{kind}": torch.ones(3) for layer in range(16) for kind in ("weight", "bias")
}
for name, p in params.items():
    owner = hash(name) % n  # cause  # right: owner = len(name) % n
    dist.broadcast(p, src=owner)  # cause
dist.barrier()
dist.destroy_process_group()
