"""Kernels in a row, and the host that starts them: how long both take, and when the last one ends.

A host starts one kernel after the other, and runs ahead of a GPU that takes longer for each. What
matters of a row of kernels are three numbers: `us`, what they take together; `host_us`, what the
host takes to start them; and `end_us`, when the last one ends if host and GPU begin with the first
one at once. Two rows in a row have those of the sum of both::

    host   |1|2|3|4|5|6|
    GPU      |1 |2 |3|  |4|5| 6 |
                            end ^
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
