"""One cause, one finding: what follows from a fault is a note of it, and no finding of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from judging import checked

if TYPE_CHECKING:
    from pathlib import Path

#: what is wrong -> what the analysis calls it, and a program with it
WRONG = {
    "a wrong peer": (
        {"unmatched_send", "unmatched_recv"},
        """\
world_size: 3
tensors: {x: [1], y: [0]}
steps:
  - {ranks: 0, send: {tensor: x, dst: 2}}
  - {ranks: 1, recv: {tensor: y, src: 0}}
""",
    ),
    "a wrong source": (
        {"unmatched_send", "unmatched_recv"},
        """\
world_size: 3
tensors: {x: [1], y: [0]}
steps:
  - {ranks: 0, send: {tensor: x, dst: 1}}
  - {ranks: 1, recv: {tensor: y, src: 2}}
""",
    ),
    "a ring in which every rank names the wrong neighbour": (
        {"unmatched_send", "unmatched_recv"},
        """\
world_size: 3
tensors: {x: [1], y: [0]}
steps:
  - isend: {tensor: x, dst: "(rank + 1) % 3"}
    as: sent
  - recv: {tensor: y, src: "(rank + 1) % 3"}
  - wait: sent
""",
    ),
    "a rank that does not come": (
        {"missing_participant"},
        """\
world_size: 4
tensors: {x: [1]}
steps:
  - {ranks: "rank < 3", all_reduce: {tensor: x}}
  - all_reduce: {tensor: x}
    expect: {x: [12]}
""",
    ),
    "a wrong root": (
        {"root_mismatch"},
        """\
world_size: 3
tensors: {x: "full(2, rank)"}
steps:
  - broadcast: {tensor: x, src: {0: 0, else: 1}}
    expect: {x: [0, 0]}
expect: {x: [0, 0]}
""",
    ),
    "wrong sizes": (
        {"shape_mismatch"},
        """\
world_size: 2
tensors: {x: "full(rank + 2, 1)"}
steps:
  - all_reduce: {tensor: x}
    expect: {x: [2, 2]}
  - compute: {y: "x + 1"}
    expect: {y: [3, 3]}
""",
    ),
    "wrong splits": (
        {"invalid_argument", "missing_participant"},
        """\
world_size: 2
tensors: {i: "arange(4)", o: "zeros(4)"}
steps:
  - all_to_all_single:
      input: i
      output: o
      input_split_sizes: {0: [1, 3], 1: [2, 2]}
      output_split_sizes: {0: [1, 2], 1: [1, 3]}
    expect: {o: [0, 1, 2, 3]}
""",
    ),
    "a tensor that one rank lacks": (
        {"invalid_argument", "missing_participant"},
        """\
world_size: 2
tensors: {x: {0: [1]}}
steps:
  - all_reduce: {tensor: x}
    expect: {x: [1]}
""",
    ),
    "a tensor of a batch that one rank lacks": (
        {"invalid_argument", "unmatched_send", "unmatched_recv"},
        """\
world_size: 2
tensors: {x: {0: [1]}, y: [0]}
steps:
  - batch_isend_irecv:
      p2p_op_list:
        - {op: isend, tensor: x, peer: "1 - rank"}
        - {op: irecv, tensor: y, peer: "1 - rank"}
    as: work
  - wait: work
expect: {y: [1]}
""",
    ),
    "what is undefined, read on and on": (
        {"undefined_read"},
        """\
world_size: 3
tensors: {x: [1, 2]}
steps:
  - reduce: {tensor: x, dst: 0}
  - compute: {y: "x + 1"}
  - compute: {z: "y * 2"}
  - all_reduce: {tensor: z}
  - compute: {w: "z - 1"}
expect: {w: [1, 2]}
""",
    ),
    "what is undefined, read in a loop": (
        {"undefined_read"},
        """\
world_size: 3
tensors: {x: [1, 2], s: [0, 0]}
steps:
  - for: {i: "range(3)"}
    steps:
      - reduce: {tensor: x, dst: 0}
      - compute: {s: "s + x"}
""",
    ),
    "what is undefined, stated on and on": (
        {"undefined_read"},
        """\
world_size: 3
tensors: {x: [1, 2]}
steps:
  - reduce: {tensor: x, dst: 0}
    expect: {x: [3, 6]}
  - barrier: {}
    expect: {x: [3, 6]}
expect: {x: [3, 6]}
""",
    ),
    "a wait that comes too late": (
        {"buffer_race"},
        """\
world_size: 2
tensors: {x: [1, 2]}
steps:
  - all_reduce: {tensor: x, async_op: true}
    as: work
  - compute: {y: "x * 2"}
  - compute: {x: "x + 1"}
  - wait: work
expect: {x: [2, 4], y: [2, 4]}
""",
    ),
    "messages in any order": (
        {"message_race"},
        """\
world_size: 3
tensors: {x: "full(1, rank)", y: [0], z: [0]}
steps:
  - {ranks: [1, 2], send: {tensor: x, dst: 0}}
  - {ranks: 0, recv: {tensor: y}}
  - {ranks: 0, recv: {tensor: z}}
expect: {y: {0: [1]}, z: {0: [2]}}
""",
    ),
    "groups in crossed order": (
        {"group_order"},
        """\
world_size: 2
groups: {a: [0, 1], b: [0, 1]}
tensors: {x: [1], y: [1]}
steps:
  - {ranks: 0, all_reduce: {tensor: x, group: a}}
  - all_reduce: {tensor: y, group: b}
  - {ranks: 1, all_reduce: {tensor: x, group: a}}
expect: {x: [2], y: [2]}
""",
    ),
    "two tags": (
        {"tag_mismatch"},
        """\
world_size: 2
tensors: {x: [1], y: [0]}
steps:
  - {ranks: 0, send: {tensor: x, dst: 1, tag: 3}}
  - {ranks: 1, recv: {tensor: y, src: 0, tag: 4}}
expect: {y: [1]}
""",
    ),
    "two operations": (
        {"call_mismatch"},
        """\
world_size: 2
tensors: {x: [1]}
steps:
  - {ranks: 0, all_reduce: {tensor: x}}
  - {ranks: 1, broadcast: {tensor: x, src: 0}}
  - barrier: {}
expect: {x: [2]}
""",
    ),
    "both send first": (
        {"circular_wait", "buffering_hazard"},
        """\
world_size: 2
tensors: {x: [1], y: [0]}
steps:
  - send: {tensor: x, dst: "1 - rank"}
  - recv: {tensor: y, src: "1 - rank"}
expect: {y: [1]}
""",
    ),
    "a loop that one rank leaves early": (
        {"missing_participant"},
        """\
world_size: 2
tensors: {x: [1]}
steps:
  - for: {i: "range(3 + rank)"}
    steps:
      - all_reduce: {tensor: x}
expect: {x: [16]}
""",
    ),
    "a receive that is too short": (
        {"shape_mismatch"},
        """\
world_size: 2
tensors: {x: "zeros(4)", y: "zeros(2)"}
steps:
  - {ranks: 0, send: {tensor: x, dst: 1}}
  - ranks: 1
    recv: {tensor: y, src: 0}
    expect: {y: [0, 0]}
expect: {y: {1: [0, 0]}}
""",
    ),
    "a message waited for twice": (
        {"double_wait"},
        """\
world_size: 2
tensors: {x: [1]}
steps:
  - {ranks: 0, isend: {tensor: x, dst: 1}, as: h}
  - {ranks: 1, irecv: {tensor: x, src: 0}, as: h}
  - wait: h
  - wait: h
""",
    ),
    "a group that one rank does not create": (
        {"group_creation"},
        """\
world_size: 3
tensors: {x: [1]}
steps:
  - {ranks: [0, 1], new_group: {name: g, group_ranks: [0, 1]}}
  - all_reduce: {tensor: x, group: g}
""",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_one_cause_is_one_finding_and_every_name_is_kept(what: str, tmp_path: Path) -> None:
    names, text = WRONG[what]
    verdict = checked(text, tmp_path)
    assert [finding.title for finding in verdict.findings] == [verdict.findings[0].title]
    assert verdict.predicted is not None
    assert {each.name for each in verdict.predicted.diagnoses} == names


def test_two_causes_are_two_findings(tmp_path: Path) -> None:
    text = """\
world_size: 3
tensors: {x: [1], y: [1]}
steps:
  - reduce: {tensor: x, dst: 0}
  - reduce: {tensor: y, dst: 1}
  - compute: {a: "x + 1"}
  - compute: {b: "y + 1"}
"""
    verdict = checked(text, tmp_path)
    assert [finding.kind for finding in verdict.findings] == ["undefined_read"] * 2


def test_to_state_one_end_of_a_misdirected_message_is_enough(tmp_path: Path) -> None:
    _, text = WRONG["a wrong peer"]
    for name in ("unmatched_send", "unmatched_recv"):
        stated = f"{text}expect: {{outcome: deadlock, diagnosis: {name}}}\n"
        assert checked(stated, tmp_path).findings == ()
