"""Each rank announces the end of a part by a client of the job's store; one does so not always.

Ranks: 2
Told: for the key `parts/part2/rank1` of the store
Told: rank 1 sets such a key
Told: fix: let rank 1 set the key in each turn
"""

import datetime
import os

import torch
import torch.distributed as dist


class Board:
    """What the ranks tell each other of the parts of an epoch."""

    def __init__(self, rank, world):
        place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        store = dist.TCPStore(*place, is_master=False, timeout=datetime.timedelta(minutes=20))
        self.store = dist.PrefixStore("parts", store)
        self.rank, self.world = rank, world

    def announce(self, part):
        self.store.set(f"part{part}/rank{self.rank}", "done")

    def wait_for_all(self, part):
        self.store.wait([f"part{part}/rank{rank}" for rank in range(self.world)])


def main(rows=5, rows_of_a_part=2):
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    board = Board(rank, world)
    own = torch.arange(rows)[rank::world]
    for part in range(3):
        total = own[part : part + rows_of_a_part].sum()
        dist.all_reduce(total)
        if part < len(own):  # cause # right: if True:
            board.announce(part)
        board.wait_for_all(part)
        print(rank, part, total.item(), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
