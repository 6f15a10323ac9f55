"""`undefined_read`: a program that relies on what an operation leaves undefined.

Found by :mod:`torch_scenarios.reference.buffers`, and by what an expectation reads.
"""

from __future__ import annotations

from torch_scenarios.errors import diagnosis

EXPLANATIONS = (
    diagnosis(
        "undefined_read",
        "The program, or an expectation, relies on a value that an operation leaves undefined.",
        "A `reduce` fills its destination only; elsewhere a backend may leave partial sums, or "
        "anything else. An undefined value is never equal to anything.",
        "use the value where it is defined, or an operation that defines it everywhere.",
        """\
world_size: 2
tensors:
  x: [1, 2]
steps:
  - reduce: {tensor: x, dst: 0}
  - compute: {y: "x + 1"}
expect:
  diagnosis: undefined_read
""",
        """\
world_size: 2
tensors:
  x: [1, 2]
steps:
  - all_reduce: {tensor: x}
  - compute: {y: "x + 1"}
    expect:
      y: [3, 5]
""",
    ),
)
