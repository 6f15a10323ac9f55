"""`load`: a checkpoint that other ranks may have saved, read by the ranks of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch_scenarios.expressions.values import Form
from torch_scenarios.operations.base import Caller, Entry, RefusedError
from torch_scenarios.operations.model import keep, model_in
from torch_scenarios.operations.save import (
    CheckpointOperation,
    gather_values,
    learnt,
    scatter_values,
    unknown,
)


class Load(CheckpointOperation):
    """Load a checkpoint: each rank reads its own part of what other ranks, or fewer, have saved.

    The weights and the optimizer's state are then those of the model that was saved; the gradients
    stay what they are.
    """

    name = "load"
    source = "torch.distributed.checkpoint.load"
    example = """\
world_size: 2
groups: {mesh: {shape: [2], dims: [dp]}}
models:
  net:
    layers: [fc: {Linear: {in_features: 2, out_features: 3}}]
    loss: mse_loss
    optimizer: {AdamW: {lr: 0.1}}
    parallel: [fully_shard: {mesh: mesh.dp}]
  alone:
    layers: [fc: {Linear: {in_features: 2, out_features: 3}}]
    init: {fc.weight: "zeros([3, 2])"}
    loss: mse_loss
    optimizer: {AdamW: {lr: 0.1}}
tensors:
  x: "random([4, 2], 1)"
  y: "random([4, 3], 2)"
steps:
  - train: {model: net, input: x, target: y, batch: mesh.dp}
  - save: {model: net, checkpoint: first}
  - load: {model: alone, checkpoint: first}
  - train: {model: alone, input: x, target: y}
"""

    def introduces(self, given: Mapping[str, Form]) -> tuple[str, ...]:
        """The weights."""
        model = model_in(given)
        return tuple(f"{model.name}.{each}" for each in model.parameters)

    def evaluate(self, caller: Caller, given: Mapping[str, Form]) -> dict[str, Any]:
        """Evaluate the arguments, and find what this rank knows of the checkpoint."""
        arguments = super().evaluate(caller, given)
        arguments["known"] = caller.checkpoints.get(arguments["checkpoint"])
        arguments["caller"] = caller
        return arguments

    def parts(self, caller: Caller, entry: Entry) -> Any:
        """Gather what each rank reads, tell each what to read, tell all that it was.

        A rank that cannot read says so in its plan, and no rank raises before it has one.
        """
        members = entry["members"]
        mine = _unreadable(entry)
        plans = yield from gather_values(members, caller.rank, mine)
        reason = next(filter(None, plans or ()), None)
        # the analysis looks ahead of a rank that waits, without what the others have
        reason = (yield from scatter_values(members, caller.rank, reason)) or mine
        if reason is not None:
            return {"refused": reason}
        yield from learnt(members, "read")
        return entry["trainee"].read(entry["known"])

    def run(self, caller: Caller, entry: Entry) -> None:
        """Hold the weights; refuse what one of the ranks cannot read."""
        if entry["result"].get("refused"):
            raise RefusedError(entry["result"]["refused"])
        keep(caller, entry["result"]["values"])

    def slack(self, entry: Entry) -> dict[str, Any]:
        """Return how far off rounding may have brought the weights that were saved."""
        return dict(entry["result"]["slack"])

    def take(self, torch: Any, mesh: Callable[[str], Any], caller: Caller, entry: Entry) -> None:
        """Let torch read it."""
        keep(caller, entry["trainee"].restore(entry["checkpoint"], entry["members"]))


def _unreadable(entry: Entry) -> str | None:
    """Return why a rank cannot read: a checkpoint that is not there, or one of another model."""
    if entry["known"] is None:
        return unknown(entry["checkpoint"], entry["caller"])
    reason: str | None = entry["trainee"].unreadable(entry["known"])
    return reason
