"""A context manager lets the first rank go first; an error in its body leaves it at the `yield`.

Ranks: 2
Told: rank 0 catches JSONDecodeError
Told: leaves `first_rank_first` at its `yield`
Told: fix: put what follows the `yield`
"""

import contextlib
import json

import torch
import torch.distributed as dist


def meet_the_others():
    if dist.get_rank() == 0:
        dist.barrier()


class Turn:
    def close(self):
        meet_the_others()


@contextlib.contextmanager
def first_rank_first():
    if dist.get_rank() != 0:
        dist.barrier()
    yield  # cause  # right: with contextlib.closing(Turn()): yield
    meet_the_others()  # right: pass


def read(text):
    return json.loads(text)["rows"]


def load():
    try:
        with first_rank_first():
            return read('{"rows": [0.1, 0.2')
    except json.JSONDecodeError:
        return [0.0, 1.0]


dist.init_process_group("gloo")
rows = torch.tensor(load())
dist.all_reduce(rows)
dist.destroy_process_group()
