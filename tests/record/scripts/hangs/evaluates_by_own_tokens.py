"""A callback asks for an evaluation every so many tokens, which each rank counts for itself.

Ranks: 2
Told: `if self.every.is_due()`
"""

import torch
import torch.distributed as dist


class Every:
    def __init__(self, tokens):
        self.tokens, self.seen, self.next = tokens, 0, tokens

    def is_due(self):
        if self.seen >= self.next:
            self.next += self.tokens
            return True
        return False


class Trainer:
    def __init__(self, model, every):
        self.model, self.every = model, every

    def loss(self, length):
        loss = self.model(torch.ones(1, 2)).sum()
        if self.model.training:
            self.every.seen += length
            loss.backward()
            dist.all_reduce(loss.detach())
        else:
            dist.all_gather([torch.zeros(()) for _ in range(2)], loss.detach())

    def run(self, lengths):
        for length in lengths:
            self.model.train()
            self.loss(length)
            if self.every.is_due():  # cause
                self.model.eval()
                self.loss(length)


def main():
    dist.init_process_group("gloo")
    lengths = [3, 3, 3, 3] if dist.get_rank() == 0 else [9, 9, 9, 9]  # right: lengths = [3] * 4
    Trainer(torch.nn.Linear(2, 1), Every(10)).run(lengths)
    dist.barrier()


main()
