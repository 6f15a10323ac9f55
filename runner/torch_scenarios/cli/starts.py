"""What `scenario new` writes: a scenario to start from, one for each way to train.

Each is commented for a reader who sees the language for the first time, and passes as it is
written: a test checks and runs every one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class _Start(NamedTuple):
    """What differs from strategy to strategy; `batch` and `says` are lines as they are written.

    `parallel` is the list of strategies in torch's own names, `groups` the mesh that it works on,
    `says` what it communicates, where that is few calls.
    """

    ranks: int
    what: str
    parallel: str
    groups: str = ""
    batch: str = ""
    says: str = ""
    layers: str = """\
      - up: {Linear: {in_features: 4, out_features: 8}}
      - act: {ReLU: {}}
      - down: {Linear: {in_features: 8, out_features: 2}}
"""
    rows: str = "[8, 4]"
    wanted: str = "[8, 2]"


_MESH = "\ngroups:\n  mesh: {{shape: [{0}], dims: [{1}]}}\n"


_ROWS = "\n          # each member takes the rows that torch.chunk gives it\n          batch: {}"


_TEXT = """\
# Training as data: a small model, the strategy that trains it, and what must hold.
#   scenario check {file}          proves it; starts no process
#   scenario run {file}            trains with torch's own strategy on {ranks} processes
#   scenario show --lowered {file} prints its calls as steps
description: {what}
world_size: {ranks}
{groups}
tensors:
  # the whole batch, the same on every rank
  x: "random({rows}, 1)"
  y: "random({wanted}, 2)"

models:
  net:
    # layers of torch.nn by their names and with their arguments
    layers:
{layers}    loss: mse_loss
    optimizer: {{AdamW: {{lr: 0.01}}}}
    parallel:
{parallel}
steps:
  - for: {{i: "range(2)"}}
    steps:
      # every loss, gradient and weight is compared with what one process computes
      - train:
          model: net
          input: x
          target: y{batch}
{expect}"""


STARTS: Mapping[str, _Start] = {
    "ddp": _Start(
        ranks=2,
        what="Every rank has the whole model, and gradients are averaged bucket by bucket.",
        parallel="      - DistributedDataParallel: {bucket_cap_mb: 25}\n",
        batch=_ROWS.format("world"),
        says="[[all_reduce, float32, 58], [all_reduce, float32, 58]]",
    ),
    "zero1": _Start(
        ranks=2,
        what="As with ddp; each rank steps on its part of the parameters, and broadcasts these.",
        parallel="      - DistributedDataParallel: {}\n      - ZeroRedundancyOptimizer: {}\n",
        batch=_ROWS.format("world"),
    ),
    "fsdp2": _Start(
        ranks=2,
        what="Each rank has rows of every parameter, and gathers a unit where it is needed.",
        parallel="      - fully_shard: {mesh: mesh.dp, modules: [up, down]}\n",
        groups=_MESH.format(2, "dp"),
        batch=_ROWS.format("mesh.dp"),
    ),
    "hsdp": _Start(
        ranks=4,
        what="Parameters are sharded over one mesh dimension, and replicated over the other.",
        parallel="      - fully_shard: {mesh: mesh, modules: [up, down]}\n",
        groups=_MESH.format("2, 2", "replicate, shard"),
        batch=_ROWS.format("world"),
    ),
    "tp": _Start(
        ranks=2,
        what="Features of layers are cut, and one all_reduce follows each pair of layers.",
        parallel="""\
      - parallelize_module:
          device_mesh: mesh.tp
          parallelize_plan: {up: ColwiseParallel, down: RowwiseParallel}
""",
        groups=_MESH.format(2, "tp"),
        says="[[all_reduce, float32, 16], [all_reduce, float32, 16]]",
    ),
    "sp": _Start(
        ranks=2,
        what="As with tp, and between the pairs each rank has some positions of the sequence.",
        parallel="""\
      - parallelize_module:
          device_mesh: mesh.tp
          parallelize_plan:
            up: ColwiseParallel
            down: {RowwiseParallel: {output_layouts: Shard(1)}}
            norm: SequenceParallel
            head: {ColwiseParallel: {input_layouts: Shard(1), output_layouts: Replicate()}}
""",
        groups=_MESH.format(2, "tp"),
        layers="""\
      - up: {Linear: {in_features: 4, out_features: 8}}
      - act: {GELU: {}}
      - down: {Linear: {in_features: 8, out_features: 4}}
      - norm: {LayerNorm: {normalized_shape: 4}}
      - head: {Linear: {in_features: 4, out_features: 2}}
""",
        rows="[2, 4, 4]",
        wanted="[2, 4, 2]",
    ),
    "fsdp_tp": _Start(
        ranks=4,
        what="Features are cut over one mesh dimension, and their rows are sharded over the other.",
        parallel="""\
      - parallelize_module:
          device_mesh: mesh.tp
          parallelize_plan: {up: ColwiseParallel, down: RowwiseParallel}
      - fully_shard: {mesh: mesh.dp, modules: [up, down]}
""",
        groups=_MESH.format("2, 2", "dp, tp"),
        batch=_ROWS.format("mesh.dp"),
    ),
    "pipeline": _Start(
        ranks=2,
        what="Each rank has some layers, and the batch runs through them in parts.",
        parallel="""\
      - pipeline:
          mesh: mesh.pp
          stages: [[up, act], [down]]
          schedule: Schedule1F1B
          n_microbatches: 4
""",
        groups=_MESH.format(2, "pp"),
    ),
}


STARTER = """\
# A scenario: a small distributed program, and what each rank must hold.
#   scenario check {file}    proves the expectations; starts no process
#   scenario run {file}      runs it on a real backend and compares every rank
version: 1
description: >
  Say here what a reader should learn from it.
world_size: 4

# A number or a list is data; a string is an expression, computed on each rank.
parameters:
  width: 3                      # replace it with --set width=5

groups:
  even: "range(0, world_size, 2)"

# What each rank holds before step 1: rank 0 holds [1, 1, 1], rank 1 holds [2, 2, 2] ...
tensors:
  x: "full(width, rank + 1)"

# Each rank takes, in this order, the steps that select it.
steps:
  - name: sum inside the group
    all_reduce: {{tensor: x, op: sum, group: even}}
    expect:
      # Ranks 0 and 2 hold 1 + 3; the others took no part, so this step asks nothing of them.
      x: "full(width, 4)"

  - name: rank 0 tells everyone
    broadcast: {{tensor: x, src: 0}}

# What must hold in the end, on every rank.
expect:
  outcome: completes            # the default; or deadlock, error, crash
  x: "full(width, 4)"
"""


def starter(strategy: str, file: object) -> str:
    """Return a commented scenario of a strategy. Raises KeyError for one that is not there.

    `file` is the name under which it is written, for the commands in its first lines.
    """
    start = STARTS[strategy]
    expect = (
        f"\n# the calls of all steps: what is called, the dtype, the elements of the larger side\n"
        f"expect:\n  communicates:\n    net: {start.says}\n"
        if start.says
        else ""
    )
    return _TEXT.format(
        file=file,
        ranks=start.ranks,
        what=start.what,
        groups=start.groups,
        rows=start.rows,
        wanted=start.wanted,
        layers=start.layers,
        parallel=start.parallel,
        batch=start.batch,
        expect=expect,
    )
