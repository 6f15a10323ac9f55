"""Files are dealt in turn, and the last rank has fewer full batches of them.

Ranks: 3
Told: which depends on `self.reader = Reader(self.mine, batch)`
Told: and that from `self.mine = names[self.rank
"""

import torch
import torch.distributed as dist


class Reader:
    """Reads the files that are this rank's, in batches."""

    def __init__(self, names, batch):
        self.names, self.batch = names, batch

    def __len__(self):
        return len(self.names) // self.batch

    def __iter__(self):
        for i in range(len(self)):
            yield [len(n) for n in self.names[i * self.batch : (i + 1) * self.batch]]


class Benchmark:
    def __init__(self, files, batch, epochs):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        names = [f"img_{i:03}.npz" for i in range(files)]
        self.mine = names[self.rank :: self.world]  # cause # right: self.mine = names[:48]
        self.reader = Reader(self.mine, batch)
        self.epochs = epochs

    def train_epoch(self, epoch):
        total = 0
        for step, sizes in enumerate(self.reader):
            total += sum(sizes)
            dist.barrier()
        return total

    def run(self):
        for epoch in range(1, self.epochs + 1):
            total = torch.tensor(self.train_epoch(epoch))
            dist.reduce(total, dst=0)
            if self.rank == 0:
                print(f"epoch {epoch}: {total.item()} bytes")


def main():
    dist.init_process_group("gloo")
    files = 143
    Benchmark(files, batch=16, epochs=2).run()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
