"""What `scenario import` says of a record: where every rank is, then what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from handwritten_records import ALL_REDUCE, BARRIER, recorded

from runner.cli import cli


def said_of(folder: Path) -> list[str]:
    said = CliRunner().invoke(cli, ["import", str(folder)])
    assert said.exit_code == 1, said.output
    return said.output.splitlines()


def ended_by(folder: Path, rank: int, *last: Any) -> None:
    """Replace how a rank ends, and the end of its last wait."""
    path = folder / f"rank-{rank:05d}.jsonl"
    kept = path.read_text(encoding="utf-8").splitlines()[:-2]
    path.write_text("\n".join([*kept, *map(json.dumps, last)]) + "\n", encoding="utf-8")


def test_of_a_hang_where_the_ranks_are_comes_first_each_place_once(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "a", (ALL_REDUCE, BARRIER), *[(ALL_REDUCE, ALL_REDUCE)] * 3)
    for rank in range(4):
        ended_by(folder, rank)
    lines = said_of(folder)
    assert lines[1:4] == [
        "  rank 0: in barrier (train.py:13)",
        "  ranks 1, 2 and 3: in all_reduce (train.py:12)",
        "  call_mismatch: the ranks of a group call different operations in the same place",
    ]


def test_a_rank_that_handles_an_error_in_a_call_is_told_with_it(tmp_path: Path) -> None:
    words = "ValueError: no <torch.Group object at 0x7f12>"
    handled = {"handled": [words, [["/me/data.py", 3, "raise"]]]}
    late = (*BARRIER[:3], handled, 20)
    folder = recorded(tmp_path / "a", (ALL_REDUCE, late), *[(ALL_REDUCE, ALL_REDUCE)] * 2)
    for rank in range(3):
        ended_by(folder, rank)
    told = "while it handles ValueError: no Group (data.py:3)"
    assert said_of(folder)[1] == f"  rank 0: in barrier (train.py:20), {told}"


def test_ranks_that_raise_alike_are_one_line(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "a", *[(ALL_REDUCE,)] * 8)
    for rank in range(8):
        words = "ValueError: no data" if rank < 7 else "ValueError: no file"
        ended_by(folder, rank, ["raise", words, [["/me/data.py", 3, "raise"]], 99])
    assert said_of(folder)[1:3] == [
        "  ranks 0, 1, 2, 3, 4, 5 and 6 raise ValueError: no data (data.py:3)",
        "  rank 7 raises ValueError: no file (data.py:3)",
    ]


def test_ranks_that_are_at_one_place_are_one_line(tmp_path: Path) -> None:
    takes: list[tuple[Any, ...]] = [
        ("recv_", [], [["float32", [4], 64, 16]], {"peer": peer}, 14) for peer in (1, 0)
    ]
    folder = recorded(tmp_path / "a", (BARRIER, takes[0]), (BARRIER, takes[1]))
    for rank in range(2):
        ended_by(folder, rank)
    assert said_of(folder)[1] == "  all 2 ranks: in recv (train.py:14)"


def test_what_ranks_raise_because_another_is_gone_comes_last_without_addresses(
    tmp_path: Path,
) -> None:
    calls = (ALL_REDUCE, BARRIER)
    folder = recorded(tmp_path / "a", calls, calls, calls[:1])
    for rank in range(2):
        words = (
            "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] "
            f"Connection closed by peer [127.0.0.1]:{2249 + rank}. This is typically caused by a "
            "remote worker crashing. Check the logs"
        )
        ended_by(folder, rank, ["e", 1, 20, words], ["raise", words, [], 21])
    lines = said_of(folder)
    assert lines[1].startswith("  missing_participant: ")
    assert lines[-2:] == [
        "  ranks 0 and 1: raised in barrier (train.py:13): RuntimeError: Connection closed by peer",
        "  rank 2: ended after all_reduce (train.py:12)",
    ]


def test_shapes_of_a_list_that_are_alike_are_one(tmp_path: Path) -> None:
    def gather(rows: int) -> tuple[Any, ...]:
        outs = [["float32", [rows, 2], 96 + 64 * at, 8 * rows] for at in range(3)]
        return ("allgather_", [["float32", [rows, 2], 64, 8 * rows]], outs, {}, 15)

    lines = said_of(recorded(tmp_path / "a", (gather(3),), (gather(3),), (gather(2),)))
    assert any("pass tensor [3, 2], tensor_list 3 x [3, 2] (" in line for line in lines), lines
