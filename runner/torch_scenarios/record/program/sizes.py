"""The sizes of tensors: a model is too large to be computed with, and their relations matter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from math import gcd

from torch_scenarios.record.format import RankRecord, Tensor

#: elements of all tensors of all ranks together from which on their sizes are reduced
MOST_ELEMENTS = 1 << 24


class Sizes:
    """The shapes of tensors; of large programs reduced, so that relations stay."""

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
    found: list[int] = []
    size = 3
    while True:
        if all(size % each for each in found) and (size == 3 or size % 2):
            found.append(size)
            if world % size:
                yield size
        size += 2
