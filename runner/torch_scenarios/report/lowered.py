"""A case whose models are lowered: the same calls as steps of their own, with what each carries.

The text is a scenario that passes by itself. It has the values that each call took and gave in the
prediction, as data, and none of the models.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from torch_scenarios.limits import Limits
from torch_scenarios.model.groups import plan
from torch_scenarios.model.scenario import Scenario
from torch_scenarios.operations.base import Caller
from torch_scenarios.operations.train import StrategyCall, listen
from torch_scenarios.reference import simulate

#: arguments that are tensors of a call, in the order in which they are written
TENSORS = ("output", "input", "tensor")

Values: TypeAlias = Mapping[int, Any]


def lower(scenario: Scenario, limits: Limits) -> str | None:
    """Return the text of the lowered case; None where no model is trained.

    Raises ScenarioError where the case has no prediction, ValueError where it does not complete.

    A model under DistributedDataParallel becomes a file of `all_reduce` steps with the gradients of
    this case as data: what the strategy communicates can be read, changed and run without torch's
    wrapper.
    """
    with listen() as calls:
        predicted = simulate(plan(scenario, limits=limits), limits=limits)
    if predicted.outcome != "completes":
        message = f"{scenario.case} is predicted as {predicted.outcome}: only what ends is lowered"
        raise ValueError(message)
    if not calls:
        return None
    writer = _Writer(scenario.world_size)
    for members in _order_calls(calls, scenario.world_size):
        writer.add(members)
    return writer.text(scenario)


def _order_calls(
    told: Iterable[StrategyCall], world_size: int
) -> Iterator[dict[int, StrategyCall]]:
    """Yield the calls of the first run in an order that every rank has, a group's together.

    Each rank has its calls in its own order. A collective is taken when it is the next one of all
    members of its group, a message when it is its rank's next: as a rank could make them.
    """
    left: dict[int, deque[StrategyCall]] = defaultdict(deque)
    first: dict[int, Caller] = {}
    for each in told:
        if first.setdefault(each.rank, each.caller) is each.caller:
            left[each.rank].append(each)
    while any(left.values()):
        rank = next(rank for rank in range(world_size) if left[rank] and _has_met(left, rank))
        each = left[rank][0]
        ranks = each.group.ranks if each.collective else (rank,)
        yield {member: left[member].popleft() for member in ranks}


def _has_met(left: Mapping[int, deque[StrategyCall]], rank: int) -> bool:
    """Whether the next call of a rank is that of all members of its group."""
    each = left[rank][0]
    if not each.collective:
        return True
    heads = [left[member][0] if left[member] else None for member in each.group.ranks]
    return all(
        head is not None and head.name == each.name and head.group.ranks == each.group.ranks
        for head in heads
    )


class _Writer:
    """The parts of the text, as they are found."""

    def __init__(self, world_size: int) -> None:
        """Begin with nothing."""
        self._world = tuple(range(world_size))
        self._groups: dict[tuple[int, ...], str] = {}
        self._tensors: list[str] = []
        self._steps: list[str] = []
        self._buffers: dict[tuple[int, str], tuple[str, StrategyCall]] = {}
        self._handles: dict[tuple[int, str], str] = {}

    def add(self, members: Mapping[int, StrategyCall]) -> None:
        """Add one step that these ranks take."""
        first = next(iter(members.values()))
        ranks = tuple(members)
        if first.waits:
            self._wait(ranks[0], first)
            return
        number = len(self._steps)
        arguments, expected = self._write_carried(members, number)
        arguments += [f"{name}: {value}" for name, value in first.more.items()]
        if first.collective and ranks != self._world:
            arguments.append(f"group: {self._group(ranks)}")
        step = [f"{first.name}: {{{', '.join(arguments)}}}"]
        if first.handle is not None:
            handle = f"h{number}"
            self._handles[ranks[0], first.handle] = handle
            step.append(f"as: {handle}")
        if not first.collective:
            step.insert(0, f"ranks: {ranks[0]}")
        if expected:
            step.append(f"expect: {{{', '.join(expected)}}}")
        self._steps.append("\n".join(step))

    def _write_carried(
        self, members: Mapping[int, StrategyCall], number: int
    ) -> tuple[list[str], list[str]]:
        """Return the tensors that a call takes, and what it gives, as they are written."""
        first = next(iter(members.values()))
        arguments: list[str] = []
        expected: list[str] = []
        for role in (each for each in TENSORS if each in first.before):
            name = f"t{number}" if role == "tensor" else f"{role}{number}"
            arguments.append(f"{role}: {name}")
            before = {rank: each.before[role] for rank, each in members.items()}
            self._tensors.append(f"  {name}: {_write_ranks(before)}")
            after = {rank: each.after[role] for rank, each in members.items()}
            if first.collective and role != "input":
                expected.append(f"{name}: {_write_ranks(after)}")
            if not first.collective and first.handle is not None:
                self._buffers[first.rank, first.handle] = (name, first)
        return arguments, expected

    def _wait(self, rank: int, told: StrategyCall) -> None:
        handles = told.waits
        names = [self._handles.pop((rank, each)) for each in handles]
        step = [f"ranks: {rank}", f"wait: [{', '.join(names)}]"]
        received = [self._buffers.pop((rank, each)) for each in handles]
        expected = [
            f"{name}: {_data(each.tensors['tensor'])}" for name, each in received if each.receives
        ]
        if expected:
            step.append(f"expect: {{{', '.join(expected)}}}")
        self._steps.append("\n".join(step))

    def _group(self, ranks: tuple[int, ...]) -> str:
        return self._groups.setdefault(ranks, "g" + "_".join(map(str, ranks)))

    def text(self, scenario: Scenario) -> str:
        """Return the whole."""
        lines = [
            f"name: {scenario.name}_lowered",
            "description: >",
            f"  What {scenario.case} says, call by call, with the values that it carries.",
            f"world_size: {scenario.world_size}",
        ]
        if self._groups:
            lines.append("groups:")
            lines += [f"  {name}: {list(ranks)}" for ranks, name in self._groups.items()]
        lines += ["tensors:", *self._tensors, "steps:"]
        for step in self._steps:
            first, *rest = step.splitlines()
            lines += [f"  - {first}", *(f"    {each}" for each in rest)]
        return "\n".join(lines) + "\n"


def _write_ranks(values: Values) -> str:
    """Return one value where all ranks have it, else one for each rank."""
    written = {rank: _data(value) for rank, value in values.items()}
    if len(set(written.values())) == 1:
        return next(iter(written.values()))
    return "{" + ", ".join(f"{rank}: {text}" for rank, text in written.items()) + "}"


def _data(value: Any) -> str:
    """Return an array as YAML: a nested list, with its dtype where that is not the default."""
    array = np.asarray(value)
    text = _write_nested(array)
    dtype = str(array.dtype)
    return text if dtype == "float32" and array.size else f"{{dtype: {dtype}, value: {text}}}"


def _write_nested(array: Any) -> str:
    if array.ndim:
        return "[" + ", ".join(map(_write_nested, array)) + "]"
    found = float(array)
    if array.dtype.kind in "iu":
        return str(int(array))
    if not np.isfinite(found):
        return ".nan" if np.isnan(found) else (".inf" if found > 0 else "-.inf")
    text = str(np.float32(found))
    return text if "." in text or "e" not in text else text.replace("e", ".0e")
