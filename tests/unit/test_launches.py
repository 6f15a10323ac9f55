"""Rows of kernels and the host that starts them, held against a simulation kernel by kernel."""

from __future__ import annotations

import random

import pytest

from torch_scenarios.record.kernels.launches import (
    EARLIER,
    EARLIER_US,
    HostWork,
    KernelRun,
    kernel_run,
)

Kernels = list[tuple[float, float]]


def simulated(kernels: Kernels) -> float:
    """Return when the last kernel ends, each of which a host takes a time to start."""
    host = device = 0.0
    for us, host_us in kernels:
        host += host_us
        device = max(device, host) + us
    return device


def some_kernels(seed: int) -> Kernels:
    chosen = random.Random(seed)  # noqa: S311
    return [
        (chosen.choice([1.0, 5.0, 200.0]), chosen.choice([2.0, 20.0, 60.0]))
        for _ in range(chosen.randint(1, 300))
    ]


@pytest.mark.parametrize("seed", range(20))
def test_a_row_ends_when_its_last_kernel_does(seed: int) -> None:
    kernels = some_kernels(seed)
    row = KernelRun()
    for each in kernels:
        row.add(kernel_run(*each))
    assert row.end_us == pytest.approx(simulated(kernels))
    assert row.us == pytest.approx(sum(us for us, _ in kernels))


@pytest.mark.parametrize("seed", range(20))
def test_rows_that_are_cut_end_nearly_as_their_kernels_do(seed: int) -> None:
    kernels = some_kernels(seed)
    rows, row = [], KernelRun()
    for each in kernels:
        one = kernel_run(*each)
        if not row.takes(one):
            rows.append(row)
            row = KernelRun()
        row.add(one)
    host = device = 0.0
    for each_row in [*rows, row]:  # as `scenario cost` replays what is written of them
        host += each_row.host_us
        device = max(device + each_row.us, host)
    true = simulated(kernels)
    assert device <= true + 1e-6
    assert device >= true * (1 - 2 * EARLIER) - 4 * EARLIER_US


def test_first_slow_starts_and_then_long_kernels_are_no_one_row() -> None:
    row = KernelRun()
    for _ in range(100):
        row.add(kernel_run(1.0, 50.0))
    assert not row.takes(kernel_run(4000.0, 1.0))
    assert row.takes(kernel_run(1.0, 50.0))


class ListedTensor:
    """What counts as a tensor of a list."""

    def untyped_storage(self) -> None:
        """Have memory."""


def test_lists_of_tensors_take_a_host_longer_and_shapes_do_not() -> None:
    host = HostWork({"operator": 10.0, "kernel": 4.0, "tensor": 2.0})
    assert host.operator_us(([4, 8], 1)) == 10
    assert host.operator_us(([ListedTensor()] * 3,)) == 16
    assert host.kernel_us == 4
