"""`DistributedSampler` without torch: which samples each rank takes, in which order.

The order of an epoch is `torch.randperm` of a generator with the seed `seed + epoch`: MT19937 and
Fisher and Yates' shuffle from the front, one number of 32 bits an element. Read in
`torch/utils/data/distributed.py` and ATen's `randperm_cpu`; 1632 combinations measured.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from torch_scenarios.errors import DataError


def permutation(count: int, seed: int) -> list[int]:
    """Return `torch.randperm(count, generator=Generator().manual_seed(seed))`.

    >>> permutation(5, seed=0)
    [4, 0, 1, 3, 2]

    That is torch's own order for the seed 0, computed without torch: a loader that forgets
    `set_epoch` has it in each epoch.
    """
    state = np.random.RandomState(seed & 0xFFFFFFFF)  # torch's own generator
    found = list(range(count))
    for at in range(count - 1):
        drawn = int(state.randint(0, 2**32, dtype=np.uint64)) % (count - at)
        found[at], found[at + drawn] = found[at + drawn], found[at]
    return found


def indices(
    count: int,
    *,
    num_replicas: int,
    rank: int,
    shuffle: bool = True,
    seed: int = 0,
    drop_last: bool = False,
    epoch: int = 0,
) -> NDArray[np.int64]:
    """Return the samples of one rank: every n-th of the padded, or cut, order of all.

    Raises DataError for a rank that is not one of so many, as torch refuses it.

    >>> [indices(5, num_replicas=2, rank=rank, shuffle=False).tolist() for rank in range(2)]
    [[0, 2, 4], [1, 3, 0]]

    Five samples on two ranks: sample 0 comes twice, so that both ranks have three. With `drop_last`
    both have two, and sample 4 is seen by none.

    >>> [indices(5, num_replicas=2, rank=rank, shuffle=False, drop_last=True).tolist()
    ...  for rank in range(2)]
    [[0, 2], [1, 3]]
    """
    if not 0 <= rank < num_replicas:
        message = f"a sampler for {num_replicas} ranks has no samples for rank {rank}"
        raise DataError(message)
    order = permutation(count, seed + epoch) if shuffle else list(range(count))
    if drop_last and count % num_replicas:
        each = math.ceil((count - num_replicas) / num_replicas)
    else:
        each = math.ceil(count / num_replicas)
    total = each * num_replicas
    if not drop_last and order:
        lacking = total - len(order)
        order += (order * math.ceil(lacking / len(order)))[:lacking]
    return np.asarray(order[:total][rank:total:num_replicas], np.int64)
