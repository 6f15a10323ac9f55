"""Rows of kernels and the host that starts them, held against a simulation kernel by kernel."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from torch_scenarios.record.kernels.launches import (
    EARLIER,
    EARLIER_US,
    CompiledParts,
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


class Rows:
    """A tensor of 1,024 bytes at an address, or a view of one."""

    element_size, stride, shape = staticmethod(lambda: 4), staticmethod(lambda: (1,)), (256,)

    def __init__(self, at: int) -> None:
        self.at = at

    def untyped_storage(self) -> Any:
        """Return what has its address."""
        return SimpleNamespace(_cdata=self.at)


class Autograd:
    """What torch tells of nodes: the number of the next one, and which one is run now."""

    def __init__(self) -> None:
        self.number = 10
        self.node: Any = None
        core = SimpleNamespace(
            _autograd=SimpleNamespace(_get_sequence_nr=lambda: self.number),
            _current_autograd_node=lambda: self.node,
        )
        module: Any = type("Module", (), {})
        self.torch = SimpleNamespace(_C=core, nn=SimpleNamespace(Module=module))

    def run_backward(self, number: int) -> None:
        """Let a node be run."""
        self.node = SimpleNamespace(_sequence_nr=lambda: number)


def ignore(_: object) -> None:
    """Be told which tensors are kept."""


def operator(name: str = "aten::mul") -> Any:
    return SimpleNamespace(namespace=name.partition("::")[0], _schema=SimpleNamespace(name=name))


def test_operators_between_products_move_what_goes_in_and_what_is_needed_later() -> None:
    parts = CompiledParts(Autograd().torch, ignore)
    a, b, c, out = (Rows(at) for at in range(4))
    parts.fuse([a], [b])
    parts.fuse([b, a], [c])
    parts.fuse([c], [out])
    assert parts.end() == 1024  # it reads a once; nothing is written yet
    assert parts.need([out], []) == 1024  # a product needs it
    assert parts.need([out], []) == 0
    parts.fuse([c], [Rows(9)])
    assert parts.end() == 2048  # another kernel of the same pass needs c, and reads it
    assert parts.end() == 0


def test_what_a_product_reads_and_what_a_part_gives_out_is_kept() -> None:
    kept: list[int] = []
    autograd = Autograd()
    parts = CompiledParts(autograd.torch, lambda given: kept.extend(each.at for each in given))
    parts.install()
    gate, inner, out = (Rows(at) for at in range(3))

    def run() -> dict[str, Rows]:
        parts.fuse([gate], [inner])
        parts.end()
        assert kept == []
        parts.need([inner], [out])
        assert kept == [1]
        return {"out": out}

    autograd.torch.compile(run)()
    assert kept == [1, 2]


def test_a_backward_pass_makes_anew_what_its_kernels_read() -> None:
    autograd = Autograd()
    parts = CompiledParts(autograd.torch, ignore)
    parts.fuse([Rows(0)], [Rows(1)])
    parts.end()
    autograd.run_backward(11)
    parts.fuse([Rows(1)], [Rows(2)])
    assert parts.end() == 1024
    assert parts.need([Rows(1)], []) == 2048  # for a product it is read, and written


def test_an_address_that_is_taken_again_is_another_tensor() -> None:
    parts = CompiledParts(Autograd().torch, ignore)
    parts.fuse([Rows(0)], [Rows(1)])
    parts.end()
    assert parts.need([], [Rows(1)]) == 0
    assert parts.need([Rows(1)], []) == 0


@pytest.mark.parametrize(("mode", "is_graph"), [(None, False), ("reduce-overhead", True)])
def test_nodes_of_a_compiled_part_are_compiled_backwards_too(
    mode: str | None, *, is_graph: bool
) -> None:
    autograd = Autograd()
    parts = CompiledParts(autograd.torch, ignore)
    parts.install()
    seen = []

    def step() -> None:
        autograd.number += 5
        seen.append(parts.has(operator()))
        seen.append(parts.has(operator("fsdp::all_gather_copy_in")))

    compiled = autograd.torch.compile(mode=mode)(step)

    assert parts.has(operator()) == (False, False)
    compiled()
    assert seen == [(True, is_graph), (False, False)]
    assert parts.has(operator()) == (False, False)
    for number, is_compiled in ((9, False), (10, True), (14, True), (15, False)):
        autograd.run_backward(number)
        assert parts.has(operator()) == (is_compiled, is_compiled and is_graph)


def test_the_forward_of_a_module_is_what_is_compiled() -> None:
    autograd = Autograd()
    parts = CompiledParts(autograd.torch, ignore)
    parts.install()
    model = autograd.torch.nn.Module()
    model.forward = lambda: parts.has(operator())
    assert autograd.torch.compile(model) is model
    assert model.forward() == (True, False)
