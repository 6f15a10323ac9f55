"""`scenario diff`: whose communication differs, where, on both sides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from handwritten_records import ALL_GATHER, ALL_REDUCE, BARRIER, LARGER, REDUCE_SCATTER, recorded
from jsonschema import Draft202012Validator

from runner.cli import cli
from runner.files import schema_file

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
    assert said.output == "equal: 2 ranks communicate alike\n"
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
    assert said.startswith("rank 1 communicates in another way\n")
    assert "is moved" in said
    assert "train.py:10" in said
    assert "train.py:11" in said


@pytest.mark.parametrize(
    ("calls", "kind", "words"),
    [
        ((ALL_GATHER, REDUCE_SCATTER, BARRIER), "removed", "train.py:12) is no longer called"),
        ((*STEP, BARRIER), "added", "barrier (train.py:13) is new"),
        (
            (ALL_GATHER, REDUCE_SCATTER, LARGER, BARRIER),
            "changed",
            "all_reduce float32[4] (train.py:12) is now all_reduce float32[5] (train.py:12)",
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
        "all 2 ranks communicate in another way",
        "  all 2 ranks: all_gather float32[4] -> 2 x float32[4] (train.py:14) is new",
    ]


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
    assert compared(started, started).output == "equal: 2 ranks communicate alike\n"
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
