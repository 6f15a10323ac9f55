"""A rank waits for a key of the store that another one sets, written in another form.

Ranks: 2
Told: which no rank sets; set are `phase-1/done` by rank 0
Told: fix: write the key in one form
"""

import torch
import torch.distributed as dist


class Phases:
    def __init__(self, rank):
        self.rank = rank
        self.store = dist.distributed_c10d._get_default_store()

    def finish(self, number):
        self.store.set(f"phase-{number}/done", b"1")

    def follow(self, number):
        key = f"phase{number}/done"  # right: key = f"phase-{number}/done"
        self.store.wait([key])  # cause


def main():
    dist.init_process_group("gloo")
    phases = Phases(dist.get_rank())
    weight = torch.ones(2)
    dist.all_reduce(weight)
    if phases.rank == 0:
        phases.finish(1)
    else:
        phases.follow(1)
    dist.barrier()
    dist.destroy_process_group()


main()
