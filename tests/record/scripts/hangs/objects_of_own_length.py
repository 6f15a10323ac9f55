"""The ranks that receive objects make a list of another length than the rank that sends them.

Ranks: 3
Told: rank 0 passes `payload`, set by `payload = [vocabulary, merges, settings]` (objects_of_own_length.py:25)
Told: ranks 1 and 2 by `payload = [None] * 2` (objects_of_own_length.py:27)
Told: fix: pass a list of as many objects on every rank: change
"""

import torch
import torch.distributed as dist


def read_tokenizer():
    return {"a": 0, "b": 1}, ["a b"], {"pad": 2}


class Tokenizer:
    def __init__(self, vocabulary, merges=None):
        self.vocabulary, self.merges = vocabulary, merges

    @classmethod
    def shared(cls):
        if dist.get_rank() == 0:
            vocabulary, merges, settings = read_tokenizer()
            payload = [vocabulary, merges, settings]
        else:
            payload = [None] * 2  # cause # right: payload = [None] * 3
        dist.broadcast_object_list(payload, src=0)
        return cls(*payload[:2])


def main():
    dist.init_process_group("gloo")
    tokenizer = Tokenizer.shared()
    size = torch.tensor(len(tokenizer.vocabulary))
    dist.all_reduce(size)
    dist.destroy_process_group()


main()
