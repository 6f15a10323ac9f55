"""How ranks ended, by torchrun's table, its agent, Slurm and mpiexec -> who ended first."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from textwrap import dedent

from torch_scenarios.record.evidence.job_log import barrier, mismatch
from torch_scenarios.record.evidence.job_log.error import WAITED, advise, is_own_error
from torch_scenarios.record.evidence.job_log.log import JobLog, make_finding, read_rank
from torch_scenarios.record.evidence.job_log.printed_error import read_error
from torch_scenarios.record.evidence.stack.position import find_in_stacks
from torch_scenarios.record.format import signal_name
from torch_scenarios.verdict import Finding

_FAILED_RANK = re.compile(r"^\s*rank\s*: (\d+) \(local_rank: \d+\)")
_EXIT_CODE = re.compile(r"^\s*exitcode\s*: (-?\d+)")
_ROOT_CAUSE = re.compile(r"Root Cause \(first observed failure\)")
#: a traceback in torchrun's table, and the line that ends it
_TABLE_TRACEBACK = re.compile(r"^\s*traceback\s*: Traceback")
_RULE = re.compile(r"^(?:-{20,}|={20,})$")
#: what ended a task, as Slurm prints it, and the signal that it was; or as mpiexec does
_TASK = re.compile(r"error: \S+ tasks? (\d+)\S*: (Out Of Memory|Killed|Segmentation fault|Aborted)")
_SIGNALS = {"Out Of Memory": -9, "Killed": -9, "Segmentation fault": -11, "Aborted": -6}
_PROCESS = re.compile(r"noticed that process rank (\d+) .* exited on signal (\d+)")
#: what torchrun's agent says of the first process that ended, by its rank on the node
_LOCAL = re.compile(r"failed \(exitcode: (-?\d+)\) local_rank: (\d+)")
#: what to do about a process that a signal ended
_SIGNAL_ADVICE = {
    -6: (
        "SIGABRT is most often torch's own watchdog, after a collective has timed out: look for "
        "`Watchdog caught` in the log of each rank."
    ),
    -7: (
        "SIGBUS most often means that /dev/shm is full, where loaders and NCCL share memory: give "
        "the container more (`--shm-size`), or take fewer workers."
    ),
    -9: "SIGKILL most often comes from the kernel where memory ran out: `dmesg -T | tail`.",
}


def read(lines: Sequence[str], log: JobLog) -> None:
    """Read how ranks ended, and what those of a table have raised."""
    _read_table(lines, log)
    _read_launchers(lines, log)


def _read_table(lines: Sequence[str], found: JobLog) -> None:
    rank, is_root = None, False
    traceback: list[str] = []
    for line in lines:
        is_root = is_root or _ROOT_CAUSE.search(line) is not None
        named, code = _FAILED_RANK.match(line), _EXIT_CODE.match(line)
        if named is not None:
            rank = read_rank(named[1])
        elif code is not None and rank is not None:
            found.ends[rank] = int(code[1][:6])
            if is_root and found.first_end is None:
                found.first_end = rank
        elif rank is not None and _TABLE_TRACEBACK.match(line):
            traceback = [line]
        elif traceback and rank is not None and _RULE.match(line):
            head, *below = traceback
            error = read_error([head, *dedent("\n".join(below)).splitlines()])
            if error is not None:
                found.errors.setdefault(rank, error)
            rank, traceback = None, []
        elif traceback:
            traceback.append(line)


def _read_launchers(lines: Sequence[str], found: JobLog) -> None:
    """Read what launchers say of a process that has ended: Slurm, mpiexec, torchrun's agent."""
    for line in lines:
        if (task := _TASK.search(line)) is not None:
            rank, code = int(task[1][:9]), _SIGNALS[task[2]]
        elif (process := _PROCESS.search(line)) is not None:
            rank, code = int(process[1][:9]), -int(process[2][:3])
        else:
            local = _LOCAL.search(line)
            if local is not None and found.local_end is None:
                found.local_end = (int(local[2][:9]), int(local[1][:6]))
            continue
        found.ends.setdefault(rank, code)
        found.first_end = rank if found.first_end is None else found.first_end


def find(log: JobLog) -> Iterator[Finding]:
    """Yield which rank ended before all others, where no other finding says why."""
    first = log.first_end
    if first is not None and not is_own_error(log, first) and not _has_cause(log, first):
        code = log.ends[first]
        more = f"; it raised {log.errors[first]}" if first in log.errors else ""
        words = f"rank {first} {_tell_end(code)} before all others{more}"
        raised = log.errors.get(first)
        fix = _SIGNAL_ADVICE.get(code) or (advise(raised) if raised is not None else "")
        yield make_finding("outcome_differs", words, [first], fix=fix)
    elif first is None and log.local_end is not None and not (log.errors or log.groups):
        local, code = log.local_end
        words = f"the rank with local rank {local} {_tell_end(code)} before all others"
        yield make_finding("outcome_differs", words, [], fix=_SIGNAL_ADVICE.get(code, ""))


def _tell_end(code: int) -> str:
    return f"dies by {signal_name(-code)}" if code < 0 else f"exits with code {code}"


def _has_cause(log: JobLog, rank: int) -> bool:
    """Whether another finding says why a rank has ended: one that waited, or that torch warned."""
    words = log.errors[rank].words if rank in log.errors else ""
    return (
        (log.ends[rank] == -6 and any(rank in own for own in log.groups.values()))
        or (log.ends[rank] == -6 and log.received is not None)
        or (len(log.mismatch) > 1 and mismatch.SAYS in words)
        or (bool(log.absent) and any(each.search(words) for each in (barrier.SAYS, barrier.LOST)))
        or (WAITED.search(words) is not None and bool(find_in_stacks(log.stacks, parses=False)))
    )
