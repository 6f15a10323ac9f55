"""The diagnoses: what is wrong with a program, found without starting a process."""

from __future__ import annotations

from runner.explanations.entry import Explanation, diagnosis

_SENDS_FIRST = """\
world_size: 2
tensors:
  x: [1, 2, 3]
  y: [0, 0, 0]
steps:
  - ranks: 0
    send: {tensor: x, dst: 1}
  - ranks: 1
    send: {tensor: x, dst: 0}
  - ranks: 0
    recv: {tensor: y, src: 1}
  - ranks: 1
    recv: {tensor: y, src: 0}
"""

_IN_ORDER = """\
world_size: 2
tensors:
  x: [1, 2, 3]
  y: [0, 0, 0]
steps:
  - ranks: 0
    send: {tensor: x, dst: 1}
  - ranks: 1
    recv: {tensor: y, src: 0}
  - ranks: 1
    send: {tensor: x, dst: 0}
  - ranks: 0
    recv: {tensor: y, src: 1}
"""

DIAGNOSES: tuple[Explanation, ...] = (
    diagnosis(
        "circular_wait",
        "Ranks wait for each other in a ring, so that none of them can ever move.",
        "Each waits for what another would do only after it was served itself:\n\n"
        "    rank 0  send to 1 ──waits for recv──▶ rank 1\n"
        "    rank 1  send to 0 ──waits for recv──▶ rank 0",
        "break the ring: let one rank receive first, or start the messages asynchronously "
        "(`isend`, `irecv`, `batch_isend_irecv`) and wait for them afterwards.",
        _SENDS_FIRST
        + """\
expect:
  outcome: deadlock
  blocked: {0: send to 1, 1: send to 0}
  diagnosis: circular_wait
""",
        _IN_ORDER,
    ),
    diagnosis(
        "buffering_hazard",
        "The program finishes only where the backend buffers what is sent.",
        "`send` may wait until the receiver is there, and on Gloo it does at every size; NCCL may "
        "buffer small messages, so that the program passes there until the tensors grow. What "
        "becomes of it there, `scenario check --backend nccl` tells.",
        "do not rely on buffers: order the messages so that every send meets its receive.",
        _SENDS_FIRST
        + """\
expect:
  outcome: deadlock
  diagnosis: [circular_wait, buffering_hazard]
""",
        _IN_ORDER,
    ),
    diagnosis(
        "missing_participant",
        "A collective, or `new_group`, that a member of the group never reaches.",
        "A collective needs every member of its group; those who came wait until their timeout.",
        "let every member take the step, or make a group of those who do.",
        """\
world_size: 3
tensors:
  x: [1, 2]
steps:
  - ranks: [0, 1]
    all_reduce: {tensor: x}
expect:
  outcome: deadlock
  blocked: {0: all_reduce, 1: all_reduce}
  diagnosis: missing_participant
""",
        """\
world_size: 3
groups:
  two: [0, 1]
tensors:
  x: [1, 2]
steps:
  - all_reduce: {tensor: x, group: two}
""",
    ),
    diagnosis(
        "call_mismatch",
        "The n-th operations of a group's members differ in kind.",
        "Collectives have no names or tags: a group's operations match by their order alone, so "
        "that the first all_reduce of one rank meets the first barrier of another.",
        "let every member call the same operations of a group in the same order.",
        """\
world_size: 2
tensors:
  x: [1, 2]
steps:
  - ranks: 0
    all_reduce: {tensor: x}
  - ranks: 1
    barrier: {}
expect:
  outcome: deadlock
  diagnosis: call_mismatch
""",
        """\
world_size: 2
tensors:
  x: [1, 2]
steps:
  - all_reduce: {tensor: x}
  - barrier: {}
""",
    ),
    diagnosis(
        "root_mismatch",
        "Members of one operation name different roots (`src` or `dst`).",
        "A broadcast from 0 and a broadcast from 1 are the same operation to those who take part; "
        "each rank acts by its own argument, so that some send what nobody takes.",
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
        "No backend compares them; each rank reduces by its own, and the result is whatever the "
        "algorithm makes of it, in silence.",
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
