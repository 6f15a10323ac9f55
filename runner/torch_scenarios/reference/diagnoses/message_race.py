"""`message_race`: a receive from anyone, or calls of functions, whose orders end differently.

Found by :mod:`torch_scenarios.reference.schedules`, which tries every order.
"""

from __future__ import annotations

from torch_scenarios.errors import diagnosis

EXPLANATIONS = (
    diagnosis(
        "message_race",
        "Two orders in which messages or calls arrive end differently.",
        "A `recv` without `src` takes the message that is there first; two senders may win on "
        "different days. It is a race where the outcome, or a value at the end, depends on that. "
        "What the last message leaves in the buffer of such a receive is not a race where nothing "
        "reads or states it afterwards; and values within the tolerance of their dtype are equal. "
        "A function that another rank calls runs next to the steps of its rank, at any time from "
        "the arrival of the call on: it is a race where its order with a step, or with another "
        "function, shows in the end.",
        "name the source, let a barrier order calls and steps, or make the result independent of "
        "the order of arrival.",
        """\
world_size: 3
tensors:
  x: "full(2, rank)"
steps:
  - ranks: [1, 2]
    send: {tensor: x, dst: 0}
  - ranks: 0
    recv: {tensor: x}
  - ranks: 0
    compute: {first: "x"}
  - ranks: 0
    recv: {tensor: x}
expect:
  diagnosis: message_race
""",
        """\
world_size: 3
tensors:
  x: "full(2, rank)"
steps:
  - ranks: [1, 2]
    send: {tensor: x, dst: 0}
  - ranks: 0
    recv: {tensor: x, src: 1}
  - ranks: 0
    recv: {tensor: x, src: 2}
    expect:
      x: [2, 2]
""",
    ),
)
