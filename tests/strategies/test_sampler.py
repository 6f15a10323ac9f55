"""DistributedSampler, predicted without torch, against torch's own."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from torch_scenarios.strategies.sampler import indices, permutation

CASES = list(
    itertools.product(
        (1, 2, 3, 5, 10, 17), (1, 2, 3, 4), (True, False), (0, 7, 123456789), (True, False), (0, 5)
    )
)


@pytest.mark.torch
def test_every_rank_takes_the_samples_that_torch_gives_it() -> None:
    from torch.utils.data.distributed import DistributedSampler

    compared = 0
    for count, ranks, shuffle, seed, drop_last, epoch in CASES:
        if drop_last and count < ranks:
            continue  # torch gives a negative number of samples, and stops at it
        for rank in range(ranks):
            samples: Any = range(count)
            sampler: Any = DistributedSampler(
                samples,
                num_replicas=ranks,
                rank=rank,
                shuffle=shuffle,
                seed=seed,
                drop_last=drop_last,
            )
            sampler.set_epoch(epoch)
            found = indices(
                count,
                num_replicas=ranks,
                rank=rank,
                shuffle=shuffle,
                seed=seed,
                drop_last=drop_last,
                epoch=epoch,
            )
            assert found.tolist() == list(sampler), (count, ranks, rank, shuffle, seed, drop_last)
            compared += 1
    assert compared > 1000


def test_the_last_samples_are_filled_up_from_the_front() -> None:
    found = [indices(10, num_replicas=3, rank=rank, shuffle=False).tolist() for rank in range(3)]
    assert found == [[0, 3, 6, 9], [1, 4, 7, 0], [2, 5, 8, 1]]
    cut = indices(10, num_replicas=3, rank=0, shuffle=False, drop_last=True)
    assert cut.tolist() == [0, 3, 6]


def test_an_order_is_a_permutation() -> None:
    assert sorted(permutation(50, 3)) == list(range(50))
    assert permutation(50, 3) != permutation(50, 4)
