"""JAX on CPU devices: a process for each rank, which `jax.distributed` connects."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from importlib.util import find_spec

from torch_scenarios.errors import StartError, UnsupportedError
from torch_scenarios.execution.frameworks.launch import (
    FrameworkLaunch,
    FrameworkLauncher,
    require_words,
    tell_end,
)
from torch_scenarios.expressions.values import Constant, PerRank
from torch_scenarios.model.plan import Plan
from torch_scenarios.model.scenario import steps_of
from torch_scenarios.model.trace import Trace
from torch_scenarios.operations.base import Operation

#: whose section of `expect` holds, and what a result calls it
CARRIER = "jax"
#: what a rank finds in its environment: its number, how many there are, where rank 0 serves
PLACE = "SCENARIO_JAX_PLACE"
#: the rooted calls: JAX has one program for all ranks, which have the same result
ROOTED = frozenset({"gather", "reduce", "scatter"})
#: the reductions that `jax.lax` has
REDUCTIONS = frozenset({"sum", "avg", "min", "max"})


class JaxLaunch(FrameworkLaunch):
    """A process for each rank.

    Each has several CPU devices, for XLA tells the calls of two groups apart by their devices
    alone.
    """

    framework = "JAX"

    def _start(self) -> None:
        if find_spec("jax") is None:
            message = "no rank can start on JAX: jax is not installed (`pip install jax` has it)"
            raise StartError(message)
        address = f"127.0.0.1:{_find_port()}"
        for rank in range(self.size):
            command = [sys.executable, "-P", "-m", "torch_scenarios.worker.jax"]
            self._open(command, {PLACE: f"{rank} {self.size} {address}"})

    def _find_deaths(self) -> dict[int, str]:
        """Return how ranks ended that did; JAX's service ends the others soon after."""
        codes = {rank: process.poll() for rank, process in enumerate(self._processes)}
        return {rank: tell_end(code) for rank, code in codes.items() if code is not None}


def _find_port() -> int:
    """Return a port of this machine that is free now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class JaxLauncher(FrameworkLauncher):
    """Runs plans on ranks of JAX, each a process with CPU devices of its own.

    `jax.lax` has collectives that all members call together (`psum`, `all_gather`), and
    permutations in the place of messages.
    """

    carrier = CARRIER
    launch = JaxLaunch

    def _require(self, plan: Plan, predicted: Trace) -> None:
        super()._require(plan, predicted)
        require_words(plan, predicted, "JAX", "JAX's service ends all others then")
        if predicted.needs is not None:  # the table of calls asks for each word, and hears of each
            for step in steps_of(plan.scenario.steps):
                if step.operation is not None:
                    require_call(step.operation, step.arguments.get("op"))

    def _run(self, plan: Plan, predicted: Trace) -> Trace:
        observed = super()._run(plan, predicted)
        if any(rank.ending == "blocked" for rank in observed.ranks):
            self._stop()  # a call that hangs keeps its thread, and its process with it
        return observed


def require_call(operation: Operation, op: object) -> None:
    """Raise UnsupportedError where `jax.lax` has no word for a call, or its reduction."""
    name = operation.name
    if name in ROOTED:
        message = f"`{name}` gives one rank what the others lack: JAX has no word for that"
        raise UnsupportedError(message)
    for word in _find_reductions(op):
        if word not in REDUCTIONS:
            message = f"JAX has no word for the reduce op `{word}`"
            raise UnsupportedError(message)
        if name.startswith("reduce_scatter") and word != "sum":
            message = f"JAX has no word for `{name}` by `{word}`: it has `psum_scatter` alone"
            raise UnsupportedError(message)


def _find_reductions(form: object) -> Iterator[object]:
    """Yield the reduce ops that a file writes out for a call, of all ranks."""
    if isinstance(form, Constant):
        yield form.value
    elif isinstance(form, PerRank):
        for each in (*(value for _, value in form.branches), form.otherwise):
            yield from _find_reductions(each)
