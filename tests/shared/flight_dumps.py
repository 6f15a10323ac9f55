"""Dumps of torch's flight recorder, as Gloo of torch 2.13 writes them."""

from __future__ import annotations

from typing import Any


def entry(number: int, name: str, line: int, *, retired: bool, size: int = 4) -> dict[str, Any]:
    return {
        "frames": [
            {"name": "all_reduce", "filename": "/x/site-packages/torch/a.py", "line": 1},
            {"name": "<module>", "filename": "/home/me/train.py", "line": line},
        ],
        "record_id": number,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": number + 1,
        "profiling_name": name,
        "input_sizes": [[size]],
        "input_dtypes": ["Float"],
        "output_sizes": [[size]],
        "output_dtypes": ["Float"],
        "state": "scheduled",
        "retired": retired,
    }


def dump(*entries: dict[str, Any], ranks: int = 4) -> dict[str, Any]:
    listed = str(list(range(ranks)))
    config = {"": {"name": "", "desc": "default_pg", "ranks": listed}}
    return {"version": "2.10", "pg_config": config, "entries": list(entries)}


def mismatched(rank: int) -> dict[str, Any]:
    name, line = ("gloo:all_reduce", 8) if rank == 0 else ("gloo:barrier", 16)
    return dump(entry(0, "gloo:all_reduce", 5, retired=True), entry(1, name, line, retired=False))
