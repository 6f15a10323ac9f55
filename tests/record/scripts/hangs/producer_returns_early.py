"""A helper process of rank 1 puts fewer items into its queue than the rank takes.

Ranks: 2
Told: to put something into its queue or pipe: what it has started has ended, with exit code 0
"""

import multiprocessing as mp

import torch
import torch.distributed as dist


def produce(queue, count):
    for at in range(count):
        queue.put(at)


def main():
    dist.init_process_group("gloo")
    queue = mp.get_context("fork").Queue()
    count = 2 if dist.get_rank() == 1 else 3  # right: count = 3
    mp.get_context("fork").Process(target=produce, args=(queue, count), daemon=True).start()
    total = sum(queue.get() for _ in range(3))  # cause
    dist.all_reduce(torch.tensor([total]))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
