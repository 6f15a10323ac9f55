"""A thread saves and meets the others at a barrier, in the group of the training.

Ranks: 2
Told: two threads of rank 0 communicate in one group: thread_saves.py:
Told: give each thread a group
"""

import torch
import torch.distributed as dist

import threading
import time


class AsyncSaver:
    def __init__(self, group=None):
        self.group = group
        self.thread = None

    def save(self, step):
        self.thread = threading.Thread(target=self._write, args=(step,))
        self.thread.start()

    def _write(self, step):
        time.sleep(0.8 if dist.get_rank() == 0 else 0.0)
        dist.barrier(group=self.group)  # cause

    def wait(self):
        if self.thread is not None:
            self.thread.join()


def main():
    dist.init_process_group("gloo")
    own = dist.new_group()
    saver = AsyncSaver()  # right: saver = AsyncSaver(own)
    saver.save(1)
    time.sleep(0.3)
    for _ in range(3):
        x = torch.ones(2)
        dist.all_reduce(x)  # cause
    saver.wait()
    dist.destroy_process_group()


main()
