"""torch's flight recorder: what each collective of a rank came to, read from memory.

The format is that of `torch/csrc/distributed/c10d/FlightRecorderDetail.hpp`, version 2.x: one entry
for each call, with a state, and a status for each process group. Both of its dumps (JSON, pickle)
are understood; keys that a version lacks are left out. Pure: a dump comes in, values go out.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from msgspec import Struct

from torch_scenarios.execution.pickles import plain
from torch_scenarios.source.documents import decode_json

#: what a torch calls its dumps. A CUDA build has two recorders: NCCL's calls are in its own, and
#: the last name is that of the other backends, which is all that a CPU build has
DUMPS = ("_dump_nccl_trace_json", "_dump_nccl_trace", "_dump_fr_trace_json")
#: entries told of one rank
TOLD = 5
COMPLETED = "completed"


class FlightError(ValueError):
    """A dump that is not one.

    Dumps come from files that a stranger may have written, or a job that died while it wrote.
    """


class FlightEntry(Struct, frozen=True, kw_only=True):
    """One call as the recorder saw it.

    `sequence` counts the collectives of the group (or its messages) from 1; `state` is `scheduled`,
    `started` or `completed`. `retired` says that the backend waits for it no more.
    """

    group: str
    operation: str
    sequence: int
    state: str
    messages: bool = False
    retired: bool = False
    sizes: tuple[tuple[int, ...], ...] = ()
    dtypes: tuple[str, ...] = ()
    timeout_s: float | None = None

    @property
    def pending(self) -> bool:
        """Whether it was enqueued and has not been done."""
        return self.state != COMPLETED and not self.retired

    def __str__(self) -> str:
        """Say it in a line: `all_reduce #3 on default_pg, float [2, 3]: scheduled`."""
        shapes = ", ".join(
            f"{dtype.lower()} {list(size)}"
            for dtype, size in zip(self.dtypes, self.sizes, strict=False)
        )
        what = f"{self.operation} #{self.sequence} on {self.group}"
        return f"{what}{f', {shapes}' if shapes else ''}: {self.state}"


class RecorderDump(Struct, frozen=True, kw_only=True):
    """What one rank's recorder held: its version, its calls in order, its groups' last ones.

    >>> dump = parse_dump('{"version": "2.4", "entries": []}')
    >>> dump.version, dump.open_entries
    ('2.4', ())

    The recorder is a ring: a call that is missing may have been written over, so that the dumps of
    all ranks are aligned by each group's sequence numbers and not by their places.
    """

    version: str
    library: str
    flights: tuple[FlightEntry, ...]
    completed: Mapping[str, int]

    @property
    def open_entries(self) -> tuple[FlightEntry, ...]:
        """What was enqueued and not done, oldest first."""
        return tuple(flight for flight in self.flights if flight.pending)


def parse_dump(dump: bytes | str) -> RecorderDump:
    """Return what a dump says. Raises FlightError where the recorder did not write it."""
    document = _document(dump)
    if not isinstance(document, dict):
        message = f"it is {type(document).__name__}, no mapping"
        raise FlightError(message)
    version = str(document.get("version", ""))
    if not version.startswith("2."):
        message = f"its version is {version or 'not stated'}, and only 2.x is known"
        raise FlightError(message)
    try:
        flights = tuple(_flight(entry) for entry in document.get("entries") or ())
        status = document.get("pg_status") or {}
        completed = {
            str(group): int(each.get("last_completed_collective", -1))
            for group, each in status.items()
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        message = f"an entry cannot be read: {error!r}"
        raise FlightError(message) from error
    library = str(document.get("comm_lib_version") or document.get("nccl_version") or "")
    return RecorderDump(version=version, library=library, flights=flights, completed=completed)


def _document(dump: bytes | str) -> Any:
    try:
        if isinstance(dump, str) or dump[:1] in {b"{", b"["}:
            return decode_json(dump)
        return plain(dump)
    except (ValueError, EOFError, RecursionError, pickle.UnpicklingError) as error:
        message = f"it is neither JSON nor a pickle: {error}"
        raise FlightError(message) from error


def _flight(entry: Mapping[str, Any]) -> FlightEntry:
    name, described = (*entry.get("process_group", ("", "")), "", "")[:2]
    messages = bool(entry.get("is_p2p", False))
    sequence = entry.get("p2p_seq_id" if messages else "collective_seq_id", 0)
    timeout_ms = entry.get("timeout_ms")
    return FlightEntry(
        group=described if described not in {"", "undefined"} else f"group {name}",
        operation=str(entry["profiling_name"]).partition(":")[2] or str(entry["profiling_name"]),
        sequence=int(sequence),
        state=str(entry["state"]),
        messages=messages,
        retired=bool(entry.get("retired", False)),
        sizes=tuple(tuple(size) for size in entry.get("input_sizes") or ()),
        dtypes=tuple(map(str, entry.get("input_dtypes") or ())),
        timeout_s=None if timeout_ms is None else float(timeout_ms) / 1000,
    )


def read(torch: ModuleType) -> bytes | None:
    """Return the dump of this process as this torch gives it; None where it has no recorder."""
    module: Any = torch._C._distributed_c10d
    name = next((name for name in DUMPS if hasattr(module, name)), None)
    if name is None:
        return None
    dump: bytes | str = getattr(module, name)()
    return dump.encode() if isinstance(dump, str) else dump


def note(rank: int, dump: bytes | None) -> str:
    """Say in a line what a rank's recorder held at the moment of a hang."""
    if dump is None:
        return f"rank {rank}: this torch has no flight recorder"
    try:
        record = parse_dump(dump)
    except FlightError as error:
        return f"rank {rank}: the flight recorder's dump could not be read: {error}"
    pending = record.open_entries
    more = f" and {len(pending) - TOLD} more" if len(pending) > TOLD else ""
    listed = "; ".join(map(str, pending[:TOLD])) or "nothing that it waits for"
    return f"flight recorder of rank {rank}: {listed}{more}"
