"""Accesses in flight: those near to some memory are found as by a look at every one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from torch_scenarios.reference.state import Accesses, InFlightAccess, overlap, span_of

if TYPE_CHECKING:
    from torch_scenarios.reference.matching import Work

#: one of many pages, and one of a page
LARGE, SMALL = np.zeros(1 << 18, np.int8), np.zeros(64, np.int8)
#: an access without addresses
OBJECTS = ([1], [2])


def part(array: Any, first: int, size: int, step: int) -> tuple[Any, ...]:
    return (array[first : first + size * step : step],)


MEMORY = st.one_of(
    st.builds(
        part,
        st.just(LARGE),
        st.integers(0, LARGE.size - 1),
        st.sampled_from([0, 1, 7, 5_000, LARGE.size]),
        st.sampled_from([1, 3]),
    ),
    st.builds(part, st.just(SMALL), st.integers(0, 63), st.integers(0, 64), st.just(1)),
    st.sampled_from([(each,) for each in OBJECTS]),
)


def access(memory: tuple[Any, ...], work: Any) -> InFlightAccess:
    return InFlightAccess(
        work=work, memory=memory, names=frozenset(), writes=True, whole=True, span=span_of(memory)
    )


@given(st.lists(st.tuples(MEMORY, st.integers(0, 3))), st.sets(st.integers(0, 3)), MEMORY)
def test_what_is_near_is_all_that_shares_memory(
    begun: list[tuple[tuple[Any, ...], int]], ended: set[int], memory: tuple[Any, ...]
) -> None:
    works = [cast("Work", object()) for _ in range(4)]
    every = [access(each, works[number]) for each, number in begun]
    accesses = Accesses()
    for each in every:
        accesses.add(each)
    for number in ended:
        accesses.end(works[number])
    left = [each for each in every if works.index(each.work) not in ended]
    assert list(accesses) == left
    assert len(accesses) == len(left)
    for number, work in enumerate(works):
        assert accesses.of(work) == [each for each in left if works.index(each.work) == number]
    near = accesses.find_near(memory)
    assert [each for each in near if overlap(each.memory, memory)] == [
        each for each in left if overlap(each.memory, memory)
    ]
    span = span_of(memory)
    if span is not None:
        for each in near:
            assert each.span is None or (each.span[0] < span[1] and span[0] < each.span[1])
