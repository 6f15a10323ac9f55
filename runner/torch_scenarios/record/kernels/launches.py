"""Kernels in a row, and the host that starts them: how long both take, and when the last one ends.

A host starts one kernel after the other, and runs ahead of a GPU that takes longer for each. What
matters of a row of kernels are three numbers: `us`, what they take together; `host_us`, what the
host takes to start them; and `end_us`, when the last one ends if host and GPU begin with the first
one at once. Two rows in a row have those of the sum of both::

    host   |1|2|3|4|5|6|
    GPU      |1 |2 |3|  |4|5| 6 |
                            end ^

A part that torch.compile takes starts fewer. Here nothing is compiled: operators come one by one,
and what Inductor makes of them is reckoned. All between two products are one kernel, which reads
what was in memory before. What it makes is written once something else needs it: a product, a part
that is not compiled, another kernel of the same pass. A kernel of the backward pass makes it anew
from what it reads, as the partitioner of AOTAutograd prefers: it is kept where something else needs
it, where the part gives it out, and where what it is made of is not kept::

    operators   mm | pow mean rsqrt mul mul | mm      mm | silu mul | mm
    kernels     mm |       one              | mm      mm |   one    | mm

Operators of a backward pass belong to the part whose nodes they are, by their sequence numbers.
"""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch_scenarios.record.kernels.ledger import tensors_among
from torch_scenarios.record.kernels.roofline import count_element_bytes

#: how much earlier a row may seem to end, of its time, and in microseconds, before it is cut
EARLIER, EARLIER_US = 0.02, 20.0


class KernelRun:
    """A row of kernels. One that is written down has `us` and `host_us` alone.

    It then ends with the longer of both, so that a row is cut where that would be too early.
    """

    __slots__ = ("end_us", "host_us", "us")

    def __init__(self, us: float = 0.0, host_us: float = 0.0, end_us: float = 0.0) -> None:
        """Begin with kernels of `us`, which a host takes `host_us` to start."""
        self.us, self.host_us = us, host_us
        self.end_us = end_us or max(us, host_us)

    def takes(self, other: KernelRun) -> bool:
        """Return whether a row with another one behind it may be written down as one."""
        longest = max(self.us + other.us, self.host_us + other.host_us)
        return self._end_us(other) <= longest * (1 + EARLIER) + EARLIER_US

    def add(self, other: KernelRun) -> None:
        """Put another row behind."""
        self.end_us = self._end_us(other)
        self.us += other.us
        self.host_us += other.host_us

    def _end_us(self, other: KernelRun) -> float:
        return max(self.end_us + other.us, self.host_us + other.end_us)


def kernel_run(us: float, host_us: float) -> KernelRun:
    """Return one kernel, which begins once its host has started it."""
    return KernelRun(us, host_us, us + host_us)


class HostWork:
    """What a host takes for operators of torch, by the numbers of a topology.

    `operator_us` is Python, the dispatcher and autograd for each operator, views too, and more for
    each tensor of its lists; `kernel_us` the start of a kernel.
    """

    def __init__(self, host: Mapping[str, Any]) -> None:
        """Know the host."""
        self._operator, self._tensor = float(host["operator"]), float(host["tensor"])
        self.kernel_us = float(host["kernel"])

    def operator_us(self, args: Any) -> float:
        """Return what an operator takes its host, before it starts a kernel."""
        lists = (each for each in args if isinstance(each, list | tuple) and each)
        listed = sum(len(each) for each in lists if hasattr(each[0], "untyped_storage"))
        return self._operator + self._tensor * listed


#: modes of torch.compile in which the kernels of a part are started at once, as a CUDA graph
GRAPHS = frozenset({"reduce-overhead", "max-autotune"})


class CompiledParts:
    """Which operators of a process are compiled, and the bytes of the kernel that they make."""

    def __init__(self, torch: Any, keep: Callable[[Iterable[Any]], None]) -> None:
        """Know no part yet; `keep` is told of tensors that have to be in memory."""
        self._torch, self._keep = torch, keep
        #: how many parts are being run, and of how many of these the kernels are one graph
        self._depth = self._graphs = 0
        #: sequence numbers of the nodes of each part that was run: where they begin, and end
        self._begins: list[int] = []
        self._ends: list[tuple[int, bool]] = []
        self._reads: dict[int, float] = {}
        self._made: dict[int, float] = {}
        self._written = 0.0
        #: what earlier kernels made and nothing has needed yet: address -> bytes
        self._pending: dict[int, float] = {}

    def install(self) -> None:
        """Take the place of `torch.compile`."""
        torch = self._torch

        def compile_(model: Any = None, *, mode: str | None = None, **more: Any) -> Any:
            if model is None:
                return functools.partial(compile_, mode=mode, **more)
            is_graph = mode in GRAPHS
            if not isinstance(model, torch.nn.Module):
                return self._part(model, is_graph=is_graph)
            model.forward = self._part(model.forward, is_graph=is_graph)
            return model

        torch.compile = compile_

    def _part(self, function: Callable[..., Any], *, is_graph: bool) -> Callable[..., Any]:
        number = self._torch._C._autograd._get_sequence_nr

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            is_outermost = not self._depth and not self._is_backward()
            begin = number()
            self._depth += 1
            self._graphs += is_graph
            try:
                result = function(*args, **kwargs)
                self._keep(tensors_among((result,)))
                return result
            finally:
                self._depth -= 1
                self._graphs -= is_graph
                if is_outermost and number() > begin:
                    self._begins.append(begin)
                    self._ends.append((number(), is_graph))

        return run

    def _is_backward(self) -> bool:
        return self._torch._C._current_autograd_node() is not None

    def has(self, func: Any) -> tuple[bool, bool]:
        """Return whether an operator is compiled, and whether it is a part of a graph."""
        if func.namespace != "aten" or func._schema.name.startswith("aten::_foreach"):
            return False, False  # FSDP's own, between the graphs
        if self._depth:
            return True, self._graphs > 0
        node = self._torch._C._current_autograd_node()
        at = -1 if node is None else bisect_right(self._begins, node._sequence_nr()) - 1
        is_inside = at >= 0 and node._sequence_nr() < self._ends[at][0]
        return is_inside, is_inside and self._ends[at][1]

    def fuse(self, read: Iterable[Any], made: Iterable[Any]) -> None:
        """Let an operator be a part of the kernel."""
        own = {each.untyped_storage()._cdata: count_element_bytes(each) for each in read}
        for at, size in own.items():
            if at in self._made:
                continue
            if at in self._pending and not self._is_backward():
                self._written += self._pending.pop(at)
            self._reads[at] = max(size, self._reads.get(at, 0.0))
        for each in made:
            at = each.untyped_storage()._cdata
            if at in own and at not in self._made:
                self._written += count_element_bytes(each)  # in its place
            else:
                self._made[at] = count_element_bytes(each)

    def end(self) -> float:
        """Return the bytes that the kernel moves, 0 where there is none; the next one begins."""
        moved = self._written + sum(self._reads.values())
        self._pending |= self._made
        self._reads, self._made, self._written = {}, {}, 0.0
        return moved

    def need(self, read: Iterable[Any], made: Iterable[Any]) -> float:
        """Return the bytes that have to be written first of what an operator reads."""
        moved = 0.0
        read = list(read)
        self._keep(read)
        for each in read:
            size = self._pending.pop(each.untyped_storage()._cdata, 0.0)
            moved += 2 * size if self._is_backward() else size
        for each in made:
            self._pending.pop(each.untyped_storage()._cdata, None)
        return moved
