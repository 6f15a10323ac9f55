"""The sizes of tensors: a model is too large to be computed with, and their relations matter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from math import gcd

from torch_scenarios.record.format import RankRecord, Tensor

#: elements of all tensors of all ranks together from which on their sizes are reduced
MOST_ELEMENTS = 1 << 24


class Sizes:
    """The shapes of tensors; of large programs reduced, so that relations stay.

    A model of 7 billion parameters is 28 GB, and the analysis computes with every tensor. What
    matters of sizes is which are equal, and which are multiples: an all_gather's output has as many
    elements as all its inputs together. So sizes that occur in one call are reduced by their
    greatest common divisor, and sizes that have nothing to do with each other get different primes.

        inputs 4,194,304, output 33,554,432 of 8 ranks    becomes    3 and 24
    """

    def __init__(self, records: Mapping[int, RankRecord], *, is_true: bool = False) -> None:
        """Look at every tensor of every call; keep their sizes if `is_true`."""
        self._map: dict[int, int] = {}
        total: dict[tuple[str, tuple[int, ...]], int] = {}
        self._parents: dict[int, int] = {}
        # what a rank is assumed to have called is what another one called
        own = [each for each in records.values() if each.about.get("mode") != "assumed"]
        calls = (call for record in own for call in record.calls)
        for call in calls:
            tensors = [*call.inputs, *call.outputs]
            for each in tensors:
                total[each.dtype, each.shape] = each.elements * each.count
                self._find(each.elements)
            for one, two in pairwise(tensors):
                if one.elements and two.elements:
                    self._parents[self._find(one.elements)] = self._find(two.elements)
        world = max((each.world_size for each in records.values()), default=1)
        self.reduced = not is_true and sum(total.values()) * world > MOST_ELEMENTS
        if self.reduced:
            self._reduce(world)

    def _find(self, size: int) -> int:
        """Return who stands for all sizes that are related to one."""
        parents = self._parents
        parents.setdefault(size, size)
        while parents[size] != size:
            parents[size] = parents[parents[size]]
            size = parents[size]
        return size

    def _reduce(self, world: int) -> None:
        """Find the reduced size of each number of elements.

        The primes are odd and do not divide the world size: a size that was no multiple of it stays
        none.
        """
        together: dict[int, list[int]] = {}
        for size in self._parents:
            together.setdefault(self._find(size), []).append(size)
        primes = _primes(world)
        for sizes in sorted(together.values()):
            common = gcd(*sizes)
            factor = next(primes)
            for size in sizes:
                self._map[size] = size if size <= 1 else factor * (size // common)

    def of(self, tensor: Tensor) -> tuple[int, ...]:
        """Return the shape that a tensor has in the scenario."""
        if not self.reduced or not tensor.shape:
            return tensor.shape
        return (self._map[tensor.elements],)


def _primes(world: int) -> Iterator[int]:
    """Yield the odd primes that do not divide the size of the world."""
    found: list[int] = []
    size = 3
    while True:
        if all(size % each for each in found) and (size == 3 or size % 2):
            found.append(size)
            if world % size:
                yield size
        size += 2
