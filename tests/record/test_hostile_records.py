"""Records that are torn, flipped, hostile or of two launches: an error or a doubt."""

from __future__ import annotations

import json
import os
import pickle
import random
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result
from handwritten_records import ALL_GATHER, ALL_REDUCE, BARRIER, REDUCE_SCATTER, recorded
from sampling import sampled

from torch_scenarios.cli import cli
from torch_scenarios.errors import ScenarioError
from torch_scenarios.record.analysis import judge_records
from torch_scenarios.record.format import RecordedWait, read
from torch_scenarios.record.values.format.event import VERSION
from torch_scenarios.record.values.format.record import read_values
from torch_scenarios.record.values.invariants import judge_values
from torch_scenarios.record.values.roles import find_roles

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

STEP = (ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE, BARRIER)
STEERING = set(map(chr, (*range(9), *range(11, 32), *range(127, 160), *range(0x202A, 0x202F))))


def imported(folder: Path, *options: str) -> Result:
    said = CliRunner().invoke(cli, ["import", str(folder), *options])
    assert said.exception is None or isinstance(said.exception, SystemExit), said.exception
    assert not STEERING & set(said.output), said.output
    return said


# ---------------------------------------------------------------------- torn, and flipped


def test_a_record_that_is_torn_anywhere_is_one_that_ends_early(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "a", STEP, STEP)
    path = folder / "rank-00000.jsonl"
    whole = path.read_bytes()
    calls = 0
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        records = read(folder)
        now = len(records[0].calls) if 0 in records else 0
        assert now >= calls
        calls = now
        assert 0 not in records or records[0].truncated
        if size % 29 == 0:
            said = imported(folder)
            assert said.exit_code == 3, said.output
            assert said.output.startswith("INCONCLUSIVE")
    assert calls == len(STEP)


def test_a_flipped_bit_is_refused_or_read_as_another_record(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "a", STEP, STEP)
    path = folder / "rank-00000.jsonl"
    whole = path.read_bytes()
    chance = random.Random(13)  # noqa: S311 -- no secret
    refused: list[str] = []
    for _ in range(400):
        broken = bytearray(whole)
        broken[chance.randrange(len(broken))] ^= 1 << chance.randrange(8)
        path.write_bytes(broken)
        try:
            records = read(folder)
            judge_records(records, folder / "scenario.yaml", script="train.py")
        except ScenarioError as error:
            refused += [each.code for each in error.problems]
    assert len(refused) > 200
    assert set(refused) <= {"bad_record", "newer_record"}


# ---------------------------------------------------------------------- hostile

PLACE = ["s", 0, "", [["/me/train.py", 7, "x"]]]
GROUP = ["g", 0, "0", [0, 1], "default_pg", "gloo"]
TENSOR = ["float32", [4], 64, 16]
MANY = ["float32", [4], 64, 16, 10**9]
AWAITED = ["allreduce_", 0, 0, 1, "py", [TENSOR], [], {"op": "sum"}, 1]


def of_rank(folder: Path, rank: int, *lines: object, **about: object) -> None:
    header = {"scenario_record": 1, "rank": rank, "world_size": 2, "mode": "live", "cwd": "/me"}
    text = "".join(f"{json.dumps(each)}\n" for each in ({**header, **about}, *lines))
    folder.mkdir(exist_ok=True)
    (folder / f"rank-{rank:05d}.jsonl").write_text(text, encoding="utf-8")


def call(operation: str, ins: Sequence[Any], outs: Sequence[Any], **more: object) -> list[Any]:
    return ["c", 0, operation, 0, 0, 10, 1, "py", ins, outs, more]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([call("allgather_", [TENSOR], [MANY])], "1000000000 times"),
        ([call("allreduce_", [["float32", [-4], 64, 16]], [], op="sum")], "-4 is not a count"),
        ([call("allreduce_", [["float32", [10**30], 64, 16]], [])], "is not a count"),
        ([call("allreduce_", [["float32", [1 << 40, 1 << 40], 1, 1]], [])], "is not a count"),
        ([call("allreduce_", [["float32", [1] * 999, 64, 16]], [])], "999 dimensions"),
        ([call("allreduce_", [], [])], "allreduce_ has no tensor"),
        ([call("allgather_into_tensor_coalesced_", [TENSOR] * 2, [TENSOR])], "2 tensors in"),
        ([call("send", [TENSOR], [], peer=-(10**40), tag=0)], "is not a count"),
        ([call("send", [TENSOR], [], peer=1, tag=10**40)], "is not a count"),
        ([call("recv_any_source_", [], [TENSOR], tag=0), ["p", 0, 55]], "line 5"),
        ([["g", 1, "", [0, 99], "", ""]], "rank 99 is in a group"),
        ([["g", 1, "", [0, 0], "", ""]], "or one twice"),
        ([["r", 5, 1]], "line 4"),
        ([["x"], 3, {}], "line 4"),
        ([["finish"]], "line 4"),
        ([["c", 0, 9, 10]], "line 4"),
        ([["k", [], *AWAITED]], "line 4"),
        ([["k", 0, "allreduce_", 0, 0, 1, "py", [], [], {}, 1]], "allreduce_ has no tensor"),
        ([["k", 0, *AWAITED], ["c", -1, 0, 10]], "-1 is not a count"),
    ],
)
def test_what_no_program_does_is_refused(tmp_path: Path, lines: list[Any], words: str) -> None:
    for rank in range(2):
        of_rank(tmp_path, rank, PLACE, GROUP, *lines)
    said = imported(tmp_path)
    assert said.exit_code == 2, said.output
    assert "error[bad_record]" in said.output
    assert words in " ".join(said.output.split())


def test_a_root_beyond_the_group_is_what_a_program_can_pass(tmp_path: Path) -> None:
    for rank in range(2):
        of_rank(tmp_path, rank, PLACE, GROUP, call("broadcast_", [TENSOR], [], root=7))
    said = imported(tmp_path)
    assert said.exit_code == 1, said.output
    assert "invalid_argument: the root of a collective is a rank that does not exist" in said.output
    assert "rank 1 names rank 7 as the root of its broadcast (" in said.output


def test_a_header_without_a_rank_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rank-00000.jsonl").write_text('{"scenario_record": 1}\n', encoding="utf-8")
    assert "error[bad_record]" in imported(tmp_path).output


def test_words_steer_no_terminal_and_open_no_file(tmp_path: Path) -> None:
    steering = "\x1b[31m\x9b2J\u202e\x07\x7f"
    secret = tmp_path / "secret.py"
    secret.write_text("the secret\n", encoding="utf-8")
    paths = [f"/me/../..{secret}", str(secret), f"/me/{steering}.py"]
    frames = [[path, 1, f"x{steering}"] for path in paths]
    folder = tmp_path / "record"
    for rank in range(2):
        places = [["s", at, steering, [frame]] for at, frame in enumerate(frames)]
        calls = [
            each
            for at in range(3)
            for each in (
                ["c", at, "allreduce_", 0, at, 1, 1, "py", [TENSOR], [], {"op": "sum"}],
                ["r", at, 2],
            )
        ]
        error = ["raise", f"Error{steering}", frames[::-1], 9]
        of_rank(folder, rank, *places, GROUP, *calls, error, argv=[f"train{steering}.py"])
    assert imported(folder).exit_code == 1
    page = tmp_path / "page.html"
    shown = CliRunner().invoke(cli, ["show", str(folder), "--html", str(page)])
    assert not STEERING & set(shown.output), shown.output
    assert "the secret" not in shown.output + page.read_text(encoding="utf-8")
    yaml = tmp_path / "found.yaml"
    imported(folder, "--yaml", str(yaml))
    assert not STEERING & set(yaml.read_text(encoding="utf-8"))


def test_a_world_of_which_one_rank_is_known_takes_no_time(tmp_path: Path) -> None:
    world = 20_000
    calls = [
        each
        for at in range(20)
        for each in (
            ["c", at, "allreduce_", 0, 0, at, 1, "py", [TENSOR], [], {"op": "sum"}],
            ["r", at, at],
            ["w", at, at],
            ["x", at, at],
        )
    ]
    group = ["g", 0, "0", list(range(world)), "default_pg", "gloo"]
    of_rank(tmp_path, 0, PLACE, group, *calls, ["end", 0, 99], world_size=world)
    said = imported(tmp_path)
    assert said.exit_code == 3
    assert "1 of 20000 ranks" in said.output


# ---------------------------------------------------------------------- folders


def test_files_of_two_launches_are_told_apart(tmp_path: Path) -> None:
    others: dict[str, dict[str, object]] = {
        "world": {"launch": "a", "world_size": 3},
        "launch": {"launch": "b"},
    }
    for name, other in others.items():
        folder = tmp_path / name
        of_rank(folder, 0, PLACE, GROUP, launch="a")
        of_rank(folder, 1, PLACE, GROUP, **other)
        said = imported(folder)
        assert said.exit_code == 2
        assert "of two launches" in " ".join(said.output.split())
    twice = tmp_path / "twice"
    of_rank(twice, 0, PLACE, GROUP)
    (twice / "rank-00000-host-b.jsonl").write_bytes((twice / "rank-00000.jsonl").read_bytes())
    assert "rank 0 is recorded twice" in " ".join(imported(twice).output.split())


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    for name in ("loop", "folder", "pipe", "dumps"):
        (tmp_path / name).mkdir()
    of_rank(tmp_path / "loop", 0, PLACE, GROUP)
    (tmp_path / "loop" / "rank-00001.jsonl").symlink_to("rank-00001.jsonl")
    (tmp_path / "folder" / "rank-00000.jsonl").mkdir()
    os.mkfifo(tmp_path / "pipe" / "rank-00000.jsonl")
    (tmp_path / "dumps" / "rank_0").symlink_to("rank_0")
    for name in ("loop", "folder", "pipe", "dumps"):
        said = imported(tmp_path / name)
        assert said.exit_code == 2, (name, said.output)
        assert "error[bad_record]" in said.output


# ---------------------------------------------------------------------- dumps

ENTRY = {
    "frames": [{"name": "f", "filename": "/me/train.py", "line": 3}],
    "record_id": 0,
    "process_group": ("0", "default_pg"),
    "collective_seq_id": 1,
    "profiling_name": "nccl:all_reduce",
    "input_sizes": [[4]],
    "input_dtypes": ["Float"],
    "output_sizes": [[4]],
    "output_dtypes": ["Float"],
    "state": "completed",
}


@pytest.mark.parametrize(
    ("name", "dump"),
    sampled(
        [
            ("rank_99999999", {"entries": [ENTRY]}),
            ("rank_0", {"entries": [ENTRY], "pg_config": {"0": {"ranks": "[0, 1000000000000]"}}}),
            ("rank_0", {"entries": [{**ENTRY, "input_sizes": [[-1]]}]}),
            ("rank_0", {"entries": [{**ENTRY, "input_sizes": [[1] * 999]}]}),
            ("rank_0", {"entries": [{**ENTRY, "record_id": float("inf")}]}),
            ("rank_0", {"entries": [{**ENTRY, "input_sizes": [[]] * 5_000_000}]}),
            ("rank_0", {"entries": [{**ENTRY, "frames": [3]}]}),
            ("rank_0", {"entries": [{**ENTRY, "process_group": 7}]}),
        ],
        3,
    ),
)
def test_what_torch_does_not_dump_is_refused(
    tmp_path: Path, name: str, dump: dict[str, Any]
) -> None:
    (tmp_path / name).write_bytes(pickle.dumps({"pg_config": {}, **dump}))
    said = imported(tmp_path)
    assert said.exit_code == 2, said.output
    assert "error[bad_record]" in said.output


def test_a_dump_that_is_torn_or_flipped_has_no_traceback(tmp_path: Path) -> None:
    content = pickle.dumps({"version": "2.10", "pg_config": {}, "entries": [ENTRY, ENTRY]})
    chance = random.Random(7)  # noqa: S311 -- no secret
    path = tmp_path / "rank_0"
    for size in range(0, len(content), 7):
        path.write_bytes(content[:size])
        assert imported(tmp_path).exit_code == 2
    for _ in range(100):
        broken = bytearray(content)
        broken[chance.randrange(len(broken))] ^= 1 << chance.randrange(8)
        path.write_bytes(broken)
        assert imported(tmp_path).exit_code in {0, 1, 2, 3}


@pytest.mark.parametrize(
    "line",
    [
        "[]",
        "7",
        "nothing",
        '{"rank": -1, "pid": 1}',
        '{"rank": 0, "pid": 1, "exit": "x"}',
        '{"rank": 0, "pid": 1, "exit": ' + "9" * 4000 + "}",
    ],
)
def test_what_is_not_a_line_of_a_launch_is_refused(tmp_path: Path, line: str) -> None:
    folder = recorded(tmp_path / "a", STEP, STEP)
    (folder / "launch.jsonl").write_text(f'{{"launch": 1, "pid": 1}}\n{line}\n', encoding="utf-8")
    said = imported(folder)
    assert said.exit_code == 2, said.output
    assert "launch.jsonl: line 2" in " ".join(said.output.split())


def test_an_exit_is_of_the_process_that_recorded_itself(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "a", STEP, STEP)
    launch = folder / "launch.jsonl"
    launch.write_text('{"rank": 0, "pid": 9, "exit": -9}\n', encoding="utf-8")
    assert "SIGKILL" not in imported(folder).output


# ---------------------------------------------------------------------- what ends where


def append(folder: Path, rank: int, *lines: Any) -> None:
    path = folder / f"rank-{rank:05d}.jsonl"
    kept = path.read_text(encoding="utf-8").splitlines(keepends=True)[:-1]  # without its end
    path.write_text(
        "".join([*kept, *(f"{json.dumps(each)}\n" for each in lines)]), encoding="utf-8"
    )


def test_a_rank_that_destroys_the_world_enters_nothing_more(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "a", (ALL_REDUCE, BARRIER), (ALL_REDUCE,))
    append(folder, 0, ["f", 1, 30])
    leaving = ["b", 9, "destroy_process_group", 0, 40, {"whole": True, "thread": 1}]
    append(folder, 1, leaving)
    said = imported(folder)
    assert said.exit_code == 1, said.output
    assert "rank 1 never enters `barrier`" in said.output
    assert "rank 1: in destroy_process_group" in said.output
    append(folder, 1, leaving, ["be", 9, 50, {}, None])  # it may begin another world
    assert imported(folder).exit_code == 3


def test_waits_of_threads_on_fake_ranks_are_at_no_place(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "a", ())
    path = folder / "rank-00000.jsonl"
    about, group = map(json.loads, path.read_text(encoding="utf-8").splitlines()[:2])

    def call(number: int, thread: int) -> list[Any]:
        return ["c", number, *("allreduce_", 0, 0, 5, thread, "py"), ALL_REDUCE[1], [], {}]

    lines = [
        {**about, "mode": "fake"},
        *(group, ["s", 0, "", [["/me/train.py", 12, "x"]]]),
        *(["b", 0, "init_process_group", 0, 1, {"thread": 1}], ["be", 0, 2, {}, None]),
        *(call(1, 2), ["r", 1, 6], call(2, 3), ["r", 2, 7]),
        *(["w", 1, 8], ["x", 1, 9], ["w", 2, 10], ["x", 2, 11], ["end", 0, 12]),
    ]
    path.write_text("".join(f"{json.dumps(each)}\n" for each in lines), encoding="utf-8")
    (record,) = read(folder).values()
    assert [each.loose for each in record.calls] == [True, True]
    assert not [each for each in record.items if isinstance(each, RecordedWait)]


def test_a_rank_that_begins_a_second_world_waits_for_the_others(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "a", (ALL_REDUCE,), (ALL_REDUCE,))

    def begin(number: int) -> list[Any]:
        return ["b", number, "init_process_group", 0, 40, {"thread": 1}]

    first = [begin(8), ["be", 8, 45, {}, None]]
    append(folder, 0, *first, begin(9))
    append(folder, 1, *first, ["end", 0, 60])
    said = imported(folder)
    assert said.exit_code == 1, said.output
    assert "rank 1 never enters `init_process_group_2`" in said.output


def test_no_file_that_a_record_of_values_names_is_opened(tmp_path: Path) -> None:
    named = tmp_path / "named.py"
    named.write_text("dist.all_gather(parts, x)\nloss = f(parts)\nloss.backward()\n")
    folder = recorded(tmp_path / "a", STEP, STEP)
    with (folder / "rank-00000.jsonl").open("a") as file:
        for place, line in ((900, 3), (901, 1)):
            file.write(json.dumps(["s", place, 0, [[str(named), line, ""]]]) + "\n")
    lines: list[Any] = [{"scenario_values": VERSION, "rank": 0}]
    lines += [["c", 0, 0, "all_gather", [0, 1], 901, "", [], []], ["bw", 0, 900]]
    lines += [["gathered", 901, 4, [4]]]
    values = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "values-00000.jsonl").write_text(values)
    (finding,) = judge_values(records := read_values(folder), find_roles(records)).findings
    assert finding.code == "no_gradient_through"
    assert "no_gradient_through" not in imported(folder).output
