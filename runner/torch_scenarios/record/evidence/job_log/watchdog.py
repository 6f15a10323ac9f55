"""NCCL's watchdog -> how far each rank is, and which is behind, absent or idle."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from torch_scenarios.display import clean_line
from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.job_log.log import (
    WORLD_RANK,
    JobLog,
    RankLog,
    WatchedWork,
    make_finding,
    read_rank,
)
from torch_scenarios.record.evidence.job_log.printed_error import make_error
from torch_scenarios.record.evidence.stack import MOST_FRAMES, MOST_NAME, RankStack, StackFrame
from torch_scenarios.verdict import Finding
from torch_scenarios.verdict.finding import ranks_text

#: what a rank is in of which a log says the number alone
UNNAMED = "collective"
_GROUP = re.compile(
    r"\[(?:PG (?:ID )?(?P<id>\d+)(?: PG GUID (?P<guid>[^\s(\]]+))?(?: ?\((?P<name>[^)]*)\))? )?"
    r"Rank (?P<rank>\d+)\]"
)
_WORK = re.compile(
    r"WorkNCCL\(SeqNum=(?P<number>\d+), OpType=(?P<kind>\w+)(?:, [^)]*?NumelIn=(?P<ins>\d+), "
    r"NumelOut=(?P<outs>\d+))?[^)]*?Timeout\(ms\)=(?P<limit>\d+)\)(?: ran for (?P<ran>\d+))?"
)
_DONE = re.compile(
    r"[Ll]ast enqueued (?:NCCL )?work: (?P<begun>-?\d+), "
    r"last completed (?:NCCL )?work: (?P<done>-?\d+)"
)
#: a watchdog that a call of CUDA or NCCL has stopped, and one that a timeout made dump
_HALTED = re.compile(r"Rank (\d+)\] ProcessGroupNCCL's watchdog got stuck for (\d+) seconds")
_DUMPS = "Received a dump signal"
#: what a watchdog ended its process with
_TERMINATED = re.compile(r"Rank (\d+)\] .*watchdog thread terminated with exception: (.+)")
#: where a rank called what has timed out, the innermost function first
_FAILED_CALL = "Stack trace of the failed collective:"
_CALL_FRAME = re.compile(r"^\s*#\d+ (\S+) from (\S+):(\d+)\s*$")


def read(lines: Sequence[str], log: JobLog) -> None:
    """Read how far ranks are, where they called what has timed out, and which watchdogs halt."""
    _read_works(lines, log)
    _read_calls(lines, log)
    for line in lines:
        if (ended := _TERMINATED.search(line)) is not None:
            log.errors.setdefault(int(ended[1][:9]), make_error(ended[2]))
        elif "ncclRemoteError" in line:
            log.is_peer_lost = True
        elif (halted := _HALTED.search(line)) is not None:
            log.halted.setdefault(int(halted[1][:9]), int(halted[2][:9]))


def _read_works(lines: Sequence[str], found: JobLog) -> None:
    """Read from lines of NCCL's watchdog what each rank began and ended last, and what waits.

    The line of a work does not name its group; a later line of the same rank does.
    """
    names: dict[int, str] = {}
    waiting: list[tuple[int, WatchedWork]] = []
    for line in lines:
        work, done = _WORK.search(line), _DONE.search(line)
        if work is None and done is None:
            continue
        group = _GROUP.search(line)
        world = WORLD_RANK.search(line)
        rank_of = world[1] if world is not None else group["rank"] if group is not None else None
        rank = None if rank_of is None else read_rank(rank_of)
        if rank is None:
            continue
        if done is not None and group is not None:
            name = group["name"] or (f"group {group['id']}" if group["id"] else "")
            if _DUMPS not in line:  # it is the default group's, whatever group has timed out
                names.setdefault(rank, name)
            own = found.groups.setdefault(name, {}).setdefault(rank, RankLog())
            own.begun, own.done = int(done["begun"][:12]), int(done["done"][:12])
        if work is not None:
            sizes = (int(work["ins"][:15]), int(work["outs"][:15])) if work["ins"] else None
            waiting.append(
                (
                    rank,
                    WatchedWork(
                        number=int(work["number"][:15]),
                        kind=clean_line(work["kind"][:40]),
                        sizes=sizes,
                        limit_s=int(work["limit"][:12]) / 1000,
                    ),
                )
            )
    named = set(found.groups) - {""}
    only = next(iter(named)) if len(named) == 1 else ""
    for rank, each in waiting:  # the line of a work does not name its group; one after it does
        own = found.groups.setdefault(names.get(rank, only), {}).setdefault(rank, RankLog())
        if each not in own.works:
            own.works.append(each)


def _read_calls(lines: Sequence[str], found: JobLog) -> None:
    """Read where each rank called what has timed out."""
    rank: int | None = None
    frames: list[StackFrame] = []
    for line in [*lines, ""]:
        if rank is not None and (frame := _CALL_FRAME.match(line)):
            name, file = (clean_line(each)[-MOST_NAME:] for each in frame.group(1, 2))
            frames.append(StackFrame(name, file, int(frame[3][:9])))
            continue
        if rank is not None and frames:
            found.called.setdefault(rank, RankStack(rank=rank, frames=(*frames[:MOST_FRAMES],)))
            rank, frames = None, []
        if _FAILED_CALL in line and (world := WORLD_RANK.search(line)) is not None:
            rank, frames = read_rank(world[1]), []


def find(log: JobLog) -> Iterator[Finding]:
    """Yield, for each group, which ranks are behind, by the first collective that each is in."""
    for group, ranks in log.groups.items():
        at = {
            rank: min(each.works, key=lambda work: work.number)  # an older log has several, mixed
            for rank, each in ranks.items()
            if each.works
        }
        for rank, own in ranks.items():
            if not own.is_idle:
                at.setdefault(rank, WatchedWork(number=(own.done or 0) + 1, kind=UNNAMED))
        if not at:
            continue
        where = _name_group(group)
        numbers = {each.number for each in at.values()}
        first = min(numbers)
        behind = sorted(rank for rank, each in at.items() if each.number == first)
        alike: dict[str, list[int]] = {}
        for rank, each in sorted(at.items()):
            size = (
                ""
                if each.sizes is None
                else f", {each.sizes[0]} element{'s' * (each.sizes[0] != 1)} in, "
                f"{each.sizes[1]} out"
            )
            alike.setdefault(f"{each.kind} {each.number}{size}", []).append(rank)
        notes = [
            Clause(f"{ranks_text(who)} {'is' if len(who) == 1 else 'are'} in {words}")
            for words, who in alike.items()
        ]
        notes += [
            Clause(f"rank {rank} waits at {log.errors[rank].place}")
            for rank in sorted(at)
            if rank in log.errors and log.errors[rank].place
        ]
        notes += [*_tell_calls(log, sorted(at))]
        kinds = {
            (each.kind, each.sizes)
            for each in at.values()
            if each.number == first and each.kind != UNNAMED
        }
        ahead = at[behind[0]]
        idle = [r for r, own in ranks.items() if own.is_idle and (own.done or 0) < ahead.number]
        if len(numbers) == 1 and idle:
            yield _report_idle(idle, ranks, at, where, notes)
        elif len(numbers) > 1:
            words = (
                f"{ranks_text(behind)} {'is' if len(behind) == 1 else 'are'} behind{where}: in "
                f"{at[behind[0]].kind} {first}, which the others have passed"
            )
            fix = (
                f"find what {ranks_text(behind)} did otherwise before collective {first}{where}: a "
                "collective of its own, or one that it left out. `scenario record --attach` names "
                "the line of the next run, TORCH_FR_BUFFER_SIZE=2000 keeps what a dump needs."
            )
            yield make_finding("call_mismatch", words, behind, notes, fix)
        elif len(kinds) > 1:
            words = f"the ranks meet with different calls in collective {first}{where}"
            why, fix = _explain_sizes(at)
            yield make_finding("call_mismatch", words, sorted(at), [*why, *notes], fix)
        else:
            yield _report_wait(log, group, at, notes)


def _explain_sizes(at: Mapping[int, WatchedWork]) -> tuple[list[Clause], str]:
    """Return what one collective is to ranks that meet in it with other calls or sizes, and a fix.

    FSDP and ZeRO gather a unit's parameters before they use it, and scatter the sum of its
    gradients after the backward pass (torch/distributed/fsdp); DDP sums a bucket of gradients
    (torch/nn/parallel/distributed.py). A number alone is a loss, a norm or a flag.
    """
    alike: dict[tuple[str, tuple[int, int]], list[int]] = {}
    for rank, each in sorted(at.items()):
        if each.sizes is not None:
            alike.setdefault((each.kind, each.sizes), []).append(rank)
    sharded = {each.ranks for each in at.values()} - {0}
    kinds = {kind for kind, _ in alike}
    if len(alike) == 2 and len(sharded) == 1 and all(each.ranks for each in at.values()):
        (size,) = sharded
        if len(kinds) == 1:
            words = f"these are the sizes of different units of a model sharded over {size} ranks"
            fix = (
                "let every rank use the same layers in the same order: a branch in `forward`, an "
                "expert without tokens or a layer that is frozen on some ranks leaves units out."
            )
            return [Clause(words)], fix
        by_kind = {kind: who for (kind, _), who in alike.items()}
        gather, scatter = by_kind["_ALLGATHER_BASE"], by_kind["_REDUCE_SCATTER_BASE"]
        one = "one unit" if len({max(sizes) for _, sizes in alike}) == 1 else "units"
        words = (
            f"these are the sizes of {one} of a model sharded over {size} ranks: "
            f"{ranks_text(gather)} gather{'s' * (len(gather) == 1)} its parameters, "
            f"{ranks_text(scatter)} scatter{'s' * (len(scatter) == 1)} the sum of its gradients"
        )
        fix = (
            "give every rank as many forward and backward passes: a rank that has a batch more, or "
            "evaluates or generates alone, gathers what the others do not."
        )
        return [Clause(words)], fix
    lone = [who for (kind, sizes), who in alike.items() if sizes == (1, 1)]
    if len(alike) == 2 and len(lone) == 1 and kinds == {"ALLREDUCE"}:
        (who,) = lone
        words = (
            f"{ranks_text(who)} sum{'s' * (len(who) == 1)} one number (a loss, a norm, a flag), "
            "where the others sum a tensor, as DDP does with gradients"
        )
        fix = (
            "give every rank as many batches, and sum that number on all ranks or on none, at the "
            "same place."
        )
        return [Clause(words)], fix
    return [], "let every rank make the same calls of a group, of the same sizes."


def _name_group(name: str) -> str:
    return f" of {name}" if name and name != "default_pg" else ""


def _tell_calls(log: JobLog, ranks: Sequence[int]) -> Iterator[Clause]:
    """Say where ranks called what has timed out: the innermost line of the user's own."""
    for rank in ranks:
        stack = log.called.get(rank)
        if stack is not None and (own := [*stack.own, *stack.frames][:1]):
            where = f"{Path(own[0].filename).name}:{own[0].line}, in {own[0].name}"
            yield Clause(f"rank {rank} called it at {where}")


def _report_idle(
    idle: Sequence[int],
    ranks: Mapping[int, RankLog],
    at: Mapping[int, WatchedWork],
    where: str,
    notes: Sequence[Clause],
) -> Finding:
    """Return that ranks have completed all of theirs, and never entered what others wait in."""
    work = next((each for each in at.values() if each.kind != UNNAMED), next(iter(at.values())))
    what = f"{work.kind} {work.number}{where}"
    who = ranks_text(sorted(idle))
    words = f"{who} never entered {what}, where {ranks_text(sorted(at))} wait{'s' * (len(at) == 1)}"
    own = [
        Clause(
            f"rank {rank} has completed all of its {ranks[rank].done} collectives, and is in none"
        )
        for rank in sorted(idle)
    ]
    fix = (
        f"look at {who}: still at work (a checkpoint, an evaluation, a slow batch), past its loop, "
        "or in another group; `scenario hang` on its machine shows where it is."
    )
    return make_finding("missing_participant", words, sorted(idle), [*notes, *own], fix)


def _report_wait(
    log: JobLog, group: str, at: Mapping[int, WatchedWork], notes: Sequence[Clause]
) -> Finding:
    """Return that ranks wait in one collective, and which of those that the log names do not."""
    where = _name_group(group)
    work = next((each for each in at.values() if each.kind != UNNAMED), next(iter(at.values())))
    what = f"{work.kind} {work.number}"
    named = max(log.ranks) + 1
    silent = [rank for rank in range(named) if rank not in at]
    words = f"{ranks_text(sorted(at))} wait{'s' * (len(at) == 1)} in {what}{where}"
    if log.halted:
        notes = [*notes, Clause(f"{_tell_halted(log)}: a call of CUDA or NCCL hangs there")]
    if work.ranks not in {0, named, len(at)}:  # which others its group has is not known
        silent = []
        words += f"; of {work.ranks - len(at)} more of its {work.ranks} ranks the watchdog says "
        words += "nothing"
        fix = (
            f"look at the other ranks of the group: one that never came to {what}, died or is "
            "slow; `scenario hang` on its machine shows where it is."
        )
    elif silent and work.ranks != len(at):
        words += f"; of {ranks_text(silent)} the watchdog says nothing"
        gone = [rank for rank in silent if rank in log.errors or rank in log.ends]
        first = gone or sorted(log.halted)
        who = ranks_text(first or silent) + " first" * bool(first)
        fix = (
            f"look at {who}: one that never came to {what}, died or is slow; `scenario hang` on "
            "its machine shows where it is."
        )
    elif log.is_peer_lost or len(at) == 1:
        lost = "NCCL lost its connection to another rank, " if log.is_peer_lost else ""
        words += f"; {lost}{'of which' if lost else 'of other ranks'} the log says nothing"
        fix = (
            f"look for a rank that left or died before {what}, or never entered "
            "it: its own log, its exit code; `scenario record --attach` names the line of the next "
            "run."
        )
    elif work.ranks:
        silent = []
        fix = (
            f"all {work.ranks} ranks of the group came to {what} with the same sizes: look at the "
            "network and the devices, or for a device that still computes what was before."
        )
    else:
        fix = (
            f"all ranks that the log names came to {what} with the same sizes: "
            "look for one that it does not name, at the network and the devices, or at a device "
            "that still computes what was before."
        )
    return make_finding("missing_participant", words, silent or sorted(at), notes, fix)


def find_halted(log: JobLog) -> Iterator[Finding]:
    """Yield that watchdogs make no progress: a finding where nothing else says what hangs."""
    if not log.halted:
        return
    fix = (
        "a call of CUDA or NCCL hangs on these ranks, or a thread holds the GIL inside of one: "
        "`scenario hang` on their machines shows the stacks, `py-spy dump --native` those of C++."
    )
    yield make_finding("missing_participant", _tell_halted(log), sorted(log.halted), fix=fix)


def _tell_halted(log: JobLog) -> str:
    ranks, seconds = sorted(log.halted), max(log.halted.values())
    if len(ranks) == 1:
        return f"the watchdog of rank {ranks[0]} has made no progress for {seconds} s"
    return f"the watchdogs of {ranks_text(ranks)} have made no progress for {seconds} s"
