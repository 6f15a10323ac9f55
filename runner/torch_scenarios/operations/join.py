"""`join`: a rank has no more input, and makes the calls that the others still wait for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch_scenarios.expressions.values import Form
from torch_scenarios.operations.base import Caller, Entry, ProgramError
from torch_scenarios.operations.model import MODEL, ModelOperation, keep, model_in
from torch_scenarios.operations.train import heard


class Join(ModelOperation):
    """Leave `with net.join():`, in which a model is trained whose strategy says `join`.

    Until no rank trains any more, a rank that is here makes the calls of their steps, with zeros
    for gradients; then all take the weights of the last rank to end. Its arguments are those
    of the strategy: `DistributedDataParallel: {join: {divide_by_initial_world_size: false}}`.
    A rank that left the context by an exception has nothing more to leave.
    """

    name = "join"
    source = "torch.nn.parallel.DistributedDataParallel.join"
    modules = ("torch.distributed.algorithms.join",)
    params = (MODEL,)
    example = """\
world_size: 2
models:
  net:
    layers: [fc: {Linear: {in_features: 2, out_features: 1}}]
    loss: mse_loss
    optimizer: {SGD: {lr: 0.1}}
    parallel: [DistributedDataParallel: {join: {}}]
tensors:
  x: "random([4, 2], 1)"
  y: "random([4, 1], 2)"
steps:
  - train: {model: net, input: x, target: y, batch: world}
  - train: {model: net, input: "x[0:2]", target: "y[0:2]", batch: {group: world, sizes: [2, 0]}}
    ranks: 0
  - join: {model: net}
"""

    def group_of(self, caller: Caller, given: Mapping[str, Form]) -> str | None:
        """Return the group that trains the model."""
        name: str | None = model_in(given).where
        return name

    def introduces(self, given: Mapping[str, Form]) -> tuple[str, ...]:
        """The weights."""
        model = model_in(given)
        return tuple(f"{model.name}.{each}" for each in model.value_names)

    def parts(self, caller: Caller, entry: Entry) -> Any:
        """Make the calls of the steps that others take, and of the end."""
        return (yield from heard(entry["trainee"].join(), caller))

    def run(self, caller: Caller, entry: Entry) -> None:
        """Hold the weights; raise what torch raises where that ends training early."""
        if entry["result"].get("raises"):
            raise ProgramError(entry["result"]["raises"])
        keep(caller, entry["result"]["values"])

    def slack(self, entry: Entry) -> dict[str, Any]:
        """Return how far off rounding may have brought the weights."""
        return dict(entry["result"]["slack"])

    def take(self, torch: Any, mesh: Callable[[str], Any], caller: Caller, entry: Entry) -> None:
        """Let torch leave the context."""
        keep(caller, entry["trainee"].leave())
