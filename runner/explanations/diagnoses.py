"""The diagnoses: what is wrong with a program, found without starting a process."""

from __future__ import annotations

from runner.explanations.entry import Explanation


def _diagnosis(code: str, what: str, why: str, fix: str, example: str, fixed: str) -> Explanation:
    return Explanation(
        code=code, sort="diagnosis", what=what, why=why, fix=fix, example=example, fixed=fixed
    )


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
    _diagnosis(
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
    _diagnosis(
        "buffering_hazard",
        "The program finishes only where the backend buffers what is sent.",
        "`send` may wait until the receiver is there, and on Gloo it does at every size; NCCL may "
        "buffer small messages, so that the program passes there until the tensors grow.",
        "do not rely on buffers: order the messages so that every send meets its receive.",
        _SENDS_FIRST
        + """\
expect:
  outcome: deadlock
  diagnosis: [circular_wait, buffering_hazard]
""",
        _IN_ORDER,
    ),
    _diagnosis(
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
    _diagnosis(
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
    _diagnosis(
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
    _diagnosis(
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
    _diagnosis(
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
    _diagnosis(
        "shape_mismatch",
        "Members of one operation, or the two ends of a message, hold different shapes.",
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
    _diagnosis(
        "tag_mismatch",
        "A message and the receive that waits for it have different tags.",
        "A receive takes only a message with its own tag: the two would meet, but for the tag.",
        "use the same `tag` at both ends, or none at all.",
        """\
world_size: 2
tensors:
  x: [1, 2]
steps:
  - ranks: 0
    send: {tensor: x, dst: 1, tag: 7}
  - ranks: 1
    recv: {tensor: x, src: 0, tag: 8}
expect:
  outcome: deadlock
  diagnosis: tag_mismatch
""",
        """\
world_size: 2
tensors:
  x: [1, 2]
steps:
  - ranks: 0
    send: {tensor: x, dst: 1, tag: 7}
  - ranks: 1
    recv: {tensor: x, src: 0, tag: 7}
""",
    ),
    _diagnosis(
        "unmatched_send",
        "A message that no one ever takes.",
        "`send` may wait for its receiver; an `isend` that nobody receives is reported by no "
        "backend at all.",
        "let the destination receive once for each message, or do not send it.",
        """\
world_size: 2
tensors:
  x: [1, 2]
steps:
  - ranks: 0
    send: {tensor: x, dst: 1}
expect:
  outcome: deadlock
  diagnosis: unmatched_send
""",
        """\
world_size: 2
tensors:
  x: [1, 2]
steps:
  - ranks: 0
    send: {tensor: x, dst: 1}
  - ranks: 1
    recv: {tensor: x, src: 0}
""",
    ),
    _diagnosis(
        "unmatched_recv",
        "A receive for which no message ever comes.",
        "The receiver waits until its timeout; the rank that should send may have ended long ago.",
        "let the source send once for each receive, or do not receive.",
        """\
world_size: 2
tensors:
  x: [1, 2]
steps:
  - ranks: 1
    recv: {tensor: x, src: 0}
expect:
  outcome: deadlock
  blocked: {1: recv from 0}
  diagnosis: unmatched_recv
""",
        """\
world_size: 2
tensors:
  x: [1, 2]
steps:
  - ranks: 0
    send: {tensor: x, dst: 1}
  - ranks: 1
    recv: {tensor: x, src: 0}
""",
    ),
    _diagnosis(
        "group_order",
        "Members enter the operations of two groups in crossed order.",
        "Each of two ranks waits in one group for the other, which waits in the other group:\n\n"
        "    rank 0  all_reduce on a ──waits for──▶ rank 1\n"
        "    rank 1  all_reduce on b ──waits for──▶ rank 0",
        "let all members of overlapping groups enter their operations in one common order.",
        """\
world_size: 2
groups:
  a: [0, 1]
  b: [0, 1]
tensors:
  x: [1, 2]
steps:
  - ranks: 0
    all_reduce: {tensor: x, group: a}
  - all_reduce: {tensor: x, group: b}
  - ranks: 1
    all_reduce: {tensor: x, group: a}
expect:
  outcome: deadlock
  diagnosis: group_order
""",
        """\
world_size: 2
groups:
  a: [0, 1]
  b: [0, 1]
tensors:
  x: [1, 2]
steps:
  - all_reduce: {tensor: x, group: a}
  - all_reduce: {tensor: x, group: b}
""",
    ),
    _diagnosis(
        "group_creation",
        "Ranks disagree on the groups that they create, or on their order.",
        "`new_group` is itself a collective of the whole world: every rank must call it with the "
        "same ranks in the same order, members or not.",
        "let every rank make the same calls of `new_group`, also for groups that it is not in.",
        """\
world_size: 2
steps:
  - new_group: {name: g, group_ranks: {0: [0, 1], 1: [1]}}
expect:
  outcome: deadlock
  diagnosis: group_creation
""",
        """\
world_size: 2
steps:
  - new_group: {name: g, group_ranks: [0, 1]}
""",
    ),
    _diagnosis(
        "message_race",
        "A receive from anyone whose result depends on timing.",
        "A `recv` without `src` takes whatever message is there first; two senders may win on "
        "different days.",
        "name the source, or make the result independent of the order of arrival.",
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
    _diagnosis(
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
    _diagnosis(
        "missing_wait",
        "An asynchronous operation that is never waited for.",
        "Nothing says when it is complete, nor whether it failed; no backend complains.",
        "`wait` for every handle before its tensors are used, at the latest at the end.",
        """\
world_size: 2
tensors:
  x: [1, 2]
steps:
  - all_reduce: {tensor: x, async_op: true}
    as: work
expect:
  diagnosis: missing_wait
""",
        """\
world_size: 2
tensors:
  x: [1, 2]
steps:
  - all_reduce: {tensor: x, async_op: true}
    as: work
  - wait: work
    expect:
      x: [2, 4]
""",
    ),
    _diagnosis(
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
    _diagnosis(
        "invalid_argument",
        "A call that torch itself would refuse.",
        "A rank outside the group, a message to oneself, a split that does not add up: the call "
        "raises at once, before anything is communicated. (`src` and `dst` count in the world, "
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
