"""`double_wait`: the work of a message that is waited for twice. Found by the engine."""

from __future__ import annotations

from torch_scenarios.errors import diagnosis

EXPLANATIONS = (
    diagnosis(
        "double_wait",
        "A message's work that is waited for twice.",
        "The second `wait` returns at once on some backends. On Gloo it blocks until the timeout, "
        "because the message that it waits for is over. That of a collective returns.",
        "wait once for each message, or let the name hold another work before.",
        """\
world_size: 2
tensors:
  x: [1, 2]
steps:
  - ranks: 0
    isend: {tensor: x, dst: 1}
    as: h
  - ranks: 1
    recv: {tensor: x, src: 0}
  - wait: h
  - wait: h
expect:
  outcome: [completes, deadlock]
  diagnosis: double_wait
""",
        """\
world_size: 2
tensors:
  x: [1, 2]
steps:
  - ranks: 0
    isend: {tensor: x, dst: 1}
    as: h
  - ranks: 1
    recv: {tensor: x, src: 0}
  - wait: h
""",
    ),
)
