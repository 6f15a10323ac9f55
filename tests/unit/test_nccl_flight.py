"""torch's flight recorder, read: a dump that Gloo made, and some built after NCCL's source.

The first is recorded: torch 2.13's own recorder, filled by an all_reduce and a broadcast on Gloo.
The others are constructed from `FlightRecorderDetail.hpp` (torch 2.13) and `NCCLUtils.cpp` (2.6),
as no GPU was at hand; they have the keys, the types and the states that those write.
"""

from __future__ import annotations

import json
import pickle
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from torch_scenarios.execution.flight_recorder import FlightError, note, parse_dump, read

RECORDED = (
    '{"comm_lib_version":"","entries":[{"collective_seq_id":1,"input_dtypes":["Float"],'
    '"input_sizes":[[2,3]],"is_p2p":false,"op_id":1,"output_dtypes":["Float"],'
    '"output_sizes":[[2,3]],"p2p_seq_id":0,"pg_id":0,"process_group":["0","default_pg"],'
    '"profiling_name":"gloo:all_reduce","record_id":0,"retired":true,"state":"scheduled",'
    '"thread_id":"139678913018752","thread_name":"python","time_created_ns":1795249215080734795,'
    '"time_discovered_completed_ns":0,"time_discovered_started_ns":0,"timeout_ms":1800000},'
    '{"collective_seq_id":1,"input_dtypes":["Float"],"input_sizes":[[2,3]],"is_p2p":false,'
    '"op_id":1,"output_dtypes":["Float"],"output_sizes":[[2,3]],"p2p_seq_id":0,"pg_id":1,'
    '"process_group":["1","undefined"],"profiling_name":"gloo:broadcast","record_id":1,'
    '"retired":true,"state":"scheduled","thread_id":"139678913018752","thread_name":"python",'
    '"time_created_ns":1795249215082212404,"time_discovered_completed_ns":0,'
    '"time_discovered_started_ns":0,"timeout_ms":1800000}],"nccl_comm_state":{},'
    '"pg_config":{"":{"desc":"","name":"","ranks":"[]"}},"pg_status":{"0":'
    '{"last_completed_collective":"1","last_enqueued_collective":"1",'
    '"last_started_collective":"-1"},"1":{"last_completed_collective":"1",'
    '"last_enqueued_collective":"1","last_started_collective":"-1"}},"version":"2.10"}'
)


def entry(name: str, sequence: int, state: str, **more: Any) -> dict[str, Any]:
    return {
        "record_id": sequence,
        "pg_id": 0,
        "process_group": ["0", "default_pg"],
        "collective_seq_id": sequence,
        "p2p_seq_id": 0,
        "op_id": sequence,
        "profiling_name": f"nccl:{name}",
        "input_sizes": [[4]],
        "input_dtypes": ["Long"],
        "output_sizes": [[4]],
        "output_dtypes": ["Long"],
        "state": state,
        "time_created_ns": 1,
        "time_discovered_started_ns": 0,
        "time_discovered_completed_ns": 0,
        "retired": False,
        "timeout_ms": 10_000,
        "is_p2p": False,
        **more,
    }


def dump(*entries: dict[str, Any], version: str = "2.10") -> dict[str, Any]:
    return {
        "version": version,
        "comm_lib_version": "2.29.7",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
        "pg_status": {
            "0": {
                "last_enqueued_collective": len(entries),
                "last_started_collective": 2,
                "last_completed_collective": 1,
            }
        },
        "entries": list(entries),
    }


HUNG = dump(
    entry("all_reduce", 1, "completed", retired=True),
    entry("all_reduce", 2, "started"),
    entry("send 0->1", 2, "scheduled", is_p2p=True, p2p_seq_id=1),
)


def test_a_recorded_dump_is_read() -> None:
    record = parse_dump(RECORDED)
    assert record.version == "2.10"
    assert [str(flight) for flight in record.flights] == [
        "all_reduce #1 on default_pg, float [2, 3]: scheduled",
        "broadcast #1 on group 1, float [2, 3]: scheduled",
    ]
    assert record.completed == {"0": 1, "1": 1}
    assert record.flights[0].timeout_s == 1800.0


def test_what_a_backend_waits_for_no_more_is_not_pending() -> None:
    assert parse_dump(RECORDED).open_entries == ()


@pytest.mark.parametrize("encode", [lambda d: json.dumps(d).encode(), pickle.dumps])
def test_both_dumps_tell_what_is_enqueued_and_not_done(encode: Any) -> None:
    record = parse_dump(encode(HUNG))
    assert [
        (flight.operation, flight.sequence, flight.state) for flight in record.open_entries
    ] == [
        ("all_reduce", 2, "started"),
        ("send 0->1", 1, "scheduled"),
    ]
    assert record.library == "2.29.7"
    assert record.completed == {"0": 1}


def test_the_note_of_a_rank_is_one_line() -> None:
    assert note(3, json.dumps(HUNG).encode()) == (
        "flight recorder of rank 3: all_reduce #2 on default_pg, long [4]: started; "
        "send 0->1 #1 on default_pg, long [4]: scheduled"
    )


def test_a_long_queue_is_cut() -> None:
    queue = dump(*(entry("broadcast", number, "scheduled") for number in range(1, 10)))
    text = note(0, json.dumps(queue).encode())
    assert text.count("broadcast") == 5
    assert text.endswith(" and 4 more")


def test_nothing_pending_is_said() -> None:
    assert note(0, RECORDED.encode()).endswith("nothing that it waits for")
    assert note(0, None) == "rank 0: this torch has no flight recorder"


def test_an_older_version_without_newer_keys_is_read() -> None:
    old = dump(entry("barrier", 1, "scheduled"), version="2.4")
    del old["comm_lib_version"], old["entries"][0]["timeout_ms"], old["entries"][0]["is_p2p"]
    old["nccl_version"] = "2.21.5"
    record = parse_dump(pickle.dumps(old))
    assert (record.library, record.open_entries[0].timeout_s) == ("2.21.5", None)


class Dangerous:
    """What a dump never holds."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Run a function as it is read."""
        return (print, ("run",))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"\x80", "neither JSON nor a pickle"),
        (b"{", "neither JSON nor a pickle"),
        (b"[1]", "list, no mapping"),
        (b'{"entries": []}', "version is not stated"),
        (b'{"version": "3.0"}', "only 2.x is known"),
        (b'{"version": "2.10", "entries": [{}]}', "an entry cannot be read"),
        (pickle.dumps(Dangerous()), "names builtins.print"),
    ],
)
def test_what_is_no_dump_is_an_error_with_a_reason(text: bytes, why: str) -> None:
    with pytest.raises(FlightError, match=why):
        parse_dump(text)


def test_an_unreadable_dump_is_a_note_and_no_failure() -> None:
    assert "could not be read" in note(1, b"{")


def torch_with(**dumps: str | bytes) -> ModuleType:
    """Return as much of torch as the recorder is read from."""
    recorders = SimpleNamespace(**{name: lambda told=told: told for name, told in dumps.items()})
    torch = ModuleType("torch")
    vars(torch)["_C"] = SimpleNamespace(_distributed_c10d=recorders)
    return torch


def test_nccls_own_recorder_is_read_where_there_are_two() -> None:
    both = torch_with(_dump_fr_trace_json=b"others", _dump_nccl_trace_json="nccl")
    assert read(both) == b"nccl"
    assert read(torch_with(_dump_fr_trace_json=b"others")) == b"others"
    assert read(torch_with()) is None
