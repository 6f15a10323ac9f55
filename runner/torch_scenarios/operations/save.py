"""`save`: a model and its optimizer's state, written as a distributed checkpoint by its ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch_scenarios.expressions.params import Param
from torch_scenarios.expressions.values import Form
from torch_scenarios.operations.base import Caller, Entry, Refusal
from torch_scenarios.operations.model import MODEL, ModelOperation
from torch_scenarios.operations.placement import call
from torch_scenarios.vocabulary import WORLD

CHECKPOINT = Param(
    name="checkpoint",
    kind="checkpoint",
    required=True,
    description="Its name: it lies in a folder of the run's own, and never elsewhere.",
)

#: what torch needs for a checkpoint, with what its first one imports by itself
IMPORTS = (
    "torch.distributed.checkpoint",
    "torch.distributed.checkpoint.state_dict",
    "fsspec",
)


class CheckpointOperation(ModelOperation):
    """What saves and loads checkpoints. The ranks that hold a part of a model make its calls."""

    modules = IMPORTS
    checkpoints = True
    params = (MODEL, CHECKPOINT)

    def group_of(self, caller: Caller, given: Mapping[str, Form]) -> str | None:
        """Return the world: its ranks are those that have a part."""
        return None

    def evaluate(self, caller: Caller, given: Mapping[str, Form]) -> dict[str, Any]:
        """Evaluate the arguments, and find who has a part of the model."""
        arguments = super().evaluate(caller, given)
        arguments["members"] = caller.members(arguments["model"].name)
        return arguments

    def refuse(self, entry: Entry) -> Refusal | None:
        """Refuse nothing."""
        return None


class Save(CheckpointOperation):
    """Save what the ranks of a model hold: its weights, and the state of its optimizer.

    Every rank of the world takes the step: those without a part of the model wait in the barrier at
    its end, so that a rank that loads afterwards finds the checkpoint whole.
    """

    name = "save"
    source = "torch.distributed.checkpoint.save"
    example = """\
world_size: 2
groups: {mesh: {shape: [2], dims: [dp]}}
models:
  net:
    layers: [fc: {Linear: {in_features: 2, out_features: 3}}]
    loss: mse_loss
    optimizer: {AdamW: {lr: 0.1}}
    parallel: [fully_shard: {mesh: mesh.dp}]
tensors:
  x: "random([4, 2], 1)"
  y: "random([4, 3], 2)"
steps:
  - train: {model: net, input: x, target: y, batch: mesh.dp}
  - save: {model: net, checkpoint: first}
  - train: {model: net, input: x, target: y, batch: mesh.dp}
  - load: {model: net, checkpoint: first}
"""

    def concerns(self, caller: Caller, given: Mapping[str, Form]) -> bool:
        """Every rank of the world waits until it is written."""
        return True

    def parts(self, caller: Caller, entry: Entry) -> Any:
        """Consolidate, gather what each rank writes, tell each, gather what was written."""
        members, world = entry["members"], caller.group(WORLD)
        whole = None
        if entry["trainee"] is not None:
            yield from entry["trainee"].consolidate()
            pieces = yield from gather_values(members, caller.rank, entry["trainee"].make_shard())
            yield from scatter_values(members, caller.rank)
            yield from gather_values(members, caller.rank, "written")
            # the analysis looks ahead of a rank that waits, without what the others have
            here = pieces is not None and all(each is not None for each in pieces)
            made = entry["trainee"].join_pieces(entry["model"], pieces) if here else None
            whole = yield from broadcast_value(members, caller.rank, made)
        if members.size < world.size:
            whole = yield from broadcast_value(world, caller.rank, whole, root=members.ranks[0])
            yield call("barrier", world)
        return whole

    def run(self, caller: Caller, entry: Entry) -> None:
        """Know what the checkpoint holds."""
        caller.checkpoints[entry["checkpoint"]] = entry["result"]

    def take(self, torch: Any, mesh: Callable[[str], Any], caller: Caller, entry: Entry) -> None:
        """Let torch write it."""
        if entry["trainee"] is not None:
            entry["trainee"].save(entry["checkpoint"], entry["members"])
        if entry["members"].size < caller.group(WORLD).size:
            torch.distributed.barrier()
        caller.checkpoints[entry["checkpoint"]] = True


# The exchanges of plans, as torch makes them: through the first member.


def gather_values(group: Any, rank: int, mine: Any) -> Any:
    """Give the first member what each has; it alone gets a list."""
    found = [None] * group.size if rank == group.ranks[0] else None
    yield call("gather_object", group, obj=mine, object_gather_list=found, group_dst=0)
    return found


def scatter_values(group: Any, rank: int, value: Any = None) -> Any:
    """Let the first member give each its own, `value` to all; return it."""
    given = [value] * group.size if rank == group.ranks[0] else None
    found = [None]
    yield call(
        "scatter_object_list",
        group,
        scatter_object_output_list=found,
        scatter_object_input_list=given,
        group_src=0,
    )
    return found[0]


def broadcast_value(group: Any, rank: int, value: Any, root: int | None = None) -> Any:
    """Let one member, the first, tell all the same; return it."""
    root = group.ranks[0] if root is None else root
    listed = [value if rank == root else None]
    yield call("broadcast_object_list", group, object_list=listed, src=root)
    return listed[0]


def learnt(group: Any, mine: Any) -> Any:
    """Let each member tell all."""
    yield call("all_gather_object", group, object_list=[None] * group.size, obj=mine)


def checkpoint_words(names: Iterable[str]) -> str:
    """Return the names of checkpoints, as a sentence has them."""
    return ", ".join(f"`{each}`" for each in sorted(names)) or "none"


def unknown(name: str, caller: Caller) -> str:
    """Return why a checkpoint is not there: this rank does not know it to be written."""
    known = checkpoint_words(caller.checkpoints)
    return f"no checkpoint `{name}` is saved before: there is {known}"
