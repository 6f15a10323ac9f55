"""How ranks that never come have left, or what they wait for while they are in no call.

Nothing proves that a rank in no call never comes: a download may be slow. But what it waits for is
known by its stack and its line, and what people have mended it by::

    subprocess.py in wait        the program that it has started does not end
    writer.py:22 with self.lock  it holds that lock already, since writer.py:16
    store.get("server")          a key that no rank has set
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import PurePath
from typing import TypeGuard

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import DecidedParting, Reason, count_turns, short
from torch_scenarios.record.evidence.divergence import Frames, Parting
from torch_scenarios.record.evidence.files import (
    FORM_DIFFERS,
    NUMBER_DIFFERS,
    PREFIX_DIFFERS,
    explain_key,
)
from torch_scenarios.record.evidence.process import ALONE, ENDED, FILLS, JOINS
from torch_scenarios.record.evidence.reasons.counted_key import explain_counted_key
from torch_scenarios.record.evidence.reasons.listed_files import LISTS
from torch_scenarios.record.evidence.reasons.loop import find_turns, loop_of
from torch_scenarios.record.evidence.reasons.lost_wakeup import explain_lost_wakeup
from torch_scenarios.record.evidence.reasons.queue_item import explain_item
from torch_scenarios.record.evidence.reasons.skipped_key import explain_skipped_key
from torch_scenarios.record.evidence.reasons.way_out import find_way_out
from torch_scenarios.record.evidence.script import (
    Script,
    end_of,
    find_one_call,
    place_at,
    script_at,
)
from torch_scenarios.record.evidence.stack import (
    RankStack,
    StackFrame,
    has_all_threads,
    is_at_end,
    printed_place,
    put_own_first,
    read_stack,
    read_threads,
    take_main,
)
from torch_scenarios.record.format import BlockingCall, Decision, RankRecord, RecordedCall
from torch_scenarios.record.recorder import is_foreign
from torch_scenarios.verdict.finding import ranks_text


def find_departure(parted: DecidedParting) -> Reason | None:
    """Return how ranks that never come have left: the line of their exit, or of their end."""
    ended: dict[str, list[int]] = {}
    for rank in parted.parting.missing:
        record = parted.records[rank]
        left = record.left_at.short(parted.folder)
        if left:
            text = record.left_at.frames[0][2]
            ended.setdefault(f"`{text}` ({left})" if text else left, []).append(rank)
            continue
        last = record.items[-1] if record.items else None
        if isinstance(last, BlockingCall) and last.what.startswith("destroy"):
            where = last.place.short(parted.folder)
            ended.setdefault(f"`{last.what}` ({where})", []).append(rank)
    if not ended:
        return None
    words = "; ".join(
        f"{ranks_text(ranks)} {'has' if len(ranks) == 1 else 'have'} left by {how}"
        for how, ranks in ended.items()
    )
    how = next(iter(ended))
    fix = f"let no rank leave by {how} while others still communicate with it."
    return Clause(words), fix


#: what a rank waits for that takes something out of a queue of processes
OF_QUEUE = "for another process to put something into its queue or pipe"

#: what a rank waits for that has given a task to a pool of threads
OF_POOL = "for a task of its pool"

#: what a rank waits for that another thread of its own gives it
_OF_THREADS = (
    OF_POOL,
    "for another thread of its own to wake it",
    "for a thread of its own to end",
    "for something to come into its queue",
    "for room in a queue that is full",
)
#: other threads that are shown
MOST_THREADS = 2

#: what a rank waits for that is at a barrier of processes
AT_BARRIER = "for more processes at a barrier"

#: functions of a framework in which each rank waits for all others, past torch
_MEETS_OTHERS = re.compile(
    r"ray/train/v2/_internal/execution/\S+ (?:_sync_checkpoint_dir_name_across_ranks|barrier|"
    r"broadcast_from_rank_zero)$|torchft/manager\.py (?:should_commit|start_quorum|wait_quorum)$",
    re.MULTILINE,
)

#: what the frames between a rank's own line and where it waits look like, what it waits for there,
#: and what helps
_KNOWN = (
    (
        _MEETS_OTHERS,
        "for the other ranks to come there too",
        (
            "make that call on each rank, as often: a `report` or `barrier` of Ray, a vote or a "
            "quorum of torchft, wait for all ranks, as a collective does."
        ),
    ),
    (
        re.compile(r"torch/_(?:inductor|dynamo)/"),
        "for `torch.compile`, whose compiler is at work",
        (
            "the first run compiles, for minutes on a busy machine: give `--max-seconds` more, or "
            "run it again, which finds in the compiler's cache what this run has compiled."
        ),
    ),
    (
        re.compile(r"torch/utils/file_baton\.py"),
        "for another process to build an extension of torch",
        (
            "where no process builds it, one that was ended has left the file `lock` in the "
            "extension's folder (of TORCH_EXTENSIONS_DIR, or ~/.cache/torch_extensions): remove it."
        ),
    ),
    (
        re.compile(r"torch/utils/data/dataloader\.py \S*_try_get_data"),
        "for a worker of its DataLoader",
        (
            "look at what the worker does (`py-spy dump`), such as a lock that a thread held when "
            "it was forked; `num_workers=0` shows an error of the dataset itself, "
            "`multiprocessing_context='spawn'` forks nothing."
        ),
    ),
    (
        re.compile(r"/filelock/"),
        "for a lock on a file that another process, or another rank, holds",
        "let no rank hold the lock while it communicates, and give the lock a `timeout=`.",
    ),
    (
        re.compile(r"/subprocess\.py "),
        "for a program that it has started, which does not end",
        "look at what the program waits for, and give the call a `timeout=`.",
    ),
    (
        re.compile(
            r"multiprocessing/(?:popen_\w+|process|connection)\.py (?:join|wait|poll|_wait)"
        ),
        "for a process that it has started, which does not end",
        (
            "what a process has put into a `Queue` has to be taken (`get`) before the process is "
            "joined: it ends only then; else look at what it does (`py-spy dump`)."
        ),
    ),
    (
        re.compile(r"multiprocessing/(?:queues|connection)\.py "),
        OF_QUEUE,
        "look at the process that is to put it there: whether it lives, and what it does.",
    ),
    (
        re.compile(r"multiprocessing/synchronize\.py [\s\S]*/threading\.py _wait$", re.MULTILINE),
        AT_BARRIER,
        (
            "a `Barrier(n)` releases once n processes have reached it: let n be the number of "
            "processes that come, or let the others come too."
        ),
    ),
    (
        re.compile(r"multiprocessing/synchronize\.py "),
        "for another process to set or release what they share",
        "look at the process that is to `set`, `notify` or `release` it: whether it lives.",
    ),
    (
        re.compile(r"/(?:queue|asyncio/queues)\.py put"),
        "for room in a queue that is full",
        "look at the thread that is to empty it: whether it lives, and what it does.",
    ),
    (
        re.compile(r"/(?:queue|asyncio/queues)\.py get"),
        "for something to come into its queue",
        "look at the thread that is to fill it: whether it lives, and what it does.",
    ),
    (
        re.compile(r"/(?:socket|ssl|http/client|urllib/request)\.py |/(?:urllib3|requests|httpx)/"),
        "for another machine, or server, that does not answer",
        "pass a `timeout=`, and let the ranks agree on what they do where it strikes.",
    ),
    (
        re.compile(r"concurrent/futures/\w+\.py "),
        OF_POOL,
        "look at what the task does: it may wait for a lock, a queue or another rank.",
    ),
    (
        re.compile(r"/threading\.py (?:join|_wait_for_tstate_lock|_shutdown|_join)"),
        "for a thread of its own to end",
        "look at what the thread does (`py-spy dump`): what it waits for never comes.",
    ),
    (
        re.compile(r"/threading\.py "),
        "for another thread of its own to wake it",
        "look at who is to `set` or `notify` it, or to give the lock back.",
    ),
    (
        re.compile(r"/selectors\.py |asyncio/base_events\.py "),
        "for an event of its event loop",
        "look at what the coroutine awaits: nothing makes it ready any more.",
    ),
)


def explain_idle(
    records: Mapping[int, RankRecord],
    stacks: Mapping[int, str],
    programs: Mapping[int, str],
    folder: str,
) -> list[str]:
    """Return what ranks outside of any call wait for, and then what helps, as far as it is seen.

    `programs` says which programs ranks have started that still run.
    """
    stacks = {rank: put_own_first(stack) for rank, stack in stacks.items()}
    places = {rank: printed_place(take_main(stack)).frames for rank, stack in stacks.items()}
    keys = _explain_stores(stacks, folder)  # a key may be missing because its rank waits there
    keys = keys or _explain_keys(records, stacks, folder)
    is_set = any(  # by a rank, under its own prefix or in another form
        why in each for each in keys for why in (PREFIX_DIFFERS, FORM_DIFFERS, NUMBER_DIFFERS)
    )
    is_own = bool(keys) and not is_set and _is_of_each_rank(keys[0])
    if is_own and (skipped := explain_skipped_key(records, folder)):
        keys = [keys[0], *skipped]
    elif is_own and (unset := _explain_unset(records, folder)):
        keys = [keys[0], unset[1], unset[0]]
    waits = keys or _explain_waits(stacks, programs, folder)
    if any(OF_QUEUE in each for each in waits) and (item := explain_item(records, folder)):
        waits = [*(each for each in waits if not each.startswith("fix: ")), *item]
    if any(said in each for said in _OF_THREADS for each in waits) and (
        wakeup := explain_lost_wakeup(places, records, folder)
    ):
        waits = [*(each for each in waits if not each.startswith("fix: ")), *wakeup]
    waits = [*_explain_staying(stacks, records, folder), *waits]
    lost = _explain_lost(records if keys else places, records, folder)
    if lost:  # what helps is there, and not where its rank waits
        return [*lost, *(each for each in waits if not each.startswith("fix: "))]
    return [*waits, *_explain_outside(places, records, folder, _list_in_calls(stacks))]


def find_endless(
    records: Mapping[int, RankRecord],
    stacks: Mapping[int, str],
    programs: Mapping[int, str],
    folder: str,
) -> list[int]:
    """Return which ranks outside of any call wait for what nothing outside of the job gives them.

    That is a key that no rank sets, a lock that the rank holds itself, a thread that has died, a
    framework's meeting of all ranks, where the others are in a collective instead, a
    program that waits for the rank, and the end of a rank that has raised, and whose threads stay.
    All others may go on: a download, a file, another's lock.
    """
    found = []
    for rank, whole in stacks.items():
        stack = put_own_first(whole)
        record, program = records.get(rank), programs.get(rank, "")
        wait = explain_wait(read_stack(stack), program, folder)
        words = wait[0] if wait is not None else ""
        if record is not None and (
            HELD in words
            or _MEETS_OTHERS.search("\n".join(f"{f.filename} {f.name}" for f in read_stack(stack)))
            or _waits_for_itself(whole)
            or (program == ALONE and ALONE in words)
            or (record.lost and wait is not None)
            or (program and program in words and (JOINS in program or FILLS in program))
            or (record.error is not None and is_at_end(read_stack(whole)))
            or _explain_keys(records, {rank: whole}, folder)
        ):
            found.append(rank)
    return found


def _is_of_each_rank(words: str) -> bool:
    """Whether a key that ranks wait for is set by others under their own numbers."""
    awaited = re.search(r"the key `([^`]+)` of the store", words)
    shapes = {re.sub(r"\d+", "0", each) for each in re.findall(r"`([^`]+)` by rank", words)}
    return awaited is not None and re.sub(r"\d+", "0", awaited[1]) in shapes


def _explain_keys(
    records: Mapping[int, RankRecord], stacks: Mapping[int, str], folder: str
) -> list[str]:
    """Return that ranks, or threads of theirs, wait for keys of the store that no rank sets."""
    known = [rank for rank in stacks if rank in records]
    inner = {
        (each.filename, each.line)
        for rank in known
        for frames in read_threads(stacks[rank])
        for each in frames
        if not is_foreign(each.filename)
    }
    keys = explain_key(records, known, folder)
    return keys or (explain_key(records, known, folder, inner) if inner else [])


def _explain_staying(
    stacks: Mapping[int, str], records: Mapping[int, RankRecord], folder: str
) -> list[str]:
    """Return which ranks are at their end, and stay for a thread that is no daemon."""
    lines = []
    for rank, stack in sorted(stacks.items()):
        record = records.get(rank)
        if record is None or not record.staying or not is_at_end(read_stack(stack)):
            continue
        thread = record.staying[-1]
        where = thread.started_at.short(folder)
        started = f" (started at {where})" if where else ""
        over = "has raised" if record.error is not None else "is at its end"
        lines.append(
            f"rank {rank} {over}, and its process stays for its thread `{thread.name}`{started}, "
            "which is not a daemon and does not end: the others wait for it"
        )
        lines.append(
            "fix: end the thread on every way out, also by an error (`try`, `finally`), or let it "
            "be a daemon (`daemon=True`)."
        )
        lines += _tell_way_out(rank, records, folder) if record.error is None else []
    return lines


def _tell_way_out(
    rank: int,
    records: Mapping[int, RankRecord],
    folder: str,
    frames: Frames = (),
    *,
    over: bool = False,
) -> list[str]:
    """Return by which way out a rank alone has come where it is, while others wait in calls.

    `frames` are where it is. How it has left a loop that is behind it there is in its memory alone.
    With `over` the others may have come to their end, as fake ranks do.
    """
    calls = {
        other: last
        for other, record in records.items()
        for last in record.items[-1:]
        if other != rank and (record.inside or over)
        if isinstance(last, RecordedCall | BlockingCall)
    }
    parted = DecidedParting(Parting(group="", at=0, calls=calls, missing=(rank,)), records, folder)
    always = {
        decision: own
        for decision, own in (parted.tallies(whole=True) if calls else {}).items()
        if own[rank].yes or not _has_left_loop(frames, decision)
    }
    reason = find_way_out(parted, always, None, has_returned=False)
    reason = reason or find_way_out(parted, always, None)
    return [reason[0].words] if reason is not None else []


def _has_left_loop(frames: Frames, decision: Decision) -> bool:
    """Whether a function on a stack is behind the loop that a decision is in."""
    source = script_at(decision.file)
    loops = (
        node
        for node, part in (source.find_statements(decision.line) if source is not None else ())
        if isinstance(node, ast.For | ast.AsyncFor | ast.While) and part == "body"
    )
    loop = next(loops, None)
    if source is None or loop is None:
        return False
    own = source.scope(decision.line)
    return any(
        file == decision.file and line > end_of(loop) and source.scope(line) is own
        for file, line, _ in frames
    )


def _explain_unset(records: Mapping[int, RankRecord], folder: str) -> list[str]:
    """Return the way by which ranks pass the line in which others set their keys of the store."""
    places: dict[Frames, set[int]] = {}
    for rank, record in records.items():
        for each in record.changes:
            if each.what == "sets" and each.place.frames:
                places.setdefault(each.place.frames, set()).add(rank)
    parted = DecidedParting(Parting(group="", at=0, calls={}, missing=(*records,)), records, folder)
    for frames, setters in places.items():
        if len(setters) == len(records):
            continue
        near = {
            decision: own
            for decision, own in parted.tallies(whole=True).items()
            if any(_is_before(decision, file, line) for file, line, _ in frames)
        }
        reason = find_way_out(parted, near, None)
        setting = short(frames, folder)
        fix = f"fix: let each rank set its key ({setting}) before it waits, whatever"
        for decision, own in near.items():
            words = reason[0].words if reason is not None else count_turns(parted, decision, own)
            where = f"`{decision.text}` ({parted.place(decision)})"
            if decision.kind == "if" and where in words:
                return [words, f"{fix} {where} says."]
    return []


def _is_before(decision: Decision, file: str, line: int) -> bool:
    """Whether a decision is in the function of a line, and before it."""
    source = script_at(file) if decision.file == file and decision.line <= line else None
    return source is not None and source.scope(decision.line) is source.scope(line)


#: how a lock is told that a rank waits for, and has
HELD = "which it holds itself since"


def _explain_stores(stacks: Mapping[int, str], folder: str) -> list[str]:
    """Return which ranks wait in a store that they make themselves, for its clients."""
    lines = []
    for rank, stack in sorted(stacks.items()):
        for frame in read_stack(stack)[:1]:
            source = script_at(frame.filename)
            count = (
                source.argument(frame.line, {"world_size"}, {"TCPStore": 2})
                if source is not None and "TCPStore" in source.called(frame.line)
                else None
            )
            if count is None:
                continue
            place = place_at(frame.filename, frame.line, folder)
            text = ast.unparse(count)
            lines.append(
                f"rank {rank} waits at {place} for the clients of its `TCPStore`, which counts "
                f"`{text}` of them with itself"
            )
            lines.append(
                f"fix: pass as `world_size` how many processes make this store, and not `{text}`; "
                "or `wait_for_workers=False`."
            )
    return lines


def _explain_waits(
    stacks: Mapping[int, str], programs: Mapping[int, str], folder: str
) -> list[str]:
    found: dict[tuple[str, str], list[int]] = {}
    for rank, stack in sorted(stacks.items()):
        wait = explain_wait(read_stack(stack), programs.get(rank, ""), folder, read_threads(stack))
        if wait is not None:
            found.setdefault(wait, []).append(rank)
    lines = []
    for (words, fix), ranks in found.items():
        verb = "waits" if len(ranks) == 1 else "wait"
        lines += [f"{ranks_text(ranks)} {verb} {words}", f"fix: {fix}"]
    return lines


def explain_wait(
    frames: Sequence[StackFrame],
    program: str,
    folder: str,
    threads: Sequence[Sequence[StackFrame]] = (),
) -> tuple[str, str] | None:
    """Return what a rank outside of any call waits for by its stack, and what helps.

    `threads` are the stacks of its other threads.
    """
    at = next((at for at, each in enumerate(frames) if not is_foreign(each.filename)), None)
    if at is None:
        return None
    own = frames[at:]
    place = place_at(own[0].filename, own[0].line, folder)
    passed = "\n".join(f"{each.filename} {each.name}" for each in frames[:at])
    for pattern, words, fix in _KNOWN if at else ():
        if pattern.search(passed):
            if program.startswith(ENDED) and words == OF_QUEUE:
                return f"at {place} {words}: {program}", _OF_PRODUCER
            if program == ALONE and words == OF_QUEUE:
                return f"at {place} {words}: {program}", _OF_TAKER
            program = "" if program == ALONE else program
            more = f": {program}" if program and "program" in words else ""
            more = _tell_barrier(own[0].filename, folder) if words == AT_BARRIER else more
            if words in _OF_THREADS and (inner := _tell_threads(threads, folder)) is not None:
                return f"at {place} {words}{inner[0]}", inner[1] or fix
            own_fix = next((own for said, own in _OF_PROGRAM.items() if said in more), fix)
            return f"at {place} {words}{more}", own_fix
    program = "" if program == ALONE else program
    return None if at else _explain_read(own[0], program, folder) or _explain_lock(own, folder)


def _tell_threads(threads: Sequence[Sequence[StackFrame]], folder: str) -> tuple[str, str] | None:
    """Return where the other threads of a rank are, for one of which it waits, and what helps."""
    found: dict[str, str] = {}
    for frames in threads:
        own = next((each for each in frames if not is_foreign(each.filename)), None)
        if own is None:
            continue
        place = place_at(own.filename, own.line, folder)
        wait = explain_wait(frames, "", folder)
        if wait is None:
            found[f"in `{own.name}` ({place})"] = ""
        elif wait[0].endswith(OF_POOL):
            found[f"in `{own.name}`, and waits {wait[0]} as well"] = (
                f"let no task wait for another one of its pool ({place}): with `max_workers` such "
                "tasks at once nothing is left to run it. Call the function there itself, or give "
                "the inner tasks a pool of their own."
            )
        else:
            found[f"in `{own.name}`, and waits {wait[0]}"] = wait[1]
    if not found:
        return None
    shown = [*found][:MOST_THREADS]
    head = "its other thread is " if len(shown) == 1 else "its other threads are "
    return f"; {head}{', '.join(shown)}", next(filter(None, found.values()), "")


def _waits_for_itself(stack: str) -> bool:
    """Whether all threads of a rank wait for each other, and none of them for a time alone.

    It is not known of a stack that is of one thread.
    """
    if not has_all_threads(stack):
        return False
    threads = [read_stack(stack), *read_threads(stack)]
    own = [each for each in threads if any(not is_foreign(f.filename) for f in each)]
    if not own or own[0] is not threads[0]:
        return False
    return all(map(_waits_for_thread, own)) and all(
        any(_IDLE.search(f"{f.filename} {f.name}") for f in each)
        for each in threads
        if each and each not in own
    )


#: what a thread is in that does nothing of itself: one of a pool, or one that empties a queue
_IDLE = re.compile(r"concurrent/futures/thread\.py _worker$|multiprocessing/queues\.py _feed$")


def _waits_for_thread(frames: Sequence[StackFrame]) -> bool:
    """Whether a thread waits for another one of its process, for as long as that takes."""
    at = next(at for at, each in enumerate(frames) if not is_foreign(each.filename))
    source = script_at(frames[at].filename)
    text = source.frame(frames[at].line)[2] if source is not None else "timeout"
    wait = explain_wait(frames, "", "")
    is_for_one = wait is not None and any(words in wait[0] for words in _OF_THREADS)
    return is_for_one and _HAS_TIME.search(text) is None


#: a wait that ends after a time
_HAS_TIME = re.compile(r"timeout|block=|(?:join|wait|result|get)\([^)]*\d")


def _tell_barrier(file: str, folder: str) -> str:
    """Return the one line of a script that makes a barrier; nothing for none or several."""
    text, line = find_one_call(file, "Barrier")
    return f", made by `{text}` ({place_at(file, line, folder)})" * bool(line)


def explain_parent(
    stack: str,
    stacks: Mapping[int, str],
    folder: str,
    records: Mapping[int, RankRecord] | None = None,
) -> list[str]:
    """Return what the program waits for that starts the ranks, and what helps.

    `stack` is its own, and may be empty; `stacks` are those of the ranks that live. That it waits
    for their end is said only where they wait for it in turn: a process that has put something into
    a queue ends once that is taken.
    """
    frames = read_stack(stack)
    own = next((each for each in frames if not is_foreign(each.filename)), None)
    filled = [rank for rank, each in sorted(stacks.items()) if _fills_queue(each)]
    if own is None:
        return []
    place = place_at(own.filename, own.line, folder)
    wait = explain_wait(frames, "", folder)
    if filled:
        stay = "is at its end, and stays" if len(filled) == 1 else "are at their end, and stay"
        words = f"{ranks_text(filled)} {stay} until the items of its `Queue` are read"
        words += f"; the program that starts the ranks is at {place}, and takes nothing there"
        fix = f"take what processes put into a queue (`get`) before they are joined ({place}): a "
        fix += "process ends only then."
        return [words, f"fix: {fix}"]
    if wait is None or "a process that it has started" in wait[0]:
        return []
    words, fix = f"the program that starts the ranks waits {wait[0]}", f"fix: {wait[1]}"
    if OF_QUEUE not in wait[0]:
        return [words, fix]
    fix = fix if stacks else f"fix: {_OF_TAKER}"
    return [words, *(explain_item(records or {}, folder) or [fix])]


def waits_for_items(stack: str) -> bool:
    """Whether a process waits for another one to put something into their queue."""
    wait = explain_wait(read_stack(stack), "", "")
    return wait is not None and OF_QUEUE in wait[0]


def _fills_queue(stack: str) -> bool:
    """Whether a process is at its end, and waits for what it has put into a queue to be taken."""
    return any(
        each.name == "_finalize_join" and each.filename.endswith("multiprocessing/queues.py")
        for each in read_stack(stack)
    )


def _explain_read(frame: StackFrame, program: str, folder: str) -> tuple[str, str] | None:
    """Return that a rank reads what a program prints, in its own line; None where it does not."""
    source = script_at(frame.filename)
    reads = _READS.search(source.frame(frame.line)[2]) if source is not None else None
    if not program or reads is None:
        return None
    place = place_at(frame.filename, frame.line, folder)
    words = f"at {place} for the end of what a program prints that it has started: {program}"
    fix = "look at what the program waits for, and end it after a time (`communicate(timeout=)`)."
    return words, next((own for each, own in _OF_PROGRAM.items() if each in words), fix)


#: a line that reads what a program prints
_READS = re.compile(r"\b(?:stdout|stderr)\b")


#: what helps where the processes that fill a queue have ended
_OF_PRODUCER = (
    "let the process put an end marker (`None`) after its last item, also where it ends early, and "
    "call `get(timeout=)` only while it `is_alive()`."
)
#: what helps where no process fills a queue any more
_OF_TAKER = (
    "take as many items as are put: count both, such as one of each rank or of each but rank 0; or "
    "let who puts them end with a marker (`None`)."
)
#: what helps, by what is said of a program that a rank has started
_OF_PROGRAM = {
    JOINS: (
        "a program that finds RANK, WORLD_SIZE and MASTER_ADDR in its environment joins this job, "
        "and waits for its ranks: start it without them (`env=`), and give the call a `timeout=`."
    ),
    FILLS: (
        "read all that the program prints while it runs: `communicate()` in place of `wait()`, or "
        "of reading one pipe to its end; or let it print into a file or `subprocess.DEVNULL`."
    ),
}


def _explain_lock(own: Sequence[StackFrame], folder: str) -> tuple[str, str] | None:
    """Return that a rank waits for a lock in its own line, and where it took that before."""
    lock = _lock_in(own[0])
    if not lock:
        return None
    place = place_at(own[0].filename, own[0].line, folder)
    for each in own:
        for line in _lines_of_withs(each, lock):
            if (each.filename, line) != (own[0].filename, own[0].line):
                held = place_at(each.filename, line, folder)
                fix = (
                    f"take the lock once: call nothing under it that takes it again (:"
                    f"{each.line}), or let it be a `threading.RLock`."
                )
                return f"at {place} for `{lock}`, {HELD} {held}", fix
    other = _find_other_order(own, lock, folder)
    if other:
        words, fix = other
        return f"at {place} for the lock `{lock}`, {words}", fix
    fix = (
        "look at the thread that holds it: a thread that has died, or that waits for this one, "
        "never gives it back."
    )
    return (
        f"at {place} for the lock `{lock}`, which another thread holds, or none gives back",
        fix,
    )


def _find_other_order(own: Sequence[StackFrame], lock: str, folder: str) -> tuple[str, str] | None:
    """Return where two locks are taken in the opposite order, one of which a rank waits for.

    The rank holds the other one, so a thread that holds the first and waits for the other never
    goes on, and neither does the rank.
    """
    for frame in own:
        source = script_at(frame.filename)
        if source is None:
            continue
        held = [
            (name, node.lineno)
            for node, _ in source.find_statements(frame.line)
            if isinstance(node, ast.With) and node.lineno < frame.line
            for name in _list_locks(node)
        ]
        for name, since in held:
            for line in source.nestings(lock, name):
                taken, crossed = (source.place(at, folder) for at in (since, line))
                return (
                    f"and holds `{name}` since {taken}; at {crossed} the code takes `{name}` "
                    f"under `{lock}`: a thread there may hold `{lock}` and wait for `{name}`"
                ), f"take `{lock}` and `{name}` in one order in all threads, or use one lock."
    return None


def _list_locks(node: ast.With) -> list[str]:
    """Return what a `with` takes that may be a lock: no call makes it there."""
    found = (each.context_expr for each in node.items)
    return [ast.unparse(each) for each in found if not isinstance(each, ast.Call)]


#: a lock that a line takes by a call
_ACQUIRES = re.compile(r"([\w.\[\]]+)\.acquire\(")


def _lock_in(frame: StackFrame) -> str:
    """Return the lock that a line takes: of a `with`, or by `acquire`; empty for none."""
    source = script_at(frame.filename)
    if source is None:
        return ""
    for node, name in source.find_statements(frame.line)[:1]:
        if name == "items" and isinstance(node, ast.With):
            return next(
                (
                    ast.unparse(each.context_expr)
                    for each in node.items
                    if not isinstance(each.context_expr, ast.Call)
                ),
                "",
            )
    taken = _ACQUIRES.search(source.frame(frame.line)[2])
    return taken[1] if taken is not None else ""


def _lines_of_withs(frame: StackFrame, lock: str) -> Iterator[int]:
    """Yield the lines before a frame's own that take a lock in the same function, or around it."""
    source = script_at(frame.filename)
    if source is None:
        return
    for node, _ in source.find_statements(frame.line):
        if isinstance(node, ast.With) and any(
            ast.unparse(each.context_expr) == lock for each in node.items
        ):
            yield node.lineno
    for call in ast.walk(source.scope(frame.line)):
        if isinstance(call, ast.Call) and call.lineno < frame.line:
            taken = _ACQUIRES.fullmatch(f"{ast.unparse(call.func)}(")
            if taken is not None and taken[1] == lock:
                yield call.lineno


def _list_in_calls(stacks: Mapping[int, str]) -> list[int]:
    """Return which ranks wait in C++ for other ranks, as the forward of DDP does, by the stack."""
    read = {rank: RankStack(rank=rank, frames=read_stack(each)) for rank, each in stacks.items()}
    return [rank for rank, each in read.items() if each.call]


def _explain_outside(
    places: Mapping[int, Frames],
    records: Mapping[int, RankRecord],
    folder: str,
    in_calls: Sequence[int] = (),
) -> list[str]:
    """Return in words why some ranks are outside of any call; nothing where that is not known.

    `places` says where each of them is: what it decided since its last call is in its memory alone.
    Those `in_calls` wait for the others, though their records end before.
    """
    outside = {rank: frames for rank, frames in places.items() if rank not in in_calls}
    waiting = [
        rank
        for rank, each in records.items()
        if rank in in_calls or (rank not in places and each.inside)
    ]
    apart = _find_apart(outside, waiting, records, folder)
    apart = apart or _find_left(outside, waiting, records, folder)
    apart = apart or [
        words
        for rank in [*outside][:1]
        if rank in records
        for words in _tell_way_out(rank, records, folder, outside[rank])
    ]
    return [*apart, *find_polls(places, records, folder)]


def _find_left(
    places: Mapping[int, Frames],
    waiting: Sequence[int],
    records: Mapping[int, RankRecord],
    folder: str,
) -> list[str]:
    """Return the loop that ranks outside of any call have left, and others, who wait, are in."""
    calls = {
        rank: last
        for rank in waiting
        for last in records[rank].items[-1:]
        if isinstance(last, RecordedCall)
    }
    for rank, frames in places.items():
        for call in calls.values() if rank in records else ():
            loop = loop_of(call.place.frames, [frames])
            source = script_at(loop[2]) if loop is not None else None
            if loop is None or source is None:
                continue
            is_past = any(
                file == loop[2] and source.scope(line) is source.scope(loop[1]) and line > loop[1]
                for file, line, _ in frames
            )
            parting = Parting(group="", at=0, calls=calls, missing=(rank,))
            found = find_turns(parting, records, folder) if is_past else None
            if found is not None:
                return [found[0].words]
    return []


def _explain_lost(
    ranks: Collection[int], records: Mapping[int, RankRecord], folder: str
) -> list[str]:
    """Return which threads of ranks have died, and by what."""
    lines = []
    for rank in ranks:
        for each in records[rank].lost[-1:] if rank in records else ():
            where = each.raised_at.short(folder)
            at = f" ({where})" if where else ""
            lines.append(
                f"a thread of rank {rank}, {each.name}, has died by {each.words}{at}: what waits "
                "for it waits for ever"
            )
            lines.append(
                f"fix: look at what raises{at and f' at {where}'}, and let a thread hand its error "
                "to the main thread, which then stops waiting."
            )
    return lines


def find_polls(
    places: Mapping[int, Frames], records: Mapping[int, RankRecord], folder: str
) -> list[str]:
    """Return the loop with a condition that ranks outside of any call are in."""
    found: dict[str, list[int]] = {}
    timed: dict[str, list[int]] = {}
    counted: list[str] = []
    missed: list[str] = []
    for rank, frames in places.items():
        for file, line, _ in frames:
            source = script_at(file)
            around = source.find_statements(line) if source is not None else []
            loop = next((node for node, _ in around if isinstance(node, ast.While)), None)
            test = _read_test(loop) if loop is not None else None
            if loop is not None and test is not None:
                place = place_at(file, loop.lineno, folder)
                of_kind = timed if _asks_clock(test) else found
                text = f"`while {ast.unparse(loop.test)}` ({place})"
                text += "" if test is loop.test else f", until `{ast.unparse(test)}`,"
                of_kind.setdefault(text, []).append(rank)
                counted = counted or _find_uncounted(records, (file, test.lineno), folder)
                missed = missed or _explain_poll(records, (file, loop), test, folder)
                break
    if missed:
        return missed
    counted += [
        f"{ranks_text(ranks)} {'asks' if len(ranks) == 1 else 'ask'} again and again in {text}: "
        "look at what has to change for it to end, and at the rank that changes it"
        for text, ranks in found.items()
    ]
    counted += [
        f"{ranks_text(ranks)} {'waits' if len(ranks) == 1 else 'wait'} in {text}, which ends by "
        "itself, at a time"
        for text, ranks in timed.items()
    ]
    return counted


def _explain_poll(
    records: Mapping[int, RankRecord],
    at: tuple[str, ast.While | ast.For],
    test: ast.expr,
    folder: str,
) -> list[str]:
    """Return what a loop asks for again and again that never comes, and what helps; or nothing."""
    file, loop = at
    place = place_at(file, loop.lineno, folder)
    return (
        _find_missed(records, (file, test.lineno), folder)
        or (explain_counted_key(records, (file, loop), test, folder) if _is_while(loop) else [])
        or _find_unlisted(records, test, place, folder)
        or _find_unwritten(records, test, place, folder)
    )


def explain_time_limit(
    record: RankRecord, records: Mapping[int, RankRecord], folder: str
) -> list[str]:
    """Return what a rank has waited for that raises by a time limit of the script.

    The `raise` is in the loop that waits, or behind it::

        while not path.exists():                 while time.time() < end:
            if time.time() > end:                    if path.exists():
                raise TimeoutError(path)                 return path
            time.sleep(0.1)                      raise TimeoutError(path)
    """
    for file, line, _ in record.raised_at.frames:
        source = script_at(file)
        found = _find_given_up(source, line) if source is not None else None
        if found is None:
            continue
        loop, test = found
        return _find_uncounted(records, (file, test.lineno), folder) or _explain_poll(
            records, (file, loop), test, folder
        )
    return []


def _find_given_up(source: Script, line: int) -> tuple[ast.While | ast.For, ast.expr] | None:
    """Return the loop that a `raise` gives up, and what the loop asks in each turn; or None."""
    around = [node for node, _ in source.find_statements(line)]
    for loop in around:
        if isinstance(loop, ast.While) and not _asks_clock(loop.test):
            test = _read_test(loop)
            return (loop, test) if test is not None else None
        if isinstance(loop, ast.While | ast.For):
            return _find_asked(loop)
    for node in ast.walk(source.scope(line)):
        for block in (getattr(node, name, None) for name in ("body", "orelse", "finalbody")):
            for before, each in itertools.pairwise(block if isinstance(block, list) else ()):
                if each.lineno == line and isinstance(before, ast.While | ast.For):
                    return _find_asked(before)
    return None


def _find_asked(loop: ast.While | ast.For) -> tuple[ast.While | ast.For, ast.expr] | None:
    """Return a loop with the condition by which it is left before its time is over; or None."""
    for node in loop.body:
        if isinstance(node, ast.If) and isinstance(node.body[-1], ast.Break | ast.Return):
            return loop, node.test
    return None


def _is_while(loop: ast.While | ast.For) -> TypeGuard[ast.While]:
    return isinstance(loop, ast.While)


def find_endless_loop(
    records: Mapping[int, RankRecord], folder: str
) -> tuple[list[int], list[str], str] | None:
    """Return the ranks in a loop that they never leave, what is known of that, and what helps."""
    places = {r: each.turns_at.frames for r, each in records.items() if each.turns_at.frames}
    found: dict[str, list[int]] = {}
    for rank, frames in places.items():
        file, line, _ = frames[0]
        source = script_at(file)
        around = source.find_statements(line) if source is not None else []
        loop = next((node for node, _ in around if isinstance(node, ast.While)), None)
        if loop is None:
            continue
        test = _read_test(loop)
        text = f"`while {ast.unparse(loop.test)}` ({short(((file, loop.lineno, ''),), folder)})"
        if test is not None and test is not loop.test:
            text += f" until `{ast.unparse(test)}`"
        found.setdefault(text, []).append(rank)
    if not found:
        return None
    drawn = [rank for rank in places if records[rank].turns_by_chance]
    lines = [
        f"{ranks_text(ranks)} {'turns' if len(ranks) == 1 else 'turn'} "
        + (
            f"for more than 20 s in {text}: each turn begins as one before, and what it draws at "
            "random has not ended it"
            if {*ranks} & {*drawn}
            else f"for ever in {text}: its turns begin alike, and nothing that they read changes"
        )
        for text, ranks in found.items()
    ]
    waiting = [rank for rank, each in records.items() if rank not in places and each.inside]
    rank = next(iter(places))
    way = _find_apart({rank: places[rank]}, waiting, records, folder) if waiting else []
    way = way or _tell_way_out(rank, records, folder, over=not waiting)
    fix = f"let the loop end by itself ({next(iter(found))}): ask first whether what it looks for "
    fix += "is there, or give up after some turns, on all ranks alike."
    return [*places], [*lines, *way], fix


def _read_test(loop: ast.While) -> ast.expr | None:
    """Return what a loop asks in each turn: its condition, or that of a `break` out of it."""
    if not isinstance(loop.test, ast.Constant):
        return loop.test
    for node in loop.body:
        if isinstance(node, ast.If) and isinstance(node.body[-1], ast.Break | ast.Return):
            return node.test
    return None


#: what a script asks for the time
_CLOCK = re.compile(r"\b(?:time|monotonic|perf_counter|now|utcnow)\(\)")


def _asks_clock(test: ast.expr) -> bool:
    """Whether a condition compares the time with another, and asks nothing else."""
    is_one = isinstance(test, ast.Compare) and len(test.ops) == 1
    calls = [ast.unparse(each) for each in ast.walk(test) if isinstance(each, ast.Call)]
    return is_one and bool(calls) and all(_CLOCK.search(each) for each in calls)


#: what is said of a file that a loop asks for, where no rank writes one of its name
NO_WRITER = ", which no rank writes"


def _find_missed(
    records: Mapping[int, RankRecord], asks_at: tuple[str, int], folder: str
) -> list[str]:
    """Return the file that a loop asks for and no rank writes, and what is written beside it."""
    changes = [(rank, each) for rank, record in records.items() for each in record.changes]
    asked: dict[str, list[int]] = {}
    for rank, each in changes:
        if each.what == "misses" and each.place.frames[:1] and each.place.frames[0][:2] == asks_at:
            asked.setdefault(each.path, []).append(rank)
    written = [(r, each) for r, each in changes if each.what in {"writes", "makes", "renames"}]
    for path, ranks in asked.items():
        if any(each.path == path for _, each in written):
            continue
        name, folder_of = PurePath(path).name, PurePath(path).parent
        beside = [
            f"`{PurePath(each.path).name}` by rank {rank} ({each.place.short(folder)})"
            for rank, each in written
            if PurePath(each.path).parent == folder_of
        ]
        where = place_at(*asks_at, folder)
        verb = "asks" if len(ranks) == 1 else "ask"
        elsewhere = next(((r, e) for r, e in written if PurePath(e.path).name == name), None)
        if elsewhere is not None:
            rank, each = elsewhere
            words = (
                f"{ranks_text(ranks)} {verb} again and again for the file `{path}` ({where}), and "
                f"rank {rank} writes `{each.path}` ({each.place.short(folder)})"
            )
            fix = "let the ranks agree on the folder: one of them chooses its name, broadcasts it."
            return [words, f"fix: {fix}"]
        words = f"{ranks_text(ranks)} {verb} again and again for the file `{name}` ({where})"
        words += NO_WRITER
        leaver = _tell_leaver(records, folder, str(folder_of))
        words += f"; in its folder they write {', '.join(dict.fromkeys(beside))}" if beside else ""
        words += f"; {leaver}" if leaver else ""
        return [words, f"fix: let a rank write `{name}`, or ask for what is written ({where})."]
    return []


#: files that are named of those that ranks write
MOST_ALIKE = 3
#: what a name of a file looks like
_FILE = re.compile(r"[\w*?-]+\.[\w.*?-]+|[\w?-]*\*[\w.*?-]*|[A-Z_]{3,}")


def _find_unlisted(
    records: Mapping[int, RankRecord], test: ast.expr, place: str, folder: str
) -> list[str]:
    """Return the name that a loop looks for in a listed folder, which no rank writes."""
    wanted = [
        PurePath(node.value).name
        for node in ast.walk(test)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and _FILE.fullmatch(PurePath(node.value).name)
    ]
    if not LISTS.search(ast.unparse(test)) or len(wanted) != 1:
        return []
    name = wanted[0]
    written = [
        (rank, each)
        for rank, record in records.items()
        for each in record.changes
        if each.what in {"writes", "makes", "renames"}
    ]
    if any(fnmatch(PurePath(each.path).name, name) for _, each in written):
        return []
    stem = name.strip("*?.").partition(".")[0]
    alike = dict.fromkeys(
        f"`{PurePath(each.path).name}` by rank {rank} ({each.place.short(folder)})"
        for rank, each in written[-MOST_ALIKE:]
        if stem in PurePath(each.path).name or "*" in name
    )
    words = f"a loop lists a folder again and again for the file `{name}` ({place})"
    words += f", which no rank writes; they write {', '.join(alike)}" if alike else ""
    words += "" if alike else ", which no rank writes"
    return [words, f"fix: let a rank write `{name}`, or look for what is written ({place})."]


def _find_unwritten(
    records: Mapping[int, RankRecord], test: ast.expr, place: str, folder: str
) -> list[str]:
    """Return which ranks write no file where others do, for a loop that counts those of a folder.

    They took a way out of the function in which the others write.
    """
    found = _tell_leaver(records, folder) if LISTS.search(ast.unparse(test)) else ""
    words = f"a loop counts what is in a folder again and again ({place}): {found}"
    fix = "fix: let every rank that is counted write its file, also an empty one, or count those "
    fix += f"that do ({place})."
    return [words, fix] if found else []


def _tell_leaver(records: Mapping[int, RankRecord], folder: str, parent: str = "") -> str:
    """Return which ranks write no file where others write one, in a folder or in any, and why."""
    written: dict[tuple[str, int], dict[int, str]] = {}
    for rank, record in records.items():
        for each in record.changes:
            path = PurePath(each.path)
            is_there = parent in {"", str(path.parent)} and each.place.frames
            if each.what in {"writes", "makes", "renames"} and is_there:
                written.setdefault(each.place.frames[0][:2], {}).setdefault(rank, path.name)
    for (file, line), names in reversed(written.items()):
        left = [rank for rank in records if rank not in names]
        way = _find_way_past(records, (file, line), left, folder) if left else None
        if way is not None:
            rank, name = next(iter(names.items()))
            where, have = place_at(file, line, folder), "has" if len(left) == 1 else "have"
            return (
                f"{ranks_text(left)} {have} written no file at {where}, where rank {rank} writes "
                f"`{name}`: {way[0].words}"
            )
    return ""


def _find_way_past(
    records: Mapping[int, RankRecord], at: tuple[str, int], left: Sequence[int], folder: str
) -> Reason | None:
    """Return the way out of a function by which these ranks alone do not come to a line of it."""
    source = script_at(at[0])
    scope = source.scope(at[1]) if source is not None else None
    if not isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
        return None
    parted = DecidedParting(Parting(group="", at=0, calls={}, missing=(*records,)), records, folder)
    way = find_way_out(parted, parted.tallies(whole=True), (at[0], scope.lineno, at[1]))
    alone = way is not None and way[0].words.startswith(f"{ranks_text([*left])} alone")
    return way if alone else None


def _find_uncounted(
    records: Mapping[int, RankRecord], asks_at: tuple[str, int], folder: str
) -> list[str]:
    """Return which ranks have not set a key of the store that a loop asks for, and others have."""
    asked = {
        each.path
        for record in records.values()
        for each in record.changes
        if each.what in {"sets", "awaits"} and each.place.frames[0][:2] == asks_at
    }
    for key in sorted(asked):
        set_at: dict[str, list[int]] = {}
        for rank, record in sorted(records.items()):
            for each in record.changes:
                is_set = each.what == "sets" and each.path == key
                if is_set and each.place.frames[0][:2] != asks_at:
                    set_at.setdefault(short(each.place.frames, folder), []).append(rank)
        for where, ranks in set_at.items():
            left = [rank for rank in records if rank not in ranks]
            if not left:
                continue
            parted = DecidedParting(
                Parting(group="", at=0, calls={}, missing=(*records,)), records, folder
            )
            way = find_way_out(parted, parted.tallies(whole=True), None)
            have = "has" if len(left) == 1 else "have"
            words = (
                f"{ranks_text(left)} {have} not set the key `{key}` of the store, which "
                f"{ranks_text(ranks)} {'sets' if len(ranks) == 1 else 'set'} at {where}"
            )
            fix = f"fix: let every rank that is counted come to {where}, or count those that do."
            return [words + (f": {way[0].words}" if way is not None else ""), fix]
    return []


def _find_apart(
    places: Mapping[int, Frames],
    waiting: Sequence[int],
    records: Mapping[int, RankRecord],
    folder: str,
) -> list[str]:
    """Return the `if` around where ranks are that others, who wait in calls, decide otherwise."""
    for rank, frames in places.items():
        for file, line, _ in frames:
            source = script_at(file)
            for node, name in source.find_statements(line) if source is not None else ():
                if not isinstance(node, ast.If) or name not in {"body", "orelse"}:
                    continue
                at = (file, node.test.lineno)
                others = [each for each in waiting if _goes_past(records[each], at, name)]
                if others:
                    text, own = ast.unparse(node.test), ranks_text([rank])
                    way = "into" if name == "body" else "into the `else` of"
                    verb = "does" if len(others) == 1 else "do"
                    where = place_at(*at, folder)
                    inner = short(frames, folder)
                    words = f"{ranks_text(others)} {verb} not go {way} `if {text}` ({where})"
                    return [f"{words}, under which {own} is ({inner})"]
    return []


def _goes_past(record: RankRecord, at: tuple[str, int], name: str) -> bool:
    """Whether a rank decided an `if` the other way, each time."""
    ways = [
        way
        for way in record.ways
        if (way.decision.file, way.decision.line) == at
        if way.decision.kind == "if"  # and not a part of its condition
    ]
    taken = sum(way.yes if name == "body" else way.no for way in ways)
    return bool(ways) and not taken
