"""Two more diagnoses: what a call may not be given, and what it does not give."""

from __future__ import annotations

from runner.explanations.entry import Explanation, diagnosis

CALLS: tuple[Explanation, ...] = (
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
    diagnosis(
        "invalid_argument",
        "A call that torch itself would refuse.",
        "A rank outside the group, a message to oneself, a split that does not add up: the call "
        "raises at once, before anything is communicated. The use of a destroyed group is one, "
        "too, even where a backend still carries it out. (`src` and `dst` count in the world, "
        "`group_src` and `group_dst` inside the group.)",
        "correct the argument; to show the refusal, state it with `raises`.",
        """\
world_size: 2
groups:
  one: [1]
tensors:
  x: [1, 2]
steps:
  - broadcast: {tensor: x, src: 0, group: one}
    expect:
      raises: invalid_argument
expect:
  diagnosis: invalid_argument
""",
        """\
world_size: 2
groups:
  one: [1]
tensors:
  x: [1, 2]
steps:
  - broadcast: {tensor: x, src: 1, group: one}
""",
    ),
)
