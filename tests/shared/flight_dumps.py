"""Dumps of torch's flight recorder, as Gloo of torch 2.13 and NCCL of torch 2.11 write them."""

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


X, PAIR = [4, 3], [[4, 3], [4, 3]]
#: what NCCL writes of a right program of two ranks: its name, sizes in and out by rank, its state
OF_NCCL: list[tuple[str, tuple[Any, Any], tuple[Any, Any], str]] = [
    ("all_gather", ([X], [X]), ([[2, *X]], [[2, *X]]), "completed"),
    ("all_gather", ([[]], [[]]), ([[2]], [[2]]), "completed"),
    ("reduce_scatter", ([[2, *X]], [[2, *X]]), ([X], [X]), "completed"),
    ("all_to_all", (PAIR, PAIR), (PAIR, PAIR), "completed"),
    ("all_to_all", ([X], [X]), ([X], [X]), "completed"),
    ("gather", ([X], [X]), (PAIR, [[0]]), "completed"),
    ("scatter", ([X], [X]), ([[0]], PAIR), "completed"),
    ("send {0}->{1}", ([X], [X]), ([X], [X]), "scheduled"),
    ("recv {0}<-{1}", ([X], [X]), ([X], [X]), "scheduled"),
    ("coalesced", ([], []), ([], []), "completed"),
    ("_broadcast_oop", ([X], [X]), ([X], [X]), "scheduled"),
    ("ALLGATHER_coalesced", ([], []), ([], []), "completed"),
]


def of_nccl(rank: int, *more: dict[str, Any]) -> dict[str, Any]:
    entries = []
    for number, (name, ins, outs, state) in enumerate(OF_NCCL):
        words = f"nccl:{name}".format(rank, 1 - rank)
        found = entry(number, words, number + 10, retired=state == "completed")
        found["input_sizes"], found["output_sizes"] = ins[rank], outs[rank]
        entries.append({**found, "state": state})
    return dump(*entries, *more, ranks=2)
