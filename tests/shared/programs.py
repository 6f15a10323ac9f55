"""Small programs with the verdict known by construction, for the tests of the reference."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Program:
    """YAML without `version` and `expect`, what must come of it, and how it is called."""

    name: str
    text: str
    outcome: str = "completes"
    diagnoses: tuple[str, ...] = ()
    blocked: tuple[int, ...] = ()


TWO = "world_size: 2\ntensors: {x: [1, 2], y: [0, 0]}\nsteps:\n"
THREE = "world_size: 3\ntensors: {x: [1, 2], y: [0, 0]}\nsteps:\n"
GROUPS = (
    "world_size: 3\ngroups: {left: [0, 1], right: [1, 2], all: [0, 1, 2]}\n"
    "tensors: {x: [1, 2], y: [0, 0]}\nsteps:\n"
)

CORRECT = (
    Program(
        name="send_then_receive",
        text=TWO
        + "- {ranks: 0, send: {tensor: x, dst: 1}}\n- {ranks: 1, recv: {tensor: y, src: 0}}\n",
    ),
    Program(
        name="isend_before_recv_on_both",
        text=TWO
        + "- {isend: {tensor: x, dst: '1 - rank'}, as: s}\n"
        + "- {recv: {tensor: y, src: '1 - rank'}}\n- {wait: s}\n",
    ),
    Program(
        name="batch_on_both",
        text=TWO
        + "- {batch_isend_irecv: [{op: isend, tensor: x, peer: '1 - rank'}, "
        + "{op: irecv, tensor: y, peer: '1 - rank'}], as: b}\n- {wait: b}\n",
    ),
    Program(
        name="tags_out_of_order",
        text=TWO
        + "- {ranks: 0, isend: {tensor: x, dst: 1, tag: 1}, as: a}\n"
        + "- {ranks: 0, isend: {tensor: x, dst: 1, tag: 2}, as: b}\n"
        + "- {ranks: 1, recv: {tensor: y, src: 0, tag: 2}}\n"
        + "- {ranks: 1, recv: {tensor: y, src: 0, tag: 1}}\n- {wait: [a, b]}\n",
    ),
    Program(name="barrier", text=THREE + "- {barrier: {}}\n"),
    Program(
        name="groups_one_after_the_other",
        text=GROUPS
        + "- {all_reduce: {tensor: x, group: left}}\n- {all_reduce: {tensor: x, group: right}}\n",
    ),
    Program(
        name="asynchronous_work_waited_in_any_order",
        text=TWO
        + "- {all_reduce: {tensor: x, async_op: true}, as: a}\n"
        + "- {all_reduce: {tensor: y, async_op: true}, as: b}\n- {wait: b}\n- {wait: a}\n",
    ),
    Program(
        name="any_source_with_one_sender",
        text=TWO + "- {ranks: 0, send: {tensor: x, dst: 1}}\n- {ranks: 1, recv: {tensor: y}}\n",
    ),
    Program(
        name="new_group_called_by_all",
        text=THREE
        + "- {new_group: {name: g, group_ranks: [0, 2]}}\n- {all_reduce: {tensor: x, group: g}}\n",
    ),
    Program(
        name="reading_what_a_send_still_uses",
        text=TWO
        + "- {ranks: 0, isend: {tensor: x, dst: 1}, as: s}\n"
        + "- {ranks: 0, compute: {z: 'x + 1'}}\n"
        + "- {ranks: 1, recv: {tensor: y, src: 0}}\n- {wait: s}\n",
    ),
)

WRONG = (
    Program(
        name="both_send_first",
        text=TWO
        + "- {send: {tensor: x, dst: '1 - rank'}}\n- {recv: {tensor: y, src: '1 - rank'}}\n",
        outcome="deadlock",
        diagnoses=("circular_wait", "buffering_hazard"),
        blocked=(0, 1),
    ),
    Program(
        name="both_receive_first",
        text=TWO
        + "- {recv: {tensor: y, src: '1 - rank'}}\n- {send: {tensor: x, dst: '1 - rank'}}\n",
        outcome="deadlock",
        diagnoses=("circular_wait",),
        blocked=(0, 1),
    ),
    Program(
        name="ring_of_sends",
        text=THREE
        + "- {send: {tensor: x, dst: '(rank + 1) % 3'}}\n"
        + "- {recv: {tensor: y, src: '(rank - 1) % 3'}}\n",
        outcome="deadlock",
        diagnoses=("circular_wait", "buffering_hazard"),
        blocked=(0, 1, 2),
    ),
    Program(
        name="a_source_that_must_leave_its_broadcast_early",
        text=TWO
        + "- {ranks: 0, broadcast: {tensor: x, src: 0}}\n"
        + "- {ranks: 1, send: {tensor: y, dst: 0}}\n"
        + "- {ranks: 1, broadcast: {tensor: x, src: 0}}\n"
        + "- {ranks: 0, recv: {tensor: y, src: 1}}\n",
        diagnoses=("buffering_hazard",),
    ),
    Program(
        name="one_rank_skips_an_all_reduce",
        text=THREE + "- {ranks: [0, 1], all_reduce: {tensor: x}}\n",
        outcome="deadlock",
        diagnoses=("missing_participant",),
        blocked=(0, 1),
    ),
    Program(
        name="a_leaf_skips_a_broadcast",
        text=THREE + "- {ranks: [0, 1], broadcast: {tensor: x, src: 0}}\n",
        diagnoses=("missing_participant",),
    ),
    Program(
        name="the_source_skips_a_broadcast",
        text=THREE + "- {ranks: [1, 2], broadcast: {tensor: x, src: 0}}\n",
        outcome="deadlock",
        diagnoses=("missing_participant",),
        blocked=(1, 2),
    ),
    Program(
        name="uneven_number_of_steps",
        text=TWO + "- {for: {i: 'range(2 + rank)'}, steps: [{all_reduce: {tensor: x}}]}\n",
        outcome="deadlock",
        diagnoses=("missing_participant",),
        blocked=(1,),
    ),
    Program(
        name="all_reduce_against_barrier",
        text=TWO + "- {ranks: 0, all_reduce: {tensor: x}}\n- {ranks: 1, barrier: {}}\n",
        outcome="deadlock",
        diagnoses=("call_mismatch",),
        blocked=(0, 1),
    ),
    Program(
        name="swapped_collectives",
        text=TWO
        + "- {ranks: 0, all_reduce: {tensor: x}}\n- {barrier: {}}\n"
        + "- {ranks: 1, all_reduce: {tensor: x}}\n",
        outcome="deadlock",
        diagnoses=("call_mismatch",),
        blocked=(0, 1),
    ),
    Program(
        name="different_roots",
        text=TWO + "- {broadcast: {tensor: x, src: 'rank'}}\n",
        diagnoses=("root_mismatch",),
    ),
    Program(
        name="different_reduce_ops",
        text=TWO + "- {all_reduce: {tensor: x, op: {0: sum, else: max}}}\n",
        diagnoses=("op_mismatch",),
    ),
    Program(
        name="different_dtypes",
        text="world_size: 2\ntensors:\n  x: {0: [1, 2], 1: {value: [1, 2], dtype: int32}}\n"
        "steps:\n- {all_reduce: {tensor: x}}\n",
        diagnoses=("dtype_mismatch",),
    ),
    Program(
        name="different_shapes",
        text="world_size: 2\ntensors: {x: 'full(rank + 1, 1)'}\n"
        "steps:\n- {all_reduce: {tensor: x}}\n",
        diagnoses=("shape_mismatch",),
    ),
    Program(
        name="message_longer_than_the_buffer",
        text="world_size: 2\ntensors: {x: {0: [1, 2, 3], 1: [0]}}\nsteps:\n"
        "- {ranks: 0, send: {tensor: x, dst: 1}}\n- {ranks: 1, recv: {tensor: x, src: 0}}\n",
        diagnoses=("shape_mismatch",),
    ),
    Program(
        name="different_tags",
        text=TWO
        + "- {ranks: 0, send: {tensor: x, dst: 1, tag: 1}}\n"
        + "- {ranks: 1, recv: {tensor: y, src: 0, tag: 2}}\n",
        outcome="deadlock",
        diagnoses=("tag_mismatch",),
        blocked=(0, 1),
    ),
    Program(
        name="send_that_nobody_receives",
        text=TWO + "- {ranks: 0, send: {tensor: x, dst: 1}}\n",
        outcome="deadlock",
        diagnoses=("unmatched_send",),
        blocked=(0,),
    ),
    Program(
        name="isend_that_nobody_receives",
        text=TWO + "- {ranks: 0, isend: {tensor: x, dst: 1}, as: s}\n",
        diagnoses=("unmatched_send", "missing_wait"),
    ),
    Program(
        name="receive_that_nobody_answers",
        text=TWO + "- {ranks: 1, recv: {tensor: y, src: 0}}\n- {barrier: {}}\n",
        outcome="deadlock",
        diagnoses=("unmatched_recv",),
        blocked=(0, 1),
    ),
    Program(
        name="crossed_groups",
        text=GROUPS
        + "- {ranks: 0, all_reduce: {tensor: x, group: left}}\n"
        + "- {ranks: [0, 1, 2], all_reduce: {tensor: x, group: all}}\n"
        + "- {ranks: 1, all_reduce: {tensor: x, group: left}}\n",
        outcome="deadlock",
        diagnoses=("group_order",),
        blocked=(0, 1, 2),
    ),
    Program(
        name="a_member_does_not_create_its_group",
        text=THREE + "- {ranks: 0, new_group: {name: g, group_ranks: [0, 1]}}\n",
        outcome="deadlock",
        diagnoses=("missing_participant",),
        blocked=(0,),
    ),
    Program(
        name="only_the_members_create_a_group",
        text=THREE + "- {ranks: [0, 1], new_group: {name: g, group_ranks: [0, 1]}}\n",
        diagnoses=("group_creation",),
    ),
    Program(
        name="each_creates_its_own_group",
        text="world_size: 4\ntensors: {x: [1]}\nsteps:\n"
        "- {new_group: {name: g, group_ranks: '[rank - rank % 2, rank - rank % 2 + 1]'}}\n",
        diagnoses=("group_creation",),
    ),
    Program(
        name="two_senders_to_anyone",
        text="world_size: 3\ntensors: {x: 'full(1, rank)', y: [0]}\nsteps:\n"
        "- {ranks: [1, 2], send: {tensor: x, dst: 0}}\n"
        "- {ranks: 0, recv: {tensor: y}}\n- {ranks: 0, recv: {tensor: y}}\n"
        "- {ranks: 0, compute: {z: y}}\n",
        diagnoses=("message_race",),
    ),
    Program(
        name="a_receive_from_anyone_takes_the_wrong_message",
        text="world_size: 3\ntensors: {x: 'full(1, rank)', y: [0]}\nsteps:\n"
        "- {ranks: [1, 2], send: {tensor: x, dst: 0}}\n"
        "- {ranks: 0, recv: {tensor: y}}\n- {ranks: 0, recv: {tensor: y, src: 2}}\n",
        diagnoses=("message_race", "unmatched_send", "unmatched_recv"),
    ),
    Program(
        name="writing_what_a_send_still_uses",
        text=TWO
        + "- {ranks: 0, isend: {tensor: x, dst: 1}, as: s}\n"
        + "- {ranks: 0, compute: {x: 'x + 1'}}\n"
        + "- {ranks: 1, recv: {tensor: y, src: 0}}\n- {wait: s}\n",
        diagnoses=("buffer_race",),
    ),
    Program(
        name="reading_what_a_receive_still_fills",
        text=TWO
        + "- {ranks: 1, irecv: {tensor: y, src: 0}, as: r}\n"
        + "- {ranks: 1, compute: {z: 'y + 1'}}\n"
        + "- {ranks: 0, send: {tensor: x, dst: 1}}\n- {wait: r}\n",
        diagnoses=("buffer_race",),
    ),
    Program(
        name="one_tensor_in_two_operations",
        text=TWO
        + "- {all_reduce: {tensor: x, async_op: true}, as: a}\n"
        + "- {all_reduce: {tensor: x, async_op: true}, as: b}\n- {wait: [a, b]}\n",
        diagnoses=("buffer_race",),
    ),
    Program(
        name="work_that_nobody_waits_for",
        text=TWO + "- {all_reduce: {tensor: x, async_op: true}, as: w}\n",
        diagnoses=("missing_wait",),
    ),
    Program(
        name="reading_what_reduce_leaves_elsewhere",
        text=TWO + "- {reduce: {tensor: x, dst: 0}}\n- {all_reduce: {tensor: x}}\n",
        diagnoses=("undefined_read",),
    ),
    Program(
        name="sending_to_oneself",
        text=TWO + "- {ranks: 0, send: {tensor: x, dst: 0}}\n",
        outcome="error",
        diagnoses=("invalid_argument",),
    ),
    Program(
        name="a_source_outside_of_the_group",
        text=GROUPS + "- {broadcast: {tensor: x, src: 0, group: right}}\n",
        outcome="error",
        diagnoses=("invalid_argument",),
    ),
    Program(
        name="a_group_with_a_rank_outside_of_the_world",
        text="world_size: 2\ngroups: {g: [0, 5]}\ntensors: {x: [1]}\n"
        "steps:\n- {all_reduce: {tensor: x}}\n",
        outcome="error",
        diagnoses=("invalid_argument",),
    ),
)
