"""More diagnoses: messages, groups, time and memory."""

from __future__ import annotations

from runner.explanations.entry import Explanation, diagnosis

HAZARDS: tuple[Explanation, ...] = (
    diagnosis(
        "tag_mismatch",
        "A message and the receive that waits for it have different tags.",
        "A receive takes only a message with its own tag: the two would meet, but for the tag. "
        "NCCL knows no tags: `scenario check --backend nccl` tells what becomes of it there.",
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
    diagnosis(
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
    diagnosis(
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
    diagnosis(
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
    diagnosis(
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
    diagnosis(
        "message_race",
        "After a receive from anyone two orders of arrival end differently.",
        "A `recv` without `src` takes whatever message is there first; two senders may win on "
        "different days. It is a race where the outcome, or a value at the end, depends on that. "
        "The buffer of such a receive is none, where nothing reads or states afterwards what the "
        "last message left there; and values within the tolerance of their dtype are equal.",
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
    diagnosis(
        "missing_wait",
        "An asynchronous operation that is never waited for.",
        "Nothing says when it is complete, nor whether it failed; no backend complains. A handle "
        "lives as a variable of a script: a step without `as` drops it at once, a name given anew "
        "drops the one before, and the end of the program every one. On Gloo a message whose "
        "handle is dropped before its peer comes is taken back, and the peer waits for ever. To "
        "drop the work of a collective changes nothing.",
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
