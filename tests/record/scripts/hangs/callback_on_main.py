"""Rank 0 alone has a callback that gathers samples.

Ranks: 3
Told: rank 0 alone makes a `SampleTable`
Told: make the `SampleTable` on every rank
"""

import torch
import torch.distributed as dist


class Callback:
    def on_step_end(self, trainer):
        pass

    def on_epoch_end(self, trainer):
        pass


class ReduceLoss(Callback):
    def on_step_end(self, trainer):
        loss = trainer.loss.clone()
        dist.all_reduce(loss)
        trainer.mean = loss.item() / trainer.world


class SampleTable(Callback):
    def on_epoch_end(self, trainer):
        rows = [None] * trainer.world
        dist.all_gather_object(rows, {"rank": trainer.rank, "loss": trainer.mean})
        print(rows, flush=True)


class Trainer:
    def __init__(self):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.callbacks = [ReduceLoss()]
        if self.rank == 0:  # cause # right: if True:
            self.callbacks.append(SampleTable())  # cause

    def emit(self, event):
        for callback in self.callbacks:
            getattr(callback, event)(self)

    def fit(self, epochs, steps):
        for epoch in range(epochs):
            for step in range(steps):
                self.loss = torch.tensor(1.0 / (1 + step + self.rank))
                self.emit("on_step_end")
            self.emit("on_epoch_end")


def main():
    dist.init_process_group("gloo")
    Trainer().fit(epochs=2, steps=3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
