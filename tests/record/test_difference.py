"""`scenario diff`: whose communication differs, where, on both sides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from handwritten_records import ALL_GATHER, ALL_REDUCE, BARRIER, LARGER, REDUCE_SCATTER, recorded
from jsonschema import Draft202012Validator

from torch_scenarios.cli import cli
from torch_scenarios.files import schema_file

SCHEMA = json.loads(schema_file("diff.schema.json").read_text(encoding="utf-8"))


def compared(a: Path, b: Path, *options: str) -> Result:
    return CliRunner().invoke(cli, ["diff", str(a), str(b), *options])


def as_json(a: Path, b: Path) -> dict[str, Any]:
    said = compared(a, b, "--json", "-")
    found: dict[str, Any] = json.loads(said.stdout)
    Draft202012Validator(SCHEMA).validate(found)
    assert said.exit_code == (0 if found["equal"] else 1)
    return found


STEP = (ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE, BARRIER)


def test_a_record_is_equal_to_itself_and_to_its_scenario(tmp_path: Path) -> None:
    a = recorded(tmp_path / "a", STEP, STEP)
    said = compared(a, a)
    assert said.exit_code == 0
    assert said.output == "equal: 2 ranks communicate the same way\n"
    yaml = tmp_path / "train_step.yaml"
    imported = CliRunner().invoke(cli, ["import", str(a), "--yaml", str(yaml)])
    assert imported.exit_code == 0, imported.output
    assert as_json(yaml, a)["equal"]
    assert as_json(a, yaml)["equal"]


def test_a_call_that_moved_is_told_with_its_rank_and_lines(tmp_path: Path) -> None:
    a = recorded(tmp_path / "a", STEP, (REDUCE_SCATTER, ALL_GATHER, ALL_REDUCE, BARRIER))
    b = recorded(tmp_path / "b", STEP, STEP)
    (found,) = as_json(a, b)["differences"]
    assert found["kind"] == "moved"
    assert found["ranks"] == [1]
    assert {found["a"]["place"], found["b"]["place"]} <= {"train.py:10", "train.py:11"}
    said = compared(a, b).output
    words = (
        "rank 1: all_gather_single (train.py:10) moved before reduce_scatter_single (train.py:11)"
    )
    assert said == f"{words}\n"


@pytest.mark.parametrize(
    ("calls", "kind", "words"),
    [
        (
            (ALL_GATHER, REDUCE_SCATTER, BARRIER),
            "removed",
            "all 2 ranks: no longer calls all_reduce float32[4] (train.py:12)",
        ),
        ((*STEP, (*BARRIER[:-1], 14)), "added", "all 2 ranks: now calls barrier (train.py:14)"),
        (
            (ALL_GATHER, REDUCE_SCATTER, LARGER, BARRIER),
            "changed",
            "all 2 ranks: all_reduce (train.py:12): float32[4] is now float32[5]",
        ),
    ],
)
def test_each_kind_of_difference_has_its_words(
    tmp_path: Path, calls: tuple[Any, ...], kind: str, words: str
) -> None:
    a, b = recorded(tmp_path / "a", STEP, STEP), recorded(tmp_path / "b", calls, calls)
    (found,) = as_json(a, b)["differences"]
    assert found["kind"] == kind
    assert found["ranks"] == [0, 1]
    assert words in compared(a, b).output


def test_a_rank_that_raises_is_one_difference(tmp_path: Path) -> None:
    a = recorded(tmp_path / "a", STEP, STEP)
    b = recorded(tmp_path / "b", STEP, STEP[:2])
    path = b / "rank-00001.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()[:-1]
    raised = json.dumps(["raise", "ValueError: no", [["/me/train.py", 14, "x"]], 900])
    path.write_text("\n".join([*lines, raised]) + "\n", encoding="utf-8")
    (found,) = as_json(a, b)["differences"]
    assert found["kind"] == "raised"
    assert found["ranks"] == [1]
    line = "rank 1: raises ValueError: no (train.py:14): it no longer makes "
    assert line in compared(a, b).output
    assert "rank 1: no longer raises ValueError: no" in compared(b, a).output


def test_what_all_ranks_do_is_told_of_all_ranks(tmp_path: Path) -> None:
    gather = ("allgather_", ALL_GATHER[1], [["float32", [4], 96, 16], ["float32", [4], 112, 16]])
    calls: tuple[Any, ...] = ((*gather, {}, 14), *STEP)
    a, b = recorded(tmp_path / "a", STEP, STEP), recorded(tmp_path / "b", calls, calls)
    said = compared(a, b).output
    assert said.splitlines() == [
        "all 2 ranks: now calls all_gather float32[4] -> 2 x float32[4] (train.py:14)",
    ]


LOOP = """\
world_size: 4
groups: {half: {size: 2}}
tensors: {x: ones(4), y: ones(8), g: ones(3), h: ones(3)}
steps:
  - for: {step: "range(3)"}
    steps:
      - all_gather_single: {output: y, input: "x[0:2]"}
      - all_reduce: {tensor: g}
      - {all_reduce: {tensor: h, group: half}}
  - barrier: {}
"""


BATCH = """\
world_size: 2
tensors: {x: ones(2), y: zeros(2)}
steps:
  - batch_isend_irecv:
      p2p_op_list:
        - {op: isend, tensor: x, peer: "1 - rank", tag: 3}
        - {op: irecv, tensor: y, peer: "1 - rank", tag: 3}
    as: both
  - wait: both
"""


def test_a_batch_is_told_by_its_messages(tmp_path: Path) -> None:
    a, b = tmp_path / "a.yaml", tmp_path / "b.yaml"
    a.write_text(BATCH, encoding="utf-8")
    b.write_text(BATCH.replace("tag: 3}\n    as", "tag: 4}\n    as"), encoding="utf-8")
    assert compared(a, a).exit_code == 0
    said = compared(a, b).output
    assert "op irecv tensor float32[2] peer 1 tag 3" in said
    assert "op irecv tensor float32[2] peer 1 tag 4" in said


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        pytest.param(
            "range(3)",
            "range(4)",
            "all 4 ranks: repeats all_gather_single (b.yaml:7) to all_reduce (b.yaml:9), "
            "3 calls, once more",
            id="one accumulation step more",
        ),
        pytest.param(
            "range(3)",
            "range(1 if rank == 2 else 3)",
            "rank 2: repeats all_gather_single (a.yaml:7) to all_reduce (a.yaml:9), "
            "3 calls, 2 times less",
            id="a loop ends early on one rank",
        ),
        pytest.param(
            "- all_reduce: {tensor: g}",
            '- {ranks: "rank != 2", all_reduce: {tensor: g}}',
            "rank 2: no longer calls all_reduce tensor float32[3] (a.yaml:8) (3 times)",
            id="one rank skips",
        ),
        pytest.param(
            "g: ones(3)",
            "g: {dtype: bfloat16, value: ones(3)}",
            "all 4 ranks: all_reduce (a.yaml:8, now b.yaml:8): "
            "tensor float32[3] is now tensor bfloat16[3] (3 times)",
            id="a dtype",
        ),
        pytest.param(
            "tensor: g}",
            "tensor: g, op: max}",
            "all 4 ranks: all_reduce (a.yaml:8, now b.yaml:8): op sum is now op max (3 times)",
            id="a reduction",
        ),
        pytest.param(
            "group: half}}",
            "group: world}}",
            "  ranks 0 and 1: all_reduce (a.yaml:9, now b.yaml:9): "
            "on [0, 1] is now on all ranks (3 times)",
            id="a group",
        ),
        pytest.param(
            "  - barrier: {}\n",
            "  - barrier: {}\n  - all_reduce: {tensor: y}\n  - barrier: {}\n",
            "all 4 ranks: now calls all_reduce (b.yaml:11) and barrier (b.yaml:12), 2 calls",
            id="two calls at the end",
        ),
        pytest.param(
            "  - barrier: {}\n",
            "",
            "all 4 ranks: no longer calls barrier (a.yaml:10)",
            id="no barrier at the end",
        ),
    ],
)
def test_what_a_change_does_is_one_line(tmp_path: Path, old: str, new: str, words: str) -> None:
    for name, text in (("a.yaml", LOOP), ("b.yaml", LOOP.replace(old, new))):
        (tmp_path / name).write_text(text, encoding="utf-8")
    a, b = tmp_path / "a.yaml", tmp_path / "b.yaml"
    lines = compared(a, b).output.splitlines()
    assert words in lines
    assert len(lines) == (3 if words.startswith(" ") else 1)
    as_json(a, b)


def test_turns_of_a_loop_are_told_as_calls_and_times(tmp_path: Path) -> None:
    a = recorded(tmp_path / "a", (*STEP[:3] * 2, BARRIER))
    b = recorded(tmp_path / "b", (*STEP[:3] * 4, BARRIER))
    (found,) = as_json(a, b)["differences"]
    assert (found["kind"], found["times"]) == ("repeated", 2)
    assert [each["place"] for each in found["calls"]] == [
        "train.py:10",
        "train.py:11",
        "train.py:12",
    ]
    assert as_json(b, a)["differences"][0]["times"] == -2


def test_ranks_that_differ_alike_are_one_difference_whatever_comes_after(tmp_path: Path) -> None:
    text = (
        "world_size: 4\ngroups:\n  mesh: {shape: [2, 2], dims: [dp, tp]}\n"
        "tensors: {x: ones(2), y: ones(3)}\nsteps:\n"
        "  - all_reduce: {tensor: x, group: mesh.dp}\n  - barrier: {group: mesh.tp}\n"
    )
    a, b = tmp_path / "a.yaml", tmp_path / "b.yaml"
    a.write_text(text, encoding="utf-8")
    b.write_text(text.replace("tensor: x", "tensor: y"), encoding="utf-8")
    assert [each["ranks"] for each in as_json(a, b)["differences"]] == [[0, 2], [1, 3]]


def test_models_are_compared_by_the_calls_of_their_training(tmp_path: Path) -> None:
    started = tmp_path / "a.yaml"
    done = CliRunner().invoke(cli, ["new", str(started), "--strategy", "ddp"])
    assert done.exit_code == 0, done.output
    assert compared(started, started).output == "equal: 2 ranks communicate the same way\n"
    text = started.read_text(encoding="utf-8")
    larger = tmp_path / "b.yaml"
    larger.write_text(
        text.replace("out_features: 8", "out_features: 9").replace(
            "in_features: 8", "in_features: 9"
        ),
        encoding="utf-8",
    )
    said = compared(started, larger)
    assert said.exit_code == 1
    assert "all_reduce" in said.output
    assert "array" not in said.output
    assert max(map(len, said.output.splitlines())) < 200


def test_worlds_of_other_sizes_differ(tmp_path: Path) -> None:
    a, b = recorded(tmp_path / "a", STEP, STEP), recorded(tmp_path / "b", STEP, STEP, STEP)
    said = compared(a, b)
    assert said.exit_code == 1
    assert said.output.startswith("the worlds differ: 2 ranks and 3 ranks")
    assert not as_json(a, b)["equal"]


def test_programs_that_hang_are_compared_to_their_ends(tmp_path: Path) -> None:
    a = recorded(tmp_path / "a", (BARRIER, ALL_REDUCE), (ALL_REDUCE, BARRIER))
    b = recorded(tmp_path / "b", (BARRIER, LARGER), (ALL_REDUCE, BARRIER))
    (found,) = as_json(a, b)["differences"]
    assert found["ranks"] == [0]
    assert found["position"] == 1


def test_a_wait_that_is_gone_is_told_whatever_its_work_is_called(tmp_path: Path) -> None:
    text = (
        "world_size: 2\ntensors: {x: ones(2)}\nsteps:\n"
        "  - all_reduce: {tensor: x, async_op: true}\n    as: WORK\n  - wait: WORK\n"
    )
    a, b, c = (tmp_path / name for name in ("a.yaml", "b.yaml", "c.yaml"))
    a.write_text(text, encoding="utf-8")
    b.write_text(text.replace("WORK", "other"), encoding="utf-8")
    c.write_text(text.replace("  - wait: WORK\n", ""), encoding="utf-8")
    assert as_json(a, b)["equal"]
    (found,) = as_json(a, c)["differences"]
    assert found["kind"] == "removed"
    assert found["a"]["call"] == "wait"


def test_what_is_no_program_is_refused(tmp_path: Path) -> None:
    a = recorded(tmp_path / "a", STEP)
    (tmp_path / "b").mkdir()
    assert compared(a, tmp_path / "b").exit_code == 2
    assert compared(a, tmp_path / "nothing").exit_code == 2
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("steps: 3\n", encoding="utf-8")
    assert compared(a, wrong).exit_code == 2
