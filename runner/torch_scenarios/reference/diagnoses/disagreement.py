"""`root_mismatch`, `op_mismatch`, `dtype_mismatch`, `shape_mismatch`: arguments that disagree.

Found where members meet: :mod:`torch_scenarios.operations` says what must agree (`agree`), the
engine compares it.
"""

from __future__ import annotations

from torch_scenarios.errors import diagnosis

EXPLANATIONS = (
    diagnosis(
        "root_mismatch",
        "Members of one operation name different roots (`src` or `dst`).",
        "A broadcast from 0 and a broadcast from 1 are the same operation to those who take part; "
        "each rank acts by its own argument, so that some send what no rank takes.",
        "state the same root everywhere; remember that `src` and `dst` count in the world.",
        """\
world_size: 2
tensors:
  x: "full(2, rank)"
steps:
  - broadcast: {tensor: x, src: {0: 0, 1: 1}}
expect:
  diagnosis: root_mismatch
  gloo: {outcome: completes}
""",
        """\
world_size: 2
tensors:
  x: "full(2, rank)"
steps:
  - broadcast: {tensor: x, src: 0}
expect:
  x: [0, 0]
""",
    ),
    diagnosis(
        "op_mismatch",
        "Members of one reduction state different reduce ops.",
        "No backend compares them; each rank reduces by its own, and the result depends on the "
        "algorithm, in silence.",
        "state the same `op` on every rank.",
        """\
world_size: 2
tensors:
  x: "full(2, rank + 1)"
steps:
  - all_reduce: {tensor: x, op: {0: sum, 1: max}}
expect:
  diagnosis: op_mismatch
""",
        """\
world_size: 2
tensors:
  x: "full(2, rank + 1)"
steps:
  - all_reduce: {tensor: x, op: sum}
expect:
  x: [3, 3]
""",
    ),
    diagnosis(
        "dtype_mismatch",
        "Members of one operation, or the two ends of a message, hold different dtypes.",
        "Only bytes travel: where the widths agree they are read as the other dtype in silence, "
        "where they differ a process may be aborted.",
        "give the tensor the same dtype on every rank.",
        """\
world_size: 2
tensors:
  x: {0: {dtype: float32, value: [1, 1]}, 1: {dtype: int32, value: [1, 1]}}
steps:
  - broadcast: {tensor: x, src: 0}
expect:
  diagnosis: dtype_mismatch
""",
        """\
world_size: 2
tensors:
  x: {dtype: float32, value: [1, 1]}
steps:
  - broadcast: {tensor: x, src: 0}
""",
    ),
    diagnosis(
        "shape_mismatch",
        "Members of one operation hold different shapes, or the two ends of a message different "
        "numbers of elements: a message has no shape.",
        "A backend may leave the tail of a longer buffer as it was, wait for what never comes, or "
        "abort the process that gets more than it has room for.",
        "give the tensor the same shape on every rank.",
        """\
world_size: 2
tensors:
  x: {0: [1, 2], 1: [0, 0, 0, 0]}
steps:
  - broadcast: {tensor: x, src: 0}
expect:
  diagnosis: shape_mismatch
""",
        """\
world_size: 2
tensors:
  x: {0: [1, 2], 1: [0, 0]}
steps:
  - broadcast: {tensor: x, src: 0}
expect:
  x: [1, 2]
""",
    ),
)
