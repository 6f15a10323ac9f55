"""Records written by hand: each rank makes the calls that a test names, ten microseconds apart."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

#: operation of c10d -> what a record has of one call of it, its line
ALL_GATHER: tuple[Any, ...] = (
    "_allgather_base_",
    [["float32", [4], 64, 16]],
    [["float32", [8], 96, 32]],
    {},
    10,
)
REDUCE_SCATTER: tuple[Any, ...] = (
    "_reduce_scatter_base_",
    [["float32", [8], 96, 32]],
    [["float32", [4], 64, 16]],
    {"op": "sum"},
    11,
)
ALL_REDUCE: tuple[Any, ...] = ("allreduce_", [["float32", [4], 64, 16]], [], {"op": "sum"}, 12)
LARGER: tuple[Any, ...] = ("allreduce_", [["float32", [5], 64, 20]], [], {"op": "sum"}, 12)
BARRIER: tuple[Any, ...] = ("barrier", [], [], {}, 13)


def recorded(folder: Path, *programs: tuple[Any, ...]) -> Path:
    """Write a record: of each rank the calls that it makes."""
    folder.mkdir()
    for rank, calls in enumerate(programs):
        world = len(programs)
        lines: list[Any] = [
            {"scenario_record": 1, "rank": rank, "world_size": world, "mode": "live", "cwd": "/me"},
            ["g", 0, "0", list(range(world)), "default_pg", "gloo"],
        ]
        for number, (operation, ins, outs, more, line) in enumerate(calls):
            us = number * 10
            lines += [
                ["s", number, "", [["/me/train.py", line, "x"]]],
                ["c", number, operation, 0, number, us, 1, "py", ins, outs, more],
                ["r", number, us + 1],
                ["w", number, us + 2],
                ["x", number, us + 3],
            ]
        lines.append(["end", 0, 1000])
        text = "".join(f"{json.dumps(each)}\n" for each in lines)
        (folder / f"rank-{rank:05d}.jsonl").write_text(text, encoding="utf-8")
    return folder
