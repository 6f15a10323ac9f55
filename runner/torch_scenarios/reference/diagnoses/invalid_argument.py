"""`invalid_argument`: a call that torch refuses.

What torch refuses is in `refuse` of each operation; the engine asks it.
"""

from __future__ import annotations

from torch_scenarios.errors import diagnosis

EXPLANATIONS = (
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
