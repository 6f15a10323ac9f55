"""A server sends a task to each worker that it comes to, and there are fewer tasks than workers.

Ranks: 3
Told: which reaches rank 1 and not to rank 2
"""

import torch
import torch.distributed as dist

ROWS = [8]  # cause # right: ROWS = [8, 8]
TASKS = [{"shard": at, "rows": rows} for at, rows in enumerate(ROWS)]


class Master:
    def __init__(self, world):
        self.workers = list(range(1, world))
        self.busy = set()

    def run(self, tasks):
        for task, worker in zip(tasks, self.workers):  # cause
            dist.send_object_list([task], dst=worker)
            self.busy.add(worker)
        for worker in sorted(self.busy):  # cause
            result = [None]
            dist.recv_object_list(result, src=worker)
            print("result", result[0], flush=True)
            dist.send_object_list([None], dst=worker)


def work():
    while True:
        box = [None]
        dist.recv_object_list(box, src=0)
        if box[0] is None:
            return
        total = float(torch.ones(box[0]["rows"]).sum())
        dist.send_object_list([total], dst=0)


def main():
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        Master(dist.get_world_size()).run(TASKS)
    else:
        work()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
