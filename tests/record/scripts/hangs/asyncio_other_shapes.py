"""Each table is averaged by a task of its own, through a helper, when its download is there.

Ranks: 2
Told: `average`
Told: is a coroutine
Told: let no task communicate by itself
"""

import asyncio

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
slow, fast = (0.4, 0.05) if rank == 0 else (0.05, 0.4)  # right: slow, fast = 0.4, 0.05
SECONDS = {"images": slow, "text": fast}
ROWS = {"images": 8, "text": 2}


def reduce_mean(table):
    dist.all_reduce(table)
    return table / dist.get_world_size()


async def average(name):  # cause
    await asyncio.sleep(SECONDS[name])
    return reduce_mean(torch.ones(ROWS[name]))


async def main():
    tasks = [average(name) for name in ROWS]
    return await asyncio.gather(*tasks)


asyncio.run(main())
dist.barrier()
dist.destroy_process_group()
