"""What ranks wait for in remote procedure calls: their workers, and functions that run elsewhere.

A function that is called runs in a thread of the worker's process, whose own main thread may be
anywhere. So two things are put together: the call in which a rank waits, with the name of its
worker, and the stacks of all threads of that worker::

    rank 1   rpc_sync("ps", fetch)                   waits
    rank 0   main thread: rpc.shutdown               is `ps`
             thread of RPC: fetch, at `ready.wait()`  what never comes
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.procedure import PREFIX
from torch_scenarios.record.evidence.reasons.departure import explain_wait
from torch_scenarios.record.evidence.script import place_at, script_at
from torch_scenarios.record.evidence.stack import StackFrame, read_threads
from torch_scenarios.record.format import BlockingCall, RankRecord
from torch_scenarios.record.recorder import is_foreign
from torch_scenarios.verdict import Finding
from torch_scenarios.verdict.finding import ranks_text

#: a call that runs a function on a worker, and one that begins as a worker
_CALLS = re.compile(rf"{re.escape(PREFIX)}(\w+) of `(.+)` on (.+)")
_BEGINS = re.compile(rf"{re.escape(PREFIX)}init_rpc as (.+) of (\d+)")
#: where a thread of a worker runs what another one has called
_RUNS = re.compile(r"torch/distributed/rpc/internal\.py$")


def find_workers(records: Mapping[int, RankRecord], folder: str) -> Finding | None:
    """Return the finding that `init_rpc` waits for workers that are not there; None without it.

    It returns once as many workers as its `world_size` says have come to it.
    """
    begun = {
        rank: (int(found[2]), each)
        for rank, record in sorted(records.items())
        for each in record.items
        if isinstance(each, BlockingCall) and (found := _BEGINS.fullmatch(each.what)) is not None
    }
    waiting = {rank: each for rank, (_, each) in begun.items() if not each.over}
    sizes = {size for size, _ in begun.values()}
    if not waiting or len(begun) < len(records) or sizes == {len(records)}:
        return None
    places = {rank: each.place.short(folder) for rank, each in waiting.items()}
    alike: dict[int, list[int]] = {}
    for rank, (size, _) in begun.items():
        alike.setdefault(size, []).append(rank)
    counts = "; ".join(f"{size} by {ranks_text(who)}" for size, who in alike.items())
    where = next(iter(places.values()))
    prose = (
        f"`rpc.init_rpc` ({where}) waits for {max(sizes)} workers, and {len(records)} "
        f"rank{'s are' if len(records) > 1 else ' is'} started"
    )
    if len(alike) > 1:
        prose = f"`rpc.init_rpc` ({where}) is passed another number of workers by ranks: {counts}"
    fix = (
        f"pass as `world_size` ({where}) how many processes call `init_rpc`, the same on every "
        "rank, or start as many."
    )
    return Finding(
        witness="program",
        code="outcome_differs",
        prose=prose,
        notes=tuple(_list_origins(next(iter(waiting.values())), folder)),
        ranks=tuple(waiting),
        name="outcome",
        fix=fix,
        help=(fix,),
    )


def _list_origins(call: BlockingCall, folder: str) -> Iterator[Clause]:
    """Yield the lines of the script that set how many workers a call waits for."""
    for file, line, _ in call.place.frames[:1]:
        source = script_at(file)
        value = source.argument(line, {"world_size"}, {"init_rpc": 3}) if source else None
        if source is None or value is None:
            continue
        lines = [each for each in source.traces(value, line) if not each[0].keeps_rank(each[1])]
        options = [
            option[0]
            for script, at in [(source, line), *lines]
            for each in ast.walk(script.tree)
            if isinstance(each, ast.Attribute) and each.lineno == at
            if (option := script.option(each, is_fixed=True)) is not None
        ]
        lines = [each for each in lines if not _PARSES.search(each[0].text(each[1]))]
        for script, at in dict.fromkeys([*lines, *options]):
            place = script.place(at, folder)
            yield Clause(f"this comes from `{script.text(at)}` ({place})")


#: lines that read the command line as a whole
_PARSES = re.compile(r"parse_args\(|ArgumentParser\(")


def list_remote(records: Mapping[int, RankRecord]) -> list[int]:
    """Return the ranks that wait in a remote procedure call."""
    return [
        rank
        for rank, record in sorted(records.items())
        if record.inside
        and isinstance(last := record.items[-1] if record.items else None, BlockingCall)
        and last.what.startswith(PREFIX)
    ]


def explain_remote(
    records: Mapping[int, RankRecord], stacks: Mapping[int, str], folder: str
) -> list[str]:
    """Return which ranks wait for a function of which worker, and where it is; then what helps."""
    lines, fixes = [], []
    for each in _list_called(records, stacks):
        of = f" (rank {each.owner})" if each.owner is not None else ""
        words = (
            f"rank {each.rank} waits in `rpc.{each.how}` ({each.call.place.short(folder)}) for "
            f"`{each.function}` on {each.worker}{of}"
        )
        wait = explain_wait(each.running, "", folder)
        if each.running:
            words += f", where it is at {_place_of(each.running, folder)}"
        if wait is not None:
            words += f": it waits {wait[0].partition(' ')[2].partition(' ')[2]}"
            fixes.append(wait[1])
        lines.append(words)
    if lines and not fixes:
        fixes.append("look at what the called function does, and pass a `timeout=` to the call.")
    return [*lines, *(f"fix: {each}" for each in dict.fromkeys(fixes))]


def find_endless_remote(records: Mapping[int, RankRecord], stacks: Mapping[int, str]) -> list[int]:
    """Return the ranks that wait for functions each of which waits for another thread itself.

    No call can come that wakes it, where all ranks are in calls.
    """
    called = _list_called(records, stacks)
    if not called or any(explain_wait(each.running, "", "") is None for each in called):
        return []
    return [each.rank for each in called]


class _RemoteCall(Struct, frozen=True, kw_only=True):
    """A call in which a rank waits for a function on a worker, and the thread that runs it."""

    rank: int
    call: BlockingCall
    how: str
    function: str
    worker: str
    #: the rank of the worker, and the stack of its thread, as far as they are known
    owner: int | None
    running: Sequence[StackFrame]


def _list_called(records: Mapping[int, RankRecord], stacks: Mapping[int, str]) -> list[_RemoteCall]:
    """Return the calls of RPC that ranks wait for, with what the callee's threads do."""
    names = {
        begun[1]: rank
        for rank, record in sorted(records.items())
        for each in record.items
        if isinstance(each, BlockingCall) and (begun := _BEGINS.fullmatch(each.what)) is not None
    }
    found: list[_RemoteCall] = []
    for rank in list_remote(records):
        last = records[rank].items[-1]
        called = _CALLS.fullmatch(last.what) if isinstance(last, BlockingCall) else None
        if called is None or not isinstance(last, BlockingCall):
            continue
        how, function, worker = called.groups()
        owner = names.get(worker)
        threads = read_threads(stacks.get(-1 if owner is None else owner, ""))
        running = next((each for each in threads if _runs(each, function)), ())
        found.append(
            _RemoteCall(
                rank=rank,
                call=last,
                how=how,
                function=function,
                worker=worker,
                owner=owner,
                running=running,
            )
        )
    return found


def _runs(frames: Sequence[StackFrame], function: str) -> bool:
    """Whether a thread of a worker runs a function that another one has called."""
    return any(_RUNS.search(each.filename) for each in frames) and any(
        each.name == function for each in frames
    )


def _place_of(frames: Sequence[StackFrame], folder: str) -> str:
    """Return where the script's own code is in a stack."""
    own = next((each for each in frames if not is_foreign(each.filename)), frames[0])
    return place_at(own.filename, own.line, folder)
