"""Two coroutines sync their own state when their download is there; the order is each rank's own.

Ranks: 2
Told: `fetch`
Told: is a coroutine
"""

import asyncio
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()


async def fetch(name, seconds, size):
    await asyncio.sleep(seconds)
    state = torch.ones(size)
    dist.all_reduce(state)  # cause
    return state


async def main():
    slow, fast = (0.4, 0.05) if rank == 0 else (0.05, 0.4)  # right: slow, fast = 0.4, 0.05
    return await asyncio.gather(fetch("images", slow, 8), fetch("text", fast, 2))  # cause


images, text = asyncio.run(main())
dist.barrier()
dist.destroy_process_group()
