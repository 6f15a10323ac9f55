"""A checkpoint is gathered in a thread; on one rank it raises before, and nobody asks the future.

Ranks: 2
Told: KeyError: 'bias'
"""

from concurrent.futures import ThreadPoolExecutor
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
saving = dist.new_group()
pool = ThreadPoolExecutor(1)


def save(state, step):
    flat = torch.cat([state[name] for name in ("weight", "bias")])  # cause
    pieces = [torch.empty_like(flat) for _ in range(dist.get_world_size())]
    dist.all_gather(pieces, flat, group=saving)


state = {"weight": torch.ones(4), "bias": torch.ones(2)}
for step in range(3):
    dist.all_reduce(torch.ones(1))
    if step == 1:
        if rank == 1:  # right: if False:
            del state["bias"]
        pool.submit(save, state, step)
pool.shutdown(wait=True)
dist.barrier()
dist.destroy_process_group()
