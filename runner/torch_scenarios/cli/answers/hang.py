"""What `scenario hang` does."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from torch_scenarios.cli.options import refuse_usage, write_text
from torch_scenarios.display import clean
from torch_scenarios.errors import ScenarioError
from torch_scenarios.record.analysis import find_script, judge_records
from torch_scenarios.record.evidence import process
from torch_scenarios.record.evidence.flight_recorder import read_dumps
from torch_scenarios.record.evidence.process import RunningRank
from torch_scenarios.record.evidence.stack import RankStack, write_stack
from torch_scenarios.record.evidence.stack.position import (
    find_absent,
    find_in_stacks,
    position_lines,
    value_lines,
)
from torch_scenarios.verdict import Finding
from torch_scenarios.verdict.finding import ranks_text

FOUND, USAGE, INCONCLUSIVE, NOTHING = 1, 2, 3, 5
#: ranks of which more than a line is shown, and processes that one has started
MOST_RANKS, MOST_WORKERS = 8, 2


def hang(options: Mapping[str, Any]) -> None:
    """Find the ranks of a job on this machine, and say which of them keeps the others waiting.

    Each stack is read twice, some seconds apart. A rank that has moved between is not the one that
    hangs, and what its stack seemed to show does not count. Ranks whose torch keeps a record of
    their calls are asked for that as well: it has the calls before, which a stack cannot show.

    The exit code is 1 where a cause is found, 3 where it is not, and 5 without a job.
    """
    program = process.py_spy()
    ranks = (
        _choose_job(process.find_ranks(), options["job"])
        if options["pid"] is None
        else _list_children(program, options["pid"])
    )
    first, failures = _stacks(program, ranks)
    time.sleep(options["seconds"])
    second, _ = _stacks(program, ranks)
    stacks = second or first
    if options["file"] and stacks:
        _write(options["file"], stacks)
    world = ranks[0].world_size
    head = f"{len(ranks)} of {world} ranks on this machine"
    dumped = _read_dumps(ranks)
    moving = sorted(
        rank for rank in second if rank in first and first[rank].frames != second[rank].frames
    )
    found = _findings(ranks, second, dumped, moving)
    verdict = "FAILED" if found else "INCONCLUSIVE"
    notes = _notes(ranks, second, failures, moving, is_found=bool(found))
    if options["file"] and not stacks:
        notes.append(f"  note: `{options['file']}` is not written: no stack was read")
    if options["json_file"]:
        content = _write_json(verdict, ranks, second, found, moving, notes)
        write_text(options["json_file"], content)
    workers = _tell_workers(program, ranks, second, _home(ranks))
    for line in (f"{verdict:12} {head}", *_report(ranks, second, found, workers), *notes):
        if options["json_file"] != "-":
            click.echo(clean(line))
    sys.exit(FOUND if found else INCONCLUSIVE)


def _choose_job(found: Sequence[RunningRank], wanted: str) -> list[RunningRank]:
    """Return the ranks of the job that is meant; ends where there is none, or which is not said."""
    jobs = sorted({each.job for each in found if wanted in each.job})
    jobs = [wanted] if wanted in jobs else jobs
    if found and not jobs:
        listed = ", ".join(f"`{job}`" for job in sorted({each.job for each in found}))
        refuse_usage(f"no job that runs here has `{wanted}` in its variables: {listed}")
    if not jobs:
        click.echo(
            "no process of yours on this machine has RANK and WORLD_SIZE in its environment: run "
            "it on a node of the job, as the same user (in a container: inside of it). Where a "
            "script starts its ranks itself (mp.spawn), `--pid PID` with the script's process",
            err=True,
        )
        sys.exit(NOTHING)
    if len(jobs) > 1:
        click.echo("scenario hang: several jobs run here: choose one by --job", err=True)
        for job in jobs:
            click.echo(f"  {_tell_job(job, jobs, found)}", err=True)
        sys.exit(USAGE)
    return [each for each in found if each.job == jobs[0]]


def _list_children(program: str | None, pid: int) -> list[RunningRank]:
    """Return the ranks that a script has started itself; ends where it has none."""
    if found := process.find_children(program, pid):
        return found
    click.echo(
        f"process {pid} has started no process of Python that runs, or is not yours", err=True
    )
    sys.exit(NOTHING)


def _tell_job(job: str, jobs: Sequence[str], found: Sequence[RunningRank]) -> str:
    """Return by which option a job is chosen, and what is seen of it: its ranks, its command."""
    own = [each for each in found if each.job == job]
    parts = [each for each in job.split() if sum(each in other.split() for other in jobs) == 1]
    count = f"{len(own)} rank{'s' * (len(own) != 1)}"
    return f"--job {(parts or [job])[-1]}: {count}, {process.tell_command(own[0].pid)}"


def _tell_workers(
    program: str | None,
    ranks: Sequence[RunningRank],
    stacks: Mapping[int, RankStack],
    home: str,
) -> list[str]:
    """Return where the processes are that ranks outside of any call have started.

    A rank that waits for a DataLoader's worker shows nothing by itself: the worker is where it
    hangs.
    """
    lines = []
    for each in ranks if program is not None else ():
        own = stacks.get(each.rank)
        if own is None or own.call:
            continue
        for pid in process.list_workers(each.pid)[:MOST_WORKERS]:
            stack, _ = process.read_stack(str(program), replace(each, pid=pid))
            if stack is not None and stack.own:
                where = stack.place.short(home)
                lines.append(f"process {pid}, which rank {each.rank} has started, is at {where}")
    return lines


def _stacks(
    program: str | None, ranks: Sequence[RunningRank]
) -> tuple[dict[int, RankStack], dict[int, str]]:
    """Return the stack of each rank, and why there is none; nothing without `py-spy`."""
    found, failures = {}, {}
    for each in ranks if program is not None else ():
        assert program is not None
        stack, why = process.read_stack(program, each)
        if stack is None:
            failures[each.rank] = why
        else:
            found[each.rank] = stack
    return found, failures


def _read_dumps(ranks: Sequence[RunningRank]) -> list[Finding]:
    """Return what dumps of the flight recorder say, of the ranks that write one now.

    Under TORCH_NCCL_DEBUG_INFO_PIPE_FILE torch writes one when a byte comes through that pipe
    (torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp).
    """
    with tempfile.TemporaryDirectory(prefix="scenario-hang-") as kept:
        folder = Path(kept)
        names = [
            shutil.copy(path, folder / f"rank{rank}") for rank, path in process.ask_for_dumps(ranks)
        ]
        if not names:
            return []
        try:
            records = read_dumps(folder)
            script, home = find_script(records, str(folder))
            result = judge_records(records, folder / "scenario.yaml", script=script, folder=home)
        except ScenarioError:
            return []
    return list(result.result.verdict.findings) if result.found else []


def _findings(
    ranks: Sequence[RunningRank],
    stacks: Mapping[int, RankStack],
    dumped: Sequence[Finding],
    moving: Sequence[int],
) -> list[Finding]:
    """Return what dumps, stacks and absent processes show; of ranks that move, a dump alone.

    Two stacks of a rank that goes on are of two times: that they differ from another rank's means
    nothing.
    """
    home = _home(ranks)
    found = [*dumped, *find_in_stacks(stacks, home)]
    if moving and not dumped:
        found = [each for each in found if not set(each.ranks) & set(moving)]
    is_of_one = all(each.is_of_one_machine for each in ranks)
    absent = find_absent(_absent(ranks), stacks, home) if is_of_one and not moving else None
    return found if absent is None else [absent, *found]


def _absent(ranks: Sequence[RunningRank]) -> list[int]:
    """Return the ranks of the job that have no process on this machine."""
    return sorted(set(range(ranks[0].world_size)) - {each.rank for each in ranks})


def _write_json(
    verdict: str,
    ranks: Sequence[RunningRank],
    stacks: Mapping[int, RankStack],
    found: Sequence[Finding],
    moving: Sequence[int],
    notes: Sequence[str],
) -> str:
    """Return what is seen of a job as JSON: a rank without a stack has none."""
    whole = {
        "status": verdict,
        "job": ranks[0].job,
        "world_size": ranks[0].world_size,
        "ranks": [
            {
                "rank": each.rank,
                "pid": each.pid,
                "moves": each.rank in moving,
                "stack": [f"{one.filename}:{one.line}" for one in stacks[each.rank].frames]
                if each.rank in stacks
                else None,
            }
            for each in ranks
        ],
        "findings": [
            {
                "code": each.kind,
                "message": each.prose,
                "because": list(each.because),
                "ranks": list(each.ranks),
                "fix": each.fix,
            }
            for each in found
        ],
        "notes": [each.strip().removeprefix("note: ") for each in notes],
    }
    return json.dumps(whole, indent=2) + "\n"


def _report(
    ranks: Sequence[RunningRank],
    stacks: Mapping[int, RankStack],
    found: Sequence[Finding],
    workers: Sequence[str],
) -> list[str]:
    """Return where the ranks are, and what that means, in lines."""
    home = _home(ranks)
    said = " ".join(clause for each in found for clause in each.because)
    values = [line for line in value_lines(stacks, home) if line.rpartition(" (")[0] not in said]
    lines = [*position_lines(stacks, home), *values, *workers]
    lines += [
        f"rank {each.rank}: process {each.pid} {process.kernel_word(each.pid)}"
        for each in ranks
        if each.rank not in stacks
    ][:MOST_RANKS]
    for each in found:
        name = each.diagnosis or each.code
        lines.append(f"{name}: {each.prose}" if name != "outcome_differs" else each.prose)
        lines += [f"  {clause}" for clause in each.because]
        if each.fix:
            lines.append(f"  fix: {each.fix}")
    return [f"  {line}" for line in lines]


def _home(ranks: Sequence[RunningRank]) -> str:
    """Return the folder that places are relative to: the one that the job runs in."""
    try:
        return str(Path(f"/proc/{ranks[0].pid}/cwd").readlink())
    except OSError:
        return ""


def _are_at_one_line(ranks: Sequence[RunningRank], stacks: Mapping[int, RankStack]) -> bool:
    return len(stacks) == len(ranks) and len({each.place for each in stacks.values()}) == 1


def _notes(
    ranks: Sequence[RunningRank],
    stacks: Mapping[int, RankStack],
    failures: Mapping[int, str],
    moving: Sequence[int],
    *,
    is_found: bool,
) -> list[str]:
    """Return what follows the verdict on a hang: what could not be seen, and how to see it."""
    notes = []
    if process.py_spy() is None:
        notes.append("py-spy is not installed: `pip install py-spy` shows stacks")
    for rank, why in [*failures.items()][:MOST_RANKS]:
        more = "; it needs the same user with CAP_SYS_PTRACE, or root" if "erm" in why else ""
        notes.append(f"rank {rank} has no stack: {why}{more}")
    if moving:
        words = "moves" if len(moving) == 1 else "move"
        notes.append(f"{ranks_text(list(moving))} {words}: the job may be slow, and not hang")
    elif not is_found and _are_at_one_line(ranks, stacks):
        notes.append("all of them are at one line: look at ranks of other nodes, or the network")
    if not is_found and not any(map(process.has_pipe, ranks)):
        notes.append(
            "on NCCL a call returns at once, and stacks show where a host waits for its device: "
            f"start the next run with {process.PIPED}, and torch tells here what each rank calls"
        )
    missing = _absent(ranks)
    if missing and not all(each.is_of_one_machine for each in ranks):
        one = len(missing) == 1
        notes.append(
            f"{ranks_text(missing)} {'is' if one else 'are'} not on this machine: "
            f"{'it is' if one else 'they are'} on another node, or {'has' if one else 'have'} "
            "ended; `-o FILE` on each node, then `scenario import` of the files in one, gives one "
            "verdict"
        )
    recorded = {each.record for each in ranks} - {""}
    notes += [f"it records itself: `scenario import {each}` says more" for each in recorded]
    return [f"  note: {each}" for each in notes]


def _write(file: str, stacks: Mapping[int, RankStack]) -> None:
    lines = [line for stack in stacks.values() for line in (*write_stack(stack), "")]
    try:
        Path(file).write_text("\n".join(lines) + "\n", encoding="utf-8")
    except OSError as error:
        refuse_usage(f"{file}: it cannot be written: {error.strerror or error}")
