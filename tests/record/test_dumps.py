"""Records and dumps as data: torn, newer, hostile, or of torch's flight recorder."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from flight_dumps import OF_NCCL, dump, entry, mismatched, of_nccl

from torch_scenarios.cli import cli
from torch_scenarios.errors import ScenarioError
from torch_scenarios.record.format import read, read_file
from torch_scenarios.record.program import program_of


def imported(folder: Path, *options: str) -> Result:
    return CliRunner().invoke(cli, ["import", str(folder), *options])


# ---------------------------------------------------------------------- records of ours

HEADER: dict[str, Any] = {"scenario_record": 1, "rank": 0, "world_size": 2, "mode": "live"}
PLACE = ["s", 0, "", [["/home/me/train.py", 7, "dist.send(x, 1)"]]]
GROUP = ["g", 0, "0", [0, 1], "default_pg", "gloo"]


def sending(to: int) -> list[Any]:
    tensor = ["float32", [4], 64, 16]
    return ["c", 0, "send", 0, 0, 10, 1, "py", [tensor], [], {"peer": to, "tag": 0}]


def written(folder: Path, rank: int, *lines: Any, tail: str = "") -> None:
    header = {**HEADER, "rank": rank}
    text = "\n".join(json.dumps(line) for line in (header, PLACE, GROUP, *lines))
    (folder / f"rank-{rank:05d}.jsonl").write_text(f"{text}\n{tail}", encoding="utf-8")


def test_a_record_of_version_1_says_what_one_of_version_2_does(tmp_path: Path) -> None:
    tensor, more = ["float32", [4], 64, 16], {"peer": 1, "tag": 0}
    in_batch = ["s", 1, "batch_isend_irecv", [["/home/me/train.py", 8, "batch"]]]
    before = [sending(1), ["r", 0, 11], ["w", 0, 12], ["x", 0, 13]]
    before += [in_batch, ["c", 1, "send", 0, 1, 20, 1, "py", [tensor], [], {**more, "batch": 4}]]
    kinds = [["k", at, "send", 0, at, 1, "py", [tensor], [], more, 1 - at] for at in range(2)]
    now = [in_batch, *kinds, ["c", 0, 0, 10], ["x", 0, 13], ["c", 1, 1, 20, 4]]
    records = []
    for version, lines in ((1, before), (2, now)):
        path = tmp_path / f"{version}.jsonl"
        header = {**HEADER, "scenario_record": version}
        path.write_text("".join(f"{json.dumps(each)}\n" for each in (header, PLACE, GROUP, *lines)))
        records.append(read_file(path))
    for record in records:
        assert [call.number for call in record.calls] == [0, 1]
        assert record.calls[0].completes
        assert record.calls[1].batch == 4
        assert record.inside
        record.calls[0].returned_us = 11  # in version 2 with its wait
    assert records[0].items == records[1].items


def test_a_wait_for_a_message_that_was_asked_for_before_is_no_second_one(tmp_path: Path) -> None:
    written(tmp_path, 0, sending(1), ["r", 0, 11], ["bw", 11], ["f", 0, 12], ["w", 0, 13])
    taking = ["c", 0, "recv_", 0, 0, 10, 1, "py", [], [["float32", [4], 64, 16]]]
    written(tmp_path, 1, [*taking, {"peer": 0, "tag": 0}], ["r", 0, 11], ["w", 0, 12], ["x", 0, 14])
    said = imported(tmp_path)
    assert "double_wait" not in said.output


def test_two_ranks_that_send_to_each_other_first_are_a_ring(tmp_path: Path) -> None:
    written(tmp_path, 0, sending(1), ["r", 0, 11], ["w", 0, 12])
    written(tmp_path, 1, sending(0), ["r", 0, 11], ["w", 0, 12])
    said = imported(tmp_path)
    assert said.exit_code == 1
    assert said.output.startswith("FAILED")
    assert "circular_wait" in said.output
    assert "train.py:7" in said.output


def test_a_torn_last_line_is_no_fault(tmp_path: Path) -> None:
    written(tmp_path, 0, sending(1), ["r", 0, 11], tail='["w", 0')
    written(tmp_path, 1, sending(0), ["r", 0, 11], ["w", 0, 12], tail='["x"')
    records = read(tmp_path)
    assert records[0].truncated
    assert [call.completes for call in records[1].calls] == [True]


def test_a_record_that_ends_early_and_is_right_so_far_is_inconclusive(tmp_path: Path) -> None:
    written(tmp_path, 0, sending(1), ["r", 0, 11], ["w", 0, 12])
    written(tmp_path, 1)
    said = imported(tmp_path)
    assert said.exit_code == 3
    assert "ends before the program does" in said.output


def test_a_rank_without_a_record_is_unknown(tmp_path: Path) -> None:
    written(tmp_path, 0, sending(1), ["r", 0, 11], ["w", 0, 12])
    said = imported(tmp_path)
    assert said.exit_code == 3
    assert "rank 1 is unknown" in said.output


def test_a_sample_proves_nothing_by_the_order_of_ranks_that_are_not_in_it(tmp_path: Path) -> None:
    # a mesh of 2 x 2, each rank reduces on dp and twice on tp; of ranks 1 and 2 each neighbour
    # knows one half
    passed: list[Any] = [[["float32", [4], 64, 16]], [], {"op": "sum"}]
    for rank, (data, tensor) in {0: ([0, 2], [0, 1]), 3: ([1, 3], [2, 3])}.items():
        groups = [["g", 0, "dp", data, "mesh_dp", ""], ["g", 1, "tp", tensor, "mesh_tp", ""]]
        calls = [
            line
            for number in range(6)
            for line in (
                ["c", number, "allreduce_", min(number % 3, 1), 0, number, 1, "py", *passed],
                ["r", number, number],
                ["w", number, number],
                ["x", number, number],
            )
        ]
        lines = [{**HEADER, "rank": rank, "world_size": 4}, PLACE, *groups, *calls, ["end", 0, 9]]
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        (tmp_path / f"rank-{rank:05d}.jsonl").write_text(text, encoding="utf-8")
    said = imported(tmp_path)
    assert said.exit_code == 3, said.output
    assert "2 of 4 ranks are recorded" in said.output


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        (['{"scenario_record": 3, "rank": 0, "world_size": 2}'], "newer_record"),
        (['{"scenario_record": 1, "rank": 7, "world_size": 2}'], "bad_record"),
        (['["nothing of ours"]'], "bad_record"),
        ([json.dumps(HEADER), '["__class__", 1]'], "bad_record"),
        ([json.dumps(HEADER), '["c", 0, "send", 9]'], "bad_record"),
        ([json.dumps(HEADER), "[" * 100_000], "bad_record"),
        ([json.dumps(HEADER), "no JSON"], "bad_record"),
    ],
)
def test_what_is_no_record_is_refused(tmp_path: Path, lines: list[str], code: str) -> None:
    (tmp_path / "rank-00000.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    said = imported(tmp_path)
    assert said.exit_code == 2
    assert f"[{code}]" in said.output


def test_words_of_a_record_become_no_expression(tmp_path: Path) -> None:
    hostile = '"}\nsteps: []\n# {0: evil} ${x} \ud83c'
    written(tmp_path, 0, sending(1), ["raise", hostile, [[hostile, 3, ""]], 12], ["end", 1, 13])
    written(tmp_path, 1, ["end", 0, 13])
    assert imported(tmp_path).exit_code == 1
    text = program_of(read(tmp_path)).text
    assert text.count("\nsteps:") == 1


# ---------------------------------------------------------------------- the flight recorder


def dumped(folder: Path, rank: int, content: dict[str, Any], *, as_json: bool = False) -> None:
    if as_json:
        text = json.dumps(content)
        (folder / f"nccl_trace_host-a_{rank}.json").write_text(text, encoding="utf-8")
    else:
        (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(content))


@pytest.mark.parametrize("as_json", [False, True])
def test_dumps_name_the_call_of_both_sides(tmp_path: Path, *, as_json: bool) -> None:
    for rank in range(4):
        dumped(tmp_path, rank, mismatched(rank), as_json=as_json)
    said = imported(tmp_path)
    assert said.exit_code == 1
    assert "call_mismatch" in said.output
    assert "train.py:8" in said.output
    assert "train.py:16" in said.output


def test_a_rank_without_a_dump_is_unknown(tmp_path: Path) -> None:
    for rank in range(3):
        dumped(tmp_path, rank, mismatched(rank))
    said = imported(tmp_path)
    assert said.exit_code == 1
    assert "rank 3 unknown" in said.output


def test_dumps_without_an_entry_say_why_nothing_is_known(tmp_path: Path) -> None:
    for rank in range(2):
        dumped(tmp_path, rank, dump(ranks=2))
    said = imported(tmp_path)
    assert said.exit_code == 3
    assert "only messages on Gloo" in said.output


def test_rings_that_wrapped_are_aligned_by_number(tmp_path: Path) -> None:
    late = [entry(at, "nccl:all_reduce", 5, retired=True, size=at) for at in range(5, 9)]
    dumped(tmp_path, 0, dump(*late, ranks=2))
    dumped(tmp_path, 1, dump(*late[2:], ranks=2))
    said = imported(tmp_path)
    assert said.exit_code == 3
    assert "begin in the middle" in said.output


def test_a_dump_of_nccl_is_read_as_its_calls_were_made(tmp_path: Path) -> None:
    for rank in range(2):
        dumped(tmp_path, rank, of_nccl(rank))
    written_to = tmp_path / "program.yaml"
    said = imported(tmp_path, "--yaml", str(written_to))
    assert said.exit_code == 3, said.output
    assert "nothing is wrong with what is in it" in said.output
    program = written_to.read_text(encoding="utf-8")
    assert program.count("batch_isend_irecv") == 1
    assert "scatter_list: {1: " in program
    assert "output_tensor_list" in program


def test_a_batch_of_nccl_that_never_ends_is_waited_for(tmp_path: Path) -> None:
    at = len(OF_NCCL)
    alone = [entry(at, "nccl:send 0->1", 50, retired=False)]
    alone += [entry(at + 1, "nccl:coalesced", 50, retired=False)]
    dumped(tmp_path, 0, of_nccl(0, *alone))
    dumped(tmp_path, 1, of_nccl(1, entry(at, "nccl:all_reduce", 60, retired=False)))
    said = imported(tmp_path)
    assert "rank 0: in wait for send (train.py:50)" in said.output
    assert "rank 1: in all_reduce (train.py:60)" in said.output


class Hostile:
    """What runs a command when it is unpickled by an unpickler that knows classes."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what is called."""
        return os.system, ("exit 1",)


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps(Hostile()),
        b"",
        b"\x80\x04garbage",
        b'{"entries": 3}',
        pickle.dumps({"entries": [{"profiling_name": "nccl:send 0->9"}], "pg_config": {}}),
        pickle.dumps({"entries": [7], "pg_config": {}}),
    ],
)
def test_a_hostile_dump_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "rank_0").write_bytes(content)
    said = imported(tmp_path)
    assert said.exit_code == 2
    assert "error[bad_record]" in said.output


def test_the_verdict_alone_or_as_json_is_all_that_is_written(tmp_path: Path) -> None:
    written(tmp_path, 0, sending(1), ["r", 0, 11], ["w", 0, 12])
    written(tmp_path, 1, sending(0), ["r", 0, 11], ["w", 0, 12])
    quiet = imported(tmp_path, "-q")
    assert quiet.exit_code == 1
    assert quiet.output.startswith("FAILED")
    assert quiet.output.count("\n") == 1
    told = imported(tmp_path, "--json", "-")
    assert told.exit_code == 1
    assert json.loads(told.stdout)["results"][0]["predicted"]["diagnoses"] == ["circular_wait"]
    assert imported(tmp_path, "--yaml", "/proc/no/such.yaml").exit_code == 2


def test_a_folder_of_other_files_is_not_emptied(tmp_path: Path) -> None:
    script, mine = tmp_path / "train.py", tmp_path / "scenario.yaml"
    script.write_text("", encoding="utf-8")
    mine.write_text("mine", encoding="utf-8")
    said = CliRunner().invoke(cli, ["record", "-o", str(tmp_path), "--", str(script)])
    assert said.exit_code == 3
    assert "is not of a record: name another folder with -o" in said.output
    assert mine.read_text(encoding="utf-8") == "mine"


def test_a_folder_without_a_record_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError):
        read(tmp_path)
    assert imported(tmp_path).exit_code == 2
