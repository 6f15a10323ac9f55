"""`buffer_race`: a tensor that is touched while an asynchronous operation uses it.

Found by :mod:`torch_scenarios.reference.buffers`.
"""

from __future__ import annotations

from torch_scenarios.errors import diagnosis

EXPLANATIONS = (
    diagnosis(
        "buffer_race",
        "A tensor is touched while an asynchronous operation uses it.",
        "Between the start and the `wait`, the backend may read or write the tensor at any time.",
        "touch the tensor only after the `wait`, or give the operation a copy.",
        """\
world_size: 2
tensors:
  x: [1, 2]
steps:
  - all_reduce: {tensor: x, async_op: true}
    as: work
  - compute: {x: "x + 1"}
  - wait: work
expect:
  diagnosis: buffer_race
""",
        """\
world_size: 2
tensors:
  x: [1, 2]
steps:
  - all_reduce: {tensor: x, async_op: true}
    as: work
  - wait: work
  - compute: {x: "x + 1"}
    expect:
      x: [3, 5]
""",
    ),
)
