"""`train`: one step of a model, as its strategy trains it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from msgspec import Struct

from torch_scenarios.expressions.params import Param, tensor
from torch_scenarios.expressions.values import Form
from torch_scenarios.operations.base import (
    Caller,
    Entry,
    Group,
    Part,
    ProgramError,
    Refusal,
)
from torch_scenarios.operations.checks import refuse_argument, refuse_none
from torch_scenarios.operations.model import MODEL, ModelOperation, keep, model_in


class Train(ModelOperation):
    """Train a model of `models:` for one step: forward, loss, backward, optimizer.

    Afterwards `net.loss`, `net.up.weight` and `net.up.weight.grad` hold what is on this rank: a
    part where the strategy cuts it. Each of them is compared with what one process would have.
    """

    name = "train"
    source = "torch.optim.Optimizer.step"
    modules = ()
    params = (
        MODEL,
        tensor("input", "The input; with `batch` that of the whole batch, on every rank."),
        tensor("target", "The target, as the input."),
        Param(
            name="batch",
            kind="batch",
            description="Whose members share the rows: a group, {group: g, sizes: [8, 4]}, or"
            " {DistributedSampler: {group: g}}; every rank takes all of them if left out.",
        ),
        Param(
            name="zero_grad",
            kind="flag",
            default=True,
            description="Forget the gradients before the forward.",
        ),
        Param(name="step", kind="flag", default=True, description="Let the optimizer step."),
        Param(
            name="sync",
            kind="flag",
            default=True,
            description="False is `no_sync`: gradients stay those of the rank.",
        ),
        Param(
            name="skip",
            kind="labels",
            description="Layers that the rank passes by, by their labels: a mistake.",
        ),
        Param(
            name="clip_grad_norm_",
            aliases=("clip_grad_norm",),
            kind="clip",
            description="The norm to which gradients are clipped; {max: 1.0, over: local} by the"
            " norm that each rank has alone: a mistake.",
        ),
    )
    example = """\
world_size: 2
models:
  net:
    layers: [fc: {Linear: {in_features: 2, out_features: 1}}]
    loss: mse_loss
    optimizer: {SGD: {lr: 0.1}}
    parallel: [DistributedDataParallel: {}]
tensors:
  x: "random([4, 2], 1)"
  y: "random([4, 1], 2)"
steps:
  - train: {model: net, input: x, target: y, batch: world}
"""

    def group_of(self, caller: Caller, given: Mapping[str, Form]) -> str | None:
        """Return the group, or the first dimension of the mesh, that trains the model."""
        where = model_in(given).where
        groups = caller.mesh(where) if where else ()
        return groups[0].name if groups else where

    def introduces(self, given: Mapping[str, Form]) -> tuple[str, ...]:
        """The loss, the gradients and the weights."""
        return tuple(model_in(given).values)

    def refuse(self, entry: Entry) -> Refusal | None:
        """Refuse no input, and what the strategy cannot do; a step that is taken is not refused."""
        if entry.arguments.get("result") is not None:
            return None
        for name in ("input", "target"):
            if entry[name] is None:
                return refuse_none(name)
        reason = entry["trainee"].unfit(entry) or entry["trainee"].explain_refusal(entry)
        return None if reason is None else refuse_argument(reason)

    def parts(self, caller: Caller, entry: Entry) -> Any:
        """Make the calls of the strategy."""
        return (yield from heard(entry["trainee"].train(entry.arguments), caller))

    def run(self, caller: Caller, entry: Entry) -> None:
        """Hold what came of it; raise what torch raises where a rank has no more input."""
        if entry["result"].get("raises"):
            raise ProgramError(entry["result"]["raises"])
        keep(caller, entry["result"]["values"])

    def slack(self, entry: Entry) -> dict[str, Any]:
        """Return how far off rounding may bring another implementation."""
        return dict(entry["result"]["slack"])

    def unequal(self, entry: Entry) -> Any:
        """Return the first value that is not what one process has, or None."""
        return entry["result"]["unequal"]

    def notes(self, entry: Entry) -> tuple[str, ...]:
        """Return which values one process does not know as closely as rounding has it."""
        return tuple(entry["result"]["notes"])

    def take(self, torch: Any, mesh: Callable[[str], Any], caller: Caller, entry: Entry) -> None:
        """Let torch train."""
        keep(caller, entry["trainee"].train(entry.arguments))


# What a strategy says, call by call, for who wants the calls as steps of their own.


class StrategyCall(Struct, frozen=True, kw_only=True):
    """One call on one rank: what it carried, before and after.

    `tensors` are the arrays themselves: those of a call that returns at once change later. `more`
    has what else it says, as an author writes it; `waits` the handles of a `wait`. `caller` is the
    rank in one run: another run of the program has others.
    """

    caller: Caller
    rank: int
    name: str
    group: Group
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    tensors: Mapping[str, Any]
    more: Mapping[str, Any]
    handle: str | None
    waits: tuple[str, ...]

    @property
    def collective(self) -> bool:
        """Whether the members of its group make it together."""
        return self.handle is None and not self.waits

    @property
    def receives(self) -> bool:
        """Whether its tensor is what another rank sends."""
        return "src" in self.more


_LISTENER: ContextVar[list[StrategyCall] | None] = ContextVar("calls of strategies", default=None)


@contextmanager
def listen() -> Iterator[list[StrategyCall]]:
    """Return the list of the calls that strategies make meanwhile, rank by rank in their order."""
    calls: list[StrategyCall] = []
    token = _LISTENER.set(calls)
    try:
        yield calls
    finally:
        _LISTENER.reset(token)


def heard(made: Any, caller: Caller) -> Any:
    """Pass a strategy's calls on; where a listener is set, note each with what it carries."""
    calls = _LISTENER.get()
    if calls is None:
        return (yield from made)
    try:
        part: Part = next(made)
        while True:
            tensors = {
                name: value for name, value in part.arguments.items() if hasattr(value, "dtype")
            }
            before = {name: value.copy() for name, value in tensors.items()}
            answer = yield part
            more = {}
            for name in ("op", "group_src", "group_dst"):
                value = part.arguments.get(name)
                if value is not None and name == "op":
                    more["op"] = value
                elif value is not None:
                    more[name.removeprefix("group_")] = part.group.ranks[value]
            calls.append(
                StrategyCall(
                    caller=caller,
                    rank=caller.rank,
                    name=part.operation.name,
                    group=part.group,
                    before=before,
                    after={name: value.copy() for name, value in tensors.items()},
                    tensors=tensors,
                    more=more,
                    handle=part.handle,
                    waits=tuple(part.arguments.get("handles", ())),
                )
            )
            part = made.send(answer)
    except StopIteration as end:
        return end.value
